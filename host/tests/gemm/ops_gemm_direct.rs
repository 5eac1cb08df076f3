//! Few rows as they lie, against the oracle: every way to share a block out, every order, odd rows,
//! epilogues.

use crate::gemm_case::{Case, DENSE, Lie, Number, Outcome, PLAIN, TRANSPOSED, device, has_parts};
use gemm::skinny::direct::Groups;
use half::{bf16, f16};
use ironwarp::DeviceBuffer;
use ironwarp::ops::gemm::{
    Activation, Config, Kernel, Matmul, Matrix, MatrixMut, Precision, Repack, candidates,
};
use num::E4M3;
use testkit::Family;

/// Operands as they lie, k in one piece.
const DIRECT: Case = Case {
    kernels: |config| is_direct(config) && config.split_k == 1 && config.repack == [Repack::No; 2],
    precision: Precision::Tf32,
    ..PLAIN
};

fn is_direct(config: &Config) -> bool {
    config.kernel == Kernel::Direct
}

/// Checks a case by every way to share a block out.
fn check<T: Number, C: Number>(case: &Case) -> Outcome {
    assert_eq!(case.check::<T, T, C>()?, Groups::ALL.len(), "{case:?}");
    Ok(())
}

fn check_all(case: &Case) -> Outcome {
    check::<bf16, bf16>(case)?;
    check::<f16, f32>(case)?;
    check::<f32, f32>(case)
}

fn orders() -> impl Iterator<Item = (Lie, Lie)> {
    [DENSE, TRANSPOSED].into_iter().flat_map(|a| [DENSE, TRANSPOSED].map(|b| (a, b)))
}

#[test]
fn direct_numbers_of_rows() -> Outcome {
    for (a, b) in orders() {
        check_all(&Case { m: 9, n: 19, k: 37, a, b, ..DIRECT })?;
        for m in [1, 7, 8, 61] {
            check::<bf16, bf16>(&Case { m, n: 19, k: 37, a, b, ..DIRECT })?;
        }
    }
    Ok(())
}

#[test]
fn direct_ends_of_n_and_k() -> Outcome {
    for (n, k) in [(1, 1), (2, 31), (5, 33), (64, 256), (65, 257), (131, 64), (530, 7), (3, 700)] {
        for b in [DENSE, TRANSPOSED] {
            check_all(&Case { m: 5, n, k, b, ..DIRECT })?;
        }
    }
    Ok(())
}

/// A single row, whose columns of B begin at 16 bytes and have whole fours, and where one of these is not so.
#[test]
fn direct_one_row() -> Outcome {
    for (n, k) in [(1, 4), (7, 128), (33, 132), (70, 1036), (5, 2048)] {
        for gap in [0, 4, 1] {
            let b = Lie { gap, skip: 4, ..TRANSPOSED };
            let case = Case { m: 1, n, k, batch: 3, b, bias: true, ..DIRECT };
            check::<f32, f32>(&case)?;
            check::<f32, bf16>(&Case { a: TRANSPOSED, b: Lie { skip: 2, ..b }, ..case })?;
        }
        check::<f32, f32>(&Case { m: 1, n, k: k + 2, b: TRANSPOSED, ..DIRECT })?;
    }
    for family in Family::ALL {
        check::<f32, f32>(&Case { family, m: 1, n: 37, k: 300, a: TRANSPOSED, b: TRANSPOSED, ..DIRECT })?;
    }
    if !has_parts()? {
        return Ok(());
    }
    let in_parts = Case { kernels: |config| is_direct(config) && config.split_k > 1, ..DIRECT };
    for k in [2084, 4096] {
        let case = Case { m: 1, n: 9, k, b: TRANSPOSED, ..in_parts };
        assert!(case.check::<f32, f32, f32>()? > 0, "{case:?}");
    }
    Ok(())
}

