//! Ranks that fail, through NCCL: the others hear of it, and when.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use driver::fault::{Rule, Times};
use ironwarp::graph::Graph;
use ironwarp::parallel::{Communicator, Group, Reduction, UniqueId};
use ironwarp::{Device, DeviceBuffer, Error, ParallelError, Result};

use crate::nccl::{SLACK, library, options, parallel, ready, sum, with_nccl};

/// Milliseconds within which ranks join each other, beside other tests: NCCL takes seconds in a new process.
fn limit_with_joins(devices: &[Device]) -> u64 {
    if devices[0].is_software() { 2000 } else { 10_000 }
}

/// A rank that does not come: the others get an error that says which call did not end.
#[test]
fn calls_through_nccl_end_in_time() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    let group = Group::with_options(&devices, options(2000))?;
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = group
            .into_communicators()
            .into_iter()
            .map(|mut rank| {
                scope.spawn(move || {
                    let stream = rank.device().stream()?;
                    let first = sum(&mut rank, &stream, 3)?;
                    assert_eq!(first, [3; 3]);
                    if rank.rank() == 1 {
                        std::thread::sleep(Duration::from_millis(2500));
                        return Ok(());
                    }
                    let begun = Instant::now();
                    let error = parallel(sum(&mut rank, &stream, 5));
                    assert!(matches!(error, ParallelError::TimedOut { rank: 0, sequence: 1, .. }), "{error}");
                    assert!(error.to_string().contains("all_reduce(Sum, 5 x i32)"), "{error}");
                    assert!(begun.elapsed() < Duration::from_millis(2000) + SLACK, "{:?}", begun.elapsed());
                    // It stays failed.
                    let again = parallel(sum(&mut rank, &stream, 5));
                    assert!(matches!(again, ParallelError::TimedOut { .. }), "{again}");
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<Result<()>>>()
    });
    results.into_iter().collect()
}

/// When a rank panics, the others' calls end, long before the limit.
#[test]
fn a_panic_ends_calls_through_nccl() -> Result<()> {
    with_nccl!(3);
    let Some(devices) = ready(3)? else { return Ok(()) };
    let group = Group::with_options(&devices, options(20_000))?;
    let begun = Instant::now();
    let run = || {
        group.run(|mut rank| {
            let stream = rank.device().stream()?;
            sum(&mut rank, &stream, 3)?;
            assert!(rank.rank() != 1, "as it is meant to");
            let error = parallel(sum(&mut rank, &stream, 5));
            assert!(error.to_string().contains("rank 1 panicked: as it is meant to"), "{error}");
            Ok(())
        })
    };
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("rank 1 panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"as it is meant to"));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    Ok(())
}

/// A rank that does not replay a graph: the other gets an error in time, while the graph lives, and may drop
/// it then.
#[test]
fn a_rank_missing_in_a_graph_hangs_nobody() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    let limit = limit_with_joins(&devices);
    let group = Group::with_options(&devices, options(limit))?;
    let limit = Duration::from_millis(limit);
    all_end(group, move |rank| replays(rank, limit))
}

/// Runs `work` for each rank on a thread of its own. Not in a scope: a rank that hangs must not have the test
/// hang.
fn all_end(group: Group, work: impl Fn(Communicator) -> Result<()> + Clone + Send + 'static) -> Result<()> {
    let (tell, ended) = std::sync::mpsc::channel();
    let ranks = group.ranks();
    for rank in group.into_communicators() {
        let (tell, work) = (tell.clone(), work.clone());
        std::thread::spawn(move || tell.send(work(rank)));
    }
    drop(tell);
    (0..ranks)
        .try_for_each(|_| ended.recv_timeout(Duration::from_secs(60)).expect("a rank hangs or has panicked"))
}

/// A graph that is replayed when its communicator has gone, and not by the other rank: it ends all the same.
#[test]
fn a_graph_that_outlives_its_communicator_hangs_nobody() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    let group = Group::with_options(&devices, options(limit_with_joins(&devices)))?;
    all_end(group, |rank| {
        let (number, stream) = (rank.rank(), rank.device().stream()?);
        let x = DeviceBuffer::from_slice(&stream, &[number as i32 + 1; 5])?;
        let mut graph = Graph::capture(&stream, (Some(rank), x), |stream, (rank, x)| {
            let rank = rank.as_mut().expect("it is there");
            rank.all_reduce(stream, Reduction::Sum, &mut *x)
        })?;
        graph.replay(&stream)?;
        assert_eq!(graph.inputs().1.to_vec(&stream)?, [3; 5]);
        graph.inputs_mut().0 = None;
        if number == 0 {
            graph.replay(&stream)?;
        }
        stream.synchronize()
    })
}

