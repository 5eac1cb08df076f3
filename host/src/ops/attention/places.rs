//! The score functions of the family with their arguments, checked against the places of a problem.

use attention::dropout::{Dropout, DropoutArgs};
use attention::functions::{
    Alibi, AlibiArgs, Bias, BiasArgs, BlockSparse, BlockSparseArgs, Pattern, PatternArgs, Ranges, RangesArgs,
    SoftCap, SoftCapArgs,
};
use cuda_std::kernel::StructArgs;

use primitives::dropout::Rate;

use crate::error::{Error, Result};
use crate::memory::{DeviceView, same_length};

use crate::ops::dropout::{Generator, check_probability};

use super::OPERATION;
use super::check::{count, invalid};
use super::heads::Heads;

/// The slopes of [`Alibi`].
pub type AlibiValues<'s> = (DeviceView<'s, f32>, ());
/// The cap of a [`SoftCap`], and one over it.
pub type SoftCapValues = (f32, (f32, ()));
/// The values of a [`Pattern`], with slopes or without.
pub type PatternValues<A> = (StructArgs<Alibi, A>, (StructArgs<SoftCap, SoftCapValues>, ()));
/// Slopes that there are not.
pub type NoSlopes = (Option<DeviceView<'static, f32>>, ());
/// The elements of a [`Bias`], and their strides.
pub type BiasValues<'s> = (DeviceView<'s, f32>, (u64, (u64, (u64, ()))));
/// Four numbers a query for [`Ranges`], and a stride.
pub type RangesValues<'s> = (DeviceView<'s, [u32; 4]>, (u64, ()));
/// The layout of [`BlockSparse`], two sides and a stride.
pub type BlockSparseValues<'s> = (DeviceView<'s, u8>, (u32, (u32, (u64, ()))));

/// The state of a generator, the call, the heads, and what is kept by [`Dropout`].
pub type DropoutValues<'s> = (DeviceView<'s, u64>, (u32, (u32, (u32, (f32, ())))));

/// The places of a problem's scores. The functions that it makes read no memory beyond their arguments for
/// any of them.
pub(super) struct Places {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    is_packed: bool,
}

impl Places {
    pub(super) fn new(queries: &Heads<'_>, keys: &Heads<'_>, is_packed: bool) -> Self {
        let ([batch, rows, heads, _], keys) = (queries.sides(), keys.sides()[1]);
        Places { batch, heads, queries: rows, keys, is_packed }
    }

