//! The entry points of the direct engine: a function and an element type each.

use crate::activated_norm::ActivatedNormBackward;
use crate::cosine::CosineEmbedding;
use crate::loss::CrossEntropy;
use crate::loss_of_probabilities::ProbabilityCrossEntropy;
use crate::norm::{Norm, NormBackward};
use crate::norm_of_dropout::NormOfDropout;
use crate::norm_to_e4m3::{NormOfDropoutToE4m3, NormToE4m3};
use crate::row_kernels;
use crate::soft_cap::CappedCrossEntropy;
use crate::softmax::{Softmax, SoftmaxBackward};
use cuda_std::kernel;
use half::{bf16, f16};

row_kernels! {
    #[kernel] fn softmax_f32: Softmax, f32;
    #[kernel] fn softmax_f16: Softmax, f16;
    #[kernel] fn softmax_bf16: Softmax, bf16;
    #[kernel] fn softmax_backward_f32: SoftmaxBackward, f32;
    #[kernel] fn softmax_backward_f16: SoftmaxBackward, f16;
    #[kernel] fn softmax_backward_bf16: SoftmaxBackward, bf16;
    #[kernel] fn norm_f32: Norm, f32;
    #[kernel] fn norm_f16: Norm, f16;
    #[kernel] fn norm_bf16: Norm, bf16;
    #[kernel] fn norm_of_dropout_f32: NormOfDropout, f32;
    #[kernel] fn norm_of_dropout_f16: NormOfDropout, f16;
    #[kernel] fn norm_of_dropout_bf16: NormOfDropout, bf16;
    #[kernel] fn norm_to_e4m3_f32: NormToE4m3, f32;
    #[kernel] fn norm_to_e4m3_f16: NormToE4m3, f16;
    #[kernel] fn norm_to_e4m3_bf16: NormToE4m3, bf16;
    #[kernel] fn norm_of_dropout_to_e4m3_f32: NormOfDropoutToE4m3, f32;
    #[kernel] fn norm_of_dropout_to_e4m3_f16: NormOfDropoutToE4m3, f16;
    #[kernel] fn norm_of_dropout_to_e4m3_bf16: NormOfDropoutToE4m3, bf16;
    #[kernel] fn norm_backward_f32: NormBackward, f32;
    #[kernel] fn norm_backward_f16: NormBackward, f16;
    #[kernel] fn norm_backward_bf16: NormBackward, bf16;
    #[kernel] fn activated_norm_backward_f32: ActivatedNormBackward, f32;
    #[kernel] fn activated_norm_backward_f16: ActivatedNormBackward, f16;
    #[kernel] fn activated_norm_backward_bf16: ActivatedNormBackward, bf16;
    #[kernel] fn cross_entropy_f32: CrossEntropy, f32;
    #[kernel] fn cross_entropy_f16: CrossEntropy, f16;
    #[kernel] fn cross_entropy_bf16: CrossEntropy, bf16;
    #[kernel] fn cross_entropy_capped_f32: CappedCrossEntropy, f32;
    #[kernel] fn cross_entropy_capped_f16: CappedCrossEntropy, f16;
    #[kernel] fn cross_entropy_capped_bf16: CappedCrossEntropy, bf16;
    #[kernel] fn cross_entropy_probabilities_f32: ProbabilityCrossEntropy, f32;
    #[kernel] fn cross_entropy_probabilities_f16: ProbabilityCrossEntropy, f16;
    #[kernel] fn cross_entropy_probabilities_bf16: ProbabilityCrossEntropy, bf16;
    #[kernel] fn cosine_embedding_f32: CosineEmbedding, f32;
    #[kernel] fn cosine_embedding_f16: CosineEmbedding, f16;
    #[kernel] fn cosine_embedding_bf16: CosineEmbedding, bf16;
    #[kernel] fn softmax_f64: Softmax, f64;
    #[kernel] fn norm_f64: Norm, f64;
}
