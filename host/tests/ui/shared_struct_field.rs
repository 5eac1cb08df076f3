//! A field of an argument struct: a shared borrow for a pointer that the kernel writes through.
use cuda_std::prelude::*;
use ironwarp::{DeviceBuffer, LaunchConfig, Result, Stream, launch};

#[derive(Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct Fill {
    pub y: *mut f32,
}

/// # Safety
/// `y` has an element for each thread.
#[kernel]
pub unsafe fn fill(args: Fill) {
    unsafe { *args.y.add(thread::index_1d() as usize) = 1.0 };
}

fn wrong(stream: &Stream, config: LaunchConfig) -> Result<()> {
    let y = DeviceBuffer::<f32>::zeroed(stream, 4)?;
    unsafe { launch::<fill>(stream, config, (FillArgs { y: &y }.pass(),)) }
}

fn main() {}
