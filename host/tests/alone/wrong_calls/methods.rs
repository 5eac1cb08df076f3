//! Methods and operators of tensors. Each error begins with the name of the method.

use ironwarp::ops::dropout::Generator;
use ironwarp::ops::rotary::{Positions, RotaryTables};
use ironwarp::{DType, Device, Error, Result, Tensor, TensorError};

use super::Calls;
use crate::common::Bench;

const F32: DType = DType::F32;

/// f32 `[2, 3, 4]`.
fn x(bench: &Bench) -> Result<Tensor> {
    of(bench, &[2, 3, 4], F32)
}

fn of(bench: &Bench, shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::zeros(&bench.stream, shape, dtype)
}

fn indices(bench: &Bench, shape: &[usize], values: &[i64]) -> Result<Tensor> {
    Tensor::from_slice(&bench.stream, shape, values)
}

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Argument,
    Axes,
    Axis,
    Broadcast,
    DType,
    Elements,
    Empty,
    Index,
    NotContiguous,
    Overlapping,
    Place,
    Rank,
    Shape,
    Shared,
    Slice,
    TooLarge,
}

fn kind(error: &Error) -> Option<Kind> {
    if let Error::InvalidArgument { .. } = error {
        return Some(Kind::Argument);
    }
    Some(match error.tensor_error()? {
        TensorError::Axes { .. } => Kind::Axes,
        TensorError::Axis { .. } => Kind::Axis,
        TensorError::Broadcast { .. } => Kind::Broadcast,
        TensorError::DType { .. } => Kind::DType,
        TensorError::Elements { .. } => Kind::Elements,
        TensorError::Empty { .. } => Kind::Empty,
        TensorError::Index { .. } => Kind::Index,
        TensorError::NotContiguous { .. } => Kind::NotContiguous,
        TensorError::Overlapping { .. } => Kind::Overlapping,
        TensorError::Place { .. } => Kind::Place,
        TensorError::Rank { .. } => Kind::Rank,
        TensorError::Shape { .. } => Kind::Shape,
        TensorError::Shared { .. } => Kind::Shared,
        TensorError::Slice { .. } => Kind::Slice,
        TensorError::TooLarge { .. } => Kind::TooLarge,
        _ => return None,
    })
}

impl Calls {
    /// A call of `method`, whose error is of the kind `wanted` and names the method.
    fn method<T>(&mut self, method: &str, wanted: Kind, call: impl FnOnce(&Bench) -> Result<T>) {
        self.wrong(method, call, |error| {
            let text = error.to_string();
            kind(error) == Some(wanted) && text.starts_with(&format!("{method}: "))
        });
    }
}

pub(crate) fn table(calls: &mut Calls) {
    creation(calls);
    arithmetic(calls);
    types(calls);
    in_place(calls);
    comparisons(calls);
    functions(calls);
    reductions(calls);
    rows(calls);
    losses(calls);
    shapes(calls);
    joins(calls);
    selections(calls);
    products(calls);
    layers(calls);
}

fn creation(calls: &mut Calls) {
    calls.method("Tensor::zeros", Kind::Rank, |b| of(b, &[1; 9], F32));
    calls.method("full", Kind::Rank, |b| Tensor::ones(&b.stream, &[1; 9], F32));
    calls.method("full", Kind::TooLarge, |b| Tensor::full(&b.stream, &[1 << 40, 1 << 40], 1, F32));
    calls.method("full", Kind::Argument, |b| Tensor::full(&b.stream, &[2], 256, DType::U8));
    calls.method("full", Kind::Argument, |b| Tensor::full(&b.stream, &[2], 1i64 << 40, DType::I32));
    calls.method("full_like", Kind::Argument, |b| of(b, &[2], DType::U8)?.full_like(-1));
    for (start, end, step) in [(0.0, 1.0, 0.0), (0.0, 1.0, -1.0), (1.0, 0.0, 1.0), (0.0, f64::NAN, 1.0)] {
        calls.method("arange", Kind::Argument, |b| Tensor::arange(&b.stream, start, end, step, F32));
    }
    calls.method("arange", Kind::Argument, |b| Tensor::arange(&b.stream, 0.0, f64::INFINITY, 1, F32));
    calls.method("rand", Kind::DType, |b| Tensor::rand(&b.stream, &[2], DType::I64, 1));
    calls.method("randn", Kind::DType, |b| Tensor::randn(&b.stream, &[2], DType::Bool, 1));
    calls.method("rand", Kind::Rank, |b| Tensor::rand(&b.stream, &[1; 9], F32, 1));
    calls.method("randn", Kind::TooLarge, |b| Tensor::randn(&b.stream, &[usize::MAX, 3], F32, 1));
    calls.method("eye", Kind::TooLarge, |b| Tensor::eye(&b.stream, usize::MAX, F32));
    calls.method("Tensor::from_slice", Kind::Elements, |b| Tensor::from_slice(&b.stream, &[2], &[1.0f32]));
}

