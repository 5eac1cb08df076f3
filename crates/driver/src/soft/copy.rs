//! Copies and fills.
//!
//! Host memory follows CUDA's rules. A copy to or from page-locked memory happens when its stream reaches it.
//! A copy from pageable memory reads the bytes at the call. A copy to pageable memory returns when it is
//! done.

use super::{
    abi::{Copy2d, Copy3d, DevicePtr, memory_type},
    api,
    handle::Handle,
    queue::{Command, Work},
    state::{Driver, Outcome},
    take,
};
use crate::code;
use core::ffi::{c_uint, c_void};
use std::sync::Arc;

/// The kind of memory at one end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Host memory of the program.
    Host,
    /// Memory that the driver allocated.
    Device,
}

/// The time at which a piece of work is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// At the call: memory must have been allocated.
    Issue,
    /// When its stream reaches it: memory must be in use.
    Run,
}

/// A box of bytes in memory: rows of `pitch` bytes, slices of `slice` bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub side: Side,
    pub address: usize,
    pub pitch: usize,
    pub slice: usize,
}

/// A copy. `extent` is bytes per row, rows, slices.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub from: Region,
    pub to: Region,
    pub extent: [usize; 3],
    /// The source's bytes, row by row, read at the call.
    pub staged: Option<Arc<[u8]>>,
}

/// Rows of equal elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub address: usize,
    pub pitch: usize,
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: usize,
    /// Elements per row.
    pub width: usize,
    pub height: usize,
}

impl Region {
    fn line(side: Side, address: usize) -> Region {
        Region { side, address, pitch: 0, slice: 0 }
    }

    fn row(&self, y: usize, z: usize) -> usize {
        self.address + z * self.slice + y * self.pitch
    }

    /// Bytes from the first to the end of the last.
    fn span(&self, [width, height, depth]: [usize; 3]) -> Option<usize> {
        let rows = self.pitch.checked_mul(height.checked_sub(1)?)?;
        self.slice.checked_mul(depth.checked_sub(1)?)?.checked_add(rows)?.checked_add(width)
    }
}

impl Transfer {
    pub(super) fn linear(from: (Side, usize), to: (Side, usize), bytes: usize) -> Transfer {
        let (from, to) = (Region::line(from.0, from.1), Region::line(to.0, to.1));
        Transfer { from, to, extent: [bytes, 1, 1], staged: None }
    }

    fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        let [_, height, depth] = self.extent;
        (0..depth).flat_map(move |z| (0..height).map(move |y| (y, z)))
    }

    /// Reads the source's bytes now.
    ///
    /// # Safety
    /// The source is readable.
    unsafe fn stage(&mut self) {
        let width = self.extent[0];
        let mut bytes = Vec::with_capacity(self.extent.iter().product());
        for (y, z) in self.rows() {
            // SAFETY: a row of the source, readable by this function's contract.
            bytes.extend_from_slice(unsafe {
                core::slice::from_raw_parts(self.from.row(y, z) as *const u8, width)
            });
        }
        self.staged = Some(bytes.into());
    }
}

impl Driver {
    /// Checks one end of a copy against the allocations.
    fn check_region(&self, region: &Region, extent: [usize; 3], moment: Moment) -> Outcome {
        let span = region.span(extent).ok_or(code::INVALID_VALUE)?;
        let known = self.memory.at(region.address);
        let held = match moment {
            Moment::Issue => self.memory.holds(region.address, span),
            Moment::Run => self.memory.holds_in_use(region.address, span),
        };
        match (region.side, known) {
            (Side::Host, None) if region.address != 0 && region.address.checked_add(span).is_some() => Ok(()),
            (_, Some(_)) if held => Ok(()),
            _ => Err(code::INVALID_VALUE),
        }
    }

    pub(super) fn check_transfer(&self, transfer: &Transfer, moment: Moment) -> Outcome {
        if transfer.is_empty() {
            return Ok(());
        }
        let too_narrow = |r: &Region| transfer.extent[1] > 1 && r.pitch < transfer.extent[0];
        if too_narrow(&transfer.from) || too_narrow(&transfer.to) {
            return Err(code::INVALID_VALUE);
        }
        self.check_region(&transfer.from, transfer.extent, moment)?;
        self.check_region(&transfer.to, transfer.extent, moment)
    }

    fn is_pageable(&self, region: &Region) -> bool {
        region.side == Side::Host && self.memory.at(region.address).is_none()
    }

    /// A synchronous copy in the legacy stream.
    fn copy_now(&mut self, transfer: Transfer) -> Outcome {
        let context = self.enter()?;
        self.check_transfer(&transfer, Moment::Issue)?;
        self.forbid_unsafe_while_capturing()?;
        let legacy = self.contexts.get(context)?.legacy;
        let legacy = self.uncaptured(legacy)?;
        self.push(legacy, Work::Do(Command::Copy(transfer)))?;
        self.drain(legacy)
    }

