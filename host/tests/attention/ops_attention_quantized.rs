//! Attention of e4m3 operands with scales, against the oracle on what they stand for.

use half::bf16;
use ironwarp::ops::attention::{
    Attention, Backward, Forward, Gradients, Heads, HeadsMut, Mask, Packed, Quantized, Scales, candidates,
};
use ironwarp::ops::tuning::{Source, Tuner, Tuning};
use ironwarp::{DType, DeviceBuffer, Error, Stream};
use num::E4M3;
use reference::attention::{Attended, Band, Rows, Sides, attention as oracle};
use std::ops::Range;
use testkit::{Element, Family, bitwise_equal, compare, input, tolerance};

use crate::attention_case::{Outcome, device, is_hopper};

/// Rows with a scale of their own, where scales are of blocks.
const SCALE_BLOCK: usize = 128;

/// How many scales an operand has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Per {
    Head,
    Block,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    batch: usize,
    queries: usize,
    keys: usize,
    heads: usize,
    kv_heads: usize,
    size: usize,
    left: Option<u32>,
    right: Option<u32>,
    /// Elements between rows of queries, keys and values, and those behind each other's heads.
    gap: usize,
    /// Of queries, keys, values.
    per: [Per; 3],
    sinks: bool,
    /// Ends of packed sequences, in place of the batch: those of keys are the same.
    packed: Option<&'static [usize]>,
    /// Rows of the longest sequence as they are told, where that is wrong: those behind hold no numbers.
    told: Option<usize>,
}

const PLAIN: Case = Case {
    batch: 1,
    queries: 1,
    keys: 1,
    heads: 1,
    kv_heads: 1,
    size: 128,
    left: None,
    right: None,
    gap: 0,
    per: [Per::Head; 3],
    sinks: false,
    packed: None,
    told: None,
};
const CAUSAL: Case = Case { right: Some(0), ..PLAIN };

/// An operand on the host: rows of heads, with what is no number between them.
struct Operand {
    codes: Vec<E4M3>,
    scales: Vec<f32>,
    sides: [usize; 4],
    strides: [usize; 3],
}

impl Operand {
    /// `length` is that of the longest sequence.
    fn new(seed: u64, sides: [usize; 4], gap: usize, per: Per, [sequences, length]: [usize; 2]) -> Self {
        let [batch, rows, heads, size] = sides;
        let row = heads * (size + gap) + gap.next_multiple_of(16);
        let strides = [rows * row, row, size + gap];
        let mut codes = vec![E4M3::from_f64(f64::NAN); (batch * strides[0]).max(1)];
        // Most numbers are of a few units, as quantised tensors are: normal ones, and small ones.
        let values: Vec<f64> = input::<f32>(Family::Normal, seed, batch * rows * heads * size)
            .into_iter()
            .map(|x| f64::from(x) * 40.0)
            .collect();
        let mut at = 0;
        for matrix in 0..batch {
            for row in 0..rows {
                for head in 0..heads {
                    let first = matrix * strides[0] + row * strides[1] + head * strides[2];
                    for code in &mut codes[first..first + size] {
                        *code = E4M3::from_f64(values[at]);
                        at += 1;
                    }
                }
            }
        }
        let blocks = if per == Per::Block { length.div_ceil(SCALE_BLOCK).max(1) } else { 1 };
        let scales = (0..sequences * heads * blocks).map(|at| (0.5 + (at % 7) as f32 / 4.0) / 40.0).collect();
        Operand { codes, scales, sides, strides }
    }

    /// The numbers that rows `first..first + rows` of a matrix stand for, as those of sequence `sequence`:
    /// `[rows, heads, size]`.
    fn exact(&self, matrix: usize, sequence: usize, [first, rows]: [usize; 2], sequences: usize) -> Vec<f64> {
        let [_, _, heads, size] = self.sides;
        let blocks = (self.scales.len() / (sequences * heads).max(1)).max(1);
        let mut exact = Vec::with_capacity(rows * heads * size);
        for row in 0..rows {
            for head in 0..heads {
                let block = (row / SCALE_BLOCK).min(blocks - 1);
                let scale = f64::from(self.scales[(sequence * heads + head) * blocks + block]);
                let at = matrix * self.strides[0] + (first + row) * self.strides[1] + head * self.strides[2];
                exact.extend(self.codes[at..at + size].iter().map(|code| code.to_f64() * scale));
            }
        }
        exact
    }
}

