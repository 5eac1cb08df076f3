//! Matrix products of every element type, against `torch.matmul` and against cuBLASLt with a search of its
//! algorithms.
//!
//! Weights are stored as in a network, `[n, k]`: `C = A B^T`. Our products and cuBLASLt's are replayed from a
//! graph, so neither time includes the host's launch cost. `torch.matmul` is called as a user calls it.
//! Operands are random numbers that repeat after a prime number of elements: generating billions of them
//! would take minutes.
//!
//! `--random N` takes products drawn at random in place of the program's own ([`ironwarp_benches::Drawn`]),
//! and says how the results spread and which are the slowest. `--seed S` draws the same ones again.
//!
//! `--shape 8x467x83 --type bf16 --order nt` takes that product, or several with commas between them, in
//! place of all others. The order is that of a drawn row's shape: `n` as `[m, k]` and `[k, n]`, `t`
//! transposed.
//!
//! `--brief` and `--within SECONDS` are for hundreds of products: see the usage.
//!
//! `--every` instead times every configuration of each row and prints one line for each: name, shape,
//! microseconds, the estimate, and the configuration.

use std::process::ExitCode;

use bytemuck::Pod;
use half::{bf16, f16};
use ironwarp::graph::Graph;
use ironwarp::ops::gemm::{
    Activation, Candidate, Kernel, Matmul, Matrix, MatrixMut, Precision, activated, activated_backward,
};
use ironwarp::tensor::Element as TensorElement;
use ironwarp::{DeviceBuffer, Stream, Tensor};
use ironwarp_benches::{Drawn, Fused, Outcome, Session, Types, Work, println};
use num::E4M3;
use reference::matmul::{Epilogue, Strided, matmul};
use serde_json::{Value, json};
use testkit::{Element, Family, Tolerance, compare, input, tolerance};

/// Evenly spaced rows of C that are compared with the oracle.
const CHECKED_ROWS: usize = 8;
/// Period of the random elements. It is prime, so that neither rows nor tiles repeat.
const PERIOD: usize = 1_048_573;

/// Launches per graph, as for cuBLASLt, or as many as take so many microseconds by the estimate. They spread
/// the cost of starting the graph.
const GRAPH_LAUNCHES: usize = 64;
const GRAPH_US: f64 = 2000.0;
/// With `--every`, configurations with an estimate above this multiple of the shortest are skipped.
const WORTH_A_LOOK: f64 = 2.0;

/// m, n, k.
type Sides = (usize, usize, usize);

/// Square products.
const SQUARES: [usize; 10] = [512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16_384];
/// Sides that no tile divides. In the last product only the first row begins at a 16-byte boundary.
const ODD: [Sides; 3] = [(1000, 1000, 1000), (3000, 3000, 3000), (4097, 4099, 4101)];
/// Layers of transformers of 1 to 70 billion parameters, at 1 to 8192 tokens.
const LAYERS: [Sides; 29] = [
    (1, 4096, 4096),
    (1, 8192, 8192),
    (1, 28_672, 8192),
    (2, 8192, 8192),
    (4, 8192, 8192),
    (8, 8192, 8192),
    (16, 8192, 8192),
    (16, 28_672, 8192),
    (16, 4096, 14_336),
    (64, 6144, 4096),
    (64, 8192, 8192),
    (128, 4096, 4096),
    (128, 28_672, 8192),
    (256, 4096, 14_336),
    (256, 8192, 8192),
    (512, 4096, 4096),
    (512, 8192, 28_672),
    (1024, 2048, 8192),
    (1024, 6144, 4096),
    (1024, 8192, 28_672),
    (2048, 8192, 2048),
    (2048, 4096, 11_008),
    (2048, 12_288, 4096),
    (4096, 4096, 14_336),
    (4096, 14_336, 4096),
    (8192, 5632, 2048),
    (8192, 8192, 2048),
    (8192, 28_672, 8192),
    (8192, 8192, 28_672),
];
/// Batches: the count, and the sides of each product.
const BATCHES: [(usize, Sides); 3] = [(16, (1024, 1024, 1024)), (8, (2048, 2048, 128)), (64, (512, 512, 64))];
/// Small results with long sums, so few tiles.
const LONG: [Sides; 4] = [(64, 64, 16_384), (128, 128, 65_536), (256, 256, 32_768), (512, 512, 16_384)];
/// The products for every other type.
const FEW: [Sides; 9] = [
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16, 8192, 8192),
    (128, 28_672, 8192),
    (1024, 6144, 4096),
    (4096, 14_336, 4096),
    (4096, 4096, 14_336),
];
/// For epilogues: few tiles, many steps per tile, few steps per tile, more columns than rows, and the fewest
/// steps, of a small transformer's layer.
const FUSED: [Sides; 5] =
    [(32_768, 3072, 768), (1024, 4096, 4096), (4096, 4096, 4096), (8192, 8192, 2048), (4096, 14_336, 4096)];
