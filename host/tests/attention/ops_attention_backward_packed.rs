//! The backward pass of packed sequences against the oracle of `reference`, each sequence for itself.

use crate::attention_case::{Lengths, Number, Outcome, device, has_plain, is_hopper};
use crate::ops_attention_backward_mma::run as run_by_mma;
use half::{bf16, f16};
use ironwarp::ops::attention::{Attention, Backward, Forward, Gradients, Heads, HeadsMut, Mask, Packed};
use ironwarp::tensor::DType;
use ironwarp::{DeviceBuffer, Error};
use reference::attention::{Band, Rows, Sides, gradients_with};
use testkit::{Family, compare, input, tolerance};

/// Rows of no sequence before the first one and behind the last one; they hold no numbers.
const OUTSIDE: usize = 3;
const LENGTHS: Lengths = &[[70, 70], [1, 130], [0, 5], [140, 140], [3, 0], [65, 9]];

#[derive(Debug, Clone, Copy)]
struct Case {
    lengths: Lengths,
    /// Queries and keys of the longest sequence as they are told, where that is wrong: rows behind hold no
    /// numbers, and get no gradients.
    told: Option<[usize; 2]>,
    heads: usize,
    kv_heads: usize,
    size: usize,
    left: Option<u32>,
    right: Option<u32>,
    is_deterministic: bool,
    soft_cap: Option<f32>,
    /// A sink for each head, or none.
    sinks: &'static [f32],
    /// By the kernels for Ampere and later, also on a Hopper.
    by_mma: bool,
    /// A sequence whose operands are no numbers; its gradients are not looked at.
    spoiled: Option<usize>,
}

const PLAIN: Case = Case {
    lengths: LENGTHS,
    told: None,
    heads: 2,
    kv_heads: 2,
    size: 64,
    left: None,
    right: None,
    spoiled: None,
    is_deterministic: false,
    soft_cap: None,
    sinks: &[],
    by_mma: false,
};

/// The operands' and gradients' elements.
struct Results<T> {
    inputs: [Vec<T>; 4],
    got: [Vec<T>; 3],
    /// Gradients of sinks.
    of_sinks: Vec<f32>,
}

impl Case {
    /// Rows of a sequence that count.
    fn counted(&self, lengths: [usize; 2]) -> [usize; 2] {
        let told = self.told.unwrap_or(lengths);
        [0, 1].map(|side| lengths[side].min(told[side]))
    }

    /// First rows of the queries, or of the keys, and the end of the last one.
    fn first(&self, side: usize) -> Vec<usize> {
        let mut rows = vec![OUTSIDE];
        rows.extend(self.lengths.iter().scan(OUTSIDE, |row, lengths| {
            *row += lengths[side];
            Some(*row)
        }));
        rows
    }

    /// Of Q, K, V and dO: which side their rows are of, and their heads.
    fn operands(&self) -> [(usize, usize); 4] {
        [(0, self.heads), (1, self.kv_heads), (1, self.kv_heads), (0, self.heads)]
    }

    /// Elements of an operand with the rows of no sequence.
    fn elements<T: Number>(&self, at: usize) -> Vec<T> {
        let (side, heads) = self.operands()[at];
        let (row, nan) = (heads * self.size, T::from_f64(f64::NAN));
        let first = self.first(side);
        let mut all = vec![nan; (first[first.len() - 1] + OUTSIDE) * row];
        for (sequence, &lengths) in
            self.lengths.iter().enumerate().filter(|(at, _)| self.spoiled != Some(*at))
        {
            let seed = (10 * sequence + at) as u64;
            let values = input::<T>(Family::Normal, seed, self.counted(lengths)[side] * row);
            all[first[sequence] * row..][..values.len()].copy_from_slice(&values);
        }
        all
    }

