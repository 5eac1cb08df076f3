//! Oracle of the cosine similarity kernels: every score in f64, every query's full ranking, and the rules for
//! checking a result.

use crate::{Exact, exact};
use rayon::prelude::*;

/// Index of entries past the end of the corpus, if `k` exceeds its length.
pub const NO_INDEX: u32 = u32::MAX;

/// One entry of a ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// Row of the corpus.
    pub index: u32,
    /// Cosine of the angle between that row and the query.
    pub score: f64,
}

/// Cosine of the angle between `a` and `b`: 0 if either is all zeros, NaN if either holds a NaN or an
/// infinity.
pub fn score<T: Exact>(a: &[T], b: &[T]) -> f64 {
    score_exact(&exact(a), &exact(b))
}

fn score_exact(a: &[f64], b: &[f64]) -> f64 {
    let (mut dot, mut norm_a, mut norm_b) = (0f64, 0f64, 0f64);
    for (&a, &b) in a.iter().zip(b) {
        if !a.is_finite() || !b.is_finite() {
            return f64::NAN;
        }
        dot += a * b;
        norm_a += a * a;
        norm_b += b * b;
    }
    if norm_a == 0.0 || norm_b == 0.0 { 0.0 } else { dot / (norm_a.sqrt() * norm_b.sqrt()) }
}

/// The order of a ranking: higher scores first, NaN last, ties to the lower index.
fn order(a: &Ranked, b: &Ranked) -> std::cmp::Ordering {
    let by_score = match (a.score.is_nan(), b.score.is_nan()) {
        (false, false) => b.score.partial_cmp(&a.score).unwrap_or(std::cmp::Ordering::Equal),
        (a_nan, b_nan) => a_nan.cmp(&b_nan),
    };
    by_score.then(a.index.cmp(&b.index))
}

/// The best `min(k, N)` rows of `corpus` `[N, dim]` for each row of `queries` `[Q, dim]`, best first.
///
/// # Panics
/// If `dim` is 0 or a length is not a multiple of it.
pub fn topk<T: Exact>(corpus: &[T], queries: &[T], dim: usize, k: usize) -> Vec<Vec<Ranked>> {
    assert!(
        dim > 0 && corpus.len().is_multiple_of(dim) && queries.len().is_multiple_of(dim),
        "cosine: {} and {} elements for rows of {dim}",
        corpus.len(),
        queries.len()
    );
    topk_exact(&exact(corpus), &exact(queries), dim, k)
}

fn topk_exact(corpus: &[f64], queries: &[f64], dim: usize, k: usize) -> Vec<Vec<Ranked>> {
    let rank = |query: &[f64]| {
        let mut all: Vec<Ranked> = corpus
            .par_chunks_exact(dim)
            .enumerate()
            .map(|(index, row)| Ranked { index: index as u32, score: score_exact(row, query) })
            .collect();
        all.sort_by(order);
        all.truncate(k);
        all
    };
    queries.chunks_exact(dim).map(rank).collect()
}

/// The reason why a result is wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A length is not `Q * k`.
    Length {
        /// The lengths of the scores and the indices.
        got: (usize, usize),
        /// `Q * k`.
        want: usize,
    },
    /// An entry breaks a rule.
    Entry {
        /// Row of the queries.
        query: usize,
        /// Place in that query's ranking.
        rank: usize,
        /// The broken rule.
        rule: &'static str,
        /// The result's entry.
        got: (u32, f32),
        /// The oracle's entry at this rank.
        want: Option<Ranked>,
    },
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Length { got, want } => {
                write!(f, "cosine: {} scores and {} indices, wanted {want} of each", got.0, got.1)
            }
            Fault::Entry { query, rank, rule, got, want } => write!(
                f,
                "cosine: query {query}, rank {rank}: {rule}: got row {} with score {:e}, the oracle has {want:?}",
                got.0, got.1
            ),
        }
    }
}

impl std::error::Error for Fault {}

/// A problem with its exact answer. Results are checked against it.
pub struct Checker<'a, T> {
    corpus: &'a [T],
    queries: &'a [T],
    dim: usize,
    k: usize,
    want: Vec<Vec<Ranked>>,
}

impl<'a, T: Exact> Checker<'a, T> {
    /// Ranks the whole corpus for every query.
    ///
    /// # Panics
    /// As [`topk`].
    pub fn new(corpus: &'a [T], queries: &'a [T], dim: usize, k: usize) -> Self {
        Checker { corpus, queries, dim, k, want: topk(corpus, queries, dim, k) }
    }

    /// The oracle's rankings.
    pub fn want(&self) -> &[Vec<Ranked>] {
        &self.want
    }

    /// Checks `scores` and `indices`, both `[Q, k]`, with an allowed score error of `allowed`. An entry
    /// passes if
    ///
    /// 1. its index is a row of the corpus that this query has not named before;
    /// 2. its score differs from the exact score *of that row* by at most `allowed` (NaN exactly where that
    ///    is NaN);
    /// 3. its score differs from the exact score *at this rank* by at most `allowed`, in the same way;
    /// 4. it does not rank before its predecessor: lower score (NaN lowest), or the same score and a higher
    ///    index.
    ///
    /// So every score belongs to its row, and no omitted row is better than any entry by more than `2 *
    /// allowed`. Entries past the end of the corpus are ([`NO_INDEX`], minus infinity). If `allowed` is 0,
    /// the indices must also equal the oracle's.
    ///
    /// # Errors
    /// The first entry that breaks a rule, with the rule.
    pub fn check(&self, scores: &[f32], indices: &[u32], allowed: f64) -> Result<(), Fault> {
        let want = self.want.len() * self.k;
        if scores.len() != want || indices.len() != want {
            return Err(Fault::Length { got: (scores.len(), indices.len()), want });
        }
        for query in 0..self.want.len() {
            let range = query * self.k..(query + 1) * self.k;
            self.check_query(query, &scores[range.clone()], &indices[range], allowed)?;
        }
        Ok(())
    }

