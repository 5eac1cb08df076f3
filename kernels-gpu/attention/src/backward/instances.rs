//! The kernels of all backward passes.

use cuda_std::{kernel, shared, shared_array};
use num::{bf16, f16};

use super::order::Order;
use super::prepare::{self, Rows};
use super::sinks;
use crate::problem::{AttentionParams, Packing, Strides};

/// Kernels: name and type.
macro_rules! prepare_kernels {
    ($(#[kernel] fn $name:ident: $element:ident;)*) => { $(
        #[doc = concat!("What a backward pass in ", stringify!($element), " needs of rows: see [`prepare`].")]
        ///
        /// # Safety
        /// As [`prepare::run`].
        #[kernel(launch_bounds(prepare::THREADS))]
        pub unsafe fn $name(
            params: AttentionParams,
            output: *const u16,
            output_strides: Strides,
            gradient: *const u16,
            gradient_strides: Strides,
            log_sum_exp: *const f32,
            logarithms: *mut f32,
            deltas: *mut f32,
            sums: *mut f32,
            tile: u32,
            columns: u32,
            order: *mut u32,
            first_queries: *const i32,
            first_keys: *const i32,
        ) {
            let arguments = prepare::Arguments {
                output: Rows { data: output, strides: output_strides },
                gradient: Rows { data: gradient, strides: gradient_strides },
                log_sum_exp,
                params: &params,
                packing: Packing { queries: first_queries, keys: first_keys },
                logarithms,
                deltas,
                sums,
                tile,
                columns,
                order: Order(order),
            };
            // SAFETY: the caller's contract.
            unsafe { prepare::run::<$element>(arguments) }
        }
    )* };
}

prepare_kernels! {
    #[kernel] fn attention_prepare_bf16: bf16;
    #[kernel] fn attention_prepare_f16: f16;
}

/// The gradients of sinks; see [`sinks`].
///
/// # Safety
/// As [`sinks::run`].
#[kernel(launch_bounds(sinks::THREADS))]
pub unsafe fn attention_sink_gradients(
    params: AttentionParams,
    logarithms: *const f32,
    deltas: *const f32,
    scores: *const f32,
    gradients: *mut f32,
    tile: u32,
    first_queries: *const i32,
    first_keys: *const i32,
) {
    let packing = Packing { queries: first_queries, keys: first_keys };
    let slots = shared::generic(shared_array![f32; sinks::SLOTS]);
    let arguments =
        sinks::Arguments { params: &params, packing, logarithms, deltas, sinks: scores, gradients, tile };
    // SAFETY: the caller's contract.
    unsafe { sinks::run(arguments, slots.cast()) }
}
