//! The ops but matrix products, each against its oracle.

#[path = "../common/norms.rs"]
mod norms;

mod common;
mod elementwise_table;
mod lying;
mod ops_activation;
mod ops_adafactor;
mod ops_channels;
mod ops_conv;
mod ops_conv_calls;
mod ops_conv_few;
mod ops_conv_parts;
mod ops_convert;
mod ops_cosine;
mod ops_dropout;
mod ops_elementwise;
mod ops_elementwise_turned;
mod ops_embedding;
mod ops_fill;
mod ops_hash;
mod ops_index;
mod ops_linear_loss;
mod ops_loss;
mod ops_loss_scale;
mod ops_muon;
mod ops_norm_of_dropout;
mod ops_norm_to_e4m3;
mod ops_optim;
mod ops_optim_state;
mod ops_pool;
mod ops_reduce;
mod ops_reduction;
mod ops_reduction_groups;
mod ops_repeat;
mod ops_rotary;
mod ops_row;
mod ops_row_backward;
mod ops_row_drawn;
mod ops_row_engines;
mod ops_row_exact;
mod ops_row_kept;
mod ops_row_loss;
mod ops_row_soft_loss;
mod ops_saxpy;
mod ops_transpose;
