//! Asynchronous stores to shared memory of the cluster, which complete on an mbarrier: `st.async`.
//!
//! Unlike copies, these are made by the generic proxy: accesses before them need no proxy fence. The seed
//! decides when they take effect.

use std::panic::Location;

use crate::bulk;
use crate::check::{self, Access, proxy};
use crate::exec::context::current;
use crate::exec::group::Group;
use crate::fault::AccessKind;
use crate::mbarrier;
use crate::site::RawSite;

/// Begins to store `words` (1, 2 or 4) at `dst` in shared memory of a block of the cluster, which completes
/// their bytes on the mbarrier at `bar` of that block
/// (`st.async.shared::cluster.mbarrier::complete_tx::bytes`).
///
/// # Safety
/// Nothing else touches the destination until the mbarrier reports that the bytes have arrived; or checking
/// is on.
#[track_caller]
#[inline(never)]
pub unsafe fn store_async(dst: u32, words: &[u32], bar: u32) {
    const OP: &str = "st.async";
    let location = Location::caller();
    let thread = current("simt::remote::store_async");
    let (to, bar) = bulk::remote(thread, dst, bar, OP, location);
    let bytes = size_of_val(words);
    bulk::require_in_arena(thread, &to, bytes, OP, location);
    let arrival = mbarrier::begin_copy(thread, &bar, bytes, OP, location);
    let pointer = to.block.arena.at(to.offset);
    if let Some(operation) = arrival.operation() {
        let site = RawSite::of(location);
        let access =
            Access { address: pointer as usize, size: bytes, align: bytes, kind: AccessKind::Write, site };
        check::require_aligned(thread, access);
        proxy::generic_write(thread, to.block, access, operation);
    }
    let (words, issuer) = (words.to_vec(), thread.slot);
    thread.group().take_off(Box::new(move |group: &Group<'_>| {
        // SAFETY: the destination is in the arena, which has been checked.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr().cast(), pointer, bytes) };
        arrival.complete(group, &group.threads[issuer as usize]);
    }));
}
