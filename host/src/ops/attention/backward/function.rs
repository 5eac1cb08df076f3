//! Gradients of attention with a score function.

use std::hash::Hash;
use std::sync::Arc;

use attention::backward::ResultStrides;
use attention::block_lists::ListParams;
use attention::compiled::Compiled;
use attention::dropout::Dropout;
use attention::functions::{Alibi, Bias, BlockSparse, Ranges, SoftCap};
use attention::problem::AttentionParams;
use cuda_std::kernel::{Kernel, Map, Ptr, PtrMut, StructArgs, Value};

use crate::error::Result;
use crate::launch::{self as kernel, Arg};
use crate::memory::{DeviceView, DeviceViewMut};
use crate::ops::dropout::Generator;
use crate::stream::Stream;

use super::super::block_mask::{BlockMask, ListParameters, Listing, Own, Plan, Tiles};
use super::super::check::{invalid, no_kernel};
use super::super::config::Choice;
use super::super::function::words_of;
use super::super::mask_cache::{BlockMaskCache, FunctionValues, PlainValues};
use super::super::places::{
    AlibiValues, BiasValues, BlockSparseValues, DropoutValues, Places, RangesValues, SoftCapValues, soft_cap,
};
use super::super::problem::Problem;
use super::super::select;
use super::launch::{Pass, launch};
use super::{Backward, Gradients};

/// [`Backward`] of attention whose scores went through a function. Made by [`Backward::function`] and its
/// neighbours.
#[must_use = "gradients are computed by `run`"]
pub struct ModifiedBackward<'a, F, V> {
    pub(in super::super) backward: Backward<'a>,
    function: StructArgs<F, V>,
    blocks: Option<&'a BlockMask<F>>,
}

impl<'a> Backward<'a> {
    /// With the score function of the forward pass, of the same arguments
    /// ([`Attention::function`](super::super::Attention::function)). Its derivative by the score is computed
    /// with it; nothing is differentiated by its arguments.
    ///
    /// # Safety
    /// For every position of the problem the function reads no memory but what its arguments reach.
    pub unsafe fn function<F: Compiled, V>(self, function: StructArgs<F, V>) -> ModifiedBackward<'a, F, V> {
        ModifiedBackward { backward: self, function, blocks: None }
    }

    /// The gradients of [`Attention::alibi`](super::super::Attention::alibi).
    ///
    /// # Errors
    /// As there.
    pub fn alibi<'s>(
        self,
        slopes: impl Into<DeviceView<'s, f32>>,
    ) -> Result<ModifiedBackward<'a, Alibi, AlibiValues<'s>>> {
        let function = self.places().alibi(slopes.into())?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// The gradients of [`Attention::soft_cap`](super::super::Attention::soft_cap).
    ///
    /// # Errors
    /// As there.
    pub fn soft_cap(self, cap: f32) -> Result<ModifiedBackward<'a, SoftCap, SoftCapValues>> {
        let function = soft_cap(cap)?;
        // SAFETY: no memory is read.
        Ok(unsafe { self.function(function) })
    }

    /// The gradients of [`Attention::bias`](super::super::Attention::bias). [`BiasGradient`] has that of the
    /// bias.
    ///
    /// [`BiasGradient`]: super::super::BiasGradient
    ///
    /// # Errors
    /// As there.
    pub fn bias<'s>(
        self,
        bias: impl Into<DeviceView<'s, f32>>,
        sides: [usize; 4],
    ) -> Result<ModifiedBackward<'a, Bias, BiasValues<'s>>> {
        let function = self.places().bias(bias.into(), sides)?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// The gradients of [`Attention::relative_bias`](super::super::Attention::relative_bias).
    /// [`RelativeBiasGradient`] has that of the table.
    ///
    /// [`RelativeBiasGradient`]: super::super::RelativeBiasGradient
    ///
    /// # Errors
    /// As there.
    pub fn relative_bias<'s>(
        self,
        table: impl Into<DeviceView<'s, f32>>,
        sides: [usize; 3],
    ) -> Result<ModifiedBackward<'a, Bias, BiasValues<'s>>> {
        let function = self.places().relative_bias(table.into(), sides)?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// The gradients of [`Attention::ranges`](super::super::Attention::ranges).
    ///
    /// # Errors
    /// As there.
    pub fn ranges<'s>(
        self,
        ranges: impl Into<DeviceView<'s, [u32; 4]>>,
    ) -> Result<ModifiedBackward<'a, Ranges, RangesValues<'s>>> {
        let function = self.places().ranges(ranges.into())?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// The gradients of [`Attention::block_sparse`](super::super::Attention::block_sparse).
    ///
    /// # Errors
    /// As there.
    pub fn block_sparse<'s>(
        self,
        layout: impl Into<DeviceView<'s, u8>>,
        block: u32,
    ) -> Result<ModifiedBackward<'a, BlockSparse, BlockSparseValues<'s>>> {
        let function = self.places().block_sparse(layout.into(), block)?;
        // SAFETY: it is made for these places.
        Ok(unsafe { self.function(function) })
    }

    /// The gradients of [`Attention::dropout`](super::super::Attention::dropout), at the same step of the
    /// generator: the same weights are dropped.
    ///
    /// # Errors
    /// As there.
    pub fn dropout<'s>(
        self,
        probability: f64,
        generator: &'s Generator,
        call: u32,
    ) -> Result<ModifiedBackward<'a, Dropout, DropoutValues<'s>>> {
        let function = self.places().dropout(probability, generator, call)?;
        // SAFETY: the state of a generator is two numbers.
        Ok(unsafe { self.function(function) })
    }

    fn places(&self) -> Places {
        Places::new(&self.forward.queries, &self.forward.keys, self.packed.is_some())
    }
}

