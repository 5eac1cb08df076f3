//! Memory that stands for a GPU's: allocations far apart in parts of the address space that nothing else
//! uses, one for global memory and one for the shared memory of blocks.
//!
//! An index that is wrong by up to a gigabyte leads to no memory, so the checker finds it wherever it
//! leads: an address here that no allocation holds is an error. The address space is only reserved; pages
//! exist where allocations are.

use std::alloc::Layout;
use std::fs::File;

use slots::Reserved;

/// Alignment of every allocation, in bytes.
pub(crate) const ALIGNMENT: usize = 4096;

/// Where global memory is.
static GLOBAL: Reserved = Reserved::new();
/// Where the shared memory of blocks is.
static SHARED: Reserved = Reserved::new();

/// Memory for a simulated device, given back when dropped. Its bytes are not initialised.
#[derive(Debug)]
pub struct DeviceMemory {
    base: *mut u8,
    bytes: usize,
    /// The number of slots that it occupies; 0 for memory of the heap.
    slots: usize,
    /// Where these slots are.
    part: &'static Reserved,
}

// SAFETY: it is owned memory, tied to no thread.
unsafe impl Send for DeviceMemory {}

// SAFETY: a shared reference gives the address alone.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// `bytes` bytes at a multiple of 4096, apart from all other memory where the system lets us reserve
    /// address space, of the heap elsewhere. `None`: no memory is left, or `bytes` is 0.
    pub fn new(bytes: usize) -> Option<Self> {
        Self::within(&GLOBAL, bytes)
    }

    /// As [`DeviceMemory::new`], for shared memory, which fits in one slot. Its bytes are zeros.
    pub(crate) fn shared(bytes: usize) -> Option<Self> {
        let memory = Self::within(&SHARED, bytes)?;
        if memory.slots == 0 {
            // SAFETY: its own bytes. Those in slots are new pages, which are zeros.
            unsafe { memory.base.write_bytes(0, bytes) };
        }
        Some(memory)
    }

    fn within(part: &'static Reserved, bytes: usize) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        let apart = part.take(bytes).map(|(base, slots)| Self { base, bytes, slots, part });
        apart.or_else(|| {
            // SAFETY: the size is not zero.
            let base = unsafe { std::alloc::alloc(layout(bytes)?) };
            (!base.is_null()).then_some(Self { base, bytes, slots: 0, part })
        })
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Moves the bytes to memory that other processes can open by the file, at the same address. `None`: the
    /// system does not let us. Nobody may access them meanwhile.
    pub fn share(&mut self) -> Option<File> {
        if self.slots == 0 { None } else { slots::share(self.base, self.bytes) }
    }

    /// Memory of `bytes` bytes that another process shares by a file.
    pub fn open(file: &File, bytes: usize) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        let (base, slots) = GLOBAL.take(bytes)?;
        let memory = Self { base, bytes, slots, part: &GLOBAL };
        slots::put_in_place(base, bytes, file).then_some(memory)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.slots != 0 {
            self.part.give_back(self.base, self.bytes, self.slots);
        } else if let Some(layout) = layout(self.bytes) {
            // SAFETY: allocated with this layout in `new`, and owned.
            unsafe { std::alloc::dealloc(self.base, layout) };
        }
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, ALIGNMENT).ok()
}

/// Whether an address is in the part of the address space that holds nothing but global memory.
pub(crate) fn contains(address: usize) -> bool {
    GLOBAL.slot(address).is_some()
}

/// Whether an address is in the part of the address space that holds nothing but shared memory of blocks.
pub(crate) fn is_for_shared(address: usize) -> bool {
    SHARED.slot(address).is_some()
}

/// Whether an address is in shared memory that begins at `base`, or in the empty space around it.
pub(crate) fn is_around_shared(base: usize, address: usize) -> bool {
    SHARED.slot(address).is_some_and(|slot| SHARED.slot(base) == Some(slot))
}

/// Without address space to reserve, all memory is of the heap.
#[cfg(not(all(unix, target_pointer_width = "64")))]
mod slots {
    #[derive(Debug)]
    pub struct Reserved;

    impl Reserved {
        pub const fn new() -> Self {
            Self
        }

        pub fn take(&self, _bytes: usize) -> Option<(*mut u8, usize)> {
            None
        }

