//! Products of groups of rows ([`crate::groups`]), by the main loop of all others.
//!
//! ```text
//!          A, C                      tile          rows of the tile behind the group's end are the next group's: they are loaded and
//!   g 0  | 0 1 1 1 .. |  128 rows    0, 1, ..      multiplied by the wrong matrix, and not stored. Whole tiles leave by the copy engine,
//!        | 2 3 3 3 .. |  70 rows     2, 3, ..      a group's last one by the threads.
//!   g 1  | 4 5 5 5 .. |  90 rows     4, 5, ..
//! ```
//! Tiles are 128 x 128, one consumer's: small, since they decide how much of the last wave is idle and what a group's last tile wastes, and stores hide
//! behind the other consumer's products. 128 x 256 by both is 8 % slower on an H200 (8 groups of about 512 rows, n 4096, k 14336) to 2 % faster (n and k swapped).
//!
//! How many tiles there are nobody knows before the launch: as many blocks as run at once count through the groups, each for itself.

use cuda_std::kernel;
use cuda_std::tma::TensorMap;
use cuda_std::wgmma::{BF16, E4M3, F16, Operand};
use layout::grouped_tile;

use super::config::Config;
use super::entries::{Arguments, Entry};
use super::epilogue::{At, Columns, Epilogue, Fused, Pairs, Terms, Vectors};
use super::kernel::run;
use super::operands::{Half, Operands, Pair};
use super::problem::{Corner, Maps, Problem, Walk, cluster_of_grid, first_of};
use super::store::{Number, Output, stored};
use super::sum::Whole;
use crate::epilogue::Activation;
use crate::groups::Groups;

/// The tiles of all groups, group after group.
#[derive(Clone, Copy)]
pub struct GroupTiles {
    groups: Groups,
    next: u32,
    step: u32,
    /// Number of the first tile of the group.
    first: u32,
    /// Rows and columns of tiles of the group.
    rows: u32,
    columns: u32,
    band: u32,
}

impl GroupTiles {
    /// This cluster's, of a product of `groups`.
    #[inline(always)]
    pub fn new<C: Config>(problem: &Problem, groups: Groups) -> Self {
        let (next, step) = cluster_of_grid::<C>();
        let columns = problem.n.div_ceil(C::BLOCK_N * C::CLUSTER_N);
        Self { groups, next, step, first: 0, rows: 0, columns, band: problem.band }
    }
}

impl<C: Config> Walk<C> for GroupTiles {
    #[inline(always)]
    fn is_left(&mut self) -> bool {
        while self.next - self.first >= self.rows * self.columns {
            let tiles = self.rows * self.columns;
            // SAFETY: the offsets are the launch's.
            let Some(group) = (unsafe { self.groups.next() }) else { return false };
            self.first += tiles;
            self.rows = (group.end - group.begin).div_ceil(C::BLOCK_M * C::CLUSTER_M);
        }
        true
    }

    #[inline(always)]
    fn skip(&mut self, tiles: u32) {
        self.next += tiles * self.step;
    }

    #[inline(always)]
    fn corner(&self, place: [u32; 2]) -> Corner {
        let group = self.groups.last();
        let tile = grouped_tile(self.next - self.first, self.rows, self.columns, self.band);
        let [row, column] = first_of::<C>(tile, place);
        Corner {
            row: group.begin + row,
            column,
            batch: 0,
            group: group.index,
            end: group.end,
            is_bounded: true,
        }
    }
}

/// The family's epilogue, with scales and a bias of each group.
struct PerGroup<H> {
    fused: Fused<H>,
    /// Bytes from a group's bias to the next one's.
    bias_bytes: u64,
}

impl<H> Clone for PerGroup<H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for PerGroup<H> {}

impl<H: Half> Epilogue for PerGroup<H> {
    #[inline(always)]
    unsafe fn enter(&mut self, group: u32) {
        let Fused { scale_a, scale_b, bias, .. } = self.fused;
        let of_group = |scale: *const f32| {
            if scale.is_null() { scale } else { scale.wrapping_add(group as usize) }
        };
        self.fused.scale_a = of_group(scale_a);
        self.fused.scale_b = of_group(scale_b);
        if !bias.is_null() {
            self.fused.bias = bias.wrapping_add((u64::from(group) * self.bias_bytes) as usize);
        }
    }

    #[inline(always)]
    unsafe fn prepare(&mut self, columns: Columns, thread: u32) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.fused.prepare(columns, thread) }
    }

    #[inline(always)]
    unsafe fn apply<const N: usize>(&mut self, at: At, x: &mut Pairs<N>) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.fused.apply(at, x) }
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.fused.finish() }
    }
}

