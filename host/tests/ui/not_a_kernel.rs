//! A function without `#[kernel]`.
use ironwarp::{DeviceBuffer, LaunchConfig, Result, Stream, launch};

pub unsafe fn forgotten(x: &[f32]) {
    let _ = x;
}

fn function(stream: &Stream, config: LaunchConfig, x: &DeviceBuffer<f32>) -> Result<()> {
    unsafe { launch::<forgotten>(stream, config, (x,)) }
}

fn main() {}
