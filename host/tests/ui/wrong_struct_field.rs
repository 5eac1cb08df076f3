//! A field of an argument struct: another element type.
use cuda_std::prelude::*;
use ironwarp::{DeviceBuffer, LaunchConfig, Result, Stream, launch};

#[derive(Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct Scale {
    pub a: f32,
    pub x: *const f32,
    pub y: *mut f32,
}

/// # Safety
/// `x` and `y` have an element for each thread.
#[kernel]
pub unsafe fn scale(args: Scale) {
    let i = thread::index_1d() as usize;
    unsafe { *args.y.add(i) = args.a * *args.x.add(i) };
}

fn wrong(stream: &Stream, config: LaunchConfig) -> Result<()> {
    let x = DeviceBuffer::<f64>::zeroed(stream, 4)?;
    let mut y = DeviceBuffer::<f32>::zeroed(stream, 4)?;
    unsafe { launch::<scale>(stream, config, (ScaleArgs { a: 2.0, x: &x, y: &mut y }.pass(),)) }
}

fn main() {}
