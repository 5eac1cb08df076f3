//! What becomes of the elements of the product before they are stored.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use cuda_std::atomic::mid::atomic_fetch_max_u32_device;
use cuda_std::warp::{self, WarpReductionOp};
use cuda_std::{fastmath, misc, vector};

use super::config::WARPGROUP;
use super::operands::Half;
use super::piece::Slots;
use crate::epilogue::{Activation, Fast, Precision, Visitor};
use crate::unroll::unrolled;

/// Accumulators of a thread, 4 or 8 pairs of neighbours in a row of the result. [`At`] says where they are.
pub type Pairs<const N: usize> = [[f32; 2]; N];

/// Rows from a pair to the one below it.
const ROWS: u32 = 8;
/// Columns from a pair to the one beside it.
const STEP: u32 = 2 * WIDTHS;
/// Bytes of a number of [`Columns::numbers`].
const WORD: u32 = size_of::<f32>() as u32;
/// Pairs' widths from a pair to the one beside it.
const WIDTHS: u32 = 4;

/// Where [`Pairs`] lie in the result: the second one is 8 rows below the first, the next two 8 columns to the right of these two, and so on.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Which product of the batch.
    pub batch: u32,
    /// Row of the first pair.
    pub row: u32,
    /// Column of the first pair, a multiple of [`width`](At::width).
    pub column: u32,
    /// Rows and columns of the result. Pairs may lie beyond.
    pub sides: [u32; 2],
    /// How many elements a pair has: 2, or 1 once an epilogue has made one of two, which halves columns.
    pub width: u32,
    /// Shared address of the first pair's [`Columns::numbers`].
    pub numbers: u32,
    /// Where in shared memory the pairs' elements of [`Output::added`](super::store::Output::added) are, if the copy engine has fetched them: those of
    /// the residual where there is one, else of the old result.
    pub fetched: Option<Slots>,
}

/// Columns of the result that a consumer's tile has.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// The first one.
    pub first: u32,
    /// How many the tile has, some of them perhaps behind the result's last one.
    pub count: u32,
    /// Behind the result's last one.
    pub end: u32,
    /// Shared address of 4 bytes for each, which are the epilogue's.
    pub numbers: u32,
}

impl At {
    /// The row of a pair.
    #[inline(always)]
    #[must_use]
    pub const fn row(self, pair: usize) -> u32 {
        self.row + pair as u32 % 2 * ROWS
    }

    /// The column where a pair begins.
    #[inline(always)]
    #[must_use]
    pub const fn column(self, pair: usize) -> u32 {
        self.column + pair as u32 / 2 * WIDTHS * self.width
    }

    /// Elements of a pair that are elements of the result: the first ones. What is beyond means nothing.
    #[inline(always)]
    #[must_use]
    pub const fn count(self, pair: usize) -> u32 {
        let (row, column) = (self.row(pair), self.column(pair));
        let [rows, columns] = self.sides;
        if row >= rows || column >= columns {
            0
        } else if columns - column < self.width {
            1
        } else {
            self.width
        }
    }

    /// Where the pairs' results are once one element has been made of two.
    #[inline(always)]
    #[must_use]
    pub const fn halved(self) -> Self {
        let Self { column, sides: [rows, columns], .. } = self;
        Self { column: column / 2, sides: [rows, columns / 2], width: 1, ..self }
    }
}

/// A function of the product's elements. Implement it to fuse what follows a product into it. Each part of a tile begins with a copy
/// of the epilogue that the kernel was given.
pub trait Epilogue: Copy {
    /// Called before [`prepare`](Epilogue::prepare), and again before the elements of each tile, which are of a product with this matrix of B.
    ///
    /// # Safety
    /// There is such a matrix.
    #[inline(always)]
    unsafe fn enter(&mut self, _group: u32) {}

    /// Called before the products of each tile, by all threads of the consumer: a barrier later their elements come. What depends on
    /// the column alone is read here, once, to wait at [`Columns::numbers`]: memory is far away.
    ///
    /// # Safety
    /// All threads of the consumer are here, each with its number.
    #[inline(always)]
    unsafe fn prepare(&mut self, _columns: Columns, _thread: u32) {}