    /// The operands, and the gradients of a device.
    fn compute<T: Number>(&self) -> Outcome<Results<T>> {
        let stream = device()?.stream()?;
        let inputs: [Vec<T>; 4] = [0, 1, 2, 3].map(|at| self.elements(at));
        let upload = |data: &Vec<T>| DeviceBuffer::from_slice(&stream, data);
        let (q, k, v, result) =
            (upload(&inputs[0])?, upload(&inputs[1])?, upload(&inputs[2])?, upload(&inputs[3])?);
        let shape = |at: usize| {
            let (_, heads) = self.operands()[at];
            [1, inputs[at].len() / (heads * self.size), heads, self.size]
        };
        let nan = |at: usize| upload(&vec![T::from_f64(f64::NAN); inputs[at].len()]);
        let (mut output, mut d_q, mut d_k, mut d_v) = (nan(0)?, nan(0)?, nan(1)?, nan(2)?);
        let mut logarithms = DeviceBuffer::<f32>::zeroed(&stream, inputs[0].len() / self.size)?;
        let numbers = |side| self.first(side).iter().map(|&row| row as i32).collect::<Vec<_>>();
        let first = [0, 1].map(|side| DeviceBuffer::from_slice(&stream, &numbers(side)));
        let [first_queries, first_keys] = first;
        let (first_queries, first_keys) = (first_queries?, first_keys?);
        let most = |side: usize| self.lengths.iter().map(|rows| rows[side]).max().unwrap_or_default();
        let [queries, keys] = self.told.unwrap_or([most(0), most(1)]);
        let packed = Packed::new(&first_queries, &first_keys, queries, keys);
        let mask = Mask::window(self.left, self.right);
        let (hq, hk, hv) = (Heads::new(&q, shape(0)), Heads::new(&k, shape(1)), Heads::new(&v, shape(2)));
        let attention = Attention::new(hq, hk, hv, HeadsMut::new(&mut output, shape(0)))
            .mask(mask)
            .packed(packed)
            .log_sum_exp(&mut logarithms);
        let sinks = DeviceBuffer::from_slice(&stream, self.sinks)?;
        let mut of_sinks = DeviceBuffer::from_slice(&stream, &vec![f32::NAN; self.sinks.len()])?;
        let has_sinks = !self.sinks.is_empty();
        let attention = if has_sinks { attention.sinks(&sinks) } else { attention };
        match self.soft_cap {
            Some(cap) => attention.soft_cap(cap)?.run(&stream)?,
            None => attention.run(&stream)?,
        }
        let forward = Forward {
            queries: hq,
            keys: hk,
            values: hv,
            output: Heads::new(&output, shape(0)),
            log_sum_exp: (&logarithms).into(),
        };
        let gradients = Gradients {
            queries: HeadsMut::new(&mut d_q, shape(0)),
            keys: HeadsMut::new(&mut d_k, shape(1)),
            values: HeadsMut::new(&mut d_v, shape(2)),
        };
        let backward = Backward::new(forward, Heads::new(&result, shape(0)), gradients)
            .mask(mask)
            .packed(packed)
            .deterministic(self.is_deterministic);
        let backward = if has_sinks { backward.sinks(&sinks, &mut of_sinks) } else { backward };
        match self.soft_cap {
            Some(cap) => backward.soft_cap(cap)?.run(&stream)?,
            None if self.by_mma => run_by_mma(&stream, backward)?,
            None => backward.run(&stream)?,
        }
        let got = [d_q.to_vec(&stream)?, d_k.to_vec(&stream)?, d_v.to_vec(&stream)?];
        Ok(Results { inputs, got, of_sinks: of_sinks.to_vec(&stream)? })
    }

