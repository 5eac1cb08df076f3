//! Attention as its kernels see it: plain numbers, to choose by and to print.

use std::fmt;

use attention::problem::{Band, UNBOUNDED};

use crate::tensor::DType;

/// The keys that a query sees, counted from its place on the diagonal.
///
/// The diagonal ends in the last query and the last key, as in FlashAttention, so that the last query of a
/// causal mask sees all keys; [`Mask::from_top_left`] lets it begin in the first of both, as in PyTorch. A
/// query that sees no key gets zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mask {
    left: Option<u32>,
    right: Option<u32>,
    is_top_left: bool,
}

impl Mask {
    /// Every query sees every key.
    pub const FULL: Mask = Mask::window(None, None);
    /// No query sees keys behind its own place.
    pub const CAUSAL: Mask = Mask::window(None, Some(0));

    /// So many keys before the query's place, and so many behind it; `None` for all of them.
    #[must_use]
    pub const fn window(left: Option<u32>, right: Option<u32>) -> Mask {
        Mask { left, right, is_top_left: false }
    }

    /// With the diagonal from the first query and the first key on.
    #[must_use]
    pub const fn from_top_left(self) -> Mask {
        Mask { is_top_left: true, ..self }
    }

    /// Whether every query sees every key.
    pub(super) const fn is_full(self) -> bool {
        self.left.is_none() && self.right.is_none()
    }

    /// Whether the diagonal begins in the first query and key.
    pub(super) const fn is_top_left(self) -> bool {
        self.is_top_left
    }

    /// As kernels take it.
    pub(super) fn band(self) -> Band {
        let bound = |keys: Option<u32>| keys.map_or(UNBOUNDED, |keys| keys.min(UNBOUNDED as u32) as i32);
        Band { left: bound(self.left), right: bound(self.right), top_left: self.is_top_left.into() }
    }

    /// Pairs of a query and a key that it sees, of a sequence.
    pub(super) fn pairs(self, queries: u32, keys: u32) -> u64 {
        let band = self.band();
        let diagonal = i64::from(band.diagonal(queries, keys));
        let (queries, keys) = (i64::from(queries), i64::from(keys));
        // The sum of n limited to 0..=keys, over all n below `end`.
        let below = |end: i64| {
            let rising = end.clamp(0, keys);
            rising * (rising - 1) / 2 + (end - keys).max(0) * keys
        };
        // The sum of `first + i` limited to 0..=keys, over all queries i.
        let limited = |first: i64| below(first + queries) - below(first);
        (limited(diagonal + i64::from(band.right) + 1) - limited(diagonal - i64::from(band.left))) as u64
    }
}

/// As in `causal` or `keys -128..=0 from the top left`.
impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.left, self.right) {
            (None, None) => return f.write_str("full"),
            (None, Some(0)) => f.write_str("causal")?,
            (None, Some(right)) => write!(f, "keys ..={right}")?,
            (Some(left), None) => write!(f, "keys -{left}..")?,
            (Some(left), Some(right)) => write!(f, "keys -{left}..={right}")?,
        }
        if self.is_top_left { f.write_str(" from the top left") } else { Ok(()) }
    }
}

/// Attention of some shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Type of all tensors.
    pub dtype: DType,
    /// Sequences.
    pub batch: u32,
    /// Queries of a sequence; of the longest one where sequences are packed.
    pub queries: u32,
    /// Keys of a sequence; of the longest one where sequences are packed.
    pub keys: u32,
    /// Heads of queries.
    pub heads: u32,
    /// Heads of keys and values: each belongs to a group of heads of queries.
    pub kv_heads: u32,
    /// Elements of a row of queries and of keys.
    pub head_size: u32,
    /// Elements of a row of values and of results.
    pub value_size: u32,
    /// Which keys a query sees.
    pub mask: Mask,
    /// Rows of queries and of keys in all, where sequences are packed.
    pub packed: Option<[u32; 2]>,
    /// Are the log-sum-exps wanted?
    pub log_sum_exp: bool,
}

impl Problem {
    /// Is there no query?
    pub fn is_empty(&self) -> bool {
        let rows = self.packed.map_or(self.queries, |[rows, _]| rows);
        self.batch == 0 || self.heads == 0 || self.queries == 0 || rows == 0
    }

    /// Heads of queries that share a head of keys.
    pub fn group(&self) -> u32 {
        self.heads / self.kv_heads.max(1)
    }

    /// Sequences of the full length; of packed ones as many as their rows would make.
    pub(super) fn sequences(&self) -> f64 {
        match self.packed {
            Some([rows, _]) => f64::from(rows) / f64::from(self.queries.max(1)),
            None => f64::from(self.batch),
        }
    }

