//! Matrix products on Hopper's tensor cores: TMA copies tiles of A and B into a ring of stages, warpgroups multiply them by `wgmma`.
//!
//! ```text
//!            +--- B: BLOCK_N columns ---+        a block, for each tile of C:
//!            |    stage of 128 bytes    |
//!            |    of k                  |        producer     empty? copy k=0 | empty? copy k=1 | ...      (1 thread)
//!  +-----+   +--------------------------+        consumer 0          full? multiply k=0 | k=1 | ... | store
//!  | A   |   |  consumer 0: 64 rows,    |        consumer 1          full? multiply k=0 | k=1 | ... | store
//!  | BLO |   |  or 128                  |
//!  | CK_M|   +--------------------------+        with PING_PONG a consumer has a tile of its own:
//!  |     |   |  consumer 1              |
//!  +-----+   +--------------------------+        consumer 0   multiply tile 0 | store        | multiply tile 2 ...
//!                                                consumer 1                   | multiply t 1 | store          ...
//! ```
//! * **Ring.** [`Config::STAGES`](config::Config::STAGES) stages, each with two barriers. `full` counts the bytes that have come; `empty` the
//!   consumers that have left. The producer runs ahead over the tiles' borders, so that a store hides the first copies of the next tile.
//! * **Clusters.** Blocks of a cluster that need the same rows of A or columns of B copy a part each, to all of them at once. A
//!   stage is then empty when the consumers of all blocks that write it, or that this one writes, have left it.
//! * **Persistence.** As many clusters as run at once walk the tiles in bands ([`layout::grouped_tile`]).
//! * **k** is summed in ascending order, 32 bytes an instruction, in one accumulator: results are bitwise repeatable and do not depend on
//!   the grid. Where tiles are few and k is long, two blocks of a cluster share k out ([`exchange`]), or the host cuts k into a batch of parts, and [`parts`] adds them in their order. What lies outside of the operands counts as zero, so any m, n, k will do; TMA wants rows that begin at multiples of 16 bytes.
//! * **Results** leave through the epilogue, in registers, then by the copy engine where it can store them, else by the threads ([`store`]).
//!
//! # An epilogue of one's own
//! The main loop takes any function of the product's elements ([`Epilogue`](epilogue::Epilogue)); here their squares, in a kernel of another
//! package:
//!
//! ```
//! use cuda_std::kernel;
//! use cuda_std::tma::TensorMap;
//! use gemm::sm90::config::Config;
//! use gemm::sm90::entries::Bf16Nt128x256;
//! use gemm::sm90::epilogue::{At, Epilogue, Pairs};
//! use gemm::sm90::kernel::run;
//! use gemm::sm90::problem::{Maps, Problem, Tiles};
//! use gemm::sm90::store::{Number, Output, stored};
//! use gemm::sm90::sum::Whole;
//!
//! #[derive(Clone, Copy)]
//! struct Squares;
//!
//! impl Epilogue for Squares {
//!     unsafe fn apply<const N: usize>(&mut self, _: At, x: &mut Pairs<N>) {
//!         *x = x.map(|pair| pair.map(|x| x * x));
//!     }
//! }
//!
//! #[kernel(launch_bounds(<Bf16Nt128x256 as Config>::THREADS, 1))]
//! pub unsafe fn squared_product(a: &TensorMap, b: &TensorMap, problem: Problem, c: *mut u8, row: u64) {
//!     let output = Output::new(c, row, Number::F32);
//!     // SAFETY: whoever launches it passes maps as `Maps` says, and a `c` with room for the result.
//!     unsafe {
//!         let maps = Maps { a, b, d: a };
//!         let sink = stored(maps, problem, output, Squares);
//!         run::<Bf16Nt128x256, _, _, _>(maps, problem, Tiles::new::<Bf16Nt128x256>(&problem), Whole, sink)
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! | file | |
//! |---|---|
//! | [`entries`] | the kernels, their arguments and the table of them |
//! | [`blocks`] | 8-bit products with factors for blocks |
//! | [`grouped`] | products of groups of rows |
//! | [`config`] | what a kernel is made of; the plan of its shared memory |
//! | [`operands`] | types, storage orders, accumulators |
//! | [`problem`] | shape, maps, the walk over tiles |
//! | [`pipeline`] | the ring |
//! | [`kernel`] | producer and consumers |
//! | [`sum`] | how a consumer sums a tile |
//! | [`exchange`] | the sums of two shares of k, added through the cluster's shared memory |
//! | [`parts`] | the sums of parts of k, added and finished |
//! | [`skinny`] | few rows in 8 bits, without any of these |
//! | [`mod@store`], [`piece`], [`epilogue`] | from the accumulators to memory |

#[cfg(feature = "kernels")]
pub mod blocks;
pub mod config;
#[cfg(feature = "kernels")]
pub mod entries;
pub mod epilogue;
pub mod exchange;
#[cfg(feature = "kernels")]
pub mod grouped;
pub mod kernel;
pub mod operands;
#[cfg(feature = "kernels")]
pub mod parts;
pub mod piece;
pub mod pipeline;
pub mod problem;
#[cfg(feature = "kernels")]
pub mod skinny;
pub mod store;
pub mod sum;
