//! Memory pools and stream-ordered allocation.
//!
//! A pool caches nothing: freed memory returns to the device when its stream reaches the free.

use super::{
    abi::{ALLOCATION_PINNED, AccessDescription, DevicePtr, LOCATION_DEVICE, Location, PoolProperties},
    api,
    handle::Handle,
    memory::Kind,
    put,
    queue::{Command, Work},
    state::{Driver, Outcome},
    take,
};
use crate::code;
use core::ffi::{c_int, c_void};

/// `CU_MEMPOOL_ATTR_*`.
mod attribute {
    pub(crate) const FIRST_REUSE: u32 = 1;
    pub(crate) const LAST_REUSE: u32 = 3;
    pub(crate) const RELEASE_THRESHOLD: u32 = 4;
    pub(crate) const RESERVED_CURRENT: u32 = 5;
    pub(crate) const RESERVED_HIGH: u32 = 6;
    pub(crate) const USED_CURRENT: u32 = 7;
    pub(crate) const USED_HIGH: u32 = 8;
}

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_AND_WRITE: u32 = 3;

pub(super) struct Pool {
    device: usize,
    /// Whether this is the device's own pool, which cannot be destroyed.
    of_device: bool,
    reuse: [c_int; 3],
    release_threshold: u64,
    high: u64,
}

impl Pool {
    fn new(device: usize) -> Pool {
        Pool { device, of_device: false, reuse: [1; 3], release_threshold: 0, high: 0 }
    }

    pub(super) fn of_device(device: usize) -> Pool {
        Pool { of_device: true, ..Pool::new(device) }
    }
}

impl Driver {
    fn used_of(&self, pool: Handle) -> u64 {
        let of_pool = |kind| matches!(kind, Kind::Pooled { pool: p, .. } if p == pool);
        self.memory.iter().filter(|a| of_pool(a.kind)).map(|a| a.bytes as u64).sum()
    }

    fn pool_allocate(&mut self, bytes: usize, pool: Option<Handle>, stream: usize) -> Outcome<usize> {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        let owner = self.streams.get(stream)?.context;
        let device = self.contexts.get(owner)?.device;
        let pool = pool.unwrap_or(self.devices[device].pool);
        if self.pools.get(pool).map_err(|_| code::INVALID_VALUE)?.device != device {
            return Err(code::INVALID_VALUE);
        }
        let capture = self.capturing(stream)?;
        let kind = Kind::Pooled { pool, freed: false };
        let address = match self.allocate(owner, bytes, kind) {
            // Frees that are still queued in streams may release enough memory.
            Err(code::OUT_OF_MEMORY) if capture.is_none() => {
                self.drain_context(owner)?;
                self.allocate(owner, bytes, kind)?
            }
            other => other?,
        };
        let used = self.used_of(pool);
        let pool = self.pools.get_mut(pool)?;
        pool.high = pool.high.max(used);
        if let Some(capture) = capture {
            self.set_pooled_free(address, true);
            self.capture_command(capture, stream, Command::Obtain(address))?;
            self.own_by_capture(capture, address)?;
        }
        Ok(address)
    }

    fn pool_free(&mut self, address: usize, stream: usize) -> Outcome {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        if let Some(capture) = self.capturing(stream)? {
            if !self.is_owned_by_capture(capture, address)? {
                return Err(code::INVALID_VALUE);
            }
            return self.capture_command(capture, stream, Command::Relinquish(address));
        }
        let allocation = self.memory.starting_at_mut(address).ok_or(code::INVALID_VALUE)?;
        if allocation.free_issued || !matches!(allocation.kind, Kind::Pooled { freed: false, .. }) {
            return Err(code::INVALID_VALUE);
        }
        allocation.free_issued = true;
        self.push(stream, Work::FreePooled(address)).map(|_| ())
    }

    /// # Safety
    /// `out` is null or valid for the attribute's type.
    unsafe fn pool_attribute(&self, pool: Handle, number: u32, out: *mut c_void) -> Outcome {
        let p = self.pools.get(pool).map_err(|_| code::INVALID_VALUE)?;
        let value = match number {
            attribute::FIRST_REUSE..=attribute::LAST_REUSE => {
                let value = p.reuse[(number - attribute::FIRST_REUSE) as usize];
                // SAFETY: this function's contract; the reuse attributes are C ints.
                return unsafe { put(out.cast::<c_int>(), value) };
            }
            attribute::RELEASE_THRESHOLD => p.release_threshold,
            attribute::RESERVED_CURRENT | attribute::USED_CURRENT => self.used_of(pool),
            attribute::RESERVED_HIGH | attribute::USED_HIGH => p.high,
            _ => return Err(code::INVALID_VALUE),
        };
        // SAFETY: this function's contract; the others are 64 bits.
        unsafe { put(out.cast::<u64>(), value) }
    }

