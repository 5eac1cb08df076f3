//! Marks around calls of another library, which has no flags of its own: the host sees when one does not end.

use cuda_std::atomic::intrinsics::atomic_store_relaxed_64_system;
use cuda_std::kernel;

/// Where the host looks, and what it is told.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Mark {
    /// Address of a word in the host's memory: the number of marks, and in its high half the call's.
    pub seen: u64,
    /// The number of the call.
    pub sequence: u32,
}

/// Counts a mark: there is one before and one behind each call, so the number is odd while a call runs.
///
/// # Safety
/// One thread launches it. `mark.seen` is the address of a word in the host's memory that lives, `count` that
/// of a number that nothing else writes.
#[kernel(launch_bounds(32))]
pub unsafe fn tick(mark: Mark, count: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let marks = (*count).wrapping_add(1);
        *count = marks;
        atomic_store_relaxed_64_system(
            mark.seen as *mut u64,
            u64::from(mark.sequence) << 32 | u64::from(marks),
        );
    }
}
