//! Which elements a thread takes, and where they lie in each operand.
//!
//! An element-wise launch has `K` operands, the output last, over one shape whose axes the host has merged as far as all
//! operands allow. [`Mode`] says how the elements are dealt out:
//!
//! ```text
//!   Run        all operands dense (or one element, repeated): an item is N neighbours; what is left are items of one element
//!   Units      innermost axis dense or repeated in every operand, and a multiple of N long: an item is N neighbours
//!   Scattered  anything else: an item is one element
//! ```
//! A block takes THREADS * items items, a thread every THREADS-th of them: all of a thread's loads are under way before it computes,
//! and what it does once is shared. In the first two modes it moves 16 bytes at a time. Only `Run` counts beyond 32 bits; the host cuts
//! other launches into pieces.

use crate::access::{Plain, Words};
use crate::{THREADS, VECTOR_BYTES, access, begin};
use cuda_std::thread;
use layout::Divisor;

/// Axes that are left after merging, at most.
pub const MAX_AXES: usize = 8;
/// Most items of a thread: enough loads under way, little enough code.
pub const ITEMS: usize = 2;

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
    /// Items of a thread, 1 to [`ITEMS`].
    pub items: u32,
    /// The axes, innermost first.
    pub axes: [Axis<K>; MAX_AXES],
}

impl<const K: usize> Geometry<K> {
    /// Does operand `k` show the same element all along the innermost axis?
    #[inline(always)]
    fn is_repeated(&self, k: usize) -> bool {
        self.repeated >> k & 1 == 1
    }

    /// Blocks that the launch takes when an item is up to `width` neighbours.
    pub const fn blocks(&self, width: usize) -> u64 {
        let items = match self.mode {
            Mode::Run => self.count / width as u64 + self.count % width as u64,
            Mode::Units | Mode::Scattered => self.count,
        };
        let items_of_thread = if self.items == 0 { 1 } else { self.items };
        items.div_ceil(THREADS as u64 * items_of_thread as u64)
    }
}

/// What an item is.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    /// The thread has fewer items.
    Nothing,
    /// One element.
    Single,
    /// `N` neighbours in every operand that moves.
    Whole,
}

/// A part of the tensor that a thread takes at a time.
#[derive(Clone, Copy)]
pub struct Item<const K: usize, const N: usize> {
    kind: Kind,
    /// Place of its first element in each operand.
    at: [usize; K],
}

/// Goes through the calling thread's items: `load` for all of them, then `work` on each and what was loaded for it.
#[inline(always)]
pub fn each_item<const K: usize, const N: usize, L: Copy>(
    geometry: &Geometry<K>,
    load: impl Fn(&Item<K, N>) -> L,
    work: impl Fn(&Item<K, N>, L),
) {
    let mut items = begin(|| locate(geometry));
    let mut loaded = items.each_ref().map(&load);
    // A loop, so that the work, with its switch over operations, is in the code once; items move up, so that every index is a constant.
    for _ in 0..ITEMS {
        if items[0].kind != Kind::Nothing {
            work(&items[0], loaded[0]);
        }
        for i in 1..ITEMS {
            (items[i - 1], loaded[i - 1]) = (items[i], loaded[i]);
        }
    }
}

/// The items of the calling thread.
#[inline(always)]
fn locate<const K: usize, const N: usize>(geometry: &Geometry<K>) -> [Item<K, N>; ITEMS] {
    let (block, lane) = (thread::block_idx_x(), thread::thread_idx_x());
    if geometry.mode == Mode::Run {
        let units = geometry.count / N as u64;
        let rest = geometry.count % N as u64;
        let first = u64::from(block) * u64::from(THREADS * geometry.items) + u64::from(lane);
        return core::array::from_fn(|j| {
            let number = first + j as u64 * u64::from(THREADS);
            let (kind, at) = if j as u32 >= geometry.items {
                (Kind::Nothing, 0)
            } else if number < units {
                (Kind::Whole, number * N as u64)
            } else if number - units < rest {
                (Kind::Single, units * N as u64 + (number - units))
            } else {
                (Kind::Nothing, 0)
            };
            Item { kind, at: core::array::from_fn(|k| if geometry.is_repeated(k) { 0 } else { at as usize }) }
        });
    }
    let kind = if geometry.mode == Mode::Units { Kind::Whole } else { Kind::Single };
    let first = block.wrapping_mul(THREADS * geometry.items).wrapping_add(lane);
    let numbers = core::array::from_fn(|j| first.wrapping_add(j as u32 * THREADS));
    let places = places(geometry, numbers);
    core::array::from_fn(|j| {
        let exists = (j as u32) < geometry.items && u64::from(numbers[j]) < geometry.count;
        let kind = if exists { kind } else { Kind::Nothing };
        Item { kind, at: places[j].map(|place| place as usize) }
    })
}

/// Places in every operand of the elements (or units) with these numbers.
#[inline(always)]
fn places<const K: usize>(geometry: &Geometry<K>, numbers: [u32; ITEMS]) -> [[u32; K]; ITEMS] {
    const { assert!(MAX_AXES == 8) };
    let mut walk = Walk { left: numbers, places: [[0; K]; ITEMS] };
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

impl<const K: usize, const N: usize> Item<K, N> {
    /// The item's elements of operand `k`, which begins at `operand`; `fill` stands for what it does not have.
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
        // SAFETY: the caller's promise; an item that there is begins at an element of the operand.
        unsafe {
            let operand = operand.add(self.at[k]);
            if self.kind == Kind::Whole && !geometry.is_repeated(k) {
                return access::load(operand);
            }
            let element = if self.kind == Kind::Nothing { fill } else { *operand };
            [element; N]
        }
    }

    /// [`Item::load`] of 16 bytes, not yet taken apart.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn fetch<T: Plain>(&self, geometry: &Geometry<K>, k: usize, operand: *const T) -> Words {
        const { assert!(N * size_of::<T>() == VECTOR_BYTES) };
        // SAFETY: the caller's promise; an item that there is begins at an element of the operand.
        unsafe {
            let operand = operand.add(self.at[k]);
            if self.kind == Kind::Whole && !geometry.is_repeated(k) {
                return access::load_words(operand);
            }
            if self.kind == Kind::Nothing { Words::default() } else { access::repeat(*operand) }
        }
    }

    /// Writes the item's elements of operand `k`, which begins at `operand` and is not repeated.
    ///
    /// # Safety
    /// As [`Item::load`], and no two elements of the operand lie at one place.
    #[inline(always)]
    pub unsafe fn store<T: Copy>(&self, k: usize, operand: *mut T, values: [T; N]) {
        // SAFETY: the caller's promise; an item that there is begins at an element of the operand.
        unsafe {
            let operand = operand.add(self.at[k]);
            match self.kind {
                Kind::Whole => access::store(operand, values),
                Kind::Single => *operand = values[0],
                Kind::Nothing => {}
            }
        }
    }
}

/// Elements on their way from numbers to places.
struct Walk<const K: usize> {
    /// What the axes further out have to account for.
    left: [u32; ITEMS],
    /// Places so far.
    places: [[u32; K]; ITEMS],
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
