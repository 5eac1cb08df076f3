//! 8-bit products with factors for blocks: of A one for each row and 128 elements of k, of B one for each 128 columns and 128
//! elements of k, as 8-bit models are trained and stored.
//!
//! The tensor cores sum a block of k; its sum times the factors is added to a sum in f32 registers, which also keeps the bits that the
//! tensor cores' own sums of 8-bit numbers lose. That is a multiply-add for each accumulator and block, an eighth of the time of the
//! products, in which the warpgroup's products must go on:
//!
//! ```text
//! one group of 64 rows a consumer: two sets of accumulators           two groups: one set, and the other consumer's products
//!   products   | k 0 even | k 1 odd | k 2 even | k 3 odd |              consumer 0  | k 0, g 0 | add | k 0, g 1 | add | k 1, g 0 |
//!   additions             | even    | odd      | even    |              consumer 1       | k 0, g 0 | add | k 0, g 1 | add | ..
//! ```
//! Factors are read into registers two blocks (one block) before they are wanted, so that nothing waits for memory.

use cuda_std::tma::TensorMap;
use cuda_std::wgmma::{BF16, E4M3, ElementType};
use cuda_std::{fastmath, kernel, wgmma};

use super::config::Config;
use super::entries::{Arguments, Entry};
use super::epilogue::{Fused, Terms, Vectors};
use super::kernel::run;
use super::operands::{GROUP_ROWS, Operands, Pair, Tile};
use super::pipeline::Position;
use super::problem::Maps;
use super::store::Output;
use super::sum::{Sum, Task};
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

impl<C: Config> Sum<C> for ByBlocks {
    #[inline(always)]
    unsafe fn tile(self, task: Task<C>, position: &mut Position) -> C::Tile {
        const {
            assert!(
                <C::Operands as Operands>::BLOCK_K == BLOCK,
                "a stage is a block of factors: 8-bit types"
            );
            assert!(C::BLOCK_N == BLOCK, "a tile has one factor of B");
            assert!(!C::PING_PONG, "the consumers' additions hide behind each other's products");
        };
        // SAFETY: the caller's contract.
        unsafe {
            if C::Tile::GROUPS == 1 {
                self.one_group(&task, position)
            } else {
                self.two_groups(&task, position)
            }
        }
    }
}

impl ByBlocks {
    /// The products of a stage run while those of the stage before are added.
    #[inline(always)]
    unsafe fn one_group<C: Config>(self, task: &Task<C>, position: &mut Position) -> C::Tile {
        // SAFETY: the caller's contract: stages come, and blocks of factors that there are.
        unsafe {
            let mut cursor = Cursor::<1>::new(self, task);
            let mut even = Half::<C> { part: C::Tile::zero(), factors: cursor.next() };
            let mut odd = Half::<C> { part: C::Tile::zero(), factors: cursor.next() };
            let mut sums = C::Tile::zero();
            task.ring.wait_full(*position);
            task.issue(&mut even.part, 0, position.stage, false);
            // Stages whose products have not been issued.
            let mut left = task.k_tiles - 1;
            while left >= 2 {
                let ahead = cursor.next();
                even.add_beside(&mut odd, &mut sums, task, position);
                even.factors = ahead;
                let ahead = cursor.next();
                odd.add_beside(&mut even, &mut sums, task, position);
                odd.factors = ahead;
                left -= 2;
            }
            if left == 1 {
                even.add_beside(&mut odd, &mut sums, task, position);
                odd.add(&mut sums, task, position);
            } else {
                even.add(&mut sums, task, position);
            }
            sums
        }
    }

    /// One group after the other, of a stage after the other.
    #[inline(always)]
    unsafe fn two_groups<C: Config>(self, task: &Task<C>, position: &mut Position) -> C::Tile {
        // SAFETY: the caller's contract: stages come, and blocks of factors that there are.
        unsafe {
            let mut cursor = Cursor::<2>::new(self, task);
            let mut factors = cursor.next();
            let mut part = <C::Tile as Tile>::Group::zero();
            let mut sums = C::Tile::zero();
            let mut left = task.k_tiles;
            loop {
                let next = cursor.next();
                task.ring.wait_full(*position);
                unrolled!(GROUP in [0 1] {
                    task.issue(&mut part, GROUP as u32 * GROUP_ROWS, position.stage, false);
                    wgmma::wait_group::<0>();
                    part.fence();
                    if GROUP == 1 {
                        task.ring.release(position.stage, task.thread);
                    }
                    add(&mut sums, GROUP, &part, factors.of_group(GROUP));
                });
                factors = next;
                *position = position.next::<C>();
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            sums
        }
    }
}

/// Products of every second stage, with their factors.
struct Half<C: Config> {
    part: C::Tile,
    factors: Factors<1>,
}

impl<C: Config> Half<C> {
    /// Issues the next stage's products for `other`, and adds those at `position`, which have been issued, meanwhile.
    #[inline(always)]
    unsafe fn add_beside(
        &mut self,
        other: &mut Self,
        sums: &mut C::Tile,
        task: &Task<C>,
        position: &mut Position,
    ) {
        let stage = position.stage;
        *position = position.next::<C>();
        // SAFETY: the caller's contract; a stage is released after the products that read it.
        unsafe {
            task.ring.wait_full(*position);
            task.issue(&mut other.part, 0, position.stage, false);
            wgmma::wait_group::<1>();
            self.part.fence();
            task.ring.release(stage, task.thread);
        }
        add(sums, 0, &self.part, self.factors.of_group(0));
    }

