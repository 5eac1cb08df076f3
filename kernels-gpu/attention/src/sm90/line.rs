//! Biases that fall by a slope on both sides of the diagonal (ALiBi).
//!
//! On one side of the diagonal the bias of a score is a number of its row and one of its column in the block.
//! Tensor cores add that of the column: one more step of k, with the slope on the left, in registers, and
//! the columns' numbers on the right, in shared memory. So scores of a row are measured from a number of the
//! row's, which the running maximum follows from block to block ([`Rows::shift`]). Blocks that the diagonal
//! goes through, where both sides are seen, begin with the biases themselves.

use cuda_std::{fence, misc, vector, wgmma};
use layout::wgmma::{Swizzle, advance, descriptor};
use primitives::unroll;
use primitives::wgmma::Element16;

use super::config::{CONSUMER_ROWS, Config, Plan};
use super::forward::Consumer;
use super::fragments::{Fragment, steps};
use super::schedule::Ticket;
use crate::score::ScoreFunction;
use crate::softmax::Rows;

/// The scale of scores counts as this at least, where sums of products are measured in it.
pub(super) const LEAST_SCALE: f32 = 1.0 / (1u64 << 62) as f32;
/// Slopes up to it go through tensor cores: scores measured from a block's first column are not much less
/// exact than those themselves. ALiBi's are below it.
const MOST_SLOPE: f32 = 1.0;
/// And in sums of products they are below this, which f16 has.
const MOST_IN_PRODUCTS: f32 = 32768.0;
/// Numbers of a column on the right, of which tensor cores read each twice; with as many of the next seven
/// columns they are a core matrix, 128 bytes.
const COLUMN_BYTES: u32 = 16;
const CORE_COLUMNS: u32 = 8;
/// Bytes on the right of a block of so many columns.
pub(super) const fn bytes_of(columns: u32) -> u32 {
    columns * COLUMN_BYTES
}

/// Writes the numbers on the right: of each column its place in the block, for each part of the slope.
///
/// # Safety
/// All threads of the block call it, before they meet and any product is begun.
#[inline(always)]
pub(super) unsafe fn write_columns<C: Config>(shared: Plan<C>, thread: u32) {
    let mut column = thread;
    while column < C::BLOCK_N {
        let (place, none) = (column as f32, 0.0);
        let words =
            [C::Element::pack(place, place), C::Element::pack(place, none), C::Element::pack(none, none), 0];
        // SAFETY: the caller's contract: a place of the thread's own.
        unsafe { vector::store_shared_v4(shared.columns(0) + column * COLUMN_BYTES, words) }
        column += C::THREADS;
    }
    fence::proxy_async_shared();
}

/// The biases of a consumer's scores, block by block.
#[derive(Clone, Copy)]
pub(super) struct Biases {
    /// The amount by which scores fall with each key of distance, in sums of products.
    slope: f32,
    /// The slope in three parts of the element type, the thread's of the left operand.
    parts: u32,
    /// Whether scores are measured as they are in all blocks.
    is_steep: bool,
    /// The distance of the consumer's first row and the block's first column from the diagonal.
    first: i32,
    /// From here scores of the thread's rows are measured.
    from: [f32; 2],
    /// The left operand of the block.
    left: [u32; 4],
    /// Whether scores begin with their biases.
    has_begun: bool,
}

impl Biases {
    /// Of a function without a slope.
    const NONE: Self = Self {
        slope: 0.0,
        parts: 0,
        is_steep: false,
        first: 0,
        from: [0.0; 2],
        left: [0; 4],
        has_begun: false,
    };
}

