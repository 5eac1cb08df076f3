//! Decode attention with ALiBi and with a soft cap, against the oracle of `reference`.

use super::*;
use crate::pattern_case::{Call, Pattern, Ready};
use ironwarp::{Error, Result as Done};

impl<T: Number> Setup<T> {
    /// By the pattern's kernel, the results are the oracle's.
    fn check_pattern(&mut self, stream: &Stream, pattern: &Pattern) -> Outcome {
        let ready = pattern.upload(stream)?;
        ready.run(self.decode(), stream)?;
        self.compare_pattern(stream, pattern, &ready)
    }

    fn compare_pattern(&mut self, stream: &Stream, pattern: &Pattern, ready: &Ready) -> Outcome {
        let plan = ready.explain(self.decode(), stream)?;
        assert!(plan.kernel.starts_with("attention_decode_pattern_"), "{plan}");
        self.compare_within(stream, &plan, self.oracle_of(pattern), pattern.errors())
    }

    fn oracle_of(&self, pattern: &Pattern) -> Attended {
        let Case { lengths, queries, .. } = self.case;
        self.oracle_with(|score, place| Some(pattern.modify(lengths, queries, score, place)))
    }
}

impl Case {
    /// With each pattern, the results are the oracle's.
    fn patterns<T: Number>(&self) -> Outcome {
        if !decodes()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        for pattern in Pattern::each(self.heads) {
            Setup::<T>::new(self, &stream)?.check_pattern(&stream, &pattern)?;
        }
        Ok(())
    }
}

/// With scores of several times the cap.
const STEEP: Case = Case { scale: Some(0.5), ..PLAIN };
/// Lengths about the borders of tiles and chunks, and none.
const RAGGED: &[usize] = &[0, 1, 7, 63, 64, 65, 127, 128, 129, 1000, 0];

#[test]
fn every_kernel() -> Outcome {
    for size in [40, 64, 128, 200, 256] {
        Case { size, lengths: &[150, 0, 37], ..STEEP }.patterns::<bf16>()?;
        Case { size, lengths: &[70, 2], scale: None, ..STEEP }.patterns::<f16>()?;
    }
    Ok(())
}

/// In matrices and in pages, with whole tiles and with others; by one block, and cut.
#[test]
fn ragged_lengths() -> Outcome {
    for (page, blocks) in [(None, None), (Some(16), Some(7)), (Some(12), Some(1))] {
        Case { lengths: RAGGED, page, blocks, ..STEEP }.patterns::<bf16>()?;
    }
    Case { lengths: RAGGED, size: 128, page: Some(64), ..STEEP }.patterns::<f16>()
}

/// Sequences that one block computes, and that several do.
#[test]
fn parts() -> Outcome {
    for blocks in [1, 2, 3, 5, 1000] {
        Case { lengths: &[300, 0, 70], blocks: Some(blocks), ..STEEP }.patterns::<f16>()?;
    }
    // All sequences have the most keys, and the last tile has fewer than it could.
    Case { lengths: &[75; 2], tells_lengths: false, blocks: Some(2), ..STEEP }.patterns::<bf16>()
}

/// Heads and queries that share a head of keys, in one tile of rows and in several.
#[test]
fn groups_and_several_queries() -> Outcome {
    for (heads, kv_heads) in [(1, 1), (3, 1), (6, 6), (17, 1), (6, 2)] {
        Case { heads, kv_heads, lengths: &[90, 65], ..STEEP }.patterns::<bf16>()?;
    }
    for queries in [2, 9, 20] {
        Case { queries, right: Some(0), lengths: &[90, 3, 130], blocks: Some(3), ..STEEP }
            .patterns::<f16>()?;
    }
    Ok(())
}

/// Windows, keys behind the diagonal, and queries that see nothing.
#[test]
fn masks() -> Outcome {
    for (left, right) in [(None, Some(0)), (Some(20), Some(0)), (Some(70), None), (Some(0), Some(0))] {
        let case = Case { queries: 3, lengths: &[5, 1, 0, 64, 200, 330], left, right, ..STEEP };
        case.patterns::<bf16>()?;
        Case { page: Some(16), blocks: Some(4), ..case }.patterns::<f16>()?;
    }
    Ok(())
}

