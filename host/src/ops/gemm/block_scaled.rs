//! 8-bit products with factors for blocks: [`gemm::sm90::block_scaled`].

use bytemuck::Pod;
use gemm::sm90::block_scaled::BLOCK;
use gemm::sm90::epilogue::{OutputFlag, OutputFormat, OutputParams, OutputType};
use gemm::sm90::instances::{Entry, Kind, TABLE};
use gemm::sm90::tile_scheduler::GemmShape;
use half::bf16;
use num::E4M3;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::ops::quantize::{QuantizedBlocks, QuantizedTiles};
use crate::stream::Stream;
use crate::tensor::{DType, Element, Tensor, TensorError};

use super::check::invalid;
use super::epilogue::{Epilogue, Vector};
use super::grouped::{GroupedMatmul, check_offsets, most_tiles, of_kind};
use super::matrix::{Matrix, MatrixMut, ROW_ALIGNMENT};
use super::problem::side;
use super::sm90::{self, ARCH, BOX, Groups, K_BYTES, Launch, Read, Scales, in_units, map, paired};

/// The operation that errors name.
const OPERATION: &str = "BlockScaled::run";

/// `C[i, j] = sum over k of (A[i, k] * factor_a[k / 128, i]) * (B[j, k] * factor_b[j / 128, k / 128])`, in
/// E4M3, summed in f32.
///
/// 8-bit numbers have little range: with a factor for each row and 128 elements of A, and one for each square
/// of 128 of B, large and small parts of a matrix keep their digits. The tensor cores sum 128 products at a
/// time, with few bits; those sums are added up in f32.
///
/// [`quantize`](crate::ops::quantize) makes operands and factors.
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

impl<'a> BlockScaled<'a> {
    /// The product of `[m, k]` with the transpose of `[n, k]`, or of `[groups, n, k]` for
    /// [`run_grouped`](Self::run_grouped).
    ///
    /// # Errors
    /// [`TensorError::Shape`] when both have other numbers of columns, or another number of dimensions than
    /// [`quantize_tiles`](crate::ops::quantize::quantize_tiles) and
    /// [`quantize_blocks`](crate::ops::quantize::quantize_blocks) give them, [`TensorError::DType`] and
    /// [`TensorError::NotContiguous`] when they are not theirs.
    pub fn new(a: &'a QuantizedTiles, b: &'a QuantizedBlocks) -> Result<Self> {
        let shape = |what, of: &Tensor, wanted: String| {
            let hint = "quantise matrices with the same number of columns";
            TensorError::Shape { operation: "BlockScaled::new", what, got: of.shape().clone(), wanted, hint }
        };
        let &[m, k] = a.numbers.shape().sides() else {
            return Err(shape("a", &a.numbers, "[m, k]".to_owned()).into());
        };
        let n = match *b.numbers.shape().sides() {
            [n, columns] | [_, n, columns] if columns == k => n,
            _ => return Err(shape("b", &b.numbers, format!("[n, {k}] or [groups, n, {k}]")).into()),
        };
        let (factors_a, factors_b) = (a.factors.as_view()?, b.factors.as_view()?);
        Ok(BlockScaled { m, n, k, a: a.numbers.as_view()?, factors_a, b: b.numbers.as_view()?, factors_b })
    }

