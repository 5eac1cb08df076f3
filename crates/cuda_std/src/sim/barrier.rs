//! The executor's named barriers, which check that the calls of a round agree.

use simt::barrier::{self, BarrierReduce};

#[track_caller]
pub unsafe fn sync(id: u32, threads: u32) {
    barrier::sync(id, Some(threads));
}

#[track_caller]
pub unsafe fn arrive(id: u32, threads: u32) {
    barrier::arrive(id, threads);
}

#[track_caller]
pub unsafe fn sync_count(id: u32, threads: u32, predicate: bool) -> u32 {
    barrier::reduce_named(BarrierReduce::Popc, id, threads, predicate)
}

#[track_caller]
pub unsafe fn sync_and(id: u32, threads: u32, predicate: bool) -> bool {
    barrier::reduce_named(BarrierReduce::And, id, threads, predicate) != 0
}

#[track_caller]
pub unsafe fn sync_or(id: u32, threads: u32, predicate: bool) -> bool {
    barrier::reduce_named(BarrierReduce::Or, id, threads, predicate) != 0
}
