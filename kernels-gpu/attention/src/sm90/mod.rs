//! Attention on Hopper: TMA copies tiles of Q, K and V, warpgroups multiply them by `wgmma`, and the weights
//! `P` of a block of keys go from one product to the next in registers (FlashAttention-3, Shah and others
//! 2024).
//!
//! ```text
//!             block of keys j                    a block of threads, for each tile of queries:
//!            +----------------+
//!            |  K, V (stages) |     producer     K0 | Q | K1 | V0 | K2 | V1 | ...                       (1 thread)
//!  +-----+   +----------------+     consumer 0   S0 = QK0, softmax | S1 = QK1 beside O += P0 V0 | softmax | ...
//!  |  Q  |   | consumer 0: 64 |     consumer 1   the same for its own queries, half a turn later
//!  | 64 a|   +----------------+
//!  | cons|   | consumer 1: 64 |
//!  +-----+   +----------------+
//! ```
//! * **In a consumer** the scores of block `j + 1` are multiplied while the softmax of block `j` is computed,
//!   and `P V` runs one block behind.
//! * **Between consumers** turns are taken at issuing products ([`forward::Barrier::Turn`]), so that one
//!   computes exponentials while the other multiplies. At head size 128 they cost more than they gain.
//! * **Softmax** has base 2: `p = 2^(s c - m c)` with `c = scale log2 e`, one fused multiply-add and one
//!   `ex2` an element; the row's sum stays in its threads until the end.
//! * **Masks** cost a compare in blocks that some query does not see whole; other blocks run without.
//! * **Head sizes** between those of the table use the next larger one: the copy engine fills with zeros. So
//!   it does where values have another one than keys; [`config::Config::VALUE_HEAD`] is for kernels of two.
//!
//! | file | |
//! |---|---|
//! | [`instances`] | the kernels and the table of them |
//! | [`config`] | what a kernel is made of; the plan of its shared memory |
//! | [`forward`] | producer and consumers |
//! | `scores` | score functions and masks |
//! | `line` | biases by the distance from the diagonal |
//! | `results` | from registers to memory |
//! | [`backward`] | gradients |
//! | [`fp8`] | the forward pass of e4m3 operands |
//! | [`schedule`] | which tile a block computes next |
//! | [`fragments`] | accumulators as scores, weights and results |
//! | [`softmax`](crate::softmax) | the running maximum and sum of a thread's two rows |

pub mod backward;
pub mod config;
pub mod forward;
pub mod fp8;
pub mod fragments;
pub mod instances;
mod line;
mod results;
pub mod schedule;
mod scores;
#[cfg(feature = "kernels")]
pub mod with_functions;
