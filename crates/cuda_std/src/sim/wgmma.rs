//! The executor's warpgroup products: computed when the last thread comes, see `simt::wgmma`.

use simt::wgmma::{Format, Left, Major, Shared};

use crate::wgmma::{Accumulator, ElementType, Operand};

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

const fn format(element: ElementType) -> Format {
    match element {
        ElementType::F16 => Format::F16,
        ElementType::Bf16 => Format::Bf16,
        ElementType::Tf32 => Format::Tf32,
        ElementType::E4m3 => Format::E4m3,
        ElementType::E5m2 => Format::E5m2,
    }
}

const fn shared(descriptor: u64, transposed: u32) -> Shared {
    Shared { descriptor, major: if transposed == 0 { Major::K } else { Major::MN } }
}

#[track_caller]
pub unsafe fn mma<A: Operand, B: Operand, Acc: Accumulator, const TRANS_A: u32, const TRANS_B: u32>(
    acc: &mut Acc,
    a: u64,
    b: u64,
    scale_d: bool,
) {
    let formats = [format(A::TYPE), format(B::TYPE)];
    let (a, b) = (Left::Shared(shared(a, TRANS_A)), shared(b, TRANS_B));
    simt::wgmma::mma(acc.as_mut_slice(), formats, a, b, scale_d);
}

#[track_caller]
pub unsafe fn mma_ra<A: Operand, B: Operand, Acc: Accumulator, const TRANS_B: u32>(
    acc: &mut Acc,
    a: &[u32; 4],
    b: u64,
    scale_d: bool,
) {
    let formats = [format(A::TYPE), format(B::TYPE)];
    simt::wgmma::mma(acc.as_mut_slice(), formats, Left::Registers(*a), shared(b, TRANS_B), scale_d);
}

#[track_caller]
pub unsafe fn fence() {
    simt::wgmma::fence();
}

#[track_caller]
pub unsafe fn commit_group() {
    simt::wgmma::commit();
}

#[track_caller]
pub unsafe fn wait_group<const PENDING: u32>() {
    simt::wgmma::wait(PENDING);
}

pub fn fence_registers<Acc: Accumulator>(_acc: &mut Acc) {}
