//! Conversions between number formats in one instruction.
//!
//! [`to_f32`] and [`from_f32`] convert arrays of a 16-bit or 8-bit float, two elements an instruction.
//!
//! A packed register holds two 16-bit numbers as one `u32`, or two 8-bit numbers as one `u16`; element 0 is
//! the low half. Functions that pack take `(low, high)`.
//!
//! NaN becomes the target's canonical NaN (all bits but the sign set; of tf32 and the 8-bit formats, any
//! NaN). Rounding is to nearest, ties to even, unless the name says otherwise: `_rz` toward zero, `_rna` to
//! nearest with ties away from zero. Beyond the range the f16 and bf16 conversions give infinity (`_rz`: the
//! largest number), those to 8 bits the largest number.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
#[cfg(target_arch = "nvptx64")]
use core::convert::identity;

use half::{bf16, f16};
use num::{E4M3, E5M2};
#[allow(unused_imports, reason = "by the architectures that have fewer instructions")]
use num::{Format, Overflow, Rounding, pack_x2, unpack_x2};

/// One `cvt` without side effects.
#[cfg(target_arch = "nvptx64")]
macro_rules! cvt {
    ($op:literal, $out:ident, ($in:ident $x:expr)) => {{
        let result;
        // SAFETY: registers only.
        unsafe {
            asm!(concat!($op, " {0}, {1};"), out($out) result, in($in) $x,
                options(pure, nomem, nostack, preserves_flags));
        }
        result
    }};
    // Packing forms name the high half first.
    ($op:literal, $out:ident, ($low:expr, $high:expr)) => {{
        let result;
        // SAFETY: registers only.
        unsafe {
            asm!(concat!($op, " {0}, {1}, {2};"), out($out) result, in(reg32) $high, in(reg32) $low,
                options(pure, nomem, nostack, preserves_flags));
        }
        result
    }};
}

#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn low_byte(x: i32) -> i8 {
    x as i8
}

/// +0 for negative numbers and for -0; NaN stays.
#[cfg(not(all(target_arch = "nvptx64", target_feature = "compute_80")))]
fn relu(x: f32) -> f32 {
    if x.is_nan() || x > 0.0 { x } else { 0.0 }
}