/// A case on the device, with the oracle's results of each sequence.
struct Setup {
    case: Case,
    operands: [Operand; 3],
    buffers: [DeviceBuffer<E4M3>; 3],
    scales: [DeviceBuffer<f32>; 3],
    first: DeviceBuffer<i32>,
    sinks: DeviceBuffer<f32>,
}

const SINKS: [f32; 4] = [0.75, -40.0, 30.0, f32::NEG_INFINITY];

impl Setup {
    fn new(stream: &Stream, case: Case) -> Outcome<Self> {
        let Case { batch, queries, keys, heads, kv_heads, size, gap, per, packed, .. } = case;
        let longest = |rows: usize| if packed.is_some() { case.longest() } else { rows };
        let count = packed.map_or(batch, <[usize]>::len);
        let of = |seed, rows, heads, per| {
            Operand::new(seed, [batch, rows, heads, size], gap, per, [count, longest(rows)])
        };
        let mut operands =
            [of(1, queries, heads, per[0]), of(2, keys, kv_heads, per[1]), of(3, keys, kv_heads, per[2])];
        for Operand { codes, strides, .. } in &mut operands {
            for behind in case.behind() {
                codes[behind.start * strides[1]..behind.end * strides[1]].fill(E4M3::from_f64(f64::NAN));
            }
        }
        let codes = |at: usize| DeviceBuffer::from_slice(stream, &operands[at].codes);
        let scales = |at: usize| DeviceBuffer::from_slice(stream, &operands[at].scales);
        let first: Vec<i32> =
            [0].into_iter().chain(packed.unwrap_or_default().iter().map(|&end| end as i32)).collect();
        let sinks: Vec<f32> = (0..heads).map(|head| SINKS[head % SINKS.len()]).collect();
        Ok(Setup {
            case,
            buffers: [codes(0)?, codes(1)?, codes(2)?],
            scales: [scales(0)?, scales(1)?, scales(2)?],
            first: DeviceBuffer::from_slice(stream, &first)?,
            sinks: DeviceBuffer::from_slice(stream, &sinks)?,
            operands,
        })
    }

