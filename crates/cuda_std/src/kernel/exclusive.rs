//! Arguments `&mut [T]` and `&mut T` as a kernel's body sees them.
//!
//! Every thread gets the same memory, so none may have an exclusive reference to all of it: the compiler
//! would keep values in registers over a barrier, behind which another thread has written. `#[kernel]`
//! therefore replaces the two types. The replacements hold a raw pointer and make references to single
//! elements, for as long as an expression lasts.

use core::marker::PhantomData;
use core::ops::{
    Bound, Deref, DerefMut, Index, IndexMut, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive,
    RangeTo, RangeToInclusive,
};

/// An argument `&mut [T]`: elements in global memory that the threads of a launch share.
///
/// It is used as a slice is: `y[i] = v`, `y.len()`, `y[a..b].fill(v)`. What takes a `&mut [T]` takes `&mut
/// y[..]`.
///
/// ```
/// # use cuda_std::prelude::*;
/// /// # Safety
/// /// A thread an element at most.
/// #[kernel]
/// pub unsafe fn double(y: &mut [f32]) {
///     let i = thread::index_1d() as usize;
///     if i < y.len() {
///         y[i] *= 2.0;
///     }
/// }
/// ```
pub struct MutSlice<'a, T> {
    elements: *mut [T],
    lifetime: PhantomData<&'a mut [T]>,
}

impl<T> MutSlice<'_, T> {
    /// # Safety
    ///
    /// While this lives, `pointer` is valid for reads and writes of `len` elements, or `len` is 0. No other
    /// thread accesses an element between two points where the threads synchronise if this thread writes it
    /// there, nor writes one that this thread reads.
    #[inline(always)]
    pub const unsafe fn from_raw_parts(pointer: *mut T, len: usize) -> Self {
        Self { elements: core::ptr::slice_from_raw_parts_mut(pointer, len), lifetime: PhantomData }
    }

    /// Number of elements.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there is no element.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pointer to the first element.
    #[inline(always)]
    pub const fn as_ptr(&self) -> *const T {
        self.elements.cast_const().cast()
    }

    /// Pointer to the first element.
    #[inline(always)]
    pub const fn as_mut_ptr(&mut self) -> *mut T {
        self.elements.cast()
    }

    /// Element `index`, if there is one.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: the index is checked.
        (index < self.len()).then(|| unsafe { self.get_unchecked(index) })
    }

    /// Element `index`, if there is one.
    #[inline(always)]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        // SAFETY: the index is checked.
        (index < self.len()).then(|| unsafe { self.get_unchecked_mut(index) })
    }

    /// Element `index`, unchecked.
    ///
    /// # Safety
    ///
    /// `index < self.len()`.
    #[inline(always)]
    pub unsafe fn get_unchecked(&self, index: usize) -> &T {
        // SAFETY: the index is in range by the caller's promise; the rest is promised by the code that made
        // this.
        unsafe { &*self.as_ptr().add(index) }
    }

    /// Element `index`, unchecked.
    ///
    /// # Safety
    ///
    /// `index < self.len()`.
    #[inline(always)]
    pub unsafe fn get_unchecked_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: the index is in range by the caller's promise; the rest is promised by the code that made
        // this.
        unsafe { &mut *self.as_mut_ptr().add(index) }
    }

    /// The elements in order.
    #[inline(always)]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        // SAFETY: the indices are in range.
        (0..self.len()).map(|index| unsafe { self.get_unchecked(index) })
    }

    /// The elements in order, to be written.
    #[inline(always)]
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        let first = self.as_mut_ptr();
        // SAFETY: the indices are in range, and each comes once.
        (0..self.len()).map(move |index| unsafe { &mut *first.add(index) })
    }

    /// First element and number of elements of a range. Panics as slices do.
    #[inline(always)]
    #[track_caller]
    fn part(&self, range: impl RangeBounds<usize>) -> (*mut T, usize) {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len(),
        };
        assert!(start <= end && end <= self.len(), "range out of bounds of a kernel's slice");
        (self.elements.cast::<T>().wrapping_add(start), end - start)
    }
}

impl<T> Index<usize> for MutSlice<'_, T> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, index: usize) -> &T {
        // SAFETY: the index is checked; the rest is promised by the code that made this. No reference to the
        // whole is made.
        unsafe { &(*self.elements)[index] }
    }
}

