//! Arithmetic and conversions that name their rounding: `_rd` down, `_rn` to nearest with ties to even, `_ru`
//! up, `_rz` towards 0. None of it is merged into an `fma`.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

use super::TiesEven;
#[cfg(not(target_arch = "nvptx64"))]
use super::executor::{Direction, directed};
use crate::float::GpuFloat;

/// One instruction in one direction.
#[cfg(target_arch = "nvptx64")]
macro_rules! instruction {
    ($ptx:expr, $out:ident $ret:ident, $($arg:ident $class:ident),+) => {{
        let result: $ret;
        // SAFETY: registers only.
        unsafe {
            asm!(
                concat!($ptx, " {result}", $(", {", stringify!($arg), "}",)+ ";"),
                result = out($out) result, $($arg = in($class) $arg,)+
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        result
    }};
}

/// Arithmetic in the four directions: name, operands and type, PTX and class of its registers, documentation;
/// for the executor the value to nearest, and terms `(a, b)` and a divisor for which the exact value is the
/// sum of all `a * b` over the divisor.
macro_rules! arithmetic {
    ($($name:ident($($arg:ident),+: $ty:ident), $ptx:literal $class:ident: $what:literal,
        $nearest:expr, $terms:expr, $divisor:expr;)*) => { $(
        rounded! { $name($($arg: $ty $class),+) -> $ty $class, $what, $ptx "", stringify!($ty), $nearest, $terms, $divisor }
    )* };
}

/// Conversions in the four directions: name, operand, the types of the result and of the PTX, documentation;
/// then as [`arithmetic`].
macro_rules! convert {
    ($($name:ident($arg:ident: $ty:ident $in:ident) -> $ret:ident $out:ident, $ptx:literal: $what:literal,
        $nearest:expr, $terms:expr;)*) => { $(
        rounded! { $name($arg: $ty $in) -> $ret $out, $what, "cvt" $ptx, "", $nearest, $terms, 1.0 }
    )* };
}

macro_rules! rounded {
    ($name:ident $($row:tt)*) => {
        rounded! { @ $name _rd ".rm." Down "down" $($row)* }
        rounded! { @ $name _rn ".rn." Nearest "to nearest, ties to even" $($row)* }
        rounded! { @ $name _ru ".rp." Up "up" $($row)* }
        rounded! { @ $name _rz ".rz." Zero "towards 0" $($row)* }
    };
    (@ $name:ident $suffix:ident $mode:literal $direction:ident $how:literal
        ($($arg:ident: $ty:ident $class:ident),+) -> $ret:ident $out:ident, $what:literal,
        $op:literal $types:literal, $type:expr, $nearest:expr, $terms:expr, $divisor:expr
    ) => { pastey::paste! {
        #[doc = concat!($what, ", rounded ", $how, ".\n\n# PTX\n`", $op, $mode, $types, $type, "`")]
        ///
        /// # Safety
        /// Always safe to call; `unsafe` as in Rust-CUDA.
        #[inline]
        pub unsafe fn [<$name $suffix>]($($arg: $ty),+) -> $ret {
            arms! {
                ptx: { instruction!(concat!($op, $mode, $types, $type), $out $ret, $($arg $class),+) }
                sim: { directed($nearest, &$terms, $divisor, Direction::$direction) }
            }
        }
    } };
}

arithmetic! {
    dadd(x, y: f64), "add" reg64: "`x + y`", x + y, [(x, 1.0), (y, 1.0)], 1.0;
    ddiv(x, y: f64), "div" reg64: "`x / y`", x / y, [(x, 1.0)], y;
    dmul(x, y: f64), "mul" reg64: "`x * y`", x * y, [(x, y)], 1.0;
    drcp(x: f64), "rcp" reg64: "`1 / x`", 1.0 / x, [(1.0, 1.0)], x;
    dsqrt(x: f64), "sqrt" reg64: "Square root", x.sqrt(), [(x, 1.0)], x.sqrt();
    fma(x, y, z: f64), "fma" reg64: "`x * y + z`", x.mul_add(y, z), [(x, y), (z, 1.0)], 1.0;
    fadd(x, y: f32), "add" reg32: "`x + y`", x + y, [(x, 1.0), (y, 1.0)], 1.0;
    fdiv(x, y: f32), "div" reg32: "`x / y`", x / y, [(x, 1.0)], y;
    fmul(x, y: f32), "mul" reg32: "`x * y`", x * y, [(x, y)], 1.0;
    frcp(x: f32), "rcp" reg32: "`1 / x`", 1.0 / x, [(1.0, 1.0)], x;
    fsqrt(x: f32), "sqrt" reg32: "Square root", x.sqrt(), [(x, 1.0)], x.sqrt();
    fsub(x, y: f32), "sub" reg32: "`x - y`", x - y, [(x, 1.0), (y, -1.0)], 1.0;
    fmaf(x, y, z: f32), "fma" reg32: "`x * y + z`", x.mul_add(y, z), [(x, y), (z, 1.0)], 1.0;
}

/// The weight of the high half of an integer of 64 bits.
#[cfg(not(target_arch = "nvptx64"))]
const HIGH: f64 = (1u64 << 32) as f64;

convert! {
    double2float(d: f64 reg64) -> f32 reg32, "f32.f64": "As an f32", d as f32, [(d, 1.0)];
    int2float(in_: i32 reg32) -> f32 reg32, "f32.s32": "As a float", in_ as f32, [(f64::from(in_), 1.0)];
    uint2float(in_: i32 reg32) -> f32 reg32, "f32.u32": "As a float, from an unsigned number",
        in_ as u32 as f32, [(f64::from(in_ as u32), 1.0)];
    ll2double(l: i64 reg64) -> f64 reg64, "f64.s64": "As a float",
        l as f64, [((l >> 32) as f64, HIGH), (l as u32 as f64, 1.0)];
    ll2float(l: i64 reg64) -> f32 reg32, "f32.s64": "As a float",
        l as f32, [((l >> 32) as f64, HIGH), (l as u32 as f64, 1.0)];
    ull2double(l: i64 reg64) -> f64 reg64, "f64.u64": "As a float, from an unsigned number",
        l as u64 as f64, [((l as u64 >> 32) as f64, HIGH), (l as u32 as f64, 1.0)];
    ull2float(l: i64 reg64) -> f32 reg32, "f32.u64": "As a float, from an unsigned number",
        l as u64 as f32, [((l as u64 >> 32) as f64, HIGH), (l as u32 as f64, 1.0)];
}

functions! { "Always safe to call; `unsafe` as in Rust-CUDA."
    frsqrt_rn(x: f32) -> f32, "Computed in f64, so that a result may be the second nearest, once in 2^28.",
        "`1 / sqrt(x)`, rounded to nearest.", (1.0 / GpuFloat::sqrt(f64::from(x))) as f32;
}

/// Conversions to an integer in the four directions: name and operand, the integer that is meant, the one
/// that stands for it.
macro_rules! to_integer {
    ($($name:ident($arg:ident: $ty:ident) as $int:ident -> $ret:ident;)*) => { $( pastey::paste! {
        functions! { "Always safe to call; `unsafe` as in Rust-CUDA."
            [<$name _rd>]($arg: $ty) -> $ret, "Out of range gives the nearest end, NaN 0.",
                "As an integer, rounded down.", GpuFloat::floor($arg) as $int as $ret;
            [<$name _rn>]($arg: $ty) -> $ret, "Out of range gives the nearest end, NaN 0.",
                "As an integer, rounded to nearest, ties to even.", $arg.ties_even() as $int as $ret;
            [<$name _ru>]($arg: $ty) -> $ret, "Out of range gives the nearest end, NaN 0.",
                "As an integer, rounded up.", GpuFloat::ceil($arg) as $int as $ret;
            [<$name _rz>]($arg: $ty) -> $ret, "Out of range gives the nearest end, NaN 0.",
                "As an integer, rounded towards 0.", $arg as $int as $ret;
        }
    } )* };
}

to_integer! {
    double2int(d: f64) as i32 -> i32;
    double2uint(d: f64) as u32 -> i32;
    double2ll(f: f64) as i64 -> i64;
    double2ull(f: f64) as u64 -> i64;
    float2int(in_: f32) as i32 -> i32;
    float2uint(in_: f32) as u32 -> i32;
    float2ll(f: f32) as i64 -> i64;
    float2ull(f: f32) as u64 -> i64;
}
