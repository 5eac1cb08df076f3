//! Attention with a score function: those of the family, and those of other packages.

use attention::compiled::Compiled;
use attention::functions::{
    Alibi, AlibiArgs, Bias, BiasArgs, BlockSparse, BlockSparseArgs, Ranges, RangesArgs, SoftCap, SoftCapArgs,
};
use attention::key_lists::ListParams;
use attention::problem::AttentionParams;
use cuda_std::kernel::{Kernel, Map, Ptr, PtrMut, StructArgs, Value};

use crate::error::{Error, Result};
use crate::launch::{self as kernel, Arg, LaunchConfig};
use crate::memory::DeviceView;
use crate::stream::Stream;

use super::OPERATION;
use super::block_mask::{BlockMask, ListParameters, Own};
use super::check::{count, invalid};
use super::config::{Choice, Config};
use super::launch::{Launch, unknown};
use super::op::{Attention, Packed};
use super::problem::Problem;
use super::select;

/// [`Attention`] whose scores go through a function before the softmax. Made by [`Attention::function`] and
/// its neighbours.
#[must_use = "attention is computed by `run`"]
pub struct Modified<'a, F, V> {
    attention: Attention<'a>,
    function: StructArgs<F, V>,
    blocks: Option<&'a BlockMask<F>>,
}

/// Attention with [`Alibi`]: its slopes.
pub type WithAlibi<'a, 's> = Modified<'a, Alibi, (DeviceView<'s, f32>, ())>;
/// Attention with a [`SoftCap`]: its cap, and one over it.
pub type WithSoftCap<'a> = Modified<'a, SoftCap, (f32, (f32, ()))>;
/// Attention with a [`Bias`]: its elements and strides.
pub type WithBias<'a, 's> = Modified<'a, Bias, (DeviceView<'s, f32>, (u64, (u64, (u64, ()))))>;
/// Attention with [`Ranges`]: four numbers a query, and a stride.
pub type WithRanges<'a, 's> = Modified<'a, Ranges, (DeviceView<'s, [u32; 4]>, (u64, ()))>;
/// Attention with a [`BlockSparse`] layout: its table, two sides and a stride.
pub type WithBlockSparse<'a, 's> = Modified<'a, BlockSparse, (DeviceView<'s, u8>, (u32, (u32, (u64, ()))))>;

