//! The walk along rows, for every reduction that goes by rows.
//!
//! ```text
//!   a row's chunk:   |head|  unit 0  |  unit 1  | .. |tail|
//!                     ^ up to the first 16-byte boundary   ^ what makes no whole unit
//! ```
//! Thread `t` of a group takes the units `t, t + group, ..`, four under way at a time, then one element of head or tail; the group's
//! threads are combined by a butterfly in each warp and then in one. A group is a thread, some warps, or a block.

use crate::access::{Plain, Words};
use crate::{THREADS, VECTOR_BYTES, access};
use cuda_std::{shared_array, thread, warp};

/// Units that a thread has under way, and as many as a thread needs when it has little to do beside them.
pub const UNROLL: usize = 4;
/// Lanes of a warp.
const LANES: u32 = 32;
/// Every lane of a warp.
const ALL_LANES: u32 = u32::MAX;
/// Warps of a block.
const WARPS: usize = (THREADS / LANES) as usize;
/// Longest rows that a thread takes alone, elements.
const SHORT: u64 = 16;
/// Longest rows that a warp takes alone, bytes.
const MEDIUM: u64 = 4096;
/// Chunks of rows that keep every device busy, many times over.
const ENOUGH: u64 = 4096;

/// How rows are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rows {
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub columns: u64,
    /// Elements of a chunk; the last one of a row may have fewer.
    pub chunk: u64,
    /// Chunks of a row. More than one only for fewer than 2^31 chunks in all.
    pub chunks: u32,
    /// A chunk is taken by `2^shift` threads.
    pub shift: u32,
}

impl Rows {
    /// How `rows` of `columns` elements of `size` bytes are dealt out, to threads that take `share` units each where there are enough rows.
    pub const fn new(rows: u64, columns: u64, size: usize, share: u64) -> Self {
        let unit = (VECTOR_BYTES / size) as u64;
        let shift = if columns <= SHORT {
            0
        } else if columns.saturating_mul(size as u64) <= MEDIUM {
            LANES.ilog2()
        } else if rows < ENOUGH {
            THREADS.ilog2()
        } else {
            let threads = columns / (unit * share);
            if threads > THREADS as u64 {
                THREADS.ilog2()
            } else if threads < LANES as u64 {
                LANES.ilog2()
            } else {
                threads.ilog2()
            }
        };
        let tile = unit * THREADS as u64 * UNROLL as u64;
        let wanted = if rows == 0 || rows >= ENOUGH { 1 } else { ENOUGH / rows };
        let most = columns.div_ceil(tile);
        let chunks = if most < wanted { most } else { wanted };
        // Whole units, so that chunks begin at a boundary when rows do.
        let chunk = if chunks <= 1 { columns } else { columns.div_ceil(chunks).next_multiple_of(unit) };
        let chunks = if chunk == 0 { 1 } else { columns.div_ceil(chunk) };
        Self { rows, columns, chunk, chunks: chunks as u32, shift }
    }

    /// One chunk a row, of candidates that stand one by one.
    pub const fn whole(rows: u64, columns: u64) -> Self {
        Self { rows, columns, chunk: columns, chunks: 1, shift: THREADS.ilog2() }
    }

    /// Blocks, of [`THREADS`] threads.
    pub const fn blocks(&self) -> u64 {
        (self.rows * self.chunks as u64).div_ceil((THREADS >> self.shift) as u64)
    }
}

/// A chunk of a row as the threads of a group see it.
pub struct Chunk {
    /// Which, of all chunks of all rows; what there is none of has no elements and no result.
    pub number: u64,
    /// Its row.
    pub row: u64,
    /// Its first element's place in the row.
    pub start: u64,
    /// Its elements.
    pub len: u64,
    /// Which of the group's threads this one is.
    lane: u64,
    /// Threads of the group.
    group: u64,
    /// Is there such a chunk?
    exists: bool,
}

