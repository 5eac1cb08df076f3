//! Values and results of another head size than queries and keys, against the oracle of `reference`.

use crate::attention_case::{Case, Lengths, Lie, Outcome, PLAIN, about, device, filled_up, is_hopper};
use crate::ops_attention_backward::{Case as BackwardCase, PLAIN as BACKWARD, forward};
use half::{bf16, f16};
use ironwarp::ops::attention::{
    Attention, Backward, BiasGradient, Config, Decode, Forward, Gradients, Heads, HeadsMut, Mask, Options,
    Packed, Scales, attention,
};
use ironwarp::tensor::DType;
use ironwarp::{DeviceBuffer, Stream, Tensor};
use num::E4M3;
use reference::attention::Sides;
use testkit::{Family, bitwise_equal, input};

/// Those whose values are shorter than their keys.
fn shorter(config: &Config) -> bool {
    config.name().ends_with("_192_128")
}

/// Those of one size.
fn of_one_size(config: &Config) -> bool {
    config.head_size() == config.value_size()
}

const MLA: Case = Case { size: 192, value_size: Some(128), ..PLAIN };
/// Of queries and keys, and of values: those of the kernel, others that it fills up with zeros, and longer
/// values.
const SIZES: [[usize; 2]; 8] =
    [[192, 128], [192, 64], [128, 64], [64, 128], [136, 8], [8, 136], [200, 72], [256, 248]];

fn cases() -> impl Iterator<Item = Case> {
    SIZES.into_iter().map(|[size, values]| Case { size, value_size: Some(values), ..PLAIN })
}

