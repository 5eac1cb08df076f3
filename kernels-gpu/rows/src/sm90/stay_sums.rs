//! The engine for gradients of norms with sums of columns: a warp has the same columns of every row, and a
//! lane fills a ring of its own by `cp.async`.
//!
//! ```text
//!   global ==> the lane's ring --take--> warps --> block or cluster    row n + 1, and the terms of sums
//!                             --map---> global                         row n, whose numbers have come meanwhile
//! ```
//! Nobody waits for another's copies: warps meet in the statistics alone. Weights are widened once, and sums
//! need no addition in the block as long as one team has it: they go to `partials` from registers. A
//! multiprocessor has one block. Short rows have teams of warps in it, long ones a cluster.
//! [`super::columns`] has rows for which it is faster.
//!
//! Rows that begin anywhere in a vector are whole vectors too, from the boundary before a row on. Vectors
//! have the same columns in each of a team's rows, since the plan's step leads to a row that begins alike.
//! The last vector is filled up with zeros, and in the first one the lane that has it writes zeros over what
//! lies before the row.

mod copies;
mod exchange;

use crate::function::{MAX_SUMS, Statistics, Sums};
use crate::norm::{NormBackward, Of};
use crate::plan::Plan;
use cuda_std::{grid, shared, thread, vector};
use exchange::Member;
use primitives::access::{self, VECTOR_BYTES, from_words};
use primitives::activation::Precision;
use primitives::element::{Float, InF32, map, zip};
use primitives::unroll;
use primitives::warp::LANES;

/// Bytes from one of a lane's vectors to its next.
const STRIDE_BYTES: u32 = LANES * VECTOR_BYTES as u32;

/// Of a row: sums of the gradient times the weight, and of that times the distance from the mean.
type Pair<T> = Sums<<T as Float>::Precision, 2>;

/// Numbers of a lane's columns.
type Columns<const N: usize, const VECTORS: usize> = [[f32; N]; VECTORS];

/// Which rows a kernel has.
pub trait Kind: Copy {
    /// Rows may begin and end anywhere in a vector.
    const ANYWHERE: bool;

    /// Whether a cluster shares a row.
    fn is_of_cluster(plan: &Plan) -> bool;
}

/// Rows of whole vectors that a block has.
#[derive(Clone, Copy)]
pub struct Block;

impl Kind for Block {
    const ANYWHERE: bool = false;

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
    let member = Member::new(plan, base);
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
        // All zero bits are zeros.
        let mut sums: [Columns<N, VECTORS>; MAX_SUMS] = core::mem::zeroed();
        // A block has a row, but not always each of its teams.
        if first < plan.rows as u32 {
            worker.rows::<N, VECTORS>(dx, &mut sums, first);
        }
        if Q::is_of_cluster(plan) || plan.tile == 1 {
            worker.store::<N, VECTORS>(&sums, partials);
        } else {
            worker.add_teams::<N, VECTORS>(&sums, partials);
        }
    }
}

impl<T: InF32, Q: Kind> Worker<'_, T, Q> {
    /// All rows of the team, from this one on, which exists.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn rows<const N: usize, const VECTORS: usize>(
        &self,
        dx: *mut T,
        sums: &mut [Columns<N, VECTORS>; MAX_SUMS],
        first: u32,
    ) {
        let (plan, rows, member) = (self.plan, self.plan.rows as u32, &self.member);
        let (step, ahead) = (plan.step, plan.stages * plan.step);
        let mut stages = 0;
        // SAFETY: the caller's contract; a lane fills its part of a stage again when it has read that.
        unsafe {
            while stages < plan.stages {
                self.fill::<N, VECTORS>(first + stages * step, stages);
                stages += 1;
            }
            let weight = self.weight::<N, VECTORS>();
            let (mut row, mut turn, mut stage) = (first, 0, 0);
            let mut moments = self.moments(row);
            let mut coming = self.moments((row + step).min(rows - 1));
            let own = self.take(stage, moments, &weight, sums);
            member.meet(plan);
            member.send::<T>(plan, own, 0);
            loop {
                let (next, after) = (row + step, coming);
                if next < rows {
                    coming = self.moments((next + step).min(rows - 1));
                    let own = self.take(self.next(stage), after, &weight, sums);
                    member.send::<T>(plan, own, turn + 1);
                }
                let of = self.function.of_sums::<T>(moments, member.receive::<T>(plan, turn), plan.columns);
                let to = (u64::from(row) * plan.output_strides[0]) as usize;
                self.map(stage, of, &weight, dx.wrapping_add(to).wrapping_offset(self.column as isize));
                self.fill::<N, VECTORS>(row + ahead, stage);
                if next >= rows {
                    break;
                }
                (row, turn, stage, moments) = (next, turn + 1, self.next(stage), after);
            }
            member.leave(plan, turn + 1);
        }
    }

    /// Whether the lane has the vector with this number among its own.
    #[inline(always)]
    fn has(&self, vector: usize) -> bool {
        self.member.lane() + vector as u32 * LANES < self.count
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
        let ring = self.rings + self.member.warp() * self.plan.stages * self.plan.stage_bytes;
        ring + stage * self.plan.stage_bytes + self.member.lane() * VECTOR_BYTES as u32
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
            if Q::ANYWHERE && self.column < 0 {
                self.clear::<N>(at);
            }
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
        of: Of,
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
                    let (dx, to) = (T::narrow::<N>(dx), to.wrapping_add(K * LANES as usize * N));
                    let column = self.column::<N>(K);
                    if self.is_whole::<N>(column) {
                        access::store(to, dx);
                    } else {
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
