//! Compiled kernels in one file: PTX and machine code of each kernel, compressed with LZMA2.
//!
//! The driver compiles all the PTX that it is given, so a program loads one kernel at a time; kernels of a
//! family have much in common, so they are compressed together. An archive therefore holds *blocks*, each
//! compressed as a whole, and *members*, each a range of a block.
//!
//! ```text
//! ironwarp-kernels 2
//! BLOCKS MEMBERS CHECK                              the checksum of the lines that follow
//! PACKED LENGTH CHECK                               a line for each block: bytes in the file, bytes unpacked,
//!                                                   the checksum of the bytes in the file
//! FAMILY ARCH KIND KERNEL BLOCK OFFSET LENGTH       a line for each member
//! (the blocks, one behind the other)
//! ```
//!
//! Checksums are FNV-1a of 64 bits, as 16 hexadecimal digits: they tell damage, not malice.
//!
//! The PTX of a kernel has two members: [`Kind::Common`], which all kernels of its module share, and its own.

mod read;
pub mod text;
#[cfg(feature = "write")]
mod write;

use std::fmt;
use std::str::FromStr;

pub use read::Archive;
#[cfg(feature = "write")]
pub use write::Writer;

/// The first line; the number changes with the format.
const FIRST_LINE: &str = "ironwarp-kernels 2";

/// FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv>).
fn checksum(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(BASIS, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// A member's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// PTX of a module but its kernels: version, target, constants, functions. Its kernel's name is
    /// [`COMMON`].
    Common,
    /// PTX of one kernel.
    Ptx,
    /// Machine code of one kernel: an ELF file for its architecture (a cubin).
    Machine,
}

/// Stands where [`Kind::Common`] has no kernel's name.
pub const COMMON: &str = "-";

impl Kind {
    const ALL: [Kind; 3] = [Kind::Common, Kind::Ptx, Kind::Machine];

    fn name(self) -> &'static str {
        match self {
            Kind::Common => "common",
            Kind::Ptx => "ptx",
            Kind::Machine => "machine",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}

/// Something of one kernel for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The family, for example `ironwarp_gemm`.
    pub family: &'a str,
    /// The architecture, for example `sm_90a`.
    pub arch: &'a str,
    /// Its contents.
    pub kind: Kind,
    /// The kernel, or [`COMMON`].
    pub kernel: &'a str,
    block: usize,
    offset: usize,
    length: usize,
}

/// An archive that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// Another kind of file, or another version of the format.
    #[error(
        "this is no archive of kernels: it does not begin with the line {FIRST_LINE:?}; pack the kernels again"
    )]
    NotAnArchive,
    /// A line of the index that says nothing sensible.
    #[error("line {line} of the archive's index is damaged: got {got:?}; pack the kernels again")]
    Index {
        /// Its number, from 1.
        line: usize,
        /// Its text, at most 100 characters.
        got: String,
    },
    /// The file ends before its blocks do.
    #[error("the archive ends after {got} of {wanted} bytes; pack the kernels again")]
    Short {
        /// Bytes that there are.
        got: usize,
        /// Bytes that the index asks for.
        wanted: usize,
    },
    /// A block that does not unpack to what the index says.
    #[error("block {block} of the archive is damaged ({reason}); pack the kernels again")]
    Block {
        /// Its number, from 0.
        block: usize,
        /// The reason.
        reason: String,
    },
}
