//! Address spaces.

use crate::ptr::AddressSpace;

/// The executor has shared memory and everything else: `Constant` and `Local` are not told from `Global`.
#[track_caller]
pub fn is_in(address: *const u8, space: AddressSpace) -> bool {
    let shared = simt::shared::contains(address);
    match space {
        AddressSpace::Shared => shared,
        AddressSpace::Global => !shared,
        AddressSpace::Constant | AddressSpace::Local => false,
    }
}

#[track_caller]
pub fn to_specific(address: *const u8, space: AddressSpace) -> *const u8 {
    match space {
        AddressSpace::Shared => std::ptr::without_provenance(simt::shared::to_address(address) as usize),
        _ => address,
    }
}

#[track_caller]
pub fn to_generic(address: *const u8, space: AddressSpace) -> *const u8 {
    match space {
        // An address of the shared window fits in 32 bits; anything else is nonsense and faults there.
        AddressSpace::Shared => simt::shared::from_address(u32::try_from(address.addr()).unwrap_or(u32::MAX)),
        _ => address,
    }
}
