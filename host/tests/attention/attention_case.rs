//! Attention with its oracle: what the tests share.

use crate::refusal::subject;
use bytemuck::Pod;
use ironwarp::ops::attention::{Attention, Config, Heads, HeadsMut, Mask, Packed, Problem, candidates};
use ironwarp::tensor::{DType, Element as TensorElement};
use ironwarp::{Device, DeviceBuffer, Error, Stream};
use reference::attention::{Attended, Band, Rows, Sides, attention_weighted, attention_with};
use std::error::Error as StdError;
use std::sync::OnceLock;
use testkit::{Element, Family, compare, input, tolerance};

pub type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

/// An element type of operands.
pub trait Number: Element + TensorElement + Pod + Into<f64> {}
impl<T: Element + TensorElement + Pod + Into<f64>> Number for T {}

/// How the axes of an operand lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// `[batch, rows, heads, d]`.
    Rows,
    /// `[batch, heads, rows, d]`.
    Heads,
    /// The middle one of `[batch, rows, 3, heads, d]`.
    OfThree,
    /// Heads and rows with gaps of 8 elements between them.
    Gaps,
}

/// Sequences packed behind each other: queries and keys of each. Rows that belong to none lie before the
/// first one, and behind the last one.
pub type Lengths = &'static [[usize; 2]];
/// Rows before the first packed sequence, and behind the last one.
const OUTSIDE: usize = 3;

#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub family: Family,
    pub seed: u64,
    pub batch: usize,
    pub queries: usize,
    pub keys: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub size: usize,
    /// Head size of values and results, if it is another.
    pub value_size: Option<usize>,
    pub left: Option<u32>,
    pub right: Option<u32>,
    pub top_left: bool,
    pub scale: Option<f32>,
    /// Of queries, keys, values and the result.
    pub lies: [Lie; 4],
    /// In place of the batch, and the numbers of queries and keys.
    pub packed: Option<Lengths>,
    /// Queries and keys of the longest packed sequence as they are told, where that is wrong: rows behind
    /// hold no numbers, and get no results.
    pub told: Option<[usize; 2]>,
    pub log_sum_exp: bool,
    /// Which configurations.
    pub kernels: fn(&Config) -> bool,
}

pub const PLAIN: Case = Case {
    family: Family::Normal,
    seed: 1,
    batch: 1,
    queries: 1,
    keys: 1,
    heads: 1,
    kv_heads: 1,
    size: 64,
    value_size: None,
    left: None,
    right: None,
    top_left: false,
    scale: None,
    lies: [Lie::Rows; 4],
    packed: None,
    told: None,
    log_sum_exp: true,
    kernels: |_| true,
};

/// An operand on the host: `[batch, rows, heads, d]`, with what is no number between its elements.
pub struct Operand<T> {
    data: Vec<T>,
    sides: [usize; 4],
    strides: [usize; 3],
    skip: usize,
}

impl<T: Number> Operand<T> {
    fn new(lie: Lie, sides: [usize; 4]) -> Self {
        let [batch, rows, heads, size] = sides;
        let (strides, skip) = match lie {
            Lie::Rows => ([rows * heads * size, heads * size, size], 0),
            Lie::Heads => ([rows * heads * size, size, rows * size], 0),
            Lie::OfThree => ([rows * 3 * heads * size, 3 * heads * size, size], heads * size),
            Lie::Gaps => {
                let row = heads * (size + 8) + 8;
                ([rows * row + 8, row, size + 8], 8)
            }
        };
        let len = skip + batch * strides[0].max(rows * strides[1]);
        Operand { data: vec![T::from_f64(f64::NAN); len], sides, strides, skip }
    }

    /// With these elements in rows of `range`, the others as they are.
    fn fill(&mut self, values: &[T], range: std::ops::Range<usize>) {
        let places: Vec<_> = self.places().filter(|([_, row, ..], _)| range.contains(row)).collect();
        for ((_, place), value) in places.into_iter().zip(values) {
            self.data[place] = *value;
        }
    }

