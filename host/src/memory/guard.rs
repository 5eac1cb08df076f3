//! Red zones: bytes around a block that must not be written. They are checked when the block is freed.
//!
//! ```text
//! block of the cache:  | zone | the buffer's bytes ... | zone ... |
//!                      ^ multiples of 512 bytes                   ^
//! ```
//! The buffer's bytes are NaN (0xff) before it is written and after it is freed, so a read that is too early
//! or too late shows.

use std::sync::PoisonError;

use crate::sys::CUdeviceptr;
use arena::Site;

use super::allocator::Lease;
use super::uses::Uses;
use crate::device::Device;
use crate::error::{Error, Overrun, Result};
use crate::raw;
use crate::stream::Stream;

/// Bytes before the buffer, and at least as many after it. They keep its address aligned like a block.
const ZONE: usize = arena::GRANULE as usize;
const ZONE_BYTE: u8 = 0xbd;
/// NaN in every floating-point format.
const POISON: u8 = 0xff;

/// The size of a block for `bytes` bytes on the software driver. Under its checker the rest of the block is
/// no memory: as many bytes as the buffer has, within limits. An index up to twice too large is found there,
/// before it meets the next buffer.
pub(super) fn apart(bytes: usize) -> u64 {
    const MOST: usize = 1 << 20;
    let gap = if driver::soft::checks() { bytes.clamp(ZONE, MOST) } else { 0 };
    (bytes as u64).saturating_add(gap as u64)
}

/// The red zones of one buffer.
pub(super) struct Guard {
    bytes: usize,
    site: Site,
}

impl Guard {
    /// The size of a block for `bytes` bytes and their zones.
    pub fn padded(bytes: usize) -> u64 {
        (bytes as u64).saturating_add(2 * ZONE as u64)
    }

    /// Queues the filling of the block; returns where the buffer begins.
    pub fn set(stream: &Stream, lease: &Lease, bytes: usize, site: Site) -> Result<(CUdeviceptr, Guard)> {
        let begin = lease.address() + ZONE as CUdeviceptr;
        let fill = |address: CUdeviceptr, value: u8, bytes: usize| {
            // SAFETY: the three ranges lie in the block, which has no other user.
            stream.call(|stream| unsafe { raw::memset_d8_async(address, value, bytes, stream) })
        };
        fill(lease.address(), ZONE_BYTE, ZONE)?;
        fill(begin, POISON, bytes)?;
        fill(begin + bytes as CUdeviceptr, ZONE_BYTE, ZONE)?;
        Ok((begin, Guard { bytes, site }))
    }

    /// Checks the zones after all work on the buffer, and poisons it. An overrun is printed and kept for
    /// [`Device::check_memory`]. If the check itself fails, it is skipped: the next use of the device meets
    /// the error.
    pub fn check(&self, address: CUdeviceptr, uses: &Uses) {
        let device = uses.home().device();
        if device.captures().any() {
            return;
        }
        let Ok(Some(offset)) = self.overwritten(device, address, uses) else { return };
        let site = format!("{}:{}", self.site.file(), self.site.line());
        let found = Overrun { site, bytes: self.bytes, offset };
        driver::note(format_args!("ironwarp: {found}"));
        let mut kept = device.allocator().overrun.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(found);
    }

    /// The offset of the first overwritten byte of the zones from the buffer's first byte.
    fn overwritten(&self, device: &Device, address: CUdeviceptr, uses: &Uses) -> Result<Option<isize>> {
        uses.wait()?;
        let mut before = [0u8; ZONE];
        let mut after = [0u8; ZONE];
        // SAFETY: zones of ZONE bytes lie on both sides, nothing runs on them, and a synchronous copy is done
        // when it returns.
        device.call(|| unsafe {
            raw::memcpy_dtoh(before.as_mut_ptr().cast(), address - ZONE as CUdeviceptr, ZONE)?;
            raw::memcpy_dtoh(after.as_mut_ptr().cast(), address + self.bytes as CUdeviceptr, ZONE)
        })?;
        let writer = uses.writer();
        // SAFETY: the buffer is still allocated; the wait makes it safe to give the block to any stream.
        writer.call(|stream| unsafe {
            raw::memset_d8_async(address, POISON, self.bytes, stream)?;
            raw::stream_synchronize(stream)
        })?;
        let wrong = |zone: &[u8]| zone.iter().position(|&byte| byte != ZONE_BYTE);
        let before = wrong(&before).map(|place| place as isize - ZONE as isize);
        Ok(before.or_else(|| wrong(&after).map(|place| (self.bytes + place) as isize)))
    }
}

impl Device {
    /// With `IRONWARP_ALLOCATOR_DEBUG=1`: checks that no byte beside a buffer was written. An overrun is
    /// found when the buffer is freed, and reported once.
    ///
    /// # Errors
    /// [`Error::Overrun`].
    pub fn check_memory(&self) -> Result<()> {
        let found = self.allocator().overrun.lock().unwrap_or_else(PoisonError::into_inner).take();
        found.map_or(Ok(()), |overrun| Err(Error::Overrun(Box::new(overrun))))
    }
}
