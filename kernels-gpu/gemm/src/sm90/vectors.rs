//! Source C and residuals that threads read from global memory themselves.

use core::marker::PhantomData;

use cuda_std::{misc, vector};
use primitives::unroll;

use super::fusion::{FragmentCoord, Pairs, add, aligned, each_pair};
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
    pub(super) const fn new(data: *const u8, row: u64, matrix: u64, is_f32: bool, paired: bool) -> Self {
        Self { data, row, matrix, is_f32, paired, element: PhantomData }
    }

    /// Adds the elements that `at` counts, times a factor, from where the copy engine has put them, if it
    /// has.
    ///
    /// # Safety
    /// They can be read.
    #[inline(always)]
    pub(super) unsafe fn add<const N: usize>(
        self,
        at: FragmentCoord,
        source: Option<Slots>,
        factor: f32,
        x: &mut Pairs<N>,
    ) {
        if let Some(slots) = source {
            let mut addend = [[0.0; 2]; N];
            // SAFETY: the pairs' places in the subtile.
            each_pair!(PAIR of N { addend[PAIR] = H::unpack(unsafe { vector::load_shared(slots.address(PAIR)) }); });
            return add(x, factor, addend);
        }
        // Which way is asked once, so that the pairs' latencies overlap; each adds by itself, so that not all
        // has to wait in registers. Nor is it asked by a branch which elements there are: each would wait for
        // its load. Pointers of the parameters are not known to be global; `vector` knows.
        // SAFETY: the caller's contract; pairs are aligned as `paired` says.
        unsafe {
            match (self.is_f32, self.paired && at.width == 2) {
                (false, true) => add(
                    x,
                    factor,
                    self.pairs(at, |from, count| {
                        H::unpack(vector::load_if(aligned(from.cast_mut().cast::<u32>()), count > 0))
                    }),
                ),
                (false, false) => add(
                    x,
                    factor,
                    self.pairs(at, |from, count| {
                        let half = |index| {
                            let from = from.cast::<u16>().wrapping_add(index as usize);
                            u32::from(vector::load_b16_if(from, count > index))
                        };
                        H::unpack(half(0) | half(1) << u16::BITS)
                    }),
                ),
                (true, _) => add(
                    x,
                    factor,
                    self.pairs(at, |from, count| {
                        [0, 1].map(|index| {
                            vector::load_if(from.cast::<f32>().wrapping_add(index as usize), count > index)
                        })
                    }),
                ),
            }
        }
    }

    /// Address of an element of the first pairs' column. The row passes by the compiler: what ways have in
    /// common it would compute ahead of them all, and keep.
    #[inline(always)]
    fn address(self, at: FragmentCoord, pair: usize, bytes: u64) -> *const u8 {
        let row = u64::from(at.batch) * self.matrix + u64::from(misc::opaque(at.row(pair))) * self.row;
        self.data.wrapping_add(((row + u64::from(at.column)) * bytes) as usize)
    }

    /// The pairs at `at`: `read` gets the address of each and the number of its elements that `at` counts.
    ///
    /// # Safety
    /// The elements that `at` counts are inside of the matrix, and `read` may read them.
    #[inline(always)]
    unsafe fn pairs<const N: usize>(
        self,
        at: FragmentCoord,
        read: impl Fn(*const u8, u32) -> [f32; 2],
    ) -> Pairs<N> {
        let bytes = if self.is_f32 { size_of::<f32>() } else { size_of::<u16>() };
        let rows = [0, 1].map(|pair| self.address(at, pair, bytes as u64));
        let mut x = [[0.0; 2]; N];
        each_pair!(PAIR of N {
            let across = (at.column(PAIR) - at.column) as usize;
            x[PAIR] = read(rows[PAIR % 2].wrapping_add(across * bytes), at.count(PAIR));
        });
        x
    }
}
