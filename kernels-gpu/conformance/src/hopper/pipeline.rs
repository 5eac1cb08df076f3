//! A small GEMM mainloop that combines the chapters: one producer warpgroup copies, two consumer warpgroups
//! multiply, and the producer gives registers to the consumers.
//!
//! `D = A B^T` for bf16 A `[128 grid, K]` and B `[128, K]`, both row-major, and f32 D `[128 grid, 128]`; K is
//! a multiple of 64.
//!
//! ```text
//! producer    wait empty[s], expect, load A and B of step k into stage s      (first thread)
//! consumers   wait full[s], 4 products, wait for those of the step before, arrive empty[s - 1]
//! ```

use cuda_std::tma::{self, TensorMap};
use cuda_std::wgmma::{self, BF16};
use cuda_std::{kernel, mbarrier, registers, shared, shared_array, thread, vector};
use layout::wgmma::{K_BYTES, Swizzle, advance, descriptor};

/// Rows of A and of B per block.
pub const BLOCK: usize = 128;
/// Elements of k per step: as many as fit into the swizzle's span.
pub const BLOCK_K: usize = 64;
const STAGES: u32 = 3;
/// Threads of a warpgroup, and the number of consumer warpgroups.
const WARPGROUP: u32 = 128;
const CONSUMERS: u32 = 2;
/// Threads per block.
pub const THREADS: u32 = WARPGROUP * (1 + CONSUMERS);

const ROW_BYTES: u32 = 2 * BLOCK_K as u32;
const TILE_BYTES: u32 = BLOCK as u32 * ROW_BYTES;
const STAGE_BYTES: u32 = 2 * TILE_BYTES;
/// Dynamic shared memory of a launch.
pub const SHARED_BYTES: u32 = STAGES * STAGE_BYTES;

const SWIZZLE: Swizzle = Swizzle::B128;
const _: () = assert!(ROW_BYTES == SWIZZLE.span());
/// Accumulators per thread: a warpgroup computes 64 x 128.
const ACCUMULATORS: usize = BLOCK / 2;

/// The mbarriers of the ring, `STAGES` of each kind.
#[derive(Clone, Copy)]
struct Ring {
    tiles: u32,
    full: u32,
    empty: u32,
}

/// A stage of the ring and the parity of its current round.
#[derive(Clone, Copy)]
struct Stage {
    index: u32,
    parity: u32,
}

impl Stage {
    const FIRST: Self = Self { index: 0, parity: 0 };

    #[inline(always)]
    fn next(self) -> Self {
        if self.index + 1 == STAGES {
            Self { index: 0, parity: self.parity ^ 1 }
        } else {
            Self { index: self.index + 1, ..self }
        }
    }
}

impl Ring {
    #[inline(always)]
    fn full(&self, stage: Stage) -> u32 {
        self.full + mbarrier::BYTES * stage.index
    }

    #[inline(always)]
    fn empty(&self, stage: Stage) -> u32 {
        self.empty + mbarrier::BYTES * stage.index
    }

    #[inline(always)]
    fn tiles(&self, stage: Stage) -> u32 {
        self.tiles + STAGE_BYTES * stage.index
    }
}

/// See the module.
///
/// # Safety
/// The maps have boxes of 64 x 128 elements with the 128-byte swizzle; `d` is all of D, 8-byte aligned;
/// [`THREADS`] threads and [`SHARED_BYTES`] of shared memory a block.
#[kernel(launch_bounds(THREADS, 1))]
pub unsafe fn pipeline_gemm(a: &TensorMap, b: &TensorMap, steps: u32, d: *mut f32) {
    let ring = Ring {
        tiles: shared::address_of(shared::dynamic_shared_mem::<u8>()),
        full: shared::address_of(shared_array![u64; STAGES as usize]),
        empty: shared::address_of(shared_array![u64; STAGES as usize]),
    };
    let (t, warpgroup) = (thread::thread_idx_x(), thread::thread_idx_x() / WARPGROUP);
    // SAFETY: the mbarriers are initialised before their first use; the threads of a warpgroup do not
    // diverge; the consumers request no more registers than the kernel was given in all.
    unsafe {
        if t == 0 {
            for i in 0..STAGES {
                mbarrier::init(ring.full + mbarrier::BYTES * i, 1);
                mbarrier::init(ring.empty + mbarrier::BYTES * i, CONSUMERS);
            }
            mbarrier::fence_init();
        }
        thread::sync_threads();
        if warpgroup == 0 {
            registers::set_max_registers_dec::<40>();
            if t == 0 {
                copy(ring, a, b, steps);
            }
        } else {
            registers::set_max_registers_inc::<232>();
            multiply(ring, warpgroup - 1, steps, d);
        }
    }
}

