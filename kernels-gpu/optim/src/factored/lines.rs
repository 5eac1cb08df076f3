//! The averages of rows and columns.

use super::{Adafactor, Column, Factored, HELD, Lines, RESIDENT, ROWS, Tile, WARPS, average, rate};
use crate::THREADS;
use crate::step::Step;
use crate::table::Entry;
use cuda_std::{kernel, shared, shared_array, thread};
use primitives::block;
use primitives::grid::begin;
use primitives::op::Sum;
use primitives::unroll;
use primitives::warp::{Exchange, From, LANES};

/// The sum over the warp of each of 32 values: lane `l` gets that of value `l`. Each step halves the
/// values, so there are 31 exchanges.
///
/// # Safety
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn sum_each(mut values: [f32; LANES as usize], lane: u32) -> f32 {
    macro_rules! halve {
        ($($half:tt)*) => { $(
            unroll!(i in 0..$half, {
                let (low, high) = (values[i], values[i + $half]);
                let is_high = lane & $half != 0;
                let (kept, given) = if is_high { (high, low) } else { (low, high) };
                // SAFETY: the caller's promise.
                values[i] = kept + unsafe { given.exchange(From::Xor($half)) };
            });
        )* };
    }
    halve!(16 8 4 2 1);
    values[0]
}

/// Adds up the squares of the rows and of the columns of each tile of a matrix.
///
/// # Safety
/// The tables are of the same tensors, gradients as the entries say; `partials` has the places that the
/// shapes say. Blocks of [`THREADS`] threads, one for each tile.
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn sum_lines(
    tensors: *const Entry,
    shapes: *const Factored,
    tiles: *const Tile,
    step: *const Step,
    partials: *mut f32,
) {
    let slots = shared_array![f32; THREADS as usize];
    let (block, thread) = begin(|| (thread::block_idx_x(), thread::thread_idx_x()));
    // SAFETY: the caller's promise; a place has one thread, a slot is written before the barrier and read
    // after it; the block comes to the barrier together or not at all.
    unsafe {
        let (column, step) = (Column::of(block, thread, tensors, shapes, tiles), *step);
        let Column { shape, tile, number, .. } = column;
        if step.is_skipped != 0 || shape.is_factored == 0 {
            return;
        }
        let (mut squares, mut sum) = ([0.0; ROWS as usize], 0.0);
        unroll!(part in 0..4, {
            let gradient = column.gradient(&step, (part * HELD) as u32);
            unroll!(i in 0..8, {
                squares[part * HELD + i] = gradient[i] * gradient[i];
                sum += squares[part * HELD + i];
            });
        });
        if number < shape.columns {
            let of_matrix = u64::from(tile.matrix) * u64::from(shape.bands()) + u64::from(tile.band);
            let place = shape.column_sums + of_matrix * u64::from(shape.columns) + u64::from(number);
            *partials.add(place as usize) = sum;
        }
        let slots = shared::generic(slots);
        *slots.add(thread as usize) = sum_each(squares, thread % LANES);
        thread::sync_threads();
        if thread < column.rows() {
            let mut sum = 0.0;
            for warp in 0..WARPS {
                sum += *slots.add(warp * LANES as usize + thread as usize);
            }
            let of_matrix = u64::from(tile.matrix) * u64::from(shape.spans()) + u64::from(tile.span);
            let row = tile.band * ROWS + thread;
            let place = shape.row_sums + of_matrix * u64::from(shape.rows) + u64::from(row);
            *partials.add(place as usize) = sum;
        }
    }
}

/// Brings the factors of rows and columns up to date.
///
/// # Safety
/// `partials` is what [`sum_lines()`] has written; `factors` has the places that the shapes say. Blocks of
/// [`THREADS`] threads, one for each of `lines`.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn set_factors(
    rule: Adafactor,
    shapes: *const Factored,
    lines: *const Lines,
    step: *const Step,
    partials: *const f32,
    factors: *mut f32,
) {
    let slots = shared_array![f64; THREADS as usize];
    let (block, thread) = begin(|| (thread::block_idx_x(), thread::thread_idx_x()));
    // SAFETY: the caller's promise; a factor has one thread, a slot is written before the barrier and read
    // after it; the block comes to the barrier together or not at all.
    unsafe {
        let (lines, step) = (*lines.add(block as usize), *step);
        if step.is_skipped != 0 {
            return;
        }
        let shape = *shapes.add(lines.tensor as usize);
        let (warp, line) = (thread / LANES, lines.first + thread % LANES);
        let rows_before = u64::from(shape.matrices) * u64::from(shape.rows);
        let (sums, parts, count, elements, place) = if lines.are_columns != 0 {
            (shape.column_sums, shape.bands(), shape.columns, shape.rows, rows_before)
        } else {
            (shape.row_sums, shape.spans(), shape.rows, shape.columns, 0)
        };
        let mut sum = 0.0f64;
        if line < count {
            let first = u64::from(lines.matrix) * u64::from(parts);
            let mut part = warp;
            while part < parts {
                let place = sums + (first + u64::from(part)) * u64::from(count) + u64::from(line);
                sum += f64::from(*partials.add(place as usize));
                part += WARPS as u32;
            }
        }
        let slots = shared::generic(slots);
        *slots.add(thread as usize) = sum;
        thread::sync_threads();
        if warp == 0 && line < count {
            for warp in 1..WARPS {
                sum += *slots.add(warp * LANES as usize + thread as usize);
            }
            let place = shape.factors + place + u64::from(lines.matrix) * u64::from(count) + u64::from(line);
            let factor = factors.add(place as usize);
            *factor = average(rate(&rule, &step), *factor, (sum / f64::from(elements)) as f32);
        }
    }
}

/// Writes the mean of the row factors of each matrix.
///
/// # Safety
/// `factors` is what [`set_factors()`] has written; `means` has the places that the shapes say. Blocks of
/// [`THREADS`] threads, one for each of `matrices`, whose first lines do not matter.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn set_means(
    shapes: *const Factored,
    matrices: *const Lines,
    step: *const Step,
    factors: *const f32,
    means: *mut f32,
) {
    let slots = shared_array![f64; WARPS];
    let (block, thread) = begin(|| (thread::block_idx_x(), thread::thread_idx_x()));
    // SAFETY: the caller's promise; the block comes to the reduction together or not at all.
    unsafe {
        let Lines { tensor, matrix, .. } = *matrices.add(block as usize);
        if (*step).is_skipped != 0 {
            return;
        }
        let shape = *shapes.add(tensor as usize);
        let first = shape.factors + u64::from(matrix) * u64::from(shape.rows);
        let (mut row, mut sum) = (thread, 0.0f64);
        while row < shape.rows {
            sum += f64::from(*factors.add((first + u64::from(row)) as usize));
            row += THREADS;
        }
        let sum = block::reduce(Sum, sum, shared::generic(slots));
        if thread == 0 {
            *means.add((shape.means + u64::from(matrix)) as usize) = (sum / f64::from(shape.rows)) as f32;
        }
    }
}
