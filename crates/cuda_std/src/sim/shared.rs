//! Variables in shared memory.

#[track_caller]
pub fn dynamic() -> *mut u8 {
    simt::shared::dynamic()
}

#[track_caller]
pub fn dynamic_len() -> u32 {
    simt::shared::dynamic_len()
}

#[track_caller]
pub fn total_len() -> u32 {
    simt::shared::total_len()
}

#[track_caller]
pub fn address_of(ptr: *const u8) -> u32 {
    simt::shared::to_address(ptr)
}

/// Declares the shared variable `$name` of type `$ty`, with the PTX symbol `$symbol`: the module `$key` with its type `Key`.
#[doc(hidden)]
#[macro_export]
macro_rules! __shared_variable {
    ($vis:vis $key:ident, $name:literal, $symbol:literal, $ty:ty) => {
        #[doc(hidden)]
        #[allow(non_snake_case)]
        $vis mod $key {
            pub(super) struct Key;
        }

        // SAFETY: the variable is of that size and alignment, and no other has its symbol or key.
        unsafe impl $crate::shared::Variable for $key::Key {
            type Value = $ty;

            #[track_caller]
            fn address() -> *mut u8 {
                static KEY: $crate::__private::StaticKey = $crate::__private::StaticKey::new($name);
                $crate::__private::alloc_static(
                    &KEY,
                    <Self as $crate::shared::Variable>::SIZE,
                    <Self as $crate::shared::Variable>::ALIGN,
                )
            }
        }
    };
}
