//! A product with its oracle: what the tests of matrix products share.
#![allow(dead_code, reason = "every test program uses its own part")]

use bytemuck::Pod;
use ironwarp::ops::gemm::{Activation, Config, Kernel, Matmul, Matrix, MatrixMut, Precision, candidates};
use ironwarp::tensor::Element as TensorElement;
use ironwarp::{Device, DeviceBuffer, Stream};
use reference::Accumulated;
use reference::matmul::{Epilogue, Strided, matmul};
use std::error::Error as StdError;
use std::sync::OnceLock;
use testkit::{Element, Family, Tolerance, compare, input, tolerance};

pub type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

/// An element type of operands.
pub trait Number: Element + TensorElement + Pod + Into<f64> + Default {}
impl<T: Element + TensorElement + Pod + Into<f64> + Default> Number for T {}

/// How an operand lies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lie {
    /// By columns.
    pub transposed: bool,
    /// Elements between the end of a row (column) and the beginning of the next.
    pub gap: usize,
    /// Elements in front of the first one.
    pub skip: usize,
    /// The same matrix for the whole batch.
    pub shared: bool,
}

pub const DENSE: Lie = Lie { transposed: false, gap: 0, skip: 0, shared: false };
pub const TRANSPOSED: Lie = Lie { transposed: true, ..DENSE };

/// A product.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub family: Family,
    pub seed: u64,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    pub a: Lie,
    pub b: Lie,
    pub c: Lie,
    pub alpha: f32,
    pub beta: f32,
    pub activation: Activation,
    pub bias: bool,
    pub residual: bool,
    pub scales: Option<[f32; 2]>,
    /// A factor of the result; the largest magnitude is then asked for too.
    pub result_scale: Option<f32>,
    /// The bias and the residual are f32, else as C.
    pub adds_f32: bool,
    pub precision: Precision,
    /// Which configurations.
    pub kernels: fn(&Config) -> bool,
}

pub const PLAIN: Case = Case {
    family: Family::Normal,
    seed: 1,
    m: 1,
    n: 1,
    k: 1,
    batch: 1,
    a: DENSE,
    b: DENSE,
    c: DENSE,
    alpha: 1.0,
    beta: 0.0,
    activation: Activation::None,
    bias: false,
    residual: false,
    scales: None,
    result_scale: None,
    adds_f32: false,
    precision: Precision::F32,
    kernels: |_| true,
};

/// An operand on the host.
struct Operand<T> {
    data: Vec<T>,
    lie: Lie,
    rows: usize,
    columns: usize,
    batch: usize,
    leading: usize,
    matrix: usize,
}

impl<T: Number> Operand<T> {
    fn new(family: Family, seed: u64, lie: Lie, [batch, rows, columns]: [usize; 3]) -> Self {
        let (lines, length) = if lie.transposed { (columns, rows) } else { (rows, columns) };
        let leading = length + lie.gap;
        let matrix = if lie.shared { 0 } else { lines * leading + lie.gap };
        let last = (batch.max(1) - 1) * matrix + lines * leading;
        let data = input(family, seed, lie.skip + last);
        Operand { data, lie, rows, columns, batch, leading, matrix }
    }

