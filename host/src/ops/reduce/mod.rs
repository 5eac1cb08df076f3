//! Reductions, with PyTorch's names: of tensors along any of their axes, and of the f32 elements of a buffer
//! (`buffer_sum`, ..).
//!
//! Results have the same bits in every run and on every device. 16-bit floats are summed in f32 and rounded
//! once. Integers are summed in i64 and wrap around. A reduction removes its axes; [`Tensor::unsqueeze`] adds
//! one again. Axes that are last in memory, or neighbours in a contiguous tensor, are reduced without a copy.
//! For other axes the tensor is copied first.

mod buffer;

pub use buffer::{buffer_amax, buffer_amax_into, buffer_sum, buffer_sum_into};

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use tensor::THREADS;
use tensor::reduce::Reduced;
use tensor::reduce::arg::{
    Extreme, SHARE, arg_rows_bf16, arg_rows_f16, arg_rows_f32, arg_rows_f64, arg_rows_i32, arg_rows_i64,
    arg_rows_u8,
};
use tensor::reduce::columns::{
    Columns, fold_columns_bf16, fold_columns_f16, fold_columns_f32, fold_columns_f64, fold_columns_i32,
    fold_columns_i64, fold_columns_u8,
};
use tensor::reduce::fold::{
    Finish, Fold, Kind, fold_rows_bf16, fold_rows_f16, fold_rows_f32, fold_rows_f64, fold_rows_i32,
    fold_rows_i64, fold_rows_u8,
};
use tensor::reduce::rows::{Rows, UNROLL};

use super::convert::convert;
use super::elementwise::{contiguous, made};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::ops::dispatch::by_dtype;
use crate::stream::Stream;
use crate::tensor::{DType, Dim, Shape, Tensor, TensorError};

/// The rules of a reduction: a row of the table.
struct Rules {
    /// The fold that the kernels compute.
    fold: Fold,
    /// Whether it takes floats only.
    floats_only: bool,
    /// Whether the result of integers and bool is an i64.
    widens: bool,
    /// Does it have a value when there are no elements?
    of_nothing: bool,
}

/// The table of reductions to one value.
macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident: $kind:ident, $finish:ident, $($rule:ident: $is:literal),*;)*) => {
        /// A reduction to one value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ReduceOp {
            $($(#[$doc])* $name,)*
        }

        impl ReduceOp {
            /// Every reduction.
            pub const ALL: &'static [ReduceOp] = &[$(ReduceOp::$name),*];

            const fn rules(self) -> Rules {
                match self {
                    $(ReduceOp::$name => Rules {
                        fold: Fold { kind: Kind::$kind, finish: Finish::$finish },
                        $($rule: $is,)*
                    },)*
                }
            }
        }
    };
}

reductions! {
    /// The sum; of nothing 0. Of integers and bool an i64, else of the tensor's type.
    Sum: Sum, Nothing, floats_only: false, widens: true, of_nothing: true;
    /// The product; of nothing 1. Types as for the sum.
    Prod: Product, Nothing, floats_only: false, widens: true, of_nothing: true;
    /// The sum divided by the number of elements. Floats only.
    Mean: Sum, Divide, floats_only: true, widens: false, of_nothing: false;
    /// The square root of the sum of squares; of nothing 0. Floats only.
    Norm: Squares, Root, floats_only: true, widens: false, of_nothing: true;
    /// The largest; NaN if there is one. Of the tensor's type; of bool: does any hold?
    Amax: Max, Nothing, floats_only: false, widens: false, of_nothing: false;
    /// The smallest; NaN if there is one. Of the tensor's type; of bool: do all hold?
    Amin: MaxOfReversed, Reverse, floats_only: false, widens: false, of_nothing: false;
}

/// Reduces `x` along `axes` and removes them; with none named, along all axes.
///
/// # Errors
/// [`TensorError::Axes`] for an axis that is not there or named twice; [`TensorError::DType`] for 8-bit
/// floats, and for means and norms of integers; [`TensorError::Empty`] for a mean or an extreme of nothing,
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn reduce(stream: &Stream, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let operation = "reduce";
    let layout = Problem::new(stream, operation, x, axes)?;
    let rules = op.rules();
    let of_integers = !rules.floats_only;
    let folded = by_dtype!(x.dtype(), (operation, "x", Some(&op)), {
        F64 => layout.fold::<F64, f64>(op, layout.reduced as f64),
        F32 => layout.fold::<F32, f32>(op, layout.reduced as f32),
        F16 => layout.fold::<F16, f32>(op, layout.reduced as f32),
        BF16 => layout.fold::<Bf16, f32>(op, layout.reduced as f32),
        I64 if of_integers => layout.fold::<I64, i64>(op, 1),
        I32 if of_integers => layout.fold::<I32, i64>(op, 1),
        U8 | Bool if of_integers => layout.fold::<U8, i64>(op, 1),
    })?;
    let result = if rules.widens && !x.dtype().is_float() { DType::I64 } else { x.dtype() };
    if folded.dtype() == result { Ok(folded) } else { convert(stream, &folded, result) }
}

