//! Tensors: ops one after the other, and files.

use std::path::PathBuf;

use half::bf16;
use ironwarp::ops::convert::convert;
use ironwarp::ops::elementwise::{
    BinaryOp, CompareOp, UnaryOp, binary, compare, contiguous, select, unary_assign,
};
use ironwarp::ops::fill::{arange, full};
use ironwarp::ops::index::{Indices, gather, scatter_add};
use ironwarp::ops::reduce::{argmax, sum};
use ironwarp::tensor::safetensors::{TensorFile, save};
use ironwarp::{DType, Result, Tensor};

use super::plain;

/// A few ops, each on the result of the one before.
pub fn chain() -> Result<()> {
    let (_device, stream) = plain()?;
    // 0 1 2 / 3 4 5, and its columns.
    let x = arange(&stream, 0.0, 1.0, 6, DType::F32)?.view_as(&[2, 3])?;
    let turned = contiguous(&stream, &x.transpose(0, 1)?)?;
    let bias = Tensor::from_slice(&stream, &[2], &[-1.0f32, 10.0])?;
    let mut y = binary(&stream, BinaryOp::Add, &turned, &bias)?; // -1 13 / 0 14 / 1 15
    unary_assign(&stream, UnaryOp::Relu, y.view_mut()?)?;
    let small = compare(&stream, CompareOp::Lt, &y, &full(&stream, &[], 1.0f32)?)?;
    let y = select(&stream, &small, &full(&stream, &[], 0.5f32)?, &y)?; // 0.5 13 / 0.5 14 / 1 15
    let y = convert(&stream, &convert(&stream, &y, DType::BF16)?, DType::F32)?;
    assert_eq!(sum(&stream, &y, &[1])?.to_vec::<f32>(&stream)?, [13.5, 14.5, 16.0]);
    assert_eq!(argmax(&stream, &y, 0)?.to_vec::<i64>(&stream)?, [2, 2]);
    let rows = Indices::from_slice(&stream, &[2, 0, 2], 3)?;
    let taken = gather(&stream, &y, 0, &rows)?;
    let mut sums = Tensor::zeros(&stream, &[3, 2], DType::F32)?;
    scatter_add(&stream, sums.view_mut()?, 0, &rows, &taken)?;
    assert_eq!(sums.to_vec::<f32>(&stream)?, [0.5, 13.0, 0.0, 0.0, 2.0, 30.0]);
    Ok(())
}

/// A file that is removed at the end of its run.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // A run that failed early has no file.
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn files() -> Result<()> {
    let (_device, stream) = plain()?;
    let path =
        Scratch(std::env::temp_dir().join(format!("ironwarp-sweep-{}.safetensors", std::process::id())));
    let values: Vec<bf16> = (0..6).map(|i| bf16::from_f32(i as f32)).collect();
    let x = Tensor::from_slice(&stream, &[2, 3], &values)?;
    // Written row by row, so that it has to be made contiguous first.
    save(&stream, &path.0, &[("x", &x), ("turned", &x.transpose(0, 1)?)])?;
    let file = TensorFile::open(&path.0)?;
    assert_eq!(file.load(&stream, "x")?.to_vec::<bf16>(&stream)?, values);
    let turned = [0, 3, 1, 4, 2, 5].map(|i| values[i]);
    assert_eq!(file.load(&stream, "turned")?.to_vec::<bf16>(&stream)?, turned);
    Ok(())
}
