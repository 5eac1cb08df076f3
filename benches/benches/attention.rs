//! Attention forward and backward beside torch's back ends, cuDNN and FlashAttention 2, in bf16; and
//! forward in e4m3.
//!
//! 16384 tokens of 2048 elements, in sequences of 512 to 16384: the work of a layer grows with the length
//! alone. Then about as many, of lengths and head sizes that no kernel was tuned for. Floating-point
//! operations are those of the products that a causal mask leaves, 2 of them forward and 5 backward. Some
//! rows of results are compared with the oracle. `--random N` draws layers in place of all these.

#[path = "attention/decode.rs"]
mod decode;
#[path = "attention/drawn.rs"]
mod drawn;
#[path = "attention/tuned.rs"]
mod tuned;

use std::process::ExitCode;

use half::bf16;
use ironwarp::ops::attention::{
    Attention, Backward, BiasGradient, Choice, Forward, Gradients, Heads, HeadsMut, Mask, MultiHead, Options,
    Projection, Scales, candidates,
};
use ironwarp::ops::dropout::Generator;
use ironwarp::{DeviceBuffer, Stream, Tensor};
use ironwarp_benches::{Outcome, Session, Work, numbers};
use num::E4M3;
use reference::Exact;
use reference::attention::{Band, Rows, Sides, attention as oracle};
use serde_json::json;
use testkit::tolerance::Row;
use testkit::{Family, compare, input, tolerance};

const TOKENS: usize = 16_384;
const HIDDEN: usize = 2048;
const LENGTHS: [usize; 6] = [512, 1024, 2048, 4096, 8192, 16_384];
const SIZES: [usize; 3] = [64, 128, 256];
/// Rows, head size, and whether there is a causal mask, of layers that no kernel was tuned for.
const OTHERS: [(usize, usize, bool); 16] = [
    (700, 64, false),
    (3000, 64, true),
    (700, 72, true),
    (3000, 72, false),
    (1536, 80, false),
    (6000, 80, true),
    (700, 96, false),
    (3000, 96, true),
    (1536, 112, true),
    (6000, 112, false),
    (700, 128, true),
    (3000, 128, false),
    (700, 160, true),
    (3000, 160, false),
    (1536, 192, false),
    (6000, 192, true),
];
/// Head sizes of queries and keys, and of values, of multi-head latent attention; and lengths.
const LATENT: [usize; 2] = [192, 128];
const LATENT_LENGTHS: [usize; 3] = [1024, 4096, 16_384];
/// Head sizes with kernels of their own in e4m3.
const LEAST_E4M3: usize = 128;

/// Longest sequences of which FlashAttention 2 is measured: it takes 1.5 times as long as cuDNN there, and
/// more beyond.
const MOST_FLASH: usize = 1024;

/// Sequences of which dropout is measured too, and its probability.
const DROPOUT_ROWS: usize = 4096;
const DROPOUT: f64 = 0.125;

/// A row of the table.
#[derive(Clone, Copy)]
struct Layer {
    batch: usize,
    rows: usize,
    heads: usize,
    size: usize,
    /// Head size of values and results.
    values: usize,
    is_causal: bool,
}

fn main() -> ExitCode {
    Session::run("attention", |session| {
        if let Some(layers) = session.drawn("layers", drawn::layers) {
            return drawn::rows(session, &layers);
        }
        let small = session.small();
        for size in SIZES {
            for is_causal in [false, true] {
                let lengths: &[usize] = if small { &[192] } else { &LENGTHS };
                for &rows in lengths {
                    let (batch, heads) = if small { (1, 2) } else { (TOKENS / rows, HIDDEN / size) };
                    let of = Layer { batch, rows, heads, size, values: size, is_causal };
                    layer(session, of)?;
                    quantized(session, of)?;
                    if small || rows == DROPOUT_ROWS {
                        dropout(session, of)?;
                    }
                }
            }
        }
        for (rows, size, is_causal) in OTHERS {
            if !small {
                let (batch, heads) = (TOKENS / rows, HIDDEN / size);
                layer(session, Layer { batch, rows, heads, size, values: size, is_causal })?;
            }
        }
        let [size, values] = LATENT;
        for is_causal in [false, true] {
            let lengths: &[usize] = if small { &[192] } else { &LATENT_LENGTHS };
            for &rows in lengths {
                let (batch, heads) = if small { (1, 2) } else { (TOKENS / rows, HIDDEN / values) };
                layer(session, Layer { batch, rows, heads, size, values, is_causal })?;
            }
        }
        layer_of_model(session)?;
        bias_gradient(session)?;
        decode::rows(session)?;
        tuned::rows(session)
    })
}

