//! Fusions: functions of the product's elements between the accumulators and memory.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use cuda_std::atomic::mid::atomic_fetch_max_u32_device;
use cuda_std::warp::{self, FULL_MASK, WarpReductionOp, warp_shuffle_xor};
use cuda_std::{fastmath, misc, vector};

use primitives::unroll;

use super::config::WARPGROUP;
use super::epilogue::{Output, OutputFlag, OutputParams, OutputType};
use super::operands::Element16;
use super::subtile::Slots;
use super::vectors::{Vectors, load_one};
use crate::element::Type;
use crate::epilogue::{Activation, EpilogueParams, Fast, GroupInputs, Precision, SUMMED_ROWS, Visitor};

/// Accumulators of a thread, 4 or 8 pairs of neighbours in a row of the result. [`FragmentCoord`] says where
/// they are.
pub type Pairs<const N: usize> = [[f32; 2]; N];

/// Rows from a pair to the one below it.
const ROWS: u32 = 8;
/// Columns from a pair to the one beside it.
const STEP: u32 = 2 * WIDTHS;
/// Bytes of a number of [`Columns::vector`].
const WORD: u32 = size_of::<f32>() as u32;
/// Pairs' widths from a pair to the one beside it.
pub(super) const WIDTHS: u32 = 4;

/// Where [`Pairs`] lie in the result: the second one is 8 rows below the first, the next two 8 columns to the
/// right of these two, and so on.
#[derive(Clone, Copy, Debug)]
pub struct FragmentCoord {
    /// Which product of the batch.
    pub batch: u32,
    /// Row of the first pair.
    pub row: u32,
    /// Column of the first pair, a multiple of [`width`](FragmentCoord::width).
    pub column: u32,
    /// Rows and columns of the result. Pairs may lie beyond.
    pub sides: [u32; 2],
    /// How many elements a pair has: 2, or 1 once a fusion has made one of two, which halves columns.
    pub width: u32,
    /// Shared address of the first pair's [`Columns::vector`].
    pub vector: u32,
    /// Where in shared memory the pairs' elements of [`Maps::source`](super::mainloop::Maps::source) are, if
    /// the copy engine has brought them: those of the residual where there is one, else of source C.
    pub source: Option<Slots>,
    /// Where values before the activation are written to shared memory, if the copy engine stores them.
    pub pre: Option<Slots>,
    /// Whether the kernel does what training asks of an epilogue: a constant of it.
    pub trains: bool,
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
    /// Shared address of 4 bytes for each, which are the fusion's.
    pub vector: u32,
}

impl FragmentCoord {
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

/// A function of the product's elements. Implement it to fuse what follows a product into it. Each part of a
/// tile begins with a copy of the fusion that the kernel was given.
pub trait Fusion: Copy {
    /// Called before [`prepare`](Fusion::prepare), and again before the elements of each tile, which are of a
    /// product with this matrix of B.
    ///
    /// # Safety
    /// There is such a matrix.
    #[inline(always)]
    unsafe fn enter(&mut self, _group: u32) {}

    /// Called before the products of each tile, by all threads of the consumer: a barrier later their
    /// elements come. What depends on the column alone is read here, once, to wait at [`Columns::vector`]:
    /// memory is far away.
    ///
    /// # Safety
    /// All threads of the consumer are here, each with its number.
    #[inline(always)]
    unsafe fn prepare(&mut self, _columns: Columns, _thread: u32) {}

    /// Turns elements of the product into elements of the result, in f32 registers.
    ///
    /// # Safety
    /// The elements that `at` counts are elements of the product, and this thread's alone. All threads of the
    /// warp are here.
    unsafe fn apply<const N: usize>(&mut self, at: FragmentCoord, x: &mut Pairs<N>);

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
        unroll!($pair in 0..8, { if $pair < $count $body });
    }};
}
pub(super) use each_pair;

/// The family's fusion, as [`crate::epilogue`] says. `H` is the kernel's 16-bit type.
pub struct StandardFusion<'a, H> {
    /// The terms, factors and functions that the epilogue applies. Layouts are those of the result as the
    /// kernel sees it, by rows.
    params: &'a EpilogueParams,
    /// Those of the group.
    inputs: GroupInputs,
    /// The result, which is source C.
    output: Output<'a>,
    largest: f32,
    element: PhantomData<H>,
}

impl<H> Clone for StandardFusion<'_, H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for StandardFusion<'_, H> {}

impl<'a, H: Element16> StandardFusion<'a, H> {
    /// With these parameters, for this result.
    #[inline(always)]
    pub const fn new(params: &'a EpilogueParams, output: Output<'a>) -> Self {
        let inputs = GroupInputs::first(params);
        Self { params, inputs, output, largest: 0.0, element: PhantomData }
    }

    /// Takes the bias and the scales of a group, of a product of `n` columns.
    #[inline(always)]
    pub(super) fn enter_group(&mut self, group: u32, n: u32) {
        self.inputs = GroupInputs::of(self.params, group, n);
    }

