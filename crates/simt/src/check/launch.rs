//! The memory that a launch knows: global allocations and their histories, and the kernel's parameters.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::allocations::{Allocation, Allocations};
use super::cell::{PAGE_BYTES, Page};
use super::sync::GlobalAtomics;
use crate::registry::KernelEntry;

/// The checker's state for a launch.
pub(crate) struct LaunchCheck {
    table: Table,
    /// Shared with the launches that run at the same time.
    memory: Arc<GlobalMemory>,
    /// Host memory that holds pointers to the kernel's parameters, and the parameters.
    params: Vec<Param>,
    /// Whether the kernel's plain loads and stores come here too.
    sees_plain: bool,
}

/// The allocations that a launch knows. Launches of other devices may be given memory that is newer than this
/// launch: it sees that memory when it has heard from them.
struct Table {
    /// Changes of all allocations before this table.
    changes: u64,
    allocations: Arc<[Arc<Allocation>]>,
    /// Where they begin, side by side: each access looks here.
    starts: Box<[usize]>,
    /// Histories of the allocations, in the same order.
    shadows: Box<[OnceLock<Arc<Shadow>>]>,
    /// A newer table.
    next: OnceLock<Box<Table>>,
}

impl Table {
    fn new() -> Self {
        let changes = Allocations::changes();
        let allocations = Allocations::snapshot();
        let starts = allocations.iter().map(|allocation| allocation.start).collect();
        let shadows = allocations.iter().map(|_| OnceLock::new()).collect();
        Self { changes, allocations, starts, shadows, next: OnceLock::new() }
    }

    #[inline]
    pub(super) fn newest(&self) -> &Self {
        let mut table = self;
        while let Some(next) = table.next.get() {
            table = next;
        }
        table
    }
}

/// An allocation, and the place of its history.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub allocation: &'a Arc<Allocation>,
    shadow: &'a OnceLock<Arc<Shadow>>,
}

/// Host memory with a kernel's parameter.
struct Param {
    name: &'static str,
    start: usize,
    bytes: usize,
}

impl Param {
    /// Its words of the size of a pointer.
    fn words(&self) -> impl Iterator<Item = usize> {
        // SAFETY: the parameters are readable while the kernel runs; any bytes are a number.
        (0..self.bytes / 8).map(|word| unsafe { (self.start as *const usize).add(word).read_unaligned() })
    }
}

/// An allocation, kept so that its address stays its own, and its history.
type Kept = (Arc<Allocation>, Arc<Shadow>);

/// The history of global memory while launches run that see each other's accesses.
#[derive(Default)]
pub(crate) struct GlobalMemory {
    /// The histories so far, with their allocations, by the addresses of these.
    shadows: Mutex<HashMap<usize, Kept>>,
    atomics: GlobalAtomics,
}

impl GlobalMemory {
    pub(super) fn shadow_of(&self, allocation: &Arc<Allocation>) -> Arc<Shadow> {
        let mut shadows = self.shadows.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = allocation.len.div_ceil(PAGE_BYTES);
        let new = || (allocation.clone(), Arc::new((0..pages).map(|_| OnceLock::new()).collect()));
        shadows.entry(Arc::as_ptr(allocation) as usize).or_insert_with(new).1.clone()
    }

    /// Drops the histories of allocations that are freed, and that no launch knows.
    pub fn forget_freed(&self) {
        let mut shadows = self.shadows.lock().unwrap_or_else(PoisonError::into_inner);
        shadows.retain(|_, (allocation, _)| Arc::strong_count(allocation) > 1);
    }
}

/// History of an allocation.
pub(super) type Shadow = Box<[OnceLock<Mutex<Page>>]>;

impl LaunchCheck {
    pub fn new(memory: Arc<GlobalMemory>) -> Self {
        Self { table: Table::new(), memory, params: Vec::new(), sees_plain: true }
    }

    /// The kernel was compiled without callbacks: any memory may have a value by a store that is not seen.
    pub fn without_plain(&mut self) {
        self.sees_plain = false;
        Allocations::may_be_written();
    }

    /// Whether the kernel's plain loads and stores are seen.
    pub(super) fn sees_plain(&self) -> bool {
        self.sees_plain
    }

    /// The launch has heard from others, which may know newer allocations.
    pub fn heard_from_others(&self) {
        let newest = self.table.newest();
        if newest.changes != Allocations::changes() {
            newest.next.get_or_init(|| Box::new(Table::new()));
            if !self.sees_plain {
                Allocations::may_be_written();
            }
        }
    }

    /// All allocations that it knows.
    pub(super) fn allocations(&self) -> &[Arc<Allocation>] {
        &self.table.newest().allocations
    }

    pub fn atomics(&self) -> &GlobalAtomics {
        &self.memory.atomics
    }

    /// Lets the kernel read its parameters.
    ///
    /// # Safety
    /// `params` points to as many pointers as the kernel has parameters.
    pub unsafe fn allow_params(&mut self, entry: &KernelEntry, params: *const *const c_void) {
        if entry.params.is_empty() {
            return;
        }
        let bytes = entry.params.len() * size_of::<*const c_void>();
        self.params.push(Param { name: "", start: params as usize, bytes });
        for (number, layout) in entry.params.iter().enumerate() {
            // SAFETY: the caller vouches for that many pointers.
            let param = unsafe { *params.add(number) };
            self.params.push(Param { name: layout.name, start: param as usize, bytes: layout.size });
        }
    }

    /// The allocation that holds an address.
    #[inline]
    pub(super) fn find(&self, address: usize) -> Option<Found<'_>> {
        let table = self.table.newest();
        let after = table.starts.partition_point(|&start| start <= address);
        let number = after.checked_sub(1)?;
        let allocation = &table.allocations[number];
        allocation.contains(address).then_some(Found { allocation, shadow: &table.shadows[number] })
    }

    pub(super) fn is_param(&self, address: usize) -> bool {
        self.params.iter().any(|param| address.wrapping_sub(param.start) < param.bytes)
    }

    /// The parameters themselves, with their numbers from 0.
    fn arguments(&self) -> impl Iterator<Item = (usize, &Param)> {
        self.params.iter().skip(1).enumerate()
    }

    /// The name of the first parameter that holds a pointer into an allocation.
    pub(super) fn parameter_into(&self, allocation: &Allocation) -> Option<&'static str> {
        let points = |param: &Param| param.words().any(|word| allocation.contains(word));
        let (_, param) = self.arguments().find(|(_, param)| points(param))?;
        Some(param.name).filter(|name| !name.is_empty())
    }

    /// The kernel's parameter, in words, that holds a pointer to unknown memory shortly before an address.
    pub(super) fn pointer_to_unknown(&self, address: usize) -> Option<String> {
        const REACH: usize = 64 << 10;
        let is_suspect =
            |pointer: usize| address.wrapping_sub(pointer) < REACH && self.find(pointer).is_none();
        let (number, param) = self.arguments().find(|(_, param)| param.words().any(is_suspect))?;
        Some(match param.name {
            "" => format!("parameter {number} (the first is 0)"),
            name => format!("parameter `{name}`"),
        })
    }

    pub(super) fn pages<'a>(&self, found: Found<'a>) -> &'a Shadow {
        found.shadow.get_or_init(|| self.memory.shadow_of(found.allocation))
    }
}
