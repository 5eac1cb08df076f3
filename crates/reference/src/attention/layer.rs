//! Oracle of the attention of a layer: projections, rotation, attention, and what is added, with gradients.

use super::{Attended, Band, Rows, Sides, attention_weighted, gradients_weighted, total};
use crate::Accumulated;
use crate::rotary::rotary;
use rayon::prelude::*;

/// A layer's attention. Matrices have their rows one behind the other.
pub struct Layer<'a> {
    /// Where each sequence's tokens begin, and how many they are. Tokens of none count as zeros behind
    /// attention.
    pub sequences: Vec<[usize; 2]>,
    /// Elements of a token.
    pub inputs: usize,
    /// Elements of its result.
    pub outputs: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and of values.
    pub kv_heads: usize,
    /// Elements of a row of a head.
    pub size: usize,
    /// Which keys a query sees.
    pub band: Band,
    /// Factor of the scores.
    pub scale: f64,
    /// How queries and keys turn.
    pub turning: Option<Turning<'a>>,
    /// Factor of a weight, by sequence, head, query and key.
    pub factor: &'a (dyn Fn([usize; 4]) -> f64 + Sync),
    /// How tensors between the steps are rounded.
    pub round: &'a (dyn Fn(f64) -> f64 + Sync),
}

/// How the rows of a token turn.
#[derive(Clone, Copy)]
pub struct Turning<'a> {
    /// The angles of a token, one for each pair of columns.
    pub angles: &'a (dyn Fn(usize) -> Vec<f64> + Sync),
    /// Whether neighbours are a pair.
    pub by_neighbours: bool,
}

/// The operands of a layer; those that are not there are empty.
#[derive(Debug, Clone)]
pub struct Operands {
    /// `[tokens, inputs]`.
    pub input: Vec<f64>,
    /// `[(heads + 2 kv_heads) size, inputs]`.
    pub qkv: Vec<f64>,
    /// A number for each of its rows.
    pub qkv_bias: Vec<f64>,
    /// `[outputs, heads size]`.
    pub out: Vec<f64>,
    /// A number for each of its rows.
    pub out_bias: Vec<f64>,
    /// `[tokens, outputs]`.
    pub residual: Vec<f64>,
}

/// The results of a backward pass, each element with the scale of its error.
#[derive(Debug, Clone)]
pub struct LayerGradients {
    /// Of the input.
    pub input: Accumulated,
    /// Of the weight and the bias of queries, keys and values.
    pub qkv: [Accumulated; 2],
    /// Of the weight and the bias of the output.
    pub out: [Accumulated; 2],
    /// Of the residual.
    pub residual: Vec<f64>,
}

/// Numbers, and the scale of the error of each.
type Rough = Accumulated;

