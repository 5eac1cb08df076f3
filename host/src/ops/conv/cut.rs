//! How results of windows are cut into tiles and parts of k, by estimates.
//!
//! An H200, 2026-11-29, 60 convolutions drawn at random, each by all three kernels: a stage takes as long as
//! the copy engine needs for its rows once all multiprocessors copy. Rows of channels that do not begin at
//! lines of 128 bytes take it nearly twice as long. Few blocks wait for each stage instead.

use conv::sm90::{DEPTH, Entry, filters_of_box};

use crate::stream::Stream;

use super::weight::{MAX_PARTS, add_us};
use super::{Algorithm, Tile};

/// Microseconds of a stage of a tile of 256 x 128, of 128 x 128 and of 128 x 64: where channels fill stages
/// and where they do not; of few blocks, and where all multiprocessors have one. Read off what those
/// 60 took; no convolution of them has 0.72, which follows from twice the products of 128 x 128.
const STAGE_US: [[[f64; 2]; 2]; 3] =
    [[[0.57, 0.72], [0.57, 0.92]], [[0.29, 0.38], [0.33, 0.57]], [[0.14, 0.26], [0.27, 0.40]]];
/// Requests that a multiprocessor's copy engine makes in a microsecond: of few blocks (192 rows of 128 x 64
/// in 0.14), and where all multiprocessors have one, as of products. A row of a box is one, and one more
/// where it lacks channels. Taken over from other tiles: convolutions of few channels took 0.7 to 1.4 times
/// what such counts foresaw (`benches/NOTES.md`).
const REQUESTS_PER_US: [f64; 2] = [1300.0, 750.0];
/// Products of a stage, of 64 along k, that a multiprocessor makes in a microsecond: those of 128 x 128.
const PRODUCTS_PER_US: f64 = 128.0 * 128.0 / STAGE_US[1][0][0];
/// Kernels of 128 x 128 and of 128 x 64, for which that table is too.
const OF_128: [usize; 2] = [1, 2];
/// Microseconds of a launch beside its stages, about.
const LAUNCH_US: f64 = 3.0;

/// Tiles and parts of a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// Which kernel.
    pub index: usize,
    /// Parts of k, and stages of each: the last one may have fewer.
    pub parts: u32,
    pub stages: u32,
    /// Of all parts.
    pub tiles: u64,
    /// Estimated microseconds.
    pub time_us: f64,
}

/// A batch of products of m by n, and stages of k, before they are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides {
    pub batch: u32,
    pub m: u32,
    pub n: u32,
    pub stages: u32,
    /// Microseconds of a stage by each kernel of the table: of few blocks, and where all multiprocessors have
    /// one.
    pub stage_us: [[f64; 2]; 3],
}

impl Sides {
    /// Of so many taps of so many channels, by filters along channels too.
    pub fn new(sides: [u32; 3], taps: u32, channels: u32) -> Self {
        Self::by_lines(sides, taps, channels, true)
    }

    /// The same by filters whose rows keep to lines or do not, which is as slow as where channels do not fill
    /// stages: five of an H200, of 16 x 32 x 32 x 296 from 192 and the like, took 0.89 to 1.05 times this.
    pub fn by_lines([batch, m, n]: [u32; 3], taps: u32, channels: u32, is_in_lines: bool) -> Self {
        let is_aligned = channels.is_multiple_of(DEPTH) && is_in_lines;
        let stage_us = STAGE_US.map(|kernel| kernel[usize::from(!is_aligned)]);
        Self { batch, m, n, stages: taps * channels.div_ceil(DEPTH), stage_us }
    }

    /// Of several taps a stage, each with `depth` channels, of which the tensor has so many.
    pub fn few([m, n]: [u32; 2], taps: u32, [channels, depth]: [u32; 2], entries: [Entry; 2]) -> Self {
        let of_row = if channels == depth { 1 } else { 2 } * (DEPTH / depth);
        let stage_us = |Entry { block: [block_m, block_n], .. }: Entry| {
            let requests = f64::from(block_m * of_row + filters_of_box(n, block_n));
            let least = f64::from(block_m) * f64::from(block_n) / PRODUCTS_PER_US;
            REQUESTS_PER_US.map(|rate| least.max(requests / rate))
        };
        let [wide, narrow] = entries.map(stage_us);
        Self { batch: 1, m, n, stages: (taps * depth).div_ceil(DEPTH), stage_us: [wide, narrow, narrow] }
    }

