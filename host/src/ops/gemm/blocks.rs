//! 8-bit products with factors for blocks: [`gemm::sm90::blocks`].

use cuda_std::kernel::Kernel as KernelType;
use gemm::sm90::blocks::{BLOCK, TABLE};
use gemm::sm90::entries::{Arguments, Entry};
use gemm::sm90::epilogue::Terms;
use gemm::sm90::problem::Problem;
use gemm::sm90::store::Number;
use half::bf16;
use num::E4M3;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::tensor_map::TensorMap;
use crate::memory::{DevicePtr, DeviceView, DeviceViewMut, same_length};
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
        self.run_by(stream, self.choose(stream.device().properties().sm_count), c.into())
    }

    /// Queues the product by the kernel of this name, one of [`BlockScaled::kernels`].
    ///
    /// # Errors
    /// As [`BlockScaled::run`], and [`Error::InvalidArgument`] for another name.
    pub fn run_with<'c>(
        &self,
        stream: &Stream,
        kernel: &str,
        c: impl Into<DeviceViewMut<'c, bf16>>,
    ) -> Result<()> {
        let index = Self::kernels().position(|name| name == kernel).ok_or_else(|| {
            let wanted = format!("one of {}", Self::kernels().collect::<Vec<_>>().join(", "));
            invalid("the kernel", kernel.to_owned(), wanted, "take one of `BlockScaled::kernels`")
        })?;
        self.run_by(stream, index, c.into())
    }

    /// Names of the kernels, all of which can do every product.
    pub fn kernels() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|entry| entry.name)
    }

    /// The kernel, by its place in the table, whose waves of tiles take the least time on so many multiprocessors.
    fn choose(&self, multiprocessors: u32) -> usize {
        let time = |entry: &Entry| {
            let [block_m, block_n, _] = entry.block;
            let tiles = self.m.div_ceil(block_m as usize) * self.n.div_ceil(block_n as usize);
            // What a block of k costs: its rows, and the columns, which are loaded for any number of rows.
            tiles.div_ceil(multiprocessors as usize) * (block_m + block_n / 2) as usize
        };
        let best = TABLE.iter().enumerate().min_by_key(|(_, entry)| time(entry));
        best.map_or(0, |(index, _)| index)
    }

    /// By the kernel at a place of the table.
    fn run_by(&self, stream: &Stream, index: usize, mut c: DeviceViewMut<'_, bf16>) -> Result<()> {
        let Self { m, n, k, .. } = *self;
        self.check(stream, c.len())?;
        if m == 0 || n == 0 {
            return Ok(());
        }
        if k == 0 {
            return c.fill_zero(stream);
        }
        let (entry, launch) = (&TABLE[index], LAUNCHES[index]);
        let (m32, n32) = (side("m", m)?, side("n", n)?);
        let ([block_m, block_n, _], [across_m, across_n]) = (entry.block, entry.cluster);
        let boxes = [block_m / across_n, block_n / across_m];
        let map_a = map(self.a.bytes(), DType::F8E4M3, (k, m, k), (1, 0), [K_BYTES, boxes[0]])?;
        let map_b = map(self.b.bytes(), DType::F8E4M3, (k, n, k), (1, 0), [K_BYTES, boxes[1]])?;
        c.before_write(stream)?;
        // The copy engine stores whole units.
        let unit = ROW_ALIGNMENT as usize / size_of::<bf16>();
        let aligned = n.is_multiple_of(unit);
        let bytes = c.view().bytes();
        let map_c = if aligned {
            map(bytes, DType::BF16, (n, m, n), (1, 0), [entry.store_columns, BOX])?
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
            result: Number::Half,
            bias_f32: false,
            residual_f32: false,
            paired: n.is_multiple_of(2),
            residual_paired: false,
            copied: aligned,
            plain: aligned,
        };
        let blocks = across_m * across_n;
        let clusters = m32.div_ceil(block_m * across_m).saturating_mul(n32.div_ceil(block_n * across_n));
        let resident = (stream.device().properties().sm_count / blocks).max(1);
        let config = LaunchConfig::new([clusters.min(resident) * blocks, 1, 1], [entry.threads, 1, 1])
            .with_shared(entry.shared)
            .cluster([blocks, 1, 1])
            .overlapping_previous();
        let arguments = (map_a, map_b, map_c, arguments, bytes.as_ptr(), self.factors_a, m32, self.factors_b);
        // SAFETY: lengths are those of the shape, c is exclusively borrowed, maps, grid and block are what the kernel asks for, and it
        // waits for earlier launches before it touches memory.
        unsafe { launch(stream, config, arguments) }
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

/// What all kernels take.
type Parameters = <gemm::sm90::blocks::gemm_e4m3_blocks_nt_128x128 as KernelType>::Params;

/// What they are launched with: maps of A, B and C, scalars, C, factors of A and elements between blocks of them, factors of B.
type Launched<'a> = (
    TensorMap<'a>,
    TensorMap<'a>,
    TensorMap<'a>,
    Arguments,
    DevicePtr<u8>,
    DeviceView<'a, f32>,
    u32,
    DeviceView<'a, f32>,
);

/// Launches a kernel.
///
/// # Safety
/// As for the kernel.
unsafe fn launch_as<K: KernelType<Params = Parameters>>(
    stream: &Stream,
    config: LaunchConfig,
    launched: Launched<'_>,
) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { launch::<K>(stream, config, launched) }
}

macro_rules! launches {
    ($($name:ident)*) => {
        /// In the order of the table.
        static LAUNCHES: [unsafe fn(&Stream, LaunchConfig, Launched<'_>) -> Result<()>; TABLE.len()] =
            [$(launch_as::<gemm::sm90::blocks::$name>),*];
    };
}
gemm::for_each_sm90_blocks_kernel!(launches);
