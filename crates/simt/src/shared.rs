//! Shared memory of a block: static variables, dynamic memory, and the 32-bit window.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use crate::check::space;
use crate::cluster;
use crate::exec::context::{Block, Thread, current};
use crate::fault::FaultKind;
use crate::region::{self, DeviceMemory};

/// Shared memory that a block can have, static and dynamic together, in bytes.
pub const SHARED_LIMIT: u32 = 227 * 1024;

/// First address of the 32-bit shared window, whose addresses are offsets in the arena, in a cluster with the
/// block's rank above. Not 0, so that a zeroed address and accesses before the first variable are detected.
pub const WINDOW_BASE: u32 = ARENA_ALIGN as u32;

/// Bytes after a variable, where accesses that run over its end land: as many as it has, within limits.
fn gap_after(bytes: usize) -> usize {
    bytes.clamp(64, 4096)
}

/// Bytes of the arena: the limit, room for gaps and alignment, and the part before the window.
const ARENA_BYTES: usize = cluster::MARK as usize;
const _: () = assert!(ARENA_BYTES > 2 * SHARED_LIMIT as usize);

const ARENA_ALIGN: usize = 1024;
const _: () = assert!(region::ALIGNMENT.is_multiple_of(ARENA_ALIGN));

/// The bytes of unwritten memory: as a float, NaN.
const UNWRITTEN: u8 = 0xff;

/// Identity of a static shared variable: each `static` of this type is one.
#[derive(Debug)]
pub struct StaticKey {
    /// Name for reports.
    pub name: &'static str,
}

impl StaticKey {
    /// A key of that name.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }
}

/// A shared variable, or the dynamic memory.
#[derive(Clone, Copy)]
pub(crate) struct Variable {
    /// Address of its key; 0 for the dynamic memory.
    key: usize,
    pub name: &'static str,
    pub offset: usize,
    pub len: usize,
    align: usize,
}

/// Shared memory of one block.
pub(crate) struct Arena {
    memory: DeviceMemory,
    dynamic_len: usize,
    variables: RefCell<Vec<Variable>>,
    /// Bytes handed out, without gaps.
    used: Cell<usize>,
    /// End of the last variable and of the gap after it.
    end: Cell<usize>,
}

impl Arena {
    pub fn new(dynamic_len: u32) -> Self {
        Self {
            memory: DeviceMemory::shared(ARENA_BYTES).expect("memory for a block's shared memory"),
            dynamic_len: dynamic_len as usize,
            variables: RefCell::default(),
            used: Cell::new(0),
            end: Cell::new(0),
        }
    }

    /// Empties the arena. The dynamic memory comes first in it, where every alignment is met.
    pub fn reset(&self) {
        self.variables.borrow_mut().clear();
        self.used.set(0);
        self.end.set(WINDOW_BASE as usize);
        self.place(self.dynamic());
    }

    /// Adds a variable, and a gap after it.
    fn place(&self, variable: Variable) {
        // SAFETY: `dynamic` and `add` give ranges within the arena, to which no simulated thread has a
        // pointer yet.
        unsafe { std::ptr::write_bytes(self.base().add(variable.offset), UNWRITTEN, variable.len) };
        self.variables.borrow_mut().push(variable);
        self.used.set(self.used.get() + variable.len);
        self.end.set(variable.offset + variable.len + gap_after(variable.len));
    }

    /// The dynamic memory.
    pub fn dynamic(&self) -> Variable {
        let (offset, len) = (WINDOW_BASE as usize, self.dynamic_len);
        Variable { key: 0, name: "dynamic shared memory", offset, len, align: ARENA_ALIGN }
    }

    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Offset of an address in the arena.
    #[inline]
    pub fn offset_of(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base() as usize);
        (offset < ARENA_BYTES).then_some(offset)
    }

    /// Bytes from the arena's start to an address in it, or in the empty space around it.
    pub fn distance(&self, address: usize) -> Option<i64> {
        let base = self.base() as usize;
        let is_near = self.offset_of(address).is_some() || region::is_around_shared(base, address);
        is_near.then(|| address.wrapping_sub(base) as i64)
    }

    /// Whether `size` bytes from an address of the 32-bit window lie in the arena, inside a variable or not.
    #[inline]
    pub fn has(&self, address: u32, size: usize) -> bool {
        address >= WINDOW_BASE && address as usize + size <= ARENA_BYTES
    }

    /// The variable that covers `offset`, or the one that ends last before it.
    pub fn variable_at(&self, offset: usize) -> Option<Variable> {
        let variables = self.variables.borrow();
        variables.iter().rev().find(|variable| variable.offset <= offset && variable.len != 0).copied()
    }

    /// `byte 8 of shared `NAME``, or the offset where no variable is.
    pub fn name_of(&self, offset: usize) -> String {
        match self.variable_at(offset) {
            Some(variable) => format!("byte {} of shared `{}`", offset - variable.offset, variable.name),
            None => format!("shared memory at offset {offset}"),
        }
    }

    /// Pointer to a window address, which must lie in the arena.
    pub fn at(&self, address: u32) -> *mut u8 {
        self.base().wrapping_add(address as usize)
    }

    fn find(&self, key: usize) -> Option<Variable> {
        self.variables.borrow().iter().find(|variable| variable.key == key).copied()
    }

    fn add(&self, key: &'static StaticKey, len: usize, align: usize) -> Result<Variable, String> {
        // After this check both are below the limit, so no later sum overflows.
        if len > SHARED_LIMIT as usize || self.used.get() + len > SHARED_LIMIT as usize {
            return Err(format!(
                "`{}` needs {len} bytes, {} are in use ({} dynamic); the limit is {SHARED_LIMIT}",
                key.name,
                self.used.get(),
                self.dynamic_len
            ));
        }
        if !align.is_power_of_two() || align > ARENA_ALIGN {
            return Err(format!(
                "`{}` is aligned to {align}; an alignment is a power of two up to {ARENA_ALIGN}",
                key.name
            ));
        }
        let offset = self.end.get().next_multiple_of(align);
        if offset + len > ARENA_BYTES {
            return Err(format!("`{}` needs {len} bytes aligned to {align}, which does not fit", key.name));
        }
        let variable = Variable { key: std::ptr::from_ref(key) as usize, name: key.name, offset, len, align };
        self.place(variable);
        Ok(variable)
    }
}

