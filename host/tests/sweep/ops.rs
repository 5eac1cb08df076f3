//! The ops, on inputs of a few elements.

use half::f16;
use ironwarp::ops::cosine::{Corpus, Vectors, cosine_topk};
use ironwarp::ops::gemm::{Gemm, gemm_f32};
use ironwarp::ops::reduce;
use ironwarp::ops::saxpy::saxpy;
use ironwarp::ops::transpose::transpose;
use ironwarp::{DeviceBuffer, Result};

use super::plain;

pub fn basic() -> Result<()> {
    let (_device, stream) = plain()?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 6)?;
    transpose(&stream, 2, 3, &x, &mut y)?;
    saxpy(&stream, 10.0, &x, &mut y)?;
    assert_eq!(y.to_vec(&stream)?, [11.0, 24.0, 32.0, 45.0, 53.0, 66.0]);
    assert_eq!(reduce::sum(&stream, &x)?, 21.0);
    assert_eq!(reduce::max(&stream, &x)?, 6.0);
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

pub fn cosine() -> Result<()> {
    /// Elements of a vector.
    const DIM: usize = 8;
    let (_device, stream) = plain()?;
    // Row r of the corpus points along axis r.
    let axes: Vec<f16> =
        (0..4 * DIM).map(|i| if i % DIM == i / DIM { f16::ONE } else { f16::ZERO }).collect();
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
