//! The gradient of a bias against the oracle of `reference`, from exact results of the forward pass and from
//! a kernel's.

use crate::attention_case::{Number, Outcome, device, is_hopper};
use half::{bf16, f16};
use ironwarp::ops::attention::{
    Attention, BiasGradient, Forward, Heads, HeadsMut, Mask, RelativeBiasGradient, relative::buckets,
};
use ironwarp::ops::embedding::embedding_backward;
use ironwarp::ops::index::{Indices, gather};
use ironwarp::tensor::DType;
use ironwarp::{DeviceBuffer, Error, Tensor};
use reference::Accumulated;
use reference::attention::{Band, Bias, Rows, Sides, attention_with, bias_gradient};
use testkit::{Family, compare, input, tolerance};

#[derive(Debug, Clone, Copy)]
struct Case {
    family: Family,
    sides: Sides,
    /// Whether all sequences have one bias, and all heads.
    is_shared: [bool; 2],
    mask: [Option<u32>; 2],
    scale: Option<f32>,
    /// `[batch, heads, rows, head size]`.
    heads_first: bool,
    /// O and L come from the forward pass; else they are the oracle's, rounded.
    by_kernel: bool,
    /// The bias has a number for each distance.
    is_relative: bool,
}

const PLAIN: Case = Case {
    family: Family::Normal,
    sides: Sides { batch: 2, queries: 70, keys: 90, heads: 4, kv_heads: 2, size: 64 },
    is_shared: [true, true],
    mask: [None, None],
    scale: None,
    heads_first: false,
    by_kernel: false,
    is_relative: false,
};

/// Row 64 of a matrix sees nothing, and row 3 every other key.
fn number(place: usize, queries: usize, keys: usize) -> f32 {
    match (place / keys % queries, place % keys % 2) {
        (64, _) | (3, 1) => f32::NEG_INFINITY,
        _ => ((place * 37 % 101) as f32 - 50.0) / 25.0,
    }
}

/// A number for each distance; keys at some of them are not seen.
fn number_of_distance(place: usize) -> f32 {
    if place.is_multiple_of(23) { f32::NEG_INFINITY } else { ((place * 37 % 101) as f32 - 50.0) / 25.0 }
}

/// Sums along the diagonals of matrices, with the scale of their errors as those of any sum of independent
/// ones.
fn along_diagonals(of: Accumulated, [matrices, queries, keys]: [usize; 3]) -> Accumulated {
    let diagonals = if queries * keys == 0 { 0 } else { queries + keys - 1 };
    let sum = |at: usize| {
        let (matrix, diagonal) = (at / diagonals, at % diagonals);
        let places = (0..queries).filter_map(|query| {
            let key = (query + diagonal).checked_sub(queries - 1).filter(|&key| key < keys)?;
            Some((matrix * queries + query) * keys + key)
        });
        let (mut value, mut worst, mut squares) = (0.0, 0.0, 0.0);
        for place in places {
            let magnitude = of.magnitude[place];
            (value, worst) = (value + of.value[place], worst + magnitude);
            squares += magnitude * magnitude;
        }
        (value, f64::min(worst, 4.0 * f64::sqrt(squares)))
    };
    let (value, magnitude) = (0..matrices * diagonals).map(sum).unzip();
    Accumulated { value, magnitude }
}

/// Where rows lie.
fn strides([rows, heads, size]: [usize; 3], heads_first: bool) -> [usize; 3] {
    if heads_first {
        [rows * heads * size, size, rows * size]
    } else {
        [rows * heads * size, heads * size, size]
    }
}

impl Case {
    fn matrices(&self) -> [usize; 2] {
        let of = |is_shared: bool, all: usize| if is_shared { 1 } else { all };
        [of(self.is_shared[0], self.sides.batch), of(self.is_shared[1], self.sides.heads)]
    }

