//! Who takes part in a launch, and the memory that ranks write to each other.

use crate::low_latency::{LINE, MAX_LINES};
use crate::{MAX_BLOCKS, MAX_RANKS};

/// The ranks of a launch, as one of them sees them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Team {
    /// Address of each rank's [`Signals`], with its slots behind them.
    pub signals: [u64; MAX_RANKS],
    /// Address of the rank's [`Report`], in the host's memory.
    pub report: u64,
    /// Address of the group's abort word, in the host's memory.
    pub abort: u64,
    /// How long a wait may take, in nanoseconds.
    pub limit: u64,
    /// The rank.
    pub rank: u32,
    /// All ranks.
    pub ranks: u32,
    /// Bits of the ranks that meet.
    pub members: u32,
    /// 1 when not all ranks meet: then each pair counts epochs of its own.
    pub is_pairwise: u32,
    /// A number of what is called, the same for all that meet.
    pub call: u32,
    /// The number of the call, for reports.
    pub sequence: u32,
    /// Where the buffers that ranks give and get lie behind their signals, in bytes: the same on all ranks,
    /// which know no others. 0: each rank announces its buffers' addresses.
    pub staged: [u64; 2],
}

/// Words of an announcement: the two halves of both addresses, and the call.
pub const WORDS: usize = 5;

/// Flags that the ranks of a group write to one of them. At first all zero.
#[repr(C)]
pub struct Signals {
    /// Epoch of each block's last launch: of all ranks together, then with each peer alone.
    pub epochs: [[u32; EPOCHS]; MAX_BLOCKS],
    /// Of all ranks together.
    pub group: [Flags; MAX_BLOCKS],
    /// Of pairs.
    pub pairs: [Flags; MAX_BLOCKS],
    /// Sums of squares, by the rank and the block that write them.
    pub squares: [[f32; MAX_BLOCKS]; MAX_RANKS],
}

/// Places for epochs of a block: one for all ranks, one for each peer, the rest so that blocks do not share
/// sectors.
pub const EPOCHS: usize = 16;

/// Flags of a block, by the rank that writes them.
#[repr(C)]
pub struct Flags {
    /// Words of an announcement, each with the epoch in its high half.
    pub announced: [[u64; 8]; MAX_RANKS],
    /// The epoch, when the rank is done.
    pub left: [[u64; 4]; MAX_RANKS],
}

/// Bytes of a rank's signals and of its slots, in a group of so many ranks.
pub const fn state_bytes(ranks: usize) -> usize {
    size_of::<Signals>() + 2 * ranks * MAX_LINES * LINE
}

/// Why a rank gave up, in one word: 0 for no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The reason.
    pub reason: Reason,
    /// The peer that it waited for.
    pub peer: u32,
    /// The number of the call.
    pub sequence: u32,
}

/// Why a rank gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The peer did not come to the meeting.
    Absent = 1,
    /// The peer met, and did not say that it was done.
    Stuck = 2,
    /// The peer came with another call.
    OtherCall = 3,
}

impl Report {
    /// The word.
    #[inline(always)]
    pub fn to_word(self) -> u64 {
        (self.reason as u64) << 56 | u64::from(self.peer) << 48 | u64::from(self.sequence)
    }

    /// The report in a word, if there is one.
    pub fn from_word(word: u64) -> Option<Self> {
        let reason = match word >> 56 {
            1 => Reason::Absent,
            2 => Reason::Stuck,
            3 => Reason::OtherCall,
            _ => return None,
        };
        Some(Report { reason, peer: (word >> 48) as u32 & 0xff, sequence: word as u32 })
    }
}

impl Team {
    /// The flags of a block, in the memory of the rank whose signals are given: those of all ranks together,
    /// or those of pairs.
    #[inline(always)]
    pub(crate) fn flags(&self, signals: u64, block: u32) -> *mut Flags {
        let signals = signals as *mut Signals;
        // SAFETY: an address of a field; nothing is read.
        let all = unsafe {
            if self.is_pairwise != 0 {
                (&raw mut (*signals).pairs).cast()
            } else {
                (&raw mut (*signals).group).cast()
            }
        };
        let all: *mut Flags = all;
        all.wrapping_add(block as usize)
    }

    /// The slot for data with flags that rank `writer` fills, in the memory of the rank whose signals are
    /// given.
    #[inline(always)]
    pub(crate) fn slots(&self, signals: u64, epoch: u32, writer: u32) -> *mut u64 {
        let slot = (epoch & 1) * self.ranks + writer;
        let bytes = size_of::<Signals>() + slot as usize * MAX_LINES * LINE;
        (signals as *mut u64).wrapping_byte_add(bytes)
    }

    /// Whether a rank meets this one.
    #[inline(always)]
    pub(crate) fn meets(&self, rank: u32) -> bool {
        self.members >> rank & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Reason, Report};

    #[test]
    fn reports_fit_in_a_word() {
        for reason in [Reason::Absent, Reason::Stuck, Reason::OtherCall] {
            for peer in [0, 7] {
                let report = Report { reason, peer, sequence: u32::MAX - peer };
                assert_eq!(Report::from_word(report.to_word()), Some(report));
            }
        }
        assert_eq!(Report::from_word(0), None);
    }
}
