//! Attention with a score function: those of the family, and those of other packages.

use std::hash::Hash;
use std::sync::Arc;

use attention::block_lists::ListParams;
use attention::compiled::Compiled;
use attention::dropout::Dropout;
use attention::functions::{Alibi, Bias, BlockSparse, Ranges, SoftCap};
use attention::problem::AttentionParams;
use cuda_std::kernel::{Kernel, Map, Ptr, PtrMut, StructArgs, Value};

use crate::error::Result;
use crate::launch::{self as kernel, Arg, LaunchConfig};
use crate::memory::{DeviceView, DeviceViewMut};
use crate::ops::dropout::Generator;
use crate::stream::Stream;

use super::block_mask::{BlockMask, ListParameters, Listing, Own, Plan, Tiles};
use super::check::no_kernel;
use super::config::Choice;
use super::heads::HeadsMut;
use super::launch::Launch;
use super::mask_cache::{BlockMaskCache, FunctionValues, PlainValues};
use super::op::{Attention, Packed};
use super::places::{
    AlibiValues, BiasValues, BlockSparseValues, DropoutValues, Places, RangesValues, SoftCapValues, soft_cap,
};
use super::problem::Problem;
use super::select;

/// [`Attention`] whose scores go through a function before the softmax. Made by [`Attention::function`] and
/// its neighbours.
#[must_use = "attention is computed by `run`"]
pub struct Modified<'a, F, V> {
    pub(super) attention: Attention<'a>,
    function: StructArgs<F, V>,
    blocks: Option<&'a BlockMask<F>>,
}