    /// Elements of a row.
    fn row(&self) -> usize {
        self.sides[2] * self.sides[3]
    }

    /// The elements' indices and places, in order.
    fn places(&self) -> impl Iterator<Item = ([usize; 4], usize)> + use<T> {
        let ([batch, rows, heads, size], [matrix, row, head], skip) = (self.sides, self.strides, self.skip);
        (0..batch * rows * heads * size).map(move |at| {
            let index =
                [at / (rows * heads * size), at / (heads * size) % rows, at / size % heads, at % size];
            (index, skip + index[0] * matrix + index[1] * row + index[2] * head + index[3])
        })
    }

    fn rows(&self, first: usize) -> Rows<'_, T> {
        let data = self.data.get(self.skip + first * self.strides[1]..).unwrap_or_default();
        Rows { data, strides: self.strides }
    }

    /// The same elements without gaps, in rows that zeros fill up to this size.
    fn filled_up(&self, size: usize) -> Operand<T> {
        let [batch, rows, heads, own] = self.sides;
        let elements: Vec<T> = self.places().map(|(_, place)| self.data[place]).collect();
        let data = filled_up(&elements, own, size);
        let strides = [rows * heads * size, heads * size, size];
        Operand { data, sides: [batch, rows, heads, size], strides, skip: 0 }
    }

    fn heads<'a>(&self, buffer: &'a DeviceBuffer<T>) -> ironwarp::Result<Heads<'a>> {
        Ok(Heads::new::<T>(buffer.slice(self.skip..)?, self.sides).strides(self.strides))
    }

    fn heads_mut<'a>(&self, buffer: &'a mut DeviceBuffer<T>) -> ironwarp::Result<HeadsMut<'a>> {
        Ok(HeadsMut::new::<T>(buffer.slice_mut(self.skip..)?, self.sides).strides(self.strides))
    }
}

/// Rows of `size` elements, of which zeros fill up each.
pub fn filled_up<T: Number>(rows: &[T], own: usize, size: usize) -> Vec<T> {
    let zeros = vec![T::from_f64(0.0); size - own];
    rows.chunks(own.max(1)).flat_map(|row| row.iter().chain(&zeros)).copied().collect()
}

/// The first elements of each row of `size`.
pub fn cut(rows: &[f64], size: usize, own: usize) -> Vec<f64> {
    rows.chunks(size.max(1)).flat_map(|row| &row[..own]).copied().collect()
}

/// The device, open as long as the program runs.
pub fn device() -> ironwarp::Result<Device> {
    static OPEN: OnceLock<Device> = OnceLock::new();
    match OPEN.get() {
        Some(device) => Ok(device.clone()),
        None => {
            let device = Device::open(0)?;
            Ok(OPEN.get_or_init(|| device).clone())
        }
    }
}

/// Whether the device has kernels without a score function; else the test is skipped.
pub fn has_plain() -> Outcome<bool> {
    let device = device()?;
    let has_some = device.arch().major >= 8;
    if !has_some {
        testkit::skip(&format!("{} is older than Ampere", device.name()));
    }
    Ok(has_some)
}

/// Whether the device has all kernels; else the test is skipped.
pub fn is_hopper() -> Outcome<bool> {
    let device = device()?;
    let is_hopper = device.arch().is_hopper();
    if !is_hopper {
        testkit::skip(&format!("{} is no Hopper", device.name()));
    }
    Ok(is_hopper)
}

/// A case's operands, on the host and on the device.
pub struct Setup<T> {
    case: Case,
    operands: [Operand<T>; 4],
    buffers: [DeviceBuffer<T>; 3],
    /// First queries and first keys of packed sequences.
    first: [DeviceBuffer<i32>; 2],
}

