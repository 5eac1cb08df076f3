//! Matrix products on Hopper's tensor cores: TMA copies tiles of A and B into a pipeline of stages,
//! warpgroups multiply them by `wgmma`.
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
//! * **Pipeline.** [`Config::STAGES`](config::Config::STAGES) stages, each with two barriers. `full` counts
//!   the bytes that have come; `empty` the consumers that have left. The producer runs ahead over the tiles'
//!   borders, so that a store hides the first copies of the next tile.
//! * **Clusters.** Blocks of a cluster that need the same rows of A or columns of B copy a part each, to all
//!   of them at once. A stage is then empty when the consumers of all blocks that write it, or that this one
//!   writes, have left it. Tiles of 128 rows and 96 to 144 columns of 8 and 16 bits, and some of 256 columns
//!   of 16 bits, take clusters of any shape ([`ANY_CLUSTER`](config::Config::ANY_CLUSTER)): a launch says
//!   which, so one kernel serves large products and few tiles whose rows begin off the lines of L2.
//! * **Tile scheduler.** As many clusters as run at once take tile after tile, in raster groups
//!   ([`layout::grouped_tile`]).
//! * **k** is summed in ascending order, 32 bytes an instruction, in one accumulator: results are bitwise
//!   repeatable and do not depend on the grid. Where tiles are few and k is long, two blocks of a cluster
//!   split k ([`cluster_split_k`]), or the host cuts k into a batch of parts, and [`split_k`] adds them in
//!   their order. What lies outside of the operands counts as zero, so any m, n, k will do; TMA wants rows
//!   that begin at multiples of 16 bytes; other operands of tf32 [threads copy](direct).
//! * **Epilogue.** Results leave through a fusion, in registers, then by the copy engine where it can store
//!   them, else by the threads.
//!
//! # A fusion of one's own
//! The mainloop takes any function of the product's elements ([`Fusion`](fusion::Fusion)); here their
//! squares, in a kernel of another package:
//!
//! ```
//! use cuda_std::kernel;
//! use cuda_std::tma::TensorMap;
//! use ironwarp_gemm::sm90::config::Config;
//! use ironwarp_gemm::sm90::epilogue::{Output, OutputParams, OutputType, store_with};
//! use ironwarp_gemm::sm90::fusion::{FragmentCoord, Fusion, Pairs};
//! use ironwarp_gemm::sm90::instances::Bf16Nt128x256;
//! use ironwarp_gemm::sm90::mainloop::{InAccumulators, Maps, run};
//! use ironwarp_gemm::sm90::tile_scheduler::{GemmShape, PersistentScheduler};
//!
//! #[derive(Clone, Copy)]
//! struct Squares;
//!
//! impl Fusion for Squares {
//!     unsafe fn apply<const N: usize>(&mut self, _: FragmentCoord, x: &mut Pairs<N>) {
//!         *x = x.map(|pair| pair.map(|x| x * x));
//!     }
//! }
//!
//! #[kernel(launch_bounds(<Bf16Nt128x256 as Config>::THREADS, 1))]
//! pub unsafe fn squared_product(a: &TensorMap, b: &TensorMap, shape: GemmShape, c: *mut u8, row: u64) {
//!     let params = OutputParams::new(row, OutputType::F32);
//!     let output = Output::new(c, &params);
//!     let maps = Maps { a, b, c: a, source: a };
//!     let scheduler = PersistentScheduler::new::<Bf16Nt128x256>(&shape);
//!     // SAFETY: whoever launches it passes maps as `Maps` says, and a `c` with room for the result.
//!     unsafe {
//!         let epilogue = store_with(maps, shape, output, Squares);
//!         run::<Bf16Nt128x256, _, _, _>(maps, shape, scheduler, InAccumulators, epilogue)
//!     }
//! }
//! # fn main() {}
//! ```
//!
//! | file | |
//! |---|---|
//! | [`instances`] | the kernels: their arguments and the table of them |
//! | [`config`] | what a kernel is made of; the plan of its shared memory |
//! | [`tile_scheduler`] | the shape of a product, and the order of its tiles |
//! | [`mainloop`] | producer and consumers |
//! | [`direct`] | operands of 32 bits that threads copy as they lie |
//! | `from_registers` | consumers of tf32 whose A is not contiguous along k |
//! | [`epilogue`] | from the accumulators to memory, for the product itself |
//! | [`scatter`] | from the accumulators to rows that lie anywhere |
//! | [`fusion`], `fused_store`, [`subtile`] | the same through a function of the elements |
//! | `column_store` | whole tiles, where the function asks for the column alone |
//! | `f32_store` | the product itself in f32, by the copy engine |
//! | `row_store` | rows of the result that begin anywhere |
//! | [`operands`], [`output`] | types, storage orders, accumulators; where the result goes |
//! | [`barriers`] | those beside the stages': whose turn it is to multiply |
//! | [`cluster_split_k`], [`split_k`] | k in shares of a cluster's blocks, and in parts that go through memory |
//! | [`plain_sums`] | those parts added where no more than factors and source C go with them |
//! | `four` | four neighbours of a result at a time |
//! | [`grouped`], [`block_scaled`] | groups of rows, and 8-bit products with factors for blocks |
//! | [`skinny`] | few rows in 8 bits, without any of these |

pub mod barriers;
#[cfg(feature = "kernels")]
pub mod block_scaled;
pub mod cluster_split_k;
mod column_store;
pub mod config;
pub mod direct;
pub mod epilogue;
mod f32_store;
#[cfg(feature = "kernels")]
mod four;
#[cfg(feature = "kernels")]
mod from_registers;
mod fused_store;
pub mod fusion;
#[cfg(feature = "kernels")]
pub mod grouped;
#[cfg(feature = "kernels")]
pub mod instances;
pub mod mainloop;
pub mod operands;
pub mod output;
#[cfg(feature = "kernels")]
pub mod plain_sums;
mod row_store;
pub mod scatter;
#[cfg(feature = "kernels")]
pub mod skinny;
#[cfg(feature = "kernels")]
pub mod split_k;
pub mod subtile;
pub mod tile_scheduler;
#[cfg(feature = "kernels")]
pub mod training;
mod vectors;
