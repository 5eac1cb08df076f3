//! Memory accesses that report the caller's line, atomics, fences, and the registration of global
//! allocations.

pub mod global;
mod word;

use std::mem::MaybeUninit;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::check::{self, Access, Allocations, Contents};
use crate::exec::context::{Thread, current};
use crate::fault::AccessKind;
use crate::region::DeviceMemory;
use crate::site::RawSite;

/// The scope of a fence or atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// `.cta`
    Block,
    /// `.cluster`
    Cluster,
    /// `.gpu`
    Device,
    /// `.sys`
    System,
}

/// Registers a global allocation, so that accesses to it are checked. Replaces earlier registrations of that
/// range. All of its bytes have values.
pub fn track<T>(ptr: *const T, len_bytes: usize, label: &str) {
    Allocations::add(ptr as usize, len_bytes, label, Contents::Given);
}

/// As [`track`], but no byte has a value: a kernel that reads one before it is written ([`written`],
/// [`copied`], or by a kernel) is at fault.
pub fn track_unwritten<T>(ptr: *const T, len_bytes: usize, label: &str) {
    Allocations::add(ptr as usize, len_bytes, label, Contents::Unwritten);
}

/// The program has written `bytes` bytes at `ptr`.
pub fn written<T>(ptr: *const T, bytes: usize) {
    Allocations::written(ptr as usize, bytes);
}

/// The program has copied `bytes` bytes. Those that have no value at `from` have none at `to`.
pub fn copied<T>(to: *const T, from: *const T, bytes: usize) {
    Allocations::copied(to as usize, from as usize, bytes);
}

/// Forgets the global allocation that begins at `ptr`: later accesses are use after free.
pub fn untrack<T>(ptr: *const T) {
    Allocations::remove(ptr as usize);
}

/// A global allocation with the contents of a slice, which gets them back in the end.
#[derive(Debug)]
pub struct Tracked<'a, T> {
    items: &'a mut [T],
    memory: DeviceMemory,
}

impl<'a, T> Tracked<'a, T> {
    /// Moves the items of a slice to memory of a simulated device, under a label.
    ///
    /// # Panics
    /// When no memory is left.
    pub fn new(items: &'a mut [T], label: &str) -> Self {
        let bytes = size_of_val(items);
        let memory = DeviceMemory::new(bytes.max(1)).expect("memory for the items");
        // SAFETY: the memory has room for the items, and is aligned for any.
        unsafe { std::ptr::copy_nonoverlapping(items.as_ptr(), memory.as_ptr().cast(), items.len()) };
        track(memory.as_ptr(), bytes, label);
        Self { items, memory }
    }

    /// Pointer for a kernel.
    pub fn as_ptr(&self) -> *mut T {
        self.memory.as_ptr().cast()
    }
}

impl<T> Drop for Tracked<'_, T> {
    fn drop(&mut self) {
        Allocations::forget(self.memory.as_ptr() as usize);
        let (from, to) = (self.memory.as_ptr().cast::<T>(), self.items.as_mut_ptr());
        // SAFETY: `new` has moved so many items there, and they move back. Kernels that write there write
        // items, as their callers have promised.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.items.len()) };
    }
}

/// Loads a value. With checking on, a bad access is a fault on the caller's line.
///
/// # Safety
/// `ptr` is valid for reads, or checking is on and the address is in shared or tracked memory.
#[track_caller]
pub unsafe fn load<T: Copy>(ptr: *const T) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the caller vouches for the source, and the destination is a local of that size.
    unsafe {
        let (out, size, align) = (value.as_mut_ptr().cast(), size_of::<T>(), align_of::<T>());
        read(ptr.cast(), out, size, align, (Space::Generic, AccessKind::Read), Location::caller());
        value.assume_init()
    }
}

/// Stores a value. With checking on, a bad access is a fault on the caller's line.
///
/// # Safety
/// `ptr` is valid for writes, or checking is on and the address is in shared or tracked memory.
#[track_caller]
pub unsafe fn store<T: Copy>(ptr: *mut T, value: T) {
    // SAFETY: the caller vouches for the destination, and the source is a local of that size.
    unsafe {
        write(
            ptr.cast(),
            std::ptr::from_ref(&value).cast(),
            size_of::<T>(),
            align_of::<T>(),
            Space::Generic,
            Location::caller(),
        );
    }
}

