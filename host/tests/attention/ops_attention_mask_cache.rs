//! Lists of blocks that are kept: what finds them, what does not, and that results are those of the mask.

use crate::attention_case::{Case, Outcome, PLAIN, Setup, about, device, is_hopper};
use crate::ops_attention_backward::{Case as BackwardCase, PLAIN as BACKWARD};
use conformance::hopper::score::{Local, LocalArgs};
use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::attention::functions::Ranges;
use ironwarp::ops::attention::{BlockMask, BlockMaskCache, FunctionValues, Own, ranges};
use ironwarp::{DeviceBuffer, Error, Result as Done, Stream};
use reference::attention::Sides;
use std::cell::RefCell;
use std::hash::Hash;
use std::sync::Arc;

const CASE: Case = Case { batch: 2, queries: 150, keys: 150, heads: 2, kv_heads: 1, ..PLAIN };

type Documents = BlockMaskCache<Ranges, Vec<usize>>;

/// The mask of documents of these lengths from the cache, once attention with it has given the oracle's
/// results.
fn attend(stream: &Stream, case: Case, own: Own, cache: &mut Documents, lengths: &[usize]) -> Outcome<Kept> {
    let setup = Setup::<bf16>::new(&case, stream)?;
    let (mut out, mut logarithms) = setup.fresh(stream)?;
    let table = DeviceBuffer::from_slice(stream, &ranges::documents(lengths))?;
    let attention = setup.attention(&mut out, &mut logarithms)?.ranges(&table)?;
    let blocks = attention.cached_block_mask(stream, own, cache, lengths.to_vec())?;
    attention.blocks(&blocks).run(stream)?;
    let document = |place: usize| {
        let ends = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        ends.take_while(|&end| end <= place).count()
    };
    let want =
        setup.oracle_with(|score, [_, _, query, key]| (document(query) == document(key)).then_some(score));
    let (out, logarithms) = (out.to_vec(stream)?, logarithms.to_vec(stream)?);
    setup.compare(&want, &out, &logarithms, &format!("{case:?}, {lengths:?}"))?;
    Ok(blocks)
}

type Kept = Arc<BlockMask<Ranges>>;

/// Hits, misses, masks given up, and masks.
fn counts<F, K: Eq + Hash>(cache: &mut BlockMaskCache<F, K>) -> Done<[u64; 4]> {
    let of = cache.statistics()?;
    Ok([of.hits, of.misses, of.evicted, of.masks as u64])
}

/// A mask is made once for all that it depends on, on whatever stream it is used.
#[test]
fn masks_are_found_by_what_they_depend_on() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let streams = [device()?.stream()?, device()?.stream()?];
    let mut cache = Documents::new(1 << 20);
    let (some, others) = ([70, 80], [20, 130]);
    let shared = Own::default();
    let first = attend(&streams[0], CASE, shared, &mut cache, &some)?;
    let again = attend(&streams[1], CASE, shared, &mut cache, &some)?;
    assert!(Arc::ptr_eq(&first, &again));
    // Where all share one, batch and heads do not matter; nor does the head size where tiles are the same.
    for same in [Case { batch: 1, heads: 1, ..CASE }, Case { size: 128, ..CASE }] {
        assert!(Arc::ptr_eq(&first, &attend(&streams[0], same, shared, &mut cache, &some)?), "{same:?}");
    }
    assert_eq!(counts(&mut cache)?, [3, 1, 0, 1]);
    let own = Own { heads: true, sequences: true };
    let different = [
        (CASE, shared, others),
        (Case { right: Some(0), ..CASE }, shared, some),
        (Case { size: 256, ..CASE }, shared, some),
        (CASE, own, some),
        (Case { batch: 1, ..CASE }, own, some),
        (Case { heads: 1, ..CASE }, own, some),
    ];
    for (at, (case, own, lengths)) in (1..).zip(different) {
        attend(&streams[at as usize % 2], case, own, &mut cache, &lengths)?;
        assert_eq!(counts(&mut cache)?, [3, 1 + at, 0, 1 + at], "{case:?}, {own:?}");
    }
    assert!(cache.statistics()?.build_ms > 0.0);
    cache.clear();
    assert_eq!((counts(&mut cache)?, cache.statistics()?.bytes), ([3, 7, 0, 0], 0));
    let anew = attend(&streams[0], CASE, shared, &mut cache, &some)?;
    assert!(!Arc::ptr_eq(&first, &anew));
    Ok(())
}

