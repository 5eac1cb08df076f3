//! Positions, block barriers, memory sizes and address spaces on the executor.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_std::ptr::{self, AddressSpace};
use cuda_std::{mem, misc, shared, thread, warp};
use simt::{LaunchConfig, Options};

fn run(config: LaunchConfig, body: impl Fn() + Sync) {
    for seed in 0..4 {
        if let Err(fault) = simt::run(&config, &Options { seed, ..Options::default() }, &body) {
            panic!("{fault}");
        }
    }
}

const CUBE: LaunchConfig = LaunchConfig {
    grid: [3, 2, 2],
    block: [4, 3, 5],
    cluster: [1; 3],
    dynamic_shared: 48,
    cooperative: false,
    overlapping: false,
};

#[test]
fn indices_number_the_threads() {
    let seen: Vec<AtomicU32> = (0..3 * 2 * 2 * 4 * 3 * 5).map(|_| AtomicU32::new(0)).collect();
    let firsts = AtomicU32::new(0);
    run(CUBE, || {
        seen[thread::index() as usize].fetch_add(1, Ordering::Relaxed);
        firsts.fetch_add(thread::first() as u32, Ordering::Relaxed);
        let (b, t) = (<[u32; 3]>::from(thread::block_idx()), <[u32; 3]>::from(thread::thread_idx()));
        let (grid, block) = (<[u32; 3]>::from(thread::grid_dim()), <[u32; 3]>::from(thread::block_dim()));
        assert_eq!((grid, block), (CUBE.grid, CUBE.block));
        let along = |axis: usize| b[axis] * block[axis] + t[axis];
        assert_eq!(<[u32; 3]>::from(thread::index_3d()), [along(0), along(1), along(2)]);
        assert_eq!(<[u32; 2]>::from(thread::index_2d()), [along(0), along(1)]);
        assert_eq!(thread::index_1d(), along(0));
        let rank = (t[2] * block[1] + t[1]) * block[0] + t[0];
        assert_eq!(warp::lane_id(), rank % thread::warp_size());
    });
    assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 4), "once a thread in each of four runs");
    assert_eq!(firsts.into_inner(), 4);
}

#[test]
fn barriers_reduce() {
    run(LaunchConfig::linear(2, 96), || {
        let t = thread::thread_idx_x();
        assert_eq!(thread::sync_threads_count(t % 3), 64);
        assert_ne!(thread::sync_threads_and(t + 1), 0);
        assert_eq!(thread::sync_threads_and(t), 0);
        assert_ne!(thread::sync_threads_or((t == 95) as u32), 0);
        assert_eq!(thread::sync_threads_or(0), 0);
    });
}

#[test]
fn fences_and_waits_let_a_thread_go_on() {
    run(LaunchConfig::linear(1, 33), || {
        thread::block_fence();
        thread::grid_fence();
        thread::device_fence();
        thread::system_fence();
        let before = misc::clock();
        thread::nanosleep(100);
        misc::profiler_counter(7);
        misc::breakpoint();
        assert!(misc::clock() > before);
    });
}

#[test]
fn a_profiler_counter_out_of_range_is_refused() {
    let launch = simt::run(&LaunchConfig::linear(1, 1), &Options::default(), || misc::profiler_counter(8));
    assert_eq!(launch.unwrap_err().kind, simt::FaultKind::Panic);
}

#[test]
fn shared_memory_has_sizes_and_addresses() {
    let global = Mutex::new(5u32);
    run(CUBE, || {
        let tile = cuda_std::shared_array![u16; 40];
        assert_eq!(tile.addr() % 16, 0, "a tile is aligned for the widest access");
        assert_eq!(mem::dynamic_smem_size(), 48);
        assert_eq!(mem::total_smem_size(), 48 + 80);
        let dynamic: *mut u32 = shared::dynamic_shared_mem();
        assert_eq!(dynamic.addr() % shared::DYNAMIC_ALIGN, 0);
        // SAFETY: all pointers are to live memory of the type.
        unsafe {
            assert!(ptr::is_in_address_space(tile, AddressSpace::Shared));
            assert!(!ptr::is_in_address_space(tile, AddressSpace::Global));
            assert!(ptr::is_in_address_space(&raw const global, AddressSpace::Global));
            assert!(!ptr::is_in_address_space(&raw const global, AddressSpace::Local));
            let local = 5u32;
            assert!(ptr::is_in_address_space(&raw const local, AddressSpace::Local));
            assert!(!ptr::is_in_address_space(&raw const local, AddressSpace::Global));
            assert!(!ptr::is_in_address_space(&raw const local, AddressSpace::Shared));
            assert!(!ptr::is_in_address_space(tile, AddressSpace::Local));
            let address = ptr::convert_generic_to_specific_address_space(tile.add(3), AddressSpace::Shared);
            assert!(address.addr() <= u32::MAX as usize, "the shared window has 32-bit addresses");
            let back = ptr::convert_specific_address_space_to_generic(address, AddressSpace::Shared);
            assert_eq!(back, tile.add(3));
            let global = &raw const global;
            assert_eq!(ptr::convert_generic_to_specific_address_space(global, AddressSpace::Global), global);
        }
    });
}

#[test]
fn each_place_has_its_own_array_and_each_block_its_own_copy() {
    run(LaunchConfig::linear(4, 32), || {
        let arrays: Vec<*mut u32> = (0..2).map(|_| cuda_std::shared_array![u32; 32]).collect();
        assert_eq!(arrays[0], arrays[1], "the same place in a loop");
        let other = cuda_std::shared_array![u32; 32];
        assert_ne!(arrays[0], other);
        let t = thread::thread_idx_x() as usize;
        // SAFETY: one element for each of the 32 threads; a barrier lies between the write and the read.
        unsafe {
            simt::memory::store(other.add(t), thread::block_idx_x());
            thread::sync_threads();
            assert_eq!(simt::memory::load(other.add(31 - t)), thread::block_idx_x());
        }
    });
}

#[test]
fn the_host_counts_as_what_the_executor_models() {
    use cuda_std::cfg::ComputeCapability;
    const HOST: ComputeCapability = ComputeCapability::from_cuda_arch_env();
    assert_eq!(HOST, ComputeCapability::Compute90);
    assert!(ComputeCapability::Compute100 > HOST && ComputeCapability::Compute89 < HOST);
}
