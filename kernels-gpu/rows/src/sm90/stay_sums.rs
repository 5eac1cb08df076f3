//! The engine for gradients of norms with sums of columns: a warp has the same columns of every row, and a
//! lane fills a ring of its own by `cp.async`.
//!
//! ```text
//!   global ==> the lane's ring --take--> warps --> block or cluster    row n + 1, and the terms of sums
//!                             --map---> global                         row n, whose numbers have come meanwhile
//! ```
//! Nobody waits for another's copies: warps meet in the statistics alone. Weights are widened once, and sums
//! need no addition in the block as long as one team has it: they go to `partials` from registers. A
//! multiprocessor has one block. Short rows have teams of warps in it, long ones a cluster; a row that a warp
//! has alone is not exchanged. [`super::columns`] has rows for which it is faster.
//!
//! Issued instructions bound it, and a good part of them is not a column's but a row's. So loops are
//! compiled with and without a third input, for blocks of 16 bits also for each number of a lane's vectors;
//! of whole rows lanes compute with all vectors, since those that they have not are zeros; addresses are
//! moved on, not computed; and both sums share a butterfly. A warp and row of 16 bits take about 365
//! instructions at 65536 columns, and 440 at 768, where a warp has the row alone.
//!
//! Norms with an activation behind them (`chain.rs`, 16 bits) have half as many warps with twice as many
//! columns a lane: 255 registers hold their sums, weight and bias, and what is once for a row is shared by
//! more columns. Their loop of rows has the first row too, and takes a third input or not, since it has the
//! code of every derivative. A warp and row of bf16 take about 1050 instructions at 65536 columns with GELU
//! (tanh), 33 for a column of a lane, of which 11 are the derivative.
//!
//! Rows that begin anywhere in a vector are whole vectors too, from the boundary before a row on. Vectors
//! have the same columns in each of a team's rows, since the plan's step leads to a row that begins alike.
//! The last vector is filled up with zeros, and in the first one the lane that has it writes zeros over what
//! lies before the row.

mod chain;
mod copies;
mod exchange;
mod leave;
mod row;

use crate::function::MAX_SUMS;
use crate::norm::NormBackward;
use crate::plan::{Plan, STAY_ACTIVATED_LEAST, STAY_ACTIVATED_VECTORS, lone_vectors, stay_vectors};
use crate::sm90::pair::{HALF, both};
use chain::{Chain, SharedRows};
use cuda_std::{grid, misc, shared, thread, vector};
use exchange::{Member, Pair};
use primitives::access::{self, VECTOR_BYTES, Words, from_words};
use primitives::activation::Precision;
use primitives::element::{InF32, zip};
use primitives::unroll;
use primitives::warp::LANES;
use row::{Moments, Of};

/// Bytes from one of a lane's vectors to its next.
const STRIDE_BYTES: u32 = LANES * VECTOR_BYTES as u32;

/// Vectors of 16 bits of a lane, at most, where its warp has a row alone: there are loops for fewer too.
const LONE_VECTORS: usize = lone_vectors(size_of::<u16>());

/// The turn of a loop that has no row yet.
const BEFORE: u32 = u32::MAX;

/// Numbers of a lane's columns.
type Columns<const N: usize, const VECTORS: usize> = [[f32; N]; VECTORS];

/// Whether a lane loads its vectors again before it has the row's statistics: where there are registers for
/// them.
const fn early<const N: usize, const VECTORS: usize>(is_activated: bool) -> bool {
    N == 8 && VECTORS < LONE_VECTORS && !is_activated
}

/// Which rows a kernel has.
pub trait Kind: Copy {
    /// Rows may begin and end anywhere in a vector.
    const ANYWHERE: bool;
    /// A warp may have rows alone that are a little longer than what several have by warp.
    const ALONE: bool = false;

    /// Whether a cluster shares a row.
    fn is_of_cluster(plan: &Plan) -> bool;
}

/// Vectors of a row that a lane has, at most, of elements of this size.
pub const fn vectors<T: InF32, Q: Kind, F: Chain<T>>() -> usize {
    match F::IS_ACTIVATED {
        true => STAY_ACTIVATED_VECTORS,
        false if Q::ALONE => lone_vectors(size_of::<T>()),
        false => stay_vectors(size_of::<T>()),
    }
}

