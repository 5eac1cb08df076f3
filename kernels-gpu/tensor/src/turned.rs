//! `y = x`, element by element, where `x` is dense along one axis and `y` along another: a transpose, of many
//! matrices at once.
//!
//! ```text
//!   x, a tile: SIDE lines of 128 or      shared: the same lines,           y, the tile's columns as lines:
//!   256 bytes, by units of 16     ->     units swizzled     | barrier |    N elements of N lines make a unit
//! ```
//! A thread's units are all under way before the barrier. Every access of global memory is 16 bytes wide; of
//! shared memory it is on the way in, and one element on the way out, which is less than shared memory can
//! do. Where an operand is not aligned to units, or its line is not a multiple of them, it goes by elements
//! instead.
//!
//! Tiles are taken along `y`'s lines, in bands: blocks that run together write neighbouring parts of few
//! lines.

use crate::access::{self, Plain, Words};
use crate::place::{Axis, Geometry, MAX_AXES, Mode};
use crate::{THREADS, VECTOR_BYTES};
use cuda_std::{kernel, shared, shared_array, thread, vector};
use layout::{Divisor, grouped_tile};
use primitives::grid::begin;

/// Tiles of a band.
const BAND: u32 = 256;
/// Shortest side that is worth tiles.
const LEAST_SIDE: u32 = 16;
/// Axes along which matrices are repeated, at most.
const MAX_BATCH: usize = MAX_AXES - 2;

/// Elements of a side of a tile of elements of `size` bytes.
const fn side(size: usize) -> u32 {
    match size {
        1 | 2 => 128,
        4 => 64,
        _ => 32,
    }
}

/// The shape of a copy between two dense axes. Places and distances are in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Turned {
    /// Length of the axis along which `y` is dense.
    pub along: u32,
    /// Length of the axis along which `x` is dense.
    pub across: u32,
    /// Distance in `x` of neighbours along `y`'s axis.
    pub x_line: u32,
    /// Distance in `y` of neighbours along `x`'s axis.
    pub y_line: u32,
    /// Matrices.
    pub matrices: u32,
    /// Axes along which they lie.
    pub rank: u32,
    /// Those axes.
    pub axes: [Axis<2>; MAX_BATCH],
}

impl Turned {
    /// That of an element-wise launch, when it is one and large enough.
    pub fn of(geometry: &Geometry<2>) -> Option<Self> {
        let axes = &geometry.axes[..geometry.rank as usize];
        let (inner, outer) = axes.split_first()?;
        let dense = outer.iter().position(|axis| axis.strides[0] == 1)?;
        let across = outer[dense];
        let large = |axis: &Axis<2>| axis.extent.get() >= LEAST_SIDE;
        if geometry.mode != Mode::Scattered || inner.strides[1] != 1 || !large(inner) || !large(&across) {
            return None;
        }
        let idle = Axis { extent: Divisor::new(1), strides: [0; 2] };
        let mut batch = [idle; MAX_BATCH];
        let others = outer.iter().enumerate().filter(|&(index, _)| index != dense);
        for (to, (_, axis)) in batch.iter_mut().zip(others) {
            *to = *axis;
        }
        Some(Turned {
            along: inner.extent.get(),
            across: across.extent.get(),
            x_line: inner.strides[0],
            y_line: across.strides[1],
            matrices: batch.iter().map(|axis| axis.extent.get()).product(),
            rank: outer.len() as u32 - 1,
            axes: batch,
        })
    }

    /// Blocks, of [`THREADS`] threads, for elements of `size` bytes.
    pub const fn blocks(&self, size: usize) -> u64 {
        let tiles = self.along.div_ceil(side(size)) as u64 * self.across.div_ceil(side(size)) as u64;
        tiles * self.matrices as u64
    }

    /// Where the matrix with this number begins in `x` and `y`.
    #[inline(always)]
    fn matrix(&self, number: u32) -> [usize; 2] {
        const { assert!(MAX_BATCH == 6) };
        let mut walk = (number, [0; 2]);
        // Written out, as in `place`.
        let _ = self.along::<0>(&mut walk)
            && self.along::<1>(&mut walk)
            && self.along::<2>(&mut walk)
            && self.along::<3>(&mut walk)
            && self.along::<4>(&mut walk)
            && self.along::<5>(&mut walk);
        walk.1.map(|place| place as usize)
    }

    /// Goes along an axis: what is left of the number for the others, and places so far. False when there is
    /// none.
    #[inline(always)]
    fn along<const AXIS: usize>(&self, (left, places): &mut (u32, [u32; 2])) -> bool {
        if AXIS as u32 >= self.rank {
            return false;
        }
        let axis = &self.axes[AXIS];
        let (quotient, place) = axis.extent.divide(*left);
        *left = quotient;
        for k in 0..2 {
            places[k] = places[k].wrapping_add(place.wrapping_mul(axis.strides[k]));
        }
        true
    }
}

