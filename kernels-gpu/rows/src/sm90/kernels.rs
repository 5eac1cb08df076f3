//! The entry points of the engines for Hopper: a function and an element type each.

use super::stay_sums::{Anywhere, Block, Cluster};
use super::{columns, kept, stay_sums};
use crate::activated_norm::ActivatedNormBackward;
use crate::function::Tensors;
use crate::held_kernels;
use crate::loss::CrossEntropy;
use crate::loss_of_probabilities::ProbabilityCrossEntropy;
use crate::norm::{Norm, NormBackward};
use crate::norm_of_dropout::NormOfDropout;
use crate::norm_to_e4m3::{NormOfDropoutToE4m3, NormToE4m3};
use crate::plan::{
    HELPERS, KEPT_FEWER, KEPT_RESIDENT, KEPT_WARPS, MAX_CONSUMERS, Plan, STAY_ACTIVATED_WARPS, STAY_WARPS,
    kept_vectors, sum_vectors,
};
use crate::soft_cap::CappedCrossEntropy;
use crate::softmax::{Softmax, SoftmaxBackward};
use cuda_std::kernel;
use half::{bf16, f16};
use primitives::access::VECTOR_BYTES;
use primitives::warp::LANES;

held_kernels! {
    #[kernel] fn softmax_held_f32: Softmax, f32;
    #[kernel] fn softmax_held_f16: Softmax, f16;
    #[kernel] fn softmax_held_bf16: Softmax, bf16;
    #[kernel] fn softmax_backward_held_f32: SoftmaxBackward, f32;
    #[kernel] fn softmax_backward_held_f16: SoftmaxBackward, f16;
    #[kernel] fn softmax_backward_held_bf16: SoftmaxBackward, bf16;
    #[kernel] fn norm_held_f32: Norm, f32;
    #[kernel] fn norm_held_f16: Norm, f16;
    #[kernel] fn norm_held_bf16: Norm, bf16;
    #[kernel] fn norm_of_dropout_held_f32: NormOfDropout, f32;
    #[kernel] fn norm_of_dropout_held_f16: NormOfDropout, f16;
    #[kernel] fn norm_of_dropout_held_bf16: NormOfDropout, bf16;
    #[kernel] fn norm_to_e4m3_held_f32: NormToE4m3, f32;
    #[kernel] fn norm_to_e4m3_held_f16: NormToE4m3, f16;
    #[kernel] fn norm_to_e4m3_held_bf16: NormToE4m3, bf16;
    #[kernel] fn norm_of_dropout_to_e4m3_held_f32: NormOfDropoutToE4m3, f32;
    #[kernel] fn norm_of_dropout_to_e4m3_held_f16: NormOfDropoutToE4m3, f16;
    #[kernel] fn norm_of_dropout_to_e4m3_held_bf16: NormOfDropoutToE4m3, bf16;
    #[kernel] fn norm_backward_held_f32: NormBackward, f32;
    #[kernel] fn norm_backward_held_f16: NormBackward, f16;
    #[kernel] fn norm_backward_held_bf16: NormBackward, bf16;
    #[kernel] fn activated_norm_backward_held_f32: ActivatedNormBackward, f32;
    #[kernel] fn activated_norm_backward_held_f16: ActivatedNormBackward, f16;
    #[kernel] fn activated_norm_backward_held_bf16: ActivatedNormBackward, bf16;
    #[kernel] fn cross_entropy_held_f32: CrossEntropy, f32;
    #[kernel] fn cross_entropy_held_f16: CrossEntropy, f16;
    #[kernel] fn cross_entropy_held_bf16: CrossEntropy, bf16;
    #[kernel] fn cross_entropy_capped_held_f32: CappedCrossEntropy, f32;
    #[kernel] fn cross_entropy_capped_held_f16: CappedCrossEntropy, f16;
    #[kernel] fn cross_entropy_capped_held_bf16: CappedCrossEntropy, bf16;
    #[kernel] fn cross_entropy_probabilities_held_f32: ProbabilityCrossEntropy, f32;
    #[kernel] fn cross_entropy_probabilities_held_f16: ProbabilityCrossEntropy, f16;
    #[kernel] fn cross_entropy_probabilities_held_bf16: ProbabilityCrossEntropy, bf16;
}

