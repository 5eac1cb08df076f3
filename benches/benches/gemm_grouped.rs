//! Grouped products against `torch._grouped_mm`, and 8-bit products with block scales against
//! `torch._scaled_mm` with the same scales.
//!
//! Weights are stored as in a network, `[n, k]`. Ours are replayed from a graph, so their times do not
//! include the host's launch cost. Operands are random numbers that repeat after a prime number of elements.

use std::process::ExitCode;

use bytemuck::Pod;
use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::gemm::{BlockScaled, GroupedMatmul, Matrix, MatrixMut};
use ironwarp::tensor::Element as TensorElement;
use ironwarp::{DeviceBuffer, Stream};
use ironwarp_benches::{Outcome, Session, Work};
use num::E4M3;
use rayon::prelude::*;
use serde_json::json;
use testkit::{Family, Random, compare, input, tolerance};

/// Evenly spaced rows of C that are compared with the oracle.
const CHECKED_ROWS: usize = 2;
/// Period of the random elements. It is prime, so that neither rows nor tiles repeat.
const PERIOD: usize = 1_048_573;
/// The least number of launches per graph. It spreads the cost of starting the graph.
const GRAPH_LAUNCHES: usize = 64;
/// Elements that share a scale.
const BLOCK: usize = 128;

/// m, n, k.
type Sides = (usize, usize, usize);

/// Squares, and layers of models that are trained with such scales.
const BLOCKS: [Sides; 7] = [
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4096, 7168, 2048),
    (4096, 24_576, 1536),
    (4096, 7168, 16_384),
    (1024, 4096, 7168),
    (128, 7168, 16_384),
];
/// Experts of mixtures: groups, average rows per group, n, k. The last is the case of text generation, where
/// reading the weights takes the time.
const GROUPS: [(usize, Sides); 5] = [
    (8, (512, 4096, 14_336)),
    (8, (512, 14_336, 4096)),
    (64, (128, 2048, 7168)),
    (64, (128, 7168, 2048)),
    (64, (8, 7168, 2048)),
];
/// Used without a GPU, or with little time.
const SMALL: Sides = (72, 136, 256);
const SMALL_GROUPS: (usize, Sides) = (4, (24, 136, 64));

fn main() -> ExitCode {
    Session::run("gemm_grouped", |session| {
        let shapes = if session.small() { vec![SMALL] } else { BLOCKS.to_vec() };
        for sides in shapes {
            blocks(session, sides, None)?;
            for kernel in BlockScaled::kernels() {
                blocks(session, sides, Some(kernel))?;
            }
        }
        let groups = if session.small() { vec![SMALL_GROUPS] } else { GROUPS.to_vec() };
        for (count, sides) in groups {
            grouped::<bf16>(session, "bf16", count, sides)?;
            grouped::<E4M3>(session, "e4m3", count, sides)?;
            grouped_blocks(session, count, sides)?;
        }
        Ok(())
    })
}

/// Offsets of groups of a quarter to seven quarters of `rows` rows, with `count * rows` rows in all.
fn offsets(count: usize, rows: usize) -> Vec<i32> {
    let mut random = Random::new(5);
    let total = count * rows;
    let mut offsets = vec![0];
    for group in 1..count {
        let size = rows / 4 + random.integer(0, rows as i64 * 3 / 2) as usize;
        let left = (count - group) * rows / 4;
        offsets.push((offsets[group - 1] as usize + size).min(total - left) as i32);
    }
    offsets.push(total as i32);
    offsets
}

/// Operands of a grouped product, on the device.
struct GroupSet<T> {
    a: DeviceBuffer<T>,
    b: DeviceBuffer<T>,
    c: DeviceBuffer<bf16>,
}