impl<'a, F, V> ModifiedBackward<'a, F, V>
where
    F: Compiled,
    F::Backward: BackwardKernels<F>,
    StructArgs<F, V>: Arg<Value<F>>,
{
    /// Lists the blocks of queries that see keys by the function's mask, for [`ModifiedBackward::blocks`] of
    /// this call and of later ones.
    ///
    /// # Errors
    /// As [`Modified::block_mask`](super::super::Modified::block_mask).
    pub fn block_mask(&self, stream: &Stream, own: Own) -> Result<BlockMask<F>>
    where
        F::Lists: Kernel<Params = ListParameters<F>>,
        StructArgs<F, V>: Clone,
    {
        self.listing(stream, own)?.make(stream)
    }

    /// The same from a cache. One cache has the lists of both passes.
    ///
    /// # Errors
    /// As [`Modified::cached_block_mask`](super::super::Modified::cached_block_mask).
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
        let problem = self.backward.checked(stream)?;
        let block = F::BACKWARD[select::best(F::BACKWARD, &problem, stream.device())?].block;
        let plan = Plan::new(&problem, Tiles::Keys, block, own)?;
        // SAFETY: the word of whoever named the function.
        Ok(unsafe { Listing::new(problem, plan, self.function.clone()) })
    }

    /// Looks only at the blocks that the function's mask shows, of
    /// [`block_mask`](ModifiedBackward::block_mask); else at every tile that the mask of the problem shows.
    /// Not in the deterministic mode, whose order counts all of them.
    pub fn blocks(self, blocks: &'a BlockMask<F>) -> Self {
        ModifiedBackward { blocks: Some(blocks), ..self }
    }

    /// As [`Backward::run`].
    ///
    /// # Errors
    /// As [`Backward::run`], and [`Error::InvalidArgument`](crate::Error::InvalidArgument) for blocks that
    /// were made for another problem or the forward pass, and for blocks in the deterministic mode.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.backward.checked(stream)?;
        let place = select::best(F::BACKWARD, &problem, stream.device())?;
        self.launch(stream, &problem, place)
    }

    /// As [`Backward::explain`].
    ///
    /// # Errors
    /// As [`Backward::explain`].
    pub fn explain(self, stream: &Stream) -> Result<Choice> {
        let problem = self.backward.checked(stream)?;
        select::select_from(F::BACKWARD, &problem, stream.device())
    }

    /// Queues the kernels, the main one of this place in the function's table.
    pub(in super::super) fn launch(self, stream: &Stream, problem: &Problem, place: usize) -> Result<()> {
        let ModifiedBackward { backward, function, blocks } = self;
        let entry = &F::BACKWARD[place];
        if let Some(blocks) = blocks {
            blocks.check(stream, problem, Tiles::Keys, entry.block)?;
            if backward.is_deterministic {
                let (got, wanted) = ("blocks in the deterministic mode", "one of both");
                let hint = "leave out `blocks`, or `deterministic`, whose order counts all tiles of the mask";
                return Err(invalid("the blocks", got.to_owned(), wanted.to_owned(), hint));
            }
        }
        let function = (function, blocks.map(BlockMask::lists));
        launch(stream, problem, entry, backward, |stream, pass, d_queries| {
            // SAFETY: the launch is of the entry's configuration; the blocks are of this problem; the
            // function is the word of whoever named it.
            unsafe { <F::Backward as private::Sealed<F>>::launch(place, stream, pass, function)? };
            Ok(Some(d_queries))
        })
    }

    /// The same with results elsewhere.
    pub(in super::super) fn with_results<'s>(
        &'s self,
        gradients: Gradients<'s>,
        sinks: Option<DeviceViewMut<'s, f32>>,
    ) -> ModifiedBackward<'s, F, V>
    where
        StructArgs<F, V>: Clone,
    {
        let backward = self.backward.with_results(gradients, sinks);
        ModifiedBackward { backward, function: self.function.clone(), blocks: self.blocks }
    }

    /// Tiles of the blocks that are looked at.
    pub(in super::super) fn listed_tile(&self) -> Option<[u32; 2]> {
        self.blocks.map(BlockMask::tile)
    }
}

