//! Sums of the columns of rows in a buffer.

use bytemuck::Pod;
use tensor::reduce::columns::Columns;
use tensor::reduce::fold::Fold;

use crate::error::Result;
use crate::launch::launch;
use crate::memory::{DeviceBuffer, DeviceView, Within};
use crate::stream::Stream;
use crate::tensor::{DType, Element};

use super::{Bf16, F16, F32, Kernels, ReduceOp, config};

/// Queues the sums of the columns of `x`, so many rows of so many elements, neither 0, of f32, f16 or bf16.
/// `y` has a number for each column, borrowed as a result is.
pub(crate) fn column_sums(
    stream: &Stream,
    (x, dtype): (DeviceView<'_, u8>, DType),
    sides: [usize; 2],
    y: Within<'_, f32>,
) -> Result<()> {
    let fold = ReduceOp::Sum.rules().fold;
    match dtype {
        DType::F16 => sums::<F16>(stream, fold, x.cast(), sides, y),
        DType::BF16 => sums::<Bf16>(stream, fold, x.cast(), sides, y),
        _ => sums::<F32>(stream, fold, x.cast(), sides, y),
    }
}

fn sums<K: Kernels<Number = f32, Again = F32>>(
    stream: &Stream,
    fold: Fold,
    x: DeviceView<'_, K::Element>,
    [rows, columns]: [usize; 2],
    y: Within<'_, f32>,
) -> Result<()>
where
    K::Element: Element + Pod,
{
    let plan = Columns::new::<K::Element>(1, rows as u64, columns as u64, x.as_ptr().raw());
    if plan.chunks == 1 {
        // SAFETY: x holds the rows, y a number for each column, exclusively borrowed by the caller.
        return unsafe { launch::<K::Columns>(stream, config(plan.blocks()), (fold, plan, 1.0f32, x, y)) };
    }
    let chunks = plan.chunks as usize;
    // SAFETY: the kernel writes every element.
    let mut between = unsafe { DeviceBuffer::<f32>::uninit(stream, chunks.saturating_mul(columns))? };
    // SAFETY: x holds the rows, `between` a row for each chunk.
    unsafe { launch::<K::Columns>(stream, config(plan.blocks()), (fold, plan, 1.0f32, x, &mut between))? };
    let fold = Fold { kind: fold.kind.of_results(), ..fold };
    sums::<F32>(stream, fold, between.view(), [chunks, columns], y)
}
