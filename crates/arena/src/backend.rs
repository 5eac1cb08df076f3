//! The side of a cache that its user provides: memory, and queries about the work of streams.

/// The source of segments, and the queries about the work of streams.
pub trait Backend {
    /// An event in a stream, as in CUDA.
    type Event;
    /// The error of a failed call.
    type Error;

    /// The address of new memory. `None` if there is not enough.
    ///
    /// # Errors
    /// The call failed for another reason.
    fn reserve(&self, bytes: u64) -> Result<Option<u64>, Self::Error>;

    /// Returns memory from [`Backend::reserve`] to the system. No work on it is pending.
    ///
    /// # Errors
    /// The call failed; the memory is still reserved.
    fn release(&self, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Waits for all work that is queued on all streams. False, without a wait, while anything is captured.
    ///
    /// # Errors
    /// The call failed, or the work did.
    fn settle(&self) -> Result<bool, Self::Error>;

    /// Inside a capture: waits for all work of the stream that has the heap with this number, for memory that
    /// has been taken from the heap. False if that stream cannot be waited for, or no stream has the heap.
    ///
    /// # Errors
    /// The call failed, or the work did.
    fn settle_heap(&self, heap: u64) -> Result<bool, Self::Error>;

    /// Whether the work before the event is done.
    ///
    /// # Errors
    /// The call failed, or that work did.
    fn is_reached(&self, event: &Self::Event) -> Result<bool, Self::Error>;

    /// Takes back an event that is no longer needed.
    fn recycle(&self, event: Self::Event);

    /// Whether streams may be queried and waited for now. False while one is captured.
    fn may_wait(&self) -> bool;
}

/// The reason why an allocation failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// No free block is large enough, and neither the system nor the other heaps have enough memory.
    OutOfMemory,
    /// A call of the backend failed.
    Backend(E),
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Failure::Backend(error)
    }
}