impl<T> IndexMut<usize> for MutSlice<'_, T> {
    #[inline(always)]
    #[track_caller]
    fn index_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as for `index`.
        unsafe { &mut (*self.elements)[index] }
    }
}

/// Indexing by ranges: a reference to that part alone.
macro_rules! index_by {
    ($($range:ty),*) => {$(
        impl<T> Index<$range> for MutSlice<'_, T> {
            type Output = [T];

            #[inline(always)]
            #[track_caller]
            fn index(&self, range: $range) -> &[T] {
                let (first, len) = self.part(range);
                // SAFETY: the range is checked; the rest is promised by the code that made this.
                unsafe { &*core::ptr::slice_from_raw_parts(non_null(first, len), len) }
            }
        }

        impl<T> IndexMut<$range> for MutSlice<'_, T> {
            #[inline(always)]
            #[track_caller]
            fn index_mut(&mut self, range: $range) -> &mut [T] {
                let (first, len) = self.part(range);
                // SAFETY: as for `index`.
                unsafe { &mut *core::ptr::slice_from_raw_parts_mut(non_null(first, len), len) }
            }
        }
    )*};
}

index_by!(
    Range<usize>,
    RangeFrom<usize>,
    RangeFull,
    RangeInclusive<usize>,
    RangeTo<usize>,
    RangeToInclusive<usize>
);

/// A slice without elements may come with a null pointer, which no reference may be.
#[inline(always)]
fn non_null<T>(first: *mut T, len: usize) -> *mut T {
    if len == 0 { core::ptr::dangling_mut() } else { first }
}

/// An argument `&mut T`: a value in global memory that the threads of a launch share. It is used as a
/// reference is.
pub struct MutRef<'a, T> {
    value: *mut T,
    lifetime: PhantomData<&'a mut T>,
}

impl<T> MutRef<'_, T> {
    /// # Safety
    ///
    /// As for [`MutSlice::from_raw_parts`], with one element.
    #[inline(always)]
    pub const unsafe fn from_raw(value: *mut T) -> Self {
        Self { value, lifetime: PhantomData }
    }
}

impl<T> Deref for MutRef<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: promised by the code that made this.
        unsafe { &*self.value }
    }
}

impl<T> DerefMut for MutRef<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: promised by the code that made this.
        unsafe { &mut *self.value }
    }
}

#[cfg(test)]
mod tests {
    use super::MutSlice;

    /// A slice of `values`, which no other thread has.
    fn slice<T>(values: &mut [T]) -> MutSlice<'_, T> {
        // SAFETY: the exclusive borrow lasts as long as the slice.
        unsafe { MutSlice::from_raw_parts(values.as_mut_ptr(), values.len()) }
    }

    #[test]
    fn it_is_used_as_a_slice_is() {
        let mut values = [1, 2, 3, 4, 5];
        let mut y = slice(&mut values);
        y[0] = 10;
        y[1] += y[4];
        y[2..4].fill(7);
        y[4..].copy_from_slice(&[9]);
        assert_eq!((y.get(4), y.get(5)), (Some(&9), None));
        assert_eq!(y.get_mut(4), Some(&mut 9));
        assert_eq!(y.get_mut(5), None);
        assert_eq!((&y[..2], &y[..=1], &y[1..=2]), (&[10, 7][..], &[10, 7][..], &[7, 7][..]));
        y.iter_mut().for_each(|value| *value *= 2);
        assert_eq!(y.iter().sum::<i32>(), 80);
        assert_eq!(values, [20, 14, 14, 14, 18]);
    }

    #[test]
    fn nothing_lies_outside() {
        let outside: [fn(&mut MutSlice<'_, u8>); 5] = [
            |y| y[2] = 0,
            |y| y[1..3].fill(0),
            |y| y[3..].fill(0),
            |y| y[..=2].fill(0),
            #[expect(clippy::reversed_empty_ranges)]
            |y| y[2..1].fill(0),
        ];
        for access in outside {
            let mut values = [1u8; 2];
            let caught = std::panic::catch_unwind(move || access(&mut slice(&mut values)));
            assert!(caught.is_err());
        }
        // SAFETY: no element.
        let mut empty = unsafe { MutSlice::<u32>::from_raw_parts(core::ptr::null_mut(), 0) };
        assert!(empty.is_empty() && empty[..].is_empty() && empty.iter_mut().next().is_none());
    }
}
