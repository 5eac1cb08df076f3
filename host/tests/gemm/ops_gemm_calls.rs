//! Wrong products are refused before anything is queued, by an error that says what, got, wanted and a hint.

use crate::refusal::subject;
use half::{bf16, f16};
use ironwarp::ops::gemm::{Activation, Kernel, Matmul, Matrix, MatrixMut, Packed, Repack, candidates};
use ironwarp::{DType, Device, DeviceBuffer, Error, Stream, Tensor};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Memory to make operands of.
struct Memory {
    stream: Stream,
    x: DeviceBuffer<f16>,
    ints: DeviceBuffer<i32>,
    one: DeviceBuffer<f32>,
}

const ELEMENTS: usize = 4096;

impl Memory {
    fn new() -> ironwarp::Result<Self> {
        let stream = Device::open(0)?.stream()?;
        let (x, one) = (DeviceBuffer::zeroed(&stream, ELEMENTS)?, DeviceBuffer::zeroed(&stream, 1)?);
        Ok(Memory { ints: DeviceBuffer::zeroed(&stream, ELEMENTS)?, x, one, stream })
    }

    fn matrix(&self, rows: usize, columns: usize) -> Matrix<'_> {
        let len = rows.saturating_mul(columns).min(ELEMENTS);
        Matrix::new::<f16>(self.x.slice(..len).unwrap(), rows, columns)
    }
}

/// Operands that are right.
fn a(memory: &Memory) -> Matrix<'_> {
    memory.matrix(4, 8)
}

fn b(memory: &Memory) -> Matrix<'_> {
    memory.matrix(8, 6)
}

/// The subject of an error that says everything.
fn about(error: &Error) -> &'static str {
    subject(error, "gemm")
}

/// `what` of the product of `[4, 8]` and `[8, 6]`, spoilt by `spoil`, is refused.
fn refused(what: &str, spoil: impl for<'x> FnOnce(&'x Memory, Matmul<'x>) -> Matmul<'x>) -> Outcome {
    let memory = Memory::new()?;
    let mut c = DeviceBuffer::<bf16>::zeroed(&memory.stream, 24)?;
    let product = Matmul::new(memory.matrix(4, 8), memory.matrix(8, 6), MatrixMut::new::<bf16>(&mut c, 4, 6));
    let error = spoil(&memory, product).run(&memory.stream).expect_err(what);
    assert_eq!(about(&error), what, "{error}");
    Ok(())
}

