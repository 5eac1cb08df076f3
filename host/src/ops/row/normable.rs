//! Element types of norms, and the kernels of each engine for them.

use cuda_std::kernel::Kernel;
use half::{bf16, f16};
use rows::kernels;
use rows::norm::Norm as Function;
use rows::sm90::kernels as held;

use super::launch::{DrawnParameters, Parameters};
use crate::tensor::Element;

/// An element type whose rows every engine has, and the engines' kernels for it.
pub(super) trait Normable: Element {
    /// Any device's.
    type Direct: Kernel<Params = Parameters<Function, Self>>;
    /// Rows in shared memory.
    type Held: Kernel<Params = Parameters<Function, Self>>;
    /// Rows in registers, as much of one in each thread.
    type Kept: Kernel<Params = Parameters<Function, Self>>;
    /// Others.
    type KeptPart: Kernel<Params = Parameters<Function, Self>>;
    /// Rows in registers, fewer vectors in each thread. Plans of 32 bits have none of these.
    type KeptFewer: Kernel<Params = Parameters<Function, Self>>;
    /// Rows in registers that blocks draw.
    type Drawn: Kernel<Params = DrawnParameters<Function, Self>>;
    /// The same with weights in shared memory. Plans of 32 bits have none of these.
    type DrawnShared: Kernel<Params = DrawnParameters<Function, Self>>;
}

macro_rules! normable {
    ($($ty:ty: $direct:ident, $held:ident, $kept:ident, $part:ident, $fewer:ident,
       $drawn:ident, $shared:ident;)*) => { $(
        impl Normable for $ty {
            type Direct = kernels::$direct;
            type Held = held::$held;
            type Kept = held::$kept;
            type KeptPart = held::$part;
            type KeptFewer = held::$fewer;
            type Drawn = held::$drawn;
            type DrawnShared = held::$shared;
        }
    )* };
}

normable! {
    f32: norm_f32, norm_held_f32, norm_kept_f32, norm_kept_part_f32, norm_kept_f32,
        norm_drawn_f32, norm_drawn_f32;
    f16: norm_f16, norm_held_f16, norm_kept_f16, norm_kept_part_f16, norm_kept_fewer_f16,
        norm_drawn_f16, norm_drawn_shared_f16;
    bf16: norm_bf16, norm_held_bf16, norm_kept_bf16, norm_kept_part_bf16, norm_kept_fewer_bf16,
        norm_drawn_bf16, norm_drawn_shared_bf16;
}
