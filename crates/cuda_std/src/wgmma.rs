//! Matrix multiply-accumulate by a warpgroup on Hopper's tensor cores, with operands in shared memory:
//! `wgmma`. sm_90a.
//!
//! Four warps, the first of them a multiple of four, together compute `D = A B + D` (or `D = A B`), where A
//! is 64 x K, B is K x N, and D is 64 x N in f32. N is a multiple of 8 up to 256, given by the accumulator's
//! type: `[f32; N / 2]`. K is 32 bytes of the operands' type: 16 of f16 and bf16, 8 of tf32, 32 of e4m3 and
//! e5m2.
//!
//! # The accumulator
//! Thread `t` of the warpgroup, with `g = t % 32 / 4` and `q = t % 4`, holds, for `j` in `0..N / 8`:
//!
//! ```text
//! acc[4 j + 0], acc[4 j + 1]   row 16 (t / 32) + g,      columns 8 j + 2 q, 8 j + 2 q + 1
//! acc[4 j + 2], acc[4 j + 3]   row 16 (t / 32) + g + 8,  the same columns
//! ```
//!
//! A in registers ([`mma_ra`]) is laid out as A of [`mma`](crate::mma) with the same 16 rows a warp: four
//! registers, for 16 bits those of `m16n8k16`, for tf32 those of `m16n8k8`. Of e4m3 and e5m2 each holds four,
//! the first in the low byte:
//!
//! ```text
//! [ (g, 4q..4q+4), (g+8, 4q..4q+4), (g, 4q+16..4q+20), (g+8, 4q+16..4q+20) ]   (row, k)
//! ```
//!
//! # Operands in shared memory
//! They are named by 64-bit descriptors, which `layout::wgmma::descriptor` makes of an address, two strides
//! and a swizzle, the same one that the tensor map of the load names. 16-bit operands may be stored either
//! way round: with `TRANS_A` (`TRANS_B`) 0, the elements of a row of A (a column of B) are contiguous, as for
//! all other types; with 1, those of a column of A (a row of B).
//!
//! # Asynchrony
//! Products run beside the thread, in order. The way of a kernel:
//!
//! ```ignore
//! wgmma::fence_registers(&mut acc);
//! wgmma::fence();                    // registers and shared memory as they are now
//! wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, b, true);   // any number
//! wgmma::commit_group();             // closes them into a group
//! wgmma::wait_group::<0>();          // at most 0 groups unfinished
//! wgmma::fence_registers(&mut acc);  // now acc can be read
//! ```
//!
//! Shared memory that threads wrote is fenced by
//! [`fence::proxy_async_shared`](crate::fence::proxy_async_shared) before; what the copy engine wrote needs
//! nothing more than the wait at its mbarrier.
//!
//! # Accuracy
//! Products are exact. The order and the width of the sum are the hardware's own, and sums may lose low bits
//! (for fp8 more than for the others); the executor adds in f32 in the order of `k`. Results agree bit for
//! bit where every partial sum is exact.
//!
//! # Safety
//! Every function here that is `unsafe`: all 128 threads of the warpgroup reach the same call together, with
//! the same descriptors. Between the first product of a group and the end of the wait for it, nothing touches
//! the accumulator or A's registers, and nothing writes the operands in shared memory. [`fence`] lies between
//! any other use of the registers and the first product.

#[cfg(not(target_arch = "nvptx64"))]
use simt::wgmma::{Format, Left, Major, Shared};

// Intrinsics, not `asm!`: LLVM knows that they are convergent and so does not move them across branches.
#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.wgmma.fence.sync.aligned"]
    fn fence_aligned();
    #[link_name = "llvm.nvvm.wgmma.commit_group.sync.aligned"]
    fn commit_group_aligned();
    #[link_name = "llvm.nvvm.wgmma.wait_group.sync.aligned"]
    fn wait_group_aligned(pending: u64);
}

#[cfg(not(target_arch = "nvptx64"))]
const fn format(element: ElementType) -> Format {
    match element {
        ElementType::F16 => Format::F16,
        ElementType::Bf16 => Format::Bf16,
        ElementType::Tf32 => Format::Tf32,
        ElementType::E4m3 => Format::E4m3,
        ElementType::E5m2 => Format::E5m2,
    }
}

#[cfg(not(target_arch = "nvptx64"))]
const fn shared(descriptor: u64, transposed: u32) -> Shared {
    Shared { descriptor, major: if transposed == 0 { Major::K } else { Major::MN } }
}

mod registers;
mod sealed {
    pub trait Sealed {}
}

/// The types that the tensor cores multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// f32 whose low 13 bits are not read.
    Tf32,
    /// 8 bits, 4 of exponent.
    E4m3,
    /// 8 bits, 5 of exponent.
    E5m2,
}