#[test]
fn direct_strides_batches_and_other_results() -> Outcome {
    let (wide, tall) = (Lie { gap: 3, skip: 1, ..DENSE }, Lie { gap: 5, skip: 7, ..TRANSPOSED });
    for c in [DENSE, TRANSPOSED, wide] {
        for (a, b) in [(wide, tall), (tall, wide)] {
            let case = Case { m: 11, n: 43, k: 51, batch: 3, a, b, c, beta: -1.0, residual: true, ..DIRECT };
            check_all(&case)?;
            check::<bf16, E4M3>(&case)?;
            check::<f16, f16>(&Case { b: Lie { shared: true, ..b }, ..case })?;
        }
    }
    Ok(())
}

#[test]
fn direct_epilogues() -> Outcome {
    for &activation in Activation::ALL {
        for (bias, residual) in [(false, true), (true, false), (true, true)] {
            let case = Case { m: 10, n: 70, k: 45, alpha: 0.75, activation, bias, residual, ..DIRECT };
            check::<bf16, bf16>(&Case { scales: Some([0.5, 3.0]), ..case })?;
            check::<f32, f32>(&Case { b: TRANSPOSED, result_scale: Some(0.5), ..case })?;
        }
    }
    Ok(())
}

#[test]
fn direct_every_family_of_input() -> Outcome {
    for family in Family::ALL {
        for (a, b) in orders() {
            check::<f16, f32>(&Case { family, m: 9, n: 66, k: 301, a, b, ..DIRECT })?;
        }
    }
    Ok(())
}

/// Long k, in every number of parts: the last one is shorter, the epilogue comes after their sum.
#[test]
fn direct_parts_of_k() -> Outcome {
    if !has_parts()? {
        return Ok(());
    }
    let in_parts = Case { kernels: |config| is_direct(config) && config.split_k > 1, ..DIRECT };
    let (wide, tall) = (Lie { gap: 3, skip: 1, ..DENSE }, Lie { gap: 5, skip: 7, ..TRANSPOSED });
    for (a, b) in [(DENSE, DENSE), (DENSE, TRANSPOSED), (TRANSPOSED, DENSE), (wide, tall)] {
        let case = Case { m: 9, n: 67, k: 2085, a, b, bias: true, beta: -0.5, ..in_parts };
        for checked in [case.check::<bf16, bf16, bf16>()?, case.check::<f32, f32, f32>()?] {
            assert!(checked > 0, "{case:?}");
        }
    }
    // By columns, and what is not asked for.
    let by_columns = Case { m: 5, n: 33, k: 1031, c: TRANSPOSED, ..in_parts };
    assert!(by_columns.check::<f16, f16, f32>()? > 0);
    assert_eq!(Case { batch: 2, ..by_columns }.check::<f16, f16, f32>()?, 0);
    // The rest of the epilogue, which comes with the sum.
    let case = Case { m: 7, n: 34, k: 1031, b: TRANSPOSED, alpha: 0.5, ..in_parts };
    let added = Case { c: TRANSPOSED, beta: 0.5, residual: true, ..case };
    assert!(added.check::<bf16, bf16, bf16>()? > 0);
    // Old C of 8 bits, four at a time.
    let narrow = Case { n: 36, beta: 0.5, ..case };
    assert!(narrow.check::<bf16, bf16, E4M3>()? > 0);
    let gated = Case { activation: Activation::SwiGlu, bias: true, ..case };
    assert!(gated.check::<f16, f16, f16>()? > 0);
    Ok(())
}

/// A that lies by columns, copied to rows where k runs along B, alone and with k in parts.
#[test]
fn direct_copies_a_that_runs_the_other_way() -> Outcome {
    let copied =
        Case { kernels: |config| is_direct(config) && config.repack == [Repack::Rows, Repack::No], ..DIRECT };
    let scattered = Case { m: 13, n: 21, k: 1100, a: TRANSPOSED, b: TRANSPOSED, ..copied };
    assert!(scattered.check::<f16, f16, f16>()? >= Groups::ALL.len());
    assert!(Case { batch: 3, ..scattered }.check::<f32, f32, f32>()? >= Groups::ALL.len());
    assert_eq!(Case { a: DENSE, ..scattered }.check::<f16, f16, f16>()?, 0);
    assert_eq!(Case { b: DENSE, ..scattered }.check::<f16, f16, f16>()?, 0);
    Ok(())
}

