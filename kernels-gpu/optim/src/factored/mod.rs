//! Adafactor (Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018), as
//! `torch.optim.Adafactor` computes it: the average square of a matrix' gradient is kept as a factor a row
//! and a factor a column. Of other tensors it is kept whole.
//!
//! ```text
//!   sum_lines     a block a tile: squares of its rows and columns -> partial sums
//!   set_factors   a warp of lines a block: partial sums in order -> averages of rows and columns
//!   set_means     a block a matrix: the mean of its row factors
//!   sum_steps     a block a tile: squares of weights, and of the step before it is clipped -> partial sums
//!   set_lengths   a block a tensor: the length of its step
//!   adafactor     a block a tile: weights in, weights out
//! ```
//! Gradients are read three times and weights twice: the length of a step depends on all of it. A thread
//! goes down one column of its tile, so neighbours read neighbours, and no index is divided. A tensor that is
//! no matrix is cut into rows of [`COLUMNS`] elements.

mod lines;
mod steps;

pub use lines::{set_factors, set_means, sum_lines};
pub use steps::{adafactor, set_lengths, sum_steps};

use crate::THREADS;
use crate::step::Step;
use crate::table::{Entry, Format};
use crate::update::Stored;
use cuda_std::{GpuFloat, fastmath};
use half::{bf16, f16};
use primitives::block;
use primitives::philox::HALVES;
use primitives::unroll;
use primitives::warp::LANES;

/// Rows of a tile: one for each lane of the warp that adds them up.
pub const ROWS: u32 = LANES;
/// Columns of a tile, one for each thread.
pub const COLUMNS: u32 = THREADS;
/// Rows that are held at once while a step is taken: gradient and weight of each.
const HELD: usize = 8;
/// Blocks of a multiprocessor, at least: their threads have 8 or 16 loads under way.
const RESIDENT: u32 = 4;
/// Warps of a block.
const WARPS: usize = block::slots(THREADS);

/// The numbers of Adafactor.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Adafactor {
    /// The new square has the weight `step ^ exponent` in the average; negative.
    pub exponent: f32,
    /// The least root of an average square.
    pub eps: f32,
    /// The least root mean square of the weights.
    pub least_weight: f32,
    /// The largest root mean square of a step, over the learning rate.
    pub threshold: f32,
}

/// How a tensor is cut into tiles, and where its factors and sums lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Factored {
    /// Elements of a matrix, or of a tensor that is not factored.
    pub length: u64,
    /// Where its factors begin among those of all tensors: of the rows of all its matrices, then of the
    /// columns; or the averages of all elements.
    pub factors: u64,
    /// Where the partial sums of its rows begin: `[matrix][span][row]`.
    pub row_sums: u64,
    /// Where the partial sums of its columns begin: `[matrix][band][column]`.
    pub column_sums: u64,
    /// Where the means of its matrices begin.
    pub means: u64,
    /// Rows of a matrix.
    pub rows: u32,
    /// Columns of a matrix; [`COLUMNS`] of a tensor that is not factored.
    pub columns: u32,
    /// Matrices.
    pub matrices: u32,
    /// 1 for matrices, else 0.
    pub is_factored: u32,
    /// Number of its first tile.
    pub first_tile: u32,
    /// Tiles.
    pub tiles: u32,
}

impl Factored {
    /// Tiles over each other in a matrix.
    pub const fn bands(&self) -> u32 {
        self.rows.div_ceil(ROWS)
    }

    /// Tiles beside each other in a matrix.
    pub const fn spans(&self) -> u32 {
        self.columns.div_ceil(COLUMNS)
    }
}

/// A tile of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Tile {
    /// Number of the tensor.
    pub tensor: u32,
    /// Number of the matrix in the tensor.
    pub matrix: u32,
    /// Number of its first row, over [`ROWS`].
    pub band: u32,
    /// Number of its first column, over [`COLUMNS`].
    pub span: u32,
}

/// A warp of rows or columns of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Lines {
    /// Number of the tensor.
    pub tensor: u32,
    /// Number of the matrix in the tensor.
    pub matrix: u32,
    /// The first row or column.
    pub first: u32,
    /// 1 for columns, 0 for rows.
    pub are_columns: u32,
}

/// The weight of the new square in the average.
#[inline(always)]
fn rate(rule: &Adafactor, step: &Step) -> f32 {
    GpuFloat::powf(step.steps as f32, rule.exponent)
}

/// The average of squares behind a new one. Not by their difference, which would be NaN where both are
/// infinite.
#[inline(always)]
fn average(rate: f32, old: f32, square: f32) -> f32 {
    if rate == 1.0 { square } else { fastmath::fma(rate, square, old - rate * old) }
}

