//! Operations on tensors, with a device-to-device copy in the same run and the same operations in PyTorch.

use std::process::ExitCode;

use half::bf16;
use ironwarp::ops::convert::{convert, convert_into};
use ironwarp::ops::dropout::{Generator, dropout};
use ironwarp::ops::elementwise::{
    BinaryOp, CompareOp, UnaryOp, binary, binary_into, compare_into, copy_into, power, power_into, unary,
    unary_into,
};
use ironwarp::ops::embedding::embedding_backward;
use ironwarp::ops::fill::{arange, fill, uniform};
use ironwarp::ops::index::{Indices, gather, scatter, scatter_add};
use ironwarp::ops::quantize::{quantize_blocks, quantize_tiles};
use ironwarp::ops::reduce::{ReduceOp, argmax, reduce, sum};
use ironwarp::ops::rotary::{Positions, RotaryTables, rotary, rotary_backward};
use ironwarp::{DType, DeviceBuffer, Stream, Tensor};
use ironwarp_benches::{Outcome, Session, Work};
use reference::elementwise as oracle;
use reference::quantize::quantize;
use reference::reduction::{groups, sums};
use serde_json::{Value, json};
use testkit::{Tolerance, compare, tolerance};

/// Bytes of an operand in a full run. That is far beyond every cache, so the operands need no rotation.
const OPERAND: usize = 512 << 20;
/// The same for a quick run, which only runs the code.
const SMALL_OPERAND: usize = 1 << 16;
/// Columns of the matrices.
const COLUMNS: usize = 4096;
/// An odd number. Its multiples reach every row if the row count is a power of two.
const ODD: usize = 7919;
/// Elements of each result that are compared with the oracle.
const COMPARED: usize = 1 << 16;

fn main() -> ExitCode {
    Session::run("tensor", |session| {
        let bytes = if session.small() { SMALL_OPERAND } else { OPERAND };
        bench_copy(session, bytes)?;
        for dtype in [DType::F32, DType::BF16] {
            bench_elementwise(session, dtype, bytes)?;
            bench_power(session, dtype, bytes)?;
        }
        for dtype in [DType::F32, DType::BF16] {
            bench_views(session, dtype, bytes)?;
        }
        for dtype in [DType::F32, DType::BF16] {
            bench_reduction(session, dtype, bytes)?;
        }
        bench_convert(session, bytes)?;
        for dtype in [DType::F32, DType::BF16] {
            bench_quantize(session, dtype, bytes)?;
        }
        bench_index(session, DType::BF16, bytes)?;
        for dtype in [DType::F32, DType::BF16] {
            bench_embedding(session, dtype)?;
            bench_dropout(session, dtype, bytes)?;
            bench_rotary(session, dtype, bytes)?;
        }
        bench_fill(session, bytes)
    })
}

/// The peers' name of a type.
fn peer_name(dtype: DType) -> String {
    dtype.to_string().replace("f8_", "")
}

/// The request for a peer's op on `[rows, COLUMNS]`.
fn peer(op: &str, dtype: DType, rows: usize, more: &[(&str, Value)]) -> Value {
    let mut request = json!({ "prepare": format!("basic.{op}"), "dtype": peer_name(dtype), "shape": [rows, COLUMNS], "sets": 1 });
    more.iter().for_each(|(key, value)| request[*key] = value.clone());
    request
}

/// Random numbers of a type, `[rows, COLUMNS]`.
fn random(stream: &Stream, dtype: DType, rows: usize, seed: u64) -> ironwarp::Result<Tensor> {
    let x = uniform(stream, &[rows, COLUMNS], -1.0, 1.0, seed)?;
    if dtype == DType::F32 { Ok(x) } else { convert(stream, &x, dtype) }
}

