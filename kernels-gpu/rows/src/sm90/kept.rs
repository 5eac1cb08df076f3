//! The engine for norms whose rows lie in registers: a block, or a cluster, takes a few rows one after the
//! other.
//!
//! ```text
//!   global ==> shared memory --> registers --> mean --> deviations --> results --> global      row n
//!                          `==> the block's next row, as soon as all have read this one
//! ```
//! A row is widened once, its mean is subtracted in place, and sums of squares are of what is left, so
//! nothing cancels. What a thread does once for a block it does for several rows; weights stay in L1 for
//! them. Blocks do not stay for all rows: those of faster multiprocessors take more of them. A multiprocessor
//! has 24 warps at different places of their rows, as registers allow, and a block has one place for a row.
//!
//! Counted: in bf16 an element of layer norm and GELU takes about 23 instructions, and in [`super::held`] 30:
//! 7 of the norm, 2 to widen weight and bias, 9.5 of the function and of rounding, and 4 of what is done once
//! for a vector and for a row of 32 elements a thread. Measured: up to 15 % less time with an activation
//! (bf16, rows of 4096), up to 9 % without (f32, rows of 32768). `plan/kept.rs` has the figures, and says
//! where this runs.
//!
//! Slower, or no faster: two or three places for rows of a block. One row a block in 16 bits takes up to 1.5
//! times as long as four: each block waits for its first row, makes its barriers and loads weights anew. Bits
//! of a row do not depend on how many rows its block takes.

use crate::function::Tensors;
use crate::norm::{Norm, added};
use crate::plan::{CLUSTER_TURNS, KEPT_BYTES, KEPT_WARPS, MAX_CLUSTER, Plan};
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, grid, mbarrier, misc, shared, thread, tma, vector};
use primitives::access::{self, VECTOR_BYTES, Words, from_words};
use primitives::activation::{Activation, Precision, Visitor};
use primitives::element::{Float, InF32, map};
use primitives::math::Elementary;
use primitives::op::tree;
use primitives::shared_plan::{Mbarrier, SharedPlan, SharedType};
use primitives::warp::{LANES, fold_sections};
use primitives::{shared_bytes, shared_plan, unroll};

/// Exchanges whose sums of warps lie beside each other: of two rows, two each.
const SIDES: u32 = 4;
/// Exchanges of a row at most: its sum, and sums of its deviations.
const OF_ROW: u32 = 2;

shared_plan! {
    /// Words between threads.
    pub struct Desk {
        /// Sums of the block's warps, of a few exchanges.
        warps[SIDES * KEPT_WARPS]: Two,
        /// Those of the cluster's blocks, of all exchanges: a place is written once.
        blocks[OF_ROW * CLUSTER_TURNS * MAX_CLUSTER]: Two,
        /// Says that those have come.
        gathered[OF_ROW * CLUSTER_TURNS]: Mbarrier,
        /// Says that the block's row has come.
        full[1]: Mbarrier,
        /// Rows begin at a multiple of 128.
        rest: Rest,
    }
}
shared_bytes! {
    /// Two numbers.
    pub struct Two(2 * size_of::<f32>(), align 8);
}
shared_bytes! {
    /// Nothing.
    pub struct Rest(0, align 128);
}

const _: () = assert!(<Desk as SharedPlan>::TOTAL == KEPT_BYTES);

/// Numbers of a lane's columns.
type Columns<const N: usize, const VECTORS: usize> = [[f32; N]; VECTORS];

/// A thread, and what it has of every row.
struct Worker<'a, T, const IS_FULL: bool> {
    plan: &'a Plan,
    function: &'a Norm,
    tensors: &'a Tensors<T>,
    desk: Desk,
    /// Number in the block.
    thread: u32,
    /// Rank of the block in its cluster.
    rank: u32,
    /// First column of the block.
    begin: u32,
    /// Vectors of the block.
    piece: u32,
    /// The thread's first vector in the block.
    vector: u32,
    /// Where the block's row lies, that of the residual behind it.
    row: u32,
}

