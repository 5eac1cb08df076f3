//! Score functions against the oracle of `reference`, with and without lists of blocks.

use crate::attention_case::{Case, Number, Outcome, PLAIN, Setup, about, device, is_hopper};
use conformance::hopper::score::LocalArgs;
use half::{bf16, f16};
use ironwarp::ops::attention::{Attention, Own, Statistics};
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

/// Steep ones, and a scale with which nothing counts but the distance.
#[test]
fn alibi_alone() -> Outcome {
    let slopes = [8.0f32, 0.25];
    for case in [Case { scale: Some(1e-25), ..ODD }, Case { size: 128, ..ODD }] {
        check::<bf16>(
            case,
            |score, [_, head, query, key]| {
                Some(score - f64::from(slopes[head]) * distance(&case, query, key).abs())
            },
            |stream, attention| {
                let slopes = DeviceBuffer::from_slice(stream, &slopes)?;
                attention.alibi(&slopes)?.run(stream)
            },
        )?;
    }
    Ok(())
}

/// The largest of a row's scores is searched for in another way where all are negative.
#[test]
fn scores_below_zero() -> Outcome {
    for case in cases(false) {
        let number = |place: usize| -1000.0 - (place * 37 % 101) as f32 * 5.0;
        let bias: Vec<f32> = (0..case.queries * case.keys).map(number).collect();
        check::<bf16>(
            case,
            |score, [_, _, query, key]| Some(score + f64::from(number(query * case.keys + key))),
            |stream, attention| {
                let bias = DeviceBuffer::from_slice(stream, &bias)?;
                attention.bias(&bias, [1, 1, case.queries, case.keys])?.run(stream)
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

/// A number for each distance, from `1 - queries` to `keys - 1`.
#[test]
fn relative_biases() -> Outcome {
    let more = Case { queries: 263, keys: 70, heads: 2, size: 64, ..PLAIN };
    let cases =
        [Case { size: 64, ..ODD }, Case { right: Some(0), ..ODD }, Case { top_left: true, ..more }, ODD];
    for (case, (batch, heads)) in cases.into_iter().zip([(1, 1), (2, 1), (1, 2), (2, 2)]) {
        let of_head = case.queries + case.keys - 1;
        let number = |place: usize| ((place * 37 % 101) as f32 - 50.0) / 25.0;
        let table: Vec<f32> = (0..batch * heads * of_head).map(number).collect();
        check::<bf16>(
            case,
            |score, [sequence, head, query, key]| {
                let matrix = sequence % batch * heads + head % heads;
                Some(score + f64::from(number(matrix * of_head + key + case.queries - 1 - query)))
            },
            |stream, attention| {
                let table = DeviceBuffer::from_slice(stream, &table)?;
                attention.relative_bias(&table, [batch, heads, of_head])?.run(stream)
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

/// Tables for all heads, and for each; blocks that are no multiple of a tile.
#[test]
fn block_sparse_layouts() -> Outcome {
    for (at, case) in cases(false).into_iter().enumerate() {
        let (heads, block) = ([1, 2][at % 2], [16, 128, 256][at % 3]);
        let [rows, columns] = [case.queries, case.keys].map(|positions: usize| positions.div_ceil(block));
        let shows = move |head: usize, row: usize, column: usize| (head % heads + row + 2 * column) % 3 != 1;
        let layout: Vec<u8> = (0..heads * rows * columns)
            .map(|place| shows(place / (rows * columns), place / columns % rows, place % columns).into())
            .collect();
        for with_blocks in [false, true] {
            check::<bf16>(
                case,
                |score, [_, head, query, key]| shows(head, query / block, key / block).then_some(score),
                |stream, attention| {
                    let layout = DeviceBuffer::from_slice(stream, &layout)?;
                    let modified = attention.block_sparse(&layout, block as u32)?;
                    if !with_blocks {
                        return modified.run(stream);
                    }
                    let blocks = modified.block_mask(stream, Own { heads: heads > 1, sequences: false })?;
                    modified.blocks(&blocks).run(stream)
                },
            )?;
        }
    }
    Ok(())
}

/// A function of another package.
#[test]
fn functions_of_other_packages() -> Outcome {
    let (slope, block, step) = (0.125, 50, 3);
    let of_two_sizes = Case { size: 192, value_size: Some(128), ..ODD };
    for case in [Case { size: 64, ..ODD }, Case { size: 128, right: Some(0), ..ODD }, of_two_sizes] {
        for with_blocks in [false, true] {
            check::<bf16>(
                case,
                |score, [_, _, query, key]| {
                    let sees = query / 50 == key / 50 && (query + key) % 3 == 0;
                    sees.then(|| score - f64::from(slope) * distance(&case, query, key).abs())
                },
                |stream, attention| {
                    let function = LocalArgs { slope, block, step }.pass();
                    // SAFETY: it reads no memory.
                    let modified = unsafe { attention.function(function) };
                    if !with_blocks {
                        return modified.run(stream);
                    }
                    let blocks = modified.block_mask(stream, Own::default())?;
                    modified.blocks(&blocks).run(stream)
                },
            )?;
        }
    }
    Ok(())
}

/// The error says what the function's kernels hold.
#[test]
fn rows_and_types_without_a_kernel() -> Outcome {
    fn refused<T: Number>(case: Case, says: &str) -> Outcome {
        let stream = device()?.stream()?;
        let setup = Setup::<T>::new(&case, &stream)?;
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        let attention = setup.attention(&mut out, &mut logarithms)?;
        // SAFETY: it reads no memory.
        let modified = unsafe { attention.function(LocalArgs { slope: 1.0, block: 50, step: 3 }.pass()) };
        let error = modified.run(&stream).expect_err("no kernel");
        assert_eq!(about(&error), "the problem");
        let text = error.to_string();
        assert!(text.contains(says) && text.contains("score_kernels!"), "{text}");
        Ok(())
    }
    if !is_hopper()? {
        return Ok(());
    }
    let sizes = "a head size of up to 192, and values of up to 128";
    refused::<bf16>(Case { size: 256, ..PLAIN }, sizes)?;
    refused::<bf16>(Case { size: 64, value_size: Some(136), ..PLAIN }, sizes)?;
    refused::<f16>(PLAIN, "a kernel of f16")
}

#[test]
fn blocks_are_counted() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    // Blocks of 128 by 128: a document of 128 keys, one of 200, and one to the end, without the diagonal.
    let case = Case { queries: 400, keys: 400, size: 128, ..PLAIN };
    let setup = Setup::<bf16>::new(&case, &stream)?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    let ends = |query: usize| match query {
        0..128 => [0, 128, 0, 0],
        128..328 => [128, 328, 0, 0],
        _ => [328, 400, 0, 0],
    };
    let data: Vec<[u32; 4]> = (0..400).map(ends).collect();
    let data = DeviceBuffer::from_slice(&stream, &data)?;
    let modified = setup.attention(&mut out, &mut logarithms)?.ranges(&data)?;
    let statistics = modified.block_mask(&stream, Own::default())?.statistics(&stream)?;
    // Tiles see blocks 0; 1, 2; 1, 2, 3; 2, 3. Block 0, and 1 of the second tile, are whole; so would the
    // last one be, but for the keys that there are not.
    assert_eq!(statistics, Statistics { blocks: 16, computed: 8, partial: 6 });
    assert_eq!(statistics.share(), 0.5);
    Ok(())
}

#[test]
fn wrong_arguments() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::<bf16>::new(&Case { queries: 3, keys: 5, heads: 2, kv_heads: 1, ..PLAIN }, &stream)?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    let numbers = DeviceBuffer::<f32>::zeroed(&stream, 31)?;
    let ranges = DeviceBuffer::<[u32; 4]>::zeroed(&stream, 4)?;
    let mut refused = |call: &dyn Fn(Attention<'_>) -> Done<()>, words: &[&str]| -> Outcome {
        let error = call(setup.attention(&mut out, &mut logarithms)?).err().ok_or("no error")?;
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "no {word:?} in: {text}");
        }
        Ok(())
    };
    refused(&|attention| attention.alibi(&numbers).map(drop), &["the slopes", "2", "31"])?;
    for cap in [0.0, -1.0, f32::INFINITY, f32::NAN, 1e-45] {
        refused(&|attention| attention.soft_cap(cap).map(drop), &["the cap", "positive finite"])?;
    }
    refused(&|attention| attention.bias(&numbers, [1, 1, 3, 5]).map(drop), &["the bias", "15", "31"])?;
    refused(
        &|attention| attention.bias(&numbers, [1, 3, 3, 5]).map(drop),
        &["[1, 3, 3, 5]", "[1 or 1, 2 or 1, 3, 5]"],
    )?;
    for sides in [[1, 1, 8], [1, 1, 6], [1, 3, 7], [2, 1, 7], [0, 1, 7]] {
        let got = format!("{sides:?}");
        refused(
            &|attention| attention.relative_bias(&numbers, sides).map(drop),
            &["the bias", &got, "[1 or 1, 2 or 1, 7]"],
        )?;
    }
    refused(&|attention| attention.relative_bias(&numbers, [1, 2, 7]).map(drop), &["the bias", "14", "31"])?;
    refused(&|attention| attention.ranges(&ranges).map(drop), &["the ranges", "3", "4"])?;
    let layout = DeviceBuffer::<u8>::zeroed(&stream, 5)?;
    refused(&|attention| attention.block_sparse(&layout, 2).map(drop), &["the layout", "6", "5"])?;
    refused(&|attention| attention.block_sparse(&layout, 0).map(drop), &["the block", "a power of two"])?;
    Ok(())
}

#[test]
fn blocks_of_another_problem() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let data = DeviceBuffer::<[u32; 4]>::zeroed(&stream, 70)?;
    let case = Case { queries: 70, keys: 90, ..PLAIN };
    let of = |case: Case| -> Outcome<_> {
        let setup = Setup::<bf16>::new(&case, &stream)?;
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        Ok(setup.attention(&mut out, &mut logarithms)?.ranges(&data)?.block_mask(&stream, Own::default())?)
    };
    let setup = Setup::<bf16>::new(&case, &stream)?;
    for other in [Case { keys: 91, ..case }, Case { right: Some(0), ..case }, Case { size: 256, ..case }] {
        let blocks = of(other)?;
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        let modified = setup.attention(&mut out, &mut logarithms)?.ranges(&data)?;
        let error = modified.blocks(&blocks).run(&stream).err().ok_or("no error")?;
        assert!(error.to_string().contains("the blocks"), "{error}");
    }
    Ok(())
}

/// A row without keys, one whose scores are no numbers, and one with infinite ones, each alone.
#[test]
fn strange_rows_stay_alone() -> Outcome {
    let case = Case { queries: 130, keys: 70, size: 128, ..PLAIN };
    let strange = |query: usize| match query {
        5 => f32::NAN,
        64 => f32::NEG_INFINITY,
        _ => 0.25,
    };
    let bias: Vec<f32> = (0..130 * 70).map(|place| strange(place / 70)).collect();
    check::<bf16>(
        case,
        |score, [_, _, query, _]| match query {
            64 => None,
            _ => Some(score + f64::from(strange(query))),
        },
        |stream, attention| {
            let bias = DeviceBuffer::from_slice(stream, &bias)?;
            attention.bias(&bias, [1, 1, 130, 70])?.run(stream)
        },
    )
}
