//! Gradients of attention with a score function, against the oracle of `reference`, which takes the
//! derivatives of functions as differences.

use crate::attention_case::{Number, Outcome, device, is_hopper};
use conformance::hopper::score::LocalArgs;
use half::{bf16, f16};
use ironwarp::ops::attention::{Attention, Backward, Forward, Gradients, Heads, HeadsMut, Mask};
use ironwarp::tensor::DType;
use ironwarp::{DeviceBuffer, Result as Done, Stream};
use reference::attention::{Band, Rows, Sides, gradients_with};
use testkit::{Family, compare, input, tolerance};

#[derive(Debug, Clone, Copy)]
struct Case {
    sides: Sides,
    right: Option<u32>,
    scale: Option<f32>,
    is_deterministic: bool,
}

/// A multiple of no tile, over several of each; two heads of queries for one of keys.
const ODD: Case = Case {
    sides: Sides { batch: 2, queries: 130, keys: 263, heads: 2, kv_heads: 1, size: 64 },
    right: None,
    scale: None,
    is_deterministic: false,
};

/// Both kernels, with heads as long as their rows and shorter, with and without a causal mask.
fn cases() -> impl Iterator<Item = Case> {
    [(64, None), (40, Some(0)), (128, Some(0)), (104, None)].into_iter().map(|(size, right)| Case {
        sides: Sides { size, ..ODD.sides },
        right,
        ..ODD
    })
}

/// A device's operands and results: Q, K, V, dO; dQ, dK, dV.
struct Results<T> {
    inputs: [Vec<T>; 4],
    got: [Vec<T>; 3],
}

impl Case {
    fn shape(&self, at: usize) -> [usize; 4] {
        let Sides { batch, queries, keys, heads, kv_heads, size } = self.sides;
        if at.is_multiple_of(3) { [batch, queries, heads, size] } else { [batch, keys, kv_heads, size] }
    }