/// Shapes that do not broadcast.
fn arithmetic(calls: &mut Calls) {
    let y = |b: &Bench| of(b, &[2, 3, 5], F32);
    calls.method("add", Kind::Broadcast, |b| x(b)?.add(&y(b)?));
    calls.method("add", Kind::Broadcast, |b| &x(b)? + &y(b)?);
    calls.method("sub", Kind::Broadcast, |b| x(b)? - y(b)?);
    calls.method("mul", Kind::Broadcast, |b| &x(b)? * y(b)?);
    calls.method("div", Kind::Broadcast, |b| x(b)? / &y(b)?);
    calls.method("maximum", Kind::Broadcast, |b| x(b)?.maximum(&y(b)?));
    calls.method("minimum", Kind::Broadcast, |b| x(b)?.minimum(&of(b, &[3], F32)?));
    let ints = |b: &Bench, side| of(b, &[side], DType::I32);
    calls.method("bitand", Kind::Broadcast, |b| ints(b, 2)? & ints(b, 3)?);
    calls.method("bitor", Kind::Broadcast, |b| ints(b, 0)? | ints(b, 3)?);
    calls.method("bitxor", Kind::Broadcast, |b| ints(b, 2)? ^ ints(b, 3)?);
    calls.method("add", Kind::Argument, |b| of(b, &[2], DType::U8)? + 256);
    calls.method("mul", Kind::Argument, |b| of(b, &[2], DType::I32)?.mul(1i64 << 32));
    calls.method("sub", Kind::Argument, |b| (1i64 << 40) - of(b, &[2], DType::I32)?);
}

/// Element types that a function of two operands does not have.
fn types(calls: &mut Calls) {
    let e4m3 = |b: &Bench| of(b, &[2], DType::F8E4M3);
    calls.method("add", Kind::DType, |b| e4m3(b)?.add(&of(b, &[2], F32)?));
    calls.method("add", Kind::DType, |b| e4m3(b)? + e4m3(b)?);
    calls.method("mul", Kind::DType, |b| e4m3(b)? * 2.0);
    calls.method("div", Kind::DType, |b| 1.0 / e4m3(b)?);
    calls.method("sub", Kind::DType, |b| of(b, &[2], DType::Bool)?.sub(&of(b, &[2], DType::Bool)?));
    calls.method("bitand", Kind::DType, |b| x(b)? & x(b)?);
    calls.method("bitwise_or", Kind::DType, |b| x(b)?.bitwise_or(1));
    calls.method("bitwise_xor", Kind::DType, |b| !&x(b)?);
}