/// The same for other operands.
fn refused_operands(
    what: &str,
    a: impl FnOnce(&Memory) -> Matrix<'_>,
    b: impl FnOnce(&Memory) -> Matrix<'_>,
    c: impl FnOnce(MatrixMut<'_>) -> MatrixMut<'_>,
) -> Outcome {
    let memory = Memory::new()?;
    let mut buffer = DeviceBuffer::<f16>::zeroed(&memory.stream, 24)?;
    let c = c(MatrixMut::new::<f16>(&mut buffer, 4, 6));
    let error = Matmul::new(a(&memory), b(&memory), c).run(&memory.stream).expect_err(what);
    assert_eq!(about(&error), what, "{error}");
    Ok(())
}

#[test]
fn shapes_that_do_not_fit_together() -> Outcome {
    refused_operands("B", a, |m| m.matrix(7, 6), |c| c)?;
    refused_operands("B", a, |m| m.matrix(6, 8), |c| c)?;
    refused_operands("C", a, |m| m.matrix(8, 5), |c| c)?;
    refused_operands("C", |m| m.matrix(3, 8), b, |c| c)?;
    refused_operands("C", a, b, |c| c.transposed())?;
    refused_operands(
        "A",
        |m| m.matrix(4, 8).batch_by(2, 32),
        |m| m.matrix(8, 6).batch_by(3, 48),
        |c| c.batch_by(3, 0),
    )?;
    refused_operands("B", a, |m| m.matrix(8, 6).batch_by(2, 48), |c| c)?;
    Ok(())
}

/// A batch that shares B is solved as one product of more rows: it is judged, and told of, as it was written.
#[test]
fn batches_that_share_b_are_checked_as_written() -> Outcome {
    let memory = Memory::new()?;
    let wrong = [((3, 2), "A", "[2, 3, 8]"), ((6, 1), "A", "[1, 6, 8]"), ((5, 3), "C", "[3, 2, 6]")];
    for ((rows, count), what, got) in wrong {
        let a = Matrix::new::<f16>(memory.x.slice(..count * rows * 8)?, rows, 8).batch(count);
        let b = memory.matrix(8, 6).batch_by(3, 0);
        let mut c = DeviceBuffer::<f16>::zeroed(&memory.stream, 36)?;
        let c = MatrixMut::new::<f16>(&mut c, 2, 6).batch(3);
        let error = Matmul::new(a, b, c).run(&memory.stream).unwrap_err();
        assert_eq!(about(&error), what, "{error}");
        assert!(error.to_string().contains(&format!("{what} is {got}")), "{error}");
    }
    Ok(())
}

#[test]
fn memory_that_the_shape_leaves() -> Outcome {
    fn short(m: &Memory) -> Matrix<'_> {
        Matrix::new::<f16>(m.x.slice(..31).unwrap(), 4, 8)
    }
    fn long(m: &Memory) -> Matrix<'_> {
        Matrix::new::<f16>(m.x.slice(..33).unwrap(), 4, 8)
    }
    refused_operands("A", short, b, |c| c)?;
    refused_operands("A", long, b, |c| c)?;
    refused_operands("A", |m| m.matrix(4, 8).leading(9), b, |c| c)?;
    refused_operands("B", a, |m| m.matrix(6, 8).leading(9).transposed(), |c| c)?;
    refused_operands(
        "A",
        |m| m.matrix(4, usize::MAX / 2).leading(usize::MAX),
        |m| m.matrix(usize::MAX / 2, 6),
        |c| c,
    )?;
    refused_operands("C", a, b, |c| c.leading(7))?;
    Ok(())
}

/// A batch of a tensor's matrix lies behind it, as one of a buffer does.
#[test]
fn batches_of_a_tensor_without_their_elements() -> Outcome {
    let memory = Memory::new()?;
    let x = Tensor::zeros(&memory.stream, &[6, 8], DType::F16)?;
    for view in [x.clone(), x.slice(1, 0..4)?, x.permute(&[1, 0])?] {
        let (rows, k) = (view.shape().sides()[0], view.shape().sides()[1]);
        let mut c = DeviceBuffer::<f16>::zeroed(&memory.stream, 2 * rows * 6)?;
        let to = MatrixMut::new::<f16>(&mut c, rows, 6).batch(2);
        let product = Matmul::new(Matrix::of(&view)?.batch(2), memory.matrix(k, 6).batch_by(2, 0), to);
        let error = product.run(&memory.stream).unwrap_err();
        assert!(matches!(error, Error::Length { what: "A", .. }), "{error}");
    }
    Ok(())
}

#[test]
fn results_that_overlap_themselves() -> Outcome {
    refused_operands("C", a, b, |c| c.leading(5))?;
    refused_operands("C", a, b, |c| c.leading(0))?;
    for stride in [0, 1, 11] {
        let memory = Memory::new()?;
        let mut c = DeviceBuffer::<f16>::zeroed(&memory.stream, 24)?;
        let c = MatrixMut::new::<f16>(&mut c, 2, 6).batch_by(2, stride);
        let (a, b) = (memory.matrix(2, 8).batch_by(2, 0), memory.matrix(8, 6).batch_by(2, 0));
        let error = Matmul::new(a, b, c).run(&memory.stream).unwrap_err();
        assert_eq!(about(&error), "C", "{error}");
    }
    Ok(())
}

