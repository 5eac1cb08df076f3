//! The inputs of an epilogue: how a product takes them, how they are checked, and how they reach the kernels.
//!
//! [`gemm::epilogue`] says what they mean. A new input is a field of its `EpilogueParams`, a field and a
//! method here, and its effect in the two places that apply epilogues: `gemm::any` and `gemm::sm90::fusion`.

use bytemuck::Pod;
use cuda_std::kernel::Value;
use gemm::element::Layout;
use gemm::epilogue::{Activation, EpilogueParams, EpilogueParamsArgs};

use crate::error::Result;
use crate::launch::Arg;
use crate::memory::{DeviceView, DeviceViewMut};
use crate::stream::Stream;
use crate::tensor::{DType, Element, Tensor};

use super::any::{code, layout};
use super::check::{expect_length, expect_sides, invalid};
use super::matmul::Matmul;
use super::matrix::Matrix;
use super::problem::EpilogueDesc;

/// A vector on the device, of any element type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vector<'a> {
    pub data: DeviceView<'a, u8>,
    pub dtype: DType,
}

impl<'a> Vector<'a> {
    /// A contiguous tensor.
    pub fn of(tensor: &'a Tensor) -> Result<Self> {
        Ok(Vector { data: tensor.span_bytes()?, dtype: tensor.dtype() })
    }
}

/// The inputs of a product's epilogue.
#[derive(Debug)]
pub(super) struct Epilogue<'a> {
    pub alpha: f32,
    pub beta: f32,
    pub activation: Activation,
    pub bias: Option<Vector<'a>>,
    pub residual: Option<Matrix<'a>>,
    pub scale_a: Option<DeviceView<'a, f32>>,
    pub scale_b: Option<DeviceView<'a, f32>>,
    pub scale_c: Option<DeviceView<'a, f32>>,
    pub amax: Option<DeviceViewMut<'a, f32>>,
}

impl<'a> Matmul<'a> {
    /// A factor of the product; 1 unless given.
    pub fn alpha(mut self, alpha: f32) -> Self {
        self.epilogue.alpha = alpha;
        self
    }

    /// A factor of source C, which is added: what C holds before. With 0, as unless given, C is not read and
    /// may hold anything.
    pub fn beta(mut self, beta: f32) -> Self {
        self.epilogue.beta = beta;
        self
    }

    /// A function of each element. With [`Activation::SwiGlu`] C is `[m, n / 2]`.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.epilogue.activation = activation;
        self
    }

    /// A vector of `n` elements that is added to every row of the product.
    pub fn bias<T: Element + Pod>(mut self, bias: impl Into<DeviceView<'a, T>>) -> Self {
        self.epilogue.bias = Some(Vector { data: bias.into().bytes(), dtype: T::DTYPE });
        self
    }

    /// The same of a contiguous tensor.
    pub(crate) fn bias_of(mut self, bias: &'a Tensor) -> Result<Self> {
        self.epilogue.bias = Some(Vector::of(bias)?);
        Ok(self)
    }

    /// A matrix shaped as C that is added last.
    pub fn residual(mut self, residual: Matrix<'a>) -> Self {
        self.epilogue.residual = Some(residual.bounded());
        self
    }

    /// Factors on the device, of one element each, as 8-bit operands have.
    pub fn scales(mut self, a: impl Into<DeviceView<'a, f32>>, b: impl Into<DeviceView<'a, f32>>) -> Self {
        (self.epilogue.scale_a, self.epilogue.scale_b) = (Some(a.into()), Some(b.into()));
        self
    }

    /// A factor of the result, on the device: of one element, as 8-bit results have.
    pub fn scale_result(mut self, scale: impl Into<DeviceView<'a, f32>>) -> Self {
        self.epilogue.scale_c = Some(scale.into());
        self
    }

    /// One element that is raised to the largest magnitude of the result before that factor and before
    /// rounding (NaN if there is one). It is not lowered, so fill it with zero first.
    pub fn amax(mut self, amax: impl Into<DeviceViewMut<'a, f32>>) -> Self {
        self.epilogue.amax = Some(amax.into());
        self
    }
}