/// The norm of all rows, `VECTORS` vectors a thread. `IS_FULL` says that all threads have as many.
///
/// # Safety
/// As for [`crate::direct::run`], and the plan is one for this engine. It is layer norm with a weight and a
/// bias; they and all rows begin at 16-byte boundaries.
#[inline(always)]
pub unsafe fn run<T: InF32, const N: usize, const VECTORS: usize, const IS_FULL: bool>(
    plan: &Plan,
    function: &Norm,
    tensors: &Tensors<T>,
) {
    const { assert!(VECTORS <= 8, "the loops over them count them out") };
    grid::launch_dependents();
    let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
    let thread = thread::thread_idx_x();
    let rank = if plan.cluster > 1 { cluster::block_rank() } else { 0 };
    let share = plan.row_bytes / VECTOR_BYTES as u32;
    let begin = rank * share;
    let worker = Worker::<'_, T, IS_FULL> {
        plan,
        function,
        tensors,
        desk: Desk::new(base),
        thread,
        rank,
        begin: begin * N as u32,
        piece: if IS_FULL { share } else { (plan.columns / N as u32 - begin).min(share) },
        vector: thread / LANES * VECTORS as u32 * LANES + thread % LANES,
        row: base + KEPT_BYTES,
    };
    // SAFETY: the caller's contract; the block's own places, which nothing uses yet.
    unsafe {
        worker.prepare::<VECTORS>();
        grid::wait_dependencies();
        worker.rows::<N, VECTORS>();
    }
}

