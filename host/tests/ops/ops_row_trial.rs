//! Settings of a trial beside each other.

use crate::common::{Outcome, stream, tests};
use crate::norms::plain;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::trial::{Setting, set};
use ironwarp::ops::row::{Norm, NormKind};
use ironwarp::tensor::Element;
use ironwarp::{DeviceBuffer, Tensor};
use rows::plan::{KEPT_RESIDENT, KEPT_WARPS};
use testkit::{Family, compare, input};

fn agree<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let counter = DeviceBuffer::<u32>::zeroed(&stream, 1)?;
    let at = counter.as_ptr().raw();
    let warps = stream.device().properties().sm_count * KEPT_RESIDENT * KEPT_WARPS;
    for (columns, turns) in [(65_536_usize, 20), (1024, 3), (16_384, 5)] {
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
            for setting in [
                Setting::Ordered(1, 100, at),
                Setting::Ordered(4, 50, at),
                Setting::Ordered(1, 100, 0),
                Setting::Shared(1, 100, at),
            ] {
                if matches!(setting, Setting::Shared(..)) && (size_of::<T>() == 4 || columns == 768) {
                    continue;
                }
                let got = run(setting)?;
                let what = format!("{rows}x{columns} {setting:?} {kind:?} {has_residual}");
                compare::bitwise_equal(&what, &got.0, &want.0)?;
                compare::bitwise_equal(&what, &got.1, &want.1)?;
                assert_eq!(counter.to_vec(&stream)?, [0], "{what}");
            }
            for setting in [Setting::Loaded, Setting::LoadedStream] {
                if columns == 768 {
                    continue;
                }
                let got = run(setting)?;
                for (got, want) in got.0.iter().zip(&want.0) {
                    let (got, want): (f64, f64) = ((*got).into(), (*want).into());
                    let most = if size_of::<T>() == 4 { 1e-5 } else { 0.01 };
                    assert!((got - want).abs() <= most * (1.0 + want.abs()), "{rows}x{columns}: {got} {want}");
                }
            }
            println!("{rows}x{columns} {kind:?} {has_residual}");
        }
    }
    Ok(())
}

tests!(agree: f32_agrees = f32, bf16_agrees = half::bf16);