/// Grouped products of elements with the peers' name `dtype`.
fn grouped<T>(session: &mut Session, dtype: &str, count: usize, (rows, n, k): Sides) -> Outcome
where
    T: testkit::Element + TensorElement + Pod + Into<f64>,
{
    let name = format!("gemm_grouped_{dtype}");
    if !session.wants(&name) {
        return Ok(());
    }
    let (m, stream) = (count * rows, session.stream.clone());
    let (a, b) = (numbers::<T>(1, m * k), numbers::<T>(2, count * n * k));
    let offsets = offsets(count, rows);
    let on_device = DeviceBuffer::from_slice(&stream, &offsets)?;
    let mut sets = Vec::new();
    for _ in 0..session.rotation((size_of_val(&a[..]) + size_of_val(&b[..]) + 2 * m * n) as u64) {
        let (a, b) = (DeviceBuffer::from_slice(&stream, &a)?, DeviceBuffer::from_slice(&stream, &b)?);
        sets.push(GroupSet { a, b, c: DeviceBuffer::zeroed(&stream, m * n)? });
    }
    let run = |stream: &Stream, set: &mut GroupSet<T>| {
        GroupedMatmul::new::<i32>(
            Matrix::new::<T>(&set.a, m, k),
            Matrix::new::<T>(&set.b, n, k).batch(count).transposed(),
            &on_device,
            MatrixMut::new::<bf16>(&mut set.c, m, n),
        )
        .run(stream)
    };
    let request = |op: &str| json!({"prepare": op, "offsets": offsets, "n": n, "k": k, "dtype": dtype, "sets": sets.len()});
    let peers = [request("grouped.torch"), request("grouped.loop")];
    let rounds = if sets.len() > 1 { GRAPH_LAUNCHES.div_ceil(sets.len()) } else { 1 };
    let each = (rounds * sets.len()) as u64;
    // Loads the kernel. A capture cannot load it.
    run(&stream, &mut sets[0])?;
    let mut graph = Graph::capture(&stream, sets, |stream, sets| {
        (0..rounds).try_for_each(|_| sets.iter_mut().try_for_each(|set| run(stream, set)))
    })?;
    let work = Work::Flops(2 * (m * n * k) as u64);
    let shape = format!("{count}x{rows}x{n}x{k}");
    session.measure_groups(&name, &shape, work, &peers, each, |_| graph.replay(&stream))?;
    let limit = if dtype == "e4m3" { &tolerance::GEMM_TENSOR_FP8 } else { &tolerance::GEMM_TENSOR };
    let c = graph.inputs()[0].c.to_vec(&stream)?;
    // The first and the last row of some groups.
    for group in [0, count / 2, count - 1] {
        let (begin, end) = (offsets[group] as usize, offsets[group + 1] as usize);
        for row in if begin < end { vec![begin, end - 1] } else { vec![] } {
            let a: Vec<f64> = a[row * k..][..k].iter().map(|x| (*x).into()).collect();
            check_row(&name, limit, &c[row * n..][..n], &a, |column, l| {
                b[(group * n + column) * k + l].into()
            })?;
        }
    }
    Ok(())
}

/// `len` random numbers with period `PERIOD`.
fn numbers<T: testkit::Element>(seed: u64, len: usize) -> Vec<T> {
    let different: Vec<T> = input(Family::Normal, seed, len.min(PERIOD));
    different.iter().copied().cycle().take(len).collect()
}

/// Operands of a product with block scales, on the device.
struct Blocks {
    a: DeviceBuffer<E4M3>,
    b: DeviceBuffer<E4M3>,
    factors_a: DeviceBuffer<f32>,
    factors_b: DeviceBuffer<f32>,
    c: DeviceBuffer<bf16>,
}

impl Blocks {
    /// Queues the product, on the kernel of this name if one is given.
    fn run(&mut self, stream: &Stream, (m, n, k): Sides, kernel: Option<&str>) -> ironwarp::Result<()> {
        let Blocks { a, b, factors_a, factors_b, c } = self;
        let (a, b, factors_a, factors_b) = (a.view(), b.view(), factors_a.view(), factors_b.view());
        let product = BlockScaled { m, n, k, a, factors_a, b, factors_b };
        match kernel {
            Some(kernel) => product.run_with(stream, kernel, c),
            None => product.run(stream, c),
        }
    }
}

/// Measures the op with its peer, or one of its kernels.
fn blocks(session: &mut Session, sides: Sides, kernel: Option<&str>) -> Outcome {
    let name = kernel.unwrap_or("gemm_e4m3_blocks");
    if !session.wants(name) {
        return Ok(());
    }
    let (m, n, k) = sides;
    let stream = session.stream.clone();
    let (a, b) = (numbers::<E4M3>(1, m * k), numbers::<E4M3>(2, n * k));
    let (across, down) = (k.div_ceil(BLOCK), n.div_ceil(BLOCK));
    let (factors_a, factors_b) = (numbers::<f32>(3, across * m), numbers::<f32>(4, down * across));
    let mut sets = Vec::new();
    for _ in 0..session.rotation((a.len() + b.len() + 2 * m * n) as u64) {
        sets.push(Blocks {
            a: DeviceBuffer::from_slice(&stream, &a)?,
            b: DeviceBuffer::from_slice(&stream, &b)?,
            factors_a: DeviceBuffer::from_slice(&stream, &factors_a)?,
            factors_b: DeviceBuffer::from_slice(&stream, &factors_b)?,
            c: DeviceBuffer::zeroed(&stream, m * n)?,
        });
    }
    let peers = [json!({"prepare": "grouped.blocks", "m": m, "n": n, "k": k, "sets": sets.len()})];
    let peers = if kernel.is_none() { &peers[..] } else { &[] };
    let rounds = if sets.len() > 1 { GRAPH_LAUNCHES.div_ceil(sets.len()) } else { 1 };
    let group = (rounds * sets.len()) as u64;
    // Loads the kernel. A capture cannot load it.
    sets[0].run(&stream, sides, kernel)?;
    let mut graph = Graph::capture(&stream, sets, |stream, sets| {
        (0..rounds).try_for_each(|_| sets.iter_mut().try_for_each(|set| set.run(stream, sides, kernel)))
    })?;
    let work = Work::Flops(2 * (m * n * k) as u64);
    session.measure_groups(name, &format!("{m}x{n}x{k}"), work, peers, group, |_| graph.replay(&stream))?;
    let c = graph.inputs()[0].c.to_vec(&stream)?;
    let chosen = |row: usize| row * m / CHECKED_ROWS.min(m);
    for row in (0..CHECKED_ROWS.min(m)).map(chosen) {
        check(name, row, &c[row * n..][..n], [&a, &b], [&factors_a, &factors_b], sides)?;
    }
    Ok(())
}

