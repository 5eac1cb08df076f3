//! Score functions against the oracle of `reference`, with and without lists of blocks.

use crate::attention_case::{Case, Number, Outcome, PLAIN, Setup, device, is_hopper};
use half::{bf16, f16};
use ironwarp::ops::attention::{Attention, Own};
use ironwarp::{DeviceBuffer, Result as Done, Stream};

/// A multiple of no tile, over several of each.
const ODD: Case = Case { batch: 2, queries: 130, keys: 263, heads: 2, kv_heads: 1, ..PLAIN };

/// Runs what `run` makes of the case's attention, and compares it with the oracle's.
fn check<T: Number>(
    case: Case,
    modify: impl Fn(f64, [usize; 4]) -> Option<f64> + Sync,
    run: impl Fn(&Stream, Attention<'_>) -> Done<()>,
) -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::<T>::new(&case, &stream)?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    run(&stream, setup.attention(&mut out, &mut logarithms)?)?;
    let (out, logarithms) = (out.to_vec(&stream)?, logarithms.to_vec(&stream)?);
    setup.compare(&setup.oracle_with(modify), &out, &logarithms, &format!("{case:?}"))
}

/// Head sizes of all kernels, with and without a causal mask, and packed sequences if the function allows
/// them.
fn cases(with_packed: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [40, 64, 128, 256] {
        for right in [None, Some(0)] {
            cases.push(Case { size, right, ..ODD });
        }
    }
    if with_packed {
        cases.push(Case {
            packed: Some(&[[70, 70], [1, 130], [0, 5], [3, 0], [65, 140]]),
            heads: 2,
            ..PLAIN
        });
    }
    cases
}

const SLOPES: [f32; 2] = [0.25, 0.0625];

/// The key less the one on the diagonal that ends in the last query and key.
fn distance(case: &Case, query: usize, key: usize) -> f64 {
    key as f64 - query as f64 - (case.keys as f64 - case.queries as f64)
}

#[test]
fn alibi() -> Outcome {
    for case in cases(false) {
        check::<bf16>(
            case,
            |score, [_, head, query, key]| {
                Some(score - f64::from(SLOPES[head]) * distance(&case, query, key).abs())
            },
            |stream, attention| {
                let slopes = DeviceBuffer::from_slice(stream, &SLOPES)?;
                attention.alibi(&slopes)?.run(stream)
            },
        )?;
    }
    Ok(())
}

#[test]
fn soft_cap() -> Outcome {
    for case in cases(true) {
        // Scores up to the cap and beyond.
        let case = Case { scale: Some(2.0), ..case };
        check::<f16>(
            case,
            |score, _| Some(15.0 * (score / 15.0).tanh()),
            |stream, attention| attention.soft_cap(15.0)?.run(stream),
        )?;
    }
    Ok(())
}

#[test]
fn biases() -> Outcome {
    let shared = [(1, 1), (2, 1), (1, 2), (2, 2)];
    for (case, (batch, heads)) in cases(false).into_iter().zip(shared.into_iter().cycle()) {
        let number = |place: usize| ((place * 37 % 101) as f32 - 50.0) / 25.0;
        let all = batch * heads * case.queries * case.keys;
        let bias: Vec<f32> = (0..all).map(number).collect();
        check::<bf16>(
            case,
            |score, [sequence, head, query, key]| {
                let matrix = sequence % batch * heads + head % heads;
                Some(score + f64::from(number((matrix * case.queries + query) * case.keys + key)))
            },
            |stream, attention| {
                let bias = DeviceBuffer::from_slice(stream, &bias)?;
                attention.bias(&bias, [batch, heads, case.queries, case.keys])?.run(stream)
            },
        )?;
    }
    Ok(())
}

/// Documents of uneven lengths; a query of the first two sees the first three keys as well. The last rows see
/// nothing.
fn ranges(case: &Case, sequence: usize) -> Vec<[u32; 4]> {
    let ends = [0, 3, 60, 61, 140, case.keys - 1];
    (0..case.queries)
        .map(|query| {
            let document = (query / 25 + sequence).min(ends.len() - 1);
            let Some(&end) = ends.get(document + 1) else { return [5, 5, 9, 2] };
            let first = if document < 2 { 3 } else { 0 };
            [ends[document] as u32, end as u32, 0, first]
        })
        .collect()
}

fn sees(ranges: &[[u32; 4]], query: usize, key: usize) -> bool {
    let [a, b, c, d] = ranges[query].map(|end| end as usize);
    (a..b).contains(&key) || (c..d).contains(&key)
}

#[test]
fn ranges_of_keys() -> Outcome {
    for case in cases(false) {
        for with_blocks in [false, true] {
            for sequences in [1, case.batch] {
                let all: Vec<_> = (0..sequences).map(|sequence| ranges(&case, sequence)).collect();
                check::<f16>(
                    case,
                    |score, [sequence, _, query, key]| {
                        sees(&all[sequence % sequences], query, key).then_some(score)
                    },
                    |stream, attention| {
                        let data = DeviceBuffer::from_slice(stream, &all.concat())?;
                        let modified = attention.ranges(&data)?;
                        if !with_blocks {
                            return modified.run(stream);
                        }
                        let own = Own { sequences: sequences > 1, heads: false };
                        let blocks = modified.block_mask(stream, own)?;
                        modified.blocks(&blocks).run(stream)
                    },
                )?;
            }
        }
    }
    Ok(())
}