/// Scores far beyond the cap, and so small that slopes alone count.
#[test]
fn huge_and_tiny_scores() -> Outcome {
    for scale in [1e4, 1e-25] {
        Case { lengths: &[140, 1], scale: Some(scale), blocks: Some(2), ..PLAIN }.patterns::<bf16>()?;
    }
    Ok(())
}

/// Slopes that leave the nearest key alone, that raise scores, and caps of all sizes.
#[test]
fn numbers_of_all_sizes() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[140, 1, 0], queries: 2, blocks: Some(2), ..PLAIN };
    for pattern in [
        Pattern::Alibi(vec![1e6, 64.0, 1e-30, -0.5]),
        Pattern::SoftCap(1e-3),
        Pattern::SoftCap(1e-38),
        Pattern::SoftCap(1e4),
    ] {
        Setup::<bf16>::new(&case, &stream)?.check_pattern(&stream, &pattern)?;
    }
    Ok(())
}

/// Sinks stand beside the new scores.
#[test]
fn sinks() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let scores = [2.0, -30.0, 0.5, f32::NEG_INFINITY];
    let buffer = DeviceBuffer::from_slice(&stream, &scores)?;
    for (pattern, blocks) in Pattern::each(4).iter().flat_map(|pattern| [(pattern, 1), (pattern, 3)]) {
        let case = Case { lengths: &[130, 0], blocks: Some(blocks), ..STEEP };
        let mut setup = Setup::<bf16>::new(&case, &stream)?;
        let ready = pattern.upload(&stream)?;
        let plan = ready.explain(setup.decode(), &stream)?;
        ready.run(setup.decode().sinks(&buffer), &stream)?;
        let Case { lengths, queries, heads, kv_heads, size, .. } = case;
        let sides = Sides { batch: lengths.len(), queries, keys: 0, heads, kv_heads, size };
        let want = setup.oracle_of(pattern).with_sinks(sides, &scores.map(f64::from));
        setup.compare_within(&stream, &plan, want, pattern.errors())?;
    }
    Ok(())
}

/// The last keys are new: they are put into the cache, and have the distances of their places.
#[test]
fn new_keys() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    for (pattern, page) in Pattern::each(4).iter().flat_map(|pattern| [(pattern, None), (pattern, Some(16))])
    {
        let case = Case { lengths: &[100, 2, 65], queries: 2, right: Some(0), page, ..STEEP };
        let mut setup = Setup::<bf16>::new(&Case { blocks: Some(3), ..case }, &stream)?;
        setup.make_new(&stream)?;
        setup.check_pattern(&stream, pattern)?;
        setup.compare_cache(&stream)?;
    }
    Ok(())
}

/// Lengths below 0 and beyond the most, and pages that there are not.
#[test]
fn hostile_lengths_and_pages() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    for pattern in [Pattern::Alibi(vec![0.0; 4]), Pattern::SoftCap(1.0)] {
        let ready = pattern.upload(&stream)?;
        let mut short = Setup::<bf16>::new(&Case { lengths: &[0, 60], ..PLAIN }, &stream)?;
        // The matrices have some keys more, which are no numbers.
        short.cache[0].fill_zero(&stream)?;
        short.cache[1].fill_zero(&stream)?;
        short.lengths.copy_from_slice(&stream, &[i32::MIN, i32::MAX])?;
        ready.run(short.decode(), &stream)?;
        let (sums, want) = (short.logarithms.to_vec(&stream)?, (60.0 + SPARE_KEYS as f32).ln());
        assert!(sums[..4].iter().all(|sum| *sum == f32::NEG_INFINITY), "{sums:?}");
        assert!(sums[4..].iter().all(|sum| (sum - want).abs() < 1e-5), "{sums:?}");
    }
    for (pattern, page) in Pattern::each(4).iter().zip([16, 10]) {
        let case = Case { lengths: &[100, 70], page: Some(page), blocks: Some(3), ..STEEP };
        let mut paged = Setup::<f16>::new(&case, &stream)?;
        let (count, each) = (paged.operands.sides[0] as i32, paged.operands.each);
        for (place, number) in [(1, -1), (3, count), (each, i32::MIN), (each + 2, i32::MAX)] {
            paged.operands.table[place] = number;
        }
        paged.table.copy_from_slice(&stream, &paged.operands.table)?;
        paged.check_pattern(&stream, pattern)?;
    }
    Ok(())
}

