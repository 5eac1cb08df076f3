//! Instructions whose PTX names one memory, and addresses that lie in another.
//!
//! A plain access of Rust is generic: its address says which memory it reaches. An instruction for global
//! memory (`ld.global`, `cp.async`) takes every address for one of global memory, and one for shared memory
//! takes an offset there. On a GPU an address of another memory is then an illegal one, or a wrong one.

use std::fmt;
use std::panic::Location;

use super::{Access, LaunchCheck, address, report};
use crate::cluster;
use crate::exec::context::{Block, Thread};
use crate::fault::{FaultKind, Index};
use crate::region;
use crate::shared::WINDOW_BASE;

/// The memory that an address lies in.
pub(crate) enum Memory<'t> {
    Global,
    /// That of the thread's own block.
    Shared,
    /// That of another block, which runs at the same time.
    SharedOf(&'t Block),
    /// The thread's own stack.
    Local,
}

impl fmt::Display for Memory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("global memory"),
            Self::Shared => f.write_str("the block's shared memory"),
            Self::SharedOf(block) => write!(f, "the shared memory of block {}", Index(block.index.get())),
            Self::Local => f.write_str("the thread's local memory"),
        }
    }
}

impl<'t> Memory<'t> {
    /// The memory that an address lies in, if it is one of the launch's.
    pub fn of(thread: &'t Thread, address: usize) -> Option<Self> {
        if thread.is_on_stack(address) {
            return Some(Self::Local);
        }
        let group = thread.group();
        let owner = group.blocks.iter().find(|block| block.arena.offset_of(address).is_some());
        match owner {
            Some(block) if std::ptr::eq(block, thread.block()) => Some(Self::Shared),
            Some(block) => Some(Self::SharedOf(block)),
            None => {
                let is_known =
                    || group.launch.check.as_ref().is_some_and(|check| check.find(address).is_some());
                (region::contains(address) || is_known()).then_some(Self::Global)
            }
        }
    }
}

/// Checks that the address of an instruction for global memory lies there, or in no known memory.
#[inline]
pub(crate) fn require_global(thread: &Thread, access: Access) {
    // Device memory lies there, and nothing else.
    if !region::contains(access.address) {
        require_not_elsewhere(thread, access);
    }
}

#[cold]
fn require_not_elsewhere(thread: &Thread, access: Access) {
    if let Some(memory) =
        Memory::of(thread, access.address).filter(|memory| !matches!(memory, Memory::Global))
    {
        let message = wrong(".global", &memory);
        report(thread, access, FaultKind::WrongMemory, message, None);
    }
}

/// The sentence about an instruction whose PTX names `space`, with an address in `memory`.
fn wrong(space: &str, memory: &Memory<'_>) -> String {
    format!("the PTX of the instruction names `{space}`, but the address lies in {memory}")
}

/// Ends the launch: a pointer that should be one to the block's shared memory is none.
#[cold]
pub(crate) fn fail_outside_shared(
    thread: &Thread,
    address: usize,
    location: &'static Location<'static>,
) -> ! {
    let (kind, message) = match Memory::of(thread, address) {
        Some(memory) => {
            let place = address::place(thread, address);
            (FaultKind::WrongMemory, format!("{}: {place}", wrong(".shared", &memory)))
        }
        None => (FaultKind::WildPointer, format!("{address:#x} is no address of the block's shared memory")),
    };
    thread.fail(kind, location, message)
}

/// Ends the launch: a number that should be an address of the block's shared window is none.
#[cold]
pub(crate) fn fail_outside_window(thread: &Thread, address: u32, location: &'static Location<'static>) -> ! {
    let names = "the PTX of the instruction names `.shared`, but";
    let check = thread.group().launch.check.as_ref();
    let (kind, message) = if cluster::is_mapped(thread, address) {
        let whose = "is an address of the cluster's window, which the functions of `cluster` take";
        (FaultKind::WrongMemory, format!("{names} {address:#x} {whose}"))
    } else if address >= WINDOW_BASE && check.is_some_and(|check| is_low_half(check, address)) {
        let whose = "is the low half of an address in global memory";
        (FaultKind::WrongMemory, format!("{names} {address:#x} {whose}"))
    } else {
        let begins = format!("the shared window, which begins at {WINDOW_BASE:#x}");
        (FaultKind::WildPointer, format!("{address:#x} is no address of {begins}"))
    };
    thread.fail(kind, location, message)
}

/// Whether an allocation has an address whose low 32 bits these are.
fn is_low_half(check: &LaunchCheck, address: u32) -> bool {
    let holds = |start: usize, len: usize| (address.wrapping_sub(start as u32) as usize) < len;
    check.allocations().iter().any(|allocation| holds(allocation.start, allocation.len))
}