impl ElementType {
    /// Bytes of an element.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::Tf32 => 4,
            Self::E4m3 | Self::E5m2 => 1,
        }
    }

    /// Elements of k in one product: 32 bytes.
    pub const fn k(self) -> u32 {
        32 / self.bytes()
    }

    const fn is_fp8(self) -> bool {
        matches!(self, Self::E4m3 | Self::E5m2)
    }
}

/// An operand's type, as a type.
pub trait Operand: sealed::Sealed {
    /// The element.
    const TYPE: ElementType;
}

macro_rules! operands {
    ($($name:ident = $element:ident;)*) => { $(
        #[doc = concat!("Operands of [`ElementType::", stringify!($element), "`].")]
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl sealed::Sealed for $name {}
        impl Operand for $name {
            const TYPE: ElementType = ElementType::$element;
        }
    )* };
}

operands! {
    F16 = F16;
    BF16 = Bf16;
    TF32 = Tf32;
    E4M3 = E4m3;
    E5M2 = E5m2;
}

/// One thread's part of D, `[f32; N / 2]` for `N` in 8, 16, .., 256.
pub trait Accumulator: registers::Registers + sealed::Sealed {
    /// Columns of D.
    const N: u32;
}

const fn assert_types(a: ElementType, b: ElementType) {
    assert!(
        a as u8 == b as u8 || (a.is_fp8() && b.is_fp8()),
        "wgmma multiplies operands of one type, except that e4m3 and e5m2 mix"
    );
}

const fn assert_order(element: ElementType, transposed: u32) {
    assert!(transposed <= 1, "TRANS_A and TRANS_B are 0 or 1");
    assert!(transposed == 0 || element.bytes() == 2, "only 16-bit operands can be stored transposed");
}

/// Starts `acc = A B + acc`, or `acc = A B` when `scale_d` is false, with both operands in shared memory,
/// named by their descriptors.
///
/// # Safety
/// As the module says; the descriptors name operands of the block's shared memory.
///
/// # PTX
/// `wgmma.mma_async.sync.aligned.m64nNkK.f32.A.B acc, a, b, scale_d, 1, 1[, TRANS_A, TRANS_B]`
#[inline(always)]
#[track_caller]
pub unsafe fn mma<A: Operand, B: Operand, Acc: Accumulator, const TRANS_A: u32, const TRANS_B: u32>(
    acc: &mut Acc,
    a: u64,
    b: u64,
    scale_d: bool,
) {
    const {
        assert_types(A::TYPE, B::TYPE);
        assert_order(A::TYPE, TRANS_A);
        assert_order(B::TYPE, TRANS_B);
    }
    arms! {
        // SAFETY: the caller vouches for the product.
        ptx: { unsafe { acc.mma::<A, B, TRANS_A, TRANS_B>(a, b, u32::from(scale_d)) } }
        sim: {
            let formats = [format(A::TYPE), format(B::TYPE)];
            let (a, b) = (Left::Shared(shared(a, TRANS_A)), shared(b, TRANS_B));
            simt::wgmma::mma(acc.as_mut_slice(), formats, a, b, scale_d);
        }
    }
}

/// Starts `acc = A B`. What was in the accumulator is not read, so its registers are free for other values
/// until here: with [`mma`], the compiler keeps them.
///
/// # Safety
/// As for [`mma`].
///
/// # PTX
/// `wgmma.mma_async.sync.aligned.m64nNkK.f32.A.B acc, a, b, false, 1, 1[, TRANS_A, TRANS_B]`
#[inline(always)]
#[track_caller]
pub unsafe fn mma_overwrite<
    A: Operand,
    B: Operand,
    Acc: Accumulator,
    const TRANS_A: u32,
    const TRANS_B: u32,
>(
    acc: &mut Acc,
    a: u64,
    b: u64,
) {
    const {
        assert_types(A::TYPE, B::TYPE);
        assert_order(A::TYPE, TRANS_A);
        assert_order(B::TYPE, TRANS_B);
    }
    arms! {
        // SAFETY: the caller vouches for the product.
        ptx: { unsafe { acc.mma_overwrite::<A, B, TRANS_A, TRANS_B>(a, b) } }
        // SAFETY: the same product.
        sim: { unsafe { mma::<A, B, Acc, TRANS_A, TRANS_B>(acc, a, b, false) } }
    }
}

