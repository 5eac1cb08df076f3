//! Cross-entropy behind a linear layer, which holds some rows of logits at a time, and all of them where they
//! take less memory than the sums that parts of rows need.
//!
//! ```text
//!   for each chunk of rows:
//!     logits = x weight^T                   one buffer for all chunks
//!     losses, gradient over the logits      cross-entropy
//!     dx     = gradient weight              the chunk's rows
//!     dw    += gradient^T x                 in f32
//! ```
//! Logits are rounded to the type of `x`, as a layer of its own would round them.

use std::ops::Range;

use super::launch::Job;
use super::loss::Rows;
use super::{CrossEntropy, Loss, argument, same_type};
use crate::error::Result;
use crate::ops::convert::convert;
use crate::ops::elementwise::reshape;
use crate::ops::gemm::{Matmul, Matrix, MatrixMut, Packed, Repack};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError, TensorMut};

/// Cross-entropy of the logits `x weight^T`, with the gradients by both: the last layer of a language model
/// and its loss.
///
/// ```
/// use ironwarp::ops::row::LinearCrossEntropy;
/// use ironwarp::{Device, Tensor};
///
/// # fn main() -> ironwarp::Result<()> {
/// let stream = Device::open(0)?.stream()?;
/// let x = Tensor::from_slice(&stream, &[2, 2], &[1.0f32, 0.0, 0.0, 1.0])?;
/// let weight = Tensor::from_slice(&stream, &[3, 2], &[1.0f32, 0.0, 0.0, 1.0, 0.5, 0.5])?;
/// let targets = Tensor::from_slice(&stream, &[2], &[0i64, 2])?;
/// let of = LinearCrossEntropy::default().loss_and_gradients(&stream, &x, &weight, &targets, None)?;
/// assert!(of.loss.value.to_vec::<f32>(&stream)?[0] > 0.0);
/// assert_eq!((of.x.shape(), of.weight.shape()), (x.shape(), weight.shape()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinearCrossEntropy {
    /// The loss.
    pub loss: CrossEntropy,
    /// Rows of which logits are held at a time; `None`: as many as a gibibyte has, in chunks of one length.
    /// With gradients all of them, where that takes no more memory than a chunk and the sums in f32.
    /// The gradient by the weight has other bits with other chunks.
    pub chunk: Option<usize>,
}

/// A loss and its gradients.
#[derive(Debug)]
pub struct LinearLoss {
    /// The loss.
    pub loss: Loss,
    /// The gradient by `x`, of its shape and type, contiguous.
    pub x: Tensor,
    /// The gradient by the weight, likewise. It is added up in f32 and rounded once.
    pub weight: Tensor,
}

const OPERATION: &str = "linear_cross_entropy";

/// Bytes of the logits that are held at a time, unless the caller says otherwise.
const LOGITS_BYTES: usize = 1 << 30;
/// Rows of logits begin at whole lines of the caches.
const LINE_BYTES: usize = 128;
/// Chunks have a multiple of so many rows: whole tiles of the products.
const TILE_ROWS: usize = 128;

