//! `gemm_any` and the copies of operands against the oracle: types, strides, batches, epilogues, hostile
//! inputs.

use crate::gemm_case::{Case, DENSE, Lie, Number, Outcome, PLAIN, Setup, TRANSPOSED};
use half::{bf16, f16};
use ironwarp::ops::gemm::{Activation, Kernel, Matmul, Matrix, MatrixMut, Packed, Repack, candidates};
use ironwarp::{DType, Device, DeviceBuffer, Error, Tensor};
use num::{E4M3, E5M2};
use reference::matmul::{Epilogue, Strided};
use testkit::{Family, Tolerance, compare};

const ANY: Case = Case { kernels: |config| config.kernel == Kernel::Any, ..PLAIN };

#[test]
fn any_shape() -> Outcome {
    // Around a tile of 64 x 64 and a step of 32; thin, empty.
    let shapes = [
        (0, 5, 5),
        (5, 0, 5),
        (5, 5, 0),
        (1, 1, 1),
        (1, 130, 17),
        (130, 1, 33),
        (7, 63, 65),
        (63, 64, 31),
        (65, 129, 32),
        (127, 7, 64),
        (64, 64, 257),
    ];
    for (m, n, k) in shapes {
        let case = Case { m, n, k, ..ANY };
        let done = case.check::<bf16, bf16, bf16>()?;
        assert_eq!(done, 1, "gemm_any takes everything");
        Case { alpha: -1.5, beta: 0.5, ..case }.check::<f32, f32, f32>()?;
    }
    Ok(())
}

#[test]
fn any_type() -> Outcome {
    let case = Case { m: 33, n: 20, k: 40, beta: 1.0, bias: true, ..ANY };
    case.check::<f16, f16, f16>()?;
    case.check::<f16, f16, f32>()?;
    case.check::<bf16, bf16, f32>()?;
    case.check::<f32, bf16, f16>()?;
    case.check::<E4M3, E4M3, bf16>()?;
    case.check::<E5M2, E4M3, f16>()?;
    case.check::<E4M3, E5M2, f32>()?;
    case.check::<E4M3, E4M3, E4M3>()?;
    case.check::<bf16, bf16, E5M2>()?;
    Case { scales: Some([0.25, 3.0]), ..case }.check::<E4M3, E4M3, bf16>()?;
    Case { result_scale: Some(0.25), ..case }.check::<E4M3, E4M3, E4M3>()?;
    Ok(())
}

#[test]
fn any_strides() -> Outcome {
    let lies = [DENSE, TRANSPOSED, Lie { gap: 3, skip: 1, ..DENSE }, Lie { gap: 5, skip: 2, ..TRANSPOSED }];
    for a in lies {
        for b in lies {
            Case { m: 19, n: 70, k: 35, a, b, ..ANY }.check::<f16, f16, f16>()?;
        }
    }
    for c in lies {
        let case = Case { m: 66, n: 21, k: 5, c, beta: -1.0, residual: true, ..ANY };
        case.check::<bf16, bf16, bf16>()?;
        Case { batch: 3, ..case }.check::<bf16, bf16, f32>()?;
    }
    Ok(())
}

#[test]
fn any_batch() -> Outcome {
    let shared = Lie { shared: true, ..DENSE };
    for (a, b) in [(DENSE, DENSE), (shared, DENSE), (DENSE, Lie { transposed: true, ..shared })] {
        // With a gap behind C's rows no batch is one product of more rows.
        for c in [DENSE, Lie { gap: 1, ..DENSE }] {
            Case { m: 17, n: 9, k: 12, batch: 4, a, b, c, ..ANY }.check::<f32, f32, f32>()?;
        }
    }
    Case { m: 4, n: 4, k: 4, batch: 0, ..ANY }.check::<f32, f32, f32>()?;
    Ok(())
}

#[test]
fn any_epilogue() -> Outcome {
    for &activation in Activation::ALL {
        for (bias, residual) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = Case { m: 34, n: 68, k: 24, alpha: 0.75, activation, bias, residual, ..ANY };
            case.check::<bf16, bf16, f32>()?;
            if activation != Activation::SwiGlu {
                Case { beta: 0.5, ..case }.check::<f16, f16, f16>()?;
            }
        }
    }
    Ok(())
}