macro_rules! kernels_with_sums {
    ($(#[kernel] fn $name:ident: $function:ty, $ty:ident;)*) => { $(
        #[doc = concat!("`", stringify!($function), "` of rows of ", stringify!($ty), ", with sums of columns.")]
        ///
        /// # Safety
        /// As for [`columns::run`].
        #[kernel(launch_bounds(MAX_CONSUMERS + HELPERS))]
        pub unsafe fn $name(
            plan: Plan,
            function: $function,
            x: *const $ty,
            dy: *const $ty,
            residual: *const $ty,
            dx: *mut $ty,
            partials: *mut f32,
        ) {
            let tensors = Tensors::new([x, dy, residual], [dx, core::ptr::null_mut()]);
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            const VECTORS: usize = sum_vectors(size_of::<$ty>());
            // SAFETY: the caller's promise.
            unsafe { columns::run::<$ty, $function, N, VECTORS>(&plan, &function, &tensors, partials) }
        }
    )* };
}

kernels_with_sums! {
    #[kernel] fn norm_backward_sums_f32: NormBackward, f32;
    #[kernel] fn norm_backward_sums_f16: NormBackward, f16;
    #[kernel] fn norm_backward_sums_bf16: NormBackward, bf16;
    #[kernel] fn activated_norm_backward_sums_f32: ActivatedNormBackward, f32;
    #[kernel] fn activated_norm_backward_sums_f16: ActivatedNormBackward, f16;
    #[kernel] fn activated_norm_backward_sums_bf16: ActivatedNormBackward, bf16;
}

macro_rules! staying_sums {
    ($warps:ident; $(#[kernel] fn $name:ident: $function:ident, $ty:ident, $kind:ident;)*) => { $(
        #[doc = concat!("[`", stringify!($function), "`] of rows of ", stringify!($ty), ", with sums of columns,")]
        /// by lanes that have rings of their own.
        ///
        /// # Safety
        /// As for [`stay_sums::run`].
        #[kernel(launch_bounds($warps * LANES, 1))]
        pub unsafe fn $name(
            plan: Plan,
            function: $function,
            x: *const $ty,
            dy: *const $ty,
            residual: *const $ty,
            dx: *mut $ty,
            partials: *mut f32,
        ) {
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            const VECTORS: usize = stay_sums::vectors::<$ty, $kind, $function>();
            let inputs = [x, dy, residual];
            // SAFETY: the caller's promise.
            unsafe { stay_sums::run::<$ty, $kind, _, N, VECTORS>(&plan, &function, inputs, dx, partials) }
        }
    )* };
}

staying_sums! {
    STAY_WARPS;
    #[kernel] fn norm_backward_stays_f32: NormBackward, f32, Block;
    #[kernel] fn norm_backward_stays_f16: NormBackward, f16, Block;
    #[kernel] fn norm_backward_stays_bf16: NormBackward, bf16, Block;
    #[kernel] fn norm_backward_stays_cluster_f16: NormBackward, f16, Cluster;
    #[kernel] fn norm_backward_stays_cluster_bf16: NormBackward, bf16, Cluster;
    #[kernel] fn norm_backward_stays_anywhere_f32: NormBackward, f32, Anywhere;
    #[kernel] fn norm_backward_stays_anywhere_f16: NormBackward, f16, Anywhere;
    #[kernel] fn norm_backward_stays_anywhere_bf16: NormBackward, bf16, Anywhere;
}

