//! How long L2 keeps what a copy brings or stores: for the `policy` argument of the `_hint` loads and stores.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident, $op:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// # PTX
        #[doc = concat!("`createpolicy.fractional.L2::", $op, ".b64 policy, 1.0`")]
        #[inline(always)]
        #[must_use]
        pub fn $name() -> u64 {
            arms! {
                ptx: {
                    let policy: u64;
                    // SAFETY: computes an opaque number.
                    unsafe {
                        asm!(concat!("createpolicy.fractional.L2::", $op, ".b64 {0}, 1.0;"), out(reg64) policy,
                            options(pure, nomem, nostack));
                    }
                    policy
                }
                sim: { 0 }
            }
        }
    )* };
}

policies! {
    /// First to go when room is needed: for data that is read or written once.
    evict_first, "evict_first";
    /// Last to go: for data that many blocks read.
    evict_last, "evict_last";
    /// As without a hint.
    evict_normal, "evict_normal";
}
