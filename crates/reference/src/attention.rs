//! Oracle of attention: every score, one query after the other.

mod bias;
mod decode;
mod layer;
mod sums;

use crate::{Exact, exact};
use rayon::prelude::*;

pub use bias::{Bias, bias_gradient};
pub use decode::{Cache, decode, decode_with};
pub use layer::{Layer, LayerGradients, Operands, Turning};
use sums::{Sums, dot, error_scale};

/// The sides of the operands.
#[derive(Debug, Clone, Copy)]
pub struct Sides {
    /// Sequences.
    pub batch: usize,
    /// Queries of each.
    pub queries: usize,
    /// Keys of each.
    pub keys: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; heads of queries share them in groups.
    pub kv_heads: usize,
    /// Elements of a row.
    pub size: usize,
}

/// Rows of heads in a slice: element `[batch][row][head][i]` lies at the sum of index times stride, plus `i`.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// Elements from one sequence, row and head to the next.
    pub strides: [usize; 3],
}

impl<'a, T: Exact> Rows<'a, T> {
    fn place(&self, index: [usize; 3]) -> usize {
        index.iter().zip(self.strides).map(|(index, stride)| index * stride).sum()
    }

    fn at(&self, index: [usize; 3], i: usize) -> f64 {
        self.data[self.place(index) + i].into()
    }

    /// The same rows of these elements, which are its own as f64.
    fn of<'b>(&self, data: &'b [f64]) -> Rows<'b, f64> {
        Rows { data, strides: self.strides }
    }
}

impl<'a> Rows<'a, f64> {
    fn row(&self, index: [usize; 3], size: usize) -> &'a [f64] {
        &self.data[self.place(index)..][..size]
    }
}

/// Query `i` sees key `j` if `-left <= j - i - diagonal <= right`; no bound holds all keys.
#[derive(Debug, Clone, Copy, Default)]
pub struct Band {
    /// Keys before the diagonal.
    pub left: Option<i64>,
    /// Keys behind it.
    pub right: Option<i64>,
    /// Whether the diagonal begins at the first query and key. Else it ends at the last ones.
    pub top_left: bool,
}

impl Band {
    fn sees(self, query: usize, key: usize, sides: Sides) -> bool {
        let diagonal = if self.top_left { 0 } else { sides.keys as i64 - sides.queries as i64 };
        let offset = key as i64 - query as i64 - diagonal;
        self.left.is_none_or(|left| -left <= offset) && self.right.is_none_or(|right| offset <= right)
    }
}

/// The results of attention, each with the scale of its error.
#[derive(Debug, Clone, PartialEq)]
pub struct Attended {
    /// `[batch, queries, heads, size]`; zeros for a query that sees no key.
    pub value: Vec<f64>,
    /// For independent relative errors of all weights: their worst sum, or 4 standard deviations if that is
    /// less.
    pub magnitude: Vec<f64>,
    /// `[batch, heads, queries]`: natural logarithms, minus infinity for a query that sees no key.
    pub log_sum_exp: Vec<f64>,
    /// Its own size, and the largest sum of the magnitudes of a score's terms.
    pub log_sum_exp_magnitude: Vec<f64>,
}

/// The results of one query.
struct Row {
    value: Vec<f64>,
    magnitude: Vec<f64>,
    log_sum_exp: f64,
    log_magnitude: f64,
}

