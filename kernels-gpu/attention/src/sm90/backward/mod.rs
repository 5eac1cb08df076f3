//! The backward pass: `dV = P^T dO`, `dP = dO V^T`, `dS = P (dP - D)`, `dK = scale dS^T Q`,
//! `dQ = scale dS K`, with `P = e^(scale S - L)` from the log-sum-exps `L` of the forward pass and
//! `D = rowsum(dO O)`.
//!
//! Two launches, or three, and one for sinks:
//!
//! | kernel | |
//! |---|---|
//! | [`prepare`](crate::backward::prepare) | `D`, `L` in base 2; zeros for sums of dQ, but for whole heads |
//! | [`main_pass`] | dK and dV; adds up dQ in f32 |
//! | [`finish`] | dQ, scaled and rounded |
//! | [`whole`] | in place of both: dK, dV and dQ of whole heads |
//! | [`sinks`](crate::backward::sinks) | the gradients of sinks, if there are any |
//!
//! ```text
//!   a block of threads has 128 keys and goes over the queries that see them, BLOCK_M at a time:
//!     producer     K, V | Q0, L0 | dO0, D0 | Q1, L1 | dO1, D1 | ...                               (1 thread)
//!     consumer 0   its 64 keys: S^T | dP^T beside P^T | dV += P^T dO beside dS^T |
//!                  dQ of the last tile = dS K | dK += dS^T Q beside adding dQ
//!     consumer 1   its 64 keys, the same
//! ```
//! Scores are computed transposed, keys by queries. So a consumer's P and dS are left operands in registers
//! for dV and dK. dQ needs dS of both consumers, through shared memory, where it lies as it is computed:
//! `wgmma` reads it as a transposed left operand. It is multiplied a turn later, so that the consumers need
//! not meet: one may be most of a turn ahead, and one's exponentials run beside the other's products. Each
//! consumer computes a half of dQ and adds it to f32 sums in global memory, in the order of its registers,
//! 16 bytes a thread. The order of blocks is free, so dQ is not the same bit for bit from run to run.
//!
//! For short sequences a block goes through all keys of a head, or shares them with a second one, so no zeros
//! and no last kernel are needed ([`whole`]).
//!
//! For rows of more than 128 elements two blocks of a cluster share the keys out (`pair.rs`). Values may be
//! shorter than keys there ([`config::Config::VALUE_HEAD`]; `three_boxes.rs`).
//!
//! The producer writes a ticket for each tile of queries to shared memory, from which consumers read its
//! place when they need it: registers are for products.
//!
//! With a score function `f`, `P = e^(f(scale S) - L)` and `dS = P f' (dP - D)` (`functions`). Its kernels
//! look at the tiles of queries that are listed for the keys ([`crate::block_lists`]), or at every tile that
//! the band shows, asking the mask in each. In a pair the consumer that has dV calls the function, and passes
//! `P f'` on in place of `P`. Places of scores do not all fit beside the accumulators: they
//! spill (`kernels-gpu/budget.toml`).

pub mod arguments;
pub mod config;
mod consumer;
pub mod finish;
mod foreign;
mod functions;
pub mod heads;
pub mod instances;
pub mod main_pass;
pub mod order;
mod pair;
mod queries;
mod results;
mod three_boxes;
pub mod whole;
mod work;
