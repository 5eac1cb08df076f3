//! The kernels of the backward pass, and the table of them, which the host chooses from.

use cuda_std::wgmma::{BF16, ElementType, F16, Operand};
#[cfg(feature = "kernels")]
use cuda_std::{kernel, tma::TensorMap};

use super::config::{Config, Whole};
#[cfg(feature = "kernels")]
use super::{
    arguments::{Arguments, Maps, QueryResults, Results, Statistics32},
    config::THREADS,
    finish, main_pass, whole,
};
#[cfg(feature = "kernels")]
use crate::backward::{ResultStrides, order::Order};
#[cfg(feature = "kernels")]
use crate::block_lists::Lists;
#[cfg(feature = "kernels")]
use crate::problem::{AttentionParams, Packing, Strides};
use crate::score::Identity;
use crate::sm90::instances::last;

/// A kernel, as the host needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry point.
    pub name: &'static str,
    /// Type of all tensors.
    pub element: ElementType,
    /// Largest head size of queries and keys.
    pub head: u32,
    /// Largest head size of values and results.
    pub value_head: u32,
    /// Queries and keys of a tile.
    pub block: [u32; 2],
    /// Blocks that share the keys of a tile out.
    pub blocks: u32,
    /// Blocks of a cluster: these, or those that share whole heads out.
    pub cluster: u32,
    /// Parts of dQ of a tile, each of which a warpgroup of the last kernel reads.
    pub parts: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Whether blocks go through all keys of a head: see [whole heads](super::whole).
    pub is_whole: bool,
    /// Whether it is for Hopper, else for Ampere and later.
    pub is_hopper: bool,
}

impl Entry {
    /// The table's row for a kernel.
    pub const fn of<C: Config>(name: &'static str) -> Self {
        Self {
            name,
            element: <C::Element as Operand>::TYPE,
            head: C::HEAD,
            value_head: C::VALUE_HEAD,
            block: [C::BLOCK_M, super::config::BLOCK_N],
            blocks: C::BLOCKS,
            cluster: C::CLUSTER,
            parts: C::PARTS,
            shared: C::SHARED,
            is_whole: C::IS_WHOLE,
            is_hopper: true,
        }
    }
}

/// Kernels: name, type, largest head size, that of values if it is another, queries of a tile, numbers of a
/// thread's part of dQ.
macro_rules! kernels {
    (
        $dollar:tt
        $(#[kernel] fn $name:ident as $config:ident: $element:ident, head $head:literal $(with values $values:literal)?, $queries:literal queries,
            $sums:literal sums;)*
        whole:
        $(#[kernel] fn $whole:ident: $of:ident;)*
    ) => {
        $(
            /// The configuration of the kernel of this name.
            #[derive(Clone, Copy)]
            pub struct $config;

            impl Config for $config {
                type Element = $element;
                type Scores = [f32; $queries / 2];
                type Gradient = [f32; $head / 2];
                type ValueGradient = [f32; last!($head $($values)?) / 2];
                type QueryGradient = [f32; $sums];
                type Function = Identity;
            }

            #[doc = concat!("The backward pass in ", stringify!($element), " for head sizes up to ", $head, $(" of queries and keys, and ", $values, " of values", )? "; see [`TABLE`] and the module.")]
            ///
            /// # Safety
            /// As [`main_pass::run`] for this configuration.
            #[cfg(feature = "kernels")]
            #[kernel(launch_bounds(THREADS, 1))]
            pub unsafe fn $name(
                queries: &TensorMap,
                keys: &TensorMap,
                values: &TensorMap,
                gradients: &TensorMap,
                key_gradients: &TensorMap,
                value_gradients: &TensorMap,
                params: AttentionParams,
                logarithms: *const f32,
                deltas: *const f32,
                sums: *mut f32,
                key_rows: *mut u16,
                value_rows: *mut u16,
                strides: ResultStrides,
                order: *mut u32,
                first_queries: *const i32,
                first_keys: *const i32,
            ) {
                let maps = Maps { queries, keys, values, gradients, key_gradients, value_gradients };
                let packing = Packing { queries: first_queries, keys: first_keys };
                let rows = Statistics32 { logarithms, deltas, sums };
                let results = Results { keys: key_rows, values: value_rows, strides };
                let order = Order(order);
                let (lists, queries) = (Lists::NONE, QueryResults::NONE);
                let arguments =
                    Arguments { maps, results, queries, params: &params, packing, rows, order, lists };
                // SAFETY: the caller's contract.
                unsafe { main_pass::run::<$config>(arguments, &Identity) }
            }
        )*

        $(
            #[doc = concat!("The backward pass of short sequences by [`", stringify!($of), "`]; see [`whole`].")]
            ///
            /// # Safety
            /// As [`whole::run`] for this configuration.
            #[cfg(feature = "kernels")]
            #[kernel(launch_bounds(THREADS, 1))]
            pub unsafe fn $whole(
                queries: &TensorMap,
                keys: &TensorMap,
                values: &TensorMap,
                gradients: &TensorMap,
                key_gradients: &TensorMap,
                value_gradients: &TensorMap,
                params: AttentionParams,
                logarithms: *const f32,
                deltas: *const f32,
                sums: *mut f32,
                key_rows: *mut u16,
                value_rows: *mut u16,
                query_rows: *mut u16,
                strides: Strides,
                order: *mut u32,
            ) {
                let maps = Maps { queries, keys, values, gradients, key_gradients, value_gradients };
                let rows = Statistics32 { logarithms, deltas, sums };
                let queries = QueryResults { data: query_rows, strides };
                // They tell the host what the maps reach.
                let results = Results { keys: key_rows, values: value_rows, ..Results::NONE };
                let packing = Packing::NONE;
                let (order, lists) = (Order(order), Lists::NONE);
                let arguments =
                    Arguments { maps, results, queries, params: &params, packing, rows, order, lists };
                // SAFETY: the caller's contract.
                unsafe { whole::run::<Whole<$of>>(arguments, &Identity) }
            }
        )*

        /// Every kernel; those of whole heads come last.
        pub const TABLE: &[Entry] = &[
            $(Entry::of::<$config>(stringify!($name)),)*
            $(Entry::of::<Whole<$of>>(stringify!($whole))),*
        ];

        /// Calls the macro of this name with the names of all backward passes of
        /// `attention::sm90::backward::instances`, in the order of its `TABLE`.
        #[macro_export]
        macro_rules! for_each_sm90_backward_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($name)* } };
        }

        /// The same for those of whole heads.
        #[macro_export]
        macro_rules! for_each_sm90_whole_backward_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($whole)* } };
        }
    };
}

