//! Where operands come from and the result goes: what kernels are given.

use cuda_std::KernelArgs;
use cuda_std::tma::TensorMap;

/// Element types of results.
#[repr(u8)]
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

/// How the result is stored.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct OutputParams {
    /// Elements from a row to the next.
    pub row: u64,
    /// Elements from a matrix to the next.
    pub matrix: u64,
    /// Type of the elements. Source C is only added in f32 and in the kernel's 16-bit type.
    pub element: OutputType,
    /// Rows have an even number of elements and begin at multiples of two elements' size.
    pub paired: bool,
    /// The rows of the residual begin at multiples of two of its elements' size; with `paired`.
    pub residual_paired: bool,
    /// The copy engine stores. It writes whole units of 16 bytes, so rows have a multiple of that many bytes.
    /// Not for f32, nor for 8 bits where two elements become one.
    pub by_tma: bool,
    /// By TMA, in the kernel's 16-bit type, and the product itself: there is no fusion.
    pub plain: bool,
    /// The copy engine brings what is added; see
    /// [`FragmentCoord::source`](super::fusion::FragmentCoord::source). In the kernel's 16-bit type, as the
    /// result then is, by TMA, and not halved.
    pub source_by_tma: bool,
    /// The fusion makes one element of two neighbours, whose result has half of the columns.
    pub halved: bool,
}

impl OutputParams {
    /// A matrix whose rows begin `row` elements apart, stored by the threads, an element at a time.
    #[inline(always)]
    #[must_use]
    pub const fn new(row: u64, element: OutputType) -> Self {
        let [paired, residual_paired, by_tma, plain, source_by_tma, halved] = [false; 6];
        Self { row, matrix: 0, element, paired, residual_paired, by_tma, plain, source_by_tma, halved }
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
}

/// Maps of the operands and of the result: dimensions with the contiguous one first, the batch last; boxes of
/// one matrix.
///
/// | map | dimensions | box |
/// |---|---|---|
/// | `a` ([`Major::K`](primitives::tma::Major)) | k, m | 128 bytes of k x `BLOCK_M / CLUSTER_N` |
/// | `b` | k, n | 128 bytes of k x `BLOCK_N / CLUSTER_M` |
/// | both, `Major::Mn` | m or n, k | 64 x 64 |
/// | `c`, `source` | n, m | `STORE_COLUMNS` x 64 |
/// | the same, transposed | m, n | 64 x `STORE_COLUMNS` |
///
/// Swizzles are of 128 bytes (`c`, `source`: of the box's width; none for 16 bytes).
#[derive(Clone, Copy)]
pub struct Maps {
    /// A.
    pub a: *const TensorMap,
    /// B.
    pub b: *const TensorMap,
    /// The result; looked at when [`OutputParams::by_tma`](OutputParams::by_tma) says so.
    pub c: *const TensorMap,
    /// The matrix that the epilogue adds. It is read if
    /// [`OutputParams::source_by_tma`](OutputParams::source_by_tma) says so.
    pub source: *const TensorMap,
}
