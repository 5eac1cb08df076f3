//! Kernels on vectors: the basic ones, and searches.

use super::{Outcome, Stop};
use half::{bf16, f16};
use ironwarp::ops::cosine::{Element, Vectors, cosine_topk};
use ironwarp::ops::{hash::hash_bytes, reduce, saxpy::saxpy, transpose::transpose};
use ironwarp::{DeviceBuffer, Stream, Tensor};
use testkit::{Family, input};

pub fn stops() -> Vec<Stop> {
    vec![
        Stop::new("vectors", vectors),
        Stop::new("hashes", hashes),
        Stop::new("searches in f16", searches::<f16>),
        Stop::new("searches in bf16", searches::<bf16>),
    ]
}

fn vectors(stream: &Stream) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut keep = |values: &[f32]| bytes.extend_from_slice(bytemuck::cast_slice(values));
    // Whole vectors of elements, and a rest; tiles of 64 x 64, and rests of them.
    for (rows, columns) in [(64, 64), (70, 67), (3, 1)] {
        let len = rows * columns;
        let x = DeviceBuffer::from_slice(stream, &input::<f32>(Family::HugeTiny, 1, len))?;
        let mut y = DeviceBuffer::from_slice(stream, &input::<f32>(Family::HugeTiny, 2, len))?;
        saxpy(stream, 0.7, &x, &mut y)?;
        keep(&y.to_vec(stream)?);
        keep(&[reduce::buffer_sum(stream, &y)?, reduce::buffer_amax(stream, &x)?]);
        transpose(stream, rows, columns, &x, &mut y)?;
        keep(&y.to_vec(stream)?);
    }
    Ok(bytes)
}

/// Whole units with a rest, and bytes that are not aligned.
fn hashes(stream: &Stream) -> Outcome<Vec<u8>> {
    let x = Tensor::from_slice(stream, &[5003], &input::<f32>(Family::HugeTiny, 1, 5003))?;
    let hashes = hash_bytes(stream, &[&x, &x.slice(0, 1..)?])?.to_vec(stream)?;
    Ok(bytemuck::cast_slice(&hashes).to_vec())
}

/// Few queries; many of an even length, with short lists and with long ones, and of an odd one.
fn searches<T: Element + testkit::Element>(stream: &Stream) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    for (queries, dim, k) in [(3, 72, 5), (3, 33, 5), (40, 72, 5), (40, 72, 40), (40, 33, 5)] {
        let corpus = DeviceBuffer::from_slice(stream, &input::<T>(Family::HugeTiny, 3, 300 * dim))?;
        let sought = DeviceBuffer::from_slice(stream, &input::<T>(Family::Normal, 4, queries * dim))?;
        let found = cosine_topk(stream, Vectors::new(&corpus, dim)?, Vectors::new(&sought, dim)?, k)?;
        bytes.extend_from_slice(bytemuck::cast_slice(&found.scores.to_vec(stream)?));
        bytes.extend_from_slice(bytemuck::cast_slice(&found.indices.to_vec(stream)?));
    }
    Ok(bytes)
}