impl Layer {
    fn sides(self) -> [usize; 4] {
        [self.batch, self.rows, self.heads, self.size]
    }

    /// Sides of values and results.
    fn value_sides(self) -> [usize; 4] {
        [self.batch, self.rows, self.heads, self.values]
    }

    /// The head size, or both.
    fn size_name(self) -> String {
        let Layer { size, values, .. } = self;
        if size == values { size.to_string() } else { format!("{size}_{values}") }
    }

    fn shape(self) -> String {
        let Layer { batch, rows, heads, is_causal, .. } = self;
        format!("{batch}x{rows}x{heads}x{}{}", self.size_name(), if is_causal { " causal" } else { "" })
    }

    fn len(self) -> usize {
        self.sides().iter().product()
    }

    fn value_len(self) -> usize {
        self.value_sides().iter().product()
    }

    fn mask(self) -> Mask {
        if self.is_causal { Mask::CAUSAL } else { Mask::FULL }
    }

    /// Q, K, V, and the gradient of the result.
    fn operands(self) -> Vec<Vec<bf16>> {
        let lengths = [self.len(), self.len(), self.value_len(), self.value_len()];
        (1..5).zip(lengths).map(|(seed, len)| numbers(seed, len)).collect()
    }

    fn set(self, stream: &Stream, host: &[Vec<bf16>]) -> ironwarp::Result<Set> {
        let upload = |at: usize| DeviceBuffer::from_slice(stream, &host[at]);
        let zeros = |len: usize| DeviceBuffer::zeroed(stream, len);
        Ok(Set {
            inputs: [upload(0)?, upload(1)?, upload(2)?, upload(3)?],
            output: zeros(self.value_len())?,
            logarithms: DeviceBuffer::zeroed(stream, self.len() / self.size)?,
            gradients: [zeros(self.len())?, zeros(self.len())?, zeros(self.value_len())?],
        })
    }

    /// Operations of one product of all heads; where it matters of which, the mean of both forward ones.
    fn flops(self) -> u64 {
        let all = ((self.len() + self.value_len()) * self.rows) as u64;
        if self.is_causal { all / 2 } else { all }
    }

    /// Operations of the backward pass: three products with rows of queries or keys, and two of values.
    fn backward_flops(self) -> u64 {
        let all = 2 * ((3 * self.len() + 2 * self.value_len()) * self.rows) as u64;
        if self.is_causal { all / 2 } else { all }
    }

    /// Both peers; the second one for sequences of which it is not far behind, of one head size.
    fn peers(self, ops: [&str; 2]) -> Vec<serde_json::Value> {
        let count = if self.rows <= MOST_FLASH && self.size == self.values { 2 } else { 1 };
        ops.iter().take(count).map(|op| self.request(op)).collect()
    }

    fn request(self, op: &str) -> serde_json::Value {
        let Layer { batch, rows, heads, size, values, is_causal } = self;
        json!({ "prepare": format!("attention.{op}"), "batch": batch, "rows": rows, "heads": heads,
            "size": size, "values": values, "causal": is_causal })
    }
}

/// Operands, results and gradients.
struct Set {
    inputs: [DeviceBuffer<bf16>; 4],
    output: DeviceBuffer<bf16>,
    logarithms: DeviceBuffer<f32>,
    gradients: [DeviceBuffer<bf16>; 3],
}