    fn heads(&self, at: usize) -> Heads<'_> {
        let Operand { sides, strides, .. } = &self.operands[at];
        Heads::new::<E4M3>(&self.buffers[at], *sides).strides(*strides)
    }

    fn attention<'a>(
        &'a self,
        out: &'a mut DeviceBuffer<bf16>,
        logarithms: &'a mut DeviceBuffer<f32>,
    ) -> Quantized<'a> {
        let mask = Mask::window(self.case.left, self.case.right);
        let out = HeadsMut::new(out, self.operands[0].sides);
        let attention = Attention::new(self.heads(0), self.heads(1), self.heads(2), out)
            .mask(mask)
            .log_sum_exp(logarithms);
        let attention = if self.case.sinks { attention.sinks(&self.sinks) } else { attention };
        let attention = match self.case.packed {
            Some(_) => {
                let longest = self.case.longest();
                attention.packed(Packed::new(&self.first, &self.first, longest, longest))
            }
            None => attention,
        };
        attention.quantized(self.scales())
    }

    fn scales(&self) -> Scales<'_> {
        let [queries, keys, values] = &self.scales;
        Scales { queries: queries.into(), keys: keys.into(), values: values.into() }
    }

    fn fresh(&self, stream: &Stream) -> Outcome<(DeviceBuffer<bf16>, DeviceBuffer<f32>)> {
        let [batch, rows, heads, size] = self.operands[0].sides;
        Ok((
            DeviceBuffer::from_slice(stream, &vec![bf16::NAN; batch * rows * heads * size])?,
            DeviceBuffer::from_slice(stream, &vec![f32::NAN; batch * rows * heads])?,
        ))
    }

    /// The exact results of a sequence, by its matrix, number, and rows.
    fn oracle(&self, matrix: usize, sequence: usize, rows: [[usize; 2]; 2]) -> Attended {
        let Case { heads, kv_heads, size, left, right, packed, batch, .. } = self.case;
        let count = packed.map_or(batch, <[usize]>::len);
        let [q, k, v] = [(0, rows[0]), (1, rows[1]), (2, rows[1])]
            .map(|(at, rows): (usize, _)| self.operands[at].exact(matrix, sequence, rows, count));
        let sides = Sides { batch: 1, queries: rows[0][1], keys: rows[1][1], heads, kv_heads, size };
        let strided = |data, heads: usize| Rows::<f64> { data, strides: [0, heads * size, size] };
        let operands = [strided(&q[..], heads), strided(&k[..], kv_heads), strided(&v[..], kv_heads)];
        let band = Band { left: left.map(i64::from), right: right.map(i64::from), top_left: false };
        let attended = oracle(sides, operands, band, 1.0 / f64::from((size as f32).sqrt()));
        if !self.case.sinks {
            return attended;
        }
        let sinks: Vec<f64> = (0..heads).map(|head| f64::from(SINKS[head % SINKS.len()])).collect();
        attended.with_sinks(sides, &sinks)
    }

    /// Every kernel that can do it gives the oracle's results.
    fn check(&self, stream: &Stream) -> Outcome {
        let (mut out, mut logarithms) = self.fresh(stream)?;
        let problem = self.attention(&mut out, &mut logarithms).problem()?;
        // Blocks of keys have one scale.
        let is_fit = |keys: usize| keys == SCALE_BLOCK || self.case.per[1..] == [Per::Head; 2];
        let configs: Vec<_> = candidates(&problem, stream.device())
            .into_iter()
            .map(|one| one.config)
            .filter(|config| is_fit(config.block()[1] as usize))
            .collect();
        assert!(!configs.is_empty(), "no kernel for {problem}");
        for config in configs {
            let what = format!("{problem} by {config}: {:?}", self.case);
            let (mut out, mut logarithms) = self.fresh(stream)?;
            self.attention(&mut out, &mut logarithms).run_with(stream, &config)?;
            let (got, logs) = (out.to_vec(stream)?, logarithms.to_vec(stream)?);
            self.compare(&got, &logs, &what)?;
        }
        Ok(())
    }

    /// The results of each sequence are the oracle's.
    fn compare(&self, got: &[bf16], logarithms: &[f32], what: &str) -> Outcome {
        let Case { batch, queries, keys, heads, size, packed, .. } = self.case;
        let places: Vec<(usize, usize, [[usize; 2]; 2])> = match packed {
            None => (0..batch).map(|at| (at, at, [[0, queries], [0, keys]])).collect(),
            Some(_) => {
                let sequences = self.case.sequences();
                sequences.iter().enumerate().map(|(at, &rows)| (0, at, [rows; 2])).collect()
            }
        };
        for (matrix, sequence, rows) in places {
            let want = self.oracle(matrix, sequence, rows);
            let [first, count] = rows[0];
            let row = heads * size;
            let got = &got[(matrix * queries + first) * row..][..count * row];
            let shape = [count, heads, size];
            let limit = tolerance::ATTENTION_E4M3.tolerance();
            compare::rounded(what, got, &want.value, &want.magnitude, &shape, limit)?;
            let logs: Vec<f32> = (0..heads)
                .flat_map(|head| &logarithms[(matrix * heads + head) * queries + first..][..count])
                .copied()
                .collect();
            let (value, magnitude) = (&want.log_sum_exp, &want.log_sum_exp_magnitude);
            let limit = tolerance::ATTENTION_LSE_E4M3.tolerance();
            compare::accumulated(&format!("{what}, lse"), &logs, value, magnitude, &[heads, count], limit)?;
        }
        for row in self.case.behind().into_iter().flatten() {
            let is_kept = got[row * heads * size..][..heads * size].iter().all(|value| value.is_nan());
            assert!(is_kept, "{what}: wrote row {row}, behind the length that was told");
        }
        Ok(())
    }
}

impl Case {
    /// First row and rows that count of each packed sequence; none else.
    fn sequences(&self) -> Vec<[usize; 2]> {
        self.all_rows().map(|rows| [rows.start, rows.len().min(self.told.unwrap_or(usize::MAX))]).collect()
    }

