//! Attention by a tuner: the results are the oracle's, each problem is measured once, and its record is found
//! again, in the file of all operations.

use crate::attention_case::{Case, Outcome, PLAIN, Setup, device, is_hopper};
use crate::ops_attention_backward as backward;
use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::attention::{Attention, Choice, Own};
use ironwarp::ops::gemm::{Matmul, Matrix, MatrixMut};
use ironwarp::ops::tuning::{Source, Tuner, Tuning};
use ironwarp::{DeviceBuffer, Error, Stream};
use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use testkit::bitwise_equal;

const SMALL: Case = Case { queries: 20, keys: 70, heads: 2, right: Some(0), kv_heads: 2, ..PLAIN };

/// A file of this test alone, removed at its end.
struct File(PathBuf);

impl File {
    fn new(test: &str) -> Self {
        File(std::env::temp_dir().join(format!("ironwarp-{test}-{}.json", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn is_measured(choice: &Choice) -> bool {
    matches!(choice.source, Source::Record { .. }) && choice.to_string().contains("a tuner's record")
}

/// Records of attention and of products are in one file; the next tuner has them, and measures nothing.
#[test]
fn a_problem_is_measured_once_and_kept() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let (file, stream) = (File::new("attention"), device()?.stream()?);
    let setup = Setup::<bf16>::new(&SMALL, &stream)?;
    let tuner = Tuner::with_file(&device()?, Tuning::Measure, &file.0);
    let explained = |tuner: &Tuner| -> Outcome<Choice> {
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        Ok(tuner.explain(&stream, setup.attention(&mut out, &mut logarithms)?)?)
    };
    let before = explained(&tuner)?;
    assert!(before.source == Source::Estimate && before.config == before.candidates[0].config, "{before}");
    let want = setup.oracle_with(|score, _| Some(score));
    let mut first = None;
    for _ in 0..2 {
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        tuner.run(&stream, setup.attention(&mut out, &mut logarithms)?)?;
        let got = out.to_vec(&stream)?;
        setup.compare(&want, &got, &logarithms.to_vec(&stream)?, "tuned")?;
        bitwise_equal("tuned again", &got, first.get_or_insert_with(|| got.clone()))?;
        assert_eq!(tuner.len(), 1);
    }
    let found = explained(&tuner)?;
    assert!(is_measured(&found), "{found}");
    let a = DeviceBuffer::from_slice(&stream, &[bf16::ONE; 256])?;
    let mut c = DeviceBuffer::<bf16>::zeroed(&stream, 256)?;
    let square = |a| Matrix::new(a, 16, 16);
    tuner.run(&stream, Matmul::new(square(&a), square(&a), MatrixMut::new(&mut c, 16, 16)))?;
    let next = Tuner::with_file(&device()?, Tuning::Recorded, &file.0);
    assert_eq!((next.len(), explained(&next)?), (2, found));
    Ok(())
}

#[test]
fn without_records_nothing_is_measured() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::<bf16>::new(&SMALL, &stream)?;
    let tuner = Tuner::new(&device()?, Tuning::Recorded);
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    tuner.run(&stream, setup.attention(&mut out, &mut logarithms)?)?;
    assert!(tuner.is_empty());
    let want = setup.oracle_with(|score, _| Some(score));
    setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, "by its estimate")
}

/// A function's kernels have records of their own, and so have those that look at listed blocks, of the tiles
/// that the lists are made for.
#[test]
fn functions_and_lists_have_records_of_their_own() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::<bf16>::new(&SMALL, &stream)?;
    let tuner = Tuner::new(&device()?, Tuning::Measure);
    let slopes = DeviceBuffer::from_slice(&stream, &[0.25f32, 0.5])?;
    let distance = |query: usize, key: usize| (key as f64 - query as f64 - 50.0).abs();
    let want = setup
        .oracle_with(|score, [_, head, query, key]| Some(score - [0.25, 0.5][head] * distance(query, key)));
    for with_lists in [false, true] {
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        let attention = setup.attention(&mut out, &mut logarithms)?.alibi(&slopes)?;
        let blocks = attention.block_mask(&stream, Own::default())?;
        tuner.run(&stream, if with_lists { attention.blocks(&blocks) } else { attention })?;
        setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, "alibi")?;
        assert_eq!(tuner.len(), 1 + usize::from(with_lists));
        let attention = setup.attention(&mut out, &mut logarithms)?.alibi(&slopes)?;
        let choice = tuner.explain(&stream, attention)?;
        assert!(is_measured(&choice) && choice.config.name().starts_with("attention_alibi_"), "{choice}");
    }
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    tuner.run(&stream, setup.attention(&mut out, &mut logarithms)?)?;
    assert_eq!(tuner.len(), 3);
    Ok(())
}

