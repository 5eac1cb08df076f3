//! A cache in e4m3: its elements are widened to the type of queries in registers, and multiplied there.
//!
//! A register that `ldmatrix` loads has four elements of a line. Of keys these are the columns `4 q` to
//! `4 q + 3` of 16, with `q = lane % 4`, where a right operand has two at `2 q` and two at `2 q + 8`: so
//! queries have their columns in that order. Of values, transposed, they are two columns of two keys:
//!
//! ```text
//!   keys 0..  a0 a1 a2 a3    column c: a0 a2 b0 b2    columns c of 16 are even,
//!   keys 8..  b0 b1 b2 b3    c + 1:    a1 a3 b1 b3    and results of even columns come before odd ones
//! ```
//! Rows of 64 elements lie two beside each other in lines of 128 bytes: eight lines of a matrix are then in
//! different banks, as eight rows of 128 elements are.

use cuda_std::misc::permute_bytes;
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{convert, matrix, vector};
use layout::UNIT_BYTES;
use num::E4M3;
use primitives::unroll;
use primitives::warp::LANES;

use super::super::config::{Cached, Config, Element, ElementType, TILE_KEYS, UNIT, place_of};
use super::super::forward::{Pass, Scores};
use super::super::rotary::partner;
use super::super::schedule::Cursor;

/// Bytes 0 and 2 of two registers.
const EVEN: u32 = 0x6420;
/// Bytes 1 and 3.
const ODD: u32 = 0x7531;

/// Four elements as two registers of a right operand. Both types have every number of e4m3.
#[inline(always)]
fn widen<E: Element>(four: u32) -> [u32; 2] {
    [four, four >> 16].map(|two| {
        let halves = convert::f16x2_from_e4m3x2(two as u16);
        match E::TYPE {
            ElementType::F16 => halves,
            ElementType::Bf16 => {
                let [low, high] = convert::f16x2_to_f32(halves);
                E::pack(low, high)
            }
        }
    })
}

/// Eight elements in e4m3, of numbers that are multiplied by `factor`.
#[inline(always)]
fn quantize<E: Element>(words: [u32; 4], factor: f32) -> [u32; 2] {
    let two = |word| {
        let [low, high] = E::unpack(word);
        u32::from(convert::e4m3x2_from_f32(low * factor, high * factor))
    };
    let [a, b, c, d] = words.map(two);
    [a | b << 16, c | d << 16]
}

/// The factor of numbers that become e4m3 with a scale: 0 is that of zeros alone.
#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

impl Cached for E4M3 {
    const IS_E4M3: bool = true;

    #[inline(always)]
    unsafe fn scores<C: Config<Cached = Self>>(pass: Pass<'_, C>, stage: u32, scale: f32) -> Scores {
        let (queries, lines) = (pass.query_lines(), pass.key_lines(stage));
        let mut sums = [[0.0; 4]; 2];
        unroll!(STEP in 0..8, {
            if STEP < (C::HEAD / 32) as usize {
                // SAFETY: units of the stage; the whole warp is here.
                unsafe {
                    let keys = matrix::ldmatrix_x4(lines.at(STEP));
                    unroll!(HALF in 0..2, {
                        let rows = matrix::ldmatrix_x4(queries.at(2 * STEP + HALF));
                        let (low, high) =
                            (widen::<C::Element>(keys[HALF]), widen::<C::Element>(keys[2 + HALF]));
                        sums[0] = C::Element::multiply(rows, low, sums[0]);
                        sums[1] = C::Element::multiply(rows, high, sums[1]);
                    });
                }
            }
        });
        let [a, b] = sums.map(|sums| sums.map(|sum| sum * scale));
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
        unroll!(STEP in 0..8, {
            if STEP < (C::HEAD / 32) as usize {
                // SAFETY: units of the stage; the whole warp is here.
                let words = unsafe { matrix::ldmatrix_x4_trans(lines.at(STEP)) };
                unroll!(PART in 0..4, {
                    let (low, high) = (words[PART / 2 * 2], words[PART / 2 * 2 + 1]);
                    let column = if PART % 2 == 0 {
                        permute_bytes::<EVEN>(low, high)
                    } else {
                        permute_bytes::<ODD>(low, high)
                    };
                    let at = 16 * STEP + 4 * PART;
                    let sums = [result[at], result[at + 1], result[at + 2], result[at + 3]];
                    // SAFETY: the whole warp is here.
                    let sums = unsafe { C::Element::multiply(weights, widen::<C::Element>(column), sums) };
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
        scales: [f32; 2],
    ) {
        let (params, cache) = (pass.arguments.problem.params, pass.arguments.cache);
        let unit = pass.lane % C::UNITS;
        let has_column = unit * UNIT < params.head_size;
        let first_new = params.first_new(at.span.keys);
        let [of_keys, of_values] = scales.map(inverse);
        let mut line = pass.lane / C::UNITS;
        // SAFETY: units of rows of new keys; places of the stage and of the cache that are this lane's alone.
        unsafe {
            while line < TILE_KEYS {
                let key = first_key + line;
                if has_column && key >= first_new && key < at.span.end {
                    let row = |first: *const u16, place: usize| {
                        move |unit: u32| {
                            vector::load_v4::<u32>(first.add(place + (unit * UNIT) as usize).cast())
                        }
                    };
                    let [keys, values] = [params.new_key_strides, params.new_value_strides]
                        .map(|strides| strides.at(key - first_new, at.head, at.sequence));
                    let (keys, values) = (row(cache.new_keys, keys), row(cache.new_values, values));
                    let mut words = keys(unit);
                    if params.rotated > 0 {
                        let other = keys(partner(params, unit));
                        words = pass.arguments.rotary.turn::<C::Element>(params, key, unit, words, other);
                    }
                    let words = quantize::<C::Element>(words, of_keys);
                    let values = quantize::<C::Element>(values(unit), of_values);
                    let (whole, half) = (unit / 2, unit % 2 * (UNIT_BYTES / 2));
                    let (first, place) = place_of::<C>(line, whole);
                    let to = stage + first + place * UNIT_BYTES + half;
                    vector::store_shared_v2(to, words);
                    vector::store_shared_v2(to + C::TILE_BYTES, values);
                    let kept = cache.place(params, at, key).on([u64::from(unit * UNIT); 2]);
                    // Other tiles of rows have the same new keys.
                    if at.row_tile == 0 && kept.is_there {
                        vector::store_v2(kept.rows[0].cast_mut().cast::<u32>(), words);
                        vector::store_v2(kept.rows[1].cast_mut().cast::<u32>(), values);
                    }
                }
                line += LANES / C::UNITS;
            }
            sync_warp(FULL_MASK);
        }
    }
}
