//! Ops.

use half::f16;
use ironwarp::ops::convert::convert_into;
use ironwarp::ops::cosine::{Vectors, cosine_topk};
use ironwarp::ops::elementwise::{
    BinaryOp, CompareOp, UnaryOp, binary, binary_assign, binary_into, compare, compare_into, copy_into,
    select, unary, unary_into,
};
use ironwarp::ops::fill::{normal, uniform};
use ironwarp::ops::gemm::{Gemm, Matmul, Matrix, MatrixMut, gemm_f32};
use ironwarp::ops::reduce;
use ironwarp::ops::saxpy::saxpy;
use ironwarp::ops::transpose::transpose;
use ironwarp::{DType, DeviceBuffer, Error, Result, Tensor};

use super::Calls;
use crate::common::Bench;

fn length(what: &'static str) -> impl Fn(&Error) -> bool {
    move |error| matches!(error, Error::Length { what: got, .. } if *got == what)
}

fn argument(what: &'static str) -> impl Fn(&Error) -> bool {
    move |error| matches!(error, Error::InvalidArgument { argument: got, .. } if *got == what)
}

fn of_tensors(error: &Error) -> bool {
    error.tensor_error().is_some()
}

fn floats(bench: &Bench, len: usize) -> Result<DeviceBuffer<f32>> {
    DeviceBuffer::zeroed(&bench.stream, len)
}

fn zeros(bench: &Bench, shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::zeros(&bench.stream, shape, dtype)
}

pub(crate) fn table(calls: &mut Calls) {
    vectors(calls);
    products(calls);
    searches(calls);
    random_numbers(calls);
    unary_ops(calls);
    binary_ops(calls);
}

fn vectors(calls: &mut Calls) {
    for (x, y) in [(3, 4), (4, 3), (0, 1), (1, 0)] {
        calls.wrong("saxpy", |b| saxpy(&b.stream, 1.0, &floats(b, x)?, &mut floats(b, y)?), length("y"));
    }
    for (rows, columns, x, y, what) in
        [(3, 4, 12, 11, "y"), (3, 5, 12, 15, "x"), (usize::MAX, 2, 12, 12, "x"), (0, 5, 1, 0, "x")]
    {
        calls.wrong(
            "transpose",
            |b| transpose(&b.stream, rows, columns, &floats(b, x)?, &mut floats(b, y)?),
            length(what),
        );
    }
    for len in [0, 2, 100] {
        let is_length = |e: &Error| matches!(e, Error::Length { .. });
        calls.wrong(
            "sum",
            |b| reduce::buffer_sum_into(&b.stream, &floats(b, 5)?, &mut floats(b, len)?),
            is_length,
        );
        calls.wrong(
            "max",
            |b| reduce::buffer_amax_into(&b.stream, &floats(b, 5)?, &mut floats(b, len)?),
            is_length,
        );
    }
}

fn products(calls: &mut Calls) {
    for (m, n, k, what) in [(3, 3, 5, "A"), (3, 2, 4, "B"), (4, 4, 3, "C"), (usize::MAX, 3, 4, "A")] {
        calls.wrong(
            "gemm_f32",
            |b| gemm_f32(&b.stream, Gemm::new(m, n, k), &floats(b, 12)?, &floats(b, 12)?, &mut floats(b, 9)?),
            length(what),
        );
    }
    // The product of [4, 8] and [8, 6], with errors.
    for (what, a, b_sides, c) in [
        ("B", (4, 8), (7, 6), (4, 6)),
        ("B", (4, 8), (6, 8), (4, 6)),
        ("C", (4, 8), (8, 6), (4, 5)),
        ("C", (4, 8), (8, 6), (6, 4)),
        ("C", (3, 8), (8, 6), (4, 6)),
        ("B", (4, 9), (8, 6), (4, 6)),
    ] {
        let product = |b: &Bench| {
            let (x, mut y) = (DeviceBuffer::<f16>::zeroed(&b.stream, 64)?, floats(b, c.0 * c.1)?);
            let matrix = |(rows, columns): (usize, usize)| -> Result<Matrix<'_>> {
                Ok(Matrix::new::<f16>(x.slice(..rows * columns)?, rows, columns))
            };
            Matmul::new(matrix(a)?, matrix(b_sides)?, MatrixMut::new::<f32>(&mut y, c.0, c.1)).run(&b.stream)
        };
        calls.wrong("matmul", product, move |e| argument(what)(e) || length(what)(e));
    }
}

fn searches(calls: &mut Calls) {
    let vectors = |b: &Bench| DeviceBuffer::<f16>::zeroed(&b.stream, 48);
    for k in [0, 129, usize::MAX] {
        calls.wrong(
            "k",
            |b| {
                let data = vectors(b)?;
                let eight = Vectors::new(&data, 8)?;
                cosine_topk(&b.stream, eight, eight, k)
            },
            argument("k"),
        );
    }
    calls.wrong(
        "lengths of vectors",
        |b| {
            let data = vectors(b)?;
            cosine_topk(&b.stream, Vectors::new(&data, 8)?, Vectors::new(&data, 6)?, 1)
        },
        argument("the queries' dim"),
    );
    calls.wrong(
        "half a vector",
        |b| Vectors::new(&vectors(b)?, 7).map(drop),
        |e| matches!(e, Error::Length { expected: 42, got: 48, .. }),
    );
    for dim in [0, 1 << 32, usize::MAX] {
        calls.wrong(
            "dim",
            |b| Vectors::new(&vectors(b)?, dim).map(drop),
            |e| matches!(e, Error::InvalidArgument { argument: "dim", .. }),
        );
    }
}