/// A function for each reduction.
macro_rules! functions {
    ($($name:ident: $op:ident;)*) => { $(
        #[doc = concat!("[`reduce`] by [`ReduceOp::", stringify!($op), "`].")]
        ///
        /// # Errors
        /// As [`reduce`].
        #[track_caller]
        pub fn $name(stream: &Stream, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
            reduce(stream, ReduceOp::$op, x, axes)
        }
    )* };
}

functions! { sum: Sum; prod: Prod; mean: Mean; norm: Norm; amax: Amax; amin: Amin; }

/// The index of the largest element along `axis`, which is removed: i64, the first of several; a NaN counts
/// as larger than every number.
///
/// # Errors
/// [`TensorError::Axes`], [`TensorError::DType`] for 8-bit floats, [`TensorError::Empty`] when the axis has
/// no places, or as [`reduce`].
#[track_caller]
pub fn argmax(stream: &Stream, x: &Tensor, axis: usize) -> Result<Tensor> {
    arg(stream, "argmax", Extreme::Largest, x, axis)
}

/// As [`argmax`], of the smallest element; a NaN counts as smaller than every number.
///
/// # Errors
/// As [`argmax`].
#[track_caller]
pub fn argmin(stream: &Stream, x: &Tensor, axis: usize) -> Result<Tensor> {
    arg(stream, "argmin", Extreme::Smallest, x, axis)
}

#[track_caller]
fn arg(
    stream: &Stream,
    operation: &'static str,
    extreme: Extreme,
    x: &Tensor,
    axis: usize,
) -> Result<Tensor> {
    let problem = Problem::new(stream, operation, x, &[axis])?;
    if problem.reduced == 0 && problem.kept.elements() > 0 {
        return Err(TensorError::Empty { operation, shape: x.shape().clone() }.into());
    }
    by_dtype!(x.dtype(), (operation, "x", None), {
        F64 => problem.arg::<arg_rows_f64, f64>(extreme),
        F32 => problem.arg::<arg_rows_f32, f32>(extreme),
        F16 => problem.arg::<arg_rows_f16, f16>(extreme),
        BF16 => problem.arg::<arg_rows_bf16, bf16>(extreme),
        I64 => problem.arg::<arg_rows_i64, i64>(extreme),
        I32 => problem.arg::<arg_rows_i32, i32>(extreme),
        U8 | Bool => problem.arg::<arg_rows_u8, u8>(extreme),
    })
}

/// The kernels of an element type, and the type that they reduce in.
trait Kernels {
    type Element: bytemuck::Pod + Reduced;
    type Number: Copy;
    type Rows: Kernel<
        Params = (Value<Fold>, Value<Rows>, Value<Self::Number>, Ptr<Self::Element>, PtrMut<Self::Number>),
    >;
    type Columns: Kernel<
        Params = (Value<Fold>, Value<Columns>, Value<Self::Number>, Ptr<Self::Element>, PtrMut<Self::Number>),
    >;
    /// Those of the results, for a second launch.
    type Again: Kernels<Number = Self::Number>;
    /// The type that results have.
    const RESULT: DType;
}

macro_rules! kernels {
    ($($name:ident: $element:ident as $number:ident, $rows:ident, $columns:ident, $again:ident, $result:ident;)*) => { $(
        struct $name;
        impl Kernels for $name {
            type Element = $element;
            type Number = $number;
            type Rows = $rows;
            type Columns = $columns;
            type Again = $again;
            const RESULT: DType = DType::$result;
        }
    )* };
}

kernels! {
    F64: f64 as f64, fold_rows_f64, fold_columns_f64, F64, F64;
    F32: f32 as f32, fold_rows_f32, fold_columns_f32, F32, F32;
    F16: f16 as f32, fold_rows_f16, fold_columns_f16, F32, F32;
    Bf16: bf16 as f32, fold_rows_bf16, fold_columns_bf16, F32, F32;
    I64: i64 as i64, fold_rows_i64, fold_columns_i64, I64, I64;
    I32: i32 as i64, fold_rows_i32, fold_columns_i32, I64, I64;
    U8: u8 as i64, fold_rows_u8, fold_columns_u8, I64, I64;
}

