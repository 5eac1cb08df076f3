//! Sinks: for each head one more key, whose value is zero. Forward, backward and decode, against the oracles
//! of `reference`.

use std::cell::RefCell;

use crate::attention_case::{Case, Number, Outcome, PLAIN, Setup, device, has_plain, is_hopper};
use crate::ops_attention_backward::{Case as Backward, PLAIN as PLAIN_BACKWARD};
use crate::ops_attention_backward_mma::run as run_by_mma;
use half::{bf16, f16};
use ironwarp::ops::attention::{Backward as Call, candidates};
use ironwarp::tensor::DType;
use ironwarp::{DeviceBuffer, Error, Result as Done, Stream};
use reference::attention::Sides;
use testkit::{Family, compare, tolerance};

/// One far above all scores, one far below, one among them, and none.
const SINKS: [f32; 4] = [30.0, -40.0, 0.75, f32::NEG_INFINITY];

fn exact(sinks: &[f32]) -> Vec<f64> {
    sinks.iter().copied().map(f64::from).collect()
}

/// Every kernel that can do the case.
fn check<T: Number>(case: &Case) -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let device = device()?;
    let stream = device.stream()?;
    let setup = Setup::<T>::new(case, &stream)?;
    let Case { batch, keys, heads, kv_heads, .. } = *case;
    let scores: Vec<f32> = (0..heads).map(|head| SINKS[head % SINKS.len()]).collect();
    let sinks = DeviceBuffer::from_slice(&stream, &scores)?;
    let want: Vec<_> = setup
        .oracle_with(|score, _| Some(score))
        .into_iter()
        .map(|(first, queries, attended)| {
            let batch = if case.packed.is_some() { 1 } else { batch };
            let sides = Sides { batch, queries, keys, heads, kv_heads, size: case.value_size() };
            (first, queries, attended.with_sinks(sides, &exact(&scores)))
        })
        .collect();
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    let problem = setup.attention(&mut out, &mut logarithms)?.problem()?;
    let mut ran = 0;
    for candidate in candidates(&problem, &device) {
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        let attention = setup.attention(&mut out, &mut logarithms)?.sinks(&sinks);
        attention.run_with(&stream, &candidate.config)?;
        let what = format!("{problem} with sinks by {}", candidate.config);
        setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, &what)?;
        ran += 1;
    }
    assert!(ran > 0, "no kernel for {problem}");
    Ok(())
}

#[test]
fn sinks_of_all_kernels() -> Outcome {
    let case = Case { batch: 2, queries: 130, keys: 90, heads: 4, kv_heads: 2, ..PLAIN };
    for size in [64, 128, 256] {
        check::<bf16>(&Case { size, ..case })?;
    }
    check::<f16>(&case)?;
    // Queries that see nothing but the sink, some in tiles without keys.
    check::<bf16>(&Case { queries: 400, keys: 20, right: Some(0), ..case })?;
    check::<bf16>(&Case { keys: 0, ..case })?;
    check::<bf16>(&Case { family: Family::Cancelling, ..case })?;
    check::<bf16>(&Case { packed: Some(&[[70, 100], [5, 0], [130, 30]]), right: Some(0), ..case })
}

/// With a score function, which the sink does not go through.
#[test]
fn sinks_beside_a_function() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { queries: 70, keys: 200, heads: 4, kv_heads: 4, size: 128, right: Some(0), ..PLAIN };
    let setup = Setup::<bf16>::new(&case, &stream)?;
    let sinks = DeviceBuffer::from_slice(&stream, &SINKS)?;
    let sides = Sides { batch: 1, queries: 70, keys: 200, heads: 4, kv_heads: 4, size: 128 };
    let capped = setup.oracle_with(|score, _| Some(0.5 * (score / 0.5).tanh()));
    let want: Vec<_> = capped
        .into_iter()
        .map(|(first, rows, attended)| (first, rows, attended.with_sinks(sides, &exact(&SINKS))))
        .collect();
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    setup.attention(&mut out, &mut logarithms)?.sinks(&sinks).soft_cap(0.5)?.run(&stream)?;
    setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, "a soft cap with sinks")
}

