//! The uses of allocations by work that is being captured.
//!
//! Inside a capture, its own streams keep the uses of each allocation in order. The graph keeps every
//! allocation that its work uses, and each replay is a use of them outside the capture.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::allocation::GraphShare;
use super::private::PrivatePool;
use super::uses::List;
use crate::error::Result;
use crate::stream::{Capture, Stream};

/// The memory side of a capture.
pub(crate) struct CapturedMemory {
    uses: CapturedUses,
    /// Memory for what the captured streams allocate.
    pool: Arc<PrivatePool>,
    /// The stream that allocates for them when the cache is off.
    memory_stream: OnceLock<Stream>,
}

impl Capture {
    /// Its memory side.
    pub(crate) fn memory(&self) -> &CapturedMemory {
        self.extension(|| CapturedMemory {
            uses: CapturedUses::default(),
            pool: PrivatePool::new(self.device()),
            memory_stream: OnceLock::new(),
        })
    }
}

impl CapturedMemory {
    pub(crate) fn uses(&self) -> &CapturedUses {
        &self.uses
    }

    pub(crate) fn pool(&self) -> &Arc<PrivatePool> {
        &self.pool
    }

    /// A stream to allocate on that is not captured itself.
    pub(super) fn memory_stream(&self) -> Result<Stream> {
        match self.memory_stream.get() {
            Some(stream) => Ok(stream.clone()),
            None => {
                let stream = self.pool.device().pooled_stream()?;
                Ok(self.memory_stream.get_or_init(|| stream).clone())
            }
        }
    }
}

/// The uses of a capture so far; `None` once it has ended.
pub(crate) struct CapturedUses(Mutex<Option<HashMap<usize, CapturedUse>>>);

struct CapturedUse {
    memory: Arc<GraphShare>,
    written: bool,
    list: List,
}

/// An allocation that a graph uses, and whether it writes it.
pub(crate) type GraphUse = (Arc<GraphShare>, bool);

impl Default for CapturedUses {
    fn default() -> Self {
        CapturedUses(Mutex::new(Some(HashMap::new())))
    }
}

impl CapturedUses {
    /// As [`Uses::begin`](super::uses::Uses::begin), for a stream that is being captured. From now on the
    /// graph keeps the memory.
    pub(super) fn begin(&self, memory: &Arc<GraphShare>, stream: &Stream, writes: bool) -> Result<u64> {
        let mut uses = self.uses();
        // After the end of the capture this is usual work; the commit enters it as such.
        let Some(uses) = &mut *uses else { return Ok(0) };
        let used = uses.entry(Arc::as_ptr(memory).addr()).or_insert_with(|| CapturedUse {
            memory: memory.clone(),
            written: false,
            list: List::default(),
        });
        used.written |= writes;
        used.list.begin(stream, writes, Stream::wait_for)
    }

    /// As [`Uses::commit`](super::uses::Uses::commit).
    pub(super) fn commit(&self, memory: &Arc<GraphShare>, stream: &Stream, writes: bool, begun: u64) {
        match self.uses().as_mut().and_then(|uses| uses.get_mut(&Arc::as_ptr(memory).addr())) {
            Some(used) => drop(used.list.commit(stream, writes, begun)),
            None => memory.users().commit(stream, writes, 0),
        }
    }

    /// The owner of an allocation that was made in this capture drops it. If no captured stream but `home`
    /// has used it, the capture gives it up, and the next allocation may get it.
    pub(super) fn forget(&self, memory: &Arc<GraphShare>, home: &Stream) {
        let mut uses = self.uses();
        let Some(uses) = &mut *uses else { return };
        let key = Arc::as_ptr(memory).addr();
        if uses.get(&key).is_some_and(|used| used.list.streams().all(|stream| stream == home)) {
            // The owner's handle is still there, so nothing is freed under the lock.
            uses.remove(&key);
        }
    }

    /// Ends the capture. Returns the allocations that its graph uses.
    pub(crate) fn end(&self) -> Vec<GraphUse> {
        let uses = self.uses().take().unwrap_or_default();
        uses.into_values().map(|used| (used.memory, used.written)).collect()
    }

    fn uses(&self) -> MutexGuard<'_, Option<HashMap<usize, CapturedUse>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
