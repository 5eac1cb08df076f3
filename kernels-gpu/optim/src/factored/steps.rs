//! Steps by those averages.

use super::{Adafactor, Column, Factored, HELD, RESIDENT, ROWS, Tile, WARPS, at_least, average, rate};
use crate::THREADS;
use crate::step::Step;
use crate::table::{Entry, Format};
use crate::update::{Model, Stored, WEIGHT, random_halves, random_words};
use cuda_std::{GpuFloat, fastmath, kernel, shared, shared_array, thread, warp};
use half::{bf16, f16};
use primitives::block;
use primitives::grid::begin;
use primitives::op::Sum;
use primitives::philox::HALVES;
use primitives::unroll;

/// The row factors of a tile in shared memory, each over their mean.
///
/// # Safety
/// All threads of the block call it together; `slots` has a place for each row, which no thread uses since
/// the last barrier. The tensor is factored, and factors and means are those of this step.
#[inline(always)]
unsafe fn share_rows(
    rule: &Adafactor,
    column: &Column,
    thread: u32,
    factors: *const f32,
    means: *const f32,
    slots: *mut f32,
) {
    let Column { shape, tile, .. } = column;
    // SAFETY: the caller's promise; a slot is written by one thread before the barrier.
    unsafe {
        if thread < column.rows() {
            let row = u64::from(tile.matrix) * u64::from(shape.rows) + u64::from(tile.band * ROWS + thread);
            let mean = *means.add((shape.means + u64::from(tile.matrix)) as usize);
            let factor = *factors.add((shape.factors + row) as usize);
            *slots.add(thread as usize) = factor / at_least(mean, rule.eps);
        }
        thread::sync_threads();
    }
}

/// The averages that a column's step is divided by.
#[derive(Clone, Copy)]
struct Averages {
    rule: Adafactor,
    /// In shared memory.
    rows: *const f32,
    /// Of the column, or of the tensor's first element.
    averages: *mut f32,
    is_factored: bool,
}

impl Averages {
    /// # Safety
    /// As [`share_rows`], but the tensor may be whole.
    #[inline(always)]
    unsafe fn of(
        rule: &Adafactor,
        column: &Column,
        thread: u32,
        factors: *mut f32,
        means: *const f32,
        slots: *mut f32,
    ) -> Self {
        let Column { shape, tile, number, .. } = column;
        let (is_factored, mut place) = (shape.is_factored != 0, shape.factors);
        if is_factored {
            // SAFETY: the caller's promise; the whole block has this tensor.
            unsafe { share_rows(rule, column, thread, factors, means, slots) };
            place += u64::from(shape.matrices) * u64::from(shape.rows);
            place += u64::from(tile.matrix) * u64::from(shape.columns) + u64::from(*number);
        }
        Averages { rule: *rule, rows: slots, averages: factors.wrapping_add(place as usize), is_factored }
    }

    /// Divides [`HELD`] gradients from row `first` on by the roots of their averages. `update` makes the
    /// average of an element of what is kept whole.
    ///
    /// # Safety
    /// The column is the calling thread's.
    #[inline(always)]
    unsafe fn divide(
        &self,
        column: &Column,
        first: u32,
        mut gradient: [f32; HELD],
        update: impl Fn(*mut f32, f32) -> f32,
    ) -> [f32; HELD] {
        // Of a 0, which the approximation takes a smaller number for, the root has no inverse.
        let least = at_least(self.rule.eps * self.rule.eps, f32::MIN_POSITIVE);
        // SAFETY: factors of rows and columns that there are; elements of the column.
        unsafe {
            let of_column = if self.is_factored && column.count > 0 { *self.averages } else { 0.0 };
            unroll!(i in 0..8, {
                let row = first + i as u32;
                if row < column.count {
                    let square = if self.is_factored {
                        *self.rows.add(row as usize) * of_column
                    } else {
                        update(self.averages.wrapping_add(column.place(row)), gradient[i])
                    };
                    gradient[i] *= fastmath::rsqrt_approx(at_least(square, least));
                }
            });
        }
        gradient
    }
}

