//! A cache of the queries' type: its elements are multiplied as they lie in stages.

use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{matrix, vector};
use layout::{UNIT_BYTES, swizzle_units};
use primitives::unroll;

use super::config::{Cached, Config, Element, TILE_KEYS, UNIT};
use super::forward::{Arguments, Pass, Scores};
use super::rotary::partner;
use super::schedule::Cursor;

impl Cached for u16 {
    const IS_E4M3: bool = false;

    #[inline(always)]
    unsafe fn scores<C: Config<Cached = Self>>(pass: Pass<'_, C>, stage: u32, _: f32) -> Scores {
        let queries = pass.query_lines();
        let lines = pass.key_lines(stage);
        let mut sums = [[0.0; 4]; 2];
        unroll!(STEP in 0..16, {
            if STEP < (C::HEAD / 16) as usize {
                // SAFETY: units of the stage; the whole warp is here.
                unsafe {
                    let rows = matrix::ldmatrix_x4(queries.at(STEP));
                    let keys = matrix::ldmatrix_x4(lines.at(STEP));
                    sums[0] = C::Element::multiply(rows, [keys[0], keys[1]], sums[0]);
                    sums[1] = C::Element::multiply(rows, [keys[2], keys[3]], sums[1]);
                }
            }
        });
        let [a, b] = sums;
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
    }

    #[inline(always)]
    unsafe fn add_values<C: Config<Cached = Self>>(
        pass: Pass<'_, C>,
        stage: u32,
        weights: &Scores,
        result: &mut C::Result,
    ) {
        let [a, b, c, d, e, f, g, h] = *weights;
        let pack = C::Element::pack;
        let weights = [pack(a, b), pack(c, d), pack(e, f), pack(g, h)];
        let lines = pass.value_lines(stage);
        let result = result.as_mut();
        unroll!(PAIR in 0..16, {
            if PAIR < (C::HEAD / 16) as usize {
                // SAFETY: units of the stage; the whole warp is here.
                let values = unsafe { matrix::ldmatrix_x4_trans(lines.at(PAIR)) };
                unroll!(HALF in 0..2, {
                    let at = 8 * PAIR + 4 * HALF;
                    let sums = [result[at], result[at + 1], result[at + 2], result[at + 3]];
                    let values = [values[2 * HALF], values[2 * HALF + 1]];
                    // SAFETY: the whole warp is here.
                    let sums = unsafe { C::Element::multiply(weights, values, sums) };
                    unroll!(I in 0..4, { result[at + I] = sums[I]; });
                });
            }
        });
    }

    #[inline(always)]
    unsafe fn take_in<C: Config<Cached = Self>>(
        pass: Pass<'_, C>,
        stage: u32,
        at: &Cursor,
        first_key: u32,
        _: [f32; 2],
    ) {
        let Arguments { problem, cache, rotary, .. } = pass.arguments;
        let params = problem.params;
        let unit = pass.lane % C::UNITS;
        let has_column = unit * UNIT < params.head_size;
        let first_new = params.first_new(at.span.keys);
        let mut line = pass.lane / C::UNITS;
        // SAFETY: units of the stage; a row of the cache that is this warp's alone. The warp has read all of
        // a line's units before they are overwritten.
        unsafe {
            while line < TILE_KEYS {
                let key = first_key + line;
                let is_new = has_column && key >= first_new && key < at.span.end;
                let place = |unit| stage + line * C::ROW_BYTES + swizzle_units(unit, line) * UNIT_BYTES;
                let mut words = [0; 4];
                if is_new {
                    words = vector::load_shared_v4(place(unit));
                    if params.rotated > 0 {
                        let other = vector::load_shared_v4(place(partner(params, unit)));
                        words = rotary.turn::<C::Element>(params, key, unit, words, other);
                    }
                }
                sync_warp(FULL_MASK);
                if is_new {
                    vector::store_shared_v4(place(unit), words);
                    let to = cache.place(params, at, key).on([u64::from(unit * UNIT); 2]);
                    // Other tiles of rows have the same new keys.
                    if at.row_tile == 0 && to.is_there {
                        let values: [u32; 4] = vector::load_shared_v4(place(unit) + C::TILE_BYTES);
                        vector::store_v4(to.rows[0].cast_mut().cast::<u32>(), words);
                        vector::store_v4(to.rows[1].cast_mut().cast::<u32>(), values);
                    }
                }
                line += C::ROWS;
            }
            sync_warp(FULL_MASK);
        }
    }
}
