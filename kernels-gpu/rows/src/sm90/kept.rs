//! The engine for norms whose rows lie in registers: a block, or a cluster, takes a few rows one after the
//! other, or draws them (`kept/drawn.rs`).
//!
//! ```text
//!   global ==> shared memory --> registers --> mean and deviations --> results --> global      row n
//!                          `==> the block's next row, as soon as all have read this one
//! ```
//! A row is widened once. In 16 bits its sum and its sum of squares are exchanged at once, each by half of a
//! warp's lanes, and a result with a weight and a bias is two multiplications with addends. The squares less
//! those of the mean lack bits where the mean is large: beyond `CANCELLED`, where squares overflow, and in
//! f32 always, the mean is subtracted in place and sums of squares are of what is left, which takes another
//! exchange. Blocks of 16 bits go that way for rows
//! that need it, as rows with NaN do.
//!
//! A thread does for several rows what is done once for a block; weights stay in L1 for them. Blocks do not
//! stay for all rows: those of faster multiprocessors take more of them. A multiprocessor has 24 warps at
//! different places of their rows, as registers allow, and a block has one place for a row.
//!
//! Counted in SASS, bf16, layer norm and GELU, for a row and warp: 453 instructions at 768 columns, and some
//! 30 of thread 0, where it was 730 with the mean exchanged first, four vectors a thread of which some are
//! not there, and a gate of 9 instructions for 7; 652 at 65536 columns, and polls, where it was 904. The
//! profiler's issue slots were 0.69 to 0.81 full before. `plan/kept.rs` and `plan/drawn.rs` have what was
//! measured, and say where this runs.
//!
//! Norms without a mean, with a weight alone or with nothing, are the same entries: the branches are once for
//! a row. Blocks of a cluster have means of their own, and exchange once a row (`kept/desk.rs`): another turn
//! of messages for the row's mean would be a latency that all blocks wait for.
//!
//! Slower, or no faster: two or three places for rows of a block, hints of what leaves the L2 first, stores
//! that leave the caches first. One row a block in 16 bits takes up to 1.5 times as long as four: each block
//! waits for its first row, makes its barriers and loads weights anew. Bits of a row depend neither on how
//! many rows its block takes nor on how it gets them.
//!
//! Blocks that draw rows are entries of their own: one loop for both, told apart at run time, took 2 to 3 %
//! longer for rows that blocks have. Some of them have weight and bias in shared memory: `plan/drawn.rs`.

mod desk;
mod drawn;
mod results;

use crate::function::Tensors;
use crate::norm::{Norm, added};
use crate::plan::{CLUSTER_PLACES, Plan, WEIGHT_PARTS};
use core::marker::PhantomData;
use cuda_std::warp::{FULL_MASK, warp_vote_all};
use cuda_std::{cluster, grid, mbarrier, misc, shared, thread, tma, vector};
use desk::{Deviations, Member};
use drawn::Queue;
use primitives::access::{self, VECTOR_BYTES, Words, from_words};
use primitives::activation::{Activation, Precision};
use primitives::element::{Float, InF32, map};
use primitives::math::Elementary;
use primitives::op::tree;
use primitives::unroll;
use primitives::warp::LANES;
use results::{Results, Scale};

/// Which kind of kernel it is.
pub trait Kind {
    /// Whether all threads have as many vectors.
    const IS_FULL: bool = true;
    /// Whether blocks draw their rows from a counter.
    const DRAWS: bool = false;
    /// Whether weight and bias come to shared memory: of those that draw.
    const HAS_SHARED: bool = false;
    /// Whether blocks may share a row in clusters.
    const MAY_CLUSTER: bool = true;
}

/// Blocks have their rows, and all threads as many vectors.
pub struct Full;
/// Blocks have their rows, and some threads fewer vectors.
pub struct Part;
/// Blocks have their rows, and all threads as many vectors, but one fewer than others have.
pub struct Fewer;
/// Blocks draw rows, and all threads have as many vectors.
pub struct Drawn;
/// The same, with weight and bias in shared memory.
pub struct DrawnShared;