    /// A copy in a stream.
    ///
    /// # Safety
    /// Host memory is readable or writable as CUDA asks.
    unsafe fn copy_in_stream(&mut self, mut transfer: Transfer, stream: usize) -> Outcome {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        self.check_transfer(&transfer, Moment::Issue)?;
        if transfer.is_empty() {
            return Ok(());
        }
        let captured = self.capturing(stream)?.is_some();
        let waits = !captured && self.is_pageable(&transfer.to);
        if !captured && self.is_pageable(&transfer.from) {
            // SAFETY: the source is readable by this function's contract.
            unsafe { transfer.stage() };
        }
        self.issue(stream, Command::Copy(transfer))?;
        if waits { self.drain(stream) } else { Ok(()) }
    }

    /// Checks again that both ends exist, then copies.
    pub(super) fn transfer(&mut self, transfer: &Transfer) -> Result<(), (u32, String)> {
        if transfer.is_empty() {
            return Ok(());
        }
        let mut checked = transfer.clone();
        if let Some(bytes) = &transfer.staged {
            let [width, height, _] = transfer.extent;
            checked.from = Region {
                side: Side::Host,
                address: bytes.as_ptr() as usize,
                pitch: width,
                slice: width * height,
            };
        }
        if self.check_transfer(&checked, Moment::Run).is_err() {
            let [width, height, depth] = transfer.extent;
            return Err((
                code::ILLEGAL_ADDRESS,
                format!(
                    "a copy of {width} x {height} x {depth} bytes from {:#x} to {:#x} ran after one of them was freed\n  \
                     hint: keep memory until the stream has done the copy",
                    transfer.from.address, transfer.to.address
                ),
            ));
        }
        for (y, z) in checked.rows() {
            let (from, to) = (checked.from.row(y, z) as *const u8, checked.to.row(y, z) as *mut u8);
            // SAFETY: device ends lie in live allocations (checked above); host ends are the caller's
            // promise.
            unsafe { core::ptr::copy(from, to, checked.extent[0]) };
            simt::memory::copied(to.cast_const(), from, checked.extent[0]);
        }
        Ok(())
    }

    pub(super) fn check_fill(&self, fill: &Fill, moment: Moment) -> Outcome {
        let row = fill.width.checked_mul(fill.element).ok_or(code::INVALID_VALUE)?;
        if row == 0 || fill.height == 0 {
            return Ok(());
        }
        let aligned = fill.address.is_multiple_of(fill.element) && fill.pitch.is_multiple_of(fill.element);
        if !aligned || (fill.height > 1 && fill.pitch < row) {
            return Err(code::INVALID_VALUE);
        }
        let region = Region { side: Side::Device, address: fill.address, pitch: fill.pitch, slice: 0 };
        self.check_region(&region, [row, fill.height, 1], moment)
    }

    pub(super) fn fill(&mut self, fill: &Fill) -> Result<(), (u32, String)> {
        if self.check_fill(fill, Moment::Run).is_err() {
            return Err((
                code::ILLEGAL_ADDRESS,
                format!(
                    "a fill of {:#x} ran after the memory was freed\n  hint: keep memory until the stream has done the fill",
                    fill.address
                ),
            ));
        }
        for y in 0..fill.height {
            let row = fill.address + y * fill.pitch;
            // SAFETY: the rows lie in a live allocation and are aligned to the element (checked above).
            unsafe {
                match fill.element {
                    1 => (row as *mut u8).write_bytes(fill.value as u8, fill.width),
                    2 => core::slice::from_raw_parts_mut(row as *mut u16, fill.width).fill(fill.value as u16),
                    _ => core::slice::from_raw_parts_mut(row as *mut u32, fill.width).fill(fill.value),
                }
            }
            simt::memory::written(row as *const u8, fill.width * fill.element);
        }
        Ok(())
    }

    fn fill_in_stream(&mut self, fill: Fill, stream: usize) -> Outcome {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        self.check_fill(&fill, Moment::Issue)?;
        self.issue(stream, Command::Fill(fill))
    }

    /// A fill in the legacy stream. As on a GPU it does not wait; the next copy in that stream is ordered
    /// after it.
    fn fill_now(&mut self, fill: Fill) -> Outcome {
        self.forbid_unsafe_while_capturing()?;
        self.fill_in_stream(fill, 0)
    }

