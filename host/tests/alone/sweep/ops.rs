//! The ops, on inputs of a few elements.

use half::{bf16, f16};
use ironwarp::ops::cosine::{Corpus, Vectors, cosine_topk};
use ironwarp::ops::gemm::{Config, Gemm, Kernel, Matmul, Matrix, MatrixMut, Repack, candidates, gemm_f32};
use ironwarp::ops::reduce;
use ironwarp::ops::saxpy::saxpy;
use ironwarp::ops::transpose::transpose;
use ironwarp::{DeviceBuffer, Result, Stream};

use super::plain;

pub fn basic() -> Result<()> {
    let (_device, stream) = plain()?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 6)?;
    transpose(&stream, 2, 3, &x, &mut y)?;
    saxpy(&stream, 10.0, &x, &mut y)?;
    assert_eq!(y.to_vec(&stream)?, [11.0, 24.0, 32.0, 45.0, 53.0, 66.0]);
    assert_eq!(reduce::buffer_sum(&stream, &x)?, 21.0);
    assert_eq!(reduce::buffer_amax(&stream, &x)?, 6.0);
    Ok(())
}

pub fn gemm() -> Result<()> {
    let (_device, stream) = plain()?;
    let a = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0, 4.0])?;
    let b = DeviceBuffer::from_slice(&stream, &[0.0f32, 1.0, 1.0, 0.0])?;
    let mut c = DeviceBuffer::from_slice(&stream, &[1.0f32; 4])?;
    gemm_f32(&stream, Gemm { m: 2, n: 2, k: 2, alpha: 1.0, beta: 2.0 }, &a, &b, &mut c)?;
    assert_eq!(c.to_vec(&stream)?, [4.0, 3.0, 6.0, 5.0]);
    Ok(())
}

/// On the tensor cores, by tensor maps: operands with a layout that needs copies of both, and operands that
/// need none.
pub fn matmul() -> Result<()> {
    let (_device, stream) = plain()?;
    for (k, copies) in [(19, true), (24, false)] {
        multiply(&stream, k, |config| {
            matches!(config.kernel, Kernel::Sm90(_))
                && copies == config.repack.iter().all(|&to| to != Repack::No)
        })?;
    }
    Ok(())
}

/// By the kernels for few rows, and by those for every device.
pub fn matmul_elsewhere() -> Result<()> {
    let (_device, stream) = plain()?;
    for kernel in [Kernel::Skinny, Kernel::Direct, Kernel::MmaSmall, Kernel::Any] {
        multiply(&stream, 24, |config| config.kernel == kernel)?;
    }
    Ok(())
}

/// A product of `[M, k]` and `[k, N]` on the smallest tiles that are `wanted`.
fn multiply(stream: &Stream, k: usize, wanted: impl Fn(&Config) -> bool) -> Result<()> {
    const M: usize = 9;
    const N: usize = 16;
    let a: Vec<bf16> = (0..M * k).map(|i| bf16::from_f32((i % 5) as f32 - 2.0)).collect();
    let b: Vec<bf16> = (0..N * k).map(|i| bf16::from_f32((i % 7) as f32 - 3.0)).collect();
    let (x, y) = (DeviceBuffer::from_slice(stream, &a)?, DeviceBuffer::from_slice(stream, &b)?);
    let mut c = DeviceBuffer::<f32>::zeroed(stream, M * N)?;
    let (x, y) = (Matrix::new::<bf16>(&x, M, k), Matrix::new::<bf16>(&y, N, k).transposed());
    let product = Matmul::new(x, y, MatrixMut::new::<f32>(&mut c, M, N));
    let offers = candidates(&product.problem()?, stream.device());
    let config = offers
        .into_iter()
        .map(|offer| offer.config)
        .filter(wanted)
        .min_by_key(|config| config.tile[0] * config.tile[1] * config.cluster.iter().product::<u32>())
        .expect("the device that calls fail on is a Hopper");
    product.run_with(stream, &config)?;
    let want: Vec<f32> = (0..M * N)
        .map(|at| {
            let (a, b) = (&a[at / N * k..], &b[at % N * k..]);
            (0..k).map(|i| a[i].to_f32() * b[i].to_f32()).sum()
        })
        .collect();
    assert_eq!(c.to_vec(stream)?, want, "{config}");
    Ok(())
}

/// Vectors along axes: number `r` points along axis `r`; vectors past the last axis are zero.
fn axes(count: usize, dim: usize) -> Vec<f16> {
    (0..count * dim).map(|i| if i % dim == i / dim { f16::ONE } else { f16::ZERO }).collect()
}

pub fn cosine() -> Result<()> {
    /// Elements of a vector.
    const DIM: usize = 8;
    let (_device, stream) = plain()?;
    let axes = axes(4, DIM);
    let corpus = DeviceBuffer::from_slice(&stream, &axes)?;
    let queries = DeviceBuffer::from_slice(&stream, &axes[2 * DIM..3 * DIM])?;
    let (corpus, queries) = (Vectors::new(&corpus, DIM)?, Vectors::new(&queries, DIM)?);
    for found in [
        cosine_topk(&stream, corpus, queries, 1)?,
        Corpus::prepare(&stream, corpus)?.topk(&stream, queries, 1)?,
    ] {
        let hits = found.to_host(&stream)?;
        assert_eq!((hits[0][0].index, hits[0][0].score), (2, 1.0));
    }
    Ok(())
}

/// So many queries that a matrix product computes them, by tensor maps.
pub fn cosine_many() -> Result<()> {
    const QUERIES: usize = 40;
    let (_device, stream) = plain()?;
    let axes = DeviceBuffer::from_slice(&stream, &axes(QUERIES, QUERIES))?;
    let vectors = Vectors::new(&axes, QUERIES)?;
    for (query, hits) in cosine_topk(&stream, vectors, vectors, 1)?.to_host(&stream)?.iter().enumerate() {
        assert_eq!((hits[0].index as usize, hits[0].score), (query, 1.0));
    }
    Ok(())
}
