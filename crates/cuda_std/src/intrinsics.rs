//! CUDA's functions of numbers by their names in libdevice, without the prefix `__nv_`, as in Rust-CUDA.
//!
//! Nothing here is libdevice: each function is a row over [`GpuFloat`],
//! [`FloatExt`](crate::FloatExt), [`fastmath`](crate::fastmath), `libm` or an instruction. The same code runs
//! on the host, where the functions may be called outside of kernels too. New code is better off with those
//! traits: their functions are safe, and need no suffix for the type.
//!
//! Integers are signed in every signature, as in Rust-CUDA. Where the name says unsigned (`umax`,
//! `float2uint_rz`), their bits are.
//!
//! "ulp" is a unit in the last place of the result. Where a function says nothing of its error, it is exact
//! or rounded once.

use crate::float::GpuFloat;

/// Functions, behind their contract: name, arguments and type, error, documentation, value.
macro_rules! functions {
    (
        $safety:literal
        $($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $error:literal, $what:literal, $value:expr;)*
    ) => { $(
        #[doc = $what]
        #[doc = concat!("\n\n", $error)]
        ///
        /// # Safety
        #[doc = $safety]
        #[inline]
        #[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            $value
        }
    )* };
}

/// Functions of both widths: `F` is `f64`, and `f32` in a second one with an `f` behind its name.
macro_rules! both_widths {
    (
        $safety:literal
        $($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $error:literal, $what:literal, $value:expr;)*
    ) => { pastey::paste! {
        mod double {
            use super::*;
            use libm as m;
            type F = f64;
            functions! { $safety $($name($($arg: $ty),*) -> $ret, $error, $what, $value;)* }
        }
        mod single {
            use super::*;
            use single_libm as m;
            type F = f32;
            functions! { $safety $([<$name f>]($($arg: $ty),*) -> $ret, $error, $what, $value;)* }
        }
        pub use double::*;
        pub use single::*;
    } };
}

mod bits;
#[cfg(not(target_arch = "nvptx64"))]
mod executor;
mod fast;
mod floats;
mod outputs;
mod rounded;

pub use bits::*;
pub use fast::*;
pub use floats::*;
pub use outputs::*;
pub use rounded::*;

/// `libm`'s functions of `f32` by the names of those of `f64`.
mod single_libm {
    pub use libm::{
        exp10f as exp10, fdimf as fdim, fmodf as fmod, modff as modf, nextafterf as nextafter,
        remainderf as remainder, remquof as remquo,
    };
}

trait TiesEven: GpuFloat {
    /// Nearest integer; half-way cases to the even one. PTX `cvt.rni`.
    fn ties_even(self) -> Self;
}

macro_rules! ties_even {
    ($($ty:ident)*) => {$(
        impl TiesEven for $ty {
            #[inline]
            fn ties_even(self) -> $ty {
                arms! {
                    ptx: { core::$ty::math::round_ties_even(self) }
                    sim: { self.round_ties_even() }
                }
            }
        }
    )*};
}

ties_even!(f32 f64);

/// Writes a result through a pointer of the caller's.
///
/// # Safety
/// `to` is valid for writes.
#[inline(always)]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
unsafe fn put<T: Copy>(to: *mut T, value: T) {
    // SAFETY: the caller's promise.
    unsafe {
        arms! {
            ptx: { to.write(value) }
            sim: {
                if simt::thread::in_kernel() { simt::memory::store(to, value) } else { to.write(value) }
            }
        }
    }
}
