//! Device memory, views of it, and page-locked host memory.
//!
//! ```text
//!  DeviceBuffer -> Allocation -+-> Allocator (caching)  -> arena::Cache -> segments: cuMemAlloc, cuMemFree
//!   views: view    order of    |     marks: events         heap a stream
//!                  its uses    +-> the driver (passthrough): cuMemAllocAsync, cuMemFreeAsync
//!  PinnedBuffer ------------------> Allocator            -> arena::Cache -> segments: cuMemHostAlloc
//! ```
//! The package `arena` explains and draws how a block goes from buffer to buffer. `Device::memory_stats` and
//! `Device::memory_snapshot` show what a device's buffers hold; `Device::set_memory_limit` limits it.

mod allocation;
mod allocator;
mod buffer;
mod captured;
mod guard;
mod overlap;
mod pinned;
mod private;
mod report;
pub(crate) mod tensor_map;
mod uses;
mod view;

pub use buffer::DeviceBuffer;
pub use pinned::PinnedBuffer;
pub use report::with_oom_retry;
pub use view::{DevicePtr, DeviceView, DeviceViewMut};

pub use allocation::Use;
pub(crate) use captured::GraphUse;
pub(crate) use private::PrivatePool;
pub use view::Within;

use crate::error::{Error, Result};

/// Most that elements of buffers may be aligned to: as every allocation of the driver's is. Blocks of the
/// pool are aligned to more.
pub(crate) const ALIGNMENT: usize = 256;
const _: () = assert!(ALIGNMENT as u64 <= arena::GRANULE);

/// Tests count the actions of the one device, so they run one at a time.
#[cfg(test)]
static ONE_TEST_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Bytes of `len` elements of `T`.
pub(crate) fn byte_size<T>(len: usize) -> Result<usize> {
    let element_bytes = size_of::<T>();
    // The largest object that Rust's pointers can span.
    len.checked_mul(element_bytes)
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .ok_or(Error::SizeOverflow { len, element_bytes })
}

/// Checks that `expected == got`; the error names the argument that does not fit.
pub(crate) fn same_length(
    operation: &'static str,
    what: &'static str,
    expected: usize,
    got: usize,
) -> Result<()> {
    if expected == got { Ok(()) } else { Err(Error::Length { operation, what, expected, got }) }
}
