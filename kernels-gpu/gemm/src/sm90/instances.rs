//! The kernels: one table of all instances of [`mainloop::run`](super::mainloop::run), which the host chooses
//! from.

use core::ops::RangeInclusive;

use cuda_std::tma::TensorMap;
use cuda_std::wgmma::{BF16, E4M3, E5M2, ElementType, F16, Operand, TF32};
use cuda_std::{KernelArgs, kernel, thread};
use primitives::cluster::MOST_BLOCKS;
use primitives::tma::Major;

use super::block_scaled::{block_scaled, block_scaled_grouped};
use super::cluster_split_k::ClusterSplitK;
use super::config::{Block, Config, EpiloguePlan, places};
use super::direct::{Direct, DirectParams};
use super::epilogue::{Output, OutputParams, store_with};
use super::from_registers::FromRegisters;
use super::fusion::StandardFusion;
use super::grouped::grouped;
use super::mainloop::{InAccumulators, Mainloop, Maps, run, run_from};
use super::operands::{Operands, Pair};
use super::tile_scheduler::{GemmShape, PersistentScheduler};
use crate::epilogue::EpilogueParams;
use crate::groups::GroupParams;

/// The arguments that every kernel gets by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct GemmArguments {
    /// The shape of the product.
    pub shape: GemmShape,
    /// The result.
    pub output: OutputParams,
    /// The inputs of the epilogue.
    pub epilogue: EpilogueParams,
    /// The groups, for kernels of [`Kind::Grouped`] and [`Kind::BlockScaledGrouped`].
    pub groups: GroupParams,
    /// From a block of k to the next in the factors of A, for kernels of [`Kind::BlockScaled`] and
    /// [`Kind::BlockScaledGrouped`].
    pub scales_pitch: u32,
    /// How A and B lie, for kernels of [`Kind::Direct`].
    pub direct: DirectParams,
}

/// The inputs of an instance: the maps, the arguments by value, and the pointers.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub maps: Maps,
    pub arguments: &'a GemmArguments,
    /// The result.
    pub data: *mut u8,
    /// The offsets of groups, or null.
    pub offsets: *const i32,
    /// The factors of blocks of A and of B; or A and B, for kernels of [`Kind::Direct`]; or null.
    pub read: [*const f32; 2],
}

/// A product, or a batch of them.
///
/// # Safety
/// As [`run`], with what the arguments describe.
#[inline(always)]
unsafe fn dense<C: Config<EpiloguePlan = EpiloguePlan<C>>, M: Mainloop<C>>(inputs: Inputs<'_>, mainloop: M) {
    let Inputs { maps, arguments: GemmArguments { shape, output, epilogue, .. }, data, .. } = inputs;
    let output = Output::new(data, output);
    let fusion: StandardFusion<'_, <C::Operands as Operands>::Element16> =
        StandardFusion::new(epilogue, output);
    let scheduler = PersistentScheduler::new::<C>(shape);
    // SAFETY: the caller's contract.
    unsafe { run::<C, _, _, _>(maps, *shape, scheduler, mainloop, store_with(maps, *shape, output, fusion)) }
}

/// The same of operands of 32 bits that threads copy.
///
/// # Safety
/// As [`dense`]; the operands are valid for reads as the arguments say.
#[inline(always)]
unsafe fn direct<C: Config<EpiloguePlan = EpiloguePlan<C>, Stored = <C as Config>::Tile>>(
    inputs: Inputs<'_>,
) {
    let Inputs { maps, arguments, data, read, .. } = inputs;
    let GemmArguments { shape, output, epilogue, direct, .. } = arguments;
    let output = Output::new(data, output);
    let fusion: StandardFusion<'_, <C::Operands as Operands>::Element16> =
        StandardFusion::new(epilogue, output);
    let scheduler = PersistentScheduler::new::<C>(shape);
    let operands = read.map(|operand| operand.cast::<u32>());
    let loader =
        |_: Maps, block: Block<C>| Direct::new(direct, operands, shape, block, thread::thread_idx_x());
    // SAFETY: the caller's contract.
    unsafe {
        let epilogue = store_with(maps, *shape, output, fusion);
        run_from::<C, _, _, _, _>(maps, *shape, scheduler, loader, InAccumulators, epilogue)
    }
}

