//! Fused functions of rows at the speed of memory: norms, softmax, losses, forward and backward.
//!
//! A function is written once ([`RowFunction`]): what it keeps of a row, and what each element becomes by
//! that. Two engines run it.
//!
//! ```text
//!   direct (any device, any rows)     held (Hopper), a block or a cluster for each row
//!
//!   global --take--> statistics       global ==> shared memory --take--> statistics: warps, block, cluster
//!   global --map---> global                      shared memory --map---> global
//!   the second time from L1 or L2
//! ```
//! A row that is held is read from global memory once. Four or more blocks of a multiprocessor are at
//! different places of their rows, so loads, exchanges and stores overlap without a ring or roles. L1 is left
//! for what rows share. What limits bf16 is the number of instructions, so a thread has 4 to 16 vectors of 16
//! bytes of a row: what it does once for the row is less than what it does for those.
//!
//! | a row of all inputs | its team is |
//! |---|---|
//! | up to 104 KiB | as many threads as that needs, a power of two up to 512: some lanes, or warps |
//! | longer, up to 832 KiB | the same of a cluster's blocks, each of which has a part of the row |
//!
//! Rows may begin anywhere in a vector, as long as all tensors of a row do alike: vectors inside are copied
//! in bulk, and elements at the edges go to and from global memory.
//!
//! Functions with sums of columns ([`ColumnSums`]) have an engine of their own (`sm90::columns`), whose
//! threads keep the sums of the same columns of all rows. There blocks stay, and a warp fills a ring of
//! stages, so that rows come while those before them are written. Gradients of norms have another
//! (`sm90::stay_sums`), whose lanes fill rings of their own, of a block's rows, a cluster's, or rows that
//! begin anywhere. `Plan::stay_sums` says for which rows that is faster, and `Plan::stay_activated_sums`
//! which it has with an activation behind the norm.
//!
//! Norms have another (`sm90::kept`): rows lie in registers, and a block takes a few one after the other;
//! rows that make no full wave go to blocks of fewer. Or blocks stay and draw rows from a counter.
//! `plan/kept.rs` and `plan/drawn.rs` say for which rows that is faster than shared memory.
//!
//! Results repeat bit for bit on a device: how a row is shared out depends on its length and on how it lies,
//! and parts are added in the order of their numbers.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, stdarch_nvptx))]
// Iterators by value over arrays end up in local memory. Indices that unroll to constants do not.
#![allow(clippy::needless_range_loop, clippy::manual_memcpy)]

pub mod activated_norm;
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
pub mod loss_of_probabilities;
pub mod norm;
pub mod norm_of_dropout;
pub mod norm_to_e4m3;
pub mod plan;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod sm90;
pub mod soft_cap;
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

/// Entry points of functions by the engine that holds rows, for Hopper alone; as [`row_kernels!`].
#[macro_export]
macro_rules! held_kernels {
    ($(#[kernel] fn $name:ident: $function:ty, $ty:ident;)*) => { $(
        #[doc = concat!("`", stringify!($function), "` of rows of ", stringify!($ty), ", held in shared memory.")]
        ///
        /// # Safety
        /// As for [`held::run`]($crate::sm90::held::run).
        #[kernel(launch_bounds($crate::plan::HELD_THREADS, $crate::plan::HELD_RESIDENT))]
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
            unsafe { $crate::sm90::held::run::<$ty, $function, N>(&plan, &function, &tensors) }
        }
    )* };
}