/// Whether there is a loop for fewer vectors of a lane than it may have, so many.
const fn has_loop<T: InF32, Q: Kind, F: Chain<T>>(of: usize) -> bool {
    let is_short = if F::IS_ACTIVATED {
        Q::ALONE && of >= STAY_ACTIVATED_LEAST as usize
    } else {
        vectors::<T, Q, F>() == LONE_VECTORS
    };
    is_short && of < vectors::<T, Q, F>()
}

/// Rows of whole vectors that a block has.
#[derive(Clone, Copy)]
pub struct Block;

impl Kind for Block {
    const ANYWHERE: bool = false;
    const ALONE: bool = true;

    #[inline(always)]
    fn is_of_cluster(_: &Plan) -> bool {
        false
    }
}

/// Rows of whole vectors that a cluster has.
#[derive(Clone, Copy)]
pub struct Cluster;

impl Kind for Cluster {
    const ANYWHERE: bool = false;

    #[inline(always)]
    fn is_of_cluster(_: &Plan) -> bool {
        true
    }
}

/// All rows.
#[derive(Clone, Copy)]
pub struct Anywhere;

impl Kind for Anywhere {
    const ANYWHERE: bool = true;

    #[inline(always)]
    fn is_of_cluster(plan: &Plan) -> bool {
        plan.cluster > 1
    }
}

/// A warp of the block, and what its lanes have of every row.
struct Worker<'a, T, Q, F> {
    plan: &'a Plan,
    function: &'a NormBackward,
    chain: &'a F,
    inputs: [*const T; 3],
    member: Member<Q>,
    /// Column of the lane's first vector: below 0, where that begins before the row.
    column: i32,
    /// The warp's vectors.
    count: u32,
    /// Where the rings of the block begin.
    rings: u32,
}

/// The gradients of all rows; the sums of each block's rows go to `partials`, in rows of `plan.columns`.
///
/// # Safety
/// `plan` is one for this engine, kind of rows and launch; the tensors hold its rows, the first of which
/// begin at 16-byte boundaries, and all of which lie alike; the function's pointers are as it wants them;
/// `partials` has [`MAX_SUMS`] rows for each cluster.
#[inline(always)]
pub unsafe fn run<T: InF32, Q: Kind, F: Chain<T>, const N: usize, const VECTORS: usize>(
    plan: &Plan,
    function: &F,
    inputs: [*const T; 3],
    dx: *mut T,
    partials: *mut f32,
) {
    grid::launch_dependents();
    let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
    // SAFETY: all threads come here.
    let member = unsafe { Member::new(plan, base) };
    let block = thread::block_idx_x();
    let cluster = if Q::is_of_cluster(plan) { block >> plan.cluster.trailing_zeros() } else { block };
    let first = cluster * plan.tile + member.team(plan);
    let of_warp = plan.stage_vectors * LANES;
    let begin = member.number(plan) * of_warp;
    // Elements of the row before, in the first vector.
    let skip = if Q::ANYWHERE { (u64::from(first) * plan.input_strides[0]) as u32 % N as u32 } else { 0 };
    let worker = Worker::<'_, T, Q, F> {
        plan,
        function: function.norm(),
        chain: function,
        inputs,
        member,
        column: ((begin + member.lane()) * N as u32) as i32 - skip as i32,
        count: (plan.columns + skip).div_ceil(N as u32).saturating_sub(begin).min(of_warp),
        rings: base + plan.rings(),
    };
    let partials = partials.wrapping_add((cluster * MAX_SUMS as u32 * plan.columns) as usize);
    // SAFETY: the caller's contract.
    unsafe {
        member.prepare(plan);
        grid::wait_dependencies();
        const { assert!(vectors::<T, Q, F>() == VECTORS && VECTORS <= 4, "counted out") };
        match plan.stage_vectors {
            1 if has_loop::<T, Q, F>(1) => worker.all::<N, 1>(dx, partials, first),
            2 if has_loop::<T, Q, F>(2) => worker.all::<N, 2>(dx, partials, first),
            3 if has_loop::<T, Q, F>(3) => worker.all::<N, 3>(dx, partials, first),
            _ => worker.all::<N, VECTORS>(dx, partials, first),
        }
    }
}

