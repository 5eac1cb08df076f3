//! Functions of rows and their gradients, by both engines: rows that lie alike within 16 bytes, and rows that
//! do not; a team of a few lanes, one of some warps, a block, and a cluster a row. Losses of rows, one behind
//! a product. Norms to e4m3, and of dropout. Layer norms of rows in registers, also where blocks draw them.
//! Gradients of norms of long rows. Norms of channels.

use super::{Outcome, Stop};
use ironwarp::ops::convert::convert;
use ironwarp::ops::dropout::Generator;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{
    Affine, BatchNorm, ChannelAffine, ChannelAxis, CosineEmbedding, CrossEntropy, FixedStatistics, GroupNorm,
    LinearCrossEntropy, Norm, NormBackward, NormKind, Normed, RowOp, log_softmax_backward, row,
    softmax_backward,
};
use ironwarp::{DType, DeviceBuffer, Error, Stream, Tensor};
use rows::plan::{KEPT_RESIDENT, KEPT_WARPS};
use testkit::{Family, input};

/// Rows and columns. Rows of less than a vector are the direct engine's.
const SHAPES: [[usize; 2]; 6] = [[20, 40], [5, 3], [6, 768], [3, 2400], [2, 14_000], [2, 4096]];

pub fn stops() -> Vec<Stop> {
    let mut stops = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for is_alike in [true, false] {
            let name = format!("rows of {dtype}, alike within 16 bytes: {is_alike}");
            stops.push(Stop::new(name, move |stream| all(stream, dtype, is_alike)));
        }
    }
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let name = format!("layer norms of {dtype} in registers");
        stops.push(Stop::new(name, move |stream| in_registers(stream, dtype)));
        let name = format!("norms of {dtype} whose blocks draw rows");
        stops.push(Stop::new(name, move |stream| drawn(stream, dtype)));
    }
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        stops.push(Stop::new(format!("norms of channels of {dtype}"), move |stream| channels(stream, dtype)));
    }
    for dtype in [DType::F16, DType::BF16] {
        let name = format!("gradients of norms of {dtype}, too long for rings of lanes");
        stops.push(Stop::new(name, move |stream| gradients_of_long_rows(stream, dtype)));
    }
    stops.push(Stop::new("rows of f64", |stream| {
        let mut bytes = Vec::new();
        for &op in RowOp::ALL {
            let x = Tensor::from_slice(stream, &[9, 70], &input::<f64>(Family::Normal, 1, 630))?;
            let y = row(stream, op, &x, 1, Affine::default())?;
            bytes.extend_from_slice(bytemuck::cast_slice(&y.to_vec::<f64>(stream)?));
        }
        Ok(bytes)
    }));
    stops
}

/// Random rows; shifted by an element, they do not lie like results.
fn rows(
    stream: &Stream,
    dtype: DType,
    is_alike: bool,
    seed: u64,
    sides: [usize; 2],
) -> Result<Tensor, Error> {
    let (count, first) = (sides[0] * sides[1], usize::from(!is_alike));
    let values = input::<f32>(Family::Normal, seed, count + first);
    let x = convert(stream, &Tensor::from_slice(stream, &[count + first], &values)?, dtype)?;
    x.slice(0, first..)?.view_as(&sides)
}

struct Kept(Vec<u8>);

impl Kept {
    fn keep(&mut self, stream: &Stream, x: &Tensor) -> Outcome {
        // To f32 each value goes as it is.
        let values = convert(stream, x, DType::F32)?.to_vec::<f32>(stream)?;
        self.0.extend_from_slice(bytemuck::cast_slice(&values));
        Ok(())
    }
}

/// Images, channels and positions: channels by vectors and one by one; positions in several parts.
const CHANNELS: [[usize; 3]; 3] = [[2, 8, 600], [3, 6, 49], [1, 4, 5000]];

/// Group norm and batch norm, with the channels second and last, and their gradients.
fn channels(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    let mut kept = Kept(Vec::new());
    for sides @ [images, channels, positions] in CHANNELS {
        let flat = |seed| rows(stream, dtype, true, seed, [images, channels * positions]);
        let weight = rows(stream, dtype, true, 4, [1, channels])?.view_as(&[channels])?;
        let mean = Tensor::zeros(stream, &[channels], DType::F32)?;
        for axis in [ChannelAxis::Second, ChannelAxis::Last] {
            let sides = if axis == ChannelAxis::Second { sides } else { [images, positions, channels] };
            let (x, dy) = (flat(1)?.view_as(&sides)?, flat(2)?.view_as(&sides)?);
            let affine = ChannelAffine { axis, weight: Some(&weight), bias: Some(&weight), eps: 1e-5 };
            let (group, batch) = (GroupNorm { groups: 2, affine }, BatchNorm { affine });
            let of_group = group.run(stream, &x)?;
            let of_batch = batch.train(stream, &x, None)?;
            let all = [true, true];
            for (normed, gradients) in [
                (&of_group, group.backward(stream, &x, &dy, &of_group.moments, all)?),
                (&of_batch, batch.backward(stream, &x, &dy, &of_batch.moments, all)?),
            ] {
                kept.keep(stream, &normed.y)?;
                kept.keep(stream, &normed.moments)?;
                for gradient in [Some(gradients.x), gradients.weight, gradients.bias].into_iter().flatten() {
                    kept.keep(stream, &gradient)?;
                }
            }
            let fixed = FixedStatistics { mean: &mean, variance: &mean };
            kept.keep(stream, &batch.infer(stream, &x, fixed)?)?;
        }
    }
    Ok(kept.0)
}

