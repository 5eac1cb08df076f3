//! Collectives in captured graphs, which replay beside calls that are not.

use ironwarp::graph::Graph;
use ironwarp::parallel::{Group, GroupOptions, Reduction};
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
    let results = Group::with_options(devices, options)?.run(|rank| {
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
    })?;
    // The first sum is of 1, 2, ..; each next one multiplies it by the number of ranks.
    let first = (ranks * (ranks + 1) / 2) as i64;
    for (small, large) in results {
        assert!(small.iter().all(|&x| x == first * (ranks as i64).pow(4)), "{small:?}");
        assert!(large.iter().all(|&x| x == first * (ranks as i64).pow(3)), "{:?}", &large[..3]);
    }
    Ok(())
}
