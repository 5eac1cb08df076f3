//! The ops but matrix products, each against its oracle.

mod elementwise_table;
mod ops_conv;
mod ops_convert;
mod ops_cosine;
mod ops_dropout;
mod ops_elementwise;
mod ops_elementwise_turned;
mod ops_embedding;
mod ops_fill;
mod ops_hash;
mod ops_index;
mod ops_muon;
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
mod ops_row_loss;
mod ops_saxpy;
mod ops_transpose;
