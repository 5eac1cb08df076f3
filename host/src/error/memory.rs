//! A failed allocation.

use std::fmt;

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
            Size(requested),
            Size(free),
            Size(total),
            Size(reserved),
            Size(live)
        )?;
        if let Some(limit) = self.limit {
            write!(f, ", and may hold {}", Size(limit))?;
        }
        for (place, holder) in self.holders.iter().enumerate() {
            f.write_str(if place == 0 { "\nmost of it by " } else { "\n           by " })?;
            holder.fmt(f)?;
        }
        f.write_str("\nhint: drop buffers that are no longer needed, or cut the problem into smaller pieces")
    }
}

/// Bytes, in the unit that people count so many in.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(bits, _)| self.0 >> bits > 0) {
            Some((bits, unit)) => write!(f, "{:.2} {unit}", self.0 as f64 / (1u64 << bits) as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn sizes_have_units() {
        let sizes = [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.50 KiB"),
            (3 << 29, "1.50 GiB"),
            (1 << 41, "2048.00 GiB"),
        ];
        for (bytes, text) in sizes {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