impl<T: Number> Setup<T> {
    pub fn new(case: &Case, stream: &Stream) -> Outcome<Self> {
        let Case { family, seed, heads, kv_heads, size, lies, .. } = *case;
        let value_size = case.value_size();
        let firsts = case.first_rows();
        let outside = if case.packed.is_some() { OUTSIDE } else { 0 };
        let ends = [0, 1].map(|side| firsts[side].last().copied().unwrap_or_default());
        let batch = if case.packed.is_some() { 1 } else { case.batch };
        let [q, k] =
            if case.packed.is_some() { ends.map(|end| end + outside) } else { [case.queries, case.keys] };
        let sides =
            [(q, heads, size), (k, kv_heads, size), (k, kv_heads, value_size), (q, heads, value_size)];
        let mut at = 0;
        let mut operands = sides.map(|(rows, heads, size)| {
            at += 1;
            Operand::new(lies[at - 1], [batch, rows, heads, size])
        });
        for (index, operand) in operands.iter_mut().take(3).enumerate() {
            let [batch, rows, heads, size] = operand.sides;
            let inside = outside..rows - outside;
            let values = input(family, seed + index as u64, batch * inside.len() * heads * size);
            operand.fill(&values, inside);
            let side = index.min(1);
            for (first, lengths) in firsts[side].iter().zip(case.packed.unwrap_or_default()) {
                let behind = first + case.counted(*lengths)[side]..first + lengths[side];
                operand.fill(&vec![T::from_f64(f64::NAN); behind.len() * operand.row()], behind);
            }
        }
        let upload = |operand: &Operand<T>| DeviceBuffer::from_slice(stream, &operand.data);
        let buffers = [upload(&operands[0])?, upload(&operands[1])?, upload(&operands[2])?];
        let numbers = |rows: &[usize]| -> Vec<i32> { rows.iter().map(|&row| row as i32).collect() };
        let first = [
            DeviceBuffer::from_slice(stream, &numbers(&firsts[0]))?,
            DeviceBuffer::from_slice(stream, &numbers(&firsts[1]))?,
        ];
        Ok(Setup { case: *case, operands, buffers, first })
    }

