//! Ranks that are processes and do not act together, or die: every other one gets an error that says so, in
//! time, and ends well.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use driver::fault::{Rule, Times};
use ironwarp::parallel::{Backend, Communicator, GroupOptions, Reduction};
use ironwarp::{DeviceBuffer, Error, ParallelError, Result};

use crate::devices;
use crate::nccl::{SLACK, library, parallel, ready, with_nccl, without_ids};
use crate::processes::options;
use crate::ranks::{all_end_well, ends, is_rank, joined, place, start};
use testkit::job::signal;

/// Elements of a sum that passes through stages.
const LARGE: usize = 70_000;
/// How long ranks wait.
const LIMIT: u64 = 3000;
/// Ranks that wait for this long, where an error is to come long before.
const PATIENT: u64 = 30_000;
/// A rank that waits for an error takes less than that.
const AT_ONCE: Duration = Duration::from_millis(PATIENT / 2);

fn sum(rank: &mut Communicator, count: usize) -> Result<()> {
    let stream = rank.device().stream()?;
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, count)?;
    rank.all_reduce(&stream, Reduction::Sum, &mut x)?;
    rank.synchronize(&stream)
}

/// The driver compiles the kernels of both sums, which may take longer than ranks wait.
fn compiled(rank: &mut Communicator) -> Result<()> {
    sum(rank, 10)?;
    sum(rank, LARGE)
}

/// A rank that dies: while others wait for it on the device, and before they call.
#[test]
fn a_killed_process_is_named_at_once() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "3");
    let Some(devices) = devices(3)? else { return Ok(()) };
    if !is_rank() {
        for count in ["10", "70000"] {
            let test = "processes_failures::a_killed_process_is_named_at_once";
            let ends = ends(start(test, devices.len(), &[("COUNT", count)]));
            let (last, others) = ends.split_last().expect("ranks");
            assert!(!last.success() && others.iter().all(ExitStatus::success), "{ends:?}");
        }
        return Ok(());
    }
    let count = std::env::var("COUNT").ok().and_then(|text| text.parse().ok()).expect("a count");
    let (client, mut rank) = joined(options(PATIENT))?;
    compiled(&mut rank)?;
    client.barrier("compiled").expect("the others come");
    if rank.rank() == rank.ranks() - 1 {
        std::thread::sleep(Duration::from_millis(200));
        std::process::abort();
    }
    let begun = Instant::now();
    let text = parallel(sum(&mut rank, count)).to_string();
    assert!(text.contains(&format!("rank {} (process ", rank.ranks() - 1)), "{text}");
    assert!(text.contains("has ended"), "{text}");
    assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
    // The group stays failed, and its end waits for nobody.
    assert!(matches!(parallel(sum(&mut rank, count)), ParallelError::Aborted { .. }));
    drop(rank);
    assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
    // Leaving the job would wait for the last rank.
    std::mem::forget(client);
    Ok(())
}

/// A rank that cannot join, before the first exchange and between the two: the others hear why, and wait for
/// nobody.
#[test]
fn a_rank_that_cannot_join_tells_the_others() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "3");
    let Some(devices) = devices(3)? else { return Ok(()) };
    if !is_rank() {
        for function in ["cuMemAlloc_v2", "cuMemHostGetDevicePointer_v2"] {
            let test = "processes_failures::a_rank_that_cannot_join_tells_the_others";
            all_end_well(test, devices.len(), &[("FUNCTION", function)]);
        }
        return Ok(());
    }
    let function = std::env::var("FUNCTION").expect("the test sets it");
    let (world, client, device) = place()?;
    let exchange = |name: &str, own: &[u8]| client.gather(name, own);
    let (code, times) = (driver::code::OUT_OF_MEMORY, Times::Always);
    let rule = Rule { function: &function, nth: 1, code, times };
    let fault = (world.rank == 1).then(|| driver::fault::scoped(&[rule]).expect("a rule that fits"));
    let begun = Instant::now();
    match Communicator::join(&device, world.rank, world.size, exchange, options(PATIENT)) {
        Err(Error::Parallel(error)) if world.rank != 1 => {
            let text = error.to_string();
            assert!(matches!(*error, ParallelError::Aborted { .. }), "{text}");
            assert!(text.contains("rank 1 cannot join: ") && text.contains("memory"), "{text}");
        }
        Err(error) if world.rank == 1 => assert!(error.to_string().contains("memory"), "{error}"),
        other => panic!("{:?}", other.map(|rank| rank.rank())),
    }
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    drop(fault);
    // They can join again.
    let mut rank = Communicator::join(&device, world.rank, world.size, exchange, options(PATIENT))?;
    sum(&mut rank, 10)?;
    drop(rank);
    client.barrier("done").expect("the others come");
    Ok(())
}

