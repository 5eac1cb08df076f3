//! Small launches before and behind those of rows: sums of what blocks leave, in order.

use crate::function::MAX_SUMS;
use cuda_std::{kernel, shared, shared_array, thread};
use half::{bf16, f16};
use primitives::access::{self, VECTOR_BYTES};
use primitives::block;
use primitives::element::{InF32, zip};
use primitives::grid::begin;
use primitives::op::Sum;
use primitives::unroll;
use primitives::warp::LANES;

/// Threads of a block with a column each.
pub const THREADS: u32 = 256;
/// Most warps of a block that adds up rows of sums.
const MAX_WARPS: u32 = 32;
/// Columns of a lane of such a block, where it has a vector.
pub const SUM_VECTOR: usize = VECTOR_BYTES / size_of::<f32>();
/// Least columns for that: of shorter rows there are too few blocks.
const SUM_LONG: usize = 8192;
/// Rows of sums that a warp has under way at once.
const AT_ONCE: u32 = 8;

/// Threads of a block that adds up so many rows of sums: a warp for every eight of them, up to 32 warps. A
/// warp with a column a lane has its eight rows under way at once, since each load waits for the L2 cache.
#[must_use]
pub const fn sum_threads(rows: u32) -> u32 {
    let warps = rows.div_ceil(AT_ONCE).next_power_of_two();
    LANES * if warps > MAX_WARPS { MAX_WARPS } else { warps }
}

/// Whether lanes have a vector of such rows each: where rows of sums are vectors, and so long that there are
/// blocks enough.
#[must_use]
pub const fn is_wide(columns: usize) -> bool {
    columns >= SUM_LONG && columns.is_multiple_of(SUM_VECTOR)
}

/// Adds up `rows` rows of sums, each of [`MAX_SUMS`] times `columns`, and writes each of both to its output,
/// where that is not null. A lane has `N` columns of every row with its warp's number modulo the block's
/// warps.
///
/// # Safety
/// As for the entry points; rows of sums begin at boundaries of as many. `slots` is shared memory for as many
/// numbers of each thread.
#[inline(always)]
unsafe fn add_rows<T: InF32, const N: usize>(
    partials: *const f32,
    rows: u32,
    columns: u32,
    outputs: [*mut T; MAX_SUMS],
    slots: *mut f32,
) {
    let (column, sum, warp, lane) = begin(|| {
        let (warp, lane) = (thread::thread_idx_x() / LANES, thread::thread_idx_x() % LANES);
        ((thread::block_idx_x() * LANES + lane) * N as u32, thread::block_idx_y(), warp, lane)
    });
    let output = if sum == 0 { outputs[0] } else { outputs[1] };
    if output.is_null() {
        return;
    }
    let warps = thread::block_dim_x() / LANES;
    // SAFETY: the caller's promise; a slot is written by one thread before the barrier and read after it.
    unsafe {
        let (mut total, mut row) = ([0.0f32; N], warp);
        let at = |row: u32| (row as usize * MAX_SUMS + sum as usize) * columns as usize + column as usize;
        while row < rows && column < columns {
            const { assert!(AT_ONCE == 8, "counted out") };
            let mut terms = [[0.0f32; N]; AT_ONCE as usize];
            unroll!(I in 0..8, {
                let row = row + I as u32 * warps;
                if row < rows {
                    terms[I] = access::load(partials.add(at(row)));
                }
            });
            unroll!(I in 0..8, { total = zip(total, terms[I], |total, term| total + term); });
            row += AT_ONCE * warps;
        }
        let slot = |warp: u32| slots.cast::<[f32; N]>().add((warp * LANES + lane) as usize);
        *slot(warp) = total;
        thread::sync_threads();
        if warp == 0 && column < columns {
            let (mut total, mut of_warp) = ([0.0f32; N], 0);
            while of_warp < warps {
                total = zip(total, *slot(of_warp), |total, term| total + term);
                of_warp += 1;
            }
            access::store(output.add(column as usize), crate::function::narrow::<T, N>(total));
        }
    }
}

