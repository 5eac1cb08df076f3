//! Attention with score functions beside torch's compiled FlexAttention, in bf16, forward and backward.
//!
//! 16384 tokens of 2048 elements, causal, and the same without a function to compare with: ALiBi, a soft cap,
//! a window of 1024 keys, documents. Floating-point operations are those of both products for the keys that
//! queries see; of the backward pass, of its five products. Forward passes write log-sum-exps. Some rows of
//! results are compared with the oracle; gradients are compared in `host/tests/attention`.

use std::process::ExitCode;

use half::bf16;
use ironwarp::ops::attention::{
    Attention, Backward, BlockMask, Forward, Gradients, Heads, HeadsMut, Mask, Own, functions::Ranges,
};
use ironwarp::{DeviceBuffer, Stream};
use ironwarp_benches::{Outcome, Session, Work, numbers};
use reference::attention::{Band, Rows, Sides, attention_with as oracle};
use serde_json::json;
use testkit::{compare, tolerance};

const TOKENS: usize = 16_384;
const HIDDEN: usize = 2048;
const LENGTHS: [usize; 3] = [2048, 4096, 8192];
const SIZES: [usize; 3] = [64, 128, 256];
const CAP: f32 = 20.0;
const WINDOW: u32 = 1024;
/// Mean length of a document.
const DOCUMENT: usize = 700;

/// A score function or mask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Causal,
    Alibi,
    SoftCap,
    Window,
    Documents,
}

const PROGRAMS: [(&str, Program); 5] = [
    ("causal", Program::Causal),
    ("alibi", Program::Alibi),
    ("soft_cap", Program::SoftCap),
    ("window", Program::Window),
    ("documents", Program::Documents),
];

/// A row of the table.
#[derive(Clone, Copy)]
struct Layer {
    batch: usize,
    rows: usize,
    heads: usize,
    size: usize,
}

/// Operands, results, gradients, and what functions look at.
struct Set {
    /// Q, K, V, dO.
    inputs: [DeviceBuffer<bf16>; 4],
    output: DeviceBuffer<bf16>,
    logarithms: DeviceBuffer<f32>,
    gradients: [DeviceBuffer<bf16>; 3],
    slopes: DeviceBuffer<f32>,
    ranges: DeviceBuffer<[u32; 4]>,
}

fn main() -> ExitCode {
    Session::run("attention_functions", |session| {
        let small = session.small();
        for size in SIZES {
            let lengths: &[usize] = if small { &[192] } else { &LENGTHS };
            for &rows in lengths {
                let (batch, heads) = if small { (1, 2) } else { (TOKENS / rows, HIDDEN / size) };
                layer(session, Layer { batch, rows, heads, size })?;
            }
        }
        Ok(())
    })
}

impl Program {
    fn mask(self) -> Mask {
        if self == Program::Window { Mask::window(Some(WINDOW), Some(0)) } else { Mask::CAUSAL }
    }
}

impl Layer {
    fn sides(self) -> [usize; 4] {
        [self.batch, self.rows, self.heads, self.size]
    }

    fn len(self) -> usize {
        self.sides().iter().product()
    }

    fn set(self, stream: &Stream, host: &[Vec<bf16>], ranges: &[[u32; 4]]) -> ironwarp::Result<Set> {
        let upload = |at: usize| DeviceBuffer::from_slice(stream, &host[at]);
        let zeros = || DeviceBuffer::zeroed(stream, self.len());
        let slopes: Vec<f32> = (0..self.heads).map(|head| self.slope(head)).collect();
        Ok(Set {
            inputs: [upload(0)?, upload(1)?, upload(2)?, upload(3)?],
            output: zeros()?,
            logarithms: DeviceBuffer::zeroed(stream, self.len() / self.size)?,
            gradients: [zeros()?, zeros()?, zeros()?],
            slopes: DeviceBuffer::from_slice(stream, &slopes)?,
            ranges: DeviceBuffer::from_slice(stream, ranges)?,
        })
    }

    fn slope(self, head: usize) -> f32 {
        (-8.0 * (head + 1) as f32 / self.heads as f32).exp2()
    }

