//! Rows on their way to the rings of lanes.

use super::chain::Chain;
use super::{Kind, STRIDE_BYTES, Worker};
use crate::function::MAX_INPUTS;
use crate::plan::STAY_STAGES;
use cuda_std::{async_copy, misc, vector};
use primitives::access;
use primitives::element::InF32;
use primitives::unroll;
use primitives::warp::LANES;

/// Rows at the end of a tensor, for each element of a vector, behind whose last vector there may be less than
/// another one: a row has an element at least.
const LATE: u32 = 2;

/// Where a lane's columns of the row lie that is copied next, and elements from there to the next one's.
pub(super) struct Source<T> {
    inputs: [*const T; MAX_INPUTS],
    steps: [usize; MAX_INPUTS],
}

/// Inputs that are copied.
const fn inputs(residual: bool) -> usize {
    if residual { MAX_INPUTS } else { MAX_INPUTS - 1 }
}

impl<T: InF32, Q: Kind, F: Chain<T>> Worker<'_, T, Q, F> {
    /// Of a team's first row.
    #[inline(always)]
    pub(super) fn source<const RESIDUAL: bool>(&self, first: u32) -> Source<T> {
        let (strides, mut source) =
            (self.plan.input_strides, Source { inputs: self.inputs, steps: [0; MAX_INPUTS] });
        unroll!(I in 0..3, {
            if I < inputs(RESIDUAL) {
                let at = (u64::from(first) * strides[I]) as usize;
                source.inputs[I] = source.inputs[I].wrapping_add(at).wrapping_offset(self.column as isize);
                source.steps[I] = (u64::from(self.plan.step) * strides[I]) as usize;
            }
        });
        source
    }

    /// Writes zeros to the vectors of all stages that the lane has not.
    ///
    /// # Safety
    /// As for [`run`](super::run), before the first copies.
    #[inline(always)]
    pub(super) unsafe fn clear_ring<const VECTORS: usize, const RESIDUAL: bool>(&self) {
        let mut vector = VECTORS;
        while !Q::ANYWHERE && vector > 0 && !self.has(vector - 1) {
            vector -= 1;
            let mut stage = 0;
            while stage < self.plan.stages {
                let at = self.slot(stage) + vector as u32 * STRIDE_BYTES;
                unroll!(I in 0..3, {
                    if I < inputs(RESIDUAL) && (I < MAX_INPUTS - 1 || self.adds::<RESIDUAL>()) {
                        // SAFETY: the lane's place.
                        unsafe { vector::store_shared_v4(at + I as u32 * self.plan.part_bytes, [0u32; 4]) }
                    }
                });
                stage += 1;
            }
        }
    }

    /// Begins to copy the lane's vectors of the next row, if that exists: a group of copies in either case.
    ///
    /// # Safety
    /// As for [`run`](super::run); the lane has read the stage, and the row is the source's.
    #[inline(always)]
    pub(super) unsafe fn fill<const N: usize, const VECTORS: usize, const RESIDUAL: bool>(
        &self,
        source: &mut Source<T>,
        row: u32,
        slot: u32,
    ) {
        let rows = self.plan.rows as u32;
        // SAFETY: the caller's contract; the row exists.
        unsafe {
            if Q::ANYWHERE && row < rows && rows - row <= LATE * N as u32 {
                self.copy_late::<N, VECTORS>(row, slot);
            } else if row < rows {
                self.copy::<N, VECTORS, RESIDUAL>(source, slot);
            }
        }
        async_copy::commit_group();
        unroll!(I in 0..3, {
            if I < inputs(RESIDUAL) {
                source.inputs[I] = source.inputs[I].wrapping_add(source.steps[I]);
            }
        });
    }

    /// Begins to copy the lane's vectors of a row to a stage whose first vector of the lane lies there.
    ///
    /// # Safety
    /// As for [`fill`](Self::fill), and the row exists.
    #[inline(always)]
    unsafe fn copy<const N: usize, const VECTORS: usize, const RESIDUAL: bool>(
        &self,
        source: &Source<T>,
        to: u32,
    ) {
        let plan = self.plan;
        unroll!(I in 0..3, {
            if I < inputs(RESIDUAL) && (I < MAX_INPUTS - 1 || self.adds::<RESIDUAL>()) {
                unroll!(K in 0..4, {
                    if K < VECTORS && self.has(K) {
                        let to = to + I as u32 * plan.part_bytes + K as u32 * STRIDE_BYTES;
                        let from = source.inputs[I].wrapping_add(K * LANES as usize * N);
                        // SAFETY: a vector of the row, and as much room in the stage. What lies before a row
                        // that begins anywhere is of the tensor's memory, another row or a gap, since the
                        // first row begins at a boundary; `clear` writes over it.
                        unsafe {
                            if Q::ANYWHERE {
                                let left = plan.columns as i32 - self.column::<N>(K);
                                let bytes = left.min(N as i32) as u32 * size_of::<T>() as u32;
                                async_copy::copy_cg_zfill(to, from, bytes);
                            } else {
                                async_copy::copy_cg(to, from);
                            }
                        }
                    }
                });
            }
        });
    }

    /// The same of one of the tensor's last rows: elements of a vector that is not all the row's are copied
    /// one by one.
    ///
    /// A `cp.async` of fewer bytes than 16 reads no more than them, but its instruction says so by an address
    /// that is moved on: tools that watch addresses see 16 bytes from there, which may end behind the tensor.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    #[inline(always)]
    unsafe fn copy_late<const N: usize, const VECTORS: usize>(&self, row: u32, to: u32) {
        let (plan, mut input) = (self.plan, 0);
        while input < plan.inputs {
            let (from, stride) = match input {
                0 => (self.inputs[0], plan.input_strides[0]),
                1 => (self.inputs[1], plan.input_strides[1]),
                _ => (self.inputs[2], plan.input_strides[2]),
            };
            let from = from.wrapping_add((u64::from(row) * stride) as usize);
            // Numbers that are found once for all rows would hold registers in their loop.
            let mut column = misc::opaque(self.column as u32) as i32;
            let (mut to, mut vector) = (to + input * plan.part_bytes, 0);
            while vector < VECTORS && self.has(vector) {
                let from = from.wrapping_offset(column as isize);
                // SAFETY: the caller's contract; elements of the row.
                unsafe {
                    if column + N as i32 <= plan.columns as i32 {
                        async_copy::copy_cg(to, from);
                    } else {
                        self.copy_part::<N>(from, column, to);
                    }
                }
                (column, to, vector) = (column + (LANES as usize * N) as i32, to + STRIDE_BYTES, vector + 1);
            }
            input += 1;
        }
    }

    /// Copies those of a vector's elements that the row has, and zeros.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    #[inline(always)]
    unsafe fn copy_part<const N: usize>(&self, from: *const T, column: i32, to: u32) {
        let mut i = 0;
        // SAFETY: the caller's contract; every bit pattern is a number.
        unsafe {
            vector::store_shared_v4(to, [0u32; 4]);
            while i < N {
                if self.is_column(column + i as i32) {
                    let [bits, ..] = access::first(*from.wrapping_add(i));
                    let to = to + (i * size_of::<T>()) as u32;
                    match size_of::<T>() {
                        2 => vector::store_shared_b16(to, bits as u16),
                        _ => vector::store_shared(to, bits),
                    }
                }
                i += 1;
            }
        }
    }

    /// Waits for the row behind the one that is mapped next: all groups but those of later rows. Before the
    /// first row it waits for the second one too.
    #[inline(always)]
    pub(super) fn wait(&self) {
        const { assert!(STAY_STAGES == 6, "counted out") };
        match self.plan.stages {
            2 => async_copy::wait_group::<0>(),
            3 => async_copy::wait_group::<1>(),
            4 => async_copy::wait_group::<2>(),
            5 => async_copy::wait_group::<3>(),
            _ => async_copy::wait_group::<4>(),
        }
    }

    /// Writes zeros over what the first vector has of the memory before the row.
    ///
    /// # Safety
    /// The stage is full, and the lane has that vector.
    #[inline(always)]
    pub(super) unsafe fn clear<const N: usize>(&self, at: u32) {
        let skip = -self.column * size_of::<T>() as i32;
        // SAFETY: the caller's promise. A third input has no part in sums.
        unsafe {
            unroll!(I in 0..2, {
                let at = at + I as u32 * self.plan.part_bytes;
                let mut words: [u32; 4] = vector::load_shared_v4(at);
                unroll!(W in 0..4, {
                    let skipped = (skip - 4 * W as i32).clamp(0, 4);
                    words[W] = if skipped == 4 { 0 } else { words[W] >> (8 * skipped) << (8 * skipped) };
                });
                vector::store_shared_v4(at, words);
            });
        }
    }
}