#[test]
fn epilogues_that_do_not_fit() -> Outcome {
    refused("the bias", |m, product| product.bias::<f16>(m.x.slice(..5).unwrap()))?;
    refused("the bias", |m, product| product.bias::<i32>(m.ints.slice(..6).unwrap()))?;
    refused("the residual", |m, product| product.residual(m.matrix(6, 4)))?;
    refused("the residual", |m, product| product.residual(m.matrix(4, 6).leading(5000)))?;
    refused("the scale", |m, product| product.scales(&m.one, m.one.slice(..0).unwrap()))?;
    refused("the scale of the result", |m, product| product.scale_result(m.one.slice(..0).unwrap()))?;
    refused("C", |_, product| product.activation(Activation::SwiGlu))?;
    refused("the product for SwiGLU", |_, product| product.activation(Activation::SwiGlu).beta(1.0))?;
    Ok(())
}

#[test]
fn element_types_that_are_none_of_the_five() -> Outcome {
    fn ints(m: &Memory) -> Matrix<'_> {
        Matrix::new::<i32>(m.ints.slice(..32).unwrap(), 4, 8)
    }
    refused_operands("A", ints, |m| m.matrix(8, 6), |c| c)
}

#[test]
fn sides_that_are_too_long() -> Outcome {
    let long = 1usize << 31;
    let memory = Memory::new()?;
    let mut c = DeviceBuffer::<f16>::zeroed(&memory.stream, 0)?;
    // No memory is needed for sides that nothing multiplies.
    let a = Matrix::new::<f16>(memory.x.slice(..0)?, long, 0);
    let b = Matrix::new::<f16>(memory.x.slice(..0)?, 0, 0);
    let error = Matmul::new(a, b, MatrixMut::new::<f16>(&mut c, long, 0)).run(&memory.stream).unwrap_err();
    assert_eq!(about(&error), "m", "{error}");
    Ok(())
}

#[test]
fn configurations_of_another_problem() -> Outcome {
    let memory = Memory::new()?;
    let device = memory.stream.device();
    let mut wide = DeviceBuffer::<f32>::zeroed(&memory.stream, 16)?;
    let f32s = DeviceBuffer::<f32>::zeroed(&memory.stream, 16)?;
    let square = || Matrix::new::<f32>(&f32s, 4, 4);
    let problem = Matmul::new(square(), square(), MatrixMut::new::<f32>(&mut wide, 4, 4)).problem()?;
    let offers = candidates(&problem, device);
    let of_f32 =
        offers.iter().find(|offer| offer.config.kernel == Kernel::F32Small).expect("f32 kernels").config;
    let mut c = DeviceBuffer::<f16>::zeroed(&memory.stream, 24)?;
    let product = Matmul::new(memory.matrix(4, 8), memory.matrix(8, 6), MatrixMut::new::<f16>(&mut c, 4, 6));
    let error = product.run_with(&memory.stream, &of_f32).unwrap_err();
    assert_eq!(about(&error), "the configuration", "{error}");
    Ok(())
}

#[test]
fn copies_that_are_none() -> Outcome {
    let memory = Memory::new()?;
    let error = Packed::new(&memory.stream, memory.matrix(4, 8), Repack::No).unwrap_err();
    assert_eq!(about(&error), "the order", "{error}");
    let error = Packed::new(&memory.stream, memory.matrix(4, 8).leading(5000), Repack::Rows).unwrap_err();
    assert_eq!(about(&error), "the matrix", "{error}");
    // Sides are checked before memory is taken for them.
    let floats = DeviceBuffer::<f32>::zeroed(&memory.stream, 1)?;
    let long = [
        Matrix::new::<f32>(floats.slice(..0)?, 0, usize::MAX),
        Matrix::new::<f32>(&floats, 1 << 34, 1).leading(0).transposed(),
    ];
    for matrix in long {
        let error = Packed::new(&memory.stream, matrix, Repack::Rows).unwrap_err();
        assert_eq!(about(&error), "columns", "{error}");
    }
    // No product takes these.
    let doubles = DeviceBuffer::<f64>::zeroed(&memory.stream, 32)?;
    for matrix in [Matrix::new::<f64>(&doubles, 4, 8), Matrix::new::<i32>(memory.ints.slice(..32)?, 4, 8)] {
        let error = Packed::new(&memory.stream, matrix, Repack::Rows).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "the matrix", .. }), "{error}");
        assert_eq!(about(&error), "the matrix", "{error}");
    }
    Ok(())
}
