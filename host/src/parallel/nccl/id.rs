//! Ids of groups.

use std::fmt;

use driver::nccl::{self, SUCCESS, library};

use crate::error::{ParallelError, Result};

/// By it the ranks of a group in several processes find each other through NCCL. One rank makes it, and hands
/// its bytes to the others; each id is for one group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId(pub(super) nccl::UniqueId);

impl UniqueId {
    /// No id.
    pub(super) const NONE: Self = UniqueId(nccl::UniqueId([0; _]));

    /// A new one. The process that makes it has to live until all ranks have joined.
    ///
    /// # Errors
    /// [`ParallelError::NoNccl`] says what to install; [`ParallelError::Nccl`].
    pub fn new() -> Result<Self> {
        let library = library().map_err(ParallelError::NoNccl)?;
        let mut id = nccl::UniqueId([0; _]);
        // SAFETY: a place to write to.
        match unsafe { (library.get_unique_id)(&mut id) } {
            SUCCESS => Ok(UniqueId(id)),
            code => Err(super::shared::said(library, 0, "UniqueId::new", code).into()),
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }

    /// The id with these bytes.
    ///
    /// # Errors
    /// [`crate::Error::Length`] for another number of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wanted = size_of::<nccl::UniqueId>();
        crate::memory::same_length("UniqueId::from_bytes", "the bytes", wanted, bytes.len())?;
        let mut id = nccl::UniqueId([0; _]);
        id.0.copy_from_slice(bytes);
        Ok(UniqueId(id))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It lets others into the group.
        f.write_str("UniqueId(..)")
    }
}
