//! Matrix products: every kernel that offers, once plain and once with what is fused to it.

use super::{Outcome, Stop};
use bytemuck::Pod;
use half::{bf16, f16};
use ironwarp::ops::gemm::{
    Activation, BlockScaled, Config, GroupedMatmul, Matmul, Matrix, MatrixMut, Precision, Repack, activated,
    activated_backward, candidates,
};
use ironwarp::tensor::Element;
use ironwarp::{DeviceBuffer, Stream, Tensor};
use num::{E4M3, E5M2};
use std::collections::HashSet;
use testkit::{Family, input};

/// A product.
#[derive(Debug, Clone, Copy)]
struct Product {
    m: usize,
    n: usize,
    k: usize,
    /// Are A and B given as their transposes?
    transposed: [bool; 2],
    precision: Precision,
    /// With a bias, a function, a residual and what was there before.
    fused: bool,
    /// By kernels that take k in parts, and no others.
    in_parts: bool,
}

/// Few rows; rows and columns beyond one small tile; rows that begin at no 16-byte boundary. More of k than
/// one step takes, in each.
const SIDES: [(usize, usize, usize, bool); 3] =
    [(8, 80, 144, false), (72, 136, 144, true), (9, 37, 67, false)];

pub fn stops(stream: &Stream) -> Outcome<Vec<Stop>> {
    let mut stops = Vec::new();
    for (m, n, k, fused) in SIDES {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let precision = Precision::F32;
            let product = Product { m, n, k, transposed, precision, fused, in_parts: false };
            let tf32 = Product { precision: Precision::Tf32, ..product };
            add::<bf16, bf16, bf16>(stream, product, &mut stops)?;
            add::<f16, f16, f16>(stream, product, &mut stops)?;
            add::<f32, f32, f32>(stream, product, &mut stops)?;
            add::<f32, f32, f32>(stream, tf32, &mut stops)?;
            if transposed == [false, true] {
                add::<E4M3, E4M3, bf16>(stream, product, &mut stops)?;
                add::<E4M3, E5M2, f32>(stream, product, &mut stops)?;
                add::<E5M2, E4M3, bf16>(stream, product, &mut stops)?;
                add::<E5M2, E5M2, f32>(stream, product, &mut stops)?;
                add::<f32, f32, f32>(stream, Product { m: 1, ..product }, &mut stops)?;
                let (n, k) = (n / 2, 4096);
                add::<bf16, bf16, bf16>(stream, Product { n, k, in_parts: true, ..product }, &mut stops)?;
            }
        }
    }
    stops.push(Stop::new("products with factors for blocks", with_block_factors));
    stops.push(Stop::new("products of a training step, bf16", training::<bf16>));
    stops.push(Stop::new("products of a training step, f16", training::<f16>));
    for transposed in [false, true] {
        let name = |ty| format!("groups of {ty}, transposed: {transposed}");
        stops.push(Stop::new(name("bf16"), move |stream| groups::<bf16, bf16>(stream, transposed)));
        stops.push(Stop::new(name("f16"), move |stream| groups::<f16, f16>(stream, transposed)));
    }
    stops.push(Stop::new("groups of 8 bits", |stream| groups::<E4M3, bf16>(stream, true)));
    Ok(stops)
}

trait Number: testkit::Element + Element + Pod {}
impl<T: testkit::Element + Element + Pod> Number for T {}

/// Adds a stop for each kernel that can do the product, and one for each way to copy the operands first.
fn add<A: Number, B: Number, C: Number>(stream: &Stream, product: Product, stops: &mut Vec<Stop>) -> Outcome {
    let mut seen = HashSet::new();
    let mut offers = Vec::new();
    product.with::<A, B, C>(stream, |matmul| {
        offers = candidates(&matmul.problem()?, stream.device());
        Ok(())
    })?;
    for config in offers.into_iter().map(|offer| offer.config) {
        if product.in_parts != (config.split_k > 1) {
            continue;
        }
        let copies = config.repack != [Repack::No; 2];
        if seen.insert((if copies { None } else { Some(config.kernel) }, config.repack)) {
            let name = format!("{} {}: {product:?} by {config}", A::NAME, B::NAME);
            stops.push(Stop::new(name, move |stream| product.run::<A, B, C>(stream, config)));
        }
    }
    Ok(())
}