impl<C: Config> Consumer<'_, C> {
    /// The biases of a tile that begins with this block.
    ///
    /// # Safety
    /// As for [`Ticket::place`].
    #[inline(always)]
    pub(super) unsafe fn biases(self, ticket: Ticket, block: u32) -> Biases {
        if !C::Function::HAS_SLOPE {
            return Biases::NONE;
        }
        // SAFETY: the caller's contract.
        let (tile, sequence) = unsafe { ticket.place() };
        let given = self.arguments.function.slope(tile.head);
        let slope = given / self.softmax_scale();
        let is_steep = given.abs() > MOST_SLOPE || slope.abs() >= MOST_IN_PRODUCTS;
        let diagonal = self.arguments.params.band.diagonal(sequence.queries, sequence.keys);
        let row = tile.first_row + self.consumer * CONSUMER_ROWS;
        // Each part is what the ones before it leave of the slope.
        let part_of = |rest: f32| C::Element::unpack(C::Element::pack(rest, 0.0))[0];
        let high = part_of(slope);
        let middle = part_of(slope - high);
        let low = slope - high - middle;
        // Columns 0 and 1 of k are those of a row's first lane, 2 and 3 those of its second.
        let parts = match self.thread % 4 {
            0 => C::Element::pack(high, middle),
            1 => C::Element::pack(low, 0.0),
            _ => 0,
        };
        let first = (block * C::BLOCK_N) as i32 - diagonal - row as i32;
        Biases { slope, parts, is_steep, first, ..Biases::NONE }
    }

    /// Begins the scores of a block, where their biases are no step of k; `rows` are measured as they are.
    ///
    /// # Safety
    /// The whole warpgroup is here, and no product of these scores is under way.
    #[inline(always)]
    pub(super) unsafe fn begin(self, scores: &mut C::Scores, rows: &mut Rows, biases: &mut Biases) {
        if !C::Function::HAS_SLOPE {
            return;
        }
        let Biases { slope, parts, is_steep, first, from: before, .. } = *biases;
        let (least, most) = (first + 1 - CONSUMER_ROWS as i32, first + C::BLOCK_N as i32 - 1);
        // Where nothing is seen on the right of the diagonal, all may count as left of it.
        let is_bent = least < 0 && most > 0 && self.arguments.params.band.right > 0;
        let is_right = !is_bent && least >= 0;
        // Distances are negative on the left.
        let rise = if is_right { -slope } else { slope };
        let place = Self { thread: misc::opaque(self.thread), ..self };
        let of_row = first - (place.row() % CONSUMER_ROWS) as i32;
        biases.has_begun = is_bent || is_steep;
        if biases.has_begun {
            let of_first = of_row + (place.thread % 4 * 2) as i32;
            set(scores, |row, column| {
                let distance = (of_first + column - row) as f32;
                if is_bent { -slope * distance.abs() } else { rise * distance }
            });
            (biases.left, biases.from) = ([0; 4], [0.0; 2]);
        } else {
            let sign = if is_right { 0x8000_8000 } else { 0 };
            biases.left = [parts ^ sign, parts ^ sign, 0, 0];
            biases.from = [0, 8].map(|below| rise * (of_row - below) as f32);
        }
        rows.shift([before[0] - biases.from[0], before[1] - biases.from[1]]);
    }

    /// Starts the step of k of the biases.
    ///
    /// # Safety
    /// As for [`wgmma::mma_ra`]; the scores have [begun](Self::begin).
    #[inline(always)]
    pub(super) unsafe fn multiply_biases(self, scores: &mut C::Scores, biases: &Biases) {
        let columns = descriptor(0, 0, CORE_COLUMNS * COLUMN_BYTES, Swizzle::None);
        let columns = advance(columns, self.shared.columns(0));
        // SAFETY: the caller's contract. The second half of k has the same numbers, times zeros.
        unsafe {
            wgmma::mma_ra::<C::Element, C::Element, C::Scores, 0>(
                scores,
                &biases.left,
                columns,
                biases.has_begun,
            );
        }
    }
}

impl Biases {
    /// The place is that of the block with the numbers before.
    #[inline(always)]
    pub(super) fn next<C: Config>(&mut self) {
        self.first -= C::BLOCK_N as i32;
    }

    /// Keeps the compiler from moving writes of the left operand behind this place.
    #[inline(always)]
    pub(super) fn fence<C: Config>(&mut self) {
        if C::Function::HAS_SLOPE {
            wgmma::fence_operand(&mut self.left);
        }
    }

    /// Ends a tile: maxima of its rows are those of whole scores.
    #[inline(always)]
    pub(super) fn end<C: Config>(self, rows: &mut Rows) {
        if C::Function::HAS_SLOPE {
            rows.shift(self.from);
        }
    }
}

/// Sets a thread's scores to numbers by their row and column, counted from the thread's first.
#[inline(always)]
fn set<S: Fragment>(scores: &mut S, number: impl Fn(i32, i32) -> f32) {
    let x = scores.as_mut();
    unroll!(STEP in 0..32, {
        if STEP < steps::<S>() {
            unroll!(ROW in 0..2, {
                unroll!(I in 0..2, {
                    x[4 * STEP + 2 * ROW + I] = number(8 * ROW as i32, (8 * STEP + I) as i32);
                });
            });
        }
    });
}