/// # Safety
/// One thread, as the kernel.
#[inline(always)]
unsafe fn copy(ring: Ring, a: &TensorMap, b: &TensorMap, steps: u32) {
    let row = (thread::block_idx_x() * BLOCK as u32) as i32;
    let mut stage = Stage::FIRST;
    for step in 0..steps {
        let k = (step * BLOCK_K as u32) as i32;
        let (tiles, full) = (ring.tiles(stage), ring.full(stage));
        // SAFETY: the stage is empty, and its barrier expects both boxes.
        unsafe {
            mbarrier::wait_parity(ring.empty(stage), stage.parity ^ 1);
            mbarrier::arrive_expect_tx(full, STAGE_BYTES);
            tma::load_2d(tiles, a, full, [k, row]);
            tma::load_2d(tiles + TILE_BYTES, b, full, [k, 0]);
        }
        stage = stage.next();
    }
}

/// # Safety
/// One warpgroup, as the kernel.
#[inline(always)]
unsafe fn multiply(ring: Ring, half: u32, steps: u32, d: *mut f32) {
    let t = thread::thread_idx_x() % WARPGROUP;
    let (mut stage, mut before) = (Stage::FIRST, Stage::FIRST);
    // SAFETY: the stage is full until this warpgroup releases it, after its products are done; the
    // accumulators are accessed only before the first product and after the last.
    unsafe {
        let mut acc: [f32; ACCUMULATORS] = core::mem::zeroed();
        for step in 0..steps {
            mbarrier::wait_parity(ring.full(stage), stage.parity);
            let tiles = ring.tiles(stage);
            let a = descriptor(tiles + half * TILE_BYTES / CONSUMERS, 0, SWIZZLE.period(), SWIZZLE);
            let b = descriptor(tiles + TILE_BYTES, 0, SWIZZLE.period(), SWIZZLE);
            wgmma::fence_registers(&mut acc);
            wgmma::fence();
            for k in 0..ROW_BYTES / K_BYTES {
                let (a, b) = (advance(a, k * K_BYTES), advance(b, k * K_BYTES));
                wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, b, true);
            }
            wgmma::commit_group();
            wgmma::wait_group::<1>();
            wgmma::fence_registers(&mut acc);
            if step > 0 && t == 0 {
                mbarrier::arrive(ring.empty(before));
            }
            before = stage;
            stage = stage.next();
        }
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        let row = thread::block_idx_x() * BLOCK as u32 + half * 64 + t / 32 * 16 + t % 32 / 4;
        let d = d.add(row as usize * BLOCK + t as usize % 4 * 2);
        unrolled_store(d, &acc);
    }
}

/// Writes the pairs of the accumulator, in the columns from `d` on.
///
/// # Safety
/// `d` is this thread's first element.
#[inline(always)]
unsafe fn unrolled_store(d: *mut f32, acc: &[f32; ACCUMULATORS]) {
    macro_rules! columns {
        ($($j:literal)*) => { $(
            // SAFETY: 16 groups of 8 columns, rows 8 apart.
            unsafe {
                vector::store_v2(d.add(8 * $j), [acc[4 * $j], acc[4 * $j + 1]]);
                vector::store_v2(d.add(8 * BLOCK + 8 * $j), [acc[4 * $j + 2], acc[4 * $j + 3]]);
            }
        )* };
    }
    columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
}