    /// Rows of the longest packed sequence.
    fn longest(&self) -> usize {
        self.told.or(self.all_rows().map(|rows| rows.len()).max()).unwrap_or_default()
    }

    /// Rows of packed sequences behind the longest one that was told.
    fn behind(&self) -> Vec<Range<usize>> {
        let counted = self.sequences().into_iter().map(|[first, rows]| first + rows);
        self.all_rows().zip(counted).map(|(rows, end)| end..rows.end).collect()
    }

    /// Rows of each packed sequence.
    fn all_rows(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let ends = self.packed.unwrap_or_default();
        [0].into_iter().chain(ends.iter().copied()).zip(ends).map(|(first, end)| first..*end)
    }

    /// Every kernel that can do it gives the oracle's results.
    fn check(self) -> Outcome {
        if !is_hopper()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        Setup::new(&stream, self)?.check(&stream)
    }
}

#[test]
fn one_tile_and_several_blocks_of_keys() -> Outcome {
    Case { queries: 70, keys: 90, heads: 2, kv_heads: 2, ..PLAIN }.check()?;
    Case { queries: 128, keys: 128, ..PLAIN }.check()?;
    Case { queries: 130, keys: 400, batch: 2, size: 256, ..PLAIN }.check()
}

#[test]
fn lengths_around_those_of_tiles() -> Outcome {
    for length in [1, 7, 63, 64, 65, 127, 129, 257] {
        Case { queries: length, keys: length, ..CAUSAL }.check()?;
    }
    Case { queries: 1, keys: 1000, ..PLAIN }.check()
}

#[test]
fn masks_and_groups() -> Outcome {
    Case { queries: 200, keys: 300, heads: 4, kv_heads: 2, batch: 2, ..CAUSAL }.check()?;
    Case { queries: 150, keys: 400, left: Some(40), right: Some(10), heads: 3, ..PLAIN }.check()?;
    // The first queries see nothing; no query has a key.
    Case { queries: 270, keys: 20, ..CAUSAL }.check()?;
    Case { queries: 7, keys: 0, heads: 2, size: 32, ..PLAIN }.check()
}

#[test]
fn scales_of_blocks() -> Outcome {
    let case = Case { queries: 260, keys: 390, heads: 4, kv_heads: 2, batch: 2, ..PLAIN };
    Case { per: [Per::Block; 3], ..case }.check()?;
    Case { per: [Per::Head, Per::Block, Per::Head], ..CAUSAL }.check()?;
    Case { per: [Per::Block, Per::Head, Per::Block], size: 256, batch: 1, right: Some(0), ..case }.check()
}

#[test]
fn shorter_rows_and_gaps_between_them() -> Outcome {
    for size in [8usize, 64, 144, 240] {
        // Rows begin at 16-byte boundaries.
        let gap = 16 + size.next_multiple_of(16) - size;
        Case { queries: 20, keys: 150, heads: 2, kv_heads: 2, batch: 2, size, gap, ..CAUSAL }.check()?;
    }
    Ok(())
}

#[test]
fn sinks() -> Outcome {
    Case { queries: 40, keys: 200, heads: 4, kv_heads: 2, sinks: true, ..CAUSAL }.check()?;
    Case { queries: 9, keys: 0, heads: 4, kv_heads: 2, sinks: true, ..PLAIN }.check()
}

/// Sequences of other lengths than tiles, one of them empty; with scales of blocks of their own.
#[test]
fn packed_sequences() -> Outcome {
    let ends: &[usize] = &[70, 70, 270, 300];
    let case = Case { queries: 300, keys: 300, heads: 4, kv_heads: 2, packed: Some(ends), ..CAUSAL };
    case.check()?;
    Case { per: [Per::Block; 3], size: 256, right: None, ..case }.check()
}

/// Sequences end with the longest one that was told, as their scales do.
#[test]
fn too_short_lengths() -> Outcome {
    let case = Case { queries: 300, keys: 300, heads: 2, packed: Some(&[150, 155, 300]), ..PLAIN };
    for told in [5, 100, 128] {
        let case = Case { told: Some(told), ..case };
        case.check()?;
        Case { per: [Per::Block; 3], size: 256, right: Some(0), ..case }.check()?;
    }
    Ok(())
}