    /// The gradient, twice, is the oracle's.
    fn check<T: Number>(&self) -> Outcome {
        let (device, Sides { batch, queries, keys, heads, kv_heads, size }) = (device()?, self.sides);
        let stream = device.stream()?;
        let lens = [batch * queries * heads * size, batch * keys * kv_heads * size];
        let [q, k, v, result] = [(1, 0), (2, 1), (3, 1), (4, 0)]
            .map(|(seed, side): (u64, usize)| input::<T>(self.family, seed, lens[side]));
        let of = |side: usize| {
            let sides = if side == 0 { [queries, heads, size] } else { [keys, kv_heads, size] };
            strides(sides, self.heads_first)
        };
        let rows = |data, side| Rows { data, strides: of(side) };
        let operands = [rows(&q[..], 0), rows(&k, 1), rows(&v, 1)];
        let [left, right] = self.mask.map(|bound| bound.map(i64::from));
        let band = Band { left, right, top_left: false };
        let scale = f64::from(self.scale.unwrap_or(1.0 / (size as f32).sqrt()));
        let shared = self.matrices();
        let of_head = if queries * keys == 0 { 0 } else { queries + keys - 1 };
        let data: Vec<f32> = (0..shared[0] * shared[1] * queries * keys)
            .map(|place| match self.is_relative {
                false => number(place, queries, keys),
                true => {
                    let (matrix, query, key) =
                        (place / (queries * keys), place / keys % queries, place % keys);
                    number_of_distance(matrix * of_head + key + queries - 1 - query)
                }
            })
            .collect();
        let bias = Bias { data: &data, shared };
        let exact =
            attention_with(self.sides, operands, band, scale, |score, at| bias.add(score, at, self.sides));
        let want = bias_gradient(self.sides, operands, rows(&result, 0), (band, scale), bias);
        let matrices = shared[0] * shared[1];
        let (data, want) = match self.is_relative {
            false => (data, want),
            true => (
                (0..matrices * of_head).map(number_of_distance).collect(),
                along_diagonals(want, [matrices, queries, keys]),
            ),
        };

        let upload = |data: &[T]| DeviceBuffer::from_slice(&stream, data);
        let (dq, dk, dv, dresult) = (upload(&q)?, upload(&k)?, upload(&v)?, upload(&result)?);
        let dbias = DeviceBuffer::from_slice(&stream, &data)?;
        // The oracle's rows follow each other, whatever the operands' do.
        let mut values = vec![T::from_f64(0.0); lens[0]];
        for (at, value) in exact.value.iter().enumerate() {
            let index = [at / (queries * heads * size), at / (heads * size) % queries, at / size % heads];
            let place: usize = index.iter().zip(of(0)).map(|(index, stride)| index * stride).sum();
            values[place + at % size] = T::from_f64(*value);
        }
        let logarithms: Vec<f32> = exact.log_sum_exp.iter().map(|&value| value as f32).collect();
        let mut output = upload(&values)?;
        let mut sums = DeviceBuffer::from_slice(&stream, &logarithms)?;
        let shape = |side: usize| {
            if side == 0 { [batch, queries, heads, size] } else { [batch, keys, kv_heads, size] }
        };
        let mask = Mask::window(self.mask[0], self.mask[1]);
        let heads_of = |buffer, side| Heads::new::<T>(buffer, shape(side)).strides(of(side));
        let sides = [shared[0], shared[1], queries, keys];
        let relative_sides = [shared[0], shared[1], of_head];
        if self.by_kernel {
            let to = HeadsMut::new(&mut output, shape(0)).strides(of(0));
            let attention =
                Attention::new(heads_of(&dq, 0), heads_of(&dk, 1), heads_of(&dv, 1), to).mask(mask);
            let attention = self.scale.into_iter().fold(attention, Attention::scale);
            let attention = attention.log_sum_exp(&mut sums);
            match self.is_relative {
                false => attention.bias(&dbias, sides)?.run(&stream)?,
                true => attention.relative_bias(&dbias, relative_sides)?.run(&stream)?,
            }
        }
        let forward = Forward {
            queries: heads_of(&dq, 0),
            keys: heads_of(&dk, 1),
            values: heads_of(&dv, 1),
            output: heads_of(&output, 0),
            log_sum_exp: (&sums).into(),
        };
        let run = || -> Outcome<Vec<f32>> {
            let mut out = DeviceBuffer::from_slice(&stream, &vec![f32::NAN; data.len()])?;
            let gradient = heads_of(&dresult, 0);
            if self.is_relative {
                let call = RelativeBiasGradient::new(forward, gradient, &dbias, relative_sides, &mut out);
                let call = self.scale.into_iter().fold(call.mask(mask), RelativeBiasGradient::scale);
                call.run(&stream)?;
            } else {
                let call = BiasGradient::new(forward, gradient, &dbias, sides, &mut out).mask(mask);
                self.scale.into_iter().fold(call, BiasGradient::scale).run(&stream)?;
            }
            Ok(out.to_vec(&stream)?)
        };
        let got = run()?;
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(bits(&got) == bits(&run()?), "other bits in another run of {self:?}");
        let row = match T::DTYPE {
            DType::BF16 => tolerance::ATTENTION_BIAS_GRADIENT_BF16,
            _ => tolerance::ATTENTION_BIAS_GRADIENT_F16,
        };
        let shape = if self.is_relative { &relative_sides[..] } else { &sides };
        compare::rounded(&format!("{self:?}"), &got, &want.value, &want.magnitude, shape, row.tolerance())?;
        Ok(())
    }
}