    /// Turns elements of the product into elements of the result, in f32 registers.
    ///
    /// # Safety
    /// The elements that `at` counts are elements of the product, and this thread's alone. All threads of the warp are here.
    unsafe fn apply<const N: usize>(&mut self, at: At, x: &mut Pairs<N>);

    /// Called after the last elements of a consumer's part of a tile.
    ///
    /// # Safety
    /// All threads of the warp are here.
    #[inline(always)]
    unsafe fn finish(&mut self) {}
}

/// Repeats a block for each of the [`Pairs`].
macro_rules! each_pair {
    ($pair:ident of $count:ident $body:block) => {{
        unrolled!($pair in [0 1 2 3 4 5 6 7] { if $pair < $count $body });
    }};
}
pub(super) use each_pair;

/// The family's epilogue, as [`crate::epilogue`] says. `H` is the kernel's 16-bit type.
pub struct Fused<H> {
    /// Factors and strides.
    pub terms: Terms,
    /// The result, for `beta`.
    pub old: Vectors<H>,
    /// Added to each row; null: none. f32 if `bias_f32`, else `H`.
    pub bias: *const u8,
    /// See `bias`.
    pub bias_f32: bool,
    /// Added after the activation; null: none. Of strides of its own.
    pub residual: Vectors<H>,
    /// A further factor of A; null: 1.
    pub scale_a: *const f32,
    /// One of B.
    pub scale_b: *const f32,
    /// One of what is stored; the largest magnitude is taken before it.
    pub scale_c: *const f32,
    /// Receives the bits of the largest magnitude; null: nothing.
    pub amax: *mut u32,
    largest: f32,
}

impl<H> Clone for Fused<H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Fused<H> {}

/// Scalars of an epilogue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of the old result; 0: it is not read.
    pub beta: f32,
    /// An [`Activation`].
    pub activation: u32,
}

/// Rows of numbers in global memory, f32 or `H`.
pub struct Vectors<H> {
    /// First element, or null.
    pub data: *const u8,
    /// Elements from a row to the next.
    pub row: u64,
    /// Elements from a matrix to the next.
    pub matrix: u64,
    /// f32, else `H`.
    pub is_f32: bool,
    /// Every row begins at a multiple of two elements' size, and as many are read as two divides.
    pub paired: bool,
    half: PhantomData<H>,
}

impl<H> Clone for Vectors<H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Vectors<H> {}

impl<H: Half> Vectors<H> {
    /// Rows of this memory.
    #[inline(always)]
    pub const fn new(data: *const u8, row: u64, matrix: u64, is_f32: bool, paired: bool) -> Self {
        Self { data, row, matrix, is_f32, paired, half: PhantomData }
    }