        pub fn give_back(&self, _base: *mut u8, _bytes: usize, _slots: usize) {}

        pub fn slot(&self, _address: usize) -> Option<usize> {
            None
        }
    }

    pub fn share(_base: *mut u8, _bytes: usize) -> Option<std::fs::File> {
        None
    }

    pub fn put_in_place(_base: *mut u8, _bytes: usize, _file: &std::fs::File) -> bool {
        false
    }
}

#[cfg(all(unix, target_pointer_width = "64"))]
mod slots {
    use std::collections::{BTreeMap, VecDeque};
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::ptr;
    use std::sync::{Mutex, OnceLock, PoisonError};

    /// Bytes of a slot.
    const SLOT: usize = 4 << 30;
    /// Slots that are reserved.
    const SLOTS: usize = 4096;
    /// Bytes before an allocation in its first slot, and at least as many after it.
    const MARGIN: usize = 1 << 30;

    /// The free part of reserved address space.
    #[derive(Debug)]
    struct Space {
        start: usize,
        /// Slots before this one have been used.
        next: usize,
        /// Ranges that were given back, by the number of their slots; the oldest is used again first.
        spare: BTreeMap<usize, VecDeque<usize>>,
    }

    /// Address space that is reserved when it is first used.
    #[derive(Debug)]
    pub struct Reserved {
        space: OnceLock<Option<Mutex<Space>>>,
        /// Its start once it is reserved.
        start: OnceLock<usize>,
    }

    impl Reserved {
        pub const fn new() -> Self {
            Self { space: OnceLock::new(), start: OnceLock::new() }
        }

        fn reserve(&self) -> Option<Mutex<Space>> {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
            // SAFETY: asks for address space anywhere.
            let start = unsafe { libc::mmap(ptr::null_mut(), SLOTS * SLOT, libc::PROT_NONE, flags, -1, 0) };
            if start == libc::MAP_FAILED {
                return None;
            }
            let start = *self.start.get_or_init(|| start.expose_provenance());
            Some(Mutex::new(Space { start, next: 0, spare: BTreeMap::new() }))
        }

        /// The number of the slot that an address is in.
        pub fn slot(&self, address: usize) -> Option<usize> {
            let offset = address.wrapping_sub(*self.start.get()?);
            (offset < SLOTS * SLOT).then_some(offset / SLOT)
        }

        /// An address for `bytes` bytes, readable and writable, and the number of its slots.
        pub fn take(&self, bytes: usize) -> Option<(*mut u8, usize)> {
            let space = self.space.get_or_init(|| self.reserve()).as_ref()?;
            let count = bytes.checked_add(2 * MARGIN)?.div_ceil(SLOT);
            let mut space = space.lock().unwrap_or_else(PoisonError::into_inner);
            let first = match space.spare.get_mut(&count).and_then(VecDeque::pop_front) {
                Some(first) => first,
                None if count <= SLOTS - space.next => {
                    space.next += count;
                    space.next - count
                }
                None => return None,
            };
            let base = ptr::with_exposed_provenance_mut::<u8>(space.start + first * SLOT + MARGIN);
            // SAFETY: the range lies in the reserved space, in slots that nobody else has.
            let usable =
                unsafe { libc::mprotect(base.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) } == 0;
            if !usable {
                space.spare.entry(count).or_default().push_front(first);
                return None;
            }
            Some((base, count))
        }

        /// Takes memory from [`Reserved::take`] back. The system gets its pages.
        pub fn give_back(&self, base: *mut u8, bytes: usize, count: usize) {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: new, empty address space takes the place of pages that only their owner, who gives them
            // back, could use.
            let emptied = unsafe { libc::mmap(base.cast(), bytes, libc::PROT_NONE, flags, -1, 0) };
            let Some(Some(space)) = self.space.get() else { return };
            if emptied == libc::MAP_FAILED {
                // The pages and the slot are lost.
                return;
            }
            let mut space = space.lock().unwrap_or_else(PoisonError::into_inner);
            let first = (base.addr() - MARGIN - space.start) / SLOT;
            space.spare.entry(count).or_default().push_back(first);
        }
    }