impl LinearCrossEntropy {
    /// The loss of the rows of `x`, `[.., inputs]`, by a weight `[classes, inputs]` of the same type;
    /// `targets`, i64 or i32, has the other axes of `x`.
    ///
    /// # Errors
    /// As [`CrossEntropy::loss`], [`TensorError::Shape`] and [`TensorError::DType`] for a weight that does
    /// not fit `x`, [`crate::Error::InvalidArgument`] for chunks of no row, and as [`Matmul::run`].
    #[track_caller]
    pub fn loss(&self, stream: &Stream, x: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Loss> {
        let pass = Pass::new(self, stream, x, weight, false)?;
        let mut rows = Rows::begin(stream, OPERATION, &self.loss, &pass.shape()?, targets, None)?;
        let mut logits = Logits::new(&pass)?;
        let packed = pass.packed(&mut logits)?;
        let weight = pass.weight(packed.as_ref())?;
        for part in pass.parts() {
            pass.multiply(&part, &mut logits, weight)?;
            let logits = logits.read(part.len())?;
            let (columns, inputs) = (pass.sides.classes, [Some(&logits), None, None]);
            let job = Job { stream, columns, shared: 0, inputs, outputs: [None, None] };
            rows.part(&job, x.dtype(), part.start)?;
        }
        rows.end()
    }

    /// The loss, and its gradients. `upstream`, one f32 on the device, multiplies them.
    ///
    /// # Errors
    /// As [`loss`](Self::loss).
    #[track_caller]
    pub fn loss_and_gradients(
        &self,
        stream: &Stream,
        x: &Tensor,
        weight: &Tensor,
        targets: &Tensor,
        upstream: Option<&Tensor>,
    ) -> Result<LinearLoss> {
        let pass = Pass::new(self, stream, x, weight, true)?;
        let mut rows = Rows::begin(stream, OPERATION, &self.loss, &pass.shape()?, targets, upstream)?;
        let mut gradients = Gradients::new(&pass)?;
        let mut logits = Logits::new(&pass)?;
        let packed = pass.packed(&mut logits)?;
        let weight = pass.weight(packed.as_ref())?;
        for part in pass.parts() {
            pass.multiply(&part, &mut logits, weight)?;
            let (columns, outputs) = (pass.sides.classes, [Some(logits.write(part.len())?), None]);
            let job = Job { stream, columns, shared: 0, inputs: [None; 3], outputs };
            rows.part(&job, x.dtype(), part.start)?;
            gradients.add(&pass, &part, &logits, weight)?;
        }
        drop(logits);
        let Gradients { x: dx, weight } = gradients;
        let (loss, dx) = (rows.end()?, dx.view_as(x.shape().sides())?);
        let weight = if weight.dtype() == x.dtype() { weight } else { convert(stream, &weight, x.dtype())? };
        Ok(LinearLoss { loss, x: dx, weight })
    }

    /// Bytes that [`loss_and_gradients`](Self::loss_and_gradients) holds for a time beside its operands and
    /// results, at most: a chunk's logits; for 16-bit floats and several chunks the weight's gradient in f32;
    /// and a copy of the weight, for all chunks, and those of a chunk's rows, where products need them. (A
    /// product of few tiles and a long k may be cut into parts, whose sums take some tens of megabytes.)
    pub fn workspace(&self, rows: usize, inputs: usize, classes: usize, dtype: DType) -> u64 {
        let sides = Sides { rows, inputs, classes };
        let chunk = self.chunk_rows(sides, dtype, true);
        let bytes = |rows: usize, columns: usize, dtype: DType| {
            (rows as u64).saturating_mul(columns as u64).saturating_mul(dtype.size() as u64)
        };
        let logits = bytes(chunk, pitch(classes, dtype), dtype);
        let copies = bytes(chunk.saturating_add(classes), pitch(inputs, dtype), dtype);
        logits.saturating_add(sides.sums(chunk, dtype)).saturating_add(copies)
    }

    /// Rows of a chunk.
    fn chunk_rows(&self, sides: Sides, dtype: DType, has_gradients: bool) -> usize {
        let rows = sides.rows;
        if let Some(chunk) = self.chunk {
            return chunk.min(rows);
        }
        let row_bytes = pitch(sides.classes, dtype).saturating_mul(dtype.size());
        let most = LOGITS_BYTES / row_bytes.max(1);
        let most = (most / TILE_ROWS * TILE_ROWS).max(TILE_ROWS);
        let each = rows.div_ceil(rows.div_ceil(most).max(1));
        let chunk = each.next_multiple_of(TILE_ROWS).min(rows);
        let others = ((rows - chunk) as u64).saturating_mul(row_bytes as u64);
        if has_gradients && others <= sides.sums(chunk, dtype) { rows } else { chunk }
    }
}

/// Elements from a row of so many, which begins at a line, to the next; all that can be counted where that is
/// more.
fn pitch(columns: usize, dtype: DType) -> usize {
    columns.checked_next_multiple_of(LINE_BYTES / dtype.size()).unwrap_or(usize::MAX)
}

/// Whether the weight's gradient is added up in a buffer of its own.
fn is_summed_apart(chunk: usize, rows: usize, dtype: DType) -> bool {
    chunk < rows && dtype != DType::F32
}

#[derive(Clone, Copy)]
struct Sides {
    rows: usize,
    inputs: usize,
    classes: usize,
}

impl Sides {
    /// Bytes of the buffer in which the weight's gradient is added up, if it has one of its own.
    fn sums(self, chunk: usize, dtype: DType) -> u64 {
        if !is_summed_apart(chunk, self.rows, dtype) {
            return 0;
        }
        let elements = (self.classes as u64).saturating_mul(self.inputs as u64);
        elements.saturating_mul(DType::F32.size() as u64)
    }
}

/// The operands, and the buffer of the logits.
struct Pass<'a> {
    stream: &'a Stream,
    sides: Sides,
    /// Of two axes.
    x: Tensor,
    /// The axes of `x` but for the last one.
    outer: Vec<usize>,
    weight: &'a Tensor,
    chunk: usize,
}

