//! Rows of the result that begin anywhere, such as those of an odd number of 16-bit elements: the copy engine
//! stores none of them, and a thread's own elements are two of a row.
//!
//! A warp has 16 rows of a tile, and a ring of shared memory for each. Elements lie in it as far from a
//! boundary of 16 bytes as they will in memory, so whole units of 16 bytes leave as they are, neighbours in
//! neighbouring lanes. What is less than a unit, at the two ends of a tile's row, leaves by elements.
//!
//! ```text
//!   memory      |. . . . . x x x|x x x x x x x x|x x x x x x x x|x x . . . . . .|      boundaries of 16 bytes
//!   ring        |          0 1 2|3 4 5 ..       |               |63 ..             the same, as long as two subtiles' rows
//!               by elements     | 16 bytes a lane               | by elements
//! ```
//! No other warp looks at a warp's rings.

use cuda_std::vector;
use cuda_std::warp::{FULL_MASK, sync_warp};
use primitives::shared_plan::SharedType;
use primitives::unroll;

use super::config::{Config, EpiloguePlan, SUBTILES, Subtile, WARPGROUP};
use super::epilogue::{OutputFlag, Place, StoreEpilogue, in_result};
use super::fusion::{Fusion, Pairs, each_pair};
use super::operands::{Element16, Operands};
use super::tile_scheduler::TileCoord;

/// Rows of a warp.
const WARP_ROWS: u32 = 16;
/// Threads of a warp.
const LANES: u32 = 32;
/// Lanes that have elements of the same row.
const ROW_LANES: u32 = 4;
/// Rows from an element of a pair to that of the pair below.
const ROWS_DOWN: u32 = 8;
/// Columns from a pair to the one beside it.
const STEP_COLUMNS: u32 = 8;
/// Bytes that leave at once.
const UNIT: u32 = layout::UNIT_BYTES;
/// Bytes of all banks of shared memory.
const BANKS: u32 = 128;

/// The rings of a warp.
#[derive(Clone, Copy)]
struct Rings {
    /// Shared address of the first one.
    first: u32,
    /// Bytes of each, a power of two.
    length: u32,
}

impl Rings {
    /// The bytes that a row has `behind` bytes behind the boundary of 16 before its first one. Units change
    /// places, so that those of rows below each other do not meet in one bank.
    #[inline(always)]
    const fn address(self, row: u32, behind: u32) -> u32 {
        let lines = if self.length < BANKS { BANKS / self.length } else { 1 };
        let flip = row / lines * UNIT % if self.length < BANKS { self.length } else { BANKS };
        self.first + row * self.length + ((behind % self.length) ^ flip)
    }
}

/// The part of a tile's rows that a warp stores.
#[derive(Clone, Copy)]
struct WarpRows {
    rings: Rings,
    /// Where the first one begins in memory.
    first: *mut u8,
    /// Bytes from a row to the next.
    pitch: u64,
    /// How many are rows of the result.
    count: u32,
    /// Bytes of the result in each.
    length: u32,
}

impl WarpRows {
    /// Where a row begins: the boundary before it, and how far behind that.
    #[inline(always)]
    fn begin(self, row: u32) -> (*mut u8, u32) {
        let first = self.first.wrapping_add((u64::from(row) * self.pitch) as usize);
        let shift = first.addr() as u32 % UNIT;
        (first.wrapping_sub(shift as usize), shift)
    }

    /// Stores the whole units among bytes `from..from + bytes` behind the boundaries.
    ///
    /// # Safety
    /// All lanes call it, and have written those bytes; the rows are rows of the result, the warp's alone.
    #[inline(always)]
    unsafe fn store_units(self, lane: u32, from: u32, bytes: u32) {
        let units = bytes / UNIT;
        let mut index = 0;
        while index < WARP_ROWS * units / LANES {
            let place = index * LANES + lane;
            let (row, low) = (place / units, from + place % units * UNIT);
            let (boundary, shift) = self.begin(row);
            if row < self.count && low >= shift && low + UNIT <= shift + self.length {
                // SAFETY: a unit of the row, all of which is of the result.
                unsafe {
                    let unit: [u32; 4] = vector::load_shared_v4(self.rings.address(row, low));
                    vector::store_v4(boundary.wrapping_add(low as usize).cast::<u32>(), unit);
                }
            }
            index += 1;
        }
    }

    /// Stores what is less than a unit at the rows' beginnings, or ends.
    ///
    /// # Safety
    /// As for [`WarpRows::store_units`], of the unit that it is in.
    #[inline(always)]
    unsafe fn store_ends<const BYTES: u32>(self, lane: u32, is_first: bool, is_last: bool) {
        let elements = UNIT / BYTES;
        let mut index = 0;
        while index < WARP_ROWS * elements / LANES {
            let place = index * LANES + lane;
            let (row, along) = (place / elements, place % elements * BYTES);
            let (boundary, shift) = self.begin(row);
            let end = shift + self.length;
            let tail = end / UNIT * UNIT;
            // A row within one unit has its first element in it, and no tail.
            let is_head = is_first && shift > 0 && along >= shift && along < end;
            let is_tail = is_last && along < end - tail && (tail > 0 || shift == 0);
            // SAFETY: elements of the result.
            unsafe {
                if row < self.count && is_head {
                    self.store_one::<BYTES>(boundary, row, along);
                }
                if row < self.count && is_tail {
                    self.store_one::<BYTES>(boundary, row, tail + along);
                }
            }
            index += 1;
        }
    }

