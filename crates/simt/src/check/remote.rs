//! Accesses to shared memory of other blocks of a cluster. Besides races, they have two faults: the other
//! block has not begun, or it ends too early. Both are found under any schedule: the first when the accessing
//! thread knows nothing of the block, the second when the block ends without knowing of the access.

use super::cell::Order;
use super::{Access, Stamp, View, fail_shared, knows_of, note_shared, other, report, stamp};
use crate::exec::context::{Block, Thread};
use crate::fault::{FaultKind, Index};

/// The latest access of each thread of other blocks, and the latest copy to each mbarrier, that the block may
/// not know of.
#[derive(Default)]
pub(crate) struct RemoteAccesses {
    latest: Vec<(Stamp, Access)>,
}

impl RemoteAccesses {
    pub fn clear(&mut self) {
        self.latest.clear();
    }

    fn note(&mut self, now: Stamp, access: Access, order: &impl Order) {
        let same = |stamp: &Stamp| match (stamp.is_tracked(), now.is_tracked()) {
            (false, false) => (stamp.block, stamp.rank()) == (now.block, now.rank()),
            _ => order.in_sequence(*stamp, now),
        };
        match self.latest.iter_mut().find(|(stamp, _)| same(stamp)) {
            Some(entry) => *entry = (now, access),
            None => self.latest.push((now, access)),
        }
    }
}

/// Records that the thread accesses shared memory of `target`, another block. With `is_data` the access takes
/// part in races; else it is a use of an mbarrier, which has its own rules.
pub(crate) fn remote_access(thread: &Thread, target: &Block, access: Access, is_data: bool) {
    require_begun(thread, target, access);
    let now = stamp(thread, access);
    if is_data && let Err(problem) = note_shared(thread, target, access, now) {
        fail_shared(thread, access, problem);
    }
    note(thread, target, access, now);
}

/// Records that the thread begins asynchronous operation number `operation`, which completes on an mbarrier
/// of `target`, another block. A thread of `target` that has waited for the operation knows of this access.
pub(crate) fn remote_copy(thread: &Thread, target: &Block, access: Access, operation: u32) {
    require_begun(thread, target, access);
    let number = thread.block().number.get();
    note(thread, target, access, Stamp::tracked(number, operation, thread.rank, access.kind, access.site));
}

fn require_begun(thread: &Thread, target: &Block, access: Access) {
    if !knows_of(thread, target) {
        let message = format!("nothing says that block {} has begun to run", Index(target.index.get()));
        report(thread, access, FaultKind::ClusterInvalid, message, None);
    }
}

fn note(thread: &Thread, target: &Block, access: Access, now: Stamp) {
    let view = View { thread, block: thread.block() };
    target.check.remote.borrow_mut().note(now, access, &view);
}

/// At the end of a thread, forgets the accesses that it knows of. If it is the last of its block, the
/// accesses left may come too late.
pub(crate) fn block_ends(thread: &Thread, is_last: bool) {
    let block = thread.block();
    let view = View { thread, block };
    let mut remote = block.check.remote.borrow_mut();
    remote.latest.retain(|(stamp, _)| !view.is_before(*stamp));
    let left = remote.latest.first().copied();
    drop(remote);
    if let Some((stamp, access)) = left
        && is_last
    {
        let message = format!(
            "block {} ends while a thread of another block may still access its shared memory",
            Index(block.index.get())
        );
        report(thread, access, FaultKind::ClusterInvalid, message, Some(other(stamp)));
    }
}
