//! 8-bit products with factors for blocks: [`gemm::sm90::blocks`].

use gemm::sm90::blocks::{BLOCK, ENTRY, gemm_e4m3_blocks_nt_128x128};
use gemm::sm90::entries::Arguments;
use gemm::sm90::epilogue::Terms;
use gemm::sm90::problem::Problem;
use half::bf16;
use num::E4M3;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;
use crate::tensor::DType;

use super::matmul::invalid;
use super::matrix::ROW_ALIGNMENT;
use super::problem::side;
use super::sm90::{ARCH, BOX, K_BYTES, map};

/// The operation that errors name.
const OPERATION: &str = "BlockScaled::run";

/// `C[i, j] = sum over k of (A[i, k] * factor_a[k / 128, i]) * (B[j, k] * factor_b[j / 128, k / 128])`, in E4M3, summed in f32.
///
/// 8-bit numbers have little range: with a factor for each row and 128 elements of A, and one for each square of 128 of B, large
/// and small parts of a matrix keep their digits. The tensor cores sum 128 products at a time, with few bits; those sums are added up in f32.
#[derive(Debug, Clone, Copy)]
pub struct BlockScaled<'a> {
    /// Rows of A and C.
    pub m: usize,
    /// Rows of B, columns of C.
    pub n: usize,
    /// Columns of A and B, a multiple of 16.
    pub k: usize,
    /// `[m, k]`, dense.
    pub a: DeviceView<'a, E4M3>,
    /// `[k / 128 rounded up, m]`, dense: the factors of a block of k lie side by side.
    pub factors_a: DeviceView<'a, f32>,
    /// `[n, k]`, dense.
    pub b: DeviceView<'a, E4M3>,
    /// `[n / 128 rounded up, k / 128 rounded up]`, dense.
    pub factors_b: DeviceView<'a, f32>,
}

impl BlockScaled<'_> {
    /// Queues the product into `c`: `[m, n]`, dense.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the device is not of compute capability 9.0, k is no multiple of 16 or a side is too long,
    /// [`Error::Length`] when an operand does not have the elements that its shape says, [`Error::DeviceMismatch`], or the driver's error.
    pub fn run<'c>(&self, stream: &Stream, c: impl Into<DeviceViewMut<'c, bf16>>) -> Result<()> {
        let (mut c, Self { m, n, k, .. }) = (c.into(), *self);
        self.check(stream, c.len())?;
        if m == 0 || n == 0 {
            return Ok(());
        }
        if k == 0 {
            return c.fill_zero(stream);
        }
        let (m32, n32) = (side("m", m)?, side("n", n)?);
        let [block_m, block_n, _] = ENTRY.block;
        let map_a = map(self.a.bytes(), DType::F8E4M3, (k, m, k), (1, 0), [K_BYTES, block_m])?;
        let map_b = map(self.b.bytes(), DType::F8E4M3, (k, n, k), (1, 0), [K_BYTES, block_n])?;
        c.before_write(stream)?;
        // The copy engine stores whole units.
        let unit = ROW_ALIGNMENT as usize / size_of::<bf16>();
        let aligned = n.is_multiple_of(unit);
        let bytes = c.view().bytes();
        let map_c = if aligned {
            map(bytes, DType::BF16, (n, m, n), (1, 0), [ENTRY.store_columns, BOX])?
        } else {
            map_a
        };
        let arguments = Arguments {
            problem: Problem { m: m32, n: n32, k: side("k", k)?, batch: 1, band: BAND },
            terms: Terms { alpha: 1.0, beta: 0.0, activation: 0 },
            row: n as u64,
            matrix: 0,
            residual_row: 0,
            residual_matrix: 0,
            is_f32: false,
            aligned,
            residual_aligned: false,
            bias_aligned: false,
            copied: aligned,
        };
        let tiles = m32.div_ceil(block_m).saturating_mul(n32.div_ceil(block_n));
        let blocks = tiles.min(stream.device().properties().sm_count);
        let config = LaunchConfig::new([blocks, 1, 1], [ENTRY.threads, 1, 1])
            .with_shared(ENTRY.shared)
            .overlapping_previous();
        let arguments = (map_a, map_b, map_c, arguments, bytes.as_ptr(), self.factors_a, m32, self.factors_b);
        // SAFETY: lengths are those of the shape, c is exclusively borrowed, maps, grid and block are what the kernel asks for, and it
        // waits for earlier launches before it touches memory.
        unsafe { launch::<gemm_e4m3_blocks_nt_128x128>(stream, config, arguments) }
    }

    fn check(&self, stream: &Stream, c: usize) -> Result<()> {
        let Self { m, n, k, .. } = *self;
        let arch = stream.device().arch();
        if arch != ARCH {
            let hint = "multiply by the factors, and the results by ops::gemm::Matmul";
            return Err(invalid("the device", arch.to_string(), ARCH.to_string(), hint));
        }
        let unit = ROW_ALIGNMENT as usize / size_of::<E4M3>();
        if !k.is_multiple_of(unit) {
            let hint = "pad the rows of A and B with zeros";
            return Err(invalid("k", k.to_string(), format!("a multiple of {unit}"), hint));
        }
        let blocks = |length: usize| length.div_ceil(BLOCK as usize);
        // A product that overflows equals no length.
        same_length(OPERATION, "A", m.saturating_mul(k), self.a.len())?;
        same_length(OPERATION, "factors_a", blocks(k).saturating_mul(m), self.factors_a.len())?;
        same_length(OPERATION, "B", n.saturating_mul(k), self.b.len())?;
        same_length(OPERATION, "factors_b", blocks(n).saturating_mul(blocks(k)), self.factors_b.len())?;
        same_length(OPERATION, "C", m.saturating_mul(n), c)
    }
}

/// Rows of tiles of a band: those that run at a time on some 130 multiprocessors make a square.
const BAND: u32 = 12;