#[test]
fn sums_over_what_shares_a_number() -> Outcome {
    for is_shared in [[true, true], [true, false], [false, true], [false, false]] {
        Case { is_shared, ..PLAIN }.check::<bf16>()?;
    }
    let sides = Sides { heads: 3, kv_heads: 1, ..PLAIN.sides };
    Case { sides, heads_first: true, ..PLAIN }.check::<f16>()
}

#[test]
fn head_sizes() -> Outcome {
    for size in [8, 40, 96, 128, 192, 256] {
        Case { sides: Sides { batch: 1, heads: 2, size, ..PLAIN.sides }, ..PLAIN }.check::<bf16>()?;
    }
    Ok(())
}

#[test]
fn masks() -> Outcome {
    // Queries that see no key, tiles of keys that no query sees, and windows.
    let square = Sides { queries: 150, keys: 150, ..PLAIN.sides };
    for (sides, mask) in [
        (square, [None, Some(0)]),
        (square, [Some(30), Some(0)]),
        (square, [Some(3), Some(40)]),
        (Sides { queries: 150, keys: 70, ..square }, [None, Some(0)]),
        (Sides { queries: 20, keys: 300, ..square }, [Some(10), Some(0)]),
    ] {
        let sides = Sides { batch: 1, heads: 2, ..sides };
        Case { sides, mask, ..PLAIN }.check::<bf16>()?;
    }
    Ok(())
}

#[test]
fn lengths() -> Outcome {
    let one = Sides { batch: 1, heads: 1, kv_heads: 1, ..PLAIN.sides };
    let lengths =
        [[0, 5], [5, 0], [1, 1], [7, 1], [1, 7], [63, 65], [64, 64], [65, 127], [128, 129], [7, 1000]];
    for [queries, keys] in lengths {
        Case { sides: Sides { queries, keys, ..one }, ..PLAIN }.check::<bf16>()?;
    }
    let none = Sides { batch: 0, queries: 5, keys: 9, ..one };
    Case { sides: none, ..PLAIN }.check::<bf16>()
}

#[test]
fn large_and_small_scores() -> Outcome {
    for scale in [1.0 / 1024.0, 2.0] {
        Case { scale: Some(scale), ..PLAIN }.check::<bf16>()?;
    }
    for family in [Family::Cancelling, Family::Subnormal, Family::SmallIntegers] {
        Case { family, ..PLAIN }.check::<f16>()?;
    }
    Ok(())
}

/// From the output and the log-sum-exps of a kernel.
#[test]
fn behind_the_forward_pass() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let case = Case { by_kernel: true, mask: [None, Some(0)], ..PLAIN };
    case.check::<bf16>()?;
    Case { is_shared: [false, false], sides: Sides { size: 136, ..PLAIN.sides }, ..case }.check::<f16>()
}