fn random_numbers(calls: &mut Calls) {
    for (low, high) in [(1.0, 0.0), (-3e38, 3e38), (f32::NAN, 1.0), (0.0, f32::INFINITY)] {
        calls.wrong("uniform", |b| uniform(&b.stream, &[8], low, high, 1), argument("the range"));
    }
    for (mean, deviation) in [(0.0, -1.0), (0.0, f32::NAN), (0.0, f32::INFINITY), (f32::NAN, 1.0)] {
        calls.wrong("normal", |b| normal(&b.stream, &[8], mean, deviation, 1), argument("the distribution"));
    }
}

fn unary_ops(calls: &mut Calls) {
    for dtype in [DType::F8E4M3, DType::F8E5M2, DType::U8, DType::Bool] {
        calls.wrong("neg", |b| unary(&b.stream, UnaryOp::Neg, &zeros(b, &[2, 3], dtype)?), of_tensors);
    }
    calls.wrong("exp", |b| unary(&b.stream, UnaryOp::Exp, &zeros(b, &[2], DType::I64)?), of_tensors);
    calls.wrong("sin", |b| unary(&b.stream, UnaryOp::Sin, &zeros(b, &[2], DType::F64)?), of_tensors);
    calls.wrong("clamp", |b| unary(&b.stream, UnaryOp::Clamp, &zeros(b, &[2], DType::F32)?), argument("op"));
    let into = |b: &Bench, shape: &[usize], dtype| -> Result<()> {
        unary_into(
            &b.stream,
            UnaryOp::Neg,
            &zeros(b, &[2, 3], DType::F32)?,
            zeros(b, shape, dtype)?.view_mut()?,
        )
    };
    calls.wrong("unary out", |b| into(b, &[3, 2], DType::F32), of_tensors);
    calls.wrong("unary out", |b| into(b, &[6], DType::F32), of_tensors);
    calls.wrong("unary out", |b| into(b, &[2, 3], DType::F16), of_tensors);
    let converted = |b: &Bench, shape: &[usize], dtype| -> Result<()> {
        convert_into(&b.stream, &zeros(b, &[2, 3], DType::F32)?, zeros(b, shape, dtype)?.view_mut()?)
    };
    calls.wrong("convert out", |b| converted(b, &[3, 2], DType::F16), of_tensors);
    calls.wrong("convert to itself", |b| converted(b, &[2, 3], DType::F32), of_tensors);
}

fn binary_ops(calls: &mut Calls) {
    let x = |b: &Bench| zeros(b, &[2, 3], DType::F32);
    for (shape, dtype) in [
        (vec![2, 2], DType::F32),
        (vec![3, 3], DType::F32),
        (vec![2, 3, 2], DType::F32),
        (vec![2, 3], DType::F64),
        (vec![2, 3], DType::I32),
    ] {
        let add = |b: &Bench| binary(&b.stream, BinaryOp::Add, &x(b)?, &zeros(b, &shape, dtype)?);
        calls.wrong("add", add, of_tensors);
        let less = |b: &Bench| compare(&b.stream, CompareOp::Lt, &x(b)?, &zeros(b, &shape, dtype)?);
        calls.wrong("compare", less, of_tensors);
    }
    for op in [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor] {
        calls.wrong("bits of floats", |b| binary(&b.stream, op, &x(b)?, &x(b)?), of_tensors);
    }
    for dtype in [DType::Bool, DType::F8E5M2] {
        let same = |b: &Bench| zeros(b, &[2, 3], dtype);
        calls.wrong("add", |b| binary(&b.stream, BinaryOp::Add, &same(b)?, &same(b)?), of_tensors);
    }
    calls.wrong(
        "assign",
        |b| binary_assign(&b.stream, BinaryOp::Add, zeros(b, &[3], DType::F32)?.view_mut()?, &x(b)?),
        of_tensors,
    );
    calls.wrong(
        "binary out",
        |b| binary_into(&b.stream, BinaryOp::Add, &x(b)?, &x(b)?, zeros(b, &[3], DType::F32)?.view_mut()?),
        of_tensors,
    );
    calls.wrong(
        "compare out",
        |b| compare_into(&b.stream, CompareOp::Lt, &x(b)?, &x(b)?, zeros(b, &[2, 3], DType::U8)?.view_mut()?),
        of_tensors,
    );
    calls.wrong("condition", |b| select(&b.stream, &x(b)?, &x(b)?, &x(b)?), of_tensors);
    calls.wrong(
        "select",
        |b| select(&b.stream, &zeros(b, &[2, 3], DType::Bool)?, &x(b)?, &zeros(b, &[2, 3], DType::F64)?),
        of_tensors,
    );
    for (shape, dtype) in [(vec![2, 4], DType::F32), (vec![3], DType::F32), (vec![2, 3], DType::I32)] {
        calls.wrong(
            "copy out",
            |b| copy_into(&b.stream, &x(b)?, zeros(b, &shape, dtype)?.view_mut()?),
            of_tensors,
        );
    }
}