/// Lists of one sequence's own are not those of four, though there is one list either way.
#[test]
fn lists_of_their_own_are_for_as_many_sequences_and_heads() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let table = DeviceBuffer::from_slice(&stream, &ranges::documents(&[70, 80]))?;
    let one = Case { batch: 1, heads: 1, ..CASE };
    for (own, fits) in [
        (Own { heads: false, sequences: false }, [true, true]),
        (Own { heads: false, sequences: true }, [false, true]),
        (Own { heads: true, sequences: false }, [true, false]),
    ] {
        let setup = Setup::<bf16>::new(&one, &stream)?;
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        let attention = setup.attention(&mut out, &mut logarithms)?.ranges(&table)?;
        let blocks = attention.block_mask(&stream, own)?;
        for (other, fits) in [Case { batch: 4, ..one }, Case { heads: 8, ..one }].into_iter().zip(fits) {
            let setup = Setup::<bf16>::new(&other, &stream)?;
            let (mut out, mut logarithms) = setup.fresh(&stream)?;
            let attention = setup.attention(&mut out, &mut logarithms)?.ranges(&table)?;
            let run = attention.blocks(&blocks).run(&stream);
            assert_eq!(run.is_ok(), fits, "{own:?}, {other:?}: {run:?}");
        }
    }
    Ok(())
}

/// Functions without memory: their numbers, and the lengths, which no key needs to name.
#[test]
fn numbers_are_a_key() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let mut cache = BlockMaskCache::<Local, FunctionValues>::new(1 << 20);
    let more = Case { keys: 151, ..CASE };
    let (slope, block) = (0.125, 50);
    for (case, step, want) in [(CASE, 3, [0, 1]), (CASE, 3, [1, 1]), (CASE, 2, [1, 2]), (more, 2, [1, 3])] {
        let setup = Setup::<bf16>::new(&case, &stream)?;
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        let attention = setup.attention(&mut out, &mut logarithms)?;
        // SAFETY: it reads no memory.
        let attention = unsafe { attention.function(LocalArgs { slope, block, step }.pass()) };
        let blocks = attention.cached_block_mask(&stream, Own::default(), &mut cache, attention.values())?;
        attention.blocks(&blocks).run(&stream)?;
        let of_problem = case.keys as f64 - case.queries as f64;
        let want_results = setup.oracle_with(|score, [_, _, query, key]| {
            let sees = query / 50 == key / 50 && (query + key).is_multiple_of(step as usize);
            sees.then(|| score - f64::from(slope) * (key as f64 - query as f64 - of_problem).abs())
        });
        let (out, logarithms) = (out.to_vec(&stream)?, logarithms.to_vec(&stream)?);
        setup.compare(&want_results, &out, &logarithms, &format!("{case:?}, every {step}"))?;
        assert_eq!(counts(&mut cache)?[..2], want, "{case:?}, every {step}");
    }
    Ok(())
}

/// Both passes find their own lists in one cache.
#[test]
fn one_cache_has_both_passes() -> Outcome {
    let cache = RefCell::new(Documents::new(1 << 20));
    let (lengths, own) = (vec![50, 20], Own::default());
    let table = |stream: &Stream| DeviceBuffer::from_slice(stream, &ranges::documents(&lengths));
    let case = BackwardCase { sides: Sides { keys: 70, ..BACKWARD.sides }, ..BACKWARD };
    for run in 0..2 {
        case.check_with::<bf16>(
            |score, [_, _, query, key]| ((query < 50) == (key < 50)).then_some(score),
            |stream, attention| {
                let table = table(stream)?;
                let attention = attention.ranges(&table)?;
                let cache = &mut cache.borrow_mut();
                let blocks = attention.cached_block_mask(stream, own, cache, lengths.clone())?;
                attention.blocks(&blocks).run(stream)
            },
            |stream, backward| {
                let table = table(stream)?;
                let backward = backward.ranges(&table)?;
                let cache = &mut cache.borrow_mut();
                let blocks = backward.cached_block_mask(stream, own, cache, lengths.clone())?;
                backward.blocks(&blocks).run(stream)
            },
        )?;
        if is_hopper()? {
            assert_eq!(counts(&mut cache.borrow_mut())?, [2 * run, 2, 0, 2]);
        }
    }
    Ok(())
}

