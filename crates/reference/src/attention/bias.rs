//! Oracle of the gradient of a bias.

use super::{Band, Rows, Sides, pairs_of, total};
use crate::{Accumulated, Exact, exact};
use rayon::prelude::*;

/// A number for each score, `[sequences or 1, heads or 1, queries, keys]`. A query does not see a key whose
/// number is minus infinity.
#[derive(Debug, Clone, Copy)]
pub struct Bias<'a> {
    /// The numbers.
    pub data: &'a [f32],
    /// Sequences, or 1; heads of queries, or 1.
    pub shared: [usize; 2],
}

impl Bias<'_> {
    /// A score with its number.
    pub fn add(&self, score: f64, at: [usize; 4], sides: Sides) -> Option<f64> {
        let bias = self.data[self.place(at, sides)];
        (bias != f32::NEG_INFINITY).then(|| score + f64::from(bias))
    }

    fn place(&self, [sequence, head, query, key]: [usize; 4], sides: Sides) -> usize {
        let [sequences, heads] = self.shared;
        ((sequence % sequences * heads + head % heads) * sides.queries + query) * sides.keys + key
    }
}

/// The gradient of a bias that is added to `scale Q K^T`, from that of the result.
pub fn bias_gradient<T: Exact>(
    sides: Sides,
    operands: [Rows<'_, T>; 3],
    result: Rows<'_, T>,
    (band, scale): (Band, f64),
    bias: Bias<'_>,
) -> Accumulated {
    let Sides { batch, queries, keys, heads, .. } = sides;
    let [of_sequences, of_heads] = bias.shared;
    let data = operands.map(|rows| exact(rows.data));
    let operands: [Rows<'_, f64>; 3] = std::array::from_fn(|at| operands[at].of(&data[at]));
    let data = exact(result.data);
    let result = result.of(&data);
    // By sequence, head and query: the gradients of all keys.
    let rows: Vec<Vec<(f64, f64)>> = (0..batch * heads * queries)
        .into_par_iter()
        .map(|at| {
            let index = [at / (heads * queries), at % queries, at / queries % heads];
            let modify = |score: f64, at: [usize; 4]| bias.add(score, at, sides);
            let numbers = (band, scale, f64::NEG_INFINITY);
            let (pairs, _) = pairs_of(sides, operands, result, numbers, index, (&modify, &|_| 1.0));
            pairs.iter().map(|pair| (pair.gradient, pair.magnitude)).collect()
        })
        .collect();
    let (value, magnitude) = (0..of_sequences * of_heads * queries * keys)
        .map(|at| {
            let (matrix, query, key) = (at / (queries * keys), at / keys % queries, at % keys);
            let shares = |number: usize, own: usize, matrices: usize| number % matrices == own;
            let sequences = (0..batch).filter(|&x| shares(x, matrix / of_heads, of_sequences));
            let terms = sequences.flat_map(|sequence| {
                let heads = (0..heads).filter(move |&x| shares(x, matrix % of_heads, of_heads));
                heads.map(move |head| (sequence, head))
            });
            total(terms.map(|(sequence, head)| rows[(sequence * heads + head) * queries + query][key]))
        })
        .unzip();
    Accumulated { value, magnitude }
}

#[cfg(test)]
mod tests {
    use super::{Bias, bias_gradient};
    use crate::attention::{Band, Rows, Sides, attention_with};

    /// The gradient is the difference of the sum of the result's elements, each with a weight.
    #[test]
    fn gradients_are_differences() {
        let sides = Sides { batch: 2, queries: 3, keys: 4, heads: 4, kv_heads: 2, size: 3 };
        let numbers = |seed: usize, len: usize| -> Vec<f32> {
            let number = |i: usize| ((i * 7919 + seed * 104_729) as f64 * 0.618_033_988_749).fract();
            (0..len).map(|i| (number(i) * 2.0 - 1.0) as f32).collect()
        };
        let [q, weights] = [1, 2].map(|seed| numbers(seed, 2 * 3 * 4 * 3));
        let [k, v] = [3, 4].map(|seed| numbers(seed, 2 * 4 * 2 * 3));
        let of_queries = |data| Rows { data, strides: [3 * 4 * 3, 4 * 3, 3] };
        let of_keys = |data| Rows { data, strides: [4 * 2 * 3, 2 * 3, 3] };
        let operands = [of_queries(&q[..]), of_keys(&k), of_keys(&v)];
        let (band, scale) = (Band { right: Some(0), ..Band::default() }, 0.8);
        for shared in [[1, 1], [2, 1], [1, 4], [2, 4]] {
            let len = shared[0] * shared[1] * 3 * 4;
            let mut data = numbers(5, len);
            data[1] = f32::NEG_INFINITY;
            let loss = |moved: usize, step: f64| -> f64 {
                let bias = Bias { data: &data, shared };
                let modify = |score, at| {
                    let step = if bias.place(at, sides) == moved { step } else { 0.0 };
                    bias.add(score + step, at, sides)
                };
                let result = attention_with(sides, operands, band, scale, modify).value;
                result.iter().zip(&weights).map(|(value, &weight)| value * f64::from(weight)).sum()
            };
            let bias = Bias { data: &data, shared };
            let got = bias_gradient(sides, operands, of_queries(&weights), (band, scale), bias).value;
            assert_eq!(got.len(), len);
            for (at, got) in got.iter().enumerate() {
                let want = (loss(at, 1e-5) - loss(at, -1e-5)) / 2e-5;
                assert!((got - want).abs() < 1e-8, "{shared:?}, {at}: {got}, {want}");
            }
        }
    }
}
