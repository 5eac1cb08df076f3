//! The kernels: one table of all instances of [`forward::run`], which the host chooses from.

use cuda_std::kernel;
use num::{bf16, f16};
use primitives::pipeline::Stages;

use super::config::{Config, THREADS};
use super::forward::{self, Arguments, InputStrides};
use crate::problem::{AttentionParams, Packing};

/// Kernels: name, type, largest head size, keys of a block.
macro_rules! kernels {
    ($dollar:tt $(#[kernel] fn $name:ident as $config:ident: $element:ident, head $head:literal, $keys:literal keys;)*) => {
        $(
            /// The configuration of the kernel of this name.
            #[derive(Clone, Copy)]
            pub struct $config;

            impl Config for $config {
                type Element = $element;
                type Scores = [f32; $keys / 2];
                type Result = [f32; $head / 2];
                type Stages = Stages<2>;
                const RING: Self::Stages = Stages;
            }

            #[doc = concat!("Attention in ", stringify!($element), " for head sizes up to ", $head, "; see the module.")]
            ///
            /// # Safety
            /// As [`forward::run`] for this configuration.
            #[kernel(launch_bounds(THREADS))]
            pub unsafe fn $name(
                params: AttentionParams,
                strides: InputStrides,
                queries: *const u16,
                keys: *const u16,
                values: *const u16,
                output: *mut u16,
                log_sum_exp: *mut f32,
                sinks: *const f32,
                first_queries: *const i32,
                first_keys: *const i32,
            ) {
                let packing = Packing { queries: first_queries, keys: first_keys };
                let (params, strides) = (&params, &strides);
                // SAFETY: the caller's contract.
                unsafe {
                    forward::run::<$config>(Arguments {
                        params, strides, queries, keys, values, packing, output, log_sum_exp, sinks,
                    })
                }
            }
        )*

        /// Every kernel.
        #[cfg(not(target_arch = "nvptx64"))]
        pub const TABLE: &[crate::sm90::instances::Entry] = &[$(host::entry::<$config>(stringify!($name))),*];

        /// Calls the macro of this name with the names of all kernels of `attention::mma::instances`, in the
        /// order of its `TABLE`.
        #[macro_export]
        macro_rules! for_each_mma_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($name)* } };
        }
    };
}

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::super::config::{BLOCK_M, Config, THREADS};
    use crate::decode::config::Element;
    use crate::sm90::instances::Entry;

    /// The table's row for a kernel.
    pub const fn entry<C: Config>(name: &'static str) -> Entry {
        let element = <C::Element as Element>::TYPE.operand();
        let block = [BLOCK_M, C::BLOCK_N];
        Entry {
            name,
            element,
            head: C::HEAD,
            value_head: C::HEAD,
            block,
            threads: THREADS,
            shared: C::SHARED,
            is_hopper: false,
        }
    }
}

kernels! { $
    #[kernel] fn attention_mma_bf16_64 as Bf16Head64: bf16, head 64, 64 keys;
    #[kernel] fn attention_mma_bf16_128 as Bf16Head128: bf16, head 128, 64 keys;
    #[kernel] fn attention_mma_bf16_256 as Bf16Head256: bf16, head 256, 32 keys;
    #[kernel] fn attention_mma_f16_64 as F16Head64: f16, head 64, 64 keys;
    #[kernel] fn attention_mma_f16_128 as F16Head128: f16, head 128, 64 keys;
    #[kernel] fn attention_mma_f16_256 as F16Head256: f16, head 256, 32 keys;
}
