//! Allocations: device, pinned, managed and registered memory. Red zones surround each allocation, and new
//! memory holds NaN bytes.

use super::{
    abi::{DevicePtr, IpcHandle},
    api,
    device::PITCH_ALIGNMENT,
    handle::Handle,
    put,
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::{c_uint, c_void};
use simt::DeviceMemory;
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
};

/// Alignment of every allocation, in bytes.
const ALIGNMENT: usize = 256;
/// Bytes before and after each allocation that must not be written.
const RED_ZONE: usize = 256;
const RED_ZONE_BYTE: u8 = 0xbd;
/// The byte that fills new and freed memory: NaN in every floating-point format, -1 in every signed integer.
const POISON: u8 = 0xff;
/// The most freed bytes that are kept poisoned before the system gets them back.
const QUARANTINE: usize = 64 << 20;
/// The fewest bytes that a freed block counts for: few enough blocks are kept that address space is left.
const QUARANTINED: usize = QUARANTINE / 1024;

/// The kind of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `cuMemAlloc` and similar functions.
    Device,
    /// Device memory from a pool. `freed`: its stream has reached `cuMemFreeAsync`.
    Pooled { pool: Handle, freed: bool },
    /// Page-locked host memory of the driver, with the flags of `cuMemHostAlloc`.
    Pinned { flags: c_uint },
    /// `cuMemAllocManaged`.
    Managed,
    /// The program's own memory, registered with `cuMemHostRegister`.
    Registered { flags: c_uint },
    /// Another process's device memory, opened by its handle so many times.
    Opened { times: u32 },
}

impl Kind {
    /// Whether the host may access it directly while copies are pending.
    pub(super) fn is_host(self) -> bool {
        matches!(self, Kind::Pinned { .. } | Kind::Registered { .. })
    }

    fn counts_as_device_memory(self) -> bool {
        !self.is_host() && !matches!(self, Kind::Opened { .. })
    }
}

pub(super) struct Allocation {
    pub address: usize,
    pub bytes: usize,
    pub kind: Kind,
    pub context: Handle,
    pub device: usize,
    /// The allocation's number, as returned by `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub id: u64,
    /// Whether `cuMemFreeAsync` was called. The memory stays usable until its stream reaches the free.
    pub free_issued: bool,
    /// The memory from the system, including red zones. `None` for the program's own memory.
    block: Option<Block>,
    /// The part that other processes have in it.
    pub between: Between,
}

/// Whether several processes have an allocation.
pub(super) enum Between {
    /// This one alone.
    No,
    /// Others may open it, by this file.
    Shared(File),
    /// It is another process's, whose handle says where; the mapping lasts as long as this.
    Opened(IpcHandle, #[expect(dead_code, reason = "kept for its drop")] DeviceMemory),
}

impl Allocation {
    /// Another process's memory, mapped here.
    pub(super) fn opened(handle: IpcHandle, memory: DeviceMemory, context: Handle, device: usize) -> Self {
        let (address, bytes) = (memory.as_ptr() as usize + RED_ZONE, handle.bytes as usize);
        let (kind, between) = (Kind::Opened { times: 1 }, Between::Opened(handle, memory));
        Allocation { address, bytes, kind, context, device, id: 0, free_issued: false, block: None, between }
    }

    /// Lets other processes open device memory: its file, and the bytes of that with the red zones. Nothing
    /// uses the memory meanwhile.
    pub(super) fn share(&mut self) -> Outcome<(&File, usize)> {
        let block = self.block.as_mut().filter(|_| self.kind == Kind::Device).ok_or(code::INVALID_VALUE)?;
        if !matches!(self.between, Between::Shared(_)) {
            self.between = Between::Shared(block.0.share().ok_or(code::NOT_SUPPORTED)?);
        }
        match &self.between {
            Between::Shared(file) => Ok((file, block.0.bytes())),
            _ => Err(code::INVALID_VALUE),
        }
    }

    /// The allocation's name in the checker's reports.
    fn label(&self) -> String {
        let kind = match self.kind {
            Kind::Device => "device",
            Kind::Pooled { .. } => "pooled",
            Kind::Pinned { .. } => "pinned",
            Kind::Managed => "managed",
            Kind::Registered { .. } => "registered",
            Kind::Opened { .. } => "another process's",
        };
        format!("{kind} {}", self.id)
    }
}

/// Memory with red zones.
struct Block(DeviceMemory);

impl Block {
    /// `bytes` between two red zones.
    fn new(bytes: usize) -> Option<Block> {
        let size = bytes.checked_next_multiple_of(ALIGNMENT)?.checked_add(2 * RED_ZONE)?;
        let memory = DeviceMemory::new(size)?;
        let base = memory.as_ptr();
        // SAFETY: the block is `size` bytes long; the parts lie within it.
        unsafe {
            base.write_bytes(RED_ZONE_BYTE, RED_ZONE);
            base.add(RED_ZONE).write_bytes(POISON, bytes);
            base.add(RED_ZONE + bytes).write_bytes(RED_ZONE_BYTE, size - RED_ZONE - bytes);
        }
        Some(Block(memory))
    }