/// Writes that the tensor cannot take.
fn in_place(calls: &mut Calls) {
    calls.method("add_", Kind::Broadcast, |b| of(b, &[3], F32)?.add_(&x(b)?));
    calls.method("add_", Kind::DType, |b| of(b, &[2], DType::I32)?.add_(0.5));
    calls.method("div_", Kind::DType, |b| of(b, &[2], DType::I64)?.div_(2));
    calls.method("mul_", Kind::DType, |b| of(b, &[2], DType::Bool)?.mul_(2));
    calls.method("bitwise_and_", Kind::DType, |b| x(b)?.bitwise_and_(1));
    calls.method("exp_", Kind::DType, |b| of(b, &[2], DType::I32)?.exp_());
    calls.method("neg_", Kind::DType, |b| of(b, &[2], DType::F8E5M2)?.neg_());
    calls.method("fill_", Kind::Argument, |b| of(b, &[2], DType::U8)?.fill_(300));
    calls.method("copy_", Kind::Broadcast, |b| of(b, &[3], F32)?.copy_(&x(b)?));
    let shared = |b: &Bench, write: fn(&mut Tensor) -> Result<()>| {
        let mut one = of(b, &[4], F32)?;
        let other = one.clone();
        write(&mut one).map(|()| other)
    };
    calls.method("sub_", Kind::Shared, |b| shared(b, |one| one.sub_(1)));
    calls.method("relu_", Kind::Shared, |b| shared(b, Tensor::relu_));
    calls.method("fill_", Kind::Shared, |b| shared(b, |one| one.fill_(1)));
    calls.method("copy_", Kind::Shared, |b| shared(b, |one| one.copy_(&one.clone())));
    let repeated = |b: &Bench| of(b, &[1], F32)?.broadcast_to(&[4]);
    calls.method("mul_", Kind::Overlapping, |b| repeated(b)?.mul_(2));
    calls.method("abs_", Kind::Overlapping, |b| repeated(b)?.abs_());
    calls.method("fill_", Kind::Overlapping, |b| repeated(b)?.fill_(1));
    calls.method("copy_", Kind::Overlapping, |b| repeated(b)?.copy_(&of(b, &[4], F32)?));
}

fn comparisons(calls: &mut Calls) {
    let y = |b: &Bench| of(b, &[2, 3, 5], F32);
    calls.method("eq", Kind::Broadcast, |b| x(b)?.eq(&y(b)?));
    calls.method("ne", Kind::Broadcast, |b| x(b)?.ne(&y(b)?));
    calls.method("lt", Kind::Broadcast, |b| x(b)?.lt(&y(b)?));
    calls.method("le", Kind::Broadcast, |b| x(b)?.le(&y(b)?));
    calls.method("gt", Kind::DType, |b| of(b, &[2], DType::F8E4M3)?.gt(&of(b, &[2], DType::F8E5M2)?));
    calls.method("ge", Kind::DType, |b| of(b, &[2], DType::F8E4M3)?.ge(0.0));
    calls.method("lt", Kind::Argument, |b| of(b, &[2], DType::U8)?.lt(1000));
    calls.method("isnan", Kind::DType, |b| of(b, &[2], DType::F8E4M3)?.isnan());
    calls.method("isinf", Kind::DType, |b| of(b, &[2], DType::F8E4M3)?.isinf());
    calls.method("isfinite", Kind::DType, |b| of(b, &[2], DType::F8E5M2)?.isfinite());
    calls.method("logical_not", Kind::DType, |b| of(b, &[2], DType::F8E5M2)?.logical_not());
}

fn functions(calls: &mut Calls) {
    let e5m2 = |b: &Bench| of(b, &[2], DType::F8E5M2);
    calls.method("relu", Kind::DType, |b| e5m2(b)?.relu());
    calls.method("neg", Kind::DType, |b| -&e5m2(b)?);
    calls.method("abs", Kind::DType, |b| of(b, &[2], DType::U8)?.abs());
    calls.method("sin", Kind::DType, |b| of(b, &[2], DType::F64)?.sin());
    calls.method("clamp", Kind::DType, |b| e5m2(b)?.clamp(0, 1));
    calls.method("leaky_relu", Kind::DType, |b| of(b, &[2], DType::I32)?.leaky_relu(0.1));
    calls.method("pow", Kind::DType, |b| of(b, &[2], DType::U8)?.pow(3));
    calls.method("pow", Kind::Broadcast, |b| x(b)?.pow(&of(b, &[3], F32)?));
}