staying_sums! {
    STAY_ACTIVATED_WARPS;
    #[kernel] fn activated_norm_backward_stays_f16: ActivatedNormBackward, f16, Block;
    #[kernel] fn activated_norm_backward_stays_bf16: ActivatedNormBackward, bf16, Block;
    #[kernel] fn activated_norm_backward_stays_cluster_f16: ActivatedNormBackward, f16, Cluster;
    #[kernel] fn activated_norm_backward_stays_cluster_bf16: ActivatedNormBackward, bf16, Cluster;
    #[kernel] fn activated_norm_backward_stays_anywhere_f16: ActivatedNormBackward, f16, Anywhere;
    #[kernel] fn activated_norm_backward_stays_anywhere_bf16: ActivatedNormBackward, bf16, Anywhere;
}

macro_rules! kept_norms {
    ($(#[kernel] fn $name:ident: $ty:ident, $kind:ident, $vectors:expr;)*) => { $(
        #[doc = concat!("[`Norm`] of rows of ", stringify!($ty), " in registers.")]
        ///
        /// # Safety
        /// As for [`kept::run`].
        #[kernel(launch_bounds(KEPT_WARPS * LANES, KEPT_RESIDENT))]
        pub unsafe fn $name(
            plan: Plan,
            function: Norm,
            x: *const $ty,
            residual: *const $ty,
            third: *const $ty,
            y: *mut $ty,
            sum: *mut $ty,
        ) {
            let tensors = Tensors::new([x, residual, third], [y, sum]);
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            const VECTORS: usize = $vectors;
            // SAFETY: the caller's promise.
            unsafe {
                kept::run::<$ty, N, VECTORS, kept::$kind>(&plan, &function, &tensors, core::ptr::null_mut())
            }
        }
    )* };
}

kept_norms! {
    #[kernel] fn norm_kept_f32: f32, Full, kept_vectors(size_of::<f32>());
    #[kernel] fn norm_kept_f16: f16, Full, kept_vectors(size_of::<f16>());
    #[kernel] fn norm_kept_bf16: bf16, Full, kept_vectors(size_of::<bf16>());
    #[kernel] fn norm_kept_part_f32: f32, Part, kept_vectors(size_of::<f32>());
    #[kernel] fn norm_kept_part_f16: f16, Part, kept_vectors(size_of::<f16>());
    #[kernel] fn norm_kept_part_bf16: bf16, Part, kept_vectors(size_of::<bf16>());
    #[kernel] fn norm_kept_fewer_f16: f16, Fewer, KEPT_FEWER;
    #[kernel] fn norm_kept_fewer_bf16: bf16, Fewer, KEPT_FEWER;
}

macro_rules! drawn_norms {
    ($(#[kernel] fn $name:ident: $ty:ident, $kind:ident;)*) => { $(
        #[doc = concat!("[`Norm`] of rows of ", stringify!($ty), " in registers, which blocks draw.")]
        ///
        /// # Safety
        /// As for [`kept::run`].
        #[kernel(launch_bounds(KEPT_WARPS * LANES, KEPT_RESIDENT))]
        pub unsafe fn $name(
            plan: Plan,
            function: Norm,
            x: *const $ty,
            residual: *const $ty,
            counter: *mut u32,
            y: *mut $ty,
            sum: *mut $ty,
        ) {
            let tensors = Tensors::new([x, residual, core::ptr::null()], [y, sum]);
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            const VECTORS: usize = kept_vectors(size_of::<$ty>());
            // SAFETY: the caller's promise.
            unsafe { kept::run::<$ty, N, VECTORS, kept::$kind>(&plan, &function, &tensors, counter) }
        }
    )* };
}

drawn_norms! {
    #[kernel] fn norm_drawn_f32: f32, Drawn;
    #[kernel] fn norm_drawn_f16: f16, Drawn;
    #[kernel] fn norm_drawn_bf16: bf16, Drawn;
    #[kernel] fn norm_drawn_shared_f16: f16, DrawnShared;
    #[kernel] fn norm_drawn_shared_bf16: bf16, DrawnShared;
}