impl<T: InF32, const IS_FULL: bool> Worker<'_, T, IS_FULL> {
    /// Makes the barriers, and says so to the cluster. Places of vectors that there are not have zeros.
    ///
    /// # Safety
    /// All threads of the block call it first.
    #[inline(always)]
    unsafe fn prepare<const VECTORS: usize>(&self) {
        let (plan, desk, thread) = (self.plan, self.desk, self.thread);
        let [first, end] = self.turns();
        let is_of_cluster = plan.cluster > 1 && thread < OF_ROW * (end - first);
        // SAFETY: the caller's contract.
        unsafe {
            if thread < SIDES * KEPT_WARPS {
                // Those of warps that there are not.
                vector::store_shared_v2(desk.warps(thread), [0.0f32; 2]);
            }
            if thread == 0 {
                mbarrier::init(desk.full(0), 1);
            }
            if is_of_cluster {
                mbarrier::init(desk.gathered(thread), 1);
            }
            mbarrier::fence_init();
            if !IS_FULL {
                let mut part = 0;
                while part < plan.inputs {
                    let at = self.row + part * plan.part_bytes + self.vector * VECTOR_BYTES as u32;
                    unroll!(K in 0..8, {
                        if K < VECTORS && !self.has(K) {
                            vector::store_shared_v4(at + K as u32 * STRIDE_BYTES, [0u32; 4]);
                        }
                    });
                    part += 1;
                }
            }
            thread::sync_threads();
            if is_of_cluster {
                mbarrier::arrive_expect_tx(desk.gathered(thread), plan.cluster * Two::BYTES);
            }
            if plan.cluster > 1 {
                cluster::arrive_relaxed();
            }
        }
    }

    /// All rows of the block.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn rows<const N: usize, const VECTORS: usize>(&self) {
        let plan = self.plan;
        let [first, end] = self.turns();
        // SAFETY: the caller's contract.
        unsafe {
            if self.thread == 0 {
                self.fill(first);
            }
            if plan.cluster > 1 {
                // The others' barriers are ready.
                cluster::wait();
            }
            let mut row = first;
            while row < end {
                let turn = row - first;
                let exchange = OF_ROW * turn;
                mbarrier::wait_parity(self.desk.full(0), turn & 1);
                let mut x = self.take::<N, VECTORS>(row);
                let [sum] = self.total([sum_of(&x)], exchange);
                if self.thread == 0 && row + 1 < end {
                    self.fill(row + 1);
                }
                let mean = quotient::<T>(sum, plan.columns as f32);
                let own = self.subtract(&mut x, mean);
                let shared = self.shared::<N>(0);
                let sums = self.total_of_deviations(own, exchange + 1);
                let of = self.finish(sums, mean, row);
                let to = self.tensors.outputs[0].wrapping_add(self.place::<N>(row, plan.output_strides[0]));
                let activation = Activation::from_code(self.function.activation);
                activation.visit::<T::Precision>(Results { worker: self, x: &x, of, shared, to });
                row += 1;
            }
        }
    }

    /// The block's first row, and the one behind its last.
    #[inline(always)]
    fn turns(&self) -> [u32; 2] {
        let first = (thread::block_idx_x() >> self.plan.cluster.trailing_zeros()) * self.plan.tile;
        [first, (first + self.plan.tile).min(self.plan.rows as u32)]
    }

    /// Whether the thread has the vector with this number among its own.
    #[inline(always)]
    fn has(&self, vector: usize) -> bool {
        IS_FULL || self.vector + vector as u32 * LANES < self.piece
    }

    /// The thread's first element of a row, in a tensor with this stride. Computed again for each row: kept,
    /// it would take registers.
    #[inline(always)]
    fn place<const N: usize>(&self, row: u32, stride: u64) -> usize {
        (u64::from(row) * stride) as usize + (self.begin + misc::opaque(self.vector) * N as u32) as usize
    }

    /// Begins to copy the block's part of a row.
    ///
    /// # Safety
    /// One thread calls it, when all have read the row before; the row exists.
    #[inline(always)]
    unsafe fn fill(&self, row: u32) {
        let (plan, full) = (self.plan, self.desk.full(0));
        let bytes = misc::opaque(self.piece) * VECTOR_BYTES as u32;
        // SAFETY: vectors of the row, and as much room for them.
        unsafe {
            mbarrier::arrive_expect_tx(full, bytes * plan.inputs);
            unroll!(INPUT in 0..2, {
                if (INPUT as u32) < plan.inputs {
                    let from = self.tensors.input_row(plan, INPUT, row.into());
                    let from = from.wrapping_add(self.begin as usize);
                    tma::bulk_load(self.row + INPUT as u32 * plan.part_bytes, from, bytes, full);
                }
            });
        }
    }

    /// The numbers that are normalised: the row, or its sum with the residual, which is stored. Zeros where
    /// the thread has no vectors.
    ///
    /// # Safety
    /// This row has come.
    #[inline(always)]
    unsafe fn take<const N: usize, const VECTORS: usize>(&self, row: u32) -> Columns<N, VECTORS> {
        let mut x = [[0.0; N]; VECTORS];
        let at = self.row + self.vector * VECTOR_BYTES as u32;
        let load = |at: u32| {
            // SAFETY: the caller's promise; places of vectors that there are not have zeros.
            unsafe { T::widen(from_words::<T, N>(vector::load_shared_v4(at))) }
        };
        unroll!(K in 0..8, {
            if K < VECTORS {
                x[K] = load(at + K as u32 * STRIDE_BYTES);
            }
        });
        if misc::opaque(self.function.has_residual) != 0 {
            let stride = self.plan.output_strides[1];
            let to = self.tensors.outputs[1].wrapping_add(self.place::<N>(row, stride));
            unroll!(K in 0..8, {
                if K < VECTORS {
                    x[K] = added::<T, N>(x[K], load(at + self.plan.part_bytes + K as u32 * STRIDE_BYTES));
                    if self.has(K) {
                        // SAFETY: the launch has that output.
                        unsafe { access::store(to.wrapping_add(K * LANES as usize * N), T::narrow::<N>(x[K])) }
                    }
                }
            });
        }
        x
    }

    /// Subtracts the mean, and adds up the squares of what is left, and what is left.
    #[inline(always)]
    fn subtract<const N: usize, const VECTORS: usize>(
        &self,
        x: &mut Columns<N, VECTORS>,
        mean: f32,
    ) -> [f32; 2] {
        let (mut squares, mut rest) = ([0.0; 2], 0.0);
        unroll!(K in 0..8, {
            if K < VECTORS {
                // Zeros stay where there are no vectors.
                let mean = if self.has(K) { mean } else { 0.0 };
                x[K] = map(x[K], |x| x - mean);
                for i in 0..N {
                    squares[i % 2] = T::Precision::multiply_add(x[K][i], x[K][i], squares[i % 2]);
                }
                if corrects::<T>() {
                    rest += tree(x[K], |a, b| a + b);
                }
            }
        });
        [squares[0] + squares[1], rest]
    }

    /// The row's sums from those of the thread: of squares, and of what is left if that is asked for.
    ///
    /// # Safety
    /// As for [`total`](Self::total).
    #[inline(always)]
    unsafe fn total_of_deviations(&self, [squares, rest]: [f32; 2], exchange: u32) -> [f32; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            if corrects::<T>() {
                return self.total([squares, rest], exchange);
            }
            let [squares] = self.total([squares], exchange);
            [squares, 0.0]
        }
    }

    /// Sums of the whole row from those of its threads. Behind it all threads of the block have read what
    /// they read before it.
    ///
    /// Places of warps are written again four exchanges later: all have read them by then, since each comes
    /// to the next exchange's barrier behind that.
    ///
    /// # Safety
    /// All threads of the cluster call it, for its exchanges in order.
    #[inline(always)]
    unsafe fn total<const K: usize>(&self, own: [f32; K], exchange: u32) -> [f32; K] {
        let (plan, lane, warp) = (self.plan, self.thread % LANES, self.thread / LANES);
        // SAFETY: the caller's contract.
        unsafe {
            let of_warp = fold(own, LANES);
            if plan.consumers == LANES {
                sync_warp(FULL_MASK);
                return of_warp;
            }
            let side = exchange % SIDES * KEPT_WARPS;
            if lane == 0 {
                vector::store_shared_v2(self.desk.warps(side + warp), two(of_warp));
            }
            thread::sync_threads();
            let of_block = fold(load(self.desk.warps(side + lane % KEPT_WARPS)), KEPT_WARPS);
            if plan.cluster == 1 {
                return of_block;
            }
            let (place, gathered) = (exchange * MAX_CLUSTER, self.desk.gathered(exchange));
            if self.thread < plan.cluster {
                let to = cluster::map_shared(self.desk.blocks(place + self.rank), self.thread);
                cluster::store_async_v2(to, two(of_block), cluster::map_shared(gathered, self.thread));
            }
            mbarrier::wait_parity(gathered, 0);
            fold(load(self.desk.blocks(place + (lane & (plan.cluster - 1)))), plan.cluster)
        }
    }

    /// The numbers that results need of the row, from its sums. The first thread stores the moments.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn finish(&self, [squares, rest]: [f32; 2], mean: f32, row: u32) -> Of {
        let (function, share) = (self.function, T::Precision::inverse(self.plan.columns as f32));
        let (mut squares, mut lacking) = (squares, 0.0);
        if corrects::<T>() {
            lacking = rest * share;
            squares -= rest * lacking;
            // Rounding may leave less than nothing; NaN stays.
            squares = if squares < 0.0 { 0.0 } else { squares };
        }
        let factor = T::Precision::rsqrt(squares * share + T::Precision::value(function.eps));
        if self.thread == 0 && self.rank == 0 && !function.moments.is_null() {
            // SAFETY: a place for each row of both.
            unsafe {
                *function.moments.add(row as usize) = mean + lacking;
                *function.moments.add(function.rows as usize + row as usize) = factor;
            }
        }
        Of { lacking, factor }
    }

    /// Weight and bias of one of the thread's vectors; of the block's last where it has no such.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn shared<const N: usize>(&self, vector: usize) -> [Words; 2] {
        let mut column = (self.begin + self.vector * N as u32) as usize + vector * LANES as usize * N;
        if !IS_FULL {
            // Computed again too.
            let at = misc::opaque(self.vector) + vector as u32 * LANES;
            column = (self.begin + at.min(self.piece - 1) * N as u32) as usize;
        }
        // SAFETY: the caller's contract: they are as long as a row.
        [self.function.weight, self.function.bias]
            .map(|of: *const u8| unsafe { access::load_words(of.cast::<T>().wrapping_add(column)) })
    }
}