/// Elements that shared memory takes one by one.
trait Shared: Plain + Default {
    /// # Safety
    /// As `vector::load_shared`.
    unsafe fn read(address: u32) -> Self;
    /// # Safety
    /// As `vector::store_shared`.
    unsafe fn write(address: u32, value: Self);
}

macro_rules! shared {
    ($($ty:ident: |$address:ident, $value:ident| $read:expr, $write:expr;)*) => { $(
        impl Shared for $ty {
            #[inline(always)]
            unsafe fn read($address: u32) -> Self {
                // SAFETY: the caller's promise.
                unsafe { $read }
            }
            #[inline(always)]
            unsafe fn write($address: u32, $value: Self) {
                // SAFETY: the caller's promise.
                unsafe { $write }
            }
        }
    )* };
}

shared! {
    u8: |address, value| vector::load_shared_b8(address), vector::store_shared_b8(address, value);
    u16: |address, value| vector::load_shared_b16(address), vector::store_shared_b16(address, value);
    u32: |address, value| vector::load_shared(address), vector::store_shared(address, value);
    u64: |address, value| {
        let [low, high] = vector::load_shared_v2::<u32>(address);
        u64::from(high) << u32::BITS | u64::from(low)
    }, vector::store_shared_v2(address, [value as u32, (value >> u32::BITS) as u32]);
}

/// A matrix in global memory, of which a tile is moved.
#[derive(Clone, Copy)]
struct Matrix<T> {
    pointer: *mut T,
    /// Lines, and elements of each.
    lines: u32,
    length: u32,
    /// Distance of lines.
    apart: u32,
    /// The tile's first line, and place in it.
    line: u32,
    start: u32,
}

impl<T: Shared> Matrix<T> {
    /// Elements of a unit.
    const UNIT: u32 = (VECTOR_BYTES / size_of::<T>()) as u32;
    /// Lines and columns of a tile.
    const SIDE: u32 = side(size_of::<T>());
    /// Units of a line of the tile.
    const UNITS: u32 = Self::SIDE / Self::UNIT;
    /// Units of a thread.
    const SHARE: u32 = Self::SIDE * Self::UNITS / THREADS;

    /// Address of an element of the tile in shared memory, `column` being the line of `y`.
    #[inline(always)]
    fn shared(tile: u32, line: u32, column: u32) -> u32 {
        let unit = (column / Self::UNIT) ^ (line / Self::UNIT % Self::UNITS);
        let byte = (column % Self::UNIT) * size_of::<T>() as u32;
        tile + (line * Self::UNITS + unit) * VECTOR_BYTES as u32 + byte
    }

    #[inline(always)]
    fn has_units(self) -> bool {
        self.length.is_multiple_of(Self::UNIT)
            && self.apart.is_multiple_of(Self::UNIT)
            && (self.pointer as usize).is_multiple_of(VECTOR_BYTES)
    }

    /// The element at a place of the tile, when there is one.
    #[inline(always)]
    fn at(self, line: u32, place: u32) -> Option<*mut T> {
        let (line, place) = (self.line + line, self.start + place);
        let inside = line < self.lines && place < self.length;
        let offset = line as usize * self.apart as usize + place as usize;
        // The offset is of an element of the matrix, or not used.
        inside.then(|| self.pointer.wrapping_add(offset))
    }

    /// Line and place of the calling thread's `i`-th unit.
    #[inline(always)]
    fn unit(i: u32) -> (u32, u32) {
        let number = i * THREADS + thread::thread_idx_x();
        (number / Self::UNITS, number % Self::UNITS * Self::UNIT)
    }

    /// Line and place of the calling thread's `i`-th element.
    #[inline(always)]
    fn element(i: u32) -> (u32, u32) {
        let number = i * THREADS + thread::thread_idx_x();
        (number / Self::SIDE, number % Self::SIDE)
    }

    /// Brings the tile to shared memory.
    ///
    /// # Safety
    /// The matrix is readable; `tile` is shared memory for [`Self::SIDE`] squared elements.
    #[inline(always)]
    unsafe fn fetch<const SHARE: usize>(self, tile: u32) {
        // SAFETY: the caller's promise; places of the matrix only.
        unsafe {
            if self.has_units() {
                let units: [Words; SHARE] = core::array::from_fn(|i| {
                    let (line, place) = Self::unit(i as u32);
                    self.at(line, place).map_or_else(Words::default, |unit| access::load_words(unit))
                });
                for i in 0..SHARE {
                    let (line, place) = Self::unit(i as u32);
                    vector::store_shared_v4(Self::shared(tile, line, place), units[i]);
                }
                return;
            }
            for i in 0..Self::SHARE * Self::UNIT {
                let (line, place) = Self::element(i);
                let value = self.at(line, place).map_or_else(T::default, |element| *element);
                T::write(Self::shared(tile, line, place), value);
            }
        }
    }