/// Replays a graph; rank 0 replays it once more.
fn replays(rank: Communicator, limit: Duration) -> Result<()> {
    let stream = rank.device().stream()?;
    let x = DeviceBuffer::from_slice(&stream, &[rank.rank() as i32 + 1; 5])?;
    let mut graph = Graph::capture(&stream, (rank, x), |stream, (rank, x)| {
        rank.all_reduce(stream, Reduction::Sum, &mut *x)
    })?;
    graph.replay(&stream)?;
    graph.inputs_mut().0.synchronize(&stream)?;
    assert_eq!(graph.inputs().1.to_vec(&stream)?, [3; 5]);
    let begun = Instant::now();
    let at_once = |begun: Instant| assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
    if graph.inputs().0.rank() == 1 {
        let error = loop {
            if let Err(error) = graph.inputs().0.check() {
                break parallel::<()>(Err(error));
            }
            std::thread::yield_now();
        };
        assert!(matches!(error, ParallelError::Aborted { rank: 1, .. }), "{error}");
    } else {
        graph.replay(&stream)?;
        let error = parallel(graph.inputs_mut().0.synchronize(&stream));
        assert!(matches!(error, ParallelError::TimedOut { rank: 0, .. }), "{error}");
    }
    assert!(begun.elapsed() < limit + SLACK, "{:?}", begun.elapsed());
    let begun = Instant::now();
    let (rank, x) = graph.inputs_mut();
    parallel(rank.all_reduce(&stream, Reduction::Sum, &mut *x));
    at_once(begun);
    let begun = Instant::now();
    drop(graph);
    at_once(begun);
    stream.synchronize()
}

/// The error of a group that has failed, or fails soon.
fn failure(rank: &Communicator) -> ParallelError {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(18) {
        if let Err(error) = rank.check() {
            return parallel::<()>(Err(error));
        }
        std::thread::yield_now();
    }
    panic!("rank {} hears of no failure", rank.rank())
}