/// The pointers that a kernel gets. `bias`, `residual`, the scales and `amax` may be null.
#[derive(Clone, Copy)]
struct Pointers {
    added: *const TensorMap,
    data: *mut u8,
    bias: *const u8,
    residual: *const u8,
    scale_a: *const f32,
    scale_b: *const f32,
    amax: *mut u32,
}

/// The work of an entry.
///
/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn entry<C: Config<Stored = <C as Config>::Tile>>(
    maps: Maps,
    arguments: Arguments,
    pointers: Pointers,
    groups: Groups,
) {
    let Arguments { problem, row, result, paired, copied, plain, .. } = arguments;
    let Pointers { added, data, bias, residual, scale_a, scale_b, amax } = pointers;
    // Number by number: as a whole they would take the way over local memory.
    let Terms { alpha, beta, activation } = arguments.terms;
    let terms = Terms { alpha, beta, activation };
    let halved = Activation::from_code(activation).columns() == 2;
    let Arguments { residual_row, bias_f32, residual_f32, residual_paired, fetched, .. } = arguments;
    let output =
        Output { data, row, matrix: 0, number: result, paired, copied, plain, halved, fetched, added };
    let fused: Fused<<C::Operands as Operands>::Half> = Fused::new(
        terms,
        Vectors::new(data, row, 0, matches!(result, Number::F32), paired),
        (bias, bias_f32),
        Vectors::new(residual, residual_row, 0, residual_f32, residual_paired),
        [scale_a, scale_b, core::ptr::null()],
        amax,
    );
    let epilogue = PerGroup { fused, bias_bytes: u64::from(problem.n) * if bias_f32 { 4 } else { 2 } };
    let walk = GroupTiles::new::<C>(&problem, groups);
    // SAFETY: the caller's contract.
    unsafe { run::<C, _, _, _>(maps, problem, walk, Whole, stored(maps, problem, output, epilogue)) }
}

/// Kernels: name, types of A, B and of 16-bit results, order of B.
macro_rules! kernels {
    ($dollar:tt $(#[kernel] fn $name:ident as $config:ident: $element:ident -> $half:ident, trans 0 $trans_b:literal;)*) => {
        $(
            /// The configuration of the kernel of this name.
            pub struct $config;

            impl Config for $config {
                type Operands = Pair<$element, $element, $half, 0, $trans_b>;
                type Tile = [[f32; 64]; 2];
                type Stored = Self::Tile;
                const CONSUMERS: u32 = 2;
                const PING_PONG: bool = true;
                const CLUSTER_M: u32 = 1;
                const CLUSTER_N: u32 = 1;
                const TRANSPOSED: bool = false;
            }

            #[doc = concat!("`C[rows of g] = epilogue(A[rows of g] B[g])` for ", stringify!($element), "; see [`Entry`] in [`TABLE`] and the module.")]
            /// `offsets` are `groups + 1` numbers of 64 bits if `is_wide`, else of 32; see [`Groups`]. Of `arguments`, `problem.m` is the rows
            /// of all groups.
            ///
            /// # Safety
            /// As [`run`](super::kernel::run) for this configuration, with maps of A and of the result for one matrix and of B for `groups`;
            /// the pointers are null where that is allowed, else valid for what `arguments` says of them, `bias` for as many vectors as groups, and the
            /// scales for as many numbers.
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
                amax: *mut u32,
                offsets: *const i32,
                is_wide: bool,
                groups: u32,
            ) {
                let pointers = Pointers { added, data, bias, residual, scale_a, scale_b, amax };
                let groups = Groups::new(offsets, is_wide, groups, arguments.problem.m);
                // SAFETY: the caller's contract.
                unsafe { entry::<$config>(Maps { a, b, d }, arguments, pointers, groups) }
            }
        )*

        /// Every kernel here.
        pub const TABLE: &[Entry] = &[$(Entry::of::<$config>(stringify!($name), <$half as Operand>::TYPE)),*];

        /// Calls the macro of this name with the names of all kernels of `gemm::sm90::grouped`, in the order of its `TABLE`.
        #[macro_export]
        macro_rules! for_each_sm90_grouped_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($name)* } };
        }
    };
}

kernels! { $
    #[kernel] fn gemm_grouped_bf16_nt_128x128_pp as GroupedBf16Nt: BF16 -> BF16, trans 0 0;
    #[kernel] fn gemm_grouped_bf16_nn_128x128_pp as GroupedBf16Nn: BF16 -> BF16, trans 0 1;
    #[kernel] fn gemm_grouped_f16_nt_128x128_pp as GroupedF16Nt: F16 -> F16, trans 0 0;
    #[kernel] fn gemm_grouped_f16_nn_128x128_pp as GroupedF16Nn: F16 -> F16, trans 0 1;
    #[kernel] fn gemm_grouped_e4m3_nt_128x128_pp as GroupedE4m3Nt: E4M3 -> BF16, trans 0 0;
}
