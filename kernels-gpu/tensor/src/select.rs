//! `d = c ? a : b`, element by element. Bits move, so there is an entry for each size and not for each type.

use crate::THREADS;
use crate::access::{self, width};
use crate::place::{Geometry, Item, item_of_thread};
use cuda_std::kernel;

/// An entry point for each size.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("`d = c ? a : b` for elements of the size of ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// The operands hold what the geometry names, aligned as its mode asks for with as many elements a
        /// thread as [`width`] says for the element and a byte; `d` overlaps no other, and no two elements of
        /// `d` lie at one place. Blocks of [`THREADS`] threads, [`Geometry::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(geometry: Geometry<4>, c: *const u8, a: *const $ty, b: *const $ty, d: *mut $ty) {
            const N: usize = width(size_of::<$ty>(), 1);
            // SAFETY: the caller's promise.
            unsafe {
                let item: Option<Item<'_, 4, N>> = item_of_thread(&geometry);
if let Some(item) = item {
                    let [a, b] = item.fetch(1, [a, b]).map(|values| access::from_wide::<$ty, N>(values));
                    let [c] = item.fetch(0, [c]).map(|values| access::from_wide::<u8, N>(values));
                    item.store(3, d, core::array::from_fn(|i| if c[i] != 0 { a[i] } else { b[i] }));
                }
            }
        }
    )* };
}

entries! {
    select_b8: u64;
    select_b4: u32;
    select_b2: u16;
    select_b1: u8;
}
