//! Outputs with several rows of results.

use cuda_std::thread;

/// This thread's element of every row. Threads beyond `n` have none.
#[derive(Clone, Copy)]
pub struct Rows<T> {
    out: *mut T,
    n: usize,
    index: usize,
}

impl<T> Rows<T> {
    /// Rows of `n` elements at `out`. The thread's element is number [`thread::index`] of each row.
    #[inline(always)]
    pub fn new(out: *mut T, n: usize) -> Self {
        Self { out, n, index: thread::index() as usize }
    }

    /// The thread's position in a row. `None` beyond `n`.
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
        // SAFETY: the caller guarantees the row, and `index < n`.
        unsafe { self.out.add(row * self.n + self.index).write(value) }
    }
}
