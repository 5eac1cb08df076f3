//! The backward pass by the kernels for Ampere and later, on whichever device the tests run.

use half::{bf16, f16};
use ironwarp::ops::attention::{Attention, Backward, Forward, Gradients, Heads, HeadsMut, Mask};
use ironwarp::{DeviceBuffer, Result as Done, Stream};
use reference::attention::Sides;
use testkit::{Family, input};

use crate::attention_case::{Number, Outcome, device, has_plain};
use crate::ops_attention_backward::{Case, PLAIN, forward};

/// Runs the pass by the kernels with the shortest rows.
pub fn run(stream: &Stream, backward: Backward<'_>) -> Done<()> {
    let configs = backward.explain(stream)?.candidates.into_iter().map(|candidate| candidate.config);
    let own = configs.filter(|config| config.name().starts_with("attention_mma_backward_"));
    let config = own.min_by_key(|config| config.head_size()).expect("kernels for Ampere and later");
    backward.run_with(stream, &config)
}

fn check<T: Number + PartialEq>(case: Case) -> Outcome {
    case.check_as::<T>(run)
}

const fn one_head(queries: usize, keys: usize, size: usize) -> Sides {
    Sides { batch: 1, queries, keys, heads: 1, kv_heads: 1, size }
}

/// Rows as long as the kernels' and shorter.
#[test]
fn all_keys() -> Outcome {
    for size in [64, 8, 40, 128, 72, 104, 256, 136] {
        check::<bf16>(Case { sides: one_head(70, 90, size), ..PLAIN })?;
    }
    for size in [64, 128, 256] {
        let sides = Sides { batch: 2, heads: 2, kv_heads: 2, ..one_head(33, 70, size) };
        check::<f16>(Case { sides, ..PLAIN })?;
    }
    Ok(())
}

/// Kernels of longer rows than the next ones.
#[test]
fn longer_rows_than_needed() -> Outcome {
    let case = Case { sides: one_head(40, 50, 24), right: Some(0), ..PLAIN };
    for head in [64, 128, 256] {
        case.check_as::<bf16>(|stream, backward| {
            let candidates = backward.explain(stream)?.candidates.into_iter();
            let mut own = candidates
                .map(|candidate| candidate.config)
                .filter(|config| config.name() == format!("attention_mma_backward_bf16_{head}"));
            backward.run_with(stream, &own.next().expect("a kernel of longer rows"))
        })?;
    }
    Ok(())
}

/// Tiles that lengths fill, and those that they do not.
#[test]
fn lengths_around_tiles() -> Outcome {
    const LENGTHS: [usize; 9] = [0, 1, 7, 63, 64, 65, 127, 128, 129];
    for (at, queries) in LENGTHS.into_iter().enumerate() {
        for (step, size) in [64, 128, 256].into_iter().enumerate() {
            // Each length of queries meets others of keys at each size.
            for keys in [2 * at + step + 1, 5 * at + step].map(|at| LENGTHS[at % LENGTHS.len()]) {
                check::<bf16>(Case { sides: one_head(queries, keys, size), ..PLAIN })?;
                check::<bf16>(Case { sides: one_head(queries, keys, size), right: Some(0), ..PLAIN })?;
            }
        }
    }
    Ok(())
}

#[test]
fn causal_masks_and_windows() -> Outcome {
    for size in [64, 128, 256] {
        let sides = one_head(150, 150, size);
        check::<bf16>(Case { sides, right: Some(0), ..PLAIN })?;
        check::<f16>(Case { sides, left: Some(30), right: Some(0), ..PLAIN })?;
        check::<bf16>(Case { sides, left: Some(5), right: Some(40), ..PLAIN })?;
        // Queries that see no key, whole tiles of them, and keys that no query sees.
        check::<bf16>(Case { sides: one_head(200, 70, size), right: Some(0), ..PLAIN })?;
        check::<bf16>(Case { sides: one_head(20, 200, size), left: Some(10), right: Some(0), ..PLAIN })?;
    }
    Ok(())
}

