//! The engine for gradients of norms with sums of columns, in rows that one block has: a warp has the same
//! columns of every row, and a lane fills a ring of its own by `cp.async`.
//!
//! ```text
//!   global ==> the lane's ring --take--> warps --> block      row n + 1, and the terms of sums
//!                             --map---> global                row n, whose numbers have come meanwhile
//! ```
//! Nobody waits for another's copies: warps meet in the statistics alone. Weights are widened once, and sums
//! need no addition in the block: they go to `partials` from registers. [`super::columns`] has rows that are
//! shorter or longer.

use super::reduce::PARTS_BYTES;
use crate::function::{MAX_SUMS, Statistics, Sums};
use crate::norm::NormBackward;
use crate::plan::{EXCHANGES, Plan, STAY_CONTROL_BYTES, STAY_STAGES, STAY_WARPS};
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{async_copy, grid, mbarrier, shared, thread, vector};
use primitives::access::{self, VECTOR_BYTES, from_words};
use primitives::activation::Precision;
use primitives::element::{Float, InF32, map, zip};
use primitives::shared_plan::{Mbarrier, SharedPlan};
use primitives::warp::LANES;
use primitives::{row, shared_bytes, shared_plan, unroll};

shared_plan! {
    /// Words between warps.
    pub struct Desk {
        /// Of the block's warps, of a few rows.
        parts[EXCHANGES * STAY_WARPS]: Parts,
        /// Says that they have come.
        sent[EXCHANGES]: Mbarrier,
        /// Rings begin at a multiple of 128.
        rest: Rest,
    }
}
shared_bytes! {
    /// Statistics.
    pub struct Parts(PARTS_BYTES, align 16);
}
shared_bytes! {
    /// Nothing.
    pub struct Rest(0, align 128);
}

const _: () = assert!(<Desk as SharedPlan>::TOTAL == STAY_CONTROL_BYTES);

/// Bytes from one of a lane's vectors to its next.
const STRIDE_BYTES: u32 = LANES * VECTOR_BYTES as u32;

/// Of a row: sums of the gradient times the weight, and of that times the distance from the mean.
type Pair<T> = Sums<<T as Float>::Precision, 2>;

/// Numbers of a lane's columns.
type Columns<const N: usize, const VECTORS: usize> = [[f32; N]; VECTORS];

/// A warp of the block, and what its lanes have of every row.
struct Worker<'a, T> {
    plan: &'a Plan,
    function: &'a NormBackward,
    inputs: [*const T; 3],
    desk: Desk,
    warp: u32,
    lane: u32,
    /// Column of the warp's first vector.
    column: u32,
    /// The warp's vectors.
    count: u32,
    /// Where its stages begin.
    ring: u32,
}

/// The gradients of all rows; the sums of each block's rows go to `partials`, in rows of `plan.columns`.
///
/// # Safety
/// `plan` is one for this engine and the launch; the tensors hold its rows, which begin at 16-byte
/// boundaries; the function's pointers are as it wants them; `partials` has [`MAX_SUMS`] rows for each block.
#[inline(always)]
pub unsafe fn run<T: InF32, const N: usize, const VECTORS: usize>(
    plan: &Plan,
    function: &NormBackward,
    inputs: [*const T; 3],
    dx: *mut T,
    partials: *mut f32,
) {
    grid::launch_dependents();
    let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
    let desk = Desk::new(base);
    let thread = thread::thread_idx_x();
    let (warp, lane) = (thread / LANES, thread % LANES);
    let of_warp = VECTORS as u32 * LANES;
    let begin = warp * of_warp;
    let worker = Worker {
        plan,
        function,
        inputs,
        desk,
        warp,
        lane,
        column: begin * N as u32,
        count: (plan.columns / N as u32).saturating_sub(begin).min(of_warp),
        ring: base + STAY_CONTROL_BYTES + warp * plan.stages * plan.stage_bytes,
    };
    // SAFETY: the caller's contract; barriers' own places, which nothing uses yet.
    unsafe {
        if thread < EXCHANGES {
            mbarrier::init(desk.sent(thread), plan.consumers / LANES);
            mbarrier::fence_init();
        }
        thread::sync_threads();
        grid::wait_dependencies();
        worker.rows::<N, VECTORS>(dx, partials, thread::block_idx_x());
    }
}