fn reductions(calls: &mut Calls) {
    calls.method("sum", Kind::Axes, |b| x(b)?.sum(&[3]));
    calls.method("sum", Kind::Axes, |b| x(b)?.sum(&[0, -3]));
    calls.method("prod_keepdim", Kind::Axes, |b| x(b)?.prod_keepdim(&[-4]));
    calls.method("mean", Kind::DType, |b| of(b, &[2], DType::I64)?.mean(&[0]));
    calls.method("norm_all", Kind::DType, |b| of(b, &[2], DType::I32)?.norm_all());
    calls.method("sum_all", Kind::DType, |b| of(b, &[2], DType::F8E4M3)?.sum_all());
    calls.method("mean", Kind::Empty, |b| of(b, &[2, 0], F32)?.mean(&[1]));
    calls.method("amax", Kind::Empty, |b| of(b, &[2, 0], F32)?.amax(&[1]));
    calls.method("amin_all", Kind::Empty, |b| of(b, &[0], F32)?.amin_all());
    calls.method("argmax", Kind::Axis, |b| x(b)?.argmax(3));
    calls.method("argmin", Kind::Axis, |b| x(b)?.argmin(-4));
    calls.method("argmax", Kind::Empty, |b| of(b, &[2, 0], F32)?.argmax(1));
    calls.method("argmin", Kind::DType, |b| of(b, &[2], DType::F8E4M3)?.argmin(0));
    calls.method("argmax_all", Kind::Empty, |b| of(b, &[0], F32)?.argmax_all());
    calls.method("argmin_all", Kind::Empty, |b| of(b, &[3, 0], F32)?.argmin_all());
    calls.method("max", Kind::Axis, |b| x(b)?.max(3));
    calls.method("min", Kind::Empty, |b| of(b, &[0], F32)?.min(0));
    calls.method("all", Kind::Axes, |b| x(b)?.all(&[3]));
    calls.method("any", Kind::Axes, |b| x(b)?.any(&[0, 0]));
    calls.method("any", Kind::DType, |b| of(b, &[2], DType::F8E4M3)?.any(&[0]));
    calls.method("var", Kind::Argument, |b| x(b)?.var(&[1], 3));
    calls.method("std", Kind::Axes, |b| x(b)?.std(&[3], 0));
    calls.method("var_keepdim", Kind::Empty, |b| of(b, &[2, 0], F32)?.var_keepdim(&[1], 1));
    calls.method("std_keepdim", Kind::DType, |b| of(b, &[2], DType::I64)?.std_keepdim(&[0], 0));
    calls.method("logsumexp", Kind::Axes, |b| x(b)?.logsumexp(&[0, 0]));
    calls.method("logsumexp_keepdim", Kind::Empty, |b| of(b, &[0], F32)?.logsumexp_keepdim(&[0]));
}

fn rows(calls: &mut Calls) {
    calls.method("softmax", Kind::Axis, |b| x(b)?.softmax(3));
    calls.method("log_softmax", Kind::Axis, |b| of(b, &[], F32)?.log_softmax(0));
    calls.method("softmax", Kind::DType, |b| of(b, &[2], DType::F8E4M3)?.softmax(0));
    calls.method("rms_norm", Kind::Shape, |b| x(b)?.rms_norm(&of(b, &[3], F32)?, 1e-5));
    calls.method("rms_norm", Kind::DType, |b| x(b)?.rms_norm(&of(b, &[4], DType::F16)?, 1e-5));
    calls.method("rms_norm", Kind::Argument, |b| x(b)?.rms_norm(None, -1.0));
    calls.method("layer_norm", Kind::Shape, |b| x(b)?.layer_norm(None, &of(b, &[2, 4], F32)?, 1e-5));
    calls.method("layer_norm", Kind::Argument, |b| x(b)?.layer_norm(None, None, f64::NAN));
    calls.method("layer_norm", Kind::Axis, |b| of(b, &[], F32)?.layer_norm(None, None, 1e-5));
}