/// For f32 without tensor cores.
const F32: [Sides; 8] = [
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16_384, 1024, 4096),
    (2048, 2048, 16_384),
    (4097, 4099, 4101),
];
/// Used without a GPU, or with little time.
const SMALL: Sides = (72, 136, 64);

/// A row of the table.
#[derive(Clone, Copy)]
struct Run {
    name: &'static str,
    /// The peers' name of the element type.
    dtype: &'static str,
    /// The peers' name of the epilogue.
    epilogue: &'static str,
    /// Whether A is stored as `[k, m]`.
    trans_a: bool,
    /// Whether B is stored as `[n, k]`.
    trans_b: bool,
    batch: usize,
    sides: Sides,
    precision: Precision,
    activation: Activation,
    bias: bool,
    residual: bool,
    /// The peers' name of the result's element type, if it is not the usual one.
    out: Option<&'static str>,
    /// A row of the program's own.
    is_listed: bool,
}

impl Run {
    /// Columns of C.
    fn width(&self) -> usize {
        self.sides.1 / self.activation.columns() as usize
    }

    /// The row's shape. Drawn and named ones say how A and B lie too (`n` as `[m, k]` and `[k, n]`), and the
    /// epilogue.
    fn shape(&self) -> String {
        let Run { batch, sides: (m, n, k), trans_a, trans_b, epilogue, .. } = *self;
        let sides = if batch == 1 { format!("{m}x{n}x{k}") } else { format!("{batch}x{m}x{n}x{k}") };
        if self.is_listed {
            return sides;
        }
        let order = |trans: bool| if trans { 't' } else { 'n' };
        format!("{sides}-{}{}-{epilogue}", order(trans_a), order(trans_b))
    }

    fn of(drawn: &Drawn) -> Self {
        let Drawn { sides, batch, trans_a, trans_b, epilogue, types, .. } = *drawn;
        let (dtype, precision, out) = match types {
            Types::Bf16 => ("bf16", Precision::F32, None),
            Types::F16 => ("f16", Precision::F32, None),
            Types::Tf32 => ("tf32", Precision::Tf32, None),
            Types::F32 => ("f32", Precision::F32, None),
            Types::E4m3 => ("e4m3", Precision::F32, None),
            Types::E4m3ToE4m3 => ("e4m3", Precision::F32, Some("e4m3")),
        };
        let (epilogue, bias, activation, residual) = match epilogue {
            Fused::None => ("none", false, Activation::None, false),
            Fused::Bias => ("bias", true, Activation::None, false),
            Fused::BiasGelu => ("bias_gelu", true, Activation::GeluTanh, false),
            Fused::BiasResidual => ("bias_residual", true, Activation::None, true),
        };
        let name = drawn.name();
        Self {
            name,
            dtype,
            epilogue,
            trans_a,
            trans_b,
            batch,
            sides,
            precision,
            activation,
            bias,
            residual,
            out,
            is_listed: false,
        }
    }
}

const PLAIN: Run = Run {
    name: "",
    dtype: "",
    epilogue: "none",
    trans_a: false,
    trans_b: true,
    batch: 1,
    sides: SMALL,
    precision: Precision::F32,
    activation: Activation::None,
    bias: false,
    residual: false,
    out: None,
    is_listed: true,
};

