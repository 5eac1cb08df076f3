//! `cosine_topk` against its oracle, on whichever driver is there.

use crate::common::Outcome;
use half::{bf16, f16};
use ironwarp::ops::cosine::{Corpus, Element, TopK, Vectors, cosine_topk};
use ironwarp::{Device, DeviceBuffer, Error, Stream};
use reference::cosine::{Checker, NO_INDEX};
use testkit::{Family, compare::bitwise_equal, input, spot_special, tolerance};

/// A result on the host.
struct Found {
    scores: Vec<f32>,
    indices: Vec<u32>,
}

impl Found {
    fn new(stream: &Stream, result: &TopK) -> Result<Found, Error> {
        Ok(Found { scores: result.scores.to_vec(stream)?, indices: result.indices.to_vec(stream)? })
    }
}

fn open() -> Result<Stream, Error> {
    Device::open(0)?.stream()
}

/// Searches `corpus` and `queries` from element `skip` on, so that both can lie off the 16-byte boundary.
fn search<T: Element>(
    corpus: &[T],
    queries: &[T],
    dim: usize,
    k: usize,
    skip: usize,
) -> Result<Found, Error> {
    let stream = open()?;
    let corpus = DeviceBuffer::from_slice(&stream, corpus)?;
    let queries = DeviceBuffer::from_slice(&stream, queries)?;
    let corpus = Vectors::new(corpus.slice(skip..)?, dim)?;
    let queries = Vectors::new(queries.slice(skip..)?, dim)?;
    Found::new(&stream, &cosine_topk(&stream, corpus, queries, k)?)
}

fn allowed(dim: usize) -> f64 {
    tolerance::COSINE_SCORE.for_terms(dim).allowed(1.0)
}

/// A problem with `n` rows and `q` queries of one family, checked to within the tolerance.
fn case<T: Element + testkit::Element + Into<f64>>(
    family: Family,
    [n, q, dim, k]: [usize; 4],
    skip: usize,
) -> Outcome {
    let corpus: Vec<T> = input(family, 11, n * dim + skip);
    let queries: Vec<T> = input(family, 12, q * dim + skip);
    let found = search(&corpus, &queries, dim, k, skip)?;
    let checker = Checker::new(&corpus[skip..], &queries[skip..], dim, k);
    checker
        .check(&found.scores, &found.indices, allowed(dim))
        .map_err(|fault| format!("{family:?}, n {n}, q {q}, dim {dim}, k {k}, skip {skip}: {fault}").into())
}

const DIMS: [usize; 9] = [1, 7, 8, 15, 16, 17, 64, 100, 768];
const ROWS: [usize; 9] = [0, 1, 15, 16, 17, 127, 128, 129, 1000];
const QUERIES: [usize; 9] = [1, 2, 7, 8, 9, 16, 17, 64, 130];
const KS: [usize; 5] = [1, 5, 10, 64, 128];

#[test]
fn any_dim() -> Outcome {
    for dim in DIMS {
        case::<f16>(Family::Normal, [129, 3, dim, 5], 0)?;
        case::<f16>(Family::Normal, [129, 40, dim, 5], 0)?;
    }
    Ok(())
}

#[test]
fn any_number_of_rows() -> Outcome {
    for n in ROWS {
        case::<f16>(Family::Normal, [n, 3, 40, 10], 0)?;
        case::<f16>(Family::Normal, [n, 40, 40, 10], 0)?;
    }
    Ok(())
}

#[test]
fn any_number_of_queries() -> Outcome {
    for q in QUERIES {
        case::<f16>(Family::Normal, [300, q, 48, 7], 0)?;
    }
    case::<f16>(Family::Normal, [300, 0, 48, 7], 0)
}

#[test]
fn any_k() -> Outcome {
    for k in KS {
        for q in [1, 16, 33] {
            case::<f16>(Family::Normal, [500, q, 32, k], 0)?;
        }
    }
    Ok(())
}

#[test]
fn any_alignment() -> Outcome {
    for skip in 1..8 {
        case::<f16>(Family::Normal, [140, 2, 64, 5], skip)?;
        case::<f16>(Family::Normal, [140, 36, 64, 5], skip)?;
    }
    case::<f16>(Family::Normal, [140, 10, 33, 5], 1)
}

#[test]
fn any_input() -> Outcome {
    for family in Family::ALL {
        for q in [2, 12, 34] {
            case::<f16>(family, [270, q, 40, 20], 0)?;
        }
    }
    Ok(())
}

#[test]
fn bf16_too() -> Outcome {
    for family in [Family::Normal, Family::Cancelling, Family::SmallIntegers, Family::Special] {
        for q in [1, 16, 33] {
            case::<bf16>(family, [270, q, 72, 10], 0)?;
            case::<bf16>(family, [130, q, 31, 10], 3)?;
        }
    }
    Ok(())
}