    /// With results where it is told.
    pub fn attention<'a>(
        &'a self,
        out: &'a mut DeviceBuffer<T>,
        logarithms: &'a mut DeviceBuffer<f32>,
    ) -> ironwarp::Result<Attention<'a>> {
        let [q, k, v, o] = &self.operands;
        let (q, k, v) = (q.heads(&self.buffers[0])?, k.heads(&self.buffers[1])?, v.heads(&self.buffers[2])?);
        let attention = Attention::new(q, k, v, o.heads_mut(out)?).mask(self.case.mask());
        let attention = match self.case.scale {
            Some(scale) => attention.scale(scale),
            None => attention,
        };
        let attention = if self.case.log_sum_exp { attention.log_sum_exp(logarithms) } else { attention };
        Ok(match self.case.packed {
            Some(lengths) => {
                let most =
                    |side: usize| lengths.iter().map(|lengths| lengths[side]).max().unwrap_or_default();
                let [queries, keys] = self.case.told.unwrap_or([most(0), most(1)]);
                attention.packed(Packed::new(&self.first[0], &self.first[1], queries, keys))
            }
            None => attention,
        })
    }

    /// The exact results of each sequence, with its first query and its number of queries; of a batch as one.
    pub fn oracle(&self) -> Vec<(usize, usize, Attended)> {
        self.oracle_with(|score, _| Some(score))
    }

    /// The same with the scores that `modify` gives; see [`attention_with`].
    pub fn oracle_with(
        &self,
        modify: impl Fn(f64, [usize; 4]) -> Option<f64> + Sync,
    ) -> Vec<(usize, usize, Attended)> {
        self.oracle_of(|_, sides, rows, band, scale| attention_with(sides, rows, band, scale, &modify))
    }

    /// The same with weights that are multiplied by `factor`; see [`attention_weighted`]. Packed sequences
    /// are those of a batch.
    pub fn oracle_weighted(
        &self,
        factor: impl Fn([usize; 4]) -> f64 + Sync,
    ) -> Vec<(usize, usize, Attended)> {
        self.oracle_of(|first, sides, rows, band, scale| {
            let factor =
                |[sequence, head, query, key]: [usize; 4]| factor([first + sequence, head, query, key]);
            attention_weighted(sides, rows, band, scale, factor)
        })
    }

    /// The same by this oracle, which gets the number of the first sequence.
    fn oracle_of(
        &self,
        oracle: impl Fn(usize, Sides, [Rows<'_, T>; 3], Band, f64) -> Attended,
    ) -> Vec<(usize, usize, Attended)> {
        let Case { batch, queries, keys, heads, kv_heads, size, .. } = self.case;
        // Zeros change no score. The oracle has one size.
        let value_size = self.case.value_size();
        let size = size.max(value_size);
        let filled_up = |at: usize| self.operands[at].filled_up(size);
        let [q, k, v] = [filled_up(0), filled_up(1), filled_up(2)];
        let of = |first, batch, [queries, keys]: [usize; 2], [first_query, first_key]: [usize; 2]| {
            let sides = Sides { batch, queries, keys, heads, kv_heads, size };
            let rows = [q.rows(first_query), k.rows(first_key), v.rows(first_key)];
            let (band, scale) = (self.case.band(), self.case.exact_scale());
            let mut want = oracle(first, sides, rows, band, scale);
            want.value = cut(&want.value, size, value_size);
            want.magnitude = cut(&want.magnitude, size, value_size);
            (first_query, queries, want)
        };
        match self.case.packed {
            None => vec![of(0, batch, [queries, keys], [0, 0])],
            Some(lengths) => {
                let [queries, keys] = self.case.first_rows();
                lengths
                    .iter()
                    .zip(queries.into_iter().zip(keys))
                    .enumerate()
                    .map(|(first, (&lengths, (query, key)))| {
                        of(first, 1, self.case.counted(lengths), [query, key])
                    })
                    .collect()
            }
        }
    }

    /// Results that are no numbers yet: O, and the log-sum-exps.
    pub fn fresh(&self, stream: &Stream) -> ironwarp::Result<(DeviceBuffer<T>, DeviceBuffer<f32>)> {
        let [batch, rows, heads, _] = self.operands[3].sides;
        Ok((
            DeviceBuffer::from_slice(stream, &self.operands[3].data)?,
            DeviceBuffer::from_slice(stream, &vec![f32::NAN; batch * rows * heads])?,
        ))
    }

    /// The results are the oracle's, and all else in both buffers is what it was: no number.
    pub fn compare(
        &self,
        want: &[(usize, usize, Attended)],
        got: &[T],
        logarithms: &[f32],
        what: &str,
    ) -> Outcome {
        let out = &self.operands[3];
        let [batch, all_rows, heads, size] = out.sides;
        let (mut rest, mut rest_of_logarithms) = (got.to_vec(), logarithms.to_vec());
        let nan = T::from_f64(f64::NAN);
        for (first, rows, want) in want {
            let inside = *first..first + rows;
            let places: Vec<usize> = out
                .places()
                .filter(|([_, row, ..], _)| inside.contains(row))
                .map(|(_, place)| place)
                .collect();
            let elements: Vec<T> = places.iter().map(|&place| got[place]).collect();
            places.iter().for_each(|&place| rest[place] = nan);
            let shape = [batch, *rows, heads, size];
            let row =
                if T::DTYPE == DType::BF16 { tolerance::ATTENTION_BF16 } else { tolerance::ATTENTION_F16 };
            compare::rounded(what, &elements, &want.value, &want.magnitude, &shape, row.tolerance())?;
            let places: Vec<usize> = (0..batch * heads)
                .flat_map(|head| (inside.clone()).map(move |row| head * all_rows + row))
                .collect();
            let logs: Vec<f32> = places.iter().map(|&place| logarithms[place]).collect();
            places.iter().for_each(|&place| rest_of_logarithms[place] = f32::NAN);
            if self.case.log_sum_exp {
                let terms = self.case.size;
                let (shape, tolerance) = ([batch, heads, *rows], tolerance::ATTENTION_LSE.for_terms(terms));
                let (value, magnitude) = (&want.log_sum_exp, &want.log_sum_exp_magnitude);
                compare::accumulated(&format!("{what}, lse"), &logs, value, magnitude, &shape, tolerance)?;
            }
        }
        let kept = rest.iter().all(|value| value.to_f64().is_nan());
        assert!(kept, "{what}: wrote outside of the result");
        assert!(
            rest_of_logarithms.iter().all(|value| value.is_nan()),
            "{what}: wrote outside of the log-sum-exps"
        );
        Ok(())
    }
}

impl Case {
    pub fn mask(&self) -> Mask {
        let mask = Mask::window(self.left, self.right);
        if self.top_left { mask.from_top_left() } else { mask }
    }

    /// Head size of values and results.
    pub fn value_size(&self) -> usize {
        self.value_size.unwrap_or(self.size)
    }

    fn band(&self) -> Band {
        Band { left: self.left.map(i64::from), right: self.right.map(i64::from), top_left: self.top_left }
    }

    /// The factor that the kernel is given.
    fn exact_scale(&self) -> f64 {
        f64::from(self.scale.unwrap_or(1.0 / (self.size as f32).sqrt()))
    }

    /// Queries and keys of a packed sequence that count.
    fn counted(&self, lengths: [usize; 2]) -> [usize; 2] {
        let told = self.told.unwrap_or(lengths);
        [0, 1].map(|side| lengths[side].min(told[side]))
    }

    /// First rows of packed queries and keys, and the ends of the last ones.
    fn first_rows(&self) -> [Vec<usize>; 2] {
        [0, 1].map(|side| {
            let mut rows = vec![OUTSIDE];
            for lengths in self.packed.unwrap_or_default() {
                rows.push(rows[rows.len() - 1] + lengths[side]);
            }
            rows
        })
    }

    /// Every configuration that can do the case does it, is compared with the oracle, and leaves what lies
    /// between the results alone. There is at least one; of those that a case names, on a Hopper. Elsewhere
    /// values of another size are refused.
    pub fn check<T: Number>(&self) -> Outcome {
        if !has_plain()? {
            return Ok(());
        }
        let device = device()?;
        let stream = device.stream()?;
        let setup = Setup::<T>::new(self, &stream)?;
        let (mut out, mut logarithms) = setup.fresh(&stream)?;
        let is_hopper = device.arch().is_hopper();
        if self.value_size() != self.size && !is_hopper {
            let refused = setup.attention(&mut out, &mut logarithms)?.run(&stream);
            assert_eq!(about(&refused.expect_err("values of another size")), "the problem");
            return Ok(());
        }
        let want = setup.oracle();
        let problem: Problem = setup.attention(&mut out, &mut logarithms)?.problem()?;
        let candidates = candidates(&problem, &device);
        assert!(!candidates.is_empty() || problem.dtype == DType::F8E4M3, "no kernel for {problem}");
        let configs = candidates.into_iter().map(|candidate| candidate.config);
        let mut ran = 0;
        for config in configs.filter(self.kernels) {
            let (mut out, mut logarithms) = setup.fresh(&stream)?;
            setup.attention(&mut out, &mut logarithms)?.run_with(&stream, &config)?;
            let what = format!("{problem} by {config}: {self:?}");
            setup.compare(&want, &out.to_vec(&stream)?, &logarithms.to_vec(&stream)?, &what)?;
            ran += 1;
        }
        assert!(ran > 0 || !is_hopper, "none of the kernels for {problem}");
        Ok(())
    }
}

/// The subject of an error that says everything.
pub fn about(error: &Error) -> &'static str {
    subject(error, "attention")
}
