//! Blocks that the program's own allocator cuts from device memory. The program reports which parts are in
//! use. So the checker also finds accesses outside a block or to a freed block.

use super::{
    handle::Handle,
    queue::Work,
    state::{Driver, Outcome},
};
use std::sync::Arc;

/// Marks a part of an allocation as in use or as free.
#[derive(Clone)]
pub(super) struct Mark {
    address: usize,
    bytes: usize,
    /// The name in reports. `None`: the part is free and poisoned.
    label: Option<Arc<str>>,
}

impl Driver {
    pub(super) fn mark(&mut self, mark: &Mark) {
        match &mark.label {
            Some(label) => super::memory::track_new(mark.address, mark.bytes, label),
            None => {
                simt::memory::untrack(mark.address as *const u8);
                self.memory.poison(mark.address, mark.bytes);
            }
        }
    }

    /// Returns whether the mark was queued behind work of the stream.
    fn mark_in_order(&mut self, stream: Handle, mark: Mark) -> Outcome<bool> {
        // Uses the stream's own context. The calling thread may have no current context: an allocator may
        // serve a block from its cache without any driver call.
        self.sound(self.streams.get(stream)?.context)?;
        // Nothing to wait for: an idle stream stays idle.
        if self.streams.get(stream)?.queue.is_empty() {
            self.mark(&mark);
            return Ok(false);
        }
        self.push(stream, Work::Mark(mark)).map(|_| true)
    }
}

/// Tells the checker, in stream order, that `bytes` bytes at `address` are in use from now on, named `label`
/// in reports; `None` marks them as free. Free memory is filled with NaN bytes.
///
/// The range must lie in one allocation of the stream's context. The stream must not be one of CUDA's special
/// values. Does nothing after a fault, or if the software driver is not in use. Returns whether the mark was
/// queued. If so, other streams must wait for it before they use the block.
pub fn mark_block(stream: *mut core::ffi::c_void, address: u64, bytes: usize, label: Option<&str>) -> bool {
    if !super::state::is_started() {
        return false;
    }
    let mark = Mark { address: address as usize, bytes, label: label.map(Arc::from) };
    // A context with a fault runs no more work to check.
    Driver::lock().mark_in_order(stream as usize, mark).unwrap_or(false)
}
