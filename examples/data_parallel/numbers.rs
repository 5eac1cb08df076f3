//! Numbers that look random.

/// Between `-scale` and `scale`.
pub fn numbers(seed: u64, len: usize, scale: f32) -> Vec<f32> {
    let mixed = |i: u64| (seed * 0x1000_0001 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(i | 1);
    (0..len as u64).map(|i| ((mixed(i) >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale).collect()
}
