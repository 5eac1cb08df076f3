//! Operands of tf32 that threads copy as they lie, against the oracle: every order, odd rows, ends of all
//! sides, strides, batches, epilogues, k in parts.

use crate::gemm_case::{Case, DENSE, Lie, Outcome, PLAIN, TRANSPOSED, device};
use gemm::sm90::instances::{Kind, TABLE};
use half::bf16;
use ironwarp::ops::gemm::{
    Activation, Config, Kernel, Matmul, Matrix, MatrixMut, Precision, Repack, candidates,
};
use ironwarp::{DeviceBuffer, Result as WarpResult};
use testkit::Family;

/// Operands as they lie.
const AS_THEY_LIE: Case = Case { kernels: takes_all, precision: Precision::Tf32, ..PLAIN };
/// The same, k in one piece.
const WHOLE: Case = Case { kernels: |config| takes_all(config) && config.split_k == 1, ..AS_THEY_LIE };

fn is_direct(config: &Config) -> bool {
    matches!(config.kernel, Kernel::Sm90(index) if TABLE[usize::from(index)].kind == Kind::Direct)
}

fn takes_all(config: &Config) -> bool {
    is_direct(config) && config.repack == [Repack::No; 2]
}

/// Is the device one for these kernels?
fn is_hopper() -> WarpResult<bool> {
    let arch = device()?.arch();
    Ok(arch.is_hopper())
}

/// Checks a case by all kernels, where there are any.
fn check(case: &Case) -> Outcome {
    let ran = case.check::<f32, f32, f32>()?;
    assert!(ran > 0 || !is_hopper()?, "{case:?}");
    Ok(())
}

/// An operand of this order whose lines begin at multiples of 4, 8 or 16 bytes, where `length` elements are a
/// line.
fn lie(transposed: bool, length: usize, alignment: usize) -> Lie {
    let words = alignment / size_of::<f32>();
    let leading = (length + 1).next_multiple_of(4) + words % 4;
    Lie { transposed, gap: leading - length, skip: 0, shared: false }
}

#[test]
fn as_they_lie_every_order_and_alignment() -> Outcome {
    let (m, n, k) = (70, 133, 75);
    for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
        for (of_a, of_b) in [(4, 4), (16, 4), (4, 16), (8, 16), (16, 8)] {
            let a = lie(trans_a, if trans_a { m } else { k }, of_a);
            let b = lie(trans_b, if trans_b { k } else { n }, of_b);
            check(&Case { m, n, k, a, b, ..WHOLE })?;
        }
        // Those that the copy engine could bring, in orders that it could not.
        let both =
            (lie(trans_a, if trans_a { m } else { k }, 16), lie(trans_b, if trans_b { k } else { n }, 16));
        if (trans_a, trans_b) != (false, true) {
            check(&Case { m, n, k, a: both.0, b: both.1, ..WHOLE })?;
        }
    }
    Ok(())
}

/// Tiles that end within groups of 8 and 32 lines, and steps that end within units of 16 bytes; several tiles
/// and more steps than stages.
#[test]
fn as_they_lie_ends() -> Outcome {
    for (m, n, k) in
        [(1, 1, 1), (2, 3, 33), (31, 97, 5), (33, 63, 64), (64, 128, 32), (129, 257, 31), (65, 40, 421)]
    {
        for (transposed, alignment) in [(false, 4), (false, 8), (false, 16), (true, 4)] {
            let a = lie(transposed, if transposed { m } else { k }, alignment);
            // One operand off the boundaries, so that the kernels are offered.
            let b = Lie { skip: 1, ..lie(!transposed, if transposed { n } else { k }, 4) };
            check(&Case { m, n, k, a, b, ..WHOLE })?;
        }
    }
    Ok(())
}

