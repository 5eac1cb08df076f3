//! 8-bit products with factors for blocks: of A one for each row and 128 elements of k, of B one for each 128 columns and 128
//! elements of k, as 8-bit models are trained and stored.

use cuda_std::kernel;
use cuda_std::tma::TensorMap;
use cuda_std::wgmma::{BF16, E4M3, ElementType};

use super::config::Config;
use super::entries::{Arguments, Entry};
use super::epilogue::{Fused, Terms, Vectors};
use super::kernel::run;
use super::operands::Pair;
use super::problem::Maps;
use super::store::Output;
use super::sum::ByBlocks;

/// Elements of k, and columns of B, that have a factor in common.
pub const BLOCK: u32 = 128;

/// The configuration of [`gemm_e4m3_blocks_nt_128x128`](fn@gemm_e4m3_blocks_nt_128x128): 64 accumulators a thread, and the sums of one
/// stage beside them.
pub struct Blocks128x128;

impl Config for Blocks128x128 {
    type Operands = Pair<E4M3, E4M3, BF16, 0, 0>;
    type Tile = [[f32; BLOCK as usize / 2]; 1];
    const CONSUMERS: u32 = 2;
    const PING_PONG: bool = false;
    const CLUSTER_M: u32 = 1;
    const CLUSTER_N: u32 = 1;
    const TRANSPOSED: bool = false;
    const COPIES_ONLY: bool = false;
}

/// What the host needs to know of the kernel.
pub const ENTRY: Entry = Entry::of::<Blocks128x128>("gemm_e4m3_blocks_nt_128x128", ElementType::Bf16);

/// `C = (A * factors) (B * factors)` for A `[m, k]`, B `[n, k]`, in E4M3, C in bf16 or f32. Of `arguments`, `terms` are not looked at,
/// and there is no bias and no residual.
///
/// # Safety
/// As [`run`] for [`Blocks128x128`], with one product in the batch; `factors_a` points to `[k / 128 rounded up][pitch_a]` factors, `pitch_a` at
/// least m, and `factors_b` to `[n / 128 rounded up][k / 128 rounded up]`.
#[kernel(launch_bounds(<Blocks128x128 as Config>::THREADS, 1))]
pub unsafe fn gemm_e4m3_blocks_nt_128x128(
    a: &TensorMap,
    b: &TensorMap,
    d: &TensorMap,
    arguments: Arguments,
    data: *mut u8,
    factors_a: *const f32,
    pitch_a: u32,
    factors_b: *const f32,
) {
    let Arguments { problem, row, matrix, is_f32, aligned, copied, .. } = arguments;
    let output = Output { data, row, matrix, is_f32, aligned, copied, halved: false };
    let none = Vectors::new(core::ptr::null(), 0, 0, is_f32, false);
    let terms = Terms { alpha: 1.0, beta: 0.0, activation: 0 };
    let epilogue: Fused<BF16> = Fused::new(terms, none, none, none, core::ptr::null_mut());
    let sum = ByBlocks { a: factors_a, a_pitch: pitch_a, b: factors_b };
    // SAFETY: the caller's contract.
    unsafe { run::<Blocks128x128, _, _>(Maps { a, b, d }, problem, sum, output, epilogue) }
}