impl Rows {
    /// The calling thread's chunk.
    #[inline(always)]
    pub fn chunk(&self) -> Chunk {
        let (shift, thread) = (self.shift & 31, thread::thread_idx_x());
        let number =
            u64::from(thread::block_idx_x()) * u64::from(THREADS >> shift) + u64::from(thread >> shift);
        let (row, chunk) = if self.chunks > 1 {
            let chunks = self.chunks.max(1);
            (u64::from(number as u32 / chunks), u64::from(number as u32 % chunks))
        } else {
            (number, 0)
        };
        let start = chunk * self.chunk;
        let exists = row < self.rows;
        let len = if exists { self.chunk.min(self.columns.saturating_sub(start)) } else { 0 };
        let group = 1u32 << shift;
        Chunk { number, row, start, len, lane: u64::from(thread & (group - 1)), group: group.into(), exists }
    }
}

impl Chunk {
    /// Which of the group's threads the calling one is.
    #[inline(always)]
    pub fn lane(&self) -> u64 {
        self.lane
    }

    /// Threads of the group.
    #[inline(always)]
    pub fn group(&self) -> u64 {
        self.group
    }
}

/// What a reduction does with elements.
pub trait Reducer<T>: Copy {
    /// Knowledge of some elements.
    type State: Copy;
    /// Knowledge of none.
    fn start(self) -> Self::State;
    /// That of a further element, which has the number `number` in the chunk.
    fn absorb_one(self, state: Self::State, value: T, number: u32) -> Self::State;
    /// That of a further unit of `N` elements, the first of which has the number `first` in the chunk and comes behind those of earlier
    /// units.
    fn absorb<const N: usize>(self, state: Self::State, unit: Words, first: u32) -> Self::State;
    /// The same for four units.
    #[inline(always)]
    fn absorb_four<const N: usize>(
        self,
        state: Self::State,
        [a, b, c, d]: [Words; UNROLL],
        first: [u32; UNROLL],
    ) -> Self::State {
        let state = self.absorb::<N>(self.absorb::<N>(state, a, first[0]), b, first[1]);
        self.absorb::<N>(self.absorb::<N>(state, c, first[2]), d, first[3])
    }
    /// That of both. Does not depend on which is which.
    fn merge(self, a: Self::State, b: Self::State) -> Self::State;
    /// That of the lane `distance` away.
    ///
    /// # Safety
    /// All lanes of the warp take part.
    unsafe fn exchange(self, state: Self::State, distance: u32) -> Self::State;
    /// As two words, for shared memory.
    fn to_words(state: Self::State) -> [u64; 2];
    /// From these words.
    fn from_words(words: [u64; 2]) -> Self::State;
}

/// What the calling thread's elements of the chunk, at `elements`, come to.
///
/// # Safety
/// `elements` is readable for the chunk, which has fewer than 2^32 of them.
#[inline(always)]
pub unsafe fn absorb<T: Plain, R: Reducer<T>, const N: usize>(
    reducer: R,
    chunk: &Chunk,
    elements: *const T,
) -> R::State {
    let mut state = reducer.start();
    let to_boundary = (elements as usize).wrapping_neg() % VECTOR_BYTES / size_of::<T>();
    // A thread that is alone goes one by one.
    let head = if chunk.group == 1 { chunk.len } else { chunk.len.min(to_boundary as u64) };
    // A unit has two elements at least, so their numbers, and those some steps beyond the last, fit in 32 bits.
    const { assert!(N >= 2) };
    let (units, group) = (((chunk.len - head) / N as u64) as u32, chunk.group as u32);
    let ahead = group * (UNROLL as u32 - 1);
    let mut unit = chunk.lane as u32;
    // SAFETY: units and elements of the chunk only; units begin at a boundary.
    unsafe {
        let body = elements.add(head as usize);
        let load = |unit: u32| access::load_words(body.add(unit as usize * N));
        let number = |unit: u32| (head as u32).wrapping_add(unit.wrapping_mul(N as u32));
        const { assert!(UNROLL == 4) };
        while unit + ahead < units {
            let units = [0, 1, 2, 3].map(|i| unit + i * group);
            state = reducer.absorb_four::<N>(state, units.map(load), units.map(number));
            unit += UNROLL as u32 * group;
        }
        // At most three are left: all under way before the first is looked at.
        let [mut next, mut second, third] = [0, 1, 2].map(|i| {
            let unit = unit + i * group;
            if unit < units { load(unit) } else { Words::default() }
        });
        while unit < units {
            state = reducer.absorb::<N>(state, next, number(unit));
            (next, second) = (second, third);
            unit += group;
        }
        let edges = chunk.len - u64::from(units) * N as u64;
        let mut edge = chunk.lane;
        while edge < edges {
            let place = if edge < head { edge } else { edge + u64::from(units) * N as u64 };
            state = reducer.absorb_one(state, *elements.add(place as usize), place as u32);
            edge += chunk.group;
        }
    }
    state
}

