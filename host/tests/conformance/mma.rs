//! Every tensor core product against a product in f64.
//!
//! Small integers must come out exactly. For random numbers the bound is that of a sum in f32 whose every
//! step may round or truncate: `(K + 1) 2^-23` of the sum of the magnitudes; a sum in f16 adds two roundings
//! of its result.

use conformance::mma::{
    M, N, mma_m16n8k4_f32_tf32, mma_m16n8k8_f16_f16, mma_m16n8k8_f32_bf16, mma_m16n8k8_f32_f16,
    mma_m16n8k8_f32_tf32, mma_m16n8k16_f16_f16, mma_m16n8k16_f32_bf16, mma_m16n8k16_f32_f16,
};
use half::{bf16, f16};
use ironwarp::{DeviceBuffer, LaunchConfig, Result, launch};
use testkit::Random;

use crate::element::{Element, Tf32};
use crate::gpu::Gpu;

const WARP: LaunchConfig = LaunchConfig::linear(32, 32);

/// The kind of the input numbers.
#[derive(Clone, Copy, Debug)]
enum Data {
    /// -8 to 8: every partial sum is exact in every format.
    Integers,
    Normal,
    /// Exponents from 2^-8 to 2^8.
    Spread,
    /// One element of A and one of B are 1, the others 0: shows where each ends up.
    Single {
        row: usize,
        column: usize,
        k: usize,
    },
}

struct Problem<T: Element, C: Element> {
    a: Vec<T::Code>,
    b: Vec<T::Code>,
    c: Vec<C::Code>,
}

impl<T: Element, C: Element> Problem<T, C> {
    fn new(data: Data, k_size: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut number = || match data {
            Data::Integers => random.integer(-8, 8) as f64,
            Data::Normal => random.normal(),
            Data::Spread => random.uniform(-8.0, 8.0).exp2() * random.sign(),
            Data::Single { .. } => 0.0,
        };
        let mut a: Vec<T::Code> = (0..M * k_size).map(|_| T::encode(number())).collect();
        let mut b: Vec<T::Code> = (0..N * k_size).map(|_| T::encode(number())).collect();
        let c = (0..M * N).map(|_| C::encode(number())).collect();
        if let Data::Single { row, column, k } = data {
            a[row * k_size + k] = T::encode(1.0);
            b[column * k_size + k] = T::encode(1.0);
        }
        Self { a, b, c }
    }

    /// The exact result (in f64) and the sum of the magnitudes, for each element of D.
    fn oracle(&self) -> Vec<(f64, f64)> {
        let k_size = self.a.len() / M;
        let element = |i: usize| {
            let (row, column) = (i / N, i % N);
            let c = C::decode(self.c[i]);
            (0..k_size).fold((c, c.abs()), |(sum, size), k| {
                let product = T::decode(self.a[row * k_size + k]) * T::decode(self.b[column * k_size + k]);
                (sum + product, size + product.abs())
            })
        };
        (0..M * N).map(element).collect()
    }
}

/// Runs a kernel on one problem. Kernels differ only in their name, and a name is a type.
type Run<T, C> = fn(
    &Gpu,
    &DeviceBuffer<<T as Element>::Code>,
    &DeviceBuffer<<T as Element>::Code>,
    &DeviceBuffer<<C as Element>::Code>,
    &mut DeviceBuffer<<C as Element>::Code>,
) -> Result<()>;

/// A [`Run`] of a kernel.
macro_rules! run {
    ($kernel:ident) => {
        |gpu, a, b, c, out| {
            // SAFETY: whole matrices, one warp.
            unsafe { launch::<$kernel>(&gpu.stream, WARP, (a, b, c, out)) }
        }
    };
}

fn check<T: Element, C: Element>(name: &str, k_size: usize, result_bits: i32, run: Run<T, C>) -> Result<()>
where
    C::Code: bytemuck::Zeroable,
{
    let gpu = Gpu::open()?;
    let singles = (0..M * N).map(|i| Data::Single { row: i / N, column: i % N, k: i % k_size });
    let kinds = [Data::Integers, Data::Normal, Data::Spread].repeat(8).into_iter().chain(singles);
    for (seed, data) in kinds.enumerate() {
        let problem = Problem::<T, C>::new(data, k_size, seed as u64);
        let (a, b, c) = (gpu.put(&problem.a)?, gpu.put(&problem.b)?, gpu.put(&problem.c)?);
        let mut out = gpu.zeros::<C::Code>(M * N)?;
        run(&gpu, &a, &b, &c, &mut out)?;
        for (i, (got, (want, size))) in gpu.get(&out)?.into_iter().zip(problem.oracle()).enumerate() {
            let got = C::decode(got);
            let bound = match data {
                Data::Integers | Data::Single { .. } => 0.0,
                _ => size * ((k_size + 1) as f64 * 2f64.powi(-23) + 2.0 * 2f64.powi(-result_bits)),
            };
            let error = (got - want).abs();
            assert!(
                error <= bound,
                "{name}, {data:?}, seed {seed}: D({}, {}) is {got}, want {want}; off by {error:e}, allowed {bound:e}",
                i / N,
                i % N
            );
        }
    }
    Ok(())
}

/// Significant bits of the result: the bound's second term vanishes for f32 beside the first.
const F32_BITS: i32 = 24;
const F16_BITS: i32 = 11;

#[test]
fn m16n8k16_f32_f16() -> Result<()> {
    check::<f16, f32>("m16n8k16 f32 f16", 16, F32_BITS, run!(mma_m16n8k16_f32_f16))
}

#[test]
fn m16n8k16_f32_bf16() -> Result<()> {
    check::<bf16, f32>("m16n8k16 f32 bf16", 16, F32_BITS, run!(mma_m16n8k16_f32_bf16))
}

#[test]
fn m16n8k16_f16_f16() -> Result<()> {
    check::<f16, f16>("m16n8k16 f16 f16", 16, F16_BITS, run!(mma_m16n8k16_f16_f16))
}

#[test]
fn m16n8k8_f32_f16() -> Result<()> {
    check::<f16, f32>("m16n8k8 f32 f16", 8, F32_BITS, run!(mma_m16n8k8_f32_f16))
}

#[test]
fn m16n8k8_f32_bf16() -> Result<()> {
    check::<bf16, f32>("m16n8k8 f32 bf16", 8, F32_BITS, run!(mma_m16n8k8_f32_bf16))
}

#[test]
fn m16n8k8_f16_f16() -> Result<()> {
    check::<f16, f16>("m16n8k8 f16 f16", 8, F16_BITS, run!(mma_m16n8k8_f16_f16))
}

#[test]
fn m16n8k8_f32_tf32() -> Result<()> {
    check::<Tf32, f32>("m16n8k8 f32 tf32", 8, F32_BITS, run!(mma_m16n8k8_f32_tf32))
}

#[test]
fn m16n8k4_f32_tf32() -> Result<()> {
    check::<Tf32, f32>("m16n8k4 f32 tf32", 4, F32_BITS, run!(mma_m16n8k4_f32_tf32))
}
