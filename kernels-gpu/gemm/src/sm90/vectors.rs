//! Matrices in global memory that a fusion reads or writes beside the result: source C, the residual, values
//! before the activation.

use core::marker::PhantomData;
use cuda_std::{misc, vector};
use primitives::unroll;

use super::fusion::{FragmentCoord, Pairs, WIDTHS, each_pair};
use super::operands::Element16;
use super::subtile::Slots;

/// Rows of numbers in global memory, f32 or `H`.
pub(super) struct Vectors<H> {
    /// First element, or null.
    data: *const u8,
    /// Elements from a row to the next.
    row: u64,
    /// Elements from a matrix to the next.
    matrix: u64,
    /// f32, else `H`.
    is_f32: bool,
    /// Every row begins at a multiple of two elements' size, and as many are read as two divides.
    paired: bool,
    element: PhantomData<H>,
}

impl<H> Clone for Vectors<H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Vectors<H> {}

impl<H: Element16> Vectors<H> {
    #[inline(always)]
    pub const fn new(data: *const u8, row: u64, matrix: u64, is_f32: bool, paired: bool) -> Self {
        Self { data, row, matrix, is_f32, paired, element: PhantomData }
    }

    /// Hands over the elements that `at` counts, from where the copy engine has put them, if it has. Each way
    /// of reading hands them over by itself, so that next to 192 accumulators not all has to wait in
    /// registers.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    pub unsafe fn visit<const N: usize>(
        self,
        at: FragmentCoord,
        source: Option<Slots>,
        mut take: impl FnMut(Pairs<N>),
    ) {
        if let Some(slots) = source {
            let mut x = [[0.0; 2]; N];
            // SAFETY: the pairs' places in the subtile.
            each_pair!(PAIR of N { x[PAIR] = H::unpack(unsafe { vector::load_shared(slots.address(PAIR)) }); });
            return take(x);
        }
        // Which way is asked once, so that the pairs' latencies overlap. Pointers of the parameters are not
        // known to be global; `vector` knows.
        // SAFETY: the caller's contract; pairs are aligned as `paired` says.
        unsafe {
            match (self.is_f32, self.paired && at.width == 2) {
                (false, true) => take(self.pairs(at, |from: *const u32| H::unpack(vector::load(from)))),
                (true, true) => take(self.pairs(at, |from: *const [f32; 2]| vector::load_v2(from.cast()))),
                (false, false) => take(self.elements(at, |from| load_one::<H>(from))),
                (true, false) => take(self.elements(at, |from| vector::load(from))),
            }
        }
    }

    /// Stores the elements that `at` counts, one by one.
    ///
    /// # Safety
    /// They can be written, and no other thread touches them.
    #[inline(always)]
    pub unsafe fn store<const N: usize>(self, at: FragmentCoord, x: &Pairs<N>) {
        let bytes = if self.is_f32 { 4 } else { 2 };
        let rows = [0, 1].map(|pair| self.address(at, pair, bytes).cast_mut());
        each_pair!(PAIR of N {
            let to = rows[PAIR % 2].wrapping_add((at.column(PAIR) - at.column) as usize * bytes as usize);
            let packed = H::pack(x[PAIR][0], x[PAIR][1]);
            unroll!(I in 0..2, {
                if at.count(PAIR) > I as u32 {
                    // SAFETY: the caller's contract.
                    unsafe {
                        if self.is_f32 {
                            to.cast::<f32>().add(I).write(x[PAIR][I]);
                        } else {
                            to.cast::<u16>().add(I).write((packed >> (16 * I)) as u16);
                        }
                    }
                }
            });
        });
    }

    /// Address of an element of the first pairs' column. The row passes by the compiler: what ways have in
    /// common it would compute ahead of them all, and keep.
    #[inline(always)]
    fn address(self, at: FragmentCoord, pair: usize, bytes: u64) -> *const u8 {
        let row = u64::from(at.batch) * self.matrix + u64::from(misc::opaque(at.row(pair))) * self.row;
        self.data.wrapping_add(((row + u64::from(at.column)) * bytes) as usize)
    }

    /// `Both` is as long as two elements.
    ///
    /// # Safety
    /// The pairs that `at` counts are inside of the matrix, at boundaries of `Both`, and `read` may read
    /// them.
    #[inline(always)]
    unsafe fn pairs<Both, const N: usize>(
        self,
        at: FragmentCoord,
        read: impl Fn(*const Both) -> [f32; 2],
    ) -> Pairs<N> {
        let rows = [0, 1].map(|pair| self.address(at, pair, size_of::<Both>() as u64 / 2).cast::<Both>());
        let mut x = [[0.0; 2]; N];
        each_pair!(PAIR of N {
            if at.count(PAIR) > 0 {
                let from = rows[PAIR % 2].wrapping_add(PAIR / 2 * WIDTHS as usize);
                x[PAIR] = read(aligned(from.cast_mut()));
            }
        });
        x
    }

    /// The elements at `at`, one by one.
    ///
    /// # Safety
    /// The elements that `at` counts are inside of the matrix, and `read` may read them.
    #[inline(always)]
    unsafe fn elements<One, const N: usize>(
        self,
        at: FragmentCoord,
        read: impl Fn(*const One) -> f32,
    ) -> Pairs<N> {
        let rows = [0, 1].map(|pair| self.address(at, pair, size_of::<One>() as u64).cast::<One>());
        let mut x = [[0.0; 2]; N];
        each_pair!(PAIR of N {
            let from = rows[PAIR % 2].wrapping_add((at.column(PAIR) - at.column) as usize);
            if at.count(PAIR) > 0 {
                x[PAIR][0] = read(from);
            }
            if at.count(PAIR) > 1 {
                x[PAIR][1] = read(from.wrapping_add(1));
            }
        });
        x
    }
}

/// The place of a pair. A device faults where that is not aligned to its size; the executor would not, since
/// it does not see the alignment of plain loads and stores.
#[inline(always)]
#[track_caller]
pub(super) fn aligned<Two>(pair: *mut Two) -> *mut Two {
    if cfg!(not(target_arch = "nvptx64")) {
        assert!(pair.is_aligned(), "the pair at {pair:p} is not aligned to its {} bytes", size_of::<Two>());
    }
    pair
}

/// A 16-bit number.
///
/// # Safety
/// `from` is valid for a read.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn load_one<H: Element16>(from: *const u16) -> f32 {
    // SAFETY: the caller's word.
    H::unpack(unsafe { vector::load_b16(from) }.into())[0]
}