fn main() -> ExitCode {
    Session::run("gemm", |session| {
        if let Some(products) = session.products() {
            each(session, &products);
            return Ok(());
        }
        let bf16_run = Run { name: "gemm_bf16", dtype: "bf16", ..PLAIN };
        let squares = SQUARES.map(|side| (side, side, side));
        for sides in shapes(session, &[&squares[..], &ODD, &LAYERS].concat()) {
            bench::<bf16, bf16>(session, Run { sides, ..bf16_run })?;
            bench::<f16, f16>(session, Run { name: "gemm_f16", dtype: "f16", sides, ..PLAIN })?;
        }
        for sides in shapes(session, &LONG) {
            bench::<bf16, bf16>(session, Run { name: "gemm_bf16_long", sides, ..bf16_run })?;
        }
        if !session.small() {
            for (batch, sides) in BATCHES {
                bench::<bf16, bf16>(session, Run { name: "gemm_bf16_batch", batch, sides, ..bf16_run })?;
            }
        }
        for sides in shapes(session, &FEW) {
            let short = Run { name: "gemm_tf32", dtype: "tf32", precision: Precision::Tf32, sides, ..PLAIN };
            bench::<f32, f32>(session, short)?;
            bench::<E4M3, bf16>(session, Run { name: "gemm_e4m3", dtype: "e4m3", sides, ..PLAIN })?;
        }
        for sides in shapes(session, &FUSED) {
            let run = Run { sides, bias: true, ..bf16_run };
            bench::<bf16, bf16>(session, Run { name: "gemm_bf16_bias", epilogue: "bias", ..run })?;
            // The rows keep the names of older records: there, as in cuBLASLt, `gelu` is the tanh form.
            let gelu = Run { activation: Activation::GeluTanh, epilogue: "bias_gelu", ..run };
            bench::<bf16, bf16>(session, Run { name: "gemm_bf16_bias_gelu", ..gelu })?;
            let residual = Run { residual: true, epilogue: "bias_residual", ..run };
            bench::<bf16, bf16>(session, Run { name: "gemm_bf16_bias_residual", ..residual })?;
            let swiglu = Run { activation: Activation::SwiGlu, epilogue: "swiglu", bias: false, ..run };
            bench::<bf16, bf16>(session, Run { name: "gemm_bf16_swiglu", ..swiglu })?;
            let narrow = Run { sides, dtype: "e4m3", out: Some("e4m3"), ..PLAIN };
            bench::<E4M3, E4M3>(session, Run { name: "gemm_e4m3_e4m3", ..narrow })?;
            training(session, sides)?;
        }
        for sides in shapes(session, &F32) {
            bench::<f32, f32>(
                session,
                Run { name: "gemm_f32", dtype: "f32", trans_b: false, sides, ..PLAIN },
            )?;
        }
        Ok(())
    })
}

/// Products of a training step: an activation whose argument is kept, and its gradient with the bias'. No
/// peer keeps the argument or has the gradient: beside the first there is the activation alone, beside the
/// second the product alone.
fn training(session: &mut Session, (m, n, k): Sides) -> Outcome {
    let stream = session.stream.clone();
    let tensor = |seed, sides: &[usize]| {
        Tensor::from_slice(&stream, sides, &numbers::<bf16>(seed, sides.iter().product()))
    };
    let (shape, work) = (format!("{m}x{n}x{k}"), Work::Flops(2 * (m * n * k) as u64));
    let run = Run { dtype: "bf16", sides: (m, n, k), ..PLAIN };
    let forward = "gemm_bf16_training";
    if session.wants(forward) {
        let (x, weight, bias) = (tensor(1, &[m, k])?, tensor(2, &[n, k])?, tensor(3, &[n])?);
        let peers = peers(&Run { epilogue: "bias_gelu", ..run }, 1, 1, session.search_ms());
        session.measure_beside(forward, &shape, work, &peers, |_| {
            activated(&stream, &x, &weight, Some(&bias), Activation::GeluTanh).map(drop)
        })?;
    }
    let backward = "gemm_bf16_training_backward";
    if session.wants(backward) {
        let (gradient, weight, before) = (tensor(1, &[m, k])?, tensor(2, &[k, n])?, tensor(3, &[m, n])?);
        let peers = peers(&Run { trans_b: false, ..run }, 1, 1, session.search_ms());
        session.measure_beside(backward, &shape, work, &peers, |_| {
            activated_backward(&stream, &gradient, &weight, &before, Activation::GeluTanh).map(drop)
        })?;
    }
    Ok(())
}

