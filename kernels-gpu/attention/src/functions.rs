//! Score functions that are compiled with the family. [`crate::score`] tells how to write your own.

use cuda_std::KernelArgs;

use crate::score::{Position, Real, ScoreFunction};

/// Attention with linear biases: `score - slope * |distance|`, a slope for each head of queries (Press and
/// others 2022).
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Alibi {
    /// A slope for each head of queries.
    pub slopes: *const f32,
}

impl ScoreFunction for Alibi {
    const HAS_SLOPE: bool = true;

    #[inline(always)]
    fn slope(&self, head: u32) -> f32 {
        // SAFETY: whoever launches the kernel passes a slope for each head.
        unsafe { *self.slopes.add(head as usize) }
    }

    #[inline(always)]
    fn score<N: Real>(&self, score: N, at: Position) -> N {
        score.add_product(-self.slope(at.head), at.distance.abs())
    }
}

/// Scores that stay below a cap: `cap * tanh(score / cap)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct SoftCap {
    /// The cap.
    pub cap: f32,
    /// One over it.
    pub reciprocal: f32,
}

impl ScoreFunction for SoftCap {
    #[inline(always)]
    fn factor(&self) -> f32 {
        self.cap
    }

    #[inline(always)]
    fn score<N: Real>(&self, score: N, _: Position) -> N {
        (score * self.reciprocal).tanh()
    }
}

/// [`Alibi`], or a [`SoftCap`] where it has no slopes: decode kernels have both, since they should wait for
/// memory more than for one of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Pattern {
    /// With slopes, or with null.
    pub alibi: Alibi,
    /// In place of it.
    pub soft_cap: SoftCap,
}

impl Pattern {
    #[inline(always)]
    const fn has_slopes(&self) -> bool {
        !self.alibi.slopes.is_null()
    }
}

impl ScoreFunction for Pattern {
    #[inline(always)]
    fn factor(&self) -> f32 {
        if self.has_slopes() { self.alibi.factor() } else { self.soft_cap.factor() }
    }

    #[inline(always)]
    fn score<N: Real>(&self, score: N, at: Position) -> N {
        if self.has_slopes() { self.alibi.score(score, at) } else { self.soft_cap.score(score, at) }
    }

    /// One branch for all, and a slope that is loaded once.
    #[inline(always)]
    fn scores<const N: usize>(&self, scores: [f32; N], at: [Position; N]) -> [f32; N] {
        if self.has_slopes() { self.alibi.scores(scores, at) } else { self.soft_cap.scores(scores, at) }
    }
}

/// A number added to each score.
///
/// Strides count modulo 2^64: one of -1 from a query to the next, with the number of query 0 and key 0 in the
/// middle of a table, is a number for each distance.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Bias {
    /// f32, keys side by side: the number of query 0 and key 0 of the first head and sequence.
    pub data: *const f32,
    /// Elements from a query to the next.
    pub row: u64,
    /// Elements from a head of queries to the next; 0 if all have the same.
    pub head: u64,
    /// Elements from a sequence to the next; 0 if all have the same.
    pub matrix: u64,
}

impl Bias {
    #[inline(always)]
    const fn place(&self, at: Position) -> isize {
        let (batch, head, query) = (at.batch as u64, at.head as u64, at.query as u64);
        let matrix = batch.wrapping_mul(self.matrix).wrapping_add(head.wrapping_mul(self.head));
        matrix.wrapping_add(query.wrapping_mul(self.row)).wrapping_add(at.key as u64) as isize
    }
}

impl ScoreFunction for Bias {
    #[inline(always)]
    fn score<N: Real>(&self, score: N, at: Position) -> N {
        // SAFETY: whoever launches the kernel passes a number for each place.
        score + unsafe { *self.data.offset(self.place(at)) }
    }
}

/// Each query sees the keys of two ranges: documents, prefixes, paddings, windows with first keys that all
/// see.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Ranges {
    /// For each query the first key and the end of both ranges: `[sequences][queries][4]`.
    pub data: *const [u32; 4],
    /// Queries from a sequence to the next; 0 if all have the same.
    pub matrix: u64,
}

impl ScoreFunction for Ranges {
    #[inline(always)]
    fn mask(&self, at: Position) -> bool {
        let place = at.batch as u64 * self.matrix + at.query as u64;
        // SAFETY: whoever launches the kernel passes ranges for all queries.
        let [first, end, other_first, other_end] = unsafe { *self.data.add(place as usize) };
        // A range that ends before it begins is empty.
        let is_in = |first: u32, end: u32| at.key.wrapping_sub(first) < end.saturating_sub(first);
        // Without a branch, so that a row's ranges are loaded once for all of its keys.
        is_in(first, end) | is_in(other_first, other_end)
    }
}

/// Blocks of queries see blocks of keys, as a table says.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct BlockSparse {
    /// For each block of queries a byte for each block of keys: whether they see each other.
    pub layout: *const u8,
    /// Base-2 logarithm of the positions of a block.
    pub exponent: u32,
    /// Blocks of keys of a row of the table.
    pub columns: u32,
    /// Bytes from a head of queries to the next; 0 if all have the same.
    pub head: u64,
}

impl ScoreFunction for BlockSparse {
    #[inline(always)]
    fn mask(&self, at: Position) -> bool {
        let exponent = self.exponent % 32;
        let row = u64::from(at.query >> exponent) * u64::from(self.columns);
        let first = u64::from(at.head) * self.head + row;
        // SAFETY: whoever launches the kernel passes a byte for each pair of blocks.
        unsafe { *self.layout.add(first as usize).add((at.key >> exponent) as usize) != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Alibi, Pattern, Position, ScoreFunction, SoftCap};

    const SCORES: [f32; 4] = [-3.5, 0.0, 0.25, 40.0];

    /// One score after the other.
    fn one_by_one(function: &impl ScoreFunction, at: [Position; 4]) -> [f32; 4] {
        core::array::from_fn(|i| function.score(SCORES[i], at[i]) * function.factor())
    }

    #[test]
    fn a_pattern_is_the_function_that_it_stands_for() {
        let at = [-2.0, -1.0, 0.0, 1.0].map(|distance| {
            let key = (10.0 + distance) as u32;
            Position { batch: 0, head: 1, query: 10, key, distance }
        });
        let slopes = [0.5, 0.25];
        let (alibi, none) = (Alibi { slopes: slopes.as_ptr() }, Alibi { slopes: core::ptr::null() });
        let soft_cap = SoftCap { cap: 2.0, reciprocal: 0.5 };
        let with_slopes = Pattern { alibi, soft_cap };
        assert_eq!(one_by_one(&alibi, at), [-4.0, -0.25, 0.25, 39.75]);
        assert_eq!(one_by_one(&with_slopes, at), one_by_one(&alibi, at));
        assert_eq!(with_slopes.scores(SCORES, at), one_by_one(&alibi, at));
        let with_cap = Pattern { alibi: none, soft_cap };
        let capped = one_by_one(&soft_cap, at);
        assert!(capped[0] < -1.8 && capped[1] == 0.0 && capped[2] < 0.25 && capped[3] <= 2.0, "{capped:?}");
        assert_eq!(one_by_one(&with_cap, at), capped);
        assert_eq!(with_cap.scores(SCORES, at), capped);
    }
}