    /// Stores the element of a row that begins so many bytes behind the boundary.
    ///
    /// # Safety
    /// It is one of the result, and in the ring.
    #[inline(always)]
    unsafe fn store_one<const BYTES: u32>(self, boundary: *mut u8, row: u32, behind: u32) {
        let (from, to) = (self.rings.address(row, behind), boundary.wrapping_add(behind as usize));
        // SAFETY: the caller's contract.
        unsafe {
            if BYTES == 2 {
                to.cast::<u16>().write(vector::load_shared_b16(from));
            } else {
                vector::store(to.cast::<u32>(), vector::load_shared(from));
            }
        }
    }
}

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, F: Fusion> StoreEpilogue<'_, C, F> {
    /// Bytes of a row's ring: a warp's share of two subtiles, for 16 rows.
    const RING: u32 = SUBTILES * Subtile::<C>::BYTES / (WARPGROUP / LANES) / WARP_ROWS;
    /// Bytes of a row that leave at a time.
    const HALF: u32 = Self::RING / 2;

    /// Does the kernel store rows that begin anywhere in this file's way?
    #[inline(always)]
    pub(super) fn is_by_rows(&self) -> bool {
        let format = self.output.format();
        // A chunk is no more than leaves at a time.
        let has_room = C::CHUNK_COLUMNS * format.element().bytes() <= Self::HALF;
        C::BY_ROWS && has_room && format.has(OutputFlag::ByRows)
    }

    /// Puts the pairs of the tile's chunk of this number into the rows' rings, and stores what is full.
    ///
    /// # Safety
    /// All threads of the consumer call it, for chunks in order, each with its pairs. The elements are the
    /// result's, and no other block has the tile. Subtiles are in no other use.
    #[inline(always)]
    pub(super) unsafe fn put_rows<const N: usize>(&self, tile: TileCoord, number: u32, x: &Pairs<N>) {
        let step = self.step(number);
        // SAFETY: the caller's contract.
        unsafe {
            if self.output.format().element().bytes() == 2 {
                self.put::<2, N>(tile, step.place, [step.group, step.column], |pair| {
                    let bits = <C::Operands as Operands>::Element16::pack(x[pair][0], x[pair][1]);
                    [bits, bits >> u16::BITS]
                });
            } else {
                self.put::<4, N>(tile, step.place, [step.group, step.column], |pair| {
                    x[pair].map(f32::to_bits)
                });
            }
        }
    }

    /// The same for elements of so many bytes.
    ///
    /// # Safety
    /// As for [`StoreEpilogue::put_rows`].
    #[inline(always)]
    unsafe fn put<const BYTES: u32, const N: usize>(
        &self,
        tile: TileCoord,
        place: Place<C>,
        [group, column]: [u32; 2],
        pair: impl Fn(usize) -> [u32; 2],
    ) {
        let lane = place.thread % LANES;
        let rows = self.warp_rows(tile, place, group, BYTES);
        let own = lane / ROW_LANES;
        // Eight rows down it is as far from a boundary.
        let (_, shift) = rows.begin(own);
        let first = shift + (column + lane % ROW_LANES * 2) * BYTES;
        each_pair!(PAIR of N {
            let behind = first + (PAIR / 2) as u32 * (STEP_COLUMNS * BYTES);
            let down = (PAIR % 2) as u32 * (ROWS_DOWN * Self::RING);
            let bits = pair(PAIR);
            let to = [behind, behind + BYTES].map(|behind| rows.rings.address(own, behind) + down);
            // SAFETY: places in the warp's rings.
            unsafe {
                if BYTES == 2 {
                    vector::store_shared_b16(to[0], bits[0] as u16);
                    vector::store_shared_b16(to[1], bits[1] as u16);
                } else {
                    vector::store_shared(to[0], bits[0]);
                    vector::store_shared(to[1], bits[1]);
                }
            }
        });
        let (end, half) = ((column + C::CHUNK_COLUMNS) * BYTES, Self::HALF);
        if !end.is_multiple_of(half) || end - half >= rows.length {
            return;
        }
        // SAFETY: the whole warp is here; the row's part before `end` has been written, and what was in the
        // other half of the ring has left.
        unsafe {
            sync_warp(FULL_MASK);
            rows.store_units(lane, end - half, half);
            let (is_first, is_last) = (end == half, end >= rows.length);
            if is_first || is_last {
                rows.store_ends::<BYTES>(lane, is_first, is_last);
            }
            sync_warp(FULL_MASK);
        }
    }

    /// The warp's rows of a group of the tile, of elements of so many bytes.
    #[inline(always)]
    fn warp_rows(&self, tile: TileCoord, place: Place<C>, group: u32, bytes: u32) -> WarpRows {
        let at = in_result::<C>(tile, group, 0);
        let warp = place.thread / LANES;
        let row = at.row + warp * WARP_ROWS;
        let [rows, columns] = self.sides(tile);
        let (bytes, params) = (u64::from(bytes), self.output.params);
        let element =
            u64::from(at.batch) * params.matrix + u64::from(row) * params.row + u64::from(at.column);
        WarpRows {
            rings: Rings {
                first: place.shared.subtile(0) + warp * (WARP_ROWS * Self::RING),
                length: Self::RING,
            },
            first: self.output.data.wrapping_add((element * bytes) as usize),
            pitch: params.row * bytes,
            count: rows.saturating_sub(row),
            length: C::STORED_N.min(columns.saturating_sub(at.column)) * bytes as u32,
        }
    }
}
