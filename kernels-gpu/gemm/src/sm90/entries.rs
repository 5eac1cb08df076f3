//! The kernels of the family: instances of [`kernel::run`](super::kernel::run), with the table that the host chooses from.

use cuda_std::kernel;
use cuda_std::tma::TensorMap;
use cuda_std::wgmma::{BF16, E4M3, E5M2, ElementType, F16, Operand, TF32};

use super::config::Config;
use super::epilogue::{Fused, Terms, Vectors};
use super::exchange::Shares;
use super::kernel::run;
use super::operands::{Operands, Pair};
use super::problem::{Maps, Problem, Tiles};
use super::store::{Number, Output, stored};
use super::sum::{Sum, Whole};

/// What every kernel gets by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// Shape.
    pub problem: Problem,
    /// Scalars of the epilogue.
    pub terms: Terms,
    /// Elements from a row of the result to the next.
    pub row: u64,
    /// Elements from a matrix of the result to the next.
    pub matrix: u64,
    /// Elements from a row of the residual to the next.
    pub residual_row: u64,
    /// Elements from a matrix of the residual to the next.
    pub residual_matrix: u64,
    /// Element type of the result. The old result is only added in f32 and in the kernel's 16-bit type.
    pub result: Number,
    /// The bias is f32, else of the kernel's 16-bit type.
    pub bias_f32: bool,
    /// The residual is.
    pub residual_f32: bool,
    /// See [`Output::paired`].
    pub paired: bool,
    /// The rows of the residual begin at multiples of two of its elements' size; with [`paired`](Self::paired).
    pub residual_paired: bool,
    /// See [`Output::copied`]; the result has a map.
    pub copied: bool,
    /// See [`Output::plain`].
    pub plain: bool,
    /// See [`Output::fetched`]; the map is the kernel's `added`.
    pub fetched: bool,
}

/// The pointers that a kernel gets, to a map and to memory. All behind the result may be null.
#[derive(Clone, Copy)]
struct Pointers {
    added: *const TensorMap,
    data: *mut u8,
    bias: *const u8,
    residual: *const u8,
    scale_a: *const f32,
    scale_b: *const f32,
    scale_c: *const f32,
    amax: *mut u32,
}

/// The work of an entry.
///
/// # Safety
/// As [`run`], with what `arguments` and the pointers describe.
#[inline(always)]
unsafe fn entry<C: Config, S: Sum<C>>(maps: Maps, arguments: Arguments, pointers: Pointers, sum: S) {
    let Arguments { problem, row, matrix, result, paired, copied, plain, .. } = arguments;
    // Number by number: as a whole they would take the way over local memory.
    let Terms { alpha, beta, activation } = arguments.terms;
    let terms = Terms { alpha, beta, activation };
    let halved = crate::epilogue::Activation::from_code(terms.activation).columns() == 2;
    let Arguments { residual_row, residual_matrix, residual_f32, residual_paired, fetched, .. } = arguments;
    let output = Output {
        data: pointers.data,
        row,
        matrix,
        number: result,
        paired,
        copied,
        plain,
        halved,
        fetched,
        added: pointers.added,
    };
    let old_f32 = matches!(result, Number::F32);
    let epilogue: Fused<<C::Operands as Operands>::Half> = Fused::new(
        terms,
        Vectors::new(pointers.data, row, matrix, old_f32, paired),
        (pointers.bias, arguments.bias_f32),
        Vectors::new(pointers.residual, residual_row, residual_matrix, residual_f32, residual_paired),
        [pointers.scale_a, pointers.scale_b, pointers.scale_c],
        pointers.amax,
    );
    // SAFETY: the caller's contract.
    unsafe {
        run::<C, _, _, _>(
            maps,
            problem,
            Tiles::new::<C>(&problem),
            sum,
            stored(maps, problem, output, epilogue),
        )
    }
}

/// A kernel, as the host needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry point.
    pub name: &'static str,
    /// Type of A.
    pub a: ElementType,
    /// Type of B.
    pub b: ElementType,
    /// The type of 16 bits of results, biases and residuals: [`ElementType::F16`] or [`ElementType::Bf16`].
    pub half: ElementType,
    /// Columns of A are contiguous, else rows.
    pub trans_a: bool,
    /// Rows of B are contiguous, else columns.
    pub trans_b: bool,
    /// The result is stored transposed.
    pub transposed: bool,
    /// Rows, columns and k of a block's tile.
    pub block: [u32; 3],
    /// Columns of the pieces that the copy engine stores; see [`Maps`].
    pub store_columns: u32,
    /// Columns that go through an epilogue at a time.
    pub chunk_columns: u32,
    /// Blocks of a cluster below each other, beside each other, and with shares of k.
    pub cluster: [u32; 3],
    /// Stages of the ring.
    pub stages: u32,
    /// Warpgroups that multiply.
    pub consumers: u32,
    /// Whether each has a tile of its own.
    pub ping_pong: bool,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

