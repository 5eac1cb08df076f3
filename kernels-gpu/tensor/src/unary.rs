//! `y = f(x)`, element by element.

use crate::access::width;
use crate::element::{Element, Float, map};
use crate::integer::Signed;
use crate::place::{Geometry, Item, RESIDENT, item_of_thread};
use crate::{THREADS, access};
use cuda_std::GpuFloat;
use cuda_std::kernel;
use half::{bf16, f16};
use primitives::math::Elementary;

/// The table of functions. A row: name, how many parameters of the launch it takes, its formula for floats
/// with the functions of the precision `P`, and its formula for integers where it has one.
///
/// A formula gets the element and the two parameters. Enum, lists and the dispatch by element type follow
/// from the rows.
macro_rules! functions {
    (
        numbers { $($(#[$number_doc:meta])* $number:ident, $number_parameters:literal, $of_float:expr, $of_integer:expr;)* }
        floats { $($(#[$float_doc:meta])* $float:ident, $float_parameters:literal, $formula:expr;)* }
        floats_but_f64 { $($(#[$long_doc:meta])* $long:ident, $long_parameters:literal, $long_formula:expr;)* }
    ) => {
        /// The function. On 16-bit floats it is computed in f32, to a few more digits than they have, and
        /// rounded once. Integer arithmetic wraps around. `a` and `b` are the two parameters of a launch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum UnaryOp {
            $($(#[$number_doc])* $number,)*
            $($(#[$float_doc])* $float,)*
            $($(#[$long_doc])* $long,)*
        }

        impl UnaryOp {
            /// Every function.
            pub const ALL: &'static [UnaryOp] =
                &[$(UnaryOp::$number,)* $(UnaryOp::$float,)* $(UnaryOp::$long,)*];

            /// Is it defined for integers?
            pub const fn is_integral(self) -> bool {
                matches!(self, $(UnaryOp::$number)|*)
            }

            /// Is it defined for f64?
            pub const fn is_in_f64(self) -> bool {
                !matches!(self, $(UnaryOp::$long)|*)
            }

            /// How many of the launch's parameters it takes.
            pub const fn parameters(self) -> usize {
                match self {
                    $(UnaryOp::$number => $number_parameters,)*
                    $(UnaryOp::$float => $float_parameters,)*
                    $(UnaryOp::$long => $long_parameters,)*
                }
            }
        }

        #[inline(always)]
        fn of_floats<P: Elementary, const N: usize>(
            op: UnaryOp,
            parameters: [P::Value; 2],
            x: [P::Value; N],
        ) -> [P::Value; N] {
            match op {
                $(UnaryOp::$number => each(x, parameters, $of_float),)*
                $(UnaryOp::$float => each(x, parameters, $formula),)*
                $(UnaryOp::$long => each(x, parameters, $long_formula),)*
            }
        }

        #[inline(always)]
        fn of_integers<I: Signed, const N: usize>(op: UnaryOp, parameters: [I; 2], x: [I; N]) -> [I; N] {
            match op {
                $(UnaryOp::$number => each(x, parameters, $of_integer),)*
                // The host does not ask for them.
                _ => x,
            }
        }
    };
}

functions! {
    numbers {
        /// `-x`.
        Neg, 0, |x, _, _| -x, |x, _, _| x.wrapping_neg();
        /// `|x|`.
        Abs, 0, |x, _, _| x.abs(), |x, _, _| x.wrapping_abs();
        /// 1, -1, or `x` itself where it is neither above nor below 0.
        Sign, 0, |x, _, _| {
            let (zero, one) = (P::value(0.0), P::value(1.0));
            if x > zero { one } else if x < zero { -one } else { x }
        }, |x, _, _| x.signum();
        /// `x * x`.
        Square, 0, |x, _, _| x * x, |x, _, _| x.wrapping_mul(x);
        /// `max(x, 0)`; NaN stays.
        Relu, 0, |x, _, _| P::relu(x), |x, _, _| x.max(I::default());
        /// `a * x + b`.
        Affine, 2, |x, a, b| x.mul_add(a, b), |x, a, b| x.wrapping_mul(a).wrapping_add(b);
        /// `min(max(x, a), b)`; NaN stays.
        Clamp, 2, |x, a, b| {
            let above = if x < a { a } else { x };
            if above > b { b } else { above }
        }, |x, a, b| x.max(a).min(b);
    }
    floats {
        /// `sqrt(x)`.
        Sqrt, 0, |x, _, _| x.sqrt();
        /// `1 / sqrt(x)`.
        Rsqrt, 0, |x, _, _| P::rsqrt(x);
        /// `1 / x`.
        Recip, 0, |x, _, _| P::value(1.0) / x;
        /// Largest integer not above `x`.
        Floor, 0, |x, _, _| x.floor();
        /// Smallest integer not below `x`.
        Ceil, 0, |x, _, _| x.ceil();
        /// Nearest integer, ties to even.
        Round, 0, |x, _, _| P::round(x);
        /// Integer part.
        Trunc, 0, |x, _, _| x.trunc();
        /// Fractional part, with the sign of `x`.
        Frac, 0, |x, _, _| x - x.trunc();
        /// `e^x`.
        Exp, 0, |x, _, _| P::exp(x);
        /// Natural logarithm.
        Ln, 0, |x, _, _| P::ln(x);
        /// Hyperbolic tangent.
        Tanh, 0, |x, _, _| P::tanh(x);
        /// Error function.
        Erf, 0, |x, _, _| P::erf(x);
        /// `1 / (1 + e^-x)`.
        Sigmoid, 0, |x, _, _| P::sigmoid(x);
        /// `x / 2 (1 + erf(x / sqrt 2))`.
        Gelu, 0, |x, _, _| P::gelu(x);
        /// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
        GeluTanh, 0, |x, _, _| P::gelu_tanh(x);
        /// `x sigmoid(x)`.
        Silu, 0, |x, _, _| P::silu(x);
        /// `x` where it is above 0, else `a * x`.
        LeakyRelu, 1, |x, a, _| if x > P::value(0.0) { x } else { a * x };
    }
    floats_but_f64 {
        /// Sine of radians.
        Sin, 0, |x, _, _| P::sin_plus_quarters(x, 0);
        /// Cosine of radians.
        Cos, 0, |x, _, _| P::sin_plus_quarters(x, 1);
    }
}

impl UnaryOp {
    /// Does it take so many instructions and registers that 16-bit elements go two by two?
    const fn is_long(self) -> bool {
        matches!(self, UnaryOp::Sin | UnaryOp::Cos)
    }
}

/// `f(x, a, b)` of each element.
#[inline(always)]
fn each<A: Copy, const N: usize>(x: [A; N], [a, b]: [A; 2], f: impl Fn(A, A, A) -> A) -> [A; N] {
    map(x, |x| f(x, a, b))
}

/// An element type that has unary functions.
pub trait Unary: Element {
    /// The function of each value, with the launch's parameters.
    fn apply<const N: usize>(op: UnaryOp, parameters: [Self::Wide; 2], x: [Self::Wide; N])
    -> [Self::Wide; N];
}

macro_rules! floats {
    ($($ty:ident)*) => { $(
        impl Unary for $ty {
            #[inline(always)]
            fn apply<const N: usize>(op: UnaryOp, parameters: [Self::Wide; 2], x: [Self::Wide; N]) -> [Self::Wide; N] {
                of_floats::<<$ty as Float>::Precision, N>(op, parameters, x)
            }
        }
    )* };
}

floats!(f64 f32 f16 bf16);

macro_rules! integers {
    ($($int:ident)*) => { $(
        impl Unary for $int {
            #[inline(always)]
            fn apply<const N: usize>(op: UnaryOp, parameters: [$int; 2], x: [$int; N]) -> [$int; N] {
                of_integers(op, parameters, x)
            }
        }
    )* };
}

integers!(i64 i32);

/// `y = f(x)`.
///
/// # Safety
/// `x` and `y` hold what the geometry names, aligned as its mode asks for with `N` elements a thread; they
/// are the same or do not overlap, and no two elements of `y` lie at one place. Blocks of [`THREADS`]
/// threads, [`Geometry::blocks`]`(N)` of them.
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
        /// `x` and `y` hold what the geometry names, aligned as its mode asks for with 16 bytes of elements a
        /// thread; they are the same or do not overlap, and no two elements of `y` lie at one place. Blocks
        /// of [`THREADS`] threads, [`Geometry::blocks`] of them.
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