impl Product {
    fn run<A: Number, B: Number, C: Number>(self, stream: &Stream, config: Config) -> Outcome<Vec<u8>> {
        self.with::<A, B, C>(stream, |matmul| matmul.run_with(stream, &config))
    }

    /// Gives the product to `work`; returns the bytes of C.
    fn with<A: Number, B: Number, C: Number>(
        self,
        stream: &Stream,
        work: impl FnOnce(Matmul<'_>) -> ironwarp::Result<()>,
    ) -> Outcome<Vec<u8>> {
        let Product { m, n, k, transposed, precision, fused, .. } = self;
        let a = DeviceBuffer::from_slice(stream, &input::<A>(Family::Normal, 1, m * k))?;
        let b = DeviceBuffer::from_slice(stream, &input::<B>(Family::Normal, 2, k * n))?;
        let mut c = DeviceBuffer::from_slice(stream, &input::<C>(Family::Normal, 3, m * n))?;
        let bias = DeviceBuffer::from_slice(stream, &input::<C>(Family::Normal, 4, n))?;
        let residual = DeviceBuffer::from_slice(stream, &input::<C>(Family::Normal, 5, m * n))?;
        let a = matrix::<A>(&a, [m, k], transposed[0]);
        let b = matrix::<B>(&b, [k, n], transposed[1]);
        let matmul = Matmul::new(a, b, MatrixMut::new::<C>(&mut c, m, n)).precision(precision);
        work(if fused {
            let residual = Matrix::new::<C>(&residual, m, n);
            matmul.beta(0.5).bias::<C>(&bias).activation(Activation::GeluTanh).residual(residual)
        } else {
            matmul
        })?;
        Ok(bytemuck::cast_slice(&c.to_vec(stream)?).to_vec())
    }
}

fn matrix<T: Number>(data: &DeviceBuffer<T>, [rows, columns]: [usize; 2], transposed: bool) -> Matrix<'_> {
    if transposed {
        Matrix::new::<T>(data, columns, rows).transposed()
    } else {
        Matrix::new::<T>(data, rows, columns)
    }
}

fn with_block_factors(stream: &Stream) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    if (stream.device().arch().major, stream.device().arch().minor) != (9, 0) {
        return Ok(bytes);
    }
    // Rows of C that begin at 16-byte boundaries, and rows that do not.
    for (m, n, k) in [(70, 136, 272), (70, 37, 272)] {
        let blocks = |length: usize| length.div_ceil(128);
        let a = DeviceBuffer::from_slice(stream, &input::<E4M3>(Family::Normal, 1, m * k))?;
        let b = DeviceBuffer::from_slice(stream, &input::<E4M3>(Family::Normal, 2, n * k))?;
        let factors_a = DeviceBuffer::from_slice(stream, &input::<f32>(Family::Normal, 3, blocks(k) * m))?;
        let factors_b =
            DeviceBuffer::from_slice(stream, &input::<f32>(Family::Normal, 4, blocks(n) * blocks(k)))?;
        let (a, factors_a) = (a.view(), factors_a.view());
        let (b, factors_b) = (b.view(), factors_b.view());
        for kernel in BlockScaled::kernels() {
            let mut c = DeviceBuffer::<bf16>::zeroed(stream, m * n)?;
            BlockScaled { m, n, k, a, factors_a, b, factors_b }.run_with(stream, kernel, &mut c)?;
            bytes.extend_from_slice(bytemuck::cast_slice(&c.to_vec(stream)?));
        }
        let offsets = DeviceBuffer::from_slice(stream, &[0, m as i32])?;
        let mut c = DeviceBuffer::<bf16>::zeroed(stream, m * n)?;
        BlockScaled { m, n, k, a, factors_a, b, factors_b }.run_grouped::<i32>(stream, &offsets, &mut c)?;
        bytes.extend_from_slice(bytemuck::cast_slice(&c.to_vec(stream)?));
    }
    Ok(bytes)
}