#[test]
fn as_they_lie_batches_strides_and_results() -> Outcome {
    let (wide, tall) = (Lie { gap: 3, skip: 1, ..DENSE }, Lie { gap: 5, skip: 7, ..TRANSPOSED });
    for c in [DENSE, TRANSPOSED, wide] {
        for (a, b) in [(wide, tall), (tall, wide)] {
            let case = Case { m: 67, n: 44, k: 51, batch: 3, a, b, c, beta: -1.0, residual: true, ..WHOLE };
            check(&case)?;
            let ran = case.check::<f32, f32, bf16>()?;
            assert!(ran > 0 || !is_hopper()?, "{case:?}");
        }
    }
    // The copy engine stores 16 bits.
    let case = Case { m: 72, n: 136, k: 40, a: TRANSPOSED, b: wide, bias: true, ..WHOLE };
    let ran = case.check::<f32, f32, bf16>()?;
    assert!(ran > 0 || !is_hopper()?, "{case:?}");
    Ok(())
}

#[test]
fn as_they_lie_epilogues() -> Outcome {
    for &activation in Activation::ALL {
        for (bias, residual) in [(false, true), (true, false)] {
            let case = Case { m: 66, n: 70, k: 45, alpha: 0.75, activation, bias, residual, ..WHOLE };
            check(&Case { scales: Some([0.5, 3.0]), ..case })?;
            check(&Case { a: TRANSPOSED, result_scale: Some(0.5), ..case })?;
        }
    }
    Ok(())
}

#[test]
fn as_they_lie_every_family_of_input() -> Outcome {
    for family in Family::ALL {
        for (a, b) in [(DENSE, DENSE), (TRANSPOSED, DENSE), (TRANSPOSED, TRANSPOSED)] {
            check(&Case { family, m: 9, n: 131, k: 203, a, b, ..WHOLE })?;
        }
    }
    Ok(())
}

/// Long k, in every number of parts: the last one is shorter, and ends within a step.
#[test]
fn as_they_lie_parts_of_k() -> Outcome {
    let in_parts = Case { kernels: |config| takes_all(config) && config.split_k > 1, ..AS_THEY_LIE };
    let (wide, tall) = (Lie { gap: 3, skip: 1, ..DENSE }, Lie { gap: 5, skip: 7, ..TRANSPOSED });
    for (a, b, batch, k) in [(TRANSPOSED, DENSE, 1, 2085), (wide, tall, 1, 2085), (tall, wide, 3, 4165)] {
        check(&Case { m: 40, n: 67, k, batch, a, b, bias: true, beta: -0.5, ..in_parts })?;
    }
    Ok(())
}

/// Nothing behind the operands' last elements is read: the checker knows where buffers end. And the same
/// product twice has the same bits.
#[test]
fn as_they_lie_results_repeat() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let (m, n, k) = (65, 131, 77);
    let device = device()?;
    let stream = device.stream()?;
    let values = |count: usize| testkit::input::<f32>(Family::Normal, count as u64, count);
    let a = DeviceBuffer::from_slice(&stream, &values(m * k))?;
    let b = DeviceBuffer::from_slice(&stream, &values(k * n))?;
    let mut bits = Vec::new();
    for _ in 0..3 {
        let mut c = DeviceBuffer::<f32>::zeroed(&stream, m * n)?;
        let (a, b) = (Matrix::new::<f32>(&a, k, m).transposed(), Matrix::new::<f32>(&b, k, n));
        let product = Matmul::new(a, b, MatrixMut::new::<f32>(&mut c, m, n)).precision(Precision::Tf32);
        let problem = product.problem()?;
        let config = candidates(&problem, &device)
            .into_iter()
            .map(|offer| offer.config)
            .find(|config| takes_all(config) && config.split_k == 1)
            .expect("a kernel that takes operands as they lie");
        product.run_with(&stream, &config)?;
        bits.push(c.to_vec(&stream)?.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    }
    assert!(bits.windows(2).all(|pair| pair[0] == pair[1]));
    Ok(())
}

/// Not for f32 that must not become tf32, nor for other types, nor where the copy engine brings both operands
/// as tensor cores read them.
#[test]
fn as_they_lie_only_where_it_helps() -> Outcome {
    let any = Case { kernels: is_direct, m: 40, n: 48, k: 64, ..PLAIN };
    let tf32 = Case { precision: Precision::Tf32, ..any };
    assert_eq!(any.check::<f32, f32, f32>()?, 0);
    assert_eq!(tf32.check::<bf16, bf16, bf16>()?, 0);
    assert_eq!(Case { b: TRANSPOSED, ..tf32 }.check::<f32, f32, f32>()?, 0);
    Ok(())
}
