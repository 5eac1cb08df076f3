//! Which elements a thread takes, and where they lie in each operand.
//!
//! An element-wise launch has `K` operands, the output last, over one shape whose axes the host has merged as far as all
//! operands allow. [`Mode`] says how the elements are dealt out:
//!
//! ```text
//!   Run        all operands dense (or one element, repeated): thread t takes the t-th N neighbours; what is left goes to further
//!              threads one by one
//!   Units      innermost axis dense or repeated in every operand, and a multiple of N long: thread t takes the t-th N of them
//!   Scattered  anything else: a block takes THREADS * SCATTERED elements, a thread every THREADS-th of them
//! ```
//! In the first two a thread moves 16 bytes at a time. Only `Run` counts beyond 32 bits; the host cuts other launches into pieces.

use crate::{THREADS, access};
use cuda_std::thread;
use layout::Divisor;

/// Axes that are left after merging, at most.
pub const MAX_AXES: usize = 8;
/// Elements of a thread that are no neighbours: enough loads under way, little enough code.
pub const SCATTERED: usize = 2;

/// How elements are dealt out to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// Dense operands.
    Run,
    /// Dense along the innermost axis.
    Units,
    /// Element by element.
    Scattered,
}

/// An axis of an element-wise launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Axis<const K: usize> {
    /// Places; in [`Mode::Units`] the innermost axis counts units of `N` elements.
    pub extent: Divisor,
    /// Distance of neighbours in each operand, elements.
    pub strides: [u32; K],
}

/// The shape of an element-wise launch over `K` operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Geometry<const K: usize> {
    /// Elements, or units of `N` elements in [`Mode::Units`]. Outside of [`Mode::Run`] at most [`Divisor::MAX`].
    pub count: u64,
    /// How they are dealt out.
    pub mode: Mode,
    /// Bit `k` is set when operand `k` does not move along the innermost axis.
    pub repeated: u32,
    /// Axes in use; none in [`Mode::Run`].
    pub rank: u32,
    /// The axes, innermost first.
    pub axes: [Axis<K>; MAX_AXES],
}

impl<const K: usize> Geometry<K> {
    /// Does operand `k` show the same element all along the innermost axis?
    #[inline(always)]
    fn is_repeated(&self, k: usize) -> bool {
        self.repeated >> k & 1 == 1
    }

    /// Blocks that the launch takes when threads take `width` neighbours.
    pub const fn blocks(&self, width: usize) -> u64 {
        let threads = match self.mode {
            Mode::Run => self.count / width as u64 + self.count % width as u64,
            Mode::Units => self.count,
            Mode::Scattered => self.count.div_ceil(SCATTERED as u64),
        };
        threads.div_ceil(THREADS as u64)
    }
}

/// The elements of a thread.
pub struct Place<const K: usize, const N: usize> {
    /// `N` neighbours in every operand that moves; else up to `SCATTERED` elements that have nothing to do with each other.
    whole: bool,
    /// How many there are, when they are not `whole`.
    count: u32,
    /// Place of the first in each operand.
    start: [usize; K],
    /// Places of the elements that are not `whole`, counted from `start`.
    at: [[u32; K]; SCATTERED],
}

/// The elements of the calling thread.
#[inline(always)]
pub fn locate<const K: usize, const N: usize>(geometry: &Geometry<K>) -> Place<K, N> {
    const { assert!(N >= SCATTERED) };
    let (block, lane) = (thread::block_idx_x(), thread::thread_idx_x());
    let mut place = Place { whole: false, count: 0, start: [0; K], at: [[0; K]; SCATTERED] };
    if geometry.mode == Mode::Run {
        let thread = u64::from(block) * u64::from(THREADS) + u64::from(lane);
        let units = geometry.count / N as u64;
        place.whole = thread < units;
        let first = if place.whole { thread * N as u64 } else { units * N as u64 + (thread - units) };
        place.count = u32::from(first < geometry.count);
        for k in 0..K {
            place.start[k] = if geometry.is_repeated(k) { 0 } else { first as usize };
        }
        return place;
    }
    // Units have one number, the others are then not used.
    let is_units = geometry.mode == Mode::Units;
    let numbers: [u32; SCATTERED] = if is_units {
        [block.wrapping_mul(THREADS).wrapping_add(lane); SCATTERED]
    } else {
        let first = block.wrapping_mul(THREADS * SCATTERED as u32).wrapping_add(lane);
        core::array::from_fn(|j| first.wrapping_add(j as u32 * THREADS))
    };
    let at = places(geometry, numbers);
    let inside = |number: u32| u64::from(number) < geometry.count;
    if is_units {
        place.whole = inside(numbers[0]);
        place.start = at[0].map(|place| place as usize);
    } else {
        place.count = numbers.into_iter().map(|number| u32::from(inside(number))).sum();
        place.at = at;
    }
    place
}