macro_rules! sums {
    ($($name:ident $ty:ident $columns:expr;)*) => { $(
        /// The gradients by weight and bias from the sums of blocks.
        ///
        /// # Safety
        /// `partials` has `rows` rows of two sums of `columns` each, which a lane's columns divide;
        /// `weight` and `bias` are null or hold `columns`. All three begin at a boundary of a lane's
        /// columns. Blocks of [`sum_threads`]`(rows)` threads: one for what the lanes of a warp have, two
        /// along y.
        #[kernel(launch_bounds(MAX_WARPS * LANES))]
        pub unsafe fn $name(partials: *const f32, rows: u32, columns: u32, weight: *mut $ty, bias: *mut $ty) {
            let slots = shared::generic(shared_array![f32; (MAX_WARPS * LANES) as usize * $columns]);
            // SAFETY: the caller's promise.
            unsafe { add_rows::<$ty, { $columns }>(partials, rows, columns, [weight, bias], slots) }
        }
    )* };
}

// Kernels of their own for vectors: with one for both, whose shared memory all rows had, gradients of a layer
// norm of 4096 columns took .110 ms on an H200, and .107 since.
sums! {
    norm_sums_f32 f32 1;
    norm_sums_f16 f16 1;
    norm_sums_bf16 bf16 1;
    norm_sums_wide_f32 f32 SUM_VECTOR;
    norm_sums_wide_f16 f16 SUM_VECTOR;
    norm_sums_wide_bf16 bf16 SUM_VECTOR;
}

/// Least rows of a part of a sum of columns.
const PART_ROWS: u64 = 256;
/// Blocks that a grid has along y. With more rows than fit, parts have more of them.
const MOST_PARTS: u64 = 65_535;

/// The sums of `dy z` and of `dy` over a part of the rows, a thread a column: for rows that the engine with
/// sums does not take.
///
/// # Safety
/// As for the entry points.
#[inline(always)]
unsafe fn column_sums<T: InF32>(
    job: &ColumnJob,
    x: *const T,
    dy: *const T,
    moments: *const f32,
    partials: *mut f32,
) {
    let (column, part) =
        begin(|| (thread::block_idx_x() * THREADS + thread::thread_idx_x(), thread::block_idx_y()));
    if column >= job.columns {
        return;
    }
    let first = u64::from(part) * u64::from(job.part);
    let end = (first + u64::from(job.part)).min(job.rows);
    // SAFETY: the caller's promise; a place of the sums has one thread.
    unsafe {
        let (mut sums, mut row) = ([0.0f32; MAX_SUMS], first);
        while row < end {
            let (mean, factor) = (*moments.add(row as usize), *moments.add((job.rows + row) as usize));
            let at = |tensor: *const T, stride: u64| {
                T::widen([*tensor.add((row * stride) as usize + column as usize)])[0]
            };
            let dy = at(dy, job.strides[1]);
            sums[0] += dy * ((at(x, job.strides[0]) - mean) * factor);
            sums[1] += dy;
            row += 1;
        }
        let to = partials.add(part as usize * MAX_SUMS * job.columns as usize + column as usize);
        *to = sums[0];
        *to.add(job.columns as usize) = sums[1];
    }
}

/// The rows of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct ColumnJob {
    /// Rows.
    pub rows: u64,
    /// Elements from a row to the next, of both tensors.
    pub strides: [u64; 2],
    /// Elements of a row.
    pub columns: u32,
    /// Rows of a part.
    pub part: u32,
}

impl ColumnJob {
    /// A job, whose rows are in as many parts as there may be.
    #[must_use]
    pub fn new(rows: u64, strides: [u64; 2], columns: u32) -> Self {
        let part = PART_ROWS.max(rows.div_ceil(MOST_PARTS));
        // More rows than any memory holds are in too many parts, which is an error of the launch.
        ColumnJob { rows, strides, columns, part: u32::try_from(part).unwrap_or(u32::MAX) }
    }

    /// Parts of the rows, each of which has two rows of sums.
    #[must_use]
    pub const fn parts(&self) -> u64 {
        self.rows.div_ceil(self.part as u64)
    }
}

macro_rules! columns {
    ($($name:ident $ty:ident;)*) => { $(
        /// Sums of columns over parts of the rows, for the gradients by weight and bias.
        ///
        /// # Safety
        /// Both tensors hold the job's rows, `moments` a mean and a factor of each. `partials` has two rows
        /// of sums for each of the job's parts. Blocks of [`THREADS`] threads: one for each as many
        /// columns, along y one for each part.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(
            job: ColumnJob,
            x: *const $ty,
            dy: *const $ty,
            moments: *const f32,
            partials: *mut f32,
        ) {
            // SAFETY: the caller's promise.
            unsafe { column_sums::<$ty>(&job, x, dy, moments, partials) }
        }
    )* };
}

