//! Norms whose results are e4m3, scaled by a number on the device, and the largest magnitude before that:
//! what delayed scaling wants (Micikevicius et al., "FP8 formats for deep learning", 2022).

use crate::function::{Place, RowFunction};
use crate::norm::Norm;
use core::sync::atomic::Ordering;
use cuda_std::atomic::mid::atomic_fetch_max_u32_device;
use cuda_std::warp::{self, WarpReductionOp};
use cuda_std::{KernelArgs, fastmath, vector};
use primitives::access;
use primitives::element::{InF32, map};
use primitives::fp8::e4m3_pair;
use primitives::moments::Shifted;

/// [`Norm`], whose results are not rounded to the rows' type: they are scaled, and go to `y` as e4m3. The
/// launch has no output 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct NormToE4m3 {
    /// The norm.
    pub norm: Norm,
    /// The results, one row behind the other.
    pub y: *mut u8,
    /// A factor of them; null: 1.
    pub scale: *const f32,
    /// Raised to the bits of the largest magnitude of the results before that factor, NaN if there is one;
    /// null: nothing.
    pub amax: *mut u32,
}

/// Needed of the row, and the largest magnitude so far of the thread's.
#[derive(Clone, Copy)]
pub struct Of {
    norm: (f32, f32),
    /// The row of `y`.
    y: *mut u8,
    scale: f32,
    largest: f32,
}

impl<T: InF32> RowFunction<T> for NormToE4m3 {
    const INPUTS: usize = <Norm as RowFunction<T>>::INPUTS;
    /// The factor.
    type Row = f32;
    type Statistics = Shifted<T::Precision>;
    type Of = Of;

    #[inline(always)]
    unsafe fn begin(&self, _: u64) -> f32 {
        // SAFETY: not null, so one number.
        if self.scale.is_null() { 1.0 } else { unsafe { vector::load(self.scale) } }
    }

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        _: f32,
        moments: Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        unsafe { self.norm.take((), moments, at) }
    }

    #[inline(always)]
    unsafe fn finish(
        &self,
        scale: f32,
        moments: Self::Statistics,
        number: u64,
        columns: u32,
        is_first: bool,
    ) -> Of {
        // SAFETY: the caller's promise.
        let norm = unsafe { RowFunction::<T>::finish(&self.norm, (), moments, number, columns, is_first) };
        Of { norm, y: self.y.wrapping_add((number * u64::from(columns)) as usize), scale, largest: 0.0 }
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, of: &mut Of, at: &impl Place<T, N>) {
        // SAFETY: the caller's promise; `y` has a byte for each element.
        unsafe {
            let y = self.norm.results(of.norm, self.norm.stored(at), at);
            for i in 0..N {
                of.largest = fastmath::max_nan(of.largest, y[i].abs());
            }
            store(of.y.wrapping_add(at.column() as usize), map(y, |y| y * of.scale));
        }
    }

    #[inline(always)]
    unsafe fn end(&self, of: Of) {
        if self.amax.is_null() {
            return;
        }
        // The bits of numbers that are not negative are in their order, with NaN on top.
        let bits = of.largest.to_bits() & !(1 << 31);
        // SAFETY: the warp is here, by the caller's promise; not null, so one number.
        unsafe {
            let largest = warp::warp_reduce(warp::FULL_MASK, bits, WarpReductionOp::Max);
            if warp::lane_id() == 0 && largest > 0 {
                atomic_fetch_max_u32_device(self.amax, Ordering::Relaxed, largest);
            }
        }
    }
}

/// Stores neighbours as e4m3: in one access where they begin at a multiple of that.
///
/// # Safety
/// `to` is writable for `N` bytes, which are this thread's.
#[inline(always)]
unsafe fn store<const N: usize>(to: *mut u8, values: [f32; N]) {
    const { assert!(matches!(N, 1 | 4 | 8)) };
    let mut codes = 0;
    for i in 0..N.div_ceil(2) {
        let high = if N == 1 { 0.0 } else { values[2 * i + (N > 1) as usize] };
        codes |= u64::from(e4m3_pair(values[2 * i], high)) << (2 * u8::BITS * i as u32);
    }
    // SAFETY: the caller's promise; the boundary is asked for.
    unsafe {
        match N {
            4 if to.cast::<u32>().is_aligned() => access::store(to.cast(), [codes as u32]),
            8 if to.cast::<u64>().is_aligned() => access::store(to.cast(), [codes]),
            _ => {
                for i in 0..N {
                    *to.add(i) = (codes >> (u8::BITS * i as u32)) as u8;
                }
            }
        }
    }
}