impl Layer<'_> {
    fn packed_heads(&self) -> usize {
        self.heads + 2 * self.kv_heads
    }

    /// The result, `[tokens, outputs]`, and the scale of its errors.
    pub fn forward(&self, of: &Operands) -> Accumulated {
        let mixed = self.mixed(&self.rows(of));
        let width = self.heads * self.size;
        let tokens = mixed.value.len() / width;
        let mut result = products(&mixed, &exact(&of.out), [tokens, self.outputs, width], Order::Nt);
        for (at, value) in result.value.iter_mut().enumerate() {
            let added = [of.out_bias.get(at % self.outputs), of.residual.get(at)];
            *value += added.into_iter().flatten().sum::<f64>();
        }
        result
    }

    /// The gradients, from that of the result.
    pub fn backward(&self, of: &Operands, gradient: &[f64]) -> LayerGradients {
        let (width, packed) = (self.heads * self.size, self.packed_heads() * self.size);
        let tokens = of.input.len() / self.inputs;
        let (rows, of_result, ones) = (self.rows(of), exact(gradient), exact(&vec![1.0; tokens]));
        let mixed = self.mixed(&rows);
        let of_weight = |gradient: &Rough, x: &Rough, [outputs, inputs]: [usize; 2]| {
            let bias = products(gradient, &ones, [outputs, 1, tokens], Order::Tn);
            [products(gradient, x, [outputs, inputs, tokens], Order::Tn), bias]
        };
        let mut of_mixed = products(&of_result, &exact(&of.out), [tokens, width, self.outputs], Order::Nn);
        of_mixed.value.iter_mut().for_each(|value| *value = (self.round)(*value));
        let of_rows = self.of_rows(&rows, &of_mixed.value);
        LayerGradients {
            input: products(&of_rows, &exact(&of.qkv), [tokens, self.inputs, packed], Order::Nn),
            qkv: of_weight(&of_rows, &exact(&of.input), [packed, self.inputs]),
            out: of_weight(&of_result, &mixed, [self.outputs, width]),
            residual: gradient.to_vec(),
        }
    }

    /// Queries, keys and values, `[tokens, heads + 2 kv_heads, size]`, turned.
    fn rows(&self, of: &Operands) -> Vec<f64> {
        let columns = self.packed_heads() * self.size;
        let tokens = of.input.len() / self.inputs;
        let mut rows =
            products(&exact(&of.input), &exact(&of.qkv), [tokens, columns, self.inputs], Order::Nt).value;
        for (at, value) in rows.iter_mut().enumerate() {
            *value = (self.round)(*value + of.qkv_bias.get(at % columns).copied().unwrap_or(0.0));
        }
        self.turn(&mut rows, 1.0, self.round);
        rows
    }

    /// Turns queries and keys, by the angles or back.
    fn turn(&self, rows: &mut [f64], sign: f64, round: impl Fn(f64) -> f64) {
        let Some(Turning { angles, by_neighbours }) = self.turning else { return };
        for (at, head) in rows.chunks_exact_mut(self.size).enumerate() {
            let (token, place) = (at / self.packed_heads(), at % self.packed_heads());
            if place < self.heads + self.kv_heads {
                let (sines, cosines): (Vec<f64>, Vec<f64>) =
                    angles(token).into_iter().map(|angle| (sign * angle).sin_cos()).unzip();
                let turned = rotary(head, &cosines, &sines, by_neighbours);
                head.iter_mut().zip(turned).for_each(|(old, new)| *old = round(new));
            }
        }
    }

    /// A sequence as one of its own, and the rows of a part of its heads.
    fn sides(&self, rows: usize) -> Sides {
        let (heads, kv_heads, size) = (self.heads, self.kv_heads, self.size);
        Sides { batch: 1, queries: rows, keys: rows, heads, kv_heads, size }
    }

    fn parts<'r>(&self, rows: &'r [f64], first: usize) -> [Rows<'r, f64>; 3] {
        let row = self.packed_heads() * self.size;
        [0, self.heads, self.heads + self.kv_heads].map(|head| Rows {
            data: rows.get(first * row + head * self.size..).unwrap_or_default(),
            strides: [0, row, self.size],
        })
    }

    /// Attention's result, `[tokens, heads size]`.
    fn mixed(&self, rows: &[f64]) -> Rough {
        let width = self.heads * self.size;
        let tokens = rows.len() / (self.packed_heads() * self.size);
        let mut all = exact(&vec![0.0; tokens * width]);
        for (sequence, &[first, count]) in self.sequences.iter().enumerate() {
            let factor = |[_, head, query, key]: [usize; 4]| (self.factor)([sequence, head, query, key]);
            let parts = self.parts(rows, first);
            let Attended { value, magnitude, .. } =
                attention_weighted(self.sides(count), parts, self.band, self.scale, factor);
            for (at, (value, magnitude)) in value.into_iter().zip(magnitude).enumerate() {
                let value = (self.round)(value);
                all.value[first * width + at] = value;
                all.magnitude[first * width + at] = magnitude + value.abs();
            }
        }
        all
    }

    /// The gradients of [`rows`](Self::rows) before they turned, from those of attention's result.
    fn of_rows(&self, rows: &[f64], of_mixed: &[f64]) -> Rough {
        let (packed, width) = (self.packed_heads() * self.size, self.heads * self.size);
        let mut all = exact(&vec![0.0; rows.len()]);
        for (sequence, &[first, count]) in self.sequences.iter().enumerate() {
            let factor = |[_, head, query, key]: [usize; 4]| (self.factor)([sequence, head, query, key]);
            let data = of_mixed.get(first * width..).unwrap_or_default();
            let result = Rows { data, strides: [0, width, self.size] };
            let parts = self.parts(rows, first);
            let of = gradients_weighted(self.sides(count), parts, result, self.band, self.scale, factor);
            let heads = [self.heads, self.kv_heads, self.kv_heads];
            for (part, first_head) in [0, self.heads, self.heads + self.kv_heads].into_iter().enumerate() {
                let columns = heads[part] * self.size;
                for at in 0..count * columns {
                    let place = (first + at / columns) * packed + first_head * self.size + at % columns;
                    let value = (self.round)(of.value[part][at]);
                    all.value[place] = value;
                    all.magnitude[place] = of.magnitude[part][at] + value.abs();
                }
            }
        }
        self.turn(&mut all.value, -1.0, self.round);
        self.spread(&mut all.magnitude);
        all
    }

    /// Both columns of a pair get the errors of both.
    fn spread(&self, magnitudes: &mut [f64]) {
        let Some(Turning { angles, by_neighbours }) = self.turning else { return };
        for (at, head) in magnitudes.chunks_exact_mut(self.size).enumerate() {
            let (token, place) = (at / self.packed_heads(), at % self.packed_heads());
            if place < self.heads + self.kv_heads {
                let pairs = angles(token).len();
                for i in 0..pairs {
                    let (a, b) = if by_neighbours { (2 * i, 2 * i + 1) } else { (i, i + pairs) };
                    head[a] += head[b];
                    head[b] = head[a];
                }
            }
        }
    }
}