/// Behind the last k nothing counts, although lanes load there again what is no number.
#[test]
fn direct_infinities_at_the_end_stay_in_their_rows() -> Outcome {
    infinities_at_the_end(3, 33)?;
    infinities_at_the_end(1, 36)
}

fn infinities_at_the_end(m: usize, k: usize) -> Outcome {
    let device = device()?;
    let stream = device.stream()?;
    let n = 5;
    let mut left = vec![1f32; m * k];
    let mut right = vec![1f32; k * n];
    (left[k - 1], right[k * n - 1]) = (f32::INFINITY, f32::INFINITY);
    let (left, right) =
        (DeviceBuffer::from_slice(&stream, &left)?, DeviceBuffer::from_slice(&stream, &right)?);
    let mut c = DeviceBuffer::<f32>::zeroed(&stream, m * n)?;
    for right in [Matrix::new::<f32>(&right, k, n), Matrix::new::<f32>(&right, n, k).transposed()] {
        for groups in Groups::ALL {
            let (left, c_matrix) = (Matrix::new::<f32>(&left, m, k), MatrixMut::new::<f32>(&mut c, m, n));
            let product = Matmul::new(left, right, c_matrix).precision(Precision::Tf32);
            let all = candidates(&product.problem()?, &device).into_iter().map(|candidate| candidate.config);
            let config = all
                .filter(|config| (DIRECT.kernels)(config))
                .nth(groups.exponent() as usize)
                .expect("four of them");
            product.run_with(&stream, &config)?;
            let mut rows = vec![k as f32; m * n];
            rows[..n].fill(f32::INFINITY);
            rows.iter_mut().skip(n - 1).step_by(n).for_each(|last| *last = f32::INFINITY);
            assert_eq!(c.to_vec(&stream)?, rows, "{config}");
        }
    }
    Ok(())
}

/// One row by a B whose columns are all one line in memory, which the kernel for one row does not take: its
/// columns do not lie apart.
#[test]
fn direct_one_row_by_columns_in_one_place() -> Outcome {
    let device = device()?;
    let stream = device.stream()?;
    let (n, k) = (70, 64);
    let numbers = |step: usize| -> Vec<f32> { (0..k).map(|i| ((i * step) % 5) as f32 - 2.0).collect() };
    let (row, line) = (numbers(2), numbers(3));
    let sum: f32 = row.iter().zip(&line).map(|(a, b)| a * b).sum();
    let (a, b) = (DeviceBuffer::from_slice(&stream, &row)?, DeviceBuffer::from_slice(&stream, &line)?);
    let mut c = DeviceBuffer::<f32>::zeroed(&stream, n)?;
    let mut ways = 0;
    for groups in Groups::ALL {
        let right = Matrix::new::<f32>(&b, n, k).leading(0).transposed();
        let product = Matmul::new(Matrix::new::<f32>(&a, 1, k), right, MatrixMut::new::<f32>(&mut c, 1, n));
        let all = candidates(&product.problem()?, &device).into_iter().map(|candidate| candidate.config);
        let config = all.filter(|config| (DIRECT.kernels)(config)).nth(groups.exponent() as usize);
        let Some(config) = config else { continue };
        product.run_with(&stream, &config)?;
        assert_eq!(c.to_vec(&stream)?, vec![sum; n], "{config}");
        ways += 1;
    }
    assert_eq!(ways, Groups::ALL.len());
    Ok(())
}

#[test]
fn direct_refuses_what_others_do_better() -> Outcome {
    assert_eq!(Case { m: 65, n: 8, k: 8, ..DIRECT }.check::<f32, f32, f32>()?, 0);
    assert_eq!(Case { m: 8, n: 8, k: 8, ..DIRECT }.check::<E4M3, E4M3, bf16>()?, 0);
    assert_eq!(Case { m: 8, n: 8, k: 0, ..DIRECT }.check::<bf16, bf16, bf16>()?, 0);
    // Where tensor cores may not, more rows too.
    let exact = Case { precision: Precision::F32, m: 75, n: 9, k: 8, ..DIRECT };
    check::<f32, f32>(&exact)?;
    check::<f32, f32>(&Case { b: TRANSPOSED, ..exact })
}