fn losses(calls: &mut Calls) {
    let norm = |b: &Bench, groups| x(b)?.group_norm(groups, None, None, 1e-5);
    calls.method("group_norm", Kind::Argument, |b| norm(b, 0));
    calls.method("group_norm", Kind::Argument, |b| norm(b, 2));
    calls.method("group_norm", Kind::Axis, |b| of(b, &[3], F32)?.group_norm(1, None, None, 1e-5));
    calls.method("group_norm", Kind::DType, |b| of(b, &[2, 3], DType::I32)?.group_norm(1, None, None, 1e-5));
    calls.method("group_norm", Kind::Shape, |b| x(b)?.group_norm(3, &of(b, &[4], F32)?, None, 1e-5));
    calls.method("group_norm", Kind::DType, |b| x(b)?.group_norm(3, None, &of(b, &[3], DType::F16)?, 1e-5));
    let norm = |b: &Bench, sides: usize, dtype, eps| {
        x(b)?.batch_norm(&of(b, &[sides], dtype)?, &of(b, &[3], F32)?, None, None, eps)
    };
    calls.method("batch_norm", Kind::Shape, |b| norm(b, 4, F32, 1e-5));
    calls.method("batch_norm", Kind::DType, |b| norm(b, 3, DType::BF16, 1e-5));
    calls.method("batch_norm", Kind::Argument, |b| norm(b, 3, F32, -1.0));
    calls.method("pair_loss", Kind::Shape, |b| x(b)?.mse_loss(&of(b, &[2, 3], F32)?));
    calls.method("pair_loss", Kind::DType, |b| x(b)?.l1_loss(&of(b, &[2, 3, 4], DType::F16)?));
    calls.method("pair_loss", Kind::Argument, |b| x(b)?.huber_loss(&x(b)?, 0.0));
    calls.method("pair_loss", Kind::Argument, |b| x(b)?.smooth_l1_loss(&x(b)?, f64::NAN));
    calls.method("cross_entropy", Kind::Shape, |b| x(b)?.cross_entropy(&of(b, &[3], DType::I64)?));
    calls.method("cross_entropy", Kind::DType, |b| of(b, &[2, 3], F32)?.cross_entropy(&of(b, &[2], F32)?));
    let soft = |b: &Bench, sides: &[usize], dtype| {
        of(b, &[2, 3], F32)?.cross_entropy_of_probabilities(&of(b, sides, dtype)?)
    };
    calls.method("cross_entropy", Kind::Shape, move |b| soft(b, &[2], F32));
    calls.method("cross_entropy", Kind::DType, move |b| soft(b, &[2, 3], DType::BF16));
    calls.method("cross_entropy", Kind::Axis, |b| of(b, &[], F32)?.cross_entropy(&of(b, &[], DType::I64)?));
}

fn shapes(calls: &mut Calls) {
    calls.method("reshape", Kind::Shape, |b| x(b)?.reshape(&[5, 5]));
    calls.method("reshape", Kind::Shape, |b| x(b)?.reshape(&[-1, -1]));
    calls.method("reshape", Kind::Shape, |b| x(b)?.reshape(&[-1, 5]));
    calls.method("reshape", Kind::Shape, |b| x(b)?.reshape(&[-2, 12]));
    calls.method("reshape", Kind::Shape, |b| of(b, &[0, 3], F32)?.reshape(&[-1, 0]));
    calls.method("reshape", Kind::Rank, |b| x(b)?.reshape(&[1, 1, 1, 1, 1, 1, 1, 1, 24]));
    calls.method("flatten", Kind::Axis, |b| x(b)?.flatten(0, 3));
    calls.method("flatten", Kind::Axes, |b| x(b)?.flatten(2, 1));
    calls.method("view_as", Kind::NotContiguous, |b| x(b)?.transpose(0, 1)?.view_as(&[24]));
    calls.method("permute", Kind::Axes, |b| x(b)?.permute(&[0, 1]));
    calls.method("permute", Kind::Axes, |b| x(b)?.permute(&[0, 1, -2]));
    calls.method("transpose", Kind::Axis, |b| x(b)?.transpose(-4, 0));
    calls.method("t", Kind::Shape, |b| x(b)?.t());
    calls.method("flip", Kind::Axes, |b| x(b)?.flip(&[3]));
    calls.method("roll", Kind::Axis, |b| x(b)?.roll(1, 3));
    calls.method("repeat", Kind::Argument, |b| x(b)?.repeat(&[2, 2]));
    calls.method("repeat", Kind::Rank, |b| x(b)?.repeat(&[1; 9]));
    calls.method("repeat", Kind::TooLarge, |b| x(b)?.repeat(&[usize::MAX, 2, 1]));
    calls.method("pad", Kind::Argument, |b| x(b)?.pad(&[[0, 1]; 4], 0));
    calls.method("pad", Kind::Argument, |b| of(b, &[2], DType::U8)?.pad(&[[0, 1]], 256));
    calls.method("pad", Kind::TooLarge, |b| x(b)?.pad(&[[usize::MAX, 1]], 0));
    calls.method("narrow", Kind::Slice, |b| x(b)?.narrow(0, 1, 2));
    calls.method("narrow", Kind::Slice, |b| x(b)?.narrow(0, usize::MAX, 2));
    calls.method("narrow", Kind::Axis, |b| x(b)?.narrow(-4, 0, 1));
    calls.method("select", Kind::Place, |b| x(b)?.select(0, -3));
    calls.method("select", Kind::Axis, |b| of(b, &[], F32)?.select(0, 0));
    calls.method("squeeze", Kind::Shape, |b| x(b)?.squeeze(-1));
    calls.method("unsqueeze", Kind::Axis, |b| x(b)?.unsqueeze(-5));
    calls.method("unsqueeze", Kind::Rank, |b| of(b, &[1; 8], F32)?.unsqueeze(0));
    calls.method("broadcast_to", Kind::Broadcast, |b| x(b)?.broadcast_to(&[2, 3, 5]));
    calls.method("size", Kind::Axis, |b| x(b)?.size(3));
    calls.method("Tensor::item", Kind::Shape, |b| x(b)?.item::<f32>());
    calls.method("Tensor::to_vec", Kind::DType, |b| x(b)?.tolist::<i64>());
    calls.method("tril", Kind::Shape, |b| of(b, &[4], F32)?.tril(0));
    calls.method("triu", Kind::Shape, |b| of(b, &[], F32)?.triu(0));
}

