//! Attention: every kernel against the oracle, and wrong calls.

mod attention_case;
mod decode_case;
mod fade_case;
mod pattern_case;
#[path = "../common/refusal.rs"]
mod refusal;

mod ops_attention;
mod ops_attention_ampere;
mod ops_attention_append;
mod ops_attention_backward;
mod ops_attention_backward_functions;
mod ops_attention_backward_mma;
mod ops_attention_backward_packed;
mod ops_attention_backward_whole;
mod ops_attention_bias_gradient;
mod ops_attention_calls;
mod ops_attention_counter;
mod ops_attention_decode;
mod ops_attention_decode_e4m3;
mod ops_attention_dilated;
mod ops_attention_dropout;
mod ops_attention_functions;
mod ops_attention_mask_cache;
mod ops_attention_multi_head;
mod ops_attention_packed;
mod ops_attention_quantized;
mod ops_attention_sinks;
mod ops_attention_tune;
mod ops_attention_value_size;
