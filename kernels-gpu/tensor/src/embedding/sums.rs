//! Sums of the rows of each token, from sorted tokens: see [`super`].

use super::sort::{Pair, token};
use crate::THREADS;
use crate::access;
use cuda_std::{kernel, thread};
use half::{bf16, f16};
use primitives::element::Element;
use primitives::grid::begin;
use primitives::unroll;
use primitives::warp::{self, LANES};

/// Tokens of a tile.
pub const TILE: u32 = LANES;
/// Warps of a block.
const WARPS: u32 = THREADS / LANES;
/// Rows that are under way at a time.
const GROUP: u32 = 4;
/// Parts of a tile in memory: of a run that began before it, and of one that goes on behind it.
pub const PARTS: u64 = 2;

/// The shape of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sums {
    /// Tokens, at least one.
    pub tokens: u32,
    /// Groups of columns: of 32 units a row.
    pub slices: u32,
    /// Elements of a row.
    pub width: u64,
    /// 1 when rows are whole, aligned units of 16 bytes, else 0: units are elements then.
    pub is_wide: u32,
}

impl Sums {
    /// The shape for `tokens` rows of `width` elements of `size` bytes.
    pub const fn new(tokens: u32, width: u64, size: usize, is_wide: bool) -> Self {
        let unit = if is_wide { access::VECTOR_BYTES / size } else { 1 };
        let slices = width.div_ceil(LANES as u64 * unit as u64);
        // A row of 2^37 elements is more than any device's memory.
        Self { tokens, slices: slices as u32, width, is_wide: is_wide as u32 }
    }

    /// Tiles of tokens.
    pub const fn tiles(&self) -> u32 {
        self.tokens.div_ceil(TILE)
    }

    /// Blocks, of [`THREADS`] threads: a warp for each tile and slice.
    pub const fn blocks(&self) -> u64 {
        (self.tiles() as u64 * self.slices as u64).div_ceil(WARPS as u64)
    }
}

/// A warp's part: a tile and columns.
struct Place {
    /// Number of the tile.
    tile: u32,
    /// Its first token.
    start: u32,
    /// Its tokens.
    count: u32,
    /// The lane's first column.
    column: usize,
    /// Whether the lane has columns.
    has_columns: bool,
}

/// The calling warp's part, with units of `N` elements; `None` behind the last.
#[inline(always)]
fn place<const N: usize>(shape: &Sums) -> Option<Place> {
    let thread = thread::thread_idx_x();
    let number = u64::from(thread::block_idx_x()) * u64::from(WARPS) + u64::from(thread / LANES);
    let slices = u64::from(shape.slices.max(1));
    let (tile, slice) = ((number / slices) as u32, number % slices);
    let column = (slice * u64::from(LANES) + u64::from(thread % LANES)) * N as u64;
    let start = tile * TILE;
    (number < u64::from(shape.tiles()) * slices).then(|| Place {
        tile,
        start,
        count: TILE.min(shape.tokens - start),
        column: column as usize,
        has_columns: column < shape.width,
    })
}

/// Adds up the runs of the warp's tile.
///
/// # Safety
/// As the entry points.
#[inline(always)]
unsafe fn add_tiles<T: Element<Wide = f32>, const N: usize>(
    shape: &Sums,
    pairs: *const Pair,
    gradient: *const T,
    parts: *mut f32,
    sums: *mut T,
) {
    let Some(Place { tile, start, count, column, has_columns }) = place::<N>(shape) else { return };
    let (lane, width) = (thread::thread_idx_x() % LANES, shape.width as usize);
    // SAFETY: places of sorted tokens; whole warps shuffle. A lane has its columns to itself, and a run's row
    // belongs to one tile, or to the launch that adds up parts.
    unsafe {
        let mine = *pairs.add((start + lane.min(count - 1)) as usize);
        let first = warp::broadcast(mine, 0);
        // Did the first run begin before the tile, and does the last go on behind it?
        let mut began_before = start > 0 && token(*pairs.add(start as usize - 1)) == token(first);
        let behind = start + count;
        let next_tile = if behind < shape.tokens { token(*pairs.add(behind as usize)) } else { u32::MAX };
        let mut sum = [0.0f32; N];
        let mut at = 0;
        while at < count {
            let mut rows = [[T::ZERO; N]; GROUP as usize];
            unroll!(i in 0..4, {
                let number = at + i as u32;
                // The lower half: the row's place.
                let row = warp::broadcast(mine, number.min(count - 1)) as u32 as usize;
                if number < count && has_columns {
                    rows[i] = access::load(gradient.add(row * width + column));
                }
            });
            unroll!(i in 0..4, {
                let number = at + i as u32;
                let this = token(warp::broadcast(mine, number.min(count - 1)));
                let next = token(warp::broadcast(mine, (number + 1).min(count - 1)));
                if number < count {
                    let values = T::widen(rows[i]);
                    for j in 0..N {
                        sum[j] += values[j];
                    }
                    let is_last = number + 1 == count;
                    let goes_on = if is_last { next_tile == this } else { next == this };
                    if is_last || !goes_on {
                        if has_columns {
                            let part = u64::from(tile) * PARTS + u64::from(!began_before);
                            if began_before || goes_on {
                                access::store(parts.add(part as usize * width + column), sum);
                            } else {
                                access::store(sums.add(this as usize * width + column), T::narrow(sum));
                            }
                        }
                        began_before = false;
                        sum = [0.0; N];
                    }
                }
            });
            at += GROUP;
        }
    }
}

