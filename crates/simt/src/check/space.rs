//! Instructions whose PTX names one memory, and addresses that lie in another.
//!
//! A plain access of Rust is generic: its address says which memory it reaches. An instruction for global
//! memory (`ld.global`, `cp.async`) takes every address for one of global memory, and one for shared memory
//! takes an offset there. On a GPU an address of another memory is then an illegal one, or a wrong one.

use std::fmt;
use std::panic::Location;

use super::{Access, LaunchCheck, address, describe};
use crate::cluster;
use crate::exec::context::{Block, Thread};
use crate::fault::{self, AccessKind, FaultKind, Index};
use crate::region;
use crate::shared::WINDOW_BASE;
use crate::site::RawSite;

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
        if region::contains(address) {
            return Some(Self::Global);
        }
        if thread.is_on_stack(address) {
            return Some(Self::Local);
        }
        let group = thread.group();
        let owner = group.blocks.iter().find(|block| block.arena.offset_of(address).is_some());
        match owner {
            Some(block) if std::ptr::eq(block, thread.block()) => Some(Self::Shared),
            Some(block) => Some(Self::SharedOf(block)),
            None => {
                let check = group.launch.check.as_ref();
                check.is_some_and(|check| check.find(address).is_some()).then_some(Self::Global)
            }
        }
    }
}

/// Whether a generic address is one of local memory, the thread's own or another's.
pub(crate) fn is_local(thread: &Thread, address: usize) -> bool {
    thread.is_on_stack(address) || address::owner_of_stack(thread, address).is_some()
}

/// Whether a generic address is one of global memory: all that is neither shared nor local.
pub(crate) fn is_global(thread: &Thread, address: usize) -> bool {
    match Memory::of(thread, address) {
        Some(memory) => matches!(memory, Memory::Global),
        None => !region::is_for_shared(address) && !is_local(thread, address),
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
    let Some(memory) = Memory::of(thread, access.address) else { return };
    if let Some(remedy) = remedy_for_global(&memory, access.kind) {
        let (message, described) = (wrong(".global", &memory), describe(thread, access));
        fail(thread, access.site, message, Some(described), remedy);
    }
}

/// How to reach an address that instructions for global memory do not reach; `None` if they do.
fn remedy_for_global(memory: &Memory<'_>, kind: AccessKind) -> Option<&'static str> {
    let remedy = match memory {
        Memory::Global => return None,
        Memory::SharedOf(_) => OF_ANOTHER_BLOCK,
        _ if kind.is_async() => {
            "asynchronous copies go between global and shared memory: move these values by loads and stores"
        }
        Memory::Shared if kind.is_atomic() => {
            "take an atomic that names no memory, such as those of `atomic::intrinsics`"
        }
        Memory::Shared => {
            "take `vector::load_shared` and `store_shared` with `shared::address_of`, or a plain access"
        }
        Memory::Local => "take a plain access, which reaches local variables",
    };
    Some(remedy)
}

const OF_ANOTHER_BLOCK: &str = "no pointer reaches another block's shared memory: pass values by global memory, or in a cluster by `cluster::load_shared` and `store_shared`";

/// Ends the launch: an instruction for one memory has an address in another.
#[cold]
fn fail(
    thread: &Thread,
    site: RawSite,
    message: String,
    access: Option<fault::Access>,
    remedy: &'static str,
) -> ! {
    let mut raw = thread.fault(FaultKind::WrongMemory, site, message, access, None);
    raw.fault.remedy = Some(remedy);
    thread.end(site, raw)
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
    let Some(memory) = Memory::of(thread, address) else {
        let message = format!("{address:#x} is no address of the block's shared memory");
        thread.fail(FaultKind::WildPointer, location, message)
    };
    let remedy = match memory {
        Memory::SharedOf(_) => OF_ANOTHER_BLOCK,
        Memory::Local => "take a plain access: only the block's shared memory has such addresses",
        Memory::Global | Memory::Shared => {
            "take `vector::load` and `store`, or a plain access: only the block's shared memory has such addresses"
        }
    };
    let message = format!("{}: {}", wrong(".shared", &memory), address::place(thread, address));
    fail(thread, RawSite::of(location), message, None, remedy)
}

/// Ends the launch: a number that should be an address of the block's shared window is none.
#[cold]
pub(crate) fn fail_outside_window(thread: &Thread, address: u32, location: &'static Location<'static>) -> ! {
    let check = thread.group().launch.check.as_ref();
    let (whose, remedy) = if cluster::lacks_bits(thread, address) {
        (
            "lacks the bits that addresses in a cluster have above their 18 low ones, the block's rank",
            "take the address that `shared::address_of` gave: only matrix descriptors want the low bits alone",
        )
    } else if cluster::is_mapped(thread, address) {
        (
            "is an address of the cluster's window, which the functions of `cluster` take",
            "take `cluster::load_shared` and `store_shared`, or the address that `cluster::map_shared` was given",
        )
    } else if address >= WINDOW_BASE && check.is_some_and(|check| is_low_half(check, address)) {
        (
            "may be the low half of an address in global memory",
            "pointers to global memory have 64 bits: take `vector::load` and `store`, or a plain access",
        )
    } else {
        let begins = format!("the shared window, which begins at {WINDOW_BASE:#x}");
        let message = format!("{address:#x} is no address of {begins}");
        thread.fail(FaultKind::WildPointer, location, message)
    };
    let message = format!("the PTX of the instruction names `.shared`, but {address:#x} {whose}");
    fail(thread, RawSite::of(location), message, None, remedy)
}

/// Ends the launch if an address, that of the tensor map of `op`, lies in shared memory.
pub(crate) fn require_map_outside_shared(
    thread: &Thread,
    address: usize,
    op: &str,
    location: &'static Location<'static>,
) {
    if let Some(memory @ (Memory::Shared | Memory::SharedOf(_))) = Memory::of(thread, address) {
        let message =
            format!("{op}: its tensor map lies in {memory}, and should in global memory or a parameter");
        let remedy = "pass the map by value as a parameter of the kernel, or keep it in global memory";
        fail(thread, RawSite::of(location), message, None, remedy);
    }
}

/// Whether an allocation has an address whose low 32 bits these are.
fn is_low_half(check: &LaunchCheck, address: u32) -> bool {
    let holds = |start: usize, len: usize| (address.wrapping_sub(start as u32) as usize) < len;
    check.allocations().iter().any(|allocation| holds(allocation.start, allocation.len))
}
