//! Collectives in captured graphs, which replay beside calls that are not.

use std::sync::Mutex;
use std::time::Duration;

use ironwarp::graph::Graph;
use ironwarp::parallel::{Communicator, Group, GroupOptions, Reduction};
use ironwarp::{Device, DeviceBuffer, Result};

use crate::groups;

#[test]
fn captured_collectives_replay() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    groups()?.iter().try_for_each(|devices| captured(devices, GroupOptions::default()))
}

/// Replays sums and a barrier beside sums that are not captured.
pub fn captured(devices: &[Device], options: GroupOptions) -> Result<()> {
    let ranks = devices.len() as u64;
    let results = Group::with_options(devices, options)?.run(replayed)?;
    results.into_iter().for_each(|result| check(ranks, &result));
    Ok(())
}

/// A rank's buffers in the end: a small one, and a large one.
type Sums = (Vec<i64>, Vec<i64>);

/// A rank's part.
pub fn replayed(rank: Communicator) -> Result<Sums> {
    let stream = rank.device().stream()?;
    let me = u64::from(rank.rank());
    let small = DeviceBuffer::from_slice(&stream, &[me as i64 + 1; 5])?;
    let large = DeviceBuffer::<i64>::from_slice(&stream, &vec![me as i64 + 1; 40_000])?;
    let mut graph = Graph::capture(&stream, (rank, small, large), |stream, (rank, small, large)| {
        rank.all_reduce(stream, Reduction::Sum, &mut *small)?;
        rank.all_reduce(stream, Reduction::Sum, &mut *large)?;
        rank.barrier(stream)
    })?;
    for round in 0..4 {
        graph.replay(&stream)?;
        let (rank, small, _) = graph.inputs_mut();
        if round == 1 {
            rank.all_reduce(&stream, Reduction::Sum, small)?;
        }
    }
    let (rank, small, large) = graph.inputs_mut();
    rank.synchronize(&stream)?;
    Ok((small.to_vec(&stream)?, large.to_vec(&stream)?))
}

pub fn check(ranks: u64, (small, large): &Sums) {
    // The first sum is of 1, 2, ..; each next one multiplies it by the number of ranks.
    let first = (ranks * (ranks + 1) / 2) as i64;
    assert!(small.iter().all(|&x| x == first * (ranks as i64).pow(4)), "{small:?}");
    assert!(large.iter().all(|&x| x == first * (ranks as i64).pow(3)), "{:?}", &large[..3]);
}

/// A rank that only queues its part, and waits for something else, is not missed.
#[test]
fn ranks_need_not_wait_for_their_calls() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = crate::devices(2)? else { return Ok(()) };
    let options = GroupOptions { timeout: Duration::from_secs(10), ..GroupOptions::default() };
    let (tell, done) = std::sync::mpsc::channel();
    let (tell, done) = (Mutex::new(tell), Mutex::new(done));
    Group::with_options(&devices, options)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        rank.barrier(&stream)?;
        if rank.rank() == 0 {
            let ended = rank.synchronize(&stream);
            tell.lock().expect("no panic").send(()).expect("rank 1 waits");
            return ended;
        }
        done.lock().expect("no panic").recv().expect("rank 0 tells");
        rank.synchronize(&stream)
    })?;
    Ok(())
}
