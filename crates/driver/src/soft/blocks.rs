//! Blocks that a program's own allocator cuts from device memory: the program says which parts are in use, so that the
//! checker finds accesses beside a block, or to a freed one, as it does with memory of its own.

use super::{
    handle::Handle,
    queue::Work,
    state::{Driver, Outcome},
};
use std::sync::Arc;

/// A part of an allocation that begins or ends to be in use.
#[derive(Clone)]
pub(super) struct Mark {
    address: usize,
    bytes: usize,
    /// How reports call it; `None`: out of use, and poisoned.
    label: Option<Arc<str>>,
}

impl Driver {
    pub(super) fn mark(&mut self, mark: &Mark) {
        match &mark.label {
            Some(label) => simt::memory::track(mark.address as *const u8, mark.bytes, label),
            None => {
                simt::memory::untrack(mark.address as *const u8);
                self.memory.poison(mark.address, mark.bytes);
            }
        }
    }

    /// Whether it was queued, behind work of the stream.
    fn mark_in_order(&mut self, stream: Handle, mark: Mark) -> Outcome<bool> {
        // By the stream's own context: the calling thread may have none current yet, since a block that an allocator has
        // at hand takes no driver call.
        self.sound(self.streams.get(stream)?.context)?;
        // Nothing to wait for: a stream that is done stays done.
        if self.streams.get(stream)?.queue.is_empty() {
            self.mark(&mark);
            return Ok(false);
        }
        self.push(stream, Work::Mark(mark)).map(|_| true)
    }
}

/// Tells the checker, in the order of a stream's work, that `bytes` bytes at `address` are in use from now on, called `label`
/// in its reports, or with `None` that they are not. Memory out of use is filled with NaN bytes. The range lies in one
/// allocation of the stream's context; the stream is none of CUDA's special values. Does nothing after a fault, or when the software driver is not in use. Returns whether
/// this was queued: then other streams have to wait for it before they use the block.
pub fn mark_block(stream: *mut core::ffi::c_void, address: u64, bytes: usize, label: Option<&str>) -> bool {
    if !super::state::is_started() {
        return false;
    }
    let mark = Mark { address: address as usize, bytes, label: label.map(Arc::from) };
    // A context with a fault runs nothing that could be checked.
    Driver::lock().mark_in_order(stream as usize, mark).unwrap_or(false)
}
