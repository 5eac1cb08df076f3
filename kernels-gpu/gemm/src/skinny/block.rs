//! The main loop: the copies of the stages, and the products of a stage.

use cuda_std::misc::opaque;
use cuda_std::{async_copy, grid, matrix, mma, thread, vector};
use layout::UNIT_BYTES;
use num::{bf16, f16};

use super::shape::{GROUP, Partials, ROWS, SLICE, STAGES, STEP, THREADS, Tile, UNIT, WORD_BYTES};
use primitives::pipeline::{CopyPipeline, Stages};
use primitives::unroll;
use primitives::warp::LANES;

/// A 16-bit word of a factor: an element that the tensor cores multiply, or two neighbours along k that
/// become such elements in registers, or half of an element.
pub(crate) trait Word: Copy + 'static {
    /// Bytes of an element.
    const BYTES: u32;
    /// Words of an element, where there are not several in a word.
    const WORDS: u32 = if Self::BYTES > WORD_BYTES { Self::BYTES / WORD_BYTES } else { 1 };

    /// So many elements, in words.
    #[inline(always)]
    fn words(elements: u64) -> u64 {
        elements * u64::from(Self::BYTES) / u64::from(WORD_BYTES)
    }

    /// 16x8 += A B, where a row of A and a column of B have 16 words, summed in f32.
    ///
    /// # Safety
    /// The whole warp calls it together.
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];
}

impl Word for f16 {
    const BYTES: u32 = WORD_BYTES;

    #[inline(always)]
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's contract.
        unsafe { mma::m16n8k16_f32_f16(a, b, c) }
    }
}

impl Word for bf16 {
    const BYTES: u32 = WORD_BYTES;

    #[inline(always)]
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's contract.
        unsafe { mma::m16n8k16_f32_bf16(a, b, c) }
    }
}

/// Half of an f32 that is taken for a tf32: without its low bits.
#[derive(Clone, Copy)]
pub(crate) struct HalfTf32(#[allow(dead_code, reason = "it is there for its size")] u16);

impl Word for HalfTf32 {
    const BYTES: u32 = size_of::<f32>() as u32;

    #[inline(always)]
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's contract.
        unsafe { mma::m16n8k8_f32_tf32(a, b, c) }
    }
}

/// Shape and operands, counted in words along k. Units of 16 bytes are whole: `k`, or the side of a factor
/// that is contiguous in its place, has no part of one, and every line begins at a multiple of 16 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Factors<T> {
    /// Rows of the left factor, at least 1.
    pub m: u32,
    pub n: u32,
    pub k: u32,
    /// The left factor.
    pub a: *const T,
    /// Words from a line of it to the next.
    pub a_pitch: usize,
    /// Its columns are contiguous, else its rows.
    pub a_down: bool,
    /// The right factor.
    pub b: *const T,
    /// Words from a line of it to the next.
    pub b_pitch: usize,
}

/// A thread's units of a factor in the stage that is copied next. Each is so many lines behind the one before
/// it, at the same place of its line.
#[derive(Clone, Copy)]
struct Units<T> {
    /// The first of them.
    at: *const T,
    /// Words from one to the next.
    apart: usize,
    /// Lines from the first one's on, and words of a line from there on. 0: there are none.
    lines: u32,
    words: u32,
    /// Whether a stage's lines follow those of the stage before it; else its words do.
    is_across: bool,
}

impl<T: Word> Units<T> {
    /// Those from `place` on, a line and a word, in `base`, of lines and words as `ends`.
    #[inline(always)]
    fn new(
        base: *const T,
        pitch: usize,
        place: [u32; 2],
        ends: [u32; 2],
        step: u32,
        is_across: bool,
    ) -> Self {
        Self {
            at: base.wrapping_add(place[0] as usize * pitch + place[1] as usize),
            apart: step as usize * pitch,
            lines: ends[0].saturating_sub(place[0]),
            words: ends[1].saturating_sub(place[1]),
            is_across,
        }
    }

    /// Address of unit `index`, and how many bytes there are; they are `step` lines apart.
    #[inline(always)]
    fn unit(&self, index: u32, step: u32) -> (*const T, u32) {
        let is_inside = self.words > 0 && self.lines > index * step;
        // An address from which nothing is read may be any.
        (self.at.wrapping_add(index as usize * self.apart), if is_inside { UNIT_BYTES } else { 0 })
    }

    /// The units of the next stage, of so many words of k.
    #[inline(always)]
    fn advance(&mut self, depth: u32, words_of_element: u32, pitch: usize) {
        if self.is_across {
            let lines = depth / words_of_element;
            self.at = self.at.wrapping_add(lines as usize * pitch);
            self.lines = self.lines.saturating_sub(lines);
        } else {
            self.at = self.at.wrapping_add(depth as usize);
            self.words = self.words.saturating_sub(depth);
        }
    }
}