impl<'a> Pass<'a> {
    fn new(
        of: &LinearCrossEntropy,
        stream: &'a Stream,
        x: &Tensor,
        weight: &'a Tensor,
        has_gradients: bool,
    ) -> Result<Self> {
        let (operation, rank) = (OPERATION, x.rank());
        let Some((&inputs, outer)) = x.shape().sides().split_last() else {
            return Err(TensorError::Axis { operation, axis: -1, rank }.into());
        };
        let classes = match *weight.shape().sides() {
            [classes, of] if of == inputs => classes,
            _ => {
                let (what, got, wanted) = ("weight", weight.shape().clone(), format!("[classes, {inputs}]"));
                let hint = "a weight is [outputs, inputs], as that of `torch.nn.Linear`";
                return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
            }
        };
        if !matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16) {
            let (what, got, wanted) = ("x", x.dtype(), "f32, f16 or bf16".to_owned());
            let hint = "convert it first (`to`)";
            return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
        }
        same_type(operation, "weight", weight, x)?;
        if u32::try_from(classes).is_err() {
            return Err(TensorError::TooLarge { operation, shape: weight.shape().to_vec() }.into());
        }
        if of.chunk == Some(0) {
            let (got, wanted) = ("0".to_owned(), "at least 1 row, or None".to_owned());
            return Err(argument(
                operation,
                "chunk",
                got,
                wanted,
                "None takes a gibibyte of logits at a time",
            ));
        }
        let rows = outer.iter().product();
        let sides = Sides { rows, inputs, classes };
        let chunk = of.chunk_rows(sides, x.dtype(), has_gradients);
        let (outer, x) = (outer.to_vec(), reshape(stream, x, &[rows, inputs])?);
        Ok(Pass { stream, sides, x, outer, weight, chunk })
    }

    /// That of all logits.
    fn shape(&self) -> Result<Shape> {
        Shape::of(OPERATION, &[&*self.outer, &[self.sides.classes]].concat())
    }

    /// The rows of each chunk.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, chunk) = (self.sides.rows, self.chunk);
        (0..rows).step_by(chunk.max(1)).map(move |first| first..rows.min(first + chunk))
    }

    /// A copy of the weight for all chunks, where products would else make one each.
    fn packed(&self, logits: &mut Logits) -> Result<Option<Packed>> {
        let Some(part) = self.parts().next().filter(|part| part.len() < self.sides.rows) else {
            return Ok(None);
        };
        let weight = self.weight(None)?;
        let x = self.x.slice(0, part.clone())?;
        let to = MatrixMut::of(logits.write(part.len())?)?;
        let choice = Matmul::new(Matrix::of(&x)?, weight.transposed(), to).explain(self.stream)?;
        let is_copied = choice.config.repack[1] != Repack::No;
        is_copied.then(|| Packed::new(self.stream, weight, Repack::Rows)).transpose()
    }

    /// The weight, or its copy.
    fn weight<'w>(&'w self, packed: Option<&'w Packed>) -> Result<Matrix<'w>> {
        packed.map_or_else(|| Matrix::of(self.weight), |packed| Ok(packed.matrix()))
    }

    /// Queues the logits of a part.
    fn multiply(&self, part: &Range<usize>, logits: &mut Logits, weight: Matrix<'_>) -> Result<()> {
        let x = self.x.slice(0, part.clone())?;
        let to = MatrixMut::of(logits.write(part.len())?)?;
        Matmul::new(Matrix::of(&x)?, weight.transposed(), to).run(self.stream)
    }
}

