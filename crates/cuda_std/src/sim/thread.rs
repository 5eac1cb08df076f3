//! Special registers, block barriers, fences.

use simt::barrier::{self, BarrierReduce};
use simt::memory::{self, Scope};

macro_rules! special_registers {
    ($($name:ident => $source:ident[$axis:literal];)*) => {$(
        #[inline(always)]
        #[track_caller]
        pub fn $name() -> u32 {
            simt::thread::$source()[$axis]
        }
    )*};
}

special_registers! {
    thread_idx_x => thread_idx[0];
    thread_idx_y => thread_idx[1];
    thread_idx_z => thread_idx[2];
    block_idx_x => block_idx[0];
    block_idx_y => block_idx[1];
    block_idx_z => block_idx[2];
    block_dim_x => block_dim[0];
    block_dim_y => block_dim[1];
    block_dim_z => block_dim[2];
    grid_dim_x => grid_dim[0];
    grid_dim_y => grid_dim[1];
    grid_dim_z => grid_dim[2];
}

/// The barrier that all threads of the block share.
const BLOCK_BARRIER: u32 = 0;

#[track_caller]
pub fn sync_threads() {
    barrier::sync(BLOCK_BARRIER, None)
}

#[track_caller]
pub fn sync_threads_count(predicate: u32) -> u32 {
    barrier::reduce(BarrierReduce::Popc, predicate != 0)
}

#[track_caller]
pub fn sync_threads_and(predicate: u32) -> u32 {
    barrier::reduce(BarrierReduce::And, predicate != 0)
}

#[track_caller]
pub fn sync_threads_or(predicate: u32) -> u32 {
    barrier::reduce(BarrierReduce::Or, predicate != 0)
}

#[track_caller]
pub fn block_fence() {
    memory::fence(Scope::Block)
}

#[track_caller]
pub fn device_fence() {
    memory::fence(Scope::Device)
}

#[track_caller]
pub fn system_fence() {
    memory::fence(Scope::System)
}

/// A thread that sleeps lets the others run; how long does not matter to the executor.
#[track_caller]
pub fn nanosleep(_nanos: u32) {
    simt::thread::give_way()
}
