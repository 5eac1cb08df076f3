//! Rotary position embedding, forward and backward, of operands with any strides, in place too.
//!
//! ```
//! use ironwarp::ops::rotary::{Positions, RotaryTables, rotary, rotary_backward};
//! use ironwarp::{Device, Tensor};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! // Two rows of one head of four columns, which turn in halves: columns 0 and 2, 1 and 3.
//! let x = Tensor::from_slice(&stream, &[2, 1, 4], &[1.0f32, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 2.0])?;
//! let tables = RotaryTables::new(&stream, 2, 4, 10_000.0)?;
//! let y = rotary(&stream, &x, tables.halves()?, Positions::From(0))?;
//! // Position 0 does not turn; at position 1 the first pair turns by 1 radian.
//! assert_eq!(y.to_vec::<f32>(&stream)?[..4], [1.0, 0.0, 0.0, 2.0]);
//! assert!((y.to_vec::<f32>(&stream)?[4] - 1f32.cos()).abs() < 1e-6);
//! // A rotation's gradient is the rotation back.
//! let x = rotary_backward(&stream, &y, tables.halves()?, Positions::From(0))?;
//! assert!((x.to_vec::<f32>(&stream)?[4] - 1.0).abs() < 1e-6);
//! # Ok(())
//! # }
//! ```

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use layout::Divisor;
use primitives::access::VECTOR_BYTES;
use tensor::THREADS;
use tensor::rotary::{Rotation, rotary_bf16, rotary_f16, rotary_f32};

pub use super::attention::Rotary;

use super::dispatch::by_dtype;
use super::elementwise::made;
use super::index::Indices;
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, launch};
use crate::memory::{Within, same_length};
use crate::stream::Stream;
use crate::tensor::{Layout, Tensor, TensorError, TensorMut};

const OPERATION: &str = "rotary";

/// Cosines and sines of the angles `position base^(-2 i / rotated)`, f32, for [`Rotary`].
#[derive(Debug, Clone)]
pub struct RotaryTables {
    cosines: Tensor,
    sines: Tensor,
    rotated: usize,
}

impl RotaryTables {
    /// Tables of `positions` positions, computed on the host in f64; `rotated` columns of a head turn, an
    /// even number. The usual base is 10,000.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an odd number of columns or a base that is not above 0,
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, positions: usize, rotated: usize, base: f64) -> Result<Self> {
        let operation = "RotaryTables::new";
        if !rotated.is_multiple_of(2) {
            let (argument, got, wanted) = ("rotated", rotated.to_string(), "an even number".to_owned());
            let hint = "columns turn in pairs: usually all of a head";
            return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
        }
        if !(base.is_finite() && base > 0.0) {
            let (argument, got, wanted) = ("base", base.to_string(), "a number above 0".to_owned());
            return Err(Error::InvalidArgument { operation, argument, got, wanted, hint: "10000 is usual" });
        }
        let pairs = rotated / 2;
        let frequencies: Vec<f64> = (0..pairs).map(|i| base.powf(-(i as f64) / pairs as f64)).collect();
        let angles = (0..positions).flat_map(|at| frequencies.iter().map(move |f| at as f64 * f));
        let (sines, cosines): (Vec<f32>, Vec<f32>) =
            angles.map(f64::sin_cos).map(|(s, c)| (s as f32, c as f32)).unzip();
        let table = |values: &[f32]| Tensor::from_slice(stream, &[positions, pairs], values);
        Ok(RotaryTables { cosines: table(&cosines)?, sines: table(&sines)?, rotated })
    }

    /// Columns `i` and `i + rotated / 2` turn together, as in Llama.
    ///
    /// # Errors
    /// None is expected: the tables are f32 and contiguous.
    pub fn halves(&self) -> Result<Rotary<'_>> {
        Ok(Rotary::halves(self.cosines.as_view()?, self.sines.as_view()?, self.rotated))
    }

    /// Columns `2 i` and `2 i + 1` turn together, as in GPT-J.
    ///
    /// # Errors
    /// As [`RotaryTables::halves`].
    pub fn neighbours(&self) -> Result<Rotary<'_>> {
        Ok(Rotary::neighbours(self.cosines.as_view()?, self.sines.as_view()?, self.rotated))
    }
}

/// The positions of rows.
#[derive(Debug, Clone, Copy)]
pub enum Positions<'a> {
    /// The first row of each batch has this one, and the others follow.
    From(usize),
    /// One for each row of each batch, in order: of packed sequences, say.
    Of(&'a Indices),
}

