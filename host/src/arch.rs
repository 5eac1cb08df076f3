//! Compute capabilities.

use std::fmt;

/// Compute capability of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// Generation: 8 Ampere and Ada, 9 Hopper, 10 and 12 Blackwell.
    pub major: u32,
    /// Member of the generation.
    pub minor: u32,
}

impl Arch {
    /// Whether it is 9.0, whose kernels (`sm_90a`) run on devices of no other capability.
    #[must_use]
    pub fn is_hopper(self) -> bool {
        self == Arch { major: 9, minor: 0 }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}