fn layer(session: &mut Session, layer: Layer) -> Outcome {
    let (name, backward) =
        (format!("attention_{}", layer.size_name()), format!("attention_backward_{}", layer.size_name()));
    let shape = layer.shape();
    let fixed = format!("{backward}_deterministic");
    let wants = |name: &str| session.wants(&format!("{name}/{shape}"));
    let (is_wanted, is_backward) = (wants(&name), wants(&backward) || wants(&fixed));
    if !is_wanted && !is_backward {
        return Ok(());
    }
    let stream = session.stream.clone();
    let host = layer.operands();
    let mut set = layer.set(&stream, &host)?;
    forward(&stream, layer, &mut set)?;
    check(layer, &host, &set.output.to_vec(&stream)?, tolerance::ATTENTION_BF16)?;
    if is_wanted {
        let peers = layer.peers(["cudnn", "flash"]);
        session.measure_beside(&name, &shape, Work::Flops(2 * layer.flops()), &peers, |_| {
            forward(&stream, layer, &mut set)
        })?;
        others(session, layer, &mut set, &shape)?;
    }
    if is_backward {
        let peers = layer.peers(["cudnn_backward", "flash_backward"]);
        session.measure_beside(&backward, &shape, Work::Flops(layer.backward_flops()), &peers, |_| {
            gradients(&stream, layer, &mut set, false)
        })?;
        session.measure(&fixed, &shape, Work::Flops(layer.backward_flops()), |_| {
            gradients(&stream, layer, &mut set, true)
        })?;
        other_gradients(session, layer, &mut set, &shape)?;
    }
    Ok(())
}

/// The kernels of the backward pass for rows of this length that were not chosen.
fn other_gradients(session: &mut Session, layer: Layer, set: &mut Set, shape: &str) -> Outcome {
    let stream = session.stream.clone();
    let Choice { config: chosen, candidates, .. } = backward_of(layer, set).explain(&stream)?;
    let others = candidates.into_iter().map(|candidate| candidate.config);
    for config in others.filter(|of| of.head_size() == chosen.head_size() && *of != chosen) {
        let name = format!("attention_backward_{}_by_{}", layer.size_name(), config.name());
        session.measure(&name, shape, Work::Flops(layer.backward_flops()), |_| {
            backward_of(layer, set).run_with(&stream, &config)
        })?;
    }
    Ok(())
}

/// Operands in e4m3, beside cuDNN in bf16.
fn quantized(session: &mut Session, layer: Layer) -> Outcome {
    let Layer { batch, heads, size, .. } = layer;
    let name = format!("attention_e4m3_{size}");
    let shape = layer.shape();
    if size < LEAST_E4M3 || !session.wants(&format!("{name}/{shape}")) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let host: Vec<Vec<E4M3>> = (1..4).map(|seed| numbers(seed, layer.len())).collect();
    let upload = |at: usize| DeviceBuffer::from_slice(&stream, &host[at]);
    let (q, k, v) = (upload(0)?, upload(1)?, upload(2)?);
    let mut output = DeviceBuffer::<bf16>::zeroed(&stream, layer.len())?;
    let mut logarithms = DeviceBuffer::zeroed(&stream, layer.len() / size)?;
    let scales = DeviceBuffer::from_slice(&stream, &vec![1.0f32; batch * heads])?;
    let mut run = || {
        let heads_of = |buffer| Heads::new::<E4M3>(buffer, layer.sides());
        Attention::new(heads_of(&q), heads_of(&k), heads_of(&v), HeadsMut::new(&mut output, layer.sides()))
            .mask(layer.mask())
            .log_sum_exp(&mut logarithms)
            .quantized(Scales { queries: (&scales).into(), keys: (&scales).into(), values: (&scales).into() })
            .run(&stream)
    };
    let peers = [layer.request("cudnn")];
    session.measure_beside(&name, &shape, Work::Flops(2 * layer.flops()), &peers, |_| run())?;
    check(layer, &host, &output.to_vec(&session.stream)?, tolerance::ATTENTION_E4M3)
}

/// Both directions with dropout of weights.
fn dropout(session: &mut Session, layer: Layer) -> Outcome {
    let Layer { size, .. } = layer;
    let [forward, backward] = ["", "_backward"].map(|of| format!("attention_dropout{of}_{size}"));
    if !session.wants(&forward) && !session.wants(&backward) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let (mut set, generator) = (layer.set(&stream, &layer.operands())?, Generator::new(&stream, 1)?);
    let shape = layer.shape();
    let peer = |op: &str| {
        let mut request = layer.request(op);
        request["dropout"] = json!(DROPOUT);
        [request]
    };
    // The backward pass takes what this leaves.
    attention(layer, &mut set).dropout(DROPOUT, &generator, 0)?.run(&stream)?;
    if session.wants(&forward) {
        session.measure_beside(&forward, &shape, Work::Flops(2 * layer.flops()), &peer("flash"), |_| {
            attention(layer, &mut set).dropout(DROPOUT, &generator, 0)?.run(&stream)
        })?;
    }
    if session.wants(&backward) {
        session.measure_beside(
            &backward,
            &shape,
            Work::Flops(layer.backward_flops()),
            &peer("flash_backward"),
            |_| backward_of(layer, &mut set).dropout(DROPOUT, &generator, 0)?.run(&stream),
        )?;
    }
    Ok(())
}

