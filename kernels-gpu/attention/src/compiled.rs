//! Kernels with a score function: [`score_kernels!`](crate::score_kernels) makes them, here and in packages
//! of your own.
//!
//! ```ignore
//! attention::score_kernels! {
//!     Local:
//!     #[kernel] fn local_lists;
//!     #[kernel] fn local_bf16_64: Bf16Head64Low;
//!     #[kernel] fn local_bf16_128: Bf16Head128;
//!     #[kernel] fn local_bf16_192_128: Bf16Head192Values128;
//!     backward:
//!     #[kernel] fn local_backward_bf16_64: Bf16Head64;
//!     #[kernel] fn local_backward_bf16_128: Bf16Head128;
//! }
//! ```
//! The first kernel makes lists of the blocks that a mask shows ([`block_lists`](crate::block_lists)); the
//! others are forward passes by the configurations of [`sm90::instances`](crate::sm90::instances), and
//! backward passes by those of [`sm90::backward::instances`](crate::sm90::backward::instances), which may be
//! left out with their heading. Each costs time to compile: name those you need. Hosts launch them by the
//! type of the function.

#[cfg(not(target_arch = "nvptx64"))]
use crate::{score::ScoreFunction, sm90::backward, sm90::instances::Entry};
#[cfg(not(target_arch = "nvptx64"))]
use cuda_std::kernel::{ArgStruct, Kernel};

/// A score function with its kernels.
///
/// # Safety
/// The kernels are those that [`score_kernels!`](crate::score_kernels) makes for `Self`; `FORWARD` tells of
/// `Forward` in its order, and `BACKWARD` of `Backward`.
#[cfg(not(target_arch = "nvptx64"))]
pub unsafe trait Compiled: ScoreFunction + ArgStruct {
    /// The forward passes, as hosts need to know them.
    const FORWARD: &'static [Entry];
    /// Their types, as nested pairs that end in `()`.
    type Forward;
    /// The backward passes, as hosts need to know them.
    const BACKWARD: &'static [backward::instances::Entry];
    /// Their types, as nested pairs that end in `()`.
    type Backward;
    /// The kernel that makes lists.
    type Lists: Kernel;
}

