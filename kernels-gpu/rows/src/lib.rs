//! Fused functions of rows at the speed of memory: norms, softmax, losses, forward and backward.
//!
//! A function is written once ([`RowFunction`]): what it keeps of a row, and what each element becomes by
//! that. Two engines run it.
//!
//! ```text
//!   direct (any device, any rows)     ring (Hopper)
//!
//!   global --take--> statistics       a warp copies, stage after stage:
//!   global --map---> global             global ==> [stage 0][stage 1][stage 2][stage 3] ..  shared memory
//!                                     teams of threads, a row each:
//!   the second time from L1 or L2       wait for row n + 1, take it in, send its statistics
//!                                       receive those of row n, map and store it, leave its stages
//! ```
//! In the ring a row is read from global memory once, and rows behind it come while it is written: 40 to 104
//! KiB a block are under way, two or three blocks a multiprocessor, and none of that takes registers. Warps
//! of a team never wait for a row's statistics where the ring holds two rows.
//!
//! | rows, all inputs together | a stage holds | a team is |
//! |---|---|---|
//! | short | a row for each team | as many threads as have four vectors of 16 bytes each |
//! | beyond 8 KiB an input | 8 KiB | the block |
//! | beyond 104 KiB | the same | the block; a cluster's blocks have a part of the row each |
//!
//! Rows may begin anywhere in a vector, as long as all tensors of a row do alike: vectors inside go through
//! the ring, and elements at the edges to and from global memory.
//!
//! Functions with sums of columns ([`ColumnSums`]) have an engine of their own on top of the ring
//! (`sm90::columns`), whose threads keep the sums of the same 16 columns of all rows.
//!
//! Results repeat bit for bit on a device: how a row is shared out depends on its length and on how it lies,
//! and parts are added in the order of their numbers.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, stdarch_nvptx))]
// Iterators by value over arrays end up in local memory. Indices that unroll to constants do not.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)]

#[cfg(feature = "kernels")]
pub mod channels;
pub mod cosine;
pub mod direct;
#[cfg(feature = "kernels")]
pub mod finish;
pub mod function;
#[cfg(feature = "kernels")]
pub mod kernels;
pub mod loss;
pub mod norm;
pub mod plan;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod sm90;
pub mod softmax;

pub use function::{ColumnSums, Place, RowFunction, Statistics, Sums, Tensors};
pub use plan::{Plan, Shape};

// For the macro's expansions in other crates.
#[doc(hidden)]
pub use primitives;

/// Entry points of functions by the direct engine: `#[kernel] fn NAME: Function, element type;`.
///
/// A function derives `KernelArgs`, and is an argument of the launch.
#[macro_export]
macro_rules! row_kernels {
    ($(#[kernel] fn $name:ident: $function:ty, $ty:ident;)*) => { $(
        #[doc = concat!("`", stringify!($function), "` of rows of ", stringify!($ty), ", by the direct engine.")]
        ///
        /// # Safety
        /// As for [`direct::run`]($crate::direct::run).
        #[kernel(launch_bounds($crate::plan::CONSUMERS))]
        pub unsafe fn $name(
            plan: $crate::Plan,
            function: $function,
            x: *const $ty,
            second: *const $ty,
            third: *const $ty,
            y: *mut $ty,
            other: *mut $ty,
        ) {
            const N: usize = $crate::primitives::access::width(size_of::<$ty>(), size_of::<$ty>());
            type Slot = [<$ty as $crate::primitives::element::Element>::Wide; $crate::function::PARTS];
            let slots = ::cuda_std::shared::generic(::cuda_std::shared_array![Slot; $crate::direct::WARPS]);
            let tensors = $crate::Tensors::new([x, second, third], [y, other]);
            // SAFETY: the caller's promise.
            unsafe { $crate::direct::run::<$ty, $function, N>(&plan, &function, &tensors, slots) }
        }
    )* };
}

/// Entry points of functions by the engine with a ring, for Hopper alone; as [`row_kernels!`].
#[macro_export]
macro_rules! ring_kernels {
    ($(#[kernel] fn $name:ident: $function:ty, $ty:ident;)*) => { $(
        #[doc = concat!("`", stringify!($function), "` of rows of ", stringify!($ty), ", through a ring.")]
        ///
        /// # Safety
        /// As for [`engine::run`]($crate::sm90::engine::run).
        #[kernel(launch_bounds($crate::plan::CONSUMERS + $crate::plan::PRODUCER, $crate::plan::RESIDENT))]
        pub unsafe fn $name(
            plan: $crate::Plan,
            function: $function,
            x: *const $ty,
            second: *const $ty,
            third: *const $ty,
            y: *mut $ty,
            other: *mut $ty,
        ) {
            const N: usize = $crate::primitives::access::width(size_of::<$ty>(), size_of::<$ty>());
            let tensors = $crate::Tensors::new([x, second, third], [y, other]);
            // SAFETY: the caller's promise.
            unsafe { $crate::sm90::engine::run::<$ty, $function, N>(&plan, &function, &tensors) }
        }
    )* };
}
