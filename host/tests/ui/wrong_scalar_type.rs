//! A value of another type.
use cuda_std::prelude::*;
use ironwarp::{DeviceBuffer, LaunchConfig, Result, Stream, launch};

/// # Safety
/// `y` is as long as `x`.
#[kernel]
pub unsafe fn scale(a: f32, x: &[f32], y: *mut f32) {
    let i = thread::index_1d() as usize;
    if i < x.len() {
        unsafe { *y.add(i) = a * x[i] };
    }
}

fn wrong(stream: &Stream, config: LaunchConfig) -> Result<()> {
    let x = DeviceBuffer::<f32>::zeroed(stream, 4)?;
    let mut y = DeviceBuffer::<f32>::zeroed(stream, 4)?;
    unsafe { launch::<scale>(stream, config, (2u32, &x, &mut y)) }
}

fn main() {}