fn joins(calls: &mut Calls) {
    calls.method("cat", Kind::Argument, |_| Tensor::cat(&[], 0));
    calls.method("stack", Kind::Argument, |_| Tensor::stack(&[], 0));
    calls.method("cat", Kind::Axis, |b| Tensor::cat(&[&x(b)?], 3));
    calls.method("cat", Kind::Shape, |b| Tensor::cat(&[&x(b)?, &of(b, &[2, 3, 5], F32)?], 0));
    calls.method("cat", Kind::Shape, |b| Tensor::cat(&[&x(b)?, &of(b, &[2, 3], F32)?], 0));
    calls.method("cat", Kind::Shape, |b| Tensor::cat(&[&x(b)?, &of(b, &[], F32)?], 2));
    calls.method("cat", Kind::DType, |b| Tensor::cat(&[&x(b)?, &of(b, &[2, 3, 4], DType::F8E4M3)?], 0));
    calls.method("stack", Kind::Shape, |b| Tensor::stack(&[&x(b)?, &of(b, &[2, 3], F32)?], 0));
    calls.method("stack", Kind::Axis, |b| Tensor::stack(&[&x(b)?, &x(b)?], 4));
    calls.method("split", Kind::Argument, |b| x(b)?.split(0, 0));
    calls.method("split", Kind::Axis, |b| x(b)?.split(1, 3));
    calls.method("chunk", Kind::Argument, |b| x(b)?.chunk(0, 0));
    calls.method("chunk", Kind::Axis, |b| x(b)?.chunk(2, -4));
}

