//! Chapters of Hopper. The kernels exist only for sm_90a.

mod cluster;
mod im2col;
mod mbarrier;
mod pipeline;
mod tma;
mod warp;
mod wgmma;

use ironwarp::Result;

use crate::gpu::Gpu;

/// A device that runs these kernels, if this one does: compute capability 9.0, and no other.
fn hopper() -> Result<Option<Gpu>> {
    let gpu = Gpu::open()?;
    if gpu.device.arch().is_hopper() {
        return Ok(Some(gpu));
    }
    testkit::skip(&format!("{} is no Hopper", gpu.device.name()));
    Ok(None)
}
