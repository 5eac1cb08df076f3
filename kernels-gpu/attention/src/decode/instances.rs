//! The kernels for a cache of the queries' type, and the table of them. [`super::sm90`] has others, and
//! [`super::compiled`] those with a score function.

use cuda_std::KernelArgs;
#[cfg(feature = "kernels")]
use cuda_std::kernel;
use num::{bf16, f16};
use primitives::pipeline::Stages;

use super::cache::Cache;
use super::config::{Cached, Config, Element, ElementType};
use super::rotary::Rotary;
#[cfg(feature = "kernels")]
use super::{
    combine,
    config::THREADS,
    forward,
    problem::{DecodeParams, Problem},
    results::{Outputs, Parts},
};
use crate::score::Identity;

/// A kernel, as the host needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry point.
    pub name: &'static str,
    /// Type of queries and results.
    pub element: ElementType,
    /// Whether the cache is in e4m3, else of that type.
    pub is_e4m3: bool,
    /// Largest head size.
    pub head: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Blocks of a multiprocessor.
    pub resident: u32,
}

impl Entry {
    /// The table's row for a kernel.
    pub const fn of<C: Config>(name: &'static str) -> Self {
        let element = <C::Element as Element>::TYPE;
        let is_e4m3 = C::Cached::IS_E4M3;
        Self { name, element, is_e4m3, head: C::HEAD, shared: C::SHARED, resident: C::RESIDENT }
    }
}

/// The cache that new keys are put into, the new keys, the tables of [`Rotary`], and the scales of a cache in
/// e4m3; null where there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Append {
    /// K, in place of that which is only read.
    pub kept_keys: *mut u16,
    /// V.
    pub kept_values: *mut u16,
    /// New keys.
    pub new_keys: *const u16,
    /// Their values.
    pub new_values: *const u16,
    /// Cosines.
    pub cosines: *const f32,
    /// Sines.
    pub sines: *const f32,
    /// The scales of keys.
    pub key_scales: *const f32,
    /// The scales of values.
    pub value_scales: *const f32,
}

impl Append {
    /// The cache, which is the one that new keys are put into if there is one.
    #[inline(always)]
    #[must_use]
    pub const fn cache<T>(self, keys: *const u16, values: *const u16, table: *const i32) -> Cache<T> {
        let Append { kept_keys, kept_values, new_keys, new_values, .. } = self;
        let keys = if kept_keys.is_null() { keys } else { kept_keys.cast_const() };
        let values = if kept_values.is_null() { values } else { kept_values.cast_const() };
        let scales = [self.key_scales, self.value_scales];
        Cache { keys: keys.cast(), values: values.cast(), table, new_keys, new_values, scales }
    }

    /// The tables.
    #[inline(always)]
    #[must_use]
    pub const fn rotary(self) -> Rotary {
        Rotary { cosines: self.cosines, sines: self.sines }
    }
}

/// Kernels: name, types of queries and of the cache, largest head size, stages of a warp, blocks of a
/// multiprocessor.
macro_rules! kernels {
    ($(#[kernel] fn $name:ident as $config:ident: $element:ident on $cached:ident, head $head:literal,
        $stages:literal stages, $resident:literal resident;)*) => {
        $(
            /// The configuration of the kernel of this name.
            #[derive(Clone, Copy)]
            pub struct $config;

            impl Config for $config {
                type Element = $element;
                type Cached = $cached;
                type Result = [f32; $head / 2];
                type Stages = Stages<$stages>;
                type Function = Identity;
                const RING: Self::Stages = Stages;
                const RESIDENT: u32 = $resident;
            }

            #[doc = concat!("Decode attention in ", stringify!($element), " for head sizes up to ", $head, "; see [`TABLE`] and the module.")]
            ///
            /// # Safety
            /// As [`forward::run`] for this configuration.
            #[cfg(feature = "kernels")]
            #[kernel(launch_bounds(THREADS, <$config as Config>::RESIDENT))]
            pub unsafe fn $name(
                params: DecodeParams,
                queries: *const u16,
                keys: *const u16,
                values: *const u16,
                table: *const i32,
                append: Append,
                lengths: *const i32,
                data: *mut u16,
                log_sum_exp: *mut f32,
                sinks: *const f32,
                ended: *mut u32,
                sums: *mut f32,
                totals: *mut f32,
            ) {
                let parts = Parts { ended, sums, totals };
                // SAFETY: the caller's contract.
                unsafe {
                    forward::run::<$config>(forward::Arguments {
                        problem: Problem { params: &params, lengths },
                        queries,
                        cache: append.cache(keys, values, table),
                        rotary: append.rotary(),
                        outputs: Outputs { data, log_sum_exp, sinks, parts },
                        function: &Identity,
                        score_scale: 1.0,
                    })
                }
            }
        )*

        /// Every kernel of the pass.
        pub const TABLE: &[Entry] = &[$(
            Entry::of::<$config>(stringify!($name)),
        )*];
    };
}

#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub(super) use kernels;

kernels! {
    #[kernel] fn attention_decode_bf16_64 as Bf16Head64: bf16 on u16, head 64, 6 stages, 2 resident;
    #[kernel] fn attention_decode_bf16_128 as Bf16Head128: bf16 on u16, head 128, 3 stages, 2 resident;
    #[kernel] fn attention_decode_bf16_256 as Bf16Head256: bf16 on u16, head 256, 3 stages, 1 resident;
    #[kernel] fn attention_decode_f16_64 as F16Head64: f16 on u16, head 64, 6 stages, 2 resident;
    #[kernel] fn attention_decode_f16_128 as F16Head128: f16 on u16, head 128, 3 stages, 2 resident;
    #[kernel] fn attention_decode_f16_256 as F16Head256: f16 on u16, head 256, 3 stages, 1 resident;
}

/// Kernels: name and type.
#[cfg(feature = "kernels")]
macro_rules! combining {
    ($(#[kernel] fn $name:ident: $element:ident;)*) => { $(
        #[doc = concat!("Combines the parts of results, to ", stringify!($element), "; see [`combine`].")]
        ///
        /// # Safety
        /// As [`combine::run`].
        #[kernel(launch_bounds(combine::THREADS))]
        pub unsafe fn $name(
            params: DecodeParams,
            columns: u32,
            data: *mut u16,
            log_sum_exp: *mut f32,
            sinks: *const f32,
            ended: *mut u32,
            sums: *mut f32,
            totals: *mut f32,
        ) {
            let parts = Parts { ended, sums, totals };
            let outputs = Outputs { data, log_sum_exp, sinks, parts };
            // SAFETY: the caller's contract.
            unsafe { combine::run::<$element>(combine::Arguments { params: &params, columns, outputs }) }
        }
    )* };
}

#[cfg(feature = "kernels")]
combining! {
    #[kernel] fn attention_combine_bf16: bf16;
    #[kernel] fn attention_combine_f16: f16;
}