    fn check<T: Number>(&self) -> Outcome {
        if !(if self.soft_cap.is_some() { is_hopper()? } else { has_plain()? }) {
            return Ok(());
        }
        let Results { inputs, got, of_sinks } = self.compute::<T>()?;
        let sinks: Vec<f64> = self.sinks.iter().copied().map(f64::from).collect();
        let mut want_of_sinks = [vec![0.0; sinks.len()], vec![0.0; sinks.len()]];
        let Case { heads, kv_heads, size, .. } = *self;
        let first = [self.first(0), self.first(1)];
        let bound = |bound: Option<u32>| bound.map(i64::from);
        let band = Band { left: bound(self.left), right: bound(self.right), top_left: false };
        let scale = f64::from(1.0 / (size as f32).sqrt());
        let row = match T::DTYPE {
            DType::BF16 => tolerance::ATTENTION_BACKWARD_BF16,
            _ => tolerance::ATTENTION_BACKWARD_F16,
        };
        for (sequence, &lengths) in self.lengths.iter().enumerate() {
            if self.spoiled == Some(sequence) {
                continue;
            }
            let rows = |at: usize| {
                let (side, heads) = self.operands()[at];
                let data = &inputs[at][first[side][sequence] * heads * size..];
                Rows { data, strides: [0, heads * size, size] }
            };
            let counted = self.counted(lengths);
            let sides = Sides { batch: 1, queries: counted[0], keys: counted[1], heads, kv_heads, size };
            let cap = |score: f64, _| match self.soft_cap.map(f64::from) {
                Some(cap) => Some(cap * (score / cap).tanh()),
                None => Some(score),
            };
            let want = gradients_with(sides, [rows(0), rows(1), rows(2)], rows(3), band, scale, &sinks, cap);
            for (sum, part) in want_of_sinks.iter_mut().zip(&want.sinks) {
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
            for (at, name) in ["dQ", "dK", "dV"].into_iter().enumerate() {
                let (side, heads) = self.operands()[at];
                let (from, rows) = (first[side][sequence], counted[side]);
                let got = &got[at][from * heads * size..];
                let (got, behind) = got.split_at(rows * heads * size);
                let behind = &behind[..(lengths[side] - rows) * heads * size];
                assert!(behind.iter().all(|value| value.to_f64().is_nan()), "{self:?}: not told of");
                let what = format!("{name} of sequence {sequence} of {self:?}");
                let (value, magnitude) = (&want.value[at], &want.magnitude[at]);
                compare::rounded(&what, got, value, magnitude, &[1, rows, heads, size], row.tolerance())?;
            }
        }
        let what = format!("the gradients of sinks of {self:?}");
        let [value, magnitude] = &want_of_sinks;
        compare::accumulated(&what, &of_sinks, value, magnitude, &[sinks.len()], row.tolerance())?;
        for (at, got) in got.iter().enumerate() {
            let (side, heads) = self.operands()[at];
            let end = first[side][self.lengths.len()];
            let (before, behind) = (&got[..OUTSIDE * heads * size], &got[end * heads * size..]);
            let kept = before.iter().chain(behind).all(|value| value.to_f64().is_nan());
            assert!(kept, "{self:?}: wrote gradients of rows of no sequence");
        }
        Ok(())
    }
}

#[test]
fn score_functions() -> Outcome {
    Case { soft_cap: Some(1.5), ..PLAIN }.check::<bf16>()?;
    Case { soft_cap: Some(1.5), right: Some(0), size: 128, ..PLAIN }.check::<f16>()
}

#[test]
fn sequences_of_all_lengths() -> Outcome {
    for size in [64, 40, 128, 256] {
        Case { size, ..PLAIN }.check::<bf16>()?;
    }
    Case { heads: 4, ..PLAIN }.check::<f16>()
}

#[test]
fn masks_begin_anew_in_each() -> Outcome {
    for size in [64, 128, 256] {
        Case { size, right: Some(0), ..PLAIN }.check::<bf16>()?;
    }
    Case { left: Some(30), right: Some(0), kv_heads: 1, ..PLAIN }.check::<f16>()
}

#[test]
fn deterministic() -> Outcome {
    for size in [64, 128, 256] {
        let case = Case { size, kv_heads: 1, is_deterministic: true, ..PLAIN };
        case.check::<bf16>()?;
        Case { right: Some(0), ..case }.check::<f16>()?;
    }
    Ok(())
}

/// Numbers that are none stay in their sequence, whichever tiles it shares with others.
#[test]
fn sequences_do_not_spoil_each_other() -> Outcome {
    for size in [64, 128, 256] {
        for spoiled in [0, 1, 3, 5] {
            Case { size, spoiled: Some(spoiled), heads: 1, kv_heads: 1, ..PLAIN }.check::<bf16>()?;
        }
    }
    Ok(())
}

/// The kernels for Ampere and later.
#[test]
pub fn by_mma() -> Outcome {
    const SHORT: Lengths = &[[70, 70], [1, 130], [0, 5], [3, 0], [65, 9]];
    for size in [64, 40, 128, 256] {
        let case = Case { lengths: SHORT, size, heads: 2, kv_heads: 1, by_mma: true, ..PLAIN };
        case.check::<bf16>()?;
        Case { right: Some(0), sinks: &[0.75, -40.0], ..case }.check::<f16>()?;
        for spoiled in [0, 1, 4] {
            Case { spoiled: Some(spoiled), heads: 1, ..case }.check::<bf16>()?;
        }
    }
    Case { lengths: &[], by_mma: true, ..PLAIN }.check::<bf16>()?;
    Case { lengths: &[[0, 0], [0, 4]], by_mma: true, ..PLAIN }.check::<bf16>()
}

/// Queries and keys of the longest sequence as they are told, with a head size each: in a tile, between tiles
/// of all kernels, and no rows at all of one side.
const TOO_SHORT: [([usize; 2], usize); 7] = [
    ([5, 9], 64),
    ([64, 128], 128),
    ([70, 200], 256),
    ([300, 60], 64),
    ([60, 300], 128),
    ([0, 9], 256),
    ([5, 0], 64),
];
/// The last one is longer than what is told, too: no rows of others lie behind it.
const LONG: Lengths = &[[150, 270], [5, 9], [270, 150]];

/// Sequences end with the longest one that was told, for every kernel: rows behind it lie in tiles that no
/// block has, or in a tile of others. In a fixed order a tile of queries would wait for keys behind it.
fn too_short_lengths(case: Case) -> Outcome {
    for (at, (told, size)) in TOO_SHORT.into_iter().enumerate() {
        let case = Case { lengths: LONG, kv_heads: 1, told: Some(told), size, ..case };
        case.check::<bf16>()?;
        // The next size.
        let size = TOO_SHORT[(at + 1) % TOO_SHORT.len()].1;
        Case { right: Some(0), sinks: &[0.75, -40.0], size, ..case }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn too_short_lengths_on_hopper() -> Outcome {
    too_short_lengths(PLAIN)
}

#[test]
fn too_short_lengths_in_a_fixed_order() -> Outcome {
    too_short_lengths(Case { is_deterministic: true, ..PLAIN })
}

#[test]
pub fn too_short_lengths_by_mma() -> Outcome {
    too_short_lengths(Case { by_mma: true, ..PLAIN })
}

#[test]
fn too_short_lengths_of_score_functions() -> Outcome {
    for is_deterministic in [false, true] {
        for (told, size) in [([64, 128], 64), ([70, 60], 128), ([5, 200], 256)] {
            let case = Case { lengths: LONG, told: Some(told), soft_cap: Some(1.5), size, ..PLAIN };
            Case { right: Some(0), is_deterministic, ..case }.check::<bf16>()?;
        }
    }
    Ok(())
}

#[test]
fn no_sequences() -> Outcome {
    Case { lengths: &[], ..PLAIN }.check::<bf16>()?;
    Case { lengths: &[[0, 0], [0, 4]], ..PLAIN }.check::<bf16>()
}

/// Row numbers that lead out of the tensors, or fall: the checker would see an access outside. The 77 queries
/// from row 3 on see all 80 keys, the ones before none. Elements are 1 but those of O, which are 0: so
/// weights are 1/80, and dS is 64/80.
#[test]
pub fn wrong_row_numbers_do_no_harm() -> Outcome {
    if !has_plain()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let sides = [1, 80, 1, 64];
    let x = DeviceBuffer::from_slice(&stream, &[bf16::ONE; 80 * 64])?;
    let gradient = || DeviceBuffer::<bf16>::zeroed(&stream, 80 * 64);
    let output = gradient()?;
    let logarithms = DeviceBuffer::from_slice(&stream, &[8.0 + 80_f32.ln(); 80])?;
    let queries = DeviceBuffer::from_slice(&stream, &[-5, 3, 1000, 2, i32::MIN])?;
    let keys = DeviceBuffer::from_slice(&stream, &[70, i32::MIN, i32::MAX, 81, 90])?;
    let heads = |x| Heads::new::<bf16>(x, sides);
    for (is_deterministic, by_mma) in [(false, false), (true, false), (false, true)] {
        let (mut d_q, mut d_k, mut d_v) = (gradient()?, gradient()?, gradient()?);
        let forward = Forward {
            queries: heads(&x),
            keys: heads(&x),
            values: heads(&x),
            output: heads(&output),
            log_sum_exp: (&logarithms).into(),
        };
        let gradients = Gradients {
            queries: HeadsMut::new(&mut d_q, sides),
            keys: HeadsMut::new(&mut d_k, sides),
            values: HeadsMut::new(&mut d_v, sides),
        };
        let backward = Backward::new(forward, heads(&x), gradients)
            .packed(Packed::new(&queries, &keys, 80, 80))
            .deterministic(is_deterministic);
        if by_mma {
            run_by_mma(&stream, backward)?
        } else {
            backward.run(&stream)?
        }
        let is_near = |got: &[bf16], want: f32| got.iter().all(|x| (x.to_f32() / want - 1.0).abs() < 0.01);
        let d_q = d_q.to_vec(&stream)?;
        let (before, behind) = d_q.split_at(3 * 64);
        assert!(before.iter().all(|value| *value == bf16::ZERO) && is_near(behind, 8.0), "{d_q:?}");
        assert!(is_near(&d_k.to_vec(&stream)?, 7.7) && is_near(&d_v.to_vec(&stream)?, 77.0 / 80.0));
    }
    Ok(())
}

#[test]
pub fn sequences_of_several_matrices_are_refused() -> Outcome {
    if !has_plain()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let sides = [2, 8, 1, 64];
    let x = DeviceBuffer::<bf16>::zeroed(&stream, 16 * 64)?;
    let gradient = || DeviceBuffer::<bf16>::zeroed(&stream, 16 * 64);
    let (mut d_q, mut d_k, mut d_v) = (gradient()?, gradient()?, gradient()?);
    let logarithms = DeviceBuffer::<f32>::zeroed(&stream, 16)?;
    let first = DeviceBuffer::from_slice(&stream, &[0, 8])?;
    let heads = |x| Heads::new::<bf16>(x, sides);
    let forward = Forward {
        queries: heads(&x),
        keys: heads(&x),
        values: heads(&x),
        output: heads(&x),
        log_sum_exp: (&logarithms).into(),
    };
    let gradients = Gradients {
        queries: HeadsMut::new(&mut d_q, sides),
        keys: HeadsMut::new(&mut d_k, sides),
        values: HeadsMut::new(&mut d_v, sides),
    };
    let backward = Backward::new(forward, heads(&x), gradients).packed(Packed::new(&first, &first, 8, 8));
    let Err(error) = backward.run(&stream) else { panic!("packed sequences lie in one matrix") };
    assert!(matches!(error, Error::InvalidArgument { argument: "the queries", .. }), "{error}");
    Ok(())
}