    /// One end of a 2D or 3D copy.
    fn side(&self, kind: u32, host: usize, device: DevicePtr) -> Outcome<(Side, usize)> {
        match kind {
            memory_type::HOST => Ok((Side::Host, host)),
            memory_type::DEVICE => Ok((Side::Device, device as usize)),
            memory_type::UNIFIED => Ok(self.unified(device)),
            memory_type::ARRAY => Err(code::NOT_SUPPORTED),
            _ => Err(code::INVALID_VALUE),
        }
    }

    /// The side of an address in the unified address space.
    fn unified(&self, address: DevicePtr) -> (Side, usize) {
        let address = address as usize;
        match self.memory.at(address) {
            Some(a) if !a.kind.is_host() => (Side::Device, address),
            _ => (Side::Host, address),
        }
    }

    pub(super) fn plan_2d(&self, c: &Copy2d) -> Outcome<Transfer> {
        let end = |(side, base): (Side, usize), x: usize, y: usize, pitch: usize| -> Option<Region> {
            let pitch = if pitch == 0 { c.width } else { pitch };
            let address = base.checked_add(y.checked_mul(pitch)?)?.checked_add(x)?;
            Some(Region { side, address, pitch, slice: 0 })
        };
        let from = self.side(c.src_type, c.src_host as usize, c.src_device)?;
        let to = self.side(c.dst_type, c.dst_host as usize, c.dst_device)?;
        Ok(Transfer {
            from: end(from, c.src_x, c.src_y, c.src_pitch).ok_or(code::INVALID_VALUE)?,
            to: end(to, c.dst_x, c.dst_y, c.dst_pitch).ok_or(code::INVALID_VALUE)?,
            extent: [c.width, c.height, 1],
            staged: None,
        })
    }

    pub(super) fn plan_3d(&self, c: &Copy3d) -> Outcome<Transfer> {
        let end = |(side, base): (Side, usize),
                   [x, y, z]: [usize; 3],
                   pitch: usize,
                   height: usize|
         -> Option<Region> {
            let pitch = if pitch == 0 { c.width } else { pitch };
            let slice = pitch.checked_mul(if height == 0 { c.height } else { height })?;
            let offset = z.checked_mul(slice)?.checked_add(y.checked_mul(pitch)?)?.checked_add(x)?;
            Some(Region { side, address: base.checked_add(offset)?, pitch, slice })
        };
        let from = self.side(c.src_type, c.src_host as usize, c.src_device)?;
        let to = self.side(c.dst_type, c.dst_host as usize, c.dst_device)?;
        Ok(Transfer {
            from: end(from, [c.src_x, c.src_y, c.src_z], c.src_pitch, c.src_height)
                .ok_or(code::INVALID_VALUE)?,
            to: end(to, [c.dst_x, c.dst_y, c.dst_z], c.dst_pitch, c.dst_height).ok_or(code::INVALID_VALUE)?,
            extent: [c.width, c.height, c.depth],
            staged: None,
        })
    }
}

fn device(address: DevicePtr) -> (Side, usize) {
    (Side::Device, address as usize)
}

fn host<T>(address: *const T) -> (Side, usize) {
    (Side::Host, address as usize)
}

fn line(address: DevicePtr, element: usize, value: u32, width: usize) -> Fill {
    Fill { address: address as usize, pitch: 0, value, element, width, height: 1 }
}

fn rows(address: DevicePtr, pitch: usize, element: usize, value: u32, [width, height]: [usize; 2]) -> Fill {
    Fill { address: address as usize, pitch, value, element, width, height }
}

