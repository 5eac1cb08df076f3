//! Joining a group as a process.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use collective::MAX_BLOCKS;
use driver::nccl::library;

use super::book::Book;
use super::offer::{Offer, hindrance};
use super::seat::{Opened, Seat, handle_of, own_memory, words_of};
use super::watch::{Process, Watch, Watched};
use super::words::Words;
use crate::device::Device;
use crate::error::{Error, ParallelError, Result};
use crate::memory::DeviceBuffer;
use crate::parallel::communicator::Member;
use crate::parallel::group::{Backend, GroupOptions};
use crate::parallel::nccl::{self, UniqueId};
use crate::parallel::peer::{self, Shared};
use crate::raw;

/// Has all ranks of the new group exchange bytes: what is exchanged, and the own part; the parts in the order
/// of ranks.
pub type Exchange<'a> = dyn FnMut(&str, &[u8]) -> Result<Vec<Vec<u8>>> + 'a;

/// How often ranks exchange something when they join.
pub const EXCHANGES: usize = 2;

/// A rank that joins.
struct Joining<'a> {
    device: &'a Device,
    rank: u32,
    options: GroupOptions,
    offers: Vec<Offer>,
}

/// Memory of a rank that others open.
struct Own {
    memory: DeviceBuffer<u8>,
    /// The host memory's, on the first rank.
    file: Option<File>,
}

/// Joins a group of `ranks` ranks. Waits for all of them.
#[track_caller]
pub fn join(
    device: &Device,
    (rank, ranks): (u32, u32),
    exchange: &mut Exchange<'_>,
    options: GroupOptions,
) -> Result<Member> {
    let (offer, own) = offer(device, (rank, ranks), options)?;
    let all = exchange("what ranks offer", &offer.to_bytes())?;
    let offers: Option<Vec<Offer>> = all.iter().map(|bytes| Offer::from_bytes(bytes)).collect();
    let offers = offers.filter(|offers| offers.len() == ranks as usize).ok_or_else(|| {
        let words = format!("{} answers, of {ranks} ranks of this version", all.len());
        ParallelError::Exchange { rank, what: "what ranks offer".to_owned(), words }
    })?;
    let joining = Joining { device, rank, options, offers };
    let reached = joining.reach(own.as_ref())?;
    let said = reached.as_ref().err().cloned().unwrap_or_default();
    let all = exchange("whether ranks reach each other", said.as_bytes())?;
    joining.same_backend()?;
    let hindrance = all.iter().enumerate().find(|(_, said)| !said.is_empty()).map(|(of, said)| {
        let said = String::from_utf8_lossy(said);
        if joining.common().is_some() { said.into_owned() } else { format!("rank {of}: {said}") }
    });
    match (hindrance, reached, own) {
        (None, Ok((opened, words)), Some(own)) => joining.over_peer_memory(own, opened, words),
        (reason, ..) => joining.through_nccl(reason.unwrap_or_default()),
    }
}

/// The rank's offer, and the memory behind it. Nothing is kept when NCCL is asked for.
#[track_caller]
fn offer(device: &Device, (rank, ranks): (u32, u32), options: GroupOptions) -> Result<(Offer, Option<Own>)> {
    let mut uuid = [0; 16];
    let number = device.ordinal() as i32;
    // SAFETY: a place to write to, and the number of an open device.
    device.call(|| unsafe { raw::device_get_uuid(&mut uuid, number) })?;
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let has_nccl = options.backend != Some(Backend::PeerMemory) && library().is_ok();
    // Without an id the first rank has no NCCL; peer memory may do.
    let id = match (rank, has_nccl) {
        (0, true) => UniqueId::new().map(|id| id.as_bytes().to_vec()),
        _ => Ok(Vec::new()),
    };
    let has_nccl = has_nccl && id.is_ok();
    let process = Process::own();
    let mut offer = Offer {
        machine: machine.trim().to_owned(),
        process: process.unwrap_or(Process { number: 0, begun: 0 }),
        device: format!("{uuid:02x?}"),
        backend: options.backend,
        has_nccl,
        id: id.unwrap_or_default(),
        handle: Vec::new(),
        file: -1,
        room: device.properties().sm_count.min(MAX_BLOCKS as u32),
        hindrance: String::new(),
    };
    if options.backend == Some(Backend::Nccl) {
        offer.hindrance = "NCCL is asked for".to_owned();
        return Ok((offer, None));
    }
    if process.is_none() || offer.machine.is_empty() {
        offer.hindrance = "the system shows no processes (`/proc`)".to_owned();
        return Ok((offer, None));
    }
    let memory = own_memory(device, ranks as usize)?;
    match handle_of(device, &memory) {
        Ok(handle) => offer.handle = handle,
        Err(Error::Driver(error)) => {
            offer.hindrance = format!("its memory cannot be opened by other processes: {error}");
        }
        Err(error) => return Err(error),
    }
    let file = match (rank, Words::create()) {
        (0, Ok(file)) => {
            offer.file = file.as_raw_fd();
            Some(file)
        }
        (0, Err(error)) => {
            offer.hindrance = format!("no memory that processes share: {error}");
            None
        }
        _ => None,
    };
    Ok((offer, Some(Own { memory, file })))
}

