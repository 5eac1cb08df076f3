//! Arguments that do not fit: the first line names the parameter and what was passed.
use cuda_std::prelude::*;
use cuda_std::tma::TensorMap;
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

/// # Safety
/// None.
#[kernel]
pub unsafe fn copy(map: &TensorMap, y: &mut [f32]) {
    let _ = (map, y);
}

struct Data {
    x: DeviceBuffer<f32>,
    y: DeviceBuffer<f32>,
    double: DeviceBuffer<f64>,
}

fn another_number(stream: &Stream, config: LaunchConfig, data: &mut Data) -> Result<()> {
    unsafe { launch::<scale>(stream, config, (2u32, &data.x, &mut data.y)) }
}

fn other_elements(stream: &Stream, config: LaunchConfig, data: &mut Data) -> Result<()> {
    unsafe { launch::<scale>(stream, config, (2.0, &data.double, &mut data.y)) }
}

fn host_memory(stream: &Stream, config: LaunchConfig, data: &mut Data) -> Result<()> {
    unsafe { launch::<scale>(stream, config, (2.0, &[1.0f32, 2.0][..], &mut data.y)) }
}

fn shared_for_written(stream: &Stream, config: LaunchConfig, data: &mut Data) -> Result<()> {
    unsafe { launch::<scale>(stream, config, (2.0, &data.x, &data.y)) }
}

fn too_few(stream: &Stream, config: LaunchConfig, data: &mut Data) -> Result<()> {
    unsafe { launch::<scale>(stream, config, (2.0, &data.x)) }
}

fn too_many(stream: &Stream, config: LaunchConfig, data: &mut Data) -> Result<()> {
    unsafe { launch::<scale>(stream, config, (2.0, &data.x, &mut data.y, 1u32)) }
}

fn no_tuple(stream: &Stream, config: LaunchConfig, data: &mut Data) -> Result<()> {
    unsafe { launch::<scale>(stream, config, &data.x) }
}

fn no_tensor_map(stream: &Stream, config: LaunchConfig, data: &mut Data) -> Result<()> {
    unsafe { launch::<copy>(stream, config, (&data.x, &mut data.y)) }
}

fn no_kernel(stream: &Stream, config: LaunchConfig, data: &mut Data) -> Result<()> {
    unsafe { launch::<Data>(stream, config, (&data.x,)) }
}

fn main() {}
