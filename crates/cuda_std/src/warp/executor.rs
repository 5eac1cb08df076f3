//! The executor's collectives, all built on its exchange.
//!
//! They are neither generic nor inlined: else they would be compiled with the kernels, slowly and with a
//! callback on each of the executor's own accesses.

use simt::warp::{collective, collective_from, no_value};

use super::{WarpReductionOp, WarpShuffleMode, lane_id, source_lane};

#[track_caller]
pub(super) fn shuffle(mode: WarpShuffleMode, mask: u32, value: u32, b: u32, width: u32) -> u32 {
    let name = match mode {
        WarpShuffleMode::Up => "shfl.sync.up",
        WarpShuffleMode::Down => "shfl.sync.down",
        WarpShuffleMode::Idx => "shfl.sync.idx",
        WarpShuffleMode::Xor => "shfl.sync.bfly",
    };
    let (source, _) = source_lane(mode, lane_id(), b, width);
    match collective_from(name, mask, value, source) {
        Some(value) => value,
        None => no_value(name, mask, source),
    }
}

/// Mask of the lanes whose predicate holds.
#[track_caller]
pub(super) fn ballot(op: &'static str, mask: u32, predicate: bool) -> u32 {
    lanes_where(collective(op, mask, predicate), |holds| holds)
}

#[track_caller]
pub(super) fn match_any_32(mask: u32, value: u32) -> u32 {
    lanes_where(collective("match.any.sync.b32", mask, value), |other| other == value)
}

#[track_caller]
pub(super) fn match_any_64(mask: u32, value: u64) -> u32 {
    lanes_where(collective("match.any.sync.b64", mask, value), |other| other == value)
}

/// Mask of the lanes whose input passes `test`.
fn lanes_where<T>(values: [Option<T>; 32], test: impl Fn(T) -> bool) -> u32 {
    values
        .into_iter()
        .enumerate()
        .fold(0, |mask, (lane, value)| mask | (value.is_some_and(&test) as u32) << lane)
}

#[track_caller]
pub(super) fn reduce(mask: u32, value: u32, op: WarpReductionOp) -> u32 {
    // The operation is part of the name, so that lanes which disagree about it are found out.
    let (name, combine): (_, fn(u32, u32) -> u32) = match op {
        WarpReductionOp::Add => ("redux.sync.add", u32::wrapping_add),
        WarpReductionOp::Min => ("redux.sync.min", u32::min),
        WarpReductionOp::Max => ("redux.sync.max", u32::max),
        WarpReductionOp::And => ("redux.sync.and", |a, b| a & b),
        WarpReductionOp::Or => ("redux.sync.or", |a, b| a | b),
        WarpReductionOp::Xor => ("redux.sync.xor", |a, b| a ^ b),
    };
    collective(name, mask, value).into_iter().flatten().reduce(combine).unwrap_or(value)
}
