//! From the accumulators to global memory.
//!
//! A consumer's part of a tile leaves in one of two ways:
//!
//! * **plain**: rounded to 16 bits, `stmatrix` into a piece of 64 rows in shared memory, and the copy engine takes it from there while
//!   the next piece fills. What lies outside of the result it leaves out. All of it is unrolled.
//! * **through the epilogue**: in a loop over chunks of 64 rows and 32 columns, sixteen accumulators of a thread; half of that next to 192 accumulators,
//!   where there is no room. A jump picks them, since registers have no index; so the epilogue is there once, whatever it does. The results go the same way
//!   over a piece in shared memory, or, where the copy engine cannot store them, from the registers to global memory.
//!   What is added to each element (the old result, a residual) can come the same way: the copy engine fetches it into the piece that the
//!   results will leave by, where each thread reads its elements' before it writes them.
//!
//! ```text
//!   products of the tile | piece 0     | piece 1     | piece 2     | piece 3
//!   fetch 0, 1           |             |    fetch 2  |    fetch 3  |               a piece is fetched when the one before it in its place has left
//!                        |       store 0 |     store 1 |     store 2 |     store 3
//! ```
//!
//! Of kernels that store the transpose, neighbours in a row of the result are in neighbouring lanes: those change one of two before the epilogue.

use cuda_std::tma::TensorMap;
use cuda_std::{barrier, convert, fence, mbarrier, misc, tma, vector};

use super::config::{Config, HALF_BYTES, WARPGROUP};
use super::epilogue::{At, Columns, Epilogue, Pairs, aligned, each_pair};
use super::kernel::{FIRST_CONSUMER_BARRIER, Sink};
use super::operands::{GROUP_ROWS, Half, Operands, Tile};
use super::piece::{Lines, Slots, Spot, chunk, exchange};
use super::pipeline::Ring;
use super::problem::{Corner, Maps, Problem};
use crate::unroll::unrolled;

/// Element types of results.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// The kernel's 16-bit type.
    Half = 0,
    /// f32.
    F32 = 1,
    /// 8 bits, up to 448; what is beyond becomes that.
    E4m3 = 2,
    /// 8 bits, up to 57344; what is beyond becomes that.
    E5m2 = 3,
}

impl Number {
    /// Bytes of an element.
    #[inline(always)]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F32 => 4,
            Self::Half => 2,
            Self::E4m3 | Self::E5m2 => 1,
        }
    }

    /// Rounds pairs, of types of at most 16 bits: the first one's bits are the lower ones.
    #[inline(always)]
    fn pack<H: Half, const N: usize>(self, x: &Pairs<N>) -> [u32; N] {
        let mut bits = [0; N];
        match self {
            Self::E4m3 => each_pair!(PAIR of N {
                bits[PAIR] = convert::e4m3x2_from_f32(x[PAIR][0], x[PAIR][1]).into();
            }),
            Self::E5m2 => each_pair!(PAIR of N {
                bits[PAIR] = convert::e5m2x2_from_f32(x[PAIR][0], x[PAIR][1]).into();
            }),
            Self::Half | Self::F32 => each_pair!(PAIR of N { bits[PAIR] = H::pack(x[PAIR][0], x[PAIR][1]); }),
        }
        bits
    }
}

/// Where the result goes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// First element; aligned to its size.
    pub data: *mut u8,
    /// Elements from a row to the next.
    pub row: u64,
    /// Elements from a matrix to the next.
    pub matrix: u64,
    /// Type of the elements.
    pub number: Number,
    /// Rows have an even number of elements and begin at multiples of two elements' size.
    pub paired: bool,
    /// The copy engine stores. It writes whole units of 16 bytes, so rows have a multiple of that many bytes. Not for
    /// f32, nor for 8 bits where two elements become one.
    pub copied: bool,
    /// Copied, in the kernel's 16-bit type, and the product itself: there is no epilogue.
    pub plain: bool,
    /// The epilogue makes one element of two neighbours, whose result has half of the columns.
    pub halved: bool,
    /// The copy engine fetches what is added; see [`At::fetched`]. In the kernel's 16-bit type, as the result then is, copied, and not halved.
    pub fetched: bool,
    /// The map of that, as [`Maps::d`]'s; not looked at unless it is fetched.
    pub added: *const TensorMap,
}

impl Output {
    /// A matrix whose rows begin `row` elements apart, stored by the threads, an element at a time.
    #[inline(always)]
    #[must_use]
    pub const fn new(data: *mut u8, row: u64, number: Number) -> Self {
        let ([paired, copied, plain, halved, fetched], added) = ([false; 5], core::ptr::null());
        Self { data, row, matrix: 0, number, paired, copied, plain, halved, fetched, added }
    }
}