    /// Source C.
    #[inline(always)]
    fn source(&self) -> Vectors<H> {
        let (OutputParams { row, matrix, .. }, format) = (*self.output.params, self.output.format());
        let is_f32 = matches!(format.element(), OutputType::F32);
        Vectors::new(self.output.data, row, matrix, is_f32, format.has(OutputFlag::Paired))
    }

    #[inline(always)]
    fn residual(&self) -> Vectors<H> {
        let EpilogueParams { residual, residual_layout: layout, .. } = *self.params;
        let is_f32 = layout.ty == Type::F32 as u32;
        Vectors::new(
            residual,
            layout.row,
            layout.batch,
            is_f32,
            self.output.format().has(OutputFlag::ResidualPaired),
        )
    }

    /// Where values before the activation go.
    #[inline(always)]
    fn pre(&self) -> Vectors<H> {
        let EpilogueParams { pre, pre_layout: layout, .. } = *self.params;
        Vectors::new(pre.cast_const(), layout.row, layout.batch, layout.ty == Type::F32 as u32, false)
    }

    #[inline(always)]
    fn raise(&mut self, x: f32) {
        self.largest = fastmath::max_nan(self.largest, x.abs());
    }

    /// Writes the sums of the columns over the warp's rows.
    ///
    /// # Safety
    /// As for [`Fusion::apply`], and `sums` has a row for these rows.
    #[inline(always)]
    unsafe fn store_sums<const N: usize>(&self, sums: *mut f32, at: FragmentCoord, x: &Pairs<N>) {
        let [rows, columns] = at.sides;
        // SAFETY: the whole warp is here.
        let (sum, column) = unsafe { column_sum(at, x) };
        let (block, blocks) = (at.row / SUMMED_ROWS, rows.div_ceil(SUMMED_ROWS));
        if column < columns && block < blocks {
            let row = u64::from(at.batch) * u64::from(blocks) + u64::from(block);
            // SAFETY: a column of the result, and the row of these rows, which no other warp has.
            unsafe { vector::store(sums.add((row * u64::from(columns) + u64::from(column)) as usize), sum) };
        }
    }
}

/// The sum of a column over the warp's rows, and the column: each lane has one of the chunk's 32.
///
/// ```text
///   a lane has 8 columns of two rows; lanes of 8 pairs of rows have the same ones
///   exchange with the lane 16 on:   each gives four sums, and adds four     (the upper half keeps the second four)
///                  8 on, 4 on:      two, then one
/// ```
///
/// # Safety
/// The whole warp calls it.
#[inline(always)]
unsafe fn column_sum<const N: usize>(at: FragmentCoord, x: &Pairs<N>) -> (f32, u32) {
    let lane = warp::lane_id();
    // Two columns of each two pairs below each other.
    let mut sums = [0.0; WIDE];
    each_pair!(PAIR of N {
        if at.count(PAIR) > 0 {
            sums[PAIR / 2 * 2] += x[PAIR][0];
            sums[PAIR / 2 * 2 + 1] += x[PAIR][1];
        }
    });
    let mut first = 0;
    unroll!(TURN in 0..3, {
        let (mask, width) = (16 >> TURN, WIDE >> (TURN + 1));
        let is_upper = lane & mask != 0;
        unroll!(I in 0..4, { if I < width {
            let (kept, given) = if is_upper { (sums[I + width], sums[I]) } else { (sums[I], sums[I + width]) };
            // SAFETY: the whole warp is here.
            sums[I] = kept + unsafe { warp_shuffle_xor(FULL_MASK, given, mask, 32) }.0;
        } });
        first += if is_upper { width as u32 } else { 0 };
    });
    (sums[0], at.column + first / 2 * STEP + first % 2)
}

/// The number there, 1 where there is none. Read for each chunk: the cache keeps it, registers are for
/// accumulators.
///
/// # Safety
/// `pointer` is null or valid for a read.
#[inline(always)]
unsafe fn factor(pointer: *const f32) -> f32 {
    // SAFETY: not null, so one number, by the caller's word.
    if pointer.is_null() { 1.0 } else { unsafe { vector::load(pointer) } }
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

#[inline(always)]
fn multiply<const N: usize>(x: &mut Pairs<N>, factors: Pairs<N>) {
    each_pair!(PAIR of N { x[PAIR] = [x[PAIR][0] * factors[PAIR][0], x[PAIR][1] * factors[PAIR][1]]; });
}

/// Pairs of the chunks that have room for what a training step asks of an epilogue. See
/// [`Config::CHUNK_STEPS`](super::config::Config::CHUNK_STEPS).
const WIDE: usize = 8;
/// Pairs that [`by_fours`] hands over at a time.
const FOUR: usize = 4;

/// Hands over the pairs of a wide chunk by fours, so that derivatives, of many instructions each, are there
/// for four alone. (Activations are not: their latencies would show twice, a quarter of the time of GELU
/// behind short sums.)
#[inline(always)]
fn by_fours<const N: usize>(x: &mut Pairs<N>, mut change: impl FnMut(&mut Pairs<FOUR>)) {
    let mut turn = 0;
    loop {
        let mut four = [[0.0; 2]; FOUR];
        each_pair!(PAIR of FOUR { four[PAIR] = x[PAIR]; });
        change(&mut four);
        // The next four, with these behind them.
        each_pair!(PAIR of N { x[PAIR] = if PAIR + FOUR < N { x[(PAIR + FOUR) % N] } else { four[PAIR % FOUR] }; });
        turn += FOUR;
        if misc::opaque(turn as u32) as usize >= N {
            break;
        }
    }
}

/// Applies a function to each element. Which one is asked once, not for each: their latencies then overlap.
struct Apply<'x, const N: usize>(&'x mut Pairs<N>);

