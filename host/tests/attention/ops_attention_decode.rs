//! Decode attention against the oracle of `reference`: lengths, pages, cuts, masks, and wrong calls.

use crate::attention_case::{Number, Outcome, device};
use half::{bf16, f16};
use ironwarp::ops::attention::{Decode, DecodePlan, Heads, HeadsMut, Mask, Pages};
use ironwarp::{DType, DeviceBuffer, Error, Stream};
use reference::attention::{Attended, Band, Cache, Rows, Sides, decode as oracle};
use testkit::{Family, bitwise_equal, compare, input, tolerance};

#[derive(Debug, Clone, Copy)]
struct Case {
    family: Family,
    seed: u64,
    /// Keys of each sequence.
    lengths: &'static [usize],
    /// Whether the kernels are told the lengths; else all are the same.
    tells_lengths: bool,
    queries: usize,
    heads: usize,
    kv_heads: usize,
    size: usize,
    /// Keys of a page, of a cache in pages.
    page: Option<usize>,
    left: Option<u32>,
    right: Option<u32>,
    scale: Option<f32>,
    /// Blocks of the pass; else as many as the op wants.
    blocks: Option<u32>,
}

const PLAIN: Case = Case {
    family: Family::Normal,
    seed: 1,
    lengths: &[100],
    tells_lengths: true,
    queries: 1,
    heads: 4,
    kv_heads: 2,
    size: 64,
    page: None,
    left: None,
    right: None,
    scale: None,
    blocks: None,
};

/// Pages that no sequence has, and that lie between the others.
const SPARE_PAGES: usize = 2;
/// Keys of the longest sequence's matrix that it does not have.
const SPARE_KEYS: usize = 3;

/// Operands on the host. What no sequence has is no number.
struct Operands<T> {
    queries: Vec<T>,
    cache: [Vec<T>; 2],
    /// Sides of the cache.
    sides: [usize; 4],
    table: Vec<i32>,
    /// Numbers of a sequence in the table.
    each: usize,
}

impl<T: Number> Operands<T> {
    fn new(case: &Case) -> Self {
        let Case { lengths, queries, heads, kv_heads, size, family, seed, .. } = *case;
        let longest = lengths.iter().copied().max().unwrap_or_default();
        let (sides, each) = match case.page {
            None => {
                let spare = if case.tells_lengths { SPARE_KEYS } else { 0 };
                ([lengths.len(), longest + spare, kv_heads, size], 0)
            }
            Some(page) => {
                let each = longest.div_ceil(page) + 1;
                ([lengths.len() * each + SPARE_PAGES, page, kv_heads, size], each)
            }
        };
        // Pages in an order of their own: a stride that has no divisor in common with their number.
        let pages = sides[0].max(1);
        let step = (1..=7).rev().find(|step| (1..=*step).all(|d| d == 1 || step % d != 0 || pages % d != 0));
        let step = step.unwrap_or(1);
        let table: Vec<i32> = (0..lengths.len() * each).map(|at| (at * step % pages) as i32).collect();
        let row = kv_heads * size;
        let cache = [1, 2].map(|operand| {
            let mut data = vec![T::from_f64(f64::NAN); sides.iter().product()];
            for (sequence, &length) in lengths.iter().enumerate() {
                let values: Vec<T> = input(family, seed + operand + 16 * sequence as u64, length * row);
                for (key, values) in values.chunks(row.max(1)).enumerate() {
                    let place = match case.page {
                        None => sequence * sides[1] + key,
                        Some(page) => table[sequence * each + key / page] as usize * page + key % page,
                    };
                    data[place * row..(place + 1) * row].copy_from_slice(values);
                }
            }
            data
        });
        Operands {
            queries: input(family, seed, lengths.len() * queries * heads * size),
            cache,
            sides,
            table,
            each,
        }
    }
}

/// Operands, lengths and results on the device.
struct Setup<T> {
    case: Case,
    operands: Operands<T>,
    queries: DeviceBuffer<T>,
    cache: [DeviceBuffer<T>; 2],
    table: DeviceBuffer<i32>,
    lengths: DeviceBuffer<i32>,
    out: DeviceBuffer<T>,
    logarithms: DeviceBuffer<f32>,
}

impl<T: Number> Setup<T> {
    fn new(case: &Case, stream: &Stream) -> Outcome<Self> {
        let operands = Operands::new(case);
        let lengths: Vec<i32> = case.lengths.iter().map(|&length| length as i32).collect();
        let rows = case.lengths.len() * case.queries * case.heads;
        Ok(Setup {
            case: *case,
            queries: DeviceBuffer::from_slice(stream, &operands.queries)?,
            cache: [
                DeviceBuffer::from_slice(stream, &operands.cache[0])?,
                DeviceBuffer::from_slice(stream, &operands.cache[1])?,
            ],
            table: DeviceBuffer::from_slice(stream, &operands.table)?,
            lengths: DeviceBuffer::from_slice(stream, &lengths)?,
            out: DeviceBuffer::from_slice(stream, &vec![T::from_f64(f64::NAN); rows * case.size])?,
            logarithms: DeviceBuffer::from_slice(stream, &vec![f32::NAN; rows])?,
            operands,
        })
    }

