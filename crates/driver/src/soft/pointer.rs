//! Pointer attributes, and advice about managed memory.

use super::{
    abi::{DevicePtr, memory_type},
    api,
    memory::Kind,
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::{c_int, c_uint, c_void};

/// `CU_DEVICE_CPU`.
const CPU: c_int = -1;
/// `CU_MEM_ADVISE_*` goes from 1 to 6.
const ADVICE: core::ops::RangeInclusive<u32> = 1..=6;

impl Driver {
    /// Writes attribute `number` of `address` to `out`.
    ///
    /// # Safety
    /// `out` is valid for a write of the type that CUDA documents for the attribute.
    unsafe fn pointer_attribute(&self, out: *mut c_void, number: u32, address: usize) -> Outcome {
        let allocation = self.memory.at(address).ok_or(code::INVALID_VALUE)?;
        let kind = if allocation.kind.is_host() { memory_type::HOST } else { memory_type::DEVICE };
        let managed = allocation.kind == Kind::Managed;
        let pool = if let Kind::Pooled { pool, .. } = allocation.kind { pool } else { 0 };
        // SAFETY: `out` is valid for the type that CUDA documents for each attribute, by this function's
        // contract.
        unsafe {
            match number {
                1 => out.cast::<usize>().write(allocation.context),
                2 => out.cast::<u32>().write(kind),
                3 => out.cast::<DevicePtr>().write(address as DevicePtr),
                4 if allocation.kind.is_host() || managed => out.cast::<usize>().write(address),
                6 | 10 | 15 => out.cast::<c_uint>().write(0),
                7 => out.cast::<u64>().write(allocation.id),
                8 => out.cast::<c_uint>().write(c_uint::from(managed)),
                9 => out.cast::<c_int>().write(allocation.device as c_int),
                11 => out.cast::<DevicePtr>().write(allocation.address as DevicePtr),
                12 => out.cast::<usize>().write(allocation.bytes),
                13 => out.cast::<c_uint>().write(1),
                14 => out.cast::<u64>().write(0),
                16 => out.cast::<c_uint>().write(3), // readable and writable
                17 => out.cast::<usize>().write(pool),
                _ => return Err(code::INVALID_VALUE),
            }
        }
        Ok(())
    }
}

api! {
    fn cuPointerGetAttribute(driver, out: *mut c_void, number: u32, address: DevicePtr) {
        if out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        driver.pointer_attribute(out, number, address as usize)
    }

    fn cuPointerGetAttributes(driver, count: c_uint, numbers: *const u32, out: *const *mut c_void, address: DevicePtr) {
        if count == 0 || numbers.is_null() || out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        for i in 0..count as usize {
            let (number, to) = (*numbers.add(i), *out.add(i));
            if to.is_null() {
                return Err(code::INVALID_VALUE);
            }
            // For unknown memory this function returns zeros, unlike the singular one.
            if driver.pointer_attribute(to, number, address as usize).is_err() {
                match number {
                    2 | 6 | 8 | 10 | 13 | 15 | 16 => to.cast::<c_uint>().write(0),
                    9 => to.cast::<c_int>().write(-2),
                    _ => to.cast::<u64>().write(0),
                }
            }
        }
        Ok(())
    }

    fn cuMemAdvise(driver, address: DevicePtr, bytes: usize, advice: u32, device: c_int) {
        driver.enter()?;
        driver.managed(address, bytes)?;
        if !ADVICE.contains(&advice) {
            return Err(code::INVALID_VALUE);
        }
        driver.processor(device)
    }

    fn cuMemPrefetchAsync(driver, address: DevicePtr, bytes: usize, device: c_int, stream: usize) {
        let context = driver.enter()?;
        driver.stream(stream, context)?;
        driver.managed(address, bytes)?;
        driver.processor(device)
    }
}

impl Driver {
    fn managed(&self, address: DevicePtr, bytes: usize) -> Outcome {
        let address = address as usize;
        let managed = self.memory.at(address).is_some_and(|a| a.kind == Kind::Managed);
        if managed && self.memory.holds(address, bytes) { Ok(()) } else { Err(code::INVALID_VALUE) }
    }

    fn processor(&self, device: c_int) -> Outcome {
        if device == CPU { Ok(()) } else { self.ordinal(device).map(|_| ()) }
    }
}