#[test]
fn every_kernel_that_holds_both() -> Outcome {
    for case in cases() {
        Case { queries: 70, keys: 90, heads: 2, kv_heads: 2, ..case }.check::<bf16>()?;
        Case { queries: 150, keys: 150, right: Some(0), ..case }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn several_blocks_of_keys_and_tiles() -> Outcome {
    let case = Case { queries: 260, keys: 530, batch: 2, kernels: shorter, ..MLA };
    case.check::<bf16>()?;
    case.check::<f16>()?;
    Case { right: Some(0), ..case }.check::<bf16>()?;
    Case { left: Some(150), right: Some(30), top_left: true, ..case }.check::<f16>()
}

#[test]
fn heads_share_keys_in_groups() -> Outcome {
    for (heads, kv_heads) in [(4, 2), (3, 1)] {
        let case = Case { queries: 9, keys: 30, batch: 2, heads, kv_heads, right: Some(0), ..MLA };
        case.check::<bf16>()?;
        Case { size: 40, value_size: Some(72), ..case }.check::<f16>()?;
    }
    Ok(())
}

/// Each operand in its own way, with what is no number in the gaps.
#[test]
fn operands_lie_in_any_way() -> Outcome {
    for lie in [Lie::Heads, Lie::OfThree, Lie::Gaps] {
        let case = Case { queries: 20, keys: 33, batch: 2, heads: 2, kv_heads: 2, ..MLA };
        Case { lies: [lie; 4], ..case }.check::<bf16>()?;
        Case { lies: [Lie::Rows, lie, Lie::Heads, lie], size: 72, value_size: Some(24), ..case }
            .check::<f16>()?;
    }
    Ok(())
}

const LENGTHS: Lengths = &[[70, 70], [1, 130], [0, 5], [140, 140], [3, 0], [65, 9]];

/// The last rows of a sequence are stored one by one: no column beyond those of the values.
#[test]
fn packed_sequences() -> Outcome {
    for case in cases() {
        let case = Case { packed: Some(LENGTHS), heads: 2, kv_heads: 1, ..case };
        case.check::<bf16>()?;
        Case { right: Some(0), lies: [Lie::Gaps; 4], ..case }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn queries_that_see_no_key_and_nothing_at_all() -> Outcome {
    for case in cases() {
        Case { queries: 270, keys: 20, right: Some(0), ..case }.check::<bf16>()?;
        Case { queries: 7, keys: 0, heads: 2, lies: [Lie::Gaps; 4], ..case }.check::<f16>()?;
        for (batch, queries, heads) in [(0, 5, 2), (2, 0, 2), (2, 5, 0)] {
            Case { batch, queries, heads, kv_heads: heads, keys: 5, ..case }.check::<bf16>()?;
        }
    }
    Ok(())
}

/// More tiles than multiprocessors: results leave while the next queries wait for their place.
#[test]
fn more_tiles_than_multiprocessors() -> Outcome {
    let batch = device()?.properties().sm_count as usize;
    for (right, heads) in [(None, 5), (Some(0), 3)] {
        let case = Case { batch, heads, queries: 10, keys: 140, right, kernels: shorter, ..MLA };
        case.check::<bf16>()?;
    }
    Ok(())
}

#[test]
fn hostile_numbers() -> Outcome {
    for family in [Family::Cancelling, Family::Subnormal, Family::SmallIntegers] {
        let case = Case { family, queries: 130, keys: 150, ..MLA };
        Case { right: Some(0), ..case }.check::<bf16>()?;
        Case { size: 72, value_size: Some(96), ..case }.check::<bf16>()?;
    }
    Case { family: Family::Cancelling, queries: 130, keys: 150, ..MLA }.check::<f16>()
}

#[test]
fn bits_repeat() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { queries: 260, keys: 400, heads: 3, right: Some(0), ..MLA };
    let setup = crate::attention_case::Setup::<bf16>::new(&case, &stream)?;
    let mut first: Option<Vec<u16>> = None;
    for _ in 0..3 {
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        setup.attention(&mut out, &mut logarithms)?.run(&stream)?;
        let bits: Vec<u16> = out.to_vec(&stream)?.into_iter().map(bf16::to_bits).collect();
        assert!(*first.get_or_insert_with(|| bits.clone()) == bits, "other bits");
    }
    Ok(())
}

/// Sinks take their weight from values of any size.
#[test]
fn sinks() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { queries: 70, keys: 200, heads: 2, right: Some(0), ..MLA };
    let setup = crate::attention_case::Setup::<bf16>::new(&case, &stream)?;
    let scores = [0.5f32, -1.0];
    let sides = Sides { batch: 1, queries: 70, keys: 200, heads: 2, kv_heads: 1, size: 128 };
    let of_sinks = |(first, rows, want): (usize, usize, reference::attention::Attended)| {
        (first, rows, want.with_sinks(sides, &scores.map(f64::from)))
    };
    let want: Vec<_> = setup.oracle().into_iter().map(of_sinks).collect();
    let sinks = DeviceBuffer::from_slice(&stream, &scores)?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    setup.attention(&mut out, &mut logarithms)?.sinks(&sinks).run(&stream)?;
    setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, "sinks")
}

/// Kernels with a score function take such values too.
#[test]
fn score_functions() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    for [size, values] in [[192, 128], [128, 64], [64, 128]] {
        let of_two_sizes = Case { size, value_size: Some(values), ..PLAIN };
        let case = Case { queries: 130, keys: 200, heads: 2, right: Some(0), ..of_two_sizes };
        let setup = crate::attention_case::Setup::<bf16>::new(&case, &stream)?;
        let want = setup.oracle_with(|score, _| Some(2.0 * (score / 2.0).tanh()));
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        setup.attention(&mut out, &mut logarithms)?.soft_cap(2.0)?.run(&stream)?;
        setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, "soft cap")?;
    }
    Ok(())
}