    /// Adds the elements that `at` counts, times a factor, from where the copy engine has put them, if it has.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    unsafe fn add<const N: usize>(self, at: At, fetched: Option<Slots>, factor: f32, x: &mut Pairs<N>) {
        if let Some(slots) = fetched {
            let mut addend = [[0.0; 2]; N];
            // SAFETY: the pairs' places in the piece.
            each_pair!(PAIR of N { addend[PAIR] = H::unpack(unsafe { vector::load_shared(slots.address(PAIR)) }); });
            return add(x, factor, addend);
        }
        // Which way is asked once, so that the pairs' latencies overlap; each adds by itself, so that not all has to wait in registers.
        // SAFETY: the caller's contract; pairs are aligned as `paired` says.
        unsafe {
            match (self.is_f32, self.paired && at.width == 2) {
                (false, true) => add(x, factor, self.pairs(at, |from: *const u32| H::unpack(from.read()))),
                (true, true) => {
                    let read = |from: *const u64| {
                        let bits = from.read();
                        [bits as u32, (bits >> u32::BITS) as u32].map(f32::from_bits)
                    };
                    add(x, factor, self.pairs(at, read));
                }
                (false, false) => {
                    add(x, factor, self.elements(at, |from: *const u16| H::unpack(from.read().into())[0]));
                }
                (true, false) => add(x, factor, self.elements(at, |from: *const f32| from.read())),
            }
        }
    }

    /// Address of an element of the first pairs' column. The row passes by the compiler: what ways have in common it would compute ahead
    /// of them all, and keep.
    #[inline(always)]
    fn address(self, at: At, pair: usize, bytes: u64) -> *const u8 {
        let row = u64::from(at.batch) * self.matrix + u64::from(misc::opaque(at.row(pair))) * self.row;
        self.data.wrapping_add(((row + u64::from(at.column)) * bytes) as usize)
    }

    /// `Both` is as long as two elements.
    #[inline(always)]
    unsafe fn pairs<Both, const N: usize>(self, at: At, read: impl Fn(*const Both) -> [f32; 2]) -> Pairs<N> {
        let rows = [0, 1].map(|pair| self.address(at, pair, size_of::<Both>() as u64 / 2).cast::<Both>());
        let mut x = [[0.0; 2]; N];
        each_pair!(PAIR of N {
            if at.count(PAIR) > 0 {
                let from = rows[PAIR % 2].wrapping_add(PAIR / 2 * WIDTHS as usize);
                x[PAIR] = read(aligned(from.cast_mut()));
            }
        });
        x
    }

    #[inline(always)]
    unsafe fn elements<One, const N: usize>(self, at: At, read: impl Fn(*const One) -> f32) -> Pairs<N> {
        let rows = [0, 1].map(|pair| self.address(at, pair, size_of::<One>() as u64).cast::<One>());
        let mut x = [[0.0; 2]; N];
        each_pair!(PAIR of N {
            let from = rows[PAIR % 2].wrapping_add((at.column(PAIR) - at.column) as usize);
            if at.count(PAIR) > 0 {
                x[PAIR][0] = read(from);
            }
            if at.count(PAIR) > 1 {
                x[PAIR][1] = read(from.wrapping_add(1));
            }
        });
        x
    }
}

/// The place of a pair. A device faults where that is not aligned to its size; the executor would not, since nobody tells it how plain loads and
/// stores are aligned.
#[inline(always)]
#[track_caller]
pub(super) fn aligned<Two>(pair: *mut Two) -> *mut Two {
    if cfg!(not(target_arch = "nvptx64")) {
        assert!(pair.is_aligned(), "the pair at {pair:p} is not aligned to its {} bytes", size_of::<Two>());
    }
    pair
}

impl<H: Half> Fused<H> {
    /// Of these parts.
    #[inline(always)]
    pub const fn new(
        terms: Terms,
        old: Vectors<H>,
        (bias, bias_f32): (*const u8, bool),
        residual: Vectors<H>,
        [scale_a, scale_b, scale_c]: [*const f32; 3],
        amax: *mut u32,
    ) -> Self {
        Self { terms, old, bias, bias_f32, residual, scale_a, scale_b, scale_c, amax, largest: 0.0 }
    }

    #[inline(always)]
    fn raise(&mut self, x: f32) {
        self.largest = fastmath::max_nan(self.largest, x.abs());
    }
}

/// The number there, 1 where there is none. Read for each chunk: the cache keeps it, registers are for accumulators.
#[inline(always)]
unsafe fn factor(pointer: *const f32) -> f32 {
    // SAFETY: not null, so one number, by the caller's word.
    if pointer.is_null() { 1.0 } else { unsafe { pointer.read() } }
}

#[inline(always)]
fn scale<const N: usize>(x: &mut Pairs<N>, factor: f32) {
    each_pair!(PAIR of N { x[PAIR] = x[PAIR].map(|x| x * factor); });
}

#[inline(always)]
fn add<const N: usize>(x: &mut Pairs<N>, factor: f32, addend: Pairs<N>) {
    each_pair!(PAIR of N {
        let ([a, b], [c, d]) = (x[PAIR], addend[PAIR]);
        x[PAIR] = [fastmath::fma(factor, c, a), fastmath::fma(factor, d, b)];
    });
}