/// The knowledge of all threads of a group, in its first thread; whether this one is to write it.
///
/// # Safety
/// Every thread of the block calls it.
#[inline(always)]
pub unsafe fn gather<T, R: Reducer<T>>(reducer: R, chunk: &Chunk, state: R::State) -> Option<R::State> {
    let writes = chunk.exists && chunk.lane == 0;
    if chunk.group == 1 {
        return if writes { Some(state) } else { None };
    }
    // SAFETY: whole warps, since groups are.
    let mut state = unsafe { butterfly::<T, R>(reducer, state, LANES) };
    // The same for all threads: groups are alike.
    if chunk.group > u64::from(LANES) {
        let slots = shared_array![[u64; 2]; WARPS];
        let (warp, lane) = (thread::thread_idx_x() / LANES, thread::thread_idx_x() % LANES);
        let warps = (chunk.group / u64::from(LANES)) as u32;
        // SAFETY: one slot a warp, written by one lane before the barrier and read after it. Of the group's slots each is read by one
        // lane at least, and it does not matter by how many: groups of warps are powers of two.
        unsafe {
            if lane == 0 {
                *slots.add(warp as usize) = R::to_words(state);
            }
            thread::sync_threads();
            let first = warp & !(warps - 1);
            state = R::from_words(*slots.add((first + (lane & (warps - 1))) as usize));
            state = butterfly::<T, R>(reducer, state, warps);
        }
    }
    if writes { Some(state) } else { None }
}

/// The knowledge of every `lanes` neighbours of the warp, a power of two, in each of them.
///
/// # Safety
/// All lanes of the warp take part.
#[inline(always)]
unsafe fn butterfly<T, R: Reducer<T>>(reducer: R, mut state: R::State, lanes: u32) -> R::State {
    let mut distance = lanes / 2;
    while distance > 0 {
        // SAFETY: the caller's promise.
        state = reducer.merge(state, unsafe { reducer.exchange(state, distance) });
        distance /= 2;
    }
    state
}

/// A value of the lane `distance` away.
///
/// # Safety
/// All lanes of the warp take part.
#[inline(always)]
pub unsafe fn from_lane<V: warp::WarpShuffleValue>(value: V, distance: u32) -> V {
    // SAFETY: the caller's promise.
    unsafe { warp::warp_shuffle_xor(ALL_LANES, value, distance, LANES).0 }
}

#[cfg(test)]
mod tests {
    use super::{Rows, UNROLL};

    #[test]
    fn chunks_cover_rows() {
        for size in [1, 2, 4, 8] {
            for rows in [1, 2, 7, 100, 4095, 4096, 1 << 20] {
                for columns in [0, 1, 16, 17, 1000, 4096, 16_384, 16_385, 1 << 20, (1 << 28) + 3] {
                    let plan = Rows::new(rows, columns, size, UNROLL as u64);
                    let what = format!("{rows} x {columns} x {size}: {plan:?}");
                    assert!(plan.chunks >= 1 && plan.chunk * u64::from(plan.chunks) >= columns, "{what}");
                    assert!(
                        plan.chunks == 1 || plan.chunk * (u64::from(plan.chunks) - 1) < columns,
                        "{what}"
                    );
                    assert!(
                        plan.chunks == 1 || plan.shift == 8 && rows * u64::from(plan.chunks) <= 4096,
                        "{what}"
                    );
                    assert!(plan.chunk < 1 << 32, "{what}");
                }
            }
        }
    }
}