impl Kind for Full {}
impl Kind for Part {
    const IS_FULL: bool = false;
}
impl Kind for Fewer {
    const MAY_CLUSTER: bool = false;
}
impl Kind for Drawn {
    const DRAWS: bool = true;
}
impl Kind for DrawnShared {
    const DRAWS: bool = true;
    const HAS_SHARED: bool = true;
}

/// Numbers of a lane's columns.
type Columns<const N: usize, const VECTORS: usize> = [[f32; N]; VECTORS];

/// A thread, and what it has of every row.
struct Worker<'a, T, Q> {
    plan: &'a Plan,
    function: &'a Norm,
    tensors: &'a Tensors<T>,
    member: Member,
    /// First column of the block.
    begin: u32,
    /// Vectors of the block.
    piece: u32,
    /// The thread's first vector in the block.
    vector: u32,
    /// Where the block's row lies, that of the residual behind it, then weight and bias.
    row: u32,
    /// From which blocks draw.
    counter: *mut u32,
    kind: PhantomData<Q>,
}

/// The norm of all rows, `VECTORS` vectors a thread.
///
/// # Safety
/// As for [`crate::direct::run`], and the plan is one for this engine and kind. There are a weight and a
/// bias, or no bias and no activation; those and all rows begin at 16-byte boundaries. Where blocks draw,
/// there is a counter, which is 0, as it is again at the end, and which no launch beside this one has.
#[inline(always)]
pub unsafe fn run<T: InF32, const N: usize, const VECTORS: usize, Q: Kind>(
    plan: &Plan,
    function: &Norm,
    tensors: &Tensors<T>,
    counter: *mut u32,
) {
    const { assert!(VECTORS <= 8, "the loops over them count them out") };
    grid::launch_dependents();
    let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
    let member = Member::new::<Q>(plan, base);
    let share = plan.row_bytes / VECTOR_BYTES as u32;
    let begin = member.rank * share;
    let worker = Worker::<'_, T, Q> {
        plan,
        function,
        tensors,
        member,
        begin: begin * N as u32,
        piece: if Q::IS_FULL { share } else { (plan.columns / N as u32 - begin).min(share) },
        vector: member.thread / LANES * VECTORS as u32 * LANES + member.thread % LANES,
        row: base + plan.shared
            - (plan.inputs + if Q::HAS_SHARED { WEIGHT_PARTS } else { 0 }) * plan.part_bytes,
        counter,
        kind: PhantomData,
    };
    // SAFETY: the caller's contract; the block's own places, which nothing uses yet.
    unsafe {
        worker.prepare::<VECTORS>();
        grid::wait_dependencies();
        if Q::DRAWS {
            worker.drawn::<N, VECTORS>();
        } else {
            worker.rows::<N, VECTORS>();
        }
    }
}

