//! Element types and their kernels, and operands as kernels read them.

use bytemuck::Pod;
use conv::depthwise::weight::{
    DepthwiseWeights, conv_depthwise_weight_bf16, conv_depthwise_weight_f16, conv_depthwise_weight_f32,
};
use conv::depthwise::{Depthwise, conv_depthwise_bf16, conv_depthwise_f16, conv_depthwise_f32};
use conv::gather::{
    Gather, conv_gather_bf16, conv_gather_bf16_narrow, conv_gather_f16, conv_gather_f16_narrow,
    conv_gather_tf32, conv_gather_tf32_narrow,
};
use conv::weight::{
    Stored, Weights, conv_weight_bf16, conv_weight_bf16_flat, conv_weight_f16, conv_weight_f16_flat,
    conv_weight_tf32, conv_weight_tf32_flat,
};
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use primitives::access::VECTOR_BYTES;

use crate::error::Result;
use crate::ops::elementwise::{copy, copy_into};
use crate::stream::Stream;
use crate::tensor::{Element, Tensor};

/// Elements of the units that kernels copy, of the smallest type.
pub(super) const MAX_UNIT: usize = <f16 as Kernels>::UNIT;

/// An element type with kernels.
pub(super) trait Kernels: Element + Pod {
    type Wide: Kernel<Params = (Value<Gather>, Ptr<Self>, Ptr<Self>, Ptr<Self>, PtrMut<Self>)>;
    type Narrow: Kernel<Params = (Value<Gather>, Ptr<Self>, Ptr<Self>, Ptr<Self>, PtrMut<Self>)>;
    type Tall: Kernel<Params = (Value<Weights>, Ptr<Self>, Ptr<Self>, PtrMut<f32>)>;
    type Flat: Kernel<Params = (Value<Weights>, Ptr<Self>, Ptr<Self>, PtrMut<f32>)>;
    type Depthwise: Kernel<Params = (Value<Depthwise>, Ptr<Self>, Ptr<Self>, Ptr<Self>, PtrMut<Self>)>;
    type DepthwiseWeight: Kernel<Params = (Value<DepthwiseWeights>, Ptr<Self>, Ptr<Self>, PtrMut<f32>)>;
    const STORED: Stored;
    /// Elements of a unit.
    const UNIT: usize = VECTOR_BYTES / size_of::<Self>();
}

macro_rules! kernels {
    ($($ty:ident = $stored:ident: $wide:ident, $narrow:ident, $tall:ident, $flat:ident, $each:ident, $each_weight:ident;)*) => { $(
        impl Kernels for $ty {
            type Wide = $wide;
            type Narrow = $narrow;
            type Tall = $tall;
            type Flat = $flat;
            type Depthwise = $each;
            type DepthwiseWeight = $each_weight;
            const STORED: Stored = Stored::$stored;
        }
    )* };
}

kernels! {
    f16 = F16: conv_gather_f16, conv_gather_f16_narrow, conv_weight_f16, conv_weight_f16_flat,
        conv_depthwise_f16, conv_depthwise_weight_f16;
    bf16 = Bf16: conv_gather_bf16, conv_gather_bf16_narrow, conv_weight_bf16, conv_weight_bf16_flat,
        conv_depthwise_bf16, conv_depthwise_weight_bf16;
    f32 = F32: conv_gather_tf32, conv_gather_tf32_narrow, conv_weight_tf32, conv_weight_tf32_flat,
        conv_depthwise_f32, conv_depthwise_weight_f32;
}

/// Runs the body with the element type.
macro_rules! by_type {
    ($dtype:expr, ($operation:expr, $what:expr), $T:ident => $body:block) => {
        $crate::ops::dispatch::by_dtype!($dtype, ($operation, $what, None), {
            F16 => { type $T = half::f16; $body },
            BF16 => { type $T = half::bf16; $body },
            F32 => { type $T = f32; $body },
        })
    };
}

pub(super) use by_type;

/// The tensor with its last side in `groups` groups of whole units, dense and aligned: a copy with channels
/// of zeros, where it does not lie so.
#[track_caller]
pub(super) fn in_units<T: Kernels>(stream: &Stream, tensor: &Tensor, groups: usize) -> Result<Tensor> {
    let sides = tensor.shape().sides();
    let Some((&channels, others)) = sides.split_last() else { return Ok(tensor.clone()) };
    let of_group = channels / groups;
    if of_group.is_multiple_of(T::UNIT) {
        return aligned(stream, tensor);
    }
    let by_groups = [others, &[groups, of_group]].concat();
    let from = crate::ops::elementwise::reshape(stream, tensor, &by_groups)?;
    let mut padded = by_groups;
    let last = padded.len() - 1;
    padded[last] = of_group.next_multiple_of(T::UNIT);
    let mut copied = Tensor::zeros(stream, &padded, tensor.dtype())?;
    copy_into(stream, &from, copied.view_mut()?.slice(last, 0..of_group)?)?;
    copied.view_as(&[others, &[groups * padded[last]]].concat())
}

/// The filters `[groups * filters, height, width, channels]` with whole units of filters and channels in a
/// group.
#[track_caller]
pub(super) fn filters_in_units<T: Kernels>(
    stream: &Stream,
    tensor: &Tensor,
    groups: usize,
) -> Result<Tensor> {
    let &[count, height, width, channels] = tensor.shape().sides() else { return Ok(tensor.clone()) };
    let of_group = count / groups;
    if of_group.is_multiple_of(T::UNIT) && channels.is_multiple_of(T::UNIT) {
        return aligned(stream, tensor);
    }
    let from = [groups, of_group, height, width, channels];
    let from = crate::ops::elementwise::reshape(stream, tensor, &from)?;
    let [filters, padded] = [of_group, channels].map(|side| side.next_multiple_of(T::UNIT));
    let mut copied = Tensor::zeros(stream, &[groups, filters, height, width, padded], tensor.dtype())?;
    copy_into(stream, &from, copied.view_mut()?.slice(1, 0..of_group)?.slice(4, 0..channels)?)?;
    copied.view_as(&[groups * filters, height, width, padded])
}

/// The tensor, dense and at a whole unit.
#[track_caller]
pub(super) fn aligned(stream: &Stream, tensor: &Tensor) -> Result<Tensor> {
    let is_aligned = tensor.address().is_multiple_of(VECTOR_BYTES as u64);
    if tensor.is_contiguous() && is_aligned { Ok(tensor.clone()) } else { copy(stream, tensor) }
}