fn selections(calls: &mut Calls) {
    let three = |b: &Bench| indices(b, &[3], &[0, 1, 2]);
    calls.method("index_select", Kind::Axis, |b| x(b)?.index_select(3, &three(b)?));
    calls.method("index_select", Kind::Index, |b| x(b)?.index_select(0, &three(b)?));
    calls.method("index_select", Kind::Index, |b| x(b)?.index_select(1, &indices(b, &[1], &[-1])?));
    calls.method("index_select", Kind::Shape, |b| x(b)?.index_select(1, &indices(b, &[1, 1], &[0])?));
    calls.method("index_select", Kind::DType, |b| x(b)?.index_select(1, &of(b, &[1], F32)?));
    calls.method("one_hot", Kind::Index, |b| three(b)?.one_hot(2));
    calls.method("one_hot", Kind::DType, |b| of(b, &[2], F32)?.one_hot(2));
    calls.method("one_hot", Kind::Rank, |b| of(b, &[1; 8], DType::I64)?.one_hot(1));
    let vector = |b: &Bench| of(b, &[3], F32);
    calls.method("gather", Kind::Axis, |b| vector(b)?.gather(1, &three(b)?));
    calls.method("gather", Kind::Shape, |b| x(b)?.gather(0, &three(b)?));
    calls.method("gather", Kind::Index, |b| vector(b)?.gather(0, &indices(b, &[1], &[3])?));
    calls.method("gather", Kind::DType, |b| vector(b)?.gather(0, &vector(b)?));
    let write = |b: &Bench, index: &[i64], source: &Tensor| {
        vector(b)?.scatter(0, &indices(b, &[index.len()], index)?, source)
    };
    calls.method("scatter", Kind::Shape, |b| write(b, &[0, 1], &vector(b)?));
    calls.method("scatter", Kind::Index, |b| write(b, &[0, 1, 3], &vector(b)?));
    calls.method("scatter", Kind::DType, |b| write(b, &[0, 1, 2], &of(b, &[3], DType::F16)?));
    let bytes = |b: &Bench| of(b, &[3], DType::U8);
    calls.method("scatter_add", Kind::DType, |b| bytes(b)?.scatter_add(0, &three(b)?, &bytes(b)?));
    calls.method("scatter_add", Kind::Axis, |b| vector(b)?.scatter_add(-2, &three(b)?, &vector(b)?));
    let mask = |b: &Bench, side| of(b, &[side], DType::Bool);
    calls.method("where_", Kind::DType, |b| x(b)?.where_(&x(b)?, 0.0));
    calls.method("where_", Kind::Broadcast, |b| x(b)?.where_(&mask(b, 3)?, 0.0));
    calls.method("where_", Kind::DType, |b| x(b)?.where_(&mask(b, 4)?, &of(b, &[4], DType::F8E4M3)?));
    calls.method("masked_fill", Kind::DType, |b| x(b)?.masked_fill(&x(b)?, 0));
    calls.method("masked_fill", Kind::Broadcast, |b| x(b)?.masked_fill(&mask(b, 3)?, 0));
    calls.method("masked_fill", Kind::Argument, |b| bytes(b)?.masked_fill(&mask(b, 3)?, 256));
}

fn products(calls: &mut Calls) {
    let matmul = |a: &'static [usize], of_a, b: &'static [usize], of_b| {
        move |bench: &Bench| of(bench, a, of_a)?.matmul(&of(bench, b, of_b)?)
    };
    calls.method("matmul", Kind::Shape, matmul(&[2, 3], F32, &[2, 3], F32));
    calls.method("matmul", Kind::Shape, matmul(&[3], F32, &[4], F32));
    calls.method("matmul", Kind::Shape, matmul(&[], F32, &[4], F32));
    calls.method("matmul", Kind::Shape, matmul(&[4], F32, &[], F32));
    calls.method("matmul", Kind::Broadcast, matmul(&[2, 3, 4], F32, &[3, 4, 5], F32));
    calls.method("matmul", Kind::DType, matmul(&[2, 3], F32, &[3, 2], DType::F16));
    calls.method("matmul", Kind::DType, matmul(&[2, 3], DType::I32, &[3, 2], DType::I32));
    calls.method("matmul", Kind::DType, matmul(&[2], DType::F64, &[2], DType::F64));
    let linear = |weight: &'static [usize], of_weight, bias: &'static [usize]| {
        move |b: &Bench| x(b)?.linear(&of(b, weight, of_weight)?, &of(b, bias, F32)?)
    };
    calls.method("linear", Kind::Shape, linear(&[4, 5], F32, &[4]));
    calls.method("linear", Kind::Shape, linear(&[4], F32, &[4]));
    calls.method("linear", Kind::Shape, linear(&[5, 4], F32, &[1]));
    calls.method("linear", Kind::DType, linear(&[5, 4], DType::BF16, &[5]));
}

