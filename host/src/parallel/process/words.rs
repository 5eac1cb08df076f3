//! Host memory that all processes of a group have: the abort word, reports of kernels, and what ranks tell
//! each other without a wait.
//!
//! It is a file without a name. The first rank makes it, the others open it through that process, and it goes
//! with the last of them. All is read and written by atomic operations, on 64-bit words but for the
//! abort word, of which kernels and the host reach the first 32 bits:
//!
//! ```text
//!   the abort word, a report for each rank     a cache line each; kernels write there
//!   marks of each rank                         it has dropped its communicator, it has closed peers' memory
//!   the first failure                          which text it is; the number of texts begun; texts
//!   two letters of each rank                   for a meeting on the host: see `gather`
//!   calls of each rank                         see `book`
//! ```

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use collective::MAX_RANKS;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::device::Device;
use crate::error::{ParallelError, Result};
use crate::parallel::peer::LINE;
use crate::raw;

/// The abort word, and behind it a report for each rank, as `peer::Shared` has them.
const REPORTS: usize = 0;
const MARKS: usize = REPORTS + LINE * (1 + MAX_RANKS);
const FAILURE: usize = MARKS + LINE * MAX_RANKS;
/// The number of texts begun: each has a place of its own.
const BEGUN: usize = FAILURE + 1;
const LETTERS: usize = FAILURE + LINE + TEXTS * TEXT;
/// Words of a failure's text.
const TEXT: usize = 128;
/// Texts that may be begun before one is whole: some threads of each rank tell one at the same time.
const TEXTS: usize = 4 * MAX_RANKS;
/// Words of a letter, behind its number and its length.
pub const LETTER: usize = 510;
pub const CALLS: usize = LETTERS + MAX_RANKS * 2 * (2 + LETTER);
/// Channels of a rank: calls of all ranks, those to each peer, those from each.
pub const CHANNELS: usize = 1 + 2 * MAX_RANKS;
/// Calls of a channel that are remembered.
pub const DEPTH: usize = 64;
/// Words of a call: a stamp, its numbers, and its text.
pub const CALL: usize = 16;
/// Words of a rank's calls: how many there are in each channel, and the latest.
pub const BOOK: usize = CHANNELS * (1 + DEPTH * CALL);
const BYTES: usize = (CALLS + MAX_RANKS * BOOK) * size_of::<u64>();

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const MAPPED: u32 = 3;
/// The sleep between looks at what another process writes.
const NAP: Duration = Duration::from_micros(100);

/// A step of a rank that it never takes back.
#[derive(Clone, Copy)]
pub enum Mark {
    /// It has dropped its communicator.
    Gone,
    /// It has closed the memory of its peers.
    Closed,
}

/// The memory, as one process has it.
pub struct Words {
    base: *mut AtomicU64,
    /// Where the device sees it.
    on_device: u64,
    device: Device,
}

// SAFETY: memory that lives as long as this, and that everyone reaches by atomic operations.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

/// Where a text is.
fn text_of(number: u64) -> usize {
    FAILURE + LINE + number as usize * TEXT
}

impl Words {
    /// New memory, all zero: its file.
    pub fn create() -> io::Result<File> {
        let file = memfd_create("ironwarp-group", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, BYTES as u64)?;
        Ok(file.into())
    }