    fn address(&self) -> usize {
        self.0.as_ptr() as usize + RED_ZONE
    }

    fn poison(&self, bytes: usize) {
        // SAFETY: the allocation's bytes lie between the red zones of the block.
        unsafe { self.0.as_ptr().add(RED_ZONE).write_bytes(POISON, bytes) };
    }

    /// The offset, from the start of the allocation of `bytes`, of the first red-zone byte that was
    /// overwritten.
    fn overwritten(&self, bytes: usize) -> Option<isize> {
        // SAFETY: the whole block is initialised and lives as long as `self`.
        let all = unsafe { core::slice::from_raw_parts(self.0.as_ptr(), self.0.bytes()) };
        let outside = (0..RED_ZONE).chain(RED_ZONE + bytes..all.len());
        outside.into_iter().find(|&i| all[i] != RED_ZONE_BYTE).map(|i| i as isize - RED_ZONE as isize)
    }
}

/// Tells the checker of device memory without values. Without the checker nobody asks which bytes have one.
pub(super) fn track_new(address: usize, bytes: usize, label: &str) {
    let track = if super::checks() { simt::memory::track_unwritten } else { simt::memory::track };
    track(address as *const u8, bytes, label);
}

fn quarantined(block: &Block) -> usize {
    block.0.bytes().max(QUARANTINED)
}

pub(super) struct Memory {
    live: BTreeMap<usize, Allocation>,
    freed: VecDeque<Block>,
    freed_bytes: usize,
    next_id: u64,
}

impl Memory {
    pub(super) fn new() -> Memory {
        Memory { live: BTreeMap::new(), freed: VecDeque::new(), freed_bytes: 0, next_id: 1 }
    }

    /// The allocation that holds `address`.
    pub(super) fn at(&self, address: usize) -> Option<&Allocation> {
        let (_, allocation) = self.live.range(..=address).next_back()?;
        (address - allocation.address < allocation.bytes).then_some(allocation)
    }

    /// The allocation that starts at `address`.
    pub(super) fn starting_at(&self, address: usize) -> Option<&Allocation> {
        self.live.get(&address)
    }

    pub(super) fn starting_at_mut(&mut self, address: usize) -> Option<&mut Allocation> {
        self.live.get_mut(&address)
    }

    /// Whether the `bytes` bytes from `address` lie within one allocation.
    pub(super) fn holds(&self, address: usize, bytes: usize) -> bool {
        self.at(address).is_some_and(|a| bytes <= a.bytes - (address - a.address))
    }

    /// As [`holds`](Self::holds), and the bytes are in use. A graph's memory is in use only between its
    /// allocation and its free in a launch.
    pub(super) fn holds_in_use(&self, address: usize, bytes: usize) -> bool {
        let in_use = self.at(address).is_some_and(|a| !matches!(a.kind, Kind::Pooled { freed: true, .. }));
        in_use && self.holds(address, bytes)
    }

    /// Whether an allocation overlaps `bytes` bytes from `address`.
    fn overlaps(&self, address: usize, bytes: usize) -> bool {
        let end = address.saturating_add(bytes);
        self.live.range(..end).next_back().is_some_and(|(_, a)| a.address + a.bytes > address)
    }

    /// Fills `bytes` bytes from `address` with poison, if they lie in one allocation that the driver owns.
    pub(super) fn poison(&mut self, address: usize, bytes: usize) {
        if self.holds(address, bytes) && self.at(address).is_some_and(|a| a.block.is_some()) {
            // SAFETY: the range lies in an allocation whose block the driver owns, and the state is locked.
            unsafe { (address as *mut u8).write_bytes(POISON, bytes) };
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.live.values()
    }

    fn quarantine(&mut self, block: Block) {
        self.freed_bytes += quarantined(&block);
        self.freed.push_back(block);
        while self.freed_bytes > QUARANTINE {
            let Some(oldest) = self.freed.pop_front() else { break };
            self.freed_bytes -= quarantined(&oldest);
        }
    }
}

impl Driver {
    /// Allocates `bytes` bytes in a context.
    ///
    /// # Errors
    /// `INVALID_VALUE` for 0 bytes; `OUT_OF_MEMORY` if the device or the machine has too little memory left.
    pub(super) fn allocate(&mut self, context: Handle, bytes: usize, kind: Kind) -> Outcome<usize> {
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        let device = self.contexts.get(context)?.device;
        let charged = if kind.counts_as_device_memory() { bytes } else { 0 };
        if charged > self.devices[device].memory - self.devices[device].used {
            return Err(code::OUT_OF_MEMORY);
        }
        let block = Block::new(bytes).ok_or(code::OUT_OF_MEMORY)?;
        self.devices[device].used += charged;
        let address = block.address();
        self.keep(Allocation {
            address,
            bytes,
            kind,
            context,
            device,
            id: 0,
            free_issued: false,
            block: Some(block),
            between: Between::No,
        });
        Ok(address)
    }