fn layers(calls: &mut Calls) {
    let table = |b: &Bench| of(b, &[3, 4], F32);
    calls.method("embedding", Kind::Index, |b| table(b)?.embedding(&indices(b, &[1, 2], &[0, 3])?));
    calls.method("embedding", Kind::Index, |b| table(b)?.embedding(&indices(b, &[1], &[-1])?));
    calls.method("embedding", Kind::DType, |b| table(b)?.embedding(&of(b, &[2], F32)?));
    calls.method("embedding", Kind::Axis, |b| of(b, &[], F32)?.embedding(&indices(b, &[1], &[0])?));
    let dropout = |probability, dtype| {
        move |b: &Bench| of(b, &[4], dtype)?.dropout(probability, &Generator::new(&b.stream, 1)?, 0)
    };
    calls.method("dropout", Kind::Argument, dropout(1.5, F32));
    calls.method("dropout", Kind::DType, dropout(0.5, DType::I32));
    let rotary = |shape: &'static [usize], rotated| {
        move |b: &Bench| {
            let tables = RotaryTables::new(&b.stream, 3, rotated, 1e4)?;
            of(b, shape, F32)?.rotary(tables.halves()?, Positions::From(0))
        }
    };
    calls.method("rotary", Kind::Shape, rotary(&[2, 4], 4));
    calls.method("rotary", Kind::Argument, rotary(&[2, 1, 4], 6));
    calls.method("rotary", Kind::Argument, rotary(&[4, 1, 4], 4));
    let loss = |weight: &'static [usize], targets: &'static [usize]| {
        move |b: &Bench| x(b)?.linear_cross_entropy(&of(b, weight, F32)?, &of(b, targets, DType::I64)?)
    };
    calls.method("linear_cross_entropy", Kind::Shape, loss(&[4, 5], &[2, 3]));
    calls.method("linear_cross_entropy", Kind::Shape, loss(&[5, 4], &[2]));
    calls.method("swiglu", Kind::Axis, |b| of(b, &[], F32)?.swiglu());
    calls.method("geglu", Kind::DType, |b| of(b, &[4], DType::I32)?.geglu());
}

/// Operands on another device. Skipped where there is one GPU; the software driver is asked for two.
#[test]
fn methods_refuse_operands_of_another_device() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    if Device::count()? < 2 {
        testkit::skip("one device");
        return Ok(());
    }
    let mut calls = Calls { made: 0, bench: Bench::open()? };
    let there = Bench::on(1)?;
    let far = |shape: &[usize], dtype| of(&there, shape, dtype);
    let (y, mask) = (far(&[4], F32)?, far(&[4], DType::Bool)?);
    let index = indices(&there, &[1], &[0])?;
    let near = of(&calls.bench, &[4], F32)?;
    let source = of(&calls.bench, &[1], F32)?;
    let ways: [(&str, &dyn Fn() -> Result<()>); 16] = [
        ("add", &|| (&near + &y).map(drop)),
        ("add of two types", &|| near.add(&far(&[4], DType::F16)?).map(drop)),
        ("eq", &|| near.eq(&y).map(drop)),
        ("add_", &|| near.copy()?.add_(&y)),
        ("copy_", &|| near.copy()?.copy_(&y)),
        ("copy_ of another type", &|| near.copy()?.copy_(&far(&[4], DType::F16)?)),
        ("cat", &|| Tensor::cat(&[&near, &y], 0).map(drop)),
        ("stack", &|| Tensor::stack(&[&near, &y], 0).map(drop)),
        ("where_", &|| near.where_(&mask, 0.0).map(drop)),
        ("masked_fill", &|| near.masked_fill(&mask, 0.0).map(drop)),
        ("index_select", &|| near.index_select(0, &index).map(drop)),
        ("gather", &|| near.gather(0, &index).map(drop)),
        ("scatter", &|| near.scatter(0, &index, &source).map(drop)),
        ("matmul", &|| near.matmul(&y).map(drop)),
        ("linear", &|| near.linear(&far(&[4, 4], F32)?, None).map(drop)),
        ("embedding", &|| near.embedding(&index).map(drop)),
    ];
    for (what, call) in ways {
        calls.wrong(what, |_| call(), |error| matches!(error, Error::DeviceMismatch { .. }));
    }
    let norm = |_: &Bench| near.layer_norm(&y, None, 1e-5);
    calls.wrong("layer_norm", norm, |error| matches!(error, Error::DeviceMismatch { .. }));
    Ok(())
}