/// A sequence keeps its NaNs to itself: neither keys nor values of another one spoil its sums.
#[test]
fn nans_stay_in_their_sequence() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let ends: &[usize] = &[70, 200];
    let case = Case { queries: 200, keys: 200, packed: Some(ends), ..PLAIN };
    let mut setup = Setup::new(&stream, case)?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    setup.attention(&mut out, &mut logarithms).run(&stream)?;
    let want = out.to_vec(&stream)?;
    setup.attention(&mut out, &mut logarithms).run(&stream)?;
    bitwise_equal("again", &out.to_vec(&stream)?, &want)?;
    for at in 0..3 {
        setup.operands[at].codes[70 * case.size..].fill(E4M3::from_f64(f64::NAN));
        setup.buffers[at] = DeviceBuffer::from_slice(&stream, &setup.operands[at].codes)?;
    }
    setup.attention(&mut out, &mut logarithms).run(&stream)?;
    let got = out.to_vec(&stream)?;
    let rows = 70 * case.size;
    bitwise_equal("the first sequence", &got[..rows], &want[..rows])?;
    assert!(got[rows..].iter().all(|value| value.is_nan()));
    Ok(())
}

/// A block of zeros may have the scale 0, first or last.
#[test]
fn zeros_have_any_scale() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let case = Case { queries: 40, keys: 300, per: [Per::Head, Per::Block, Per::Block], ..PLAIN };
    for block in 0..3 {
        let mut setup = Setup::new(&stream, case)?;
        for at in 1..3 {
            let operand = &mut setup.operands[at];
            let rows = block * SCALE_BLOCK..((block + 1) * SCALE_BLOCK).min(case.keys);
            operand.codes[rows.start * case.size..rows.end * case.size].fill(E4M3::from_f64(0.0));
            operand.scales[block] = 0.0;
            setup.buffers[at] = DeviceBuffer::from_slice(&stream, &setup.operands[at].codes)?;
            setup.scales[at] = DeviceBuffer::from_slice(&stream, &setup.operands[at].scales)?;
        }
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        setup.attention(&mut out, &mut logarithms).run(&stream)?;
        setup.compare(&out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, &format!("block {block}"))?;
    }
    Ok(())
}

/// Scores of tens of millions: between neighbouring f32 lie several powers of two, and one key has all the
/// weight.
#[test]
fn huge_scores() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    for case in
        [Case { queries: 70, keys: 300, ..CAUSAL }, Case { queries: 20, keys: 150, size: 256, ..PLAIN }]
    {
        let mut setup = Setup::new(&stream, case)?;
        for at in 0..2 {
            let operand = &mut setup.operands[at];
            operand.scales.iter_mut().for_each(|scale| *scale *= 6000.0);
            setup.scales[at] = DeviceBuffer::from_slice(&stream, &operand.scales)?;
        }
        setup.check(&stream)?;
    }
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let setup = Setup::new(&stream, Case { queries: 200, keys: 200, heads: 2, kv_heads: 2, ..PLAIN })?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    let sides = setup.operands[0].sides;
    // Without scales.
    let plain =
        Attention::new(setup.heads(0), setup.heads(1), setup.heads(2), HeadsMut::new(&mut out, sides));
    refused(plain.run(&stream), "the queries", "quantized")?;
    // The result is bf16, and operands are of one type.
    let mut codes = DeviceBuffer::<E4M3>::zeroed(&stream, out.len())?;
    let result = HeadsMut::new(&mut codes, sides);
    let call = Attention::new(setup.heads(0), setup.heads(1), setup.heads(2), result);
    refused(call.quantized(setup.scales()).run(&stream), "the result", "bf16")?;
    let values = DeviceBuffer::<bf16>::zeroed(&stream, out.len())?;
    let values = Heads::new::<bf16>(&values, sides);
    let call = Attention::new(setup.heads(0), setup.heads(1), values, HeadsMut::new(&mut out, sides));
    refused(call.quantized(setup.scales()).run(&stream), "the values", "f8_e4m3")?;
    // Two heads have 2 scales, or 4.
    for (what, at) in [("the scales of the queries", 0), ("the scales of the values", 2)] {
        let other = DeviceBuffer::from_slice(&stream, &[1.0f32; 3])?;
        let mut scales = setup.scales();
        *[&mut scales.queries, &mut scales.keys, &mut scales.values][at] = (&other).into();
        let call =
            Attention::new(setup.heads(0), setup.heads(1), setup.heads(2), HeadsMut::new(&mut out, sides));
        let error = call.quantized(scales).run(&stream).err().ok_or("accepted")?;
        let is_length = matches!(error, Error::Length { what: got, expected: 4, got: 3, .. } if got == what);
        assert!(is_length, "{error}");
    }
    // There are no gradients.
    let output = DeviceBuffer::<E4M3>::zeroed(&stream, codes.len())?;
    let (mut k, mut v) =
        (DeviceBuffer::zeroed(&stream, codes.len())?, DeviceBuffer::zeroed(&stream, codes.len())?);
    let forward = Forward {
        queries: setup.heads(0),
        keys: setup.heads(1),
        values: setup.heads(2),
        output: Heads::new::<E4M3>(&output, sides),
        log_sum_exp: (&logarithms).into(),
    };
    let gradients = Gradients {
        queries: HeadsMut::new::<E4M3>(&mut codes, sides),
        keys: HeadsMut::new::<E4M3>(&mut k, sides),
        values: HeadsMut::new::<E4M3>(&mut v, sides),
    };
    let backward = Backward::new(forward, Heads::new::<E4M3>(&output, sides), gradients);
    refused(backward.run(&stream), "the queries", "bf16 or f16")?;
    let choice = setup.attention(&mut out, &mut logarithms).explain(&stream)?;
    assert_eq!((choice.problem.dtype, choice.config.name()), (DType::F8E4M3, "attention_e4m3_128"));
    Ok(())
}