/// Rows of zeros, ones and minus ones with 0, 4 or 16 of them not zero: norms are 0, 2 or 4, all scores
/// exact.
fn exact(seed: u64, rows: usize, dim: usize) -> Vec<f16> {
    let mut random = testkit::Random::new(seed);
    let mut all = vec![f16::ZERO; rows * dim];
    for row in all.chunks_exact_mut(dim) {
        let mut left = [0, 4, 16][random.integer(0, 2) as usize];
        while left > 0 {
            let place = random.integer(0, dim as i64 - 1) as usize;
            if row[place] == f16::ZERO {
                row[place] = f16::from_f64(random.sign());
                left -= 1;
            }
        }
    }
    all
}

/// Few distinct scores, so nearly everything ties: the indices must be exactly the oracle's.
#[test]
fn exact_inputs_give_exact_indices() -> Outcome {
    for (q, dim, k) in [(1, 24, 10), (5, 20, 128), (16, 24, 64), (33, 24, 10), (130, 24, 128)] {
        let (corpus, queries) = (exact(1, 1300, dim), exact(2, q, dim));
        let found = search(&corpus, &queries, dim, k, 0)?;
        Checker::new(&corpus, &queries, dim, k)
            .check(&found.scores, &found.indices, 0.0)
            .map_err(|fault| format!("q {q}, k {k}: {fault}"))?;
    }
    Ok(())
}

/// Once lists are full, nearly all tiles of the corpus are passed over after a look at their best scores.
/// Here a tile that is not the first of its block has one row at most that enters a list, of one query of 16:
/// wherever that row and that query stand, it must be seen.
#[test]
fn a_row_that_enters_alone_is_seen() -> Outcome {
    const TILE: usize = similarity::sm90::BLOCK_ROWS as usize;
    /// Queries whose lists one warp keeps.
    const WARP: usize = 16;
    let stream = open()?;
    // As many tiles as blocks can begin with, and one more for each query of a warp.
    let first = 2 * (stream.device().properties().sm_count * similarity::tile::BLOCKS_PER_SM) as usize;
    let tiles = first + WARP;
    // For the kernels of few queries, of many, and of many in rows that begin at multiples of 16 bytes.
    for (queries, dim) in [(16, 64), (40, 65), (40, 64)] {
        // Query j points along axis j, most rows along the last one.
        let mut rows: Vec<Vec<(usize, f64)>> = vec![vec![(dim - 1, 1.0)]; tiles * TILE];
        for (tile, rows) in rows.chunks_exact_mut(TILE).enumerate() {
            // Each tile fills all lists, with scores below those of the tiles before it.
            let score = 0.9 - 0.5 * tile as f64 / tiles as f64;
            for query in 0..queries {
                rows[6 * query + tile % 6] = vec![(query, score), (dim - 2, (1.0 - score * score).sqrt())];
            }
        }
        let alone = |query: usize| (first + query % WARP) * TILE + 37 * query % TILE;
        (0..queries).for_each(|query| rows[alone(query)] = vec![(query, 1.0)]);
        let mut corpus = vec![f16::ZERO; rows.len() * dim];
        for (row, parts) in corpus.chunks_exact_mut(dim).zip(&rows) {
            parts.iter().for_each(|&(axis, part)| row[axis] = f16::from_f64(part));
        }
        let axes: Vec<f16> =
            (0..queries * dim).map(|at| if at % dim == at / dim { f16::ONE } else { f16::ZERO }).collect();
        let found = search(&corpus, &axes, dim, 1, 0)?;
        let want: Vec<u32> = (0..queries).map(|query| alone(query) as u32).collect();
        assert_eq!(found.indices, want, "{queries} queries of {dim}");
        assert_eq!(found.scores, vec![1.0; queries], "{queries} queries of {dim}");
    }
    Ok(())
}

/// All rows the same, or all zero: the first `k` win, in order.
#[test]
fn duplicates_rank_by_index() -> Outcome {
    for value in [0.0, 1.0] {
        for q in [1, 33] {
            let (corpus, queries) = (vec![f16::from_f64(value); 1100 * 16], vec![f16::ONE; q * 16]);
            let found = search(&corpus, &queries, 16, 20, 0)?;
            let first: Vec<u32> = (0..20).collect();
            assert!(found.indices.chunks_exact(20).all(|row| row == first), "value {value}, q {q}");
            assert!(found.scores.iter().all(|&s| f64::from(s) == value), "value {value}, q {q}");
        }
    }
    Ok(())
}

