//! Gradients of attention with a score function, against the oracle of `reference`, which takes the
//! derivatives of functions as differences.

use crate::attention_case::{Number, Outcome, is_hopper};
use crate::ops_attention_backward::{Case, PLAIN, forward};
use conformance::hopper::score::LocalArgs;
use half::{bf16, f16};
use ironwarp::DeviceBuffer;
use ironwarp::ops::attention::{Own, Statistics};
use reference::attention::Sides;

/// A multiple of no tile, over several of each; two heads of queries for one of keys.
const ODD: Case =
    Case { sides: Sides { batch: 2, queries: 130, keys: 263, heads: 2, kv_heads: 1, size: 64 }, ..PLAIN };

/// All kernels, with heads as long as their rows and shorter, with and without a causal mask.
fn cases() -> impl Iterator<Item = Case> {
    [(64, None), (40, Some(0)), (128, Some(0)), (104, None), (200, Some(0))]
        .into_iter()
        .map(|(size, right)| Case { sides: Sides { size, ..ODD.sides }, right, ..ODD })
}

/// The key less the one on the diagonal that ends in the last query and key.
fn distance(case: &Case, query: usize, key: usize) -> f64 {
    key as f64 - query as f64 - (case.sides.keys as f64 - case.sides.queries as f64)
}

const SLOPES: [f32; 2] = [0.25, 0.0625];

#[test]
fn alibi() -> Outcome {
    for case in cases() {
        case.check_with::<bf16>(
            |score, [_, head, query, key]| {
                Some(score - f64::from(SLOPES[head]) * distance(&case, query, key).abs())
            },
            |stream, attention| {
                let slopes = DeviceBuffer::from_slice(stream, &SLOPES)?;
                attention.alibi(&slopes)?.run(stream)
            },
            |stream, backward| {
                let slopes = DeviceBuffer::from_slice(stream, &SLOPES)?;
                backward.alibi(&slopes)?.run(stream)
            },
        )?;
    }
    Ok(())
}

/// Scores up to the cap and beyond, where the derivative falls from 1 to nearly 0.
fn soft_caps<T: Number + PartialEq>() -> Outcome {
    let cap = 1.5;
    for case in cases() {
        Case { scale: Some(0.25), ..case }.check_with::<T>(
            |score, _| Some(cap * (score / cap).tanh()),
            |stream, attention| attention.soft_cap(cap as f32)?.run(stream),
            |stream, backward| backward.soft_cap(cap as f32)?.run(stream),
        )?;
    }
    Ok(())
}

#[test]
fn soft_cap() -> Outcome {
    soft_caps::<f16>()?;
    soft_caps::<bf16>()
}

/// With a row of minus infinity, which sees nothing.
#[test]
fn biases() -> Outcome {
    let shared = [(1, 1), (2, 1), (1, 2), (2, 2)];
    for (case, (batch, heads)) in cases().zip(shared.into_iter().cycle()) {
        let Sides { queries, keys, .. } = case.sides;
        let number = |place: usize| match place / keys % queries {
            64 => f32::NEG_INFINITY,
            _ => ((place * 37 % 101) as f32 - 50.0) / 25.0,
        };
        let bias: Vec<f32> = (0..batch * heads * queries * keys).map(number).collect();
        let sides = [batch, heads, queries, keys];
        case.check_with::<f16>(
            |score, [sequence, head, query, key]| {
                let matrix = sequence % batch * heads + head % heads;
                let bias = number((matrix * queries + query) * keys + key);
                bias.is_finite().then(|| score + f64::from(bias))
            },
            |stream, attention| attention.bias(&DeviceBuffer::from_slice(stream, &bias)?, sides)?.run(stream),
            |stream, backward| backward.bias(&DeviceBuffer::from_slice(stream, &bias)?, sides)?.run(stream),
        )?;
    }
    Ok(())
}

/// A number for each distance, from `1 - queries` to `keys - 1`; some distances are not seen.
#[test]
fn relative_biases() -> Outcome {
    for (case, (batch, heads)) in cases().take(2).zip([(2, 2), (1, 2)]) {
        let Sides { queries, keys, .. } = case.sides;
        let of_head = queries + keys - 1;
        let number = |place: usize| match place % 19 {
            3 => f32::NEG_INFINITY,
            _ => ((place * 37 % 101) as f32 - 50.0) / 25.0,
        };
        let table: Vec<f32> = (0..batch * heads * of_head).map(number).collect();
        let sides = [batch, heads, of_head];
        let upload = |stream: &_| DeviceBuffer::from_slice(stream, &table);
        case.check_with::<bf16>(
            |score, [sequence, head, query, key]| {
                let matrix = sequence % batch * heads + head % heads;
                let bias = number(matrix * of_head + key + queries - 1 - query);
                bias.is_finite().then(|| score + f64::from(bias))
            },
            |stream, attention| attention.relative_bias(&upload(stream)?, sides)?.run(stream),
            |stream, backward| backward.relative_bias(&upload(stream)?, sides)?.run(stream),
        )?;
    }
    Ok(())
}

