//! Decode attention with a score function of another package, against the oracle of `reference`.

use super::*;
use crate::fade_case::Arguments;
use ironwarp::Error;
use ironwarp::ops::attention::CacheScales;
use num::E4M3;

/// For the positions of a case, and no others.
fn arguments<T: Number>(setup: &Setup<T>, first: u32, step: u32) -> Arguments {
    let Case { lengths, queries, heads, .. } = setup.case;
    Arguments::new([lengths.len(), queries, heads, setup.most_keys()], first, step)
}

impl<T: Number> Setup<T> {
    /// Most keys of a sequence.
    fn most_keys(&self) -> usize {
        if self.case.page.is_some() {
            self.operands.each * self.operands.sides[1]
        } else {
            self.operands.sides[1]
        }
    }

    /// Makes the last keys of each sequence new ones, as many as queries: no numbers lie in their places.
    pub(super) fn make_new(&mut self, stream: &Stream) -> Outcome {
        let Case { lengths, queries, kv_heads, size, .. } = self.case;
        let Operands { sides, ref table, each, .. } = self.operands;
        let row = kv_heads * size;
        let mut new = [Vec::new(), Vec::new()];
        for (operand, new) in new.iter_mut().enumerate() {
            let mut kept = self.operands.cache[operand].clone();
            for (sequence, &length) in lengths.iter().enumerate() {
                for key in length - queries..length {
                    let place = self.case.place(sides, (table, each), sequence, key);
                    let last = &mut kept[place * row..][..row];
                    new.extend_from_slice(last);
                    last.fill(T::from_f64(f64::NAN));
                }
            }
            self.cache[operand].copy_from_slice(stream, &kept)?;
        }
        let [keys, values] = new;
        self.new =
            Some([DeviceBuffer::from_slice(stream, &keys)?, DeviceBuffer::from_slice(stream, &values)?]);
        Ok(())
    }

    /// The cache is as it was before its last keys were made new ones.
    pub(super) fn compare_cache(&self, stream: &Stream) -> Outcome {
        for (cache, want) in self.cache.iter().zip(&self.operands.cache) {
            bitwise_equal("the cache", &cache.to_vec(stream)?, want)?;
        }
        Ok(())
    }

    fn check_function(&mut self, stream: &Stream, arguments: &Arguments) -> Outcome {
        let fading = arguments.upload(stream)?;
        let plan = fading.modified(self.decode()).explain(stream)?;
        fading.modified(self.decode()).run(stream)?;
        let want = self.oracle_with(|score, place| arguments.modify(self.case.lengths, score, place));
        self.compare_with(stream, &plan, want)
    }
}

impl Case {
    /// With a function that shows the first keys and every so many-th, the results are the oracle's.
    fn fade<T: Number>(&self, first: u32, step: u32) -> Outcome {
        if !decodes()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        let mut setup = Setup::<T>::new(self, &stream)?;
        let arguments = arguments(&setup, first, step);
        setup.check_function(&stream, &arguments)
    }
}

/// Lengths about the borders of tiles and chunks, and none.
const RAGGED: &[usize] = &[150, 0, 1, 63, 64, 37];

#[test]
fn every_kernel() -> Outcome {
    for size in [40, 64] {
        Case { size, lengths: RAGGED, ..PLAIN }.fade::<bf16>(3, 5)?;
    }
    for size in [56, 128] {
        Case { size, lengths: RAGGED, scale: Some(0.5), ..PLAIN }.fade::<f16>(0, 2)?;
    }
    for size in [200, 256] {
        Case { size, lengths: &[70, 2], ..PLAIN }.fade::<bf16>(1, 3)?;
    }
    Ok(())
}

/// Sequences that one block computes, and that several do; pages with whole tiles, and others.
#[test]
fn parts_and_pages() -> Outcome {
    for blocks in [1, 3, 1000] {
        for page in [None, Some(16), Some(10)] {
            let case = Case { lengths: &[300, 0, 70], page, blocks: Some(blocks), ..PLAIN };
            case.fade::<bf16>(4, 3)?;
        }
    }
    // All sequences have the most keys, and the last tile has fewer than it could.
    let case = Case { lengths: &[75; 2], tells_lengths: false, blocks: Some(2), ..PLAIN };
    case.fade::<f16>(0, 1)
}