impl Entry {
    /// The table's row for a kernel.
    pub const fn of<C: Config>(name: &'static str, half: ElementType) -> Self {
        Self {
            name,
            a: <<C::Operands as Operands>::A as Operand>::TYPE,
            b: <<C::Operands as Operands>::B as Operand>::TYPE,
            half,
            trans_a: <C::Operands as Operands>::TRANS_A == 1,
            trans_b: <C::Operands as Operands>::TRANS_B == 1,
            transposed: C::TRANSPOSED,
            block: [C::BLOCK_M, C::BLOCK_N, <C::Operands as Operands>::BLOCK_K],
            store_columns: C::STORE_COLUMNS,
            chunk_columns: C::CHUNK_COLUMNS,
            cluster: [C::CLUSTER_M, C::CLUSTER_N, C::CLUSTER_K],
            stages: C::STAGES,
            consumers: C::CONSUMERS,
            ping_pong: C::PING_PONG,
            threads: C::THREADS,
            shared: C::SHARED,
        }
    }
}

/// Kernels: name, types of A, B and of 16-bit results, orders, accumulators, consumers, how they share, cluster, how it stores.
macro_rules! kernels {
    ($dollar:tt $(#[kernel] fn $name:ident as $config:ident: $a:ident x $b:ident -> $half:ident, trans $trans_a:literal $trans_b:literal,
        $groups:literal x $columns:literal, $consumers:literal $mode:ident, cluster $m:literal x $n:literal $(x $k:literal)?, $order:ident;)*) => {
        $(
            /// The configuration of the kernel of this name.
            pub struct $config;

            impl Config for $config {
                type Operands = Pair<$a, $b, $half, $trans_a, $trans_b>;
                type Tile = [[f32; $columns / 2]; $groups];
                type Stored = [[f32; $columns / 2 $(/ $k)?]; $groups];
                const CONSUMERS: u32 = $consumers;
                const PING_PONG: bool = kernels!(@@ $mode is ping_pong);
                const CLUSTER_M: u32 = $m;
                const CLUSTER_N: u32 = $n;
                const TRANSPOSED: bool = kernels!(@@ $order is transposed);
            }

            #[doc = concat!("`C = epilogue(A B)` for ", stringify!($a), " and ", stringify!($b), "; see [`Entry`] in [`TABLE`] and the module.")]
            ///
            /// # Safety
            /// As [`run`] for this configuration; the pointers are null where that is allowed, else valid for what `arguments`
            /// says of them.
            #[kernel(launch_bounds(<$config as Config>::THREADS, 1))]
            pub unsafe fn $name(
                a: &TensorMap,
                b: &TensorMap,
                d: &TensorMap,
                added: &TensorMap,
                arguments: Arguments,
                data: *mut u8,
                bias: *const u8,
                residual: *const u8,
                scale_a: *const f32,
                scale_b: *const f32,
                scale_c: *const f32,
                amax: *mut u32,
            ) {
                let pointers = Pointers { added, data, bias, residual, scale_a, scale_b, scale_c, amax };
                // SAFETY: the caller's contract.
                unsafe { entry::<$config, _>(Maps { a, b, d }, arguments, pointers, kernels!(@@ sum $($k)?)) }
            }
        )*

        /// Every kernel here.
        pub const TABLE: &[Entry] = &[$(Entry::of::<$config>(stringify!($name), <$half as Operand>::TYPE)),*];

        /// Calls the macro of this name with the names of all kernels of `gemm::sm90::entries`, in the order of its `TABLE`.
        #[macro_export]
        macro_rules! for_each_sm90_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($name)* } };
        }
    };
    (@@ sum) => { Whole };
    (@@ sum $k:literal) => { Shares };
    (@@ ping_pong is ping_pong) => { true };
    (@@ transposed is transposed) => { true };
    (@@ $word:ident is $other:ident) => { false };
}

