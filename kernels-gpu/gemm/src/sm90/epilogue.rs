//! What becomes of the elements of the product before they are stored.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use cuda_std::atomic::mid::atomic_fetch_max_u32_device;
use cuda_std::warp::{self, WarpReductionOp};
use cuda_std::{fastmath, vector};

use super::operands::Half;
use crate::epilogue::{Activation, swiglu};
use crate::unroll::unrolled;

/// Elements that an epilogue gets at once.
pub const VECTOR: u32 = 8;

/// Neighbours in a row of the result.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Which product of the batch.
    pub batch: u32,
    /// Row of the result.
    pub row: u32,
    /// First column, a multiple of [`VECTOR`].
    pub column: u32,
    /// How many elements there are, `1..=VECTOR`; what is beyond means nothing.
    pub count: u32,
}

/// A function of the product's elements. Implement it to fuse what follows a product into it.
pub trait Epilogue: Copy {
    /// Called by all threads of a consumer before the elements of each tile, which are of a product with this matrix of B.
    ///
    /// # Safety
    /// There is such a matrix.
    #[inline(always)]
    unsafe fn enter(&mut self, _group: u32) {}

    /// Turns elements of the product into elements of the result.
    ///
    /// # Safety
    /// The elements that `at` names are elements of the product, and this thread's alone.
    unsafe fn apply(&mut self, at: At, x: &mut [f32; VECTOR as usize]);

    /// Called by all threads of a consumer together, after its last tile.
    ///
    /// # Safety
    /// All threads of the warp are here.
    #[inline(always)]
    unsafe fn finish(&mut self) {}
}

/// The family's epilogue, as [`crate::epilogue`] says. `H` is the kernel's 16-bit type.
pub struct Fused<H> {
    /// Factors and strides.
    pub terms: Terms,
    /// The result, for `beta`.
    pub old: Vectors<H>,
    /// Added to each row; null: none. `terms.bias_f32` says its type.
    pub bias: Vectors<H>,
    /// Added after the activation; null: none. As the result, of strides of its own.
    pub residual: Vectors<H>,
    /// Receives the bits of the largest magnitude; null: nothing.
    pub amax: *mut u32,
    largest: f32,
}

impl<H> Clone for Fused<H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Fused<H> {}

/// Scalars of an epilogue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of the old result; 0: it is not read.
    pub beta: f32,
    /// An [`Activation`].
    pub activation: u32,
}

/// Rows of numbers in global memory, f32 or `H`.
pub struct Vectors<H> {
    /// First element, or null.
    pub data: *const u8,
    /// Elements from a row to the next.
    pub row: u64,
    /// Elements from a matrix to the next.
    pub matrix: u64,
    /// f32, else `H`.
    pub is_f32: bool,
    /// Every row begins at a multiple of 16 bytes.
    pub aligned: bool,
    half: PhantomData<H>,
}

impl<H> Clone for Vectors<H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Vectors<H> {}

impl<H: Half> Vectors<H> {
    /// Rows of this memory.
    #[inline(always)]
    pub const fn new(data: *const u8, row: u64, matrix: u64, is_f32: bool, aligned: bool) -> Self {
        Self { data, row, matrix, is_f32, aligned, half: PhantomData }
    }

    #[inline(always)]
    unsafe fn load(self, at: At) -> [f32; VECTOR as usize] {
        let index = (u64::from(at.batch) * self.matrix + u64::from(at.row) * self.row + u64::from(at.column))
            as usize;
        let mut x = [0.0; VECTOR as usize];
        // SAFETY: the caller's contract: as many elements as `at` counts are there.
        unsafe {
            if self.is_f32 {
                let from = self.data.cast::<f32>().add(index);
                if self.aligned && at.count == VECTOR {
                    let ([a, b, c, d], [e, f, g, h]) = (vector::load_v4(from), vector::load_v4(from.add(4)));
                    x = [a, b, c, d, e, f, g, h];
                } else {
                    unrolled!(I in [0 1 2 3 4 5 6 7] { if (I as u32) < at.count { x[I] = from.add(I).read(); } });
                }
            } else {
                let from = self.data.cast::<u16>().add(index);
                if self.aligned && at.count == VECTOR {
                    let pairs: [u32; 4] = vector::load_v4(from.cast::<u32>());
                    unrolled!(I in [0 1 2 3] { [x[2 * I], x[2 * I + 1]] = H::unpack(pairs[I]); });
                } else {
                    unrolled!(I in [0 1 2 3 4 5 6 7] {
                        if (I as u32) < at.count { [x[I], _] = H::unpack(u32::from(from.add(I).read())); }
                    });
                }
            }
        }
        x
    }
}

impl<H: Half> Fused<H> {
    /// With the factors of both scales in `terms.alpha` already.
    #[inline(always)]
    pub const fn new(
        terms: Terms,
        old: Vectors<H>,
        bias: Vectors<H>,
        residual: Vectors<H>,
        amax: *mut u32,
    ) -> Self {
        Self { terms, old, bias, residual, amax, largest: 0.0 }
    }
}

impl<H: Half> Epilogue for Fused<H> {
    #[inline(always)]
    unsafe fn apply(&mut self, at: At, x: &mut [f32; VECTOR as usize]) {
        let Terms { alpha, beta, activation } = self.terms;
        let activation = Activation::from_code(activation);
        let halved = matches!(activation, Activation::SwiGlu);
        unrolled!(I in [0 1 2 3 4 5 6 7] { x[I] *= alpha; });
        // SAFETY: the caller's contract, and what the pointers' owners say.
        unsafe {
            if beta != 0.0 && !halved {
                let old = self.old.load(at);
                unrolled!(I in [0 1 2 3 4 5 6 7] { x[I] = fastmath::fma(beta, old[I], x[I]); });
            }
            if !self.bias.data.is_null() {
                let bias = self.bias.load(At { batch: 0, row: 0, ..at });
                unrolled!(I in [0 1 2 3 4 5 6 7] { x[I] += bias[I]; });
            }
            if halved {
                unrolled!(I in [0 1 2 3] { x[I] = swiglu(x[2 * I], x[2 * I + 1]); });
            } else {
                unrolled!(I in [0 1 2 3 4 5 6 7] { x[I] = activation.apply(x[I]); });
            }
            let at = if halved { At { column: at.column / 2, count: at.count / 2, ..at } } else { at };
            if !self.residual.data.is_null() {
                let residual = self.residual.load(at);
                unrolled!(I in [0 1 2 3 4 5 6 7] { x[I] += residual[I]; });
            }
            if !self.amax.is_null() {
                unrolled!(I in [0 1 2 3 4 5 6 7] {
                    if (I as u32) < at.count { self.largest = fastmath::max_nan(self.largest, x[I].abs()); }
                });
            }
        }
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        if self.amax.is_null() {
            return;
        }
        // The bits of numbers that are not negative are in their order, with NaN on top.
        let bits = self.largest.to_bits() & !(1 << 31);
        // SAFETY: the caller says that the warp is here; `amax` is the launch's.
        unsafe {
            let largest = warp::warp_reduce(warp::FULL_MASK, bits, WarpReductionOp::Max);
            if warp::lane_id() == 0 {
                atomic_fetch_max_u32_device(self.amax, Ordering::Relaxed, largest);
            }
        }
    }
}