/// `x`, f32, f16 or bf16, `[batch, rows, heads, columns]` or `[rows, heads, columns]`, with pairs of columns
/// of each head turned: column `a` becomes `a cos - b sin`, its partner `b` becomes `b cos + a sin`, in f32,
/// rounded once. Columns beyond those that turn stay. The result is contiguous.
///
/// A large `x` is read and written at the speed of memory where the columns of a head, those that turn and
/// half of these are multiples of 16 bytes.
///
/// # Errors
/// [`Error::InvalidArgument`] for more columns that turn than there are, an odd number of them, or tables
/// with fewer positions than rows need, [`TensorError::Shape`] for another number of dimensions,
/// [`TensorError::DType`], [`TensorError::NotContiguous`] when columns are no neighbours,
/// [`TensorError::TooLarge`] for 2^31 pairs or more, [`Error::Length`] for another number of positions than
/// rows, [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn rotary(
    stream: &Stream,
    x: &Tensor,
    embedding: Rotary<'_>,
    positions: Positions<'_>,
) -> Result<Tensor> {
    turned(stream, x, Turn { embedding, positions, is_inverse: false })
}

/// The gradient of [`rotary`]: the same with angles of the other sign.
///
/// # Errors
/// As there.
#[track_caller]
pub fn rotary_backward(
    stream: &Stream,
    dy: &Tensor,
    embedding: Rotary<'_>,
    positions: Positions<'_>,
) -> Result<Tensor> {
    turned(stream, dy, Turn { embedding, positions, is_inverse: true })
}

/// [`rotary`] in place: of the queries in a packed tensor of queries, keys and values, say.
///
/// # Errors
/// As there.
#[track_caller]
pub fn rotary_in_place(
    stream: &Stream,
    x: &mut TensorMut<'_>,
    embedding: Rotary<'_>,
    positions: Positions<'_>,
) -> Result<()> {
    turn_in_place(stream, x, Turn { embedding, positions, is_inverse: false })
}

/// [`rotary_backward`] in place.
///
/// # Errors
/// As there.
#[track_caller]
pub fn rotary_backward_in_place(
    stream: &Stream,
    dy: &mut TensorMut<'_>,
    embedding: Rotary<'_>,
    positions: Positions<'_>,
) -> Result<()> {
    turn_in_place(stream, dy, Turn { embedding, positions, is_inverse: true })
}

/// A rotation to be queued.
#[derive(Clone, Copy)]
struct Turn<'a> {
    embedding: Rotary<'a>,
    positions: Positions<'a>,
    is_inverse: bool,
}

/// An operand or a result.
struct Place<'a> {
    memory: Within<'a, u8>,
    address: u64,
    layout: &'a Layout,
}

#[track_caller]
fn turned(stream: &Stream, x: &Tensor, turn: Turn<'_>) -> Result<Tensor> {
    let from = Place { memory: x.read(stream)?, address: x.address(), layout: x.layout() };
    made(stream, x.shape(), x.dtype(), |out| {
        let to = Place { memory: out.write(stream)?, address: out.address(), layout: out.layout() };
        by_dtype!(x.dtype(), (OPERATION, "x", None), {
            F32 => turn.run::<rotary_f32, f32>(stream, &from, &to, false),
            F16 => turn.run::<rotary_f16, f16>(stream, &from, &to, false),
            BF16 => turn.run::<rotary_bf16, bf16>(stream, &from, &to, false),
        })
    })
}

#[track_caller]
fn turn_in_place(stream: &Stream, x: &mut TensorMut<'_>, turn: Turn<'_>) -> Result<()> {
    let place = Place { memory: x.write(stream)?, address: x.address(), layout: x.layout() };
    by_dtype!(x.dtype(), (OPERATION, "x", None), {
        F32 => turn.run::<rotary_f32, f32>(stream, &place, &place, true),
        F16 => turn.run::<rotary_f16, f16>(stream, &place, &place, true),
        BF16 => turn.run::<rotary_bf16, bf16>(stream, &place, &place, true),
    })
}

/// Sides and strides of batch, row, head and column.
struct Sides {
    sides: [usize; 4],
    strides: [u64; 3],
}

impl Sides {
    fn of(layout: &Layout) -> Result<Self> {
        let (operation, what, sides) = (OPERATION, "x", layout.shape().sides());
        let (sides, strides) = match (sides, layout.strides()) {
            (&[rows, heads, columns], &[row, head, column]) => {
                ([1, rows, heads, columns], [0, row, head, column])
            }
            (&[batch, rows, heads, columns], &[matrix, row, head, column]) => {
                ([batch, rows, heads, columns], [matrix, row, head, column])
            }
            _ => {
                let wanted = "[batch, rows, heads, columns] or [rows, heads, columns]".to_owned();
                let (got, hint) = (layout.shape().clone(), "`unsqueeze` a dimension of heads");
                return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
            }
        };
        if strides[3] != 1 && sides[3] > 1 {
            let (shape, strides) = (layout.shape().clone(), layout.strides().to_vec());
            return Err(TensorError::NotContiguous { operation, shape, strides }.into());
        }
        Ok(Sides { sides, strides: [strides[0] as u64, strides[1] as u64, strides[2] as u64] })
    }

    /// Do all heads begin at multiples of so many elements? A side of one has no next place.
    fn are_multiples_of(&self, width: u64) -> bool {
        self.sides.iter().zip(&self.strides).all(|(&side, stride)| side == 1 || stride.is_multiple_of(width))
    }
}