/// A consumer's way to the result.
pub struct Store<C, E> {
    epilogue: E,
    maps: Maps,
    problem: Problem,
    output: Output,
    ring: Ring<C>,
    /// Number of the thread among all consumers.
    thread: u32,
}

/// A thread's place at a store.
#[derive(Clone, Copy)]
struct Place {
    /// The consumer.
    consumer: u32,
    /// Its pieces in shared memory.
    pieces: u32,
    /// Its epilogue's numbers.
    numbers: u32,
    /// The consumer's barrier.
    barrier: u32,
    /// Number of the thread in its warpgroup.
    thread: u32,
}

impl Place {
    /// All threads of the warpgroup meet.
    #[inline(always)]
    unsafe fn meet(self) {
        // SAFETY: the caller says that they are here, and the barrier is theirs.
        unsafe { barrier::sync(self.barrier, WARPGROUP) }
    }
}

/// Makes the [`Sink`] that stores the product.
///
/// # Safety
/// Maps and output are valid for the result of `problem`, and the epilogue for its elements.
#[inline(always)]
pub unsafe fn stored<C: Config, E: Epilogue>(
    maps: Maps,
    problem: Problem,
    output: Output,
    epilogue: E,
) -> impl FnOnce(Ring<C>, u32) -> Store<C, E> {
    move |ring, thread| Store { epilogue, maps, problem, output, ring, thread }
}

impl<C: Config, E: Epilogue> Sink<C> for Store<C, E> {
    /// Prepares the epilogue.
    #[inline(always)]
    unsafe fn prepare(&mut self, corner: Corner) {
        if self.output.plain && !corner.is_bounded {
            return;
        }
        let place = self.place();
        let [_, end] = self.sides(corner);
        let first = in_result::<C>(corner, 0, 0).column;
        let columns = Columns { first, count: C::RESULT_COLUMNS, end, numbers: place.numbers };
        let mut epilogue = self.epilogue;
        // SAFETY: the caller's contract. Between the barriers nobody reads the numbers. What the pieces held has been stored.
        unsafe {
            if self.fetches(corner) && place.thread == 0 {
                tma::wait_group_read::<0>();
                let mut index = 0;
                while index < C::STORE_BUFFERS && index < Self::TILE_PIECES {
                    self.fetch(place, corner, index);
                    index += 1;
                }
            }
            place.meet();
            epilogue.enter(corner.group);
            epilogue.prepare(columns, place.thread);
            place.meet();
        }
    }