    fn decode(&mut self) -> Decode<'_> {
        let Case { queries, heads, size, .. } = self.case;
        let sides = [self.case.lengths.len(), queries, heads, size];
        let heads = |buffer| Heads::new::<T>(buffer, self.operands.sides);
        let (keys, values) = (heads(&self.cache[0]), heads(&self.cache[1]));
        let mut decode =
            Decode::new(Heads::new(&self.queries, sides), keys, values, HeadsMut::new(&mut self.out, sides))
                .mask(Mask::window(self.case.left, self.case.right))
                .log_sum_exp(&mut self.logarithms);
        if self.case.page.is_some() {
            decode = decode.pages(Pages::new(&self.table, self.operands.each));
        }
        if self.case.tells_lengths {
            decode = decode.lengths(&self.lengths);
        }
        match self.case.scale {
            Some(scale) => decode.scale(scale),
            None => decode,
        }
    }

    fn run(&mut self, stream: &Stream) -> Outcome<DecodePlan> {
        let plan = self.decode().explain(stream)?;
        let plan = self.case.blocks.map_or(plan, |blocks| plan.with_blocks(blocks));
        self.decode().run_with(stream, &plan)?;
        Ok(plan)
    }

    fn oracle(&self) -> Attended {
        let Case { lengths, queries, heads, kv_heads, size, left, right, scale, .. } = self.case;
        let Operands { sides: [count, page, ..], each, .. } = self.operands;
        let sides = Sides { batch: lengths.len(), queries, keys: 0, heads, kv_heads, size };
        let rows = |data, rows: usize, heads: usize| Rows {
            data,
            strides: [rows * heads * size, heads * size, size],
        };
        let [keys, values] = &self.operands.cache;
        let operands = [
            rows(&self.operands.queries[..], queries, heads),
            rows(keys, page, kv_heads),
            rows(values, page, kv_heads),
        ];
        let cache = match self.case.page {
            None => Cache::Matrices,
            Some(size) => Cache::Pages { table: &self.operands.table, each, size, count },
        };
        let band = Band { left: left.map(i64::from), right: right.map(i64::from), top_left: false };
        let scale = f64::from(scale.unwrap_or(1.0 / (size as f32).sqrt()));
        oracle(sides, operands, cache, lengths, band, scale)
    }

    fn compare(&self, stream: &Stream, plan: &DecodePlan) -> Outcome {
        let Case { lengths, queries, heads, size, .. } = self.case;
        let want = self.oracle();
        let what = format!("{plan}: {:?}", self.case);
        let row = if T::DTYPE == DType::BF16 { tolerance::ATTENTION_BF16 } else { tolerance::ATTENTION_F16 };
        let (got, shape) = (self.out.to_vec(stream)?, [lengths.len(), queries, heads, size]);
        compare::rounded(&what, &got, &want.value, &want.magnitude, &shape, row.tolerance())?;
        let (got, shape) = (self.logarithms.to_vec(stream)?, [lengths.len(), heads, queries]);
        let limit = tolerance::ATTENTION_LSE.for_terms(size);
        let (value, magnitude) = (&want.log_sum_exp, &want.log_sum_exp_magnitude);
        compare::accumulated(&format!("{what}, lse"), &got, value, magnitude, &shape, limit)?;
        Ok(())
    }
}

/// Whether the device has kernels; else the test is skipped.
fn is_able() -> Outcome<bool> {
    let device = device()?;
    let is_able = device.arch().major >= 9;
    if !is_able {
        testkit::skip(&format!("{} has no kernel for every head size", device.name()));
    }
    Ok(is_able)
}

impl Case {
    /// The results are the oracle's.
    fn check<T: Number>(&self) -> Outcome {
        if !is_able()? {
            return Ok(());
        }
        let stream = device()?.stream()?;
        let mut setup = Setup::<T>::new(self, &stream)?;
        let plan = setup.run(&stream)?;
        setup.compare(&stream, &plan)
    }
}

#[test]
fn one_query_of_every_head_size() -> Outcome {
    for size in [64, 128, 256] {
        Case { size, ..PLAIN }.check::<bf16>()?;
        Case { size, lengths: &[65, 1], ..PLAIN }.check::<f16>()?;
    }
    for size in [8, 56, 72, 136, 248] {
        Case { size, lengths: &[37], ..PLAIN }.check::<bf16>()?;
    }
    Ok(())
}