#[test]
fn any_input() -> Outcome {
    for family in Family::ALL {
        let case = Case { family, m: 40, n: 36, k: 70, ..ANY };
        case.check::<f32, f32, f32>()?;
        case.check::<bf16, bf16, f32>()?;
        // Products of huge numbers leave the range of f16.
        case.check::<f16, f16, f16>()?;
    }
    Case { family: Family::SmallIntegers, m: 40, n: 36, k: 70, ..ANY }.check::<E4M3, E5M2, bf16>()?;
    Ok(())
}

/// A copy of an A of this case, multiplied by 1: every element where it belongs.
fn copy<T: Number>(case: &Case, to: Repack) -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let setup = Setup::<T, T, f32>::new(case, &stream)?;
    let packed = Packed::new(&stream, setup.a_matrix()?, to)?;
    let Case { m, k, batch, .. } = *case;
    let one: Vec<T> = (0..k * k).map(|i| T::from_f64(if i % (k + 1) == 0 { 1.0 } else { 0.0 })).collect();
    let one = ironwarp::DeviceBuffer::from_slice(&stream, &one)?;
    let mut c = ironwarp::DeviceBuffer::<f32>::zeroed(&stream, batch * m * k)?;
    let one = Matrix::new::<T>(&one, k, k).batch_by(batch, 0);
    Matmul::new(packed.matrix(), one, MatrixMut::new::<f32>(&mut c, m, k).batch(batch)).run(&stream)?;
    let want: Vec<f32> = setup.a_elements().iter().map(|v| (*v).to_f64() as f32).collect();
    compare::bitwise_equal(&format!("{case:?} copied to {to:?}"), &c.to_vec(&stream)?, &want)?;
    Ok(())
}

#[test]
fn any_operand_can_be_copied() -> Outcome {
    let lies = [DENSE, TRANSPOSED, Lie { gap: 3, skip: 1, ..DENSE }, Lie { gap: 2, skip: 3, ..TRANSPOSED }];
    for a in lies {
        for to in [Repack::Rows, Repack::Columns] {
            // Whole units and tiles, and the ends of both.
            for (m, k) in [(1, 1_usize), (5, 16), (66, 67), (3, 130), (35, 336)] {
                let case = Case { family: Family::SmallIntegers, m, n: 1, k, a, ..ANY };
                copy::<E4M3>(&case, to)?;
                copy::<f16>(&Case { batch: 2, ..case }, to)?;
                copy::<f32>(&case, to)?;
            }
            let shared = Lie { shared: true, ..a };
            copy::<bf16>(
                &Case { m: 9, n: 1, k: 5, batch: 3, a: shared, family: Family::SmallIntegers, ..ANY },
                to,
            )?;
        }
    }
    Ok(())
}

/// Lines of one element have two strides of 1: which of them leads must not be guessed.
#[test]
fn strides_are_given_in_any_order() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let one = DeviceBuffer::from_slice(&stream, &[1f32])?;
    let scalar = || Matrix::new::<f32>(&one, 1, 1);
    let w = DeviceBuffer::from_slice(&stream, &[1f32, 9., 9., 9., 2., 9., 9., 9., 3., 9., 9., 9.])?;
    let column = || Matrix::new::<f32>(&w, 3, 1);
    for row in [column().leading(4).transposed(), column().transposed().leading(4)] {
        let mut c = DeviceBuffer::<f32>::zeroed(&stream, 9)?;
        let to = MatrixMut::new::<f32>(c.slice_mut(..)?, 3, 1).transposed().leading(3);
        Matmul::new(scalar(), row, to).run(&stream)?;
        assert_eq!(c.to_vec(&stream)?, [1., 0., 0., 2., 0., 0., 3., 0., 0.]);
    }
    let numbers: Vec<f32> = (0..64u8).map(f32::from).collect();
    let x = DeviceBuffer::from_slice(&stream, &numbers)?;
    let pair = || Matrix::new::<f32>(&x, 2, 1);
    for (a, want) in [
        (pair().batch_by(2, 20).leading(3), [0., 3., 20., 23.]),
        (pair().leading(3).batch_by(2, 20), [0., 3., 20., 23.]),
        (pair().batch_by(2, 0).leading(3), [0., 3., 0., 3.]),
        (pair().batch(2).leading(3), [0., 3., 6., 9.]),
    ] {
        let mut c = DeviceBuffer::<f32>::zeroed(&stream, 14)?;
        let to = MatrixMut::new::<f32>(&mut c, 2, 1).batch_by(2, 10).leading(3);
        Matmul::new(a, scalar().batch_by(2, 0), to).run(&stream)?;
        let c = c.to_vec(&stream)?;
        assert_eq!([c[0], c[3], c[10], c[13]], want);
    }
    Ok(())
}