    /// # Safety
    /// `value` is null or valid for a read of the attribute's type.
    unsafe fn set_pool_attribute(&mut self, pool: Handle, number: u32, value: *const c_void) -> Outcome {
        let used = self.used_of(pool);
        let p = self.pools.get_mut(pool).map_err(|_| code::INVALID_VALUE)?;
        // SAFETY: this function's contract; the reuse attributes are C ints, the others 64 bits.
        unsafe {
            match number {
                attribute::FIRST_REUSE..=attribute::LAST_REUSE => {
                    p.reuse[(number - attribute::FIRST_REUSE) as usize] = take(value.cast::<c_int>())?;
                }
                attribute::RELEASE_THRESHOLD => p.release_threshold = take(value.cast::<u64>())?,
                // A high-water mark can only be reset to the current use.
                attribute::RESERVED_HIGH | attribute::USED_HIGH if take(value.cast::<u64>())? == 0 => {
                    p.high = used
                }
                _ => return Err(code::INVALID_VALUE),
            }
        }
        Ok(())
    }
}

api! {
    fn cuDeviceGetDefaultMemPool(driver, out: *mut Handle, device: c_int) {
        let device = driver.ordinal(device)?;
        put(out, driver.devices[device].default_pool)
    }

    fn cuDeviceGetMemPool(driver, out: *mut Handle, device: c_int) {
        let device = driver.ordinal(device)?;
        put(out, driver.devices[device].pool)
    }

    fn cuDeviceSetMemPool(driver, device: c_int, pool: Handle) {
        let device = driver.ordinal(device)?;
        if driver.pools.get(pool).map_err(|_| code::INVALID_VALUE)?.device != device {
            return Err(code::INVALID_VALUE);
        }
        driver.devices[device].pool = pool;
        Ok(())
    }

    fn cuMemPoolCreate(driver, out: *mut Handle, properties: *const PoolProperties) {
        let PoolProperties { allocation, handle_types, location, .. } = take(properties)?;
        if allocation != ALLOCATION_PINNED || location.kind != LOCATION_DEVICE || out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        if handle_types != 0 {
            return Err(code::NOT_SUPPORTED); // sharing between processes
        }
        let device = driver.ordinal(location.id).map_err(|_| code::INVALID_VALUE)?;
        let pool = driver.pools.insert(Pool::new(device));
        put(out, pool)
    }

    fn cuMemPoolDestroy(driver, pool: Handle) {
        if driver.pools.get(pool).map_err(|_| code::INVALID_VALUE)?.of_device {
            return Err(code::INVALID_VALUE);
        }
        driver.pools.remove(pool)?;
        for device in &mut driver.devices {
            if device.pool == pool {
                device.pool = device.default_pool;
            }
        }
        Ok(())
    }

    fn cuMemPoolTrimTo(driver, pool: Handle, _keep: usize) {
        driver.pools.get(pool).map_err(|_| code::INVALID_VALUE)?;
        Ok(())
    }

    fn cuMemPoolGetAttribute(driver, pool: Handle, number: u32, out: *mut c_void) { driver.pool_attribute(pool, number, out) }

    fn cuMemPoolSetAttribute(driver, pool: Handle, number: u32, value: *mut c_void) {
        driver.set_pool_attribute(pool, number, value)
    }

    fn cuMemPoolSetAccess(driver, pool: Handle, list: *const AccessDescription, count: usize) {
        driver.pools.get(pool).map_err(|_| code::INVALID_VALUE)?;
        for i in 0..count {
            let Location { kind, id } = take(list.wrapping_add(i))?.location;
            if kind != LOCATION_DEVICE || driver.ordinal(id).is_err() {
                return Err(code::INVALID_VALUE);
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(driver, out: *mut u32, pool: Handle, location: *mut Location) {
        driver.pools.get(pool).map_err(|_| code::INVALID_VALUE)?;
        driver.ordinal(take(location)?.id).map_err(|_| code::INVALID_VALUE)?;
        put(out, READ_AND_WRITE)
    }

    fn cuMemAllocAsync(driver, out: *mut DevicePtr, bytes: usize, stream: usize) {
        put(out, 0)?;
        let address = driver.pool_allocate(bytes, None, stream)?;
        put(out, address as DevicePtr)
    }

    fn cuMemAllocFromPoolAsync(driver, out: *mut DevicePtr, bytes: usize, pool: Handle, stream: usize) {
        put(out, 0)?;
        let address = driver.pool_allocate(bytes, Some(pool), stream)?;
        put(out, address as DevicePtr)
    }

    fn cuMemFreeAsync(driver, address: DevicePtr, stream: usize) { driver.pool_free(address as usize, stream) }
}