impl<F, V: PlainValues> ModifiedBackward<'_, F, V>
where
    StructArgs<F, V>: Clone,
{
    /// As [`Modified::values`](super::super::Modified::values).
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
    Map,
    Map,
    Value<AttentionParams>,
    Ptr<f32>,
    Ptr<f32>,
    PtrMut<f32>,
    PtrMut<u16>,
    PtrMut<u16>,
    Value<ResultStrides>,
    PtrMut<u32>,
    Ptr<i32>,
    Ptr<i32>,
    Value<F>,
    Value<ListParams>,
    Ptr<u32>,
);

/// The kernels of a score function, as [`Compiled::Backward`] has them.
pub trait BackwardKernels<F: Compiled>: private::Sealed<F> {}

impl<F: Compiled, T: private::Sealed<F>> BackwardKernels<F> for T {}

mod private {
    use super::*;

    pub trait Sealed<F: Compiled> {
        /// Launches the kernel of this index.
        ///
        /// # Safety
        /// The launch is one of this kernel's configuration; the function and its lists as for the kernel.
        unsafe fn launch<V>(
            index: usize,
            stream: &Stream,
            pass: Pass<'_>,
            function: Function<'_, F, V>,
        ) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>;
    }

    impl<F: Compiled> Sealed<F> for () {
        unsafe fn launch<V>(index: usize, _: &Stream, _: Pass<'_>, _: Function<'_, F, V>) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>,
        {
            Err(no_kernel(index))
        }
    }

    impl<F: Compiled, K: Kernel<Params = Parameters<F>>, Rest: Sealed<F>> Sealed<F> for (K, Rest) {
        unsafe fn launch<V>(
            index: usize,
            stream: &Stream,
            pass: Pass<'_>,
            function: Function<'_, F, V>,
        ) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>,
        {
            if let Some(index) = index.checked_sub(1) {
                // SAFETY: the caller's contract.
                return unsafe { Rest::launch(index, stream, pass, function) };
            }
            let Pass { grid, maps, params, logarithms, deltas, sums, rows, strides, order, first } = pass;
            let [queries, keys, values, gradients, key_gradients, value_gradients] = maps;
            let ([key_rows, value_rows], [first_queries, first_keys]) = (rows, first);
            let (function, lists) = function;
            let (list_params, words) = words_of(lists);
            let arguments = (
                queries,
                keys,
                values,
                gradients,
                key_gradients,
                value_gradients,
                params,
                logarithms,
                deltas,
                sums,
                key_rows,
                value_rows,
                strides,
                order,
                first_queries,
                first_keys,
                function,
                list_params,
                words,
            );
            // SAFETY: the caller's contract; the lists are of this launch.
            unsafe { kernel::launch::<K>(stream, grid, arguments) }
        }
    }
}
