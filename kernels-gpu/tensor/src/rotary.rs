//! Rotary position embedding (Su et al., "RoFormer: enhanced transformer with rotary position embedding",
//! 2021): pairs of columns of a row turn by angles of the row's position.
//!
//! ```text
//!   halves       columns i and i + pairs turn by angle i        a unit: N columns of each half
//!   neighbours   columns 2 i and 2 i + 1                        a unit: 2 N columns
//!   the rest     stays as it is                                 a unit: N columns; none in place
//! ```
//! A thread takes a unit: it reads all of it before it writes, so the result may lie where the operand does.

use crate::THREADS;
use crate::element::Element;
use cuda_std::fastmath::fma;
use cuda_std::{kernel, thread};
use half::{bf16, f16};
use layout::Divisor;
use primitives::access::{self, VECTOR_BYTES};
use primitives::grid::begin;

/// A rotation of all heads of all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rotation {
    /// Elements from one batch, row and head of the operand to the next. Columns are neighbours.
    pub from: [u64; 3],
    /// The same of the result.
    pub to: [u64; 3],
    /// Rows of a batch.
    pub rows: Divisor,
    /// Heads of a row.
    pub heads: Divisor,
    /// Units of a head.
    pub units: Divisor,
    /// Units of all heads, at most [`Divisor::MAX`].
    pub count: u32,
    /// Pairs of columns that turn.
    pub pairs: u32,
    /// Position of the first row of each batch, where rows have no positions of their own.
    pub first: u32,
    /// 1 when neighbours turn together, else 0.
    pub by_neighbours: u32,
    /// 1 to turn back, else 0.
    pub is_inverse: u32,
    /// 1 when units are whole vectors at aligned places, else 0: they are of one element.
    pub is_wide: u32,
}

impl Rotation {
    /// Elements of a half unit, in types of this size: 16 bytes, when it is wide.
    pub const fn width(is_wide: bool, size: usize) -> u32 {
        if is_wide { (VECTOR_BYTES / size) as u32 } else { 1 }
    }

    /// Blocks of [`THREADS`] threads.
    pub const fn blocks(&self) -> u32 {
        self.count.div_ceil(THREADS)
    }
}

/// Cosines and sines of the angles, `[positions, pairs]` each, and the positions of rows.
#[derive(Clone, Copy)]
struct Angles {
    cosines: *const f32,
    sines: *const f32,
    positions: *const i64,
}

/// # Safety
/// As the entry points; with `is_wide`, `N` elements are 16 bytes, else `N` is 1.
#[inline(always)]
unsafe fn rotate<T: Element<Wide = f32>, const N: usize>(
    rotation: &Rotation,
    angles: Angles,
    x: *const T,
    y: *mut T,
) {
    let unit = thread::block_idx_x() * THREADS + thread::thread_idx_x();
    if unit >= rotation.count {
        return;
    }
    let (head, unit) = rotation.units.divide(unit);
    let (row, head) = rotation.heads.divide(head);
    let (batch, at) = rotation.rows.divide(row);
    let place = |strides: [u64; 3]| {
        u64::from(batch) * strides[0] + u64::from(at) * strides[1] + u64::from(head) * strides[2]
    };
    let (x, y) = (x.wrapping_add(place(rotation.from) as usize), y.wrapping_add(place(rotation.to) as usize));
    let (unit, pairs) = (unit as usize * N, rotation.pairs as usize);
    // SAFETY: the caller's promise: columns of one head, which no other thread takes.
    unsafe {
        if unit >= pairs {
            let column = pairs + unit;
            access::store(y.add(column), access::load::<T, N>(x.add(column)));
            return;
        }
        let own = !angles.positions.is_null();
        let position =
            if own { *angles.positions.add(row as usize) as usize } else { (rotation.first + at) as usize };
        let c = access::load::<f32, N>(angles.cosines.add(position * pairs + unit));
        let s = access::load::<f32, N>(angles.sines.add(position * pairs + unit));
        let sign = if rotation.is_inverse != 0 { -1.0 } else { 1.0 };
        let (first, second) =
            if rotation.by_neighbours != 0 { (2 * unit, 2 * unit + N) } else { (unit, unit + pairs) };
        let mut a = T::widen(access::load::<T, N>(x.add(first)));
        let mut b = T::widen(access::load::<T, N>(x.add(second)));
        if rotation.by_neighbours != 0 {
            (a, b) = apart(a, b);
        }
        for i in 0..N {
            let sine = sign * s[i];
            (a[i], b[i]) = (fma(a[i], c[i], -(b[i] * sine)), fma(b[i], c[i], a[i] * sine));
        }
        if rotation.by_neighbours != 0 {
            (a, b) = together(a, b);
        }
        access::store(y.add(first), T::narrow(a));
        access::store(y.add(second), T::narrow(b));
    }
}

/// The even and the odd elements of `2 N` neighbours.
#[inline(always)]
pub(crate) fn apart<A: Copy, const N: usize>(a: [A; N], b: [A; N]) -> ([A; N], [A; N]) {
    let (mut even, mut odd) = (a, b);
    let at = |i: usize| if i < N { a[i % N] } else { b[i % N] };
    for i in 0..N {
        (even[i], odd[i]) = (at(2 * i), at(2 * i + 1));
    }
    (even, odd)
}

/// The inverse of [`apart`].
#[inline(always)]
pub(crate) fn together<A: Copy, const N: usize>(even: [A; N], odd: [A; N]) -> ([A; N], [A; N]) {
    let (mut a, mut b) = (even, odd);
    let at = |i: usize| if i.is_multiple_of(2) { even[i / 2 % N] } else { odd[i / 2 % N] };
    for i in 0..N {
        (a[i], b[i]) = (at(i), at(i + N));
    }
    (a, b)
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("Rotary position embedding of ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// `x` and `y` hold the elements, at aligned places if the rotation is wide; `y` lies where `x` does,
        /// with the same strides, or overlaps nothing. The tables have all positions, at aligned places too;
        /// `positions` has one for each row of each batch, from 0 on, or is null. Blocks of [`THREADS`]
        /// threads, [`Rotation::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(
            rotation: Rotation,
            cosines: *const f32,
            sines: *const f32,
            positions: *const i64,
            x: *const $ty,
            y: *mut $ty,
        ) {
            let angles = begin(|| Angles { cosines, sines, positions });
            // SAFETY: the caller's contract is the same.
            unsafe {
                if rotation.is_wide != 0 {
                    rotate::<$ty, { VECTOR_BYTES / size_of::<$ty>() }>(&rotation, angles, x, y)
                } else {
                    rotate::<$ty, 1>(&rotation, angles, x, y)
                }
            }
        }
    )* };
}

entries! {
    rotary_f32: f32;
    rotary_f16: f16;
    rotary_bf16: bf16;
}