/// The kernel of both sizes is taken before longer rows, and the choice says so.
#[test]
fn the_choice() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = crate::attention_case::Setup::<f16>::new(&Case { queries: 300, keys: 300, ..MLA }, &stream)?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    let choice = setup.attention(&mut out, &mut logarithms)?.explain(&stream)?;
    assert_eq!((choice.config.head_size(), choice.config.value_size()), (192, 128));
    let text = choice.to_string();
    for part in [
        "f16 [1, 300, 1, 192] on [1, 300, 1, 192], values of 128",
        "by attention_f16_192_128",
        "its rows are as long",
        "can: attention_f16_256",
        "cannot: attention_f16_128: has shorter rows",
        "cannot: attention_mma_f16_256: is for values of the queries' head size",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(choice.candidates.iter().filter(|of| of_one_size(&of.config)).count() >= 2, "{text}");
    Ok(())
}

/// Rows in e4m3, which may be packed sequences of 20 and 130.
const CODED_ROWS: usize = 150;

/// Causal attention in e4m3 of a head with rows of `size` queries and keys, on the first `columns` of rows of
/// `all` values: the result's bits, which keep those of a NaN in the other columns.
fn run_e4m3(
    stream: &Stream,
    codes: [&[E4M3]; 3],
    [size, all, columns]: [usize; 3],
    scale: f32,
    is_packed: bool,
) -> Outcome<Vec<u16>> {
    let upload = |at: usize| DeviceBuffer::from_slice(stream, codes[at]);
    let (q, k, v) = (upload(0)?, upload(1)?, upload(2)?);
    let first = DeviceBuffer::from_slice(stream, &[0, 20, CODED_ROWS as i32])?;
    let factors = DeviceBuffer::from_slice(stream, &[1.0f32, 0.5])?;
    let factors = factors.slice(..if is_packed { 2 } else { 1 })?;
    let (sides, of_values) = ([1, CODED_ROWS, 1, size], [1, CODED_ROWS, 1, columns]);
    let strides = [CODED_ROWS * all, all, all];
    let mut out = DeviceBuffer::from_slice(stream, &vec![bf16::NAN; CODED_ROWS * all])?;
    let values = Heads::new::<E4M3>(&v, of_values).strides(strides);
    let result = HeadsMut::new::<bf16>(&mut out, of_values).strides(strides);
    let attention =
        Attention::new(Heads::new::<E4M3>(&q, sides), Heads::new::<E4M3>(&k, sides), values, result)
            .mask(Mask::CAUSAL)
            .scale(scale);
    let attention =
        if is_packed { attention.packed(Packed::new(&first, &first, 130, 130)) } else { attention };
    let scales = Scales { queries: factors, keys: factors, values: factors };
    attention.quantized(scales).run(stream)?;
    Ok(out.to_vec(stream)?.into_iter().map(bf16::to_bits).collect())
}

/// In e4m3 the first columns of values give the first columns of the result, and queries and keys that zeros
/// fill up to the values' size the same result, bit for bit.
#[test]
fn columns_of_e4m3() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let sizes = [[128, 128, 48], [128, 128, 40], [64, 256, 208]];
    for ([size, all, some], is_packed) in sizes.into_iter().flat_map(|x| [(x, false), (x, true)]) {
        let codes = |seed, columns: usize| input::<E4M3>(Family::Normal, seed, CODED_ROWS * columns);
        let (q, k, v) = (codes(1, size), codes(2, size), codes(3, all));
        let scale = 1.0 / (size as f32).sqrt();
        let run = |columns| run_e4m3(&stream, [&q, &k, &v], [size, all, columns], scale, is_packed);
        let (whole, part) = (run(all)?, run(some)?);
        for (whole, part) in whole.chunks(all).zip(part.chunks(all)) {
            assert_eq!(whole[..some], part[..some], "{size}, {some} of {all}");
            assert!(
                part[some..].iter().all(|&bits| bf16::from_bits(bits).is_nan()),
                "wrote beyond the columns"
            );
        }
        let [q, k] = [&q, &k].map(|codes| filled_up(codes, size, all));
        assert!(run_e4m3(&stream, [&q, &k, &v], [all; 3], scale, is_packed)? == whole, "{size} filled up");
    }
    Ok(())
}

