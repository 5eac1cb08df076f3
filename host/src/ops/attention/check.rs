//! Checks of the operands, and the problem that they make in plain numbers.

use attention::problem::MAX_LENGTH;

use crate::error::{Error, Result};
use crate::memory::same_length;
use crate::stream::Stream;
use crate::tensor::DType;

use super::OPERATION;
use super::heads::Heads;
use super::op::{Attention, Packed};
use super::problem::Problem;
use super::select::TABLE;

/// Longest row.
const MAX_HEAD_SIZE: usize = 256;
/// Elements of a row come in units of 16 bytes.
const HEAD_UNIT: usize = 8;
/// Tiles of queries of a launch: blocks of a grid, of which kernels with a tile a block have as many.
const MAX_TILES: u64 = i32::MAX as u64;

pub(super) fn invalid(argument: &'static str, got: String, wanted: String, hint: &'static str) -> Error {
    Error::InvalidArgument { operation: OPERATION, argument, got, wanted, hint }
}

/// No kernel stands at this place of a table of a score function.
pub(super) fn no_kernel(place: usize) -> Error {
    let got = format!("{place}, beyond the last");
    let hint = "the table of a function tells of its kernels, in their order";
    invalid("the kernel", got, "one of the table".to_owned(), hint)
}

/// As many blocks as a launch has along x; of what they are is for the error.
pub(super) fn blocks_of_grid(argument: &'static str, blocks: u64, of: &str) -> Result<u32> {
    u32::try_from(blocks).ok().filter(|&blocks| blocks <= i32::MAX as u32).ok_or_else(|| {
        let (got, wanted) = (format!("{blocks} blocks of {of}"), "fewer than 2^31 blocks".to_owned());
        invalid(argument, got, wanted, "split the batch and call once for each part")
    })
}

impl Attention<'_> {
    /// The operands fit together, and kernels can address them.
    pub(super) fn check(&self) -> Result<()> {
        self.check_types()?;
        self.check_sides()
    }

    /// The same but for types.
    pub(super) fn check_sides(&self) -> Result<()> {
        let out = self.out.view();
        let [batch, keys, kv_heads, _] = self.keys.sides();
        let [of_queries, rows, heads, size] = self.queries.sides();
        let value_size = self.values.sides()[3];
        check_head_size(size)?;
        check_value_size(value_size)?;
        expect_sides("the keys", &self.keys, [of_queries, keys, kv_heads, size])?;
        expect_sides("the values", &self.values, [batch, keys, kv_heads, value_size])?;
        expect_sides("the result", &out, [of_queries, rows, heads, value_size])?;
        check_groups(heads, kv_heads)?;
        check_scale(self.scale)?;
        self.queries.check("the queries")?;
        self.keys.check("the keys")?;
        self.values.check("the values")?;
        self.out.check("the result")?;
        if let Some(log_sum_exp) = &self.log_sum_exp {
            let wanted = of_queries.saturating_mul(rows).saturating_mul(heads);
            same_length(OPERATION, "the log-sum-exps", wanted, log_sum_exp.len())?;
        }
        if let Some(sinks) = self.sinks {
            same_length(OPERATION, "the sinks", heads, sinks.len())?;
        }
        check_packing(&self.queries, self.packed.as_ref())
    }

    /// In plain numbers.
    pub(super) fn describe(&self) -> Result<Problem> {
        let ([batch, rows, heads, size], [_, key_rows, kv_heads, _]) =
            (self.queries.sides(), self.keys.sides());
        let rows = [length("the queries", rows)?, length("the keys", key_rows)?];
        let sequences = sequences(batch, rows, self.packed.as_ref())?;
        let problem = Problem {
            dtype: self.queries.dtype(),
            batch: sequences.count,
            queries: sequences.longest[0],
            keys: sequences.longest[1],
            heads: count("the heads", heads)?,
            kv_heads: count("the heads of keys", kv_heads)?,
            head_size: size as u32,
            value_size: self.values.sides()[3] as u32,
            mask: self.mask,
            packed: self.packed.as_ref().map(|_| rows),
            log_sum_exp: self.log_sum_exp.is_some(),
        };
        check_tiles(&problem)?;
        Ok(problem)
    }

    /// All operands are on the stream's device.
    pub(super) fn check_devices(&self, stream: &Stream) -> Result<()> {
        stream.same_device("the queries", self.queries.device())?;
        stream.same_device("the keys", self.keys.device())?;
        stream.same_device("the values", self.values.device())?;
        stream.same_device("the result", self.out.device())?;
        if let Some(log_sum_exp) = &self.log_sum_exp {
            stream.same_device("the log-sum-exps", log_sum_exp.device())?;
        }
        if let Some(sinks) = self.sinks {
            stream.same_device("the sinks", sinks.device())?;
        }
        check_packed_devices(stream, self.packed.as_ref())
    }

    fn check_types(&self) -> Result<()> {
        let wanted = self.queries.dtype();
        if !matches!(wanted, DType::BF16 | DType::F16) {
            let hint = "convert it first (`to`); `quantized` takes e4m3 with scales";
            return Err(invalid("the queries", format!("of {wanted}"), "bf16 or f16".to_owned(), hint));
        }
        let others = [
            ("the keys", self.keys.dtype),
            ("the values", self.values.dtype),
            ("the result", self.out.dtype),
        ];
        match others.into_iter().find(|(_, dtype)| *dtype != wanted) {
            None => Ok(()),
            Some((argument, got)) => Err(invalid(
                argument,
                format!("of {got}"),
                format!("{wanted}, as the queries"),
                "queries, keys, values and result have one type: convert one with `to`",
            )),
        }
    }
}