impl<'a> Epilogue<'a> {
    /// The product itself.
    pub const NONE: Self = Epilogue {
        alpha: 1.0,
        beta: 0.0,
        activation: Activation::None,
        bias: None,
        residual: None,
        scale_a: None,
        scale_b: None,
        scale_c: None,
        amax: None,
    };

    /// The same but for `amax`.
    pub fn with_amax<'s>(&'s self, amax: Option<DeviceViewMut<'s, f32>>) -> Epilogue<'s> {
        Epilogue { amax, ..*self }
    }

    /// The description by which kernels are chosen.
    pub fn describe(&self) -> EpilogueDesc {
        EpilogueDesc {
            factor: self.alpha != 1.0,
            activation: self.activation,
            source: self.beta != 0.0,
            bias: self.bias.map(|bias| bias.dtype),
            residual: self.residual.as_ref().map(Matrix::operand),
            scaled: self.scale_a.is_some() || self.scale_b.is_some(),
            scaled_result: self.scale_c.is_some(),
            amax: self.amax.is_some(),
        }
    }

    /// The argument of a kernel. The residual lies as the kernel sees C: transposed, if it computes the
    /// transpose.
    pub fn args(self, transposed: bool) -> impl Arg<Value<EpilogueParams>> {
        let residual_layout = self.residual.map_or(Layout::NONE, |residual| {
            let shape = if transposed { residual.shape.transposed() } else { residual.shape };
            layout(residual.dtype, shape)
        });
        EpilogueParamsArgs {
            alpha: self.alpha,
            beta: self.beta,
            activation: self.activation as u32,
            bias_type: code(self.bias.map_or(DType::F32, |bias| bias.dtype)),
            bias: self.bias.map(|bias| bias.data),
            residual: self.residual.map(|residual| residual.data),
            residual_layout,
            scale_a: self.scale_a,
            scale_b: self.scale_b,
            scale_c: self.scale_c,
            amax: self.amax.map(|amax| amax.bytes().cast::<u32>()),
        }
        .pass()
    }

    /// The element types that are to be a product's, with what has them.
    pub fn dtypes(&self) -> impl Iterator<Item = (&'static str, DType)> {
        let bias = self.bias.map(|bias| ("the bias", bias.dtype));
        let residual = self.residual.map(|residual| ("the residual", residual.dtype));
        bias.into_iter().chain(residual)
    }

    /// Everything is on the stream's device.
    pub fn check_devices(&self, stream: &Stream) -> Result<()> {
        if let Some(bias) = self.bias {
            stream.same_device("the bias", bias.data.device())?;
        }
        if let Some(residual) = self.residual {
            stream.same_device("the residual", residual.device())?;
        }
        for scale in [self.scale_a, self.scale_b, self.scale_c].into_iter().flatten() {
            stream.same_device("the scale", scale.device())?;
        }
        self.amax.as_ref().map_or(Ok(()), |amax| stream.same_device("amax", amax.device()))
    }

    /// C and all inputs fit a product of `m x n`, with a bias and scales for each of so many groups.
    pub fn check(&self, c: &Matrix<'_>, m: usize, n: usize, groups: usize) -> Result<()> {
        let swiglu = self.activation == Activation::SwiGlu;
        if swiglu && (!n.is_multiple_of(2) || self.beta != 0.0) {
            let got = format!("{n} columns and beta {}", self.beta);
            let wanted = "an even number of columns, and beta 0".to_owned();
            let hint = "SwiGLU makes one column of two: interleave the gate's columns with the value's; add the old C as a residual";
            return Err(invalid("the product for SwiGLU", got, wanted, hint));
        }
        let (width, batch) = (n / self.activation.columns() as usize, c.shape.batch);
        expect_sides("C", c, m, width, batch)?;
        if let Some(residual) = self.residual {
            expect_sides("the residual", &residual, m, width, batch)?;
            residual.check("the residual")?;
        }
        if let Some(bias) = self.bias {
            expect_length("the bias", groups.saturating_mul(n), bias.data.len() / bias.dtype.size())?;
        }
        for scale in [self.scale_a, self.scale_b].into_iter().flatten() {
            expect_length("the scale", groups, scale.len())?;
        }
        self.scale_c.map_or(Ok(()), |scale| expect_length("the scale of the result", 1, scale.len()))?;
        self.amax.as_ref().map_or(Ok(()), |amax| expect_length("amax", 1, amax.len()))
    }
}