/// The architectures that have the instruction; then for each its name and types, PTX, class of the result,
/// operands, what makes the result of the register, documentation; and the executor's conversion by `num`,
/// which is that of other architectures too. There NaN gives the canonical NaN or, where the PTX ISA leaves
/// the choice (tf32, 8-bit formats), one of those that it may give.
macro_rules! convert {
    ($native:meta; $(
        $(#[$gate:meta])*
        $name:ident($($arg:ident: $ty:ty),+) -> $ret:ty, $ptx:literal $out:ident $in:tt $finish:path: $what:literal,
        $executor:expr;
    )*) => { $(
        $(#[$gate])*
        #[doc = $what]
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[must_use]
        pub fn $name($($arg: $ty),+) -> $ret {
            arms! {
                ptx: {
                    #[cfg($native)]
                    {
                        $finish(cvt!($ptx, $out, $in))
                    }
                    #[cfg(not($native))]
                    {
                        $executor
                    }
                }
                sim: { $executor }
            }
        }
    )* };
}

convert! {
    target_arch = "nvptx64";

    f16_from_f32(x: f32) -> f16, "cvt.rn.f16.f32" reg16 (reg32 x) f16::from_bits:
        "Rounds to f16.",
        if x.is_nan() { f16::from_bits(Format::F16.nan_code() as u16) } else { f16::from_f32(x) };
    f16_from_f32_rz(x: f32) -> f16, "cvt.rz.f16.f32" reg16 (reg32 x) f16::from_bits:
        "Rounds to f16, toward zero.",
        f16::from_bits(Format::F16.encode(x, Rounding::TowardZero, Overflow::Infinity) as u16);
    f16_to_f32(x: f16) -> f32, "cvt.f32.f16" reg32 (reg16 x.to_bits()) identity:
        "Widens; exact.",
        x.to_f32();
    i32_from_f32(x: f32) -> i32, "cvt.rni.s32.f32" reg32 (reg32 x) identity:
        "Rounds to an integer, ties to even; out of range gives the nearest end, NaN 0.",
        x.round_ties_even() as i32;
    i8_from_f32(x: f32) -> i8, "cvt.rni.sat.s8.f32" reg32 (reg32 x) low_byte:
        "Rounds to an integer, ties to even; out of range gives the nearest end, NaN 0.",
        x.round_ties_even() as i8;
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
    tf32_from_f32_rn(x: f32) -> u32, "cvt.rn.tf32.f32" reg32 (reg32 x) identity:
        "Rounds to tf32, ties to even, for an `mma` fragment. Only the upper 19 bits of the result mean anything. Needs sm_90.",
        num::tf32_from_f32(x, Rounding::NearestEven).to_bits();
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
    e4m3x2_from_f32(low: f32, high: f32) -> u16, "cvt.rn.satfinite.e4m3x2.f32" reg16 (low, high) identity:
        "Rounds two numbers to E4M3. Needs sm_89.",
        u16::from_le_bytes([low, high].map(|x| E4M3::from_f32(x).to_bits()));
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
    e5m2x2_from_f32(low: f32, high: f32) -> u16, "cvt.rn.satfinite.e5m2x2.f32" reg16 (low, high) identity:
        "Rounds two numbers to E5M2. Needs sm_89.",
        u16::from_le_bytes([low, high].map(|x| E5M2::from_f32(x).to_bits()));
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
    e4m3x2_from_f16x2(x: u32) -> u16, "cvt.rn.satfinite.e4m3x2.f16x2" reg16 (reg32 x) identity:
        "Rounds two f16 numbers to E4M3. Needs sm_89.",
        {
            let [low, high] = unpack_x2::<f16>(x).map(f16::to_f32);
            e4m3x2_from_f32(low, high)
        };
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
    e5m2x2_from_f16x2(x: u32) -> u16, "cvt.rn.satfinite.e5m2x2.f16x2" reg16 (reg32 x) identity:
        "Rounds two f16 numbers to E5M2. Needs sm_89.",
        {
            let [low, high] = unpack_x2::<f16>(x).map(f16::to_f32);
            e5m2x2_from_f32(low, high)
        };
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
    f16x2_from_e4m3x2(x: u16) -> u32, "cvt.rn.f16x2.e4m3x2" reg32 (reg16 x) identity:
        "Widens two E4M3 numbers to f16; exact. Needs sm_89.",
        {
            let [low, high] = x.to_le_bytes().map(|code| E4M3::from_bits(code).to_f32());
            f16x2_from_f32(low, high)
        };
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
    f16x2_from_e5m2x2(x: u16) -> u32, "cvt.rn.f16x2.e5m2x2" reg32 (reg16 x) identity:
        "Widens two E5M2 numbers to f16; exact. Needs sm_89.",
        {
            let [low, high] = x.to_le_bytes().map(|code| E5M2::from_bits(code).to_f32());
            f16x2_from_f32(low, high)
        };
}

convert! {
    target_feature = "compute_80";

    bf16_from_f32(x: f32) -> bf16, "cvt.rn.bf16.f32" reg16 (reg32 x) bf16::from_bits:
        "Rounds to bf16.",
        if x.is_nan() { bf16::from_bits(Format::BF16.nan_code() as u16) } else { bf16::from_f32(x) };
    bf16_from_f32_rz(x: f32) -> bf16, "cvt.rz.bf16.f32" reg16 (reg32 x) bf16::from_bits:
        "Rounds to bf16, toward zero.",
        bf16::from_bits(Format::BF16.encode(x, Rounding::TowardZero, Overflow::Infinity) as u16);
    f16x2_from_f32(low: f32, high: f32) -> u32, "cvt.rn.f16x2.f32" reg32 (low, high) identity:
        "Rounds two numbers to f16.",
        pack_x2([low, high].map(f16_from_f32));
    f16x2_from_f32_rz(low: f32, high: f32) -> u32, "cvt.rz.f16x2.f32" reg32 (low, high) identity:
        "Rounds two numbers to f16, toward zero.",
        pack_x2([low, high].map(f16_from_f32_rz));
    f16x2_from_f32_relu(low: f32, high: f32) -> u32, "cvt.rn.relu.f16x2.f32" reg32 (low, high) identity:
        "Rounds two numbers to f16; negative ones become 0 (of -0 the sign is left open).",
        f16x2_from_f32(relu(low), relu(high));
    bf16x2_from_f32(low: f32, high: f32) -> u32, "cvt.rn.bf16x2.f32" reg32 (low, high) identity:
        "Rounds two numbers to bf16.",
        pack_x2([low, high].map(bf16_from_f32));
    bf16x2_from_f32_rz(low: f32, high: f32) -> u32, "cvt.rz.bf16x2.f32" reg32 (low, high) identity:
        "Rounds two numbers to bf16, toward zero.",
        pack_x2([low, high].map(bf16_from_f32_rz));
    bf16x2_from_f32_relu(low: f32, high: f32) -> u32, "cvt.rn.relu.bf16x2.f32" reg32 (low, high) identity:
        "Rounds two numbers to bf16; negative ones become 0 (of -0 the sign is left open).",
        bf16x2_from_f32(relu(low), relu(high));
    tf32_from_f32(x: f32) -> u32, "cvt.rna.tf32.f32" reg32 (reg32 x) identity:
        "Rounds to tf32, ties away from zero, for an `mma` fragment. Only the upper 19 bits of the result mean anything. \
         Up to sm_90 a NaN keeps its upper bits: one that has none set beside the exponent comes out as infinity.",
        num::tf32_from_f32(x, Rounding::NearestAway).to_bits();
}

/// Rounds four numbers to E4M3, the first one in the lowest byte. Needs sm_89.
///
/// # PTX
/// `cvt.rn.satfinite.e4m3x2.f32` twice: the second one takes the first one's half too.
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
#[inline(always)]
#[must_use]
pub fn e4m3x4_from_f32(x: [f32; 4]) -> u32 {
    arms! {
        ptx: {
            let packed: u32;
            // SAFETY: registers only.
            unsafe {
                asm!("{{ .reg .b16 low, high;",
                    "cvt.rn.satfinite.e4m3x2.f32 low, {2}, {1};",
                    "cvt.rn.satfinite.e4m3x2.f32 high, {4}, {3};",
                    "mov.b32 {0}, {{low, high}}; }}",
                    out(reg32) packed, in(reg32) x[0], in(reg32) x[1], in(reg32) x[2], in(reg32) x[3],
                    options(pure, nomem, nostack, preserves_flags));
            }
            packed
        }
        sim: { u32::from_le_bytes(x.map(|x| E4M3::from_f32(x).to_bits())) }
    }
}

/// Widens a bf16; exact, and nothing but a shift.
#[inline(always)]
#[must_use]
pub fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << u16::BITS)
}

