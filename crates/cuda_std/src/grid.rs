//! A barrier for all threads of a cooperative launch; launches that overlap the one before.

use crate::arch::grid as arch;

/// Words of the workspace that [`sync`] needs.
pub const WORKSPACE_WORDS: usize = 1;

/// Waits until every thread of the grid has called this; what any thread wrote before is visible to all after.
///
/// One thread a block adds to the workspace's word: block 0 what is missing to turn the top bit, the others 1. The round is over
/// when the top bit has turned, and the low bits are zero again. So the word need be cleared only once, when it is
/// allocated, and serves any number of rounds and of launches that follow one another on a stream.
///
/// # Safety
/// * The launch is cooperative, so that all blocks run at the same time; else this never returns.
/// * All threads of the grid call it equally often.
/// * `workspace` is the same for all threads: [`WORKSPACE_WORDS`] words of global memory, zero before the first use, and
///   used by no launch that runs at the same time.
///
/// # PTX
/// `bar.sync`; `atom.add.release.gpu`, then `ld.acquire.gpu` until the bit turns; `bar.sync`
#[inline(always)]
#[track_caller]
pub unsafe fn sync(workspace: *mut u32) {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::sync(workspace) }
}

/// Waits until the launch before this one in the stream has ended and what it wrote is visible. In a launch that did not ask to
/// overlap that one (the host's `LaunchConfig::overlapping_previous`), it returns at once; before sm_90, where nothing overlaps, it is nothing.
///
/// Before this call an overlapping kernel may only do what does not depend on earlier launches.
///
/// # PTX
/// `griddepcontrol.wait`
#[inline(always)]
#[track_caller]
pub fn wait_dependencies() {
    arch::wait_dependencies();
}

/// Lets the next launch in the stream start, if it asked to overlap this one and all blocks of this grid have called this or
/// exited. What it reads after [`wait_dependencies`] is complete all the same. Nothing before sm_90.
///
/// # PTX
/// `griddepcontrol.launch_dependents`
#[inline(always)]
#[track_caller]
pub fn launch_dependents() {
    arch::launch_dependents();
}
