//! Two 16-bit floats packed in one 32-bit register, as operands of the tensor cores and of packed arithmetic.

use half::{bf16, f16};

/// A 16-bit float. Two fit in a register.
pub trait Packed2: Copy {
    /// The code.
    fn to_code(self) -> u16;
    /// The number with this code.
    fn from_code(code: u16) -> Self;
}

impl Packed2 for f16 {
    #[inline(always)]
    fn to_code(self) -> u16 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_code(code: u16) -> Self {
        Self::from_bits(code)
    }
}

impl Packed2 for bf16 {
    #[inline(always)]
    fn to_code(self) -> u16 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_code(code: u16) -> Self {
        Self::from_bits(code)
    }
}

/// Packs two numbers into a register: element 0 in the low half.
#[inline(always)]
#[must_use]
pub fn pack_x2<T: Packed2>(elements: [T; 2]) -> u32 {
    u32::from(elements[0].to_code()) | u32::from(elements[1].to_code()) << u16::BITS
}

/// Unpacks the two numbers of a register, the low half first.
#[inline(always)]
#[must_use]
pub fn unpack_x2<T: Packed2>(register: u32) -> [T; 2] {
    [T::from_code(register as u16), T::from_code((register >> u16::BITS) as u16)]
}
