//! The backward pass whose blocks go through all keys of a head, whatever a problem would choose.

use half::{bf16, f16};
use ironwarp::ops::attention::{Backward, Config};
use ironwarp::{Result as Done, Stream};
use reference::attention::Sides;
use testkit::Family;

use crate::attention_case::{Number, Outcome, device, is_hopper};
use crate::ops_attention_backward::{Case, PLAIN, forward};

/// Those of the candidates with whole heads, the likely fastest first.
fn of_whole_heads(stream: &Stream, backward: &Backward<'_>) -> Done<Vec<Config>> {
    let configs = backward.explain(stream)?.candidates.into_iter().map(|candidate| candidate.config);
    Ok(configs.filter(|config| config.name().starts_with("attention_backward_whole_")).collect())
}

fn backward(stream: &Stream, backward: Backward<'_>) -> Done<()> {
    let config = of_whole_heads(stream, &backward)?.into_iter().min_by_key(|config| config.head_size());
    backward.run_with(stream, &config.expect("a kernel of whole heads"))
}

fn check<T: Number + PartialEq>(case: Case) -> Outcome {
    case.check_with::<T>(|score, _| Some(score), forward, backward)
}

const fn one_head(queries: usize, keys: usize, size: usize) -> Sides {
    Sides { batch: 1, queries, keys, heads: 1, kv_heads: 1, size }
}

/// Rows as long as a kernel's and shorter; tiles that lengths fill, and those that they do not.
#[test]
fn all_keys() -> Outcome {
    for size in [64, 40, 128, 104] {
        check::<bf16>(Case { sides: Sides { size, ..PLAIN.sides }, ..PLAIN })?;
    }
    for (queries, keys) in
        [(1, 1), (63, 64), (65, 63), (127, 129), (128, 128), (129, 127), (1, 300), (300, 1)]
    {
        for size in [64, 128] {
            check::<bf16>(Case { sides: one_head(queries, keys, size), ..PLAIN })?;
        }
    }
    check::<f16>(Case { sides: Sides { batch: 2, queries: 130, keys: 390, ..PLAIN.sides }, ..PLAIN })?;
    check::<f16>(Case { sides: one_head(512, 512, 128), ..PLAIN })?;
    check::<bf16>(Case { sides: one_head(1000, 200, 64), scale: Some(1.5), ..PLAIN })
}

/// The last part of a tile of queries is the first one too, or one of several; or there is none.
#[test]
fn causal_masks_and_windows() -> Outcome {
    for size in [64, 128] {
        let sides = Sides { queries: 400, keys: 400, size, ..PLAIN.sides };
        check::<bf16>(Case { sides, right: Some(0), ..PLAIN })?;
        check::<f16>(Case { sides, left: Some(90), right: Some(0), ..PLAIN })?;
        check::<bf16>(Case { sides, left: Some(5), right: Some(140), ..PLAIN })?;
    }
    // Queries that see no key, whole tiles of them, and keys that no query sees.
    let sides = Sides { queries: 400, keys: 70, heads: 4, ..PLAIN.sides };
    check::<bf16>(Case { sides, right: Some(0), ..PLAIN })?;
    check::<bf16>(Case { sides: one_head(20, 500, 128), left: Some(10), right: Some(0), ..PLAIN })
}

#[test]
fn heads_that_share_keys_add_up() -> Outcome {
    for (heads, kv_heads, size) in [(4, 2, 64), (3, 1, 128)] {
        let sides = Sides { batch: 2, queries: 150, keys: 270, heads, kv_heads, size };
        check::<bf16>(Case { sides, right: Some(0), ..PLAIN })?;
    }
    Ok(())
}

/// Blocks have several heads one after the other: more than a device has multiprocessors.
#[test]
fn a_block_does_one_head_after_the_other() -> Outcome {
    let heads = device()?.properties().sm_count as usize / 2 + 3;
    for queries in [30, 150] {
        let sides = Sides { batch: 4, queries, keys: 140, heads, kv_heads: heads, size: 64 };
        check::<bf16>(Case { sides, family: Family::Normal, ..PLAIN })?;
    }
    Ok(())
}

/// Of many tiles of keys, deterministic or not. All keys are the same, so dQ shows the order of its parts.
#[test]
fn gradients_repeat() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let runs = if device()?.is_software() { 10 } else { 100 };
    for is_deterministic in [false, true] {
        let sides = Sides { heads: 2, kv_heads: 2, ..one_head(100, 400, 64) };
        Case { sides, is_deterministic, same_keys: true, ..PLAIN }
            .compute::<bf16>(runs, forward, backward)?;
    }
    Ok(())
}