    fn check_query(&self, query: usize, scores: &[f32], indices: &[u32], allowed: f64) -> Result<(), Fault> {
        let vector = &self.queries[query * self.dim..][..self.dim];
        let mut seen = std::collections::HashSet::new();
        let mut previous: Option<Ranked> = None;
        for (rank, (&index, &got)) in indices.iter().zip(scores).enumerate() {
            let want = self.want[query].get(rank).copied();
            let fail = |rule| Err(Fault::Entry { query, rank, rule, got: (index, got), want });
            let Some(at_rank) = want else {
                if index != NO_INDEX || got != f32::NEG_INFINITY {
                    return fail("past the end of the corpus only the sentinel may stand");
                }
                continue;
            };
            let Some(row) = self.corpus.chunks_exact(self.dim).nth(index as usize) else {
                return fail("the index must be a row of the corpus");
            };
            if !seen.insert(index) {
                return fail("a row may be named once");
            }
            if !agrees(got, score(row, vector), allowed) {
                return fail("the score must be that of the row");
            }
            if !agrees(got, at_rank.score, allowed) {
                return fail("the score must be that of the rank");
            }
            let entry = Ranked { index, score: got.into() };
            if previous.is_some_and(|previous| order(&previous, &entry).is_ge()) {
                return fail("scores must fall, NaN last, ties to the lower index");
            }
            if allowed == 0.0 && index != at_rank.index {
                return fail("exact inputs must give the exact index");
            }
            previous = Some(entry);
        }
        Ok(())
    }
}

fn agrees(got: f32, want: f64, allowed: f64) -> bool {
    if want.is_nan() { got.is_nan() } else { (f64::from(got) - want).abs() <= allowed }
}

#[cfg(test)]
mod tests {
    use super::{Checker, Fault, NO_INDEX, score, topk};

    const CORPUS: [f32; 10] = [1.0, 0.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0, f32::NAN, 1.0];

    fn indices(k: usize) -> Vec<u32> {
        topk(&CORPUS, &[2f32, 0.0], 2, k)[0].iter().map(|entry| entry.index).collect()
    }

    #[test]
    fn scores_by_hand() {
        assert_eq!(score(&[3f32, 4.0], &[6.0, 8.0]), 1.0);
        assert_eq!(score(&[3f32, 4.0], &[4.0, -3.0]), 0.0);
        assert_eq!(score(&[0f32, 0.0], &[4.0, -3.0]), 0.0);
        assert!(score(&[0f32, 0.0], &[f32::INFINITY, 0.0]).is_nan());
    }

    #[test]
    fn ties_go_to_the_lower_index_and_nan_ranks_last() {
        assert_eq!(indices(3), [0, 2, 1]);
        assert_eq!(indices(9), [0, 2, 1, 3, 4]);
    }

    /// The rule that each kind of wrong result breaks.
    #[test]
    fn every_wrong_result_is_refused() {
        let checker = Checker::new(&CORPUS, &[2f32, 0.0], 2, 6);
        let (scores, indices) =
            ([1.0, 1.0, 0.0, 0.0, f32::NAN, f32::NEG_INFINITY], [0, 2, 1, 3, 4, NO_INDEX]);
        assert_eq!(checker.check(&scores, &indices, 0.0), Ok(()));

        let rule = |place: usize, index: u32, score: f32, allowed: f64| {
            let (mut scores, mut indices) = (scores, indices);
            (scores[place], indices[place]) = (score, index);
            match checker.check(&scores, &indices, allowed) {
                Err(Fault::Entry { rule, rank, .. }) => (rank, rule),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(rule(5, 0, 0.0, 1.0).0, 5, "sentinel");
        assert!(rule(0, 9, 1.0, 1.0).1.contains("a row of the corpus"));
        assert!(rule(1, 0, 1.0, 1.0).1.contains("once"));
        assert!(rule(0, 1, 1.0, 0.5).1.contains("of the row"));
        assert!(rule(1, 3, 0.0, 0.5).1.contains("of the rank"));
        assert!(rule(4, 4, 0.0, 0.5).1.contains("of the row"));
        assert!(rule(0, 0, 0.9, 0.2).1.contains("fall"));
        let swapped = checker.check(&scores, &[2, 0, 1, 3, 4, NO_INDEX], 0.5);
        assert!(matches!(swapped, Err(Fault::Entry { rank: 1, .. })), "{swapped:?}");
        let near = Checker::new(&[1f32, 0.0, 1.0, 0.001], &[2f32, 0.0], 2, 1);
        assert!(near.check(&[1.0], &[1], 1e-3).is_ok());
        assert!(near.check(&[1.0], &[1], 0.0).is_err());
        assert!(matches!(checker.check(&scores[1..], &indices, 0.5), Err(Fault::Length { .. })));
    }
}