/// The main loop: what is copied next, and the pipeline of stages.
#[derive(Clone, Copy)]
pub(crate) struct Mainloop<T> {
    factors: Factors<T>,
    /// Shared address of the first stage.
    base: u32,
    /// First column of the tile and first k to be copied next.
    column: u32,
    k: u32,
    /// This thread's number. Places that follow from it are computed for each tile: those of all shapes, kept
    /// from the beginning, would take too many registers.
    thread: u32,
    /// This thread's units of both factors in the stage that is copied next.
    right: Units<T>,
    left: Units<T>,
    pipeline: CopyPipeline<Stages<STAGES>>,
}

impl<T: Word> Mainloop<T> {
    /// The main loop of a block whose first tile begins at `column`, with stages of so many bytes from the
    /// shared address `base` on.
    #[inline(always)]
    pub fn new(factors: Factors<T>, column: u32, base: u32, stage_bytes: u32) -> Self {
        let none = |at| Units { at, apart: 0, lines: 0, words: 0, is_across: false };
        let (right, left) = (none(factors.b), none(factors.a));
        Mainloop {
            factors,
            base,
            column,
            k: 0,
            thread: 0,
            right,
            left,
            pipeline: CopyPipeline::new(Stages, stage_bytes),
        }
    }

    /// Lines from a unit of a thread to its next.
    const fn steps<S: Tile>() -> [u32; 3] {
        [THREADS / S::RIGHT_UNITS, THREADS / S::LEFT_UNITS, THREADS / S::LEFT_UNITS_DOWN]
    }

    /// This thread's first unit of a stage in each factor, as a line and a unit: B, A by rows, A by columns.
    #[inline(always)]
    fn first_units<S: Tile>(&self) -> [[u32; 2]; 3] {
        let thread = self.thread;
        [S::RIGHT_UNITS, S::LEFT_UNITS, S::LEFT_UNITS_DOWN].map(|units| [thread / units, thread % units])
    }

    /// A tile begins.
    #[inline(always)]
    fn begin<S: Tile>(&mut self) {
        let Factors { m, n, k, a, a_pitch, a_down, b, b_pitch } = self.factors;
        let [right, left, down] = self.first_units::<S>();
        let [right_step, left_step, down_step] = Self::steps::<S>();
        let (line, unit) = (right[0], right[1] * UNIT);
        let (place, ends) = if S::ALONG_K {
            ([self.column + line, unit], [n, k])
        } else {
            ([line, self.column * S::WORDS + unit], [k / S::WORDS, n * S::WORDS])
        };
        self.right = Units::new(b, b_pitch, place, ends, right_step, !S::ALONG_K);
        let (place, ends, step) = if a_down {
            ([down[0], down[1] * UNIT], [k / S::WORDS, m * S::WORDS], down_step)
        } else {
            ([left[0], left[1] * UNIT], [m, k], left_step)
        };
        self.left = Units::new(a, a_pitch, place, ends, step, a_down);
    }

    /// Starts the copies of the next stage, if there is one, and closes their group.
    ///
    /// # Safety
    /// The block calls it together, when no thread reads that stage any more.
    #[inline(always)]
    unsafe fn start<S: Tile>(&mut self) {
        if self.column < self.factors.n {
            let stage = self.base + self.pipeline.stage_to_load();
            // SAFETY: the caller's contract.
            unsafe {
                unroll!(I in 0..4, { self.copy_right::<S>(stage, I as u32); });
                unroll!(I in 0..4, { self.copy_left::<S>(stage, I as u32); });
            }
            self.k += S::DEPTH;
            if self.k >= self.factors.k {
                self.k = 0;
                self.column += thread::grid_dim_x() * S::COLUMNS;
                self.begin::<S>();
            } else {
                self.right.advance(S::DEPTH, S::WORDS, self.factors.b_pitch);
                self.left.advance(S::DEPTH, S::WORDS, self.factors.a_pitch);
            }
        }
        self.pipeline.commit();
    }

    /// This thread's `index`-th unit of the right factor.
    ///
    /// # Safety
    /// `stage` is the shared address of a stage that no thread uses. `index` is below 4.
    #[inline(always)]
    unsafe fn copy_right<S: Tile>(&self, stage: u32, index: u32) {
        const { assert!(S::RIGHT_LINES * S::RIGHT_UNITS == 4 * THREADS, "`start` counts them out") };
        const { assert!(THREADS.is_multiple_of(S::RIGHT_UNITS), "a thread's units are at one place of a line") };
        let ([line, unit], step) = (self.first_units::<S>()[0], Self::steps::<S>()[0]);
        let (source, bytes) = self.right.unit(index, step);
        // SAFETY: a unit inside the factor, or nothing; its place in the stage is this thread's.
        unsafe { async_copy::copy_cg_zfill(stage + S::right(line + index * step, unit), source, bytes) };
    }