/// A reduction of a tensor along axes.
struct Problem<'a> {
    stream: &'a Stream,
    x: &'a Tensor,
    /// The axes that stay, then those that go.
    order: Vec<usize>,
    /// The shape that stays.
    kept: Shape,
    /// Elements of each result.
    reduced: usize,
}

/// One launch: its fold, and the last step of its results.
struct Pass<'a> {
    stream: &'a Stream,
    fold: Fold,
    last: Finish,
}

impl<'a> Problem<'a> {
    fn new(stream: &'a Stream, operation: &'static str, x: &'a Tensor, axes: &[usize]) -> Result<Self> {
        let rank = x.rank();
        let twice = axes.iter().enumerate().any(|(place, axis)| axes[..place].contains(axis));
        if twice || axes.iter().any(|&axis| axis >= rank) {
            let wanted = "at most once, counted from 0";
            let axes = axes.iter().map(|axis| axis.given()).collect();
            return Err(TensorError::Axes { operation, axes, rank, wanted }.into());
        }
        let goes = |axis: &usize| axes.is_empty() || axes.contains(axis);
        let (mut order, gone): (Vec<usize>, Vec<usize>) = (0..rank).partition(|axis| !goes(axis));
        let sides: Vec<usize> = order.iter().map(|&axis| x.shape()[axis]).collect();
        let kept = Shape::of(operation, &sides)?;
        let reduced = gone.iter().map(|&axis| x.shape()[axis]).product();
        order.extend(gone);
        Ok(Problem { stream, x, order, kept, reduced })
    }

    /// Matrices, rows and row length when the axes that go lie next to each other in a contiguous tensor with
    /// others behind them.
    fn as_columns(&self) -> Option<[u64; 3]> {
        let gone = &self.order[self.kept.rank()..];
        let (&first, &last) = (gone.first()?, gone.last()?);
        let neighbours = last - first + 1 == gone.len();
        let sides = self.x.shape();
        let product = |sides: &[usize]| sides.iter().product::<usize>() as u64;
        let (outer, rows, inner) =
            (product(&sides[..first]), product(&sides[first..=last]), product(&sides[last + 1..]));
        (neighbours && self.x.is_contiguous() && inner > 1 && outer * rows * inner > 0)
            .then_some([outer, rows, inner])
    }

    /// The tensor with the axes that go last, contiguous.
    #[track_caller]
    fn as_rows(&self) -> Result<Tensor> {
        contiguous(self.stream, &self.x.permute(&self.order)?)
    }

    #[track_caller]
    fn fold<K: Kernels<Number = N>, N: Copy>(&self, op: ReduceOp, divisor: N) -> Result<Tensor> {
        let Rules { fold, of_nothing, .. } = op.rules();
        if self.reduced == 0 && self.kept.elements() > 0 && !of_nothing {
            return Err(TensorError::Empty { operation: "reduce", shape: self.x.shape().clone() }.into());
        }
        let pass =
            Pass { stream: self.stream, fold: Fold { finish: Finish::Nothing, ..fold }, last: fold.finish };
        let (rows, columns) = (self.kept.elements() as u64, self.reduced as u64);
        if let Some([outer, rows, inner]) = self.as_columns() {
            return pass.columns::<K>(self.x, &self.kept, [outer, rows, inner], divisor);
        }
        pass.rows::<K>(&self.as_rows()?, &self.kept, rows, columns, divisor)
    }

    #[track_caller]
    fn arg<K, T>(&self, extreme: Extreme) -> Result<Tensor>
    where
        K: Kernel<Params = (Value<Extreme>, Value<Rows>, Value<u64>, Ptr<T>, Ptr<i64>, PtrMut<i64>)>,
    {
        let x = self.as_rows()?;
        let (rows, columns) = (self.kept.elements() as u64, self.reduced as u64);
        let plan = Rows::new(rows, columns, size_of::<T>(), SHARE);
        let pass = ArgPass { stream: self.stream, extreme, x: &x, columns };
        if plan.chunks == 1 {
            return pass.run::<K, T>(plan, &self.kept, None);
        }
        let candidates =
            pass.run::<K, T>(plan, &Shape::of("arg", &[rows as usize, plan.chunks as usize])?, None)?;
        pass.run::<K, T>(Rows::whole(rows, plan.chunks.into()), &self.kept, Some(&candidates))
    }
}

