//! Launching the element-wise kernels.

use bytemuck::Pod;
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use tensor::THREADS;
use tensor::access::width;
use tensor::binary::BinaryOp;
use tensor::compare::CompareOp;
use tensor::place::{Geometry, ITEMS};
use tensor::turned::Turned;
use tensor::unary::UnaryOp;

use super::plan::{Operand, Piece, pieces};
use super::same_dtype;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::DevicePtr;
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError, TensorMut};

/// The parameters of a function that has some.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Parameters {
    /// Were they given?
    pub(super) given: bool,
    pub(super) a: f64,
    pub(super) b: f64,
}

/// An operation under way: where it goes, its name, its output.
pub(super) struct Launch<'s, 'o> {
    pub(super) stream: &'s Stream,
    pub(super) operation: &'static str,
    pub(super) out: TensorMut<'o>,
}

impl Launch<'_, '_> {
    /// The output's strides, when it has the type and the shape.
    pub(super) fn expect(&self, dtype: DType, shape: &Shape) -> Result<Vec<usize>> {
        same_dtype(self.operation, "out", dtype, self.out.dtype())?;
        if self.out.shape() == shape {
            return Ok(self.out.layout().strides().to_vec());
        }
        Err(TensorError::Shape {
            operation: self.operation,
            what: "out",
            got: self.out.shape().clone(),
            wanted: shape.to_string(),
            hint: "the output has the shape of the result",
        }
        .into())
    }