/// Rows of values that are no multiple of 16 bytes long need gaps between them.
#[test]
fn rows_of_e4m3_begin_at_boundaries() -> Outcome {
    let stream = device()?.stream()?;
    let (q, v) = (DeviceBuffer::<E4M3>::zeroed(&stream, 5 * 64)?, DeviceBuffer::zeroed(&stream, 5 * 40)?);
    let mut out = DeviceBuffer::zeroed(&stream, 5 * 40)?;
    let [of_keys, of_values] = [64, 40].map(|size| [1, 5, 1, size]);
    let (keys, values) = (Heads::new::<E4M3>(&q, of_keys), Heads::new::<E4M3>(&v, of_values));
    let factor = DeviceBuffer::from_slice(&stream, &[1.0f32])?;
    let scales = Scales { queries: (&factor).into(), keys: (&factor).into(), values: (&factor).into() };
    let attention = Attention::new(keys, keys, values, HeadsMut::new::<bf16>(&mut out, of_values));
    let error = attention.quantized(scales).run(&stream).expect_err("values without gaps");
    assert_eq!(about(&error), "the values");
    assert!(error.to_string().contains("leave gaps"), "{error}");
    Ok(())
}

/// Tensors: the result has the values' head size.
#[test]
fn tensors() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.current_stream()?;
    let tensor = |seed, shape: [usize; 4]| {
        let len = shape.iter().product();
        Tensor::from_slice(&stream, &shape, &input::<bf16>(Family::Normal, seed, len))
    };
    let (q, k, v) = (tensor(1, [2, 21, 4, 48])?, tensor(2, [2, 21, 2, 48])?, tensor(3, [2, 21, 2, 24])?);
    let want = attention(&stream, &q, &k, &v, Options { mask: Mask::CAUSAL, scale: None })?;
    assert_eq!((want.shape().sides(), want.dtype()), (&[2, 21, 4, 24][..], DType::BF16));
    let by_heads = |x: &Tensor| x.transpose(1, 2);
    let got = by_heads(&q)?.scaled_dot_product_attention(&by_heads(&k)?, &by_heads(&v)?, true, None)?;
    assert_eq!(got.shape().sides(), [2, 4, 21, 24]);
    let (got, want) = (by_heads(&got)?.to_vec::<bf16>(&stream)?, want.to_vec::<bf16>(&stream)?);
    bitwise_equal("method", &got, &want)?;
    // Columns of zeros give columns of zeros, and change nothing else.
    let zeros = Tensor::zeros(&stream, &[2, 21, 2, 24], DType::BF16)?;
    let filled = Tensor::cat(&[&v, &zeros], 3)?;
    let both = attention(&stream, &q, &k, &filled, Options { mask: Mask::CAUSAL, scale: None })?;
    bitwise_equal("filled up", &both.narrow(3, 0, 24)?.to_vec::<bf16>(&stream)?, &want).map_err(Into::into)
}

fn gradients(stream: &Stream, backward: Backward<'_>) -> ironwarp::Result<()> {
    backward.run(stream)
}

fn differentiable() -> impl Iterator<Item = BackwardCase> {
    [[192, 128], [128, 64], [64, 128], [136, 8], [40, 72], [200, 72]].into_iter().map(|[size, values]| {
        let sides = Sides { size, ..BACKWARD.sides };
        BackwardCase { sides, value_size: Some(values), ..BACKWARD }
    })
}

/// The candidate for rows of two lengths.
fn of_two_lengths(stream: &Stream, backward: Backward<'_>) -> ironwarp::Result<()> {
    let choice = backward.explain(stream)?;
    let of = choice.candidates.iter().find(|of| shorter(&of.config)).expect("a kernel of both sizes");
    backward.run_with(stream, &of.config)
}

