//! The indices of the current simulated thread.

use std::panic::Location;
use std::sync::OnceLock;
use std::time::Instant;

use crate::exec::context::{WARP_SIZE, current, try_current};
use crate::site::RawSite;

/// Whether the caller is a simulated thread.
#[inline(never)]
pub fn in_kernel() -> bool {
    try_current().is_some()
}

/// Index of the thread in its block, x, y, z.
#[track_caller]
#[inline(never)]
pub fn thread_idx() -> [u32; 3] {
    current("simt::thread::thread_idx").index
}

/// Index of the block in its grid, x, y, z.
#[track_caller]
#[inline(never)]
pub fn block_idx() -> [u32; 3] {
    current("simt::thread::block_idx").block().index.get()
}

/// Threads of a block in x, y, z.
#[track_caller]
#[inline(never)]
pub fn block_dim() -> [u32; 3] {
    current("simt::thread::block_dim").group().launch.config.block
}

/// Blocks of the grid in x, y, z.
#[track_caller]
#[inline(never)]
pub fn grid_dim() -> [u32; 3] {
    current("simt::thread::grid_dim").group().launch.config.grid
}

/// Blocks of a cluster in x, y, z.
#[track_caller]
#[inline(never)]
pub fn cluster_dim() -> [u32; 3] {
    current("simt::thread::cluster_dim").group().launch.config.cluster
}

/// Position of the thread in its block: x fastest, then y, then z.
#[track_caller]
#[inline(never)]
pub fn rank() -> u32 {
    current("simt::thread::rank").rank
}

/// Position of the thread in its warp.
#[track_caller]
#[inline(never)]
pub fn lane() -> u32 {
    current("simt::thread::lane").rank % WARP_SIZE
}

/// Position of the warp in its block.
#[track_caller]
#[inline(never)]
pub fn warp() -> u32 {
    current("simt::thread::warp").rank / WARP_SIZE
}

/// Nanoseconds of a clock that all devices share. A thread that looks at it while it waits will give up in
/// time: it does not count as hung.
#[track_caller]
pub fn global_timer() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    current("simt::thread::global_timer").group().note_limit();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Lets other threads run, as `nanosleep` does. Kernels that wait in a loop without atomics need it.
#[track_caller]
pub fn give_way() {
    let location = Location::caller();
    current("simt::thread::give_way").give_way(RawSite::of(location));
}
