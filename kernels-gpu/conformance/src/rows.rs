//! Results in rows.

use cuda_std::thread;

/// This thread's element of every row, if it has one: threads beyond `n` have none.
#[derive(Clone, Copy)]
pub struct Rows<T> {
    out: *mut T,
    n: usize,
    index: usize,
}

impl<T> Rows<T> {
    /// Rows of `n` elements at `out`, element [`thread::index`] of each.
    #[inline(always)]
    pub fn new(out: *mut T, n: usize) -> Self {
        Self { out, n, index: thread::index() as usize }
    }

    /// The thread's place in a row, if it has one.
    #[inline(always)]
    pub fn index(&self) -> Option<usize> {
        (self.index < self.n).then_some(self.index)
    }

    /// Writes the thread's element of row `row`.
    ///
    /// # Safety
    /// `out` has at least `row + 1` rows of `n`, and [`index`](Self::index) is `Some`.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn set(&self, row: usize, value: T) {
        // SAFETY: the caller vouches for the row, and `index < n`.
        unsafe { self.out.add(row * self.n + self.index).write(value) }
    }
}
