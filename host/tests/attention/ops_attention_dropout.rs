//! Dropout of weights, forward and backward, against the oracles of `reference`, whose generator says which
//! weights are dropped.

use std::cell::RefCell;

use crate::attention_case::{Case, Number, Outcome, PLAIN, Setup, device, is_hopper};
use crate::ops_attention_backward::{Case as Backward, PLAIN as PLAIN_BACKWARD};
use half::{bf16, f16};
use ironwarp::Error;
use ironwarp::graph::Graph;
use ironwarp::ops::dropout::Generator;
use reference::random::weight_factor;

const SEED: u64 = 0x0123_4567_89ab_cdef;
const CALL: u32 = 3;
/// A multiple of 2^-16.
const PROBABILITY: f64 = 0.25;

/// The factors of weights at a step.
fn factors(probability: f64, step: u64, heads: usize) -> impl Fn([usize; 4]) -> f64 + Sync {
    move |at| weight_factor(probability, [SEED, step], CALL, heads, at)
}

fn check<T: Number>(case: &Case, probability: f64) -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let mut generator = Generator::new(&stream, SEED)?;
    let setup = Setup::<T>::new(case, &stream)?;
    for step in 0..2 {
        let want = setup.oracle_weighted(factors(probability, step, case.heads));
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        let attention = setup.attention(&mut out, &mut logarithms)?;
        attention.dropout(probability, &generator, CALL)?.run(&stream)?;
        let what = format!("{case:?}, step {step}");
        setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, &what)?;
        generator.advance(&stream)?;
    }
    Ok(())
}

#[test]
fn weights_are_dropped() -> Outcome {
    let case = Case { batch: 2, queries: 150, keys: 210, heads: 4, kv_heads: 2, ..PLAIN };
    for size in [64, 128, 256] {
        check::<bf16>(&Case { size, ..case }, PROBABILITY)?;
    }
    check::<f16>(&Case { right: Some(0), ..case }, 0.75)?;
    check::<bf16>(
        &Case { packed: Some(&[[70, 100], [5, 0], [130, 30]]), right: Some(0), ..case },
        PROBABILITY,
    )?;
    for lengths in [[1, 1], [7, 1], [64, 128], [65, 129], [3, 0]] {
        let [queries, keys] = lengths;
        check::<bf16>(&Case { queries, keys, ..case }, PROBABILITY)?;
    }
    Ok(())
}

/// No weight, and all.
#[test]
fn none_and_all_are_dropped() -> Outcome {
    let case = Case { queries: 70, keys: 90, ..PLAIN };
    check::<bf16>(&case, 0.0)?;
    check::<bf16>(&case, 1.0 - 1.0 / 65536.0)?;
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let (setup, generator) = (Setup::<bf16>::new(&case, &stream)?, Generator::new(&stream, SEED)?);
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    setup.attention(&mut out, &mut logarithms)?.dropout(1.0, &generator, CALL)?.run(&stream)?;
    assert!(out.to_vec(&stream)?.iter().all(|value| value.to_bits() == 0), "all weights are dropped");
    Ok(())
}

fn check_gradients<T: Number + PartialEq>(case: Backward, step: u64) -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let generator = RefCell::new(Generator::new(&stream, SEED)?);
    for _ in 0..step {
        generator.borrow_mut().advance(&stream)?;
    }
    stream.synchronize()?;
    let generator = generator.borrow();
    case.check_weighted::<T>(
        factors(PROBABILITY, step, case.sides.heads),
        |stream, attention| attention.dropout(PROBABILITY, &generator, CALL)?.run(stream),
        |stream, backward| backward.dropout(PROBABILITY, &generator, CALL)?.run(stream),
    )
}

#[test]
fn gradients_drop_the_same_weights() -> Outcome {
    for size in [64, 128, 256] {
        let mut sides = PLAIN_BACKWARD.sides;
        (sides.size, sides.batch, sides.queries, sides.keys) = (size, 2, 150, 200);
        check_gradients::<bf16>(Backward { sides, ..PLAIN_BACKWARD }, 1)?;
        (sides.batch, sides.kv_heads, sides.heads) = (1, 1, 2);
        let case = Backward { sides, right: Some(0), is_deterministic: true, ..PLAIN_BACKWARD };
        check_gradients::<f16>(case, 0)?;
    }
    Ok(())
}

/// Each replay drops the weights of its step.
#[test]
fn replays_draw_anew() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { queries: 70, keys: 90, ..PLAIN };
    let setup = Setup::<bf16>::new(&case, &stream)?;
    let (out, logarithms) = setup.fresh(&stream)?;
    let state = (out, logarithms, Generator::new(&stream, SEED)?);
    let mut graph = Graph::capture(&stream, state, |stream, (out, logarithms, generator)| {
        setup.attention(out, logarithms)?.dropout(PROBABILITY, generator, CALL)?.run(stream)?;
        generator.advance(stream)
    })?;
    for step in 0..3 {
        graph.replay(&stream)?;
        let (out, logarithms, _) = graph.inputs();
        let want = setup.oracle_weighted(factors(PROBABILITY, step, case.heads));
        let what = format!("replay {step}");
        setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, &what)?;
    }
    Ok(())
}

#[test]
fn wrong_probabilities_are_refused() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let (setup, generator) = (Setup::<bf16>::new(&PLAIN, &stream)?, Generator::new(&stream, SEED)?);
    for probability in [-0.1, 1.5, f64::NAN] {
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        let attention = setup.attention(&mut out, &mut logarithms)?;
        let Err(error) = attention.dropout(probability, &generator, CALL) else { panic!("{probability}") };
        assert!(matches!(error, Error::InvalidArgument { argument: "probability", .. }), "{error}");
    }
    Ok(())
}
