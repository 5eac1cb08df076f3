//! 8-bit products with factors for blocks: [`gemm::sm90::blocks`].

use bytemuck::Pod;
use cuda_std::kernel::Kernel as KernelType;
use gemm::sm90::blocks::{BLOCK, TABLE, gemm_grouped_e4m3_blocks_nt_128x128};
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
use crate::memory::{DeviceView, DeviceViewMut, Within, same_length};
use crate::stream::Stream;
use crate::tensor::{DType, Element};

use super::grouped::{check_offsets, most_tiles};
use super::matmul::invalid;
use super::matrix::{Matrix, ROW_ALIGNMENT};
use super::problem::side;
use super::sm90::{ARCH, BOX, K_BYTES, in_units, map, paired};

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
    /// [`Error::InvalidArgument`] when the device is not of compute capability 9.0, k is no multiple of 16, A or B does not begin at one, or a side is too long,
    /// [`Error::Length`] when an operand does not have the elements that its shape says, [`Error::DeviceMismatch`], or the driver's error.
    pub fn run<'c>(&self, stream: &Stream, c: impl Into<DeviceViewMut<'c, bf16>>) -> Result<()> {
        let c = c.into();
        self.check(stream, 1, c.len())?;
        self.run_by(stream, self.choose(stream.device().properties().sm_count), c)
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
        let c = c.into();
        self.check(stream, 1, c.len())?;
        self.run_by(stream, index, c)
    }

    /// Names of the kernels, all of which can do every product.
    pub fn kernels() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|entry| entry.name)
    }

    /// The kernel, by its place in the table, for operands that have been checked: that whose waves of tiles take the least time on so many multiprocessors.
    fn choose(&self, multiprocessors: u32) -> usize {
        let time = |entry: &Entry| {
            let [block_m, block_n, _] = entry.block;
            let tiles = self.m.div_ceil(block_m as usize) * self.n.div_ceil(block_n as usize);
            // A tile of 64 rows takes 0.6 of the time of one of 128 (H200, 4096 and 8192 cubed): it loads all of B.
            tiles.div_ceil(multiprocessors as usize) * (block_m + BLOCK / 4) as usize
        };
        let best = TABLE.iter().enumerate().min_by_key(|(_, entry)| time(entry));
        best.map_or(0, |(index, _)| index)
    }

    /// By the kernel at a place of the table; the operands have been checked.
    fn run_by(&self, stream: &Stream, index: usize, mut c: DeviceViewMut<'_, bf16>) -> Result<()> {
        if self.m == 0 || self.n == 0 {
            return Ok(());
        }
        if self.k == 0 {
            return c.fill_zero(stream);
        }
        let (entry, launch) = (&TABLE[index], LAUNCHES[index]);
        let tiles = self.m.div_ceil(entry.block[0] as usize) * self.n.div_ceil(entry.block[1] as usize);
        let launched = self.launched(entry, 1, &c)?;
        // SAFETY: lengths are those of the shape, c is exclusively borrowed, maps, grid and block are what the kernel asks for, and it
        // waits for earlier launches before it touches memory.
        unsafe { launch(stream, config(stream, entry, tiles), launched) }
    }

    /// Queues the products of groups of rows, as [`GroupedMatmul`](super::GroupedMatmul) does: rows `offsets[g]..offsets[g + 1]` of A by matrix `g` of B.
    /// There are `groups + 1` offsets, i32 or i64; `b` is `[groups, n, k]` and `factors_b` `[groups, n / 128 rounded up, k / 128 rounded up]`.
    ///
    /// # Errors
    /// As [`BlockScaled::run`], and [`Error::InvalidArgument`] when the offsets are not i32 or i64, or when there are none.
    pub fn run_grouped<'c, 'o, T: Element + Pod>(
        &self,
        stream: &Stream,
        offsets: impl Into<DeviceView<'o, T>>,
        c: impl Into<DeviceViewMut<'c, bf16>>,
    ) -> Result<()> {
        let (c, offsets) = (c.into(), offsets.into());
        check_offsets(T::DTYPE)?;
        let groups = offsets.len().checked_sub(1).ok_or_else(|| {
            let wanted = "one more than groups".to_owned();
            invalid("the offsets", "none".to_owned(), wanted, "the offset behind the last group is its end")
        })?;
        self.check(stream, groups, c.len())?;
        stream.same_device("the offsets", offsets.device())?;
        if self.m == 0 || self.n == 0 || groups == 0 {
            return Ok(());
        }
        if self.k == 0 {
            let got = "0".to_owned();
            return Err(invalid("k", got, "at least 1, with groups".to_owned(), "fill C with zeros instead"));
        }
        let entry = &TABLE[0];
        let tiles = most_tiles(entry, self.m, self.n, groups)?;
        let (a, b, d, arguments, data, factors_a, pitch, factors_b) = self.launched(entry, groups, &c)?;
        let is_wide = T::DTYPE == DType::I64;
        let offsets = offsets.bytes().cast::<i32>();
        let groups = side("the groups", groups)?;
        let arguments = (a, b, d, arguments, data, factors_a, pitch, factors_b, offsets, is_wide, groups);
        let config = config(stream, entry, tiles as usize);
        // SAFETY: lengths are those of the shape for so many groups, c is exclusively borrowed, there is one offset more than groups, maps,
        // grid and block are what the kernel asks for, and it waits for earlier launches before it touches memory.
        unsafe { launch::<gemm_grouped_e4m3_blocks_nt_128x128>(stream, config, arguments) }
    }

    /// The maps and what else kernels get, for so many matrices of B. The launch begins the write of C.
    fn launched<'l>(
        &'l self,
        entry: &Entry,
        groups: usize,
        c: &'l DeviceViewMut<'_, bf16>,
    ) -> Result<Launched<'l>> {
        let Self { m, n, k, .. } = *self;
        let [block_m, block_n, _] = entry.block;
        let map_a = map(self.a.bytes(), DType::F8E4M3, (k, m, k), (1, 0), [K_BYTES, block_m])?;
        let map_b = map(self.b.bytes(), DType::F8E4M3, (k, n, k), (groups, n * k), [K_BYTES, block_n])?;
        let matrix = Matrix::new::<bf16>(c.view(), m, n);
        // A part of a buffer may begin anywhere.
        let operand = matrix.operand();
        let aligned = in_units(&operand, n);
        let bytes = matrix.data;
        let map_c = if aligned {
            map(bytes, DType::BF16, (n, m, n), (1, 0), [entry.store_columns, BOX])?
        } else {
            map_a
        };
        let arguments = Arguments {
            problem: Problem { m: side("m", m)?, n: side("n", n)?, k: side("k", k)?, batch: 1, band: BAND },
            terms: Terms { alpha: 1.0, beta: 0.0, activation: 0 },
            row: n as u64,
            matrix: 0,
            residual_row: 0,
            residual_matrix: 0,
            result: Number::Half,
            bias_f32: false,
            residual_f32: false,
            paired: paired(&operand, n),
            residual_paired: false,
            copied: aligned,
            plain: aligned,
            fetched: false,
        };
        Ok((map_a, map_b, map_c, arguments, bytes.within(), self.factors_a, m as u32, self.factors_b))
    }

    fn check(&self, stream: &Stream, groups: usize, c: usize) -> Result<()> {
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
        let of_b = groups.saturating_mul(blocks(n)).saturating_mul(blocks(k));
        same_length(OPERATION, "A", m.saturating_mul(k), self.a.len())?;
        same_length(OPERATION, "factors_a", blocks(k).saturating_mul(m), self.factors_a.len())?;
        same_length(OPERATION, "B", groups.saturating_mul(n).saturating_mul(k), self.b.len())?;
        same_length(OPERATION, "factors_b", of_b, self.factors_b.len())?;
        same_length(OPERATION, "C", m.saturating_mul(n), c)
    }
}

/// As many blocks as there are tiles, or as run at once.
fn config(stream: &Stream, entry: &Entry, tiles: usize) -> LaunchConfig {
    let blocks = tiles.min(stream.device().properties().sm_count as usize);
    LaunchConfig::new([blocks as u32, 1, 1], [entry.threads, 1, 1])
        .with_shared(entry.shared)
        .overlapping_previous()
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
    Within<'a, u8>,
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
