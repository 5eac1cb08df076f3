//! Fusions: functions of the product's elements between the accumulators and memory.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use cuda_std::atomic::mid::atomic_fetch_max_u32_device;
use cuda_std::warp::{self, WarpReductionOp};
use cuda_std::{fastmath, misc, vector};

use primitives::unroll;

use super::column_store::{WIDE_PAIRS, each_wide_pair};
use super::config::WARPGROUP;
use super::epilogue::{Output, OutputFlag, OutputParams, OutputType};
use super::operands::Element16;
use super::subtile::Slots;
use super::vectors::Vectors;
use crate::element::Type;
use crate::epilogue::{Activation, EpilogueParams, Fast, GroupInputs, Precision, Visitor};

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
const WIDTHS: u32 = 4;

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

    /// Whether [`apply_by_column`](Fusion::apply_by_column) is there.
    const BY_COLUMN: bool = false;

    /// As [`apply`](Fusion::apply), for the pairs of a subtile, and for launches with
    /// [`OutputFlag::ByColumn`] alone. `vector` is the shared address of the first pair's
    /// [`Columns::vector`], `factor` that of [`factor`](Fusion::factor). With [`OutputFlag::SourceByTma`]
    /// `source` waits for the pairs' elements of [`Maps::source`](super::mainloop::Maps::source) and reads
    /// them; else it is not called.
    ///
    /// # Safety
    /// As for [`apply`](Fusion::apply).
    #[inline(always)]
    unsafe fn apply_by_column(
        &mut self,
        _factor: f32,
        _vector: u32,
        _x: &mut Pairs<WIDE_PAIRS>,
        _source: impl Fn() -> Pairs<WIDE_PAIRS>,
    ) {
    }

    /// Factor of the product of a tile, for [`apply_by_column`](Fusion::apply_by_column): read once a tile.
    ///
    /// # Safety
    /// As for [`enter`](Fusion::enter), which has been called.
    #[inline(always)]
    unsafe fn factor(&self) -> f32 {
        1.0
    }

    /// Whether that takes what the copy engine brings; else such launches go through
    /// [`apply`](Fusion::apply).
    const TAKES_SOURCE: bool = false;

    /// Whether [`narrow`](Fusion::narrow) is there.
    const NARROW: bool = false;

    /// Called behind [`apply_by_column`](Fusion::apply_by_column) for a result of 8 bits: takes its factor.
    /// Of tiles that are not all the result's, only if the fusion does not [count](Fusion::counts).
    ///
    /// # Safety
    /// As for [`apply`](Fusion::apply).
    #[inline(always)]
    unsafe fn narrow(&mut self, _x: &mut Pairs<WIDE_PAIRS>) {}

    /// Does an element outside of the result matter, since the fusion makes a number of all of them?
    #[inline(always)]
    fn counts(&self) -> bool {
        false
    }

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

/// The place of a pair. A device faults where that is not aligned to its size; the executor would not, since
/// it does not see the alignment of plain loads and stores.
#[inline(always)]
#[track_caller]
pub(super) fn aligned<Two>(pair: *mut Two) -> *mut Two {
    if cfg!(not(target_arch = "nvptx64")) {
        assert!(pair.is_aligned(), "the pair at {pair:p} is not aligned to its {} bytes", size_of::<Two>());
    }
    pair
}

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

    #[inline(always)]
    fn raise(&mut self, x: f32) {
        self.largest = fastmath::max_nan(self.largest, x.abs());
    }
}

/// A 16-bit number.
///
/// # Safety
/// `from` is valid for a read.
#[inline(always)]
#[track_caller]
unsafe fn load_one<H: Element16>(from: *const u16) -> f32 {
    // SAFETY: the caller's word.
    H::unpack(unsafe { vector::load_b16(from) }.into())[0]
}

/// The number there, 1 where there is none. In chunks it is read for each: the cache keeps it, registers are
/// for accumulators.
///
/// # Safety
/// `pointer` is null or valid for a read.
#[inline(always)]
unsafe fn number_or_one(pointer: *const f32) -> f32 {
    // SAFETY: not null, so one number, by the caller's word.
    if pointer.is_null() { 1.0 } else { unsafe { vector::load(pointer) } }
}

#[inline(always)]
fn scale<const N: usize>(x: &mut Pairs<N>, factor: f32) {
    each_pair!(PAIR of N { x[PAIR] = x[PAIR].map(|x| x * factor); });
}