/// A rank that fails or dies while ranks join each other through NCCL, for large calls: the others hear why,
/// long before the limit.
#[test]
fn joins_through_nccl_end_when_a_rank_does() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    if !is_rank() {
        for how in ["fails", "dies"] {
            let test = "processes_failures::joins_through_nccl_end_when_a_rank_does";
            let ends = ends(start(test, devices.len(), &[("HOW", how)]));
            assert!(ends[0].success() && ends[1].success() == (how == "fails"), "{how}: {ends:?}");
        }
        return Ok(());
    }
    let dies = std::env::var("HOW").is_ok_and(|how| how == "dies");
    let (world, client, device) = place()?;
    // The first one is for memory that others open.
    let code = driver::code::INVALID_VALUE;
    let rule = Rule { function: "cuMemsetD8Async", nth: 2, code, times: Times::Once };
    let is_culprit = world.rank == 1;
    let _fault = is_culprit.then(|| driver::fault::scoped(&[rule]).expect("a rule that fits"));
    let mut meetings = 0;
    let exchange = |name: &str, own: &[u8]| {
        let all = client.gather(name, own);
        meetings += 1;
        if dies && is_culprit && meetings == 2 {
            std::process::abort();
        }
        all
    };
    let begun = Instant::now();
    let options = GroupOptions { backend: None, ..options(PATIENT) };
    let error = Communicator::join(&device, world.rank, world.size, exchange, options).map(drop);
    if is_culprit {
        assert!(matches!(error, Err(Error::Driver(_))), "{error:?}");
    } else {
        let text = parallel(error).to_string();
        let wanted = if dies { ") has ended" } else { "rank 1: cuMemsetD8Async" };
        assert!(text.contains("rank 1 (process ") == dies && text.contains(wanted), "{text}");
    }
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    // Leaving the job would wait for a rank that has died.
    std::mem::forget(client);
    Ok(())
}

/// A rank that gets no id from NCCL for a part of the group: the others do not wait for it.
#[test]
fn a_part_without_an_id_fails_on_all_ranks() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = without_ids(2)? else { return Ok(()) };
    if !is_rank() {
        let test = "processes_failures::a_part_without_an_id_fails_on_all_ranks";
        all_end_well(test, devices.len(), &[("FAKE_NCCL_IDS", "1")]);
        return Ok(());
    }
    let (client, mut rank) = joined(GroupOptions { backend: Some(Backend::Nccl), ..options(PATIENT) })?;
    let begun = Instant::now();
    let error = parallel(rank.split(Some(0), 0).map(drop));
    match &error {
        ParallelError::Nccl { .. } if rank.rank() == 0 => {}
        ParallelError::Aborted { first, .. } if rank.rank() == 1 => {
            assert!(first.contains("rank 0 got no id"), "{first}");
        }
        _ => panic!("{error}"),
    }
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    // The group is sound.
    sum(&mut rank, 10)?;
    drop(rank);
    client.barrier("done").expect("the others come");
    Ok(())
}

/// A rank that is stopped lives, and does not come.
#[test]
fn a_stopped_process_is_missing_after_the_limit() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    let stopped = |rank: u32| std::env::temp_dir().join(format!("stop-{}-{rank}", std::process::id()));
    if !is_rank() {
        let test = "processes_failures::a_stopped_process_is_missing_after_the_limit";
        let path = stopped(0).to_string_lossy().into_owned();
        let mut ranks = start(test, devices.len(), &[("READY", &path)]);
        while !std::path::Path::new(&path).exists() {
            std::thread::sleep(Duration::from_millis(5));
            assert!(ranks[1].try_wait().expect("a child").is_none(), "it has ended");
        }
        signal(&ranks[1], "STOP");
        let first = ranks[0].wait().expect("a child");
        signal(&ranks[1], "KILL");
        let _ = ranks[1].wait();
        let _ = std::fs::remove_file(path);
        assert!(first.success(), "{first}");
        return Ok(());
    }
    let (client, mut rank) = joined(options(LIMIT))?;
    compiled(&mut rank)?;
    client.barrier("compiled").expect("the others come");
    if rank.rank() == 1 {
        std::fs::write(std::env::var_os("READY").expect("a path"), "").expect("a file");
        std::thread::sleep(Duration::from_secs(600));
    }
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let error = parallel(sum(&mut rank, LARGE));
    assert!(matches!(error, ParallelError::Missing { rank: 0, missing: 1, began: false, .. }), "{error}");
    assert!(error.to_string().contains("70000 x f32"), "{error}");
    assert!(begun.elapsed() < Duration::from_millis(LIMIT) + SLACK, "{:?}", begun.elapsed());
    drop(rank);
    std::mem::forget(client);
    Ok(())
}