/// Adds up the parts of the run that begins in the warp's tile and goes on behind it, if there is one.
///
/// # Safety
/// As the entry points.
#[inline(always)]
unsafe fn add_runs<T: Element<Wide = f32>, const N: usize>(
    shape: &Sums,
    pairs: *const Pair,
    parts: *const f32,
    sums: *mut T,
) {
    let Some(Place { tile, start, count, column, has_columns }) = place::<N>(shape) else { return };
    let width = shape.width as usize;
    // SAFETY: places of sorted tokens; the launch before wrote the parts of runs that cross ends of tiles.
    unsafe {
        let of = |place: u32| token(*pairs.add(place as usize));
        let (behind, run) = (start + count, of(start + count - 1));
        let begins_here = start == 0 || of(start - 1) != run;
        if !has_columns || behind >= shape.tokens || of(behind) != run || !begins_here {
            return;
        }
        // The last tile that begins with the token: tiles behind it begin with larger ones.
        let (mut last, mut end) = (tile + 1, shape.tiles());
        while end - last > 1 {
            let middle = last + (end - last) / 2;
            if of(middle * TILE) == run {
                last = middle;
            } else {
                end = middle;
            }
        }
        let part =
            |tile: u32, which: u64| parts.add((u64::from(tile) * PARTS + which) as usize * width + column);
        let mut sum = access::load::<f32, N>(part(tile, 1));
        let mut at = tile + 1;
        while at <= last {
            let mut rows = [[0.0f32; N]; GROUP as usize];
            unroll!(i in 0..4, {
                if at + i as u32 <= last {
                    rows[i] = access::load(part(at + i as u32, 0));
                }
            });
            unroll!(i in 0..4, {
                if at + i as u32 <= last {
                    for j in 0..N {
                        sum[j] += rows[i][j];
                    }
                }
            });
            at += GROUP;
        }
        access::store(sums.add(run as usize * width + column), T::narrow(sum));
    }
}

/// Entry points for each element type.
macro_rules! entries {
    ($($tiles:ident, $runs:ident: $ty:ident;)*) => { $(
        #[doc = concat!("Adds up the runs of tokens within tiles, for ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// `pairs` are the sorted tokens with their places, `gradient` has a row for each place, `parts`
        /// [`PARTS`] rows for each tile, and `sums` a row for each token. They are aligned as the shape says.
        /// Blocks of [`THREADS`] threads, [`Sums::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $tiles(shape: Sums, pairs: *const Pair, gradient: *const $ty, parts: *mut f32, sums: *mut $ty) {
            begin(|| ());
            // SAFETY: the caller's contract is the same.
            unsafe {
                if shape.is_wide != 0 {
                    add_tiles::<$ty, { access::VECTOR_BYTES / size_of::<$ty>() }>(&shape, pairs, gradient, parts, sums)
                } else {
                    add_tiles::<$ty, 1>(&shape, pairs, gradient, parts, sums)
                }
            }
        }

        #[doc = concat!("Adds up the parts of runs that cross the ends of tiles, for ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// As above, behind that launch.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $runs(shape: Sums, pairs: *const Pair, parts: *const f32, sums: *mut $ty) {
            begin(|| ());
            // SAFETY: the caller's contract is the same.
            unsafe {
                if shape.is_wide != 0 {
                    add_runs::<$ty, { access::VECTOR_BYTES / size_of::<$ty>() }>(&shape, pairs, parts, sums)
                } else {
                    add_runs::<$ty, 1>(&shape, pairs, parts, sums)
                }
            }
        }
    )* };
}

entries! {
    embedding_tiles_f32, embedding_runs_f32: f32;
    embedding_tiles_f16, embedding_runs_f16: f16;
    embedding_tiles_bf16, embedding_runs_bf16: bf16;
}
