//! The loop of both kernels: turns whose rows come through the ring.

use cuda_std::warp::{FULL_MASK, sync_warp};
use primitives::pipeline::{Block, CopyPipeline};
use primitives::shared_plan::SharedType;

use super::config::{Config, RING, Stage};

/// Calls `each` for every turn, with its stage, to which `copy` has started the turn's copies. Copies that
/// have been started before come with those of the first turn.
///
/// # Safety
/// All threads of the block call it, with the same turns. The ring begins at `base`. `copy` writes to its
/// stage alone, and `each` reads no other stage.
#[inline(always)]
pub(super) unsafe fn go_round<C: Config, T>(
    base: u32,
    turns: impl Iterator<Item = T> + Clone,
    copy: impl Fn(T, u32),
    mut each: impl FnMut(T, u32),
) {
    let mut ring = CopyPipeline::<_, Block>::new(RING, Stage::<C>::BYTES);
    let mut ahead = turns.clone();
    let mut copy_next = |ring: &mut CopyPipeline<_, Block>| {
        if let Some(turn) = ahead.next() {
            copy(turn, base + ring.stage_to_load());
        }
        ring.commit();
    };
    let mut stages = ring.prologue();
    while stages > 0 {
        copy_next(&mut ring);
        stages -= 1;
    }
    for turn in turns {
        let stage = base + ring.wait();
        copy_next(&mut ring);
        each(turn, stage);
        ring.release();
    }
    // Gradients take the places of the block's own rows.
    // SAFETY: the whole warp is here.
    unsafe { sync_warp(FULL_MASK) }
}