    pub(super) fn keep(&mut self, mut allocation: Allocation) {
        allocation.id = self.memory.next_id;
        self.memory.next_id += 1;
        let label = allocation.label();
        match allocation.kind {
            Kind::Device | Kind::Pooled { .. } => track_new(allocation.address, allocation.bytes, &label),
            // The program writes there as it likes.
            Kind::Pinned { .. } | Kind::Managed | Kind::Registered { .. } | Kind::Opened { .. } => {
                simt::memory::track(allocation.address as *const u8, allocation.bytes, &label)
            }
        }
        self.memory.live.insert(allocation.address, allocation);
    }

    /// Removes an allocation. Reports writes into its red zones as a fault of its context.
    ///
    /// # Errors
    /// `INVALID_VALUE` if no allocation starts at `address`; `ILLEGAL_ADDRESS` if a red zone was overwritten.
    pub(super) fn release(&mut self, address: usize) -> Outcome {
        let allocation = self.memory.live.remove(&address).ok_or(code::INVALID_VALUE)?;
        // This also removes blocks that were marked within the allocation.
        simt::memory::track(address as *const u8, allocation.bytes, &allocation.label());
        simt::memory::untrack(address as *const u8);
        if allocation.kind.counts_as_device_memory() {
            self.devices[allocation.device].used -= allocation.bytes;
        }
        let Some(block) = allocation.block else { return Ok(()) };
        let overwritten = block.overwritten(allocation.bytes);
        block.poison(allocation.bytes);
        self.memory.quarantine(block);
        let Some(offset) = overwritten else { return Ok(()) };
        let (id, bytes) = (allocation.id, allocation.bytes);
        self.fail(
            allocation.context,
            code::ILLEGAL_ADDRESS,
            format!(
                "out-of-bounds write: byte {offset} of allocation {id} ({bytes} bytes) was overwritten before it was freed\n  \
                 hint: run with IRONWARP_CHECK=1 and a dev build to have the line that wrote it"
            ),
        );
        Err(code::ILLEGAL_ADDRESS)
    }

    /// Releases all memory of a context.
    pub(super) fn free_all_of(&mut self, context: Handle) {
        let of_context = |a: &&Allocation| a.context == context;
        let addresses: Vec<usize> = self.memory.iter().filter(of_context).map(|a| a.address).collect();
        for address in addresses {
            // The context ends, so no caller receives the code of a fault. Its report is printed.
            let _ = self.release(address);
        }
    }

    /// Marks pooled memory as freed or in use again, and poisons it. The block stays in place.
    pub(super) fn set_pooled_free(&mut self, address: usize, now_free: bool) {
        let Some(allocation) = self.memory.starting_at_mut(address) else { return };
        if let Kind::Pooled { freed, .. } = &mut allocation.kind {
            *freed = now_free;
        }
        if let Some(block) = &allocation.block {
            block.poison(allocation.bytes);
        }
        if now_free {
            simt::memory::untrack(address as *const u8);
        } else {
            track_new(address, allocation.bytes, &allocation.label());
        }
    }

    /// Frees host memory after all work of its context that might use it.
    fn free_host(&mut self, address: usize, wanted: impl Fn(Kind) -> bool, otherwise: u32) -> Outcome {
        self.enter()?;
        let allocation = self.memory.starting_at(address).filter(|a| wanted(a.kind)).ok_or(otherwise)?;
        let context = allocation.context;
        self.drain_context(context)?;
        self.release(address)
    }

