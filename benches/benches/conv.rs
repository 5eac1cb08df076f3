//! Convolutions of ResNet-50 at 64 images, its pooling, convolutions with a filter for each channel and of
//! groups of few channels, convolutions of lines, and their gradients, in bf16, beside cuDNN's by way of
//! torch. `--random N` draws convolutions in place of all these.
//!
//! Floating-point operations are those of the definition, without padding and without the steps that a
//! stride skips: the same number for all three passes. Of groups, bytes: each tensor once.

use std::process::ExitCode;

use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::conv::{Conv2d, Fused};
use ironwarp::ops::convert::convert;
use ironwarp::ops::fill::normal;
use ironwarp::ops::pool::Pool2d;
use ironwarp::{DType, Stream, Tensor};
use ironwarp_benches::{Outcome, Session, Work, pick, spread};
use reference::conv::{Axis, Conv};
use reference::matmul::Activation;
use serde_json::{Value, json};
use testkit::{Random, compare, tolerance};

const IMAGES: usize = 64;
/// The least number of runs of a graph, as for cuDNN: each set of operands as often as the others.
const GRAPH_RUNS: usize = 8;

/// A layer: channels, filters, groups, side of the images, of the filters, and stride. Padding keeps the
/// sides. Images may be lines, of one row.
#[derive(Clone, Copy)]
struct Layer {
    channels: usize,
    filters: usize,
    groups: usize,
    side: usize,
    taps: usize,
    stride: usize,
    is_line: bool,
}

const fn layer([channels, filters, side, taps, stride]: [usize; 5]) -> Layer {
    Layer { channels, filters, groups: 1, side, taps, stride, is_line: false }
}

/// ResNet-50's, those of 3 x 3 first, then the stem and 1 x 1.
const LAYERS: [Layer; 23] = [
    layer([64, 64, 56, 3, 1]),
    layer([128, 128, 28, 3, 1]),
    layer([256, 256, 14, 3, 1]),
    layer([512, 512, 7, 3, 1]),
    layer([128, 128, 56, 3, 2]),
    layer([256, 256, 28, 3, 2]),
    layer([512, 512, 14, 3, 2]),
    layer([3, 64, 224, 7, 2]),
    layer([256, 512, 56, 1, 2]),
    layer([512, 1024, 28, 1, 2]),
    layer([1024, 2048, 14, 1, 2]),
    layer([64, 64, 56, 1, 1]),
    layer([64, 256, 56, 1, 1]),
    layer([256, 64, 56, 1, 1]),
    layer([256, 128, 56, 1, 1]),
    layer([128, 512, 28, 1, 1]),
    layer([512, 128, 28, 1, 1]),
    layer([512, 256, 28, 1, 1]),
    layer([256, 1024, 14, 1, 1]),
    layer([1024, 256, 14, 1, 1]),
    layer([1024, 512, 14, 1, 1]),
    layer([512, 2048, 7, 1, 1]),
    layer([2048, 512, 7, 1, 1]),
];

/// A filter for each channel: of MobileNet, EfficientNet and ConvNeXt.
const DEPTHWISE: [Layer; 6] = [
    depthwise([32, 112, 3, 1]),
    depthwise([144, 56, 3, 1]),
    depthwise([144, 56, 3, 2]),
    depthwise([384, 14, 3, 1]),
    depthwise([240, 28, 5, 1]),
    depthwise([96, 56, 7, 1]),
];

const fn depthwise([channels, side, taps, stride]: [usize; 4]) -> Layer {
    Layer { groups: channels, ..layer([channels, channels, side, taps, stride]) }
}

/// Groups of few channels: ResNeXt's at three depths and with strides, and, with groups that fill no slab and
/// odd sides, RegNet's and others.
const GROUPED: [Layer; 9] = [
    grouped([32, 128, 56, 1]),
    grouped([32, 256, 28, 1]),
    grouped([32, 512, 14, 1]),
    grouped([32, 256, 56, 2]),
    grouped([32, 512, 28, 2]),
    grouped([32, 64, 56, 1]),
    grouped([7, 56, 28, 1]),
    grouped([10, 160, 14, 1]),
    grouped([24, 96, 45, 1]),
];

