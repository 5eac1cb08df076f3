//! The backward pass against the oracle of `reference`, from what the forward pass gives.

use crate::attention_case::{Number, Outcome, cut, device, filled_up, has_plain, is_hopper};
use half::{bf16, f16};
use ironwarp::ops::attention::{Attention, Backward, Forward, Gradients, Heads, HeadsMut, Mask};
use ironwarp::tensor::DType;
use ironwarp::{DeviceBuffer, Result as Done, Stream};
use reference::attention::{Band, Gradients as Exact, Rows, Sides, gradients_weighted, gradients_with};
use testkit::{Family, compare, input, tolerance};

#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub family: Family,
    pub sides: Sides,
    /// Head size of values and results, if it is another.
    pub value_size: Option<usize>,
    pub left: Option<u32>,
    pub right: Option<u32>,
    pub scale: Option<f32>,
    pub is_deterministic: bool,
    /// All keys are the first one. Then dQ is a small difference of its parts, and shows their order.
    pub same_keys: bool,
}

pub const PLAIN: Case = Case {
    family: Family::Normal,
    sides: Sides { batch: 1, queries: 70, keys: 90, heads: 2, kv_heads: 2, size: 64 },
    value_size: None,
    left: None,
    right: None,
    scale: None,
    is_deterministic: false,
    same_keys: false,
};

/// The operands' and gradients' elements.
pub struct Results<T> {
    inputs: [Vec<T>; 4],
    pub got: [Vec<T>; 3],
}

/// The forward pass as it is.
pub fn forward(stream: &Stream, attention: Attention<'_>) -> Done<()> {
    attention.run(stream)
}

fn backward(stream: &Stream, backward: Backward<'_>) -> Done<()> {
    backward.run(stream)
}

impl Case {
    fn value_size(&self) -> usize {
        self.value_size.unwrap_or(self.sides.size)
    }

    /// Sides of Q, K, V and dO.
    fn shapes(&self) -> [[usize; 4]; 4] {
        let Sides { batch, queries, keys, heads, kv_heads, size } = self.sides;
        let value_size = self.value_size();
        [
            [batch, queries, heads, size],
            [batch, keys, kv_heads, size],
            [batch, keys, kv_heads, value_size],
            [batch, queries, heads, value_size],
        ]
    }

