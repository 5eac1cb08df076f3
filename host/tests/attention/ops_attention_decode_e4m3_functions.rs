//! Decode attention on a cache in e4m3 with a score function of another package, against the oracle of
//! `reference` on what the cache stands for.

use super::*;
use crate::fade_case::Arguments;

impl Case {
    /// With a function that shows the first keys and every so many-th: the results are the oracle's, and the
    /// cache holds what it should.
    fn fade<T: Number>(&self, first: u32, step: u32) -> Outcome {
        if !decodes_e4m3()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        let mut setup = Setup::<T>::new(self, &stream)?;
        let arguments = self.arguments(first, step);
        let fading = arguments.upload(&stream)?;
        fading.modified(setup.decode()).run(&stream)?;
        setup.compare_cache(&stream)?;
        let want = setup.oracle_with(|score, place| arguments.modify(self.lengths, score, place));
        setup.compare_with(&stream, &want)
    }

    /// For its positions, and no others.
    fn arguments(&self, first: u32, step: u32) -> Arguments {
        let Case { lengths, queries, heads, .. } = *self;
        let ([_, page, ..], each) = self.cache();
        Arguments::new([lengths.len(), queries, heads, each * page], first, step)
    }
}

/// About the borders of tiles and chunks, in matrices and pages, cut and whole.
#[test]
fn every_kernel() -> Outcome {
    let lengths = &[0, 1, 7, 63, 64, 65, 150];
    for (page, blocks) in [(None, None), (Some(16), Some(5)), (Some(12), Some(1))] {
        Case { lengths, page, blocks, ..PLAIN }.fade::<bf16>(3, 5)?;
        Case { lengths, page, blocks, size: 64, ..PLAIN }.fade::<f16>(0, 2)?;
    }
    // Shorter than the kernels' rows.
    Case { lengths: &[37, 80], size: 80, ..PLAIN }.fade::<bf16>(1, 3)?;
    Case { lengths: &[37, 80], size: 48, ..PLAIN }.fade::<f16>(1, 3)
}

/// Heads and queries that share a head of keys, in one tile of rows and in several; and queries that see
/// nothing.
#[test]
fn groups_and_queries() -> Outcome {
    for (heads, kv_heads) in [(1, 1), (6, 6), (17, 1), (40, 2)] {
        Case { heads, kv_heads, queries: 3, lengths: &[70, 2], ..PLAIN }.fade::<bf16>(2, 3)?;
    }
    Case { queries: 3, lengths: &[130, 70], blocks: Some(4), ..PLAIN }.fade::<bf16>(0, 1000)
}

/// The function gets scores in which the scale of the keys is: scales that are 0, and such that scores are
/// huge.
#[test]
fn scales_are_in_the_scores() -> Outcome {
    let lengths = &[65, 3];
    for scales in [[[0.0, 1.0], [1.0, 0.0]], [[1e4, 1e-30], [1e-30, 1e30]]] {
        Case { lengths, scales, ..PLAIN }.fade::<bf16>(1, 2)?;
    }
    Ok(())
}

/// The last keys are new: rotated, put into the cache, and seen by the function at their places.
#[test]
fn new_keys() -> Outcome {
    for page in [None, Some(16), Some(12)] {
        let case = Case { page, rotated: 64, blocks: Some(3), lengths: &[66, 17, 1, 0, 64], ..APPENDING };
        case.fade::<bf16>(3, 4)?;
        Case { size: 64, rotated: 32, ..case }.fade::<f16>(3, 4)?;
    }
    Ok(())
}

/// A head whose scores are no numbers spoils no other.
#[test]
fn strange_scores_stay_with_their_head() -> Outcome {
    if !decodes_e4m3()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { lengths: &[150, 40], queries: 3, blocks: Some(3), ..PLAIN };
    let mut setup = Setup::<bf16>::new(&case, &stream)?;
    let mut arguments = case.arguments(2, 3);
    arguments.slopes[1] = f32::NAN;
    let fading = arguments.upload(&stream)?;
    fading.modified(setup.decode()).run(&stream)?;
    let out = setup.out.to_vec(&stream)?;
    for (row, values) in out.chunks(case.size).enumerate() {
        let is_strange = row % case.heads == 1;
        assert!(values.iter().all(|value| value.is_nan() == is_strange), "row {row}: {values:?}");
    }
    Ok(())
}

/// Types that the function is not compiled for; the error says where kernels are named.
#[test]
fn problems_without_a_kernel() -> Outcome {
    if !decodes_e4m3()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let mut setup = Setup::<f16>::new(&PLAIN, &stream)?;
    let fading = PLAIN.arguments(0, 1).upload(&stream)?;
    let error = fading.modified(setup.decode()).run(&stream).expect_err("f16 on e4m3, rows of 128");
    for word in ["f8_e4m3", "decode_score_kernels!", "`e4m3:`"] {
        assert!(error.to_string().contains(word), "no {word:?} in: {error}");
    }
    Ok(())
}