/// Layer norms with an activation, for which a card with few multiprocessors has several rows a block, and
/// fewer in the last blocks: a warp that is full, one that is not, or in 16 bits has three vectors a thread,
/// several, and clusters, also with a residual. RMS norms with a weight alone.
fn in_registers(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    let mut kept = Kept(Vec::new());
    for sides @ [_, columns] in [[100, 1024], [5, 768], [25, 8192], [13, 16_384], [13, 14_000]] {
        let (x, residual) = (rows(stream, dtype, true, 1, sides)?, rows(stream, dtype, true, 2, sides)?);
        let weight = rows(stream, dtype, true, 3, [1, columns])?.view_as(&[columns])?;
        let (kind, activation) = (NormKind::Layer, Activation::GeluTanh);
        let norm = Norm { kind, weight: Some(&weight), bias: Some(&weight), eps: 1e-5, activation };
        let (kind, activation) = (NormKind::Rms, Activation::None);
        let rms = Norm { kind, bias: None, activation, ..norm };
        for normed in [
            norm.run_for_gradient(stream, &x)?,
            norm.add_and_run(stream, &x, &residual, true)?,
            rms.run_for_gradient(stream, &x)?,
        ] {
            for result in [Some(normed.y), normed.sum, normed.moments].into_iter().flatten() {
                kept.keep(stream, &result)?;
            }
        }
    }
    Ok(kept.0)
}

/// Norms of more rows than the device has at once, which repeat a few, whose results are kept: without an
/// activation, where weights of 16 bits go to shared memory, and with one.
fn drawn(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    const ROWS: usize = 5;
    let (columns, mut kept) = (16_384, Kept(Vec::new()));
    let warps = stream.device().properties().sm_count * KEPT_RESIDENT * KEPT_WARPS;
    let count = (warps as usize / (columns / 1024) + 1).next_multiple_of(ROWS);
    let values = input::<f32>(Family::Normal, 1, ROWS * columns).repeat(count / ROWS);
    let x = convert(stream, &Tensor::from_slice(stream, &[count, columns], &values)?, dtype)?;
    let weight = rows(stream, dtype, true, 3, [1, columns])?.view_as(&[columns])?;
    for activation in [Activation::None, Activation::GeluTanh] {
        let (weight, kind) = (Some(&weight), NormKind::Layer);
        let norm = Norm { kind, weight, bias: weight, eps: 1e-5, activation };
        kept.keep(stream, &norm.run(stream, &x)?.y.slice(0, ..ROWS)?)?;
    }
    Ok(kept.0)
}

/// Gradients of layer norms by all operands, with an activation and without, of rows that the ring of a block
/// has.
fn gradients_of_long_rows(stream: &Stream, dtype: DType) -> Outcome<Vec<u8>> {
    let sides @ [_, columns] = [2, 66_000];
    let [x, dy, weight] = [(1, sides), (2, sides), (3, [1, columns])]
        .map(|(seed, sides)| rows(stream, dtype, true, seed, sides));
    let (x, dy, weight) = (x?, dy?, weight?.view_as(&[columns])?);
    let mut kept = Kept(Vec::new());
    for activation in [Activation::None, Activation::Silu] {
        let (kind, weight) = (NormKind::Layer, Some(&weight));
        let norm = Norm { kind, weight, bias: None, eps: 1e-5, activation };
        let moments = norm.run_for_gradient(stream, &x)?.moments.ok_or("moments were wanted")?;
        let backward = NormBackward { of_shared: [true, true], ..norm.backward(&x, &dy, &moments) };
        let gradients = backward.run(stream)?;
        for gradient in [Some(gradients.x), gradients.weight, gradients.bias].into_iter().flatten() {
            kept.keep(stream, &gradient)?;
        }
    }
    Ok(kept.0)
}