impl<'a> Attention<'a> {
    /// With a score function that is compiled into kernels by
    /// [`attention::score_kernels!`](::attention::score_kernels): `LocalArgs { slope: 0.5 }.pass()` for a
    /// `struct Local { slope: f32 }`.
    ///
    /// # Safety
    /// For every position of the problem the function reads no memory but what its arguments reach.
    pub unsafe fn function<F: Compiled, V>(self, function: StructArgs<F, V>) -> Modified<'a, F, V> {
        Modified { attention: self, function, blocks: None }
    }

    /// Subtracts `slope * distance` from each score, the distance of the key from the query's diagonal, with
    /// a slope for each head of queries.
    ///
    /// # Errors
    /// [`Error::Length`] for another number of slopes.
    pub fn alibi<'s>(self, slopes: impl Into<DeviceView<'s, f32>>) -> Result<WithAlibi<'a, 's>> {
        let slopes = slopes.into();
        let expected = self.queries.sides()[2];
        if slopes.len() != expected {
            return Err(Error::Length {
                operation: OPERATION,
                what: "the slopes",
                expected,
                got: slopes.len(),
            });
        }
        // SAFETY: a slope for each head.
        Ok(unsafe { self.function(AlibiArgs { slopes }.pass()) })
    }

    /// Makes each score `cap * tanh(score / cap)`. The tangent has a relative error of 2^-11.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a cap that is not positive and finite.
    pub fn soft_cap(self, cap: f32) -> Result<WithSoftCap<'a>> {
        let reciprocal = cap.recip();
        if !(cap > 0.0 && cap.is_finite() && reciprocal.is_finite()) {
            return Err(invalid(
                "the cap",
                cap.to_string(),
                "a positive finite number".to_owned(),
                "scores are unlimited without `soft_cap`",
            ));
        }
        // SAFETY: no memory is read.
        Ok(unsafe { self.function(SoftCapArgs { cap, reciprocal }.pass()) })
    }

    /// Adds `bias[batch, head, query, key]` to each score: f32, dense, `sides` of which the first two may be
    /// 1 for all to share.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other sides, or packed sequences; [`Error::Length`] when the bias does
    /// not have the elements that they say.
    pub fn bias<'s>(
        self,
        bias: impl Into<DeviceView<'s, f32>>,
        sides: [usize; 4],
    ) -> Result<WithBias<'a, 's>> {
        let bias = bias.into();
        self.refuse_packed("the bias")?;
        let ([batch, queries, heads, _], keys) = (self.queries.sides(), self.keys.sides()[1]);
        let fits = (sides[0] == 1 || sides[0] == batch)
            && (sides[1] == 1 || sides[1] == heads)
            && sides[2..] == [queries, keys];
        if !fits {
            return Err(invalid(
                "the bias",
                format!("{sides:?}"),
                format!("[{batch} or 1, {heads} or 1, {queries}, {keys}]"),
                "its sides are [batch, heads, queries, keys]",
            ));
        }
        let expected = sides.iter().fold(1usize, |all, &side| all.saturating_mul(side));
        if bias.len() != expected {
            return Err(Error::Length { operation: OPERATION, what: "the bias", expected, got: bias.len() });
        }
        let head = (queries * keys) as u64;
        let step = |side: usize, stride: u64| if side == 1 { 0 } else { stride };
        let function = BiasArgs {
            data: bias,
            row: keys as u64,
            head: step(sides[1], head),
            matrix: step(sides[0], head * sides[1] as u64),
        };
        // SAFETY: a number for each place.
        Ok(unsafe { self.function(function.pass()) })
    }

    /// Each query sees the keys `[r0, r1)` and `[r2, r3)` of its four numbers, beside what the mask shows:
    /// `[queries][4]` for all sequences, or `[batch][queries][4]`. Documents, prefixes, paddings and windows
    /// with first keys that all see are of this form.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for packed sequences; [`Error::Length`] for another number of ranges.
    pub fn ranges<'s>(self, ranges: impl Into<DeviceView<'s, [u32; 4]>>) -> Result<WithRanges<'a, 's>> {
        let ranges = ranges.into();
        self.refuse_packed("the ranges")?;
        let [batch, queries, ..] = self.queries.sides();
        let all = batch.saturating_mul(queries);
        if ranges.len() != queries && ranges.len() != all {
            let (what, got) = ("the ranges", ranges.len());
            return Err(Error::Length { operation: OPERATION, what, expected: all, got });
        }
        let matrix = if ranges.len() == queries { 0 } else { queries as u64 };
        // SAFETY: four numbers for each query.
        Ok(unsafe { self.function(RangesArgs { data: ranges, matrix }.pass()) })
    }

    /// Blocks of `block` queries, a power of two, see blocks of as many keys where `layout` is not 0:
    /// `[heads or 1][blocks of queries][blocks of keys]`, dense. The mask has to show the key as well. With
    /// [`Modified::block_mask`] only the blocks that are shown are computed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a block that is no power of two, or packed sequences;
    /// [`Error::Length`] for another number of bytes.
    pub fn block_sparse<'s>(
        self,
        layout: impl Into<DeviceView<'s, u8>>,
        block: u32,
    ) -> Result<WithBlockSparse<'a, 's>> {
        let layout = layout.into();
        self.refuse_packed("the layout")?;
        if !block.is_power_of_two() {
            let hint = "usual ones have 64 or 128 positions; a function of your own may divide by others";
            return Err(invalid("the block", block.to_string(), "a power of two".to_owned(), hint));
        }
        let ([_, queries, heads, _], keys) = (self.queries.sides(), self.keys.sides()[1]);
        let [rows, columns] = [queries, keys].map(|positions| positions.div_ceil(block as usize));
        let of_head = rows.saturating_mul(columns);
        let got = layout.len();
        if got != of_head && got != of_head.saturating_mul(heads) {
            return Err(Error::Length { operation: OPERATION, what: "the layout", expected: of_head, got });
        }
        let head = if got == of_head { 0 } else { of_head as u64 };
        let exponent = block.ilog2();
        let function = BlockSparseArgs { layout, exponent, columns: count("the keys", columns)?, head };
        // SAFETY: a byte for each pair of blocks.
        Ok(unsafe { self.function(function.pass()) })
    }

    fn refuse_packed(&self, argument: &'static str) -> Result<()> {
        if self.packed.is_none() {
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

impl<'a, F, V> Modified<'a, F, V>
where
    F: Compiled,
    F::Forward: ForwardKernels<F>,
    StructArgs<F, V>: Arg<Value<F>>,
{
    /// Lists the blocks of keys that the function's mask shows, for [`Modified::blocks`] of this call and of
    /// later ones.
    ///
    /// # Errors
    /// As [`Attention::problem`]; [`Error::InvalidArgument`] for packed sequences, or when no kernel can do
    /// the problem; [`Error::OutOfMemory`], or the driver's error.
    pub fn block_mask(&self, stream: &Stream, own: Own) -> Result<BlockMask<F>>
    where
        F::Lists: Kernel<Params = ListParameters<F>>,
        StructArgs<F, V>: Clone,
    {
        let problem = self.attention.checked(stream)?;
        // SAFETY: the word of whoever named the function.
        unsafe { BlockMask::new(stream, &problem, self.function.clone(), own) }
    }

    /// Looks only at the blocks of keys that the function's mask shows.
    pub fn blocks(self, blocks: &'a BlockMask<F>) -> Self {
        Modified { blocks: Some(blocks), ..self }
    }

    /// As [`Attention::problem`].
    ///
    /// # Errors
    /// As [`Attention::problem`].
    pub fn problem(&self) -> Result<Problem> {
        self.attention.problem()
    }

    /// As [`Attention::run`].
    ///
    /// # Errors
    /// As [`Attention::run`], and [`Error::InvalidArgument`] for blocks that were made for another problem.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let Modified { mut attention, function, blocks } = self;
        let problem = attention.checked(stream)?;
        let config = select::select_from(F::FORWARD, &problem, stream.device())?.config;
        if let Some(blocks) = blocks {
            blocks.check(stream, &problem, config)?;
        }
        let index =
            F::FORWARD.iter().position(|entry| entry == config.entry).ok_or_else(|| unknown(config))?;
        let Some((grid, launched)) = Launch::new(stream, &problem, config, &mut attention)? else {
            return Ok(());
        };
        let lists = blocks.map(BlockMask::lists);
        // SAFETY: the configuration is the entry's; else as `Launch::new` says. The blocks are of this
        // problem, and the function is the word of whoever named it.
        unsafe {
            <F::Forward as private::Sealed<F>>::launch(
                index,
                config,
                stream,
                grid,
                launched,
                (function, lists),
            )
        }
    }

    /// As [`Attention::explain`].
    ///
    /// # Errors
    /// As [`Attention::explain`].
    pub fn explain(self, stream: &Stream) -> Result<Choice> {
        let problem = self.attention.checked(stream)?;
        select::select_from(F::FORWARD, &problem, stream.device())
    }
}

/// A function with its arguments, and the lists of blocks.
type Function<'a, F, V> = (StructArgs<F, V>, Option<(ListParams, DeviceView<'a, u32>)>);