/// No number that is none leaves the rows that see it: a slope with its head, a key with the heads that share
/// it in its sequence.
#[test]
fn numbers_that_are_none_stay_where_they_are() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[150, 40], queries: 3, blocks: Some(3), ..STEEP };
    let strange_rows = |pattern: &Pattern, setup: &mut Setup<bf16>| -> Outcome<Vec<usize>> {
        setup.check_pattern(&stream, pattern)?;
        let out = setup.out.to_vec(&stream)?;
        let rows = out.chunks(case.size).enumerate();
        Ok(rows.filter(|(_, row)| row.iter().any(|x| x.is_nan())).map(|(row, _)| row).collect())
    };
    let slopes = Pattern::Alibi(vec![0.25, f32::NAN, 0.0, 1.0]);
    let rows = strange_rows(&slopes, &mut Setup::new(&case, &stream)?)?;
    assert_eq!(rows, (0..24).filter(|row| row % 4 == 1).collect::<Vec<_>>());
    for pattern in Pattern::each(case.heads) {
        let mut setup = Setup::<bf16>::new(&case, &stream)?;
        // Sequence 0, key 120, the second head of keys.
        setup.operands.cache[0][(120 * case.kv_heads + 1) * case.size + 3] = bf16::NAN;
        setup.cache[0].copy_from_slice(&stream, &setup.operands.cache[0])?;
        let rows = strange_rows(&pattern, &mut setup)?;
        assert_eq!(rows, (0..12).filter(|row| row % 4 >= 2).collect::<Vec<_>>(), "{pattern:?}");
    }
    Ok(())
}

/// The same bits in every run; and with other lengths, on the device alone, other distances.
#[test]
fn graphs_replay_with_other_lengths() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    for pattern in Pattern::each(4) {
        let case = Case { lengths: &[200, 130], page: Some(16), blocks: Some(4), ..STEEP };
        let inputs = (Setup::<bf16>::new(&case, &stream)?, pattern.upload(&stream)?);
        let mut graph =
            Graph::capture(&stream, inputs, |stream, (setup, ready)| ready.run(setup.decode(), stream))?;
        let mut first = None;
        for _ in 0..3 {
            graph.inputs_mut().0.out.fill_zero(&stream)?;
            graph.replay(&stream)?;
            let (setup, _) = graph.inputs();
            setup.is_as_first(&stream, &mut first)?;
        }
        for lengths in [&[200, 130], &[1, 90]] {
            let (setup, _) = graph.inputs_mut();
            setup.set_lengths(&stream, lengths)?;
            graph.replay(&stream)?;
            let (setup, ready) = graph.inputs_mut();
            setup.compare_pattern(&stream, &pattern, ready)?;
        }
    }
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[40, 33], page: Some(16), ..PLAIN };
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    for slopes in [0, 3, 5] {
        let slopes = DeviceBuffer::<f32>::zeroed(&stream, slopes)?;
        let error = setup.decode().alibi(&slopes).err().expect("other slopes than heads");
        assert_eq!(about(&error), "the slopes", "{error}");
        assert!(matches!(error, Error::Length { expected: 4, got, .. } if got == slopes.len()), "{error}");
    }
    for cap in [0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40] {
        let error = setup.decode().soft_cap(cap).err().expect("a cap that is none");
        assert_eq!(about(&error), "the cap", "{error}");
        let text = error.to_string();
        for word in [cap.to_string().as_str(), "a positive finite number", "unlimited without a cap"] {
            assert!(text.contains(word), "no {word:?} in: {text}");
        }
    }
    // Calls that are wrong without a pattern are so with one.
    for pattern in Pattern::each(case.heads) {
        let ready = pattern.upload(&stream)?;
        let refused = |what: &str, spoil: &dyn Fn(&mut Setup<bf16>)| -> Outcome {
            let mut setup = Setup::<bf16>::new(&case, &stream)?;
            spoil(&mut setup);
            let error = ready.run(setup.decode(), &stream).expect_err(what);
            assert_eq!(about(&error), what, "{error}");
            Ok(())
        };
        refused("the page table", &|setup| setup.operands.each += 1)?;
        refused("the keys", &|setup| setup.operands.sides[3] += 8)?;
        refused("the scale", &|setup| setup.case.scale = Some(-1.0))?;
        refused("the lengths", &|setup| setup.lengths = DeviceBuffer::zeroed(&stream, 3).unwrap())?;
        // New keys that some query may not see.
        let mut setup = Setup::<bf16>::new(&case, &stream)?;
        setup.make_new(&stream)?;
        let decode = setup.decode().mask(Mask::CAUSAL.from_top_left());
        let error = ready.run(decode, &stream).expect_err("a mask from the top left");
        assert_eq!(about(&error), "the mask", "{error}");
    }
    Ok(())
}