#[inline(always)]
pub(super) fn add<const N: usize>(x: &mut Pairs<N>, factor: f32, addend: Pairs<N>) {
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

/// Applies a function to each element of a subtile.
#[inline(always)]
pub(super) fn map_wide(x: &mut Pairs<WIDE_PAIRS>, function: impl Fn(f32) -> f32 + Copy) {
    each_wide_pair!(PAIR { x[PAIR] = x[PAIR].map(function); });
}

/// Adds a subtile's elements, times a factor.
#[inline(always)]
fn add_wide(x: &mut Pairs<WIDE_PAIRS>, factor: f32, addend: &Pairs<WIDE_PAIRS>) {
    each_wide_pair!(PAIR {
        let ([a, b], [c, d]) = (x[PAIR], addend[PAIR]);
        x[PAIR] = [fastmath::fma(factor, c, a), fastmath::fma(factor, d, b)];
    });
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
        let EpilogueParams { alpha, beta, activation, residual, scale_c, amax, .. } = *self.params;
        let GroupInputs { bias, scale_a, scale_b } = self.inputs;
        // Numbers derived from it take no registers beside the accumulators.
        let activation = Activation::from_code(misc::opaque(activation));
        let halved = matches!(activation, Activation::SwiGlu);
        // SAFETY: the caller's contract, and what the pointers' owners say.
        unsafe {
            let alpha = alpha * number_or_one(scale_a) * number_or_one(scale_b);
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
                self.source().add(at, source, beta, x);
            }
            let at = if halved { at.halved() } else { at };
            if halved {
                each_pair!(PAIR of N { x[PAIR][0] = Fast::swiglu(x[PAIR][0], x[PAIR][1]); });
            } else {
                activate(activation, x);
            }
            if !residual.is_null() {
                self.residual().add(at, at.source, 1.0, x);
            }
            if !amax.is_null() {
                each_pair!(PAIR of N {
                    let count = at.count(PAIR);
                    if count > 0 { self.raise(x[PAIR][0]); }
                    if count > 1 { self.raise(x[PAIR][1]); }
                });
            }
            if !scale_c.is_null() {
                scale(x, vector::load(scale_c));
            }
        }
    }

    const BY_COLUMN: bool = true;
    const TAKES_SOURCE: bool = true;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    unsafe fn factor(&self) -> f32 {
        let GroupInputs { scale_a, scale_b, .. } = self.inputs;
        // SAFETY: what the pointers' owners say.
        unsafe { self.params.alpha * number_or_one(scale_a) * number_or_one(scale_b) }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    unsafe fn apply_by_column(
        &mut self,
        factor: f32,
        vector: u32,
        x: &mut Pairs<WIDE_PAIRS>,
        source: impl Fn() -> Pairs<WIDE_PAIRS>,
    ) {
        let EpilogueParams { beta, activation, residual, .. } = *self.params;
        // SAFETY: the caller's contract.
        unsafe {
            let mut addends = [[0.0; 2]; WIDE_PAIRS / 2];
            if !self.inputs.bias.is_null() {
                unroll!(STEP_OF in 0..8, {
                    addends[STEP_OF] = vector::load_shared_v2(vector + STEP_OF as u32 * STEP * WORD);
                });
            }
            each_wide_pair!(PAIR {
                let ([a, b], [c, d]) = (x[PAIR], addends[PAIR / 2]);
                x[PAIR] = [fastmath::fma(factor, a, c), fastmath::fma(factor, b, d)];
            });
        }
        if self.output.format().has(OutputFlag::SourceByTma) && residual.is_null() {
            add_wide(x, beta, &source());
        }
        match Activation::from_code(activation) {
            Activation::Relu => map_wide(x, Fast::relu),
            Activation::GeluTanh => map_wide(x, Fast::gelu_tanh),
            Activation::Silu => map_wide(x, Fast::silu),
            _ => {}
        }
        if self.output.format().has(OutputFlag::SourceByTma) && !residual.is_null() {
            add_wide(x, 1.0, &source());
        }
    }

    const NARROW: bool = true;

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    unsafe fn narrow(&mut self, x: &mut Pairs<WIDE_PAIRS>) {
        let scale_c = self.params.scale_c;
        if self.counts() {
            each_wide_pair!(PAIR {
                self.raise(x[PAIR][0]);
                self.raise(x[PAIR][1]);
            });
        }
        if !scale_c.is_null() {
            // SAFETY: not null, so one number, by the launch's word.
            let scale = unsafe { vector::load(scale_c) };
            map_wide(x, |x| x * scale);
        }
    }

    #[inline(always)]
    fn counts(&self) -> bool {
        !self.params.amax.is_null()
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
