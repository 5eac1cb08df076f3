//! Which elements a thread takes, and where they lie in each operand.
//!
//! An element-wise launch has `K` operands, the output last, over one shape whose axes the host has merged as
//! far as all operands allow. [`Mode`] says how the elements are dealt out:
//!
//! ```text
//!   Run        all operands dense (or one element, repeated): an item is N neighbours; what is left are items of one element
//!   Units      innermost axis dense or repeated in every operand, and a multiple of N long: an item is N neighbours
//!   Scattered  anything else: an item is up to LANES elements, THREADS apart, so that a warp's are neighbours in each access
//! ```
//! A thread takes one item. Where that is 16 bytes and the kernel has 32 registers, a multiprocessor's 2048
//! threads have as much under way as memory needs; more is slower. Only `Run` counts beyond 32 bits; the host
//! cuts other launches into pieces.

use crate::access::{Plain, Wide};
use crate::{LANES, THREADS, access};
use cuda_std::{misc, thread};
use layout::Divisor;
use primitives::grid::begin_if;

/// Axes that are left after merging, at most.
pub const MAX_AXES: usize = 8;
/// More blocks than any device runs at once.
const LAST: u32 = 2048;

/// Blocks of a multiprocessor at once: 2048 threads.
pub const RESIDENT: u32 = 8;

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
    /// Elements, or units of `N` elements in [`Mode::Units`]. Outside of [`Mode::Run`] at most
    /// [`Divisor::MAX`].
    pub count: u64,
    /// How they are dealt out.
    pub mode: Mode,
    /// Bit `k` is set when operand `k` does not move along the innermost axis.
    pub repeated: u32,
    /// Axes in use; none in [`Mode::Run`].
    pub rank: u32,
    /// Blocks, from the first, whose items are all whole, in [`Mode::Run`] with no operand repeated: most of
    /// a large launch, and the quickest to find.
    pub whole: u32,
    /// The axes, innermost first.
    pub axes: [Axis<K>; MAX_AXES],
}

impl<const K: usize> Geometry<K> {
    /// The value of [`Geometry::whole`] for items of up to `width` neighbours.
    pub const fn whole_blocks(&self, width: usize) -> u32 {
        if !matches!(self.mode, Mode::Run) || self.repeated != 0 {
            return 0;
        }
        // A grid has fewer blocks.
        (self.count / (width as u64 * THREADS as u64)) as u32
    }

    /// Blocks that the launch takes when an item is up to `width` neighbours.
    pub const fn blocks(&self, width: usize) -> u64 {
        let items = match self.mode {
            Mode::Run => self.count / width as u64 + self.count % width as u64,
            Mode::Units => self.count,
            Mode::Scattered => self.count.div_ceil(lanes(width) as u64),
        };
        items.div_ceil(THREADS as u64)
    }
}

/// Scattered elements of a thread that takes `width` neighbours.
const fn lanes(width: usize) -> usize {
    if width < LANES { width } else { LANES }
}

/// A part of the tensor that a thread takes.
#[derive(Clone, Copy)]
pub struct Item<'g, const K: usize, const N: usize> {
    geometry: &'g Geometry<K>,
    form: Form,
    /// [`Geometry::repeated`], but for blocks that need not look.
    repeated: u32,
    /// Place of its first element in each operand. Not of scattered ones: to save registers, their places are
    /// computed when they are needed.
    at: [usize; K],
    /// Number of the first scattered element.
    first: u32,
}

/// The form of an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `N` neighbours in every operand that moves.
    Neighbours,
    /// One element.
    Single,
    /// Elements that lie anywhere.
    Scattered,
}

/// The calling thread's item, if it has one. The next grid may begin and the one before has ended.
#[inline(always)]
pub fn item_of_thread<const K: usize, const N: usize>(geometry: &Geometry<K>) -> Option<Item<'_, K, N>> {
    let (block, lane) = (thread::block_idx_x(), thread::thread_idx_x());
    let number = u64::from(block) * u64::from(THREADS) + u64::from(lane);
    // To let the next grid begin takes the device 1.2 ns a block. Of many small blocks only those do it that
    // may be the last to run: it counts when the others have ended.
    let lets_next_begin = geometry.mode != Mode::Scattered || block + LAST >= thread::grid_dim_x();
    begin_if(lets_next_begin, || {
        // Most blocks take this short way.
        if block < geometry.whole {
            let at = [number as usize * N; K];
            return Some(Item { geometry, form: Form::Neighbours, repeated: 0, at, first: 0 });
        }
        match geometry.mode {
            Mode::Run => Item::of_run(geometry, number),
            Mode::Units => Item::of_units(geometry, number),
            Mode::Scattered => Item::scattered(geometry, block * (THREADS * lanes(N) as u32) + lane),
        }
    })
}