    /// Maps the memory of a file, and lets the device reach it. `Ok(Err(..))` says why that is not possible.
    pub fn map(device: &Device, file: &File) -> Result<Result<Words, String>> {
        let length = match file.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) => return Ok(Err(error.to_string())),
        };
        if length != BYTES as u64 {
            return Ok(Err(format!("the shared memory has {length} bytes, not {BYTES}")));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever there is room; the file has as many bytes.
        let mapped = unsafe { mmap(null_mut(), BYTES, protection, MapFlags::SHARED, file, 0) };
        let base = match mapped {
            Ok(base) => base,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let registered = device.call(|| {
            // SAFETY: the mapping, which stays until it is no longer registered.
            unsafe { raw::mem_host_register(base, BYTES, MAPPED) }
        });
        if let Err(error) = registered {
            // SAFETY: the mapping has no other user.
            let _ = unsafe { munmap(base, BYTES) };
            return Ok(Err(error.to_string()));
        }
        let mut words = Words { base: base.cast(), on_device: 0, device: device.clone() };
        let place = &raw mut words.on_device;
        // SAFETY: a place to write to; the memory is registered.
        device.call(|| unsafe { raw::mem_host_get_device_pointer(place, base, 0) })?;
        Ok(Ok(words))
    }

    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < BYTES / size_of::<u64>());
        // SAFETY: within the mapping, which lives as long as `self`; aligned, since pages are.
        unsafe { &*self.base.add(at) }
    }

    /// Addresses of the abort word and the reports behind it: for the host, and for the device.
    pub fn reports(&self) -> (u64, u64) {
        (self.base as u64, self.on_device)
    }

    /// Lets all kernels of the group that wait stop.
    pub fn abort(&self) {
        // SAFETY: the first half of a mapped word, which everyone reaches as 32 bits.
        unsafe { AtomicU32::from_ptr(self.base.cast()) }.store(1, Ordering::Release);
    }

    pub fn set(&self, rank: u32, mark: Mark) {
        self.word(MARKS + rank as usize * LINE + mark as usize).store(1, Ordering::SeqCst);
    }

    pub fn has(&self, rank: u32, mark: Mark) -> bool {
        self.word(MARKS + rank as usize * LINE + mark as usize).load(Ordering::SeqCst) != 0
    }

    /// Records a failure. The first whole one counts: nobody waits for a rank that stops while it writes.
    pub fn fail(&self, reason: &str) {
        if self.word(FAILURE).load(Ordering::SeqCst) != 0 {
            return;
        }
        let number = self.word(BEGUN).fetch_add(1, Ordering::SeqCst);
        if number < TEXTS as u64 {
            self.write_text(text_of(number), TEXT, reason.as_bytes());
            // It stays as it is if another one was first.
            let _ = self.word(FAILURE).compare_exchange(0, number + 1, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// The first failure.
    pub fn failure(&self) -> Option<String> {
        let number = self.word(FAILURE).load(Ordering::SeqCst).checked_sub(1)?;
        Some(self.read_text(text_of(number), TEXT))
    }

    /// Writes a text, as much of it as there is room for, with zeros behind it.
    pub fn write_text(&self, at: usize, words: usize, text: &[u8]) {
        let mut bytes = text.iter().copied().chain(std::iter::repeat(0));
        for at in at..at + words {
            let word: [u8; 8] = std::array::from_fn(|_| bytes.next().unwrap_or(0));
            self.word(at).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }

    /// The text at a place, up to the first zero.
    pub fn read_text(&self, at: usize, words: usize) -> String {
        let bytes = (at..at + words).flat_map(|at| self.word(at).load(Ordering::Relaxed).to_le_bytes());
        let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The letters of all ranks for meeting `number` (from 1), in the order of ranks. A letter is written
    /// again two meetings later, when all have read it.
    pub fn gather(
        &self,
        rank: u32,
        ranks: u32,
        number: u64,
        own: &[u8],
        limit: Duration,
    ) -> Result<Vec<Vec<u8>>, ParallelError> {
        let place = |rank: u32| LETTERS + (2 * rank as usize + number as usize % 2) * (2 + LETTER);
        assert!(own.len() <= LETTER * size_of::<u64>(), "a letter of {} bytes", own.len());
        self.write_text(place(rank) + 2, LETTER, own);
        self.word(place(rank) + 1).store(own.len() as u64, Ordering::Relaxed);
        self.word(place(rank)).store(number, Ordering::SeqCst);
        let begun = Instant::now();
        let mut all = Vec::with_capacity(ranks as usize);
        for other in 0..ranks {
            let at = place(other);
            while self.word(at).load(Ordering::SeqCst) != number {
                if let Some(first) = self.failure() {
                    return Err(ParallelError::Aborted { rank, first });
                }
                if begun.elapsed() > limit {
                    let (call, limit_seconds) = ("split".to_owned(), limit.as_secs_f64());
                    let (missing, began) = (other, false);
                    return Err(ParallelError::Missing {
                        rank,
                        sequence: number,
                        call,
                        missing,
                        began,
                        limit_seconds,
                    });
                }
                std::thread::sleep(NAP);
            }
            let length = self.word(at + 1).load(Ordering::Relaxed) as usize;
            let words = (at + 2..at + 2 + LETTER).map(|at| self.word(at).load(Ordering::Relaxed));
            all.push(words.flat_map(u64::to_le_bytes).take(length).collect());
        }
        fence(Ordering::SeqCst);
        Ok(all)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let base = self.base.cast::<c_void>();
        // SAFETY: registered, once; nothing of the device uses it any more, as its owners see to.
        let ended = self.device.clean_up(|| unsafe { raw::mem_host_unregister(base) });
        if ended.is_ok() {
            // SAFETY: the mapping, which has no other user. What is still registered stays.
            let _ = unsafe { munmap(base, BYTES) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank that stops for long while it tells a failure, on a busy machine, say.
    #[test]
    fn failures_are_whole_and_the_first_counts() {
        let device = Device::open(0).expect("a device");
        let file = Words::create().expect("memory");
        let words = Words::map(&device, &file).expect("no error").expect("it can be had");
        assert_eq!(words.failure(), None);
        words.word(BEGUN).fetch_add(1, Ordering::SeqCst);
        assert_eq!(words.failure(), None);
        for reason in ["the second", "the third"] {
            words.fail(reason);
            assert_eq!(words.failure().as_deref(), Some("the second"));
        }
        assert_eq!(words.word(BEGUN).load(Ordering::SeqCst), 2);
    }
}
