//! `y = x`, element by element, between layouts. Bits move, so there is an entry for each size and not for
//! each type.

use crate::THREADS;
use crate::access::{self, width};
use crate::place::{Geometry, Item, item_of_thread};
use cuda_std::kernel;

/// An entry point for each size.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("`y = x` for elements of the size of ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// The operands hold what the geometry names, aligned as its mode asks for with 16 bytes of elements
        /// a thread; they do not overlap, and no two elements of `y` lie at one place. Blocks of [`THREADS`]
        /// threads, [`Geometry::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(geometry: Geometry<2>, x: *const $ty, y: *mut $ty) {
            const N: usize = width(size_of::<$ty>(), size_of::<$ty>());
            // SAFETY: the caller's promise.
            unsafe {
                let item: Option<Item<'_, 2, N>> = item_of_thread(&geometry);
                if let Some(item) = item {
                    let [x] = item.fetch(0, [x]);
                    item.store(1, y, access::from_wide(x));
                }
            }
        }
    )* };
}

entries! {
    copy_b8: u64;
    copy_b4: u32;
    copy_b2: u16;
    copy_b1: u8;
}
