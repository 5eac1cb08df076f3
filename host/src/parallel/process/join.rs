//! Joining a group as a process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use collective::MAX_BLOCKS;
use driver::nccl::library;

use super::book::Book;
use super::offer::{Offer, Said, brief, hindrance, too_many};
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
    /// Why this rank has no NCCL.
    no_nccl: Option<Error>,
}

/// Memory of a rank that others open.
struct Own {
    memory: DeviceBuffer<u8>,
    watch: Watch,
    /// The host memory's, on the first rank.
    file: Option<File>,
}

/// Joins a group of `ranks` ranks. Waits for all of them. A rank that cannot join tells the others, which
/// then do not wait for it.
#[track_caller]
pub fn join(
    device: &Device,
    (rank, ranks): (u32, u32),
    exchange: &mut Exchange<'_>,
    options: GroupOptions,
) -> Result<Member> {
    const OFFERS: &str = "what ranks offer";
    const ANSWERS: &str = "whether ranks reach each other";
    let id = id_of(rank, options);
    let mut offer = Offer::new(options, &id);
    let own = offer.fill(device, (rank, ranks), options);
    if let Err(error) = &own {
        offer.failure = brief(&error.to_string());
    }
    let offers = parts(rank, ranks, OFFERS, exchange(OFFERS, &offer.to_bytes()), Offer::from_bytes)?;
    let own = own?;
    let cannot = offers.iter().position(|offer| !offer.failure.is_empty());
    cannot.map_or(Ok(()), |other| Err(cannot_join(rank, other, &offers[other].failure)))?;
    let joining = Joining { device, rank, options, offers, no_nccl: id.err() };
    let reached = joining.reach(own.as_ref());
    let said = match &reached {
        Ok(Ok(_)) => Said::Reached,
        Ok(Err(reason)) => Said::Hindered(reason.clone()),
        Err(error) => Said::Failed(error.to_string()),
    };
    let answers = parts(rank, ranks, ANSWERS, exchange(ANSWERS, &said.to_bytes()), Said::from_bytes)?;
    let reached = reached?;
    joining.same_backend()?;
    let mut hindrance = None;
    for (other, said) in answers.into_iter().enumerate() {
        match said {
            Said::Failed(reason) => return Err(cannot_join(rank, other, &reason)),
            Said::Hindered(reason) if joining.common().is_some() => hindrance = Some(reason),
            Said::Hindered(reason) if hindrance.is_none() => {
                hindrance = Some(format!("rank {other}: {reason}"));
            }
            Said::Hindered(_) | Said::Reached => {}
        }
    }
    match (hindrance, reached, own) {
        (None, Ok((opened, words)), Some(own)) => joining.over_peer_memory(own, opened, words),
        (reason, ..) => joining.through_nccl(reason.unwrap_or_default()),
    }
}

