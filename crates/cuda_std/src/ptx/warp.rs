//! Collectives of a warp.

use core::arch::asm;

use crate::warp::{WARP_SIZE, WarpReductionOp, WarpShuffleMode};

// Intrinsics, not `asm!`: LLVM knows that they are convergent and so does not move them across branches.
unsafe extern "C" {
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
    fn laneid() -> u32;
    #[link_name = "llvm.nvvm.activemask"]
    fn activemask() -> u32;

    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn shfl_up(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn shfl_down(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_bfly(mask: u32, value: u32, b: u32, c: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx(mask: u32, value: u32, b: u32, c: u32) -> u32;

    #[link_name = "llvm.nvvm.vote.all.sync"]
    fn vote_all_sync(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any_sync(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot_sync(mask: u32, predicate: bool) -> u32;

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
pub fn sync(mask: u32) {
    // SAFETY: a barrier touches no memory of its own; who takes part is the caller's promise.
    unsafe { bar_warp_sync(mask) }
}

#[inline(always)]
pub fn lane_id() -> u32 {
    // SAFETY: reads a special register.
    unsafe { laneid() }
}

#[inline(always)]
pub fn active_mask() -> u32 {
    // SAFETY: reads the state of the warp.
    unsafe { activemask() }
}

#[inline(always)]
pub fn elect() -> bool {
    let elected: u32;
    // SAFETY: no memory; who takes part is the caller's promise.
    unsafe {
        asm!(
            "{{",
            ".reg .pred elected;",
            "elect.sync _|elected, 0xffffffff;",
            "selp.u32 {0}, 1, 0, elected;",
            "}}",
            out(reg32) elected, options(nomem, nostack, preserves_flags)
        );
    }
    elected != 0
}

#[inline(always)]
pub fn shuffle(mode: WarpShuffleMode, mask: u32, value: u32, b: u32, width: u32) -> u32 {
    let section = (WARP_SIZE - width) << 8;
    let clamp = WARP_SIZE - 1;
    // SAFETY: exchanges registers; who takes part is the caller's promise.
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

#[inline(always)]
pub fn vote_all(mask: u32, predicate: bool) -> bool {
    // SAFETY: as for `shuffle`.
    unsafe { vote_all_sync(mask, predicate) }
}

#[inline(always)]
pub fn vote_any(mask: u32, predicate: bool) -> bool {
    // SAFETY: as for `shuffle`.
    unsafe { vote_any_sync(mask, predicate) }
}

#[inline(always)]
pub fn vote_ballot(mask: u32, predicate: bool) -> u32 {
    // SAFETY: as for `shuffle`.
    unsafe { vote_ballot_sync(mask, predicate) }
}

#[inline(always)]
pub fn match_any_32(mask: u32, value: u32) -> u32 {
    // SAFETY: as for `shuffle`.
    unsafe { match_any_i32(mask, value) }
}

#[inline(always)]
pub fn match_any_64(mask: u32, value: u64) -> u32 {
    // SAFETY: as for `shuffle`.
    unsafe { match_any_i64(mask, value) }
}

#[inline(always)]
pub fn reduce_u32(mask: u32, value: u32, op: WarpReductionOp) -> u32 {
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

#[inline(always)]
pub fn reduce_i32(mask: u32, value: i32, op: WarpReductionOp) -> i32 {
    match op {
        // SAFETY: as for `shuffle`.
        WarpReductionOp::Min => unsafe { redux_min(value, mask) },
        // SAFETY: as for `shuffle`.
        WarpReductionOp::Max => unsafe { redux_max(value, mask) },
        // The sign makes no difference to the others.
        _ => reduce_u32(mask, value as u32, op) as i32,
    }
}
