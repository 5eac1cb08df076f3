//! A failed allocation.

use std::fmt;

use arena::Bytes;

/// A failed allocation, with the holders of the device's memory. Sizes are in bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Ordinal of the device.
    pub device: u32,
    /// Asked for.
    pub requested: usize,
    /// The line of the program that asked.
    pub site: &'static std::panic::Location<'static>,
    /// Free on the device at that time.
    pub free: usize,
    /// The device's total.
    pub total: usize,
    /// Held for this process's present and later buffers.
    pub reserved: usize,
    /// In use by buffers.
    pub live: usize,
    /// The limit of `reserved`, if [`crate::Device::set_memory_limit`] has set one.
    pub limit: Option<usize>,
    /// The lines of the program whose buffers have most, the greatest first.
    pub holders: Vec<arena::Holder>,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &OutOfMemory { device, requested, site, free, total, reserved, live, .. } = self;
        let (file, line) = (site.file(), site.line());
        write!(
            f,
            "device {device} is out of memory: {} asked at {file}:{line}, {} of {} free; this process holds {}, {} of \
             them in use",
            Bytes(requested as u64),
            Bytes(free as u64),
            Bytes(total as u64),
            Bytes(reserved as u64),
            Bytes(live as u64)
        )?;
        if let Some(limit) = self.limit {
            write!(f, ", and may hold {}", Bytes(limit as u64))?;
        }
        for (place, holder) in self.holders.iter().enumerate() {
            f.write_str(if place == 0 { "\nmost of it by " } else { "\n           by " })?;
            holder.fmt(f)?;
        }
        f.write_str("\nhint: drop buffers that are no longer needed, or cut the problem into smaller pieces")
    }
}
