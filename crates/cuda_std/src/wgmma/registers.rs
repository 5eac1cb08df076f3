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
    ($direction:ident $a:ident, $b:ident, $scale_d:ident, $n:literal, $first:ident $($r:ident)*;
     $k:literal, $types:literal, $trans:literal, $($operand:tt)*) => {
        asm!(
            "{{",
            ".reg .pred scale_d;",
            "setp.ne.b32 scale_d, {scale_d}, 0;",
            concat!("wgmma.mma_async.sync.aligned.m64n", $n, $k, ".f32.", $types,
                " {{{", stringify!($first), "}" $(, ", {", stringify!($r), "}")*, "}}, {a}, {b}, scale_d, 1, 1", $trans, ";"),
            "}}",
            $first = $direction(reg32) *$first, $($r = $direction(reg32) *$r,)*
            a = in(reg64) $a, b = in(reg64) $b, scale_d = in(reg32) $scale_d,
            $($operand)*
            options(nostack, preserves_flags)
        )
    };
}

/// One product with A in registers.
#[cfg(target_arch = "nvptx64")]
macro_rules! register_a {
    ($direction:ident $a:ident, $b:ident, $scale_d:ident, $n:literal, $first:ident $($r:ident)*;
     $k:literal, $types:literal, $trans:literal, $($operand:tt)*) => {
        asm!(
            "{{",
            ".reg .pred scale_d;",
            "setp.ne.b32 scale_d, {scale_d}, 0;",
            concat!("wgmma.mma_async.sync.aligned.m64n", $n, $k, ".f32.", $types,
                " {{{", stringify!($first), "}" $(, ", {", stringify!($r), "}")*, "}}, {{{a0}, {a1}, {a2}, {a3}}}, {b}, scale_d, 1, 1", $trans, ";"),
            "}}",
            $first = $direction(reg32) *$first, $($r = $direction(reg32) *$r,)*
            a0 = in(reg32) $a[0], a1 = in(reg32) $a[1], a2 = in(reg32) $a[2], a3 = in(reg32) $a[3],
            b = in(reg64) $b, scale_d = in(reg32) $scale_d,
            $($operand)*
            options(nostack, preserves_flags)
        )
    };
}

