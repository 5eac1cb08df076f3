//! Collectives of a warp, all built on the executor's exchange.

use crate::warp::{WarpReductionOp, WarpShuffleMode, source_lane};

#[track_caller]
pub fn sync(mask: u32) {
    simt::warp::sync(mask)
}

#[track_caller]
pub fn lane_id() -> u32 {
    simt::thread::lane()
}

#[track_caller]
pub fn active_mask() -> u32 {
    simt::warp::active_mask()
}

/// Lane 0 is as good as any other.
#[track_caller]
pub fn elect() -> bool {
    simt::warp::collective("elect.sync", u32::MAX, ());
    lane_id() == 0
}

#[track_caller]
pub fn shuffle(mode: WarpShuffleMode, mask: u32, value: u32, b: u32, width: u32) -> u32 {
    let name = match mode {
        WarpShuffleMode::Up => "shfl.sync.up",
        WarpShuffleMode::Down => "shfl.sync.down",
        WarpShuffleMode::Idx => "shfl.sync.idx",
        WarpShuffleMode::Xor => "shfl.sync.bfly",
    };
    let values = simt::warp::collective(name, mask, value);
    let (source, _) = source_lane(mode, lane_id(), b, width);
    // A lane outside of the mask has no value to give; the hardware leaves the result unspecified.
    values[source as usize].unwrap_or(value)
}

/// Mask of the lanes whose input passes `test`.
fn lanes_where<T>(values: [Option<T>; 32], test: impl Fn(T) -> bool) -> u32 {
    values
        .into_iter()
        .enumerate()
        .fold(0, |mask, (lane, value)| mask | (value.is_some_and(&test) as u32) << lane)
}

#[track_caller]
pub fn vote_all(mask: u32, predicate: bool) -> bool {
    lanes_where(simt::warp::collective("vote.sync.all", mask, predicate), |p| p) == mask
}

#[track_caller]
pub fn vote_any(mask: u32, predicate: bool) -> bool {
    lanes_where(simt::warp::collective("vote.sync.any", mask, predicate), |p| p) != 0
}

#[track_caller]
pub fn vote_ballot(mask: u32, predicate: bool) -> u32 {
    lanes_where(simt::warp::collective("vote.sync.ballot", mask, predicate), |p| p)
}

#[track_caller]
pub fn match_any_32(mask: u32, value: u32) -> u32 {
    lanes_where(simt::warp::collective("match.any.sync.b32", mask, value), |other| other == value)
}

#[track_caller]
pub fn match_any_64(mask: u32, value: u64) -> u32 {
    lanes_where(simt::warp::collective("match.any.sync.b64", mask, value), |other| other == value)
}

#[track_caller]
pub fn reduce_u32(mask: u32, value: u32, op: WarpReductionOp) -> u32 {
    // The operation is part of the name, so that lanes which disagree about it are found out.
    let (name, combine): (_, fn(u32, u32) -> u32) = match op {
        WarpReductionOp::Add => ("redux.sync.add", u32::wrapping_add),
        WarpReductionOp::Min => ("redux.sync.min", u32::min),
        WarpReductionOp::Max => ("redux.sync.max", u32::max),
        WarpReductionOp::And => ("redux.sync.and", |a, b| a & b),
        WarpReductionOp::Or => ("redux.sync.or", |a, b| a | b),
        WarpReductionOp::Xor => ("redux.sync.xor", |a, b| a ^ b),
    };
    simt::warp::collective(name, mask, value).into_iter().flatten().reduce(combine).unwrap_or(value)
}

#[track_caller]
pub fn reduce_i32(mask: u32, value: i32, op: WarpReductionOp) -> i32 {
    // Flipping the sign bit turns the order of signed numbers into that of unsigned ones.
    const SIGN: u32 = 1 << 31;
    match op {
        WarpReductionOp::Min | WarpReductionOp::Max => {
            (reduce_u32(mask, value as u32 ^ SIGN, op) ^ SIGN) as i32
        }
        _ => reduce_u32(mask, value as u32, op) as i32,
    }
}
