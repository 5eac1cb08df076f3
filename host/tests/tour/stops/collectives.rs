//! Collectives among the first two devices.

use super::Outcome;
use collective::tick::{Mark, tick};
use half::bf16;
use ironwarp::parallel::{Communicator, Group, Reduction};
use ironwarp::{DType, Device, DeviceBuffer, Error, LaunchConfig, Stream, Tensor, launch};
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
    let x = Tensor::from_slice(&stream, &[25, 40], &input::<bf16>(Family::Normal, me.into(), 1000))?;
    let weight = Tensor::from_slice(&stream, &[40], &input::<bf16>(Family::Normal, 9, 40))?;
    let residual = Tensor::zeros(&stream, &[25, 40], DType::BF16)?;
    let normed = rank.all_reduce_norm(&stream, &x, &residual, &weight, 1e-5)?;
    let mut scaled = Tensor::zeros(&stream, &[1000], DType::F32)?;
    let squares = rank.all_reduce_scaled(&stream, &x, 0.5, scaled.view_mut()?)?;
    bytes.extend_from_slice(bytemuck::cast_slice(&normed.y.to_vec::<bf16>(&stream)?));
    for of in [scaled, squares] {
        bytes.extend_from_slice(bytemuck::cast_slice(&of.to_vec::<f32>(&stream)?));
    }
    rank.synchronize(&stream)?;
    bytes.extend(marks(&stream)?);
    Ok(bytes)
}

/// Two marks: what the host sees.
fn marks(stream: &Stream) -> Result<[u8; 8], Error> {
    let (mut count, seen) =
        (DeviceBuffer::<u32>::zeroed(stream, 1)?, DeviceBuffer::<u64>::zeroed(stream, 1)?);
    let mark = Mark { seen: seen.as_ptr().raw(), sequence: 7 };
    for _ in 0..2 {
        // SAFETY: one thread; both live until the stream has been waited for.
        unsafe { launch::<tick>(stream, LaunchConfig::new([1, 1, 1], [1, 1, 1]), (mark, &mut count)) }?;
    }
    stream.synchronize()?;
    let word = seen.to_vec(stream)?[0];
    assert_eq!(word, 7 << 32 | 2);
    Ok(word.to_le_bytes())
}

/// The results of both ranks.
pub fn collectives(devices: &[Device]) -> Outcome<Vec<u8>> {
    Ok(Group::open(devices)?.run(rank)?.concat())
}