api! {
    fn cuMemcpy(driver, to: DevicePtr, from: DevicePtr, bytes: usize) {
        let transfer = Transfer::linear(driver.unified(from), driver.unified(to), bytes);
        driver.copy_now(transfer)
    }

    fn cuMemcpyAsync(driver, to: DevicePtr, from: DevicePtr, bytes: usize, stream: usize) {
        let transfer = Transfer::linear(driver.unified(from), driver.unified(to), bytes);
        driver.copy_in_stream(transfer, stream)
    }

    fn cuMemcpyHtoD_v2(driver, to: DevicePtr, from: *const c_void, bytes: usize) {
        driver.copy_now(Transfer::linear(host(from), device(to), bytes))
    }

    fn cuMemcpyHtoDAsync_v2(driver, to: DevicePtr, from: *const c_void, bytes: usize, stream: usize) {
        driver.copy_in_stream(Transfer::linear(host(from), device(to), bytes), stream)
    }

    fn cuMemcpyDtoH_v2(driver, to: *mut c_void, from: DevicePtr, bytes: usize) {
        driver.copy_now(Transfer::linear(device(from), host(to), bytes))
    }

    fn cuMemcpyDtoHAsync_v2(driver, to: *mut c_void, from: DevicePtr, bytes: usize, stream: usize) {
        driver.copy_in_stream(Transfer::linear(device(from), host(to), bytes), stream)
    }

    fn cuMemcpyDtoD_v2(driver, to: DevicePtr, from: DevicePtr, bytes: usize) {
        driver.copy_now(Transfer::linear(device(from), device(to), bytes))
    }

    fn cuMemcpyDtoDAsync_v2(driver, to: DevicePtr, from: DevicePtr, bytes: usize, stream: usize) {
        driver.copy_in_stream(Transfer::linear(device(from), device(to), bytes), stream)
    }

    fn cuMemcpyPeer(driver, to: DevicePtr, to_context: Handle, from: DevicePtr, from_context: Handle, bytes: usize) {
        driver.sound(to_context)?;
        driver.sound(from_context)?;
        driver.copy_now(Transfer::linear(device(from), device(to), bytes))
    }

    fn cuMemcpyPeerAsync(driver, to: DevicePtr, to_context: Handle, from: DevicePtr, from_context: Handle, bytes: usize, stream: usize) {
        driver.sound(to_context)?;
        driver.sound(from_context)?;
        driver.copy_in_stream(Transfer::linear(device(from), device(to), bytes), stream)
    }

    fn cuMemcpy2D_v2(driver, copy: *const Copy2d) {
        let transfer = driver.plan_2d(&take(copy)?)?;
        driver.copy_now(transfer)
    }

    fn cuMemcpy2DUnaligned_v2(driver, copy: *const Copy2d) {
        let transfer = driver.plan_2d(&take(copy)?)?;
        driver.copy_now(transfer)
    }

    fn cuMemcpy2DAsync_v2(driver, copy: *const Copy2d, stream: usize) {
        let transfer = driver.plan_2d(&take(copy)?)?;
        driver.copy_in_stream(transfer, stream)
    }

    fn cuMemcpy3D_v2(driver, copy: *const Copy3d) {
        let transfer = driver.plan_3d(&take(copy)?)?;
        driver.copy_now(transfer)
    }

    fn cuMemcpy3DAsync_v2(driver, copy: *const Copy3d, stream: usize) {
        let transfer = driver.plan_3d(&take(copy)?)?;
        driver.copy_in_stream(transfer, stream)
    }

    fn cuMemsetD8_v2(driver, to: DevicePtr, value: u8, count: usize) { driver.fill_now(line(to, 1, value.into(), count)) }

    fn cuMemsetD16_v2(driver, to: DevicePtr, value: u16, count: usize) { driver.fill_now(line(to, 2, value.into(), count)) }

    fn cuMemsetD32_v2(driver, to: DevicePtr, value: c_uint, count: usize) { driver.fill_now(line(to, 4, value, count)) }

    fn cuMemsetD8Async(driver, to: DevicePtr, value: u8, count: usize, stream: usize) {
        driver.fill_in_stream(line(to, 1, value.into(), count), stream)
    }

    fn cuMemsetD16Async(driver, to: DevicePtr, value: u16, count: usize, stream: usize) {
        driver.fill_in_stream(line(to, 2, value.into(), count), stream)
    }

    fn cuMemsetD32Async(driver, to: DevicePtr, value: c_uint, count: usize, stream: usize) {
        driver.fill_in_stream(line(to, 4, value, count), stream)
    }

    fn cuMemsetD2D8_v2(driver, to: DevicePtr, pitch: usize, value: u8, width: usize, height: usize) {
        driver.fill_now(rows(to, pitch, 1, value.into(), [width, height]))
    }

    fn cuMemsetD2D16_v2(driver, to: DevicePtr, pitch: usize, value: u16, width: usize, height: usize) {
        driver.fill_now(rows(to, pitch, 2, value.into(), [width, height]))
    }

    fn cuMemsetD2D32_v2(driver, to: DevicePtr, pitch: usize, value: c_uint, width: usize, height: usize) {
        driver.fill_now(rows(to, pitch, 4, value, [width, height]))
    }

    fn cuMemsetD2D8Async(driver, to: DevicePtr, pitch: usize, value: u8, width: usize, height: usize, stream: usize) {
        driver.fill_in_stream(rows(to, pitch, 1, value.into(), [width, height]), stream)
    }

    fn cuMemsetD2D16Async(driver, to: DevicePtr, pitch: usize, value: u16, width: usize, height: usize, stream: usize) {
        driver.fill_in_stream(rows(to, pitch, 2, value.into(), [width, height]), stream)
    }

    fn cuMemsetD2D32Async(driver, to: DevicePtr, pitch: usize, value: c_uint, width: usize, height: usize, stream: usize) {
        driver.fill_in_stream(rows(to, pitch, 4, value, [width, height]), stream)
    }
}
