//! 8-bit products with factors for blocks: of A one for each row and 128 elements of k, of B one for each 128 columns and 128
//! elements of k, as 8-bit models are trained and stored.
//!
//! The tensor cores sum a block of k; its sum times the factors is added to a sum in f32 registers, which also keeps the bits that the
//! tensor cores' own sums of 8-bit numbers lose. That is a multiply-add for each accumulator and block, in which the warpgroup's own products
//! go on, in another set of accumulators:
//!
//! ```text
//!   products   | k 0 even | k 1 odd | k 2 even | k 3 odd |
//!   additions             | even    | odd      | even    |
//! ```
//! With one set, and the other warpgroup's products meanwhile, it takes 25 % longer, even in tiles of 256 x 128 10 % (H200, 4096 and 8192 cubed).
//! Factors are read into registers four blocks or more before they are wanted, so that nothing waits for memory.

use cuda_std::tma::TensorMap;
use cuda_std::wgmma::{BF16, E4M3, ElementType};
use cuda_std::{fastmath, kernel, warp, wgmma};

use super::config::Config;
use super::entries::{Arguments, Entry};
use super::epilogue::{Fused, Terms, Vectors};
use super::grouped::GroupTiles;
use super::kernel::run;
use super::operands::{Operands, Pair, Tile};
use super::pipeline::Position;
use super::problem::{Maps, Tiles, Walk};
use super::store::{Output, stored};
use super::sum::{Sum, Task};
use crate::groups::Groups;
use crate::unroll::unrolled;

/// Elements of k, and columns of B, that have a factor in common.
pub const BLOCK: u32 = 128;

/// Where the factors lie.
#[derive(Clone, Copy)]
pub struct ByBlocks {
    /// Of A: `[k / 128][a_pitch]`, a row of the matrix beside the next.
    pub a: *const f32,
    /// From a block of k to the next, at least m.
    pub a_pitch: u32,
    /// Of B: `[matrices of B][n / 128][k / 128]`.
    pub b: *const f32,
}

impl<C: Config<Stored = <C as Config>::Tile>> Sum<C> for ByBlocks {
    #[inline(always)]
    unsafe fn tile(self, task: Task<C>, position: &mut Position) -> C::Stored {
        const {
            assert!(
                <C::Operands as Operands>::BLOCK_K == BLOCK,
                "a stage is a block of factors: 8-bit types"
            );
            assert!(C::BLOCK_N == BLOCK, "a tile has one factor of B");
            assert!(
                C::Tile::GROUPS == 1 && !C::PING_PONG,
                "registers for two sets of accumulators beside the sums"
            );
        };
        // SAFETY: the caller's contract: stages come, and blocks of factors that there are.
        unsafe {
            let mut factors = Factors::new(self, &task);
            let (mut even, mut odd, mut sums) = (C::Tile::zero(), C::Tile::zero(), C::Tile::zero());
            task.multiply(&mut even, *position, false);
            // Stages whose products have not been issued.
            let mut left = task.k_tiles - 1;
            while left >= 2 {
                let first = factors.next();
                add_beside(&task, position, &mut sums, &mut even, first, &mut odd);
                let second = factors.next();
                add_beside(&task, position, &mut sums, &mut odd, second, &mut even);
                left -= 2;
            }
            let last = factors.next();
            if left == 1 {
                add_beside(&task, position, &mut sums, &mut even, last, &mut odd);
                let last = factors.next();
                add_last(&task, position, &mut sums, &mut odd, last);
            } else {
                add_last(&task, position, &mut sums, &mut even, last);
            }
            sums
        }
    }
}

/// Issues the next stage's products as `next`, and meanwhile adds those at `position`, `part`, times their factors.
///
/// # Safety
/// As for [`Sum::tile`]; the products at `position` have been issued.
#[inline(always)]
unsafe fn add_beside<C: Config>(
    task: &Task<C>,
    position: &mut Position,
    sums: &mut C::Tile,
    part: &mut C::Tile,
    factors: [f32; 2],
    next: &mut C::Tile,
) {
    let stage = position.stage;
    *position = position.next::<C>();
    // SAFETY: the caller's contract; a stage is released after the products that read it.
    unsafe {
        task.multiply(next, *position, false);
        wgmma::wait_group::<1>();
        part.fence();
        task.ring.release(stage, task.thread);
    }
    add(sums, part, factors);
}

/// Adds the last products, those at `position`.
///
/// # Safety
/// As for [`add_beside`].
#[inline(always)]
unsafe fn add_last<C: Config>(
    task: &Task<C>,
    position: &mut Position,
    sums: &mut C::Tile,
    part: &mut C::Tile,
    factors: [f32; 2],
) {
    // SAFETY: the caller's contract.
    unsafe {
        wgmma::wait_group::<0>();
        part.fence();
        task.ring.release(position.stage, task.thread);
    }
    *position = position.next::<C>();
    add(sums, part, factors);
}