/// Rows as long as the kernel's and shorter; lengths that end within tiles and between them.
#[test]
fn gradients_by_the_kernel_of_both_sizes() -> Outcome {
    let case = |sides: Sides, values: usize| BackwardCase { sides, value_size: Some(values), ..BACKWARD };
    let sides = Sides { queries: 200, keys: 300, kv_heads: 1, size: 192, ..BACKWARD.sides };
    for [size, values] in [[192, 128], [160, 120], [136, 64], [192, 8]] {
        case(Sides { size, ..sides }, values).check_with::<bf16>(
            |score, _| Some(score),
            forward,
            of_two_lengths,
        )?;
    }
    for [left, right] in [[None, Some(0)], [Some(60), Some(0)], [Some(5), Some(140)]] {
        for is_deterministic in [false, true] {
            let case = BackwardCase { left, right, is_deterministic, ..case(sides, 128) };
            case.check_with::<f16>(|score, _| Some(score), forward, of_two_lengths)?;
        }
    }
    for (queries, keys) in [(1, 1), (64, 64), (63, 65), (128, 128), (129, 127), (1, 300), (300, 1)] {
        let sides = Sides { batch: 2, queries, keys, heads: 3, kv_heads: 3, ..sides };
        case(sides, 128).check_with::<bf16>(|score, _| Some(score), forward, of_two_lengths)?;
    }
    for family in [Family::Cancelling, Family::Subnormal, Family::SmallIntegers] {
        let case = BackwardCase { family, right: Some(0), scale: Some(0.1), ..case(sides, 128) };
        case.check_with::<bf16>(|score, _| Some(score), forward, of_two_lengths)?;
    }
    Ok(())
}

/// Gradients take the kernel of both sizes before longer rows, and the choice says so.
#[test]
fn the_choice_for_gradients() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let says = |[size, values]: [usize; 2], parts: &[&str]| {
        let sides = Sides { size, ..BACKWARD.sides };
        let case = BackwardCase { sides, value_size: Some(values), ..BACKWARD };
        let explained = |stream: &Stream, backward: Backward<'_>| {
            let text = backward.explain(stream)?.to_string();
            parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
            backward.run(stream)
        };
        case.compute::<bf16>(1, forward, explained).map(drop)
    };
    says(
        [192, 128],
        &[
            "by attention_backward_bf16_192_128, 64 queries by 128 keys: its rows are as long",
            "can: attention_backward_bf16_256",
            "cannot: attention_backward_bf16_128: has shorter rows",
            "cannot: attention_backward_f16_192_128: is for another element type",
        ],
    )?;
    says(
        [128, 128],
        &["cannot: attention_backward_bf16_192_128: is for values of a smaller head size than the queries'"],
    )
}

/// By the kernel of each table that is chosen, and by that of whole heads where it can.
#[test]
fn gradients_of_all_operands() -> Outcome {
    for case in differentiable() {
        case.check_with::<bf16>(|score, _| Some(score), forward, gradients)?;
        let sides = Sides { queries: 150, keys: 150, kv_heads: 1, ..case.sides };
        let case = BackwardCase { sides, right: Some(0), ..case };
        case.check_with::<f16>(|score, _| Some(score), forward, gradients)?;
        let case = BackwardCase { is_deterministic: true, ..case };
        case.check_with::<bf16>(|score, _| Some(score), forward, gradients)?;
        case.check_with::<bf16>(|score, _| Some(score), forward, whole_heads)?;
    }
    Ok(())
}

/// The kernel of whole heads, or the one that is chosen if there is none for rows so long.
fn whole_heads(stream: &Stream, backward: Backward<'_>) -> ironwarp::Result<()> {
    let choice = backward.explain(stream)?;
    let of_whole_heads = choice.candidates.iter().find(|of| of.config.name().contains("_whole_"));
    backward.run_with(stream, &of_whole_heads.map_or(choice.config, |of| of.config))
}

