//! The kernels with the score functions of the family that decoding has. Which one it is they are told at run
//! time: a tile's scores should be a small part of the time that its keys and values take from memory (not
//! timed: rows `attention_decode_alibi_*` and `attention_decode_soft_cap_*` of `bench attention`).

use crate::functions::Pattern;

crate::decode_score_kernels! {
    Pattern:
    #[kernel] fn attention_decode_pattern_bf16_64: Bf16Head64;
    #[kernel] fn attention_decode_pattern_bf16_128: Bf16Head128;
    #[kernel] fn attention_decode_pattern_bf16_256: Bf16Head256;
    #[kernel] fn attention_decode_pattern_f16_64: F16Head64;
    #[kernel] fn attention_decode_pattern_f16_128: F16Head128;
    #[kernel] fn attention_decode_pattern_f16_256: F16Head256;
    e4m3:
    #[kernel] fn attention_decode_pattern_bf16_e4m3_64: Bf16E4m3Head64;
    #[kernel] fn attention_decode_pattern_bf16_e4m3_128: Bf16E4m3Head128;
    #[kernel] fn attention_decode_pattern_f16_e4m3_64: F16E4m3Head64;
    #[kernel] fn attention_decode_pattern_f16_e4m3_128: F16E4m3Head128;
}