/// Bytes from one of a lane's vectors to its next.
const STRIDE_BYTES: u32 = LANES * VECTOR_BYTES as u32;

/// Whether the mean is made exact by a second sum: in f32, where rounding it once would show.
const fn corrects<T>() -> bool {
    size_of::<T>() == size_of::<f32>()
}

/// Needed of the row by each element.
#[derive(Clone, Copy)]
struct Of {
    /// Lacking in the mean.
    lacking: f32,
    /// The inverse of the deviation.
    factor: f32,
}

/// Stores the results of a row, with the activation that it is handed.
struct Results<'a, T, const N: usize, const VECTORS: usize, const IS_FULL: bool> {
    worker: &'a Worker<'a, T, IS_FULL>,
    x: &'a Columns<N, VECTORS>,
    of: Of,
    /// Weight and bias of the first vector.
    shared: [Words; 2],
    to: *mut T,
}

impl<T: InF32, const N: usize, const VECTORS: usize, const IS_FULL: bool> Visitor<f32>
    for Results<'_, T, N, VECTORS, IS_FULL>
{
    #[inline(always)]
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        let Results { worker, x, of, mut shared, to } = self;
        unroll!(K in 0..8, {
            if K < VECTORS {
                let [weight, bias] = shared.map(|words| T::widen(from_words::<T, N>(words)));
                if K + 1 < VECTORS {
                    // SAFETY: the launch's contract.
                    shared = unsafe { worker.shared::<N>(K + 1) };
                }
                let mut y = x[K];
                for i in 0..N {
                    let distance = if corrects::<T>() { y[i] - of.lacking } else { y[i] };
                    y[i] = function(T::Precision::multiply_add(distance, weight[i] * of.factor, bias[i]));
                }
                if worker.has(K) {
                    // SAFETY: a vector of the row.
                    unsafe { access::store(to.wrapping_add(K * LANES as usize * N), T::narrow::<N>(y)) }
                }
            }
        });
    }
}