#[test]
fn tensors_are_matrices() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    // A [2, 3, 4] batch, of which the last axis is taken backwards in pairs by a permutation; B [4, 5].
    let a: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..20).map(|i| (i % 7) as f32).collect();
    let a_tensor = Tensor::from_slice(&stream, &[2, 4, 3], &a)?.transpose(1, 2)?;
    let b_tensor = Tensor::from_slice(&stream, &[1, 4, 5], &b)?.broadcast_to(&[2, 4, 5])?;
    let mut c = Tensor::zeros(&stream, &[2, 3, 5], DType::F32)?;
    Matmul::new(Matrix::of(&a_tensor)?, Matrix::of(&b_tensor)?, MatrixMut::of(c.view_mut()?)?)
        .run(&stream)?;
    let (a, b) = (
        Strided { data: &a[..], row: 1, column: 3, matrix: 12 },
        Strided { data: &b[..], row: 5, column: 1, matrix: 0 },
    );
    let want = reference::matmul::matmul([2, 3, 5, 4], a, b, Epilogue::<f32, f32>::NONE).value;
    compare::elementwise("tensors", &c.to_vec::<f32>(&stream)?, &want, &[2, 3, 5], Tolerance::EXACT)?;
    let flat = Tensor::zeros(&stream, &[6], DType::F32)?;
    assert!(matches!(Matrix::of(&flat), Err(Error::InvalidArgument { argument: "the tensor", .. })));
    Ok(())
}

/// A stride beyond all arithmetic: what a single line's may be, since it means nothing.
const FAR: usize = 1 << 62;

/// `C = A B + residual`.
fn product<'a>(
    a: Matrix<'a>,
    b: Matrix<'a>,
    residual: Matrix<'a>,
    c: &'a mut DeviceBuffer<f32>,
) -> Matmul<'a> {
    let ((m, _), (_, n)) = (a.sides(), b.sides());
    let c = MatrixMut::new::<f32>(c, m, n);
    Matmul::new(a, b, if m == 1 { c.leading(FAR) } else { c }).residual(residual)
}

/// The product of matrices of ones with single lines that lie [`FAR`] apart, by every kernel that can.
fn with_single_lines([m, n, k]: [usize; 3], by_columns: bool) -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let ones = DeviceBuffer::from_slice(&stream, &[1.0f32; 256])?;
    let single = |rows: usize, columns: usize| -> Result<Matrix<'_>, Error> {
        let data = ones.slice(..rows * columns)?;
        Ok(match by_columns {
            false if rows == 1 => Matrix::new::<f32>(data, 1, columns).leading(FAR),
            true if columns == 1 => Matrix::new::<f32>(data, 1, rows).transposed().leading(FAR),
            _ => Matrix::new::<f32>(data, rows, columns),
        })
    };
    let mut c = DeviceBuffer::<f32>::zeroed(&stream, m * n)?;
    let [a, b, residual] = [single(m, k)?, single(k, n)?, single(m, n)?];
    let problem = product(a, b, residual, &mut c).problem()?;
    for candidate in candidates(&problem, stream.device()) {
        c.fill_zero(&stream)?;
        product(a, b, residual, &mut c).run_with(&stream, &candidate.config)?;
        assert_eq!(c.to_vec(&stream)?, vec![k as f32 + 1.0; m * n], "{}", candidate.config);
    }
    Ok(())
}

#[test]
fn strides_of_single_lines_mean_nothing() -> Outcome {
    for sides in [[1, 1, 1], [1, 8, 16], [16, 1, 8], [8, 16, 1], [1, 16, 1], [1, 1, 64]] {
        with_single_lines(sides, false)?;
        with_single_lines(sides, true)?;
    }
    Ok(())
}
