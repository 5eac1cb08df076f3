//! Rotary position embedding: pairs of columns turn by an angle of the row's position.

use cuda_std::fastmath::fma;
use cuda_std::vector;
use primitives::unroll;

use super::config::{Element, UNIT};
use super::problem::DecodeParams;

/// Cosines and sines of the angles, f32 `[positions, rotated / 2]` each, a position for each key; without use
/// where nothing is rotated.
#[derive(Clone, Copy)]
pub struct Rotary {
    /// Cosines.
    pub cosines: *const f32,
    /// Sines.
    pub sines: *const f32,
}

/// A unit of 16 bytes of a row.
type Words = [u32; 4];

/// The unit whose columns turn together with those of `unit`.
#[inline(always)]
#[must_use]
pub const fn partner(params: &DecodeParams, unit: u32) -> u32 {
    let half = params.rotated / UNIT / 2;
    if params.rotates_neighbours != 0 || unit >= 2 * half {
        unit
    } else if unit < half {
        unit + half
    } else {
        unit - half
    }
}

impl Rotary {
    /// The unit of this number of the row at a position, rotated; `other` is its [`partner`].
    ///
    /// # Safety
    /// The tables are as the type says, and have the position.
    #[inline(always)]
    #[must_use]
    pub unsafe fn turn<E: Element>(
        self,
        params: &DecodeParams,
        position: u32,
        unit: u32,
        own: Words,
        other: Words,
    ) -> Words {
        let pairs = params.rotated / 2;
        if unit * UNIT >= params.rotated {
            return own;
        }
        let row = position as usize * pairs as usize;
        let mut words = own;
        if params.rotates_neighbours != 0 {
            // SAFETY: the caller's word; four pairs of the row.
            let (c, s) = unsafe { self.angles(row + (unit * UNIT / 2) as usize) };
            unroll!(I in 0..4, {
                let [x, y] = E::unpack(own[I]);
                words[I] = E::pack(fma(x, c[I], -(y * s[I])), fma(y, c[I], x * s[I]));
            });
            return words;
        }
        let is_second = unit * UNIT >= pairs;
        let first = if is_second { unit * UNIT - pairs } else { unit * UNIT };
        unroll!(HALF in 0..2, {
            // SAFETY: the caller's word; four of eight pairs of the row.
            let (c, s) = unsafe { self.angles(row + first as usize + 4 * HALF) };
            unroll!(I in 0..2, {
                let (x, y) = (E::unpack(own[2 * HALF + I]), E::unpack(other[2 * HALF + I]));
                let turned = |i: usize| {
                    let sine = if is_second { s[2 * I + i] } else { -s[2 * I + i] };
                    fma(x[i], c[2 * I + i], y[i] * sine)
                };
                words[2 * HALF + I] = E::pack(turned(0), turned(1));
            });
        });
        words
    }

    /// Cosines and sines of four neighbours from a place of the tables on.
    ///
    /// # Safety
    /// The tables have them; the place is a multiple of four.
    #[inline(always)]
    unsafe fn angles(self, at: usize) -> ([f32; 4], [f32; 4]) {
        // SAFETY: the caller's word.
        unsafe { (vector::load_v4(self.cosines.add(at)), vector::load_v4(self.sines.add(at))) }
    }
}