impl Attention<'_> {
    /// Operands of e4m3, and a result of bf16.
    pub(super) fn check_quantized_types(&self) -> Result<()> {
        let types = [
            ("the queries", self.queries.dtype, DType::F8E4M3),
            ("the keys", self.keys.dtype, DType::F8E4M3),
            ("the values", self.values.dtype, DType::F8E4M3),
            ("the result", self.out.dtype, DType::BF16),
        ];
        match types.into_iter().find(|(_, got, wanted)| got != wanted) {
            None => Ok(()),
            Some((argument, got, wanted)) => Err(invalid(
                argument,
                format!("of {got}"),
                wanted.to_string(),
                "with scales, queries, keys and values are f8_e4m3 and the result is bf16; without them all are bf16 or f16",
            )),
        }
    }
}

/// Packed sequences lie in one matrix, and have as many numbers of queries as of keys.
pub(super) fn check_packing(queries: &Heads<'_>, packed: Option<&Packed<'_>>) -> Result<()> {
    let Some(packed) = packed else { return Ok(()) };
    if queries.sides()[0] != 1 {
        return Err(invalid(
            "the queries",
            format!("{:?}", queries.sides()),
            "[1, rows, heads, head size] for packed sequences".to_owned(),
            "packed sequences lie one behind the other in the rows of one matrix: `view_as` merges axes",
        ));
    }
    if packed.queries.is_empty() {
        return Err(invalid(
            "the first queries",
            "0 numbers".to_owned(),
            "one more than the sequences".to_owned(),
            "the last number is the end of the last sequence",
        ));
    }
    same_length(OPERATION, "the first keys", packed.queries.len(), packed.keys.len())
}

/// The numbers of packed sequences are on the stream's device.
pub(super) fn check_packed_devices(stream: &Stream, packed: Option<&Packed<'_>>) -> Result<()> {
    let Some(packed) = packed else { return Ok(()) };
    stream.same_device("the first queries", packed.queries.device())?;
    stream.same_device("the first keys", packed.keys.device())
}

/// Sequences, and the queries and keys of the longest ones.
pub(super) struct Sequences {
    pub count: u32,
    pub longest: [u32; 2],
}

/// The sequences of a batch with so many rows of queries and of keys, once they are checked.
pub(super) fn sequences(batch: usize, rows: [u32; 2], packed: Option<&Packed<'_>>) -> Result<Sequences> {
    let Some(packed) = packed else {
        return Ok(Sequences { count: count("the batch", batch)?, longest: rows });
    };
    let longest = [
        length("the longest sequence of queries", packed.longest[0])?,
        length("the longest sequence of keys", packed.longest[1])?,
    ];
    // No sequence is longer than all of them.
    let longest = [longest[0].min(rows[0]), longest[1].min(rows[1])];
    Ok(Sequences { count: count("the sequences", packed.queries.len() - 1)?, longest })
}

