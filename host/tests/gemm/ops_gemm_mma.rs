//! `gemm_mma_f16`, `_bf16`, `_tf32` and the small ones against the oracle: shapes around tiles and stages,
//! orders, alignments, batches, epilogues, hostile inputs.

use crate::gemm_case::{Case, DENSE, Lie, Number, Outcome, PLAIN, TRANSPOSED};
use half::{bf16, f16};
use ironwarp::ops::gemm::{Activation, Kernel, Precision};
use testkit::Family;

const MMA: Case = Case {
    kernels: |config| matches!(config.kernel, Kernel::MmaLarge | Kernel::MmaSmall),
    precision: Precision::Tf32,
    ..PLAIN
};

/// Both tiles.
const TILES: usize = 2;

/// The three types of operands, C in the same and in f32.
fn every_type(case: Case) -> Outcome {
    case.check::<f16, f16, f16>()?;
    case.check::<bf16, bf16, f32>()?;
    case.check::<f32, f32, f32>()?;
    Ok(())
}

#[test]
fn mma_shape() -> Outcome {
    // Around tiles of 64 and 128, stages of 16 and 32, and a ring of four of them; thin, empty.
    let shapes = [
        (0, 5, 5),
        (5, 0, 5),
        (5, 5, 0),
        (1, 1, 1),
        (1, 130, 17),
        (130, 1, 33),
        (63, 65, 32),
        (64, 128, 31),
        (129, 127, 128),
        (128, 64, 160),
        (200, 136, 264),
    ];
    for (m, n, k) in shapes {
        let case = Case { m, n, k, ..MMA };
        assert!(case.check::<bf16, bf16, bf16>()? >= TILES, "both tiles take everything");
        every_type(Case { alpha: -1.5, beta: 0.5, seed: 7, ..case })?;
        every_type(Case { family: Family::SmallIntegers, beta: 1.0, ..case })?;
    }
    Ok(())
}

#[test]
fn mma_order_and_alignment() -> Outcome {
    // Lines at 16-byte boundaries, at 8-byte ones, at any; from the beginning of the buffer and not.
    let lies = [
        DENSE,
        TRANSPOSED,
        Lie { gap: 8, skip: 8, ..DENSE },
        Lie { gap: 16, skip: 16, ..TRANSPOSED },
        Lie { gap: 3, skip: 1, ..DENSE },
        Lie { gap: 5, skip: 2, ..TRANSPOSED },
    ];
    for (i, a) in lies.into_iter().enumerate() {
        for (j, b) in lies.into_iter().enumerate() {
            let case = Case { m: 72, n: 88, k: 48, a, b, ..MMA };
            // The 16-bit types take the same way.
            if (i + j) % 2 == 0 {
                case.check::<f16, f16, f16>()?
            } else {
                case.check::<bf16, bf16, f32>()?
            };
            case.check::<f32, f32, f32>()?;
        }
    }
    for c in lies {
        let case = Case { m: 66, n: 130, k: 20, c, beta: -1.0, residual: true, ..MMA };
        every_type(case)?;
        every_type(Case { batch: 3, ..case })?;
    }
    Ok(())
}

#[test]
fn mma_batch() -> Outcome {
    let shared = Lie { shared: true, ..DENSE };
    for (a, b) in [(DENSE, DENSE), (shared, TRANSPOSED), (DENSE, Lie { transposed: true, ..shared })] {
        // A gap behind C's rows: the batch is not one product of more rows.
        let c = Lie { gap: 8, ..DENSE };
        every_type(Case { m: 70, n: 40, k: 72, batch: 4, a, b, c, ..MMA })?;
    }
    every_type(Case { m: 4, n: 4, k: 4, batch: 0, ..MMA })
}

fn epilogues<T: Number>() -> Outcome {
    for &activation in Activation::ALL {
        for (bias, residual) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = Case { m: 70, n: 140, k: 40, alpha: 0.75, activation, bias, residual, ..MMA };
            case.check::<T, T, T>()?;
            if activation != Activation::SwiGlu {
                Case { beta: 0.5, scales: Some([0.25, 3.0]), ..case }.check::<T, T, f32>()?;
            }
        }
    }
    Ok(())
}

#[test]
fn mma_epilogue() -> Outcome {
    epilogues::<f16>()?;
    epilogues::<bf16>()?;
    epilogues::<f32>()
}

#[test]
fn mma_input() -> Outcome {
    for family in Family::ALL {
        let case = Case { family, m: 72, n: 136, k: 200, ..MMA };
        case.check::<bf16, bf16, f32>()?;
        // Products of huge numbers leave the range of f16.
        case.check::<f16, f16, f16>()?;
        case.check::<f32, f32, f32>()?;
    }
    Ok(())
}
