//! The operands of the tensor cores: types and storage orders of both, and a warpgroup's part of the product.

use core::marker::PhantomData;

use cuda_std::wgmma::{self, Accumulator, Operand};
use layout::wgmma::{K_BYTES, Swizzle, advance, advance_units, descriptor};
use primitives::tma::{BOX_BYTES, LINE_BYTES, Major};
pub use primitives::wgmma::Element16;

/// Instructions along k in a stage, which has a line of 128 bytes of k.
pub const STEPS: usize = (LINE_BYTES / K_BYTES) as usize;
/// Rows of one instruction, and of a subtile.
pub const GROUP_ROWS: u32 = 64;

/// Types and storage orders of A and B.
pub trait Operands {
    /// Type of A.
    type A: Operand;
    /// Type of B.
    type B: Operand;
    /// The 16-bit type that results can be stored in.
    type Element16: Element16;
    /// Which dimension of A is contiguous.
    const MAJOR_A: Major;
    /// Which dimension of B is contiguous.
    const MAJOR_B: Major;
    /// Elements of k in a stage.
    const BLOCK_K: u32;

    /// `acc = A B`, or `acc += A B` with `accumulate`.
    ///
    /// # Safety
    /// As for [`wgmma::mma`].
    unsafe fn multiply<Acc: Accumulator>(acc: &mut Acc, a: u64, b: u64, accumulate: bool);

    /// The same with A in registers.
    ///
    /// # Safety
    /// As for [`wgmma::mma_ra`].
    unsafe fn multiply_registers<Acc: Accumulator>(acc: &mut Acc, a: &[u32; 4], b: u64, accumulate: bool);
}

/// [`Operands`] of these types and orders, 0 where k is contiguous and 1 where it is not.
pub struct Pair<A, B, H, const TRANS_A: u32, const TRANS_B: u32>(PhantomData<(A, B, H)>);

impl<A: Operand, B: Operand, H: Element16, const TRANS_A: u32, const TRANS_B: u32> Operands
    for Pair<A, B, H, TRANS_A, TRANS_B>
{
    type A = A;
    type B = B;
    type Element16 = H;
    const MAJOR_A: Major = Major::of(TRANS_A != 0);
    const MAJOR_B: Major = Major::of(TRANS_B != 0);
    const BLOCK_K: u32 = LINE_BYTES / A::TYPE.bytes();

    #[inline(always)]
    unsafe fn multiply<Acc: Accumulator>(acc: &mut Acc, a: u64, b: u64, accumulate: bool) {
        // SAFETY: the caller's contract is the same.
        unsafe { wgmma::mma::<A, B, Acc, TRANS_A, TRANS_B>(acc, a, b, accumulate) }
    }

    #[inline(always)]
    unsafe fn multiply_registers<Acc: Accumulator>(acc: &mut Acc, a: &[u32; 4], b: u64, accumulate: bool) {
        // SAFETY: the caller's contract is the same.
        unsafe { wgmma::mma_ra::<A, B, Acc, TRANS_B>(acc, a, b, accumulate) }
    }
}

/// A thread's part of a warpgroup's tile: groups of [`GROUP_ROWS`] rows, each an accumulator of `wgmma`.
pub trait AccumulatorTile: Copy {
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
    /// As [`get`](AccumulatorTile::get).
    fn set(&mut self, group: usize, index: usize, value: f32);
    /// Issues the products of instruction `step` of a stage whose operands begin at the descriptors `a` and
    /// `b`.
    ///
    /// # Safety
    /// As for [`wgmma::mma`].
    unsafe fn multiply<O: Operands>(
        &mut self,
        step: usize,
        a: SharedOperand,
        b: SharedOperand,
        accumulate: bool,
    );
    /// The same for one group, with A in registers.
    ///
    /// # Safety
    /// As for [`wgmma::mma_ra`].
    unsafe fn multiply_registers<O: Operands>(
        &mut self,
        group: usize,
        a: &[u32; 4],
        b: u64,
        accumulate: bool,
    );
}