/// The logits of a part, whose rows are some distance apart.
struct Logits {
    all: Tensor,
    classes: usize,
}

impl Logits {
    fn new(pass: &Pass<'_>) -> Result<Self> {
        let (classes, dtype) = (pass.sides.classes, pass.x.dtype());
        let shape = Shape::of(OPERATION, &[pass.chunk, pitch(classes, dtype)])?;
        // SAFETY: a product writes the classes of each row before they are read; nothing reads behind them.
        Ok(Logits { all: unsafe { Tensor::uninit(pass.stream, shape, dtype)? }, classes })
    }

    fn write(&mut self, rows: usize) -> Result<TensorMut<'_>> {
        self.all.view_mut()?.slice(0, ..rows)?.slice(1, ..self.classes)
    }

    fn read(&self, rows: usize) -> Result<Tensor> {
        self.all.slice(0, ..rows)?.slice(1, ..self.classes)
    }
}

/// The results, while they are computed.
struct Gradients {
    /// Of two axes.
    x: Tensor,
    /// In f32 where several chunks add to it.
    weight: Tensor,
}

impl Gradients {
    fn new(pass: &Pass<'_>) -> Result<Self> {
        let (Sides { rows, inputs, classes }, dtype) = (pass.sides, pass.x.dtype());
        let of_weight = if is_summed_apart(pass.chunk, rows, dtype) { DType::F32 } else { dtype };
        let shape = |sides: [usize; 2]| Shape::of(OPERATION, &sides);
        // SAFETY: products write all elements of both, or fail, and then they go.
        let x = unsafe { Tensor::uninit(pass.stream, shape([rows, inputs])?, dtype)? };
        let weight = if rows == 0 {
            Tensor::zeros(pass.stream, &[classes, inputs], of_weight)?
        } else {
            // SAFETY: the first part's product does not read it.
            unsafe { Tensor::uninit(pass.stream, shape([classes, inputs])?, of_weight)? }
        };
        Ok(Gradients { x, weight })
    }

    /// Queues the products of a part, of whose losses `logits` holds the gradients.
    fn add(
        &mut self,
        pass: &Pass<'_>,
        part: &Range<usize>,
        logits: &Logits,
        weight: Matrix<'_>,
    ) -> Result<()> {
        let (gradient, x) = (logits.read(part.len())?, pass.x.slice(0, part.clone())?);
        let to = MatrixMut::of(self.x.view_mut()?.slice(0, part.clone())?)?;
        Matmul::new(Matrix::of(&gradient)?, weight, to).run(pass.stream)?;
        let beta = if part.start == 0 { 0.0 } else { 1.0 };
        let to = MatrixMut::of(self.weight.view_mut()?)?;
        let sum = Matmul::new(Matrix::of(&gradient)?.transposed(), Matrix::of(&x)?, to);
        sum.beta(beta).run(pass.stream)
    }
}
