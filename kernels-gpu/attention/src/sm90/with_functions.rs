//! The kernels with the score functions of the family.

use cuda_std::tma::TensorMap;

use crate::functions::{Alibi, Bias, Ranges, SoftCap};

crate::score_kernels! {
    Alibi:
    fn attention_alibi_lists;
    fn attention_alibi_bf16_64: Bf16Head64Low;
    fn attention_alibi_bf16_128: Bf16Head128;
    fn attention_alibi_bf16_256: Bf16Head256;
    fn attention_alibi_f16_64: F16Head64Low;
    fn attention_alibi_f16_128: F16Head128;
    fn attention_alibi_f16_256: F16Head256;
}

crate::score_kernels! {
    SoftCap:
    fn attention_soft_cap_lists;
    fn attention_soft_cap_bf16_64: Bf16Head64Low;
    fn attention_soft_cap_bf16_128: Bf16Head128;
    fn attention_soft_cap_bf16_256: Bf16Head256;
    fn attention_soft_cap_f16_64: F16Head64Low;
    fn attention_soft_cap_f16_128: F16Head128;
    fn attention_soft_cap_f16_256: F16Head256;
}

crate::score_kernels! {
    Bias:
    fn attention_bias_lists;
    fn attention_bias_bf16_64: Bf16Head64Low;
    fn attention_bias_bf16_128: Bf16Head128;
    fn attention_bias_bf16_256: Bf16Head256;
    fn attention_bias_f16_64: F16Head64Low;
    fn attention_bias_f16_128: F16Head128;
    fn attention_bias_f16_256: F16Head256;
}

crate::score_kernels! {
    Ranges:
    fn attention_ranges_lists;
    fn attention_ranges_bf16_64: Bf16Head64Low;
    fn attention_ranges_bf16_128: Bf16Head128;
    fn attention_ranges_bf16_256: Bf16Head256;
    fn attention_ranges_f16_64: F16Head64Low;
    fn attention_ranges_f16_128: F16Head128;
    fn attention_ranges_f16_256: F16Head256;
}