/// Gradients of the operands and of the sinks, the latter the same bits in two runs.
fn gradients<T: Number + PartialEq>(case: &Backward, sinks: &[f32]) -> Outcome {
    gradients_as::<T>(case, sinks, |stream, backward| backward.run(stream))
}

/// The same as this runs the backward pass.
fn gradients_as<T: Number + PartialEq>(
    case: &Backward,
    sinks: &[f32],
    run: impl Fn(&Stream, Call<'_>) -> Done<()>,
) -> Outcome {
    if !has_plain()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let scores = DeviceBuffer::from_slice(&stream, sinks)?;
    let made = RefCell::new(DeviceBuffer::from_slice(&stream, &vec![f32::NAN; sinks.len()])?);
    let want = case.check_with_sinks::<T>(
        &exact(sinks),
        |stream, attention| attention.sinks(&scores).run(stream),
        |stream, backward| run(stream, backward.sinks(&scores, &mut *made.borrow_mut())),
    )?;
    let [value, magnitude] = want.ok_or("no kernel")?.sinks;
    let row = match T::DTYPE {
        DType::BF16 => tolerance::ATTENTION_BACKWARD_BF16,
        _ => tolerance::ATTENTION_BACKWARD_F16,
    };
    let got = made.borrow().to_vec(&stream)?;
    let what = format!("the gradients of sinks of {case:?}");
    compare::accumulated(&what, &got, &value, &magnitude, &[sinks.len()], row.tolerance())?;
    Ok(())
}

/// By the kernels for Ampere and later, whose tiles of L and D differ with the head size.
#[test]
pub fn gradients_of_sinks_by_mma() -> Outcome {
    for size in [64, 128, 256] {
        let sides = Sides { batch: 2, queries: 41, keys: 50, heads: 2, kv_heads: 1, size };
        let case = Backward { sides, right: Some(0), ..PLAIN_BACKWARD };
        gradients_as::<bf16>(&case, &SINKS[1..3], run_by_mma)?;
        gradients_as::<f16>(&case, &[0.5, 2.0], run_by_mma)?;
    }
    Ok(())
}

#[test]
fn gradients_of_sinks() -> Outcome {
    let sides = Sides { batch: 2, queries: 130, keys: 260, heads: 4, kv_heads: 2, size: 64 };
    gradients::<bf16>(&Backward { sides, ..PLAIN_BACKWARD }, &SINKS)?;
    gradients::<f16>(&Backward { sides, right: Some(0), ..PLAIN_BACKWARD }, &[0.5, 2.0, -1.0, 5.0])?;
    let sides = Sides { queries: 300, keys: 40, size: 128, ..sides };
    gradients::<bf16>(&Backward { sides, right: Some(0), ..PLAIN_BACKWARD }, &SINKS)?;
    // Nothing to sum.
    let sides = Sides { queries: 0, ..sides };
    gradients::<bf16>(&Backward { sides, ..PLAIN_BACKWARD }, &SINKS)?;
    let sides = Sides { queries: 20, keys: 0, ..sides };
    gradients::<bf16>(&Backward { sides, ..PLAIN_BACKWARD }, &SINKS)
}

#[test]
fn other_numbers_of_sinks_are_refused() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::<bf16>::new(&Case { heads: 4, kv_heads: 4, ..PLAIN }, &stream)?;
    let three = DeviceBuffer::from_slice(&stream, &SINKS[..3])?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    let error = setup.attention(&mut out, &mut logarithms)?.sinks(&three).run(&stream).err();
    let Some(Error::Length { what: "the sinks", expected: 4, got: 3, .. }) = error else {
        panic!("{error:?}")
    };
    Ok(())
}