/// A shape as it is written in rows, such as `32768x4096`.
fn sides(x: &Tensor) -> String {
    x.shape().sides().iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// The elements of the first rows as f64.
fn head(stream: &Stream, x: &Tensor) -> ironwarp::Result<Vec<f64>> {
    let x = if x.rank() == 0 { x.unsqueeze(0)? } else { x.clone() };
    let lines = COMPARED * x.shape()[0] / x.elements();
    let head = x.slice(0, ..lines.clamp(1, x.shape()[0]))?;
    match x.dtype() {
        DType::BF16 => Ok(head.to_vec::<bf16>(stream)?.into_iter().map(f64::from).collect()),
        DType::Bool => Ok(head.to_vec::<bool>(stream)?.into_iter().map(|x| f64::from(u8::from(x))).collect()),
        _ => Ok(head.to_vec::<f32>(stream)?.into_iter().map(f64::from).collect()),
    }
}

fn check(stream: &Stream, what: &str, got: &Tensor, want: &[f64], function: bool) -> Outcome {
    let rows = match (got.dtype(), function) {
        (DType::BF16, false) => tolerance::ARITHMETIC_BF16,
        (DType::BF16, true) => tolerance::FUNCTION_BF16,
        (_, false) => tolerance::ARITHMETIC_F32,
        (_, true) => tolerance::FUNCTION_F32,
    };
    compare::elementwise(what, &head(stream, got)?, want, &[want.len()], rows.tolerance())?;
    Ok(())
}

fn bench_copy(session: &mut Session, bytes: usize) -> Outcome {
    let stream = session.stream.clone();
    let from = DeviceBuffer::from_slice(&stream, &vec![1u8; bytes])?;
    let mut to = DeviceBuffer::<u8>::zeroed(&stream, bytes)?;
    let work = Work::Bytes(2 * bytes as u64);
    session.measure("copy", &format!("{bytes} bytes"), work, |_| to.copy_from_device(&stream, &from))
}

fn bench_elementwise(session: &mut Session, dtype: DType, bytes: usize) -> Outcome {
    let functions = ["elementwise_neg", "elementwise_exp", "elementwise_gelu", "elementwise_silu"];
    let others = ["elementwise_add", "elementwise_mul", "elementwise_add_row", "elementwise_copy_turned"];
    if !session.wants_any(&[functions, others].concat()) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let rows = bytes / dtype.size() / COLUMNS;
    let (x, y) = (random(&stream, dtype, rows, 1)?, random(&stream, dtype, rows, 2)?);
    let bias = y.select(0, 0)?;
    let mut out = Tensor::zeros(&stream, &[rows, COLUMNS], dtype)?;
    let (xs, ys) = (head(&stream, &x)?, head(&stream, &y)?);
    let shape = format!("{dtype} {rows}x{COLUMNS}");
    let moved = |operands: usize| Work::Bytes((operands * bytes) as u64);

    type Function = fn(f64) -> f64;
    for (op, name, of) in [
        (UnaryOp::Neg, "neg", (|x| -x) as Function),
        (UnaryOp::Exp, "exp", f64::exp),
        (UnaryOp::GeluTanh, "gelu", oracle::gelu_tanh),
        (UnaryOp::Silu, "silu", oracle::silu),
    ] {
        let want: Vec<f64> = xs.iter().map(|&x| of(x)).collect();
        check(&stream, name, &unary(&stream, op, &x)?, &want, true)?;
        session.measure_beside(
            &format!("elementwise_{name}"),
            &shape,
            moved(2),
            &[peer(name, dtype, rows, &[])],
            |_| unary_into(&stream, op, &x, out.view_mut()?),
        )?;
    }
    for (op, name, of) in
        [(BinaryOp::Add, "add", (|a, b| a + b) as fn(f64, f64) -> f64), (BinaryOp::Mul, "mul", |a, b| a * b)]
    {
        let want: Vec<f64> = xs.iter().zip(&ys).map(|(&x, &y)| of(x, y)).collect();
        check(&stream, name, &binary(&stream, op, &x, &y)?, &want, false)?;
        session.measure_beside(
            &format!("elementwise_{name}"),
            &shape,
            moved(3),
            &[peer(name, dtype, rows, &[])],
            |_| binary_into(&stream, op, &x, &y, out.view_mut()?),
        )?;
    }
    let want: Vec<f64> = xs.iter().enumerate().map(|(i, x)| x + ys[i % COLUMNS]).collect();
    check(&stream, "add a row", &binary(&stream, BinaryOp::Add, &x, &bias)?, &want, false)?;
    let beside = [peer("add", dtype, rows, &[("other", json!([COLUMNS]))])];
    session.measure_beside("elementwise_add_row", &shape, moved(2), &beside, |_| {
        binary_into(&stream, BinaryOp::Add, &x, &bias, out.view_mut()?)
    })?;
    let turned = x.view_as(&[COLUMNS, rows])?.transpose(0, 1)?;
    let beside = [peer("transpose", dtype, rows, &[("shape", json!([COLUMNS, rows]))])];
    session.measure_beside("elementwise_copy_turned", &shape, moved(2), &beside, |_| {
        copy_into(&stream, &turned, out.view_mut()?)
    })
}

/// Powers of numbers from 0 to 1.
fn bench_power(session: &mut Session, dtype: DType, bytes: usize) -> Outcome {
    let name = "elementwise_pow";
    if !session.wants_any(&[name]) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let rows = bytes / dtype.size() / COLUMNS;
    let x = unary(&stream, UnaryOp::Abs, &random(&stream, dtype, rows, 7)?)?;
    let y = random(&stream, dtype, rows, 8)?;
    let (xs, ys) = (head(&stream, &x)?, head(&stream, &y)?);
    let want: Vec<f64> = xs.iter().zip(&ys).map(|(x, &y)| x.powf(y)).collect();
    check(&stream, name, &power(&stream, &x, &y)?, &want, true)?;
    let mut out = Tensor::zeros(&stream, &[rows, COLUMNS], dtype)?;
    let (shape, moved) = (format!("{dtype} {rows}x{COLUMNS}"), Work::Bytes(3 * bytes as u64));
    session.measure_beside(name, &shape, moved, &[peer("pow", dtype, rows, &[])], |_| {
        power_into(&stream, &x, &y, out.view_mut()?)
    })
}

/// Operands that vector accesses cannot load, and comparisons.
fn bench_views(session: &mut Session, dtype: DType, bytes: usize) -> Outcome {
    let names = ["elementwise_neg_shifted", "elementwise_add_shifted", "convert_shifted"];
    let others = ["elementwise_neg_every_other", "elementwise_add_every_other", "elementwise_lt"];
    if !session.wants_any(&[names, others].concat()) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let rows = bytes / dtype.size() / COLUMNS;
    let (x, y) = (random(&stream, dtype, rows, 5)?, random(&stream, dtype, rows, 6)?);
    let shifted = |x: &Tensor| x.view_as(&[x.elements()])?.slice(0, 1..);
    let every_other = |x: &Tensor| x.slice_by(1, .., 2);
    let view = |name: &str| [("view", json!(name))];
    for (name, x, y) in
        [("shifted", shifted(&x)?, shifted(&y)?), ("every_other", every_other(&x)?, every_other(&y)?)]
    {
        let (xs, ys) = (head(&stream, &x)?, head(&stream, &y)?);
        let shape = format!("{dtype} {}", sides(&x));
        let moved = |operands: usize| Work::Bytes((operands * x.elements() * dtype.size()) as u64);
        let mut out = Tensor::zeros(&stream, x.shape(), dtype)?;
        let want: Vec<f64> = xs.iter().map(|&x| -x).collect();
        check(&stream, name, &unary(&stream, UnaryOp::Neg, &x)?, &want, true)?;
        session.measure_beside(
            &format!("elementwise_neg_{name}"),
            &shape,
            moved(2),
            &[peer("neg", dtype, rows, &view(name))],
            |_| unary_into(&stream, UnaryOp::Neg, &x, out.view_mut()?),
        )?;
        let want: Vec<f64> = xs.iter().zip(&ys).map(|(&x, &y)| x + y).collect();
        check(&stream, name, &binary(&stream, BinaryOp::Add, &x, &y)?, &want, false)?;
        session.measure_beside(
            &format!("elementwise_add_{name}"),
            &shape,
            moved(3),
            &[peer("add", dtype, rows, &view(name))],
            |_| binary_into(&stream, BinaryOp::Add, &x, &y, out.view_mut()?),
        )?;
    }
    bench_lt(session, &x, &y)?;
    let (x, to) = (shifted(&x)?, if dtype == DType::F32 { DType::BF16 } else { DType::F32 });
    let mut out = Tensor::zeros(&stream, x.shape(), to)?;
    let more = [("to", json!(peer_name(to))), ("view", json!("shifted"))];
    session.measure_beside(
        "convert_shifted",
        &format!("{dtype} to {to} {}", sides(&x)),
        Work::Bytes((x.elements() * (dtype.size() + to.size())) as u64),
        &[peer("convert", dtype, rows, &more)],
        |_| convert_into(&stream, &x, out.view_mut()?),
    )
}

fn bench_lt(session: &mut Session, x: &Tensor, y: &Tensor) -> Outcome {
    let stream = session.stream.clone();
    let (dtype, rows) = (x.dtype(), x.shape()[0]);
    let mut out = Tensor::zeros(&stream, x.shape(), DType::Bool)?;
    compare_into(&stream, CompareOp::Lt, x, y, out.view_mut()?)?;
    let want: Vec<f64> =
        head(&stream, x)?.iter().zip(head(&stream, y)?).map(|(&x, y)| f64::from(u8::from(x < y))).collect();
    compare::elementwise("lt", &head(&stream, &out)?, &want, &[want.len()], Tolerance::EXACT)?;
    session.measure_beside(
        "elementwise_lt",
        &format!("{dtype} {}", sides(x)),
        Work::Bytes((x.elements() * (2 * dtype.size() + 1)) as u64),
        &[peer("lt", dtype, rows, &[])],
        |_| compare_into(&stream, CompareOp::Lt, x, y, out.view_mut()?),
    )
}

fn bench_reduction(session: &mut Session, dtype: DType, bytes: usize) -> Outcome {
    let of_sums = ["reduction_sum_all", "reduction_sum_rows", "reduction_sum_columns"];
    let of_maxima = ["reduction_max_all", "reduction_max_rows", "reduction_max_columns"];
    if !session.wants_any(&[&of_sums[..], &of_maxima, &["reduction_argmax_rows"]].concat()) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let rows = bytes / dtype.size() / COLUMNS;
    let x = random(&stream, dtype, rows, 4)?;
    let some = x.slice(0, ..rows.min(COMPARED / COLUMNS))?;
    let host = head(&stream, &some)?;
    let (shape, work) = (format!("{dtype} {rows}x{COLUMNS}"), Work::Bytes(bytes as u64));
    for (name, axes, peer_axis) in
        [("all", &[][..], None), ("rows", &[1], Some(1)), ("columns", &[0], Some(0))]
    {
        // The oracle gets a part: all elements would take minutes.
        let sums = sums(&groups(&host, some.shape(), axes));
        let got = head(&stream, &sum(&stream, &some, axes)?)?;
        let row = if dtype == DType::F32 {
            tolerance::REDUCE_SUM.for_terms(host.len())
        } else {
            tolerance::REDUCE_SUM_BF16.tolerance()
        };
        compare::accumulated("sum", &got, &sums.value, &sums.magnitude, &[got.len()], row)?;
        let more: Vec<(&str, Value)> =
            peer_axis.map(|axis: usize| ("axis", json!(axis))).into_iter().collect();
        let beside = [peer("sum", dtype, rows, &more)];
        session.measure_beside(&format!("reduction_sum_{name}"), &shape, work, &beside, |_| {
            sum(&stream, &x, axes).map(drop)
        })?;
        let beside = [peer("amax", dtype, rows, &more)];
        session.measure_beside(&format!("reduction_max_{name}"), &shape, work, &beside, |_| {
            reduce(&stream, ReduceOp::Amax, &x, axes).map(drop)
        })?;
    }
    let beside = [peer("argmax", dtype, rows, &[("axis", json!(1))])];
    session
        .measure_beside("reduction_argmax_rows", &shape, work, &beside, |_| argmax(&stream, &x, 1).map(drop))
}

fn bench_convert(session: &mut Session, bytes: usize) -> Outcome {
    if !session.wants("convert") {
        return Ok(());
    }
    let stream = session.stream.clone();
    for (from, to) in [
        (DType::F32, DType::BF16),
        (DType::BF16, DType::F32),
        (DType::F32, DType::F16),
        (DType::BF16, DType::F8E4M3),
        (DType::F8E4M3, DType::BF16),
        (DType::F32, DType::I32),
    ] {
        let rows = bytes / from.size().max(to.size()) / COLUMNS;
        let x = random(&stream, from, rows, 3)?;
        let mut y = Tensor::zeros(&stream, &[rows, COLUMNS], to)?;
        if (from, to) == (DType::F32, DType::BF16) {
            let want: Vec<f64> =
                head(&stream, &x)?.into_iter().map(|x| oracle::SmallFloat::BF16.nearest(x)).collect();
            let got = head(&stream, &convert(&stream, &x, to)?)?;
            compare::elementwise("convert", &got, &want, &[want.len()], Tolerance::EXACT)?;
        }
        let work = Work::Bytes((x.elements() * (from.size() + to.size())) as u64);
        let beside = [peer("convert", from, rows, &[("to", json!(peer_name(to)))])];
        session.measure_beside(
            "convert",
            &format!("{from} to {to} {rows}x{COLUMNS}"),
            work,
            &beside,
            |_| convert_into(&stream, &x, y.view_mut()?),
        )?;
    }
    Ok(())
}

/// Operands of 64 MiB, and of the full size. A factor's bytes count too.
fn bench_quantize(session: &mut Session, dtype: DType, bytes: usize) -> Outcome {
    if !session.wants_any(&["quantize_tiles", "quantize_blocks"]) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let tall = 128;
    for bytes in [bytes / 8, bytes] {
        let rows = (bytes / dtype.size() / COLUMNS).max(1);
        let sets = session.rotation(bytes as u64);
        let of_sets = (0..sets as u64).map(|set| random(&stream, dtype, rows, 11 + set));
        let of_sets = of_sets.collect::<ironwarp::Result<Vec<Tensor>>>()?;
        let x = &of_sets[0];
        // The oracle gets the first rows.
        let shown = x.slice(0, ..rows.min(COMPARED / COLUMNS))?;
        let values = head(&stream, &shown)?;
        for (name, height) in [("quantize_tiles", 1), ("quantize_blocks", tall)] {
            let run = |x: &Tensor| -> ironwarp::Result<Tensor> {
                match height {
                    1 => quantize_tiles(&stream, x).map(|of| of.numbers),
                    _ => quantize_blocks(&stream, x).map(|of| of.numbers),
                }
            };
            let want = quantize(&values, [shown.shape()[0], COLUMNS], [height, tall]).numbers;
            let got = head(&stream, &convert(&stream, &run(&shown)?, DType::F32)?)?;
            compare::elementwise(name, &got, &want, &[want.len()], Tolerance::EXACT)?;
            let factors = rows.div_ceil(height) * COLUMNS / tall * DType::F32.size();
            let moved = x.elements() * (dtype.size() + DType::F8E4M3.size()) + factors;
            let beside = ["eager", "compiled"].map(|how| {
                let more = [("height", json!(height)), ("sets", json!(sets)), ("implementation", json!(how))];
                peer("quantize", dtype, rows, &more)
            });
            let shape = format!("{dtype} {rows}x{COLUMNS}");
            session.measure_beside(name, &shape, Work::Bytes(moved as u64), &beside, |turn| {
                run(&of_sets[turn % sets]).map(drop)
            })?;
        }
    }
    Ok(())
}

/// Rows of a table, every second one, in an irregular order.
fn bench_index(session: &mut Session, dtype: DType, bytes: usize) -> Outcome {
    if !session.wants_any(&["index_gather", "index_scatter", "index_scatter_add"]) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let rows = bytes / dtype.size() / COLUMNS;
    let chosen: Vec<usize> = (0..rows / 2).map(|i| i * ODD % rows).collect();
    let indices = Indices::from_slice(&stream, &chosen, rows)?;
    let mut table = random(&stream, dtype, rows, 5)?;
    let values = gather(&stream, &table, 0, &indices)?;
    // The oracle gets the rows that are compared.
    let shown = COMPARED / COLUMNS;
    let mut want = Vec::new();
    for &row in chosen.iter().take(shown) {
        want.extend(table.select(0, row)?.to_vec::<bf16>(&stream)?);
    }
    let positions: Vec<usize> = (0..want.len() / COLUMNS).collect();
    let want = reference::index::gather(&want, &[positions.len(), COLUMNS], 0, &positions);
    compare::bitwise_equal("gather", &values.slice(0, ..positions.len())?.to_vec::<bf16>(&stream)?, &want)?;

    let shape = format!("{dtype} {} of {rows}x{COLUMNS}", chosen.len());
    let moved = |times: usize| Work::Bytes((times * chosen.len() * COLUMNS * dtype.size()) as u64);
    let more = [("indices", json!(chosen.len()))];
    session.measure_beside(
        "index_gather",
        &shape,
        moved(2),
        &[peer("gather", dtype, rows, &more)],
        |_| gather(&stream, &table, 0, &indices).map(drop),
    )?;
    session.measure_beside(
        "index_scatter",
        &shape,
        moved(2),
        &[peer("scatter", dtype, rows, &more)],
        |_| scatter(&stream, table.view_mut()?, 0, &indices, &values),
    )?;
    let mut wide = convert(&stream, &table, DType::F32)?;
    let values = convert(&stream, &values, DType::F32)?;
    let shape = format!("f32 {} of {rows}x{COLUMNS}", chosen.len());
    let work = Work::Bytes((3 * chosen.len() * COLUMNS * DType::F32.size()) as u64);
    session.measure_beside(
        "index_scatter_add",
        &shape,
        work,
        &[peer("scatter_add", DType::F32, rows, &more)],
        |_| scatter_add(&stream, wide.view_mut()?, 0, &indices, &values),
    )
}

/// The gradient of GPT-2's embedding, of even tokens and of ones with frequencies like those of words.
fn bench_embedding(session: &mut Session, dtype: DType) -> Outcome {
    if !session.wants("embedding_backward") {
        return Ok(());
    }
    let stream = session.stream.clone();
    let (tokens, rows, width) = if session.small() { (256, 100, 64) } else { (32_768, 50_304, 768) };
    let gradient = uniform(&stream, &[tokens, width], -1.0, 1.0, 9)?;
    let gradient = if dtype == DType::F32 { gradient } else { convert(&stream, &gradient, dtype)? };
    let mut random = testkit::Random::new(10);
    for zipf in [false, true] {
        // By Zipf's law a word's frequency goes with one over its rank: ranks are even in their logarithm.
        let token = |unit: f64| {
            if zipf { (rows as f64).powf(unit) as usize - 1 } else { (rows as f64 * unit) as usize }
        };
        let chosen: Vec<usize> = (0..tokens).map(|_| token(random.unit()).min(rows - 1)).collect();
        let indices = Indices::from_slice(&stream, &chosen, rows)?;
        // The oracle gets the columns that are compared.
        let columns = 4;
        let some = gradient.slice(1, ..columns)?;
        let values: Vec<f64> = match dtype {
            DType::BF16 => some.to_vec::<bf16>(&stream)?.into_iter().map(f64::from).collect(),
            _ => some.to_vec::<f32>(&stream)?.into_iter().map(f64::from).collect(),
        };
        let zeros = vec![0.0; rows * columns];
        let want = reference::index::scatter_add(&zeros, &[rows, columns], 0, &chosen, &values);
        let got = embedding_backward(&stream, &gradient, &indices, rows)?.slice(1, ..columns)?;
        let got = convert(&stream, &got, DType::F32)?.to_vec::<f32>(&stream)?;
        let limit = match dtype {
            DType::BF16 => tolerance::REDUCE_SUM_BF16.tolerance(),
            _ => tolerance::SCATTER_ADD.for_terms(tokens),
        };
        compare::accumulated("embedding", &got, &want.value, &want.magnitude, &[rows, columns], limit)?;
        let law = if zipf { "Zipf" } else { "even" };
        let request = json!({
            "prepare": "basic.embedding_backward", "dtype": peer_name(dtype), "shape": [tokens, width], "rows": rows, "zipf": zipf,
        });
        session.measure_beside(
            "embedding_backward",
            &format!("{dtype} {tokens}x{width} to {rows} rows, {law}"),
            Work::Bytes(((tokens + rows) * width * dtype.size()) as u64),
            &[request],
            |_| embedding_backward(&stream, &gradient, &indices, rows).map(drop),
        )?;
    }
    Ok(())
}

fn bench_dropout(session: &mut Session, dtype: DType, bytes: usize) -> Outcome {
    if !session.wants("dropout") {
        return Ok(());
    }
    let stream = session.stream.clone();
    let rows = bytes / dtype.size() / COLUMNS;
    let x = random(&stream, dtype, rows, 11)?;
    let generator = Generator::new(&stream, 12)?;
    let want = reference::random::dropout(&head(&stream, &x)?, 0.125, 12, 0, 0);
    check(&stream, "dropout", &dropout(&stream, &x, 0.125, &generator, 0)?, &want, true)?;
    session.measure_beside(
        "dropout",
        &format!("{dtype} {rows}x{COLUMNS}"),
        Work::Bytes(2 * (x.elements() * dtype.size()) as u64),
        &[peer("dropout", dtype, rows, &[])],
        |_| dropout(&stream, &x, 0.125, &generator, 0).map(drop),
    )
}

/// Heads of 128 columns, as Llama's turn; of queries and keys of a layer. The gradient turns them back.
fn bench_rotary(session: &mut Session, dtype: DType, bytes: usize) -> Outcome {
    const HEADS: [usize; 2] = [32, 128];
    let names = ["rotary", "rotary_backward"];
    if !session.wants_any(&names) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let rows = bytes / dtype.size() / HEADS.iter().product::<usize>();
    let x = random(&stream, dtype, rows, 13)?.view_as(&[rows, HEADS[0], HEADS[1]])?;
    let tables = RotaryTables::new(&stream, rows, HEADS[1], 1e4)?;
    let (pairs, first) = (HEADS[1] / 2, head(&stream, &x)?);
    for (name, sign, of) in
        [(names[0], 1.0, rotary as fn(&_, &_, _, _) -> _), (names[1], -1.0, rotary_backward)]
    {
        let turned = || of(&stream, &x, tables.halves()?, Positions::From(0));
        let want = first.chunks(HEADS[1]).enumerate().flat_map(|(number, head)| {
            let angle = |i| sign * reference::rotary::angle(number / HEADS[0], i, pairs, 1e4);
            let (sines, cosines): (Vec<f64>, Vec<f64>) = (0..pairs).map(angle).map(f64::sin_cos).unzip();
            reference::rotary::rotary(head, &cosines, &sines, false)
        });
        check_rotated(&stream, &turned()?, &want.collect::<Vec<_>>())?;
        let prepare = format!("basic.{name}");
        session.measure_beside(
            name,
            &format!("{dtype} {rows}x{}x{}", HEADS[0], HEADS[1]),
            Work::Bytes(2 * (x.elements() * dtype.size()) as u64),
            &[json!({ "prepare": prepare, "dtype": peer_name(dtype), "shape": x.shape().sides() })],
            |_| turned().map(drop),
        )?;
    }
    Ok(())
}

/// Columns of a head cancel each other, so a head's largest element is the scale: 1.
fn check_rotated(stream: &Stream, got: &Tensor, want: &[f64]) -> Outcome {
    let short = got.dtype() == DType::BF16;
    let limit = if short { tolerance::ROTARY_BF16 } else { tolerance::ROTARY_F32 };
    let scales = vec![1.0; want.len()];
    compare::accumulated("rotary", &head(stream, got)?, want, &scales, &[want.len()], limit.tolerance())?;
    Ok(())
}

fn bench_fill(session: &mut Session, bytes: usize) -> Outcome {
    if !session.wants_any(&["fill", "fill_arange", "fill_uniform"]) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let rows = bytes / DType::F32.size() / COLUMNS;
    let mut y = Tensor::zeros(&stream, &[rows, COLUMNS], DType::F32)?;
    let shape = format!("f32 {rows}x{COLUMNS}");
    let work = Work::Bytes(bytes as u64);
    session.measure_beside("fill", &shape, work, &[peer("fill", DType::F32, rows, &[])], |_| {
        fill(&stream, y.view_mut()?, 1.0f32)
    })?;
    let beside = [peer("arange", DType::F32, rows, &[])];
    session.measure_beside("fill_arange", &shape, work, &beside, |_| {
        arange(&stream, 0.0, 1.0, rows * COLUMNS, DType::F32).map(drop)
    })?;
    let beside = [peer("uniform", DType::F32, rows, &[])];
    session.measure_beside("fill_uniform", &shape, work, &beside, |_| {
        uniform(&stream, &[rows, COLUMNS], 0.0, 1.0, 1).map(drop)
    })
}