    fn free_device(&mut self, address: usize) -> Outcome {
        let current = self.enter()?;
        if address == 0 {
            return Ok(());
        }
        self.forbid_unsafe_while_capturing()?;
        let allocation = self.memory.starting_at(address).ok_or(code::INVALID_VALUE)?;
        let usable =
            matches!(allocation.kind, Kind::Device | Kind::Managed | Kind::Pooled { freed: false, .. });
        if !usable || allocation.free_issued {
            return Err(code::INVALID_VALUE);
        }
        let owner = allocation.context;
        // As on a GPU, memory is released only after all work that can use it.
        self.drain_context(current)?;
        self.drain_context(owner)?;
        self.release(address)
    }
}

api! {
    fn cuMemGetInfo_v2(driver, free: *mut usize, total: *mut usize) {
        let device = driver.current_device()?;
        let device = &driver.devices[device];
        put(free, device.memory - device.used)?;
        put(total, device.memory)
    }

    fn cuMemAlloc_v2(driver, out: *mut DevicePtr, bytes: usize) {
        let context = driver.enter()?;
        driver.forbid_unsafe_while_capturing()?;
        put(out, 0)?;
        let address = driver.allocate(context, bytes, Kind::Device)?;
        put(out, address as DevicePtr)
    }

    fn cuMemAllocPitch_v2(driver, out: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: c_uint) {
        let context = driver.enter()?;
        if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
            return Err(code::INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH_ALIGNMENT).ok_or(code::INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(code::OUT_OF_MEMORY)?;
        put(pitch, row)?;
        put(out, 0)?;
        let address = driver.allocate(context, bytes, Kind::Device)?;
        put(out, address as DevicePtr)
    }

    fn cuMemAllocManaged(driver, out: *mut DevicePtr, bytes: usize, flags: c_uint) {
        let context = driver.enter()?;
        if !matches!(flags, 1 | 2 | 4) {
            return Err(code::INVALID_VALUE);
        }
        put(out, 0)?;
        let address = driver.allocate(context, bytes, Kind::Managed)?;
        put(out, address as DevicePtr)
    }

    fn cuMemFree_v2(driver, address: DevicePtr) { driver.free_device(address as usize) }

    fn cuMemGetAddressRange_v2(driver, base: *mut DevicePtr, bytes: *mut usize, address: DevicePtr) {
        driver.enter()?;
        let allocation = driver.memory.at(address as usize).ok_or(code::NOT_FOUND)?;
        super::put_some(base, allocation.address as DevicePtr);
        super::put_some(bytes, allocation.bytes);
        Ok(())
    }

    fn cuMemAllocHost_v2(driver, out: *mut *mut c_void, bytes: usize) {
        let context = driver.enter()?;
        put(out, core::ptr::null_mut())?;
        let address = driver.allocate(context, bytes, Kind::Pinned { flags: 0 })?;
        put(out, address as *mut c_void)
    }

    fn cuMemHostAlloc(driver, out: *mut *mut c_void, bytes: usize, flags: c_uint) {
        let context = driver.enter()?;
        if flags & !7 != 0 {
            return Err(code::INVALID_VALUE);
        }
        put(out, core::ptr::null_mut())?;
        let address = driver.allocate(context, bytes, Kind::Pinned { flags })?;
        put(out, address as *mut c_void)
    }

    fn cuMemFreeHost(driver, address: *mut c_void) {
        driver.free_host(address as usize, |kind| matches!(kind, Kind::Pinned { .. }), code::INVALID_VALUE)
    }

    fn cuMemHostRegister_v2(driver, address: *mut c_void, bytes: usize, flags: c_uint) {
        let context = driver.enter()?;
        if address.is_null() || bytes == 0 || flags & !15 != 0 {
            return Err(code::INVALID_VALUE);
        }
        if driver.memory.overlaps(address as usize, bytes) {
            return Err(code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let device = driver.contexts.get(context)?.device;
        let kind = Kind::Registered { flags };
        driver.keep(Allocation { address: address as usize, bytes, kind, context, device, id: 0, free_issued: false, block: None, between: Between::No });
        Ok(())
    }

    fn cuMemHostUnregister(driver, address: *mut c_void) {
        let registered = |kind| matches!(kind, Kind::Registered { .. });
        driver.free_host(address as usize, registered, code::HOST_MEMORY_NOT_REGISTERED)
    }

    fn cuMemHostGetDevicePointer_v2(driver, out: *mut DevicePtr, address: *mut c_void, flags: c_uint) {
        driver.enter()?;
        let known = driver.memory.at(address as usize).is_some_and(|a| a.kind.is_host());
        if !known || flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        put(out, address as DevicePtr)
    }

    fn cuMemHostGetFlags(driver, out: *mut c_uint, address: *mut c_void) {
        driver.enter()?;
        match driver.memory.at(address as usize).map(|a| a.kind) {
            Some(Kind::Pinned { flags } | Kind::Registered { flags }) => put(out, flags),
            _ => Err(code::INVALID_VALUE),
        }
    }
}