/// Documents of 60 keys, of which a query of the first sees three of the second too. The last rows see
/// nothing. With lists of blocks, and without.
#[test]
fn ranges_of_keys() -> Outcome {
    for (case, with_blocks) in cases().flat_map(|case| [(case, false), (case, true)]) {
        let Sides { queries, keys, .. } = case.sides;
        let of = |query: usize| match query / 25 {
            0 => [0, 60, 100, 103],
            4.. => [5, 5, 9, 2],
            document => [60 * document as u32, (60 * document as u32 + 60).min(keys as u32), 0, 0],
        };
        let ranges: Vec<[u32; 4]> = (0..queries).map(of).collect();
        case.check_with::<bf16>(
            |score, [_, _, query, key]| {
                let [a, b, c, d] = of(query).map(|end| end as usize);
                ((a..b).contains(&key) || (c..d).contains(&key)).then_some(score)
            },
            |stream, attention| attention.ranges(&DeviceBuffer::from_slice(stream, &ranges)?)?.run(stream),
            |stream, backward| {
                let ranges = DeviceBuffer::from_slice(stream, &ranges)?;
                let modified = backward.ranges(&ranges)?;
                if !with_blocks {
                    return modified.run(stream);
                }
                let blocks = modified.block_mask(stream, Own::default())?;
                modified.blocks(&blocks).run(stream)
            },
        )?;
    }
    Ok(())
}

/// Layouts of their own for heads that share keys, of whose blocks some tiles of keys see none.
#[test]
fn block_sparse_layouts() -> Outcome {
    let all = cases().zip([16, 128, 32, 64].into_iter().cycle());
    for ((case, block), with_blocks) in all.flat_map(|case| [(case, false), (case, true)]) {
        let Sides { queries, keys, heads, .. } = case.sides;
        let [rows, columns] = [queries, keys].map(|positions: usize| positions.div_ceil(block));
        let shows = |head: usize, row: usize, column: usize| match block {
            32 => head == 0 && column != 4 && row * block >= 64,
            _ => (head + row + 2 * column) % 3 != 1,
        };
        let layout: Vec<u8> = (0..heads * rows * columns)
            .map(|place| shows(place / (rows * columns), place / columns % rows, place % columns).into())
            .collect();
        case.check_with::<bf16>(
            |score, [_, head, query, key]| shows(head, query / block, key / block).then_some(score),
            |stream, attention| {
                let layout = DeviceBuffer::from_slice(stream, &layout)?;
                attention.block_sparse(&layout, block as u32)?.run(stream)
            },
            |stream, backward| {
                let layout = DeviceBuffer::from_slice(stream, &layout)?;
                let modified = backward.block_sparse(&layout, block as u32)?;
                if !with_blocks {
                    return modified.run(stream);
                }
                let blocks = modified.block_mask(stream, Own { heads: true, sequences: false })?;
                modified.blocks(&blocks).run(stream)
            },
        )?;
    }
    Ok(())
}

/// A function of another package.
#[test]
fn functions_of_other_packages() -> Outcome {
    let (slope, block, step) = (0.125, 50, 3);
    // It has kernels up to there.
    for case in cases().filter(|case| case.sides.size <= 128) {
        case.check_with::<bf16>(
            |score, [_, _, query, key]| {
                let sees = query / 50 == key / 50 && (query + key) % 3 == 0;
                sees.then(|| score - f64::from(slope) * distance(&case, query, key).abs())
            },
            |stream, attention| {
                // SAFETY: it reads no memory.
                unsafe { attention.function(LocalArgs { slope, block, step }.pass()) }.run(stream)
            },
            |stream, backward| {
                // SAFETY: it reads no memory.
                unsafe { backward.function(LocalArgs { slope, block, step }.pass()) }.run(stream)
            },
        )?;
    }
    Ok(())
}

