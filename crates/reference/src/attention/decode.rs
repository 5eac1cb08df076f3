//! Oracle of attention on a cache.

use super::{Attended, Band, Rows, Sides, attention_with};
use crate::Exact;

/// Where the keys of sequences with lengths of their own lie.
#[derive(Debug, Clone, Copy)]
pub enum Cache<'a> {
    /// Each in a matrix of its own.
    Matrices,
    /// In pages of so many keys, whose numbers the table has, so many for each sequence. A page that there is
    /// not is all zeros.
    Pages {
        /// Page numbers.
        table: &'a [i32],
        /// Numbers of a sequence.
        each: usize,
        /// Keys of a page.
        size: usize,
        /// Pages.
        count: usize,
    },
}

/// [`attention`](super::attention) of sequences whose numbers of keys are `lengths`; those of `sides` do not
/// count.
pub fn decode<T: Exact>(
    sides: Sides,
    operands: [Rows<'_, T>; 3],
    cache: Cache<'_>,
    lengths: &[usize],
    band: Band,
    scale: f64,
) -> Attended {
    decode_with(sides, operands, cache, lengths, (band, scale), |score, _| Some(score))
}

/// The same with the scores that `modify` gives; see [`attention_with`].
pub fn decode_with<T: Exact>(
    sides: Sides,
    [q, k, v]: [Rows<'_, T>; 3],
    cache: Cache<'_>,
    lengths: &[usize],
    (band, scale): (Band, f64),
    modify: impl Fn(f64, [usize; 4]) -> Option<f64> + Sync,
) -> Attended {
    let Sides { kv_heads, size, .. } = sides;
    let mut all = Attended {
        value: Vec::new(),
        magnitude: Vec::new(),
        log_sum_exp: Vec::new(),
        log_sum_exp_magnitude: Vec::new(),
    };
    for (sequence, &keys) in lengths.iter().enumerate() {
        let gathered = |rows: Rows<'_, T>| -> Vec<f64> {
            let element = |at: usize| {
                let [key, head, i] = [at / (kv_heads * size), at / size % kv_heads, at % size];
                let place = match cache {
                    Cache::Matrices => Some([sequence, key, head]),
                    Cache::Pages { table, each, size, count } => {
                        let page = usize::try_from(table[sequence * each + key / size]);
                        page.ok().filter(|page| *page < count).map(|page| [page, key % size, head])
                    }
                };
                place.map_or(0.0, |place| rows.at(place, i))
            };
            (0..keys * kv_heads * size).map(element).collect()
        };
        let (keys_of, values_of) = (gathered(k), gathered(v));
        let queries: Vec<f64> = (0..sides.queries * sides.heads * size)
            .map(|at| q.at([sequence, at / (sides.heads * size), at / size % sides.heads], at % size))
            .collect();
        let own = Sides { batch: 1, keys, ..sides };
        let rows = |data, heads: usize| Rows { data, strides: [0, heads * size, size] };
        let operands = [rows(&queries, sides.heads), rows(&keys_of, kv_heads), rows(&values_of, kv_heads)];
        let modify = |score, [_, head, query, key]: [usize; 4]| modify(score, [sequence, head, query, key]);
        let one = attention_with(own, operands, band, scale, modify);
        all.value.extend(one.value);
        all.magnitude.extend(one.magnitude);
        all.log_sum_exp.extend(one.log_sum_exp);
        all.log_sum_exp_magnitude.extend(one.log_sum_exp_magnitude);
    }
    all
}