    /// Adds the last products, those at `position`.
    #[inline(always)]
    unsafe fn add(&mut self, sums: &mut C::Tile, task: &Task<C>, position: &mut Position) {
        // SAFETY: as above.
        unsafe {
            wgmma::wait_group::<0>();
            self.part.fence();
            task.ring.release(position.stage, task.thread);
        }
        *position = position.next::<C>();
        add(sums, 0, &self.part, self.factors.of_group(0));
    }
}

/// Adds a group's part times the factors of the thread's two rows.
#[inline(always)]
fn add<T: Tile, G: Tile>(sums: &mut T, group: usize, part: &G, factors: [f32; 2]) {
    unrolled!(STEP in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
        const { assert!(T::COLUMNS == BLOCK && G::COLUMNS == BLOCK) };
        unrolled!(REGISTER in [0 1 2 3] {
            let index = 4 * STEP + REGISTER;
            let sum = fastmath::fma(part.get(0, index), factors[REGISTER / 2], sums.get(group, index));
            sums.set(group, index, sum);
        });
    });
}

/// A block's factors, as they were read: of the thread's two rows in each group, and of the tile's columns.
#[derive(Clone, Copy)]
struct Factors<const GROUPS: usize> {
    rows: [[f32; 2]; GROUPS],
    columns: f32,
}

impl<const GROUPS: usize> Factors<GROUPS> {
    #[inline(always)]
    fn of_group(self, group: usize) -> [f32; 2] {
        self.rows[group].map(|row| row * self.columns)
    }
}

/// Reads factors, a block of k after the other.
struct Cursor<const GROUPS: usize> {
    /// That of the thread's first row.
    row: *const f32,
    /// Rows that A has from there on.
    rows: u32,
    columns: *const f32,
    pitch: usize,
    /// Blocks behind this one.
    left: u32,
}

impl<const GROUPS: usize> Cursor<GROUPS> {
    /// From the first block on.
    #[inline(always)]
    fn new<C: Config>(factors: ByBlocks, task: &Task<C>) -> Self {
        let (lane, warp) = (task.thread % 32, task.thread / 32);
        let row = task.corner.row + warp * 16 + lane / 4;
        let across = task.problem.n.div_ceil(BLOCK) * task.corner.group;
        let block = (across + task.corner.column / BLOCK) as usize * task.k_tiles as usize;
        Self {
            row: factors.a.wrapping_add(row as usize),
            rows: task.problem.m.saturating_sub(row),
            columns: factors.b.wrapping_add(block),
            pitch: factors.a_pitch as usize,
            left: task.k_tiles - 1,
        }
    }

    /// The next block's factors; behind the last one it again. What is computed of rows that A does not have goes nowhere.
    #[inline(always)]
    unsafe fn next(&mut self) -> Factors<GROUPS> {
        let mut factors = Factors { rows: [[0.0; 2]; GROUPS], columns: 0.0 };
        // SAFETY: blocks and rows that there are, by the caller's contract.
        unsafe {
            factors.columns = self.columns.read();
            unrolled!(GROUP in [0 1] { if GROUP < GROUPS {
                unrolled!(HALF in [0 1] {
                    let row = GROUP * GROUP_ROWS as usize + HALF * 8;
                    if (row as u32) < self.rows {
                        factors.rows[GROUP % GROUPS][HALF] = self.row.add(row).read();
                    }
                });
            } });
        }
        if self.left > 0 {
            self.left -= 1;
            self.row = self.row.wrapping_add(self.pitch);
            self.columns = self.columns.wrapping_add(1);
        }
        factors
    }
}

/// Kernels: groups of 64 rows a consumer, cluster.
macro_rules! kernels {
    ($dollar:tt $(#[kernel] fn $name:ident as $config:ident: $groups:literal, cluster $m:literal x $n:literal;)*) => {
        $(
            /// The configuration of the kernel of this name.
            pub struct $config;

            impl Config for $config {
                type Operands = Pair<E4M3, E4M3, BF16, 0, 0>;
                type Tile = [[f32; BLOCK as usize / 2]; $groups];
                const CONSUMERS: u32 = 2;
                const PING_PONG: bool = false;
                const CLUSTER_M: u32 = $m;
                const CLUSTER_N: u32 = $n;
                const TRANSPOSED: bool = false;
                const COPIES_ONLY: bool = false;
            }

            /// `C = (A * factors) (B * factors)` for A `[m, k]`, B `[n, k]`, in E4M3, C in bf16 or f32. Of `arguments`, `terms` are not
            /// looked at, and there is no bias and no residual.
            ///
            /// # Safety
            /// As [`run`] for this configuration, with one product in the batch; `factors_a` points to
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
                // SAFETY: the caller's contract.
                unsafe { entry::<$config>(Maps { a, b, d }, arguments, data, sum) }
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
unsafe fn entry<C: Config>(maps: Maps, arguments: Arguments, data: *mut u8, sum: ByBlocks) {
    let Arguments { problem, row, matrix, is_f32, aligned, copied, .. } = arguments;
    let output = Output { data, row, matrix, is_f32, aligned, copied, halved: false };
    let none = Vectors::new(core::ptr::null(), 0, 0, is_f32, false);
    let terms = Terms { alpha: 1.0, beta: 0.0, activation: 0 };
    let epilogue: Fused<BF16> = Fused::new(terms, none, none, none, core::ptr::null_mut());
    // SAFETY: the caller's contract.
    unsafe { run::<C, _, _>(maps, problem, sum, output, epilogue) }
}

kernels! { $
    #[kernel] fn gemm_e4m3_blocks_nt_128x128 as Blocks128x128: 1, cluster 1 x 1;
    #[kernel] fn gemm_e4m3_blocks_nt_128x128_c2 as Blocks128x128C2: 1, cluster 2 x 1;
    #[kernel] fn gemm_e4m3_blocks_nt_256x128 as Blocks256x128: 2, cluster 1 x 1;
}