#[test]
fn heads_that_share_keys_add_up() -> Outcome {
    for size in [64, 128, 256] {
        for (heads, kv_heads) in [(4, 2), (3, 1)] {
            let sides = Sides { batch: 2, heads, kv_heads, ..one_head(65, 40, size) };
            check::<bf16>(Case { sides, right: Some(0), ..PLAIN })?;
        }
    }
    Ok(())
}

/// Scores of hundreds, of which one alone counts, and scores that are nearly equal.
#[test]
fn huge_and_tiny_scores() -> Outcome {
    for size in [64, 256] {
        for scale in [4.0, 1.5, 1e-4] {
            let scale = Some(scale);
            check::<bf16>(Case { sides: one_head(70, 90, size), scale, ..PLAIN })?;
        }
        check::<bf16>(Case { family: Family::Cancelling, sides: one_head(70, 90, size), ..PLAIN })?;
        check::<f16>(Case { family: Family::Subnormal, sides: one_head(70, 90, size), ..PLAIN })?;
    }
    Ok(())
}

/// All keys are the same, so dQ shows the order of its parts: it is fixed, whether it is asked for or not.
#[test]
fn gradients_repeat() -> Outcome {
    if !has_plain()? {
        return Ok(());
    }
    let runs = if device()?.is_software() { 3 } else { 100 };
    let mut all = Vec::new();
    for size in [64, 128, 256] {
        for is_deterministic in [false, true] {
            let sides = Sides { heads: 2, ..one_head(70, 200, size) };
            let case = Case { sides, is_deterministic, same_keys: true, ..PLAIN };
            all.push(case.compute::<bf16>(runs, forward, run)?.got);
        }
    }
    assert!(all.chunks(2).all(|pair| pair[0] == pair[1]), "other bits in the deterministic mode");
    Ok(())
}

/// The operands and results of a problem in buffers of their own.
struct Operands {
    sides: [[usize; 4]; 2],
    /// Q, K, V, dO.
    inputs: [Vec<bf16>; 4],
}

impl Operands {
    fn new(queries: usize, keys: usize, size: usize) -> Self {
        let sides = [[2, queries, 2, size], [2, keys, 1, size]];
        let of = |seed, side: usize| input(Family::Normal, seed, sides[side].iter().product());
        Operands { sides, inputs: [of(1, 0), of(2, 1), of(3, 1), of(4, 0)] }
    }

    /// dQ, dK and dV, from operands and into gradients whose rows, heads and matrices lie so far apart; with
    /// numbers that are none between them.
    fn gradients(&self, strides: impl Fn([usize; 4]) -> [usize; 3]) -> Outcome<[Vec<bf16>; 3]> {
        let stream = device()?.stream()?;
        let [of_queries, of_keys] = self.sides;
        let places = |sides: [usize; 4]| {
            let ([batch, rows, heads, size], [matrix, row, head]) = (sides, strides(sides));
            (0..batch * rows * heads * size).map(move |at| {
                let index =
                    [at / (rows * heads * size), at / (heads * size) % rows, at / size % heads, at % size];
                index[0] * matrix + index[1] * row + index[2] * head + index[3]
            })
        };
        let len = |sides| places(sides).max().map_or(0, |last| last + 1);
        let spread = |values: &[bf16], sides| {
            let mut all = vec![bf16::NAN; len(sides)];
            places(sides).zip(values).for_each(|(place, value)| all[place] = *value);
            DeviceBuffer::from_slice(&stream, &all)
        };
        let [q, k, v, d_out] = &self.inputs;
        let (q, k, v) = (spread(q, of_queries)?, spread(k, of_keys)?, spread(v, of_keys)?);
        let (d_out, mut out) = (spread(d_out, of_queries)?, spread(&[], of_queries)?);
        let (mut d_q, mut d_k, mut d_v) =
            (spread(&[], of_queries)?, spread(&[], of_keys)?, spread(&[], of_keys)?);
        let [batch, rows, heads, _] = of_queries;
        let mut logarithms = DeviceBuffer::<f32>::zeroed(&stream, batch * rows * heads)?;
        let view = |x, sides| Heads::new::<bf16>(x, sides).strides(strides(sides));
        let (queries, keys, values) = (view(&q, of_queries), view(&k, of_keys), view(&v, of_keys));
        let result = HeadsMut::new(&mut out, of_queries).strides(strides(of_queries));
        let attention = Attention::new(queries, keys, values, result).mask(Mask::CAUSAL);
        attention.log_sum_exp(&mut logarithms).run(&stream)?;
        let output = view(&out, of_queries);
        let made = Forward { queries, keys, values, output, log_sum_exp: (&logarithms).into() };
        let gradients = Gradients {
            queries: HeadsMut::new(&mut d_q, of_queries).strides(strides(of_queries)),
            keys: HeadsMut::new(&mut d_k, of_keys).strides(strides(of_keys)),
            values: HeadsMut::new(&mut d_v, of_keys).strides(strides(of_keys)),
        };
        run(&stream, Backward::new(made, view(&d_out, of_queries), gradients).mask(Mask::CAUSAL))?;
        let read = |buffer: &DeviceBuffer<bf16>, sides| -> Outcome<Vec<bf16>> {
            let mut all = buffer.to_vec(&stream)?;
            let got = places(sides).map(|place| std::mem::replace(&mut all[place], bf16::NAN)).collect();
            assert!(all.iter().all(|value| value.is_nan()), "wrote between the rows");
            Ok(got)
        };
        Ok([read(&d_q, of_queries)?, read(&d_k, of_keys)?, read(&d_v, of_keys)?])
    }
}