/// Those that fail are named, and others go on.
fn each(session: &mut Session, products: &[Drawn]) {
    for (done, drawn) in products.iter().enumerate() {
        if session.is_over(products.len() - done) {
            return;
        }
        if let Err(error) = one(session, drawn) {
            session.fail(&format!("{} {}", drawn.name(), Run::of(drawn).shape()), &*error);
        }
    }
}

fn one(session: &mut Session, drawn: &Drawn) -> Outcome {
    let mut run = Run::of(drawn);
    if session.small() && !drawn.is_named {
        let ((m, n, k), (most_m, most_n, most_k)) = (drawn.sides, SMALL);
        run.sides = (m.min(most_m), n.min(most_n), k.min(most_k));
    }
    match drawn.types {
        Types::Bf16 => bench::<bf16, bf16>(session, run),
        Types::F16 => bench::<f16, f16>(session, run),
        Types::Tf32 | Types::F32 => bench::<f32, f32>(session, run),
        Types::E4m3 => bench::<E4M3, bf16>(session, run),
        Types::E4m3ToE4m3 => bench::<E4M3, E4M3>(session, run),
    }
}

fn shapes(session: &Session, full: &[Sides]) -> Vec<Sides> {
    if session.small() { vec![SMALL] } else { full.to_vec() }
}

/// `len` random numbers with period `PERIOD`.
fn numbers<T: Element>(seed: u64, len: usize) -> Vec<T> {
    let different: Vec<T> = input(Family::Normal, seed, len.min(PERIOD));
    different.iter().copied().cycle().take(len).collect()
}

/// One set of operands on the device.
struct Set<T, C> {
    a: DeviceBuffer<T>,
    b: DeviceBuffer<T>,
    c: DeviceBuffer<C>,
    residual: DeviceBuffer<C>,
}

impl<T: Pod, C: Pod> Set<T, C> {
    /// Another one with the same numbers.
    fn copy(&self, stream: &Stream) -> ironwarp::Result<Self> {
        let Set { a, b, c, residual } = self;
        Ok(Set {
            a: copy(stream, a)?,
            b: copy(stream, b)?,
            c: DeviceBuffer::zeroed(stream, c.len())?,
            residual: copy(stream, residual)?,
        })
    }
}

fn copy<T: Pod>(stream: &Stream, from: &DeviceBuffer<T>) -> ironwarp::Result<DeviceBuffer<T>> {
    let mut to = DeviceBuffer::zeroed(stream, from.len())?;
    to.copy_from_device(stream, from)?;
    Ok(to)
}

