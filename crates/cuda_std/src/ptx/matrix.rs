//! `ldmatrix`, `stmatrix`.

use core::arch::asm;

macro_rules! ldmatrix {
    ($x1:ident, $x2:ident, $x4:ident, $suffix:literal) => {
        #[inline(always)]
        pub unsafe fn $x1(row: u32) -> u32 {
            let a: u32;
            // SAFETY: the caller vouches for the addresses and for the whole warp being here.
            unsafe {
                asm!(concat!("ldmatrix.sync.aligned.m8n8.x1", $suffix, " {{{0}}}, [{1}];"), out(reg32) a,
                    in(reg32) row, options(readonly, nostack, preserves_flags));
            }
            a
        }

        #[inline(always)]
        pub unsafe fn $x2(row: u32) -> [u32; 2] {
            let (a, b): (u32, u32);
            // SAFETY: the caller vouches for the addresses and for the whole warp being here.
            unsafe {
                asm!(concat!("ldmatrix.sync.aligned.m8n8.x2", $suffix, " {{{0}, {1}}}, [{2}];"), out(reg32) a,
                    out(reg32) b, in(reg32) row, options(readonly, nostack, preserves_flags));
            }
            [a, b]
        }

        #[inline(always)]
        pub unsafe fn $x4(row: u32) -> [u32; 4] {
            let (a, b, c, d): (u32, u32, u32, u32);
            // SAFETY: the caller vouches for the addresses and for the whole warp being here.
            unsafe {
                asm!(concat!("ldmatrix.sync.aligned.m8n8.x4", $suffix, " {{{0}, {1}, {2}, {3}}}, [{4}];"),
                    out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) row,
                    options(readonly, nostack, preserves_flags));
            }
            [a, b, c, d]
        }
    };
}

ldmatrix!(ldmatrix_x1, ldmatrix_x2, ldmatrix_x4, ".shared.b16");
ldmatrix!(ldmatrix_x1_trans, ldmatrix_x2_trans, ldmatrix_x4_trans, ".trans.shared.b16");

#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
mod sm90 {
    use core::arch::asm;

    macro_rules! stmatrix {
        ($x1:ident, $x2:ident, $x4:ident, $suffix:literal) => {
            #[inline(always)]
            pub unsafe fn $x1(row: u32, r: u32) {
                // SAFETY: the caller vouches for the addresses and for the whole warp being here.
                unsafe {
                    asm!(concat!("stmatrix.sync.aligned.m8n8.x1", $suffix, " [{0}], {{{1}}};"), in(reg32) row,
                        in(reg32) r, options(nostack, preserves_flags));
                }
            }

            #[inline(always)]
            pub unsafe fn $x2(row: u32, r: [u32; 2]) {
                // SAFETY: the caller vouches for the addresses and for the whole warp being here.
                unsafe {
                    asm!(concat!("stmatrix.sync.aligned.m8n8.x2", $suffix, " [{0}], {{{1}, {2}}};"),
                        in(reg32) row, in(reg32) r[0], in(reg32) r[1], options(nostack, preserves_flags));
                }
            }

            #[inline(always)]
            pub unsafe fn $x4(row: u32, r: [u32; 4]) {
                // SAFETY: the caller vouches for the addresses and for the whole warp being here.
                unsafe {
                    asm!(concat!("stmatrix.sync.aligned.m8n8.x4", $suffix, " [{0}], {{{1}, {2}, {3}, {4}}};"),
                        in(reg32) row, in(reg32) r[0], in(reg32) r[1], in(reg32) r[2], in(reg32) r[3],
                        options(nostack, preserves_flags));
                }
            }
        };
    }

    stmatrix!(stmatrix_x1, stmatrix_x2, stmatrix_x4, ".shared.b16");
    stmatrix!(stmatrix_x1_trans, stmatrix_x2_trans, stmatrix_x4_trans, ".trans.shared.b16");
}
#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
pub use sm90::*;
