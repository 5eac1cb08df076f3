//! Kernels of norms' gradients by element type.

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use rows::activated_norm::ActivatedNormBackward as ActivatedFunction;
use rows::finish::ColumnJob;
use rows::norm::NormBackward as BackwardFunction;
use rows::plan::Plan;
use rows::sm90::kernels as held;
use rows::{finish, kernels};

use super::launch::Parameters;
use crate::tensor::Element;

/// Parameters of the kernels with sums of columns.
pub(super) type SumParameters<F, T> = (Value<Plan>, Value<F>, Ptr<T>, Ptr<T>, Ptr<T>, PtrMut<T>, PtrMut<f32>);
/// Parameters of the kernels for sums of columns alone.
pub(super) type ColumnParameters<T> = (Value<ColumnJob>, Ptr<T>, Ptr<T>, Ptr<f32>, PtrMut<f32>);
/// Parameters of the kernels that add up what those left.
pub(super) type FinishParameters<T> = (Ptr<f32>, Value<u32>, Value<u32>, PtrMut<T>, PtrMut<T>);

/// An element type whose norms have gradients, and the engines' kernels for it.
pub(super) trait Differentiable: Element {
    /// Any device's.
    type Direct: Kernel<Params = Parameters<BackwardFunction, Self>>;
    /// Rows in shared memory.
    type Held: Kernel<Params = Parameters<BackwardFunction, Self>>;
    /// Sums of columns, in rings of lanes, by blocks.
    type Stays: Kernel<Params = SumParameters<BackwardFunction, Self>>;
    /// The same by clusters.
    type StaysCluster: Kernel<Params = SumParameters<BackwardFunction, Self>>;
    /// The same of rows that begin anywhere.
    type StaysAnywhere: Kernel<Params = SumParameters<BackwardFunction, Self>>;
    /// Sums of columns, in the ring of a block.
    type Sums: Kernel<Params = SumParameters<BackwardFunction, Self>>;
    /// Any device's, of a norm and an activation.
    type ActivatedDirect: Kernel<Params = Parameters<ActivatedFunction, Self>>;
    /// The same of rows in shared memory.
    type ActivatedHeld: Kernel<Params = Parameters<ActivatedFunction, Self>>;
    /// The same with sums of columns, in rings of lanes, by blocks.
    type ActivatedStays: Kernel<Params = SumParameters<ActivatedFunction, Self>>;
    /// The same by clusters.
    type ActivatedStaysCluster: Kernel<Params = SumParameters<ActivatedFunction, Self>>;
    /// The same of rows that begin anywhere.
    type ActivatedStaysAnywhere: Kernel<Params = SumParameters<ActivatedFunction, Self>>;
    /// The same in the ring of a block.
    type ActivatedSums: Kernel<Params = SumParameters<ActivatedFunction, Self>>;
    /// Sums of columns alone.
    type Columns: Kernel<Params = ColumnParameters<Self>>;
    /// Adds them up.
    type Finish: Kernel<Params = FinishParameters<Self>>;
    /// The same where lanes have several columns each.
    type FinishWide: Kernel<Params = FinishParameters<Self>>;
}

macro_rules! differentiable {
    ($($ty:ty: $direct:ident, $held:ident, $stays:ident, $cluster:ident, $anywhere:ident, $sums:ident,
        [$activated:ident, $activated_held:ident, $activated_sums:ident],
        [$activated_stays:ident, $activated_cluster:ident, $activated_anywhere:ident],
        $columns:ident, $finish:ident, $wide:ident;)*) => { $(
        impl Differentiable for $ty {
            type Direct = kernels::$direct;
            type Held = held::$held;
            type Stays = held::$stays;
            type StaysCluster = held::$cluster;
            type StaysAnywhere = held::$anywhere;
            type Sums = held::$sums;
            type ActivatedDirect = kernels::$activated;
            type ActivatedHeld = held::$activated_held;
            type ActivatedStays = held::$activated_stays;
            type ActivatedStaysCluster = held::$activated_cluster;
            type ActivatedStaysAnywhere = held::$activated_anywhere;
            type ActivatedSums = held::$activated_sums;
            type Columns = finish::$columns;
            type Finish = finish::$finish;
            type FinishWide = finish::$wide;
        }
    )* };
}

// Plans have no clusters of whole rows of f32, and none of f32 with an activation that have rings of lanes.
differentiable! {
    f32: norm_backward_f32, norm_backward_held_f32, norm_backward_stays_f32, norm_backward_stays_anywhere_f32,
        norm_backward_stays_anywhere_f32, norm_backward_sums_f32,
        [activated_norm_backward_f32, activated_norm_backward_held_f32, activated_norm_backward_sums_f32],
        [activated_norm_backward_sums_f32, activated_norm_backward_sums_f32, activated_norm_backward_sums_f32],
        norm_columns_f32, norm_sums_f32, norm_sums_wide_f32;
    f16: norm_backward_f16, norm_backward_held_f16, norm_backward_stays_f16, norm_backward_stays_cluster_f16,
        norm_backward_stays_anywhere_f16, norm_backward_sums_f16,
        [activated_norm_backward_f16, activated_norm_backward_held_f16, activated_norm_backward_sums_f16],
        [activated_norm_backward_stays_f16, activated_norm_backward_stays_cluster_f16,
            activated_norm_backward_stays_anywhere_f16],
        norm_columns_f16, norm_sums_f16, norm_sums_wide_f16;
    bf16: norm_backward_bf16, norm_backward_held_bf16, norm_backward_stays_bf16,
        norm_backward_stays_cluster_bf16, norm_backward_stays_anywhere_bf16, norm_backward_sums_bf16,
        [activated_norm_backward_bf16, activated_norm_backward_held_bf16, activated_norm_backward_sums_bf16],
        [activated_norm_backward_stays_bf16, activated_norm_backward_stays_cluster_bf16,
            activated_norm_backward_stays_anywhere_bf16],
        norm_columns_bf16, norm_sums_bf16, norm_sums_wide_bf16;
}
