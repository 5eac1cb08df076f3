//! `y = f(x)`, element by element.

use crate::access::width;
use crate::element::{Element, map};
use crate::place::{Geometry, Item, RESIDENT, item_of_thread};
use crate::{THREADS, access};
use cuda_std::{GpuFloat, kernel};
use half::{bf16, f16};
use primitives::math::{double, reduced, single};

/// The function. On 16-bit floats it is computed in f32, to a few more digits than they have, and rounded once. Integer arithmetic
/// wraps around.
///
/// `a` and `b` are the two parameters of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum UnaryOp {
    /// `-x`.
    Neg,
    /// `|x|`.
    Abs,
    /// 1, -1, or `x` itself where it is neither above nor below 0.
    Sign,
    /// `x * x`.
    Square,
    /// `max(x, 0)`; NaN stays.
    Relu,
    /// `a * x + b`.
    Affine,
    /// `min(max(x, a), b)`; NaN stays.
    Clamp,
    /// `sqrt(x)`. Floats only, as all that follow.
    Sqrt,
    /// `1 / sqrt(x)`.
    Rsqrt,
    /// `1 / x`.
    Recip,
    /// Largest integer not above `x`.
    Floor,
    /// Smallest integer not below `x`.
    Ceil,
    /// Nearest integer, ties to even.
    Round,
    /// Integer part.
    Trunc,
    /// `e^x`.
    Exp,
    /// Natural logarithm.
    Ln,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x / 2 (1 + erf(x / sqrt 2))`.
    Gelu,
    /// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    GeluTanh,
    /// `x sigmoid(x)`.
    Silu,
    /// `x` where it is above 0, else `a * x`.
    LeakyRelu,
    /// Sine of radians. Not for f64.
    Sin,
    /// Cosine of radians. Not for f64.
    Cos,
}

impl UnaryOp {
    /// Every function.
    pub const ALL: [UnaryOp; 25] = [
        UnaryOp::Neg,
        UnaryOp::Abs,
        UnaryOp::Sign,
        UnaryOp::Square,
        UnaryOp::Relu,
        UnaryOp::Affine,
        UnaryOp::Clamp,
        UnaryOp::Sqrt,
        UnaryOp::Rsqrt,
        UnaryOp::Recip,
        UnaryOp::Floor,
        UnaryOp::Ceil,
        UnaryOp::Round,
        UnaryOp::Trunc,
        UnaryOp::Exp,
        UnaryOp::Ln,
        UnaryOp::Tanh,
        UnaryOp::Erf,
        UnaryOp::Sigmoid,
        UnaryOp::Gelu,
        UnaryOp::GeluTanh,
        UnaryOp::Silu,
        UnaryOp::LeakyRelu,
        UnaryOp::Sin,
        UnaryOp::Cos,
    ];

    /// Is it defined for integers?
    pub const fn is_integral(self) -> bool {
        (self as u32) < UnaryOp::Sqrt as u32
    }

    /// Does it take so many instructions and registers that 16-bit elements take it two by two?
    const fn is_long(self) -> bool {
        matches!(self, UnaryOp::Sin | UnaryOp::Cos)
    }

    /// Is it there for f64?
    pub const fn is_in_f64(self) -> bool {
        !matches!(self, UnaryOp::Sin | UnaryOp::Cos)
    }
}

/// An element type that has unary functions.
pub trait Unary: Element {
    /// The function of each value, with the launch's parameters.
    fn apply<const N: usize>(op: UnaryOp, parameters: [Self::Wide; 2], x: [Self::Wide; N])
    -> [Self::Wide; N];
}

/// What both floats do in the same way.
macro_rules! float_unary {
    ($float:ident, $op:ident, $a:ident, $b:ident, $x:ident, { $($own:tt)* }) => {
        match $op {
            UnaryOp::Neg => map($x, |x| -x),
            UnaryOp::Abs => map($x, $float::abs),
            UnaryOp::Sign => map($x, |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x }),
            UnaryOp::Square => map($x, |x| x * x),
            UnaryOp::Relu => map($x, |x| if x < 0.0 { 0.0 } else { x }),
            UnaryOp::Affine => map($x, |x| GpuFloat::mul_add(x, $a, $b)),
            UnaryOp::Clamp => map($x, |x| {
                let above = if x < $a { $a } else { x };
                if above > $b { $b } else { above }
            }),
            UnaryOp::LeakyRelu => map($x, |x| if x > 0.0 { x } else { $a * x }),
            UnaryOp::Sqrt => map($x, GpuFloat::sqrt),
            UnaryOp::Recip => map($x, |x| 1.0 / x),
            UnaryOp::Floor => map($x, GpuFloat::floor),
            UnaryOp::Ceil => map($x, GpuFloat::ceil),
            UnaryOp::Trunc => map($x, GpuFloat::trunc),
            $($own)*
        }
    };
}

/// Types computed in f32, by the functions of a module.
macro_rules! by_f32 {
    ($($ty:ident: $math:ident),*) => { $(
        impl Unary for $ty {
            #[inline(always)]
            fn apply<const N: usize>(op: UnaryOp, [a, b]: [f32; 2], x: [f32; N]) -> [f32; N] {
                float_unary!(f32, op, a, b, x, {
                    UnaryOp::Rsqrt => map(x, $math::rsqrt),
                    UnaryOp::Round => map(x, $math::round),
                    UnaryOp::Exp => map(x, $math::exp),
                    UnaryOp::Ln => map(x, $math::ln),
                    UnaryOp::Tanh => map(x, $math::tanh),
                    UnaryOp::Erf => map(x, $math::erf),
                    UnaryOp::Sigmoid => map(x, $math::sigmoid),
                    UnaryOp::Gelu => map(x, $math::gelu),
                    UnaryOp::GeluTanh => map(x, $math::gelu_tanh),
                    UnaryOp::Silu => map(x, $math::silu),
                    UnaryOp::Sin | UnaryOp::Cos => {
                        let quarter = i32::from(op == UnaryOp::Cos);
                        map(x, |x| $math::sin_plus_quarters(x, quarter))
                    }
                })
            }
        }
    )* };
}

by_f32!(f32: single, f16: reduced, bf16: reduced);

impl Unary for f64 {
    #[inline(always)]
    fn apply<const N: usize>(op: UnaryOp, [a, b]: [f64; 2], x: [f64; N]) -> [f64; N] {
        float_unary!(f64, op, a, b, x, {
            UnaryOp::Rsqrt => map(x, |x| 1.0 / GpuFloat::sqrt(x)),
            UnaryOp::Round => map(x, double::round),
            UnaryOp::Exp => map(x, double::exp),
            UnaryOp::Ln => map(x, double::ln),
            UnaryOp::Tanh => map(x, double::tanh),
            UnaryOp::Erf => map(x, double::erf),
            UnaryOp::Sigmoid => map(x, double::sigmoid),
            UnaryOp::Gelu => map(x, double::gelu),
            UnaryOp::GeluTanh => map(x, double::gelu_tanh),
            UnaryOp::Silu => map(x, double::silu),
            // The host does not ask for them.
            UnaryOp::Sin | UnaryOp::Cos => x,
        })
    }
}

macro_rules! integer_unary {
    ($($int:ident),*) => { $(
        impl Unary for $int {
            #[inline(always)]
            fn apply<const N: usize>(op: UnaryOp, [a, b]: [$int; 2], x: [$int; N]) -> [$int; N] {
                match op {
                    UnaryOp::Neg => map(x, $int::wrapping_neg),
                    UnaryOp::Abs => map(x, $int::wrapping_abs),
                    UnaryOp::Sign => map(x, $int::signum),
                    UnaryOp::Square => map(x, |x| x.wrapping_mul(x)),
                    UnaryOp::Relu => map(x, |x| x.max(0)),
                    UnaryOp::Affine => map(x, |x| x.wrapping_mul(a).wrapping_add(b)),
                    UnaryOp::Clamp => map(x, |x| x.max(a).min(b)),
                    // The host does not ask for them.
                    _ => x,
                }
            }
        }
    )* };
}

integer_unary!(i64, i32);

/// `y = f(x)`.
///
/// # Safety
/// `x` and `y` hold what the geometry names, aligned as its mode asks for with `N` elements a thread; they are the same or do not
/// overlap, and no two elements of `y` lie at one place. Blocks of [`THREADS`] threads, [`Geometry::blocks`]`(N)` of them.
#[inline(always)]
unsafe fn run<T: Unary, const N: usize>(
    op: UnaryOp,
    parameters: [T::Wide; 2],
    geometry: &Geometry<2>,
    x: *const T,
    y: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let item: Option<Item<'_, 2, N>> = item_of_thread(geometry);
        if let Some(item) = item {
            let [x] = item.fetch(0, [x]);
            if op.is_long()
                && let Some(words) = T::map_pairs(access::words(x), |pair| T::apply(op, parameters, pair))
            {
                item.store(1, y, access::from_words(words));
                return;
            }
            let x = T::widen(access::from_wide(x));
            item.store(1, y, T::narrow(T::apply(op, parameters, x)));
        }
    }
}

/// An entry point for each element type: its element, what that is computed in, blocks of a multiprocessor.
macro_rules! entries {
    ($($name:ident: $ty:ident, $wide:ident, $resident:expr;)*) => { $(
        #[doc = concat!("`y = f(x)` for ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// `x` and `y` hold what the geometry names, aligned as its mode asks for with 16 bytes of elements a thread; they are the
        /// same or do not overlap, and no two elements of `y` lie at one place. Blocks of [`THREADS`] threads,
        /// [`Geometry::blocks`] of them.
        #[kernel(launch_bounds(THREADS, $resident))]
        pub unsafe fn $name(op: UnaryOp, parameters: [$wide; 2], geometry: Geometry<2>, x: *const $ty, y: *mut $ty) {
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, { width(size_of::<$ty>(), size_of::<$ty>()) }>(op, parameters, &geometry, x, y) }
        }
    )* };
}

entries! {
    unary_f64: f64, f64, RESIDENT / 2;
    unary_f32: f32, f32, RESIDENT;
    unary_f16: f16, f32, RESIDENT;
    unary_bf16: bf16, f32, RESIDENT;
    unary_i64: i64, i64, RESIDENT;
    unary_i32: i32, i32, RESIDENT;
}