fn bench<T, C>(session: &mut Session, run: Run) -> Outcome
where
    T: Element + TensorElement + Pod + Into<f64>,
    C: Element + TensorElement + Pod + Into<f64>,
{
    let Run { name, batch, sides: (m, n, k), .. } = run;
    let shape = run.shape();
    if !session.wants(name) && !session.wants(&format!("{name}/{shape}")) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let (a, b) = (numbers::<T>(1, batch * m * k), numbers::<T>(2, batch * k * n));
    let bias = numbers::<C>(3, n);
    let width = run.width();
    let residual = numbers::<C>(4, if run.residual { m * width } else { 0 });
    let results = batch * m * width;
    let bytes =
        size_of_val(&a[..]) + size_of_val(&b[..]) + size_of_val(&residual[..]) + results * size_of::<C>();
    let first = Set {
        a: DeviceBuffer::from_slice(&stream, &a)?,
        b: DeviceBuffer::from_slice(&stream, &b)?,
        c: DeviceBuffer::zeroed(&stream, results)?,
        residual: DeviceBuffer::from_slice(&stream, &residual)?,
    };
    let others = (1..session.rotation(bytes as u64)).map(|_| first.copy(&stream));
    let others = others.collect::<ironwarp::Result<Vec<_>>>()?;
    let mut sets: Vec<_> = std::iter::once(first).chain(others).collect();
    let bias_device = DeviceBuffer::from_slice(&stream, &bias)?;
    let expected = Expected::new(&run, &a, &b, &bias, &residual);
    if session.options.every {
        return every(session, &run, sets, &bias_device, &expected);
    }
    let choice = product(&run, &mut sets[0], &bias_device).explain(&stream)?;
    let estimate = choice.candidates.iter().find(|candidate| candidate.config == choice.config);
    let estimate_us = estimate.map_or(0.0, |candidate| candidate.estimate_us);
    let terms = choice.terms.map_or(String::new(), |terms| format!(": {terms}"));
    let reason = format!("{}, estimate {estimate_us:.1} us{terms}", choice.config);
    println!("{name} {shape}: {reason}");
    session.explain(name, &shape, reason);
    let rounds = rounds(sets.len(), estimate_us);
    let group = (rounds * sets.len()) as u64;
    let peers = peers(&run, sets.len(), group, session.search_ms());
    // Loads the kernels. A capture cannot load them.
    product(&run, &mut sets[0], &bias_device).run(&stream)?;
    let mut graph = Graph::capture(&stream, sets, |stream, sets| {
        (0..rounds).try_for_each(|_| {
            sets.iter_mut().try_for_each(|set| product(&run, set, &bias_device).run(stream))
        })
    })?;
    let work = Work::Flops(2 * (batch * m * n * k) as u64);
    session.measure_groups(name, &shape, work, &peers, group, |_| graph.replay(&stream))?;
    expected.check(&run, choice.config.kernel, &graph.inputs()[0].c.to_vec(&stream)?)
}

/// Times every configuration with an estimate of at most `WORTH_A_LOOK` times the best, and prints it beside
/// its estimate.
fn every<T, C>(
    session: &Session,
    run: &Run,
    mut sets: Vec<Set<T, C>>,
    bias: &DeviceBuffer<C>,
    expected: &Expected,
) -> Outcome
where
    T: Element + TensorElement + Pod,
    C: Element + TensorElement + Pod,
{
    let (Run { name, .. }, shape) = (*run, run.shape());
    let stream = &session.stream;
    let candidates = product(run, &mut sets[0], bias).explain(stream)?.candidates;
    let least = candidates.first().map_or(0.0, |candidate| candidate.estimate_us);
    let rounds = rounds(sets.len(), least);
    for Candidate { config, estimate_us, .. } in candidates {
        if estimate_us > WORTH_A_LOOK * least {
            break;
        }
        product(run, &mut sets[0], bias).run_with(stream, &config)?;
        expected.check(run, config.kernel, &sets[0].c.to_vec(stream)?)?;
        let group = (rounds * sets.len()) as u64;
        let mut graph = Graph::capture(stream, &mut sets[..], |stream, sets| {
            (0..rounds).try_for_each(|_| {
                sets.iter_mut().try_for_each(|set| product(run, set, bias).run_with(stream, &config))
            })
        })?;
        let us = 1e3 * session.glance(group, || graph.replay(stream))?;
        println!("every,{name},{shape},{us:.2},{estimate_us:.2},\"{config}\"");
    }
    Ok(())
}

/// How often a graph cycles through that many sets, by an estimate of a launch.
fn rounds(sets: usize, estimate_us: f64) -> usize {
    let enough = (GRAPH_US / estimate_us).ceil() as usize;
    if sets > 1 { GRAPH_LAUNCHES.min(enough).div_ceil(sets) } else { 1 }
}

fn product<'x, T, C>(run: &Run, set: &'x mut Set<T, C>, bias: &'x DeviceBuffer<C>) -> Matmul<'x>
where
    T: TensorElement + Pod,
    C: TensorElement + Pod,
{
    let Run { batch, sides: (m, n, k), .. } = *run;
    let a = if run.trans_a {
        Matrix::new::<T>(&set.a, k, m).batch(batch).transposed()
    } else {
        Matrix::new::<T>(&set.a, m, k).batch(batch)
    };
    let b = if run.trans_b {
        Matrix::new::<T>(&set.b, n, k).batch(batch).transposed()
    } else {
        Matrix::new::<T>(&set.b, k, n).batch(batch)
    };
    let width = run.width();
    let c = MatrixMut::new::<C>(&mut set.c, m, width).batch(batch);
    let product = Matmul::new(a, b, c).precision(run.precision).activation(run.activation);
    let product = if run.bias { product.bias::<C>(bias) } else { product };
    if run.residual { product.residual(Matrix::new::<C>(&set.residual, m, width)) } else { product }
}

