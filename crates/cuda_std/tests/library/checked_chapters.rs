//! Misuse of the instruction chapters is found by the executor's checker, under every schedule, and named by
//! the line of the kernel that made the call.

use cuda_std::{async_copy, barrier, grid, matrix, mma, shared, thread, vector, warp};
use simt::memory::Tracked;
use simt::{Fault, FaultKind, LaunchConfig, Options};

const SEEDS: u64 = 20;
const WARP: u32 = 32;

/// Runs a kernel under all seeds; each run must end with this fault, on one of these lines of this file.
#[track_caller]
fn expect(kind: FaultKind, lines: &[u32], config: LaunchConfig, kernel: impl Fn() + Sync) {
    for seed in 0..SEEDS {
        let options = Options { seed, check: true, ..Options::default() };
        let fault: Box<Fault> = match simt::run(&config, &options, &kernel) {
            Ok(_) => panic!("seed {seed}: nothing found, want {kind:?}"),
            Err(fault) => fault,
        };
        assert_eq!(fault.kind, kind, "seed {seed}: {fault}");
        assert!(lines.contains(&fault.site.line), "seed {seed}: {fault}");
        assert!(fault.site.file.ends_with("checked_chapters.rs"), "seed {seed}: {fault}");
    }
}

fn one_warp() -> LaunchConfig {
    LaunchConfig::linear(1, WARP).shared(1024)
}

fn dynamic() -> u32 {
    shared::address_of(shared::dynamic_shared_mem::<u8>())
}

#[test]
fn a_product_in_half_a_warp() {
    const LINE: u32 = line!() + 3;
    expect(FaultKind::WarpMask, &[LINE], LaunchConfig::linear(1, WARP / 2), || {
        // SAFETY: the wrong that is to be found.
        let _ = unsafe { mma::m16n8k16_f32_f16([0; 4], [0; 2], [0.0; 4]) };
    });
}

#[test]
fn a_misaligned_vector_load() {
    let mut data = vec![0u32; 64];
    let skip = data.as_ptr().align_offset(16) + 1;
    let data = Tracked::new(&mut data, "data");
    let address = data.as_ptr() as usize + 4 * skip;
    const LINE: u32 = line!() + 3;
    expect(FaultKind::Misaligned, &[LINE], LaunchConfig::linear(1, 1), || {
        // SAFETY: the wrong that is to be found.
        let _: [u32; 4] = unsafe { vector::load_v4(address as *const u32) };
    });
}

#[test]
fn a_vector_store_over_the_end() {
    let mut data = vec![0u128; 4];
    let data = Tracked::new(&mut data, "data");
    let address = data.as_ptr() as usize;
    const LINE: u32 = line!() + 4;
    expect(FaultKind::OutOfBounds, &[LINE], LaunchConfig::linear(1, 5), || {
        let at = (address as *mut f32).wrapping_add(4 * thread::thread_idx_x() as usize);
        // SAFETY: the wrong that is to be found: the fifth thread has no place.
        unsafe { vector::store_v4(at, [1.0; 4]) };
    });
}

#[test]
fn a_matrix_of_uninitialised_memory() {
    const LINE: u32 = line!() + 4;
    expect(FaultKind::UninitialisedShared, &[LINE], one_warp(), || {
        let row = dynamic() + 16 * warp::lane_id();
        // SAFETY: the wrong that is to be found.
        let _ = unsafe { matrix::ldmatrix_x4(row) };
    });
}

#[test]
fn a_matrix_row_that_is_not_aligned() {
    const LINE: u32 = line!() + 4;
    expect(FaultKind::Misaligned, &[LINE], one_warp(), || {
        let row = dynamic() + 16 * warp::lane_id() + 8;
        // SAFETY: the wrong that is to be found.
        let _ = unsafe { matrix::ldmatrix_x1(row) };
    });
}

#[test]
fn matrices_are_stored_and_loaded_without_a_barrier() {
    // Whichever of the two comes second is named.
    const STORE: u32 = line!() + 8;
    const LOAD: u32 = STORE + 1;
    expect(FaultKind::SharedRace, &[STORE, LOAD], one_warp(), || {
        let row = dynamic() + 16 * warp::lane_id();
        // SAFETY: all rows lie in the 1024 bytes; nothing orders the loads and the other lanes' stores.
        unsafe {
            vector::store_shared_v4(row, [0u32; 4]);
            warp::sync_warp(warp::FULL_MASK);
            matrix::stmatrix_x4(row, [1; 4]);
            let _: u32 = vector::load_shared(row ^ 16);
        }
    });
}

#[test]
fn an_asynchronous_copy_without_a_wait() {
    let mut data = vec![7u128; WARP as usize];
    let data = Tracked::new(&mut data, "data");
    let address = data.as_ptr() as usize;
    const LINE: u32 = line!() + 7;
    expect(FaultKind::AsyncCopyPending, &[LINE], one_warp(), || {
        let lane = warp::lane_id();
        // SAFETY: 16 bytes a lane on both sides; no thread waits.
        unsafe {
            async_copy::copy_cg(dynamic() + 16 * lane, (address as *const u128).add(lane as usize));
            async_copy::commit_group();
            let _: u32 = vector::load_shared(dynamic() + 16 * lane);
        }
    });
}

#[test]
fn a_barrier_that_waits_for_too_many() {
    const LINE: u32 = line!() + 3;
    expect(FaultKind::BarrierInvalid, &[LINE], LaunchConfig::linear(1, 64), || {
        // SAFETY: the wrong that is to be found: the block has 64 threads.
        unsafe { barrier::sync(1, 96) };
    });
}

#[test]
fn a_grid_barrier_without_a_cooperative_launch() {
    let mut words = vec![0u32; grid::WORKSPACE_WORDS];
    let workspace = Tracked::new(&mut words, "workspace");
    let address = workspace.as_ptr() as usize;
    const LINE: u32 = line!() + 3;
    expect(FaultKind::GridSync, &[LINE], LaunchConfig::linear(2, WARP), || {
        // SAFETY: the wrong that is to be found.
        unsafe { grid::sync(address as *mut u32) };
    });
}

/// The same operations, done right, are not complained about.
#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let mut data: Vec<u128> = (0..u128::from(WARP)).collect();
    let data = Tracked::new(&mut data, "data");
    let address = data.as_ptr() as usize;
    for seed in 0..SEEDS {
        let options = Options { seed, check: true, ..Options::default() };
        let kernel = || {
            let lane = warp::lane_id();
            let row = dynamic() + 16 * lane;
            // SAFETY: 16 bytes a lane on both sides; waits and barriers part the accesses; the whole warp is
            // here.
            unsafe {
                async_copy::copy_cg(row, (address as *const u128).add(lane as usize));
                async_copy::commit_group();
                async_copy::wait_group::<0>();
                warp::sync_warp(warp::FULL_MASK);
                let registers = matrix::ldmatrix_x4(row);
                warp::sync_warp(warp::FULL_MASK);
                matrix::stmatrix_x4(row, registers);
                barrier::sync(3, WARP);
                let back: [u32; 4] = vector::load_shared_v4(row);
                assert_eq!(back, [lane, 0, 0, 0]);
            }
        };
        if let Err(fault) = simt::run(&one_warp(), &options, kernel) {
            panic!("seed {seed}: {fault}");
        }
    }
}