    /// Queues the product into `c`: `[m, n]`, dense.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the device is not of compute capability 9.0, k is no multiple of 16, A
    /// or B does not begin at one, or a side is too long, [`Error::Length`] when an operand does not have the
    /// elements that its shape says, [`Error::DeviceMismatch`], or the driver's error.
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
        let found = of_kind(Kind::BlockScaled).find(|(_, entry)| entry.name == kernel);
        let (index, _) = found.ok_or_else(|| {
            let wanted = format!("one of {}", Self::kernels().collect::<Vec<_>>().join(", "));
            invalid("the kernel", kernel.to_owned(), wanted, "take one of `BlockScaled::kernels`")
        })?;
        let c = c.into();
        self.check(stream, 1, c.len())?;
        self.run_by(stream, index, c)
    }

    /// Names of the kernels, all of which can do every product.
    pub fn kernels() -> impl Iterator<Item = &'static str> {
        of_kind(Kind::BlockScaled).map(|(_, entry)| entry.name)
    }

    /// The kernel, by its place in the table, for operands that have been checked: that whose waves of tiles
    /// take the least time on so many multiprocessors.
    fn choose(&self, multiprocessors: u32) -> usize {
        let time = |entry: &Entry| {
            let [block_m, block_n, _] = entry.block;
            let tiles = self.m.div_ceil(block_m as usize) * self.n.div_ceil(block_n as usize);
            // A tile of 64 rows takes 0.6 of the time of one of 128 (H200, 4096 and 8192 cubed): it loads all
            // of B.
            tiles.div_ceil(multiprocessors as usize) * (block_m + BLOCK / 4) as usize
        };
        let best = of_kind(Kind::BlockScaled).min_by_key(|(_, entry)| time(entry));
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
        let entry = &TABLE[index];
        let tiles = self.m.div_ceil(entry.block[0] as usize) * self.n.div_ceil(entry.block[1] as usize);
        let blocks = blocks(stream, tiles);
        let launched = self.launched(entry, 1, None, &c)?;
        // SAFETY: lengths are those of the shape, c is exclusively borrowed, and maps are what the kernel
        // asks for.
        unsafe { sm90::launch(stream, index, blocks, launched) }
    }

    /// Queues the products of groups of rows, as [`GroupedMatmul`] does: rows
    /// `offsets[g]..offsets[g + 1]` of A by matrix `g` of B. There are `groups + 1` offsets, i32 or i64; `b`
    /// is `[groups, n, k]` and `factors_b` `[groups, n / 128 rounded up, k / 128 rounded up]`.
    ///
    /// # Errors
    /// As [`BlockScaled::run`], and [`Error::InvalidArgument`] when the offsets are not i32 or i64, or when
    /// there are none.
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
            // Zeros in the rows of groups.
            let a = Matrix::new::<E4M3>(self.a, self.m, 0);
            let b = Matrix::new::<E4M3>(self.b, self.n, 0).batch(groups).transposed();
            let c = MatrixMut::new::<bf16>(c, self.m, self.n);
            return GroupedMatmul::new::<T>(a, b, offsets, c).run(stream);
        }
        let Some((index, entry)) = of_kind(Kind::BlockScaledGrouped).next() else { return Ok(()) };
        let blocks = blocks(stream, most_tiles(entry, self.m, self.n, groups)? as usize);
        let offsets = Vector { data: offsets.bytes(), dtype: T::DTYPE };
        let count = side("the groups", groups)?;
        let launched = self.launched(entry, groups, Some(Groups { offsets, count }), &c)?;
        // SAFETY: lengths are those of the shape for so many groups, c is exclusively borrowed, there is one
        // offset more than groups, and maps are what the kernel asks for.
        unsafe { sm90::launch(stream, index, blocks, launched) }
    }

    /// The launch of a kernel, for so many matrices of B. It begins the write of C.
    fn launched<'l>(
        &'l self,
        entry: &Entry,
        of_b: usize,
        groups: Option<Groups<'l>>,
        c: &'l DeviceViewMut<'_, bf16>,
    ) -> Result<Launch<'l>> {
        let Self { m, n, k, .. } = *self;
        let [block_m, block_n, _] = entry.block;
        let map_a = map(self.a.bytes(), DType::F8E4M3, (k, m, k), (1, 0), [K_BYTES, block_m])?;
        let map_b = map(self.b.bytes(), DType::F8E4M3, (k, n, k), (of_b, n * k), [K_BYTES, block_n])?;
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
        let shape = GemmShape::new([side("m", m)?, side("n", n)?, side("k", k)?], 1, RASTER_GROUP);
        let format = OutputFormat::new(OutputType::Element16)
            .with(OutputFlag::Paired, paired(&operand, n))
            .with(OutputFlag::ByTma, aligned)
            .with(OutputFlag::Plain, aligned);
        let output = OutputParams { row: n as u64, matrix: 0, format };
        Ok(Launch {
            maps: [map_a, map_b, map_c, map_c],
            shape,
            of_cluster: 1,
            output,
            data: bytes.within(),
            epilogue: Epilogue::NONE,
            transposed: false,
            groups,
            read: Some(Read::Scales(Scales { a: self.factors_a, b: self.factors_b, a_pitch: shape.m })),
        })
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
pub(super) fn blocks(stream: &Stream, tiles: usize) -> u32 {
    tiles.min(stream.device().properties().sm_count as usize) as u32
}

/// Rows of tiles of a raster group: those that run at a time on some 130 multiprocessors make a square.
pub(super) const RASTER_GROUP: u32 = 12;