impl<T: InF32, Q: Kind, F: Chain<T>> Worker<'_, T, Q, F> {
    /// All rows of the team, from this one on, and their sums. A lane has so many vectors.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn all<const N: usize, const VECTORS: usize>(&self, dx: *mut T, partials: *mut f32, first: u32) {
        // SAFETY: the caller's contract. All zero bits are zeros.
        unsafe {
            let mut sums: [Columns<N, VECTORS>; MAX_SUMS] = core::mem::zeroed();
            // A block has a row, but not always each of its teams.
            if first < self.plan.rows as u32 {
                if F::IS_ACTIVATED || self.function.has_residual != 0 {
                    self.rows::<N, VECTORS, true>(dx, &mut sums, first);
                } else {
                    self.rows::<N, VECTORS, false>(dx, &mut sums, first);
                }
            }
            if Q::is_of_cluster(self.plan) || self.plan.tile == 1 {
                self.store::<N, VECTORS>(&sums, partials);
            } else {
                self.add_teams::<N, VECTORS>(&sums, partials);
            }
        }
    }

    /// All rows of the team, from this one on, which exists.
    ///
    /// # Safety
    /// As for [`run`]; `RESIDUAL` says whether a third input may be added.
    #[inline(always)]
    unsafe fn rows<const N: usize, const VECTORS: usize, const RESIDUAL: bool>(
        &self,
        dx: *mut T,
        sums: &mut [Columns<N, VECTORS>; MAX_SUMS],
        first: u32,
    ) {
        let (plan, rows, member) = (self.plan, self.plan.rows as u32, &self.member);
        let (step, ahead) = (plan.step, plan.stages * plan.step);
        let mut source = self.source::<RESIDUAL>(first);
        let mut to = dx
            .wrapping_add((u64::from(first) * plan.output_strides[0]) as usize)
            .wrapping_offset(self.column as isize);
        let to_next = (u64::from(step) * plan.output_strides[0]) as usize;
        // SAFETY: the caller's contract; a lane fills its part of a stage again when it has read that.
        unsafe {
            self.clear_ring::<VECTORS, RESIDUAL>();
            let mut slot = self.slot(0);
            let mut stages = 0;
            while stages < plan.stages {
                self.fill::<N, VECTORS, RESIDUAL>(&mut source, first + stages * step, self.slot(stages));
                stages += 1;
            }
            let shared = self.shared_rows::<N, VECTORS>();
            let moments_of = row::moments(self.function, member.lane() < HALF);
            // Each half of the lanes loads one of both numbers: for one that all lanes have the assembler
            // takes uniform registers, and waits for it at once.
            let coming_of = |row: u32| *moments_of.wrapping_add(row as usize);
            let (mut row, mut turn, mut moments, mut coming, mut sent);
            if F::IS_ACTIVATED {
                // The loop takes the first row too: the code of all derivatives is long.
                (row, turn, moments) = (first.wrapping_sub(step), BEFORE, Moments::new([0.0; 2]));
                (coming, sent) = (coming_of(first), [0.0; 2]);
                (slot, to) = (self.slot(plan.stages - 1), to.wrapping_sub(to_next));
                member.meet(plan);
            } else {
                (row, turn) = (first, 0);
                moments = Moments::new(both(coming_of(row)));
                coming = coming_of((row + step).min(rows - 1));
                let own = self.take(slot, moments, &shared, sums);
                member.meet(plan);
                sent = member.send(plan, own, 0);
            }
            loop {
                let (next, after) = (row.wrapping_add(step), Moments::new(both(coming)));
                let (this, of_row) = (slot, sent);
                slot = self.next(slot);
                if next < rows {
                    coming = coming_of((next + step).min(rows - 1));
                    let own = self.take(slot, after, &shared, sums);
                    sent = member.send(plan, own, turn.wrapping_add(1));
                }
                if !F::IS_ACTIVATED || turn != BEFORE {
                    let words = if early::<N, VECTORS>(F::IS_ACTIVATED) {
                        self.all_words::<VECTORS>(this)
                    } else {
                        [[[0; 4]; 2]; VECTORS]
                    };
                    let sums_of_row = member.receive(plan, of_row, turn);
                    let of = moments.gradient_of::<T>(sums_of_row, self.function, plan.columns);
                    self.map::<N, VECTORS, RESIDUAL>(this, &words, of, &shared, to);
                    self.fill::<N, VECTORS, RESIDUAL>(&mut source, row + ahead, this);
                }
                if next >= rows {
                    break;
                }
                (row, turn, moments, to) = (next, turn.wrapping_add(1), after, to.wrapping_add(to_next));
            }
            member.leave(plan, turn + 1);
        }
    }

    /// Whether a third input is added: with an activation one loop serves both cases.
    #[inline(always)]
    fn adds<const RESIDUAL: bool>(&self) -> bool {
        RESIDUAL && (!F::IS_ACTIVATED || self.function.has_residual != 0)
    }

    /// Whether the lane has the vector with this number among its own.
    #[inline(always)]
    fn has(&self, vector: usize) -> bool {
        self.member.lane() + vector as u32 * LANES < self.count
    }

    /// Whether the lane computes with the vector with this number: of rows of whole vectors with all, as
    /// those that it has not are zeros. Of three all lanes have the second: the branch, which each takes,
    /// keeps three moves to uniform registers out of the loop of rows.
    #[inline(always)]
    fn computes<const VECTORS: usize>(&self, vector: usize) -> bool {
        !Q::ANYWHERE && (VECTORS != LONE_VECTORS || vector != 1) || self.has(vector)
    }

    /// Column of the vector with this number among the lane's own.
    #[inline(always)]
    fn column<const N: usize>(&self, vector: usize) -> i32 {
        self.column + (vector * LANES as usize * N) as i32
    }

    /// Whether all elements from this column on that a vector has are the row's.
    #[inline(always)]
    fn is_whole<const N: usize>(&self, column: i32) -> bool {
        !Q::ANYWHERE || column >= 0 && column + N as i32 <= self.plan.columns as i32
    }

    /// Whether the row has this column.
    #[inline(always)]
    fn is_column(&self, column: i32) -> bool {
        (column as u32) < self.plan.columns
    }

    /// Weight and bias of the lane's columns.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn shared_rows<const N: usize, const VECTORS: usize>(&self) -> SharedRows<N, VECTORS> {
        // SAFETY: the caller's contract; both are as long as a row where they are not null.
        unsafe {
            let weight = self.columns::<N, VECTORS>(self.function.weight.cast(), 1.0);
            let bias = if F::IS_ACTIVATED {
                self.columns::<N, VECTORS>(self.chain.bias(), 0.0)
            } else {
                [[0.0; N]; VECTORS]
            };
            SharedRows { weight, bias }
        }
    }

    /// A row that all share, in the lane's columns; this number where there is none.
    ///
    /// # Safety
    /// It is as long as a row.
    #[inline(always)]
    unsafe fn columns<const N: usize, const VECTORS: usize>(
        &self,
        given: *const T,
        absent: f32,
    ) -> Columns<N, VECTORS> {
        let mut columns = [[absent; N]; VECTORS];
        unroll!(K in 0..4, {
            if K < VECTORS && self.has(K) && !given.is_null() {
                let column = self.column::<N>(K);
                let at = given.wrapping_offset(column as isize);
                let is_vector = self.is_whole::<N>(column) && (at as usize).is_multiple_of(VECTOR_BYTES);
                // SAFETY: the caller's promise.
                columns[K] = T::widen(unsafe {
                    if is_vector { access::load::<T, N>(at) } else { self.load_part(at, column) }
                });
            }
        });
        columns
    }

    /// Those of a vector's elements that the row has, and zeros.
    ///
    /// # Safety
    /// They are readable, from there on.
    #[inline(always)]
    unsafe fn load_part<const N: usize>(&self, at: *const T, column: i32) -> [T; N] {
        let mut values = [T::ZERO; N];
        for i in 0..N {
            if self.is_column(column + i as i32) {
                // SAFETY: the caller's promise.
                values[i] = unsafe { *at.wrapping_add(i) };
            }
        }
        values
    }

    /// Where a stage's first vector of the lane lies.
    #[inline(always)]
    fn slot(&self, stage: u32) -> u32 {
        let ring = self.rings + self.member.warp() * self.plan.stages * self.plan.stage_bytes;
        ring + stage * self.plan.stage_bytes + self.member.lane() * VECTOR_BYTES as u32
    }

    /// The place behind that one.
    #[inline(always)]
    fn next(&self, slot: u32) -> u32 {
        let next = slot + self.plan.stage_bytes;
        if next == self.slot(self.plan.stages) { self.slot(0) } else { next }
    }

    /// A vector of the input and of the gradient.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    unsafe fn words(&self, at: u32) -> [Words; 2] {
        // SAFETY: the caller's promise.
        unsafe { [vector::load_shared_v4(at), vector::load_shared_v4(at + self.plan.part_bytes)] }
    }

    /// The input, the gradient, and that times the weight.
    #[inline(always)]
    fn elements<const N: usize>(&self, [x, dy]: [Words; 2], weight: [f32; N]) -> [[f32; N]; 3] {
        let [x, dy] = [x, dy].map(|words| T::widen(from_words::<T, N>(words)));
        [x, dy, zip(dy, weight, |dy, weight| dy * weight)]
    }

    /// The lane's part of a row's sums; the row's terms are added to those of columns.
    ///
    /// # Safety
    /// The whole warp calls it; the row is on its way.
    #[inline(always)]
    unsafe fn take<const N: usize, const VECTORS: usize>(
        &self,
        slot: u32,
        moments: Moments,
        shared: &SharedRows<N, VECTORS>,
        sums: &mut [Columns<N, VECTORS>; MAX_SUMS],
    ) -> Pair {
        let multiply_add = T::Precision::multiply_add;
        let (mut of_g, mut of_zg) = (0.0, 0.0);
        // SAFETY: the caller's promise.
        unsafe {
            self.wait();
            if Q::ANYWHERE && self.column < 0 {
                self.clear::<N>(slot);
            }
            if F::IS_ACTIVATED {
                return self.take_activated(slot, moments, shared, sums);
            }
            unroll!(K in 0..4, {
                if K < VECTORS && self.computes::<VECTORS>(K) {
                    let words = self.words(slot + K as u32 * STRIDE_BYTES);
                    let [x, dy, g] = self.elements(words, shared.weight[K]);
                    let z = moments.normalised::<T, N>(x);
                    for i in 0..N {
                        of_g += g[i];
                        of_zg = multiply_add(z[i], g[i], of_zg);
                        sums[0][K][i] = multiply_add(dy[i], z[i], sums[0][K][i]);
                        sums[1][K][i] += dy[i];
                    }
                }
            });
        }
        [of_g, of_zg]
    }

    /// All the lane's vectors of both.
    ///
    /// # Safety
    /// As for [`words`](Self::words).
    #[inline(always)]
    unsafe fn all_words<const VECTORS: usize>(&self, slot: u32) -> [[Words; 2]; VECTORS] {
        let mut words = [[[0; 4]; 2]; VECTORS];
        unroll!(K in 0..4, {
            if K < VECTORS && self.computes::<VECTORS>(K) {
                // SAFETY: the caller's promise.
                words[K] = unsafe { self.words(slot + K as u32 * STRIDE_BYTES) };
            }
        });
        words
    }

    /// The gradient of a row by its input, from the lane's first column on.
    ///
    /// # Safety
    /// As for [`rows`](Self::rows); the stage is full.
    #[inline(always)]
    unsafe fn map<const N: usize, const VECTORS: usize, const RESIDUAL: bool>(
        &self,
        slot: u32,
        words: &[[Words; 2]; VECTORS],
        of: Of,
        shared: &SharedRows<N, VECTORS>,
        to: *mut T,
    ) {
        unroll!(K in 0..4, {
            if K < VECTORS && self.computes::<VECTORS>(K) {
                // SAFETY: the caller's promise.
                unsafe {
                    let at = slot + K as u32 * STRIDE_BYTES;
                    let words = if early::<N, VECTORS>(F::IS_ACTIVATED) { words[K] } else { self.words(at) };
                    let [x, g] = if F::IS_ACTIVATED {
                        self.kept::<N>(words, shared.weight[K])
                    } else {
                        let [x, _, g] = self.elements(words, shared.weight[K]);
                        [x, g]
                    };
                    let mut dx = of.gradient::<T, N>(x, g);
                    if self.adds::<RESIDUAL>() {
                        let words = vector::load_shared_v4(at + 2 * self.plan.part_bytes);
                        dx = zip(dx, T::widen(from_words::<T, N>(words)), |dx, residual| dx + residual);
                    }
                    let (dx, to) = (T::narrow::<N>(dx), to.wrapping_add(K * LANES as usize * N));
                    let column = self.column::<N>(K);
                    if self.is_whole::<N>(column) {
                        // Computed outside the branch, so that other vectors' instructions mix with these.
                        let words = access::words(access::to_wide(dx)).map(misc::opaque);
                        if self.has(K) {
                            access::store(to.cast::<u32>(), words);
                        }
                    } else if self.has(K) {
                        self.store_part(to, column, dx);
                    }
                }
            }
        });
    }

    /// Stores those of a vector's elements that the row has.
    ///
    /// # Safety
    /// They are the row's, from that column on.
    #[inline(always)]
    unsafe fn store_part<U: Copy, const N: usize>(&self, to: *mut U, column: i32, values: [U; N]) {
        for i in 0..N {
            if self.is_column(column + i as i32) {
                // SAFETY: the caller's promise.
                unsafe { *to.wrapping_add(i) = values[i] }
            }
        }
    }
}