impl<T: InF32> Worker<'_, T> {
    /// All rows of the block, from this one on, which exists.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn rows<const N: usize, const VECTORS: usize>(&self, dx: *mut T, partials: *mut f32, first: u32) {
        let (rows, step) = (self.plan.rows as u32, self.plan.step);
        let stride = self.plan.output_strides[0] as usize;
        let column = self.column as usize + self.lane as usize * N;
        let mut to = dx.wrapping_add(first as usize * stride + column);
        let (mut row, mut turn, mut loaded, mut stages) = (first, 0, first, 0);
        // SAFETY: the caller's contract; a lane fills its part of a stage again when it has read that.
        unsafe {
            while stages < self.plan.stages {
                self.fill::<N, VECTORS>(loaded, stages);
                (loaded, stages) = (loaded + step, stages + 1);
            }
            let weight = self.weight::<N, VECTORS>();
            // All zero bits are zeros.
            let mut sums: [Columns<N, VECTORS>; MAX_SUMS] = core::mem::zeroed();
            let (mut behind, mut ahead) = (0, 0);
            let mut moments = self.moments(row);
            let mut coming = self.moments((row + step).min(rows - 1));
            let own = self.take(ahead, moments, &weight, &mut sums);
            self.send(own, 0);
            loop {
                let next = row + step;
                let after = coming;
                if next < rows {
                    ahead = self.next(ahead);
                    coming = self.moments((next + step).min(rows - 1));
                    let own = self.take(ahead, after, &weight, &mut sums);
                    self.send(own, turn + 1);
                }
                let of = self.function.of_sums::<T>(moments, self.receive(turn), self.plan.columns);
                self.map(behind, of, &weight, to);
                self.fill::<N, VECTORS>(loaded, behind);
                loaded += step;
                if next >= rows {
                    break;
                }
                to = to.wrapping_add(stride * step as usize);
                (row, turn, moments, behind) = (next, turn + 1, after, ahead);
            }
            let first_row = (first * MAX_SUMS as u32 * self.plan.columns) as usize;
            self.store(&sums, partials.wrapping_add(first_row + column));
        }
    }

    /// Whether the lane has the vector with this number among its own.
    #[inline(always)]
    fn has(&self, vector: usize) -> bool {
        self.lane + vector as u32 * LANES < self.count
    }

    /// The weights of the lane's columns.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn weight<const N: usize, const VECTORS: usize>(&self) -> Columns<N, VECTORS> {
        let mut weight = [[1.0; N]; VECTORS];
        let given = self.function.weight.cast::<T>();
        unroll!(K in 0..4, {
            if K < VECTORS && self.has(K) && !given.is_null() {
                let column = self.column + (self.lane + K as u32 * LANES) * N as u32;
                // SAFETY: the caller's contract; it is as long as a row.
                weight[K] = unsafe { row::shared::<T, N>(given, column) };
            }
        });
        weight
    }

    /// Mean of a row, and inverse of its deviation.
    ///
    /// # Safety
    /// The row exists.
    #[inline(always)]
    unsafe fn moments(&self, row: u32) -> [f32; 2] {
        let at = self.function.moments.wrapping_add(row as usize);
        // SAFETY: both are there for each row.
        unsafe { [*at, *at.wrapping_add(self.function.rows as usize)] }
    }

    /// The stage behind this one.
    #[inline(always)]
    const fn next(&self, stage: u32) -> u32 {
        if stage + 1 == self.plan.stages { 0 } else { stage + 1 }
    }

    /// Where a stage's first vector of the lane lies.
    #[inline(always)]
    fn stage(&self, stage: u32) -> u32 {
        self.ring + stage * self.plan.stage_bytes + self.lane * VECTOR_BYTES as u32
    }

    /// Begins to copy the lane's vectors of a row, if that exists: a group of copies in either case.
    ///
    /// # Safety
    /// As for [`run`]; the lane has read the stage.
    #[inline(always)]
    unsafe fn fill<const N: usize, const VECTORS: usize>(&self, row: u32, stage: u32) {
        let plan = self.plan;
        let to = self.stage(stage);
        if row < plan.rows as u32 {
            unroll!(I in 0..3, {
                if (I as u32) < plan.inputs {
                    let column = self.column as usize + self.lane as usize * N;
                    let from = (u64::from(row) * plan.input_strides[I]) as usize + column;
                    let from = self.inputs[I].wrapping_add(from);
                    unroll!(K in 0..4, {
                        if K < VECTORS && self.has(K) {
                            let to = to + I as u32 * plan.part_bytes + K as u32 * STRIDE_BYTES;
                            // SAFETY: a vector of the row, and as much room in the stage.
                            unsafe { async_copy::copy_cg(to, from.wrapping_add(K * LANES as usize * N)) }
                        }
                    });
                }
            });
        }
        async_copy::commit_group();
    }

    /// Waits for the row behind the one that is mapped next: all groups but those of later rows. Before the
    /// first row it waits for the second one too.
    #[inline(always)]
    fn wait(&self) {
        const { assert!(STAY_STAGES == 6, "counted out") };
        match self.plan.stages {
            2 => async_copy::wait_group::<0>(),
            3 => async_copy::wait_group::<1>(),
            4 => async_copy::wait_group::<2>(),
            5 => async_copy::wait_group::<3>(),
            _ => async_copy::wait_group::<4>(),
        }
    }

    /// Distance from the mean, gradient, and that times the weight.
    ///
    /// # Safety
    /// The stage is full, and the lane has the vector.
    #[inline(always)]
    unsafe fn elements<const N: usize>(&self, at: u32, mean: f32, weight: [f32; N]) -> [[f32; N]; 3] {
        // SAFETY: the caller's promise; every bit pattern is a number.
        unsafe {
            let x = T::widen(from_words::<T, N>(vector::load_shared_v4(at)));
            let dy = T::widen(from_words::<T, N>(vector::load_shared_v4(at + self.plan.part_bytes)));
            [map(x, |x| x - mean), dy, zip(dy, weight, |dy, weight| dy * weight)]
        }
    }

    /// The warp's part of a row's sums; the row's terms are added to those of columns.
    ///
    /// # Safety
    /// The whole warp calls it; the row is on its way.
    #[inline(always)]
    unsafe fn take<const N: usize, const VECTORS: usize>(
        &self,
        stage: u32,
        [mean, factor]: [f32; 2],
        weight: &Columns<N, VECTORS>,
        sums: &mut [Columns<N, VECTORS>; MAX_SUMS],
    ) -> Pair<T> {
        let multiply_add = T::Precision::multiply_add;
        let (mut of_g, mut of_distances) = (0.0, 0.0);
        let at = self.stage(stage);
        // SAFETY: the caller's promise.
        unsafe {
            self.wait();
            unroll!(K in 0..4, {
                if K < VECTORS && self.has(K) {
                    let [distance, dy, g] = self.elements(at + K as u32 * STRIDE_BYTES, mean, weight[K]);
                    for i in 0..N {
                        of_g += g[i];
                        of_distances = multiply_add(distance[i], g[i], of_distances);
                        sums[0][K][i] = multiply_add(dy[i], distance[i] * factor, sums[0][K][i]);
                        sums[1][K][i] += dy[i];
                    }
                }
            });
            Sums([of_g, of_distances]).reduce(LANES)
        }
    }

    /// The gradient of a row by its input.
    ///
    /// # Safety
    /// As for [`run`]; the stage is full.
    #[inline(always)]
    unsafe fn map<const N: usize, const VECTORS: usize>(
        &self,
        stage: u32,
        of: crate::norm::Of,
        weight: &Columns<N, VECTORS>,
        to: *mut T,
    ) {
        let at = self.stage(stage);
        unroll!(K in 0..4, {
            if K < VECTORS && self.has(K) {
                // SAFETY: the caller's promise.
                unsafe {
                    let at = at + K as u32 * STRIDE_BYTES;
                    let [distance, _, g] = self.elements(at, of.mean(), weight[K]);
                    let mut dx = of.gradient::<T, N>(distance, g);
                    if self.function.has_residual != 0 {
                        let words = vector::load_shared_v4(at + 2 * self.plan.part_bytes);
                        dx = zip(dx, T::widen(from_words::<T, N>(words)), |dx, residual| dx + residual);
                    }
                    access::store(to.wrapping_add(K * LANES as usize * N), T::narrow::<N>(dx));
                }
            }
        });
    }

    /// Hands the warp's part of a row to the others.
    ///
    /// A place is used again [`EXCHANGES`] rows later. A warp that sends for a row has received the row two
    /// before it, for which all sent, after they had received the row four before it.
    ///
    /// # Safety
    /// The whole warp calls it, for the rows in order.
    #[inline(always)]
    unsafe fn send(&self, own: Pair<T>, turn: u32) {
        let side = turn % EXCHANGES;
        // SAFETY: the caller's promise; the warp's place, and a barrier of the block.
        unsafe {
            // Behind it, no lane reads an exchange that the arrival lets others write again.
            sync_warp(FULL_MASK);
            if self.lane == 0 {
                vector::store_shared_v4(self.desk.parts(side * STAY_WARPS + self.warp), own.parts());
                mbarrier::arrive(self.desk.sent(side));
            }
        }
    }

    /// That of the whole row.
    ///
    /// # Safety
    /// The whole warp calls it, for a row that it has sent for.
    #[inline(always)]
    unsafe fn receive(&self, turn: u32) -> Pair<T> {
        let (side, warps) = (turn % EXCHANGES, self.plan.consumers / LANES);
        let warp = self.lane % STAY_WARPS;
        // SAFETY: the caller's promise; places are read behind their barrier.
        unsafe {
            mbarrier::wait_parity(self.desk.sent(side), turn / EXCHANGES % 2);
            let mut part = Pair::<T>::empty();
            if warp < warps {
                part =
                    Pair::<T>::from_parts(vector::load_shared_v4(self.desk.parts(side * STAY_WARPS + warp)));
            }
            part.reduce(STAY_WARPS)
        }
    }

    /// Stores the sums of the lane's columns, two rows from there on.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn store<const N: usize, const VECTORS: usize>(
        &self,
        sums: &[Columns<N, VECTORS>; MAX_SUMS],
        to: *mut f32,
    ) {
        unroll!(K in 0..4, {
            if K < VECTORS && self.has(K) {
                unroll!(S in 0..2, {
                    let at = to.wrapping_add(S * self.plan.columns as usize + K * LANES as usize * N);
                    unroll!(I in 0..2, {
                        if 4 * I < N {
                            let four = [0, 1, 2, 3].map(|i| sums[S][K][4 * I + i]);
                            // SAFETY: the caller's contract; a row has whole vectors.
                            unsafe { access::store(at.wrapping_add(4 * I), four) }
                        }
                    });
                });
            }
        });
    }
}
