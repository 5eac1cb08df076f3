//! Captures of a device that are under way.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The captures of a device that are under way. Other layers decide what a capture keeps.
#[derive(Default)]
pub(crate) struct Captures {
    /// The number of captures. While it is 0, streams need not look further. A capture counts from before it
    /// begins until after it ends.
    count: AtomicUsize,
    state: Mutex<State>,
    gate: Gate,
}

/// Lets no capture begin while streams are put in order: otherwise a mark could land in a capture that has
/// just begun.
#[derive(Default)]
struct Gate {
    /// The number of threads that put streams in order now.
    inside: Mutex<usize>,
    left: Condvar,
}

impl Gate {
    fn pass<R>(&self, work: impl FnOnce() -> R) -> R {
        *locked(&self.inside) += 1;
        let _leaving = Leaving(self);
        work()
    }

    /// Waits until no thread is inside, and lets none in until the returned guard is dropped.
    fn close(&self) -> MutexGuard<'_, usize> {
        let mut inside = locked(&self.inside);
        while *inside > 0 {
            inside = self.left.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        inside
    }
}

/// Leaves a gate when dropped, after a panic too.
struct Leaving<'g>(&'g Gate);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        *locked(&self.0.inside) -= 1;
        self.0.left.notify_all();
    }
}

#[derive(Default)]
struct State {
    /// Each capture with the number that the driver gave it.
    list: Vec<(u64, Arc<dyn Any + Send + Sync>)>,
    /// Work that has to wait for the end of all captures.
    deferred: Vec<Deferred>,
}

type Deferred = Box<dyn FnOnce() + Send>;

impl Captures {
    /// Whether any stream of the device is being captured.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Does `work` when no stream of the device is being captured: now, or at the end of the last capture.
    /// Frees use it, since they put streams in order, and a captured stream cannot be queried, waited for or
    /// marked.
    pub(crate) fn outside(&self, work: impl FnOnce() + Send + 'static) {
        self.between_beginnings(|| {
            if self.any() {
                let mut state = locked(&self.state);
                if self.any() {
                    return state.deferred.push(Box::new(work));
                }
            }
            work();
        });
    }

    /// Does `work` and lets no capture begin meanwhile: no capture starts after `work` has looked for
    /// captures.
    pub(crate) fn between_beginnings<R>(&self, work: impl FnOnce() -> R) -> R {
        self.gate.pass(work)
    }

    /// Begins a capture by `begin`, which returns the driver's number of it. It counts until
    /// [`Captures::remove`].
    pub(crate) fn add<E>(
        &self,
        capture: &Arc<impl Any + Send + Sync>,
        begin: impl FnOnce() -> Result<u64, E>,
    ) -> Result<(), E> {
        self.count.fetch_add(1, Ordering::AcqRel);
        let _closed = self.gate.close();
        let id = begin()?;
        locked(&self.state).list.push((id, capture.clone()));
        Ok(())
    }

    /// The capture has ended, or could not begin.
    pub(crate) fn remove(&self, capture: &Arc<impl Any + Send + Sync>) {
        let mut state = locked(&self.state);
        state.list.retain(|(_, other)| Arc::as_ptr(other).addr() != Arc::as_ptr(capture).addr());
        let is_last = self.count.fetch_sub(1, Ordering::AcqRel) == 1;
        let due = if is_last { std::mem::take(&mut state.deferred) } else { Vec::new() };
        drop(state);
        // Each piece of work is checked again: another capture may have begun.
        due.into_iter().for_each(|work| self.outside(work));
    }

    /// The capture with that number.
    pub(crate) fn find<T: Any + Send + Sync>(&self, id: u64) -> Option<Arc<T>> {
        let state = locked(&self.state);
        let (_, capture) = state.list.iter().find(|(other, _)| *other == id)?;
        capture.clone().downcast().ok()
    }
}
