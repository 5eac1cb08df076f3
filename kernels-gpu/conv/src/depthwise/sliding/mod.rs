//! Depthwise convolutions of 3 x 3, 5 x 5 and 7 x 7 taps without dilation, that read each row once.
//!
//! ```text
//!   a thread     a pair of channels, a strip of 4 columns of the result; it goes down the rows:
//!                  x  x  x  x  x  x      a step: a row of x, of which the next one is under way,
//!                  :  :  :  :  :  :      meets the K rows of the result that have it in their windows
//!   in registers K x K numbers (filters, or their gradient's sums) and K rows of 4 (results, or dY), f32
//! ```
//! * A step down moves the window of rows by one. With a stride of 2 a step reads two rows of x, and a window
//!   has half as many rows.
//! * Blocks take segments of the rows of strips, one a thread at a time, neighbours side by side: what their
//!   windows share comes from the L1 cache.
//! * [`forward`] has results and, turned by half a turn, inputs' gradients with strides of 1; [`weight`] has
//!   filters' gradients.
//!
//! | taps | held, of 2 channels | window | x | instructions a step (filters' gradient), of them fma |
//! |---|---|---|---|---|
//! | 3 x 3 | 18 | 24 | 12 | 211, 72 |
//! | 5 x 5 | 50 | 40 | 16 | 416, 200 |
//! | 7 x 7 | 98 | 56 | 20 | 620, 392 |

pub mod forward;
pub mod weight;

use cuda_std::{misc, vector};
use primitives::element::Element;
use primitives::unroll;

use super::{Depthwise, STRIP};
use crate::problem::Odometer;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Channels of a thread: a word of 16-bit elements.
pub const PAIR: usize = 2;
/// Taps along an axis, at most.
const MOST: usize = 7;
/// Columns of what is read that a strip meets, at most.
const MOST_MET: usize = 16;

/// Blocks that share a multiprocessor, by the taps along an axis.
pub const fn resident(taps: u32) -> u32 {
    match taps {
        3 => 4,
        5 => 3,
        _ => 2,
    }
}

/// A convolution of square filters that slide, and how its rows are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sliding {
    /// The convolution, in units of [`PAIR`] channels.
    pub depthwise: Depthwise,
    /// Steps of a segment, at least 1: rows of the result, or in [`weight`] rows and those that follow until
    /// the last windows have ended.
    pub rows: u32,
}

impl Sliding {
    /// Items that a block has at a time, one a thread of those with the same channels.
    pub const fn lines(&self) -> u32 {
        THREADS / if self.depthwise.units == 0 { 1 } else { self.depthwise.units }
    }
}

/// Rows of a window of the result: how many meet a row of what is read.
pub const fn depth(taps: u32, stride: u32) -> u32 {
    taps.div_ceil(if stride == 0 { 1 } else { stride })
}

/// Two channels of neighbours, as they lie in memory.
type Row = [u32; MOST_MET];
/// As numbers.
type Wide = [[f32; PAIR]; MOST_MET];
/// A window: rows of a strip, the newest first.
type Window = [[[f32; PAIR]; STRIP]; MOST];
/// A number for each tap.
type Taps = [[[f32; PAIR]; MOST]; MOST];

/// The rows of a tensor, at columns side by side of one image.
#[derive(Clone, Copy)]
struct Rows<T> {
    /// The pair of the first column in row 0, which need not be in the tensor.
    first: *const T,
    /// Rows of the image.
    count: u32,
    /// Columns of the image.
    width: u32,
    /// Bytes from a column to the next.
    distance: u32,
    /// A bit for each column that there is.
    columns: u32,
}

impl<T: Element<Wide = f32>> Rows<T> {
    /// Rows of `[height, width]` positions of `channels` at `base`, which is the pair in the first position
    /// of all; `COUNT` columns from `first` on.
    #[inline(always)]
    fn new<const COUNT: u32>(
        base: *const T,
        image: u32,
        [height, width]: [u32; 2],
        channels: u32,
        first: i32,
    ) -> Self {
        // Those from `before` on and below `end`, of at most 16.
        let before = if first < 0 { first.unsigned_abs().min(COUNT) } else { 0 };
        let end = (i64::from(width) - i64::from(first)).clamp(0, COUNT.into()) as u32;
        let columns = ((1u32 << end) - 1) & !((1u32 << before) - 1);
        let row = u64::from(image) * u64::from(height) * u64::from(width);
        let place = row.wrapping_add(i64::from(first) as u64).wrapping_mul(channels.into());
        Self {
            first: base.wrapping_add(place as usize),
            count: height,
            width,
            distance: channels * size_of::<T>() as u32,
            columns,
        }
    }

    /// `COUNT` pairs of a row; zeros where there is none, or no such row, or it is not `wanted`.
    ///
    /// # Safety
    /// Pairs of the tensor are readable, and whole words.
    #[inline(always)]
    unsafe fn load<const COUNT: usize>(&self, row: i32, wanted: bool) -> Row {
        let mut words = [0; MOST_MET];
        let is_there = wanted & ((row as u32) < self.count);
        let columns = if is_there { self.columns } else { 0 };
        // No column's offset is kept across the steps.
        let distance = u64::from(misc::opaque(self.distance));
        let position = i64::from(row.wrapping_mul(self.width as i32)) as u64;
        let from = self.first.wrapping_byte_add(position.wrapping_mul(distance) as usize);
        unroll!(I in 0..16, { if I < COUNT {
            let at = from.wrapping_byte_add((distance * I as u64) as usize);
            // SAFETY: the caller's word, for columns that there are.
            words[I] = unsafe { vector::load_if(at.cast::<u32>(), columns & (1 << I) != 0) };
        } });
        words
    }
}

/// The numbers of a row.
#[inline(always)]
fn widen<T: Element<Wide = f32> + vector::Plain, const COUNT: usize>(row: &Row) -> Wide {
    let mut wide = [[0.0; PAIR]; MOST_MET];
    unroll!(I in 0..16, { if I < COUNT {
        let pair: [T; 8] = vector::from_words([row[I], 0, 0, 0]);
        wide[I] = T::widen([pair[0], pair[1]]);
    } });
    wide
}

/// The first [`STRIP`] of a row.
#[inline(always)]
fn strip([a, b, c, d, ..]: Wide) -> [[f32; PAIR]; STRIP] {
    [a, b, c, d]
}

/// A segment of a strip: image, segment and strip.
type Item = Odometer;

/// The columns of a row of x that a strip meets.
///
/// # Safety
/// As [`Rows::load`].
#[inline(always)]
unsafe fn load_met<T: Element<Wide = f32>, const K: usize, const STRIDE: usize>(
    x: &Rows<T>,
    row: i32,
    wanted: bool,
) -> Row {
    // SAFETY: the caller's word.
    unsafe {
        match (K, STRIDE) {
            (3, 1) => x.load::<6>(row, wanted),
            (5, 1) => x.load::<8>(row, wanted),
            (7, 1) => x.load::<10>(row, wanted),
            (3, _) => x.load::<9>(row, wanted),
            (5, _) => x.load::<11>(row, wanted),
            _ => x.load::<13>(row, wanted),
        }
    }
}