    /// Puts the bytes of memory from [`Reserved::take`] into a file without a name, and the file in their
    /// place.
    pub fn share(base: *mut u8, bytes: usize) -> Option<File> {
        // SAFETY: a name that ends with a zero.
        let number = unsafe { libc::memfd_create(c"ironwarp".as_ptr(), libc::MFD_CLOEXEC) };
        if number < 0 {
            return None;
        }
        // SAFETY: a new descriptor, which nobody else has.
        let mut file = unsafe { File::from_raw_fd(number) };
        // SAFETY: the memory is that of the caller, readable, and not written meanwhile; new pages are zeros.
        file.write_all(unsafe { std::slice::from_raw_parts(base, bytes) }).ok()?;
        put_in_place(base, bytes, &file).then_some(file)
    }

    /// Puts a file in the place of memory from [`Reserved::take`].
    pub fn put_in_place(base: *mut u8, bytes: usize, file: &File) -> bool {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: takes the place of pages that only their owner, who asks for this, could use.
        let mapped = unsafe { libc::mmap(base.cast(), bytes, protection, flags, file.as_raw_fd(), 0) };
        mapped != libc::MAP_FAILED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_apart_and_usable() {
        let sizes = [1, 4096, 100_000, 3 << 30];
        let all: Vec<DeviceMemory> = sizes.iter().map(|&bytes| DeviceMemory::new(bytes).unwrap()).collect();
        for memory in &all {
            assert_eq!(memory.as_ptr().addr() % ALIGNMENT, 0);
            // SAFETY: the first and the last byte of the allocation.
            unsafe {
                memory.as_ptr().write(1);
                memory.as_ptr().add(memory.bytes() - 1).write(2);
            }
            assert_eq!(contains(memory.as_ptr().addr()), memory.slots != 0);
        }
        for (one, other) in all.iter().zip(&all[1..]).filter(|(one, other)| one.slots * other.slots != 0) {
            let between = other.as_ptr().addr().abs_diff(one.as_ptr().addr());
            assert!(between >= one.bytes().min(other.bytes()) + (1 << 30), "{between}");
        }
    }

    #[test]
    fn shared_memory_is_apart_from_global_memory() {
        let (one, other) = (DeviceMemory::shared(4096).unwrap(), DeviceMemory::shared(4096).unwrap());
        let global = DeviceMemory::new(4096).unwrap();
        // SAFETY: its last byte.
        assert_eq!(unsafe { one.as_ptr().add(4095).read() }, 0);
        if one.slots * other.slots * global.slots == 0 {
            return;
        }
        let (base, global) = (one.as_ptr().addr(), global.as_ptr().addr());
        assert!(is_for_shared(base) && !contains(base) && contains(global) && !is_for_shared(global));
        for address in [base, base - (1 << 30), base + (2 << 30)] {
            assert!(is_around_shared(base, address) && !is_around_shared(other.as_ptr().addr(), address));
        }
        assert!(!is_around_shared(base, base - (1 << 30) - 1) && !is_around_shared(global, global));
    }

    #[test]
    fn memory_is_shared_in_its_place() {
        let mut memory = DeviceMemory::new(5000).unwrap();
        // SAFETY: bytes of the allocation.
        unsafe { memory.as_ptr().add(4999).write(7) };
        let Some(file) = memory.share() else {
            assert_eq!(memory.slots, 0);
            return;
        };
        let other = DeviceMemory::open(&file, 5000).unwrap();
        // SAFETY: bytes of both; they are the same pages.
        unsafe {
            assert_eq!(other.as_ptr().add(4999).read(), 7);
            other.as_ptr().write(3);
            assert_eq!(memory.as_ptr().read(), 3);
        }
        drop(other);
        // SAFETY: as above.
        assert_eq!(unsafe { memory.as_ptr().read() }, 3);
    }

    #[test]
    fn memory_comes_back_empty() {
        for _ in 0..3 {
            let memory = DeviceMemory::new(1 << 20).unwrap();
            // SAFETY: its first byte. Pages of the region are zeros when they are new.
            let first = unsafe { memory.as_ptr().read() };
            assert!(memory.slots == 0 || first == 0);
            // SAFETY: as above.
            unsafe { memory.as_ptr().write(1) };
        }
        assert!(DeviceMemory::new(0).is_none());
        assert!(DeviceMemory::new(usize::MAX).is_none());
    }
}
