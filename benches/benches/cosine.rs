//! Cosine similarity with top-k, with a device-to-device copy in the same run.
//!
//! The corpus is 4 million f16 vectors of 768 elements. A hash generates them in parallel, so the check can
//! regenerate any row and the host need not keep 6 GB. Vectors have different lengths, like embeddings that
//! were not normalised.

use std::process::ExitCode;

use half::f16;
use ironwarp::ops::cosine::{Corpus, Hit, Vectors, cosine_topk};
use ironwarp::{DeviceBuffer, Stream};
use ironwarp_benches::{Outcome, Session, Work};
use rayon::prelude::*;
use serde_json::json;
use testkit::{Random, tolerance};

const DIM: usize = 768;
const K: usize = 10;
/// Seeds of the corpus and of the queries.
const CORPUS: u64 = 1;
const QUERIES: u64 = 2;
/// Rows generated and copied to the device in one step.
const CHUNK: usize = 1 << 15;
/// Random rows that must not beat the results, and the number of queries that are checked.
const WITNESSES: usize = 10_000;
const CHECKED_QUERIES: usize = 8;

fn main() -> ExitCode {
    Session::run("cosine", |session| {
        let (rows, counts): (usize, &[usize]) =
            if session.small() { (5_000, &[1, 20]) } else { (4_000_000, &[1, 8, 16, 64, 128, 1024]) };
        bench_copy(session)?;
        let stream = session.stream.clone();
        let data = upload(&stream, CORPUS, rows)?;
        let queries = upload(&stream, QUERIES, counts.iter().copied().max().unwrap_or(1))?;
        let corpus = Vectors::new(&data, DIM)?;
        for &count in counts {
            let queries = Vectors::new(queries.slice(..count * DIM)?, DIM)?;
            bench_search(session, corpus, queries)?;
        }
        bench_norms(session, corpus)
    })
}

fn bench_copy(session: &mut Session) -> Outcome {
    let stream = session.stream.clone();
    let len: usize = if session.small() { 1 << 20 } else { 1 << 31 };
    let from = DeviceBuffer::from_slice(&stream, &pattern(len))?;
    let mut to = DeviceBuffer::<u32>::zeroed(&stream, from.len())?;
    let bytes = 2 * len as u64;
    session.measure("copy", &format!("{len} B"), Work::Bytes(bytes), |_| to.copy_from_device(&stream, &from))
}

/// `bytes` bytes with varying values.
fn pattern(bytes: usize) -> Vec<u32> {
    (0..bytes as u32 / 4).into_par_iter().map(|i| i.wrapping_mul(0x9e37_79b9)).collect()
}

/// One row. Equal arguments give equal rows: about normal, times a random length.
fn row(seed: u64, index: usize) -> impl Iterator<Item = f16> {
    let mut random = Random::new(seed << 40 ^ index as u64);
    let length = 0.5 + random.unit() as f32;
    std::iter::repeat_with(move || {
        // The sum of four uniform numbers from one draw.
        let bits = random.bits();
        let sum: i32 = (0..4).map(|part| (bits >> (16 * part)) as u16 as i16 as i32).sum();
        f16::from_f32(sum as f32 / f32::from(i16::MAX) * length)
    })
    .take(DIM)
}

fn upload(stream: &Stream, seed: u64, rows: usize) -> Outcome<DeviceBuffer<f16>> {
    let mut buffer = DeviceBuffer::zeroed(stream, rows * DIM)?;
    let mut host = vec![f16::ZERO; rows.min(CHUNK) * DIM];
    for first in (0..rows).step_by(CHUNK) {
        let count = CHUNK.min(rows - first);
        host[..count * DIM].par_chunks_exact_mut(DIM).enumerate().for_each(|(i, out)| {
            out.iter_mut().zip(row(seed, first + i)).for_each(|(out, value)| *out = value);
        });
        let mut part = buffer.slice_mut(first * DIM..(first + count) * DIM)?;
        part.copy_from_slice(stream, &host[..count * DIM])?;
    }
    Ok(buffer)
}

fn bench_search(session: &mut Session, corpus: Vectors<'_, f16>, queries: Vectors<'_, f16>) -> Outcome {
    let stream = session.stream.clone();
    let (rows, count) = (corpus.count(), queries.count());
    let shape = format!("{count}x{rows}x{DIM} k{K}");
    let flops = 2 * (count * rows) as u64 * DIM as u64;
    // Up to 16 queries cost one read of the corpus. More queries are limited by arithmetic.
    let work =
        if count <= 16 { Work::Bytes((rows * DIM * size_of::<f16>()) as u64) } else { Work::Flops(flops) };
    let torch = |op: &str| {
        [json!({ "prepare": format!("search.{op}"), "queries": count, "rows": rows, "dim": DIM, "top": K })]
    };
    if session.wants("cosine_topk") {
        check(&cosine_topk(&stream, corpus, queries, K)?.to_host(&stream)?, rows)?;
        session.measure_beside("cosine_topk", &shape, work, &torch("topk"), |_| {
            cosine_topk(&stream, corpus, queries, K).map(drop)
        })?;
    }
    if session.wants("cosine_prepared") && count > 16 {
        let prepared = Corpus::prepare(&stream, corpus)?;
        check(&prepared.topk(&stream, queries, K)?.to_host(&stream)?, rows)?;
        session.measure_beside("cosine_prepared", &shape, work, &torch("prepared"), |_| {
            prepared.topk(&stream, queries, K).map(drop)
        })?;
    }
    Ok(())
}

fn bench_norms(session: &mut Session, corpus: Vectors<'_, f16>) -> Outcome {
    if !session.wants("cosine_norms") {
        return Ok(());
    }
    let stream = session.stream.clone();
    let work = Work::Bytes((corpus.count() * DIM * size_of::<f16>()) as u64);
    session.measure("cosine_norms", &format!("{}x{DIM}", corpus.count()), work, |_| {
        Corpus::prepare(&stream, corpus).map(drop)
    })
}

/// Checks some of the queries: every hit has the score that it reports, the order is right, and none of many
/// rows beats the last hit.
fn check(found: &[Vec<Hit>], rows: usize) -> Outcome {
    let allowed = tolerance::COSINE_SCORE.for_terms(DIM).allowed(1.0);
    let step = found.len().div_ceil(CHECKED_QUERIES).max(1);
    for (query, hits) in found.iter().enumerate().step_by(step) {
        let vector: Vec<f16> = row(QUERIES, query).collect();
        let exact = |index: usize| {
            let row: Vec<f16> = row(CORPUS, index).collect();
            reference::cosine::score(&row, &vector)
        };
        if hits.len() != K || !hits.is_sorted_by(|a, b| (b.score, a.index) <= (a.score, b.index)) {
            return Err(format!("query {query}: {hits:?} is not a ranking of {K}").into());
        }
        for hit in hits {
            let want = exact(hit.index as usize);
            if (want - f64::from(hit.score)).abs() > allowed {
                return Err(format!("query {query}: {hit:?}, but the row scores {want}").into());
            }
        }
        let last = f64::from(hits[K - 1].score);
        let mut random = Random::new(query as u64);
        let witnesses: Vec<usize> =
            (0..WITNESSES).map(|_| random.integer(0, rows as i64 - 1) as usize).collect();
        let better = witnesses.into_par_iter().find_any(|&index| {
            hits.iter().all(|hit| hit.index as usize != index) && exact(index) > last + allowed
        });
        if let Some(index) = better {
            return Err(
                format!("query {query}: row {index} scores {}, the last hit {last}", exact(index)).into()
            );
        }
    }
    Ok(())
}