/// Rows with NaN and infinities rank behind every number, in the order of their indices, and nothing else is
/// disturbed.
#[test]
fn non_finite_rows_rank_last() -> Outcome {
    for q in [1, 16, 33] {
        let dim = 24;
        let mut corpus: Vec<f16> = input(Family::Normal, 21, 60 * dim);
        for (row, value) in [(3, f64::NAN), (17, f64::INFINITY), (40, f64::NEG_INFINITY), (59, f64::NAN)] {
            spot_special(&mut corpus, &[row * dim + row % dim], value);
        }
        let queries: Vec<f16> = input(Family::Normal, 22, q * dim);
        let found = search(&corpus, &queries, dim, 64, 0)?;
        Checker::new(&corpus, &queries, dim, 64).check(&found.scores, &found.indices, allowed(dim))?;
        for list in found.indices.chunks_exact(64) {
            assert_eq!(list[56..], [3, 17, 40, 59, NO_INDEX, NO_INDEX, NO_INDEX, NO_INDEX]);
        }
    }
    Ok(())
}

#[test]
fn a_query_that_is_not_finite_scores_nan_everywhere() -> Outcome {
    let corpus: Vec<f16> = input(Family::Normal, 31, 20 * 8);
    for value in [f16::NAN, f16::INFINITY] {
        let found = search(&corpus, &[value; 8], 8, 3, 0)?;
        assert!(found.scores.iter().all(|score| score.is_nan()));
        assert_eq!(found.indices, [0, 1, 2]);
    }
    Ok(())
}

/// A prepared corpus gives the same bits, and both kernels agree on the same queries to within the tolerance.
#[test]
fn a_prepared_corpus_changes_nothing() -> Outcome {
    let stream = open()?;
    let (dim, k) = (64, 10);
    let corpus: Vec<f16> = input(Family::Normal, 41, 700 * dim);
    let queries: Vec<f16> = input(Family::Normal, 42, 40 * dim);
    let corpus = DeviceBuffer::from_slice(&stream, &corpus)?;
    let queries = DeviceBuffer::from_slice(&stream, &queries)?;
    let vectors = Vectors::new(&corpus, dim)?;
    let prepared = Corpus::prepare(&stream, vectors)?;
    assert_eq!((prepared.vectors().count(), prepared.vectors().dim()), (700, dim));
    for q in [1, 40] {
        let queries = Vectors::new(queries.slice(..q * dim)?, dim)?;
        let plain = Found::new(&stream, &cosine_topk(&stream, vectors, queries, k)?)?;
        let kept = Found::new(&stream, &prepared.topk(&stream, queries, k)?)?;
        bitwise_equal("scores", &plain.scores, &kept.scores)?;
        assert_eq!(plain.indices, kept.indices);
    }
    Ok(())
}

/// The number of blocks, and the order in which they and their warps run, change nothing.
#[test]
fn results_repeat_bit_for_bit() -> Outcome {
    let (dim, k) = (40, 20);
    let corpus: Vec<f16> = input(Family::Cancelling, 51, 900 * dim);
    for q in [3, 36] {
        let queries: Vec<f16> = input(Family::Normal, 52, q * dim);
        let first = search(&corpus, &queries, dim, k, 0)?;
        for _ in 0..3 {
            let again = search(&corpus, &queries, dim, k, 0)?;
            bitwise_equal("scores", &first.scores, &again.scores)?;
            assert_eq!(first.indices, again.indices);
        }
    }
    Ok(())
}

#[test]
fn hits_on_the_host_stop_where_the_corpus_does() -> Outcome {
    let stream = open()?;
    let corpus = DeviceBuffer::from_slice(&stream, &[f16::ONE; 3 * 16])?;
    let vectors = Vectors::new(&corpus, 16)?;
    let result = cosine_topk(&stream, vectors, vectors, 5)?;
    assert_eq!((result.queries, result.k, result.found), (3, 5, 3));
    for hits in result.to_host(&stream)? {
        assert_eq!(
            hits.iter().map(|hit| (hit.index, hit.score)).collect::<Vec<_>>(),
            [(0, 1.0), (1, 1.0), (2, 1.0)]
        );
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_is_wrong() -> Outcome {
    let stream = open()?;
    let data = DeviceBuffer::from_slice(&stream, &[f16::ONE; 48])?;
    let (eight, six) = (Vectors::new(&data, 8)?, Vectors::new(&data, 6)?);
    let text = |result: Result<TopK, Error>| match result {
        Err(error @ Error::InvalidArgument { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(text(cosine_topk(&stream, eight, eight, 0)).contains("k is 0, wanted 1 to 128"));
    assert!(text(cosine_topk(&stream, eight, eight, 129)).contains("k is 129"));
    assert!(text(cosine_topk(&stream, eight, six, 1)).contains("dim is 6, wanted the corpus's 8"));
    assert!(matches!(Vectors::new(&data, 7), Err(Error::Length { expected: 42, got: 48, .. })));
    assert!(matches!(Vectors::new(&data, 0), Err(Error::InvalidArgument { argument: "dim", .. })));
    Ok(())
}
