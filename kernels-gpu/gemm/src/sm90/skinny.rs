//! The kernels of [`crate::skinny`] for 8-bit factors: two neighbours along k in a word, which become f16 on
//! their way to the tensor cores.

use cuda_std::{convert, kernel, mma};

use crate::any::StridedGemm;
use crate::epilogue::EpilogueParams;
use crate::skinny::{THREADS, Word, kernels, run};

/// Two 8-bit numbers side by side.
pub(crate) trait Pair: Copy + 'static {
    fn of(bits: u16) -> Self;
    /// As f16, packed: exact.
    fn widen(self) -> u32;
}

macro_rules! pairs {
    ($($name:ident: $widen:ident;)*) => { $(
        #[derive(Clone, Copy)]
        pub(crate) struct $name(u16);

        impl Pair for $name {
            #[inline(always)]
            fn of(bits: u16) -> Self {
                Self(bits)
            }

            #[inline(always)]
            fn widen(self) -> u32 {
                convert::$widen(self.0)
            }
        }
    )* };
}

pairs! {
    E4m3x2: f16x2_from_e4m3x2;
    E5m2x2: f16x2_from_e5m2x2;
}

impl<P: Pair> Word for P {
    const BYTES: u32 = 1;

    /// Both factors hold four neighbours along k where a fragment has two pairs eight apart: taken for these
    /// in both, their products meet, and the order of a sum's terms is all that changes.
    #[inline(always)]
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        let (low, high) = (|x: u32| P::of(x as u16).widen(), |x: u32| P::of((x >> 16) as u16).widen());
        // SAFETY: the caller's contract.
        unsafe {
            let first = [low(a[0]), low(a[1]), high(a[0]), high(a[1])];
            let c = mma::m16n8k16_f32_f16(first, [low(b[0]), high(b[0])], c);
            let second = [low(a[2]), low(a[3]), high(a[2]), high(a[3])];
            mma::m16n8k16_f32_f16(second, [low(b[1]), high(b[1])], c)
        }
    }
}

kernels! {
    #[kernel] fn gemm_skinny_e4m3_nt: E4m3x2, true, "E4M3 factors with columns of B contiguous";
    #[kernel] fn gemm_skinny_e5m2_nt: E5m2x2, true, "E5M2 factors with columns of B contiguous";
}
