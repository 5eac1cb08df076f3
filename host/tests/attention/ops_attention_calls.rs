//! Wrong calls are refused before anything is queued, by an error that says what, got, wanted and a hint; and
//! what a choice tells. (Results are compared with `reference` in the files beside this one.)

use crate::attention_case::{Outcome, about, device, is_hopper};
use half::{bf16, f16};
use ironwarp::ops::attention::{
    Attention, Heads, HeadsMut, Mask, Options, Packed, attention, candidates, select,
};
use ironwarp::{DType, DeviceBuffer, Stream, Tensor};

const SIDES: [usize; 4] = [2, 6, 4, 16];
const ELEMENTS: usize = 2 * 6 * 4 * 16;

/// Memory to make operands of.
struct Memory {
    stream: Stream,
    x: DeviceBuffer<bf16>,
    halves: DeviceBuffer<f16>,
    floats: DeviceBuffer<f32>,
    first: DeviceBuffer<i32>,
}

impl Memory {
    fn new() -> ironwarp::Result<Self> {
        let stream = device()?.stream()?;
        let (x, halves) = (DeviceBuffer::zeroed(&stream, 4096)?, DeviceBuffer::zeroed(&stream, ELEMENTS)?);
        let (floats, first) = (DeviceBuffer::zeroed(&stream, ELEMENTS)?, DeviceBuffer::zeroed(&stream, 3)?);
        Ok(Memory { stream, x, halves, floats, first })
    }

    fn heads(&self, sides: [usize; 4]) -> Heads<'_> {
        let len = sides.into_iter().fold(1, usize::saturating_mul).min(4096);
        Heads::new::<bf16>(self.x.slice(..len).unwrap(), sides)
    }
}

/// Spoils a call.
type Spoil = for<'x> fn(&'x Memory, Attention<'x>) -> Attention<'x>;