/// Whole blocks, in which the function's mask is not asked; partial ones; none. Each sequence has lists of
/// its own.
#[test]
fn blocks_of_queries_are_counted() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let case = Case { sides: Sides { batch: 2, queries: 300, keys: 400, ..ODD.sides }, ..ODD };
    let of = |sequence: usize, query: usize| match (sequence, query / 128) {
        (0, _) => [0, 128, 0, 0],
        (_, 0) => [128, 256, 0, 0],
        _ => [256, 384, 399, 400],
    };
    let ranges: Vec<[u32; 4]> = (0..600).map(|row| of(row / 300, row % 300)).collect();
    case.check_with::<bf16>(
        |score, [sequence, _, query, key]| {
            let [a, b, c, d] = of(sequence, query).map(|end| end as usize);
            ((a..b).contains(&key) || (c..d).contains(&key)).then_some(score)
        },
        |stream, attention| attention.ranges(&DeviceBuffer::from_slice(stream, &ranges)?)?.run(stream),
        |stream, backward| {
            let ranges = DeviceBuffer::from_slice(stream, &ranges)?;
            let modified = backward.ranges(&ranges)?;
            let blocks = modified.block_mask(stream, Own { heads: false, sequences: true })?;
            // Tiles of 128 queries and keys. In the first sequence those of the first keys see three, of
            // which the last one ends with the queries; in the second: none, one, two, and two in part.
            let want = Statistics { blocks: 2 * 4 * 3, computed: 3 + 5, partial: 1 + 1 + 2 };
            assert_eq!(blocks.statistics(stream)?, want);
            modified.blocks(&blocks).run(stream)
        },
    )
}

#[test]
fn the_deterministic_mode_repeats() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let case = Case { is_deterministic: true, ..ODD };
    let repeated = case.compute::<bf16>(
        10,
        |stream, attention| attention.soft_cap(1.5)?.run(stream),
        |stream, backward| backward.soft_cap(1.5)?.run(stream),
    );
    repeated.map(drop)
}

#[test]
fn wrong_arguments() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let refused = |words: &[&str], result: Outcome<()>| {
        let text = result.err().ok_or("no error")?.to_string();
        for word in words {
            assert!(text.contains(word), "no {word:?} in: {text}");
        }
        Outcome::Ok(())
    };
    let slopes = ODD.compute::<bf16>(1, forward, |stream, backward| {
        backward.alibi(&DeviceBuffer::from_slice(stream, &[1.0; 3])?)?.run(stream)
    });
    refused(&["the slopes", "2", "3"], slopes.map(drop))?;
    let cap = ODD.compute::<bf16>(1, forward, |stream, backward| backward.soft_cap(-1.0)?.run(stream));
    refused(&["the cap", "positive finite"], cap.map(drop))?;
    let bias = ODD.compute::<bf16>(1, forward, |stream, backward| {
        backward.bias(&DeviceBuffer::from_slice(stream, &[1.0; 3])?, [1, 1, 130, 3])?.run(stream)
    });
    refused(&["the bias", "[1, 1, 130, 3]"], bias.map(drop))?;
    let blocks = |case: Case| {
        case.compute::<bf16>(1, forward, |stream, backward| {
            let ranges = DeviceBuffer::from_slice(stream, &[[0, 9, 0, 0]; 130])?;
            let modified = backward.ranges(&ranges)?;
            let blocks = modified.block_mask(stream, Own::default())?;
            modified.blocks(&blocks).run(stream)
        })
    };
    blocks(ODD)?;
    let ordered = blocks(Case { is_deterministic: true, ..ODD });
    refused(&["the blocks", "the deterministic mode", "leave out"], ordered.map(drop))?;
    // It is compiled for bf16 alone.
    let other = ODD.compute::<f16>(1, forward, |stream, backward| {
        let function = LocalArgs { slope: 0.5, block: 3, step: 1 }.pass();
        // SAFETY: it reads no memory.
        unsafe { backward.function(function) }.run(stream)
    });
    refused(&["the problem", "a backward pass of f16", "`backward:`"], other.map(drop))?;
    let wide = Case { sides: Sides { size: 136, ..ODD.sides }, ..ODD };
    let wide = wide.compute::<bf16>(1, forward, |stream, backward| {
        let function = LocalArgs { slope: 0.5, block: 3, step: 1 }.pass();
        // SAFETY: it reads no memory.
        unsafe { backward.function(function) }.run(stream)
    });
    refused(&["the problem", "head sizes up to 128", "`backward:`"], wide.map(drop))
}