#[test]
fn a_plan_tells_what_and_why() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    for (pattern, name) in Pattern::each(4).into_iter().zip(["ALiBi", "a soft cap"]) {
        let case = Case { lengths: &[300, 20], page: Some(16), left: Some(99), right: Some(0), ..PLAIN };
        let mut setup = Setup::<f16>::new(&Case { size: 72, ..case }, &stream)?;
        let plan = pattern.upload(&stream)?.explain(setup.decode(), &stream)?;
        assert_eq!((plan.kernel, plan.pattern), ("attention_decode_pattern_f16_128", Some(name)));
        let by = format!("by attention_decode_pattern_f16_128: it has {name}, and its rows are the shortest");
        let text = plan.to_string();
        assert!(text.contains(&by) && text.contains("keys -99..=0"), "{text}");
        // Without one there is no word of it.
        let plan = setup.decode().explain(&stream)?;
        assert_eq!((plan.kernel, plan.pattern), ("attention_decode_f16_128", None));
        assert!(!plan.to_string().contains("it has"), "{plan}");
    }
    Ok(())
}

/// Each pattern has records of its own.
#[test]
fn a_tuner_measures_patterns() -> Outcome {
    fn measured(tuner: &Tuner, stream: &Stream, call: Call<'_, '_>) -> Done<()> {
        match call {
            Call::Alibi(call) => tuner.run(stream, call),
            Call::SoftCap(call) => tuner.run(stream, call),
        }
    }
    fn explained(tuner: &Tuner, stream: &Stream, call: Call<'_, '_>) -> Done<DecodePlan> {
        match call {
            Call::Alibi(call) => tuner.explain(stream, call),
            Call::SoftCap(call) => tuner.explain(stream, call),
        }
    }
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let tuner = Tuner::new(&device()?, Tuning::Measure);
    let mut setup = Setup::<bf16>::new(&Case { lengths: &[150, 20], ..STEEP }, &stream)?;
    tuner.run(&stream, setup.decode())?;
    for (records, pattern) in [2, 3].into_iter().zip(Pattern::each(4)) {
        let ready = pattern.upload(&stream)?;
        assert_eq!(explained(&tuner, &stream, ready.of(setup.decode())?)?.source, Source::Estimate);
        measured(&tuner, &stream, ready.of(setup.decode())?)?;
        assert_eq!(tuner.len(), records);
        let plan = explained(&tuner, &stream, ready.of(setup.decode())?)?;
        assert!(matches!(plan.source, Source::Record { .. }), "{plan}");
        setup.compare_pattern(&stream, &pattern, &ready)?;
    }
    Ok(())
}