/// The shared variable of `key`: the same pointer for all threads of a block, `size` bytes aligned to `align`
/// (at most 1024). Not initialised.
#[track_caller]
#[inline(never)]
pub fn alloc_static(key: &'static StaticKey, size: usize, align: usize) -> *mut u8 {
    let location = Location::caller();
    let thread = current("simt::shared::alloc_static");
    let arena = &thread.block().arena;
    let variable = match arena.find(std::ptr::from_ref(key) as usize) {
        Some(variable) if (variable.len, variable.align) == (size, align) => variable,
        Some(variable) => {
            let message = format!(
                "`{}` is declared with {size} bytes aligned to {align}, and earlier with {} aligned to {}",
                key.name, variable.len, variable.align
            );
            thread.fail(FaultKind::SharedAllocation, location, message)
        }
        None => match add_everywhere(thread, key, size, align) {
            Ok(variable) => variable,
            Err(message) => thread.fail(FaultKind::SharedAllocation, location, message),
        },
    };
    arena.base().wrapping_add(variable.offset)
}

/// Adds a variable to the arenas of all blocks that run together: blocks of a cluster reach each other's
/// variables by their own addresses.
fn add_everywhere(
    thread: &Thread,
    key: &'static StaticKey,
    size: usize,
    align: usize,
) -> Result<Variable, String> {
    let add = |block: &Block| {
        let variable = block.arena.add(key, size, align)?;
        if thread.checked() {
            block.check.allocated(variable.offset, variable.len);
        }
        Ok(variable)
    };
    let own = thread.block();
    let others = thread.group().blocks.iter().filter(|block| !std::ptr::eq(*block, own));
    others.map(add).collect::<Result<Vec<_>, String>>()?;
    add(own)
}

/// Start of the block's dynamic shared memory, aligned to 1024 bytes.
#[track_caller]
#[inline(never)]
pub fn dynamic() -> *mut u8 {
    let arena = &current("simt::shared::dynamic").block().arena;
    arena.base().wrapping_add(arena.dynamic().offset)
}

/// Bytes of the block's dynamic shared memory.
#[track_caller]
#[inline(never)]
pub fn dynamic_len() -> u32 {
    current("simt::shared::dynamic_len").group().launch.config.dynamic_shared
}

/// Bytes of shared memory that the block uses so far, dynamic and static together.
#[track_caller]
#[inline(never)]
pub fn total_len() -> u32 {
    current("simt::shared::total_len").block().arena.used.get() as u32
}

/// Whether a pointer points into the block's shared memory.
#[track_caller]
#[inline(never)]
pub fn contains<T>(pointer: *const T) -> bool {
    is_in_arena(pointer as usize)
}

// Not generic, so that it is compiled here, without load/store callbacks.
#[track_caller]
#[inline(never)]
fn is_in_arena(address: usize) -> bool {
    current("simt::shared::contains").block().arena.offset_of(address).is_some()
}

/// Address of shared memory in the 32-bit shared window.
#[track_caller]
#[inline(never)]
pub fn to_address<T>(pointer: *const T) -> u32 {
    window_address(pointer.cast(), Location::caller())
}

// Not generic, as above.
#[inline(never)]
fn window_address(pointer: *const u8, location: &'static Location<'static>) -> u32 {
    let thread = current("simt::shared::to_address");
    match thread.block().arena.offset_of(pointer as usize) {
        Some(offset) => offset as u32 + cluster::own_bits(thread),
        None => space::fail_outside_shared(thread, pointer as usize, location),
    }
}

/// Allows reads of bytes that nobody has written: as a float each is NaN. For operands of products whose
/// results go nowhere.
#[track_caller]
#[inline(never)]
pub fn leave_unwritten(address: u32, bytes: u32) {
    let thread = current("simt::shared::leave_unwritten");
    let block = thread.block();
    let offset = cluster::own_offset(thread, address);
    if !block.arena.has(offset, bytes as usize) {
        let message = format!("{bytes} bytes at {address:#x} are not all of the block's shared memory");
        thread.fail(FaultKind::WildPointer, Location::caller(), message);
    }
    if thread.checked() {
        block.check.accept_unwritten(offset as usize, bytes as usize);
    }
}

/// Pointer to an address of the 32-bit shared window.
#[track_caller]
#[inline(never)]
pub fn from_address(address: u32) -> *mut u8 {
    let location = Location::caller();
    let thread = current("simt::shared::from_address");
    let (arena, offset) = (&thread.block().arena, cluster::own_offset(thread, address));
    if !arena.has(offset, 1) {
        space::fail_outside_window(thread, address, location);
    }
    arena.at(offset)
}