/// The kind of product that a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A product, or a batch of them.
    Dense,
    /// The same of operands that [threads copy](super::direct), as they lie.
    Direct,
    /// [Groups](crate::groups) of rows by a matrix each.
    Grouped,
    /// A product with [factors for blocks](super::block_scaled).
    BlockScaled,
    /// Groups of rows with factors for blocks.
    BlockScaledGrouped,
}

/// A kernel, as the host needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry point.
    pub name: &'static str,
    /// The kind of product.
    pub kind: Kind,
    /// Type of A.
    pub a: ElementType,
    /// Type of B.
    pub b: ElementType,
    /// The 16-bit type of results, biases and residuals: [`ElementType::F16`] or [`ElementType::Bf16`].
    pub element16: ElementType,
    /// Columns of A are contiguous, else rows.
    pub trans_a: bool,
    /// Rows of B are contiguous, else columns.
    pub trans_b: bool,
    /// The result is stored transposed.
    pub transposed: bool,
    /// Rows, columns and k of a block's tile.
    pub block: [u32; 3],
    /// Columns of the subtiles that the copy engine stores; see [`Maps`].
    pub store_columns: u32,
    /// Columns that go through a fusion at a time.
    pub chunk_columns: u32,
    /// Whether rows of the result that begin anywhere leave over shared memory.
    pub by_rows: bool,
    /// Whether results of 8 bits go through a fusion by columns in subtiles.
    pub narrow: bool,
    /// Whether the copy engine can store results in f32 ([`Config::STORES_F32`]).
    pub stores_f32: bool,
    /// Whether boxes of operands can be left out ([`GemmShape::box_m`]).
    pub skips: bool,
    /// Whether tiles may be narrower ([`GemmShape::tile_n`]).
    pub narrows: bool,
    /// Blocks of a cluster below each other, beside each other, and with shares of k.
    pub cluster: [u32; 3],
    /// Whether launches may have other ones ([`Config::ANY_CLUSTER`]).
    pub any_cluster: bool,
    /// Stages of the pipeline.
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
    /// Can its blocks share operands in clusters of so many blocks below and beside each other? Powers of
    /// two, together at most as many as every device takes.
    pub const fn can_cluster(&self, [m, n]: [u32; 2]) -> bool {
        let ([block_m, block_n, span], [own_m, own_n, _]) = (self.block, self.cluster);
        m == own_m && n == own_n
            || self.any_cluster
                && m.is_power_of_two()
                && n.is_power_of_two()
                && m * n <= MOST_BLOCKS
                && Major::of(self.trans_a).can_share(block_m, span, n)
                && Major::of(self.trans_b).can_share(block_n, span, m)
    }

    /// The table's row for a kernel.
    pub const fn of<C: Config>(name: &'static str, kind: Kind, element16: ElementType) -> Self {
        Self {
            name,
            kind,
            a: <<C::Operands as Operands>::A as Operand>::TYPE,
            b: <<C::Operands as Operands>::B as Operand>::TYPE,
            element16,
            trans_a: matches!(C::Operands::MAJOR_A, Major::Mn),
            trans_b: matches!(C::Operands::MAJOR_B, Major::Mn),
            transposed: C::TRANSPOSED,
            block: [C::BLOCK_M, C::BLOCK_N, <C::Operands as Operands>::BLOCK_K],
            store_columns: C::STORE_COLUMNS,
            chunk_columns: C::CHUNK_COLUMNS,
            by_rows: C::BY_ROWS,
            narrow: C::NARROW,
            stores_f32: C::STORES_F32,
            skips: C::SKIPS,
            narrows: C::NARROWS,
            cluster: [C::CLUSTER_M, C::CLUSTER_N, C::CLUSTER_K],
            any_cluster: C::ANY_CLUSTER,
            stages: C::STAGES,
            consumers: C::CONSUMERS,
            ping_pong: C::PING_PONG,
            threads: C::THREADS,
            shared: C::SHARED,
        }
    }
}

