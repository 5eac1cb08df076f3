//! Addresses: finds the memory that an address belongs to, and decides whether an unknown address is a fault.

use super::allocations::Allocation;
use super::space::Memory;
use super::{Access, Allocations, LaunchCheck, Place, report};
use crate::exec::context::Thread;
use crate::fault::{FaultKind, Index};
use crate::region;

/// Addresses below this are null pointers with an offset.
const NULL_END: usize = 64 * 1024;

/// How far outside an allocation an access still counts as meant for it, where other memory may be near.
const NEAR: usize = 4096;

/// Checks an access that is in no allocation, in no shared memory and not on its own stack. `is_typed`: it
/// came through a device function, which must not touch host memory. Plain Rust may touch it: constants, the
/// heap, which stands for the device's, and what a closure ([`crate::run`]) has captured.
#[cold]
pub(super) fn check_stray(thread: &Thread, check: &LaunchCheck, access: Access, is_typed: bool) {
    let address = access.address;
    if address < NULL_END {
        report(thread, access, FaultKind::NullPointer, String::new(), None);
    }
    if region::is_for_shared(address) {
        fail_around_shared(thread, access);
    }
    if check.is_param(address) || is_static_data(address) || Allocations::is_live(address) {
        return;
    }
    if let Some(freed) = Allocations::freed(address) {
        let message = format!("byte {} of `{}`, which was freed", address - freed.start, freed.label);
        report(thread, access, FaultKind::UseAfterFree, message, None);
    }
    if let Some(nearest) = nearest(check, address) {
        let message = match wrapped(nearest, address) {
            true => "the index was less than 0 and has wrapped around at 32 bits".into(),
            false => String::new(),
        };
        report(thread, access, FaultKind::OutOfBounds, message, None);
    }
    if let Some(parameter) = check.pointer_to_unknown(address) {
        let message = format!("the kernel's {parameter} points to memory that is not the device's");
        report(thread, access, FaultKind::WildPointer, message, None);
    }
    if let Some(owner) = owner_of_stack(thread, address) {
        let message = format!("the variable is one of thread {}", Index(owner.index));
        report(thread, access, FaultKind::ForeignLocal, message, None);
    }
    if is_typed || region::contains(address) || !is_mapped(address) {
        report(thread, access, FaultKind::WildPointer, String::new(), None);
    }
}

/// Ends the launch: an address where only shared memory is, but not the block's own.
fn fail_around_shared(thread: &Thread, access: Access) -> ! {
    let own = &thread.block().arena;
    let (kind, message) = match Memory::of(thread, access.address) {
        Some(memory) => (FaultKind::WildPointer, format!("the address lies in {memory}")),
        None if own.distance(access.address).is_some() => (FaultKind::OutOfBounds, String::new()),
        None => {
            let message = "the address is one of shared memory, but of no block that runs with this one";
            (FaultKind::WildPointer, message.into())
        }
    };
    report(thread, access, kind, message, None)
}

/// The thread on whose stack an address is.
pub(super) fn owner_of_stack(thread: &Thread, address: usize) -> Option<&Thread> {
    thread.group().threads.iter().find(|other| other.is_on_stack(address))
}

/// Whether an address is what a negative index into the allocation gives, taken for an unsigned one of 32
/// bits.
fn wrapped(allocation: &Allocation, address: usize) -> bool {
    /// Bytes before an allocation that an index may have meant.
    const BEFORE: usize = 1 << 16;
    const WRAP: usize = 1 << 32;
    let sizes = [1, 2, 4, 8, 16];
    let before = |size: usize| (allocation.start + WRAP * size).checked_sub(address);
    sizes.into_iter().filter_map(before).any(|bytes| (1..=BEFORE).contains(&bytes))
}

/// The allocation that an address outside all allocations was probably meant for.
fn nearest(check: &LaunchCheck, address: usize) -> Option<&Allocation> {
    let by_wrap = check.allocations().iter().find(|allocation| wrapped(allocation, address));
    if let Some(allocation) = by_wrap.filter(|_| region::contains(address)) {
        return Some(allocation);
    }
    let after = check.allocations().partition_point(|allocation| allocation.start <= address);
    let candidates = check.allocations()[after.saturating_sub(1)..].iter().take(2);
    let near = if region::contains(address) { usize::MAX } else { NEAR };
    candidates
        .map(|allocation| &**allocation)
        .filter(|allocation| allocation.distance(address) <= near)
        .min_by_key(|allocation| allocation.distance(address))
}

/// Whether an address is in this program's code or static data.
#[cfg(target_os = "linux")]
fn is_static_data(address: usize) -> bool {
    unsafe extern "C" {
        static __executable_start: u8;
        static _end: u8;
    }
    // Defined by the linker around the program; only their addresses are used.
    let (start, end) = (&raw const __executable_start as usize, &raw const _end as usize);
    (start..end).contains(&address)
}

/// Without the linker's symbols nothing is known: no report is better than a false one.
#[cfg(not(target_os = "linux"))]
fn is_static_data(_address: usize) -> bool {
    true
}

/// Whether there is memory at an address.
#[cfg(unix)]
fn is_mapped(address: usize) -> bool {
    /// Any power of two up to the real page size will do.
    const PAGE: usize = 4096;
    let mut resident = 0u8;
    // SAFETY: mincore only asks about the range; it writes one byte for each page, and one byte is in one
    // page.
    unsafe { libc::mincore((address & !(PAGE - 1)) as *mut _, 1, (&raw mut resident).cast()) == 0 }
}

/// Elsewhere nothing is known: no report is better than a false one.
#[cfg(not(unix))]
fn is_mapped(_address: usize) -> bool {
    true
}

/// The memory that an address belongs to, in words for a report.
pub(super) fn place(thread: &Thread, address: usize) -> Place {
    let arenas = thread.group().blocks.iter().map(|block| &block.arena);
    let found = arenas.filter_map(|arena| Some((arena, arena.distance(address)?))).next();
    if let Some((arena, offset)) = found {
        let variable = usize::try_from(offset).ok().and_then(|offset| arena.variable_at(offset));
        let variable = variable
            .map(|variable| (variable.name.to_string(), offset - variable.offset as i64, variable.len));
        return Place::Shared { offset, variable };
    }
    if thread.is_on_stack(address) {
        return Place::Local { address };
    }
    let check = thread.group().launch.check.as_ref();
    let allocation = check.and_then(|check| {
        check.find(address).map(|found| &**found.allocation).or_else(|| nearest(check, address))
    });
    match allocation {
        Some(allocation) => Place::Global {
            label: allocation.label.clone(),
            offset: address.wrapping_sub(allocation.start) as i64,
            len: allocation.len,
            parameter: check.and_then(|check| check.parameter_into(allocation)),
        },
        None => Place::Unknown { address },
    }
}