/// The function of each element. Which one is asked once, not for each: their latencies then overlap.
#[inline(always)]
fn activate<const N: usize>(activation: Activation, x: &mut Pairs<N>) {
    activation.visit::<Fast>(Apply(x));
}

/// Applies a function to each element.
struct Apply<'x, const N: usize>(&'x mut Pairs<N>);

impl<const N: usize> Visitor<f32> for Apply<'_, N> {
    #[inline(always)]
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        each_pair!(PAIR of N { self.0[PAIR] = self.0[PAIR].map(function); });
    }
}

impl<H: Half> Epilogue for Fused<H> {
    #[inline(always)]
    unsafe fn prepare(&mut self, columns: Columns, thread: u32) {
        let Columns { first, count, end, numbers } = columns;
        if self.bias.is_null() {
            return;
        }
        let mut index = thread;
        while index < count {
            let column = (first + index) as usize;
            // SAFETY: a column of the result; a number of the epilogue's, this thread's alone.
            unsafe {
                let bias = if first + index >= end {
                    0.0
                } else if self.bias_f32 {
                    self.bias.cast::<f32>().add(column).read()
                } else {
                    H::unpack(self.bias.cast::<u16>().add(column).read().into())[0]
                };
                vector::store_shared(numbers + index * WORD, bias);
            }
            index += WARPGROUP;
        }
    }

    #[inline(always)]
    unsafe fn apply<const N: usize>(&mut self, at: At, x: &mut Pairs<N>) {
        let Terms { alpha, beta, activation } = self.terms;
        // What follows from it is not kept beside the accumulators.
        let activation = Activation::from_code(misc::opaque(activation));
        let halved = matches!(activation, Activation::SwiGlu);
        let Self { scale_a, scale_b, scale_c, .. } = *self;
        // SAFETY: the caller's contract, and what the pointers' owners say.
        unsafe {
            let alpha = alpha * factor(scale_a) * factor(scale_b);
            if self.bias.is_null() {
                scale(x, alpha);
            } else {
                let mut bias = [0.0; 2];
                each_pair!(PAIR of N {
                    if PAIR.is_multiple_of(2) {
                        bias = vector::load_shared_v2(at.numbers + PAIR as u32 / 2 * STEP * WORD);
                    }
                    x[PAIR] = [fastmath::fma(alpha, x[PAIR][0], bias[0]), fastmath::fma(alpha, x[PAIR][1], bias[1])];
                });
            }
            if beta != 0.0 && !halved {
                let fetched = if self.residual.data.is_null() { at.fetched } else { None };
                self.old.add(at, fetched, beta, x);
            }
            let at = if halved { at.halved() } else { at };
            if halved {
                each_pair!(PAIR of N { x[PAIR][0] = Fast::swiglu(x[PAIR][0], x[PAIR][1]); });
            } else {
                activate(activation, x);
            }
            if !self.residual.data.is_null() {
                self.residual.add(at, at.fetched, 1.0, x);
            }
            if !self.amax.is_null() {
                each_pair!(PAIR of N {
                    let count = at.count(PAIR);
                    if count > 0 { self.raise(x[PAIR][0]); }
                    if count > 1 { self.raise(x[PAIR][1]); }
                });
            }
            if !scale_c.is_null() {
                scale(x, scale_c.read());
            }
        }
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        if self.amax.is_null() {
            return;
        }
        // The bits of numbers that are not negative are in their order, with NaN on top.
        let bits = self.largest.to_bits() & !(1 << 31);
        // SAFETY: the caller says that the warp is here; `amax` is the launch's.
        unsafe {
            let largest = warp::warp_reduce(warp::FULL_MASK, bits, WarpReductionOp::Max);
            if warp::lane_id() == 0 {
                atomic_fetch_max_u32_device(self.amax, Ordering::Relaxed, largest);
            }
        }
    }
}