/// Heads and queries that share a head of keys, in one tile of rows and in several, under masks.
#[test]
fn groups_queries_and_masks() -> Outcome {
    for (heads, kv_heads) in [(3, 1), (6, 6), (17, 1), (6, 2)] {
        Case { heads, kv_heads, lengths: &[90, 65], ..PLAIN }.fade::<bf16>(2, 3)?;
    }
    for (left, right) in [(None, None), (None, Some(0)), (Some(20), Some(0)), (Some(70), None)] {
        let case = Case { queries: 9, lengths: &[90, 3, 130], left, right, blocks: Some(3), ..PLAIN };
        case.fade::<f16>(2, 4)?;
    }
    Ok(())
}

/// Queries that see nothing, though the band shows them keys.
#[test]
fn masks_that_hide_all() -> Outcome {
    for blocks in [1, 4] {
        let case = Case { lengths: &[130, 70], queries: 3, blocks: Some(blocks), ..PLAIN };
        case.fade::<bf16>(0, 1000)?;
    }
    Ok(())
}

/// A key that the band hides has no score, whatever the function says of it.
#[test]
fn what_the_band_hides_stays_hidden() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    // The keys from 79 on are seen; their tile begins at 64.
    let case = Case { lengths: &[100], left: Some(20), ..PLAIN };
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    let mut arguments = arguments(&setup, 0, 1);
    arguments.biases[70] = f32::INFINITY;
    setup.check_function(&stream, &arguments)
}

/// Sinks stand beside the function's scores.
#[test]
fn sinks_beside_a_function() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let scores = [2.0, -30.0, 0.5, f32::NEG_INFINITY];
    let sinks = DeviceBuffer::from_slice(&stream, &scores)?;
    for blocks in [1, 3] {
        let case = Case { lengths: &[130, 0], scale: Some(0.25), blocks: Some(blocks), ..PLAIN };
        let mut setup = Setup::<bf16>::new(&case, &stream)?;
        let arguments = arguments(&setup, 2, 3);
        let fading = arguments.upload(&stream)?;
        let plan = setup.decode().explain(&stream)?;
        fading.modified(setup.decode().sinks(&sinks)).run(&stream)?;
        let Case { lengths, queries, heads, kv_heads, size, .. } = case;
        let sides = Sides { batch: lengths.len(), queries, keys: 0, heads, kv_heads, size };
        let want = setup.oracle_with(|score, place| arguments.modify(case.lengths, score, place));
        setup.compare_with(&stream, &plan, want.with_sinks(sides, &scores.map(f64::from)))?;
    }
    Ok(())
}

/// The last keys are new: they are put into the cache, and have the places of their keys.
#[test]
fn new_keys_with_a_function() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[100, 2, 65], queries: 2, right: Some(0), blocks: Some(3), ..PLAIN };
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    setup.make_new(&stream)?;
    let arguments = arguments(&setup, 3, 4);
    setup.check_function(&stream, &arguments)?;
    setup.compare_cache(&stream)
}

/// Lengths below 0 and beyond the most: the function is asked of no key that there is not.
#[test]
fn hostile_lengths_with_a_function() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[0, 75], tells_lengths: true, ..PLAIN };
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    setup.cache[0].fill_zero(&stream)?;
    setup.cache[1].fill_zero(&stream)?;
    setup.lengths.copy_from_slice(&stream, &[i32::MIN, i32::MAX])?;
    let mut arguments = arguments(&setup, 0, 1);
    arguments.slopes.fill(0.0);
    arguments.biases.fill(0.5);
    let fading = arguments.upload(&stream)?;
    fading.modified(setup.decode()).run(&stream)?;
    let sums = setup.logarithms.to_vec(&stream)?;
    let want = (setup.most_keys() as f32).ln() + 0.5;
    assert!(sums[..4].iter().all(|sum| *sum == f32::NEG_INFINITY), "{sums:?}");
    assert!(sums[4..].iter().all(|sum| (sum - want).abs() < 1e-5), "{sums:?}, {want}");
    Ok(())
}

/// A head whose scores are no numbers spoils no other.
#[test]
fn strange_scores_stay_with_their_head() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[150, 40], queries: 3, blocks: Some(3), ..PLAIN };
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    let mut arguments = arguments(&setup, 2, 3);
    arguments.slopes[1] = f32::NAN;
    setup.check_function(&stream, &arguments)?;
    let out = setup.out.to_vec(&stream)?;
    for (row, values) in out.chunks(case.size).enumerate() {
        let is_strange = row % case.heads == 1;
        assert!(values.iter().all(|value| value.is_nan() == is_strange), "row {row}: {values:?}");
    }
    Ok(())
}