const fn grouped([groups, channels, side, stride]: [usize; 4]) -> Layer {
    Layer { groups, ..layer([channels, channels, side, 3, stride]) }
}

/// Of lines: the stem of Whisper's large encoder, and a layer of wav2vec 2.0's features.
const LINES: [Layer; 3] =
    [line([128, 1280, 3000, 3, 1]), line([1280, 1280, 3000, 3, 2]), line([512, 512, 3199, 3, 2])];
/// As many as images of the others would be too much work.
const LINE_IMAGES: usize = 16;

const fn line(of: [usize; 5]) -> Layer {
    Layer { is_line: true, ..layer(of) }
}

/// A drawn convolution: elements of input and result, operations, and those of the row that is compared with
/// the oracle, at most.
const MOST_ELEMENTS: usize = 1 << 27;
const MOST_FLOPS: usize = 2_000_000_000_000;
const MOST_COMPARED: usize = 400_000_000;

/// So many layers and their images, of which sides, channels and images are as often small as large. Of ten,
/// one has a filter for each channel, and one has groups; of twenty, one has the three channels of a picture.
/// Of ten numbers of channels, nine are a multiple of 8.
fn drawn(count: usize, seed: u64) -> Vec<(Layer, usize)> {
    let mut random = Random::new(seed);
    let draws = std::iter::repeat_with(|| draw(&mut random));
    draws.filter(|&(layer, images)| is_affordable(layer, images)).take(count).collect()
}

fn draw(random: &mut Random) -> (Layer, usize) {
    let taps = pick(random, &[1, 1, 1, 1, 3, 3, 3, 3, 3, 5, 7]);
    let stride = if random.unit() < 0.25 { 2 } else { 1 };
    let (side, images) = (spread(random, 7.0, 225.0), spread(random, 1.0, 129.0));
    let mut channels = || {
        let channels = spread(random, 8.0, 2049.0);
        if random.unit() < 0.9 { channels.next_multiple_of(8) } else { channels }
    };
    let (channels, filters) = (channels(), channels());
    let (kind, groups) = (random.unit(), pick(random, &[2, 4, 8, 16, 32]));
    let of = match kind {
        ..0.1 => depthwise([channels, side, taps.max(3), stride]),
        0.1..0.2 => grouped([groups, channels.next_multiple_of(groups), side, stride]),
        0.2..0.25 => layer([3, filters, side, taps, stride]),
        _ => layer([channels, filters, side, taps, stride]),
    };
    (of, images)
}

fn is_affordable(layer: Layer, images: usize) -> bool {
    let [x, filters, y] = layer.definition(images).sides().map(|sides| sides.iter().product::<usize>());
    let of_row = filters * layer.side.div_ceil(layer.stride);
    x + y <= MOST_ELEMENTS && 2 * y * filters / layer.filters <= MOST_FLOPS && of_row <= MOST_COMPARED
}

fn main() -> ExitCode {
    Session::run("conv", |session| {
        if let Some(drawn) = session.drawn("convolutions", drawn) {
            for (done, &(layer, images)) in drawn.iter().enumerate() {
                if session.is_over(drawn.len() - done) {
                    break;
                }
                let few = Layer { side: layer.side.min(12), ..layer };
                let (layer, images) = if session.small() { (few, 1) } else { (layer, images) };
                bench(session, layer, images)?;
            }
            return Ok(());
        }
        let small = session.small();
        let layers =
            if small { vec![layer([16, 16, 10, 3, 1]), layer([3, 8, 12, 7, 2])] } else { LAYERS.to_vec() };
        layers.into_iter().try_for_each(|layer| bench(session, layer, if small { 1 } else { IMAGES }))?;
        let each = if small { vec![depthwise([24, 10, 3, 1])] } else { DEPTHWISE.to_vec() };
        each.into_iter().try_for_each(|layer| bench(session, layer, if small { 1 } else { IMAGES }))?;
        let few = if small { vec![grouped([6, 24, 10, 1])] } else { GROUPED.to_vec() };
        few.into_iter().try_for_each(|layer| bench(session, layer, if small { 1 } else { IMAGES }))?;
        let lines = if small { vec![line([16, 16, 20, 3, 2])] } else { LINES.to_vec() };
        lines.into_iter().try_for_each(|layer| bench(session, layer, if small { 1 } else { LINE_IMAGES }))?;
        if small { pools(session, [1, 12, 12, 16]) } else { pools(session, [IMAGES, 112, 112, 64]) }
    })
}

