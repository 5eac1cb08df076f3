//! The state of an mbarrier, and the checker's state for it.

use std::collections::BTreeMap;
use std::panic::Location;

use crate::check::proxy::{self, Agent};
use crate::check::{self, Released, Stamp};
use crate::cluster::Target;
use crate::exec::context::{RawOther, Thread};
use crate::fault::{AccessKind, FaultKind};
use crate::site::RawSite;

/// Largest count of arrivals, and of outstanding bytes, positive or negative.
pub(super) const LIMIT: i64 = (1 << 20) - 1;

/// The mbarriers of a block, by offset in shared memory.
#[derive(Default)]
pub(crate) struct Mbarriers {
    pub(super) by_offset: BTreeMap<u32, Mbarrier>,
}

pub(super) struct Mbarrier {
    pub(super) is_live: bool,
    pub(super) count: u32,
    /// Arrivals that the phase still lacks.
    pub(super) pending: u32,
    /// Bytes that the phase still lacks; negative when more have arrived than were expected so far.
    pub(super) bytes: i64,
    /// Phases that have ended, those of earlier lives included.
    pub(super) phases: u32,
    /// Phases of earlier lives.
    pub(super) born: u32,
    pub(super) waiters: Vec<u32>,
    pub(super) check: MbarrierCheck,
}

/// The checker's state for an mbarrier.
#[derive(Default)]
pub(super) struct MbarrierCheck {
    pub(super) init: Stamp,
    /// Whether a fence has made the initialisation visible to the async proxy and the cluster.
    pub(super) is_fenced: bool,
    /// The knowledge that the arrivals of the present phase publish.
    pub(super) open: Released,
    /// The knowledge that the arrivals of completed phases have published.
    pub(super) done: Released,
    /// Copies under way that will complete here, and their bytes.
    pub(super) in_flight: u32,
    pub(super) in_flight_bytes: i64,
    /// The phase and origin of the latest copy that has arrived, and that no ended thread knew of.
    pub(super) unseen: Option<(u32, RawSite)>,
    /// Where the latest copy was begun.
    pub(super) latest: Option<RawSite>,
    /// Where bytes were expected last.
    pub(super) expected_at: RawSite,
    /// The threads that have arrived in the present phase: numbers of their blocks, and ranks.
    pub(super) arrived: Vec<(u64, u32)>,
    /// Expectations of the present phase by such threads, behind which no arrival has come yet.
    pub(super) late: Vec<Stamp>,
}

/// The knowledge that an arrival publishes to another block.
#[derive(Clone, Copy)]
pub(super) enum Told {
    Everything,
    /// The asynchronous operations that the thread has waited for.
    Asynchronous,
}

/// The fault of a use of an mbarrier.
pub(super) type Problem = (FaultKind, String, Option<RawOther>);

impl Mbarrier {
    pub(super) fn parity(&self) -> u32 {
        (self.phases - self.born) & 1
    }

    pub(super) fn arrive(&mut self, count: u32) -> Result<(), Problem> {
        if count == 0 || count > self.pending {
            let message =
                format!("{count} arrivals, but the phase lacks only {} of {}", self.pending, self.count);
            return Err((FaultKind::MbarrierOverflow, message, None));
        }
        self.pending -= count;
        Ok(())
    }

    /// Expects `bytes` more; a negative number means that bytes have arrived.
    pub(super) fn expect(&mut self, bytes: i64) -> Result<(), Problem> {
        self.bytes += bytes;
        if self.bytes.abs() > LIMIT {
            let message = format!("{} bytes are outstanding; the limit is {LIMIT} either way", self.bytes);
            return Err((FaultKind::MbarrierOverflow, message, None));
        }
        Ok(())
    }

    /// Expects `bytes` more, for the program's call at `location`.
    pub(super) fn expect_at(
        &mut self,
        bytes: u32,
        location: &'static Location<'static>,
    ) -> Result<(), Problem> {
        if bytes != 0 {
            self.check.expected_at = RawSite::of(location);
        }
        self.expect(bytes.into())
    }

    /// Ends the phase if it is complete. Returns the threads to wake.
    pub(super) fn advance(&mut self, agent: Agent) -> Result<Vec<u32>, Problem> {
        if self.pending != 0 || self.bytes != 0 {
            return Ok(Vec::new());
        }
        if let Some(&late) = self.check.late.first() {
            let message = "the phase ends, and nothing keeps it from ending before a thread expects bytes that has arrived already";
            return Err((FaultKind::MbarrierInvalid, message.into(), Some(check::other(late))));
        }
        self.pending = self.count;
        self.phases += 1;
        self.check.arrived.clear();
        self.check.done.join(std::mem::take(&mut self.check.open));
        self.check.done.complete(agent, self.phases);
        Ok(std::mem::take(&mut self.waiters))
    }

    /// Notes that the thread expects bytes. If it has arrived, something else has to keep the phase: an
    /// arrival ordered behind, or bytes of a copy that has not begun.
    pub(super) fn note_expectation(&mut self, thread: &Thread, site: RawSite) {
        let has_arrived = self.check.arrived.contains(&(thread.block().number.get(), thread.rank));
        if has_arrived && self.bytes <= self.check.in_flight_bytes {
            self.check.late.push(proxy::stamp_now(thread, AccessKind::Atomic, site));
        }
    }

    /// `phase 3 lacks 1 of 2 arrivals and 4096 bytes`
    pub(super) fn state(&self) -> String {
        let phase = self.phases - self.born;
        let arrivals = format!("phase {phase} lacks {} of {} arrivals", self.pending, self.count);
        match self.bytes {
            0 => arrivals,
            bytes if bytes > 0 => format!("{arrivals} and {bytes} bytes"),
            bytes => format!("{arrivals} and has {} bytes that nobody expected", -bytes),
        }
    }
}

impl MbarrierCheck {
    /// Notes an arrival of the thread.
    pub(super) fn arrive(&mut self, thread: &Thread) {
        self.arrived.push((thread.block().number.get(), thread.rank));
        self.late.retain(|expectation| !proxy::is_known(thread, *expectation));
    }

    /// Adds the knowledge that the thread publishes to the present phase.
    pub(super) fn release(&mut self, thread: &Thread, target: &Target<'_>, to_other_blocks: Told) {
        if std::ptr::eq(target.block, thread.block()) {
            let open = std::mem::take(&mut self.open);
            self.open = thread.check.release_into(thread, Some(open));
            return;
        }
        match to_other_blocks {
            Told::Everything => self.open.add_remote(thread),
            Told::Asynchronous => self.open.add_remote_async(thread),
        }
    }
}

/// Pending copies or bytes that an mbarrier must not have when its block ends.
pub(super) enum Left {
    /// A copy that no thread has waited for, and the place where it was begun.
    Copy(RawSite),
    /// Expected bytes: the place of the last expectation, and the state in words.
    Bytes(RawSite, String),
}

impl Mbarrier {
    pub(super) fn left(&self) -> Option<Left> {
        let copy = match self.check.in_flight {
            0 => self.check.unseen.map(|(_, copy)| copy),
            _ => self.check.latest,
        };
        let bytes = || {
            let unbalanced = self.is_live && self.bytes != 0;
            unbalanced.then(|| Left::Bytes(self.check.expected_at, self.state()))
        };
        copy.map(Left::Copy).or_else(bytes)
    }
}
