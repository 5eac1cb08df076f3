//! Matrix products: every kernel against the oracle, selection, tuning.

mod gemm_case;
#[path = "../common/refusal.rs"]
mod refusal;

mod gemm_plain_sums;
mod gemm_sm90;
mod ops_gemm;
mod ops_gemm_any;
mod ops_gemm_as_they_lie;
mod ops_gemm_blocks;
mod ops_gemm_calls;
mod ops_gemm_direct;
mod ops_gemm_f32;
mod ops_gemm_grouped;
mod ops_gemm_mma;
mod ops_gemm_repack;
mod ops_gemm_skinny;
mod ops_gemm_sm90;
mod ops_gemm_training;
mod ops_gemm_tune;