/// The pooling behind the stem, 3 x 3 by 2, and its gradient; of averages too.
fn pools(session: &mut Session, sides: [usize; 4]) -> Outcome {
    let names = ["max_pool2d", "max_pool2d_gradient", "avg_pool2d", "avg_pool2d_gradient"];
    if !session.wants_any(&names) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let op = Pool2d { stride: [2, 2], padding: [1, 1], ..Pool2d::new([3, 3]) };
    let x = convert(&stream, &normal(&stream, &sides, 0.0, 1.0, 5)?, DType::BF16)?;
    let (y, places) = op.max(&stream, &x)?;
    let [_, height, width, channels] = sides;
    let shape = format!("{}x{height}x{width}x{channels} 3x3 by 2", sides[0]);
    // The numbers, and where they came from.
    let numbers = (x.elements() + y.elements()) * DType::BF16.size();
    let bytes = numbers + y.elements() * DType::I32.size();
    let peer = |op: &str, pass: &str| {
        [json!({"prepare": format!("conv.{op}"), "pass": pass, "dtype": "bf16", "x": sides})]
    };
    let work = Work::Bytes(bytes as u64);
    let (forward, input) = (peer("max_pool2d", "forward"), peer("max_pool2d", "input"));
    session.measure_beside(names[0], &shape, work, &forward, |_| op.max(&stream, &x).map(drop))?;
    session.measure_beside(names[1], &shape, work, &input, |_| {
        op.max_gradient(&stream, &y, &places, [height, width]).map(drop)
    })?;
    let work = Work::Bytes(numbers as u64);
    let (forward, input) = (peer("avg_pool2d", "forward"), peer("avg_pool2d", "input"));
    session.measure_beside(names[2], &shape, work, &forward, |_| op.average(&stream, &x, true).map(drop))?;
    session.measure_beside(names[3], &shape, work, &input, |_| {
        op.average_gradient(&stream, &y, [height, width], true).map(drop)
    })
}

impl Layer {
    /// Height and width of `of`, which is 1 along the height of a line.
    fn pair(self, of: usize, height: usize) -> [usize; 2] {
        [if self.is_line { height } else { of }, of]
    }

    fn stride(self) -> [usize; 2] {
        self.pair(self.stride, 1)
    }

    fn padding(self) -> [usize; 2] {
        self.pair((self.taps - 1) / 2, 0)
    }

    fn op(self) -> Conv2d {
        let (stride, padding) = (self.stride(), self.padding());
        Conv2d { stride, padding, groups: self.groups, ..Conv2d::default() }
    }

    fn definition(self, images: usize) -> Conv {
        let (inputs, filters) = (self.pair(self.side, 1), self.pair(self.taps, 1));
        let (stride, padding) = (self.stride(), self.padding());
        let [height, width] = [0, 1].map(|i| Axis {
            input: inputs[i],
            filter: filters[i],
            stride: stride[i],
            padding: padding[i],
            dilation: 1,
        });
        let (channels, filters) = (self.channels / self.groups, self.filters / self.groups);
        Conv { images, groups: self.groups, channels, filters, height, width }
    }
}

/// Operands of a layer.
struct Set {
    x: Tensor,
    filters: Tensor,
    gradient: Tensor,
}

