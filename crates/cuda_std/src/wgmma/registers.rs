//! The accumulators' types.
//!
//! An instruction names its accumulators one by one, so there is an implementation of [`Registers`] for each
//! of the 32 lengths. The types are part of the opcode: every implementation has all of them, and which one
//! remains is decided while compiling.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

use super::Accumulator;
use super::sealed::Sealed;
#[cfg(target_arch = "nvptx64")]
use super::{ElementType, Operand};

/// One thread's accumulators as operands of an instruction.
///
/// # Safety
/// The unsafe functions ask what [`mma`](super::mma) and [`mma_ra`](super::mma_ra) ask.
pub trait Registers {
    /// See [`crate::wgmma::mma`].
    #[cfg(target_arch = "nvptx64")]
    unsafe fn mma<A: Operand, B: Operand, const TRANS_A: u32, const TRANS_B: u32>(
        &mut self,
        a: u64,
        b: u64,
        scale_d: u32,
    );

    /// See [`crate::wgmma::mma_overwrite`].
    #[cfg(target_arch = "nvptx64")]
    unsafe fn mma_overwrite<A: Operand, B: Operand, const TRANS_A: u32, const TRANS_B: u32>(
        &mut self,
        a: u64,
        b: u64,
    );

    /// See [`crate::wgmma::mma_ra`].
    #[cfg(target_arch = "nvptx64")]
    unsafe fn mma_ra<A: Operand, B: Operand, const TRANS_B: u32>(
        &mut self,
        a: &[u32; 4],
        b: u64,
        scale_d: u32,
    );

    /// See [`crate::wgmma::mma_ra_overwrite`].
    #[cfg(target_arch = "nvptx64")]
    unsafe fn mma_ra_overwrite<A: Operand, B: Operand, const TRANS_B: u32>(&mut self, a: &[u32; 4], b: u64);

    /// See [`crate::wgmma::fence_registers`].
    #[cfg(target_arch = "nvptx64")]
    fn fence(&mut self);

    /// All of them, in the order of the fragment.
    #[cfg(not(target_arch = "nvptx64"))]
    fn as_mut_slice(&mut self) -> &mut [f32];
}

/// One product with A in shared memory: the shape, the types, the opcode's last immediates, further operands.
#[cfg(target_arch = "nvptx64")]
macro_rules! shared_a {
    ($direction:ident $acc:ident, $a:ident, $b:ident, $scale_d:ident, $n:literal, $first:literal $($i:literal)*;
     $k:literal, $types:literal, $trans:literal, $($operand:tt)*) => {
        asm!(
            "{{",
            ".reg .pred scale_d;",
            "setp.ne.b32 scale_d, {scale_d}, 0;",
            concat!("wgmma.mma_async.sync.aligned.m64n", $n, $k, ".f32.", $types,
                " {{{", $first, "}" $(, ", {", $i, "}")*, "}}, {a}, {b}, scale_d, 1, 1", $trans, ";"),
            "}}",
            $direction(reg32) $acc[$first], $($direction(reg32) $acc[$i],)*
            a = in(reg64) $a, b = in(reg64) $b, scale_d = in(reg32) $scale_d,
            $($operand)*
            options(nostack, preserves_flags)
        )
    };
}

/// One product with A in registers.
#[cfg(target_arch = "nvptx64")]
macro_rules! register_a {
    ($direction:ident $acc:ident, $a:ident, $b:ident, $scale_d:ident, $n:literal, $first:literal $($i:literal)*;
     $k:literal, $types:literal, $trans:literal, $($operand:tt)*) => {
        asm!(
            "{{",
            ".reg .pred scale_d;",
            "setp.ne.b32 scale_d, {scale_d}, 0;",
            concat!("wgmma.mma_async.sync.aligned.m64n", $n, $k, ".f32.", $types,
                " {{{", $first, "}" $(, ", {", $i, "}")*, "}}, {{{a0}, {a1}, {a2}, {a3}}}, {b}, scale_d, 1, 1", $trans, ";"),
            "}}",
            $direction(reg32) $acc[$first], $($direction(reg32) $acc[$i],)*
            a0 = in(reg32) $a[0], a1 = in(reg32) $a[1], a2 = in(reg32) $a[2], a3 = in(reg32) $a[3],
            b = in(reg64) $b, scale_d = in(reg32) $scale_d,
            $($operand)*
            options(nostack, preserves_flags)
        )
    };
}