pub(super) fn check_scale(scale: Option<f32>) -> Result<()> {
    match scale {
        Some(scale) if !(scale.is_finite() && scale > 0.0) => Err(invalid(
            "the scale",
            scale.to_string(),
            "a positive finite number".to_owned(),
            "the usual one is 1 / sqrt(head size), which no scale gives",
        )),
        _ => Ok(()),
    }
}

pub(super) fn check_head_size(size: usize) -> Result<()> {
    let hints = SizeHints {
        none: "rows of zeros stand for rows without elements: every score is 0",
        between: "fill rows up with zeros, which change no score, and give the scale of the true size",
        beyond: "compose attention of longer rows of `matmul` and `softmax`",
    };
    check_size("the head size", size, hints)
}

/// The head size of values and results.
pub(super) fn check_value_size(size: usize) -> Result<()> {
    let hints = SizeHints {
        none: "values without columns have no result: leave the call out",
        between: "fill rows of values up with zeros, and leave the results' last columns out",
        beyond: "call once for each part of the columns of the values, with views",
    };
    check_size("the head size of the values", size, hints)
}

/// How to mend a size that no kernel has.
struct SizeHints {
    /// Of 0.
    none: &'static str,
    /// Of one that is no multiple of the unit.
    between: &'static str,
    /// Of one beyond the largest.
    beyond: &'static str,
}

fn check_size(argument: &'static str, size: usize, hints: SizeHints) -> Result<()> {
    let hint = match size {
        0 => hints.none,
        1..=MAX_HEAD_SIZE if size.is_multiple_of(HEAD_UNIT) => return Ok(()),
        1..=MAX_HEAD_SIZE => hints.between,
        _ => hints.beyond,
    };
    let wanted = format!("a multiple of {HEAD_UNIT} from {HEAD_UNIT} to {MAX_HEAD_SIZE}");
    Err(invalid(argument, size.to_string(), wanted, hint))
}

pub(super) fn expect_sides(argument: &'static str, operand: &Heads<'_>, wanted: [usize; 4]) -> Result<()> {
    if operand.sides() == wanted {
        return Ok(());
    }
    Err(invalid(
        argument,
        format!("{:?}", operand.sides()),
        format!("{wanted:?}"),
        "shapes are [batch, rows, heads, head size]. Keys have the queries' head size. Values have the keys' rows and heads, the result the queries'. Values and result share a head size: on Hopper, in `Attention` and `Backward`, it may be another one. `heads_first` is for [batch, heads, rows, head size]",
    ))
}

pub(super) fn check_groups(heads: usize, kv_heads: usize) -> Result<()> {
    if heads == 0 || heads.checked_rem(kv_heads) == Some(0) {
        return Ok(());
    }
    Err(invalid(
        "the heads of the queries",
        heads.to_string(),
        format!("a multiple of the keys' {kv_heads}"),
        "each head of keys serves a group of as many heads of queries as the next",
    ))
}

pub(super) fn length(argument: &'static str, rows: usize) -> Result<u32> {
    match u32::try_from(rows) {
        Ok(length) if length <= MAX_LENGTH => Ok(length),
        _ => Err(invalid(
            argument,
            format!("{rows} rows"),
            format!("at most {MAX_LENGTH}"),
            "split the sequence, and join results by their log-sum-exps",
        )),
    }
}

pub(super) fn count(argument: &'static str, places: usize) -> Result<u32> {
    u32::try_from(places).map_err(|_| {
        let hint = "split that axis and call once for each part";
        invalid(argument, places.to_string(), format!("at most {}", u32::MAX), hint)
    })
}

/// The tiles of queries can be counted, whichever kernel cuts them.
fn check_tiles(problem: &Problem) -> Result<()> {
    let least = TABLE.iter().map(|entry| entry.block[0]).min().unwrap_or(1);
    let heads = u64::from(problem.batch).saturating_mul(problem.heads.into());
    let tiles = heads.saturating_mul(problem.queries.div_ceil(least).into());
    if tiles <= MAX_TILES && heads <= MAX_TILES {
        return Ok(());
    }
    Err(invalid(
        "the problem",
        format!("{tiles} tiles of {least} queries"),
        format!("at most {MAX_TILES}"),
        "split the batch and call once for each part",
    ))
}