fn bench(session: &mut Session, layer: Layer, images: usize) -> Outcome {
    let names = if layer.is_line {
        ["conv1d", "conv1d_input_gradient", "conv1d_filter_gradient"]
    } else if layer.groups == 1 {
        ["conv2d", "conv2d_input_gradient", "conv2d_filter_gradient"]
    } else if layer.groups == layer.channels {
        ["depthwise", "depthwise_input_gradient", "depthwise_filter_gradient"]
    } else {
        ["grouped", "grouped_input_gradient", "grouped_filter_gradient"]
    };
    if !session.wants_any(&names) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let definition = layer.definition(images);
    let sides = definition.sides();
    let lengths = sides.map(|sides| sides.iter().product::<usize>());
    let tensor = |i: usize, seed: u64| -> ironwarp::Result<Tensor> {
        convert(&stream, &normal(&stream, &sides[i], 0.0, 1.0, seed)?, DType::BF16)
    };
    let bytes = (lengths.iter().sum::<usize>() * DType::BF16.size()) as u64;
    let count = session.rotation(bytes);
    let sets = (0..count as u64)
        .map(|i| {
            Ok(Set { x: tensor(0, 3 * i)?, filters: tensor(1, 3 * i + 1)?, gradient: tensor(2, 3 * i + 2)? })
        })
        .collect::<ironwarp::Result<Vec<Set>>>()?;
    let op = layer.op();
    let (of_input, of_filters) = (layer.pair(layer.side, 1), layer.pair(layer.taps, 1));
    let forward = |stream: &Stream, set: &Set| op.forward(stream, &set.x, &set.filters, Fused::default());
    let of_x = |stream: &Stream, set: &Set| op.input_gradient(stream, &set.gradient, &set.filters, of_input);
    let of_w = |stream: &Stream, set: &Set| op.filter_gradient(stream, &set.x, &set.gradient, of_filters);
    check(&stream, &definition, &sets[0], &forward(&stream, &sets[0])?)?;

    let Layer { channels, filters, groups, side, taps, stride, .. } = layer;
    let shape = format!(
        "{images}x{}x{side}x{channels} to {filters} filters {}x{taps} stride {stride} groups {groups}",
        of_input[0], of_filters[0]
    );
    let work = if groups == 1 {
        Work::Flops((2 * lengths[2] * of_filters[0] * taps * channels) as u64)
    } else {
        Work::Bytes(bytes)
    };
    let peer = |pass: &str| -> Value {
        json!({
            "prepare": "conv.conv2d", "pass": pass, "dtype": "bf16", "sets": count, "x": sides[0],
            "filters": sides[1], "stride": layer.stride(), "padding": layer.padding(), "groups": groups,
        })
    };
    // Loads the kernels. A capture cannot load them.
    drop((of_x(&stream, &sets[0])?, of_w(&stream, &sets[0])?));
    row(session, names[0], &shape, work, &peer("forward"), &sets, forward)?;
    row(session, names[1], &shape, work, &peer("input"), &sets, of_x)?;
    row(session, names[2], &shape, work, &peer("filters"), &sets, of_w)
}

fn row(
    session: &mut Session,
    name: &str,
    shape: &str,
    work: Work,
    peer: &Value,
    sets: &[Set],
    run: impl Fn(&Stream, &Set) -> ironwarp::Result<Tensor>,
) -> Outcome {
    let stream = session.stream.clone();
    let runs = GRAPH_RUNS.next_multiple_of(sets.len());
    let mut graph = Graph::capture(&stream, (), |stream, ()| {
        (0..runs).try_for_each(|i| run(stream, &sets[i % sets.len()]).map(drop))
    })?;
    session
        .measure_groups(name, shape, work, std::slice::from_ref(peer), runs as u64, |_| graph.replay(&stream))
}

/// The first row of the first image's result.
fn check(stream: &Stream, definition: &Conv, set: &Set, y: &Tensor) -> Outcome {
    let Conv { height, .. } = *definition;
    // As many rows of the image as its first row of windows has.
    let rows = (height.filter - height.padding).min(height.input);
    let one = Axis { input: rows, stride: rows + height.padding, ..height };
    let part = Conv { images: 1, height: one, ..*definition };
    let head =
        |tensor: &Tensor, rows: usize| tensor.slice(0, 0..1)?.slice(1, 0..rows)?.to_vec::<bf16>(stream);
    let (x, filters) = (head(&set.x, rows)?, set.filters.to_vec::<bf16>(stream)?);
    let want = part.forward(&x, &filters, None, Activation::Identity);
    let got = head(y, 1)?;
    let limit = tolerance::GEMM_TENSOR.for_terms(filters.len() / part.filters.max(1));
    let columns = want.value.len() / part.height.windows();
    let (want, scale) = (&want.value[..columns], &want.magnitude[..columns]);
    compare::rounded("conv2d", &got, want, scale, &[columns], limit)?;
    Ok(())
}
