//! Convolutions as implicit matrix products.
//!
//! Tensors are `[images, height, width, channels]`, dense, and filters `[filters, height, width, channels]`:
//! the channels of a position lie side by side, so what a tap reads is one piece of memory. The matrix of all
//! windows ("im2col"), as large as the input times the taps, is never written.
//!
//! | module | kernels |
//! |---|---|
//! | [`gather`] | the result, and the input's gradient: `conv_gather_f16`, `_bf16`, `_tf32`, and `_narrow` of each |
//! | [`weight`] | the filters' gradient: `conv_weight_f16`, `_bf16`, `_tf32`, and `_flat` of each; `conv_sum_parts` |
//! | `sm90` | both on Hopper, and the filters' gradient: `conv_windows_*`, `conv_windows_backward_*`, `conv_weight_windows_*` |
//! | [`depthwise`] | all three, of channels with a filter each: `conv_depthwise_*`, `conv_depthwise_weight_*` |
//! | [`grouped`] | all three, of groups of 2 to 16 channels: `conv_grouped_*`, `conv_grouped_weight_*` |
//! | [`cells`] | the input's gradient of few channels with strides, where it is not finite: `conv_cells` |
//! | [`pool`] | pooling: `conv_pool_max`, `conv_pool_average`, and `_backward` of each |
//! | [`problem`] | the shape of a convolution, for host and kernels |
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Iterators by value over arrays end up in local memory. Indices that unroll to constants do not.
#![allow(clippy::needless_range_loop)]

pub mod cells;
pub mod depthwise;
mod element;
pub mod gather;
pub mod grouped;
pub mod pool;
pub mod problem;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod sm90;
pub mod weight;