    fn strided(&self) -> Strided<'_, T> {
        let (row, column) = if self.lie.transposed { (1, self.leading) } else { (self.leading, 1) };
        Strided { data: &self.data[self.lie.skip..], row, column, matrix: self.matrix }
    }

    fn upload(&self, stream: &Stream) -> ironwarp::Result<DeviceBuffer<T>> {
        DeviceBuffer::from_slice(stream, &self.data)
    }

    fn matrix<'a>(&self, buffer: &'a DeviceBuffer<T>) -> ironwarp::Result<Matrix<'a>> {
        let data = buffer.slice(self.lie.skip..)?;
        let (rows, columns) =
            if self.lie.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) };
        let matrix =
            Matrix::new::<T>(data, rows, columns).leading(self.leading).batch_by(self.batch, self.matrix);
        Ok(if self.lie.transposed { matrix.transposed() } else { matrix })
    }

    fn matrix_mut<'a>(&self, buffer: &'a mut DeviceBuffer<T>) -> ironwarp::Result<MatrixMut<'a>> {
        let data = buffer.slice_mut(self.lie.skip..)?;
        let (rows, columns) =
            if self.lie.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) };
        let matrix =
            MatrixMut::new::<T>(data, rows, columns).leading(self.leading).batch_by(self.batch, self.matrix);
        Ok(if self.lie.transposed { matrix.transposed() } else { matrix })
    }

    /// The elements in order, and whether everything between them is still what it was.
    fn elements(&self, got: &[T]) -> (Vec<T>, bool) {
        let mut rest: Vec<Option<u64>> = self.data.iter().map(|v| Some(v.bits())).collect();
        let Strided { row, column, matrix, .. } = self.strided();
        let mut elements = Vec::new();
        for index in 0..self.batch * self.rows * self.columns {
            let (z, r, c) =
                (index / (self.rows * self.columns), index / self.columns % self.rows, index % self.columns);
            let place = self.lie.skip + z * matrix + r * row + c * column;
            elements.push(got[place]);
            rest[place] = None;
        }
        let kept = rest.iter().zip(got).all(|(want, got)| want.is_none_or(|want| want == got.bits()));
        (elements, kept)
    }
}

/// A value, and the scale of its error.
type Largest = (f64, f64);

/// A case's operands, on the host and on the device.
pub struct Setup<A, B, C> {
    case: Case,
    a: Operand<A>,
    b: Operand<B>,
    c: Operand<C>,
    residual: Operand<C>,
    bias: Vec<C>,
    on_device: (DeviceBuffer<A>, DeviceBuffer<B>, DeviceBuffer<C>, DeviceBuffer<C>),
    /// The bias and the residual with `adds_f32`.
    floats: (Vec<f32>, Operand<f32>),
    floats_on_device: (DeviceBuffer<f32>, DeviceBuffer<f32>),
    scales: [DeviceBuffer<f32>; 3],
}

impl<A: Number, B: Number, C: Number> Setup<A, B, C> {
    pub fn new(case: &Case, stream: &Stream) -> Outcome<Self> {
        let Case { family, seed, m, n, k, batch, .. } = *case;
        let width = n / case.activation.columns() as usize;
        let a = Operand::new(family, seed, case.a, [batch, m, k]);
        let b = Operand::new(family, seed + 1, case.b, [batch, k, n]);
        let mut c = Operand::<C>::new(family, seed + 2, case.c, [batch, m, width]);
        let residual = Operand::new(family, seed + 3, case.c, [batch, m, width]);
        let bias: Vec<C> = input(family, seed + 4, n);
        if case.beta == 0.0 {
            c.data.fill(C::from_f64(f64::NAN)); // Must not be read.
        }
        let bias_device = DeviceBuffer::from_slice(stream, &bias)?;
        let on_device = (a.upload(stream)?, b.upload(stream)?, residual.upload(stream)?, bias_device);
        let floats = (input(family, seed + 5, n), Operand::new(family, seed + 6, case.c, [batch, m, width]));
        let floats_on_device = (DeviceBuffer::from_slice(stream, &floats.0)?, floats.1.upload(stream)?);
        let [scale_a, scale_b] = case.scales.unwrap_or([1.0; 2]);
        let scale = |scale: f32| DeviceBuffer::from_slice(stream, &[scale]);
        let scales = [scale(scale_a)?, scale(scale_b)?, scale(case.result_scale.unwrap_or(1.0))?];
        Ok(Setup { case: *case, a, b, c, residual, bias, on_device, floats, floats_on_device, scales })
    }

    /// A fresh C.
    pub fn c(&self, stream: &Stream) -> ironwarp::Result<DeviceBuffer<C>> {
        self.c.upload(stream)
    }