/// Places in every operand of the elements (or units) with these numbers.
#[inline(always)]
fn places<const K: usize>(geometry: &Geometry<K>, numbers: [u32; SCATTERED]) -> [[u32; K]; SCATTERED] {
    const { assert!(MAX_AXES == 8) };
    let mut walk = Walk { left: numbers, places: [[0; K]; SCATTERED] };
    // Written out: indices that are constants leave the parameter where it is, a loop would copy it to memory of the thread's own.
    let _ = walk.along::<0>(geometry)
        && walk.along::<1>(geometry)
        && walk.along::<2>(geometry)
        && walk.along::<3>(geometry)
        && walk.along::<4>(geometry)
        && walk.along::<5>(geometry)
        && walk.along::<6>(geometry)
        && walk.along::<7>(geometry);
    walk.places
}

impl<const K: usize, const N: usize> Place<K, N> {
    /// This thread's elements of operand `k`, which begins at `operand`; `fill` stands for what it does not have.
    ///
    /// # Safety
    /// The operand holds the elements that the geometry names, aligned as its mode asks for.
    #[inline(always)]
    pub unsafe fn load<T: Copy>(
        &self,
        geometry: &Geometry<K>,
        k: usize,
        operand: *const T,
        fill: T,
    ) -> [T; N] {
        // SAFETY: the caller's promise; guarded by the count.
        unsafe {
            let operand = operand.add(self.start[k]);
            if self.whole {
                return if geometry.is_repeated(k) { [*operand; N] } else { access::load(operand) };
            }
            let mut values = [fill; N];
            for j in 0..SCATTERED {
                if (j as u32) < self.count {
                    values[j] = *operand.add(self.at[j][k] as usize);
                }
            }
            values
        }
    }

    /// Writes this thread's elements of operand `k`, which begins at `operand` and is not repeated.
    ///
    /// # Safety
    /// As [`Place::load`], and no two elements of the operand lie at one place.
    #[inline(always)]
    pub unsafe fn store<T: Copy>(&self, k: usize, operand: *mut T, values: [T; N]) {
        // SAFETY: the caller's promise; guarded by the count.
        unsafe {
            let operand = operand.add(self.start[k]);
            if self.whole {
                access::store(operand, values);
                return;
            }
            for j in 0..SCATTERED {
                if (j as u32) < self.count {
                    *operand.add(self.at[j][k] as usize) = values[j];
                }
            }
        }
    }
}

/// Elements on their way from numbers to places.
struct Walk<const K: usize> {
    /// What the axes further out have to account for.
    left: [u32; SCATTERED],
    /// Places so far.
    places: [[u32; K]; SCATTERED],
}

impl<const K: usize> Walk<K> {
    /// Goes along axis `AXIS`; false when there is none.
    #[inline(always)]
    fn along<const AXIS: usize>(&mut self, geometry: &Geometry<K>) -> bool {
        if AXIS as u32 >= geometry.rank {
            return false;
        }
        let axis = &geometry.axes[AXIS];
        for (left, places) in self.left.iter_mut().zip(&mut self.places) {
            let (quotient, place) = axis.extent.divide(*left);
            *left = quotient;
            for k in 0..K {
                places[k] = places[k].wrapping_add(place.wrapping_mul(axis.strides[k]));
            }
        }
        true
    }
}
