//! The kernels: one table of all instances of [`forward::run`](super::forward::run), which the host chooses
//! from.

use cuda_std::wgmma::ElementType;
#[cfg(feature = "kernels")]
use cuda_std::{kernel, tma::TensorMap};

use super::config::{BLOCK_M, Config, SCALE_BLOCK, THREADS};
use crate::sm90::instances::Entry;
#[cfg(feature = "kernels")]
use {
    super::forward::{Arguments, run},
    super::scales::{Scale, Scales},
    crate::block_lists::Lists,
    crate::problem::{AttentionParams, Packing},
    crate::score::Identity,
    crate::sm90::forward::{self, Maps, Outputs},
};

/// Kernels: name, largest head size, keys of a block, stages.
macro_rules! kernels {
    ($dollar:tt $(#[kernel] fn $name:ident as $config:ident: head $head:literal, $keys:literal keys, $stages:literal stages;)*) => {
        $(
            /// The configuration of the kernel of this name.
            #[derive(Clone, Copy)]
            pub struct $config;

            impl Config for $config {
                type Scores = [f32; $keys / 2];
                type Result = [f32; $head / 2];
                const STAGES: u32 = $stages;
            }

            #[doc = concat!("Attention in e4m3 for head sizes up to ", $head, "; see [`TABLE`] and the module.")]
            ///
            /// # Safety
            /// As [`run`] for this configuration.
            #[cfg(feature = "kernels")]
            #[kernel(launch_bounds(THREADS, 1))]
            pub unsafe fn $name(
                queries: &TensorMap,
                keys: &TensorMap,
                values: &TensorMap,
                params: AttentionParams,
                data: *mut u8,
                log_sum_exp: *mut f32,
                sinks: *const f32,
                first_queries: *const i32,
                first_keys: *const i32,
                counter: *mut u32,
                query_scales: *const f32,
                key_scales: *const f32,
                value_scales: *const f32,
                query_blocks: u32,
                key_blocks: u32,
                value_blocks: u32,
            ) {
                let base = forward::Arguments {
                    maps: Maps { queries, keys, values, output: core::ptr::null() },
                    params: &params,
                    packing: Packing { queries: first_queries, keys: first_keys },
                    outputs: Outputs { data, log_sum_exp },
                    sinks,
                    counter,
                    function: &Identity,
                    lists: Lists::NONE,
                };
                let scales = Scales {
                    queries: Scale { data: query_scales, blocks: query_blocks },
                    keys: Scale { data: key_scales, blocks: key_blocks },
                    values: Scale { data: value_scales, blocks: value_blocks },
                };
                // SAFETY: the caller's contract.
                unsafe { run::<$config>(Arguments { base, scales }) }
            }
        )*

        /// Every kernel.
        pub const TABLE: &[Entry] = &[$(Entry {
            name: stringify!($name),
            element: ElementType::E4m3,
            head: $config::HEAD,
            value_head: $config::HEAD,
            block: [BLOCK_M, $config::BLOCK_N],
            threads: THREADS,
            shared: $config::SHARED,
            is_hopper: true,
        }),*];

        /// Calls the macro of this name with the names of all kernels of `attention::sm90::fp8::instances`,
        /// in the order of its `TABLE`.
        #[macro_export]
        macro_rules! for_each_sm90_fp8_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($name)* } };
        }
    };
}

kernels! { $
    #[kernel] fn attention_e4m3_128 as E4m3Head128: head 128, 128 keys, 3 stages;
    #[kernel] fn attention_e4m3_256 as E4m3Head256: head 256, 128 keys, 2 stages;
    #[kernel] fn attention_e4m3_128_wide as E4m3Head128Wide: head 128, 256 keys, 2 stages;
}

/// The kernels whose blocks of keys have one scale, where scales are of blocks. They come first in the table.
pub const OF_SCALE_BLOCKS: &[Entry] = {
    let mut count = 0;
    while count < TABLE.len() && TABLE[count].block[1] == SCALE_BLOCK {
        count += 1;
    }
    let mut other = count;
    while other < TABLE.len() {
        assert!(TABLE[other].block[1] != SCALE_BLOCK, "kernels for scales of blocks come first");
        other += 1;
    }
    TABLE.split_at(count).0
};