/// The same bits in every run; and with other lengths, on the device alone, other distances.
#[test]
fn graphs_replay_a_function_with_other_lengths() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[200, 130], page: Some(16), blocks: Some(4), ..PLAIN };
    let setup = Setup::<bf16>::new(&case, &stream)?;
    let arguments = arguments(&setup, 2, 3);
    let inputs = (setup, arguments.upload(&stream)?);
    let mut graph = Graph::capture(&stream, inputs, |stream, (setup, fading)| {
        fading.modified(setup.decode()).run(stream)
    })?;
    let mut first = None;
    for _ in 0..2 {
        let (setup, _) = graph.inputs_mut();
        setup.out.fill_zero(&stream)?;
        graph.replay(&stream)?;
        let (setup, _) = graph.inputs();
        setup.is_as_first(&stream, &mut first)?;
    }
    for lengths in [&[200, 130], &[1, 90]] {
        let (setup, fading) = graph.inputs_mut();
        setup.set_lengths(&stream, lengths)?;
        let plan = fading.modified(setup.decode()).explain(&stream)?;
        graph.replay(&stream)?;
        let (setup, _) = graph.inputs();
        let want = setup.oracle_with(|score, place| arguments.modify(setup.case.lengths, score, place));
        setup.compare_with(&stream, &plan, want)?;
    }
    Ok(())
}

/// Types and head sizes that the function is not compiled for; the errors say where kernels are named.
#[test]
fn problems_without_a_kernel() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let refused = |error: Error, words: &[&str]| {
        let text = error.to_string();
        assert_eq!(about(&error), "the problem", "{text}");
        for word in words.iter().chain(&["decode_score_kernels!"]) {
            assert!(text.contains(word), "no {word:?} in: {text}");
        }
    };
    let case = Case { lengths: &[20, 33], size: 256, ..PLAIN };
    let mut setup = Setup::<f16>::new(&case, &stream)?;
    let fading = arguments(&setup, 0, 1).upload(&stream)?;
    refused(fading.modified(setup.decode()).run(&stream).expect_err("f16 of 256"), &["f16 [2, 1, 4, 256]"]);
    // Its own kernels are not the function's.
    assert_eq!(setup.decode().explain(&stream)?.kernel, "attention_decode_f16_256");
    let mut setup = Setup::<bf16>::new(&Case { size: 64, ..case }, &stream)?;
    assert_eq!(fading.modified(setup.decode()).explain(&stream)?.kernel, "fade_decode_bf16_64");
    let sides = setup.operands.sides;
    let narrow = DeviceBuffer::<E4M3>::zeroed(&stream, sides.iter().product())?;
    let ones = DeviceBuffer::from_slice(&stream, &[1.0f32; 2])?;
    let narrow = Heads::new(&narrow, sides);
    let queries = Heads::new(&setup.queries, [2, 1, 4, 64]);
    let decode = Decode::new(queries, narrow, narrow, HeadsMut::new(&mut setup.out, [2, 1, 4, 64]));
    let scales = CacheScales { keys: ones.view(), values: ones.view() };
    // The next longer rows.
    let plan = fading.modified(decode.scales(scales)).explain(&stream)?;
    assert_eq!(plan.kernel, "fade_decode_bf16_e4m3_128");
    Ok(())
}

/// Kernels with a function have records of their own.
#[test]
fn a_tuner_measures_functions() -> Outcome {
    if !decodes()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let tuner = Tuner::new(&device()?, Tuning::Measure);
    let mut setup = Setup::<bf16>::new(&Case { lengths: &[150, 20], ..PLAIN }, &stream)?;
    let arguments = arguments(&setup, 2, 3);
    let fading = arguments.upload(&stream)?;
    tuner.run(&stream, setup.decode())?;
    tuner.run(&stream, fading.modified(setup.decode()))?;
    assert_eq!(tuner.len(), 2);
    let plan = tuner.explain(&stream, fading.modified(setup.decode()))?;
    assert!(
        matches!(plan.source, Source::Record { .. }) && plan.kernel.starts_with("fade_decode_bf16_"),
        "{plan}"
    );
    let want = setup.oracle_with(|score, place| arguments.modify(setup.case.lengths, score, place));
    setup.compare_with(&stream, &plan, want)
}
