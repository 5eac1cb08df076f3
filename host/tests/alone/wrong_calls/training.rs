//! Optimisers, norms of gradients and of channels, embeddings and dropout.

use ironwarp::ops::dropout::{Generator, dropout};
use ironwarp::ops::embedding::embedding_backward;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::index::Indices;
use ironwarp::ops::optim::{
    Adafactor, AdafactorConfig, AdamW, AdamWConfig, GradientNorm, Lion, LionConfig, LossScale,
    LossScaleConfig, NormConfig, Sgd, SgdConfig,
};
use ironwarp::ops::row::{BatchNorm, ChannelAffine, GroupNorm, Norm, NormKind, RunningStatistics};
use ironwarp::{DType, Device, DeviceBuffer, Error, Result, Stream, Tensor};

use super::Calls;
use crate::common::Bench;

fn zeros(bench: &Bench, shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::zeros(&bench.stream, shape, dtype)
}

fn argument(what: &'static str) -> impl Fn(&Error) -> bool {
    move |error| matches!(error, Error::InvalidArgument { argument: got, .. } if *got == what)
}

fn of_tensors(error: &Error) -> bool {
    error.tensor_error().is_some()
}

/// A step of AdamW over an f32 parameter of four elements.
fn step(bench: &Bench, params: &mut [Tensor], grads: &[Tensor]) -> Result<()> {
    let mut known = zeros(bench, &[4], DType::F32)?;
    let mut adamw = AdamW::new(&bench.stream, &[known.view_mut()?], AdamWConfig::default())?;
    let mut params = params.iter_mut().map(Tensor::view_mut).collect::<Result<Vec<_>>>()?;
    adamw.step(&bench.stream, &mut params, &grads.iter().collect::<Vec<_>>(), None)
}

pub(crate) fn table(calls: &mut Calls) {
    let nothing = |stream: &Stream, learning_rate| {
        let config = AdamWConfig { learning_rate, ..AdamWConfig::default() };
        AdamW::new(stream, &[], config)
    };
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        calls.wrong("AdamW", |b| nothing(&b.stream, bad), argument("learning_rate"));
        calls.wrong(
            "rate",
            |b| nothing(&b.stream, 0.1)?.set_learning_rate(&b.stream, bad),
            argument("learning_rate"),
        );
    }
    let sgd = SgdConfig { momentum: -0.5, ..SgdConfig::default() };
    calls.wrong("Sgd", |b| Sgd::new(&b.stream, &[], sgd), argument("momentum"));
    let lion = LionConfig { betas: [0.9, 1.0], ..LionConfig::default() };
    calls.wrong("Lion", |b| Lion::new(&b.stream, &[], lion), argument("betas"));
    let adafactor = AdafactorConfig { threshold: 0.0, ..AdafactorConfig::default() };
    calls.wrong("Adafactor", |b| Adafactor::new(&b.stream, &[], adafactor), argument("threshold"));
    let norm = NormConfig { max_norm: Some(0.0), ..NormConfig::default() };
    calls.wrong("GradientNorm", |b| GradientNorm::new(&b.stream, norm), argument("max_norm"));
    let scale = LossScaleConfig { initial: -1.0, ..LossScaleConfig::default() };
    calls.wrong("LossScale", |b| LossScale::new(&b.stream, scale), argument("initial"));
    let four = |b: &Bench| zeros(b, &[4], DType::F32);
    calls.wrong("no parameter", |b| step(b, &mut [], &[four(b)?]), argument("params"));
    calls.wrong("no gradient", |b| step(b, &mut [four(b)?], &[]), argument("grads"));
    calls.wrong("a long gradient", |b| step(b, &mut [four(b)?], &[zeros(b, &[5], DType::F32)?]), of_tensors);
    calls.wrong("a short gradient", |b| step(b, &mut [four(b)?], &[zeros(b, &[4], DType::F16)?]), of_tensors);
    calls.wrong(
        "another parameter",
        |b| step(b, &mut [zeros(b, &[4], DType::BF16)?], &[four(b)?]),
        of_tensors,
    );
    let train = |b: &Bench, sides: &[usize], momentum, dtype| {
        let (x, mut mean) = (zeros(b, sides, DType::F32)?, zeros(b, &[3], dtype)?);
        let mut variance = zeros(b, &[3], DType::F32)?;
        let running = RunningStatistics { mean: mean.view_mut()?, variance: variance.view_mut()?, momentum };
        BatchNorm::default().train(&b.stream, &x, Some(running))
    };
    calls.wrong("one image", |b| train(b, &[1, 3], 0.1, DType::F32), argument("x"));
    calls.wrong("a momentum", |b| train(b, &[2, 3], 1.5, DType::F32), argument("momentum"));
    calls.wrong("running means of channels", |b| train(b, &[2, 4], 0.1, DType::F32), of_tensors);
    calls.wrong("running means in f16", |b| train(b, &[2, 3], 0.1, DType::F16), of_tensors);
    let backward = |b: &Bench, dy: &[usize], moments: &[usize]| {
        let (x, dy) = (zeros(b, &[2, 4], DType::F32)?, zeros(b, dy, DType::F32)?);
        let norm = GroupNorm { groups: 2, affine: ChannelAffine::default() };
        norm.backward(&b.stream, &x, &dy, &zeros(b, moments, DType::F32)?, [true, true])
    };
    calls.wrong("a gradient of other channels", |b| backward(b, &[2, 2], &[2, 4]), of_tensors);
    calls.wrong("moments of other groups", |b| backward(b, &[2, 4], &[2, 2]), of_tensors);
    let generator = |b: &Bench| Generator::new(&b.stream, 1);
    calls.wrong(
        "dropout",
        |b| dropout(&b.stream, &four(b)?, 1.5, &generator(b)?, 0),
        argument("probability"),
    );
    let tokens = |b: &Bench| Indices::from_slice(&b.stream, &[0, 7], 8);
    calls.wrong(
        "more tokens than rows",
        |b| embedding_backward(&b.stream, &zeros(b, &[2, 3], DType::F32)?, &tokens(b)?, 7),
        of_tensors,
    );
    calls.wrong(
        "a gradient of other tokens",
        |b| embedding_backward(&b.stream, &zeros(b, &[3, 3], DType::F32)?, &tokens(b)?, 8),
        of_tensors,
    );
}

