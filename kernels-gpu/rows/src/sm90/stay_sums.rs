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
//! Rows that begin anywhere in a vector are whole vectors too, from the boundary before a row on. Vectors
//! have the same columns in each of a team's rows, since the plan's step leads to a row that begins alike.
//! The last vector is filled up with zeros, and in the first one the lane that has it writes zeros over what
//! lies before the row.

mod copies;
mod exchange;
mod row;

use crate::function::MAX_SUMS;
use crate::norm::NormBackward;
use crate::plan::{Plan, lone_vectors, stay_vectors};
use crate::sm90::pair::{HALF, both};
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

/// Numbers of a lane's columns.
type Columns<const N: usize, const VECTORS: usize> = [[f32; N]; VECTORS];

/// Whether a lane loads its vectors again before it has the row's statistics: where there are registers for
/// them.
const fn early<const N: usize, const VECTORS: usize>() -> bool {
    N == 8 && VECTORS < LONE_VECTORS
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
pub const fn vectors<Q: Kind>(size: usize) -> usize {
    if Q::ALONE { lone_vectors(size) } else { stay_vectors(size) }
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
struct Worker<'a, T, Q> {
    plan: &'a Plan,
    function: &'a NormBackward,
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
pub unsafe fn run<T: InF32, Q: Kind, const N: usize, const VECTORS: usize>(
    plan: &Plan,
    function: &NormBackward,
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
    let worker = Worker::<'_, T, Q> {
        plan,
        function,
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
        const { assert!(LONE_VECTORS == 3, "counted out") };
        match plan.stage_vectors {
            1 if VECTORS == LONE_VECTORS => worker.all::<N, 1>(dx, partials, first),
            2 if VECTORS == LONE_VECTORS => worker.all::<N, 2>(dx, partials, first),
            _ => worker.all::<N, VECTORS>(dx, partials, first),
        }
    }
}

impl<T: InF32, Q: Kind> Worker<'_, T, Q> {
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
                if self.function.has_residual != 0 {
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
    /// As for [`run`]; `RESIDUAL` says whether a third input is added.
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
            let weight = self.weight::<N, VECTORS>();
            let (mut row, mut turn) = (first, 0);
            let moments_of = row::moments(self.function, member.lane() < HALF);
            // Each half of the lanes loads one of both numbers: for one that all lanes have the assembler
            // takes uniform registers, and waits for it at once.
            let coming_of = |row: u32| *moments_of.wrapping_add(row as usize);
            let mut moments = Moments::new(both(coming_of(row)));
            let mut coming = coming_of((row + step).min(rows - 1));
            let own = self.take(slot, moments, &weight, sums);
            member.meet(plan);
            let mut sent = member.send(plan, own, 0);
            loop {
                let (next, after) = (row + step, Moments::new(both(coming)));
                let (this, of_row) = (slot, sent);
                slot = self.next(slot);
                if next < rows {
                    coming = coming_of((next + step).min(rows - 1));
                    let own = self.take(slot, after, &weight, sums);
                    sent = member.send(plan, own, turn + 1);
                }
                let words = if early::<N, VECTORS>() {
                    self.all_words::<VECTORS>(this)
                } else {
                    [[[0; 4]; 2]; VECTORS]
                };
                let sums_of_row = member.receive(plan, of_row, turn);
                let of = moments.gradient_of::<T>(sums_of_row, self.function, plan.columns);
                self.map::<N, VECTORS, RESIDUAL>(this, &words, of, &weight, to);
                self.fill::<N, VECTORS, RESIDUAL>(&mut source, row + ahead, this);
                if next >= rows {
                    break;
                }
                (row, turn, moments, to) = (next, turn + 1, after, to.wrapping_add(to_next));
            }
            member.leave(plan, turn + 1);
        }
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
                let column = self.column::<N>(K);
                let at = given.wrapping_offset(column as isize);
                let is_vector = self.is_whole::<N>(column) && (at as usize).is_multiple_of(VECTOR_BYTES);
                // SAFETY: the caller's contract; it is as long as a row.
                weight[K] = T::widen(unsafe {
                    if is_vector { access::load::<T, N>(at) } else { self.load_part(at, column) }
                });
            }
        });
        weight
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
        weight: &Columns<N, VECTORS>,
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
            unroll!(K in 0..4, {
                if K < VECTORS && self.computes::<VECTORS>(K) {
                    let [x, dy, g] = self.elements(self.words(slot + K as u32 * STRIDE_BYTES), weight[K]);
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
        weight: &Columns<N, VECTORS>,
        to: *mut T,
    ) {
        unroll!(K in 0..4, {
            if K < VECTORS && self.computes::<VECTORS>(K) {
                // SAFETY: the caller's promise.
                unsafe {
                    let at = slot + K as u32 * STRIDE_BYTES;
                    let words = if early::<N, VECTORS>() { words[K] } else { self.words(at) };
                    let [x, _, g] = self.elements(words, weight[K]);
                    let mut dx = of.gradient::<T, N>(x, g);
                    if RESIDUAL {
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
                let column = self.column::<N>(K);
                unroll!(S in 0..2, {
                    let at = to.wrapping_add(S * self.plan.columns as usize).wrapping_offset(column as isize);
                    // SAFETY: the caller's contract.
                    unsafe {
                        if Q::ANYWHERE {
                            self.store_part(at, column, sums[S][K]);
                        } else {
                            unroll!(I in 0..2, {
                                if 4 * I < N {
                                    let four = [0, 1, 2, 3].map(|i| sums[S][K][4 * I + i]);
                                    access::store(at.wrapping_add(4 * I), four);
                                }
                            });
                        }
                    }
                });
            }
        });
    }

    /// Adds the sums of the block's teams, in order, and stores them, two rows from there on.
    ///
    /// # Safety
    /// As for [`run`]; all threads of the block call it, when they have taken all their rows.
    #[inline(always)]
    unsafe fn add_teams<const N: usize, const VECTORS: usize>(
        &self,
        sums: &[Columns<N, VECTORS>; MAX_SUMS],
        to: *mut f32,
    ) {
        let (plan, words) = (self.plan, size_of::<f32>() as u32);
        let of_team = MAX_SUMS as u32 * plan.columns;
        let own = self.rings + self.member.team(plan) * of_team * words;
        // SAFETY: the caller's contract. A place of the rings is written by one thread, between the barriers,
        // and all copies have been waited for.
        unsafe {
            thread::sync_threads();
            unroll!(K in 0..4, {
                if K < VECTORS && self.has(K) {
                    let column = self.column::<N>(K);
                    unroll!(S in 0..2, {
                        let place = (S as u32 * plan.columns).wrapping_add_signed(column);
                        let at = own.wrapping_add(place.wrapping_mul(words));
                        self.keep_sums(at, column, sums[S][K]);
                    });
                }
            });
            thread::sync_threads();
            let mut sum = thread::thread_idx_x();
            while sum < of_team {
                let (mut total, mut team, mut at) = (0.0, 0, self.rings + sum * words);
                while team < plan.tile {
                    total += vector::load_shared::<f32>(at);
                    (team, at) = (team + 1, at + of_team * words);
                }
                *to.wrapping_add(sum as usize) = total;
                sum += plan.consumers;
            }
        }
    }

    /// Writes a vector's sums of columns to shared memory, from there on.
    ///
    /// # Safety
    /// There is room for those of the row's columns.
    #[inline(always)]
    unsafe fn keep_sums<const N: usize>(&self, to: u32, column: i32, sums: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe {
            if Q::ANYWHERE {
                for i in 0..N {
                    if self.is_column(column + i as i32) {
                        vector::store_shared(to.wrapping_add((i * size_of::<f32>()) as u32), sums[i]);
                    }
                }
            } else {
                unroll!(I in 0..2, {
                    if 4 * I < N {
                        let four: [f32; 4] = [0, 1, 2, 3].map(|i| sums[4 * I + i]);
                        vector::store_shared_v4(to + (I * VECTOR_BYTES) as u32, four);
                    }
                });
            }
        }
    }
}