#[test]
fn gradients_of_few_and_none() -> Outcome {
    for (queries, keys) in [(1, 1), (1, 130), (65, 129), (0, 5), (5, 0)] {
        for [size, values] in [[192, 128], [64, 128]] {
            let sides = Sides { queries, keys, heads: 1, kv_heads: 1, size, ..BACKWARD.sides };
            let case = BackwardCase { sides, value_size: Some(values), ..BACKWARD };
            case.check_with::<bf16>(|score, _| Some(score), forward, gradients)?;
        }
    }
    Ok(())
}

/// Whole tiles of them, whose gradients are zeros.
#[test]
fn gradients_of_queries_that_see_no_key() -> Outcome {
    for [size, values] in [[64, 128], [128, 64]] {
        let sides = Sides { queries: 270, keys: 20, size, ..BACKWARD.sides };
        let case = BackwardCase { sides, value_size: Some(values), right: Some(0), ..BACKWARD };
        case.check_with::<bf16>(|score, _| Some(score), forward, whole_heads)?;
        case.check_with::<f16>(|score, _| Some(score), forward, gradients)?;
    }
    Ok(())
}

#[test]
fn gradients_with_a_score_function_and_sinks() -> Outcome {
    for [size, values] in [[192, 128], [128, 64], [64, 128]] {
        let case = BackwardCase {
            sides: Sides { queries: 130, keys: 150, size, ..BACKWARD.sides },
            value_size: Some(values),
            right: Some(0),
            ..BACKWARD
        };
        case.check_with::<bf16>(
            |score, _| Some(2.0 * (score / 2.0).tanh()),
            |stream, attention| attention.soft_cap(2.0)?.run(stream),
            |stream, backward| backward.soft_cap(2.0)?.run(stream),
        )?;
    }
    Ok(())
}

#[test]
fn gradients_repeat() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let sides = Sides { queries: 100, keys: 300, size: 192, ..BACKWARD.sides };
    let case = BackwardCase { sides, value_size: Some(128), is_deterministic: true, ..BACKWARD };
    case.compute::<bf16>(4, forward, gradients)?;
    // A small difference of its parts.
    let sides = Sides { queries: 20, keys: 400, heads: 1, kv_heads: 1, ..sides };
    BackwardCase { sides, same_keys: true, ..case }.compute::<bf16>(10, forward, gradients).map(drop)
}

/// Memory of operands with 2 heads of 5 rows, of 24 elements and of 16.
struct Memory {
    stream: Stream,
    x: DeviceBuffer<bf16>,
    floats: DeviceBuffer<f32>,
    first: DeviceBuffer<i32>,
}

const LONG: [usize; 4] = [1, 5, 2, 24];
const SHORT: [usize; 4] = [1, 5, 2, 16];

impl Memory {
    fn new() -> ironwarp::Result<Self> {
        let stream = device()?.stream()?;
        let (x, floats) = (DeviceBuffer::zeroed(&stream, 4096)?, DeviceBuffer::zeroed(&stream, 10)?);
        let first = DeviceBuffer::from_slice(&stream, &[0, 2, 5])?;
        Ok(Memory { stream, x, floats, first })
    }

    fn heads(&self, sides: [usize; 4]) -> ironwarp::Result<Heads<'_>> {
        Ok(Heads::new::<bf16>(self.x.slice(..sides.iter().product::<usize>())?, sides))
    }

    fn zeros(&self, sides: [usize; 4]) -> ironwarp::Result<DeviceBuffer<bf16>> {
        DeviceBuffer::zeroed(&self.stream, sides.iter().product())
    }

    fn forward(&self) -> ironwarp::Result<Forward<'_>> {
        Ok(Forward {
            queries: self.heads(LONG)?,
            keys: self.heads(LONG)?,
            values: self.heads(SHORT)?,
            output: self.heads(SHORT)?,
            log_sum_exp: self.floats.view(),
        })
    }
}

