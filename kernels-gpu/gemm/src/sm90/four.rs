//! Four neighbours of a result at a time, of any [`Type`]: one load of each input, and one store.

use cuda_std::{convert, fastmath, vector};
use num::{E4M3, E5M2};
use primitives::unroll;

use crate::any::{Epilogue, Place};
#[cfg(doc)]
use crate::element::Type;
use crate::element::bytes;
use crate::epilogue::{Activation, EpilogueParams, Fast, Visitor};

/// Four neighbours of any [`Type`] as they lie: what they are is asked when they are used, so that loads do
/// not wait for each other.
#[derive(Clone, Copy)]
pub(super) struct Four([u32; Four::COUNT]);

impl Four {
    /// Elements.
    pub const COUNT: usize = 4;
    /// Zeros.
    pub const NONE: Self = Self([0; Self::COUNT]);

    /// Elements `index` and on from `base` on.
    ///
    /// # Safety
    /// There are four of that [`Type`], the first at a multiple of their size.
    #[inline(always)]
    pub unsafe fn load(base: *const u8, ty: u32, index: usize) -> Self {
        let from = base.wrapping_add(index * bytes(ty) as usize).cast::<u32>();
        // SAFETY: the caller's contract.
        unsafe {
            match bytes(ty) {
                4 => Self(vector::load_v4(from)),
                2 => {
                    let [low, high] = vector::load_v2(from);
                    Self([low, high, 0, 0])
                }
                _ => Self([vector::load(from), 0, 0, 0]),
            }
        }
    }

    /// An element four times.
    ///
    /// # Safety
    /// There is one of that [`Type`].
    #[inline(always)]
    pub unsafe fn repeat(base: *const u8, ty: u32, index: usize) -> Self {
        // SAFETY: the caller's contract; device buffers are aligned for their elements.
        unsafe {
            let word = match bytes(ty) {
                4 => *base.cast::<u32>().add(index),
                2 => u32::from(*base.cast::<u16>().add(index)) * 0x1_0001,
                _ => u32::from(*base.add(index)) * 0x101_0101,
            };
            Self([word; Self::COUNT])
        }
    }

    /// The numbers.
    #[inline(always)]
    pub fn widen(self, ty: u32) -> [f32; Self::COUNT] {
        let Self([first, second, ..]) = self;
        let halves = |of: fn(u32) -> [f32; 2]| {
            let ([a, b], [c, d]) = (of(first), of(second));
            [a, b, c, d]
        };
        match ty {
            0 => self.0.map(f32::from_bits),
            1 => halves(convert::f16x2_to_f32),
            2 => halves(convert::bf16x2_to_f32),
            3 => first.to_le_bytes().map(|bits| E4M3::from_bits(bits).to_f32()),
            _ => first.to_le_bytes().map(|bits| E5M2::from_bits(bits).to_f32()),
        }
    }

    /// Rounds to the [`Type`] and stores as elements `index` and on from `base` on.
    ///
    /// # Safety
    /// There are four, which no other thread touches, the first at a multiple of their size.
    #[inline(always)]
    pub unsafe fn store(base: *mut u8, ty: u32, index: usize, [a, b, c, d]: [f32; Self::COUNT]) {
        let to = base.wrapping_add(index * bytes(ty) as usize).cast::<u32>();
        let pairs = |of: fn(f32, f32) -> u16| u32::from(of(a, b)) | u32::from(of(c, d)) << u16::BITS;
        // SAFETY: the caller's contract.
        unsafe {
            match ty {
                0 => vector::store_v4(to, [a, b, c, d].map(f32::to_bits)),
                1 => vector::store_v2(to, [convert::f16x2_from_f32(a, b), convert::f16x2_from_f32(c, d)]),
                2 => vector::store_v2(to, [convert::bf16x2_from_f32(a, b), convert::bf16x2_from_f32(c, d)]),
                3 => vector::store(to, pairs(convert::e4m3x2_from_f32)),
                _ => vector::store(to, pairs(convert::e5m2x2_from_f32)),
            }
        }
    }
}

/// All that an epilogue adds to four neighbours, as it lies.
#[derive(Clone, Copy)]
pub(super) struct Around {
    source: Four,
    bias: Four,
    residual: Four,
}

/// Applies a function to each of four.
struct Apply<'x>(&'x mut [f32; Four::COUNT]);

impl Visitor<f32> for Apply<'_> {
    #[inline(always)]
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        *self.0 = self.0.map(function);
    }
}

impl Epilogue<'_> {
    /// Loads all that [`Epilogue::finish_four`] adds, for four neighbours of a row, or, where `down`, of a
    /// column.
    ///
    /// # Safety
    /// They are inside of C, and with the residual's and, unless `down`, the bias's lie side by side, each at
    /// a multiple of four times its size.
    #[inline(always)]
    pub(super) unsafe fn load_four(self, place: Place, down: bool) -> Around {
        let EpilogueParams { beta, bias_type, residual, residual_layout, .. } = *self.params;
        let mut around = Around { source: Four::NONE, bias: Four::NONE, residual: Four::NONE };
        // SAFETY: the caller's contract.
        unsafe {
            if beta != 0.0 {
                around.source = Four::load(self.c, self.c_layout.ty, place.within(self.c_layout));
            }
            if !self.bias.is_null() {
                let column = place.column as usize;
                around.bias = if down {
                    Four::repeat(self.bias, bias_type, column)
                } else {
                    Four::load(self.bias, bias_type, column)
                };
            }
            if !residual.is_null() {
                around.residual = Four::load(residual, residual_layout.ty, place.within(residual_layout));
            }
        }
        around
    }

    /// Writes the elements of C that four sums become; the bits of the largest magnitude. `place` is that of
    /// the first.
    ///
    /// # Safety
    /// As for [`Epilogue::load_four`], whose result `around` is; no other thread touches the elements.
    #[inline(always)]
    pub(super) unsafe fn finish_four(
        self,
        activation: Activation,
        sums: [f32; Four::COUNT],
        around: Around,
        place: Place,
    ) -> u32 {
        let (params, c) = (self.params, self.c_layout);
        let mut v = sums.map(|sum| self.alpha * sum);
        let source = around.source.widen(c.ty);
        let bias = around.bias.widen(params.bias_type);
        unroll!(I in 0..4, {
            if params.beta != 0.0 {
                v[I] = fastmath::fma(params.beta, source[I], v[I]);
            }
            v[I] += bias[I];
        });
        activation.visit::<Fast>(Apply(&mut v));
        let residual = around.residual.widen(params.residual_layout.ty);
        let mut largest = 0;
        unroll!(I in 0..4, {
            v[I] += residual[I];
            // As for a single one.
            largest = largest.max(v[I].to_bits() & (u32::MAX >> 1));
        });
        // SAFETY: the caller's contract.
        unsafe { Four::store(self.c, c.ty, place.within(c), v.map(|v| v * self.scale)) };
        largest
    }
}
