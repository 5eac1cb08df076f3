//! Writes beside buffers.

use std::fmt;

/// A write beside a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overrun {
    /// `file:line` that allocated the buffer.
    pub site: String,
    /// Its size in bytes.
    pub bytes: usize,
    /// The offset of the first overwritten byte from the buffer's first byte.
    pub offset: isize,
}

impl fmt::Display for Overrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overrun { site, bytes, offset } = self;
        write!(
            f,
            "byte {offset} of a buffer of {bytes} bytes was written; the buffer was allocated at {site}"
        )
    }
}