/// Projections, attention, and a last product with a residual: a layer's whole attention, causal.
fn layer_of_model(session: &mut Session) -> Outcome {
    const SIZE: usize = 128;
    let name = format!("attention_layer_{SIZE}");
    if !session.wants(&name) {
        return Ok(());
    }
    let [batch, rows, hidden] = if session.small() { [1, 192, 256] } else { [4, 4096, HIDDEN] };
    let stream = session.stream.clone();
    let tensor = |seed, shape: &[usize]| {
        let values: Vec<bf16> = input(Family::Normal, seed, shape.iter().product());
        Tensor::from_slice(&stream, shape, &values)
    };
    let (x, residual) = (tensor(1, &[batch, rows, hidden])?, tensor(2, &[batch, rows, hidden])?);
    let (qkv, qkv_bias) = (tensor(3, &[3 * hidden, hidden])?, tensor(4, &[3 * hidden])?);
    let (out, out_bias) = (tensor(5, &[hidden, hidden])?, tensor(6, &[hidden])?);
    let qkv = Projection { weight: &qkv, bias: Some(&qkv_bias) };
    let out = Projection { weight: &out, bias: Some(&out_bias) };
    let options = Options { mask: Mask::CAUSAL, scale: None };
    let layer =
        MultiHead::new(&x, qkv, out, hidden / SIZE, hidden / SIZE).options(options).residual(&residual);
    let products = 2 * 4 * (batch * rows * hidden * hidden) as u64;
    let scores = 2 * 2 * (batch * rows * rows / 2 * hidden) as u64;
    let peer = json!({ "prepare": "attention.layer", "batch": batch, "rows": rows, "heads": hidden / SIZE, "size": SIZE });
    let shape = format!("{batch}x{rows}x{hidden}");
    session.measure_beside(&name, &shape, Work::Flops(products + scores), &[peer], |_| {
        layer.run(&stream).map(drop)
    })?;
    let (result, recorded) = layer.record(&stream)?;
    let mut gradients = layer.backward(&recorded, &result).run(&stream)?;
    let flops = 2 * products + 5 * scores / 2;
    session.measure_beside(&format!("{name}_backward"), &shape, Work::Flops(flops), &[], |_| {
        layer.backward(&recorded, &result).run_into(&stream, gradients.view_mut()?)
    })
}

/// The gradient of a bias that all sequences share, behind a forward pass with it.
fn bias_gradient(session: &mut Session) -> Outcome {
    let name = "attention_bias_gradient";
    if !session.wants(name) {
        return Ok(());
    }
    let [batch, rows, heads] = if session.small() { [2, 130, 2] } else { [4, 2048, 16] };
    let layer = Layer { batch, rows, heads, size: 128, values: 128, is_causal: true };
    let stream = session.stream.clone();
    let mut set = layer.set(&stream, &layer.operands())?;
    let sides = [1, heads, rows, rows];
    let numbers = input::<f32>(Family::Normal, 5, heads * rows * rows);
    let bias = DeviceBuffer::from_slice(&stream, &numbers)?;
    let mut out = DeviceBuffer::<f32>::zeroed(&stream, numbers.len())?;
    attention(layer, &mut set).bias(&bias, sides)?.run(&stream)?;
    let heads_of = |buffer| Heads::new::<bf16>(buffer, layer.sides());
    let [q, k, v, gradient] = &set.inputs;
    let forward = Forward {
        queries: heads_of(q),
        keys: heads_of(k),
        values: heads_of(v),
        output: heads_of(&set.output),
        log_sum_exp: (&set.logarithms).into(),
    };
    let shape = format!("{batch}x{rows}x{heads}x128");
    session.measure_beside(name, &shape, Work::Flops(2 * layer.flops()), &[], |_| {
        let call = BiasGradient::new(forward, heads_of(gradient), &bias, sides, &mut out);
        call.mask(layer.mask()).run(&stream)
    })
}