/// Adds `part` times the factors of the thread's two rows.
#[inline(always)]
fn add<T: Tile>(sums: &mut T, part: &T, factors: [f32; 2]) {
    unrolled!(STEP in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
        const { assert!(T::COLUMNS == BLOCK) };
        unrolled!(REGISTER in [0 1 2 3] {
            let index = 4 * STEP + REGISTER;
            let sum = fastmath::fma(part.get(0, index), factors[REGISTER / 2], sums.get(0, index));
            sums.set(0, index, sum);
        });
    });
}

/// Blocks of k whose factors a quad reads at a time.
const QUAD: u32 = 4;

/// Reads the factors of a thread's rows and of the tile's columns, a block of k after the other.
///
/// The four lanes of a quad have the same rows: each reads the factors of every fourth block and multiplies them, and the others get the
/// product by a shuffle. So no factor is read twice, and each four blocks or more before it is wanted. (Nor are addresses the same in
/// all lanes: ptxas would move what is read there into uniform registers at once, and so wait for it.)
struct Factors {
    from: ByBlocks,
    /// The thread's first row, and A's last one.
    row: u32,
    last_row: u32,
    /// Where the tile's columns have their factors.
    columns: usize,
    /// The block whose factors the lane reads next, and the last one.
    ahead: u32,
    last: u32,
    /// The block that is wanted next.
    block: u32,
    /// Products of the factors of the lane's one of the four blocks that are wanted.
    here: [f32; 2],
    /// Factors of the rows and of the columns in its one of the next four.
    rows: [f32; 2],
    column: f32,
}

impl Factors {
    /// From the first block on. The whole warp calls it.
    #[inline(always)]
    unsafe fn new<C: Config>(from: ByBlocks, task: &Task<C>) -> Self {
        let (lane, warp) = (task.thread % 32, task.thread / 32);
        let across = task.problem.n.div_ceil(BLOCK) * task.corner.group;
        let mut factors = Self {
            from,
            row: task.corner.row + warp * 16 + lane / QUAD,
            last_row: task.problem.m - 1,
            columns: (across + task.corner.column / BLOCK) as usize * task.k_tiles as usize,
            ahead: lane % QUAD,
            last: task.k_tiles - 1,
            block: 0,
            here: [0.0; 2],
            rows: [0.0; 2],
            column: 0.0,
        };
        // SAFETY: the caller's contract.
        unsafe {
            factors.read();
            factors.advance();
        }
        factors
    }

    /// Reads those of the lane's next block; behind the last one its again. What is computed of rows that A does not have goes nowhere, so
    /// they take the last one's.
    #[inline(always)]
    unsafe fn read(&mut self) {
        let block = if self.ahead < self.last { self.ahead } else { self.last } as usize;
        let rows = self.from.a.wrapping_add(block * self.from.a_pitch as usize);
        // SAFETY: blocks and rows that there are.
        unsafe {
            self.column = self.from.b.add(self.columns + block).read();
            unrolled!(HALF in [0 1] {
                let row = self.row + HALF as u32 * 8;
                let row = if row < self.last_row { row } else { self.last_row };
                self.rows[HALF] = rows.add(row as usize).read();
            });
        }
        self.ahead += QUAD;
    }

    /// Goes to the next four blocks.
    #[inline(always)]
    unsafe fn advance(&mut self) {
        let column = self.column;
        self.here = self.rows.map(|row| row * column);
        // SAFETY: the caller's contract.
        unsafe { self.read() }
    }

    /// The products of the next block. The whole warp calls it, once for each block.
    #[inline(always)]
    unsafe fn next(&mut self) -> [f32; 2] {
        let lane = self.block % QUAD;
        let of_quad = |own: f32| {
            // SAFETY: the whole warp is here.
            unsafe { warp::warp_shuffle_idx(warp::FULL_MASK, own, lane, QUAD).0 }
        };
        let products = self.here.map(of_quad);
        self.block += 1;
        if self.block.is_multiple_of(QUAD) {
            // SAFETY: the caller's contract.
            unsafe { self.advance() }
        }
        products
    }
}