    /// Where the documents of the sequence end.
    fn ends(self) -> Vec<usize> {
        let (mut ends, mut state) = (vec![0], 1u64);
        while ends[ends.len() - 1] < self.rows {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = 1 + (state >> 33) as usize % (2 * DOCUMENT);
            ends.push((ends[ends.len() - 1] + length).min(self.rows));
        }
        ends
    }

    /// The first key of each query's document, and the end of its keys.
    fn ranges(self) -> Vec<[u32; 4]> {
        let ends = self.ends();
        let of = |query: usize| {
            let document = ends.partition_point(|&end| end <= query) - 1;
            [ends[document] as u32, ends[document + 1] as u32, 0, 0]
        };
        (0..self.rows).map(of).collect()
    }

    /// First key that a query sees under a program. All see up to themselves.
    fn first_key(self, program: Program, query: usize, ranges: &[[u32; 4]]) -> usize {
        match program {
            Program::Window => query.saturating_sub(WINDOW as usize),
            Program::Documents => ranges[query][0] as usize,
            Program::Causal | Program::Alibi | Program::SoftCap => 0,
        }
    }
}

fn layer(session: &mut Session, layer: Layer) -> Outcome {
    let Layer { batch, rows, heads, size } = layer;
    let name = |program: &str| format!("attention_{program}_{size}");
    let backward_name = |program: &str| format!("attention_{program}_backward_{size}");
    let shape = format!("{batch}x{rows}x{heads}x{size}");
    let wants = |session: &Session, program: &str| {
        [name(program), backward_name(program)].map(|row| session.wants(&format!("{row}/{shape}")))
    };
    if !PROGRAMS.iter().any(|(label, _)| wants(session, label).contains(&true)) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let host: Vec<Vec<bf16>> = (1..5).map(|seed| numbers(seed, layer.len())).collect();
    let ranges = layer.ranges();
    let mut set = layer.set(&stream, &host, &ranges)?;
    let (documents, _, seen) = attention(layer, &mut set, Program::Documents);
    let forward_blocks = documents.ranges(seen)?.block_mask(&stream, Own::default())?;
    let (documents, _, seen) = backward(layer, &mut set, Program::Documents);
    let backward_blocks = documents.ranges(seen)?.block_mask(&stream, Own::default())?;
    let starts: Vec<u32> = layer.ends().iter().map(|&end| end as u32).collect();
    for (label, program) in PROGRAMS {
        let [is_wanted, is_backward] = wants(session, label);
        if !is_wanted && !is_backward {
            continue;
        }
        run(&stream, layer, &mut set, program, &forward_blocks)?;
        check(layer, program, &host, &ranges, &set.output.to_vec(&stream)?)?;
        let pairs: usize = (0..rows).map(|query| query + 1 - layer.first_key(program, query, &ranges)).sum();
        let peer = |op: &str| {
            json!({ "prepare": format!("attention_functions.{op}"), "program": label, "batch": batch,
                "rows": rows, "heads": heads, "size": size, "cap": CAP, "window": WINDOW, "starts": starts })
        };
        let product = 2 * (batch * heads * size * pairs) as u64;
        if is_wanted {
            let work = Work::Flops(2 * product);
            session.measure_beside(&name(label), &shape, work, &[peer("flex")], |_| {
                run(&stream, layer, &mut set, program, &forward_blocks)
            })?;
        }
        if is_backward {
            let work = Work::Flops(5 * product);
            session.measure_beside(&backward_name(label), &shape, work, &[peer("flex_backward")], |_| {
                gradients(&stream, layer, &mut set, program, &backward_blocks)
            })?;
        }
    }
    Ok(())
}

/// Of a program, and what functions look at.
fn attention<'a>(
    layer: Layer,
    set: &'a mut Set,
    program: Program,
) -> (Attention<'a>, &'a DeviceBuffer<f32>, &'a DeviceBuffer<[u32; 4]>) {
    let [q, k, v, _] = &set.inputs;
    let heads = |buffer| Heads::new::<bf16>(buffer, layer.sides());
    let output = HeadsMut::new(&mut set.output, layer.sides());
    let attention = Attention::new(heads(q), heads(k), heads(v), output).mask(program.mask());
    (attention.log_sum_exp(&mut set.logarithms), &set.slopes, &set.ranges)
}

