//! The kernels with the score functions of the family.

use crate::dropout::Dropout;
use crate::functions::{Alibi, Bias, BlockSparse, Ranges, SoftCap};

crate::score_kernels! {
    Alibi:
    #[kernel] fn attention_alibi_lists;
    #[kernel] fn attention_alibi_bf16_64: Bf16Head64;
    #[kernel] fn attention_alibi_bf16_128: Bf16Head128;
    #[kernel] fn attention_alibi_bf16_256: Bf16Head256;
    #[kernel] fn attention_alibi_f16_64: F16Head64;
    #[kernel] fn attention_alibi_f16_128: F16Head128;
    #[kernel] fn attention_alibi_f16_256: F16Head256;
    backward:
    #[kernel] fn attention_alibi_backward_bf16_64: Bf16Head64;
    #[kernel] fn attention_alibi_backward_bf16_128: Bf16Head128;
    #[kernel] fn attention_alibi_backward_bf16_256: Bf16Head256;
    #[kernel] fn attention_alibi_backward_f16_64: F16Head64;
    #[kernel] fn attention_alibi_backward_f16_128: F16Head128;
    #[kernel] fn attention_alibi_backward_f16_256: F16Head256;
}

crate::score_kernels! {
    SoftCap:
    #[kernel] fn attention_soft_cap_lists;
    #[kernel] fn attention_soft_cap_bf16_64: Bf16Head64Low;
    #[kernel] fn attention_soft_cap_bf16_128: Bf16Head128;
    #[kernel] fn attention_soft_cap_bf16_256: Bf16Head256;
    #[kernel] fn attention_soft_cap_f16_64: F16Head64Low;
    #[kernel] fn attention_soft_cap_f16_128: F16Head128;
    #[kernel] fn attention_soft_cap_f16_256: F16Head256;
    backward:
    #[kernel] fn attention_soft_cap_backward_bf16_64: Bf16Head64;
    #[kernel] fn attention_soft_cap_backward_bf16_128: Bf16Head128;
    #[kernel] fn attention_soft_cap_backward_bf16_256: Bf16Head256;
    #[kernel] fn attention_soft_cap_backward_f16_64: F16Head64;
    #[kernel] fn attention_soft_cap_backward_f16_128: F16Head128;
    #[kernel] fn attention_soft_cap_backward_f16_256: F16Head256;
}

crate::score_kernels! {
    Bias:
    #[kernel] fn attention_bias_lists;
    #[kernel] fn attention_bias_bf16_64: Bf16Head64Low;
    #[kernel] fn attention_bias_bf16_128: Bf16Head128;
    #[kernel] fn attention_bias_bf16_256: Bf16Head256;
    #[kernel] fn attention_bias_f16_64: F16Head64Low;
    #[kernel] fn attention_bias_f16_128: F16Head128;
    #[kernel] fn attention_bias_f16_256: F16Head256;
    backward:
    #[kernel] fn attention_bias_backward_bf16_64: Bf16Head64;
    #[kernel] fn attention_bias_backward_bf16_128: Bf16Head128;
    #[kernel] fn attention_bias_backward_bf16_256: Bf16Head256;
    #[kernel] fn attention_bias_backward_f16_64: F16Head64;
    #[kernel] fn attention_bias_backward_f16_128: F16Head128;
    #[kernel] fn attention_bias_backward_f16_256: F16Head256;
}

crate::score_kernels! {
    Ranges:
    #[kernel] fn attention_ranges_lists;
    #[kernel] fn attention_ranges_bf16_64: Bf16Head64Low;
    #[kernel] fn attention_ranges_bf16_128: Bf16Head128;
    #[kernel] fn attention_ranges_bf16_256: Bf16Head256;
    #[kernel] fn attention_ranges_f16_64: F16Head64Low;
    #[kernel] fn attention_ranges_f16_128: F16Head128;
    #[kernel] fn attention_ranges_f16_256: F16Head256;
    backward:
    #[kernel] fn attention_ranges_backward_bf16_64: Bf16Head64;
    #[kernel] fn attention_ranges_backward_bf16_128: Bf16Head128;
    #[kernel] fn attention_ranges_backward_bf16_256: Bf16Head256;
    #[kernel] fn attention_ranges_backward_f16_64: F16Head64;
    #[kernel] fn attention_ranges_backward_f16_128: F16Head128;
    #[kernel] fn attention_ranges_backward_f16_256: F16Head256;
}

crate::score_kernels! {
    BlockSparse:
    #[kernel] fn attention_block_sparse_lists;
    #[kernel] fn attention_block_sparse_bf16_64: Bf16Head64Low;
    #[kernel] fn attention_block_sparse_bf16_128: Bf16Head128;
    #[kernel] fn attention_block_sparse_bf16_256: Bf16Head256;
    #[kernel] fn attention_block_sparse_f16_64: F16Head64Low;
    #[kernel] fn attention_block_sparse_f16_128: F16Head128;
    #[kernel] fn attention_block_sparse_f16_256: F16Head256;
    backward:
    #[kernel] fn attention_block_sparse_backward_bf16_64: Bf16Head64;
    #[kernel] fn attention_block_sparse_backward_bf16_128: Bf16Head128;
    #[kernel] fn attention_block_sparse_backward_bf16_256: Bf16Head256;
    #[kernel] fn attention_block_sparse_backward_f16_64: F16Head64;
    #[kernel] fn attention_block_sparse_backward_f16_128: F16Head128;
    #[kernel] fn attention_block_sparse_backward_f16_256: F16Head256;
}

crate::score_kernels! {
    Dropout:
    #[kernel] fn attention_dropout_lists;
    #[kernel] fn attention_dropout_bf16_64: Bf16Head64Low;
    #[kernel] fn attention_dropout_bf16_128: Bf16Head128;
    #[kernel] fn attention_dropout_bf16_256: Bf16Head256;
    #[kernel] fn attention_dropout_f16_64: F16Head64Low;
    #[kernel] fn attention_dropout_f16_128: F16Head128;
    #[kernel] fn attention_dropout_f16_256: F16Head256;
    backward:
    #[kernel] fn attention_dropout_backward_bf16_64: Bf16Head64;
    #[kernel] fn attention_dropout_backward_bf16_128: Bf16Head128;
    #[kernel] fn attention_dropout_backward_bf16_256: Bf16Head256;
    #[kernel] fn attention_dropout_backward_f16_64: F16Head64;
    #[kernel] fn attention_dropout_backward_f16_128: F16Head128;
    #[kernel] fn attention_dropout_backward_f16_256: F16Head256;
}