/// Kernels: consumers, of 64 rows each.
macro_rules! kernels {
    ($dollar:tt $(#[kernel] fn $name:ident as $config:ident: $consumers:literal;)*) => {
        $(
            /// The configuration of the kernel of this name.
            pub struct $config;

            impl Config for $config {
                type Operands = Pair<E4M3, E4M3, BF16, 0, 0>;
                type Tile = [[f32; BLOCK as usize / 2]; 1];
                type Stored = Self::Tile;
                const CONSUMERS: u32 = $consumers;
                const PING_PONG: bool = false;
                const CLUSTER_M: u32 = 1;
                const CLUSTER_N: u32 = 1;
                const TRANSPOSED: bool = false;
            }

            /// `C = (A * factors) (B * factors)` for A `[m, k]`, B `[n, k]`, in E4M3, C in bf16 or f32. Of `arguments`, `terms` are not
            /// looked at, and there is no bias and no residual.
            ///
            /// # Safety
            /// As [`run`](super::kernel::run) for this configuration, with one product in the batch; `factors_a` points to
            /// `[k / 128 rounded up][pitch_a]` factors, `pitch_a` at least m, and `factors_b` to `[n / 128 rounded up][k / 128 rounded up]`.
            #[kernel(launch_bounds(<$config as Config>::THREADS, 1))]
            pub unsafe fn $name(
                a: &TensorMap,
                b: &TensorMap,
                d: &TensorMap,
                arguments: Arguments,
                data: *mut u8,
                factors_a: *const f32,
                pitch_a: u32,
                factors_b: *const f32,
            ) {
                let sum = ByBlocks { a: factors_a, a_pitch: pitch_a, b: factors_b };
                let walk = Tiles::new::<$config>(&arguments.problem);
                // SAFETY: the caller's contract.
                unsafe { entry::<$config, _>(Maps { a, b, d }, arguments, walk, data, sum) }
            }
        )*

        /// Every kernel here.
        pub const TABLE: &[Entry] = &[$(Entry::of::<$config>(stringify!($name), ElementType::Bf16)),*];

        /// Calls the macro of this name with the names of all kernels of `gemm::sm90::blocks`, in the order of its `TABLE`.
        #[macro_export]
        macro_rules! for_each_sm90_blocks_kernel {
            ($dollar callback:ident) => { $dollar callback! { $($name)* } };
        }
    };
}

/// The work of an entry.
///
/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn entry<C: Config<Stored = <C as Config>::Tile>, W: Walk<C>>(
    maps: Maps,
    arguments: Arguments,
    walk: W,
    data: *mut u8,
    sum: ByBlocks,
) {
    let Arguments { problem, row, matrix, result, paired, copied, plain, .. } = arguments;
    let output = Output { matrix, paired, copied, plain, ..Output::new(data, row, result) };
    let none = Vectors::new(core::ptr::null(), 0, 0, false, false);
    let terms = Terms { alpha: 1.0, beta: 0.0, activation: 0 };
    let epilogue: Fused<BF16> = Fused::new(
        terms,
        none,
        (core::ptr::null(), false),
        none,
        [core::ptr::null(); 3],
        core::ptr::null_mut(),
    );
    // SAFETY: the caller's contract.
    unsafe { run::<C, _, _, _>(maps, problem, walk, sum, stored(maps, problem, output, epilogue)) }
}

/// As [`gemm_e4m3_blocks_nt_128x128`](fn@gemm_e4m3_blocks_nt_128x128) for [groups](crate::groups) of rows: B is `[groups, n, k]`, `factors_b`
/// `[groups][n / 128 rounded up][k / 128 rounded up]`. `offsets` are `groups + 1` numbers of 64 bits if `is_wide`, else of 32.
///
/// # Safety
/// As there, with a map of B for `groups` matrices.
#[kernel(launch_bounds(<Blocks128x128 as Config>::THREADS, 1))]
pub unsafe fn gemm_grouped_e4m3_blocks_nt_128x128(
    a: &TensorMap,
    b: &TensorMap,
    d: &TensorMap,
    arguments: Arguments,
    data: *mut u8,
    factors_a: *const f32,
    pitch_a: u32,
    factors_b: *const f32,
    offsets: *const i32,
    is_wide: bool,
    groups: u32,
) {
    let sum = ByBlocks { a: factors_a, a_pitch: pitch_a, b: factors_b };
    let groups = Groups::new(offsets, is_wide, groups, arguments.problem.m);
    let walk = GroupTiles::new::<Blocks128x128>(&arguments.problem, groups);
    // SAFETY: the caller's contract.
    unsafe { entry::<Blocks128x128, _>(Maps { a, b, d }, arguments, walk, data, sum) }
}

kernels! { $
    #[kernel] fn gemm_e4m3_blocks_nt_128x128 as Blocks128x128: 2;
    #[kernel] fn gemm_e4m3_blocks_nt_64x128 as Blocks64x128: 1;
}