/// The kernels for rows of this length that were not chosen.
fn others(session: &mut Session, layer: Layer, set: &mut Set, shape: &str) -> Outcome {
    let stream = session.stream.clone();
    let problem = attention(layer, set).problem()?;
    let all = candidates(&problem, stream.device());
    for candidate in
        all.iter().skip(1).filter(|candidate| candidate.config.head_size() == all[0].config.head_size())
    {
        let name = candidate.config.name();
        session.measure_beside(name, shape, Work::Flops(2 * layer.flops()), &[], |_| {
            attention(layer, set).run_with(&stream, &candidate.config)
        })?;
    }
    Ok(())
}

fn attention(layer: Layer, set: &mut Set) -> Attention<'_> {
    let [q, k, v, _] = &set.inputs;
    let heads = |buffer| Heads::new::<bf16>(buffer, layer.sides());
    let values = Heads::new::<bf16>(v, layer.value_sides());
    let output = HeadsMut::new(&mut set.output, layer.value_sides());
    Attention::new(heads(q), heads(k), values, output).mask(layer.mask()).log_sum_exp(&mut set.logarithms)
}

fn forward(stream: &Stream, layer: Layer, set: &mut Set) -> ironwarp::Result<()> {
    attention(layer, set).run(stream)
}

fn gradients(stream: &Stream, layer: Layer, set: &mut Set, is_deterministic: bool) -> ironwarp::Result<()> {
    backward_of(layer, set).deterministic(is_deterministic).run(stream)
}

fn backward_of(layer: Layer, set: &mut Set) -> Backward<'_> {
    let [q, k, v, result] = &set.inputs;
    let heads = |buffer| Heads::new::<bf16>(buffer, layer.sides());
    let of_values = |buffer| Heads::new::<bf16>(buffer, layer.value_sides());
    let [queries, keys, values] = &mut set.gradients;
    let forward = Forward {
        queries: heads(q),
        keys: heads(k),
        values: of_values(v),
        output: of_values(&set.output),
        log_sum_exp: (&set.logarithms).into(),
    };
    let gradients = Gradients {
        queries: HeadsMut::new(queries, layer.sides()),
        keys: HeadsMut::new(keys, layer.sides()),
        values: HeadsMut::new(values, layer.value_sides()),
    };
    Backward::new(forward, of_values(result), gradients).mask(layer.mask())
}

/// Compares one head's first, middle and last query with the oracle, as if it were the only one.
fn check<T: Exact>(layer: Layer, host: &[Vec<T>], got: &[bf16], limit: Row) -> Outcome {
    let Layer { batch, rows, heads, size, values, is_causal } = layer;
    let (head, sequence) = (heads - 1, batch - 1);
    // Of that head, in rows that zeros fill up: the oracle has one size.
    let place = |row: usize| (sequence * rows + row) * heads + head;
    let of_head = |operand: usize, own: usize| -> Vec<f64> {
        let row = |row: usize| host[operand][place(row) * own..][..own].iter().map(|&x| x.into());
        let zeros = || std::iter::repeat_n(0.0, size - own);
        (0..rows).flat_map(|at| row(at).chain(zeros())).collect()
    };
    let operands = [of_head(0, size), of_head(1, size), of_head(2, values)];
    for query in [0, rows / 2, rows - 1] {
        // Under a causal mask, the keys up to the query.
        let keys = if is_causal { query + 1 } else { rows };
        let sides = Sides { batch: 1, queries: 1, keys, heads: 1, kv_heads: 1, size };
        let from = |operand: usize, row: usize| Rows {
            data: &operands[operand][row * size..],
            strides: [0, size, size],
        };
        let want = oracle(
            sides,
            [from(0, query), from(1, 0), from(2, 0)],
            Band::default(),
            1.0 / f64::from((size as f32).sqrt()),
        );
        let (limit, what) = (limit.tolerance(), format!("query {query} of {rows}"));
        let got = &got[place(query) * values..][..values];
        compare::rounded(&what, got, &want.value[..values], &want.magnitude[..values], &[values], limit)?;
    }
    Ok(())
}