/// The accumulators of `$n` columns, `$r` names for their registers.
macro_rules! registers {
    ($n:literal: $($r:ident)+) => {
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
                let [$($r),+] = self;
                // SAFETY: the caller vouches for the product.
                unsafe {
                    match (A::TYPE, B::TYPE) {
                        (F16, _) => shared_a!(inout a, b, scale_d, $n, $($r)+; "k16", "f16.f16", ", {trans_a}, {trans_b}",
                            trans_a = const TRANS_A, trans_b = const TRANS_B,),
                        (Bf16, _) => shared_a!(inout a, b, scale_d, $n, $($r)+; "k16", "bf16.bf16", ", {trans_a}, {trans_b}",
                            trans_a = const TRANS_A, trans_b = const TRANS_B,),
                        (Tf32, _) => shared_a!(inout a, b, scale_d, $n, $($r)+; "k8", "tf32.tf32", "",),
                        (E4m3, E4m3) => shared_a!(inout a, b, scale_d, $n, $($r)+; "k32", "e4m3.e4m3", "",),
                        (E4m3, _) => shared_a!(inout a, b, scale_d, $n, $($r)+; "k32", "e4m3.e5m2", "",),
                        (E5m2, E4m3) => shared_a!(inout a, b, scale_d, $n, $($r)+; "k32", "e5m2.e4m3", "",),
                        (E5m2, _) => shared_a!(inout a, b, scale_d, $n, $($r)+; "k32", "e5m2.e5m2", "",),
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
                let [$($r),+] = self;
                let scale_d = 0u32;
                // SAFETY: the caller vouches for the product.
                unsafe {
                    match (A::TYPE, B::TYPE) {
                        (F16, _) => shared_a!(out a, b, scale_d, $n, $($r)+; "k16", "f16.f16", ", {trans_a}, {trans_b}",
                            trans_a = const TRANS_A, trans_b = const TRANS_B,),
                        (Bf16, _) => shared_a!(out a, b, scale_d, $n, $($r)+; "k16", "bf16.bf16", ", {trans_a}, {trans_b}",
                            trans_a = const TRANS_A, trans_b = const TRANS_B,),
                        (Tf32, _) => shared_a!(out a, b, scale_d, $n, $($r)+; "k8", "tf32.tf32", "",),
                        (E4m3, E4m3) => shared_a!(out a, b, scale_d, $n, $($r)+; "k32", "e4m3.e4m3", "",),
                        (E4m3, _) => shared_a!(out a, b, scale_d, $n, $($r)+; "k32", "e4m3.e5m2", "",),
                        (E5m2, E4m3) => shared_a!(out a, b, scale_d, $n, $($r)+; "k32", "e5m2.e4m3", "",),
                        (E5m2, _) => shared_a!(out a, b, scale_d, $n, $($r)+; "k32", "e5m2.e5m2", "",),
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
                let [$($r),+] = self;
                // SAFETY: the caller vouches for the product.
                unsafe {
                    match (A::TYPE, B::TYPE) {
                        (F16, _) => register_a!(inout a, b, scale_d, $n, $($r)+; "k16", "f16.f16", ", {trans_b}",
                            trans_b = const TRANS_B,),
                        (Bf16, _) => register_a!(inout a, b, scale_d, $n, $($r)+; "k16", "bf16.bf16", ", {trans_b}",
                            trans_b = const TRANS_B,),
                        (Tf32, _) => register_a!(inout a, b, scale_d, $n, $($r)+; "k8", "tf32.tf32", "",),
                        (E4m3, E4m3) => register_a!(inout a, b, scale_d, $n, $($r)+; "k32", "e4m3.e4m3", "",),
                        (E4m3, _) => register_a!(inout a, b, scale_d, $n, $($r)+; "k32", "e4m3.e5m2", "",),
                        (E5m2, E4m3) => register_a!(inout a, b, scale_d, $n, $($r)+; "k32", "e5m2.e4m3", "",),
                        (E5m2, _) => register_a!(inout a, b, scale_d, $n, $($r)+; "k32", "e5m2.e5m2", "",),
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
                let [$($r),+] = self;
                let scale_d = 0u32;
                // SAFETY: the caller vouches for the product.
                unsafe {
                    match (A::TYPE, B::TYPE) {
                        (F16, _) => register_a!(out a, b, scale_d, $n, $($r)+; "k16", "f16.f16", ", {trans_b}",
                            trans_b = const TRANS_B,),
                        (Bf16, _) => register_a!(out a, b, scale_d, $n, $($r)+; "k16", "bf16.bf16", ", {trans_b}",
                            trans_b = const TRANS_B,),
                        (Tf32, _) => register_a!(out a, b, scale_d, $n, $($r)+; "k8", "tf32.tf32", "",),
                        (E4m3, E4m3) => register_a!(out a, b, scale_d, $n, $($r)+; "k32", "e4m3.e4m3", "",),
                        (E4m3, _) => register_a!(out a, b, scale_d, $n, $($r)+; "k32", "e4m3.e5m2", "",),
                        (E5m2, E4m3) => register_a!(out a, b, scale_d, $n, $($r)+; "k32", "e5m2.e4m3", "",),
                        (E5m2, _) => register_a!(out a, b, scale_d, $n, $($r)+; "k32", "e5m2.e5m2", "",),
                    }
                }
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn fence(&mut self) {
                let [$($r),+] = self;
                // SAFETY: no instruction.
                unsafe {
                    asm!(concat!("//" $(, " {", stringify!($r), "}")+), $($r = inout(reg32) *$r,)+
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
    ([$($done:ident)*]) => {};
    ([$($done:ident)*] $n:literal: $a:ident $b:ident $c:ident $d:ident, $($rest:tt)*) => {
        registers!($n: $($done)* $a $b $c $d);
        ladder!([$($done)* $a $b $c $d] $($rest)*);
    };
}

ladder!([]
    8: r0 r1 r2 r3, 16: r4 r5 r6 r7, 24: r8 r9 r10 r11, 32: r12 r13 r14 r15,
    40: r16 r17 r18 r19, 48: r20 r21 r22 r23, 56: r24 r25 r26 r27, 64: r28 r29 r30 r31,
    72: r32 r33 r34 r35, 80: r36 r37 r38 r39, 88: r40 r41 r42 r43, 96: r44 r45 r46 r47,
    104: r48 r49 r50 r51, 112: r52 r53 r54 r55, 120: r56 r57 r58 r59, 128: r60 r61 r62 r63,
    136: r64 r65 r66 r67, 144: r68 r69 r70 r71, 152: r72 r73 r74 r75, 160: r76 r77 r78 r79,
    168: r80 r81 r82 r83, 176: r84 r85 r86 r87, 184: r88 r89 r90 r91, 192: r92 r93 r94 r95,
    200: r96 r97 r98 r99, 208: r100 r101 r102 r103, 216: r104 r105 r106 r107, 224: r108 r109 r110 r111,
    232: r112 r113 r114 r115, 240: r116 r117 r118 r119, 248: r120 r121 r122 r123, 256: r124 r125 r126 r127,
);
