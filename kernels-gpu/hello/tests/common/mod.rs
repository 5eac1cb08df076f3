//! The kernel as a safe function, and its oracle.

use ironwarp::{Device, DeviceBuffer, Error, LaunchConfig, Result, Stream, launch};

/// The first device: a GPU, or the software driver if there is no GPU.
///
/// # Errors
/// If no driver starts.
pub fn device() -> Result<Device> {
    Device::open(0)
}

/// Queues `y[i] = a * x[i] + y[i]`.
///
/// # Errors
/// [`Error::Length`] if the lengths differ, or the driver's error.
pub fn run(stream: &Stream, a: f32, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>) -> Result<()> {
    if x.len() != y.len() {
        return Err(Error::Length { operation: "hello", what: "y", expected: x.len(), got: y.len() });
    }
    let config = LaunchConfig::linear(x.len(), hello::THREADS);
    // SAFETY: `y` is as long as `x` and exclusively borrowed; there is a thread for each element.
    unsafe { launch::<hello::hello>(stream, config, (a, x, y)) }
}

/// The same in f64, one element after the other.
pub fn oracle(a: f32, x: &[f32], y: &[f32]) -> Vec<f64> {
    x.iter().zip(y).map(|(&x, &y)| f64::from(a) * f64::from(x) + f64::from(y)).collect()
}

/// Values in [-1, 1). Equal seeds give equal values.
pub fn values(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}