/// Adds up, for each tile, the squares of its step before it is clipped, and those of its weights. What is
/// kept whole is brought up to date.
///
/// # Safety
/// The tables are of the same tensors, parameters and gradients as the entries say; factors and means are
/// those of this step; `master` has the weights of all tensors, or is null; `sums` has two places for each
/// tile. Blocks of [`THREADS`] threads, one for each tile.
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn sum_steps(
    rule: Adafactor,
    tensors: *const Entry,
    shapes: *const Factored,
    tiles: *const Tile,
    step: *const Step,
    factors: *mut f32,
    means: *const f32,
    master: *const f32,
    sums: *mut f64,
) {
    let rows = shared_array![f32; ROWS as usize];
    let slots = shared_array![f64; 2 * WARPS];
    let (block, thread) = begin(|| (thread::block_idx_x(), thread::thread_idx_x()));
    // SAFETY: the caller's promise; elements, and averages that are kept whole, have one thread each; the
    // block comes to the reductions together or not at all.
    unsafe {
        let (column, step) = (Column::of(block, thread, tensors, shapes, tiles), *step);
        if step.is_skipped != 0 {
            return;
        }
        let averages = Averages::of(&rule, &column, thread, factors, means, shared::generic(rows));
        let rate = rate(&rule, &step);
        let (mut first, mut steps, mut squares) = (0, 0.0f32, 0.0f32);
        while first < column.count {
            let gradient = column.gradient(&step, first);
            let weights = column.weights(master, first);
            let gradient = averages.divide(&column, first, gradient, |place, g| {
                *place = average(rate, *place, g * g);
                *place
            });
            unroll!(i in 0..8, {
                steps = fastmath::fma(gradient[i], gradient[i], steps);
                squares = fastmath::fma(weights[i], weights[i], squares);
            });
            first += HELD as u32;
        }
        let slots = shared::generic(slots);
        let steps = block::reduce(Sum, f64::from(steps), slots);
        let squares = block::reduce(Sum, f64::from(squares), slots.add(WARPS));
        if thread == 0 {
            *sums.add(2 * block as usize) = steps;
            *sums.add(2 * block as usize + 1) = squares;
        }
    }
}

/// Writes how long the step of each tensor is: what its gradients, over the roots of their averages, are
/// multiplied by.
///
/// # Safety
/// The tables are of the same tensors; `sums` is what [`sum_steps()`] has written; `lengths` has a place for
/// each tensor. Blocks of [`THREADS`] threads, one for each tensor.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn set_lengths(
    rule: Adafactor,
    tensors: *const Entry,
    shapes: *const Factored,
    step: *const Step,
    sums: *const f64,
    lengths: *mut f32,
) {
    let slots = shared_array![f64; 2 * WARPS];
    let (block, thread) = begin(|| (thread::block_idx_x(), thread::thread_idx_x()));
    // SAFETY: the caller's promise; the block comes to the reductions together or not at all.
    unsafe {
        let (shape, step) = (*shapes.add(block as usize), *step);
        if step.is_skipped != 0 {
            return;
        }
        let (mut tile, mut steps, mut squares) = (thread, 0.0f64, 0.0f64);
        while tile < shape.tiles {
            let place = 2 * (shape.first_tile + tile) as usize;
            steps += *sums.add(place);
            squares += *sums.add(place + 1);
            tile += THREADS;
        }
        let slots = shared::generic(slots);
        let steps = block::reduce(Sum, steps, slots);
        let squares = block::reduce(Sum, squares, slots.add(WARPS));
        if thread == 0 {
            let elements = (u64::from(shape.matrices) * shape.length) as f64;
            let root = |sum: f64| GpuFloat::sqrt(sum / elements) as f32;
            let over = at_least(root(steps) / rule.threshold, 1.0);
            let rate = step.learning_rate * (*tensors.add(block as usize)).rate_factor;
            let largest = 1.0 / GpuFloat::sqrt(step.steps as f32);
            let rate = if rate < largest { rate } else { largest };
            *lengths.add(block as usize) = at_least(root(squares), rule.least_weight) * rate / over;
        }
    }
}