/// Sums over all that shares a number for a distance; as many diagonals as a block has, one more, and less.
#[test]
fn gradients_of_distances() -> Outcome {
    let plain = Case { is_relative: true, ..PLAIN };
    for is_shared in [[true, true], [true, false], [false, true], [false, false]] {
        Case { is_shared, ..plain }.check::<bf16>()?;
    }
    let one = Sides { batch: 1, heads: 1, kv_heads: 1, size: 40, ..PLAIN.sides };
    let lengths = [
        [0, 5],
        [5, 0],
        [1, 1],
        [7, 1],
        [1, 7],
        [64, 65],
        [65, 65],
        [1, 129],
        [129, 1],
        [130, 263],
        [263, 5],
    ];
    for [queries, keys] in lengths {
        Case { sides: Sides { queries, keys, ..one }, ..plain }.check::<f16>()?;
    }
    let window = Case { mask: [Some(30), Some(0)], scale: Some(0.5), heads_first: true, ..plain };
    window.check::<bf16>()?;
    Case { sides: Sides { batch: 0, ..one }, ..plain }.check::<bf16>()?;
    if is_hopper()? { Case { by_kernel: true, ..window }.check::<f16>() } else { Ok(()) }
}

/// Numbers of T5's buckets to a table, and its gradient back to them, as the book says.
#[test]
fn gradients_of_buckets() -> Outcome {
    let stream = device()?.stream()?;
    let (rows, heads, count, size) = (40, 2, 8, 16);
    let (sides, distances) = ([1, rows, heads, size], 2 * rows - 1);
    let buckets = buckets(rows, rows, count, 20, true)?;
    let indices = Indices::from_slice(&stream, &buckets, count)?;
    let weights: Vec<f32> = (0..heads * count).map(|place| place as f32 / 8.0).collect();
    let of_buckets = Tensor::from_slice(&stream, &[heads, count], &weights)?;
    let table = gather(&stream, &of_buckets, 1, &indices)?;
    let want = (0..heads * distances).map(|at| weights[at / distances * count + buckets[at % distances]]);
    assert_eq!(table.to_vec::<f32>(&stream)?, want.collect::<Vec<_>>());

    let x = DeviceBuffer::from_slice(&stream, &input::<bf16>(Family::Normal, 1, rows * heads * size))?;
    let sums = DeviceBuffer::from_slice(&stream, &vec![6.0f32; heads * rows])?;
    let of_x = Heads::new(&x, sides);
    let forward =
        Forward { queries: of_x, keys: of_x, values: of_x, output: of_x, log_sum_exp: (&sums).into() };
    let mut out = Tensor::zeros(&stream, &[heads, distances], DType::F32)?;
    let (data, sides) = (table.as_view::<f32>()?, [1, heads, distances]);
    let to = out.view_mut()?.into_view::<f32>()?;
    RelativeBiasGradient::new(forward, of_x, data, sides, to).run(&stream)?;
    let by_buckets = embedding_backward(&stream, &out.t()?, &indices, count)?.to_vec::<f32>(&stream)?;
    let of_table = out.to_vec::<f32>(&stream)?;
    for (at, got) in by_buckets.into_iter().enumerate() {
        let (bucket, head) = (at / heads, at % heads);
        let of_bucket = (0..distances).filter(|&distance| buckets[distance] == bucket);
        let terms = of_bucket.map(|distance| f64::from(of_table[head * distances + distance]));
        let (sum, most) = terms.fold((0.0, 0.0), |(sum, most), term| (sum + term, most + term.abs()));
        // No key at its query's place is behind it: that side's first bucket is empty.
        assert_eq!(most == 0.0, bucket == count / 2, "{bucket}, {head}");
        assert!((f64::from(got) - sum).abs() <= 1e-6 * most, "{bucket}, {head}: {got}, {sum}");
    }
    Ok(())
}