/// A search for the places of extremes in rows of `columns` elements.
struct ArgPass<'a> {
    stream: &'a Stream,
    extreme: Extreme,
    x: &'a Tensor,
    columns: u64,
}

impl ArgPass<'_> {
    /// The place for each chunk of the plan, of the shape `shape`; among `candidates`, if there are some.
    #[track_caller]
    fn run<K, T>(&self, plan: Rows, shape: &Shape, candidates: Option<&Tensor>) -> Result<Tensor>
    where
        K: Kernel<Params = (Value<Extreme>, Value<Rows>, Value<u64>, Ptr<T>, Ptr<i64>, PtrMut<i64>)>,
    {
        let Self { stream, extreme, x, columns } = *self;
        made(stream, shape, DType::I64, |out| {
            let from = candidates.map(|candidates| candidates.read(stream)).transpose()?;
            let (x, y) = (x.read::<T>(stream)?, out.write(stream)?);
            // SAFETY: x holds the plan's rows, y a place for each chunk; candidates are places within their
            // rows.
            unsafe { launch::<K>(stream, config(plan.blocks()), (extreme, plan, columns, x, from, y)) }
        })
    }
}

impl Pass<'_> {
    /// The pass over what this one leaves.
    fn again(&self) -> Self {
        Pass {
            stream: self.stream,
            fold: Fold { kind: self.fold.kind.of_results(), ..self.fold },
            last: self.last,
        }
    }

    fn with_finish(&self, is_last: bool) -> Fold {
        if is_last { Fold { finish: self.last, ..self.fold } } else { self.fold }
    }

    /// `rows` rows of `columns` elements to a tensor of the shape `kept`.
    #[track_caller]
    fn rows<K: Kernels>(
        &self,
        x: &Tensor,
        kept: &Shape,
        rows: u64,
        columns: u64,
        divisor: K::Number,
    ) -> Result<Tensor> {
        let plan = Rows::new(rows, columns, size_of::<K::Element>(), UNROLL as u64);
        let is_last = plan.chunks == 1;
        let shape =
            if is_last { kept.clone() } else { Shape::of("reduce", &[rows as usize, plan.chunks as usize])? };
        let fold = self.with_finish(is_last);
        let out = made(self.stream, &shape, K::RESULT, |out| {
            let (x, y) = (x.read::<K::Element>(self.stream)?, out.write::<K::Number>(self.stream)?);
            // SAFETY: x holds the rows, y a place for each chunk, exclusively borrowed.
            unsafe { launch::<K::Rows>(self.stream, config(plan.blocks()), (fold, plan, divisor, x, y)) }
        })?;
        if is_last {
            Ok(out)
        } else {
            self.again().rows::<K::Again>(&out, kept, rows, plan.chunks.into(), divisor)
        }
    }

    /// `[outer, rows, inner]`, none of them 0, to a tensor of the shape `kept`.
    #[track_caller]
    fn columns<K: Kernels>(
        &self,
        x: &Tensor,
        kept: &Shape,
        sides: [u64; 3],
        divisor: K::Number,
    ) -> Result<Tensor> {
        let [outer, rows, inner] = sides;
        let plan = Columns::new::<K::Element>(outer, rows, inner, x.address());
        let is_last = plan.chunks == 1;
        let between = [outer, plan.chunks, inner].map(|side| side as usize);
        let shape = if is_last { kept.clone() } else { Shape::of("reduce", &between)? };
        let fold = self.with_finish(is_last);
        let out = made(self.stream, &shape, K::RESULT, |out| {
            let (x, y) = (x.read::<K::Element>(self.stream)?, out.write::<K::Number>(self.stream)?);
            // SAFETY: x holds the matrices at the plan's address, y a row for each chunk, exclusively
            // borrowed.
            unsafe { launch::<K::Columns>(self.stream, config(plan.blocks()), (fold, plan, divisor, x, y)) }
        })?;
        if is_last {
            Ok(out)
        } else {
            self.again().columns::<K::Again>(&out, kept, [outer, plan.chunks, inner], divisor)
        }
    }
}

fn config(blocks: u64) -> LaunchConfig {
    /// With at most so many blocks those of two launches find multiprocessors of their own, and from so many
    /// on all are busy anyway. In between, blocks that begin early crowd where the launch before has left
    /// room, and wait for one another.
    const FEW: u64 = 64;
    const MANY: u64 = 1024;
    // More blocks than a grid holds become an error of the launch; none is no launch at all.
    let config = LaunchConfig::new([u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], [THREADS, 1, 1]);
    if blocks <= FEW || blocks >= MANY { config.overlapping_previous() } else { config }
}