    /// A as the kernels see it.
    pub fn a_matrix(&self) -> ironwarp::Result<Matrix<'_>> {
        self.a.matrix(&self.on_device.0)
    }

    /// The elements of A in order.
    pub fn a_elements(&self) -> Vec<A> {
        self.a.elements(&self.a.data).0
    }

    pub fn product<'x>(&'x self, c: &'x mut DeviceBuffer<C>) -> ironwarp::Result<Matmul<'x>> {
        let (a, b, residual, bias) = &self.on_device;
        let Case { alpha, beta, activation, precision, .. } = self.case;
        let product = Matmul::new(self.a.matrix(a)?, self.b.matrix(b)?, self.c.matrix_mut(c)?)
            .alpha(alpha)
            .beta(beta)
            .activation(activation)
            .precision(precision);
        let [scale_a, scale_b, scale_c] = &self.scales;
        let (float_bias, float_residual) = &self.floats_on_device;
        let product = match (self.case.bias, self.case.adds_f32) {
            (false, _) => product,
            (true, false) => product.bias::<C>(bias),
            (true, true) => product.bias::<f32>(float_bias),
        };
        let product = if self.case.scales.is_some() { product.scales(scale_a, scale_b) } else { product };
        let product = if self.case.result_scale.is_some() { product.scale_result(scale_c) } else { product };
        Ok(match (self.case.residual, self.case.adds_f32) {
            (false, _) => product,
            (true, false) => product.residual(self.residual.matrix(residual)?),
            (true, true) => product.residual(self.floats.1.matrix(float_residual)?),
        })
    }

    /// The exact result, and the largest magnitude before its scale.
    fn oracle(&self) -> (Accumulated, Largest) {
        if self.case.adds_f32 {
            self.oracle_with(&self.floats.0, &self.floats.1)
        } else {
            self.oracle_with(&self.bias, &self.residual)
        }
    }

    fn oracle_with<D: Number>(&self, bias: &[D], residual: &Operand<D>) -> (Accumulated, Largest) {
        let Case { m, n, k, batch, alpha, beta, .. } = self.case;
        let scale = self.case.scales.map_or(1.0, |[a, b]| f64::from(a) * f64::from(b));
        #[allow(clippy::needless_update, reason = "inputs to come need no edit here")]
        let epilogue = Epilogue {
            alpha: f64::from(alpha) * scale,
            beta: beta.into(),
            c: self.c.strided(),
            bias: self.case.bias.then_some(bias),
            activation: reference::matmul::Activation::named(self.case.activation.name()),
            residual: self.case.residual.then_some(residual.strided()),
            ..Epilogue::NONE
        };
        let mut want = matmul([batch, m, n, k], self.a.strided(), self.b.strided(), epilogue);
        let at = (0..want.value.len()).max_by(|&i, &j| want.value[i].abs().total_cmp(&want.value[j].abs()));
        let largest = at.map_or((0.0, 0.0), |at| (want.value[at].abs(), want.magnitude[at]));
        let result_scale = f64::from(self.case.result_scale.unwrap_or(1.0));
        want.value.iter_mut().for_each(|value| *value *= result_scale);
        want.magnitude.iter_mut().for_each(|magnitude| *magnitude *= result_scale.abs());
        // 8-bit types have no infinity to overflow to: they saturate.
        let most = C::from_f64(f64::MAX).to_f64();
        if size_of::<C>() == 1 {
            want.value.iter_mut().for_each(|value| *value = value.clamp(-most, most));
        }
        (want, largest)
    }

    /// The elements of C, which a kernel has written, are the oracle's `want`, and what lies between them is
    /// what it was.
    fn compare_with(&self, want: &Accumulated, got: &[C], kernel: Kernel, what: &str) -> Outcome {
        let (got, kept) = self.c.elements(got);
        let what = format!("{what}: {:?}", self.case);
        assert!(kept, "{what}: wrote outside of C");
        let shape = [self.case.batch, self.case.m, self.c.columns];
        let tolerance = self.case.tolerance(kernel, size_of::<A>() == 1);
        compare::rounded(&what, &got, &want.value, &want.magnitude, &shape, tolerance)?;
        Ok(())
    }

    /// As the oracle has it?
    pub fn compare(&self, got: &[C], kernel: Kernel) -> Outcome {
        self.compare_with(&self.oracle().0, got, kernel, kernel.name())
    }
}