/// The accumulators of `$n` columns, `$i` the numbers of their registers.
macro_rules! registers {
    ($n:literal: $($i:literal)+) => {
        impl Registers for [f32; $n / 2] {
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn mma<A: Operand, B: Operand, const TRANS_A: u32, const TRANS_B: u32>(
                &mut self,
                a: u64,
                b: u64,
                scale_d: u32,
            ) {
                use ElementType::*;
                // SAFETY: the caller vouches for the product.
                unsafe {
                    match (A::TYPE, B::TYPE) {
                        (F16, _) => shared_a!(inout self, a, b, scale_d, $n, $($i)+; "k16", "f16.f16", ", {trans_a}, {trans_b}",
                            trans_a = const TRANS_A, trans_b = const TRANS_B,),
                        (Bf16, _) => shared_a!(inout self, a, b, scale_d, $n, $($i)+; "k16", "bf16.bf16", ", {trans_a}, {trans_b}",
                            trans_a = const TRANS_A, trans_b = const TRANS_B,),
                        (Tf32, _) => shared_a!(inout self, a, b, scale_d, $n, $($i)+; "k8", "tf32.tf32", "",),
                        (E4m3, E4m3) => shared_a!(inout self, a, b, scale_d, $n, $($i)+; "k32", "e4m3.e4m3", "",),
                        (E4m3, _) => shared_a!(inout self, a, b, scale_d, $n, $($i)+; "k32", "e4m3.e5m2", "",),
                        (E5m2, E4m3) => shared_a!(inout self, a, b, scale_d, $n, $($i)+; "k32", "e5m2.e4m3", "",),
                        (E5m2, _) => shared_a!(inout self, a, b, scale_d, $n, $($i)+; "k32", "e5m2.e5m2", "",),
                    }
                }
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn mma_overwrite<A: Operand, B: Operand, const TRANS_A: u32, const TRANS_B: u32>(
                &mut self,
                a: u64,
                b: u64,
            ) {
                use ElementType::*;
                let scale_d = 0u32;
                // SAFETY: the caller vouches for the product.
                unsafe {
                    match (A::TYPE, B::TYPE) {
                        (F16, _) => shared_a!(out self, a, b, scale_d, $n, $($i)+; "k16", "f16.f16", ", {trans_a}, {trans_b}",
                            trans_a = const TRANS_A, trans_b = const TRANS_B,),
                        (Bf16, _) => shared_a!(out self, a, b, scale_d, $n, $($i)+; "k16", "bf16.bf16", ", {trans_a}, {trans_b}",
                            trans_a = const TRANS_A, trans_b = const TRANS_B,),
                        (Tf32, _) => shared_a!(out self, a, b, scale_d, $n, $($i)+; "k8", "tf32.tf32", "",),
                        (E4m3, E4m3) => shared_a!(out self, a, b, scale_d, $n, $($i)+; "k32", "e4m3.e4m3", "",),
                        (E4m3, _) => shared_a!(out self, a, b, scale_d, $n, $($i)+; "k32", "e4m3.e5m2", "",),
                        (E5m2, E4m3) => shared_a!(out self, a, b, scale_d, $n, $($i)+; "k32", "e5m2.e4m3", "",),
                        (E5m2, _) => shared_a!(out self, a, b, scale_d, $n, $($i)+; "k32", "e5m2.e5m2", "",),
                    }
                }
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn mma_ra<A: Operand, B: Operand, const TRANS_B: u32>(
                &mut self,
                a: &[u32; 4],
                b: u64,
                scale_d: u32,
            ) {
                use ElementType::*;
                // SAFETY: the caller vouches for the product.
                unsafe {
                    match (A::TYPE, B::TYPE) {
                        (F16, _) => register_a!(inout self, a, b, scale_d, $n, $($i)+; "k16", "f16.f16", ", {trans_b}",
                            trans_b = const TRANS_B,),
                        (Bf16, _) => register_a!(inout self, a, b, scale_d, $n, $($i)+; "k16", "bf16.bf16", ", {trans_b}",
                            trans_b = const TRANS_B,),
                        (Tf32, _) => register_a!(inout self, a, b, scale_d, $n, $($i)+; "k8", "tf32.tf32", "",),
                        (E4m3, E4m3) => register_a!(inout self, a, b, scale_d, $n, $($i)+; "k32", "e4m3.e4m3", "",),
                        (E4m3, _) => register_a!(inout self, a, b, scale_d, $n, $($i)+; "k32", "e4m3.e5m2", "",),
                        (E5m2, E4m3) => register_a!(inout self, a, b, scale_d, $n, $($i)+; "k32", "e5m2.e4m3", "",),
                        (E5m2, _) => register_a!(inout self, a, b, scale_d, $n, $($i)+; "k32", "e5m2.e5m2", "",),
                    }
                }
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn mma_ra_overwrite<A: Operand, B: Operand, const TRANS_B: u32>(
                &mut self,
                a: &[u32; 4],
                b: u64,
            ) {
                use ElementType::*;
                let scale_d = 0u32;
                // SAFETY: the caller vouches for the product.
                unsafe {
                    match (A::TYPE, B::TYPE) {
                        (F16, _) => register_a!(out self, a, b, scale_d, $n, $($i)+; "k16", "f16.f16", ", {trans_b}",
                            trans_b = const TRANS_B,),
                        (Bf16, _) => register_a!(out self, a, b, scale_d, $n, $($i)+; "k16", "bf16.bf16", ", {trans_b}",
                            trans_b = const TRANS_B,),
                        (Tf32, _) => register_a!(out self, a, b, scale_d, $n, $($i)+; "k8", "tf32.tf32", "",),
                        (E4m3, E4m3) => register_a!(out self, a, b, scale_d, $n, $($i)+; "k32", "e4m3.e4m3", "",),
                        (E4m3, _) => register_a!(out self, a, b, scale_d, $n, $($i)+; "k32", "e4m3.e5m2", "",),
                        (E5m2, E4m3) => register_a!(out self, a, b, scale_d, $n, $($i)+; "k32", "e5m2.e4m3", "",),
                        (E5m2, _) => register_a!(out self, a, b, scale_d, $n, $($i)+; "k32", "e5m2.e5m2", "",),
                    }
                }
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn fence(&mut self) {
                // SAFETY: no instruction.
                unsafe {
                    asm!(concat!("//" $(, " {", $i, "}")+), $(inout(reg32) self[$i],)+
                        options(nomem, nostack, preserves_flags));
                }
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn as_mut_slice(&mut self) -> &mut [f32] {
                self
            }
        }

        impl Sealed for [f32; $n / 2] {}
        impl Accumulator for [f32; $n / 2] {
            const N: u32 = $n;
        }
    };
}

/// An implementation for every prefix of the numbers, eight columns (four registers) further each.
macro_rules! ladder {
    ([$($done:literal)*]) => {};
    ([$($done:literal)*] $n:literal: $a:literal $b:literal $c:literal $d:literal, $($rest:tt)*) => {
        registers!($n: $($done)* $a $b $c $d);
        ladder!([$($done)* $a $b $c $d] $($rest)*);
    };
}

ladder!([]
    8: 0 1 2 3, 16: 4 5 6 7, 24: 8 9 10 11, 32: 12 13 14 15,
    40: 16 17 18 19, 48: 20 21 22 23, 56: 24 25 26 27, 64: 28 29 30 31,
    72: 32 33 34 35, 80: 36 37 38 39, 88: 40 41 42 43, 96: 44 45 46 47,
    104: 48 49 50 51, 112: 52 53 54 55, 120: 56 57 58 59, 128: 60 61 62 63,
    136: 64 65 66 67, 144: 68 69 70 71, 152: 72 73 74 75, 160: 76 77 78 79,
    168: 80 81 82 83, 176: 84 85 86 87, 184: 88 89 90 91, 192: 92 93 94 95,
    200: 96 97 98 99, 208: 100 101 102 103, 216: 104 105 106 107, 224: 108 109 110 111,
    232: 112 113 114 115, 240: 116 117 118 119, 248: 120 121 122 123, 256: 124 125 126 127,
);