/// Attention with [`Alibi`]: its slopes.
pub type WithAlibi<'a, 's> = Modified<'a, Alibi, AlibiValues<'s>>;
/// Attention with a [`SoftCap`]: its cap, and one over it.
pub type WithSoftCap<'a> = Modified<'a, SoftCap, SoftCapValues>;
/// Attention with a [`Bias`]: its elements and strides.
pub type WithBias<'a, 's> = Modified<'a, Bias, BiasValues<'s>>;
/// Attention with [`Ranges`]: four numbers a query, and a stride.
pub type WithRanges<'a, 's> = Modified<'a, Ranges, RangesValues<'s>>;
/// Attention with [`Dropout`] of weights.
pub type WithDropout<'a, 's> = Modified<'a, Dropout, DropoutValues<'s>>;
/// Attention with a [`BlockSparse`] layout: its table, two sides and a stride.
pub type WithBlockSparse<'a, 's> = Modified<'a, BlockSparse, BlockSparseValues<'s>>;

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
    /// [`Error::Length`](crate::Error::Length) for another number of slopes.
    pub fn alibi<'s>(self, slopes: impl Into<DeviceView<'s, f32>>) -> Result<WithAlibi<'a, 's>> {
        let function = self.places().alibi(slopes.into())?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// Makes each score `cap * tanh(score / cap)`. The tangent has a relative error of 2^-11.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a cap that is not positive and finite.
    pub fn soft_cap(self, cap: f32) -> Result<WithSoftCap<'a>> {
        let function = soft_cap(cap)?;
        // SAFETY: no memory is read.
        Ok(unsafe { self.function(function) })
    }

    /// Adds `bias[batch, head, query, key]` to each score: f32, dense, `sides` of which the first two may be
    /// 1 for all to share.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for other sides, or packed sequences;
    /// [`Error::Length`](crate::Error::Length) when the bias does not have the elements that they say.
    pub fn bias<'s>(
        self,
        bias: impl Into<DeviceView<'s, f32>>,
        sides: [usize; 4],
    ) -> Result<WithBias<'a, 's>> {
        let function = self.places().bias(bias.into(), sides)?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// Adds `table[batch, head, key - query + queries - 1]` to each score: a number for each distance of a
    /// key from its query, as T5 has it. f32, dense, `sides` of which the first two may be 1 for all to
    /// share; the third is `queries + keys - 1`. [`super::relative`] has T5's buckets.
    ///
    /// # Errors
    /// As [`Attention::bias`].
    pub fn relative_bias<'s>(
        self,
        table: impl Into<DeviceView<'s, f32>>,
        sides: [usize; 3],
    ) -> Result<WithBias<'a, 's>> {
        let function = self.places().relative_bias(table.into(), sides)?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// Each query sees the keys `[r0, r1)` and `[r2, r3)` of its four numbers, as far as the mask shows them
    /// too: `[queries][4]` for all sequences, or `[batch][queries][4]`. Documents, prefixes, padding and
    /// windows with first keys that all queries see are of this form: [`super::ranges`] makes their tables.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for packed sequences;
    /// [`Error::Length`](crate::Error::Length) for another number of ranges.
    pub fn ranges<'s>(self, ranges: impl Into<DeviceView<'s, [u32; 4]>>) -> Result<WithRanges<'a, 's>> {
        let function = self.places().ranges(ranges.into())?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// Blocks of `block` queries, a power of two, see blocks of as many keys where `layout` is not 0:
    /// `[heads or 1][blocks of queries][blocks of keys]`, dense. The mask has to show the key as well. With
    /// [`Modified::block_mask`] only the blocks that are shown are computed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a block that is no power of two, or
    /// packed sequences; [`Error::Length`](crate::Error::Length) for another number of bytes.
    pub fn block_sparse<'s>(
        self,
        layout: impl Into<DeviceView<'s, u8>>,
        block: u32,
    ) -> Result<WithBlockSparse<'a, 's>> {
        let function = self.places().block_sparse(layout.into(), block)?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// Makes each weight 0 with this probability, rounded to a multiple of 2^-16, and divides the others by
    /// what is left of 1. Log-sum-exps are of all weights. Which ones depends on the generator's seed and
    /// step, on `call`, and on the weight's sequence, head, query and key: calls within a step have numbers
    /// of their own.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a probability that is not from 0 to 1.
    pub fn dropout<'s>(
        self,
        probability: f64,
        generator: &'s Generator,
        call: u32,
    ) -> Result<WithDropout<'a, 's>> {
        let function = self.places().dropout(probability, generator, call)?;
        // SAFETY: the state of a generator is two numbers.
        Ok(unsafe { self.function(function) })
    }

    fn places(&self) -> Places {
        Places::new(&self.queries, &self.keys, self.packed.is_some())
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
    /// As [`Attention::problem`]; [`Error::InvalidArgument`](crate::Error::InvalidArgument) for packed
    /// sequences, or when no kernel can do the problem; [`Error::OutOfMemory`](crate::Error::OutOfMemory), or
    /// the driver's error.
    pub fn block_mask(&self, stream: &Stream, own: Own) -> Result<BlockMask<F>>
    where
        F::Lists: Kernel<Params = ListParameters<F>>,
        StructArgs<F, V>: Clone,
    {
        self.listing(stream, own)?.make(stream)
    }

    /// The same from a cache, which makes it at the first call with this key: see [`BlockMaskCache`] for what
    /// a key has to say.
    ///
    /// # Errors
    /// As [`Modified::block_mask`]; [`Error::NotCapturable`](crate::Error::NotCapturable) if it would have to
    /// be made on a stream that is being captured.
    pub fn cached_block_mask<K: Eq + Hash>(
        &self,
        stream: &Stream,
        own: Own,
        cache: &mut BlockMaskCache<F, K>,
        key: K,
    ) -> Result<Arc<BlockMask<F>>>
    where
        F::Lists: Kernel<Params = ListParameters<F>>,
        StructArgs<F, V>: Clone,
    {
        self.listing(stream, own)?.make_once(stream, cache, key)
    }

    /// Its lists, to be made.
    fn listing(&self, stream: &Stream, own: Own) -> Result<Listing<F, V>>
    where
        StructArgs<F, V>: Clone,
    {
        let problem = self.attention.checked(stream)?;
        let block = F::FORWARD[select::best(F::FORWARD, &problem, stream.device())?].block;
        let plan = Plan::new(&problem, Tiles::Queries, block, own)?;
        // SAFETY: the word of whoever named the function.
        Ok(unsafe { Listing::new(problem, plan, self.function.clone()) })
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
    /// As [`Attention::run`], and [`Error::InvalidArgument`](crate::Error::InvalidArgument) for blocks that
    /// were made for another problem.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.attention.checked(stream)?;
        let place = select::best(F::FORWARD, &problem, stream.device())?;
        self.launch(stream, &problem, place)
    }

    /// Queues the kernel of this place in the function's table.
    pub(super) fn launch(self, stream: &Stream, problem: &Problem, place: usize) -> Result<()> {
        let Modified { mut attention, function, blocks } = self;
        let entry = &F::FORWARD[place];
        if let Some(blocks) = blocks {
            blocks.check(stream, problem, Tiles::Queries, entry.block)?;
        }
        let Some((grid, launched)) = Launch::new(stream, problem, entry, &mut attention)? else {
            return Ok(());
        };
        let lists = blocks.map(BlockMask::lists);
        // SAFETY: the launch is of the entry's configuration; else as `Launch::new` says. The blocks are of
        // this problem, and the function is the word of whoever named it.
        unsafe {
            <F::Forward as private::Sealed<F>>::launch(place, stream, grid, launched, (function, lists))
        }
    }

    /// The same with results elsewhere.
    pub(super) fn with_results<'s>(
        &'s self,
        out: HeadsMut<'s>,
        log_sum_exp: Option<DeviceViewMut<'s, f32>>,
    ) -> Modified<'s, F, V>
    where
        StructArgs<F, V>: Clone,
    {
        let attention = self.attention.with_results(out, log_sum_exp);
        Modified { attention, function: self.function.clone(), blocks: self.blocks }
    }

    /// Tiles of the blocks that are looked at.
    pub(super) fn listed_tile(&self) -> Option<[u32; 2]> {
        self.blocks.map(BlockMask::tile)
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

impl<F, V: PlainValues> Modified<'_, F, V>
where
    StructArgs<F, V>: Clone,
{
    /// The function's arguments, as a key for a [`BlockMaskCache`]. Only of functions whose arguments are all
    /// plain numbers.
    pub fn values(&self) -> FunctionValues {
        FunctionValues::of(&self.function.clone().into_values())
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
    Ptr<f32>,
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
            place: usize,
            _: &Stream,
            _: LaunchConfig,
            _: Launch<'_>,
            _: Function<'_, F, V>,
        ) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>,
        {
            Err(no_kernel(place))
        }
    }

    impl<F: Compiled, K: Kernel<Params = Parameters<F>>, Rest: Sealed<F>> Sealed<F> for (K, Rest) {
        unsafe fn launch<V>(
            index: usize,
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
                return unsafe { Rest::launch(index, stream, grid, launched, function) };
            }
            let Launch {
                maps: [queries, keys, values, output],
                params,
                data,
                log_sum_exp,
                sinks,
                packed,
                mut counter,
            } = launched;
            let [first_queries, first_keys] = Packed::first_rows(packed);
            let (function, lists) = function;
            let (list_params, words) = words_of(lists);
            let counter = counter.as_mut();
            let arguments = (
                queries,
                keys,
                values,
                output,
                params,
                data,
                log_sum_exp,
                sinks,
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

/// Lists as a kernel takes them, or what stands where there are none.
pub(super) fn words_of(
    lists: Option<(ListParams, DeviceView<'_, u32>)>,
) -> (ListParams, Option<DeviceView<'_, u32>>) {
    const NONE: ListParams = attention::block_lists::Lists::NONE.params;
    lists.map_or((NONE, None), |(params, words)| (params, Some(words)))
}
