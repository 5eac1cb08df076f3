//! Dilated attention, whose operands are views of the usual ones, against an oracle that masks keys.

use crate::attention_case::{Outcome, about, device, is_hopper};
use half::bf16;
use ironwarp::ops::attention::{Attention, Backward, Forward, Gradients, Heads, HeadsMut, Mask};
use ironwarp::{DeviceBuffer, Result as Done};
use reference::attention::{Band, Rows, Sides, attention_with, gradients_with};
use testkit::{Family, compare, input, tolerance};

#[derive(Debug, Clone, Copy)]
struct Case {
    sides: Sides,
    stride: usize,
    /// In strides.
    window: [Option<u32>; 2],
    /// `[batch, heads, rows, head size]`.
    heads_first: bool,
    /// The last so many queries and keys are zeros that were added to fill up a stride; the oracle has none.
    filled: usize,
}

/// Several sequences: rows become heads.
const SEVERAL: Case = Case {
    sides: Sides { batch: 2, queries: 60, keys: 90, heads: 4, kv_heads: 2, size: 40 },
    stride: 5,
    window: [Some(3), Some(2)],
    heads_first: false,
    filled: 0,
};

/// One sequence, over several tiles: rows become sequences.
const ONE: Case = Case {
    sides: Sides { batch: 1, queries: 402, keys: 402, heads: 2, kv_heads: 1, size: 64 },
    stride: 3,
    window: [Some(4), Some(0)],
    heads_first: true,
    filled: 0,
};

impl Case {
    /// `[batch, rows, heads, head size]` of queries (0) and keys (1).
    fn shape(&self, side: usize) -> [usize; 4] {
        let Sides { batch, queries, keys, heads, kv_heads, size } = self.sides;
        if side == 0 { [batch, queries, heads, size] } else { [batch, keys, kv_heads, size] }
    }

    fn strides(&self, side: usize) -> [usize; 3] {
        let [_, rows, heads, size] = self.shape(side);
        let [row, head] = if self.heads_first { [size, rows * size] } else { [heads * size, size] };
        [rows * heads * size, row, head]
    }

    fn len(&self, side: usize) -> usize {
        self.shape(side).iter().product()
    }

    fn heads<'a>(&self, buffer: &'a DeviceBuffer<bf16>, side: usize) -> Done<Heads<'a>> {
        Heads::new::<bf16>(buffer, self.shape(side)).strides(self.strides(side)).dilated(self.stride)
    }

    fn heads_mut<'a>(&self, buffer: &'a mut DeviceBuffer<bf16>, side: usize) -> Done<HeadsMut<'a>> {
        HeadsMut::new::<bf16>(buffer, self.shape(side)).strides(self.strides(side)).dilated(self.stride)
    }

    /// A key is seen if it is a whole number of strides away, and as many as the window has.
    fn sees(&self, query: usize, key: usize) -> bool {
        let Sides { queries, keys, .. } = self.sides;
        let distance = key as i64 - (query as i64 + keys as i64 - queries as i64);
        let (steps, rest) =
            (distance.div_euclid(self.stride as i64), distance.rem_euclid(self.stride as i64));
        let [left, right] = self.window;
        rest == 0
            && left.is_none_or(|left| steps >= -i64::from(left))
            && right.is_none_or(|right| steps <= i64::from(right))
    }

    /// Without what is filled up.
    fn real(&self) -> Sides {
        let Sides { queries, keys, .. } = self.sides;
        Sides { queries: queries - self.filled, keys: keys - self.filled, ..self.sides }
    }

    /// The rows of an operand that are real, and the places of its elements, in the oracle's order: `[batch,
    /// rows, heads, head size]`.
    fn places(&self, side: usize) -> ([usize; 4], Vec<usize>) {
        let ([batch, rows, heads, size], strides) = (self.shape(side), self.strides(side));
        let rows = rows - self.filled;
        let place = |at: usize| {
            let index = [at / (rows * heads * size), at / (heads * size) % rows, at / size % heads];
            index.iter().zip(strides).map(|(index, stride)| index * stride).sum::<usize>() + at % size
        };
        let places = (0..batch * rows * heads * size).map(place).collect();
        ([batch, rows, heads, size], places)
    }

    /// Numbers, with zeros where rows are filled up.
    fn input(&self, seed: u64, side: usize) -> Vec<bf16> {
        let (all, mut filled) =
            (input(Family::Normal, seed, self.len(side)), vec![bf16::ZERO; self.len(side)]);
        self.places(side).1.into_iter().for_each(|place| filled[place] = all[place]);
        filled
    }

    fn check(&self) -> Outcome {
        if !is_hopper()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        let inputs: [Vec<bf16>; 4] =
            [(1, 0), (2, 1), (3, 1), (4, 0)].map(|(seed, side): (u64, usize)| self.input(seed, side));
        let rows = |at: usize, side| Rows { data: &inputs[at][..], strides: self.strides(side) };
        let operands = [rows(0, 0), rows(1, 1), rows(2, 1)];
        let scale = f64::from(1.0 / (self.sides.size as f32).sqrt());
        let modify = |score: f64, [_, _, query, key]: [usize; 4]| self.sees(query, key).then_some(score);
        let want = attention_with(self.real(), operands, Band::default(), scale, modify);
        let gradients =
            gradients_with(self.real(), operands, rows(3, 0), Band::default(), scale, &[], modify);

        let upload = |at: usize| DeviceBuffer::from_slice(&stream, &inputs[at]);
        let (q, k, v, result) = (upload(0)?, upload(1)?, upload(2)?, upload(3)?);
        let nan = |side| DeviceBuffer::from_slice(&stream, &vec![bf16::NAN; self.len(side)]);
        let (mut out, mut d_q, mut d_k, mut d_v) = (nan(0)?, nan(0)?, nan(1)?, nan(1)?);
        let Sides { batch, queries, heads, .. } = self.sides;
        let mut logarithms = DeviceBuffer::<f32>::zeroed(&stream, batch * queries * heads)?;
        let mask = Mask::window(self.window[0], self.window[1]);
        let (hq, hk, hv) = (self.heads(&q, 0)?, self.heads(&k, 1)?, self.heads(&v, 1)?);
        Attention::new(hq, hk, hv, self.heads_mut(&mut out, 0)?)
            .mask(mask)
            .log_sum_exp(&mut logarithms)
            .run(&stream)?;
        let forward = Forward {
            queries: hq,
            keys: hk,
            values: hv,
            output: self.heads(&out, 0)?,
            log_sum_exp: (&logarithms).into(),
        };
        let to = Gradients {
            queries: self.heads_mut(&mut d_q, 0)?,
            keys: self.heads_mut(&mut d_k, 1)?,
            values: self.heads_mut(&mut d_v, 1)?,
        };
        Backward::new(forward, self.heads(&result, 0)?, to).mask(mask).run(&stream)?;

        let real = |buffer: &DeviceBuffer<bf16>, side| -> Outcome<([usize; 4], Vec<bf16>)> {
            let (data, (shape, places)) = (buffer.to_vec(&stream)?, self.places(side));
            Ok((shape, places.into_iter().map(|place| data[place]).collect()))
        };
        let (shape, got) = real(&out, 0)?;
        let (what, row) = (format!("{self:?}"), tolerance::ATTENTION_BF16);
        compare::rounded(&what, &got, &want.value, &want.magnitude, &shape, row.tolerance())?;
        for (at, (buffer, side)) in [(&d_q, 0), (&d_k, 1), (&d_v, 1)].into_iter().enumerate() {
            let (shape, got) = real(buffer, side)?;
            let (value, magnitude) = (&gradients.value[at], &gradients.magnitude[at]);
            let what = format!("gradient {at} of {self:?}");
            let tolerance = tolerance::ATTENTION_BACKWARD_BF16.tolerance();
            compare::rounded(&what, &got, value, magnitude, &shape, tolerance)?;
        }
        self.check_logarithms(&logarithms.to_vec(&stream)?, &want.log_sum_exp, &want.log_sum_exp_magnitude)
    }

    /// They have the sides of the dilated operands.
    fn check_logarithms(&self, got: &[f32], want: &[f64], magnitude: &[f64]) -> Outcome {
        let (Sides { batch, queries, heads, size, .. }, stride) = (self.real(), self.stride);
        let of_each = self.sides.queries / stride;
        let in_order: Vec<f32> = (0..batch * heads * queries)
            .map(|at| {
                let [sequence, head, query] = [at / (heads * queries), at / queries % heads, at % queries];
                let (first, row) = (query % stride, query / stride);
                // Sequences `first` of one, or heads `first * heads + head`: the same place.
                got[((sequence * stride + first) * heads + head) * of_each + row]
            })
            .collect();
        let tolerance = tolerance::ATTENTION_LSE.for_terms(size);
        let what = format!("log-sum-exps of {self:?}");
        compare::accumulated(&what, &in_order, want, magnitude, &[batch, heads, queries], tolerance)?;
        Ok(())
    }
}

