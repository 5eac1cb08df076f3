//! Occupancy: the number of blocks of a kernel that fit on a multiprocessor of the simulated device.

use super::{
    abi::LaunchConfig,
    api,
    device::{WARP_SIZE, arch, multiprocessors},
    handle::Handle,
    host_function,
    launch::{check_cluster, read_config},
    module::Function,
    put,
    state::Outcome,
    take,
};
use crate::code;
use core::ffi::{c_int, c_uint};
use simt::MAX_COOPERATIVE_THREADS;

/// Dynamic shared memory as a function of the block size (`CUoccupancyB2DSize`).
type SharedOfBlock = unsafe extern "C" fn(c_int) -> usize;

/// Blocks of `threads` threads and `shared` bytes on a multiprocessor.
fn blocks(threads: u32, shared: u32) -> u32 {
    if threads == 0 {
        return 0;
    }
    let by_threads = arch().threads / threads.next_multiple_of(WARP_SIZE);
    let each = shared.saturating_add(arch().shared_reserved());
    let by_shared = arch().shared_per_multiprocessor().checked_div(each).unwrap_or(u32::MAX);
    by_threads.min(by_shared).min(arch().blocks)
}

/// Blocks that can be resident on the device at once. A cooperative launch needs all of its blocks resident.
pub(super) fn resident_blocks(threads: u32, shared: u32) -> u64 {
    let on_device = u64::from(blocks(threads, shared)) * u64::from(multiprocessors());
    // The executor needs a stack for every thread of such a launch.
    on_device.min(MAX_COOPERATIVE_THREADS / u64::from(threads.max(1)))
}

/// Blocks of a kernel on a multiprocessor. 0 if a launch would be refused.
fn blocks_of(f: &Function, threads: c_int, shared: usize) -> Outcome<u32> {
    let threads = u32::try_from(threads).ok().filter(|&t| t > 0).ok_or(code::INVALID_VALUE)?;
    let allowed = threads <= f.max_threads() && shared <= f.max_dynamic_shared as usize;
    Ok(if allowed { blocks(threads, shared as u32) } else { 0 })
}

/// The block size with the most threads on a multiprocessor, and its number of blocks. Among equals the
/// largest block wins.
///
/// # Safety
/// `shared_of` is a function that can be called with any block size.
unsafe fn best_block(
    f: &Function,
    shared_of: Option<SharedOfBlock>,
    shared: usize,
    limit: c_int,
) -> (u32, u32) {
    let most = match u32::try_from(limit) {
        Ok(limit) if limit > 0 => f.max_threads().min(limit),
        _ => f.max_threads(),
    };
    let mut best = (0, 0);
    for threads in (WARP_SIZE..=most).rev().step_by(WARP_SIZE as usize) {
        // SAFETY: this function's contract.
        let shared = shared_of.map_or(shared, |of| host_function(|| unsafe { of(threads as c_int) }));
        let blocks = blocks_of(f, threads as c_int, shared).unwrap_or(0);
        if blocks * threads > best.0 * best.1 {
            best = (threads, blocks);
        }
    }
    best
}

api! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(driver, out: *mut c_int, function: Handle, threads: c_int, shared: usize) {
        driver.enter()?;
        put(out, blocks_of(driver.function(function)?, threads, shared)? as c_int)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        driver, out: *mut c_int, function: Handle, threads: c_int, shared: usize, flags: c_uint,
    ) {
        driver.enter()?;
        if flags > 1 {
            return Err(code::INVALID_VALUE);
        }
        put(out, blocks_of(driver.function(function)?, threads, shared)? as c_int)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        driver, grid: *mut c_int, block: *mut c_int, function: Handle, shared_of: Option<SharedOfBlock>, shared: usize, limit: c_int,
    ) {
        driver.enter()?;
        let (threads, blocks) = best_block(driver.function(function)?, shared_of, shared, limit);
        put(grid, (blocks * multiprocessors()) as c_int)?;
        put(block, threads as c_int)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        driver, grid: *mut c_int, block: *mut c_int, function: Handle, shared_of: Option<SharedOfBlock>, shared: usize, limit: c_int,
        flags: c_uint,
    ) {
        driver.enter()?;
        if flags > 1 {
            return Err(code::INVALID_VALUE);
        }
        let (threads, blocks) = best_block(driver.function(function)?, shared_of, shared, limit);
        put(grid, (blocks * multiprocessors()) as c_int)?;
        put(block, threads as c_int)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(driver, out: *mut usize, function: Handle, wanted: c_int, threads: c_int) {
        driver.enter()?;
        let f = driver.function(function)?;
        let wanted = u32::try_from(wanted).ok().filter(|&n| n > 0).ok_or(code::INVALID_VALUE)?;
        if blocks_of(f, threads, 0)? < wanted {
            return Err(code::INVALID_VALUE);
        }
        let each = (arch().shared_per_multiprocessor() / wanted).saturating_sub(arch().shared_reserved());
        put(out, each.min(f.max_dynamic_shared) as usize)
    }

    fn cuOccupancyMaxActiveClusters(driver, out: *mut c_int, function: Handle, config: *const LaunchConfig) {
        driver.enter()?;
        let config = read_config(&take(config)?)?;
        let threads = c_int::try_from(config.threads_per_block()).map_err(|_| code::INVALID_VALUE)?;
        let f = driver.function(function)?;
        check_cluster(f, &config)?;
        let blocks = blocks_of(f, threads, config.dynamic_shared as usize)?;
        let clusters = u64::from(blocks * multiprocessors()) / config.blocks_per_cluster();
        put(out, clusters as c_int)
    }

    fn cuOccupancyMaxPotentialClusterSize(driver, out: *mut c_int, function: Handle, config: *const LaunchConfig) {
        driver.enter()?;
        take(config)?;
        let f = driver.function(function)?;
        put(out, arch().max_cluster(f.non_portable_cluster) as c_int)
    }
}