    /// Floating-point operations of both products, for the keys that queries see. Of packed sequences, whose
    /// lengths the host does not know, an estimate.
    pub fn flops(&self) -> f64 {
        let pairs = self.mask.pairs(self.queries, self.keys) as f64;
        2.0 * self.sequences() * f64::from(self.heads) * f64::from(self.row_elements()) * pairs
    }

    /// Elements of a row of queries or keys, and of one of values or results: a pair of a query and a key
    /// costs a multiplication and an addition for each.
    pub(super) fn row_elements(&self) -> u32 {
        self.head_size.saturating_add(self.value_size)
    }

    /// Do values have the head size of queries?
    pub(super) fn is_of_one_size(&self) -> bool {
        self.head_size == self.value_size
    }
}

/// As in `bf16 [2, 512, 16, 128] on [2, 4096, 4, 128], causal`: queries, and keys; behind them the values'
/// head size, if it is another.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { dtype, batch, queries, keys, heads, kv_heads, head_size, mask, packed, .. } = self;
        match packed {
            None => write!(
                f,
                "{dtype} [{batch}, {queries}, {heads}, {head_size}] on [{batch}, {keys}, {kv_heads}, {head_size}]"
            )?,
            Some([query_rows, key_rows]) => write!(
                f,
                "{dtype} {batch} packed in [{query_rows}, {heads}, {head_size}] on [{key_rows}, {kv_heads}, {head_size}], \
                 up to {queries} on {keys}"
            )?,
        }
        if !self.is_of_one_size() {
            write!(f, ", values of {}", self.value_size)?;
        }
        write!(f, ", {mask}")?;
        if self.log_sum_exp { f.write_str(", log-sum-exp") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{DType, Mask, Problem};

    #[test]
    fn pairs_are_those_of_the_band() {
        let bounds = [None, Some(0), Some(1), Some(3), Some(100)];
        for (left, right) in bounds.into_iter().flat_map(|left| bounds.map(|right| (left, right))) {
            for mask in [Mask::window(left, right), Mask::window(left, right).from_top_left()] {
                for (queries, keys) in [(0, 0), (1, 1), (7, 7), (3, 9), (9, 3), (5, 0), (0, 5)] {
                    let band = mask.band();
                    let diagonal = band.diagonal(queries, keys);
                    let seen = (0..queries as i32).map(|query| {
                        let visible = band.visible(diagonal + query, keys);
                        u64::from(visible.end.saturating_sub(visible.first))
                    });
                    assert_eq!(mask.pairs(queries, keys), seen.sum::<u64>(), "{mask}: {queries} on {keys}");
                }
            }
        }
    }

    #[test]
    fn problems_are_told_in_a_line() {
        let problem = Problem {
            dtype: DType::BF16,
            batch: 2,
            queries: 512,
            keys: 4096,
            heads: 16,
            kv_heads: 4,
            head_size: 128,
            value_size: 128,
            mask: Mask::CAUSAL,
            packed: None,
            log_sum_exp: true,
        };
        assert_eq!(problem.to_string(), "bf16 [2, 512, 16, 128] on [2, 4096, 4, 128], causal, log-sum-exp");
        let window = Mask::window(Some(128), Some(0)).from_top_left();
        let packed = Problem { packed: Some([700, 5000]), mask: window, log_sum_exp: false, ..problem };
        assert_eq!(
            packed.to_string(),
            "bf16 2 packed in [700, 16, 128] on [5000, 4, 128], up to 512 on 4096, keys -128..=0 from the top left"
        );
        assert_eq!(Mask::default().to_string(), "full");
        let shorter = Problem { head_size: 192, log_sum_exp: false, ..problem };
        assert_eq!(shorter.to_string(), "bf16 [2, 512, 16, 192] on [2, 4096, 4, 192], values of 128, causal");
    }

    #[test]
    fn operations_are_those_of_both_products() {
        let problem = Problem {
            dtype: DType::F16,
            batch: 3,
            queries: 10,
            keys: 20,
            heads: 4,
            kv_heads: 2,
            head_size: 64,
            value_size: 64,
            mask: Mask::FULL,
            packed: None,
            log_sum_exp: false,
        };
        assert_eq!(problem.flops(), 4.0 * 3.0 * 4.0 * 64.0 * 200.0);
        let shorter = Problem { value_size: 16, ..problem };
        assert_eq!(shorter.flops(), 2.0 * 3.0 * 4.0 * (64.0 + 16.0) * 200.0);
        assert_eq!((problem.group(), problem.is_empty()), (2, false));
        assert!(Problem { packed: Some([0, 5]), ..problem }.is_empty());
        assert_eq!(Problem { packed: Some([5, 20]), ..problem }.sequences(), 0.5);
    }
}