/// Takes the step.
///
/// # Safety
/// As [`sum_steps()`]; parameters and master weights are writable; `lengths` is what [`set_lengths()`] has
/// written. Blocks of [`THREADS`] threads, one for each tile.
#[kernel(launch_bounds(THREADS, RESIDENT))]
pub unsafe fn adafactor(
    rule: Adafactor,
    model: Model,
    tensors: *const Entry,
    shapes: *const Factored,
    tiles: *const Tile,
    step: *const Step,
    factors: *mut f32,
    means: *const f32,
    lengths: *const f32,
    master: *mut f32,
) {
    let rows = shared_array![f32; ROWS as usize];
    let (block, thread) = begin(|| (thread::block_idx_x(), thread::thread_idx_x()));
    // SAFETY: the caller's promise; an element has one thread; the block comes to the barrier together or not
    // at all.
    unsafe {
        let (column, step) = (Column::of(block, thread, tensors, shapes, tiles), *step);
        if step.is_skipped != 0 {
            return;
        }
        let averages = Averages::of(&rule, &column, thread, factors, means, shared::generic(rows));
        let length = *lengths.add(column.tile.tensor as usize);
        let decay = step.learning_rate * column.entry.rate_factor * column.entry.weight_decay;
        let mut first = 0;
        while first < column.count {
            let gradient = column.gradient(&step, first);
            let mut weights = column.weights(master, first);
            let gradient = averages.divide(&column, first, gradient, |place, _| *place);
            unroll!(i in 0..8, {
                weights[i] = fastmath::fma(-length, gradient[i], weights[i] - decay * weights[i]);
            });
            let to = Target { column: &column, model: &model, step: &step, first };
            to.store_all(master, weights);
            first += HELD as u32;
        }
    }
}

/// Where weights go.
struct Target<'a> {
    column: &'a Column,
    model: &'a Model,
    step: &'a Step,
    /// Their first row.
    first: u32,
}

impl Target<'_> {
    /// The random numbers of the column's elements, where eight neighbours of a row are those of a block of
    /// numbers: each lane computes the block of one row, and hands it to its neighbours.
    ///
    /// # Safety
    /// The eight lanes of neighbours call it together ([`Column::shares_blocks`]).
    #[inline(always)]
    unsafe fn shared_random(&self) -> [u16; HELD] {
        let (lane, within) = (warp::lane_id(), warp::lane_id() % HALVES as u32);
        let lanes = 0xff << (lane - within);
        let (column, tensor) = (self.column, self.column.tile.tensor);
        let own = column.place(self.first + within) as u64;
        let words = random_words(self.model, self.step, tensor, WEIGHT, own);
        let mut random = [0; HELD];
        unroll!(i in 0..8, {
            let mut word = 0;
            unroll!(j in 0..4, {
                // SAFETY: the caller's word.
                let (of_row, _) = unsafe { warp::warp_shuffle_idx(lanes, words[j], i as u32, HALVES as u32) };
                word = if within / 2 == j as u32 { of_row } else { word };
            });
            random[i] = (word >> (within % 2 * u16::BITS)) as u16;
        });
        random
    }

    /// Writes the parameter, and its master weights if it has any.
    ///
    /// # Safety
    /// The parameter is as the entry says, and writable; so are master weights, if they are not null.
    #[inline(always)]
    unsafe fn store_all(&self, master: *mut f32, weights: [f32; HELD]) {
        let Entry { parameter, format, state, .. } = self.column.entry;
        let is_rounded = self.model.is_stochastic != 0 && master.is_null();
        // SAFETY: the caller's promise.
        unsafe {
            match format {
                Format::F32 | Format::F32WithBf16 => {
                    return self.store(parameter as *mut f32, weights, false);
                }
                _ if !master.is_null() => self.store(master.add(state as usize), weights, false),
                _ => (),
            }
            match format {
                Format::F16 | Format::F16WithF32 => self.store(parameter as *mut f16, weights, false),
                _ => self.store(parameter as *mut bf16, weights, is_rounded),
            }
        }
    }

    /// # Safety
    /// `tensor` has the tensor's elements, `T`s, writable.
    #[inline(always)]
    unsafe fn store<T: Stored>(&self, tensor: *mut T, weights: [f32; HELD], is_rounded: bool) {
        let (column, number) = (self.column, self.column.tile.tensor);
        let shares = is_rounded && column.shares_blocks();
        // SAFETY: such columns' neighbours are here too.
        let random = if shares { unsafe { self.shared_random() } } else { [0; HELD] };
        unroll!(i in 0..8, {
            let row = self.first + i as u32;
            if row < column.count {
                let place = column.place(row);
                let [rounded] = if shares {
                    T::round([weights[i]], || [random[i]])
                } else if is_rounded {
                    T::round([weights[i]], || {
                        random_halves(self.model, self.step, number, WEIGHT, place as u64)
                    })
                } else {
                    T::narrow([weights[i]])
                };
                // SAFETY: the caller's promise; an element of the column.
                unsafe { *tensor.wrapping_add(place) = rounded };
            }
        });
    }
}