/// `x`, or `least` if that is larger. A NaN stays one.
#[inline(always)]
fn at_least(x: f32, least: f32) -> f32 {
    if x < least { least } else { x }
}

/// The calling thread's column of a tile.
#[derive(Clone, Copy)]
struct Column {
    entry: Entry,
    shape: Factored,
    tile: Tile,
    /// Its number in the matrix.
    number: u32,
    /// Its first element in the tensor.
    start: u64,
    /// Its elements.
    count: u32,
}

impl Column {
    /// # Safety
    /// The tables are as the entry points say.
    #[inline(always)]
    unsafe fn of(
        block: u32,
        thread: u32,
        tensors: *const Entry,
        shapes: *const Factored,
        tiles: *const Tile,
    ) -> Self {
        // SAFETY: the caller's promise.
        let (tile, entry, shape) = unsafe {
            let tile = *tiles.add(block as usize);
            (tile, *tensors.add(tile.tensor as usize), *shapes.add(tile.tensor as usize))
        };
        let (number, row) = (tile.span * COLUMNS + thread, tile.band * ROWS);
        let (columns, rows) = (u64::from(shape.columns), ROWS.min(shape.rows - row));
        let within = u64::from(row) * columns + u64::from(number);
        let count = if number >= shape.columns {
            0
        } else if within + u64::from(rows - 1) * columns < shape.length {
            rows
        } else {
            // The last row of a tensor that is not factored ends before.
            rows - 1
        };
        let start = u64::from(tile.matrix) * shape.length + within;
        Column { entry, shape, tile, number, start, count }
    }

    /// The place of row `i` in the tensor.
    #[inline(always)]
    fn place(&self, i: u32) -> usize {
        (self.start + u64::from(i) * u64::from(self.shape.columns)) as usize
    }

    /// [`HELD`] of its elements from `first` on, and zeros behind them.
    ///
    /// # Safety
    /// The tensor's elements are `T`s.
    #[inline(always)]
    unsafe fn load<T: Stored>(&self, tensor: *const T, first: u32) -> [f32; HELD] {
        let mut values = [0.0; HELD];
        unroll!(i in 0..8, {
            let row = first + i as u32;
            if row < self.count {
                // SAFETY: the caller's promise; an element of the column.
                [values[i]] = T::widen([unsafe { *tensor.wrapping_add(self.place(row)) }]);
            }
        });
        values
    }

    /// [`HELD`] elements of the gradient from `first` on, clipped.
    ///
    /// # Safety
    /// The gradient is as the entry says.
    #[inline(always)]
    unsafe fn gradient(&self, step: &Step, first: u32) -> [f32; HELD] {
        let address = self.entry.gradient;
        // SAFETY: the caller's promise.
        let mut values = unsafe {
            match self.entry.format {
                Format::Bf16 | Format::F32WithBf16 => self.load(address as *const bf16, first),
                Format::F16 => self.load(address as *const f16, first),
                Format::F32 | Format::Bf16WithF32 | Format::F16WithF32 => {
                    self.load(address as *const f32, first)
                }
            }
        };
        unroll!(i in 0..8, {
            values[i] *= step.gradient_factor;
        });
        values
    }

    /// [`HELD`] of the weights from `first` on.
    ///
    /// # Safety
    /// The parameter is as the entry says; `master` has the weights of all tensors, or is null.
    #[inline(always)]
    unsafe fn weights(&self, master: *const f32, first: u32) -> [f32; HELD] {
        let address = self.entry.parameter;
        // SAFETY: the caller's promise.
        unsafe {
            match self.entry.format {
                Format::F32 | Format::F32WithBf16 => self.load(address as *const f32, first),
                _ if !master.is_null() => self.load(master.add(self.entry.state as usize), first),
                Format::Bf16 | Format::Bf16WithF32 => self.load(address as *const bf16, first),
                Format::F16 | Format::F16WithF32 => self.load(address as *const f16, first),
            }
        }
    }

    /// Whether the elements of a row in eight columns that begin at a multiple of eight share a block of
    /// random numbers, for all such columns alike: they are eight lanes, that have as many elements.
    #[inline(always)]
    fn shares_blocks(&self) -> bool {
        const { assert!(COLUMNS.is_multiple_of(HALVES as u32) && HELD == HALVES) };
        self.shape.columns.is_multiple_of(HALVES as u32) && self.shape.length.is_multiple_of(HALVES as u64)
    }

    /// Rows of the tile.
    #[inline(always)]
    fn rows(&self) -> u32 {
        ROWS.min(self.shape.rows - self.tile.band * ROWS)
    }
}