/// The job's news end calls that wait, through NCCL too, and the flight record has the calls.
#[test]
fn news_of_the_job_end_calls() -> Result<()> {
    with_nccl!(2);
    let Some(devices) = ready(2)? else { return Ok(()) };
    let folder = std::env::temp_dir().join(format!("flight-{}", std::process::id()));
    if !is_rank() {
        let path = folder.to_string_lossy().into_owned();
        for backend in ["peer", "nccl"] {
            let variables = [("BACKEND", backend), ("IRONWARP_RECORDS", &*path)];
            let ends =
                ends(start("processes_failures::news_of_the_job_end_calls", devices.len(), &variables));
            assert!(ends[0].success() && !ends[1].success(), "{ends:?}");
            let record = std::fs::read_to_string(folder.join("flight-g0-r0.json")).expect("a record");
            assert!(record.contains("all_reduce(Sum, 70000 x f32)"), "{record}");
            std::fs::remove_dir_all(&folder).expect("a folder");
        }
        return Ok(());
    }
    let is_nccl = std::env::var("BACKEND").is_ok_and(|name| name == "nccl");
    let backend = Some(if is_nccl { Backend::Nccl } else { Backend::PeerMemory });
    let (client, mut rank) = joined(GroupOptions { backend, ..options(60_000) })?;
    let (recorder, fail) = (client.recorder().clone(), rank.failer());
    rank.on_call(move |call| recorder.begin("collective", call).done());
    client.on_failure(move |failure| fail(&failure.to_string()));
    compiled(&mut rank)?;
    client.barrier("compiled").expect("the others come");
    if rank.rank() == 1 {
        std::thread::sleep(Duration::from_millis(200));
        client.abort("enough of it");
        // It lives on, and does not come.
        std::thread::sleep(SLACK);
        std::process::exit(1);
    }
    let begun = Instant::now();
    let text = parallel(sum(&mut rank, LARGE)).to_string();
    assert!(text.contains("enough of it"), "{text}");
    assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());
    drop(rank);
    while client.record().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::mem::forget(client);
    Ok(())
}

/// Calls that differ, and a rank that goes early.
#[test]
fn wrong_calls_of_processes_are_named() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    if !is_rank() {
        all_end_well("processes_failures::wrong_calls_of_processes_are_named", devices.len(), &[]);
        return Ok(());
    }
    let (client, mut rank) = joined(options(PATIENT))?;
    compiled(&mut rank)?;
    let begun = Instant::now();
    for count in [10, LARGE] {
        let mut part = rank.split(Some(0), 0)?.expect("a color");
        sum(&mut part, count)?;
        let wrong = if part.rank() == 1 { count + 1 } else { count };
        let text = parallel(sum(&mut part, wrong)).to_string();
        for said in [format!("all_reduce(Sum, {count} x f32)"), format!("{} x f32", count + 1)] {
            assert!(text.contains(&said) && text.contains("call 1"), "{text}");
        }
    }
    let mut part = rank.split(Some(0), 0)?.expect("a color");
    sum(&mut part, 10)?;
    if part.rank() == 0 {
        drop(part);
        client.barrier("gone").expect("the others come");
    } else {
        client.barrier("gone").expect("the others come");
        let text = parallel(sum(&mut part, 10)).to_string();
        assert!(text.contains("rank 0 has dropped its communicator after 1 calls"), "{text}");
    }
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    // The group that they are parts of is sound.
    sum(&mut rank, LARGE)?;
    drop(rank);
    client.barrier("done").expect("the others come");
    Ok(())
}