/// Requests for the peers. A graph of theirs has at least `launches`.
fn peers(run: &Run, sets: usize, launches: u64, search_ms: Option<u64>) -> Vec<Value> {
    let Run { dtype, epilogue, trans_a, trans_b, batch, sides: (m, n, k), .. } = *run;
    let torch = if dtype == "e4m3" { "gemm.scaled_mm" } else { "gemm.torch" };
    let request = |op: &str| {
        json!({
            "prepare": op, "m": m, "n": n, "k": k, "batch": batch, "dtype": dtype, "trans_a": trans_a,
            "trans_b": trans_b, "epilogue": epilogue, "sets": sets, "out": run.out,
            "launches": launches, "search_ms": search_ms,
        })
    };
    vec![request(torch), request("gemm.cublaslt")]
}

/// Some rows of the first C, from the oracle. All rows would take minutes.
struct Expected {
    rows: usize,
    value: Vec<f64>,
    magnitude: Vec<f64>,
}

impl Expected {
    fn new<T, C>(run: &Run, a: &[T], b: &[T], bias: &[C], residual: &[C]) -> Self
    where
        T: Element + Into<f64>,
        C: Element + Into<f64>,
    {
        let Run { sides: (m, n, k), .. } = *run;
        let rows = CHECKED_ROWS.min(m);
        let at = |row: usize, along: usize| if run.trans_a { along * m + row } else { row * k + along };
        let a: Vec<T> = (0..rows)
            .flat_map(|row| (0..k).map(move |along| (row * m / rows, along)))
            .map(|(row, along)| a[at(row, along)])
            .collect();
        let width = run.width();
        let residual: Vec<C> = match run.residual {
            true => (0..rows).flat_map(|row| residual[row * m / rows * width..][..width].to_vec()).collect(),
            false => Vec::new(),
        };
        let (row, column) = if run.trans_b { (1, k) } else { (n, 1) };
        let epilogue = Epilogue {
            bias: run.bias.then_some(bias),
            activation: reference::matmul::Activation::named(run.activation.name()),
            residual: run.residual.then_some(Strided {
                data: &residual[..],
                row: width,
                column: 1,
                matrix: 0,
            }),
            ..Epilogue::<C, C>::NONE
        };
        let a = Strided { data: &a[..], row: k, column: 1, matrix: 0 };
        let b = Strided { data: b, row, column, matrix: 0 };
        let want = matmul([1, rows, n, k], a, b, epilogue);
        Expected { rows, value: want.value, magnitude: want.magnitude }
    }

    /// Compares these rows with a kernel's result.
    fn check<C: Element>(&self, run: &Run, kernel: Kernel, c: &[C]) -> Outcome {
        let (Run { sides: (m, _, k), .. }, width) = (*run, run.width());
        let Expected { rows, value, magnitude } = self;
        let got: Vec<C> = (0..*rows).flat_map(|row| c[row * m / rows * width..][..width].to_vec()).collect();
        compare::rounded(run.name, &got, value, magnitude, &[*rows, width], limit(run, kernel, k))?;
        Ok(())
    }
}

fn limit(run: &Run, kernel: Kernel, k: usize) -> Tolerance {
    let row = match (kernel, run.dtype) {
        (Kernel::F32Large | Kernel::F32Small | Kernel::Direct | Kernel::Any, _) => tolerance::GEMM_F32,
        (_, "tf32") => tolerance::GEMM_TENSOR_TF32,
        (_, "e4m3") => tolerance::GEMM_TENSOR_FP8,
        _ => tolerance::GEMM_TENSOR,
    };
    row.for_terms(k)
}
