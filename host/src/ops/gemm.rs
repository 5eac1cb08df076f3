//! Matrix products.

use gemm::gemm_f32::{self as kernel, Tile};

use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;

/// Shape and factors of `C = alpha A B + beta C`, all matrices row-major and dense.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of the old C; with 0, C is not read, so it may hold anything.
    pub beta: f32,
}

impl Gemm {
    /// `C = A B`.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Gemm { m, n, k, alpha: 1.0, beta: 0.0 }
    }
}

/// Queues `C = alpha A B + beta C` for `a: [m, k]`, `b: [k, n]`, `c: [m, n]` in f32, without tensor cores: every element is one chain
/// of fused multiply-adds in the order of `k`. Any sizes, 0 too: with `k` 0, `C` is scaled by `beta`.
///
/// # Errors
/// [`Error::Length`] when a matrix does not have the elements that its shape says, [`Error::InvalidArgument`] when a side is too long,
/// [`Error::DeviceMismatch`], or the driver's error.
pub fn gemm_f32<'a, 'b, 'c>(
    stream: &Stream,
    gemm: Gemm,
    a: impl Into<DeviceView<'a, f32>>,
    b: impl Into<DeviceView<'b, f32>>,
    c: impl Into<DeviceViewMut<'c, f32>>,
) -> Result<()> {
    let Gemm { m, n, k, alpha, beta } = gemm;
    let (a, b, c) = (a.into(), b.into(), c.into());
    // A product that overflows equals no length.
    same_length("gemm_f32", "A", m.saturating_mul(k), a.len())?;
    same_length("gemm_f32", "B", k.saturating_mul(n), b.len())?;
    same_length("gemm_f32", "C", m.saturating_mul(n), c.len())?;
    if c.is_empty() {
        return Ok(());
    }
    let (m, n, k) = (side("m", m)?, side("n", n)?, side("k", k)?);
    let tile = Tile::choose(m, n, stream.device().properties().sm_count);
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(tile.blocks(m, n)).unwrap_or(u32::MAX);
    let config = LaunchConfig::new([blocks, 1, 1], [tile.threads(), 1, 1]);
    let arguments = (m, n, k, alpha, a, b, beta, c);
    // SAFETY: lengths are those of the shape, c is exclusively borrowed, and grid and block are what the kernel asks for.
    unsafe {
        match tile {
            Tile::Large => launch::<kernel::gemm_f32>(stream, config, arguments),
            Tile::Small => launch::<kernel::gemm_f32_small>(stream, config, arguments),
        }
    }
}

fn side(argument: &'static str, length: usize) -> Result<u32> {
    if length <= kernel::MAX_SIDE as usize {
        return Ok(length as u32);
    }
    Err(Error::InvalidArgument {
        operation: "gemm_f32",
        argument,
        got: length.to_string(),
        wanted: format!("at most {}", kernel::MAX_SIDE),
        hint: "split that dimension and call once for each part",
    })
}
