//! The executor has all the registers it wants.

pub unsafe fn set_max_registers_inc<const N: u32>() {}

pub unsafe fn set_max_registers_dec<const N: u32>() {}