impl Turn<'_> {
    #[track_caller]
    fn run<K, T>(&self, stream: &Stream, from: &Place<'_>, to: &Place<'_>, in_place: bool) -> Result<()>
    where
        K: Kernel<Params = (Value<Rotation>, Ptr<f32>, Ptr<f32>, Ptr<i64>, Ptr<T>, PtrMut<T>)>,
    {
        let Turn { embedding, positions, is_inverse } = *self;
        let (source, result) = (Sides::of(from.layout)?, Sides::of(to.layout)?);
        let [batch, rows, heads, columns] = source.sides;
        self.check(stream, batch, rows, columns)?;
        let pairs = embedding.rotated / 2;
        let rest = if in_place { 0 } else { columns - embedding.rotated };
        let width = VECTOR_BYTES / size_of::<T>();
        let addresses =
            from.address | to.address | embedding.cosines.as_ptr().raw() | embedding.sines.as_ptr().raw();
        let is_wide = addresses.is_multiple_of(VECTOR_BYTES as u64)
            && source.are_multiples_of(width as u64)
            && result.are_multiples_of(width as u64)
            && pairs.is_multiple_of(width)
            && rest.is_multiple_of(width);
        let units = (pairs + rest) / Rotation::width(is_wide, size_of::<T>()) as usize;
        let too_large =
            || TensorError::TooLarge { operation: OPERATION, shape: from.layout.shape().to_vec() };
        let count = [batch, rows, heads, units].iter().try_fold(1usize, |all, &side| all.checked_mul(side));
        let count = count.and_then(|count| u32::try_from(count).ok()).filter(|&count| count <= Divisor::MAX);
        let (count, rotated) = (count.ok_or_else(too_large)?, u32::try_from(pairs).map_err(|_| too_large())?);
        // A side beyond 32 bits is beside one of 0, or the count would be too large.
        let divisor = |side: usize| Divisor::new(u32::try_from(side).unwrap_or(Divisor::MAX));
        let (first, positions) = match positions {
            // Kernels add the row in 32 bits.
            Positions::From(first) if count > 0 && u32::try_from(first.saturating_add(rows)).is_err() => {
                return Err(too_large().into());
            }
            Positions::From(first) => (u32::try_from(first).map_err(|_| too_large())?, None),
            Positions::Of(indices) => (0, Some(indices.read(stream)?)),
        };
        let rotation = Rotation {
            from: source.strides,
            to: result.strides,
            rows: divisor(rows),
            heads: divisor(heads),
            units: divisor(units),
            count,
            pairs: rotated,
            first,
            by_neighbours: embedding.is_by_neighbours.into(),
            is_inverse: is_inverse.into(),
            is_wide: is_wide.into(),
        };
        let config = LaunchConfig::new([rotation.blocks(), 1, 1], [THREADS, 1, 1]).overlapping_previous();
        let (cosines, sines) = (embedding.cosines, embedding.sines);
        let arguments = (rotation, &cosines, &sines, positions, from.memory.cast(), to.memory.cast());
        // SAFETY: operands and tables hold what the rotation counts, which is checked; the result is
        // exclusively borrowed, and is the operand or apart from it.
        unsafe { launch::<K>(stream, config, arguments) }
    }

    fn check(&self, stream: &Stream, batch: usize, rows: usize, columns: usize) -> Result<()> {
        let (operation, Rotary { cosines, sines, rotated, .. }) = (OPERATION, self.embedding);
        if !rotated.is_multiple_of(2) || rotated > columns {
            let (argument, got) = ("the columns that turn", rotated.to_string());
            let wanted = format!("an even number, at most the {columns} columns of a head");
            let hint = "columns turn in pairs: usually all of a head";
            return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
        }
        stream.same_device("the cosines", cosines.device())?;
        stream.same_device("the sines", sines.device())?;
        let last = match self.positions {
            Positions::From(first) => first.saturating_add(rows),
            Positions::Of(indices) => {
                same_length(operation, "the positions", batch.saturating_mul(rows), indices.len())?;
                indices.bound()
            }
        };
        let least = last.saturating_mul(rotated / 2);
        if cosines.len() < least {
            let (argument, got) = ("the cosines", format!("{} numbers", cosines.len()));
            let wanted = format!("at least {least}: {} for each of {last} positions", rotated / 2);
            let hint = "make tables for the most positions that a sequence can have";
            return Err(Error::InvalidArgument { operation, argument, got, wanted, hint });
        }
        same_length(operation, "the sines", cosines.len(), sines.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Shape;

    /// The axis of a batch of one that `unsqueeze` makes has the stride 1.
    #[test]
    fn a_batch_of_one_goes_by_vectors() -> Result<()> {
        let x = Layout::contiguous(Shape::new(&[40, 3, 64])?);
        for layout in [x.unsqueeze(0)?, x.unsqueeze(1)?.squeeze(1)?, x.clone()] {
            assert!(Sides::of(&layout)?.are_multiples_of(8), "{layout:?}");
        }
        assert!(!Sides::of(&Layout::contiguous(Shape::new(&[2, 3, 4, 5])?))?.are_multiples_of(8));
        Ok(())
    }
}
