//! Settings of a trial beside each other.

use crate::common::{Outcome, stream, tests};
use crate::norms::plain;
use ironwarp::Tensor;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::trial::{Setting, set};
use ironwarp::ops::row::{Norm, NormKind};
use ironwarp::tensor::Element;
use rows::plan::{KEPT_RESIDENT, KEPT_WARPS};
use testkit::{Family, compare, input};

fn agree<T: Element + testkit::Element>() -> Outcome {
    let stream = stream()?;
    let warps = stream.device().properties().sm_count * KEPT_RESIDENT * KEPT_WARPS;
    for (columns, turns) in [(65_536_usize, 70), (1024, 3), (16_384, 5), (12_304, 5)] {
        let at_once = (warps as usize / columns.div_ceil(1024)).max(1);
        let rows = turns * at_once + 1;
        let shared = Tensor::from_slice(&stream, &[columns], &input::<T>(Family::Normal, 1, columns))?;
        let x =
            Tensor::from_slice(&stream, &[rows, columns], &input::<T>(Family::Normal, 2, rows * columns))?;
        for (kind, has_bias, activation, has_residual) in [
            (NormKind::Layer, true, Activation::GeluTanh, false),
            (NormKind::Rms, false, Activation::None, false),
            (NormKind::Layer, true, Activation::None, true),
        ] {
            if turns > 5 && has_residual {
                continue;
            }
            let bias = has_bias.then_some(&shared);
            let norm = Norm { weight: Some(&shared), bias, activation, ..plain(kind) };
            let run = |setting| -> Outcome<(Vec<T>, Vec<f32>)> {
                set(setting);
                let normed = match has_residual {
                    true => norm.add_and_run(&stream, &x, &x, true)?,
                    false => norm.run_for_gradient(&stream, &x)?,
                };
                set(Setting::Rule);
                Ok((normed.y.to_vec(&stream)?, normed.moments.ok_or("moments")?.to_vec(&stream)?))
            };
            let want = run(Setting::Kept(1))?;
            // Twice: the first launch leaves the counter as it was.
            for setting in [Setting::Drawn, Setting::Drawn, Setting::Shared] {
                if setting == Setting::Shared && (size_of::<T>() == 4 || columns == 12_304) {
                    continue;
                }
                let got = run(setting)?;
                let what = format!("{rows}x{columns} {setting:?} {kind:?} {has_residual}");
                compare::bitwise_equal(&what, &got.0, &want.0)?;
                compare::bitwise_equal(&what, &got.1, &want.1)?;
            }
            println!("{rows}x{columns} {kind:?} {has_residual}");
        }
    }
    Ok(())
}

tests!(agree: f32_agrees = f32, bf16_agrees = half::bf16);