fn all(stream: &Stream, dtype: DType, is_alike: bool) -> Outcome<Vec<u8>> {
    let mut kept = Kept(Vec::new());
    let (scale, generator) = (DeviceBuffer::from_slice(stream, &[100.0f32])?, Generator::new(stream, 7)?);
    for sides @ [count, columns] in SHAPES {
        let x = rows(stream, dtype, is_alike, 1, sides)?;
        let (dy, residual) =
            (rows(stream, dtype, is_alike, 2, sides)?, rows(stream, dtype, is_alike, 3, sides)?);
        for (op, is_log) in [(RowOp::Softmax, false), (RowOp::LogSoftmax, true)] {
            kept.keep(stream, &row(stream, op, &x, 1, Affine::default())?)?;
            let backward = if is_log { log_softmax_backward } else { softmax_backward };
            kept.keep(stream, &backward(stream, &x, &dy, 1)?)?;
        }
        let weight = rows(stream, dtype, true, 4, [1, columns])?.view_as(&[columns])?;
        for (kind, activation) in [(NormKind::Layer, Activation::Gelu), (NormKind::Rms, Activation::None)] {
            let norm = Norm { kind, weight: Some(&weight), bias: Some(&weight), eps: 1e-5, activation };
            let Normed { y, sum, moments } = norm.add_and_run(stream, &x, &residual, true)?;
            kept.keep(stream, &y)?;
            let mut amax = DeviceBuffer::zeroed(stream, 1)?;
            let fused = norm.to_e4m3().scale_result(&scale).amax(&mut amax);
            kept.keep(stream, &fused.add_and_run(stream, &x, &residual, false)?.y)?;
            kept.0.extend_from_slice(bytemuck::cast_slice(&amax.to_vec(stream)?));
            let of_dropout = norm.dropout(0.25, &generator, 1).add_and_run(stream, &x, &residual, false)?;
            kept.keep(stream, &of_dropout.y)?;
            let fused = norm.dropout(0.25, &generator, 1).to_e4m3().scale_result(&scale).amax(&mut amax);
            kept.keep(stream, &fused.add_and_run(stream, &x, &residual, false)?.y)?;
            kept.0.extend_from_slice(bytemuck::cast_slice(&amax.to_vec(stream)?));
            kept.keep(stream, &of_dropout.sum.ok_or("a residual was added")?)?;
            let (sum, moments) = (sum.ok_or("a residual was added")?, moments.ok_or("moments were wanted")?);
            kept.keep(stream, &sum)?;
            let without: &[Activation] =
                if activation == Activation::None { &[] } else { &[Activation::None] };
            for (&activation, of_shared) in
                without.iter().chain([&activation]).flat_map(|a| [(a, [true, true]), (a, [false, false])])
            {
                let residual = (kind == NormKind::Layer).then_some(&residual);
                let norm = Norm { activation, ..norm };
                let backward = NormBackward { residual, of_shared, ..norm.backward(&x, &dy, &moments) };
                let gradients = backward.run(stream)?;
                for gradient in [Some(gradients.x), gradients.weight, gradients.bias].into_iter().flatten() {
                    kept.keep(stream, &gradient)?;
                }
            }
        }
        let classes: Vec<i64> = (0..count).map(|row| ((row * 31) % columns) as i64).collect();
        let targets = Tensor::from_slice(stream, &[count], &classes)?;
        let loss = CrossEntropy { smoothing: 0.1, ..CrossEntropy::default() };
        kept.keep(stream, &loss.loss(stream, &x, &targets)?.value)?;
        let capped = CrossEntropy { soft_cap: Some(3.0), ..loss };
        kept.keep(stream, &capped.loss(stream, &x, &targets)?.value)?;
        kept.keep(stream, &capped.loss_of_probabilities(stream, &x, &x)?.of_rows)?;
        let signs: Vec<i64> = (0..count).map(|row| if row % 2 == 0 { 1 } else { -1 }).collect();
        let signs = Tensor::from_slice(stream, &[count], &signs)?;
        let cosine = CosineEmbedding { margin: -0.5, ..CosineEmbedding::default() };
        let (of_pairs, [da, db]) = cosine.loss_and_gradients(stream, &x, &dy, &signs, None)?;
        for result in [&of_pairs.value, &of_pairs.of_rows, &da, &db] {
            kept.keep(stream, result)?;
        }
        if is_alike {
            let mut logits = rows(stream, dtype, true, 5, sides)?;
            let of_rows = loss.loss_and_gradient(stream, logits.view_mut()?, &targets, None)?.of_rows;
            kept.keep(stream, &of_rows)?;
            kept.keep(stream, &logits)?;
            capped.loss_and_gradient(stream, logits.view_mut()?, &targets, None)?;
            capped.loss_and_gradient_of_probabilities(stream, logits.view_mut()?, &x, None)?;
            kept.keep(stream, &logits)?;
        }
    }
    let (x, weight) = (rows(stream, dtype, is_alike, 6, [20, 40])?, rows(stream, dtype, true, 7, [70, 40])?);
    let targets = Tensor::from_slice(stream, &[20], &(0..20).map(|row| 3 * row).collect::<Vec<i64>>())?;
    let linear = LinearCrossEntropy { chunk: Some(12), ..LinearCrossEntropy::default() };
    let of_linear = linear.loss_and_gradients(stream, &x, &weight, &targets, None)?;
    for result in [&of_linear.loss.of_rows, &of_linear.x, &of_linear.weight] {
        kept.keep(stream, result)?;
    }
    Ok(kept.0)
}
