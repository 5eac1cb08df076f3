//! Checks of the operands, and the problem that they make in plain numbers.

use attention::problem::MAX_LENGTH;

use crate::error::Result;
use crate::memory::same_length;
use crate::stream::Stream;

use super::super::OPERATION;
use super::super::backward::check_type;
use super::super::check::{check_groups, check_head_size, check_scale, count, expect_sides, invalid, length};
use super::{Decode, DecodeProblem};

/// Chunks of keys of a launch, of all tiles of rows: they are counted in 32 bits.
const MAX_CHUNKS: u64 = 1 << 31;

impl Decode<'_> {
    /// The operands fit together, and kernels can address them.
    pub(super) fn check(&self) -> Result<()> {
        let [batch, queries, heads, size] = self.queries.sides();
        let [cached_keys, cached_values] = self.cache.rows();
        let [matrices, keys, kv_heads, _] = cached_keys.sides();
        let dtype = self.queries.dtype();
        let out = self.out.view();
        check_head_size(size)?;
        check_type("the result", out.dtype(), dtype)?;
        self.check_cache_type()?;
        let matrices = if self.pages.is_some() { matrices } else { batch };
        expect_sides("the keys", &cached_keys, [matrices, keys, kv_heads, size])?;
        expect_sides("the values", &cached_values, [matrices, keys, kv_heads, size])?;
        expect_sides("the result", &out, self.queries.sides())?;
        check_groups(heads, kv_heads)?;
        check_scale(self.scale)?;
        self.queries.check("the queries")?;
        self.cache.check()?;
        self.out.check("the result")?;
        if let Some(log_sum_exp) = &self.log_sum_exp {
            let wanted = batch.saturating_mul(queries).saturating_mul(heads);
            same_length(OPERATION, "the log-sum-exps", wanted, log_sum_exp.len())?;
        }
        if let Some(sinks) = &self.sinks {
            same_length(OPERATION, "the sinks", heads, sinks.len())?;
        }
        if let Some(lengths) = &self.lengths {
            same_length(OPERATION, "the lengths", batch, lengths.len())?;
        }
        self.check_pages()?;
        self.check_new()
    }

    /// New keys and values are as many as queries, and all of them are seen.
    fn check_new(&self) -> Result<()> {
        let Some([keys, values]) = self.cache.new_rows() else { return Ok(()) };
        let [batch, queries, _, size] = self.queries.sides();
        let wanted = [batch, queries, self.cache.rows()[0].sides()[2], size];
        for (argument, rows) in [("the new keys", &keys), ("the new values", &values)] {
            check_type(argument, rows.dtype(), self.queries.dtype())?;
            expect_sides(argument, rows, wanted)?;
        }
        if !self.mask.is_top_left() {
            return Ok(());
        }
        Err(invalid(
            "the mask",
            self.mask.to_string(),
            "one whose diagonal ends in the last key".to_owned(),
            "new keys are the last ones, and those of a mask from the top left may be seen by no query",
        ))
    }

    fn check_pages(&self) -> Result<()> {
        let (Some(pages), [batch, ..]) = (&self.pages, self.queries.sides()) else { return Ok(()) };
        same_length(OPERATION, "the page table", batch.saturating_mul(pages.each), pages.table.len())?;
        let sides = self.cache.rows()[0].sides();
        if sides[1] == 0 {
            return Err(invalid(
                "the keys",
                format!("{sides:?}: 0 keys a page"),
                "[pages, keys of a page, kv heads, head size] with at least 1 key a page".to_owned(),
                "a cache without pages has sides [0, keys of a page, kv heads, head size]",
            ));
        }
        Ok(())
    }

    /// In plain numbers.
    pub(super) fn describe(&self) -> Result<DecodeProblem> {
        let [batch, queries, heads, size] = self.queries.sides();
        let [matrices, rows, kv_heads, _] = self.cache.rows()[0].sides();
        let (keys, pages) = match &self.pages {
            Some(pages) => {
                let page_size = length("the keys of a page", rows)?;
                let keys = length("the keys of a sequence's pages", pages.each.saturating_mul(rows))?;
                (keys, Some([count("the pages", matrices)?, page_size, count("the page table", pages.each)?]))
            }
            None => (length("the keys", rows)?, None),
        };
        let problem = DecodeProblem {
            dtype: self.queries.dtype(),
            cache: self.cache.rows()[0].dtype(),
            batch: count("the batch", batch)?,
            queries: length("the queries", queries)?,
            keys,
            heads: count("the heads", heads)?,
            kv_heads: count("the heads of keys", kv_heads)?,
            head_size: size as u32,
            mask: self.mask,
            pages,
            has_lengths: self.lengths.is_some(),
            appends: self.cache.new_rows().is_some(),
            rotated: self.rotary.map_or(0, |rotary| rotary.rotated as u32),
            log_sum_exp: self.log_sum_exp.is_some(),
        };
        check_size(&problem)?;
        if let Some(rotary) = &self.rotary {
            rotary.check(size, keys as usize)?;
        }
        Ok(problem)
    }

    /// All operands are on the stream's device.
    pub(super) fn check_devices(&self, stream: &Stream) -> Result<()> {
        stream.same_device("the queries", self.queries.device())?;
        let [keys, values] = self.cache.rows();
        stream.same_device("the keys", keys.device())?;
        stream.same_device("the values", values.device())?;
        if let Some([keys, values]) = self.cache.new_rows() {
            stream.same_device("the new keys", keys.device())?;
            stream.same_device("the new values", values.device())?;
        }
        if let Some(rotary) = &self.rotary {
            rotary.check_device(stream)?;
        }
        if let Some(scales) = &self.scales {
            scales.check_devices(stream)?;
        }
        stream.same_device("the result", self.out.device())?;
        if let Some(log_sum_exp) = &self.log_sum_exp {
            stream.same_device("the log-sum-exps", log_sum_exp.device())?;
        }
        if let Some(sinks) = &self.sinks {
            stream.same_device("the sinks", sinks.device())?;
        }
        if let Some(lengths) = &self.lengths {
            stream.same_device("the lengths", lengths.device())?;
        }
        match &self.pages {
            Some(pages) => stream.same_device("the page table", pages.table.device()),
            None => Ok(()),
        }
    }
}

/// Rows and chunks can be counted.
fn check_size(problem: &DecodeProblem) -> Result<()> {
    let rows = u64::from(problem.queries) * u64::from(problem.group());
    if rows > MAX_LENGTH.into() {
        let got = format!("{rows} for each head of keys");
        let wanted = format!("at most {MAX_LENGTH}");
        return Err(invalid("the rows of queries", got, wanted, "`Attention` is for many queries"));
    }
    // No sequence has more chunks than one that is seen whole.
    let chunks = problem.most_chunks();
    if chunks <= MAX_CHUNKS {
        return Ok(());
    }
    Err(invalid(
        "the problem",
        format!("{chunks} pieces of {} keys", attention::decode::config::CHUNK),
        format!("at most {MAX_CHUNKS}"),
        "split the batch and call once for each part",
    ))
}