/// The memory that the PTX of an instruction names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    /// None: the address says which.
    Generic,
    /// `.global`
    Global,
}

impl Space {
    /// Checks that the address of an access lies there.
    #[inline]
    fn require(self, thread: &Thread, access: Access) {
        if self == Self::Global {
            check::require_global(thread, access);
        }
    }
}

// The next three functions are not generic, so that they are compiled here, without load/store callbacks.

/// # Safety
/// As [`load`], for `size` bytes; `out` is writable for as many.
#[inline(never)]
unsafe fn read(
    ptr: *const u8,
    out: *mut u8,
    size: usize,
    align: usize,
    (space, kind): (Space, AccessKind),
    location: &'static Location<'static>,
) {
    check_access(current("simt::memory::load"), ptr, size, align, (space, kind), location);
    // SAFETY: forwarded from the caller.
    unsafe { std::ptr::copy_nonoverlapping(ptr, out, size) };
}

/// # Safety
/// As [`store`], for `size` bytes; `value` is readable for as many.
#[inline(never)]
unsafe fn write(
    ptr: *mut u8,
    value: *const u8,
    size: usize,
    align: usize,
    space: Space,
    location: &'static Location<'static>,
) {
    check_access(current("simt::memory::store"), ptr, size, align, (space, AccessKind::Write), location);
    // SAFETY: forwarded from the caller.
    unsafe { std::ptr::copy_nonoverlapping(value, ptr, size) };
}

#[inline]
fn check_access(
    thread: &Thread,
    ptr: *const u8,
    size: usize,
    align: usize,
    (space, kind): (Space, AccessKind),
    location: &'static Location<'static>,
) {
    if thread.checked() {
        let site = RawSite::of(location);
        let access = Access { address: ptr as usize, size, align, kind, site };
        space.require(thread, access);
        check::typed_access(thread, access);
    }
}

/// Locks that make what the checker notes of an atomic operation and the operation itself one step among OS
/// threads. The values are changed by the processor's own operations, which others may use without a lock:
/// the host, other processes, and kernels through `core::sync::atomic`.
const LOCKS: usize = 256;
static ATOMIC_LOCKS: [AtomicBool; LOCKS] = [const { AtomicBool::new(false) }; LOCKS];