/// NaN stays in its row of its head.
#[test]
fn no_numbers_stay_in_their_rows() -> Outcome {
    let stream = device()?.stream()?;
    let (rows, size) = (70, 64);
    let sides = [1, rows, 2, size];
    let mut q = input::<bf16>(Family::Normal, 1, rows * 2 * size);
    // Query 9 of head 1.
    q[(9 * 2 + 1) * size + 5] = bf16::NAN;
    let upload = |data: &[bf16]| DeviceBuffer::from_slice(&stream, data);
    let (q, x) = (upload(&q)?, upload(&input::<bf16>(Family::Normal, 2, rows * 2 * size))?);
    let (bias, sums) = (
        DeviceBuffer::<f32>::zeroed(&stream, 2 * rows * rows)?,
        DeviceBuffer::from_slice(&stream, &vec![4.0f32; 2 * rows])?,
    );
    let mut out = DeviceBuffer::<f32>::zeroed(&stream, 2 * rows * rows)?;
    let of_x = Heads::new(&x, sides);
    let forward = Forward {
        queries: Heads::new(&q, sides),
        keys: of_x,
        values: of_x,
        output: of_x,
        log_sum_exp: (&sums).into(),
    };
    BiasGradient::new(forward, of_x, &bias, [1, 2, rows, rows], &mut out).run(&stream)?;
    for (place, value) in out.to_vec(&stream)?.into_iter().enumerate() {
        assert_eq!(value.is_nan(), place / rows == rows + 9, "{place}");
    }
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    let stream = device()?.stream()?;
    let sides = [2, 7, 4, 16];
    let x = DeviceBuffer::<bf16>::zeroed(&stream, sides.iter().product())?;
    let half = DeviceBuffer::<f16>::zeroed(&stream, sides.iter().product())?;
    let sums = DeviceBuffer::<f32>::zeroed(&stream, 2 * 7 * 4)?;
    let bias = DeviceBuffer::<f32>::zeroed(&stream, 7 * 7)?;
    let of_x = Heads::new(&x, sides);
    let made = Forward { queries: of_x, keys: of_x, values: of_x, output: of_x, log_sum_exp: (&sums).into() };
    let refused = |wanted: &str, forward, gradient, bias_sides, len: usize, scale: f32| -> Outcome {
        let mut out = DeviceBuffer::<f32>::zeroed(&stream, len)?;
        let call = BiasGradient::new(forward, gradient, &bias, bias_sides, &mut out).scale(scale);
        let Err(error) = call.run(&stream) else { panic!("{wanted}") };
        let is_typed = matches!(&error, Error::InvalidArgument { .. } | Error::Length { .. });
        assert!(is_typed && error.to_string().contains(wanted), "{wanted}: {error}");
        Ok(())
    };
    let refused_table = |wanted: &str, sides: [usize; 3], len: usize, scale: f32| -> Outcome {
        let mut out = DeviceBuffer::<f32>::zeroed(&stream, len)?;
        let table = bias.slice(..13)?;
        let call = RelativeBiasGradient::new(made, of_x, table, sides, &mut out).scale(scale);
        let Err(error) = call.run(&stream) else { panic!("{wanted}") };
        let is_typed = matches!(&error, Error::InvalidArgument { .. } | Error::Length { .. });
        assert!(is_typed && error.to_string().contains(wanted), "{wanted}: {error}");
        Ok(())
    };
    refused_table("[2 or 1, 4 or 1, 13]", [1, 1, 14], 13, 1.0)?;
    refused_table("the bias", [1, 4, 13], 13, 1.0)?;
    refused_table("the gradient of the bias", [1, 1, 13], 14, 1.0)?;
    refused_table("the scale", [1, 1, 13], 13, f32::NAN)?;
    let one = [1, 1, 7, 7];
    refused("the bias", made, of_x, [1, 1, 7, 8], 49, 1.0)?;
    refused("the gradient of the bias", made, of_x, one, 48, 1.0)?;
    refused("the scale", made, of_x, one, 49, -1.0)?;
    refused("its gradient", made, Heads::new(&half, sides), one, 49, 1.0)?;
    let (turned, short) = (Heads::new(&x, [2, 4, 7, 16]), sums.slice(..3)?);
    refused("the output", Forward { output: turned, ..made }, of_x, one, 49, 1.0)?;
    refused("the log-sum-exps", Forward { log_sum_exp: short, ..made }, of_x, one, 49, 1.0)
}