/// A product before an activation, and the gradient of one.
fn training<T: Number>(stream: &Stream) -> Outcome<Vec<u8>> {
    if (stream.device().arch().major, stream.device().arch().minor) != (9, 0) {
        return Ok(Vec::new());
    }
    // More than a tile, and parts of one.
    let (m, n, k) = (150, 136, 72);
    let tensor = |seed, sides: &[usize]| {
        Tensor::from_slice(stream, sides, &input::<T>(Family::Normal, seed, sides.iter().product()))
    };
    let (x, weight, bias) = (tensor(1, &[m, k])?, tensor(2, &[n, k])?, tensor(3, &[n])?);
    let hidden = activated(stream, &x, &weight, Some(&bias), Activation::GeluTanh)?;
    let (gradient, weight) = (tensor(4, &[m, k])?, tensor(5, &[k, n])?);
    let back = activated_backward(stream, &gradient, &weight, &hidden.before, Activation::GeluTanh)?;
    let mut bytes = bytemuck::cast_slice(&back.bias.to_vec::<f32>(stream)?).to_vec();
    for tensor in [&hidden.result, &hidden.before, &back.before] {
        bytes.extend_from_slice(bytemuck::cast_slice(&tensor.to_vec::<T>(stream)?));
    }
    Ok(bytes)
}

/// Products of groups of rows by every kernel that can do them, plain and fused.
fn groups<T: Number, C: Number>(stream: &Stream, transposed: bool) -> Outcome<Vec<u8>> {
    // More than a tile, none, and a part of one.
    const OFFSETS: [i32; 4] = [2, 150, 150, 190];
    const GROUPS: usize = OFFSETS.len() - 1;
    let (m, n, k) = (200, 80, 144);
    let a = DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, 1, m * k))?;
    let b = DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, 2, GROUPS * k * n))?;
    let bias = DeviceBuffer::from_slice(stream, &input::<C>(Family::Normal, 3, GROUPS * n))?;
    let offsets = DeviceBuffer::from_slice(stream, &OFFSETS)?;
    let mut bytes = Vec::new();
    let sides = [m, n, k];
    let mut c = DeviceBuffer::<C>::from_slice(stream, &input::<C>(Family::Normal, 4, m * n))?;
    for kernel in of_groups((&a, &b, &offsets), &mut c, sides, transposed).kernels(stream)? {
        for fused in [false, true] {
            let product = of_groups((&a, &b, &offsets), &mut c, sides, transposed);
            let product = if fused { product.bias::<C>(&bias).activation(Activation::Silu) } else { product };
            product.run_with(stream, kernel)?;
            bytes.extend_from_slice(bytemuck::cast_slice(&c.to_vec(stream)?));
        }
    }
    Ok(bytes)
}

fn of_groups<'x, T: Number, C: Number>(
    (a, b, offsets): (&'x DeviceBuffer<T>, &'x DeviceBuffer<T>, &'x DeviceBuffer<i32>),
    c: &'x mut DeviceBuffer<C>,
    [m, n, k]: [usize; 3],
    transposed: bool,
) -> GroupedMatmul<'x> {
    let groups = offsets.len() - 1;
    let b = if transposed {
        Matrix::new::<T>(b, n, k).batch(groups).transposed()
    } else {
        Matrix::new::<T>(b, k, n).batch(groups)
    };
    GroupedMatmul::new::<i32>(Matrix::new::<T>(a, m, k), b, offsets, MatrixMut::new::<C>(c, m, n))
}