/// Kernels with a score function; see [`compiled`](crate::compiled). The package needs `cuda_std` as well.
#[macro_export]
macro_rules! score_kernels {
    (
        $function:ty: #[kernel] fn $lists:ident;
        $(#[kernel] fn $name:ident: $config:ident;)+
        $(backward: $(#[kernel] fn $backward:ident: $backward_config:ident;)+)?
    ) => {
        #[doc = concat!("Lists of the blocks that `", stringify!($function), "` shows.")]
        ///
        /// # Safety
        /// As for `attention::block_lists::build`.
        #[::cuda_std::kernel(launch_bounds($crate::block_lists::THREADS))]
        pub unsafe fn $lists(
            params: $crate::problem::AttentionParams,
            lists: $crate::block_lists::ListParams,
            function: $function,
            words: *mut u32,
        ) {
            // SAFETY: the caller's contract.
            unsafe { $crate::block_lists::build(&params, lists, &function, words) }
        }

        $(
            $crate::on_sm90! {
                #[doc = concat!("Attention by `", stringify!($config), "` with `", stringify!($function), "`.")]
                ///
                /// # Safety
                /// As for `attention::sm90::forward::run`; `words` is null, or the lists of this problem.
                #[::cuda_std::kernel(launch_bounds(
                    <$crate::sm90::config::With<$crate::sm90::instances::$config, $function> as $crate::sm90::config::Config>::THREADS,
                    1
                ))]
                pub unsafe fn $name(
                    queries: &::cuda_std::tma::TensorMap,
                    keys: &::cuda_std::tma::TensorMap,
                    values: &::cuda_std::tma::TensorMap,
                    output: &::cuda_std::tma::TensorMap,
                    params: $crate::problem::AttentionParams,
                    data: *mut u8,
                    log_sum_exp: *mut f32,
                    sinks: *const f32,
                    first_queries: *const i32,
                    first_keys: *const i32,
                    counter: *mut u32,
                    function: $function,
                    lists: $crate::block_lists::ListParams,
                    words: *const u32,
                ) {
                    // SAFETY: the caller's contract.
                    unsafe {
                        $crate::sm90::forward::run::<
                            $crate::sm90::config::With<$crate::sm90::instances::$config, $function>,
                        >($crate::sm90::forward::Arguments {
                            maps: $crate::sm90::forward::Maps { queries, keys, values, output },
                            params: &params,
                            packing: $crate::problem::Packing { queries: first_queries, keys: first_keys },
                            outputs: $crate::sm90::forward::Outputs { data, log_sum_exp },
                            sinks,
                            counter,
                            function: &function,
                            lists: $crate::block_lists::Lists { words, params: lists },
                        })
                    }
                }
            }
        )+

        $($(
            $crate::on_sm90! {
                #[doc = concat!("Gradients of attention by `", stringify!($backward_config), "` with `", stringify!($function), "`.")]
                ///
                /// # Safety
                /// As for `attention::sm90::backward::main_pass::run`; `words` is null, or the lists of this
                /// problem.
                #[::cuda_std::kernel(launch_bounds($crate::sm90::backward::config::THREADS, 1))]
                pub unsafe fn $backward(
                    queries: &::cuda_std::tma::TensorMap,
                    keys: &::cuda_std::tma::TensorMap,
                    values: &::cuda_std::tma::TensorMap,
                    gradients: &::cuda_std::tma::TensorMap,
                    key_gradients: &::cuda_std::tma::TensorMap,
                    value_gradients: &::cuda_std::tma::TensorMap,
                    params: $crate::problem::AttentionParams,
                    logarithms: *const f32,
                    deltas: *const f32,
                    sums: *mut f32,
                    key_rows: *mut u16,
                    value_rows: *mut u16,
                    strides: $crate::backward::ResultStrides,
                    order: *mut u32,
                    first_queries: *const i32,
                    first_keys: *const i32,
                    function: $function,
                    lists: $crate::block_lists::ListParams,
                    words: *const u32,
                ) {
                    use $crate::{backward::order::Order, sm90::backward::{arguments, instances, main_pass}};
                    // SAFETY: the caller's contract.
                    unsafe {
                        main_pass::run::<$crate::sm90::config::With<instances::$backward_config, $function>>(
                            arguments::Arguments {
                                maps: arguments::Maps { queries, keys, values, gradients, key_gradients, value_gradients },
                                results: arguments::Results { keys: key_rows, values: value_rows, strides },
                                queries: arguments::QueryResults::NONE,
                                params: &params,
                                packing: $crate::problem::Packing { queries: first_queries, keys: first_keys },
                                rows: arguments::Statistics32 { logarithms, deltas, sums },
                                order: Order(order),
                                lists: $crate::block_lists::Lists { words, params: lists },
                            },
                            &function,
                        )
                    }
                }
            }
        )+)?

        // SAFETY: the kernels above, in their order.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe impl $crate::compiled::Compiled for $function {
            const FORWARD: &'static [$crate::sm90::instances::Entry] = &[$(
                $crate::sm90::instances::Entry::of::<
                    $crate::sm90::config::With<$crate::sm90::instances::$config, $function>,
                >(stringify!($name))
            ),+];
            type Forward = $crate::score_kernels!(@list $($name)+);
            const BACKWARD: &'static [$crate::sm90::backward::instances::Entry] = &[$($(
                $crate::sm90::backward::instances::Entry::of::<
                    $crate::sm90::backward::instances::$backward_config,
                >(stringify!($backward))
            ),+)?];
            type Backward = $crate::score_kernels!(@list $($($backward)+)?);
            type Lists = $lists;
        }
    };
    (@list) => { () };
    (@list $first:ident $($rest:ident)*) => { ($first, $crate::score_kernels!(@list $($rest)*)) };
}
