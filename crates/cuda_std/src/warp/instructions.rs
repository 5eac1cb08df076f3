//! Collectives of a warp that more than one public function uses.

#[cfg(target_arch = "nvptx64")]
use super::WARP_SIZE;
#[cfg(not(target_arch = "nvptx64"))]
use super::executor;
use super::{WarpReductionOp, WarpShuffleMode};

// Intrinsics, not `asm!`: LLVM knows that they are convergent and so does not move them across branches.
#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    pub(super) fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
    pub(super) fn laneid() -> u32;
    #[link_name = "llvm.nvvm.activemask"]
    pub(super) fn activemask() -> u32;

    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn shfl_up(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn shfl_down(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_bfly(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx(mask: u32, value: u32, b: u32, c: u32) -> u32;

    #[link_name = "llvm.nvvm.vote.all.sync"]
    pub(super) fn vote_all_sync(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    pub(super) fn vote_any_sync(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    pub(super) fn vote_ballot_sync(mask: u32, predicate: bool) -> u32;

    #[link_name = "llvm.nvvm.match.any.sync.i32"]
    fn match_any_i32(mask: u32, value: u32) -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    fn match_any_i64(mask: u32, value: u64) -> u32;

    #[link_name = "llvm.nvvm.redux.sync.add"]
    fn redux_add(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.umin"]
    fn redux_umin(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.umax"]
    fn redux_umax(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.min"]
    fn redux_min(value: i32, mask: u32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.max"]
    fn redux_max(value: i32, mask: u32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.and"]
    fn redux_and(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.or"]
    fn redux_or(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.xor"]
    fn redux_xor(value: u32, mask: u32) -> u32;
}

#[inline(always)]
#[track_caller]
pub(super) fn shuffle(mode: WarpShuffleMode, mask: u32, value: u32, b: u32, width: u32) -> u32 {
    arms! {
        ptx: {
            let section = (WARP_SIZE - width) << 8;
            let clamp = WARP_SIZE - 1;
            // SAFETY: exchanges registers; the caller vouches for the lanes that take part.
            unsafe {
                match mode {
                    // Going up, the bound is the first lane of the section.
                    WarpShuffleMode::Up => shfl_up(mask, value, b, section),
                    WarpShuffleMode::Down => shfl_down(mask, value, b, section | clamp),
                    WarpShuffleMode::Idx => shfl_idx(mask, value, b, section | clamp),
                    WarpShuffleMode::Xor => shfl_bfly(mask, value, b, section | clamp),
                }
            }
        }
        sim: { executor::shuffle(mode, mask, value, b, width) }
    }
}

#[inline(always)]
#[track_caller]
pub(super) fn match_any_32(mask: u32, value: u32) -> u32 {
    arms! {
        // SAFETY: as for `shuffle`.
        ptx: { unsafe { match_any_i32(mask, value) } }
        sim: { executor::match_any_32(mask, value) }
    }
}

#[inline(always)]
#[track_caller]
pub(super) fn match_any_64(mask: u32, value: u64) -> u32 {
    arms! {
        // SAFETY: as for `shuffle`.
        ptx: { unsafe { match_any_i64(mask, value) } }
        sim: { executor::match_any_64(mask, value) }
    }
}

#[inline(always)]
#[track_caller]
pub(super) fn reduce_u32(mask: u32, value: u32, op: WarpReductionOp) -> u32 {
    arms! {
        ptx: {
            // SAFETY: as for `shuffle`.
            unsafe {
                match op {
                    WarpReductionOp::Add => redux_add(value, mask),
                    WarpReductionOp::Min => redux_umin(value, mask),
                    WarpReductionOp::Max => redux_umax(value, mask),
                    WarpReductionOp::And => redux_and(value, mask),
                    WarpReductionOp::Or => redux_or(value, mask),
                    WarpReductionOp::Xor => redux_xor(value, mask),
                }
            }
        }
        sim: { executor::reduce(mask, value, op) }
    }
}

#[inline(always)]
#[track_caller]
pub(super) fn reduce_i32(mask: u32, value: i32, op: WarpReductionOp) -> i32 {
    arms! {
        ptx: {
            match op {
                // SAFETY: as for `shuffle`.
                WarpReductionOp::Min => unsafe { redux_min(value, mask) },
                // SAFETY: as for `shuffle`.
                WarpReductionOp::Max => unsafe { redux_max(value, mask) },
                // The sign makes no difference to the others.
                _ => reduce_u32(mask, value as u32, op) as i32,
            }
        }
        sim: {
            // Flipping the sign bit turns the order of signed numbers into that of unsigned ones.
            const SIGN: u32 = 1 << 31;
            match op {
                WarpReductionOp::Min | WarpReductionOp::Max => {
                    (reduce_u32(mask, value as u32 ^ SIGN, op) ^ SIGN) as i32
                }
                _ => reduce_u32(mask, value as u32, op) as i32,
            }
        }
    }
}