/// `what` of attention on these operands is refused.
fn refused_operands(
    what: &str,
    operands: impl FnOnce(&Memory) -> [Heads<'_>; 3],
    sides: [usize; 4],
    out: impl FnOnce(HeadsMut<'_>) -> HeadsMut<'_>,
    spoil: Spoil,
) -> Outcome {
    let memory = Memory::new()?;
    let mut buffer = DeviceBuffer::<bf16>::zeroed(&memory.stream, sides.iter().product())?;
    let [q, k, v] = operands(&memory);
    let attention = Attention::new(q, k, v, out(HeadsMut::new::<bf16>(&mut buffer, sides)));
    let error = spoil(&memory, attention).run(&memory.stream).expect_err(what);
    assert_eq!(about(&error), what, "{error}");
    Ok(())
}

/// The same for operands of these sides: queries, keys, values, the result.
fn refused_sides(what: &str, [q, k, v, out]: [[usize; 4]; 4]) -> Outcome {
    refused_operands(what, |memory| [q, k, v].map(|sides| memory.heads(sides)), out, |out| out, |_, a| a)
}

/// The same for one that is right but for this.
fn refused(what: &str, spoil: Spoil) -> Outcome {
    refused_operands(what, |memory| [SIDES; 3].map(|sides| memory.heads(sides)), SIDES, |out| out, spoil)
}

/// The same for a result that is not.
fn refused_result(what: &str, out: impl FnOnce(HeadsMut<'_>) -> HeadsMut<'_>) -> Outcome {
    refused_operands(what, |memory| [SIDES; 3].map(|sides| memory.heads(sides)), SIDES, out, |_, a| a)
}

#[test]
fn shapes_that_do_not_fit_together() -> Outcome {
    let [b, s, h, d] = SIDES;
    refused_sides("the keys", [SIDES, [b + 1, s, h, d], [b + 1, s, h, d], SIDES])?;
    refused_sides("the keys", [SIDES, [b, s, h, d + 8], [b, s, h, d + 8], SIDES])?;
    refused_sides("the values", [SIDES, SIDES, [b, s + 1, h, d], SIDES])?;
    refused_sides("the values", [SIDES, SIDES, [b, s, h - 1, d], SIDES])?;
    refused_sides("the result", [SIDES, SIDES, SIDES, [b, h, s, d]])?;
    for kv in [0, 3, 8] {
        refused_sides("the heads of the queries", [SIDES, [b, s, kv, d], [b, s, kv, d], SIDES])?;
    }
    for d in [0, 4, 20, 264] {
        refused_sides("the head size", [[1, 2, 1, d]; 4])?;
    }
    Ok(())
}

#[test]
fn types_that_do_not_fit_together() -> Outcome {
    fn f16s(memory: &Memory) -> Heads<'_> {
        Heads::new::<f16>(&memory.halves, SIDES)
    }
    fn f32s(memory: &Memory) -> Heads<'_> {
        Heads::new::<f32>(&memory.floats, SIDES)
    }
    let of =
        |what, make: fn(&Memory) -> [Heads<'_>; 3]| refused_operands(what, make, SIDES, |out| out, |_, a| a);
    of("the queries", |m| [f32s(m); 3])?;
    of("the keys", |m| [m.heads(SIDES), f16s(m), f16s(m)])?;
    of("the values", |m| [m.heads(SIDES), m.heads(SIDES), f16s(m)])?;
    of("the result", |m| [f16s(m); 3])
}

#[test]
fn rows_that_kernels_cannot_address() -> Outcome {
    let of =
        |what, make: fn(&Memory) -> [Heads<'_>; 3]| refused_operands(what, make, SIDES, |out| out, |_, a| a);
    let [b, s, h, d] = SIDES;
    // Less data than the shape says, and more of a dense one.
    of("the queries", |m| {
        [Heads::new::<bf16>(m.x.slice(..767).unwrap(), SIDES), m.heads(SIDES), m.heads(SIDES)]
    })?;
    of("the keys", |m| [m.heads(SIDES), Heads::new::<bf16>(&m.x, SIDES), m.heads(SIDES)])?;
    of("the values", |m| [m.heads(SIDES), m.heads(SIDES), m.heads(SIDES).strides([384, 64, 24])])?;
    // Rows between boundaries.
    of("the keys", |m| {
        [m.heads(SIDES), Heads::new::<bf16>(&m.x, SIDES).strides([500, 64, 16]), m.heads(SIDES)]
    })?;
    of("the keys", |m| {
        [
            m.heads(SIDES),
            Heads::new::<bf16>(m.x.slice(4..).unwrap(), SIDES).strides([384, 64, 16]),
            m.heads(SIDES),
        ]
    })?;
    // Results that share places.
    for strides in [[0, 64, 16], [384, 48, 16], [384, 64, 0]] {
        refused_result("the result", |out| out.strides(strides))?;
    }
    // Too many keys to count, all in one place.
    fn many(memory: &Memory) -> Heads<'_> {
        Heads::new::<bf16>(&memory.x, [2, (1 << 28) + 1, 4, 16]).strides([384, 0, 16])
    }
    refused_operands("the keys", |m| [m.heads(SIDES), many(m), many(m)], [b, s, h, d], |out| out, |_, a| a)
}

#[test]
fn scales_and_log_sum_exps() -> Outcome {
    refused("the scale", |_, a| a.scale(0.0))?;
    refused("the scale", |_, a| a.scale(-1.0))?;
    refused("the scale", |_, a| a.scale(f32::NAN))?;
    refused("the scale", |_, a| a.scale(f32::INFINITY))?;
    let memory = Memory::new()?;
    let mut out = DeviceBuffer::<bf16>::zeroed(&memory.stream, ELEMENTS)?;
    let mut short = DeviceBuffer::<f32>::zeroed(&memory.stream, 47)?;
    let [q, k, v] = [SIDES; 3].map(|sides| memory.heads(sides));
    let attention = Attention::new(q, k, v, HeadsMut::new::<bf16>(&mut out, SIDES)).log_sum_exp(&mut short);
    let error = attention.run(&memory.stream).expect_err("47 of 48");
    assert_eq!(about(&error), "the log-sum-exps", "{error}");
    Ok(())
}

#[test]
fn packed_sequences() -> Outcome {
    // More than one matrix.
    refused("the queries", |m, a| a.packed(Packed::new(&m.first, &m.first, 6, 6)))?;
    let of = |what, spoil: Spoil| {
        let sides = [1, 12, 4, 16];
        refused_operands(what, |m| [sides; 3].map(|sides| m.heads(sides)), sides, |out| out, spoil)
    };
    of("the first queries", |m, a| {
        let none = m.first.slice(..0).unwrap();
        a.packed(Packed::new(none, none, 6, 6))
    })?;
    of("the first keys", |m, a| a.packed(Packed::new(&m.first, m.first.slice(..2).unwrap(), 6, 6)))?;
    of("the longest sequence of queries", |m, a| a.packed(Packed::new(&m.first, &m.first, 1 << 29, 6)))?;
    of("the longest sequence of keys", |m, a| a.packed(Packed::new(&m.first, &m.first, 6, 1 << 40)))
}

#[test]
fn tensors() -> Outcome {
    let stream = device()?.current_stream()?;
    let of = |sides: &[usize], dtype| Tensor::zeros(&stream, sides, dtype);
    let flat = of(&[6, 16], DType::BF16)?;
    let error = attention(&stream, &flat, &flat, &flat, Options::default()).expect_err("2 axes");
    assert_eq!(about(&error), "the tensor", "{error}");
    let bytes = of(&SIDES, DType::U8)?;
    let error = attention(&stream, &bytes, &bytes, &bytes, Options::default()).expect_err("bytes");
    assert_eq!(about(&error), "the queries", "{error}");
    assert!(error.to_string().contains("the queries are of u8, wanted"), "{error}");
    // The method names the shapes that it takes itself.
    let [three, four, five] =
        [&[2, 6, 16][..], &[1, 2, 6, 16], &[1, 1, 2, 6, 16]].map(|x| of(x, DType::BF16));
    let (three, four, five) = (three?, four?, five?);
    for [query, key, value] in [[&flat; 3], [&five; 3], [&three, &four, &four], [&four, &four, &three]] {
        let error = query.scaled_dot_product_attention(key, value, false, None).expect_err("dimensions");
        let text = error.to_string();
        assert!(text.contains("heads, rows, head size]") && !text.contains("rows, heads"), "{text}");
    }
    Ok(())
}

#[test]
fn a_choice_tells_what_and_why() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let memory = Memory::new()?;
    let mut out = DeviceBuffer::<bf16>::zeroed(&memory.stream, ELEMENTS)?;
    fn causal<'x>(memory: &'x Memory, out: &'x mut DeviceBuffer<bf16>) -> Attention<'x> {
        let [q, k, v] = [SIDES; 3].map(|sides| memory.heads(sides));
        Attention::new(q, k, v, HeadsMut::new::<bf16>(out, SIDES)).mask(Mask::CAUSAL)
    }
    let choice = causal(&memory, &mut out).explain(&memory.stream)?;
    let text = choice.to_string();
    for part in [
        "bf16 [2, 6, 4, 16]",
        "causal",
        "by attention_bf16_64",
        "can: attention_bf16_256",
        "cannot: attention_f16_64: is for",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let problem = choice.problem;
    let device = memory.stream.device();
    assert_eq!(select(&problem, device)?.config, candidates(&problem, device)[0].config);
    // A configuration of another type.
    let other = ironwarp::ops::attention::Problem { dtype: DType::F16, ..problem };
    let config = select(&other, device)?.config;
    let error = causal(&memory, &mut out).run_with(&memory.stream, &config).expect_err("f16's");
    assert_eq!(about(&error), "the configuration", "{error}");
    Ok(())
}
