//! Decode attention on a cache in e4m3 with ALiBi and with a soft cap, against the oracle of `reference` on
//! what the cache stands for.

use super::*;
use crate::pattern_case::Pattern;

impl Case {
    /// With each pattern, the results are the oracle's, and the cache holds what it should.
    fn patterns<T: Number>(&self) -> Outcome {
        if !decodes_e4m3()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        for pattern in Pattern::each(self.heads) {
            let mut setup = Setup::<T>::new(self, &stream)?;
            let ready = pattern.upload(&stream)?;
            let plan = ready.explain(setup.decode(), &stream)?;
            assert!(plan.kernel.starts_with("attention_decode_pattern_") && plan.kernel.contains("_e4m3_"));
            ready.run(setup.decode(), &stream)?;
            setup.compare_cache(&stream)?;
            let modify = |score, place| Some(pattern.modify(self.lengths, self.queries, score, place));
            setup.compare_within(&stream, &setup.oracle_with(modify), pattern.errors())?;
        }
        Ok(())
    }
}

/// About the borders of tiles and chunks, in matrices and pages, cut and whole.
#[test]
fn every_kernel() -> Outcome {
    let lengths = &[0, 1, 7, 63, 64, 65, 127, 128, 129, 1000];
    for (page, blocks) in [(None, None), (Some(16), Some(5)), (Some(12), Some(1))] {
        Case { lengths, page, blocks, ..PLAIN }.patterns::<bf16>()?;
    }
    for size in [48, 64, 80, 128] {
        Case { lengths: &[37, 80], size, ..PLAIN }.patterns::<bf16>()?;
        Case { lengths: &[37, 80], size, ..PLAIN }.patterns::<f16>()?;
    }
    Ok(())
}

/// Heads and queries that share a head of keys, in one tile of rows and in several.
#[test]
fn groups_and_queries() -> Outcome {
    for (heads, kv_heads) in [(1, 1), (6, 6), (17, 1), (40, 2)] {
        Case { heads, kv_heads, queries: 3, lengths: &[70, 2], ..PLAIN }.patterns::<bf16>()?;
    }
    Ok(())
}

/// Scores in which the scale of the keys is, and which are huge.
#[test]
fn scales_are_in_the_scores() -> Outcome {
    for scales in [[[0.0, 1.0], [1.0, 0.0]], [[1e4, 1e-30], [1e-30, 1e30]]] {
        Case { lengths: &[65, 3], scales, ..PLAIN }.patterns::<bf16>()?;
    }
    Ok(())
}

/// The last keys are new: rotated, put into the cache, and at the distances of their places.
#[test]
fn new_keys() -> Outcome {
    for page in [None, Some(16), Some(12)] {
        let case = Case { page, rotated: 64, blocks: Some(3), lengths: &[66, 17, 1, 0, 64], ..APPENDING };
        case.patterns::<bf16>()?;
        Case { size: 64, rotated: 32, ..case }.patterns::<f16>()?;
    }
    Ok(())
}