    /// An input with its strides over the output's shape; the output itself where there is none.
    pub(super) fn operand<'a>(&self, x: Option<&Tensor>, strides: &'a [usize]) -> Operand<'a> {
        match x {
            Some(x) => Operand { strides, size: x.dtype().size(), address: x.address() },
            None => Operand { strides, size: self.out.dtype().size(), address: self.out.address() },
        }
    }

    /// `y = f(x)` by the kernel `K`.
    pub(super) fn unary<K, T, W>(
        self,
        op: UnaryOp,
        parameters: [W; 2],
        x: Option<&Tensor>,
        operand: Operand<'_>,
        strides: &[usize],
    ) -> Result<()>
    where
        K: Kernel<Params = (Value<UnaryOp>, Value<[W; 2]>, Value<Geometry<2>>, Ptr<T>, PtrMut<T>)>,
        T: Pod,
        W: Copy,
    {
        let width = width(size_of::<T>(), size_of::<T>());
        self.run([x], [operand], strides, width, ITEMS as u32, |stream, config, piece| {
            let [x, y] = piece.addresses;
            // SAFETY: see `run`.
            unsafe { launch::<K>(stream, config, (op, parameters, piece.geometry, ptr::<T>(x), ptr::<T>(y))) }
        })
    }

    /// `c = f(a, b)` by the kernel `K`.
    pub(super) fn binary<K, T>(
        self,
        op: BinaryOp,
        inputs: [Option<&Tensor>; 2],
        operands: [Operand<'_>; 2],
        strides: &[usize],
    ) -> Result<()>
    where
        K: Kernel<Params = (Value<BinaryOp>, Value<Geometry<3>>, Ptr<T>, Ptr<T>, PtrMut<T>)>,
        T: Pod,
    {
        let width = width(size_of::<T>(), size_of::<T>());
        self.run(inputs, operands, strides, width, items(size_of::<T>()), |stream, config, piece| {
            let [a, b, c] = piece.addresses;
            // SAFETY: see `run`.
            unsafe {
                launch::<K>(stream, config, (op, piece.geometry, ptr::<T>(a), ptr::<T>(b), ptr::<T>(c)))
            }
        })
    }

    /// `c = a < b` and its like by the kernel `K`.
    pub(super) fn compare<K, T>(
        self,
        op: CompareOp,
        inputs: [&Tensor; 2],
        operands: [Operand<'_>; 2],
        strides: &[usize],
    ) -> Result<()>
    where
        K: Kernel<Params = (Value<CompareOp>, Value<Geometry<3>>, Ptr<T>, Ptr<T>, PtrMut<u8>)>,
        T: Pod,
    {
        self.run(inputs.map(Some), operands, strides, width(size_of::<T>(), 1), 1, |stream, config, piece| {
            let [a, b, c] = piece.addresses;
            // SAFETY: see `run`.
            unsafe {
                launch::<K>(stream, config, (op, piece.geometry, ptr::<T>(a), ptr::<T>(b), ptr::<u8>(c)))
            }
        })
    }

    /// `d = c ? a : b` by the kernel `K`.
    pub(super) fn select<K, T>(
        self,
        inputs: [&Tensor; 3],
        operands: [Operand<'_>; 3],
        strides: &[usize],
    ) -> Result<()>
    where
        K: Kernel<Params = (Value<Geometry<4>>, Ptr<u8>, Ptr<T>, Ptr<T>, PtrMut<T>)>,
        T: Pod,
    {
        self.run(inputs.map(Some), operands, strides, width(size_of::<T>(), 1), 1, |stream, config, piece| {
            let [c, a, b, d] = piece.addresses;
            // SAFETY: see `run`.
            unsafe {
                launch::<K>(
                    stream,
                    config,
                    (piece.geometry, ptr::<u8>(c), ptr::<T>(a), ptr::<T>(b), ptr::<T>(d)),
                )
            }
        })
    }

    /// `y = x` by the kernel `K`, or by `Turning` where the operands are dense along two axes.
    pub(super) fn copy<K, Turning, T>(self, x: &Tensor, operand: Operand<'_>, strides: &[usize]) -> Result<()>
    where
        K: Kernel<Params = (Value<Geometry<2>>, Ptr<T>, PtrMut<T>)>,
        Turning: Kernel<Params = (Value<Turned>, Ptr<T>, PtrMut<T>)>,
        T: Pod,
    {
        self.run(
            [Some(x)],
            [operand],
            strides,
            width(size_of::<T>(), size_of::<T>()),
            1,
            |stream, config, piece| {
                let [x, y] = piece.addresses.map(ptr::<T>);
                // SAFETY: see `run`.
                unsafe {
                    match Turned::of(&piece.geometry) {
                        Some(turned) => {
                            launch::<Turning>(stream, grid(turned.blocks(size_of::<T>())), (turned, x, y))
                        }
                        None => launch::<K>(stream, config, (piece.geometry, x, y)),
                    }
                }
            },
        )
    }

    /// Puts the uses of inputs and output in order, then launches piece by piece.
    ///
    /// What `launch` may rely on: the addresses of a piece are of live memory, on the stream's device, that holds what its geometry
    /// names and is aligned as its mode asks for; the output is exclusively borrowed and has no two elements at one place, and an
    /// input either is the output, element by element, or lies in other memory: a tensor that is written shares its memory with none.
    fn run<const I: usize, const K: usize>(
        mut self,
        inputs: [Option<&Tensor>; I],
        operands: [Operand<'_>; I],
        strides: &[usize],
        width: usize,
        items: u32,
        launch: impl Fn(&Stream, LaunchConfig, &Piece<K>) -> Result<()>,
    ) -> Result<()> {
        const { assert!(I + 1 == K) };
        let out = Operand { strides, size: self.out.dtype().size(), address: self.out.address() };
        let operands: [Operand<'_>; K] = std::array::from_fn(|k| operands.get(k).copied().unwrap_or(out));
        let pieces = pieces(self.out.shape(), operands, width, items);
        for input in inputs.into_iter().flatten() {
            input.before_read(self.stream)?;
        }
        self.out.before_write(self.stream)?;
        for piece in &pieces {
            launch(self.stream, grid(piece.blocks), piece)?;
        }
        Ok(())
    }
}

/// Items of a thread that reads two operands of elements of `size` bytes: one of 16 bytes each is enough under way, but where that is many
/// elements, for which another has to be under way while they are computed. Functions of one operand take [`ITEMS`]; copies, comparisons and choices one.
fn items(size: usize) -> u32 {
    if size < size_of::<f32>() { ITEMS as u32 } else { 1 }
}

fn grid(blocks: u64) -> LaunchConfig {
    // More blocks than a grid holds become an error of the launch.
    LaunchConfig::new([u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], [THREADS, 1, 1])
        .overlapping_previous()
}

fn ptr<T>(address: u64) -> DevicePtr<T> {
    DevicePtr::from_raw(address)
}
