//! What the tensor cores multiply: types and storage orders of both operands, and a warpgroup's part of the product.

use core::marker::PhantomData;

use cuda_std::convert;
use cuda_std::wgmma::{self, Accumulator, Operand};
use layout::wgmma::{K_BYTES, Swizzle, advance, descriptor};

/// Bytes of k in a stage, and of a row in shared memory: the span of the swizzle.
pub const ROW_BYTES: u32 = Swizzle::B128.span();
/// Instructions along k in a stage.
pub const STEPS: usize = (ROW_BYTES / K_BYTES) as usize;
/// Rows of one instruction, and of a store.
pub const GROUP_ROWS: u32 = 64;

/// Types and storage orders of A and B.
pub trait Operands {
    /// Type of A.
    type A: Operand;
    /// Type of B.
    type B: Operand;
    /// The 16-bit type that results can be stored in.
    type Half: Half;
    /// 0: rows of A are contiguous along k; 1: columns of A are contiguous.
    const TRANS_A: u32;
    /// 0: columns of B are contiguous along k; 1: rows of B are contiguous.
    const TRANS_B: u32;
    /// Elements of k in a stage.
    const BLOCK_K: u32;

    /// `acc = A B`, or `acc += A B` with `accumulate`.
    ///
    /// # Safety
    /// As for [`wgmma::mma`].
    unsafe fn multiply<Acc: Accumulator>(acc: &mut Acc, a: u64, b: u64, accumulate: bool);
}

/// [`Operands`] of these types and orders.
pub struct Pair<A, B, H, const TRANS_A: u32, const TRANS_B: u32>(PhantomData<(A, B, H)>);

impl<A: Operand, B: Operand, H: Half, const TRANS_A: u32, const TRANS_B: u32> Operands
    for Pair<A, B, H, TRANS_A, TRANS_B>
{
    type A = A;
    type B = B;
    type Half = H;
    const TRANS_A: u32 = TRANS_A;
    const TRANS_B: u32 = TRANS_B;
    const BLOCK_K: u32 = ROW_BYTES / A::TYPE.bytes();

    #[inline(always)]
    unsafe fn multiply<Acc: Accumulator>(acc: &mut Acc, a: u64, b: u64, accumulate: bool) {
        // SAFETY: the caller's contract is the same.
        unsafe { wgmma::mma::<A, B, Acc, TRANS_A, TRANS_B>(acc, a, b, accumulate) }
    }
}

/// A 16-bit type of results.
pub trait Half {
    /// Rounds two numbers into one register.
    fn pack(low: f32, high: f32) -> u32;
    /// Widens the two numbers of a register.
    fn unpack(register: u32) -> [f32; 2];
}

impl Half for wgmma::BF16 {
    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        convert::bf16x2_from_f32(low, high)
    }

    #[inline(always)]
    fn unpack(register: u32) -> [f32; 2] {
        convert::bf16x2_to_f32(register)
    }
}

impl Half for wgmma::F16 {
    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        convert::f16x2_from_f32(low, high)
    }

    #[inline(always)]
    fn unpack(register: u32) -> [f32; 2] {
        convert::f16x2_to_f32(register)
    }
}

/// A thread's part of a warpgroup's tile: groups of [`GROUP_ROWS`] rows, each an accumulator of `wgmma`.
pub trait Tile: Copy {
    /// Groups of rows.
    const GROUPS: usize;
    /// Columns.
    const COLUMNS: u32;

    /// All zero. (Not a loop: the compiler would keep the numbers in memory.)
    fn zero() -> Self;
    /// Keeps the compiler from moving reads and writes of the registers across this point.
    fn fence(&mut self);
    /// Element `index` of a group, a constant after inlining.
    fn get(&self, group: usize, index: usize) -> f32;
    /// As [`get`](Tile::get).
    fn set(&mut self, group: usize, index: usize, value: f32);
    /// Issues the products of instruction `step` of a stage whose operands begin at the descriptors `a` and `b`.
    ///
    /// # Safety
    /// As for [`wgmma::mma`].
    unsafe fn multiply<O: Operands>(&mut self, step: usize, a: Source, b: Source, accumulate: bool);
}

/// An operand in a stage.
#[derive(Clone, Copy)]
pub struct Source {
    descriptor: u64,
    /// Bytes from one instruction's part to the next one's.
    step_bytes: u32,
    /// Bytes from one group of 64 rows to the next.
    group_bytes: u32,
}

impl Source {
    /// Rows of m or n by k, where k is contiguous.
    #[inline(always)]
    pub fn k_major(address: u32) -> Self {
        // Without use in this order, the leading offset may be anything.
        let descriptor = descriptor(address, ROW_BYTES, Swizzle::B128.period(), Swizzle::B128);
        Self { descriptor, step_bytes: K_BYTES, group_bytes: GROUP_ROWS * ROW_BYTES }
    }

    /// Boxes of 64 elements of m or n (contiguous) by the 64 of k, one behind the other. 16-bit types.
    #[inline(always)]
    pub fn mn_major(address: u32) -> Self {
        let descriptor = descriptor(address, BOX_BYTES, Swizzle::B128.period(), Swizzle::B128);
        Self { descriptor, step_bytes: MN_STEP_BYTES, group_bytes: BOX_BYTES }
    }

    #[inline(always)]
    const fn at(self, step: usize, group: usize) -> u64 {
        advance(self.descriptor, step as u32 * self.step_bytes + group as u32 * self.group_bytes)
    }
}

/// Bytes of a box of an operand that is not contiguous along k: 64 elements of k, a row of 128 bytes each.
pub const BOX_BYTES: u32 = 64 * ROW_BYTES;
/// Elements of m or n in such a box.
pub const BOX_ELEMENTS: u32 = 64;
/// 16 elements of k are 16 rows there.
const MN_STEP_BYTES: u32 = 16 * ROW_BYTES;

impl<Acc: Accumulator + Copy + AsRef<[f32]> + AsMut<[f32]>, const GROUPS: usize> Tile for [Acc; GROUPS] {
    const GROUPS: usize = GROUPS;
    const COLUMNS: u32 = Acc::N;

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: accumulators are arrays of f32, for which all bits zero is a value.
        unsafe { core::mem::zeroed() }
    }

    #[inline(always)]
    fn fence(&mut self) {
        const { assert!(GROUPS == 1 || GROUPS == 2, "one or two groups") };
        wgmma::fence_registers(&mut self[0]);
        if GROUPS > 1 {
            wgmma::fence_registers(&mut self[1 % GROUPS]);
        }
    }

    #[inline(always)]
    fn get(&self, group: usize, index: usize) -> f32 {
        self[group].as_ref()[index]
    }

    #[inline(always)]
    fn set(&mut self, group: usize, index: usize, value: f32) {
        self[group].as_mut()[index] = value;
    }

    #[inline(always)]
    unsafe fn multiply<O: Operands>(&mut self, step: usize, a: Source, b: Source, accumulate: bool) {
        // SAFETY: the caller's contract is the same.
        unsafe {
            O::multiply(&mut self[0], a.at(step, 0), b.at(step, 0), accumulate);
            if GROUPS > 1 {
                O::multiply(&mut self[1 % GROUPS], a.at(step, 1), b.at(step, 0), accumulate);
            }
        }
    }
}