/// Holds the lock of an address.
struct AtomicLock(&'static AtomicBool);

impl AtomicLock {
    fn take(address: usize) -> Self {
        const GRANULE: usize = 16;
        let lock = &ATOMIC_LOCKS[address / GRANULE % LOCKS];
        while lock.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
        Self(lock)
    }
}

impl Drop for AtomicLock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Replaces the value at `ptr` by `f` of it, atomically, and returns the old value. `f` only computes, maybe
/// more than once: it must not call into this crate.
///
/// # Safety
/// `T` is a number of 1, 2, 4 or 8 bytes. `ptr` is aligned to its size and valid for reads and writes, or
/// checking is on and the address is in shared or tracked memory.
#[track_caller]
pub unsafe fn atomic<T: Copy>(ptr: *mut T, order: Ordering, scope: Scope, f: impl Fn(T) -> T) -> T {
    let atomic = Atomic::read_write(ptr.cast(), size_of::<T>(), order, scope);
    // SAFETY: forwarded from the caller.
    unsafe { atomic.update(RawSite::of(Location::caller()), f) }
}

/// As [`atomic`], where the new value does not depend on the old one: the word need not have one.
///
/// # Safety
/// As [`atomic`].
#[track_caller]
pub unsafe fn atomic_exchange<T: Copy>(ptr: *mut T, order: Ordering, scope: Scope, f: impl Fn(T) -> T) -> T {
    let atomic = Atomic::exchange(ptr.cast(), size_of::<T>(), order, scope);
    // SAFETY: forwarded from the caller.
    unsafe { atomic.update(RawSite::of(Location::caller()), f) }
}

/// Stores a value at `ptr` atomically.
///
/// # Safety
/// As [`atomic`].
#[track_caller]
pub unsafe fn atomic_store<T: Copy>(ptr: *mut T, value: T, order: Ordering, scope: Scope) {
    let atomic = Atomic::store(ptr.cast(), size_of::<T>(), order, scope);
    // SAFETY: forwarded from the caller.
    unsafe { atomic.update(RawSite::of(Location::caller()), |_| value) };
}

/// Loads the value at `ptr` atomically.
///
/// # Safety
/// As [`atomic`]; reads are enough.
#[track_caller]
pub unsafe fn atomic_load<T: Copy>(ptr: *const T, order: Ordering, scope: Scope) -> T {
    let atomic = Atomic::load(ptr.cast(), size_of::<T>(), order, scope);
    // SAFETY: forwarded from the caller; the value stays as it is.
    unsafe { atomic.update(RawSite::of(Location::caller()), |value| value) }
}

/// An atomic operation of a simulated thread.
#[derive(Clone, Copy)]
pub(crate) struct Atomic {
    ptr: *mut u8,
    size: usize,
    kind: AccessKind,
    space: Space,
    order: Ordering,
    scope: Scope,
    /// Whether it uses the old value.
    reads: bool,
    /// Whether it acquires although its order is relaxed.
    acquires_always: bool,
}

impl Atomic {
    /// An operation that reads and may write. One that both reads and writes acquires with any order: a
    /// strict rule would report the usual "last block" kernels of CUDA, which are correct on every GPU.
    pub fn read_write(ptr: *mut u8, size: usize, order: Ordering, scope: Scope) -> Self {
        let kind = match scope {
            Scope::Block => AccessKind::BlockAtomic,
            Scope::Cluster | Scope::Device => AccessKind::Atomic,
            Scope::System => AccessKind::SystemAtomic,
        };
        let space = Space::Generic;
        Self { ptr, size, kind, space, order, scope, reads: true, acquires_always: true }
    }

    /// An operation that writes what does not depend on the old value.
    pub fn exchange(ptr: *mut u8, size: usize, order: Ordering, scope: Scope) -> Self {
        Self { reads: false, ..Self::read_write(ptr, size, order, scope) }
    }

    /// A store.
    pub fn store(ptr: *mut u8, size: usize, order: Ordering, scope: Scope) -> Self {
        Self { reads: false, acquires_always: false, ..Self::read_write(ptr, size, order, scope) }
    }

    /// The same operation by the rules of Rust's own atomics, under which a relaxed one acquires nothing.
    pub fn strict(self) -> Self {
        Self { acquires_always: false, ..self }
    }

    /// A load.
    pub fn load(ptr: *const u8, size: usize, order: Ordering, scope: Scope) -> Self {
        let kind = match scope {
            Scope::Block => AccessKind::BlockAtomicRead,
            Scope::Cluster | Scope::Device => AccessKind::AtomicRead,
            Scope::System => AccessKind::SystemAtomicRead,
        };
        let (ptr, space) = (ptr.cast_mut(), Space::Generic);
        Self { ptr, size, kind, space, order, scope, reads: true, acquires_always: false }
    }

    /// The same operation by an instruction for global memory.
    fn in_global(self) -> Self {
        Self { space: Space::Global, ..self }
    }

    /// Replaces the value by `f` of it. The old value.
    ///
    /// # Safety
    /// As [`atomic`]; `T` has the size of the operation.
    pub unsafe fn update<T: Copy>(self, site: RawSite, f: impl Fn(T) -> T) -> T {
        debug_assert_eq!(size_of::<T>(), self.size);
        let mut old = MaybeUninit::<T>::uninit();
        // SAFETY: forwarded from the caller; `old` and `new` are locals of the value's size, and `begin`
        // gives `old` its value.
        unsafe {
            let mut lock = self.begin(old.as_mut_ptr().cast(), site);
            if self.kind.is_read() {
                end_load(lock);
                return old.assume_init();
            }
            loop {
                let new = f(old.assume_init());
                match self.end(lock, old.as_mut_ptr().cast(), std::ptr::from_ref(&new).cast()) {
                    Ok(()) => return old.assume_init(),
                    Err(again) => lock = again,
                }
            }
        }
    }

    /// # Safety
    /// As [`atomic`]; `out` is writable for the operation's size.
    #[inline(never)]
    unsafe fn begin(self, out: *mut u8, site: RawSite) -> Option<AtomicLock> {
        use Ordering::{AcqRel, Acquire, SeqCst};
        let thread = current("simt::memory::atomic");
        take_turn(thread, site);
        let Self { ptr, size, kind, space, .. } = self;
        let lock = thread.checked().then(|| {
            let access = Access { address: ptr as usize, size, align: size, kind, site };
            space.require(thread, access);
            if self.reads && !kind.is_read() {
                check::require_written(thread, access);
            }
            check::typed_access(thread, access);
            let lock = AtomicLock::take(ptr as usize);
            if !kind.is_read() && thread.block().arena.offset_of(ptr as usize).is_none() {
                check::atomic_takes_effect(thread, access);
            }
            let acquires = self.acquires_always || matches!(self.order, Acquire | AcqRel | SeqCst);
            check::atomic_order(thread, access, acquires, self.order, self.scope);
            lock
        });
        // SAFETY: forwarded from the caller.
        unsafe { word::load(ptr, out, size) };
        lock
    }

    /// Puts `new` in if the value is still `old`. Else `old` becomes the value, and the lock comes back.
    ///
    /// # Safety
    /// As [`atomic`]; `old` and `new` have the operation's size.
    #[inline(never)]
    unsafe fn end(
        self,
        lock: Option<AtomicLock>,
        old: *mut u8,
        new: *const u8,
    ) -> Result<(), Option<AtomicLock>> {
        // SAFETY: forwarded from the caller.
        if unsafe { word::replace(self.ptr, old, new, self.size) } {
            drop(lock);
            Ok(())
        } else {
            Err(lock)
        }
    }
}

/// Yields now and then: an atomic operation may be part of a loop that waits for another thread.
pub(crate) fn take_turn(thread: &Thread, site: RawSite) {
    const SPINS: u32 = 16;
    thread.spins.set(thread.spins.get() + 1);
    if thread.spins.get() >= SPINS {
        thread.give_way(site);
    }
}

/// Not inlined, so that the lock is not released in code with callbacks.
#[inline(never)]
fn end_load(lock: Option<AtomicLock>) {
    drop(lock);
}

/// Replaces the value at `ptr` by `f` of it, atomically, outside any simulated thread and unchecked.
///
/// # Safety
/// `T` is a number of 1, 2, 4 or 8 bytes. `ptr` is valid for reads and writes, aligned to its size.
pub(crate) unsafe fn update<T: Copy>(ptr: *mut T, f: impl Fn(T) -> T) {
    let size = size_of::<T>();
    let mut old = MaybeUninit::<T>::uninit();
    // SAFETY: forwarded from the caller; `old` and `new` are locals of the value's size.
    unsafe {
        word::load(ptr.cast(), old.as_mut_ptr().cast(), size);
        loop {
            let new = f(old.assume_init());
            if word::replace(ptr.cast(), old.as_mut_ptr().cast(), std::ptr::from_ref(&new).cast(), size) {
                return;
            }
        }
    }
}

/// Whether a pointer points into global memory: into no shared memory and no local variable
/// (`isspacep.global`).
#[track_caller]
#[inline(never)]
pub fn is_global<T>(ptr: *const T) -> bool {
    lies_in_global(ptr.addr())
}

// Not generic, so that it is compiled here, without load/store callbacks.
#[track_caller]
#[inline(never)]
fn lies_in_global(address: usize) -> bool {
    check::space::is_global(current("simt::memory::is_global"), address)
}

/// Whether a pointer points into a local variable (`isspacep.local`).
#[track_caller]
#[inline(never)]
pub fn is_local<T>(ptr: *const T) -> bool {
    lies_in_local(ptr.addr())
}

// Not generic, as above.
#[track_caller]
#[inline(never)]
fn lies_in_local(address: usize) -> bool {
    check::space::is_local(current("simt::memory::is_local"), address)
}

/// Orders the thread's earlier accesses before its later ones, as seen by `scope` (`membar`, `fence`).
#[track_caller]
pub fn fence(scope: Scope) {
    let thread = current("simt::memory::fence");
    if thread.checked() {
        check::fence(thread, scope);
    }
}

/// Makes the accesses that the thread knows of visible to the async proxy: bulk and tensor copies, products
/// of warpgroups (`fence.proxy.async`).
#[track_caller]
pub fn proxy_fence() {
    let thread = current("simt::memory::proxy_fence");
    if thread.checked() {
        check::proxy_fence(thread);
    }
}