/// A block of 256 keys has no one scale where each 128 have one of their own.
/// Scales of blocks have records of their own: of the kernels that can take them.
#[test]
fn a_tuner_measures_what_takes_the_scales() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let tuner = Tuner::new(&device()?, Tuning::Measure);
    let case = Case { queries: 40, keys: 150, heads: 2, kv_heads: 2, ..PLAIN };
    for (records, per) in [(1, [Per::Head; 3]), (2, [Per::Block; 3])] {
        let setup = Setup::new(&stream, Case { per, ..case })?;
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        tuner.run(&stream, setup.attention(&mut out, &mut logarithms))?;
        assert_eq!(tuner.len(), records);
        let (got, logs) = (out.to_vec(&stream)?, logarithms.to_vec(&stream)?);
        setup.compare(&got, &logs, "tuned")?;
        let choice = tuner.explain(&stream, setup.attention(&mut out, &mut logarithms))?;
        let takes_them = per[1] == Per::Head || choice.config.block()[1] as usize == SCALE_BLOCK;
        assert!(matches!(choice.source, Source::Record { .. }) && takes_them, "{choice}");
    }
    Ok(())
}

#[test]
fn wide_blocks_take_no_scales_of_blocks() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let device = device()?;
    let stream = device.stream()?;
    let case = Case { queries: 300, keys: 300, per: [Per::Head, Per::Block, Per::Head], ..PLAIN };
    let setup = Setup::new(&stream, case)?;
    let (mut out, mut logarithms) = setup.fresh(&stream)?;
    let problem = setup.attention(&mut out, &mut logarithms).problem()?;
    let all = candidates(&problem, &device);
    let wide = all.iter().find(|one| one.config.block()[1] > SCALE_BLOCK as u32).ok_or("no wide blocks")?;
    let call = setup.attention(&mut out, &mut logarithms).run_with(&stream, &wide.config);
    refused(call, "the configuration", "scales of blocks of 128 keys")?;
    let choice = setup.attention(&mut out, &mut logarithms).explain(&stream)?;
    assert_eq!(choice.config.block()[1], SCALE_BLOCK as u32);
    Ok(())
}

fn refused(result: ironwarp::Result<()>, argument: &str, says: &str) -> Outcome {
    let error = result.err().ok_or("accepted")?;
    let is_about = matches!(error, Error::InvalidArgument { argument: got, .. } if got == argument);
    assert!(is_about && error.to_string().contains(says), "{error}");
    Ok(())
}