    /// The gradients of a device, by what `forward` and `backward` make of the calls.
    fn compute<T: Number>(
        &self,
        forward: impl Fn(&Stream, Attention<'_>) -> Done<()>,
        backward: impl Fn(&Stream, Backward<'_>) -> Done<()>,
    ) -> Outcome<Results<T>> {
        let stream = device()?.stream()?;
        let shape = |at: usize| self.shape(at);
        let len = |at: usize| shape(at).iter().product::<usize>();
        let inputs = [0, 1, 2, 3].map(|at| input::<T>(Family::Normal, at as u64, len(at)));
        let upload = |data: &[T]| DeviceBuffer::from_slice(&stream, data);
        let (q, k, v, result) =
            (upload(&inputs[0])?, upload(&inputs[1])?, upload(&inputs[2])?, upload(&inputs[3])?);
        let nan = |at: usize| upload(&vec![T::from_f64(f64::NAN); len(at)]);
        let (mut output, mut d_q, mut d_k, mut d_v) = (nan(0)?, nan(0)?, nan(1)?, nan(2)?);
        let mut logarithms = DeviceBuffer::<f32>::zeroed(&stream, len(0) / self.sides.size)?;
        let mask = Mask::window(None, self.right);
        let (hq, hk, hv) = (Heads::new(&q, shape(0)), Heads::new(&k, shape(1)), Heads::new(&v, shape(2)));
        let attention = Attention::new(hq, hk, hv, HeadsMut::new(&mut output, shape(0)));
        let attention = self.scale.into_iter().fold(attention.mask(mask), Attention::scale);
        forward(&stream, attention.log_sum_exp(&mut logarithms))?;
        let made = Forward {
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
        let call = Backward::new(made, Heads::new(&result, shape(0)), gradients).mask(mask);
        let call = call.deterministic(self.is_deterministic);
        backward(&stream, self.scale.into_iter().fold(call, Backward::scale))?;
        let got = [d_q.to_vec(&stream)?, d_k.to_vec(&stream)?, d_v.to_vec(&stream)?];
        Ok(Results { inputs, got })
    }

    /// Gradients are the oracle's with the scores that `modify` gives.
    fn check<T: Number>(
        &self,
        modify: impl Fn(f64, [usize; 4]) -> Option<f64> + Sync,
        forward: impl Fn(&Stream, Attention<'_>) -> Done<()>,
        backward: impl Fn(&Stream, Backward<'_>) -> Done<()>,
    ) -> Outcome {
        if !is_hopper()? {
            return Ok(());
        }
        let Results { inputs, got } = self.compute::<T>(forward, backward)?;
        let rows = |at: usize| {
            let [_, rows, heads, size] = self.shape(at);
            Rows { data: &inputs[at][..], strides: [rows * heads * size, heads * size, size] }
        };
        let band = Band { left: None, right: self.right.map(i64::from), top_left: false };
        let scale = f64::from(self.scale.unwrap_or(1.0 / (self.sides.size as f32).sqrt()));
        let want = gradients_with(self.sides, [rows(0), rows(1), rows(2)], rows(3), band, scale, modify);
        let row = match T::DTYPE {
            DType::BF16 => tolerance::ATTENTION_BACKWARD_BF16,
            _ => tolerance::ATTENTION_BACKWARD_F16,
        };
        for (at, name) in ["dQ", "dK", "dV"].into_iter().enumerate() {
            let (value, magnitude) = (&want.value[at], &want.magnitude[at]);
            let what = format!("{name} of {self:?}");
            compare::rounded(&what, &got[at], value, magnitude, &self.shape(at), row.tolerance())?;
        }
        Ok(())
    }

    /// The key less the one on the diagonal that ends in the last query and key.
    fn distance(&self, query: usize, key: usize) -> f64 {
        key as f64 - query as f64 - (self.sides.keys as f64 - self.sides.queries as f64)
    }
}

const SLOPES: [f32; 2] = [0.25, 0.0625];

#[test]
fn alibi() -> Outcome {
    for case in cases() {
        case.check::<bf16>(
            |score, [_, head, query, key]| {
                Some(score - f64::from(SLOPES[head]) * case.distance(query, key).abs())
            },
            |stream, attention| {
                let slopes = DeviceBuffer::from_slice(stream, &SLOPES)?;
                attention.alibi(&slopes)?.run(stream)
            },
            |stream, backward| {
                let slopes = DeviceBuffer::from_slice(stream, &SLOPES)?;
                backward.alibi(&slopes)?.run(stream)
            },
        )?;
    }
    Ok(())
}

/// Scores up to the cap and beyond, where the derivative falls from 1 to nearly 0.
fn soft_caps<T: Number>() -> Outcome {
    let cap = 1.5;
    for case in cases() {
        Case { scale: Some(0.25), ..case }.check::<T>(
            |score, _| Some(cap * (score / cap).tanh()),
            |stream, attention| attention.soft_cap(cap as f32)?.run(stream),
            |stream, backward| backward.soft_cap(cap as f32)?.run(stream),
        )?;
    }
    Ok(())
}

#[test]
fn soft_cap() -> Outcome {
    soft_caps::<f16>()?;
    soft_caps::<bf16>()
}

/// With a row of minus infinity, which sees nothing.
#[test]
fn biases() -> Outcome {
    let shared = [(1, 1), (2, 1), (1, 2), (2, 2)];
    for (case, (batch, heads)) in cases().zip(shared) {
        let Sides { queries, keys, .. } = case.sides;
        let number = |place: usize| match place / keys % queries {
            64 => f32::NEG_INFINITY,
            _ => ((place * 37 % 101) as f32 - 50.0) / 25.0,
        };
        let bias: Vec<f32> = (0..batch * heads * queries * keys).map(number).collect();
        let sides = [batch, heads, queries, keys];
        case.check::<f16>(
            |score, [sequence, head, query, key]| {
                let matrix = sequence % batch * heads + head % heads;
                let bias = number((matrix * queries + query) * keys + key);
                bias.is_finite().then(|| score + f64::from(bias))
            },
            |stream, attention| attention.bias(&DeviceBuffer::from_slice(stream, &bias)?, sides)?.run(stream),
            |stream, backward| backward.bias(&DeviceBuffer::from_slice(stream, &bias)?, sides)?.run(stream),
        )?;
    }
    Ok(())
}

/// Documents of 60 keys, of which a query of the first sees three of the second too. The last rows see
/// nothing.
#[test]
fn ranges_of_keys() -> Outcome {
    for case in cases() {
        let Sides { queries, keys, .. } = case.sides;
        let of = |query: usize| match query / 25 {
            0 => [0, 60, 100, 103],
            4.. => [5, 5, 9, 2],
            document => [60 * document as u32, (60 * document as u32 + 60).min(keys as u32), 0, 0],
        };
        let ranges: Vec<[u32; 4]> = (0..queries).map(of).collect();
        case.check::<bf16>(
            |score, [_, _, query, key]| {
                let [a, b, c, d] = of(query).map(|end| end as usize);
                ((a..b).contains(&key) || (c..d).contains(&key)).then_some(score)
            },
            |stream, attention| attention.ranges(&DeviceBuffer::from_slice(stream, &ranges)?)?.run(stream),
            |stream, backward| backward.ranges(&DeviceBuffer::from_slice(stream, &ranges)?)?.run(stream),
        )?;
    }
    Ok(())
}

#[test]
fn block_sparse_layouts() -> Outcome {
    for (case, block) in cases().zip([16, 128, 32, 64]) {
        let Sides { queries, keys, heads, .. } = case.sides;
        let [rows, columns] = [queries, keys].map(|positions: usize| positions.div_ceil(block));
        let shows = |head: usize, row: usize, column: usize| (head + row + 2 * column) % 3 != 1;
        let layout: Vec<u8> = (0..heads * rows * columns)
            .map(|place| shows(place / (rows * columns), place / columns % rows, place % columns).into())
            .collect();
        case.check::<bf16>(
            |score, [_, head, query, key]| shows(head, query / block, key / block).then_some(score),
            |stream, attention| {
                let layout = DeviceBuffer::from_slice(stream, &layout)?;
                attention.block_sparse(&layout, block as u32)?.run(stream)
            },
            |stream, backward| {
                let layout = DeviceBuffer::from_slice(stream, &layout)?;
                backward.block_sparse(&layout, block as u32)?.run(stream)
            },
        )?;
    }
    Ok(())
}

/// A function of another package.
#[test]
fn functions_of_other_packages() -> Outcome {
    let (slope, block, step) = (0.125, 50, 3);
    for case in cases() {
        case.check::<bf16>(
            |score, [_, _, query, key]| {
                let sees = query / 50 == key / 50 && (query + key) % 3 == 0;
                sees.then(|| score - f64::from(slope) * case.distance(query, key).abs())
            },
            |stream, attention| {
                // SAFETY: it reads no memory.
                unsafe { attention.function(LocalArgs { slope, block, step }.pass()) }.run(stream)
            },
            |stream, backward| {
                // SAFETY: it reads no memory.
                unsafe { backward.function(LocalArgs { slope, block, step }.pass()) }.run(stream)
            },
        )?;
    }
    Ok(())
}

#[test]
fn the_deterministic_mode_repeats() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let case = Case { is_deterministic: true, ..ODD };
    let compute = || {
        case.compute::<bf16>(
            |stream, attention| attention.soft_cap(1.5)?.run(stream),
            |stream, backward| backward.soft_cap(1.5)?.run(stream),
        )
    };
    let first = compute()?.got;
    for run in 1..10 {
        assert!(compute()?.got == first, "other bits in run {run}");
    }
    Ok(())
}

#[test]
fn wrong_arguments() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let refused = |words: &[&str], result: Outcome<()>| {
        let text = result.err().ok_or("no error")?.to_string();
        for word in words {
            assert!(text.contains(word), "no {word:?} in: {text}");
        }
        Outcome::Ok(())
    };
    let plain = |stream: &Stream, attention: Attention<'_>| attention.run(stream);
    let slopes = ODD.compute::<bf16>(plain, |stream, backward| {
        backward.alibi(&DeviceBuffer::from_slice(stream, &[1.0; 3])?)?.run(stream)
    });
    refused(&["the slopes", "2", "3"], slopes.map(drop))?;
    let cap = ODD.compute::<bf16>(plain, |stream, backward| backward.soft_cap(-1.0)?.run(stream));
    refused(&["the cap", "positive finite"], cap.map(drop))?;
    let bias = ODD.compute::<bf16>(plain, |stream, backward| {
        backward.bias(&DeviceBuffer::from_slice(stream, &[1.0; 3])?, [1, 1, 130, 3])?.run(stream)
    });
    refused(&["the bias", "[1, 1, 130, 3]"], bias.map(drop))?;
    // It is compiled for bf16 alone.
    let other = ODD.compute::<f16>(plain, |stream, backward| {
        let function = LocalArgs { slope: 0.5, block: 3, step: 1 }.pass();
        // SAFETY: it reads no memory.
        unsafe { backward.function(function) }.run(stream)
    });
    refused(&["the problem", "no kernel of f16"], other.map(drop))?;
    let wide = Case { sides: Sides { size: 136, ..ODD.sides }, ..ODD };
    let wide = wide.compute::<bf16>(plain, |stream, backward| backward.soft_cap(1.0)?.run(stream));
    refused(&["the problem", "head sizes up to 128"], wide.map(drop))
}
