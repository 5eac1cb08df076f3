//! Launching the element-wise kernels.

use bytemuck::Pod;
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use tensor::THREADS;
use tensor::access::width;
use tensor::binary::BinaryOp;
use tensor::compare::CompareOp;
use tensor::place::Geometry;
use tensor::turned::Turned;
use tensor::unary::UnaryOp;

use super::plan::{Operand, Piece, each_piece};
use super::same_dtype;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::Within;
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

/// An operand that is read, with its strides over the output's shape; `None` is the output itself, which is
/// read before it is written.
pub(super) type Input<'a> = Option<(&'a Tensor, &'a [usize])>;

impl Launch<'_, '_> {
    /// Has the output this type?
    pub(super) fn expect_dtype(&self, dtype: DType) -> Result<()> {
        same_dtype(self.operation, "out", dtype, self.out.dtype())
    }

    /// Has the output this shape?
    pub(super) fn expect_shape(&self, shape: &Shape) -> Result<()> {
        if self.out.shape() == shape {
            return Ok(());
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

    /// `y = f(x)` by the kernel `K`.
    pub(super) fn unary<K, T, W>(self, op: UnaryOp, parameters: [W; 2], x: Input<'_>) -> Result<()>
    where
        K: Kernel<Params = (Value<UnaryOp>, Value<[W; 2]>, Value<Geometry<2>>, Ptr<T>, PtrMut<T>)>,
        T: Pod,
        W: Copy,
    {
        let width = width(size_of::<T>(), size_of::<T>());
        self.run([x], width, |stream, config, piece, [x, y]| {
            // SAFETY: see `run`.
            unsafe {
                launch::<K>(stream, config, (op, parameters, piece.geometry, x.cast::<T>(), y.cast::<T>()))
            }
        })
    }

    /// `c = f(a, b)` by the kernel `K`.
    pub(super) fn binary<K, T>(self, op: BinaryOp, inputs: [Input<'_>; 2]) -> Result<()>
    where
        K: Kernel<Params = (Value<BinaryOp>, Value<Geometry<3>>, Ptr<T>, Ptr<T>, PtrMut<T>)>,
        T: Pod,
    {
        let width = width(size_of::<T>(), size_of::<T>());
        self.run(inputs, width, |stream, config, piece, [a, b, c]| {
            // SAFETY: see `run`.
            unsafe {
                launch::<K>(stream, config, (op, piece.geometry, a.cast::<T>(), b.cast::<T>(), c.cast::<T>()))
            }
        })
    }

    /// `c = a ^ b` by the kernel `K`.
    pub(super) fn power<K, T>(self, inputs: [Input<'_>; 2]) -> Result<()>
    where
        K: Kernel<Params = (Value<Geometry<3>>, Ptr<T>, Ptr<T>, PtrMut<T>)>,
        T: Pod,
    {
        self.run(inputs, width(size_of::<T>(), size_of::<T>()), |stream, config, piece, [a, b, c]| {
            // SAFETY: see `run`.
            unsafe {
                launch::<K>(stream, config, (piece.geometry, a.cast::<T>(), b.cast::<T>(), c.cast::<T>()))
            }
        })
    }

    /// `c = a < b` and its like by the kernel `K`.
    pub(super) fn compare<K, T>(self, op: CompareOp, inputs: [Input<'_>; 2]) -> Result<()>
    where
        K: Kernel<Params = (Value<CompareOp>, Value<Geometry<3>>, Ptr<T>, Ptr<T>, PtrMut<u8>)>,
        T: Pod,
    {
        self.run(inputs, width(size_of::<T>(), 1), |stream, config, piece, [a, b, c]| {
            // SAFETY: see `run`.
            unsafe {
                launch::<K>(
                    stream,
                    config,
                    (op, piece.geometry, a.cast::<T>(), b.cast::<T>(), c.cast::<u8>()),
                )
            }
        })
    }

    /// `d = c ? a : b` by the kernel `K`.
    pub(super) fn select<K, T>(self, inputs: [Input<'_>; 3]) -> Result<()>
    where
        K: Kernel<Params = (Value<Geometry<4>>, Ptr<u8>, Ptr<T>, Ptr<T>, PtrMut<T>)>,
        T: Pod,
    {
        self.run(inputs, width(size_of::<T>(), 1), |stream, config, piece, [c, a, b, d]| {
            // SAFETY: see `run`.
            unsafe {
                launch::<K>(
                    stream,
                    config,
                    (piece.geometry, c.cast::<u8>(), a.cast::<T>(), b.cast::<T>(), d.cast::<T>()),
                )
            }
        })
    }

    /// `y = x` by the kernel `K`, or by `Turning` where the operands are dense along two axes.
    pub(super) fn copy<K, Turning, T>(self, x: Input<'_>) -> Result<()>
    where
        K: Kernel<Params = (Value<Geometry<2>>, Ptr<T>, PtrMut<T>)>,
        Turning: Kernel<Params = (Value<Turned>, Ptr<T>, PtrMut<T>)>,
        T: Pod,
    {
        self.run([x], width(size_of::<T>(), size_of::<T>()), |stream, config, piece, operands| {
            let [x, y] = operands.map(Within::cast::<T>);
            // SAFETY: see `run`.
            unsafe {
                match Turned::of(&piece.geometry) {
                    Some(turned) => {
                        launch::<Turning>(stream, grid(turned.blocks(size_of::<T>())), (turned, x, y))
                    }
                    None => launch::<K>(stream, config, (piece.geometry, x, y)),
                }
            }
        })
    }

    /// Launches piece by piece.
    ///
    /// `launch` may rely on this. The addresses of a piece are of live memory on the stream's device. That
    /// memory holds all that the geometry names, and is aligned as the mode asks for. The output is
    /// exclusively borrowed and has no two elements at one place. An input either is the output, element by
    /// element, or lies in other memory: a tensor that is written shares its memory with none.
    fn run<const I: usize, const K: usize>(
        self,
        inputs: [Input<'_>; I],
        width: usize,
        launch: impl Fn(&Stream, LaunchConfig, &Piece<K>, [Within<'_, u8>; K]) -> Result<()>,
    ) -> Result<()> {
        const { assert!(I + 1 == K) };
        let Launch { stream, out, .. } = &self;
        let written =
            Operand { strides: out.layout().strides(), size: out.dtype().size(), address: out.address() };
        let operand = |(tensor, strides): (&Tensor, _)| Operand {
            strides,
            size: tensor.dtype().size(),
            address: tensor.address(),
        };
        let operands = std::array::from_fn(|k| inputs.get(k).copied().flatten().map_or(written, operand));
        let output = out.write::<u8>(stream)?;
        let mut memory = [output; K];
        for (place, (tensor, _)) in inputs.into_iter().enumerate().filter_map(|(k, input)| Some((k, input?)))
        {
            memory[place] = tensor.read(stream)?;
        }
        each_piece(out.shape(), operands, width, |piece: &Piece<K>| {
            let operands = std::array::from_fn(|k| memory[k].at(piece.addresses[k]));
            launch(stream, grid(piece.blocks), piece, operands)
        })
    }
}

fn grid(blocks: u64) -> LaunchConfig {
    // More blocks than a grid holds become an error of the launch.
    LaunchConfig::new([u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], [THREADS, 1, 1])
        .overlapping_previous()
}
