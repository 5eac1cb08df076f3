//! A few neighbours of a row, of which some may be behind its end.

use primitives::access;
use primitives::element::InF32;

/// Elements that a thread takes side by side, of a long function: more 16-bit ones leave it too few
/// registers.
pub const WIDTH: usize = access::VECTOR_BYTES / size_of::<f32>();

/// `N` neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Piece<const N: usize> {
    /// Elements from the first one to the row's end.
    left: u64,
    is_vector: bool,
}

impl<const N: usize> Piece<N> {
    /// Of a row that has so many elements left; `is_aligned` says that the tensors allow vectors here.
    #[inline(always)]
    pub fn new(left: u64, is_aligned: bool) -> Self {
        Piece { left, is_vector: is_aligned && left >= N as u64 }
    }

    /// Elements; zeros behind the last one.
    ///
    /// # Safety
    /// `x` is readable for those that are left, and aligned to `N` where vectors are allowed.
    #[inline(always)]
    pub unsafe fn load<T: InF32>(self, x: *const T) -> [f32; N] {
        // SAFETY: the caller's promise.
        unsafe {
            if self.is_vector {
                return T::widen(access::load::<T, N>(x));
            }
            let mut values = [T::ZERO; N];
            for i in 0..N {
                if (i as u64) < self.left {
                    values[i] = *x.add(i);
                }
            }
            T::widen(values)
        }
    }

    /// Stores elements, rounded, but for those behind the last one.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for writing.
    #[inline(always)]
    pub unsafe fn store<T: InF32>(self, y: *mut T, values: [f32; N]) {
        let values: [T; N] = T::narrow(values);
        // SAFETY: the caller's promise.
        unsafe {
            if self.is_vector {
                access::store(y, values);
                return;
            }
            for i in 0..N {
                if (i as u64) < self.left {
                    *y.add(i) = values[i];
                }
            }
        }
    }

    /// The values, with zeros behind the last element.
    #[inline(always)]
    pub fn keep(self, mut values: [f32; N]) -> [f32; N] {
        for i in 0..N {
            if (i as u64) >= self.left {
                values[i] = 0.0;
            }
        }
        values
    }
}
