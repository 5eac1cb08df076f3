//! Which number of a table [`Attention::relative_bias`](super::Attention::relative_bias) adds for each
//! distance of a key from its query.
//!
//! A head's numbers are those of the distances `key - query` from `1 - queries` to `keys - 1`, in this order:
//! `queries + keys - 1` of them.

use crate::error::Result;

use super::check::invalid;
use super::places::distances;

/// The bucket of each distance, as T5 has them (Raffel and others 2020): `queries + keys - 1` numbers below
/// `count`, in the order of the table; none where there are no queries or no keys. Half of the buckets are
/// for one distance each. The others are for ranges that grow with the distance, up to `farthest` keys and
/// beyond. With `two_sided` half of all buckets are for keys behind the query; else these share bucket 0
/// with the query's own place, as in decoders.
///
/// A query's place is on the diagonal that ends in the last query and the last key. From numbers for each
/// bucket, [`gather`](crate::ops::index::gather) makes the table, and
/// [`embedding_backward`](crate::ops::embedding::embedding_backward) sums its gradient, transposed to
/// `[distances, heads]`, by buckets.
///
/// ```
/// use ironwarp::ops::attention::relative::buckets;
///
/// # fn main() -> ironwarp::Result<()> {
/// // Three queries on five keys: query 2 is at key 4.
/// assert_eq!(buckets(3, 5, 32, 128, false)?, [4, 3, 2, 1, 0, 0, 0]);
/// assert_eq!(buckets(3, 5, 32, 128, true)?, [4, 3, 2, 1, 0, 17, 18]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for fewer than 2 buckets a side, and if the
/// farthest distance is one of those that have a bucket alone.
pub fn buckets(
    queries: usize,
    keys: usize,
    count: usize,
    farthest: usize,
    two_sided: bool,
) -> Result<Vec<usize>> {
    let of_side = if two_sided { count / 2 } else { count };
    let alone = of_side / 2;
    if alone == 0 {
        let hint = "half of a side's buckets are for one distance each";
        return Err(invalid("the buckets", count.to_string(), "at least 2 a side".to_owned(), hint));
    }
    if farthest <= alone {
        let hint = "nearer ones have a bucket for each distance; T5 has 32 buckets up to 128 keys";
        return Err(invalid(
            "the farthest distance",
            farthest.to_string(),
            format!("more than {alone}"),
            hint,
        ));
    }
    let bucket = |distance: usize| {
        if distance < alone {
            return distance;
        }
        let [growth, whole] = [distance, farthest].map(|to| (to as f64 / alone as f64).ln());
        // A little more, so that whole powers begin their bucket whatever logarithms are rounded to.
        let beyond = (growth / whole * (of_side - alone) as f64 + 1e-9) as usize;
        alone.saturating_add(beyond).min(of_side - 1)
    };
    // The number of a key at its query's place.
    let own = keys.saturating_sub(1);
    let of_number = |number: usize| match number.checked_sub(own + 1) {
        None => bucket(own - number),
        Some(behind) if two_sided => of_side + bucket(behind + 1),
        Some(_) => 0,
    };
    Ok((0..distances(queries, keys)).map(of_number).collect())
}

#[cfg(test)]
mod tests {
    use super::buckets;

    /// The first distances of T5's buckets 8 to 15, of 16 with 128 as the farthest: 8 * 2^(i/2), rounded up.
    const FIRST: [i64; 8] = [8, 12, 16, 23, 32, 46, 64, 91];

    fn of(distance: i64) -> usize {
        let passed = || FIRST.iter().filter(|&&first| first <= distance).count();
        if distance < 8 { distance as usize } else { 7 + passed() }
    }

    #[test]
    fn buckets_are_those_of_t5() {
        for (queries, keys) in [(300, 300), (1, 200), (200, 1), (7, 150)] {
            let distances = || (0..(queries + keys - 1) as i64).map(|number| number - (keys as i64 - 1));
            let want = distances().map(|at| if at <= 0 { of(-at) } else { 16 + of(at) });
            let got = buckets(queries, keys, 32, 128, true).unwrap();
            assert_eq!(got, want.collect::<Vec<_>>(), "{queries} on {keys}");
            let want = distances().map(|at| of((-at).max(0)));
            let got = buckets(queries, keys, 16, 128, false).unwrap();
            assert_eq!(got, want.collect::<Vec<_>>(), "{queries} on {keys}");
        }
        for [queries, keys] in [[0, 5], [5, 0], [0, 0]] {
            assert_eq!(buckets(queries, keys, 32, 128, true).unwrap(), [0usize; 0]);
        }
    }

    #[test]
    fn wrong_buckets_are_refused() {
        for (count, farthest, two_sided, words) in [
            (3, 128, true, ["the buckets", "3"]),
            (1, 128, false, ["the buckets", "1"]),
            (0, 128, false, ["the buckets", "0"]),
            (16, 8, false, ["the farthest distance", "more than 8"]),
        ] {
            let error = buckets(3, 3, count, farthest, two_sided).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