/// Parameters of a kernel with a score function.
type Parameters<F> = (
    Map,
    Map,
    Map,
    Map,
    Value<AttentionParams>,
    PtrMut<u8>,
    PtrMut<f32>,
    Ptr<i32>,
    Ptr<i32>,
    PtrMut<u32>,
    Value<F>,
    Value<ListParams>,
    Ptr<u32>,
);

/// The kernels of a score function, as [`Compiled::Forward`] has them.
pub trait ForwardKernels<F: Compiled>: private::Sealed<F> {}

impl<F: Compiled, T: private::Sealed<F>> ForwardKernels<F> for T {}

mod private {
    use super::*;

    pub trait Sealed<F: Compiled> {
        /// Launches the kernel of this index.
        ///
        /// # Safety
        /// As for the kernel, which has this configuration.
        unsafe fn launch<V>(
            index: usize,
            config: Config,
            stream: &Stream,
            grid: LaunchConfig,
            launched: Launch<'_>,
            function: Function<'_, F, V>,
        ) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>;
    }

    impl<F: Compiled> Sealed<F> for () {
        unsafe fn launch<V>(
            _: usize,
            config: Config,
            _: &Stream,
            _: LaunchConfig,
            _: Launch<'_>,
            _: Function<'_, F, V>,
        ) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>,
        {
            Err(unknown(config))
        }
    }

    impl<F: Compiled, K: Kernel<Params = Parameters<F>>, Rest: Sealed<F>> Sealed<F> for (K, Rest) {
        unsafe fn launch<V>(
            index: usize,
            config: Config,
            stream: &Stream,
            grid: LaunchConfig,
            launched: Launch<'_>,
            function: Function<'_, F, V>,
        ) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>,
        {
            if let Some(index) = index.checked_sub(1) {
                // SAFETY: the caller's contract.
                return unsafe { Rest::launch(index, config, stream, grid, launched, function) };
            }
            let Launch {
                maps: [queries, keys, values, output],
                params,
                data,
                log_sum_exp,
                packed,
                mut counter,
            } = launched;
            let [first_queries, first_keys] = Packed::first_rows(packed);
            let (function, lists) = function;
            let (list_params, words) =
                lists.map_or((NO_LISTS, None), |(params, words)| (params, Some(words)));
            let counter = counter.as_mut();
            let arguments = (
                queries,
                keys,
                values,
                output,
                params,
                data,
                log_sum_exp,
                first_queries,
                first_keys,
                counter,
                function,
                list_params,
                words,
            );
            // SAFETY: the caller's contract.
            unsafe { kernel::launch::<K>(stream, grid, arguments) }
        }
    }
}

/// Stands where there are no lists.
const NO_LISTS: ListParams = attention::key_lists::Lists::NONE.params;
