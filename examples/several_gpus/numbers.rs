//! Tensors of numbers that look random.

use ironwarp::{Result, Stream, Tensor};

/// Numbers between `-scale` and `scale`, the same for a seed on every device.
pub fn numbers(stream: &Stream, shape: &[usize], scale: f32, seed: u64) -> Result<Tensor> {
    let mixed = |i: u64| (seed * 0x1000_0001 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(i | 1);
    let number = |i: u64| ((mixed(i) >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale;
    let values: Vec<f32> = (0..shape.iter().product::<usize>() as u64).map(number).collect();
    Tensor::from_slice(stream, shape, &values)
}