/// The masks used longest ago go first; what is larger than all the room is not kept.
#[test]
fn memory_is_bounded() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let (a, b, c) = ([70, 80], [20, 130], [75, 75]);
    let case = Case { batch: 1, ..CASE };
    let attend =
        |cache: &mut Documents, lengths: &[usize]| attend(&stream, case, Own::default(), cache, lengths);
    let bytes = attend(&mut Documents::new(1 << 20), &a)?.bytes();
    let mut cache = Documents::new(2 * bytes);
    for (lengths, want) in [
        (a, [0, 1, 0, 1]),
        (b, [0, 2, 0, 2]),
        (a, [1, 2, 0, 2]),
        (c, [1, 3, 1, 2]),
        (a, [2, 3, 1, 2]),
        (b, [2, 4, 2, 2]),
        (a, [3, 4, 2, 2]),
    ] {
        attend(&mut cache, &lengths)?;
        assert_eq!(counts(&mut cache)?, want, "{lengths:?}");
    }
    assert_eq!(cache.statistics()?.bytes, 2 * bytes);
    // No queries, no lists.
    self::attend(&stream, Case { queries: 0, ..case }, Own::default(), &mut cache, &[])?;
    assert_eq!(counts(&mut cache)?, [3, 5, 2, 2]);
    let mut small = Documents::new(bytes - 1);
    for calls in 1..3 {
        attend(&mut small, &a)?;
        assert_eq!(counts(&mut small)?, [0, calls, 0, 0]);
    }
    Ok(())
}

/// Nothing is made in a graph, and what was made before is used by it, as long as it lives.
#[test]
fn graphs_use_what_is_there() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let lengths = vec![70, 80];
    let setup = Setup::<bf16>::new(&CASE, &stream)?;
    let table = DeviceBuffer::from_slice(&stream, &ranges::documents(&lengths))?;
    let run = |stream: &Stream, to: &mut Results, cache: &mut Documents| -> Done<()> {
        let attention = setup.attention(&mut to.0, &mut to.1)?.ranges(&table)?;
        let blocks = attention.cached_block_mask(stream, Own::default(), cache, lengths.clone())?;
        attention.blocks(&blocks).run(stream)
    };
    let cache = RefCell::new(Documents::new(1 << 20));
    let run = |stream: &Stream, to: &mut Results| run(stream, to, &mut cache.borrow_mut());
    let refused = Graph::capture(&stream, setup.fresh(&stream)?, run);
    assert!(matches!(refused.err(), Some(Error::NotCapturable { .. })));
    assert_eq!(counts(&mut cache.borrow_mut())?, [0, 0, 0, 0]);
    let mut results = setup.fresh(&stream)?;
    run(&stream, &mut results)?;
    let mut graph = Graph::capture(&stream, setup.fresh(&stream)?, run)?;
    assert_eq!(counts(&mut cache.borrow_mut())?, [1, 1, 0, 1]);
    cache.borrow_mut().clear();
    graph.replay(&stream)?;
    let of =
        |(out, logarithms): &Results| -> Done<_> { Ok((out.to_vec(&stream)?, logarithms.to_vec(&stream)?)) };
    assert!(of(&results)? == of(graph.inputs())?);
    Ok(())
}

type Results = (DeviceBuffer<bf16>, DeviceBuffer<f32>);

#[test]
fn masks_are_told() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { queries: 400, keys: 400, size: 128, ..PLAIN };
    let mut cache = Documents::new(1 << 20);
    let lengths = [128, 200, 72];
    for _ in 0..3 {
        attend(&stream, case, Own::default(), &mut cache, &lengths)?;
    }
    let masks = cache.masks(&stream)?;
    let [mask] = &masks[..] else { panic!("{masks:?}") };
    let told = "400 queries on 400 keys, full, 128 x 128, forward: 8 of 16 blocks (50.0 %), 6 of them in part; \
                80 bytes, hits 2";
    assert_eq!((mask.to_string(), mask.key), (told.to_owned(), &lengths.to_vec()));
    let told = cache.statistics()?.to_string();
    assert!(told.starts_with("hits 2, misses 1; kept 1 masks of 80 bytes, gave up 0; "), "{told}");
    Ok(())
}

/// A call that cannot have a mask leaves no trace.
#[test]
fn errors_are_not_kept() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { packed: Some(&[[3, 5], [7, 2]]), ..PLAIN };
    let setup = Setup::<bf16>::new(&case, &stream)?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    let attention = setup.attention(&mut out, &mut logarithms)?;
    // SAFETY: it reads no memory.
    let attention = unsafe { attention.function(LocalArgs { slope: 0.5, block: 4, step: 1 }.pass()) };
    let mut cache = BlockMaskCache::<Local, FunctionValues>::new(1 << 20);
    let error = attention.cached_block_mask(&stream, Own::default(), &mut cache, attention.values()).err();
    assert_eq!(about(&error.ok_or("no error")?), "the problem");
    assert_eq!(counts(&mut cache)?, [0, 0, 0, 0]);
    Ok(())
}

#[test]
fn threads_may_share_it() {
    fn may_be_sent<T: Send + Sync>() {}
    may_be_sent::<Documents>();
    may_be_sent::<BlockMask<Ranges>>();
}
