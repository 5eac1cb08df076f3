//! f32 without tensor cores, against the oracle: both tiles, each way round, with k whole and in parts, every
//! order and alignment, batches, epilogues.

use crate::gemm_case::{Case, DENSE, Lie, Outcome, PLAIN, TRANSPOSED, has_parts};
use half::{bf16, f16};
use ironwarp::ops::gemm::{Activation, Config, Kernel, Precision};

/// k in one piece: two tiles, two ways round.
const WHOLE: Case = Case { kernels: |config| is_f32(config) && config.split_k == 1, ..PLAIN };
const WHOLE_WAYS: usize = 4;

fn is_f32(config: &Config) -> bool {
    matches!(config.kernel, Kernel::F32Large | Kernel::F32Small)
}

fn check(case: &Case) -> Outcome {
    assert_eq!(case.check::<f32, f32, f32>()?, WHOLE_WAYS, "{case:?}");
    Ok(())
}

fn orders() -> impl Iterator<Item = (Lie, Lie)> {
    [DENSE, TRANSPOSED].into_iter().flat_map(|a| [DENSE, TRANSPOSED].map(|b| (a, b)))
}

/// Inside of tiles and at their edges, of m, n and k; rows that are whole units and rows that are not.
#[test]
fn f32_orders_and_edges() -> Outcome {
    for (a, b) in orders() {
        for (m, n, k) in [(64, 128, 64), (68, 132, 36), (67, 129, 35), (1, 33, 100), (130, 5, 1)] {
            check(&Case { m, n, k, a, b, ..WHOLE })?;
        }
    }
    // More rows of blocks than a band has.
    check(&Case { m: 1100, n: 260, k: 3, ..WHOLE })
}

/// Rows that begin off 16-byte boundaries, and what lies between them.
#[test]
fn f32_gaps_and_skips() -> Outcome {
    for (gap, skip) in [(1, 0), (4, 1), (3, 2), (8, 4)] {
        let lie = Lie { gap, skip, ..DENSE };
        for (a, b) in orders() {
            let [a, b] = [a, b].map(|order| Lie { gap, skip, ..order });
            check(&Case { m: 70, n: 140, k: 40, a, b, c: lie, beta: 0.5, ..WHOLE })?;
        }
    }
    // Lines at 16-byte boundaries, of which the last unit is a part: what lies behind is no element.
    for (a, b) in orders() {
        let [a, b] = [a, b].map(|order| Lie { gap: 3, ..order });
        check(&Case { m: 69, n: 141, k: 41, a, b, ..WHOLE })?;
    }
    Ok(())
}

#[test]
fn f32_results_by_columns() -> Outcome {
    for c in [TRANSPOSED, Lie { gap: 3, skip: 1, ..TRANSPOSED }] {
        for (m, n) in [(64, 128), (67, 131), (3, 200)] {
            check(&Case { m, n, k: 50, c, alpha: -1.5, beta: 2.0, ..WHOLE })?;
        }
    }
    Ok(())
}

#[test]
fn f32_batches() -> Outcome {
    for (a, b) in orders() {
        check(&Case { m: 66, n: 35, k: 47, batch: 3, a, b, ..WHOLE })?;
    }
    // One B for all; a gap behind each row keeps the batch from being one product of more rows.
    let shared = Lie { shared: true, ..DENSE };
    check(&Case { m: 9, n: 35, k: 20, batch: 4, a: Lie { gap: 1, ..DENSE }, b: shared, ..WHOLE })
}

/// The epilogue of a transpose would add a bias to rows, so it is not offered.
#[test]
fn f32_epilogues() -> Outcome {
    let fused = Case { m: 70, n: 134, k: 40, bias: true, residual: true, ..WHOLE };
    for activation in [Activation::None, Activation::GeluTanh, Activation::SwiGlu] {
        let case =
            Case { activation, beta: if activation == Activation::SwiGlu { 0.0 } else { 0.5 }, ..fused };
        assert_eq!(case.check::<f32, f32, f32>()?, WHOLE_WAYS / 2, "{case:?}");
        assert_eq!(case.check::<f32, f32, bf16>()?, WHOLE_WAYS / 2, "{case:?}");
    }
    let scaled = Case { scales: Some([0.5, 3.0]), result_scale: Some(0.25), ..fused };
    assert_eq!(scaled.check::<f32, f32, f32>()?, WHOLE_WAYS / 2, "{scaled:?}");
    // Plain, but not f32.
    assert_eq!(Case { m: 70, n: 134, k: 40, ..WHOLE }.check::<f32, f32, f16>()?, WHOLE_WAYS);
    Ok(())
}

/// Parts of whole stages, of which the last has an end; few tiles, and C by columns.
#[test]
fn f32_parts_of_k() -> Outcome {
    if !has_parts()? {
        return Ok(());
    }
    let in_parts = Case { kernels: |config| is_f32(config) && config.split_k > 1, ..PLAIN };
    for (a, b) in [(DENSE, TRANSPOSED), (TRANSPOSED, DENSE)] {
        let case = Case { m: 20, n: 35, k: 701, a, b, beta: -0.5, ..in_parts };
        assert!(case.check::<f32, f32, f32>()? > WHOLE_WAYS, "{case:?}");
    }
    let case = Case { m: 65, n: 34, k: 640, c: TRANSPOSED, bias: true, ..in_parts };
    assert!(case.check::<f32, f32, f32>()? > 0, "{case:?}");
    // Four rows a thread, of which each column has one bias.
    let fours = Case { m: 64, residual: true, ..case };
    assert!(fours.check::<f32, f32, f32>()? > 0, "{fours:?}");
    // A batch has no parts.
    assert_eq!(Case { batch: 2, ..case }.check::<f32, f32, f32>()?, 0);
    Ok(())
}

#[test]
fn f32_refuses_other_types_and_tf32() -> Outcome {
    assert_eq!(Case { m: 8, n: 8, k: 8, ..WHOLE }.check::<bf16, bf16, f32>()?, 0);
    assert_eq!(Case { m: 8, n: 8, k: 8, precision: Precision::Tf32, ..WHOLE }.check::<f32, f32, f32>()?, 0);
    Ok(())
}