impl Joining<'_> {
    fn ranks(&self) -> u32 {
        self.offers.len() as u32
    }

    /// A hindrance that all ranks see alike.
    fn common(&self) -> Option<String> {
        hindrance(&self.offers)
    }

    /// All ranks ask for the same back end.
    fn same_backend(&self) -> Result<()> {
        let own = self.options.backend;
        let other = self.offers.iter().position(|offer| offer.backend != own);
        other.map_or(Ok(()), |other| {
            Err(Error::InvalidArgument {
                operation: "Communicator::join",
                argument: "GroupOptions::backend",
                got: format!("{own:?}"),
                wanted: format!("{:?}, as rank {other} has it", self.offers[other].backend),
                hint: "give all ranks the same options",
            })
        })
    }

    /// Opens what the others offer. `Ok(Err(..))` says why that is not possible.
    fn reach(&self, own: Option<&Own>) -> Result<Result<(Opened, Words), String>> {
        if let Some(reason) = self.common() {
            return Ok(Err(reason));
        }
        let first = &self.offers[0];
        let words = match own.and_then(|own| own.file.as_ref()) {
            Some(file) => Words::map(self.device, file)?,
            None => words_of(self.device, first.process, first.file)?,
        };
        let opened = Opened::of(self.device, self.rank, &self.offers)?;
        Ok(words.and_then(|words| Ok((opened?, words))))
    }

    /// Whether all ranks have NCCL.
    fn has_nccl(&self) -> bool {
        self.offers.iter().all(|offer| offer.has_nccl)
    }

    fn nccl_member(&self, why: Option<String>) -> Result<nccl::Member> {
        let id = UniqueId::from_bytes(&self.offers[0].id)?;
        let seat = nccl::Seat { rank: self.rank, whole: self.rank };
        let place = nccl::Place { seat, ranks: self.ranks(), failure: Arc::default() };
        Ok(nccl::Member::join(self.device, place, &id, self.options)?.because(why))
    }

    fn over_peer_memory(&self, own: Own, opened: Opened, words: Words) -> Result<Member> {
        let words = Arc::new(words);
        let large = match self.has_nccl() && self.ranks() > 1 {
            true => Some(self.nccl_member(None)?),
            false => None,
        };
        let watched = Watched {
            words: words.clone(),
            rank: self.rank,
            processes: self.offers.iter().map(|offer| offer.process).collect(),
            nccl: large.as_ref().map(nccl::Member::link),
            is_software: self.device.is_software(),
        };
        let watch = Watch::start(watched)?;
        let calls = Arc::new(Book::new(words.clone(), self.rank, self.ranks()));
        let mut addresses = opened.addresses;
        addresses[self.rank as usize] = own.memory.as_ptr().raw();
        let seat = Seat::new(self.device, self.rank, own.memory, opened, words, watch);
        let room = self.offers.iter().map(|offer| offer.room).min().unwrap_or(1);
        let size = (self.ranks(), room);
        let shared = Shared::of_processes(seat, calls, addresses, size, self.options, large.is_some());
        Ok(Member::Peer(peer::Member { shared, rank: self.rank, large }))
    }

    fn through_nccl(&self, reason: String) -> Result<Member> {
        if self.options.backend == Some(Backend::PeerMemory) {
            return Err(ParallelError::NoPeerMemory { rank: self.rank, reason }.into());
        }
        if !self.has_nccl() {
            library().map_err(ParallelError::NoNccl)?;
            let without = self.offers.iter().position(|offer| !offer.has_nccl).unwrap_or(0);
            let reason = format!("{reason}; and rank {without} has no NCCL");
            return Err(ParallelError::NoPeerMemory { rank: self.rank, reason }.into());
        }
        Ok(Member::Nccl(self.nccl_member(Some(reason))?))
    }
}
