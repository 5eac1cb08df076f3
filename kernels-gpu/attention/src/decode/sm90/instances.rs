//! The kernels for a cache in e4m3, and the table of them.

#[cfg(feature = "kernels")]
use cuda_std::kernel;
use num::{E4M3, bf16, f16};
use primitives::pipeline::Stages;

use super::super::config::Config;
use super::super::instances::{Entry, kernels};
#[cfg(feature = "kernels")]
use super::super::{
    config::THREADS,
    forward,
    instances::Append,
    problem::{DecodeParams, Problem},
    results::{Outputs, Parts},
};
use crate::score::Identity;

kernels! {
    #[kernel] fn attention_decode_bf16_e4m3_64 as Bf16E4m3Head64: bf16 on E4M3, head 64, 8 stages, 2 resident;
    #[kernel] fn attention_decode_bf16_e4m3_128 as Bf16E4m3Head128: bf16 on E4M3, head 128, 4 stages, 2 resident;
    #[kernel] fn attention_decode_f16_e4m3_64 as F16E4m3Head64: f16 on E4M3, head 64, 8 stages, 2 resident;
    #[kernel] fn attention_decode_f16_e4m3_128 as F16E4m3Head128: f16 on E4M3, head 128, 4 stages, 2 resident;
}
