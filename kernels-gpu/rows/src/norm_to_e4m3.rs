//! Norms whose results are e4m3, scaled by a number on the device, and the largest magnitude before that:
//! what delayed scaling wants (Micikevicius et al., "FP8 formats for deep learning", 2022).

use crate::function::{Place, RowFunction};
use crate::norm::Norm;
use crate::norm_of_dropout::NormOfDropout;
use core::sync::atomic::Ordering;
use cuda_std::atomic::mid::{atomic_fetch_max_u32_device, atomic_load_32_device};
use cuda_std::warp::{self, WarpReductionOp};
use cuda_std::{KernelArgs, fastmath, vector};
use primitives::access;
use primitives::element::{InF32, map};
use primitives::fp8::e4m3_pair;
use primitives::moments::Shifted;

/// Where results go that are not rounded to the rows' type: they are scaled, and go to `y` as e4m3. The
/// launch has no output 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct ToE4m3 {
    /// The results, one row behind the other.
    pub y: *mut u8,
    /// A factor of them; null: 1.
    pub scale: *const f32,
    /// Raised to the bits of the largest magnitude of the results before that factor, NaN if there is one;
    /// null: nothing. Warps that find it as large already leave it alone: one place takes an atomic operation
    /// after the other.
    pub amax: *mut u32,
}

/// [`Norm`], with results as [`ToE4m3`] says.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct NormToE4m3 {
    /// The norm.
    pub norm: Norm,
    /// Where the results go.
    pub to: ToE4m3,
}

/// [`NormOfDropout`], with results as [`ToE4m3`] says.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct NormOfDropoutToE4m3 {
    /// The norm, and what is dropped out.
    pub of: NormOfDropout,
    /// Where the results go.
    pub to: ToE4m3,
}

/// Known before the row is read: the bits of a magnitude that the largest is not below. There is nothing to
/// raise for others.
#[derive(Clone, Copy)]
pub struct Before {
    seen: u32,
}

/// Needed of the row, and the largest magnitude so far of the thread's.
#[derive(Clone, Copy)]
pub struct Of {
    norm: (f32, f32),
    /// The row of `y`.
    y: *mut u8,
    scale: f32,
    before: Before,
    largest: f32,
}

impl ToE4m3 {
    /// # Safety
    /// Pointers that are not null are readable for what they say.
    #[inline(always)]
    unsafe fn begin(&self) -> Before {
        if self.amax.is_null() {
            return Before { seen: u32::MAX };
        }
        // SAFETY: the caller's word: one number.
        Before { seen: unsafe { atomic_load_32_device(self.amax, Ordering::Relaxed) } }
    }

    /// # Safety
    /// As for [`begin`](Self::begin).
    #[inline(always)]
    unsafe fn of(&self, before: Before, norm: (f32, f32), number: u64, columns: u32) -> Of {
        let y = self.y.wrapping_add((number * u64::from(columns)) as usize);
        // SAFETY: the caller's word: one number.
        let scale = if self.scale.is_null() { 1.0 } else { unsafe { vector::load(self.scale) } };
        Of { norm, y, scale, before, largest: 0.0 }
    }

    /// Takes in and stores results from a column on.
    ///
    /// # Safety
    /// `y` has a byte for each element.
    #[inline(always)]
    unsafe fn output<const N: usize>(of: &mut Of, column: u32, y: [f32; N]) {
        for i in 0..N {
            of.largest = fastmath::max_nan(of.largest, y[i].abs());
        }
        // SAFETY: the caller's word.
        unsafe { store(of.y.wrapping_add(column as usize), map(y, |y| y * of.scale)) }
    }

    /// # Safety
    /// The warp is here together; `amax` is one number or null.
    #[inline(always)]
    unsafe fn end(&self, of: Of) {
        if self.amax.is_null() {
            return;
        }
        // The bits of numbers that are not negative are in their order, with NaN on top.
        let bits = of.largest.to_bits() & !(1 << 31);
        // SAFETY: the caller's word.
        unsafe {
            let largest = warp::warp_reduce(warp::FULL_MASK, bits, WarpReductionOp::Max);
            if warp::lane_id() == 0 && largest > of.before.seen {
                atomic_fetch_max_u32_device(self.amax, Ordering::Relaxed, largest);
            }
        }
    }
}

/// A norm's results, for [`ToE4m3`].
trait Results<T: InF32>: RowFunction<T, Of = (f32, f32)> {
    /// Those of a place, not rounded; a sum is stored.
    ///
    /// # Safety
    /// As for [`RowFunction::map`].
    unsafe fn results_of<const N: usize>(&self, of: (f32, f32), at: &impl Place<T, N>) -> [f32; N];
}

impl<T: InF32> Results<T> for Norm {
    #[inline(always)]
    unsafe fn results_of<const N: usize>(&self, of: (f32, f32), at: &impl Place<T, N>) -> [f32; N] {
        // SAFETY: the caller's promise.
        unsafe { self.results(of, self.stored(at), at) }
    }
}

impl<T: InF32> Results<T> for NormOfDropout {
    #[inline(always)]
    unsafe fn results_of<const N: usize>(&self, of: (f32, f32), at: &impl Place<T, N>) -> [f32; N] {
        // SAFETY: the caller's promise; the sum was kept.
        unsafe { self.norm.results(of, at.kept(1), at) }
    }
}

/// The function of a norm's rows whose results are e4m3: the structure, and its field that is the norm.
macro_rules! to_e4m3 {
    ($($function:ident: $of:ident $norm:ty;)*) => { $(
        impl<T: InF32> RowFunction<T> for $function {
            const INPUTS: usize = <$norm as RowFunction<T>>::INPUTS;
            type Row = (<$norm as RowFunction<T>>::Row, Before);
            type Statistics = Shifted<T::Precision>;
            type Of = Of;

            #[inline(always)]
            unsafe fn begin(&self, row: u64) -> Self::Row {
                // SAFETY: the caller's promise.
                unsafe { (RowFunction::<T>::begin(&self.$of, row), self.to.begin()) }
            }

            #[inline(always)]
            unsafe fn take<const N: usize>(
                &self,
                (row, _): Self::Row,
                moments: Self::Statistics,
                at: &impl Place<T, N>,
            ) -> Self::Statistics {
                // SAFETY: the caller's promise.
                unsafe { self.$of.take(row, moments, at) }
            }

            #[inline(always)]
            unsafe fn finish(
                &self,
                (row, before): Self::Row,
                moments: Self::Statistics,
                number: u64,
                columns: u32,
                is_first: bool,
            ) -> Of {
                // SAFETY: the caller's promise.
                unsafe {
                    let norm = RowFunction::<T>::finish(&self.$of, row, moments, number, columns, is_first);
                    self.to.of(before, norm, number, columns)
                }
            }

            #[inline(always)]
            unsafe fn map<const N: usize>(&self, of: &mut Of, at: &impl Place<T, N>) {
                // SAFETY: the caller's promise; `y` has a byte for each element.
                unsafe { ToE4m3::output(of, at.column(), self.$of.results_of(of.norm, at)) }
            }

            #[inline(always)]
            unsafe fn end(&self, of: Of) {
                // SAFETY: the caller's promise.
                unsafe { self.to.end(of) }
            }
        }
    )* };
}

to_e4m3! { NormToE4m3: norm Norm; NormOfDropoutToE4m3: of NormOfDropout; }

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