    /// Writes the tile that lies in shared memory, its columns as lines.
    ///
    /// # Safety
    /// The matrix is writable and no other block writes these places; `tile` is as [`Matrix::fetch`] left it.
    #[inline(always)]
    unsafe fn put<const N: usize, const SHARE: usize>(self, tile: u32) {
        // SAFETY: the caller's promise; places of the matrix only.
        unsafe {
            if self.has_units() {
                for i in 0..SHARE {
                    let (column, line) = Self::unit(i as u32);
                    let values: [T; N] =
                        core::array::from_fn(|j| T::read(Self::shared(tile, line + j as u32, column)));
                    if let Some(unit) = self.at(column, line) {
                        access::store(unit, values);
                    }
                }
                return;
            }
            for i in 0..Self::SHARE * Self::UNIT {
                let (column, line) = Self::element(i);
                let value = T::read(Self::shared(tile, line, column));
                if let Some(element) = self.at(column, line) {
                    *element = value;
                }
            }
        }
    }
}

/// Copies the calling block's tile.
///
/// # Safety
/// As the entries below; `tile` is shared memory for a tile.
#[inline(always)]
unsafe fn run<T: Shared, const N: usize, const SHARE: usize>(
    shape: &Turned,
    x: *const T,
    y: *mut T,
    tile: u32,
) {
    const { assert!(N as u32 == Matrix::<T>::UNIT && SHARE as u32 == Matrix::<T>::SHARE) };
    const { assert!(Matrix::<T>::UNITS.is_power_of_two()) };
    let side = side(size_of::<T>());
    let (rows, columns) = (shape.along.div_ceil(side), shape.across.div_ceil(side));
    let tiles = (rows * columns).max(1);
    let (matrix, number) = (thread::block_idx_x() / tiles, thread::block_idx_x() % tiles);
    let (row, column) = grouped_tile(number, rows, columns, BAND);
    let (row, column) = (row * side, column * side);
    let [from, to] = shape.matrix(matrix);
    // SAFETY: the caller's promise; tiles of different blocks have no place in common.
    unsafe {
        let (lines, length, pointer) = (shape.along, shape.across, x.add(from).cast_mut());
        Matrix { pointer, lines, length, apart: shape.x_line, line: row, start: column }.fetch::<SHARE>(tile);
        thread::sync_threads();
        let (lines, length, pointer) = (shape.across, shape.along, y.add(to));
        Matrix { pointer, lines, length, apart: shape.y_line, line: column, start: row }
            .put::<N, SHARE>(tile);
    }
}

/// Sixteen bytes of shared memory.
#[repr(C, align(16))]
struct Unit([u8; VECTOR_BYTES]);

/// An entry point for each size.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("`y = x` for elements of the size of ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// The operands hold what the shape names and do not overlap; no two elements of `y` lie at one
        /// place. Blocks of [`THREADS`] threads, [`Turned::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(shape: Turned, x: *const $ty, y: *mut $ty) {
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            const UNITS: usize = side(size_of::<$ty>()) as usize * side(size_of::<$ty>()) as usize / N;
            let tile = begin(|| shared::address_of(shared_array![Unit; UNITS]));
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, N, { UNITS / THREADS as usize }>(&shape, x, y, tile) }
        }
    )* };
}

entries! {
    copy_turned_b8: u64;
    copy_turned_b4: u32;
    copy_turned_b2: u16;
    copy_turned_b1: u8;
}

#[cfg(test)]
mod tests {
    use super::{Matrix, Shared};
    use crate::VECTOR_BYTES;

    /// Every element has a place of its own, and units stay whole.
    fn places<T: Shared>() {
        let side = Matrix::<T>::SIDE;
        let mut seen = vec![false; (side * side) as usize];
        for line in 0..side {
            for column in 0..side {
                let address = Matrix::<T>::shared(0, line, column);
                let unit = Matrix::<T>::shared(0, line, column - column % Matrix::<T>::UNIT);
                assert_eq!(address / VECTOR_BYTES as u32, unit / VECTOR_BYTES as u32);
                assert!(!std::mem::replace(&mut seen[address as usize / size_of::<T>()], true));
            }
        }
    }

    #[test]
    fn every_element_has_its_own_place() {
        places::<u8>();
        places::<u16>();
        places::<u32>();
        places::<u64>();
    }
}