/// As [`mma`], with A in registers.
///
/// # Safety
/// As the module says; the descriptor names an operand of the block's shared memory.
///
/// # PTX
/// `wgmma.mma_async.sync.aligned.m64nNkK.f32.A.B acc, {a0, a1, a2, a3}, b, scale_d, 1, 1[, TRANS_B]`
#[inline(always)]
#[track_caller]
pub unsafe fn mma_ra<A: Operand, B: Operand, Acc: Accumulator, const TRANS_B: u32>(
    acc: &mut Acc,
    a: &[u32; 4],
    b: u64,
    scale_d: bool,
) {
    const {
        assert_types(A::TYPE, B::TYPE);
        assert_order(B::TYPE, TRANS_B);
    }
    arms! {
        // SAFETY: the caller vouches for the product.
        ptx: { unsafe { acc.mma_ra::<A, B, TRANS_B>(a, b, u32::from(scale_d)) } }
        sim: {
            let formats = [format(A::TYPE), format(B::TYPE)];
            simt::wgmma::mma(acc.as_mut_slice(), formats, Left::Registers(*a), shared(b, TRANS_B), scale_d);
        }
    }
}

/// As [`mma_overwrite`], with A in registers.
///
/// # Safety
/// As for [`mma_ra`].
///
/// # PTX
/// `wgmma.mma_async.sync.aligned.m64nNkK.f32.A.B acc, {a0, a1, a2, a3}, b, false, 1, 1[, TRANS_B]`
#[inline(always)]
#[track_caller]
pub unsafe fn mma_ra_overwrite<A: Operand, B: Operand, Acc: Accumulator, const TRANS_B: u32>(
    acc: &mut Acc,
    a: &[u32; 4],
    b: u64,
) {
    const {
        assert_types(A::TYPE, B::TYPE);
        assert_order(B::TYPE, TRANS_B);
    }
    arms! {
        // SAFETY: the caller vouches for the product.
        ptx: { unsafe { acc.mma_ra_overwrite::<A, B, TRANS_B>(a, b) } }
        // SAFETY: the same product.
        sim: { unsafe { mma_ra::<A, B, Acc, TRANS_B>(acc, a, b, false) } }
    }
}

/// Orders the registers and shared memory that this thread wrote before the products that follow. Needed
/// before the first product, and whenever registers of a product were touched since; not between products on
/// the same accumulator.
///
/// # Safety
/// All 128 threads of the warpgroup reach it together.
///
/// # PTX
/// `wgmma.fence.sync.aligned`
#[inline(always)]
#[track_caller]
pub unsafe fn fence() {
    arms! {
        // SAFETY: the caller vouches for the warpgroup being here.
        ptx: { unsafe { fence_aligned() } }
        sim: { simt::wgmma::fence(); }
    }
}

/// Closes the products since the last call into a group, which may be empty.
///
/// # Safety
/// All 128 threads of the warpgroup reach it together.
///
/// # PTX
/// `wgmma.commit_group.sync.aligned`
#[inline(always)]
#[track_caller]
pub unsafe fn commit_group() {
    arms! {
        // SAFETY: the caller vouches for the warpgroup being here.
        ptx: { unsafe { commit_group_aligned() } }
        sim: { simt::wgmma::commit(); }
    }
}

/// Waits until at most the `PENDING` newest groups are unfinished, `PENDING` up to 7.
///
/// # Safety
/// All 128 threads of the warpgroup reach it together.
///
/// # PTX
/// `wgmma.wait_group.sync.aligned PENDING`
#[inline(always)]
#[track_caller]
pub unsafe fn wait_group<const PENDING: u32>() {
    const { assert!(PENDING <= 7, "wgmma.wait_group leaves 0 to 7 groups") };
    arms! {
        // SAFETY: the caller vouches for the warpgroup being here.
        ptx: { unsafe { wait_group_aligned(PENDING as u64) } }
        sim: { simt::wgmma::wait(PENDING); }
    }
}

/// Keeps the compiler from moving reads and writes of the accumulator across this place, which it does not
/// know to be in use by a product that runs. No instruction.
#[inline(always)]
pub fn fence_registers<Acc: Accumulator>(acc: &mut Acc) {
    arms! {
        ptx: { acc.fence(); }
        // A product that runs reads and writes the accumulator when the thread waits for it.
        sim: { let _ = acc; }
    }
}

/// As [`fence_registers`], for A of [`mma_ra`]: what writes it comes before this place, as it must before
/// [`fence`]. No instruction.
#[inline(always)]
pub fn fence_operand(a: &mut [u32; 4]) {
    arms! {
        ptx: {
            let [a0, a1, a2, a3] = a;
            // SAFETY: leaves its registers as they are. Not `pure`: it must stay where it is.
            unsafe {
                core::arch::asm!("/* {0} {1} {2} {3} */", inout(reg32) *a0, inout(reg32) *a1, inout(reg32) *a2,
                    inout(reg32) *a3, options(nomem, nostack, preserves_flags));
            }
        }
        // The product takes its copy of A when it is started.
        sim: { let _ = a; }
    }
}
