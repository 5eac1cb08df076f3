//! Where operands come from and the result goes: what kernels are given.

use cuda_std::tma::TensorMap;
use cuda_std::{KernelArgs, misc};

#[cfg(doc)]
use super::config::Config;

/// Element types of results.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputType {
    /// The kernel's 16-bit type.
    Element16 = 0,
    /// f32.
    F32 = 1,
    /// 8 bits, up to 448; what is beyond becomes that.
    E4m3 = 2,
    /// 8 bits, up to 57344; what is beyond becomes that.
    E5m2 = 3,
}

/// A flag of an [`OutputFormat`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFlag {
    /// Rows have an even number of elements and begin at multiples of two elements' size.
    Paired = 1 << 2,
    /// The rows of the residual begin at multiples of two of its elements' size; with `Paired`.
    ResidualPaired = 1 << 3,
    /// The copy engine stores. It writes whole units of 16 bytes, so rows have a multiple of that many bytes.
    /// f32 with `Plain` alone; not 8 bits where two elements become one.
    ByTma = 1 << 4,
    /// By TMA, in the kernel's 16-bit type, or in f32 by kernels of [`Config::STORES_F32`], and the product
    /// itself: there is no fusion.
    Plain = 1 << 5,
    /// The copy engine brings what is added; see
    /// [`FragmentCoord::source`](super::fusion::FragmentCoord::source). In the kernel's 16-bit type, as the
    /// result then is, by TMA, and not halved.
    SourceByTma = 1 << 6,
    /// The fusion makes one element of two neighbours, whose result has half of the columns.
    Halved = 1 << 7,
    /// The result is the product itself: the family's own fusion has nothing to do. (Its code is long, and a
    /// block that stores one tile has yet to fetch it.)
    Identity = 1 << 8,
    /// Rows of 16-bit elements or f32 that begin anywhere leave over shared memory: what lies between
    /// boundaries of 16 bytes at once. Not with `ByTma`, nor `Halved`.
    ByRows = 1 << 9,
    /// By TMA, in the kernel's 16-bit type or in 8 bits, and of the fusion nothing but factors, a bias, an
    /// activation of one column and what `SourceByTma` brings; of results of 8 bits their factor and largest
    /// magnitude too.
    ByColumn = 1 << 10,
}

/// The type of the result's elements and the way they are stored, in one word. Kernels read it where they
/// need it: what follows from it would take registers beside the accumulators.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct OutputFormat {
    bits: u32,
}

impl OutputFormat {
    /// The bits of the type.
    const ELEMENT: u32 = 3;
    /// All bits.
    const ALL: Self = Self { bits: u32::MAX };

    /// Elements of this type, stored by the threads, one at a time.
    #[inline(always)]
    #[must_use]
    pub const fn new(element: OutputType) -> Self {
        Self { bits: element as u32 }
    }

    /// The same with this flag, if `is_set`.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, flag: OutputFlag, is_set: bool) -> Self {
        Self { bits: if is_set { self.bits | flag as u32 } else { self.bits } }
    }

    /// Is the flag set?
    #[inline(always)]
    #[must_use]
    pub const fn has(self, flag: OutputFlag) -> bool {
        self.bits & flag as u32 != 0
    }

    /// Type of the elements. Source C is only added in f32 and in the kernel's 16-bit type.
    #[inline(always)]
    #[must_use]
    pub const fn element(self) -> OutputType {
        match self.bits & Self::ELEMENT {
            0 => OutputType::Element16,
            1 => OutputType::F32,
            2 => OutputType::E4m3,
            _ => OutputType::E5m2,
        }
    }
}

/// How the result is stored.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct OutputParams {
    /// Elements from a row to the next.
    pub row: u64,
    /// Elements from a matrix to the next.
    pub matrix: u64,
    /// Their type, and who stores them.
    pub format: OutputFormat,
}

impl OutputParams {
    /// A matrix whose rows begin `row` elements apart, stored by the threads, an element at a time.
    #[inline(always)]
    #[must_use]
    pub const fn new(row: u64, element: OutputType) -> Self {
        Self { row, matrix: 0, format: OutputFormat::new(element) }
    }
}

/// Where the result goes, and how. The pointer is a kernel argument of its own: only then the compiler knows
/// it to be global.
#[derive(Clone, Copy)]
pub struct Output<'a> {
    /// First element; aligned to its size.
    pub data: *mut u8,
    /// How it is stored.
    pub params: &'a OutputParams,
    /// Bits of the format that can be set at all.
    possible: OutputFormat,
}

impl<'a> Output<'a> {
    /// A result in any format.
    #[inline(always)]
    #[must_use]
    pub const fn new(data: *mut u8, params: &'a OutputParams) -> Self {
        Self { data, params, possible: OutputFormat::ALL }
    }

    /// A result whose format has no flags but these: a constant, so that the compiler leaves out what the
    /// others mean.
    #[inline(always)]
    #[must_use]
    pub const fn limited(data: *mut u8, params: &'a OutputParams, flags: &[OutputFlag]) -> Self {
        let mut possible = OutputFormat { bits: OutputFormat::ELEMENT };
        let mut index = 0;
        while index < flags.len() {
            possible = possible.with(flags[index], true);
            index += 1;
        }
        Self { data, params, possible }
    }

    /// The format. What the compiler derives from it, it derives behind this place.
    #[inline(always)]
    #[must_use]
    pub fn format(self) -> OutputFormat {
        OutputFormat { bits: misc::opaque(self.params.format.bits) & self.possible.bits }
    }
}

/// Maps of the operands and of the result: dimensions with the contiguous one first, the batch last; boxes of
/// one matrix.
///
/// | map | dimensions | box |
/// |---|---|---|
/// | `a` ([`Major::K`](primitives::tma::Major)) | k, m | 128 bytes of k x `BLOCK_M` / the cluster's columns |
/// | `b` | k, n | 128 bytes of k x `BLOCK_N` / the cluster's rows |
/// | both, `Major::Mn` | m or n, k | 128 bytes of m or n x the block's part of a stage's k |
/// | `c`, `source` | n, m | `STORE_COLUMNS` x 64 |
/// | the same, transposed | m, n | 64 x `STORE_COLUMNS` |
/// | `c` in f32 | n, m | `STORE_COLUMNS` / 2 x 64 |
/// | the same, transposed | m, n | 32 x `STORE_COLUMNS` / 2 |
///
/// Swizzles are of 128 bytes (`c`, `source`: of the box's width; none for 16 bytes).
#[derive(Clone, Copy)]
pub struct Maps {
    /// A.
    pub a: *const TensorMap,
    /// B.
    pub b: *const TensorMap,
    /// The result; looked at when [`OutputFlag::ByTma`] says so.
    pub c: *const TensorMap,
    /// The matrix that the epilogue adds. It is read if [`OutputFlag::SourceByTma`] says so.
    pub source: *const TensorMap,
}