    /// This thread's `index`-th unit of the left factor, if it has one.
    ///
    /// # Safety
    /// `stage` is the shared address of a stage that no thread uses. `index` is below 4.
    #[inline(always)]
    unsafe fn copy_left<S: Tile>(&self, stage: u32, index: u32) {
        const { assert!(S::ROWS * S::LEFT_UNITS <= 4 * THREADS, "`start` counts them out") };
        const { assert!(THREADS.is_multiple_of(S::LEFT_UNITS), "a thread's units are at one place of a row") };
        const { assert!(THREADS.is_multiple_of(S::LEFT_UNITS_DOWN), "and of a column") };
        if index * THREADS >= S::ROWS * S::LEFT_UNITS {
            return;
        }
        let ([_, [row, unit], [down, unit_down]], [_, step, step_down]) =
            (self.first_units::<S>(), Self::steps::<S>());
        let (to, is_read, step) = if self.factors.a_down {
            let line = down + index * step_down;
            (S::left_down(line, unit_down), line < S::DEPTH / S::WORDS, step_down)
        } else {
            let row = row + index * step;
            (S::left(row, unit), row < self.factors.m, step)
        };
        if is_read {
            let (from, bytes) = self.left.unit(index, step);
            // SAFETY: as above.
            unsafe { async_copy::copy_cg_zfill(stage + to, from, bytes) };
        }
    }

    /// Waits for earlier grids, which may still write the factors or read the result, and starts the copies
    /// of the first stages.
    ///
    /// # Safety
    /// The block calls it together, once.
    #[inline(always)]
    pub unsafe fn fill<S: Tile>(&mut self) {
        self.thread = opaque(thread::thread_idx_x());
        self.begin::<S>();
        grid::wait_dependencies();
        let mut ahead = 0;
        while ahead < self.pipeline.prologue() {
            // SAFETY: no thread reads a stage yet.
            unsafe { self.start::<S>() };
            ahead += 1;
        }
    }

    /// Computes the next tile's sums, slice by slice, and says where they are. They can be read after a
    /// barrier.
    ///
    /// # Safety
    /// The block calls it together, with [`Tile::SHARED`] bytes at its address; the factors are
    /// readable and nothing writes them; there is a next tile.
    #[inline(always)]
    pub unsafe fn tile<S: Tile>(&mut self) -> Partials {
        let mut sums: Sums = [[0.0; 4]; 4];
        self.thread = opaque(thread::thread_idx_x());
        let mut k = 0;
        while k < self.factors.k {
            // SAFETY: a stage's copies start after the barrier that follows its last use, and it is used
            // after the wait and the barrier that follow its copies.
            unsafe {
                let stage = self.base + self.pipeline.wait();
                self.start::<S>();
                multiply::<T, S>(&mut sums, stage, self.factors.m, self.factors.a_down, self.thread);
            }
            self.pipeline.release();
            k += S::DEPTH;
        }
        // SAFETY: the tile before this one has been read before the barrier above; a tile has at least one
        // stage.
        unsafe { write_partials::<S>(self.base, &sums, self.thread) };
        S::PARTIALS
    }
}

/// A warp's sums: column `g` (and `g + 8`) of its group, rows `2 t` and `2 t + 1` of each eight.
type Sums = [[f32; 4]; 4];

/// This warp's group of columns, and its slice of k.
#[inline(always)]
fn place<S: Tile>(thread: u32) -> (u32, u32) {
    let warp = thread / LANES;
    (warp % S::GROUPS, warp / S::GROUPS)
}

/// Adds the products of a stage.
///
/// # Safety
/// The warp calls it together; the stage is loaded.
#[inline(always)]
unsafe fn multiply<T: Word, S: Tile>(sums: &mut Sums, stage: u32, m: u32, a_down: bool, thread: u32) {
    const { assert!(SLICE == 4 * STEP, "counted out") };
    unroll!(PAIR in 0..2, {
        // SAFETY: the caller's contract.
        unsafe {
            let low = right::<S>(stage, 2 * PAIR as u32, thread);
            let high = right::<S>(stage, 2 * PAIR as u32 + 1, thread);
            unroll!(EIGHT in 0..4, {
                if (EIGHT as u32) < S::EIGHTS {
                    let first = EIGHT as u32 * ROWS;
                    let b = if a_down {
                        left_down::<S>(stage, first, PAIR as u32, thread)
                    } else {
                        left::<S>(stage, first, PAIR as u32, m, thread)
                    };
                    sums[EIGHT] = T::mma(low, [b[0], b[1]], sums[EIGHT]);
                    sums[EIGHT] = T::mma(high, [b[2], b[3]], sums[EIGHT]);
                }
            });
        }
    });
}