impl<T: InF32, Q: Kind> Worker<'_, T, Q> {
    /// Makes the barriers, and says so to the cluster. Places of vectors that there are not have zeros.
    ///
    /// # Safety
    /// All threads of the block call it first.
    #[inline(always)]
    unsafe fn prepare<const VECTORS: usize>(&self) {
        let plan = self.plan;
        let [first, end] = if Q::DRAWS { [0, CLUSTER_PLACES] } else { self.turns() };
        // SAFETY: the caller's contract.
        unsafe {
            if !Q::IS_FULL {
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
            self.member.prepare::<Q>(plan, end - first);
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
            self.fill(first, end);
            if has_cluster::<Q>(plan) {
                // The others' barriers are ready.
                cluster::wait();
            }
            let mut row = first;
            while row < end {
                let turn = row - first;
                mbarrier::wait_parity(self.member.full(), turn & 1);
                self.row::<N, VECTORS>([row, turn, end], &mut Queue::default());
                row += 1;
            }
        }
    }

    /// A row that has come.
    ///
    /// # Safety
    /// As for [`run`]; all threads of the cluster call it for their rows in order.
    #[inline(always)]
    unsafe fn row<const N: usize, const VECTORS: usize>(
        &self,
        [row, turn, end]: [u32; 3],
        queue: &mut Queue,
    ) {
        let plan = self.plan;
        // SAFETY: the caller's contract.
        unsafe {
            let mut x = self.take::<N, VECTORS>(row);
            let (shared, of, offset) = if misc::opaque(self.function.is_centered) != 0 {
                self.centered::<N, VECTORS>(&mut x, [row, turn, end], queue)
            } else {
                self.as_it_is::<N, VECTORS>(&x, [row, turn, end], queue)
            };
            let factor = self.finish(of, row);
            // An infinite factor would make NaN of nothing that is to be subtracted.
            let term = if offset == 0.0 { -0.0 } else { -(offset * factor) };
            let scale = Scale { factor, term };
            let to = self.tensors.outputs[0].wrapping_add(self.place::<N>(row, plan.output_strides[0]));
            let results = Results { worker: self, x: &x, scale, shared, to };
            if !self.function.bias.is_null() {
                let activation = Activation::from_code(self.function.activation);
                activation.visit::<<T::Precision as Elementary>::OfNorms>(results);
            } else if !self.function.weight.is_null() {
                results.scaled::<true>();
            } else {
                results.scaled::<false>();
            }
        }
    }

    /// Weight and bias of the first vector, the row's deviations, and what still is to be subtracted from its
    /// numbers. The next row is on its way as soon as all have this one.
    ///
    /// # Safety
    /// As for [`run`]; all threads of the cluster call it for their rows in order.
    #[inline(always)]
    unsafe fn centered<const N: usize, const VECTORS: usize>(
        &self,
        x: &mut Columns<N, VECTORS>,
        [row, turn, end]: [u32; 3],
        queue: &mut Queue,
    ) -> ([Words; 2], Deviations, f32) {
        let plan = self.plan;
        // SAFETY: the caller's contract.
        unsafe {
            let (own, subtracted, shared) = if corrects::<T>() {
                let sum = self.member.of_block(plan, sum_of(x), 0);
                self.next([row, end], queue);
                let shared = self.both::<N>(0);
                (self.exact(x, sum, 1), true, shared)
            } else {
                let sums = [sum_of(x), squares_of::<T, N, VECTORS>(x)];
                let [sum, squares] = self.member.pair_of_block(plan, sums, turn & 1);
                self.next([row, end], queue);
                let shared = self.both::<N>(0);
                let pivot = quotient::<T>(sum, (self.piece * N as u32) as f32);
                let squares = T::Precision::multiply_add(-sum, pivot, squares);
                let most = squares * CANCELLED;
                // Not of NaN, and not of squares that have overflowed. A vote's result is the compiler's word
                // that all lanes go the same way.
                if warp_vote_all(FULL_MASK, most <= f32::MAX && most >= sum * pivot) {
                    (Deviations { pivot, lacking: 0.0, squares, word: 0.0 }, false, shared)
                } else {
                    (self.exact(x, sum, 2), true, shared)
                }
            };
            let mut of = Deviations { word: self.word(queue), ..own };
            if has_cluster::<Q>(plan) {
                let (share, columns) = (plan.row_bytes / size_of::<T>() as u32, plan.columns as f32);
                let inverse = T::Precision::inverse(columns);
                of = self.member.of_cluster::<Q>(plan, of, (share, inverse), turn);
                self.hear(queue, of.word);
            }
            (shared, of, if subtracted { of.lacking } else { of.pivot + of.lacking })
        }
    }

    /// The block's deviations after its mean, from that sum, has been subtracted from each number.
    ///
    /// # Safety
    /// As for [`run`]; all threads of the block call it.
    #[inline(always)]
    unsafe fn exact<const N: usize, const VECTORS: usize>(
        &self,
        x: &mut Columns<N, VECTORS>,
        sum: f32,
        side: u32,
    ) -> Deviations {
        let (plan, count) = (self.plan, (self.piece * N as u32) as f32);
        let pivot = quotient::<T>(sum, count);
        let rest = self.subtract(x, pivot);
        let (mut lacking, mut squares) = (0.0, squares_of::<T, N, VECTORS>(x));
        // SAFETY: the caller's contract.
        unsafe {
            if corrects::<T>() {
                let sums = self.member.pair_of_block(plan, [squares, rest], side);
                lacking = sums[1] * T::Precision::inverse(count);
                // Rounding may leave less than nothing; NaN stays.
                squares = sums[0] - sums[1] * lacking;
                squares = if squares < 0.0 { 0.0 } else { squares };
            } else {
                squares = self.member.of_block(plan, squares, side);
            }
        }
        Deviations { pivot, lacking, squares, word: 0.0 }
    }

    /// The same of a row from which nothing is subtracted.
    ///
    /// # Safety
    /// As for [`centered`](Self::centered).
    #[inline(always)]
    unsafe fn as_it_is<const N: usize, const VECTORS: usize>(
        &self,
        x: &Columns<N, VECTORS>,
        [row, turn, end]: [u32; 3],
        queue: &mut Queue,
    ) -> ([Words; 2], Deviations, f32) {
        let plan = self.plan;
        // SAFETY: the caller's contract.
        unsafe {
            let shared = self.both::<N>(0);
            let squares = self.member.of_block(plan, squares_of::<T, N, VECTORS>(x), turn & 1);
            self.next([row, end], queue);
            let word = self.word(queue);
            let mut of = Deviations { pivot: 0.0, lacking: 0.0, squares, word };
            if has_cluster::<Q>(plan) {
                of = self.member.squares::<Q>(plan, of, turn);
                self.hear(queue, of.word);
            }
            (shared, of, 0.0)
        }
    }

    /// The block's first row, and the one behind its last.
    #[inline(always)]
    fn turns(&self) -> [u32; 2] {
        let plan = self.plan;
        let cluster = thread::block_idx_x() >> plan.cluster.trailing_zeros();
        let (first, turns) = if cluster < plan.tiles {
            (cluster * plan.tile, plan.tile)
        } else {
            (plan.tiles * plan.tile + (cluster - plan.tiles) * plan.step, plan.step)
        };
        [first, (first + turns).min(plan.rows as u32)]
    }

    /// Whether the thread has the vector with this number among its own.
    #[inline(always)]
    fn has(&self, vector: usize) -> bool {
        Q::IS_FULL || self.vector + vector as u32 * LANES < self.piece
    }

    /// The thread's first element of a row, in a tensor with this stride. Computed again for each row: kept,
    /// it would take registers.
    #[inline(always)]
    fn place<const N: usize>(&self, row: u32, stride: u64) -> usize {
        (u64::from(row) * stride) as usize + (self.begin + misc::opaque(self.vector) * N as u32) as usize
    }

    /// Begins to copy the block's part of a row, where the block has one.
    ///
    /// # Safety
    /// All threads call it, when all have read the row before.
    #[inline(always)]
    unsafe fn fill(&self, row: u32, end: u32) {
        if self.member.thread != 0 || row >= end {
            return;
        }
        // SAFETY: the caller's contract.
        unsafe { self.copy(row) }
    }

    /// Begins to copy the block's part of a row.
    ///
    /// # Safety
    /// One thread calls it, when all have read the row before.
    #[inline(always)]
    unsafe fn copy(&self, row: u32) {
        let (plan, full) = (self.plan, self.member.full());
        let bytes = self.bytes();
        // SAFETY: vectors of the row, and as much room for them.
        unsafe {
            mbarrier::arrive_expect_tx(full, bytes * plan.inputs);
            unroll!(INPUT in 0..2, {
                if (INPUT as u32) < plan.inputs {
                    let to = self.row + INPUT as u32 * plan.part_bytes;
                    tma::bulk_load(to, self.part(INPUT, row), bytes, full);
                }
            });
        }
    }

    /// The block's part of a row of an input.
    #[inline(always)]
    fn part(&self, input: usize, row: u32) -> *const T {
        self.tensors.input_row(self.plan, input, row.into()).wrapping_add(self.begin as usize)
    }

    /// Bytes of that.
    #[inline(always)]
    fn bytes(&self) -> u32 {
        misc::opaque(self.piece) * VECTOR_BYTES as u32
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

    /// Subtracts a number, and adds up what is left if that is asked for.
    #[inline(always)]
    fn subtract<const N: usize, const VECTORS: usize>(&self, x: &mut Columns<N, VECTORS>, pivot: f32) -> f32 {
        let mut rest = 0.0;
        unroll!(K in 0..8, {
            if K < VECTORS {
                // Zeros stay where there are no vectors.
                let pivot = if self.has(K) { pivot } else { 0.0 };
                x[K] = map(x[K], |x| x - pivot);
                if corrects::<T>() {
                    rest += tree(x[K], |a, b| a + b);
                }
            }
        });
        rest
    }

    /// The inverse of the row's deviation. The first thread stores the moments.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn finish(&self, of: Deviations, row: u32) -> f32 {
        let (function, share) = (self.function, T::Precision::inverse(self.plan.columns as f32));
        let factor = T::Precision::rsqrt(of.squares * share + T::Precision::value(function.eps));
        if self.member.thread == 0 && self.member.rank == 0 && !function.moments.is_null() {
            // SAFETY: a place for each row of both.
            unsafe {
                *function.moments.add(row as usize) = of.pivot + of.lacking;
                *function.moments.add(function.rows as usize + row as usize) = factor;
            }
        }
        factor
    }

    /// Weight and bias of one of the thread's vectors, as [`words`](Self::words); zeros of one that is not
    /// there.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn both<const N: usize>(&self, vector: usize) -> [Words; 2] {
        [self.function.weight, self.function.bias].map(|of| {
            // SAFETY: the caller's contract.
            if of.is_null() { Words::default() } else { unsafe { self.words::<N>(of, vector) } }
        })
    }

    /// Words that all rows share, of one of the thread's vectors; of the block's last where it has no such.
    ///
    /// # Safety
    /// It begins at a 16-byte boundary, and is as long as a row.
    #[inline(always)]
    unsafe fn words<const N: usize>(&self, of: *const u8, vector: usize) -> Words {
        if Q::HAS_SHARED {
            let which = u32::from(of == self.function.bias);
            let at = self.shared(which) + self.vector * VECTOR_BYTES as u32 + vector as u32 * STRIDE_BYTES;
            // SAFETY: it came with the first row.
            return unsafe { vector::load_shared_v4(at) };
        }
        let mut column = (self.begin + self.vector * N as u32) as usize + vector * LANES as usize * N;
        if !Q::IS_FULL {
            // Computed again too.
            let at = misc::opaque(self.vector) + vector as u32 * LANES;
            column = (self.begin + at.min(self.piece - 1) * N as u32) as usize;
        }
        // SAFETY: the caller's contract.
        unsafe { access::load_words(of.cast::<T>().wrapping_add(column)) }
    }
}

/// Bytes from one of a lane's vectors to its next.
const STRIDE_BYTES: u32 = LANES * VECTOR_BYTES as u32;

/// Where the square of the mean is at most as many times the variance, the sum of squares, of which it is
/// subtracted, lacks some six bits, and errors of the mean count as much.
const CANCELLED: f32 = 64.0;

/// Whether blocks share a row.
#[inline(always)]
fn has_cluster<Q: Kind>(plan: &Plan) -> bool {
    Q::MAY_CLUSTER && plan.cluster > 1
}

/// Whether the mean is made exact by a second sum: in f32, where rounding it once would show.
const fn corrects<T>() -> bool {
    size_of::<T>() == size_of::<f32>()
}

/// The sum of squares of a thread's elements.
#[inline(always)]
fn squares_of<T: InF32, const N: usize, const VECTORS: usize>(x: &Columns<N, VECTORS>) -> f32 {
    let mut squares = [0.0; 2];
    unroll!(K in 0..8, {
        if K < VECTORS {
            for i in 0..N {
                squares[i % 2] = T::Precision::multiply_add(x[K][i], x[K][i], squares[i % 2]);
            }
        }
    });
    squares[0] + squares[1]
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