fn run(
    stream: &Stream,
    layer: Layer,
    set: &mut Set,
    program: Program,
    blocks: &BlockMask<Ranges>,
) -> ironwarp::Result<()> {
    let (attention, slopes, ranges) = attention(layer, set, program);
    match program {
        Program::Causal | Program::Window => attention.run(stream),
        Program::Alibi => attention.alibi(slopes)?.run(stream),
        Program::SoftCap => attention.soft_cap(CAP)?.run(stream),
        Program::Documents => attention.ranges(ranges)?.blocks(blocks).run(stream),
    }
}

/// The gradients of a program, and what functions look at.
fn backward<'a>(
    layer: Layer,
    set: &'a mut Set,
    program: Program,
) -> (Backward<'a>, &'a DeviceBuffer<f32>, &'a DeviceBuffer<[u32; 4]>) {
    let [q, k, v, result] = &set.inputs;
    let heads = |buffer| Heads::new::<bf16>(buffer, layer.sides());
    let [queries, keys, values] = set.gradients.each_mut().map(|buffer| HeadsMut::new(buffer, layer.sides()));
    let forward = Forward {
        queries: heads(q),
        keys: heads(k),
        values: heads(v),
        output: heads(&set.output),
        log_sum_exp: (&set.logarithms).into(),
    };
    let gradients = Gradients { queries, keys, values };
    let backward = Backward::new(forward, heads(result), gradients).mask(program.mask());
    (backward, &set.slopes, &set.ranges)
}

fn gradients(
    stream: &Stream,
    layer: Layer,
    set: &mut Set,
    program: Program,
    blocks: &BlockMask<Ranges>,
) -> ironwarp::Result<()> {
    let (backward, slopes, ranges) = backward(layer, set, program);
    match program {
        Program::Causal | Program::Window => backward.run(stream),
        Program::Alibi => backward.alibi(slopes)?.run(stream),
        Program::SoftCap => backward.soft_cap(CAP)?.run(stream),
        Program::Documents => backward.ranges(ranges)?.blocks(blocks).run(stream),
    }
}

/// Compares one head's first, middle and last query with the oracle, as if it were the only one.
fn check(layer: Layer, program: Program, host: &[Vec<bf16>], ranges: &[[u32; 4]], got: &[bf16]) -> Outcome {
    let Layer { batch, rows, heads, size } = layer;
    let (head, sequence) = (heads - 1, batch - 1);
    let start = (sequence * rows * heads + head) * size;
    let row = heads * size;
    for query in [0, rows / 2, rows - 1] {
        let first = layer.first_key(program, query, ranges);
        let keys = query + 1 - first;
        let sides = Sides { batch: 1, queries: 1, keys, heads: 1, kv_heads: 1, size };
        let at = start + query * row;
        let operand =
            |operand: usize, from: usize| Rows { data: &host[operand][from..], strides: [0, row, size] };
        let operands = [operand(0, at), operand(1, start + first * row), operand(2, start + first * row)];
        let modify = |score: f64, [_, _, _, key]: [usize; 4]| {
            Some(match program {
                Program::Alibi => score - f64::from(layer.slope(head)) * (keys - 1 - key) as f64,
                Program::SoftCap => f64::from(CAP) * (score / f64::from(CAP)).tanh(),
                Program::Causal | Program::Window | Program::Documents => score,
            })
        };
        let scale = 1.0 / f64::from((size as f32).sqrt());
        let want = oracle(sides, operands, Band::default(), scale, modify);
        let limit = tolerance::ATTENTION_BF16.tolerance();
        let what = format!("query {query} of {rows}");
        compare::rounded(&what, &got[at..at + size], &want.value, &want.magnitude, &[size], limit)?;
    }
    Ok(())
}