/// A rank that fails before it joins: the others hear of it at once, and its error is the group's.
#[test]
fn a_rank_that_cannot_join_is_the_cause() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    let rule =
        Rule { function: "cuMemsetD8Async", nth: 1, code: driver::code::INVALID_VALUE, times: Times::Once };
    let begun = Instant::now();
    let result = {
        let _fault = driver::fault::scoped(&[rule]).expect("a rule that fits");
        Group::with_options(&devices, options(20_000))
    };
    let error = result.err().expect("a rank fails");
    assert!(matches!(error, Error::Driver(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    Ok(())
}

/// A part numbers its ranks anew: rank 0 of the part, which fails, is not rank 0 of the group.
#[test]
fn a_failure_in_a_part_is_not_another_ranks() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    let work = |mut rank: Communicator| {
        let stream = rank.device().stream()?;
        let part = rank.split(Some(0), -i64::from(rank.rank()))?;
        let mut part = part.expect("a color");
        assert_eq!(part.rank(), 1 - rank.rank());
        if rank.rank() == 1 {
            let error = parallel(sum(&mut part, &stream, 5));
            assert!(matches!(error, ParallelError::TimedOut { rank: 0, .. }), "{error}");
        } else {
            let error = failure(&part);
            assert!(matches!(error, ParallelError::Aborted { rank: 1, .. }), "{error}");
        }
        let error = failure(&rank);
        assert!(matches!(error, ParallelError::Aborted { rank: own, .. } if own == rank.rank()), "{error}");
        assert!(error.to_string().contains("rank 1, in a part of the group: rank 0, call 0"), "{error}");
        Ok(())
    };
    let ranks = Group::with_options(&devices, options(limit_with_joins(&devices)))?.into_communicators();
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// A rank that returns an error does not first wait for its own calls.
#[test]
fn a_rank_that_fails_tells_at_once() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    let group = Group::with_options(&devices, options(20_000))?;
    let begun = Instant::now();
    let result = group.run(|mut rank| {
        if rank.rank() == 1 {
            let stream = rank.device().stream()?;
            let mut x = DeviceBuffer::from_slice(&stream, &[1])?;
            // Rank 0 does not come to it.
            rank.all_reduce(&stream, Reduction::Sum, &mut x)?;
            return UniqueId::from_bytes(&[]).map(drop);
        }
        let error = failure(&rank);
        assert!(error.to_string().contains("rank 1 returned an error"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        Err(error.into())
    });
    let error = result.expect_err("rank 1 fails");
    assert!(matches!(error, Error::Length { .. }), "{error}");
    Ok(())
}

/// A call that the driver refuses: the others hear of it at once, whatever the rank's closure does then.
#[test]
fn a_call_that_is_not_queued_fails_the_group() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    let group = Group::with_options(&devices, options(20_000))?;
    let rule =
        Rule { function: "cuLaunchKernel", nth: 1, code: driver::code::INVALID_VALUE, times: Times::Once };
    let _fault = driver::fault::scoped(&[rule]).expect("a rule that fits");
    let (tell, heard) = std::sync::mpsc::channel();
    let (tell, heard) = (Mutex::new(tell), Mutex::new(heard));
    group.run(|mut rank| {
        if rank.rank() == 1 {
            let stream = rank.device().stream()?;
            let error = sum(&mut rank, &stream, 3).expect_err("the driver refuses");
            assert!(matches!(error, Error::Driver(_)), "{error}");
            let heard = heard.lock().expect("no panic").recv_timeout(Duration::from_secs(10));
            heard.expect("rank 0 hears of it");
            let error = failure(&rank);
            assert!(matches!(error, ParallelError::Aborted { rank: 1, .. }), "{error}");
            return Ok(());
        }
        let error = failure(&rank);
        assert!(error.to_string().contains("rank 1: "), "{error}");
        tell.lock().expect("no panic").send(()).expect("rank 1 waits");
        Ok(())
    })?;
    Ok(())
}

/// A rank whose context has died, and whose group no other rank of this process shares: its communicator is
/// aborted all the same, so the other one hears of it.
#[test]
fn a_dead_context_ends_calls_through_nccl() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    if !devices[0].is_software() {
        testkit::skip("NCCL hears nothing of a rank of the same machine that has aborted");
        return Ok(());
    }
    let id = UniqueId::new()?;
    let join = |rank: u32| Communicator::join_by_id(&devices[rank as usize], rank, 2, &id, options(4000));
    let ranks =
        std::thread::scope(|scope| [0, 1].map(|rank| scope.spawn(move || join(rank))).map(|it| it.join()));
    let [mut rank, dead] = ranks.map(|rank| rank.expect("no panic").expect("both come"));
    let stream = rank.device().stream()?;
    let rule = Rule {
        function: "cuCtxSynchronize",
        nth: 1,
        code: driver::code::ILLEGAL_ADDRESS,
        times: Times::Once,
    };
    let died = {
        let _fault = driver::fault::scoped(&[rule]).expect("a rule that fits");
        devices[1].synchronize()
    };
    assert!(matches!(died, Err(Error::Sticky { .. })), "{died:?}");
    let begun = Instant::now();
    let error = failure(&dead);
    assert!(error.to_string().contains("rank 1: "), "{error}");
    drop(dead);
    let error = parallel(sum(&mut rank, &stream, 3));
    assert!(matches!(error, ParallelError::Nccl { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_millis(4000) + SLACK, "{:?}", begun.elapsed());
    Ok(())
}