const fn dense([_, rows, heads, size]: [usize; 4]) -> [usize; 3] {
    [rows * heads * size, heads * size, size]
}

/// Heads before rows, and rows with gaps between them: the same bits as where rows lie densely.
#[test]
fn strided_views() -> Outcome {
    if !has_plain()? {
        return Ok(());
    }
    for size in [40, 128, 136] {
        let operands = Operands::new(37, 70, size);
        let want = operands.gradients(dense)?;
        let heads_first = |[_, rows, heads, size]: [usize; 4]| [rows * heads * size, size, rows * size];
        assert!(operands.gradients(heads_first)? == want, "heads first, {size}");
        let gaps = |[_, rows, heads, size]: [usize; 4]| {
            let row = heads * (size + 8) + 16;
            [rows * row + 8, row, size + 8]
        };
        assert!(operands.gradients(gaps)? == want, "with gaps, {size}");
    }
    Ok(())
}

/// A query, or its gradient, that is no number or infinite makes its own dQ and what it adds to none; the
/// others keep their bits, and so do other sequences. dK and dV of its own sequence are spoilt, also those of
/// keys of the tile that it does not see: a weight of zero times NaN is NaN.
#[test]
fn no_numbers_stay_in_their_rows() -> Outcome {
    if !has_plain()? {
        return Ok(());
    }
    for size in [64, 128, 256] {
        let operands = Operands::new(40, 70, size);
        let want = operands.gradients(dense)?;
        for (of, number) in [(0, bf16::NAN), (3, bf16::NAN), (3, bf16::INFINITY)] {
            let mut spoiled = Operands::new(40, 70, size);
            // Row 9 of head 1 of sequence 0.
            let row = (9 * 2 + 1) * size;
            spoiled.inputs[of][row + 3] = number;
            let got = spoiled.gradients(dense)?;
            for (at, (got, want)) in got[0].iter().zip(&want[0]).enumerate() {
                let is_own = (row..row + size).contains(&at);
                assert!(is_own || got == want, "{of}, {number}: dQ at {at}: {got} for {want}");
            }
            assert!(got[0][row..row + size].iter().any(|value| !value.is_finite()), "{of}, {number}");
            for (got, want) in got.iter().zip(&want).skip(1) {
                // The second sequence, which has half of the keys.
                assert!(got[got.len() / 2..] == want[want.len() / 2..], "{of}, {number}");
            }
        }
    }
    Ok(())
}