    /// Whole, by kernel `index` of the table, of these tiles.
    fn whole(&self, multiprocessors: u32, index: usize, [block_m, block_n]: [u32; 2]) -> Cut {
        let tiles = [self.batch, self.m.div_ceil(block_m), self.n.div_ceil(block_n)].map(u64::from);
        let tiles = tiles.iter().product();
        let [alone, all] = self.stage_us[index];
        let rounds = tiles as f64 / f64::from(multiprocessors.max(1));
        let stage_us = alone + (all - alone) * rounds.min(1.0);
        let time_us = LAUNCH_US + rounds.ceil() * f64::from(self.stages) * stage_us;
        Cut { index, parts: 1, stages: self.stages, tiles, time_us }
    }

    /// In about so many parts, of a batch of one.
    fn in_parts(&self, multiprocessors: u32, index: usize, block: [u32; 2], count: u32) -> Cut {
        let stages = self.stages.div_ceil(count).max(1);
        let parts = self.stages.div_ceil(stages);
        let cut = Self { batch: parts, stages, ..*self }.whole(multiprocessors, index, block);
        let bytes = f64::from(parts) * f64::from(self.m) * f64::from(self.n) * size_of::<f32>() as f64;
        Cut { parts, time_us: cut.time_us + add_us(bytes), ..cut }
    }

    /// The cut into tiles, of [`OF_128`], that is asked for or estimated to take the least time.
    pub fn tiles(&self, stream: &Stream, algorithm: Algorithm, entries: [Entry; 2]) -> Cut {
        let multiprocessors = stream.device().properties().sm_count;
        let cuts =
            [0, 1].map(|i| Cut { index: i, ..self.whole(multiprocessors, OF_128[i], entries[i].block) });
        match algorithm {
            Algorithm::Windows(Tile::Narrow) => cuts[1],
            Algorithm::Windows(Tile::Wide) | Algorithm::TallWindows | Algorithm::WindowsInParts(_) => cuts[0],
            Algorithm::Auto | Algorithm::Gather(_) => faster(cuts[0], cuts[1]),
        }
    }

    /// Numbers of parts worth an estimate: those that fill all multiprocessors once or twice, and halves of
    /// them, which have fewer sums to add. None for results that the second launch cannot count.
    fn counts(&self, multiprocessors: u32, whole: &Cut) -> impl Iterator<Item = u32> + use<> {
        let full = u64::from(multiprocessors) / whole.tiles.max(1);
        let (most, is_counted) = (MAX_PARTS.min(self.stages), self.can_be_in_parts());
        let counts = [2 * full, full, full / 2, full / 4, full / 8].map(|count| count as u32);
        counts.into_iter().filter(move |count| is_counted && (2..=most).contains(count))
    }

    /// Whether the launch that adds parts can count the results.
    fn can_be_in_parts(&self) -> bool {
        self.m.checked_mul(self.n).is_some()
    }

    /// The same of all kernels of the table, and into parts. The last one is the narrowest.
    pub fn cut<const N: usize>(&self, stream: &Stream, algorithm: Algorithm, entries: [Entry; N]) -> Cut {
        let multiprocessors = stream.device().properties().sm_count;
        let whole = |index: usize| self.whole(multiprocessors, index, entries[index].block);
        let in_parts =
            |index: usize, count| self.in_parts(multiprocessors, index, entries[index].block, count);
        // Of two that take as long the narrower one.
        let all = (0..N).rev();
        let cut = match algorithm {
            Algorithm::TallWindows => Some(whole(0)),
            Algorithm::Windows(Tile::Wide) => Some(whole(OF_128[0])),
            Algorithm::Windows(Tile::Narrow) => Some(whole(N - 1)),
            Algorithm::WindowsInParts(count) if self.can_be_in_parts() => {
                all.map(|index| in_parts(index, count.clamp(1, MAX_PARTS))).reduce(faster)
            }
            Algorithm::Auto | Algorithm::Gather(_) | Algorithm::WindowsInParts(_) => all
                .flat_map(|index| {
                    let whole = whole(index);
                    let counts = self.counts(multiprocessors, &whole);
                    counts.map(move |count| in_parts(index, count)).chain([whole])
                })
                .reduce(faster),
        };
        cut.unwrap_or_else(|| whole(0))
    }
}

/// Whether rows of so many elements, one behind the other and brought by [`DEPTH`] at most, lie in a line of
/// 128 bytes each.
pub(super) const fn keeps_to_lines(row: u32) -> bool {
    row.is_multiple_of(DEPTH) || DEPTH.is_multiple_of(row)
}

fn faster(a: Cut, b: Cut) -> Cut {
    if b.time_us < a.time_us { b } else { a }
}