/// Gradients go where they belong at the end, and nowhere before; a fixed order has a record of its own.
#[test]
fn gradients_are_tuned() -> Outcome {
    let tuner = Tuner::new(&device()?, Tuning::Measure);
    for is_deterministic in [false, true] {
        let case = backward::Case { is_deterministic, right: Some(0), ..backward::PLAIN };
        let plain = |score, _| Some(score);
        case.check_with::<bf16>(plain, backward::forward, |stream, call| tuner.run(stream, call))?;
        if is_hopper()? {
            assert_eq!(tuner.len(), 1 + usize::from(is_deterministic));
        }
    }
    let slopes = |stream: &Stream| DeviceBuffer::from_slice(stream, &[0.25f32, 0.0]);
    let modify = |score: f64, [_, head, query, key]: [usize; 4]| {
        Some(score - [0.25, 0.0][head] * (key as f64 - query as f64 - 20.0).abs())
    };
    let forward = |stream: &Stream, call: Attention<'_>| call.alibi(&slopes(stream)?)?.run(stream);
    backward::PLAIN
        .check_with::<bf16>(modify, forward, |stream, call| tuner.run(stream, call.alibi(&slopes(stream)?)?))
}

/// Every kernel of the backward pass whose rows hold the head, not the choice alone.
#[test]
fn gradients_by_every_candidate() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let choice = RefCell::new(None);
    // An explanation queues nothing, so it ends here.
    let ended = backward::PLAIN.compute::<bf16>(1, backward::forward, |stream, call| {
        choice.replace(Some(call.explain(stream)?));
        Err(Error::EventNotRecorded { which: "start" })
    });
    assert!(ended.is_err());
    let choice: Choice = choice.take().expect("a choice");
    assert!(choice.config == choice.candidates[0].config && choice.source == Source::Estimate, "{choice}");
    assert_eq!(choice.config.head_size(), 64, "{choice}");
    assert!(choice.candidates.len() > 1 && !choice.rejections.is_empty(), "{choice}");
    for candidate in choice.candidates {
        let plain = |score, _| Some(score);
        backward::PLAIN.check_with::<bf16>(plain, backward::forward, |stream, call| {
            call.run_with(stream, &candidate.config)
        })?;
    }
    Ok(())
}

/// A measurement waits for the device, so none is made inside a capture; what is known can be captured.
#[test]
fn captures_take_what_is_known() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::<bf16>::new(&SMALL, &stream)?;
    let tuner = Tuner::new(&device()?, Tuning::Measure);
    let want = setup.oracle_with(|score, _| Some(score));
    let capture = |buffers| {
        Graph::capture(&stream, buffers, |stream, (out, logarithms)| {
            tuner.run(stream, setup.attention(out, logarithms)?)
        })
    };
    match capture(setup.fresh(&stream)?) {
        Err(Error::NotCapturable { operation: "tuning", .. }) => assert!(tuner.is_empty()),
        other => panic!("{:?}", other.map(drop)),
    }
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    tuner.run(&stream, setup.attention(&mut out, &mut logarithms)?)?;
    let mut graph = capture(setup.fresh(&stream)?)?;
    graph.replay(&stream)?;
    let (out, logarithms) = graph.inputs();
    setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, "replayed")
}