/// `softmax(scale Q K^T) V`.
pub fn attention<T: Exact>(sides: Sides, operands: [Rows<'_, T>; 3], band: Band, scale: f64) -> Attended {
    attention_with(sides, operands, band, scale, |score, _| Some(score))
}

/// [`attention`] whose weights are multiplied by `factor` behind the softmax, by sequence, head, query and
/// key.
pub fn attention_weighted<T: Exact>(
    sides: Sides,
    operands: [Rows<'_, T>; 3],
    band: Band,
    scale: f64,
    factor: impl Fn([usize; 4]) -> f64 + Sync,
) -> Attended {
    attention_of(sides, operands, band, scale, (&|score, _| Some(score), &factor))
}

/// `softmax(modify(scale Q K^T)) V`: `modify` gets a score and its sequence, head, query and key, and gives
/// the score in its place, or none if the query does not see the key.
pub fn attention_with<T: Exact>(
    sides: Sides,
    operands: [Rows<'_, T>; 3],
    band: Band,
    scale: f64,
    modify: impl Fn(f64, [usize; 4]) -> Option<f64> + Sync,
) -> Attended {
    attention_of(sides, operands, band, scale, (&modify, &|_| 1.0))
}

/// The score in the place of a score, and the factor of its weight.
type Change<'a> =
    (&'a (dyn Fn(f64, [usize; 4]) -> Option<f64> + Sync), &'a (dyn Fn([usize; 4]) -> f64 + Sync));

fn attention_of<T: Exact>(
    sides: Sides,
    operands: [Rows<'_, T>; 3],
    band: Band,
    scale: f64,
    change: Change<'_>,
) -> Attended {
    let data = operands.map(|rows| exact(rows.data));
    let operands = std::array::from_fn(|at| operands[at].of(&data[at]));
    attention_exact(sides, operands, band, scale, change)
}

/// Not generic, so that it is compiled with this crate's optimisation.
fn attention_exact(
    sides: Sides,
    [q, k, v]: [Rows<'_, f64>; 3],
    band: Band,
    scale: f64,
    change: Change<'_>,
) -> Attended {
    let Sides { batch, queries, heads, .. } = sides;
    let index = |at: usize| [at / (queries * heads), at / heads % queries, at % heads];
    let rows: Vec<Row> = (0..batch * queries * heads)
        .into_par_iter()
        .map(|at| row(sides, [q, k, v], band, scale, index(at), change))
        .collect();
    // Logarithms lie by heads.
    let by_heads = |at: usize| {
        let [sequence, head, query] = [at / (heads * queries), at / queries % heads, at % queries];
        &rows[(sequence * queries + query) * heads + head]
    };
    Attended {
        value: rows.iter().flat_map(|row| row.value.iter().copied()).collect(),
        magnitude: rows.iter().flat_map(|row| row.magnitude.iter().copied()).collect(),
        log_sum_exp: (0..rows.len()).map(|at| by_heads(at).log_sum_exp).collect(),
        log_sum_exp_magnitude: (0..rows.len()).map(|at| by_heads(at).log_magnitude).collect(),
    }
}

impl Attended {
    /// The same with sinks: for each head one more key of this score, whose value is zero.
    #[must_use]
    pub fn with_sinks(mut self, sides: Sides, sinks: &[f64]) -> Self {
        let Sides { queries, heads, size, .. } = sides;
        for at in 0..self.log_sum_exp.len() {
            let [sequence, head, query] = [at / (heads * queries), at / queries % heads, at % queries];
            let (before, sink) = (self.log_sum_exp[at], sinks[head]);
            let most = before.max(sink);
            if most == f64::NEG_INFINITY {
                continue;
            }
            let after = most + ((before - most).exp() + (sink - most).exp()).ln();
            let share = (before - after).exp();
            let row = ((sequence * queries + query) * heads + head) * size;
            self.value[row..row + size].iter_mut().for_each(|value| *value *= share);
            self.magnitude[row..row + size].iter_mut().for_each(|magnitude| *magnitude *= share);
            self.log_sum_exp[at] = after;
            self.log_sum_exp_magnitude[at] = self.log_sum_exp_magnitude[at].max(after.abs());
        }
        self
    }
}

fn row(
    sides: Sides,
    [q, k, v]: [Rows<'_, f64>; 3],
    band: Band,
    scale: f64,
    [sequence, query, head]: [usize; 3],
    (modify, factor): Change<'_>,
) -> Row {
    let Sides { keys, heads, kv_heads, size, .. } = sides;
    let kv_head = head / (heads / kv_heads);
    let q = q.row([sequence, query, head], size);
    let absolute = |row: &[f64]| row.iter().map(|x| x.abs()).collect::<Vec<f64>>();
    let sizes_of_q = absolute(q);
    let score = |key: usize| {
        let k = k.row([sequence, key, kv_head], size);
        let magnitude = scale * dot(&sizes_of_q, &absolute(k));
        Some((key, modify(scale * dot(q, k), [sequence, head, query, key])?, magnitude))
    };
    let (mut seen, mut scores) = (Vec::new(), Vec::new());
    for (key, value, magnitude) in (0..keys).filter(|&key| band.sees(query, key, sides)).filter_map(score) {
        seen.push(key);
        scores.push((value, magnitude));
    }
    if scores.is_empty() {
        let zeros = vec![0.0; size];
        let log_sum_exp = f64::NEG_INFINITY;
        return Row { value: zeros.clone(), magnitude: zeros, log_sum_exp, log_magnitude: 0.0 };
    }
    let values: Vec<f64> = scores.iter().map(|score| score.0).collect();
    let max = crate::max(&values);
    let sum: f64 = values.iter().map(|score| (score - max).exp()).sum();
    let weights: Vec<f64> = values.iter().map(|score| (score - max).exp() / sum).collect();
    let mut sums = Sums::new(size);
    for (p, &key) in weights.iter().zip(&seen) {
        let weight = p * factor([sequence, head, query, key]);
        sums.add(v.row([sequence, key, kv_head], size), weight, weight.abs());
    }
    let (value, magnitude) = sums.end();
    let log_sum_exp = max + sum.ln();
    let log_magnitude = scores.iter().fold(log_sum_exp.abs(), |most, score| most.max(score.1));
    Row { value, magnitude, log_sum_exp, log_magnitude }
}

/// The gradients of attention, each element with the scale of its error.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// Of Q, K and V, each `[batch, rows, heads, size]`.
    pub value: [Vec<f64>; 3],
    /// For independent relative errors of all weights and of all gradients of scores: their worst sum, or 4
    /// standard deviations if that is less.
    pub magnitude: [Vec<f64>; 3],
    /// Of the sinks of all heads, and their magnitudes.
    pub sinks: [Vec<f64>; 2],
}

/// A weight of a query for a key, the gradient of its score, and the scale of that gradient's error.
#[derive(Clone, Copy)]
struct Pair {
    /// With its factor.
    weight: f64,
    gradient: f64,
    magnitude: f64,
}

/// The gradients of `softmax(scale Q K^T) V`, from that of its result.
pub fn gradients<T: Exact>(
    sides: Sides,
    operands: [Rows<'_, T>; 3],
    result: Rows<'_, T>,
    band: Band,
    scale: f64,
) -> Gradients {
    gradients_with(sides, operands, result, band, scale, &[], |score, _| Some(score))
}

/// The same of [`attention_with`], with sinks ([`Attended::with_sinks`]) unless there are none. The
/// derivative of `modify` is its central difference.
pub fn gradients_with<T: Exact>(
    sides: Sides,
    operands: [Rows<'_, T>; 3],
    result: Rows<'_, T>,
    band: Band,
    scale: f64,
    sinks: &[f64],
    modify: impl Fn(f64, [usize; 4]) -> Option<f64> + Sync,
) -> Gradients {
    gradients_of(sides, operands, result, (band, scale), sinks, (&modify, &|_| 1.0))
}

/// The gradients of [`attention_weighted`].
pub fn gradients_weighted<T: Exact>(
    sides: Sides,
    operands: [Rows<'_, T>; 3],
    result: Rows<'_, T>,
    band: Band,
    scale: f64,
    factor: impl Fn([usize; 4]) -> f64 + Sync,
) -> Gradients {
    gradients_of(sides, operands, result, (band, scale), &[], (&|score, _| Some(score), &factor))
}

fn gradients_of<T: Exact>(
    sides: Sides,
    operands: [Rows<'_, T>; 3],
    result: Rows<'_, T>,
    range: (Band, f64),
    sinks: &[f64],
    change: Change<'_>,
) -> Gradients {
    let data = operands.map(|rows| exact(rows.data));
    let operands = std::array::from_fn(|at| operands[at].of(&data[at]));
    gradients_exact(sides, operands, result.of(&exact(result.data)), range, sinks, change)
}

/// Not generic, so that it is compiled with this crate's optimisation.
fn gradients_exact(
    sides: Sides,
    [q, k, v]: [Rows<'_, f64>; 3],
    result: Rows<'_, f64>,
    (band, scale): (Band, f64),
    sinks: &[f64],
    change: Change<'_>,
) -> Gradients {
    let Sides { batch, queries, keys, heads, kv_heads, size } = sides;
    let group = heads / kv_heads.max(1);
    // `[batch][head][query][key]`, and what each query gives for its head's sink.
    let (pairs, of_sinks): (Vec<Vec<Pair>>, Vec<(f64, f64)>) = (0..batch * heads * queries)
        .into_par_iter()
        .map(|at| {
            let index = [at / (heads * queries), at % queries, at / queries % heads];
            let sink = sinks.get(index[2]).copied().unwrap_or(f64::NEG_INFINITY);
            pairs_of(sides, [q, k, v], result, (band, scale, sink), index, change)
        })
        .unzip();
    let over_rows = |head: usize| {
        let rows = (0..batch * queries).map(|at| (at / queries * heads + head) * queries + at % queries);
        total(rows.map(|row| of_sinks[row]))
    };
    let pair = |sequence: usize, head: usize, query: usize, key: usize| {
        pairs[(sequence * heads + head) * queries + query][key]
    };
    let over_keys = |at: usize| {
        let [sequence, query, head] = [at / (queries * heads), at / heads % queries, at % heads];
        let mut sums = Sums::new(size);
        for key in 0..keys {
            let pair = pair(sequence, head, query, key);
            let k = k.row([sequence, key, head / group], size);
            sums.add(k, scale * pair.gradient, scale.abs() * pair.magnitude);
        }
        sums.end()
    };
    let over_queries = |at: usize, is_value: bool| {
        let [sequence, key, kv_head] = [at / (keys * kv_heads), at / kv_heads % keys, at % kv_heads];
        let mut sums = Sums::new(size);
        let heads = kv_head * group..(kv_head + 1) * group;
        for (head, query) in heads.flat_map(|head| (0..queries).map(move |query| (head, query))) {
            let pair = pair(sequence, head, query, key);
            let index = [sequence, query, head];
            if is_value {
                sums.add(result.row(index, size), pair.weight, pair.weight.abs());
            } else {
                sums.add(q.row(index, size), scale * pair.gradient, scale.abs() * pair.magnitude);
            }
        }
        sums.end()
    };
    let all = |rows: usize, of: &(dyn Fn(usize) -> (Vec<f64>, Vec<f64>) + Sync)| -> (Vec<f64>, Vec<f64>) {
        let (values, magnitudes): (Vec<_>, Vec<_>) = (0..rows).into_par_iter().map(of).unzip();
        (values.concat(), magnitudes.concat())
    };
    let of_queries = all(batch * queries * heads, &over_keys);
    let of_keys = all(batch * keys * kv_heads, &|at| over_queries(at, false));
    let of_values = all(batch * keys * kv_heads, &|at| over_queries(at, true));
    Gradients {
        value: [of_queries.0, of_keys.0, of_values.0],
        magnitude: [of_queries.1, of_keys.1, of_values.1],
        sinks: <[_; 2]>::from((0..heads).map(over_rows).unzip::<_, _, Vec<_>, Vec<_>>()),
    }
}

/// The sum of terms, and the scale of the error of terms with these errors.
fn total(terms: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (mut sum, mut worst, mut squares) = (0.0, 0.0, 0.0);
    for (term, magnitude) in terms {
        sum += term;
        worst += magnitude;
        squares += magnitude * magnitude;
    }
    (sum, error_scale(worst, squares))
}

/// A query with all keys, and the gradient of its head's sink, with its magnitude.
fn pairs_of(
    sides: Sides,
    [q, k, v]: [Rows<'_, f64>; 3],
    result: Rows<'_, f64>,
    (band, scale, sink): (Band, f64, f64),
    [sequence, query, head]: [usize; 3],
    (modify, factor): Change<'_>,
) -> (Vec<Pair>, (f64, f64)) {
    let Sides { keys, heads, kv_heads, size, .. } = sides;
    let kv_head = head / (heads / kv_heads);
    let (q, result) = (q.row([sequence, query, head], size), result.row([sequence, query, head], size));
    // With its derivative. A key that is not seen has neither.
    let score = |key: usize| {
        if !band.sees(query, key, sides) {
            return None;
        }
        let score = scale * dot(q, k.row([sequence, key, kv_head], size));
        let modified = |score: f64| modify(score, [sequence, head, query, key]);
        // Its error is below 1e-9 of scores and curvatures about 1.
        let step = 1e-5;
        Some((modified(score)?, (modified(score + step)? - modified(score - step)?) / (2.0 * step)))
    };
    let (scores, derivatives): (Vec<f64>, Vec<f64>) =
        (0..keys).map(|key| score(key).unwrap_or((f64::NEG_INFINITY, 0.0))).unzip();
    let max = scores.iter().copied().fold(sink, f64::max);
    let of_sink = (sink - max).exp();
    let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum::<f64>() + of_sink;
    let weights = scores.iter().map(|score| if max.is_finite() { (score - max).exp() / sum } else { 0.0 });
    // The gradients of the weights, and the mean that the softmax takes from them.
    let of_weights: Vec<(f64, f64)> = weights
        .enumerate()
        .map(|(key, weight)| {
            let gradient = dot(result, v.row([sequence, key, kv_head], size));
            (weight, factor([sequence, head, query, key]) * gradient)
        })
        .collect();
    let mean: f64 = of_weights.iter().map(|(weight, gradient)| weight * gradient).sum();
    // The mean is the product of the result and its gradient; elements of the result are rounded.
    let mut attended = Sums::new(size);
    for (key, (weight, _)) in of_weights.iter().enumerate() {
        let weight = weight * factor([sequence, head, query, key]);
        attended.add(v.row([sequence, key, kv_head], size), weight, 0.0);
    }
    let rounded = attended.sum.iter().zip(result).map(|(value, x)| (value * x, (value * x).abs()));
    let spread = total(rounded).1;
    let pair = |(key, (&(weight, gradient), derivative)): (usize, (&(f64, f64), f64))| Pair {
        weight: weight * factor([sequence, head, query, key]),
        gradient: weight * (gradient - mean) * derivative,
        magnitude: weight * (gradient.abs() + spread) * derivative.abs(),
    };
    let weight = if max.is_finite() { of_sink / sum } else { 0.0 };
    (of_weights.iter().zip(derivatives).enumerate().map(pair).collect(), (-weight * mean, weight * spread))
}

#[cfg(test)]
mod tests {
    use super::{Attended, Band, Cache, Rows, Sides, attention, attention_with, decode, gradients_with};

    const SIDES: Sides = Sides { batch: 1, queries: 2, keys: 3, heads: 2, kv_heads: 1, size: 1 };

    fn of(band: Band, scale: f64) -> Attended {
        let (q, k, v) = ([1.0f32, 2.0, 0.0, -1.0], [0.0f32, 1.0, 2.0], [1.0f32, 10.0, 100.0]);
        let rows = |data, heads| Rows { data, strides: [0, heads, 1] };
        attention(SIDES, [rows(&q, 2), rows(&k, 1), rows(&v, 1)], band, scale)
    }

    fn close(got: &[f64], want: &[f64]) {
        assert_eq!(got.len(), want.len());
        assert!(
            got.iter().zip(want).all(|(got, want)| got == want || (got - want).abs() < 1e-12),
            "{got:?}, {want:?}"
        );
    }

    #[test]
    fn by_hand() {
        let got = of(Band::default(), 1.0);
        let e = 1f64.exp();
        let by = |x: f64| (1.0 + 10.0 * x + 100.0 * x * x) / (1.0 + x + x * x);
        close(&got.value, &[by(e), by(e * e), 37.0, by(1.0 / e)]);
        let log = |x: f64| (1.0 + x + x * x).ln();
        close(&got.log_sum_exp, &[log(e), log(1.0), log(e * e), log(1.0 / e)]);
        // A scale of ln 2 makes exponentials powers of two.
        let got = of(Band::default(), std::f64::consts::LN_2);
        close(&got.value, &[421.0 / 7.0, 1641.0 / 21.0, 37.0, by(0.5)]);
    }

    #[test]
    fn bands_end_or_begin_in_a_corner() {
        let causal = Band { right: Some(0), ..Band::default() };
        let scale = std::f64::consts::LN_2;
        close(&of(causal, scale).value, &[7.0, 41.0 / 5.0, 37.0, of(Band::default(), scale).value[3]]);
        let top_left = Band { top_left: true, ..causal };
        close(&of(top_left, scale).value, &[1.0, 1.0, 5.5, 4.0]);
        let window = Band { left: Some(0), ..causal };
        close(&of(window, scale).value, &[10.0, 10.0, 100.0, 100.0]);
        // Nothing but keys that are not there.
        let none = Band { left: Some(-3), right: Some(5), top_left: true };
        let got = of(none, scale);
        close(&got.value, &[0.0; 4]);
        close(&got.log_sum_exp, &[f64::NEG_INFINITY; 4]);
    }

    /// Two sequences in pages of two keys, which lie in no order; the second one's last page is none.
    #[test]
    fn pages_are_gathered() {
        let (q, k, v) =
            ([1.0f32, 1.0], [9.0f32, 9.0, 0.0, 1.0, 2.0, 9.0], [9.0f32, 9.0, 1.0, 10.0, 100.0, 9.0]);
        let rows = |data, of| Rows { data, strides: [of, 1, 1] };
        let sides = Sides { batch: 2, queries: 1, keys: 0, heads: 1, kv_heads: 1, size: 1 };
        let cache = Cache::Pages { table: &[1, 2, 1, -1], each: 2, size: 2, count: 3 };
        let scale = std::f64::consts::LN_2;
        let got =
            decode(sides, [rows(&q, 1), rows(&k, 2), rows(&v, 2)], cache, &[3, 4], Band::default(), scale);
        close(&got.value, &[421.0 / 7.0, 21.0 / 5.0]);
        close(&got.log_sum_exp, &[7f64.ln(), 5f64.ln()]);
        let matrices = [rows(&q, 1), rows(&k, 3), rows(&v, 3)];
        let got = decode(sides, matrices, Cache::Matrices, &[0, 2], Band::default(), scale);
        close(&got.value, &[0.0, 70.0]);
        assert_eq!(got.log_sum_exp[0], f64::NEG_INFINITY);
    }

    /// A sink is one more key, without a value: of weight 1 where the logarithm is 0.
    #[test]
    fn sinks_take_weight() {
        let e = 1f64.exp();
        let none = of(Band::default(), 1.0);
        let got = none.clone().with_sinks(SIDES, &[0.0, f64::NEG_INFINITY]);
        let by = |x: f64| (1.0 + 10.0 * x + 100.0 * x * x) / (2.0 + x + x * x);
        close(&got.value, &[by(e), none.value[1], by(1.0), none.value[3]]);
        let logs = [(2.0 + e + e * e).ln(), 4f64.ln(), none.log_sum_exp[2], none.log_sum_exp[3]];
        close(&got.log_sum_exp, &logs);
        let nothing = of(Band { left: Some(-3), right: Some(5), top_left: true }, 1.0);
        let got = nothing.with_sinks(SIDES, &[0.5, f64::NEG_INFINITY]);
        close(&got.value, &[0.0; 4]);
        close(&got.log_sum_exp, &[0.5, 0.5, f64::NEG_INFINITY, f64::NEG_INFINITY]);
    }

    #[test]
    fn gradients_are_differences() {
        differences(&[], |score, _| Some(score));
        differences(&[0.3, -1.2], |score, _| Some(score));
        // Key 1 is not seen by the first query, nor by the last one of the second head.
        differences(&[f64::NEG_INFINITY, 0.5], |score, [_, head, query, key]| {
            let hidden = key == 1 && (query == 0 || (query, head) == (2, 1));
            (!hidden).then(|| 0.7 * (score / 0.7).tanh() - 0.1 * key as f64)
        });
    }

    /// Central differences of the sum of result times its gradient.
    fn differences(sinks: &[f64], modify: fn(f64, [usize; 4]) -> Option<f64>) {
        let sides = Sides { batch: 1, queries: 3, keys: 4, heads: 2, kv_heads: 1, size: 2 };
        let number = |seed: usize| (0..12).map(|i| ((i * 7 + seed * 5) % 11) as f64 / 5.0 - 1.0).collect();
        let inputs: [Vec<f64>; 4] = [number(1), number(2), number(3), number(4)];
        let strides = [[12, 4, 2], [8, 2, 2], [8, 2, 2], [12, 4, 2]];
        let band = Band { right: Some(0), ..Band::default() };
        let rows =
            |inputs: &'static [Vec<f64>; 4], at: usize| Rows { data: &inputs[at][..], strides: strides[at] };
        let of = |inputs: &[Vec<f64>; 4], sinks: &[f64]| {
            let inputs: &'static _ = Box::leak(Box::new(inputs.clone()));
            let operands = [0, 1, 2].map(|at| rows(inputs, at));
            let result = attention_with(sides, operands, band, 0.7, modify);
            let result = if sinks.is_empty() { result } else { result.with_sinks(sides, sinks) };
            result.value.iter().zip(&inputs[3]).map(|(a, b)| a * b).sum::<f64>()
        };
        let fixed: &'static _ = Box::leak(Box::new(inputs.clone()));
        let operands = [0, 1, 2].map(|at| rows(fixed, at));
        let got = gradients_with(sides, operands, rows(fixed, 3), band, 0.7, sinks, modify);
        for (operand, gradient) in got.value.iter().enumerate() {
            for (i, gradient) in gradient.iter().enumerate() {
                let moved = |by: f64| {
                    let mut inputs = inputs.clone();
                    inputs[operand][i] += by;
                    of(&inputs, sinks)
                };
                let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((difference - gradient).abs() < 1e-8, "{operand} {i}: {gradient}, not {difference}");
            }
        }
        for head in 0..sinks.len() {
            let moved = |by: f64| {
                let mut sinks = sinks.to_vec();
                sinks[head] += by;
                of(&inputs, &sinks)
            };
            let (difference, gradient) = ((moved(1e-5) - moved(-1e-5)) / 2e-5, got.sinks[0][head]);
            assert!((difference - gradient).abs() < 1e-8, "sink {head}: {gradient}, not {difference}");
        }
    }
}