    /// Stores it.
    #[inline(always)]
    unsafe fn tile(&mut self, tile: &C::Stored, corner: Corner) {
        let is_whole = self.is_whole(corner);
        // SAFETY: the caller's contract.
        unsafe {
            if self.output.plain && is_whole {
                self.plain(tile, corner);
            } else {
                let mut epilogue = self.epilogue;
                epilogue.enter(corner.group);
                let copied = self.output.copied && is_whole;
                if C::CHUNK_STEPS == 4 {
                    self.through::<8>(tile, epilogue, corner, copied);
                } else {
                    self.through::<4>(tile, epilogue, corner, copied);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        // The shared memory must outlive the copies out of it.
        if self.thread.is_multiple_of(WARPGROUP) {
            tma::wait_group_read::<0>();
        }
    }
}

impl<C: Config, E: Epilogue> Store<C, E> {
    /// May the copy engine store the tile? It would write rows behind the product's last one too.
    #[inline(always)]
    fn is_whole(&self, corner: Corner) -> bool {
        !corner.is_bounded || corner.row + C::CONSUMER_ROWS <= corner.end
    }

    /// Does the copy engine fetch what is added to the tile?
    #[inline(always)]
    fn fetches(&self, corner: Corner) -> bool {
        self.output.fetched && self.is_whole(corner)
    }

    /// Rows and columns of the result.
    #[inline(always)]
    fn sides(&self, corner: Corner) -> [u32; 2] {
        let Problem { m, n, .. } = self.problem;
        if C::TRANSPOSED { [n, m] } else { [corner.end, n] }
    }

    /// The thread's place. What follows from the thread's number is not kept beside the accumulators.
    #[inline(always)]
    fn place(&self) -> Place {
        self.place_of(self.thread)
    }

    #[inline(always)]
    fn place_of(&self, thread: u32) -> Place {
        let thread = misc::opaque(thread);
        let consumer = thread / WARPGROUP;
        Place {
            consumer,
            pieces: self.ring.output(consumer),
            numbers: self.ring.numbers(consumer),
            barrier: FIRST_CONSUMER_BARRIER + consumer,
            thread: thread % WARPGROUP,
        }
    }

    #[inline(always)]
    unsafe fn plain(&self, tile: &C::Stored, corner: Corner) {
        let place = self.place();
        let lines = Lines::new::<C>(place.thread);
        unrolled!(GROUP in [0 1] { if GROUP < C::Stored::GROUPS {
            unrolled!(PIECE in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31] {
                if (PIECE as u32) < Self::PIECES {
                    // SAFETY: the caller's contract.
                    unsafe {
                        let index = GROUP as u32 * Self::PIECES + PIECE as u32;
                        let piece = Self::piece(place, index);
                        self.begin_piece(place, index);
                        lines.write::<C>(tile, GROUP, PIECE, piece);
                        let at = in_result::<C>(corner, GROUP as u32, PIECE as u32 * C::STORE_COLUMNS);
                        self.copy_piece(place, piece, at);
                    }
                }
            });
        } });
    }

    /// Pieces of a group.
    const PIECES: u32 = C::STORED_N / C::STORE_COLUMNS;
    /// Pieces of a consumer's tile.
    const TILE_PIECES: u32 = C::Stored::GROUPS as u32 * Self::PIECES;

    /// The place of the tile's piece of this number.
    #[inline(always)]
    fn piece(place: Place, index: u32) -> u32 {
        place.pieces + index % C::STORE_BUFFERS * C::STORE_BYTES
    }

    /// Has what is added to the tile's piece of this number copied to where it will be stored from.
    ///
    /// # Safety
    /// One thread calls it, once for each piece; what the place held before has been read.
    #[inline(always)]
    unsafe fn fetch(&self, place: Place, corner: Corner, index: u32) {
        let at = in_result::<C>(corner, index / Self::PIECES, index % Self::PIECES * C::STORE_COLUMNS);
        let full = self.ring.fetched(place.consumer, index % C::STORE_BUFFERS);
        // SAFETY: the caller's contract; a box is as long as a piece, also where it lies outside of the matrix in part.
        unsafe {
            mbarrier::arrive_expect_tx(full, C::STORE_BYTES);
            let coords = [at.column as i32, at.row as i32, at.batch as i32];
            tma::load_3d(Self::piece(place, index), self.output.added, full, coords);
        }
    }

    /// Waits until what is added to the tile's piece of this number has come.
    #[inline(always)]
    unsafe fn wait_fetched(&self, place: Place, index: u32) {
        let full = self.ring.fetched(place.consumer, index % C::STORE_BUFFERS);
        // SAFETY: it has been fetched, or will be.
        unsafe { mbarrier::wait_parity(full, index / C::STORE_BUFFERS % 2) }
    }

    /// Makes the phases of each place's barrier an even number, so that each tile's first one is an even one: next to the accumulators there is
    /// no room to count them.
    #[inline(always)]
    unsafe fn even_out(&self, place: Place) {
        if place.thread != 0 {
            return;
        }
        let mut piece = 0;
        while piece < C::STORE_BUFFERS {
            let phases = (Self::TILE_PIECES + C::STORE_BUFFERS - 1 - piece) / C::STORE_BUFFERS;
            if phases % 2 == 1 {
                // SAFETY: the barrier's phases are over, and all threads have seen that.
                unsafe { mbarrier::arrive(self.ring.fetched(place.consumer, piece)) }
            }
            piece += 1;
        }
    }

    /// Fetches the next piece into the place of the one before the tile's piece of this number, once that has left.
    #[inline(always)]
    unsafe fn fetch_behind(&self, place: Place, corner: Corner, index: u32) {
        if index == 0 || index - 1 + C::STORE_BUFFERS >= Self::TILE_PIECES || place.thread != 0 {
            return;
        }
        tma::wait_group_read::<0>();
        // SAFETY: the last copies were those of the piece before.
        unsafe { self.fetch(place, corner, index - 1 + C::STORE_BUFFERS) }
    }

    /// Waits until nobody reads the place of the tile's piece of this number any more.
    #[inline(always)]
    unsafe fn begin_piece(&self, place: Place, index: u32) {
        const { assert!(C::STORE_BUFFERS == 2) };
        // SAFETY: what read the piece is done before anyone writes: the copy before the last one, or the last one of another tile.
        unsafe {
            if place.thread == 0 {
                if index == 0 {
                    tma::wait_group_read::<0>();
                } else {
                    tma::wait_group_read::<1>();
                }
            }
            place.meet();
        }
    }

    /// Has the piece, of which each thread has written its part, copied to the result: its first element is that of the
    /// product at `at`, in the result's rows and columns.
    #[inline(always)]
    unsafe fn copy_piece(&self, place: Place, piece: u32, at: Corner) {
        let column = if self.output.halved { at.column / 2 } else { at.column };
        let (row, column, batch) = (at.row as i32, column as i32, at.batch as i32);
        // SAFETY: the fence and the barrier order the writes before the copy.
        unsafe {
            fence::proxy_async_shared();
            place.meet();
            if place.thread == 0 {
                tma::store_3d(self.maps.d, piece, [column, row, batch]);
                tma::commit_group();
            }
        }
    }

    #[inline(always)]
    unsafe fn through<const N: usize>(
        &self,
        tile: &C::Stored,
        mut epilogue: E,
        corner: Corner,
        copied: bool,
    ) {
        const { assert!(C::STORE_COLUMNS.is_multiple_of(C::CHUNK_COLUMNS), "a chunk is of one piece") };
        let mut number = 0;
        while number < C::Stored::GROUPS as u32 * Self::CHUNKS {
            // Next to the accumulators there is no room for what could be computed ahead of the loop, or kept over the epilogue.
            let corner = Corner { batch: misc::opaque(corner.batch), ..corner };
            // SAFETY: the whole warpgroup is here; elements of the product, places in the piece.
            unsafe {
                let (at, slots) = self.begin_chunk(corner, number);
                let mut x = chunk::<C, N>(tile, number);
                if C::TRANSPOSED {
                    const { assert!(!C::TRANSPOSED || C::CHUNK_STEPS == 2, "chunks of two rows of two pairs") };
                    exchange(&mut x, self.place().thread);
                }
                epilogue.apply(at, &mut x);
                number = misc::opaque(number);
                if copied {
                    self.end_chunk(corner, number, slots, &x);
                } else {
                    self.output.write::<<C::Operands as Operands>::Half, N>(at, &x);
                }
            }
            number += 1;
        }
        // SAFETY: the whole warpgroup is here.
        unsafe {
            if self.fetches(corner) {
                self.even_out(self.place());
            }
            epilogue.finish();
        }
    }

    /// Chunks of a group.
    const CHUNKS: u32 = C::STORED_N / C::CHUNK_COLUMNS;

    #[inline(always)]
    fn step(&self, number: u32) -> Step {
        // There are fewer chunks than 2^16. The assembler does not know, so what follows from the thread is not computed ahead of the loop, and kept.
        let nothing = if C::CROWDED { misc::opaque(number) >> 16 } else { 0 };
        let place = self.place_of(self.thread + nothing);
        let (group, column) = (number / Self::CHUNKS, number % Self::CHUNKS * C::CHUNK_COLUMNS);
        let index = number * C::CHUNK_COLUMNS / C::STORE_COLUMNS;
        let spot = Spot::new::<C>(place.thread);
        Step {
            place,
            spot,
            group,
            column,
            along: column % C::STORE_COLUMNS,
            index,
            piece: Self::piece(place, index),
        }
    }

    /// Where the thread's pairs of the tile's chunk of this number are, in the result and in their piece. What is added to them has come.
    #[inline(always)]
    unsafe fn begin_chunk(&self, corner: Corner, number: u32) -> (At, Slots) {
        let step = self.step(number);
        let Step { place, spot, group, column, along, index, .. } = step;
        let fetched = self.fetches(corner);
        if fetched && along == 0 {
            // SAFETY: it has been fetched, or will be.
            unsafe { self.wait_fetched(place, index) }
        }
        let first = in_result::<C>(corner, 0, 0).column;
        let from = in_result::<C>(corner, group, column);
        let (row, column) = (from.row + spot.row, from.column + spot.column);
        let slots = step.slots::<C>(HALF_BYTES);
        let at = At {
            batch: from.batch,
            row,
            column,
            sides: self.sides(from),
            width: 2,
            numbers: place.numbers + (column - first) * size_of::<f32>() as u32,
            fetched: if fetched { Some(slots) } else { None },
        };
        (at, slots)
    }

    /// Makes room for the pairs of the tile's chunk of this number in their piece, writes them, and has it copied when it is full.
    #[inline(always)]
    unsafe fn end_chunk<const N: usize>(&self, corner: Corner, number: u32, slots: Slots, x: &Pairs<N>) {
        let step = self.step(number);
        let Step { place, group, column, along, index, piece, .. } = step;
        // SAFETY: the caller's contract.
        unsafe {
            if along == 0 && !self.output.fetched {
                self.begin_piece(place, index);
            }
            self.output.write_piece::<<C::Operands as Operands>::Half, N>(slots, || step.slots::<C>(1), x);
            if along == 0 && self.output.fetched {
                self.fetch_behind(place, corner, index);
            }
            if along + C::CHUNK_COLUMNS == C::STORE_COLUMNS {
                self.copy_piece(place, piece, in_result::<C>(corner, group, column - along));
            }
        }
    }
}

/// A chunk of a tile, as a thread sees it.
#[derive(Clone, Copy)]
struct Step {
    place: Place,
    /// Where the thread's pairs begin in the chunk.
    spot: Spot,
    /// Where the chunk begins in the tile.
    group: u32,
    column: u32,
    /// The same in its piece.
    along: u32,
    /// Number of the piece in the tile, and its address.
    index: u32,
    piece: u32,
}

impl Step {
    /// Where the thread's pairs are in the piece, half of each of which takes `bytes`.
    #[inline(always)]
    fn slots<C: Config>(self, bytes: u32) -> Slots {
        let Self { spot, along, piece, .. } = self;
        Slots::new::<C>(piece, if C::TRANSPOSED { spot.below(along) } else { spot.beside(along) }, bytes)
    }
}

/// The first element of a chunk or a piece in the result's rows and columns: it begins at a column of a group of the tile at `corner`.
#[inline(always)]
fn in_result<C: Config>(corner: Corner, group: u32, column: u32) -> Corner {
    let (row, column) = (corner.row + group * GROUP_ROWS, corner.column + column);
    let (row, column) = if C::TRANSPOSED { (column, row) } else { (row, column) };
    Corner { row, column, ..corner }
}

impl Output {
    /// Bytes of half of what a pair becomes, where the copy engine stores it.
    #[inline(always)]
    const fn half_bytes(self) -> u32 {
        if self.halved { self.number.bytes() / 2 } else { self.number.bytes() }
    }

    /// Writes the thread's pairs of a chunk into its piece.
    #[inline(always)]
    unsafe fn write_piece<H: Half, const N: usize>(
        self,
        slots: Slots,
        of_bytes: impl Fn() -> Slots,
        x: &Pairs<N>,
    ) {
        let bits = self.number.pack::<H, N>(x);
        // SAFETY: the caller's contract: places in the piece, this thread's alone.
        unsafe {
            if self.half_bytes() == 1 {
                let slots = of_bytes();
                each_pair!(PAIR of N { vector::store_shared_b16(slots.address(PAIR), bits[PAIR] as u16); });
            } else {
                each_pair!(PAIR of N { vector::store_shared(slots.address(PAIR), bits[PAIR]); });
            }
        }
    }

    /// Stores the pairs' elements of the result.
    #[inline(always)]
    unsafe fn write<H: Half, const N: usize>(self, at: At, x: &Pairs<N>) {
        let at = if self.halved { at.halved() } else { at };
        // SAFETY: the caller's contract.
        unsafe {
            match self.number {
                Number::F32 => each_pair!(PAIR of N {
                    let both = x[PAIR].map(f32::to_bits);
                    self.put(at, PAIR, both, u64::from(both[0]) | u64::from(both[1]) << u32::BITS);
                }),
                Number::Half => {
                    let bits = self.number.pack::<H, N>(x);
                    each_pair!(PAIR of N {
                        let both = bits[PAIR];
                        self.put(at, PAIR, [both as u16, (both >> u16::BITS) as u16], both);
                    });
                }
                Number::E4m3 | Number::E5m2 => {
                    let bits = self.number.pack::<H, N>(x);
                    each_pair!(PAIR of N {
                        let both = bits[PAIR] as u16;
                        self.put(at, PAIR, [both as u8, (both >> u8::BITS) as u8], both);
                    });
                }
            }
        }
    }

    /// Stores a pair, as far as it is of the result: `both` at once where that is possible.
    #[inline(always)]
    unsafe fn put<One, Two>(self, at: At, pair: usize, [low, high]: [One; 2], both: Two) {
        let index = u64::from(at.batch) * self.matrix
            + u64::from(at.row(pair)) * self.row
            + u64::from(at.column(pair));
        let count = at.count(pair);
        // SAFETY: elements of the result, aligned as `paired` says.
        unsafe {
            let to = self.data.cast::<One>().add(index as usize);
            if self.paired && count == 2 {
                aligned(to.cast::<Two>()).write(both);
            } else {
                if count > 0 {
                    to.write(low);
                }
                if count > 1 {
                    to.add(1).write(high);
                }
            }
        }
    }
}