#[test]
fn rows_become_sequences_or_heads() -> Outcome {
    SEVERAL.check()?;
    ONE.check()?;
    // One head of each, whose rows may lie anywhere; a stride that leaves one row of each; none at all.
    let sides = Sides { heads: 1, kv_heads: 1, ..SEVERAL.sides };
    Case { sides, heads_first: true, window: [None, Some(0)], ..SEVERAL }.check()?;
    let few = Sides { queries: 7, keys: 7, ..SEVERAL.sides };
    Case { sides: few, stride: 7, window: [None, None], ..SEVERAL }.check()?;
    Case { sides: few, stride: 1, window: [Some(2), None], ..SEVERAL }.check()
}

/// Rows whose number no stride divides, with zeros added to queries, keys, values and the result's gradient:
/// under a causal mask the results and the gradients of the real rows are those without them.
#[test]
fn rows_are_filled_up() -> Outcome {
    for (case, filled) in [(SEVERAL, 2), (SEVERAL, 4), (ONE, 1)] {
        for window in [[None, Some(0)], [Some(2), Some(0)]] {
            Case { filled, window, ..case }.check()?;
        }
    }
    Ok(())
}

#[test]
fn wrong_strides_are_refused() -> Outcome {
    let stream = device()?.stream()?;
    let mut x = DeviceBuffer::<bf16>::zeroed(&stream, 2 * 6 * 4 * 8)?;
    for stride in [0, 4, 7, usize::MAX] {
        let error = Heads::new::<bf16>(&x, [2, 6, 4, 8]).dilated(stride).err().ok_or("no error")?;
        assert_eq!(about(&error), "the stride", "{error}");
    }
    let gaps = Heads::new::<bf16>(&x, [2, 3, 4, 8]).strides([96, 40, 8]);
    assert_eq!(about(&gaps.dilated(3).err().ok_or("no error")?), "the rows");
    let heads_first = HeadsMut::new::<bf16>(&mut x, [2, 4, 6, 8]).heads_first();
    assert_eq!(about(&heads_first.dilated(3).err().ok_or("no error")?), "the rows");
    // More rows than there is memory for are refused by the operation.
    let wide = Heads::new::<bf16>(&x, [1, usize::MAX - 1, 4, 8]).dilated(2)?;
    assert_eq!(wide.sides(), [2, usize::MAX / 2, 4, 8]);
    Ok(())
}