fn exact(values: &[f64]) -> Rough {
    Accumulated { value: values.to_vec(), magnitude: values.iter().map(|value| value.abs()).collect() }
}

/// How the operands of a product lie: A as `[m, k]` or `[k, m]`, B as `[k, n]` or `[n, k]`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Nn,
    Nt,
    Tn,
}

/// A product `[m, n]` with sums of `k` terms, whose errors are of the sizes of the operands'.
fn products(a: &Rough, b: &Rough, [m, n, k]: [usize; 3], order: Order) -> Rough {
    let (value, magnitude) = (0..m * n)
        .into_par_iter()
        .map(|at| {
            let (row, column) = (at / n, at % n);
            let terms = (0..k).map(|i| {
                let left = if order == Order::Tn { i * m + row } else { row * k + i };
                let right = if order == Order::Nt { column * k + i } else { i * n + column };
                (a.value[left] * b.value[right], a.magnitude[left] * b.magnitude[right])
            });
            total(terms)
        })
        .unzip();
    Accumulated { value, magnitude }
}

#[cfg(test)]
mod tests {
    use super::{Layer, Operands, Turning};
    use crate::attention::Band;

    /// Numbers between -1 and 1, without a pattern.
    fn numbers(seed: usize, len: usize) -> Vec<f64> {
        (0..len)
            .map(|i| ((i * 7919 + seed * 104_729) as f64 * 0.618_033_988_749).fract() * 2.0 - 1.0)
            .collect()
    }

    /// Every gradient is the central difference of the sum of the result's elements, each with a weight.
    #[test]
    fn gradients_are_differences() {
        let angles = |token: usize| vec![0.3 * token as f64, 0.1 * token as f64];
        let dropped = |[_, head, query, key]: [usize; 4]| {
            if (head + 2 * query + key).is_multiple_of(5) { 0.0 } else { 1.25 }
        };
        for by_neighbours in [false, true] {
            let layer = Layer {
                sequences: vec![[0, 3], [4, 2]],
                inputs: 3,
                outputs: 5,
                heads: 4,
                kv_heads: 2,
                size: 6,
                band: Band { right: Some(0), ..Band::default() },
                scale: 0.7,
                turning: Some(Turning { angles: &angles, by_neighbours }),
                factor: &dropped,
                round: &|value| value,
            };
            // A token between the sequences belongs to none.
            let operands = Operands {
                input: numbers(1, 6 * 3),
                qkv: numbers(2, 8 * 6 * 3),
                qkv_bias: numbers(3, 8 * 6),
                out: numbers(4, 5 * 4 * 6),
                out_bias: numbers(5, 5),
                residual: numbers(6, 6 * 5),
            };
            let gradient = numbers(7, 6 * 5);
            let loss = |of: &Operands| -> f64 {
                layer.forward(of).value.iter().zip(&gradient).map(|(value, weight)| value * weight).sum()
            };
            let got = layer.backward(&operands, &gradient);
            let [qkv, qkv_bias] = got.qkv;
            let [out, out_bias] = got.out;
            type Part = fn(&mut Operands) -> &mut Vec<f64>;
            let parts: [(Part, &[f64]); 6] = [
                (|of| &mut of.input, &got.input.value),
                (|of| &mut of.qkv, &qkv.value),
                (|of| &mut of.qkv_bias, &qkv_bias.value),
                (|of| &mut of.out, &out.value),
                (|of| &mut of.out_bias, &out_bias.value),
                (|of| &mut of.residual, &got.residual),
            ];
            for (number, (part, got)) in parts.into_iter().enumerate() {
                assert_eq!(got.len(), part(&mut operands.clone()).len());
                for (at, got) in got.iter().enumerate() {
                    let moved = |step: f64| {
                        let mut of = operands.clone();
                        part(&mut of)[at] += step;
                        loss(&of)
                    };
                    let step = 1e-4;
                    let want = (moved(step) - moved(-step)) / (2.0 * step);
                    assert!((got - want).abs() < 1e-6, "operand {number}, element {at}: {got}, {want}");
                }
            }
        }
    }
}
