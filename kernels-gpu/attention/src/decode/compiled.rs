//! Decode kernels with a score function: [`decode_score_kernels!`](crate::decode_score_kernels) makes them in
//! packages of your own.
//!
//! ```ignore
//! attention::decode_score_kernels! {
//!     Local:
//!     #[kernel] fn local_decode_bf16_64: Bf16Head64;
//!     #[kernel] fn local_decode_bf16_128: Bf16Head128;
//!     e4m3:
//!     #[kernel] fn local_decode_bf16_e4m3_128: Bf16E4m3Head128;
//! }
//! ```
//! Each is the pass by a configuration of [`decode::instances`](crate::decode::instances). Those behind
//! `e4m3:`, for a cache in that type, are of `decode::sm90::instances`, in the PTX for sm_90a alone. Each
//! costs time to compile: name those you need. The second launch, of sequences that were cut, is the
//! family's. Hosts launch them by the type of the function.

#[cfg(not(target_arch = "nvptx64"))]
use super::instances::Entry;
#[cfg(not(target_arch = "nvptx64"))]
use crate::score::ScoreFunction;
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::kernel::ArgStruct;

/// A score function with its decode kernels.
///
/// # Safety
/// The kernels are those that [`decode_score_kernels!`](crate::decode_score_kernels) makes for `Self`;
/// `DECODE` tells of `Decode` in its order.
#[cfg(not(target_arch = "nvptx64"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no decode kernels",
    label = "not compiled into decode kernels",
    note = "`attention::decode_score_kernels!` compiles them, in the package of the function"
)]
pub unsafe trait CompiledDecode: ScoreFunction + ArgStruct {
    /// The passes, as hosts need to know them.
    const DECODE: &'static [Entry];
    /// Their types, as nested pairs that end in `()`.
    type Decode;
}

/// Decode kernels with a score function; see [`decode::compiled`](crate::decode::compiled). The package needs
/// `cuda_std` as well.
#[macro_export]
macro_rules! decode_score_kernels {
    (
        $function:ty: $(#[kernel] fn $name:ident: $config:ident;)*
        $(e4m3: $(#[kernel] fn $e4m3:ident: $e4m3_config:ident;)+)?
    ) => {
        $($crate::decode_score_kernels!(
            @kernel ($crate::decode::instances::$config) $function: $name, stringify!($config)
        );)*
        $($($crate::on_sm90! {
            $crate::decode_score_kernels!(
                @kernel ($crate::decode::sm90::instances::$e4m3_config) $function: $e4m3, stringify!($e4m3_config)
            );
        })+)?

        // SAFETY: the kernels above, in their order.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe impl $crate::decode::compiled::CompiledDecode for $function {
            const DECODE: &'static [$crate::decode::instances::Entry] = &[
                $($crate::decode::instances::Entry::of::<$crate::decode::instances::$config>(
                    stringify!($name)
                ),)*
                $($($crate::decode::instances::Entry::of::<$crate::decode::sm90::instances::$e4m3_config>(
                    stringify!($e4m3)
                ),)+)?
            ];
            type Decode = $crate::decode_score_kernels!(@list $($name)* $($($e4m3)+)?);
        }
    };
    (@kernel ($config:path) $function:ty: $name:ident, $shown:expr) => {
        #[doc = concat!("Decode attention by `", $shown, "` with `", stringify!($function), "`.")]
        ///
        /// # Safety
        /// As for `attention::decode::forward::run`.
        #[::cuda_std::kernel(launch_bounds(
            $crate::decode::config::THREADS,
            <$config as $crate::decode::config::Config>::RESIDENT
        ))]
        pub unsafe fn $name(
            params: $crate::decode::problem::DecodeParams,
            queries: *const u16,
            keys: *const u16,
            values: *const u16,
            table: *const i32,
            append: $crate::decode::instances::Append,
            lengths: *const i32,
            data: *mut u16,
            log_sum_exp: *mut f32,
            sinks: *const f32,
            ended: *mut u32,
            sums: *mut f32,
            totals: *mut f32,
            function: $function,
            score_scale: f32,
        ) {
            use $crate::decode::{config::With, forward, problem::Problem, results};
            let parts = results::Parts { ended, sums, totals };
            // SAFETY: the caller's contract.
            unsafe {
                forward::run::<With<$config, $function>>(forward::Arguments {
                    problem: Problem { params: &params, lengths },
                    queries,
                    cache: append.cache(keys, values, table),
                    rotary: append.rotary(),
                    outputs: results::Outputs { data, log_sum_exp, sinks, parts },
                    function: &function,
                    score_scale,
                })
            }
        }
    };
    (@list) => { () };
    (@list $first:ident $($rest:ident)*) => { ($first, $crate::decode_score_kernels!(@list $($rest)*)) };
}