kernels! { $
    #[kernel] fn attention_backward_bf16_64 as Bf16Head64: BF16, head 64, 128 queries, 32 sums;
    #[kernel] fn attention_backward_bf16_128 as Bf16Head128: BF16, head 128, 64 queries, 32 sums;
    #[kernel] fn attention_backward_bf16_256 as Bf16Head256: BF16, head 256, 64 queries, 32 sums;
    #[kernel] fn attention_backward_bf16_192_128 as Bf16Head192Values128: BF16, head 192 with values 128, 64 queries, 48 sums;
    #[kernel] fn attention_backward_f16_64 as F16Head64: F16, head 64, 128 queries, 32 sums;
    #[kernel] fn attention_backward_f16_128 as F16Head128: F16, head 128, 64 queries, 32 sums;
    #[kernel] fn attention_backward_f16_256 as F16Head256: F16, head 256, 64 queries, 32 sums;
    #[kernel] fn attention_backward_f16_192_128 as F16Head192Values128: F16, head 192 with values 128, 64 queries, 48 sums;
    whole:
    #[kernel] fn attention_backward_whole_bf16_64: Bf16Head64;
    #[kernel] fn attention_backward_whole_bf16_128: Bf16Head128;
    #[kernel] fn attention_backward_whole_f16_64: F16Head64;
    #[kernel] fn attention_backward_whole_f16_128: F16Head128;
}

/// Kernels: name, and the configuration whose sums they read.
#[cfg(feature = "kernels")]
macro_rules! finish_kernels {
    ($dollar:tt $(#[kernel] fn $name:ident: $config:ident;)*) => {
        $(
            #[doc = concat!("dQ from the sums of [`", stringify!($config), "`]; see [`finish`].")]
            ///
            /// # Safety
            /// As [`finish::run`] for this configuration.
            #[kernel(launch_bounds(finish::MAX_THREADS))]
            pub unsafe fn $name(
                params: AttentionParams,
                sums: *const f32,
                gradient: *mut u16,
                strides: Strides,
                first_queries: *const i32,
                first_keys: *const i32,
            ) {
                let packing = Packing { queries: first_queries, keys: first_keys };
                let arguments = finish::Arguments { sums, params: &params, packing, gradient, strides };
                // SAFETY: the caller's contract.
                unsafe { finish::run::<$config>(arguments) }
            }
        )*

        /// Calls the macro of this name with the names of the last kernels of all backward passes, in the
        /// order of `TABLE` of `attention::sm90::backward::instances`.
        #[macro_export]
        macro_rules! for_each_sm90_finish_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($name)* } };
        }
    };
}

#[cfg(feature = "kernels")]
finish_kernels! { $
    #[kernel] fn attention_finish_bf16_64: Bf16Head64;
    #[kernel] fn attention_finish_bf16_128: Bf16Head128;
    #[kernel] fn attention_finish_bf16_256: Bf16Head256;
    #[kernel] fn attention_finish_bf16_192_128: Bf16Head192Values128;
    #[kernel] fn attention_finish_f16_64: F16Head64;
    #[kernel] fn attention_finish_f16_128: F16Head128;
    #[kernel] fn attention_finish_f16_256: F16Head256;
    #[kernel] fn attention_finish_f16_192_128: F16Head192Values128;
}