impl<const N: usize> Visitor<f32> for Apply<'_, N> {
    #[inline(always)]
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        each_pair!(PAIR of N { self.0[PAIR] = self.0[PAIR].map(function); });
    }
}

impl<H: Element16> Fusion for StandardFusion<'_, H> {
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    unsafe fn prepare(&mut self, columns: Columns, thread: u32) {
        let Columns { first, count, end, vector } = columns;
        let (GroupInputs { bias, .. }, bias_type) = (self.inputs, self.params.bias_type);
        if bias.is_null() {
            return;
        }
        let mut index = thread;
        while index < count {
            let column = (first + index) as usize;
            // SAFETY: a column of the result; a number of the fusion's, this thread's alone.
            unsafe {
                let bias = if first + index >= end {
                    0.0
                } else if bias_type == Type::F32 as u32 {
                    vector::load(bias.cast::<f32>().add(column))
                } else {
                    load_one::<H>(bias.cast::<u16>().add(column))
                };
                vector::store_shared(vector + index * WORD, bias);
            }
            index += WARPGROUP;
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    unsafe fn apply<const N: usize>(&mut self, at: FragmentCoord, x: &mut Pairs<N>) {
        if self.output.format().has(OutputFlag::Identity) {
            return;
        }
        let EpilogueParams {
            alpha, beta, activation, residual, is_gradient, pre, scale_c, amax, sums, ..
        } = *self.params;
        let GroupInputs { bias, scale_a, scale_b } = self.inputs;
        // Numbers derived from it take no registers beside the accumulators.
        let activation = Activation::from_code(misc::opaque(activation));
        let halved = matches!(activation, Activation::SwiGlu);
        let (mut at, trains) = (at, N == WIDE && at.trains);
        // SAFETY: the caller's contract, and what the pointers' owners say.
        unsafe {
            let alpha = alpha * factor(scale_a) * factor(scale_b);
            if bias.is_null() {
                scale(x, alpha);
            } else {
                let mut bias = [0.0; 2];
                each_pair!(PAIR of N {
                    if PAIR.is_multiple_of(2) {
                        bias = vector::load_shared_v2(at.vector + PAIR as u32 / 2 * STEP * WORD);
                    }
                    x[PAIR] = [fastmath::fma(alpha, x[PAIR][0], bias[0]), fastmath::fma(alpha, x[PAIR][1], bias[1])];
                });
            }
            if beta != 0.0 && !halved {
                let source = if residual.is_null() { at.source } else { None };
                self.source().visit(at, source, |addend| add(x, beta, addend));
            }
            if trains {
                if let Some(slots) = at.pre {
                    each_pair!(PAIR of N { vector::store_shared(slots.address(PAIR), H::pack(x[PAIR][0], x[PAIR][1])); });
                } else if !pre.is_null() {
                    self.pre().store(at, x);
                }
            }
            if halved {
                at = at.halved();
                each_pair!(PAIR of N { x[PAIR][0] = Fast::swiglu(x[PAIR][0], x[PAIR][1]); });
            } else if !trains || !is_gradient {
                activation.visit::<Fast>(Apply(x));
            }
            if trains && !residual.is_null() {
                let mut addend = [[0.0; 2]; N];
                self.residual().visit(at, at.source, |pairs| addend = pairs);
                if is_gradient {
                    by_fours(&mut addend, |four| activation.visit_derivative::<Fast>(Apply(four)));
                    multiply(x, addend);
                } else {
                    add(x, 1.0, addend);
                }
            } else if !residual.is_null() {
                self.residual().visit(at, at.source, |addend| add(x, 1.0, addend));
            }
            if !amax.is_null() {
                each_pair!(PAIR of N {
                    let count = at.count(PAIR);
                    if count > 0 { self.raise(x[PAIR][0]); }
                    if count > 1 { self.raise(x[PAIR][1]); }
                });
            }
            if trains && !sums.is_null() {
                self.store_sums(sums, at, x);
            }
            if !scale_c.is_null() {
                scale(x, vector::load(scale_c));
            }
        }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    unsafe fn finish(&mut self) {
        let amax = self.params.amax;
        if amax.is_null() {
            return;
        }
        // The bits of numbers that are not negative are in their order, with NaN on top.
        let bits = self.largest.to_bits() & !(1 << 31);
        // SAFETY: the caller says that the warp is here; `amax` is the launch's.
        unsafe {
            let largest = warp::warp_reduce(warp::FULL_MASK, bits, WarpReductionOp::Max);
            if warp::lane_id() == 0 {
                atomic_fetch_max_u32_device(amax, Ordering::Relaxed, largest);
            }
        }
    }
}