/// Widens both halves of a packed f16 register, the low one first.
#[inline(always)]
#[must_use]
pub fn f16x2_to_f32(register: u32) -> [f32; 2] {
    let [low, high] = num::unpack_x2::<f16>(register);
    [f16_to_f32(low), f16_to_f32(high)]
}

/// Widens both halves of a packed bf16 register, the low one first.
#[inline(always)]
#[must_use]
pub fn bf16x2_to_f32(register: u32) -> [f32; 2] {
    [f32::from_bits(register << u16::BITS), f32::from_bits(register >> u16::BITS << u16::BITS)]
}

mod sealed {
    pub trait Sealed {}
}

/// A float of 16 or 8 bits, which is computed with as f32.
pub trait SmallFloat: Copy + sealed::Sealed {
    /// Widens two; exact.
    fn pair_to_f32(pair: [Self; 2]) -> [f32; 2];
    /// Rounds two.
    fn pair_from_f32(pair: [f32; 2]) -> [Self; 2];
}

/// The element type, how it widens, and how it packs two.
macro_rules! small_floats {
    ($($(#[$gate:meta])* $ty:ident, |$wide:ident| $widen:expr, |$low:ident, $high:ident| $narrow:expr;)*) => { $(
        $(#[$gate])*
        impl sealed::Sealed for $ty {}

        $(#[$gate])*
        impl SmallFloat for $ty {
            #[inline(always)]
            fn pair_to_f32($wide: [Self; 2]) -> [f32; 2] {
                $widen
            }

            #[inline(always)]
            fn pair_from_f32([$low, $high]: [f32; 2]) -> [Self; 2] {
                $narrow
            }
        }
    )* };
}

small_floats! {
    f16, |pair| pair.map(f16_to_f32), |low, high| unpack_x2(f16x2_from_f32(low, high));
    bf16, |pair| pair.map(bf16_to_f32), |low, high| unpack_x2(bf16x2_from_f32(low, high));
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
    E4M3,
        |pair| f16x2_to_f32(f16x2_from_e4m3x2(u16::from_le_bytes(pair.map(E4M3::to_bits)))),
        |low, high| e4m3x2_from_f32(low, high).to_le_bytes().map(E4M3::from_bits);
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
    E5M2,
        |pair| f16x2_to_f32(f16x2_from_e5m2x2(u16::from_le_bytes(pair.map(E5M2::to_bits)))),
        |low, high| e5m2x2_from_f32(low, high).to_le_bytes().map(E5M2::from_bits);
    // Older architectures have no instructions for these.
    #[cfg(all(target_arch = "nvptx64", not(target_feature = "compute_89")))]
    E4M3, |pair| pair.map(E4M3::to_f32), |low, high| [low, high].map(E4M3::from_f32);
    #[cfg(all(target_arch = "nvptx64", not(target_feature = "compute_89")))]
    E5M2, |pair| pair.map(E5M2::to_f32), |low, high| [low, high].map(E5M2::from_f32);
}

/// Widens f16, bf16, [`E4M3`] or [`E5M2`] numbers; exact.
///
/// ```ignore
/// let x: [f32; 8] = convert::to_f32(vector::load_array::<bf16, 8>(ptr));
/// ```
#[inline(always)]
#[must_use]
pub fn to_f32<T: SmallFloat, const N: usize>(values: [T; N]) -> [f32; N] {
    // Both elements of a pair ask for the same conversion, which the compiler makes once.
    core::array::from_fn(|i| T::pair_to_f32(pair_around(&values, i))[i & 1])
}

/// Rounds to f16, bf16, [`E4M3`] or [`E5M2`]: to nearest, ties to even.
///
/// ```ignore
/// vector::store_array(ptr, convert::from_f32::<bf16, 8>(y));
/// ```
#[inline(always)]
#[must_use]
pub fn from_f32<T: SmallFloat, const N: usize>(values: [f32; N]) -> [T; N] {
    core::array::from_fn(|i| T::pair_from_f32(pair_around(&values, i))[i & 1])
}

/// The pair that element `i` is in. The last element of an odd number is a pair with itself.
#[inline(always)]
fn pair_around<T: Copy, const N: usize>(values: &[T; N], i: usize) -> [T; 2] {
    [values[i & !1], values[(i | 1).min(N - 1)]]
}
