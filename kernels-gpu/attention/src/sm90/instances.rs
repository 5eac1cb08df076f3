//! The kernels: one table of all instances of [`forward::run`](super::forward::run) without a score function,
//! which the host chooses from. [`compiled`](crate::compiled) has those with one.

use cuda_std::wgmma::{BF16, ElementType, F16, Operand};
#[cfg(feature = "kernels")]
use cuda_std::{kernel, tma::TensorMap};

use super::config::Config;
#[cfg(feature = "kernels")]
use super::forward::{Arguments, Maps, Outputs, run};
use crate::score::Identity;
#[cfg(feature = "kernels")]
use crate::{
    block_lists::Lists,
    problem::{AttentionParams, Packing},
};

/// A kernel, as the host needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Name of the entry point.
    pub name: &'static str,
    /// Type of all tensors.
    pub element: ElementType,
    /// Largest head size of queries and keys.
    pub head: u32,
    /// Largest head size of values and results.
    pub value_head: u32,
    /// Queries of a tile, keys of a block.
    pub block: [u32; 2],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
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
            block: [C::BLOCK_M, C::BLOCK_N],
            threads: C::THREADS,
            shared: C::SHARED,
            is_hopper: true,
        }
    }
}

/// The last of its numbers.
macro_rules! last {
    ($one:literal) => {
        $one
    };
    ($first:literal $last:literal) => {
        $last
    };
}
pub(super) use last;

/// Kernels: name, type, largest head size, that of values if it is another, consumers, keys of a block,
/// stages, where results go, turns.
macro_rules! kernels {
    ($dollar:tt $(#[kernel] fn $name:ident as $config:ident: $element:ident, head $head:literal $(with values $values:literal)?, $consumers:literal x 64 queries,
        $keys:literal keys, $stages:literal stages, own output $own:literal, turns $turns:literal;)*) => {
        $(
            /// The configuration of the kernel of this name.
            #[derive(Clone, Copy)]
            pub struct $config;

            impl Config for $config {
                type Element = $element;
                type Scores = [f32; $keys / 2];
                type Result = [f32; last!($head $($values)?) / 2];
                type Function = Identity;
                const HEAD: u32 = $head;
                const CONSUMERS: u32 = $consumers;
                const STAGES: u32 = $stages;
                const OWN_OUTPUT: bool = $own;
                const TURNS: bool = $turns;
            }

            #[doc = concat!("Attention in ", stringify!($element), " for head sizes up to ", $head, $(" of queries and keys, and ", $values, " of values", )? "; see [`TABLE`] and the module.")]
            ///
            /// # Safety
            /// As [`run`] for this configuration.
            #[cfg(feature = "kernels")]
            #[kernel(launch_bounds(<$config as Config>::THREADS, 1))]
            pub unsafe fn $name(
                queries: &TensorMap,
                keys: &TensorMap,
                values: &TensorMap,
                output: &TensorMap,
                params: AttentionParams,
                data: *mut u8,
                log_sum_exp: *mut f32,
                sinks: *const f32,
                first_queries: *const i32,
                first_keys: *const i32,
                counter: *mut u32,
            ) {
                let maps = Maps { queries, keys, values, output };
                let packing = Packing { queries: first_queries, keys: first_keys };
                let outputs = Outputs { data, log_sum_exp };
                // SAFETY: the caller's contract.
                unsafe {
                    run::<$config>(Arguments {
                        maps,
                        params: &params,
                        packing,
                        outputs,
                        sinks,
                        counter,
                        function: &Identity,
                        lists: Lists::NONE,
                    })
                }
            }
        )*

        /// Every kernel.
        pub const TABLE: &[Entry] = &[$(Entry::of::<$config>(stringify!($name))),*];

        /// Calls the macro of this name with the names of all kernels of `attention::sm90::instances`, in the
        /// order of its `TABLE`.
        #[macro_export]
        macro_rules! for_each_sm90_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($name)* } };
        }
    };
}

kernels! { $
    #[kernel] fn attention_bf16_64 as Bf16Head64: BF16, head 64, 3 x 64 queries, 128 keys, 3 stages, own output true, turns true;
    #[kernel] fn attention_bf16_64_low as Bf16Head64Low: BF16, head 64, 2 x 64 queries, 128 keys, 3 stages, own output true, turns true;
    #[kernel] fn attention_bf16_128 as Bf16Head128: BF16, head 128, 2 x 64 queries, 128 keys, 2 stages, own output true, turns false;
    #[kernel] fn attention_bf16_128_wide as Bf16Head128Wide: BF16, head 128, 2 x 64 queries, 176 keys, 2 stages, own output false, turns true;
    #[kernel] fn attention_bf16_192 as Bf16Head192: BF16, head 192, 2 x 64 queries, 112 keys, 2 stages, own output false, turns true;
    #[kernel] fn attention_bf16_256 as Bf16Head256: BF16, head 256, 2 x 64 queries, 80 keys, 2 stages, own output false, turns true;
    #[kernel] fn attention_bf16_256_narrow as Bf16Head256Narrow: BF16, head 256, 2 x 64 queries, 64 keys, 2 stages, own output true, turns true;
    #[kernel] fn attention_bf16_192_128 as Bf16Head192Values128: BF16, head 192 with values 128, 2 x 64 queries, 128 keys, 2 stages, own output false, turns true;
    #[kernel] fn attention_f16_64 as F16Head64: F16, head 64, 3 x 64 queries, 128 keys, 3 stages, own output true, turns true;
    #[kernel] fn attention_f16_64_low as F16Head64Low: F16, head 64, 2 x 64 queries, 128 keys, 3 stages, own output true, turns true;
    #[kernel] fn attention_f16_128 as F16Head128: F16, head 128, 2 x 64 queries, 128 keys, 2 stages, own output true, turns false;
    #[kernel] fn attention_f16_128_wide as F16Head128Wide: F16, head 128, 2 x 64 queries, 176 keys, 2 stages, own output false, turns true;
    #[kernel] fn attention_f16_192 as F16Head192: F16, head 192, 2 x 64 queries, 112 keys, 2 stages, own output false, turns true;
    #[kernel] fn attention_f16_256 as F16Head256: F16, head 256, 2 x 64 queries, 80 keys, 2 stages, own output false, turns true;
    #[kernel] fn attention_f16_256_narrow as F16Head256Narrow: F16, head 256, 2 x 64 queries, 64 keys, 2 stages, own output true, turns true;
    #[kernel] fn attention_f16_192_128 as F16Head192Values128: F16, head 192 with values 128, 2 x 64 queries, 128 keys, 2 stages, own output false, turns true;
}