/// Places in every operand of the element (or unit) with this number.
#[inline(always)]
fn places<const K: usize>(geometry: &Geometry<K>, number: u32) -> [u32; K] {
    const { assert!(MAX_AXES == 8) };
    let mut walk = Walk { left: number, places: [0; K] };
    // Written out: indices that are constants leave the parameter where it is, a loop would copy it to memory
    // of the thread's own.
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

impl<'g, const K: usize, const N: usize> Item<'g, K, N> {
    /// Item `number` of dense operands.
    #[inline(always)]
    fn of_run(geometry: &'g Geometry<K>, number: u64) -> Option<Self> {
        let repeated = geometry.repeated;
        let units = geometry.count / N as u64;
        let rest = geometry.count % N as u64;
        let whole = number < units;
        let at = if whole { number * N as u64 } else { units * N as u64 + (number - units) };
        let at = core::array::from_fn(|k| if repeated >> k & 1 == 1 { 0 } else { at as usize });
        let form = if whole { Form::Neighbours } else { Form::Single };
        let item = Item { geometry, form, repeated, at, first: 0 };
        (number < units + rest).then_some(item)
    }

    /// Unit `number` of operands that are dense along the innermost axis.
    #[inline(always)]
    fn of_units(geometry: &'g Geometry<K>, number: u64) -> Option<Self> {
        let at = places(geometry, number as u32).map(|place| place as usize);
        let form = Form::Neighbours;
        let item = Item { geometry, form, repeated: geometry.repeated, at, first: 0 };
        (number < geometry.count).then_some(item)
    }

    /// Element `first` and those behind it, THREADS apart.
    #[inline(always)]
    fn scattered(geometry: &'g Geometry<K>, first: u32) -> Option<Self> {
        let item = Item { geometry, form: Form::Scattered, repeated: 0, at: [0; K], first };
        (u64::from(first) < geometry.count).then_some(item)
    }

    /// Does operand `k` show the same element all along the innermost axis?
    #[inline(always)]
    fn is_repeated(&self, k: usize) -> bool {
        self.repeated >> k & 1 == 1
    }

    /// Places of the scattered element `i` behind `first`; beyond the end, of `first` again: other threads'
    /// elements they may write already.
    #[inline(always)]
    fn lane(&self, first: u32, i: usize) -> [u32; K] {
        let number = first + i as u32 * THREADS;
        places(self.geometry, if u64::from(number) < self.geometry.count { number } else { first })
    }

    /// The item's elements of operand `from` and those behind it, which begin at `operands`, not yet taken
    /// apart. A single one fills all places; scattered ones come again behind the last.
    ///
    /// # Safety
    /// The operands hold the elements that the geometry names, aligned as its mode asks for.
    #[inline(always)]
    pub unsafe fn fetch<T: Plain, const I: usize>(&self, from: usize, operands: [*const T; I]) -> [Wide; I] {
        if self.form == Form::Scattered {
            let places: [[u32; K]; LANES] = core::array::from_fn(|i| self.lane(self.first, i % lanes(N)));
            return core::array::from_fn(|k| {
                // SAFETY: the caller's promise; lanes are places of elements.
                let lanes = places.map(|places| unsafe { *operands[k].add(places[from + k] as usize) });
                access::to_wide::<T, N>(core::array::from_fn(|i| lanes[i % LANES]))
            });
        }
        let mut singles = 0;
        let mut values: [Wide; I] = core::array::from_fn(|k| {
            // SAFETY: the caller's promise; an item that there is begins at an element of the operand.
            unsafe {
                let operand = operands[k].add(self.at[from + k]);
                if self.form == Form::Neighbours && !self.is_repeated(from + k) {
                    return access::load_wide::<T, N>(operand);
                }
                singles |= 1 << k;
                let first = access::first(*operand);
                if I == 1 { access::repeat_first::<T>(first) } else { first }
            }
        });
        // Of several operands a single element is repeated once all loads are under way: where each is
        // loaded, which is what the compiler makes of it when it knows that these are the same, the next load
        // would wait for it.
        let singles = if I > 1 { misc::opaque(singles) } else { 0 };
        if singles != 0 {
            for (k, values) in values.iter_mut().enumerate() {
                if singles >> k & 1 == 1 {
                    *values = access::repeat_first::<T>(*values);
                }
            }
        }
        values
    }

    /// Writes the item's elements of operand `k`, which begins at `operand` and is not repeated.
    ///
    /// # Safety
    /// As [`Item::fetch`], and no two elements of the operand lie at one place.
    #[inline(always)]
    pub unsafe fn store<T: Copy>(&self, k: usize, operand: *mut T, values: [T; N]) {
        // SAFETY: the caller's promise; an item that there is begins at an element of the operand, and lanes
        // are places of elements.
        unsafe {
            match self.form {
                Form::Neighbours => access::store(operand.add(self.at[k]), values),
                Form::Single => *operand.add(self.at[k]) = values[0],
                Form::Scattered => {
                    // Places are found once more: kept, they would take the registers that other forms need.
                    let first = misc::opaque(self.first);
                    for i in 0..lanes(N) {
                        if u64::from(first + i as u32 * THREADS) < self.geometry.count {
                            *operand.add(self.lane(first, i)[k] as usize) = values[i];
                        }
                    }
                }
            }
        }
    }
}

/// An element on its way from a number to places.
struct Walk<const K: usize> {
    /// The index that is left for the axes further out.
    left: u32,
    /// Places so far.
    places: [u32; K],
}

impl<const K: usize> Walk<K> {
    /// Goes along axis `AXIS`; false when it is the last.
    #[inline(always)]
    fn along<const AXIS: usize>(&mut self, geometry: &Geometry<K>) -> bool {
        let axis = &geometry.axes[AXIS];
        let is_last = AXIS as u32 + 1 >= geometry.rank;
        // The last axis takes the index that is left, without a division.
        let (quotient, place) = if is_last { (0, self.left) } else { axis.extent.divide(self.left) };
        self.left = quotient;
        for k in 0..K {
            self.places[k] = self.places[k].wrapping_add(place.wrapping_mul(axis.strides[k]));
        }
        !is_last
    }
}
