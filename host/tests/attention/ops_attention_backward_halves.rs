//! The backward pass of which two blocks of a cluster share the keys of a head out, whatever a problem would
//! choose.

use half::{bf16, f16};
use ironwarp::ops::attention::Backward;
use ironwarp::{Result as Done, Stream};
use reference::attention::Sides;
use testkit::Family;

use crate::attention_case::{Number, Outcome, device, is_hopper};
use crate::ops_attention_backward::{Case, PLAIN, forward};

const SIZE: usize = 128;

fn backward(stream: &Stream, backward: Backward<'_>) -> Done<()> {
    let configs = backward.explain(stream)?.candidates.into_iter().map(|candidate| candidate.config);
    let config = configs.into_iter().find(|config| config.name().starts_with("attention_backward_halves_"));
    backward.run_with(stream, &config.expect("a kernel of halves"))
}

fn check<T: Number + PartialEq>(case: Case) -> Outcome {
    case.check_with::<T>(|score, _| Some(score), forward, backward)
}

const fn one_head(queries: usize, keys: usize) -> Sides {
    Sides { batch: 1, queries, keys, heads: 1, kv_heads: 1, size: SIZE }
}

/// One tile of keys, of which a block has none, and up to three for each block; tiles that lengths fill, and
/// those that they do not.
#[test]
fn all_keys() -> Outcome {
    for (queries, keys) in
        [(1, 1), (63, 64), (65, 129), (64, 256), (129, 257), (100, 385), (1, 513), (300, 1), (130, 700)]
    {
        check::<bf16>(Case { sides: one_head(queries, keys), ..PLAIN })?;
    }
    check::<f16>(Case { sides: Sides { batch: 2, heads: 2, kv_heads: 2, ..one_head(130, 390) }, ..PLAIN })?;
    check::<f16>(Case { sides: one_head(512, 512), ..PLAIN })?;
    check::<bf16>(Case { sides: Sides { size: 104, ..one_head(200, 300) }, scale: Some(1.5), ..PLAIN })
}

#[test]
fn heads_that_share_keys_add_up() -> Outcome {
    for (heads, kv_heads) in [(4, 2), (3, 1)] {
        let sides = Sides { batch: 2, heads, kv_heads, ..one_head(150, 300) };
        check::<bf16>(Case { sides, ..PLAIN })?;
    }
    Ok(())
}

/// Clusters have several heads one after the other: more than a device has pairs of multiprocessors.
#[test]
fn a_cluster_does_one_head_after_the_other() -> Outcome {
    let heads = device()?.properties().sm_count as usize / 4 + 3;
    for (queries, keys) in [(30, 140), (70, 300)] {
        let sides = Sides { batch: 4, heads, kv_heads: heads, ..one_head(queries, keys) };
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
        let sides = Sides { heads: 2, kv_heads: 2, ..one_head(100, 600) };
        Case { sides, is_deterministic, same_keys: true, ..PLAIN }
            .compute::<bf16>(runs, forward, backward)?;
    }
    Ok(())
}