columns! { norm_columns_f32 f32; norm_columns_f16 f16; norm_columns_bf16 bf16; }

/// Targets of a loss: how many rows are counted, and the factor of their gradients.
///
/// Writes 1 over the count of the rows whose target is not `ignored` to `scale` (1, if `is_mean` is 0), times
/// `upstream` if that is not null.
///
/// # Safety
/// One of the targets holds `rows` numbers, the other is null; `scale` holds two numbers. One block of
/// [`LOSS_THREADS`] threads.
#[kernel(launch_bounds(LOSS_THREADS))]
pub unsafe fn count_targets(
    wide_targets: *const i64,
    targets: *const i32,
    rows: u64,
    ignored: i64,
    is_mean: u32,
    upstream: *const f32,
    scale: *mut f32,
) {
    let slots = shared::generic(shared_array![i64; LOSS_WARPS]);
    let thread = begin(thread::thread_idx_x);
    let (mut count, mut row) = (0i64, u64::from(thread));
    // SAFETY: the caller's promise; all threads come to the reduction.
    unsafe {
        while row < rows {
            let target = if wide_targets.is_null() {
                i64::from(*targets.add(row as usize))
            } else {
                *wide_targets.add(row as usize)
            };
            count += i64::from(target != ignored);
            row += u64::from(LOSS_THREADS);
        }
        let count: i64 = block::reduce(Sum, count, slots);
        if thread == 0 {
            let share = if is_mean != 0 { 1.0 / count as f32 } else { 1.0 };
            *scale.add(1) = share;
            // Rows that are ignored have no gradient: the infinity of none is multiplied by nothing.
            *scale = if upstream.is_null() { share } else { share * *upstream };
        }
    }
}

/// Writes the scale of [`count_targets()`] where all of `rows` rows count. `scale[1]` is the share of each
/// loss: 1 over `rows`, or 1 if `is_mean` is 0. `scale[0]` is the factor of gradients: that share, times
/// `upstream` if that is not null.
///
/// # Safety
/// `upstream` is null or holds a number; `scale` holds two. One block of [`LANES`] threads.
#[kernel(launch_bounds(LANES))]
pub unsafe fn share_rows(rows: u64, is_mean: u32, upstream: *const f32, scale: *mut f32) {
    if begin(thread::thread_idx_x) != 0 {
        return;
    }
    let share = if is_mean != 0 { 1.0 / rows as f32 } else { 1.0 };
    // SAFETY: the caller's promise.
    unsafe {
        *scale.add(1) = share;
        *scale = if upstream.is_null() { share } else { share * *upstream };
    }
}

/// Threads of the blocks of a loss.
pub const LOSS_THREADS: u32 = 1024;
/// Warps of them.
const LOSS_WARPS: usize = block::slots(LOSS_THREADS);

/// The sum of the losses of all rows times the share of each, the second number of `scale`. Without a row
/// that counts it is NaN, as PyTorch's mean of none.
///
/// # Safety
/// `losses` holds `rows` numbers, `scale` two; `loss` is writable. One block of [`LOSS_THREADS`] threads.
#[kernel(launch_bounds(LOSS_THREADS))]
pub unsafe fn add_losses(losses: *const f32, rows: u64, scale: *const f32, loss: *mut f32) {
    let slots = shared::generic(shared_array![f64; LOSS_WARPS]);
    let thread = begin(thread::thread_idx_x);
    let (mut sum, mut row) = (0.0f64, u64::from(thread));
    // SAFETY: the caller's promise; all threads come to the reduction.
    unsafe {
        while row < rows {
            sum += f64::from(*losses.add(row as usize));
            row += u64::from(LOSS_THREADS);
        }
        let sum: f64 = block::reduce(Sum, sum, slots);
        if thread == 0 {
            *loss = (sum * f64::from(*scale.add(1))) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ColumnJob;

    #[test]
    fn parts_fit_a_grid_and_have_all_rows() {
        for rows in [1, 256, 257, 65_535 * 256, 65_535 * 256 + 1, 1 << 26, u64::from(u32::MAX)] {
            let job = ColumnJob::new(rows, [1; 2], 1);
            let (part, parts) = (u64::from(job.part), job.parts());
            assert!(parts <= 65_535 && part >= 256, "{rows}: {parts} of {part}");
            assert!((parts - 1) * part < rows && rows <= parts * part, "{rows}: {parts} of {part}");
        }
    }
}