#[test]
fn wrong_sizes_are_refused() -> Outcome {
    let memory = Memory::new()?;
    let refused = |what: &str, [values, out]: [[usize; 4]; 2]| -> Outcome<String> {
        let mut buffer = memory.zeros(out)?;
        let (q, k, v) = (memory.heads(LONG)?, memory.heads(LONG)?, memory.heads(values)?);
        let out = HeadsMut::new::<bf16>(&mut buffer, out);
        let error = Attention::new(q, k, v, out).run(&memory.stream).expect_err(what);
        assert_eq!(about(&error), what, "{error}");
        Ok(error.to_string())
    };
    let sized = |size| [1, 5, 2, size];
    refused("the result", [SHORT, LONG])?;
    refused("the result", [LONG, SHORT])?;
    refused("the values", [[1, 4, 2, 16], SHORT])?;
    for (size, hint) in [(0, "leave the call out"), (4, "zeros"), (20, "zeros"), (264, "with views")] {
        let text = refused("the head size of the values", [sized(size); 2])?;
        assert!(text.contains(hint), "{size}: {text}");
    }
    Ok(())
}

#[test]
fn wrong_sizes_of_gradients_are_refused() -> Outcome {
    let memory = Memory::new()?;
    let run = |[output, d_output, d_keys, d_values]: [[usize; 4]; 4], packed: bool| {
        let (mut d_q, mut d_k, mut d_v) =
            (memory.zeros(LONG)?, memory.zeros(d_keys)?, memory.zeros(d_values)?);
        let forward = Forward { output: memory.heads(output)?, ..memory.forward()? };
        let gradients = Gradients {
            queries: HeadsMut::new::<bf16>(&mut d_q, LONG),
            keys: HeadsMut::new::<bf16>(&mut d_k, d_keys),
            values: HeadsMut::new::<bf16>(&mut d_v, d_values),
        };
        let backward = Backward::new(forward, memory.heads(d_output)?, gradients);
        let packing = Packed::new(&memory.first, &memory.first, 3, 3);
        let backward = if packed { backward.packed(packing) } else { backward };
        backward.run(&memory.stream)
    };
    let refused = |what: &str, sides: [[usize; 4]; 4]| {
        let error = run(sides, false).expect_err(what);
        assert_eq!(about(&error), what, "{error}");
    };
    refused("the output", [LONG, SHORT, LONG, SHORT]);
    refused("its gradient", [SHORT, LONG, LONG, SHORT]);
    refused("the gradient of the keys", [SHORT, SHORT, SHORT, SHORT]);
    refused("the gradient of the values", [SHORT, SHORT, LONG, LONG]);
    // Rows at a sequence's end are stored by one head size.
    let error = run([SHORT, SHORT, LONG, SHORT], true).expect_err("packed");
    assert_eq!(about(&error), "the problem", "{error}");
    if is_hopper()? {
        let text = error.to_string();
        assert!(text.contains("values have the queries' head size") && text.contains("zeros"), "{text}");
        run([SHORT, SHORT, LONG, SHORT], false)?;
    }
    Ok(())
}

/// Decoding and the gradient of a bias take one head size, and say so.
#[test]
fn others_refuse_such_values() -> Outcome {
    let memory = Memory::new()?;
    let mut out = memory.zeros(SHORT)?;
    let (q, k, v) = (memory.heads(LONG)?, memory.heads(LONG)?, memory.heads(SHORT)?);
    let decode = Decode::new(q, k, v, HeadsMut::new::<bf16>(&mut out, SHORT));
    assert_eq!(about(&decode.run(&memory.stream).expect_err("decode")), "the values");
    let bias = DeviceBuffer::<f32>::zeroed(&memory.stream, 25)?;
    let mut d_bias = DeviceBuffer::<f32>::zeroed(&memory.stream, 25)?;
    let gradient = memory.heads(SHORT)?;
    let call = BiasGradient::new(memory.forward()?, gradient, &bias, [1, 1, 5, 5], &mut d_bias);
    assert_eq!(about(&call.run(&memory.stream).expect_err("bias")), "the values");
    Ok(())
}