/// Whether k may be cut into parts. The kernels that add them are for Hopper: elsewhere what is left of the
/// test is skipped.
pub fn has_parts() -> Outcome<bool> {
    let device = device()?;
    let is_hopper = device.arch().is_hopper();
    if !is_hopper {
        testkit::skip(&format!("parts of k want Hopper, and {} is none", device.name()));
    }
    Ok(is_hopper)
}

/// The device, open as long as the program runs: what it has compiled stays loaded from case to case.
pub fn device() -> ironwarp::Result<Device> {
    static OPEN: OnceLock<Device> = OnceLock::new();
    match OPEN.get() {
        Some(device) => Ok(device.clone()),
        None => {
            let device = Device::open(0)?;
            Ok(OPEN.get_or_init(|| device).clone())
        }
    }
}

impl Case {
    /// Every configuration that can do the case does it, is compared with the oracle, and leaves what lies
    /// between the elements of C alone. How many did.
    pub fn check<A: Number, B: Number, C: Number>(&self) -> Outcome<usize> {
        let device = device()?;
        let stream = device.stream()?;
        let setup = Setup::<A, B, C>::new(self, &stream)?;
        let problem = setup.product(&mut setup.c(&stream)?)?.problem()?;
        let (want, largest) = setup.oracle();
        let mut ran = 0;
        for config in candidates(&problem, &device).into_iter().map(|offer| offer.config) {
            if !(self.kernels)(&config) {
                continue;
            }
            let mut c = setup.c(&stream)?;
            let mut amax = DeviceBuffer::<f32>::zeroed(&stream, 1)?;
            let product = setup.product(&mut c)?;
            let product = if self.result_scale.is_some() { product.amax(&mut amax) } else { product };
            product.run_with(&stream, &config)?;
            let what = format!("{problem} by {config}");
            setup.compare_with(&want, &c.to_vec(&stream)?, config.kernel, &what)?;
            if self.result_scale.is_some() {
                let tolerance = self.tolerance(config.kernel, size_of::<A>() == 1);
                let (value, magnitude) = largest;
                compare::rounded(&what, &amax.to_vec(&stream)?, &[value], &[magnitude], &[1], tolerance)?;
            }
            ran += 1;
        }
        Ok(ran)
    }

    /// Of the sums, before the result is rounded.
    fn tolerance(&self, kernel: Kernel, narrow: bool) -> Tolerance {
        let integers =
            [self.alpha, self.beta].iter().all(|factor| factor.fract() == 0.0) && self.scales.is_none();
        let exact_function = matches!(self.activation, Activation::None | Activation::Relu);
        if self.family == Family::SmallIntegers && integers && exact_function {
            return Tolerance::EXACT;
        }
        let on_tensor_cores =
            matches!(kernel, Kernel::Sm90(_) | Kernel::MmaLarge | Kernel::MmaSmall | Kernel::Skinny);
        // `gemm_skinny` widens 8 bits to 16.
        let by_8_bits = narrow && kernel != Kernel::Skinny;
        let terms = self.k + 4;
        match (on_tensor_cores, by_8_bits) {
            (true, true) => tolerance::GEMM_TENSOR_FP8.for_terms(terms),
            (true, false) if self.precision == Precision::Tf32 => {
                tolerance::GEMM_TENSOR_TF32.for_terms(terms)
            }
            (true, false) => tolerance::GEMM_TENSOR.for_terms(terms),
            _ => tolerance::GEMM_F32.for_terms(terms),
        }
    }
}