#[test]
fn operands_of_another_device_are_refused() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    if Device::count()? < 2 {
        testkit::skip("one device");
        return Ok(());
    }
    let mut calls = Calls { made: 0, bench: Bench::open()? };
    let there = Bench::on(1)?;
    let far = || zeros(&there, &[4], DType::F32);
    let is_it = |error: &Error| matches!(error, Error::DeviceMismatch { .. });
    let config = AdamWConfig::default();
    calls.wrong("AdamW", |b| AdamW::new(&b.stream, &[far()?.view_mut()?], config), is_it);
    calls.wrong("a parameter", |b| step(b, &mut [far()?], &[zeros(b, &[4], DType::F32)?]), is_it);
    calls.wrong("a gradient", |b| step(b, &mut [zeros(b, &[4], DType::F32)?], &[far()?]), is_it);
    let norm = NormConfig::default();
    calls.wrong("norm", |b| GradientNorm::new(&b.stream, norm)?.measure(&b.stream, &[&far()?], None), is_it);
    let scale = || zeros(&there, &[1], DType::F32);
    calls.wrong(
        "scale",
        |b| GradientNorm::new(&b.stream, norm)?.measure(&b.stream, &[], Some(&scale()?)),
        is_it,
    );
    let generator = Generator::new(&there.stream, 1)?;
    calls.wrong("generator", |b| dropout(&b.stream, &zeros(b, &[4], DType::F32)?, 0.5, &generator, 0), is_it);
    let factor = DeviceBuffer::from_slice(&there.stream, &[1.0f32])?;
    let norm_of_rows =
        Norm { kind: NormKind::Rms, weight: None, bias: None, eps: 0.0, activation: Activation::None };
    calls.wrong(
        "a scale of e4m3",
        |b| norm_of_rows.to_e4m3().scale_result(&factor).run(&b.stream, &zeros(b, &[1, 4], DType::F32)?),
        is_it,
    );
    calls.wrong(
        "a generator of a norm",
        |b| {
            let x = zeros(b, &[1, 4], DType::F32)?;
            norm_of_rows.dropout(0.5, &generator, 0).add_and_run(&b.stream, &x, &x, false)
        },
        is_it,
    );
    // The norm of another device: the step is refused before it is counted.
    let other = GradientNorm::new(&there.stream, norm)?;
    let mut scale = LossScale::new(&calls.bench.stream, LossScaleConfig::default())?;
    calls.wrong("a scale's norm", |b| scale.update(&b.stream, &other), is_it);
    let (mut x, g) = (zeros(&calls.bench, &[4], DType::F32)?, zeros(&calls.bench, &[4], DType::F32)?);
    let stream = calls.bench.stream.clone();
    let mut adamw = AdamW::new(&stream, &[x.view_mut()?], config)?;
    calls.wrong("its norm", |_| adamw.step(&stream, &mut [x.view_mut()?], &[&g], Some(&other)), is_it);
    assert_eq!(adamw.steps(&stream)?, 0);
    Ok(())
}