/// The group's columns and words `16 step ..` of the slice, as A of `mma`: matrices of columns 0 and 8,
/// then of the next eight words of k.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn right<S: Tile>(stage: u32, step: u32, thread: u32) -> [u32; 4] {
    let (group, slice) = place::<S>(thread);
    let lane = thread % LANES;
    let (number, line) = (lane / 8, lane % 8);
    let (column, k) = (group * GROUP, slice * SLICE + step * STEP);
    // SAFETY: units of the stage.
    unsafe {
        if S::ALONG_K {
            matrix::ldmatrix_x4(stage + S::right(column + number % 2 * 8 + line, (k + number / 2 * 8) / UNIT))
        } else if S::WORDS == 1 {
            let column = column + number % 2 * 8;
            matrix::ldmatrix_x4_trans(stage + S::right(k + number / 2 * 8 + line, column / UNIT))
        } else {
            // Instructions that turn matrices turn words. The places of all elements of all steps would be
            // too many to keep in registers: they are computed anew.
            let lane = opaque(lane);
            let (g, t) = (lane / 4, lane % 4);
            let mut elements = [0; 4];
            unroll!(I in 0..4, {
                let column = column + g + I as u32 % 2 * 8;
                let k = k / S::WORDS + t + I as u32 / 2 * 4;
                elements[I] = element::<S>(stage + S::right(k, column * S::WORDS / UNIT), column);
            });
            elements
        }
    }
}

/// An element of two words of a unit that has number `index` in its line.
///
/// # Safety
/// The unit is one of the stage.
#[inline(always)]
unsafe fn element<S: Tile>(unit: u32, index: u32) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { vector::load_shared(unit + index * S::WORDS % UNIT * WORD_BYTES) }
}

/// Eight rows from `first` on and words `32 pair ..` of the slice, as B of two `mma`. Rows that there
/// are not repeat the last one.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn left<S: Tile>(stage: u32, first: u32, pair: u32, m: u32, thread: u32) -> [u32; 4] {
    let (_, slice) = place::<S>(thread);
    let (number, line) = (thread % LANES / 8, thread % 8);
    let row = (first + line).min(m - 1);
    let k = slice * SLICE + pair * 2 * STEP + number * 8;
    // SAFETY: a unit of the stage.
    unsafe { matrix::ldmatrix_x4(stage + S::left(row, k / UNIT)) }
}

/// The same where columns are contiguous.
///
/// # Safety
/// As for [`multiply`].
#[inline(always)]
unsafe fn left_down<S: Tile>(stage: u32, first: u32, pair: u32, thread: u32) -> [u32; 4] {
    let (_, slice) = place::<S>(thread);
    let lane = thread % LANES;
    let k = (slice * SLICE + pair * 2 * STEP) / S::WORDS;
    // SAFETY: units of the stage.
    unsafe {
        if S::WORDS == 1 {
            matrix::ldmatrix_x4_trans(stage + S::left_down(k + lane, first / UNIT))
        } else {
            let lane = opaque(lane);
            let (row, k) = (first + lane / 4, k + lane % 4);
            let mut elements = [0; 4];
            unroll!(I in 0..4, {
                let unit = S::left_down(k + 4 * I as u32, row * S::WORDS / UNIT);
                elements[I] = element::<S>(stage + unit, row);
            });
            elements
        }
    }
}

/// Puts this warp's sums where all threads can read them.
///
/// # Safety
/// Nobody reads the partial sums any more.
#[inline(always)]
unsafe fn write_partials<S: Tile>(base: u32, sums: &Sums, thread: u32) {
    let (group, slice) = place::<S>(thread);
    let lane = thread % LANES;
    let (g, t) = (lane / 4, lane % 4);
    unroll!(I in 0..16, {
        let eight = I / 4;
        if (eight as u32) < S::EIGHTS {
            let row = eight as u32 * ROWS + 2 * t + I as u32 % 2;
            let column = group * GROUP + g + I as u32 % 4 / 2 * 8;
            // SAFETY: this lane's place.
            unsafe { vector::store_shared(S::PARTIALS.address(base, slice, row, column), sums[eight][I % 4]) };
        }
    });
}
