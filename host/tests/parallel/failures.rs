//! Ranks that do not act together: every other rank gets an error that says so, in time.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use driver::fault::{Rule, Times};
use ironwarp::parallel::{Communicator, Group, Reduction};
use ironwarp::{Device, DeviceBuffer, Error, ParallelError, Result, Stream};

use crate::{devices, impatient};

/// How long errors may take beyond the time limit.
const SLACK: Duration = Duration::from_secs(2);
/// A rank that waits for an error takes less than ranks wait for each other, which is 30 seconds here.
const AT_ONCE: Duration = Duration::from_secs(15);
/// Elements of a sum that does not travel with its flags, in a group of any size.
const LARGE: usize = 70_000;

/// Runs `work` for each rank on a thread of its own, and returns what each got.
fn outcomes(
    group: Group,
    work: impl Fn(Communicator) -> Result<()> + Sync,
) -> Vec<std::thread::Result<Result<()>>> {
    std::thread::scope(|scope| {
        let ranks = group.into_communicators();
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(|| work(rank))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    })
}

fn sum(rank: &mut Communicator, count: usize) -> Result<()> {
    let stream = rank.device().stream()?;
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, count)?;
    rank.all_reduce(&stream, Reduction::Sum, &mut x)?;
    rank.synchronize(&stream)
}

/// Has the driver compile the kernels of small and large sums, which may take longer than ranks wait.
fn compiled(devices: &[Device]) -> Result<()> {
    if devices[0].is_software() {
        return Ok(());
    }
    let ranks = Group::open(devices)?.run(|mut rank| {
        sum(&mut rank, 10)?;
        sum(&mut rank, LARGE)
    });
    ranks.map(drop)
}

fn parallel(outcome: &std::thread::Result<Result<()>>) -> &ParallelError {
    match outcome {
        Ok(Err(Error::Parallel(error))) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wrong_count_is_named() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "4");
    let Some(devices) = devices(4)? else { return Ok(()) };
    for count in [10, LARGE] {
        compiled(&devices)?;
        let begun = Instant::now();
        let results = outcomes(Group::open(&devices)?, |mut rank| {
            sum(&mut rank, count)?;
            let wrong = if rank.rank() == 1 { count + 1 } else { count };
            sum(&mut rank, wrong)
        });
        let texts: Vec<String> = results.iter().map(|result| parallel(result).to_string()).collect();
        // Whoever comes second finds it; the others hear of it.
        for text in &texts {
            let said = text.contains(&format!("all_reduce(Sum, {count} x f32)"));
            assert!(
                said && text.contains(&format!("{} x f32", count + 1)) && text.contains("call 1"),
                "{texts:?}"
            );
        }
        let is_finder = |result| matches!(parallel(result), ParallelError::Mismatch { sequence: 1, .. });
        assert!(results.iter().any(is_finder));
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    }
    Ok(())
}

#[test]
fn wrong_types_operators_roots_and_calls_are_named() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    type Work = fn(&mut Communicator, &Stream) -> Result<()>;
    let cases: [(&str, Work); 4] = [
        ("f16", |rank, stream| {
            let mut x = DeviceBuffer::<ironwarp::f16>::zeroed(stream, 8)?;
            rank.all_reduce(stream, Reduction::Sum, &mut x)
        }),
        ("Max", |rank, stream| {
            rank.all_reduce(stream, Reduction::Max, &mut DeviceBuffer::<f32>::zeroed(stream, 8)?)
        }),
        ("broadcast", |rank, stream| rank.broadcast(stream, 1, &mut DeviceBuffer::<f32>::zeroed(stream, 8)?)),
        ("barrier", |rank, stream| rank.barrier(stream)),
    ];
    for (what, wrong) in cases {
        let results = outcomes(Group::open(&devices)?, |mut rank| {
            if rank.rank() == 0 {
                return sum(&mut rank, 8);
            }
            let stream = rank.device().stream()?;
            wrong(&mut rank, &stream)?;
            rank.synchronize(&stream)
        });
        for result in &results {
            let text = parallel(result).to_string();
            assert!(text.contains(what) && text.contains("all_reduce(Sum, 8 x f32)"), "{text}");
        }
    }
    Ok(())
}

/// The failure of a group that fails soon.
fn failure(rank: &Communicator) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < AT_ONCE {
        rank.check()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("rank {} hears of no failure", rank.rank())
}

#[test]
fn a_rank_that_does_not_come_is_named() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "4");
    let Some(devices) = devices(4)? else { return Ok(()) };
    let absent = devices.len() as u32 - 1;
    let limit = Duration::from_secs(1);
    for count in [10, LARGE] {
        compiled(&devices)?;
        // All who come do so at the same time, however busy the machine is.
        let start = Barrier::new(devices.len());
        let results = outcomes(impatient(&devices, 1000)?, |mut rank| {
            start.wait();
            let begun = Instant::now();
            if rank.rank() == absent {
                return failure(&rank);
            }
            let result = sum(&mut rank, count);
            assert!((limit..limit + SLACK).contains(&begun.elapsed()), "{:?}", begun.elapsed());
            result
        });
        let texts: Vec<String> = results.iter().map(|result| parallel(result).to_string()).collect();
        let named = format!("rank {absent} did not come within 1 s");
        for text in &texts {
            assert!(text.contains(&named) && text.contains(&format!("{count} x f32")), "{texts:?}");
        }
    }
    Ok(())
}

