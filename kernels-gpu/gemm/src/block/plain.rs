//! Stores of what nothing is done to but to scale it.

use super::{Product, UNIT_BYTES, VECTOR};
use crate::any::StridedGemm;
use crate::element::{Layout, Type};
use crate::epilogue::{Activation, EpilogueParams};
use cuda_std::{fastmath, vector};

/// An epilogue of alpha and beta alone, on f32 whose rows or columns, the lines, lie in one piece.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    alpha: f32,
    beta: f32,
    pub by_columns: bool,
    /// Lines are whole units, and begin at 16-byte boundaries.
    pub has_units: bool,
    /// The matrix of the batch.
    c: *mut f32,
    lines: u32,
    length: u32,
    /// Elements from a line to the next.
    pitch: u64,
}

impl Plain {
    #[inline(always)]
    pub fn of(product: Product<'_>, index: u32) -> Option<Self> {
        let Product { gemm, epilogue: params, c, .. } = product;
        let StridedGemm { m, n, c: Layout { ty, row, column, batch }, .. } = *gemm;
        let is_plain = params.activation == Activation::None as u32
            && params.bias.is_null()
            && params.residual.is_null()
            && params.scale_a.is_null()
            && params.scale_b.is_null()
            && params.scale_c.is_null()
            && params.amax.is_null();
        if !is_plain || ty != Type::F32 as u32 || (row != 1 && column != 1) {
            return None;
        }
        let by_columns = column != 1;
        let (lines, length, pitch) = if by_columns { (n, m, column) } else { (m, n, row) };
        let c = c.cast::<f32>().wrapping_add((u64::from(index) * batch) as usize);
        let has_units = pitch.is_multiple_of(u64::from(VECTOR))
            && length.is_multiple_of(VECTOR)
            && (c as usize).is_multiple_of(UNIT_BYTES as usize);
        let EpilogueParams { alpha, beta, .. } = *params;
        Some(Self { alpha, beta, by_columns, has_units, c, lines, length, pitch })
    }

    /// The element of C there, if there is one.
    #[inline(always)]
    fn element(self, [line, along]: [u32; 2]) -> Option<*mut f32> {
        let place = u64::from(line) * self.pitch + u64::from(along);
        (line < self.lines && along < self.length).then_some(self.c.wrapping_add(place as usize))
    }

    /// Writes four elements of a line, if they are in C.
    ///
    /// # Safety
    /// As for the kernel; no other thread has them; there are units, of which this is one.
    #[inline(always)]
    pub unsafe fn store_unit(self, place: [u32; 2], sums: [f32; 4]) {
        if let Some(to) = self.element(place) {
            // SAFETY: a unit of C.
            unsafe {
                let old: [f32; 4] =
                    if self.beta == 0.0 { [0.0; 4] } else { vector::load_v4(to.cast_const()) };
                vector::store_v4(to, [0, 1, 2, 3].map(|i| self.scale(sums[i], old[i])));
            }
        }
    }

    /// Writes an element, if it is in C.
    ///
    /// # Safety
    /// As for the kernel; no other thread has it.
    #[inline(always)]
    pub unsafe fn store(self, place: [u32; 2], sum: f32) {
        if let Some(to) = self.element(place) {
            // SAFETY: an element of C.
            unsafe {
                let old = if self.beta == 0.0 { 0.0 } else { *to };
                *to = self.scale(sum, old);
            }
        }
    }

    #[inline(always)]
    fn scale(self, sum: f32, old: f32) -> f32 {
        fastmath::fma(self.beta, old, self.alpha * sum)
    }
}