/// The parts of all ranks of an exchange.
fn parts<T>(
    rank: u32,
    ranks: u32,
    what: &str,
    all: Result<Vec<Vec<u8>>>,
    read: fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>> {
    let all = all?;
    let parts: Option<Vec<T>> = all.iter().map(|bytes| read(bytes)).collect();
    parts.filter(|parts| parts.len() == ranks as usize).ok_or_else(|| {
        let words = format!("{} answers, of {ranks} ranks of this version", all.len());
        ParallelError::Exchange { rank, what: what.to_owned(), words }.into()
    })
}

fn cannot_join(rank: u32, other: usize, reason: &str) -> Error {
    ParallelError::Aborted { rank, first: format!("rank {other} cannot join: {reason}") }.into()
}

/// NCCL's id of the group, from the first rank; no bytes from the others, or where NCCL is not wanted.
///
/// # Errors
/// Why the rank has no NCCL. Peer memory may do.
fn id_of(rank: u32, options: GroupOptions) -> Result<Vec<u8>> {
    if options.backend == Some(Backend::PeerMemory) {
        return Ok(Vec::new());
    }
    library().map_err(ParallelError::NoNccl)?;
    if rank == 0 { Ok(UniqueId::new()?.as_bytes().to_vec()) } else { Ok(Vec::new()) }
}

/// The start of the system, and this process.
fn system() -> io::Result<(String, Process)> {
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let process = Process::own()?.ok_or(io::ErrorKind::NotFound)?;
    Ok((machine.trim().to_owned(), process))
}

impl Offer {
    /// The offer of a rank that has nothing yet but NCCL's id, or the reason why it has no NCCL.
    fn new(options: GroupOptions, id: &Result<Vec<u8>>) -> Self {
        Offer {
            machine: String::new(),
            process: Process { number: 0, begun: 0 },
            device: String::new(),
            backend: options.backend,
            no_nccl: id.as_ref().err().map_or_else(String::new, |error| brief(&error.to_string())),
            id: id.as_ref().map_or_else(|_| Vec::new(), Clone::clone),
            handle: Vec::new(),
            file: -1,
            room: 0,
            hindrance: String::new(),
            failure: String::new(),
        }
    }

    /// Adds what the device has; the memory behind the offer. None is kept when NCCL is asked for.
    #[track_caller]
    fn fill(
        &mut self,
        device: &Device,
        (rank, ranks): (u32, u32),
        options: GroupOptions,
    ) -> Result<Option<Own>> {
        let mut uuid = [0; 16];
        let number = device.ordinal() as i32;
        // SAFETY: a place to write to, and the number of an open device.
        device.call(|| unsafe { raw::device_get_uuid(&mut uuid, number) })?;
        self.device = format!("{uuid:02x?}");
        self.room = device.properties().sm_count.min(MAX_BLOCKS as u32);
        if options.backend == Some(Backend::Nccl) {
            self.hindrance = "NCCL is asked for".to_owned();
            return Ok(None);
        }
        if let Some(hindrance) = too_many(ranks as usize) {
            self.hindrance = hindrance;
            return Ok(None);
        }
        match system() {
            Ok((machine, process)) => (self.machine, self.process) = (machine, process),
            Err(error) => {
                self.hindrance = format!("the system shows no processes (`/proc`): {error}");
                return Ok(None);
            }
        }
        let watch = Watch::start(rank)?;
        let memory = own_memory(device, ranks as usize)?;
        match handle_of(device, &memory) {
            Ok(handle) => self.handle = handle,
            Err(Error::Driver(error)) => {
                self.hindrance = format!("its memory cannot be opened by other processes: {error}");
            }
            Err(error) => return Err(error),
        }
        let file = match (rank, Words::create()) {
            (0, Ok(file)) => {
                self.file = file.as_raw_fd();
                Some(file)
            }
            (0, Err(error)) => {
                self.hindrance = format!("no memory that processes share: {error}");
                None
            }
            _ => None,
        };
        Ok(Some(Own { memory, watch, file }))
    }
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

    /// Which rank has no NCCL, and why: the same on all ranks.
    fn without_nccl(&self) -> Option<String> {
        let without = self.offers.iter().position(|offer| !offer.no_nccl.is_empty());
        without.map(|rank| format!("rank {rank} has no NCCL: {}", self.offers[rank].no_nccl))
    }

    /// The rank's place among those that use NCCL.
    fn place(&self) -> nccl::Place {
        let seat = nccl::Seat { rank: self.rank, whole: self.rank };
        nccl::Place { seat, ranks: self.ranks(), failure: Arc::default() }
    }

    fn nccl_member(&self, place: nccl::Place) -> Result<nccl::Member> {
        let id = UniqueId::from_bytes(&self.offers[0].id)?;
        nccl::Member::join(self.device, place, &id, self.options)
    }

    fn over_peer_memory(&self, own: Own, opened: Opened, words: Words) -> Result<Member> {
        let (words, place) = (Arc::new(words), self.place());
        let no_nccl = self.without_nccl();
        let wants_nccl = self.options.backend.is_none() && self.ranks() > 1;
        let has_nccl = wants_nccl && no_nccl.is_none();
        let watched = Watched {
            words: words.clone(),
            rank: self.rank,
            processes: self.offers.iter().map(|offer| offer.process).collect(),
            nccl: has_nccl.then(|| place.link()),
            is_software: self.device.is_software(),
        };
        let fail = |error: &Error| {
            words.fail(&format!("rank {}: {error}", self.rank));
            words.abort();
        };
        own.watch.look(watched);
        let mut addresses = opened.addresses;
        addresses[self.rank as usize] = own.memory.as_ptr().raw();
        let seat = Seat::new(self.device, self.rank, own.memory, opened, words.clone(), own.watch);
        // The seat is there: a rank that dies, or fails here, ends the others' wait. Its memory stays until
        // they have closed it.
        let large = match has_nccl {
            true => Some(self.nccl_member(place).inspect_err(fail)?),
            false => None,
        };
        let calls = Arc::new(Book::new(words.clone(), self.rank, self.ranks()));
        let room = self.offers.iter().map(|offer| offer.room).min().unwrap_or(1);
        let size = (self.ranks(), room);
        let shared = Shared::of_processes(seat, calls, addresses, size, self.options, has_nccl);
        let no_nccl = no_nccl.filter(|_| wants_nccl);
        Ok(Member::Peer(peer::Member { shared, rank: self.rank, large, no_nccl }))
    }

    fn through_nccl(mut self, reason: String) -> Result<Member> {
        if self.options.backend == Some(Backend::PeerMemory) {
            return Err(ParallelError::NoPeerMemory { rank: self.rank, reason }.into());
        }
        if let Some(error) = self.no_nccl.take() {
            return Err(error);
        }
        if let Some(without) = self.without_nccl() {
            let reason = format!("{reason}; and {without}");
            return Err(ParallelError::NoPeerMemory { rank: self.rank, reason }.into());
        }
        Ok(Member::Nccl(self.nccl_member(self.place())?.because(Some(reason))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks that peer memory cannot serve take no memory for it: two thousand would take gigabytes.
    #[test]
    fn too_many_ranks_allocate_nothing() -> Result<()> {
        let (device, options) = (Device::open(0)?, GroupOptions::default());
        let mut offer = Offer::new(options, &Ok(vec![1]));
        assert!(offer.fill(&device, (0, 9), options)?.is_none());
        assert_eq!(offer.hindrance, "there are 9 ranks, and kernels reach 8 at most");
        Ok(())
    }
}