    /// A slope for each head.
    pub(super) fn alibi<'s>(
        &self,
        slopes: DeviceView<'s, f32>,
    ) -> Result<StructArgs<Alibi, AlibiValues<'s>>> {
        same_length(OPERATION, "the slopes", self.heads, slopes.len())?;
        Ok(AlibiArgs { slopes }.pass())
    }

    /// A number for each place.
    pub(super) fn bias<'s>(
        &self,
        bias: DeviceView<'s, f32>,
        sides: [usize; 4],
    ) -> Result<StructArgs<Bias, BiasValues<'s>>> {
        self.refuse_packed("the bias")?;
        let Places { batch, heads, queries, keys, .. } = *self;
        if !self.share([sides[0], sides[1]]) || sides[2..] != [queries, keys] {
            return Err(invalid(
                "the bias",
                format!("{sides:?}"),
                format!("[{batch} or 1, {heads} or 1, {queries}, {keys}]"),
                "its sides are [batch, heads, queries, keys]",
            ));
        }
        same_length(OPERATION, "the bias", product(&sides), bias.len())?;
        let [matrix, head] = steps([sides[0], sides[1]], queries.saturating_mul(keys));
        Ok(BiasArgs { data: bias, row: keys as u64, head, matrix }.pass())
    }

    /// A number for each distance of a key from its query.
    pub(super) fn relative_bias<'s>(
        &self,
        table: DeviceView<'s, f32>,
        sides: [usize; 3],
    ) -> Result<StructArgs<Bias, BiasValues<'s>>> {
        self.refuse_packed("the bias")?;
        let Places { batch, heads, queries, keys, .. } = *self;
        let of_head = distances(queries, keys);
        if !self.share([sides[0], sides[1]]) || sides[2] != of_head {
            return Err(invalid(
                "the bias",
                format!("{sides:?}"),
                format!("[{batch} or 1, {heads} or 1, {of_head}]"),
                "its sides are [batch, heads, distances], of which there are queries + keys - 1",
            ));
        }
        same_length(OPERATION, "the bias", product(&sides), table.len())?;
        // The number of query 0 and key 0; the next query's is the one before it.
        let data = table.slice(queries.saturating_sub(1).min(table.len())..)?;
        let [matrix, head] = steps([sides[0], sides[1]], of_head);
        Ok(BiasArgs { data, row: 1u64.wrapping_neg(), head, matrix }.pass())
    }

    /// Whether these sides of a bias are those of the problem, or 1.
    fn share(&self, [sequences, heads]: [usize; 2]) -> bool {
        (sequences == 1 || sequences == self.batch) && (heads == 1 || heads == self.heads)
    }

    /// Four numbers for each query.
    pub(super) fn ranges<'s>(
        &self,
        ranges: DeviceView<'s, [u32; 4]>,
    ) -> Result<StructArgs<Ranges, RangesValues<'s>>> {
        self.refuse_packed("the ranges")?;
        let all = self.batch.saturating_mul(self.queries);
        if ranges.len() != self.queries {
            same_length(OPERATION, "the ranges", all, ranges.len())?;
        }
        let matrix = if ranges.len() == self.queries { 0 } else { self.queries as u64 };
        Ok(RangesArgs { data: ranges, matrix }.pass())
    }

    /// A byte for each pair of blocks.
    pub(super) fn block_sparse<'s>(
        &self,
        layout: DeviceView<'s, u8>,
        block: u32,
    ) -> Result<StructArgs<BlockSparse, BlockSparseValues<'s>>> {
        self.refuse_packed("the layout")?;
        if !block.is_power_of_two() {
            let hint = "usual ones have 64 or 128 positions; a function of your own may divide by others";
            return Err(invalid("the block", block.to_string(), "a power of two".to_owned(), hint));
        }
        let [rows, columns] = [self.queries, self.keys].map(|positions| positions.div_ceil(block as usize));
        let of_head = rows.saturating_mul(columns);
        let got = layout.len();
        if got != of_head && got != of_head.saturating_mul(self.heads) {
            return Err(Error::Length { operation: OPERATION, what: "the layout", expected: of_head, got });
        }
        let head = if got == of_head { 0 } else { of_head as u64 };
        let exponent = block.ilog2();
        Ok(BlockSparseArgs { layout, exponent, columns: count("the keys", columns)?, head }.pass())
    }

    /// Random numbers for each place.
    pub(super) fn dropout<'s>(
        &self,
        probability: f64,
        generator: &'s Generator,
        call: u32,
    ) -> Result<StructArgs<Dropout, DropoutValues<'s>>> {
        check_probability(OPERATION, probability)?;
        // The same rounding as that of elements.
        let Rate { threshold, scale } = Rate::new(probability);
        let heads = count("the heads", self.heads)?;
        Ok(DropoutArgs { state: generator.words(), call, heads, threshold, scale }.pass())
    }

    fn refuse_packed(&self, argument: &'static str) -> Result<()> {
        if !self.is_packed {
            return Ok(());
        }
        Err(invalid(
            argument,
            "packed sequences".to_owned(),
            "a batch of sequences of one length".to_owned(),
            "places are counted from the first row of a matrix; packed sequences take a function that has none",
        ))
    }
}

/// The numbers of a bias for each distance.
pub(super) fn distances(queries: usize, keys: usize) -> usize {
    if queries == 0 || keys == 0 { 0 } else { queries.saturating_add(keys - 1) }
}

fn product(sides: &[usize]) -> usize {
    sides.iter().fold(1usize, |all, &side| all.saturating_mul(side))
}

/// Strides from a sequence to the next, and from a head of `of_head` numbers; 0 along a side of 1.
fn steps([sequences, heads]: [usize; 2], of_head: usize) -> [u64; 2] {
    let step = |side: usize, stride: usize| if side == 1 { 0 } else { stride as u64 };
    [step(sequences, of_head.saturating_mul(heads)), step(heads, of_head)]
}

/// The cap and its reciprocal.
pub(super) fn soft_cap(cap: f32) -> Result<StructArgs<SoftCap, SoftCapValues>> {
    let reciprocal = cap.recip();
    if !(cap > 0.0 && cap.is_finite() && reciprocal.is_finite()) {
        return Err(invalid(
            "the cap",
            cap.to_string(),
            "a positive finite number".to_owned(),
            "scores are unlimited without a cap",
        ));
    }
    Ok(SoftCapArgs { cap, reciprocal }.pass())
}

/// The pattern with these slopes. There is no cap beside them: kernels do not read it.
pub(super) fn pattern_of_slopes(
    alibi: StructArgs<Alibi, AlibiValues<'_>>,
) -> StructArgs<Pattern, PatternValues<AlibiValues<'_>>> {
    PatternArgs { alibi, soft_cap: SoftCapArgs { cap: 1.0, reciprocal: 1.0 }.pass() }.pass()
}

/// The pattern with this cap.
pub(super) fn pattern_of_cap(
    soft_cap: StructArgs<SoftCap, SoftCapValues>,
) -> StructArgs<Pattern, PatternValues<NoSlopes>> {
    PatternArgs { alibi: AlibiArgs { slopes: None }.pass(), soft_cap }.pass()
}
