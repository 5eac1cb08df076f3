//! Handles of contexts, streams, events and other objects. A handle is never an address, so a stale or
//! foreign handle is detected.

use crate::code;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;

/// An opaque handle. Small values are reserved for CUDA's special streams (0, 1, 2).
pub(super) type Handle = usize;

static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
/// Callers expect handles to look like pointers, so they are spaced like pointers.
const STEP: usize = 16;

/// A new handle. It differs from all earlier handles of any kind of object, and is greater.
pub(super) fn fresh() -> Handle {
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}

/// The objects of one kind, in creation order.
pub(super) struct Handles<T>(BTreeMap<Handle, T>);

impl<T> Handles<T> {
    pub(super) const fn new() -> Self {
        Handles(BTreeMap::new())
    }

    pub(super) fn insert(&mut self, object: T) -> Handle {
        let handle = fresh();
        self.0.insert(handle, object);
        handle
    }

    pub(super) fn contains(&self, handle: Handle) -> bool {
        self.0.contains_key(&handle)
    }

    /// # Errors
    /// `INVALID_HANDLE` when no such object exists.
    pub(super) fn get(&self, handle: Handle) -> Result<&T, u32> {
        self.0.get(&handle).ok_or(code::INVALID_HANDLE)
    }

    /// # Errors
    /// `INVALID_HANDLE` when no such object exists.
    pub(super) fn get_mut(&mut self, handle: Handle) -> Result<&mut T, u32> {
        self.0.get_mut(&handle).ok_or(code::INVALID_HANDLE)
    }

    /// # Errors
    /// `INVALID_HANDLE` when no such object exists.
    pub(super) fn remove(&mut self, handle: Handle) -> Result<T, u32> {
        self.0.remove(&handle).ok_or(code::INVALID_HANDLE)
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.0.retain(|_, object| keep(object));
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (Handle, &T)> {
        self.0.iter().map(|(&handle, object)| (handle, object))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }
}