/// An operand in a stage, as instructions name it.
#[derive(Clone, Copy)]
pub struct SharedOperand {
    descriptor: u64,
    /// Bytes from one instruction's part to the next one's.
    step_bytes: u32,
    /// Bytes from one group of 64 rows to the next.
    group_bytes: u32,
    /// Instructions whose parts lie in one box, and bytes from a box to the next.
    box_steps: usize,
    box_bytes: u32,
}

impl SharedOperand {
    /// The rows of m or n from `first_row` on, a multiple of 64, of a tile that begins `behind` bytes behind
    /// `start`, an address in [`units`](layout::wgmma::units). The tiles of a stage have one `start`, so that
    /// it takes one register.
    #[inline(always)]
    pub fn new(major: Major, start: u32, behind: u32, first_row: u32) -> Self {
        match major {
            Major::K => Self::in_boxes([LINE_BYTES, 0], start, behind, first_row),
            Major::Mn => {
                let at_zero = descriptor(0, BOX_BYTES, Swizzle::B128.period(), Swizzle::B128);
                let behind = behind + first_row / GROUP_ROWS * BOX_BYTES;
                let descriptor = advance(advance_units(at_zero, start), behind);
                let (step_bytes, group_bytes) = (MN_STEP_BYTES, BOX_BYTES);
                Self { descriptor, step_bytes, group_bytes, box_steps: STEPS, box_bytes: 0 }
            }
        }
    }

    /// The same of a tile where k is contiguous, in boxes of `line` bytes of k (128, 64 or 32, swizzled over
    /// as many) by `rows` rows, one behind the other.
    #[inline(always)]
    pub fn in_boxes([line, rows]: [u32; 2], start: u32, behind: u32, first_row: u32) -> Self {
        let (swizzle, group_bytes) = (Swizzle::of_span(line), GROUP_ROWS * line);
        // Without use where k is contiguous, the leading offset may be anything.
        let at_zero = descriptor(0, LINE_BYTES, swizzle.period(), swizzle);
        let behind = behind + first_row / GROUP_ROWS * group_bytes;
        let descriptor = advance(advance_units(at_zero, start), behind);
        let box_steps = (line / K_BYTES) as usize;
        Self { descriptor, step_bytes: K_BYTES, group_bytes, box_steps, box_bytes: line * rows }
    }

    /// The descriptor of instruction `step`, for a group of rows.
    #[inline(always)]
    pub(super) const fn at(self, step: usize, group: usize) -> u64 {
        let [boxes, steps] = [step / self.box_steps, step % self.box_steps];
        let inside = steps as u32 * self.step_bytes + group as u32 * self.group_bytes;
        advance(self.descriptor, boxes as u32 * self.box_bytes + inside)
    }
}

/// 16 elements of k are 16 lines of a box.
const MN_STEP_BYTES: u32 = 16 * LINE_BYTES;

impl<Acc: Accumulator + Copy + AsRef<[f32]> + AsMut<[f32]>, const GROUPS: usize> AccumulatorTile
    for [Acc; GROUPS]
{
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
    unsafe fn multiply<O: Operands>(
        &mut self,
        step: usize,
        a: SharedOperand,
        b: SharedOperand,
        accumulate: bool,
    ) {
        // SAFETY: the caller's contract is the same.
        unsafe {
            O::multiply(&mut self[0], a.at(step, 0), b.at(step, 0), accumulate);
            if GROUPS > 1 {
                O::multiply(&mut self[1 % GROUPS], a.at(step, 1), b.at(step, 0), accumulate);
            }
        }
    }

    #[inline(always)]
    unsafe fn multiply_registers<O: Operands>(
        &mut self,
        group: usize,
        a: &[u32; 4],
        b: u64,
        accumulate: bool,
    ) {
        // SAFETY: the caller's contract is the same.
        unsafe { O::multiply_registers(&mut self[group], a, b, accumulate) }
    }
}