/// Grouped products with block scales. The peer has one scale for each row and column.
fn grouped_blocks(session: &mut Session, count: usize, (rows, n, k): Sides) -> Outcome {
    const NAME: &str = "gemm_grouped_e4m3_blocks";
    if !session.wants(NAME) {
        return Ok(());
    }
    let (m, stream) = (count * rows, session.stream.clone());
    let (across, down) = (k.div_ceil(BLOCK), n.div_ceil(BLOCK));
    let (a, b) = (numbers::<E4M3>(1, m * k), numbers::<E4M3>(2, count * n * k));
    let (of_a, of_b) = (numbers::<f32>(3, across * m), numbers::<f32>(4, count * down * across));
    let offsets = offsets(count, rows);
    let on_device = DeviceBuffer::from_slice(&stream, &offsets)?;
    let mut set = Blocks {
        a: DeviceBuffer::from_slice(&stream, &a)?,
        b: DeviceBuffer::from_slice(&stream, &b)?,
        factors_a: DeviceBuffer::from_slice(&stream, &of_a)?,
        factors_b: DeviceBuffer::from_slice(&stream, &of_b)?,
        c: DeviceBuffer::zeroed(&stream, m * n)?,
    };
    // The weights alone exceed the L2 cache.
    let peers =
        [json!({"prepare": "grouped.torch", "offsets": offsets, "n": n, "k": k, "dtype": "e4m3", "sets": 1})];
    let run = |stream: &Stream, set: &mut Blocks| {
        let Blocks { a, b, factors_a, factors_b, c } = set;
        let (a, b, factors_a, factors_b) = (a.view(), b.view(), factors_a.view(), factors_b.view());
        BlockScaled { m, n, k, a, factors_a, b, factors_b }.run_grouped::<i32>(stream, &on_device, c)
    };
    // Loads the kernel. A capture cannot load it.
    run(&stream, &mut set)?;
    let mut graph = Graph::capture(&stream, set, |stream, set| run(stream, set))?;
    let (work, shape) = (Work::Flops(2 * (m * n * k) as u64), format!("{count}x{rows}x{n}x{k}"));
    session.measure_groups(NAME, &shape, work, &peers, 1, |_| graph.replay(&stream))?;
    let c = graph.inputs().c.to_vec(&stream)?;
    let (group, row) = (count - 1, m - 1);
    let a: Vec<f64> =
        (0..k).map(|l| f64::from(a[row * k + l].to_f32()) * f64::from(of_a[l / BLOCK * m + row])).collect();
    check_row(NAME, &tolerance::GEMM_TENSOR_FP8, &c[row * n..][..n], &a, |column, l| {
        let factor = of_b[(group * down + column / BLOCK) * across + l / BLOCK];
        f64::from(b[(group * n + column) * k + l].to_f32()) * f64::from(factor)
    })
}

/// Compares a row of C with the oracle.
fn check(
    name: &str,
    row: usize,
    got: &[bf16],
    [a, b]: [&[E4M3]; 2],
    [factors_a, factors_b]: [&[f32]; 2],
    (m, _, k): Sides,
) -> Outcome {
    let across = k.div_ceil(BLOCK);
    let of_row = |l: usize| f64::from(factors_a[l / BLOCK * m + row]);
    let a: Vec<f64> = (0..k).map(|l| f64::from(a[row * k + l].to_f32()) * of_row(l)).collect();
    check_row(name, &tolerance::GEMM_TENSOR_FP8, got, &a, |column, l| {
        f64::from(b[column * k + l].to_f32()) * f64::from(factors_b[column / BLOCK * across + l / BLOCK])
    })?;
    Ok(())
}

/// Compares a row of C with `a` times the matrix with the elements `b`.
fn check_row(
    name: &str,
    limit: &tolerance::Row,
    got: &[bf16],
    a: &[f64],
    b: impl Fn(usize, usize) -> f64 + Sync,
) -> Outcome {
    // For each column of the result: the sum, and the sum of the magnitudes.
    let (value, magnitude): (Vec<f64>, Vec<f64>) = (0..got.len())
        .into_par_iter()
        .map(|column| {
            let terms = a.iter().enumerate().map(|(l, a)| a * b(column, l));
            terms.fold((0.0, 0.0), |(sum, magnitude), term| (sum + term, magnitude + term.abs()))
        })
        .unzip();
    compare::rounded(name, got, &value, &magnitude, &[1, got.len()], limit.for_terms(a.len()))?;
    Ok(())
}
