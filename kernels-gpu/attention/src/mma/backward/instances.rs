//! The kernels of the backward pass, and the table of them, which the host chooses from.

use cuda_std::kernel;
use num::{bf16, f16};

use super::arguments::Arguments;
use super::config::{Config, key_threads, query_threads};
use super::{keys, queries};
use crate::backward::ResultStrides;
use crate::mma::forward::InputStrides;
use crate::problem::{AttentionParams, Packing, Strides};

/// Kernels: names, type, largest head size, rows that a block owns, and others that come at a time.
macro_rules! kernels {
    (
        $dollar:tt
        $(
            #[kernel] fn $keys:ident,
            #[kernel] fn $queries:ident
                as $config:ident: $element:ident, head $head:literal,
                $own:literal own rows, $other:literal others;
        )*
    ) => {
        $(
            /// The configuration of the kernels of these names.
            #[derive(Clone, Copy)]
            pub struct $config;

            impl Config for $config {
                type Element = $element;
                type Scores = [f32; $other / 2];
                type Sums = [f32; $head / 2];
                const OWN: u32 = $own;
            }

            #[doc = concat!("dK and dV in ", stringify!($element), " for head sizes up to ", $head, ".")]
            ///
            /// # Safety
            /// As [`keys::run`] for this configuration.
            #[kernel(launch_bounds(key_threads($own, $head)))]
            pub unsafe fn $keys(
                params: AttentionParams,
                strides: InputStrides,
                queries: *const u16,
                keys: *const u16,
                values: *const u16,
                gradient: *const u16,
                gradient_strides: Strides,
                logarithms: *const f32,
                deltas: *const f32,
                key_gradients: *mut u16,
                value_gradients: *mut u16,
                result_strides: ResultStrides,
                first_queries: *const i32,
                first_keys: *const i32,
            ) {
                let packing = Packing { queries: first_queries, keys: first_keys };
                let (params, strides) = (&params, &strides);
                let arguments = Arguments {
                    params, strides, queries, keys, values, gradient, gradient_strides, logarithms, deltas,
                    packing,
                };
                let results =
                    keys::Results { keys: key_gradients, values: value_gradients, strides: result_strides };
                // SAFETY: the caller's contract.
                unsafe { keys::run::<$config>(arguments, results) }
            }

            #[doc = concat!("dQ in ", stringify!($element), " for head sizes up to ", $head, ".")]
            ///
            /// # Safety
            /// As [`queries::run`] for this configuration.
            #[kernel(launch_bounds(query_threads($own)))]
            pub unsafe fn $queries(
                params: AttentionParams,
                strides: InputStrides,
                queries: *const u16,
                keys: *const u16,
                values: *const u16,
                gradient: *const u16,
                gradient_strides: Strides,
                logarithms: *const f32,
                deltas: *const f32,
                query_gradients: *mut u16,
                result_strides: Strides,
                first_queries: *const i32,
                first_keys: *const i32,
            ) {
                let packing = Packing { queries: first_queries, keys: first_keys };
                let (params, strides) = (&params, &strides);
                let arguments = Arguments {
                    params, strides, queries, keys, values, gradient, gradient_strides, logarithms, deltas,
                    packing,
                };
                let result = queries::Result { data: query_gradients, strides: result_strides };
                // SAFETY: the caller's contract.
                unsafe { queries::run::<$config>(arguments, result) }
            }
        )*

        /// Every pair of kernels, by the name of the one of keys.
        #[cfg(not(target_arch = "nvptx64"))]
        pub const TABLE: &[crate::sm90::backward::instances::Entry] =
            &[$(host::entry::<$config>(stringify!($keys))),*];

        /// Calls the macro of this name with pairs of names of all kernels of
        /// `attention::mma::backward::instances`, of keys and of queries, in the order of its `TABLE`.
        #[macro_export]
        macro_rules! for_each_mma_backward_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($keys $queries)* } };
        }
    };
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::super::config::Config;
    use crate::decode::config::Element;
    use crate::sm90::backward::instances::Entry;

    /// The table's row for a pair of kernels.
    pub const fn entry<C: Config>(name: &'static str) -> Entry {
        Entry {
            name,
            element: <C::Element as Element>::TYPE.operand(),
            head: C::HEAD,
            value_head: C::HEAD,
            block: [C::OTHER, C::OWN],
            blocks: 1,
            cluster: 1,
            // dQ has a kernel of its own.
            parts: 0,
            shared: C::SHARED,
            is_whole: false,
            is_hopper: false,
        }
    }
}

kernels! { $
    #[kernel] fn attention_mma_backward_bf16_64,
    #[kernel] fn attention_mma_query_gradients_bf16_64
        as Bf16Head64: bf16, head 64, 64 own rows, 64 others;
    #[kernel] fn attention_mma_backward_bf16_128,
    #[kernel] fn attention_mma_query_gradients_bf16_128
        as Bf16Head128: bf16, head 128, 128 own rows, 32 others;
    #[kernel] fn attention_mma_backward_bf16_256,
    #[kernel] fn attention_mma_query_gradients_bf16_256
        as Bf16Head256: bf16, head 256, 64 own rows, 16 others;
    #[kernel] fn attention_mma_backward_f16_64,
    #[kernel] fn attention_mma_query_gradients_f16_64
        as F16Head64: f16, head 64, 64 own rows, 64 others;
    #[kernel] fn attention_mma_backward_f16_128,
    #[kernel] fn attention_mma_query_gradients_f16_128
        as F16Head128: f16, head 128, 128 own rows, 32 others;
    #[kernel] fn attention_mma_backward_f16_256,
    #[kernel] fn attention_mma_query_gradients_f16_256
        as F16Head256: f16, head 256, 64 own rows, 16 others;
}
