//! The executor's warpgroup products.

use crate::wgmma::{Accumulator, Operand};

/// One thread's accumulators.
pub trait Registers {
    /// All of them, in the order of the fragment.
    fn as_mut_slice(&mut self) -> &mut [f32];
}

impl<const LEN: usize> Registers for [f32; LEN] {
    fn as_mut_slice(&mut self) -> &mut [f32] {
        self
    }
}

#[track_caller]
pub unsafe fn mma<A: Operand, B: Operand, Acc: Accumulator, const TRANS_A: u32, const TRANS_B: u32>(
    acc: &mut Acc,
    a: u64,
    b: u64,
    scale_d: bool,
) {
    let _ = (acc.as_mut_slice(), a, b, scale_d, A::TYPE, B::TYPE, Acc::N);
    simt::trap("wgmma::mma is not modelled yet")
}

#[track_caller]
pub unsafe fn mma_ra<A: Operand, B: Operand, Acc: Accumulator, const TRANS_B: u32>(
    acc: &mut Acc,
    a: &[u32; 4],
    b: u64,
    scale_d: bool,
) {
    let _ = (acc.as_mut_slice(), a, b, scale_d, A::TYPE, B::TYPE, Acc::N);
    simt::trap("wgmma::mma_ra is not modelled yet")
}

#[track_caller]
pub unsafe fn fence() {
    simt::trap("wgmma::fence is not modelled yet")
}

#[track_caller]
pub unsafe fn commit_group() {
    simt::trap("wgmma::commit_group is not modelled yet")
}

#[track_caller]
pub unsafe fn wait_group<const PENDING: u32>() {
    simt::trap("wgmma::wait_group is not modelled yet")
}

pub fn fence_registers<Acc: Accumulator>(_acc: &mut Acc) {}
