//! The backward pass by the tensor cores of every device since Ampere: `dV = P^T dO`, `dP = dO V^T`,
//! `dS = P (dP - D)`, `dK = scale dS^T Q`, `dQ = scale dS K`, with `P = e^(scale S - L)` from the
//! log-sum-exps `L` of the forward pass and `D = rowsum(dO O)`.
//!
//! | kernel | |
//! |---|---|
//! | [`prepare`](crate::backward::prepare) | `D` and `L` in base 2, a number a row |
//! | [`keys`] | dK and dV: a block owns a tile of keys, and goes over the queries that see them |
//! | [`queries`] | dQ: a block owns a tile of queries, and goes over the keys that they see |
//! | [`sinks`](crate::backward::sinks) | the gradients of sinks, if there are any |
//!
//! Scores are computed twice: seven products in place of five. For that each gradient is summed in the
//! registers of one warp, in one order. Nothing is added in memory, so results repeat bit for bit.
//!
//! ```text
//!   keys        tiles of queries of all heads of the group, that see the tile of keys
//!             +---------+---------+-------+
//!   warp 0    |   S0^T  |   S1^T  |  ...  |    copy 0 | wait 0, copy 1, use 0 | wait 1, copy 2, use 1 | ..
//!   warp 1    |         |         |       |
//!    ...      |         |         |       |    use: S^T = K Q^T, P^T | dP^T = V dO^T, dS^T |
//!   warp 7    |         |         |       |         dV += P^T dO, dK += dS^T Q
//!             +---------+---------+-------+
//!   queries     blocks of keys                 use: S = Q K^T, P | dP = dO V^T, dS | dQ += dS K
//! ```
//! A warp has 16 rows of its block. Scores are computed transposed in the kernel of keys, so in both kernels
//! P and dS are left operands where they come to be, in registers. The rows that come, with L and D, lie in a
//! ring of two stages.
//!
//! Of rows beyond 128 elements dK and dV of 16 keys are more than a thread's registers. There two warps share
//! the keys. One computes S, P and dV. The other one computes dP meanwhile, takes P, rounded, from shared
//! memory, and computes dS and dK.
//!
//! | head size | own rows | others | warps of keys, of queries | shared memory |
//! |---|---|---|---|---|
//! | up to 64 | 64 | 64 | 4, 4 | 49 KiB |
//! | up to 128 | 128 | 32 | 8, 8 | 96.5 KiB |
//! | up to 256 | 64 | 16 | 8, 4 | 98.25 KiB |
//!
//! | file | |
//! |---|---|
//! | [`instances`] | the kernels and the table of them |
//! | [`config`] | what they are made of; the plan of their shared memory |
//! | [`arguments`] | the arguments of both |
//! | `ring` | the loop of both |
//! | `scores` | P and dS |

pub mod arguments;
pub mod config;
pub mod instances;
pub mod keys;
pub mod queries;
mod ring;
mod scores;