kernels! { $
    // Types of A, B and 16-bit results; orders; groups of 64 rows x columns of a consumer; consumers; cluster; result.
    // In names: how A and B lie, `n` as [m, k] and [k, n], `t` transposed; `pp` ping-pong; `_t` at the end stores the transpose;
    // `k2` shares k out over two blocks of a cluster.
    #[kernel] fn gemm_bf16_nt_128x256 as Bf16Nt128x256: BF16 x BF16 -> BF16, trans 0 0, 1 x 256, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nt_128x256_2x1 as Bf16Nt128x256By2: BF16 x BF16 -> BF16, trans 0 0, 1 x 256, 2 together, cluster 2 x 1, rows;
    #[kernel] fn gemm_bf16_nt_256x128 as Bf16Nt256x128: BF16 x BF16 -> BF16, trans 0 0, 2 x 128, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nt_256x192 as Bf16Nt256x192: BF16 x BF16 -> BF16, trans 0 0, 2 x 192, 2 together, cluster 2 x 1, rows;
    #[kernel] fn gemm_bf16_nt_128x192_pp as Bf16Nt128x192Pp: BF16 x BF16 -> BF16, trans 0 0, 2 x 192, 2 ping_pong, cluster 2 x 1, rows;
    #[kernel] fn gemm_bf16_nt_128x128_pp as Bf16Nt128x128Pp: BF16 x BF16 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nt_128x128_k2 as Bf16Nt128x128K2: BF16 x BF16 -> BF16, trans 0 0, 2 x 128, 1 together, cluster 1 x 1 x 2, rows;
    #[kernel] fn gemm_bf16_nt_128x144 as Bf16Nt128x144: BF16 x BF16 -> BF16, trans 0 0, 1 x 144, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nt_64x128 as Bf16Nt64x128: BF16 x BF16 -> BF16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nt_64x128_2x1 as Bf16Nt64x128By2: BF16 x BF16 -> BF16, trans 0 0, 1 x 128, 1 together, cluster 2 x 1, rows;
    #[kernel] fn gemm_bf16_nt_64x64 as Bf16Nt64x64: BF16 x BF16 -> BF16, trans 0 0, 1 x 64, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nt_64x48 as Bf16Nt64x48: BF16 x BF16 -> BF16, trans 0 0, 1 x 48, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nt_64x32_t as Bf16Nt64x32T: BF16 x BF16 -> BF16, trans 0 0, 1 x 32, 1 together, cluster 1 x 1, transposed;
    #[kernel] fn gemm_bf16_nt_128x16_t as Bf16Nt128x16T: BF16 x BF16 -> BF16, trans 0 0, 1 x 16, 2 together, cluster 1 x 1, transposed;
    #[kernel] fn gemm_bf16_nt_64x16_t as Bf16Nt64x16T: BF16 x BF16 -> BF16, trans 0 0, 1 x 16, 1 together, cluster 1 x 1, transposed;
    #[kernel] fn gemm_bf16_nn_128x256 as Bf16Nn128x256: BF16 x BF16 -> BF16, trans 0 1, 1 x 256, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nn_128x192_pp as Bf16Nn128x192Pp: BF16 x BF16 -> BF16, trans 0 1, 2 x 192, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nn_128x128_pp as Bf16Nn128x128Pp: BF16 x BF16 -> BF16, trans 0 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_nn_64x128 as Bf16Nn64x128: BF16 x BF16 -> BF16, trans 0 1, 1 x 128, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_tn_128x256 as Bf16Tn128x256: BF16 x BF16 -> BF16, trans 1 1, 1 x 256, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_tn_128x192_pp as Bf16Tn128x192Pp: BF16 x BF16 -> BF16, trans 1 1, 2 x 192, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_tn_128x128_pp as Bf16Tn128x128Pp: BF16 x BF16 -> BF16, trans 1 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_tn_64x128 as Bf16Tn64x128: BF16 x BF16 -> BF16, trans 1 1, 1 x 128, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_bf16_tt_128x128_pp as Bf16Tt128x128Pp: BF16 x BF16 -> BF16, trans 1 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nt_128x256 as F16Nt128x256: F16 x F16 -> F16, trans 0 0, 1 x 256, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nt_128x256_2x1 as F16Nt128x256By2: F16 x F16 -> F16, trans 0 0, 1 x 256, 2 together, cluster 2 x 1, rows;
    #[kernel] fn gemm_f16_nt_256x128 as F16Nt256x128: F16 x F16 -> F16, trans 0 0, 2 x 128, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nt_256x192 as F16Nt256x192: F16 x F16 -> F16, trans 0 0, 2 x 192, 2 together, cluster 2 x 1, rows;
    #[kernel] fn gemm_f16_nt_128x192_pp as F16Nt128x192Pp: F16 x F16 -> F16, trans 0 0, 2 x 192, 2 ping_pong, cluster 2 x 1, rows;
    #[kernel] fn gemm_f16_nt_128x128_pp as F16Nt128x128Pp: F16 x F16 -> F16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nt_128x128_k2 as F16Nt128x128K2: F16 x F16 -> F16, trans 0 0, 2 x 128, 1 together, cluster 1 x 1 x 2, rows;
    #[kernel] fn gemm_f16_nt_128x144 as F16Nt128x144: F16 x F16 -> F16, trans 0 0, 1 x 144, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nt_64x128 as F16Nt64x128: F16 x F16 -> F16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nt_64x128_2x1 as F16Nt64x128By2: F16 x F16 -> F16, trans 0 0, 1 x 128, 1 together, cluster 2 x 1, rows;
    #[kernel] fn gemm_f16_nt_64x64 as F16Nt64x64: F16 x F16 -> F16, trans 0 0, 1 x 64, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nt_64x48 as F16Nt64x48: F16 x F16 -> F16, trans 0 0, 1 x 48, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nt_64x32_t as F16Nt64x32T: F16 x F16 -> F16, trans 0 0, 1 x 32, 1 together, cluster 1 x 1, transposed;
    #[kernel] fn gemm_f16_nt_128x16_t as F16Nt128x16T: F16 x F16 -> F16, trans 0 0, 1 x 16, 2 together, cluster 1 x 1, transposed;
    #[kernel] fn gemm_f16_nt_64x16_t as F16Nt64x16T: F16 x F16 -> F16, trans 0 0, 1 x 16, 1 together, cluster 1 x 1, transposed;
    #[kernel] fn gemm_f16_nn_128x256 as F16Nn128x256: F16 x F16 -> F16, trans 0 1, 1 x 256, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nn_128x192_pp as F16Nn128x192Pp: F16 x F16 -> F16, trans 0 1, 2 x 192, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nn_128x128_pp as F16Nn128x128Pp: F16 x F16 -> F16, trans 0 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_nn_64x128 as F16Nn64x128: F16 x F16 -> F16, trans 0 1, 1 x 128, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_tn_128x256 as F16Tn128x256: F16 x F16 -> F16, trans 1 1, 1 x 256, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_tn_128x192_pp as F16Tn128x192Pp: F16 x F16 -> F16, trans 1 1, 2 x 192, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_tn_128x128_pp as F16Tn128x128Pp: F16 x F16 -> F16, trans 1 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_tn_64x128 as F16Tn64x128: F16 x F16 -> F16, trans 1 1, 1 x 128, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_f16_tt_128x128_pp as F16Tt128x128Pp: F16 x F16 -> F16, trans 1 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_tf32_nt_128x256 as Tf32Nt128x256: TF32 x TF32 -> BF16, trans 0 0, 1 x 256, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_tf32_nt_128x256_2x1 as Tf32Nt128x256By2: TF32 x TF32 -> BF16, trans 0 0, 1 x 256, 2 together, cluster 2 x 1, rows;
    #[kernel] fn gemm_tf32_nt_128x128_pp as Tf32Nt128x128Pp: TF32 x TF32 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_tf32_nt_64x128 as Tf32Nt64x128: TF32 x TF32 -> BF16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_tf32_nt_64x16_t as Tf32Nt64x16T: TF32 x TF32 -> BF16, trans 0 0, 1 x 16, 1 together, cluster 1 x 1, transposed;
    #[kernel] fn gemm_e4m3_nt_128x256 as E4m3Nt128x256: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 256, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_e4m3_nt_256x128 as E4m3Nt256x128: E4M3 x E4M3 -> BF16, trans 0 0, 2 x 128, 2 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_e4m3_nt_128x128_pp as E4m3Nt128x128Pp: E4M3 x E4M3 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_e4m3_nt_64x128 as E4m3Nt64x128: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows;
    #[kernel] fn gemm_e4m3_nt_64x16_t as E4m3Nt64x16T: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 16, 1 together, cluster 1 x 1, transposed;
    #[kernel] fn gemm_e4m3_e5m2_nt_128x128_pp as E4m3E5m2Nt128x128Pp: E4M3 x E5M2 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
    #[kernel] fn gemm_e5m2_e4m3_nt_128x128_pp as E5m2E4m3Nt128x128Pp: E5M2 x E4M3 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows;
}
