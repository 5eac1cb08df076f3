//! `c = a ^ b`, element by element. It has kernels of its own, since it is long: among the functions of
//! [`binary`](crate::binary) it would take registers from all of them.

use crate::THREADS;
use crate::access::{self, width};
use crate::element::{Element, Float};
use crate::integer::Integer;
use crate::place::{Geometry, Item, item_of_thread};
use cuda_std::kernel;
use half::{bf16, f16};
use primitives::math::Elementary;
use primitives::unroll;

/// An element type that has powers.
pub trait Power: Element {
    /// `base ^ exponent`.
    fn power(base: Self::Wide, exponent: Self::Wide) -> Self::Wide;
}

/// The power of a float, in the precision of its type.
macro_rules! of_floats {
    ($($ty:ident),*) => { $(
        impl Power for $ty {
            #[inline(always)]
            fn power(base: Self::Wide, exponent: Self::Wide) -> Self::Wide {
                <Self as Float>::Precision::powf(base, exponent)
            }
        }
    )* };
}

of_floats!(f64, f32, f16, bf16);

/// The power of an integer, by squares of the base: it wraps around. With a negative exponent it is
/// `1 / self ^ -exponent`, truncated; 0 to a negative power is 0.
macro_rules! of_integers {
    ($($ty:ident),*) => { $(
        impl Power for $ty {
            #[inline(always)]
            fn power(base: $ty, exponent: $ty) -> $ty {
                if exponent < 0 {
                    return match base {
                        1 => 1,
                        -1 if exponent % 2 == 0 => 1,
                        -1 => -1,
                        _ => 0,
                    };
                }
                let (mut power, mut square, mut left) = (1, base, exponent);
                while left != 0 {
                    if left % 2 != 0 {
                        power = Integer::wrapping_mul(power, square);
                    }
                    square = Integer::wrapping_mul(square, square);
                    left >>= 1;
                }
                power
            }
        }
    )* };
}

of_integers!(i64, i32);

/// `c = a ^ b`.
///
/// # Safety
/// As the entries below, with `N` elements a thread.
#[inline(always)]
unsafe fn run<T: Power, const N: usize>(geometry: &Geometry<3>, a: *const T, b: *const T, c: *mut T) {
    // SAFETY: the caller's promise.
    unsafe {
        let item: Option<Item<'_, 3, N>> = item_of_thread(geometry);
        if let Some(item) = item {
            let [mut powers, exponents] =
                item.fetch(0, [a, b]).map(|values| T::widen(access::from_wide(values)));
            // Counted out: the compiler would make a loop of it, and keep the elements in local memory.
            const { assert!(N <= 16) };
            unroll!(I in 0..16, {
                if I < N {
                    powers[I] = T::power(powers[I], exponents[I]);
                }
            });
            item.store(2, c, T::narrow(powers));
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("`c = a ^ b` for ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// The operands hold what the geometry names, aligned as its mode asks for with 16 bytes of elements
        /// a thread; each of `a` and `b` is `c` or does not overlap it, and no two elements of `c` lie at one
        /// place. Blocks of [`THREADS`] threads, [`Geometry::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(geometry: Geometry<3>, a: *const $ty, b: *const $ty, c: *mut $ty) {
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, { width(size_of::<$ty>(), size_of::<$ty>()) }>(&geometry, a, b, c) }
        }
    )* };
}

entries! {
    power_f64: f64;
    power_f32: f32;
    power_f16: f16;
    power_bf16: bf16;
    power_i64: i64;
    power_i32: i32;
}
