//! The threads that have arrived at a barrier, and those that wait there.

use std::cell::{Cell, RefCell};

use crate::check::Released;
use crate::site::RawSite;

/// State of one barrier. Free when `expected` is 0.
#[derive(Default)]
pub(crate) struct Barrier {
    /// The number of arrivals that complete it.
    pub expected: Cell<u32>,
    /// Arrivals so far.
    pub arrived: Cell<u32>,
    /// Arrivals that came with a true predicate.
    pub trues: Cell<u32>,
    /// The operation that arriving threads ask for; all must ask for the same.
    pub operation: Cell<Option<&'static str>>,
    /// Slots of the threads that wait.
    pub waiters: RefCell<Vec<u32>>,
    /// For each warp of the block, its first thread that has arrived, and where; the checker's.
    pub warps: RefCell<Vec<Option<(u32, RawSite)>>>,
    /// The knowledge published by threads that arrived without waiting.
    pub released: RefCell<Option<Released>>,
}

impl Barrier {
    pub fn reset(&self) {
        self.expected.set(0);
        self.arrived.set(0);
        self.trues.set(0);
        self.operation.set(None);
        self.waiters.borrow_mut().clear();
        self.warps.borrow_mut().clear();
        self.released.take();
    }
}
