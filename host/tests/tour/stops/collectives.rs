//! Collectives among the first two devices.

use super::Outcome;
use half::bf16;
use ironwarp::parallel::{Communicator, Group, Reduction};
use ironwarp::{Device, DeviceBuffer, Error};
use testkit::{Family, input};

/// A rank's results: sums by every plan, and everything that moves, whole units and rests.
fn rank(mut rank: Communicator) -> Result<Vec<u8>, Error> {
    let stream = rank.device().stream()?;
    let (me, other) = (rank.rank(), 1 - rank.rank());
    let mut bytes = Vec::new();
    for count in [6, 5000, 70_000] {
        let x = input::<bf16>(Family::HugeTiny, me.into(), count);
        for plan in rank.candidates(count, ironwarp::DType::BF16) {
            let mut y = DeviceBuffer::from_slice(&stream, &x)?;
            rank.all_reduce_with(&stream, Reduction::Sum, &mut y, plan)?;
            bytes.extend_from_slice(bytemuck::cast_slice(&y.to_vec(&stream)?));
        }
        let (x, mut half) =
            (DeviceBuffer::from_slice(&stream, &x)?, DeviceBuffer::<bf16>::zeroed(&stream, count / 2)?);
        let mut whole = DeviceBuffer::<bf16>::zeroed(&stream, count)?;
        rank.reduce_scatter(&stream, Reduction::Max, &x, &mut half)?;
        rank.all_gather(&stream, &half, &mut whole)?;
        bytes.extend_from_slice(bytemuck::cast_slice(&whole.to_vec(&stream)?));
        rank.all_to_all(&stream, &x, &mut whole)?;
        rank.broadcast(&stream, 1, &mut whole)?;
        bytes.extend_from_slice(bytemuck::cast_slice(&whole.to_vec(&stream)?));
        match me {
            0 => rank.send(&stream, other, &x)?,
            _ => rank.receive(&stream, other, &mut whole)?,
        }
        rank.barrier(&stream)?;
        bytes.extend_from_slice(bytemuck::cast_slice(&whole.to_vec(&stream)?));
    }
    rank.synchronize(&stream)?;
    Ok(bytes)
}

/// The results of both ranks.
pub fn collectives(devices: &[Device]) -> Outcome<Vec<u8>> {
    Ok(Group::open(devices)?.run(rank)?.concat())
}