#[test]
fn a_slow_rank_is_waited_for() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "4");
    let Some(devices) = devices(4)? else { return Ok(()) };
    impatient(&devices, 10_000)?.run(|mut rank| {
        for round in 0..3 {
            if rank.rank() == round % rank.ranks() {
                std::thread::sleep(Duration::from_millis(300));
            }
            sum(&mut rank, if round == 1 { LARGE } else { 10 })?;
        }
        Ok(())
    })?;
    Ok(())
}

#[test]
fn a_rank_that_panics_takes_nobody_along() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "4");
    let Some(devices) = devices(4)? else { return Ok(()) };
    compiled(&devices)?;
    let begun = Instant::now();
    let results = outcomes(Group::open(&devices)?, |mut rank| {
        sum(&mut rank, 10)?;
        assert!(rank.rank() != 1, "as it is meant to");
        sum(&mut rank, LARGE)
    });
    for (rank, result) in results.iter().enumerate() {
        match rank {
            1 => assert!(result.is_err()),
            _ => assert!(parallel(result).to_string().contains("rank 1 has dropped its communicator")),
        }
    }
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    // `Group::run` tells the others the panic's words, and goes on with it.
    let run = || {
        Group::open(&devices)?.run(|mut rank| {
            assert!(rank.rank() != 1, "as it is meant to");
            sum(&mut rank, 10)
        })
    };
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("rank 1 panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"as it is meant to"));
    Ok(())
}

/// A part of a group that one rank cannot make: the others hear why, and make none without it.
#[test]
fn a_part_that_cannot_be_made_fails_on_all_ranks() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    let group = Group::open(&devices)?;
    let (code, times) = (driver::code::INVALID_VALUE, Times::Once);
    let rule = Rule { function: "cuMemsetD8Async", nth: 1, code, times };
    let _fault = driver::fault::scoped(&[rule]).expect("a rule that fits");
    let begun = Instant::now();
    let results = outcomes(group, |mut rank| rank.split(Some(0), 0).map(drop));
    let is_driver = |result: &_| matches!(result, Ok(Err(Error::Driver(_))));
    assert_eq!(results.iter().filter(|result| is_driver(result)).count(), 1, "{results:?}");
    let others: Vec<_> = results.iter().filter(|result| !is_driver(result)).map(parallel).collect();
    let is_told = |error: &ParallelError| matches!(error, ParallelError::Aborted { first, .. } if first.contains("cuMemsetD8Async"));
    assert!(others.into_iter().all(is_told), "{results:?}");
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    Ok(())
}

#[test]
fn a_rank_that_returns_early_is_named() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    let result = Group::open(&devices)?.run(|mut rank| {
        sum(&mut rank, 10)?;
        if rank.rank() == 0 { Ok(()) } else { sum(&mut rank, 10) }
    });
    let text = result.expect_err("rank 0 has gone").to_string();
    assert!(text.contains("rank 0 has dropped its communicator"), "{text}");
    Ok(())
}

/// Errors that each rank finds by itself: nothing is queued, and the group goes on.
#[test]
fn calls_that_cannot_be_right() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    let twice = Group::open(&[devices[0].clone(), devices[0].clone()]);
    assert!(matches!(twice, Err(Error::InvalidArgument { argument: "devices", .. })));
    assert!(matches!(Group::open(&[]), Err(Error::InvalidArgument { argument: "devices", .. })));
    Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let mut x = DeviceBuffer::<i32>::zeroed(&stream, 9)?;
        let y = DeviceBuffer::<i32>::zeroed(&stream, 9)?;
        let error = rank.all_reduce(&stream, Reduction::Mean, &mut x).expect_err("a mean of integers");
        assert!(error.to_string().contains("a float type"), "{error}");
        let error =
            rank.reduce_scatter(&stream, Reduction::Sum, &y, &mut x).expect_err("9 elements for 2 ranks");
        assert!(error.to_string().contains("a multiple of 2"), "{error}");
        let error = rank.all_gather(&stream, &y, &mut x).expect_err("an output that is too small");
        assert!(matches!(error, Error::Length { expected: 18, got: 9, .. }), "{error}");
        let error = rank.broadcast(&stream, 2, &mut x).expect_err("a root that is none");
        assert!(matches!(error, Error::InvalidArgument { argument: "root", .. }), "{error}");
        let error = rank.send(&stream, rank.rank(), &y).expect_err("to itself");
        assert!(error.to_string().contains("the rank itself"), "{error}");
        let plan = rank.explain(1 << 20, ironwarp::DType::I32).plan;
        let plan = ironwarp::parallel::Plan { blocks: 1000, ..plan };
        let error = rank.all_reduce_with(&stream, Reduction::Sum, &mut x, plan).expect_err("too many blocks");
        assert!(matches!(error, Error::InvalidArgument { argument: "the plan", .. }), "{error}");
        let other = Device::open(1 - rank.device().ordinal())?.stream()?;
        let error = rank.barrier(&other).expect_err("a stream of the other device");
        assert!(matches!(error, Error::DeviceMismatch { what: "the communicator", .. }), "{error}");
        sum(&mut rank, 10)
    })?;
    Ok(())
}