/// Columns of the tiles of 128 rows that launches put in clusters of any shape. Of narrower ones, and of
/// tiles of 64 rows, clusters gained 1 to 4 % on an H200, and what sharing takes cost launches without
/// clusters 0.3 us. The widest of large products are as fast alone or in pairs, by the product, so that one
/// kernel does both; larger clusters of those gain nothing. (tf32 with A in registers: the assembler
/// serialises its products.)
const SHARED_COLUMNS: RangeInclusive<u32> = 96..=144;
const SHARED_WIDEST: u32 = 256;

/// Kernels: name, types of A, B and of 16-bit results, orders, accumulators, consumers, how they share,
/// cluster, how it stores, kind.
macro_rules! kernels {
    ($dollar:tt $(#[kernel] fn $name:ident as $config:ident: $a:ident x $b:ident -> $element16:ident, trans $trans_a:tt $trans_b:tt,
        $groups:literal x $columns:literal, $consumers:literal $mode:ident, cluster $m:literal x $n:literal $(x $k:literal)?, $order:ident, $kind:ident;)*) => {
        $(
            /// The configuration of the kernel of this name.
            #[derive(Clone, Copy)]
            pub struct $config;

            impl Config for $config {
                type Operands = Pair<$a, $b, $element16, $trans_a, $trans_b>;
                type Tile = [[f32; $columns / 2]; $groups];
                type Stored = [[f32; $columns / 2 $(/ $k)?]; $groups];
                type EpiloguePlan = EpiloguePlan<Self>;
                const CONSUMERS: u32 = $consumers;
                const PING_PONG: bool = kernels!(@@ $mode is ping_pong);
                const CLUSTER_M: u32 = $m;
                const CLUSTER_N: u32 = $n;
                const TRANSPOSED: bool = kernels!(@@ $order is transposed);
                const PLACES: u32 = places::<Self>();
                const ANY_CLUSTER: bool = matches!(Kind::$kind, Kind::Dense)
                    && Self::CLUSTER == 1
                    && <$a as Operand>::TYPE.bytes() <= 2
                    && Self::BLOCK_M == 128
                    && (*SHARED_COLUMNS.start() <= Self::BLOCK_N
                        && Self::BLOCK_N <= *SHARED_COLUMNS.end()
                        || Self::BLOCK_N == SHARED_WIDEST);
                const MAY_NARROW: bool = matches!(Kind::$kind, Kind::Dense);
                const STORES_F32: bool = matches!(Kind::$kind, Kind::Dense | Kind::Direct);
                const DIRECT: bool = kernels!(@@ $kind is Direct);
            }

            #[doc = concat!("A [`Kind::", stringify!($kind), "`] product for ", stringify!($a), " and ", stringify!($b), "; see [`TABLE`] and the module.")]
            ///
            /// # Safety
            /// As [`run`] for this configuration and its scheduler; the arguments' pointers are null where
            /// that is allowed, else valid for what the arguments say of them.
            #[kernel(launch_bounds(<$config as Config>::THREADS, 1))]
            pub unsafe fn $name(
                a: &TensorMap,
                b: &TensorMap,
                c: &TensorMap,
                source: &TensorMap,
                arguments: GemmArguments,
                data: *mut u8,
                offsets: *const i32,
                read_a: *const f32,
                read_b: *const f32,
            ) {
                let (maps, arguments) = (Maps { a, b, c, source }, &arguments);
                let inputs = Inputs { maps, arguments, data, offsets, read: [read_a, read_b] };
                // SAFETY: the caller's contract.
                unsafe { kernels!(@@ $kind $a $trans_a $config inputs $($k)?) }
            }
        )*

        /// Every kernel, those of a kind one after the other.
        pub const TABLE: &[Entry] =
            &[$(Entry::of::<$config>(stringify!($name), Kind::$kind, <$element16 as Operand>::TYPE)),*];

        /// Calls the macro of this name with the names of all kernels of `gemm::sm90::instances`, in the
        /// order of its `TABLE`.
        #[macro_export]
        macro_rules! for_each_sm90_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($name)* } };
        }
    };
    // The tensor cores read tf32 in shared memory along k alone.
    (@@ Dense TF32 1 $config:ident $inputs:ident) => {
        dense::<$config, _>($inputs, FromRegisters)
    };
    (@@ Dense $a:ident $trans_a:tt $config:ident $inputs:ident) => {
        dense::<$config, _>($inputs, InAccumulators)
    };
    (@@ Dense $a:ident $trans_a:tt $config:ident $inputs:ident $k:literal) => {
        dense::<$config, _>($inputs, ClusterSplitK)
    };
    (@@ Direct $a:ident $trans_a:tt $config:ident $inputs:ident) => { direct::<$config>($inputs) };
    (@@ Grouped $a:ident $trans_a:tt $config:ident $inputs:ident) => { grouped::<$config>($inputs) };
    (@@ BlockScaled $a:ident $trans_a:tt $config:ident $inputs:ident) => {
        block_scaled::<$config>($inputs)
    };
    (@@ BlockScaledGrouped $a:ident $trans_a:tt $config:ident $inputs:ident) => {
        block_scaled_grouped::<$config>($inputs)
    };
    (@@ ping_pong is ping_pong) => { true };
    (@@ transposed is transposed) => { true };
    (@@ Direct is Direct) => { true };
    (@@ $word:ident is $other:ident) => { false };
}