/// The sum of a thread's elements.
#[inline(always)]
fn sum_of<const N: usize, const VECTORS: usize>(x: &Columns<N, VECTORS>) -> f32 {
    let mut sum = 0.0;
    unroll!(K in 0..8, {
        if K < VECTORS {
            sum += tree(x[K], |a, b| a + b);
        }
    });
    sum
}

/// `sum / count`, rounded once: so a row of equal numbers has them as its mean, where their sum is exact.
#[inline(always)]
fn quotient<T: Float<Precision: Precision<Value = f32>>>(sum: f32, count: f32) -> f32 {
    let share = T::Precision::inverse(count);
    let quotient = sum * share;
    let lacking = T::Precision::multiply_add(-quotient, count, sum);
    T::Precision::multiply_add(lacking, share, quotient)
}

/// Each of some numbers, added up over every `lanes` neighbours.
///
/// # Safety
/// As for [`fold_sections`].
#[inline(always)]
unsafe fn fold<const K: usize>(mut own: [f32; K], lanes: u32) -> [f32; K] {
    for i in 0..K {
        // SAFETY: the caller's contract.
        own[i] = unsafe { fold_sections(own[i], lanes, |a, b| a + b) };
    }
    own
}

/// One or two numbers as two.
#[inline(always)]
fn two<const K: usize>(numbers: [f32; K]) -> [f32; 2] {
    [numbers[0], numbers[K - 1]]
}

/// One or two numbers at this shared address.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn load<const K: usize>(address: u32) -> [f32; K] {
    // SAFETY: the caller's word.
    let numbers: [f32; 2] = unsafe { vector::load_shared_v2(address) };
    let mut first = [numbers[0]; K];
    for i in 0..K {
        first[i] = numbers[i];
    }
    first
}
