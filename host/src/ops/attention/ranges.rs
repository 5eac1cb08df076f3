//! Tables for [`Attention::ranges`](super::Attention::ranges): usual masks as two ranges of keys for each
//! query, to be copied to the device.
//!
//! A query's own place is on the diagonal that ends in the last query and the last key, as that of
//! [`Mask`](super::Mask) does. A mask may show less: `documents` under [`Mask::CAUSAL`](super::Mask::CAUSAL)
//! are documents whose queries see no later keys.
//!
//! ```
//! use ironwarp::ops::attention::ranges::documents;
//!
//! assert_eq!(documents(&[2, 1]), [[0, 2, 0, 0], [0, 2, 0, 0], [2, 3, 0, 0]]);
//! ```

use std::iter::repeat_n;

/// Documents one behind the other, of these lengths: each query sees the keys of its own. As many queries as
/// keys.
pub fn documents(lengths: &[usize]) -> Vec<[u32; 4]> {
    let mut first = 0;
    let of_each = lengths.iter().flat_map(|&length| {
        let range = [number(first), number(first + length), 0, 0];
        first += length;
        repeat_n(range, length)
    });
    of_each.collect()
}

/// Every query sees the first `prefix` keys, and all keys up to its own place.
pub fn prefix(queries: usize, keys: usize, prefix: usize) -> Vec<[u32; 4]> {
    let ends = (0..queries).map(|query| end(query, queries, keys).max(prefix).min(keys));
    ends.map(|end| [0, number(end), 0, 0]).collect()
}

/// Every query sees the first `first` keys, and the last `window` keys up to its own place.
pub fn first_and_window(queries: usize, keys: usize, first: usize, window: usize) -> Vec<[u32; 4]> {
    let ends = (0..queries).map(|query| end(query, queries, keys));
    ends.map(|end| [0, first.min(keys), end.saturating_sub(window), end].map(number)).collect()
}

/// Sequences that are filled up at their ends: the queries of each see as many keys as its length.
pub fn padding(lengths: &[usize], queries: usize) -> Vec<[u32; 4]> {
    lengths.iter().flat_map(|&length| repeat_n([0, number(length), 0, 0], queries)).collect()
}

/// The key behind a query's own place; `query` is below `queries`.
fn end(query: usize, queries: usize, keys: usize) -> usize {
    keys.saturating_sub(queries - 1 - query)
}

/// No problem has more keys than a u32 counts.
fn number(keys: usize) -> u32 {
    u32::try_from(keys).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that each query sees, as the kernels read a table.
    fn seen(table: &[[u32; 4]], keys: usize) -> Vec<Vec<usize>> {
        let sees = |&[a, b, c, d]: &[u32; 4], key: u32| (a..b).contains(&key) || (c..d).contains(&key);
        let of = |range| (0..keys).filter(|&key| sees(range, key as u32)).collect();
        table.iter().map(of).collect()
    }

    /// Pairs of a query and a key by their definition.
    fn pairs(queries: usize, keys: usize, sees: impl Fn(usize, usize) -> bool) -> Vec<Vec<usize>> {
        (0..queries).map(|query| (0..keys).filter(|&key| sees(query, key)).collect()).collect()
    }

    #[test]
    fn documents_see_themselves() {
        let of = [0, 0, 0, 1, 3, 3]; // the document of each place: the third one is empty
        assert_eq!(seen(&documents(&[3, 1, 0, 2]), 6), pairs(6, 6, |query, key| of[query] == of[key]));
        assert_eq!(documents(&[]), Vec::<[u32; 4]>::new());
    }

    #[test]
    fn diagonals_end_in_the_last_query_and_key() {
        for (queries, keys) in [(0, 4), (5, 5), (2, 7), (7, 2), (3, 0)] {
            let is_behind = |query: usize, key: usize| key + queries <= query + keys;
            for few in [0, 1, 3, 9] {
                let got = seen(&prefix(queries, keys, few), keys);
                assert_eq!(got, pairs(queries, keys, |q, k| k < few || is_behind(q, k)));
                for window in [0, 1, 2, 9] {
                    let got = seen(&first_and_window(queries, keys, few, window), keys);
                    let is_near = |q: usize, k: usize| is_behind(q, k) && q + keys < k + queries + window;
                    assert_eq!(got, pairs(queries, keys, |q, k| k < few || is_near(q, k)));
                }
            }
        }
    }

    #[test]
    fn keys_beyond_all_problems_are_no_panic() {
        let most = u32::MAX;
        assert_eq!(prefix(2, usize::MAX, 0), [[0, most, 0, 0]; 2]);
        assert_eq!(first_and_window(1, usize::MAX, 4, usize::MAX), [[0, 4, 0, most]]);
    }

    #[test]
    fn padding_is_seen_by_nobody() {
        let table = padding(&[2, 0, 5], 3);
        let want: Vec<_> = [2, 0, 5].iter().flat_map(|&length| pairs(3, 5, |_, key| key < length)).collect();
        assert_eq!(seen(&table, 5), want);
    }
}