kernels! { $
    // Types of A, B and 16-bit results; orders; groups of 64 rows x columns of a consumer; consumers;
    // cluster; result; kind. In names: how A and B lie, `n` as [m, k] and [k, n], `t` transposed; `pp`
    // ping-pong; `_t` at the end stores the transpose; `k2` splits k over two blocks of a cluster; `direct`
    // takes operands as they lie.
    #[kernel] fn gemm_bf16_nt_128x256 as Bf16Nt128x256: BF16 x BF16 -> BF16, trans 0 0, 1 x 256, 2 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_nt_128x192_pp as Bf16Nt128x192Pp: BF16 x BF16 -> BF16, trans 0 0, 2 x 192, 2 ping_pong, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_nt_128x128_pp as Bf16Nt128x128Pp: BF16 x BF16 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_nt_128x128_k2 as Bf16Nt128x128K2: BF16 x BF16 -> BF16, trans 0 0, 2 x 128, 1 together, cluster 1 x 1 x 2, rows, Dense;
    #[kernel] fn gemm_bf16_nt_128x144 as Bf16Nt128x144: BF16 x BF16 -> BF16, trans 0 0, 1 x 144, 2 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_nt_64x128 as Bf16Nt64x128: BF16 x BF16 -> BF16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_nt_64x64 as Bf16Nt64x64: BF16 x BF16 -> BF16, trans 0 0, 1 x 64, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_nt_128x96_pp_t as Bf16Nt128x96PpT: BF16 x BF16 -> BF16, trans 0 0, 2 x 96, 2 ping_pong, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_bf16_nt_64x16_t as Bf16Nt64x16T: BF16 x BF16 -> BF16, trans 0 0, 1 x 16, 1 together, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_bf16_nn_128x256_2x1 as Bf16Nn128x256By2: BF16 x BF16 -> BF16, trans 0 1, 1 x 256, 2 together, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_nn_128x128_pp as Bf16Nn128x128Pp: BF16 x BF16 -> BF16, trans 0 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_nn_64x128 as Bf16Nn64x128: BF16 x BF16 -> BF16, trans 0 1, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_tn_128x256_2x1 as Bf16Tn128x256By2: BF16 x BF16 -> BF16, trans 1 1, 1 x 256, 2 together, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_tn_128x192_pp as Bf16Tn128x192Pp: BF16 x BF16 -> BF16, trans 1 1, 2 x 192, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_tn_128x128_pp as Bf16Tn128x128Pp: BF16 x BF16 -> BF16, trans 1 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_tn_128x128_k2 as Bf16Tn128x128K2: BF16 x BF16 -> BF16, trans 1 1, 1 x 128, 2 together, cluster 1 x 1 x 2, rows, Dense;
    #[kernel] fn gemm_bf16_tn_64x128 as Bf16Tn64x128: BF16 x BF16 -> BF16, trans 1 1, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_tt_128x256_2x1 as Bf16Tt128x256By2: BF16 x BF16 -> BF16, trans 1 0, 1 x 256, 2 together, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_tt_128x128_pp as Bf16Tt128x128Pp: BF16 x BF16 -> BF16, trans 1 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_tt_64x128 as Bf16Tt64x128: BF16 x BF16 -> BF16, trans 1 0, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_bf16_tt_128x96_pp_t as Bf16Tt128x96PpT: BF16 x BF16 -> BF16, trans 1 0, 2 x 96, 2 ping_pong, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_bf16_tt_64x16_t as Bf16Tt64x16T: BF16 x BF16 -> BF16, trans 1 0, 1 x 16, 1 together, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_f16_nt_128x256 as F16Nt128x256: F16 x F16 -> F16, trans 0 0, 1 x 256, 2 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_nt_128x192_pp as F16Nt128x192Pp: F16 x F16 -> F16, trans 0 0, 2 x 192, 2 ping_pong, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_f16_nt_128x128_pp as F16Nt128x128Pp: F16 x F16 -> F16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_nt_128x128_k2 as F16Nt128x128K2: F16 x F16 -> F16, trans 0 0, 2 x 128, 1 together, cluster 1 x 1 x 2, rows, Dense;
    #[kernel] fn gemm_f16_nt_128x144 as F16Nt128x144: F16 x F16 -> F16, trans 0 0, 1 x 144, 2 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_nt_64x128 as F16Nt64x128: F16 x F16 -> F16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_nt_64x64 as F16Nt64x64: F16 x F16 -> F16, trans 0 0, 1 x 64, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_nt_128x96_pp_t as F16Nt128x96PpT: F16 x F16 -> F16, trans 0 0, 2 x 96, 2 ping_pong, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_f16_nt_64x16_t as F16Nt64x16T: F16 x F16 -> F16, trans 0 0, 1 x 16, 1 together, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_f16_nn_128x256_2x1 as F16Nn128x256By2: F16 x F16 -> F16, trans 0 1, 1 x 256, 2 together, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_f16_nn_128x128_pp as F16Nn128x128Pp: F16 x F16 -> F16, trans 0 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_nn_64x128 as F16Nn64x128: F16 x F16 -> F16, trans 0 1, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_tn_128x256_2x1 as F16Tn128x256By2: F16 x F16 -> F16, trans 1 1, 1 x 256, 2 together, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_f16_tn_128x192_pp as F16Tn128x192Pp: F16 x F16 -> F16, trans 1 1, 2 x 192, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_tn_128x128_pp as F16Tn128x128Pp: F16 x F16 -> F16, trans 1 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_tn_128x128_k2 as F16Tn128x128K2: F16 x F16 -> F16, trans 1 1, 1 x 128, 2 together, cluster 1 x 1 x 2, rows, Dense;
    #[kernel] fn gemm_f16_tn_64x128 as F16Tn64x128: F16 x F16 -> F16, trans 1 1, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_tt_128x256_2x1 as F16Tt128x256By2: F16 x F16 -> F16, trans 1 0, 1 x 256, 2 together, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_f16_tt_128x128_pp as F16Tt128x128Pp: F16 x F16 -> F16, trans 1 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_tt_64x128 as F16Tt64x128: F16 x F16 -> F16, trans 1 0, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_f16_tt_128x96_pp_t as F16Tt128x96PpT: F16 x F16 -> F16, trans 1 0, 2 x 96, 2 ping_pong, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_f16_tt_64x16_t as F16Tt64x16T: F16 x F16 -> F16, trans 1 0, 1 x 16, 1 together, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_tf32_nt_128x256_2x1 as Tf32Nt128x256By2: TF32 x TF32 -> BF16, trans 0 0, 1 x 256, 2 together, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_tf32_nt_128x128_pp as Tf32Nt128x128Pp: TF32 x TF32 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_tf32_nt_64x128 as Tf32Nt64x128: TF32 x TF32 -> BF16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_tf32_nt_64x16_t as Tf32Nt64x16T: TF32 x TF32 -> BF16, trans 0 0, 1 x 16, 1 together, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_tf32_tt_64x128 as Tf32Tt64x128: TF32 x TF32 -> BF16, trans 1 0, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_tf32_tt_128x256_2x1_t as Tf32Tt128x256By2T: TF32 x TF32 -> BF16, trans 1 0, 1 x 256, 2 together, cluster 2 x 1, transposed, Dense;
    #[kernel] fn gemm_tf32_tt_64x128_t as Tf32Tt64x128T: TF32 x TF32 -> BF16, trans 1 0, 1 x 128, 1 together, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_tf32_tt_128x64_t as Tf32Tt128x64T: TF32 x TF32 -> BF16, trans 1 0, 1 x 64, 2 together, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_e4m3_nt_128x256_2x1 as E4m3Nt128x256By2: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 256, 2 together, cluster 2 x 1, rows, Dense;
    #[kernel] fn gemm_e4m3_nt_128x128_pp as E4m3Nt128x128Pp: E4M3 x E4M3 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_e4m3_nt_64x128 as E4m3Nt64x128: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_e4m3_nt_64x160_4x1_t as E4m3Nt64x160By4T: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 160, 1 together, cluster 4 x 1, transposed, Dense;
    #[kernel] fn gemm_e4m3_nt_64x16_t as E4m3Nt64x16T: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 16, 1 together, cluster 1 x 1, transposed, Dense;
    #[kernel] fn gemm_e4m3_e5m2_nt_128x128_pp as E4m3E5m2Nt128x128Pp: E4M3 x E5M2 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_e5m2_e4m3_nt_128x128_pp as E5m2E4m3Nt128x128Pp: E5M2 x E4M3 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Dense;
    #[kernel] fn gemm_tf32_direct_64x128 as Tf32Direct64x128: TF32 x TF32 -> BF16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows, Direct;
    #[kernel] fn gemm_grouped_bf16_nt_128x128_pp as GroupedBf16Nt: BF16 x BF16 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Grouped;
    #[kernel] fn gemm_grouped_bf16_nn_128x128_pp as GroupedBf16Nn: BF16 x BF16 -> BF16, trans 0 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Grouped;
    #[kernel] fn gemm_grouped_f16_nt_128x128_pp as GroupedF16Nt: F16 x F16 -> F16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Grouped;
    #[kernel] fn gemm_grouped_f16_nn_128x128_pp as GroupedF16Nn: F16 x F16 -> F16, trans 0 1, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Grouped;
    #[kernel] fn gemm_grouped_e4m3_nt_128x128_pp as GroupedE4m3Nt: E4M3 x E4M3 -> BF16, trans 0 0, 2 x 128, 2 ping_pong, cluster 1 x 1, rows, Grouped;
    #[kernel] fn gemm_e4m3_blocks_nt_128x128 as Blocks128x128: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 128, 2 together, cluster 1 x 1, rows, BlockScaled;
    #[kernel] fn gemm_e4m3_blocks_nt_64x128 as Blocks64x128: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 128, 1 together, cluster 1 x 1, rows, BlockScaled;
    #[kernel] fn gemm_grouped_e4m3_blocks_nt_128x128 as GroupedBlocks128x128: E4M3 x E4M3 -> BF16, trans 0 0, 1 x 128, 2 together, cluster 1 x 1, rows, BlockScaledGrouped;
}