    /// The gradients of a device, after a forward pass on it, as these run the calls; of so many runs that
    /// give the same bits.
    pub fn compute<T: Number + PartialEq>(
        &self,
        runs: usize,
        forward: impl Fn(&Stream, Attention<'_>) -> Done<()>,
        backward: impl Fn(&Stream, Backward<'_>) -> Done<()>,
    ) -> Outcome<Results<T>> {
        let stream = device()?.stream()?;
        let Sides { batch, queries, heads, kv_heads, size, .. } = self.sides;
        let shapes = self.shapes();
        let [of_q, of_k, of_v, of_result] = shapes;
        let mut inputs =
            [0, 1, 2, 3].map(|at: usize| input::<T>(self.family, at as u64 + 1, shapes[at].iter().product()));
        if self.same_keys {
            let row = inputs[1][..kv_heads * size].to_vec();
            inputs[1].chunks_exact_mut(row.len()).for_each(|key| key.copy_from_slice(&row));
        }
        let upload = |at: usize| DeviceBuffer::from_slice(&stream, &inputs[at]);
        let (q, k, v, result) = (upload(0)?, upload(1)?, upload(2)?, upload(3)?);
        let mut output = DeviceBuffer::<T>::zeroed(&stream, result.len())?;
        let mut logarithms = DeviceBuffer::<f32>::zeroed(&stream, batch * heads * queries)?;
        let nan = |len: usize| DeviceBuffer::from_slice(&stream, &vec![T::from_f64(f64::NAN); len]);
        let (mut d_q, mut d_k, mut d_v) = (nan(q.len())?, nan(k.len())?, nan(v.len())?);
        let mask = Mask::window(self.left, self.right);
        let (hq, hk, hv) = (Heads::new(&q, of_q), Heads::new(&k, of_k), Heads::new(&v, of_v));
        let attention = Attention::new(hq, hk, hv, HeadsMut::new(&mut output, of_result)).mask(mask);
        let attention = self.scale.into_iter().fold(attention, Attention::scale);
        forward(&stream, attention.log_sum_exp(&mut logarithms))?;
        let made = Forward {
            queries: hq,
            keys: hk,
            values: hv,
            output: Heads::new(&output, of_result),
            log_sum_exp: (&logarithms).into(),
        };
        let mut first: Option<[Vec<T>; 3]> = None;
        for run in 0..runs {
            let gradients = Gradients {
                queries: HeadsMut::new(&mut d_q, of_q),
                keys: HeadsMut::new(&mut d_k, of_k),
                values: HeadsMut::new(&mut d_v, of_v),
            };
            let call = Backward::new(made, Heads::new(&result, of_result), gradients)
                .mask(mask)
                .deterministic(self.is_deterministic);
            backward(&stream, self.scale.into_iter().fold(call, Backward::scale))?;
            let got = [d_q.to_vec(&stream)?, d_k.to_vec(&stream)?, d_v.to_vec(&stream)?];
            let first = first.get_or_insert_with(|| got.clone());
            assert!(got == *first, "other bits in run {run} of {self:?}");
        }
        let got = first.expect("at least one run");
        Ok(Results { inputs, got })
    }

    fn check<T: Number + PartialEq>(&self) -> Outcome {
        self.check_as::<T>(backward)
    }

    /// Gradients are the oracle's, without a score function, as this runs the call.
    pub fn check_as<T: Number + PartialEq>(
        &self,
        backward: impl Fn(&Stream, Backward<'_>) -> Done<()>,
    ) -> Outcome {
        self.check_with_sinks::<T>(&[], forward, backward).map(drop)
    }

    /// Gradients are the oracle's with the scores that `modify` gives.
    pub fn check_with<T: Number + PartialEq>(
        &self,
        modify: impl Fn(f64, [usize; 4]) -> Option<f64> + Sync,
        forward: impl Fn(&Stream, Attention<'_>) -> Done<()>,
        backward: impl Fn(&Stream, Backward<'_>) -> Done<()>,
    ) -> Outcome {
        if !is_hopper()? {
            return Ok(());
        }
        let oracle = |sides, operands: [Rows<'_, T>; 3], result: Rows<'_, T>, band, scale| {
            gradients_with(sides, operands, result, band, scale, &[], modify)
        };
        self.check_by::<T>(oracle, forward, backward).map(drop)
    }

    /// Gradients are the oracle's with sinks, without a score function. They come back, if there is a kernel.
    pub fn check_with_sinks<T: Number + PartialEq>(
        &self,
        sinks: &[f64],
        forward: impl Fn(&Stream, Attention<'_>) -> Done<()>,
        backward: impl Fn(&Stream, Backward<'_>) -> Done<()>,
    ) -> Outcome<Option<Exact>> {
        if !has_plain()? {
            return Ok(None);
        }
        let oracle = |sides, operands: [Rows<'_, T>; 3], result: Rows<'_, T>, band, scale| {
            gradients_with(sides, operands, result, band, scale, sinks, |score, _| Some(score))
        };
        self.check_by::<T>(oracle, forward, backward).map(Some)
    }

    /// Gradients are the oracle's with weights that are multiplied by `factor`.
    pub fn check_weighted<T: Number + PartialEq>(
        &self,
        factor: impl Fn([usize; 4]) -> f64 + Sync,
        forward: impl Fn(&Stream, Attention<'_>) -> Done<()>,
        backward: impl Fn(&Stream, Backward<'_>) -> Done<()>,
    ) -> Outcome {
        if !is_hopper()? {
            return Ok(());
        }
        let oracle = |sides, operands: [Rows<'_, T>; 3], result: Rows<'_, T>, band, scale| {
            gradients_weighted(sides, operands, result, band, scale, factor)
        };
        self.check_by::<T>(oracle, forward, backward).map(drop)
    }

    /// Gradients are those of this oracle, which gets the sides, Q, K and V, the gradient of the result, the
    /// mask and the scale.
    fn check_by<T: Number + PartialEq>(
        &self,
        oracle: impl FnOnce(Sides, [Rows<'_, T>; 3], Rows<'_, T>, Band, f64) -> Exact,
        forward: impl Fn(&Stream, Attention<'_>) -> Done<()>,
        backward: impl Fn(&Stream, Backward<'_>) -> Done<()>,
    ) -> Outcome<Exact> {
        let Results { inputs, got } = self.compute::<T>(1, forward, backward)?;
        let (shapes, own) = (self.shapes(), self.sides.size);
        // Zeros change no score, and no gradient of other columns. The oracle has one size.
        let size = own.max(self.value_size());
        let filled: [Vec<T>; 4] = [0, 1, 2, 3].map(|at: usize| filled_up(&inputs[at], shapes[at][3], size));
        let rows = |at: usize| {
            let [_, rows, heads, _] = shapes[at];
            Rows { data: &filled[at][..], strides: [rows * heads * size, heads * size, size] }
        };
        let bound = |bound: Option<u32>| bound.map(i64::from);
        let band = Band { left: bound(self.left), right: bound(self.right), top_left: false };
        let scale = f64::from(self.scale.unwrap_or(1.0 / (own as f32).sqrt()));
        let sides = Sides { size, ..self.sides };
        let want = oracle(sides, [rows(0), rows(1), rows(2)], rows(3), band, scale);
        let row = match T::DTYPE {
            DType::BF16 => tolerance::ATTENTION_BACKWARD_BF16,
            _ => tolerance::ATTENTION_BACKWARD_F16,
        };
        for (at, name) in ["dQ", "dK", "dV"].into_iter().enumerate() {
            let (what, shape) = (format!("{name} of {self:?}"), shapes[at]);
            let [value, magnitude] = [&want.value, &want.magnitude].map(|all| cut(&all[at], size, shape[3]));
            compare::rounded(&what, &got[at], &value, &magnitude, &shape, row.tolerance())?;
        }
        Ok(want)
    }
}

impl Case {
    /// So many runs give the same bits.
    fn repeats(&self, runs: usize) -> Outcome {
        if has_plain()? { self.compute::<bf16>(runs, forward, backward).map(drop) } else { Ok(()) }
    }
}

/// Each kernel, with heads as long as its rows and shorter.
const SIZES: [usize; 6] = [64, 40, 128, 104, 256, 136];

#[test]
fn all_keys() -> Outcome {
    for size in SIZES {
        Case { sides: Sides { size, ..PLAIN.sides }, ..PLAIN }.check::<bf16>()?;
    }
    for size in [64, 256] {
        let sides = Sides { batch: 2, queries: 130, keys: 260, size, ..PLAIN.sides };
        Case { sides, ..PLAIN }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn causal_masks_and_windows() -> Outcome {
    for size in [64, 128, 256] {
        let sides = Sides { queries: 150, keys: 150, size, ..PLAIN.sides };
        Case { sides, right: Some(0), ..PLAIN }.check::<bf16>()?;
        Case { sides, left: Some(30), right: Some(0), ..PLAIN }.check::<f16>()?;
    }
    // Queries that see no key, and keys that no query sees.
    let sides = Sides { queries: 150, keys: 70, ..PLAIN.sides };
    Case { sides, right: Some(0), ..PLAIN }.check::<bf16>()?;
    let sides = Sides { queries: 20, keys: 300, ..PLAIN.sides };
    Case { sides, left: Some(10), right: Some(0), ..PLAIN }.check::<bf16>()
}

#[test]
fn heads_that_share_keys_add_up() -> Outcome {
    for (heads, kv_heads) in [(4, 2), (3, 1)] {
        for size in [64, 256] {
            let sides = Sides { batch: 2, queries: 65, keys: 40, heads, kv_heads, size };
            Case { sides, right: Some(0), ..PLAIN }.check::<bf16>()?;
        }
    }
    Ok(())
}

#[test]
fn few_and_none() -> Outcome {
    for (queries, keys) in [(1, 1), (7, 1), (1, 130), (64, 128), (65, 129), (0, 5), (5, 0)] {
        for size in [64, 256] {
            let sides = Sides { queries, keys, heads: 1, kv_heads: 1, size, ..PLAIN.sides };
            Case { sides, ..PLAIN }.check::<bf16>()?;
        }
    }
    Ok(())
}

#[test]
fn other_scales() -> Outcome {
    Case { scale: Some(1.5), ..PLAIN }.check::<bf16>()
}

/// dK and dV do not depend on the order of blocks. dQ, of one block of keys, neither.
#[test]
fn gradients_repeat() -> Outcome {
    Case { right: Some(0), ..PLAIN }.repeats(4)
}

/// dQ of many blocks of keys. A GPU runs blocks in another order each time, the executor in much the same.
#[test]
fn deterministic_gradients_repeat() -> Outcome {
    let runs = if device()?.is_software() { 10 } else { 100 };
    let sides = Sides { queries: 20, keys: 400, heads: 1, kv_heads: 1, ..PLAIN.sides };
    Case { sides, is_deterministic: true, same_keys: true, ..PLAIN }.repeats(runs)
}

#[test]
fn deterministic_gradients_are_right() -> Outcome {
    let case = Case { is_deterministic: true, ..PLAIN };
    for size in [64, 128, 256] {
        let sides = Sides { queries: 200, keys: 300, heads: 2, kv_heads: 1, size, ..PLAIN.sides };
        Case { sides, ..case }.check::<bf16>()?;
        Case { sides, right: Some(0), ..case }.check::<f16>()?;
        Case { sides, left: Some(60), right: Some(0), ..case }.check::<bf16>()?;
        Case { sides, left: Some(5), right: Some(140), ..case }.check::<bf16>()?;
    }
    for (queries, keys) in [(1, 1), (1, 300), (300, 1), (65, 129), (0, 5), (5, 0)] {
        let sides = Sides { queries, keys, heads: 1, kv_heads: 1, ..PLAIN.sides };
        Case { sides, ..case }.check::<bf16>()?;
        Case { sides, right: Some(0), ..case }.check::<bf16>()?;
    }
    Ok(())
}
