//! The inputs of an epilogue: how a product takes them, how they are checked, and how they reach the kernels.
//!
//! [`gemm::epilogue`] says what they mean. A new input is a field of its `EpilogueParams`, a field and a
//! method here, and its effect in the two places that apply epilogues: `gemm::any` and `gemm::sm90::fusion`.
//! `column_sums` adds up what kernels leave of the columns.

use bytemuck::Pod;
use cuda_std::kernel::Value;
use gemm::element::Layout;
use gemm::epilogue::{Activation, EpilogueParams, EpilogueParamsArgs};

use crate::error::Result;
use crate::launch::Arg;
use crate::memory::{DeviceView, DeviceViewMut};
use crate::stream::Stream;
use crate::tensor::{DType, Element};

use super::any::{code, layout};
use super::check::{expect_length, expect_sides, invalid};
use super::matmul::Matmul;
use super::matrix::{Matrix, MatrixMut};
use super::problem::EpilogueDesc;

/// A vector on the device, of any element type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vector<'a> {
    pub data: DeviceView<'a, u8>,
    pub dtype: DType,
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
    /// The residual is where the derivative of the activation is taken, by which the product is multiplied.
    pub is_gradient: bool,
    /// A gradient was asked for, and an activation or a residual of its own too.
    pub is_ambiguous: bool,
    /// Where values before the activation go: borrowed as a result is.
    pub pre: Option<Matrix<'a>>,
    /// Where the sums of C's columns go.
    pub column_sums: Option<DeviceViewMut<'a, f32>>,
    /// Where a kernel leaves sums over a few rows each; see [`EpilogueParams::sums`].
    pub partial_sums: Option<DeviceView<'a, f32>>,
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
        self.epilogue.is_ambiguous |= self.epilogue.is_gradient;
        self.epilogue.activation = activation;
        self
    }

    /// A further result: the value before the activation, `[m, n]` of f32, f16 or bf16, which
    /// [`Matmul::gradient`] takes in the backward pass.
    pub fn pre_activation(mut self, pre: MatrixMut<'a>) -> Self {
        let MatrixMut { data, dtype, shape } = pre.bounded();
        self.epilogue.pre = Some(Matrix { data: data.into_view(), dtype, shape });
        self
    }

    /// Multiplies the product by an activation's derivative at `pre`, in place of applying an activation: the
    /// gradient by the values that went into it. `pre` is shaped as C.
    pub fn gradient(mut self, activation: Activation, pre: Matrix<'a>) -> Self {
        let Epilogue { activation: other, residual, is_gradient, .. } = &self.epilogue;
        self.epilogue.is_ambiguous |= *is_gradient || *other != Activation::None || residual.is_some();
        self.epilogue.is_gradient = true;
        (self.epilogue.activation, self.epilogue.residual) = (activation, Some(pre.bounded()));
        self
    }

    /// A further result: the sums of C's columns, `n` elements. Where C is the gradient by a layer's results,
    /// they are the gradient by its bias. They are of C before it is rounded, or after. C is one matrix, or a
    /// batch, of dense rows in f32, f16 or bf16.
    pub fn bias_gradient(mut self, sums: impl Into<DeviceViewMut<'a, f32>>) -> Self {
        self.epilogue.column_sums = Some(sums.into());
        self
    }

    /// A vector of `n` elements that is added to every row of the product.
    pub fn bias<T: Element + Pod>(mut self, bias: impl Into<DeviceView<'a, T>>) -> Self {
        self.epilogue.bias = Some(Vector { data: bias.into().bytes(), dtype: T::DTYPE });
        self
    }

    /// A matrix shaped as C that is added last.
    pub fn residual(mut self, residual: Matrix<'a>) -> Self {
        self.epilogue.is_ambiguous |= self.epilogue.is_gradient;
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
        is_gradient: false,
        is_ambiguous: false,
        pre: None,
        column_sums: None,
        partial_sums: None,
    };

    /// The same with results elsewhere.
    pub fn with_results<'s>(&'s self, results: Results<'s>) -> Epilogue<'s> {
        let Results { amax, pre, column_sums } = results;
        Epilogue { amax, pre, column_sums, ..*self }
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
            is_gradient: self.is_gradient,
            pre: self.pre.as_ref().map(Matrix::operand),
            column_sums: self.column_sums.is_some(),
        }
    }

    /// The argument of a kernel. The residual and the values before the activation lie as the kernel sees C:
    /// transposed, if it computes the transpose.
    pub fn args(self, transposed: bool) -> impl Arg<Value<EpilogueParams>> {
        let lies = |matrix: Matrix<'_>| {
            let shape = if transposed { matrix.shape.transposed() } else { matrix.shape };
            layout(matrix.dtype, shape)
        };
        let residual_layout = self.residual.map_or(Layout::NONE, lies);
        let pre_layout = self.pre.map_or(Layout::NONE, lies);
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
            is_gradient: self.is_gradient,
            pre: self.pre.map(|pre| pre.data.within()),
            pre_layout,
            sums: self.partial_sums.map(DeviceView::within),
        }
        .pass()
    }

    /// The element types that are to be a product's, with what has them.
    pub fn dtypes(&self) -> impl Iterator<Item = (&'static str, DType)> {
        let bias = self.bias.map(|bias| ("the bias", bias.dtype));
        let residual = self.residual.map(|residual| ("the residual", residual.dtype));
        let pre = self.pre.map(|pre| (PRE, pre.dtype));
        bias.into_iter().chain(residual).chain(pre)
    }

    /// Everything is on the stream's device.
    pub fn check_devices(&self, stream: &Stream) -> Result<()> {
        if let Some(bias) = self.bias {
            stream.same_device("the bias", bias.data.device())?;
        }
        if let Some(residual) = self.residual {
            stream.same_device("the residual", residual.device())?;
        }
        if let Some(pre) = self.pre {
            stream.same_device(PRE, pre.device())?;
        }
        if let Some(sums) = &self.column_sums {
            stream.same_device(COLUMN_SUMS, sums.device())?;
        }
        for scale in [self.scale_a, self.scale_b, self.scale_c].into_iter().flatten() {
            stream.same_device("the scale", scale.device())?;
        }
        self.amax.as_ref().map_or(Ok(()), |amax| stream.same_device("amax", amax.device()))
    }

    /// C and all inputs fit a product of `m x n`, with a bias and scales for each of so many groups.
    pub fn check(&self, c: &Matrix<'_>, m: usize, n: usize, groups: usize) -> Result<()> {
        self.check_meaning()?;
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
        self.check_gradients(c, m, n)?;
        if let Some(bias) = self.bias {
            expect_length("the bias", groups.saturating_mul(n), bias.data.len() / bias.dtype.size())?;
        }
        for scale in [self.scale_a, self.scale_b].into_iter().flatten() {
            expect_length("the scale", groups, scale.len())?;
        }
        self.scale_c.map_or(Ok(()), |scale| expect_length("the scale of the result", 1, scale.len()))?;
        self.amax.as_ref().map_or(Ok(()), |amax| expect_length("amax", 1, amax.len()))
    }

    /// A gradient is of one thing.
    fn check_meaning(&self) -> Result<()> {
        if self.is_ambiguous {
            let got = "a gradient, and an activation, a residual or a gradient besides".to_owned();
            let hint = "`gradient` takes the place of `activation` and `residual`; add a residual afterwards";
            return Err(invalid("the gradient", got, "one of them".to_owned(), hint));
        }
        if self.is_gradient && self.activation == Activation::SwiGlu {
            let hint =
                "SwiGLU's gradient has two columns for each of the product's: compute it behind the product";
            let wanted = "an activation of one column".to_owned();
            return Err(invalid("the gradient", "that of swiglu".to_owned(), wanted, hint));
        }
        Ok(())
    }

    /// A training step's wishes fit the product.
    fn check_gradients(&self, c: &Matrix<'_>, m: usize, n: usize) -> Result<()> {
        if let Some(pre) = self.pre {
            expect_sides(PRE, &pre, m, n, c.shape.batch)?;
            pre.check_result(PRE)?;
        }
        for pre in self.pre.into_iter().chain(self.residual.filter(|_| self.is_gradient)) {
            if pre.dtype.size() == 1 {
                let wanted = "f32, f16 or bf16".to_owned();
                return Err(invalid(PRE, format!("of {}", pre.dtype), wanted, "keep it in a wider type"));
            }
        }
        let Some(sums) = &self.column_sums else { return Ok(()) };
        expect_length(COLUMN_SUMS, n, sums.len())?;
        let is_dense = c.shape.column == 1 && c.shape.folded().is_some_and(|c| c.row == n || c.rows <= 1);
        let is_plain = self.activation != Activation::SwiGlu && self.scale_c.is_none();
        if is_dense && is_plain && c.dtype.size() > 1 {
            return Ok(());
        }
        let got = format!("C of {}, with activation {}", c.dtype, self.activation.name());
        let wanted =
            "C with dense rows in f32, f16 or bf16, without SwiGLU or a scale of the result".to_owned();
        Err(invalid(COLUMN_SUMS, got, wanted, "sum C's columns with `Tensor::sum` behind the product"))
    }
}

/// Results that a caller wants beside C.
pub(super) struct Results<'a> {
    pub amax: Option<DeviceViewMut<'a, f32>>,
    pub pre: Option<Matrix<'a>>,
    pub column_sums: Option<DeviceViewMut<'a, f32>>,
}

/// Arguments' names in errors.
const PRE: &str = "the value before the activation";
const COLUMN_SUMS: &str = "the bias's gradient";
