//! The blocks that a mask shows, made on the device.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use attention::block_lists::{ListParams, Listed, THREADS};
use attention::compiled::Compiled;
use attention::problem::AttentionParams;
use cuda_std::kernel::{Kernel, PtrMut, StructArgs, Value};

use crate::error::Result;
use crate::launch::{self as kernel, Arg, LaunchConfig};
use crate::memory::{DeviceBuffer, DeviceView};
use crate::stream::Stream;

use super::check::invalid;
use super::launch::list_params;
use super::mask_cache::BlockMaskCache;
use super::problem::{Mask, Problem};

/// Whether heads and sequences have lists of their own. By default all share one: the mask looks at neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Own {
    /// A list for each head of queries.
    pub heads: bool,
    /// A list for each sequence.
    pub sequences: bool,
}

impl Own {
    /// Sequences and heads of a problem that have lists.
    fn lists(self, problem: &Problem) -> [u32; 2] {
        let of = |is_own: bool, side: u32| if is_own { side.max(1) } else { 1 };
        [of(self.sequences, problem.batch), of(self.heads, problem.heads)]
    }
}

/// For each tile of queries the blocks of keys that a score function's mask shows, and whether it shows them
/// whole; or for each tile of keys the blocks of queries, for gradients. Attention with it
/// ([`Modified::blocks`](super::Modified::blocks),
/// [`ModifiedBackward::blocks`](super::ModifiedBackward::blocks)) looks at no other block, and asks the mask
/// only in those that are shown in part.
///
/// [`Modified::block_mask`](super::Modified::block_mask) and
/// [`ModifiedBackward::block_mask`](super::ModifiedBackward::block_mask) make it on the device, and nobody
/// waits for that: 4 bytes for each tile and block, and 4 for each tile. It holds for one pass of one
/// problem, and as long as the mask gives the same answers: keep it for as many calls, or let a
/// [`BlockMaskCache`](super::BlockMaskCache) keep it.
#[derive(Debug)]
pub struct BlockMask<F> {
    words: DeviceBuffer<u32>,
    plan: Plan,
    /// The lists have nothing of the function's arguments in them.
    function: PhantomData<fn(F)>,
}

/// Which lists a mask has, and of what: all that they depend on but the function and the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    params: ListParams,
    own: Own,
    queries: u32,
    keys: u32,
    mask: Mask,
}

/// Which tiles have lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tiles {
    /// Those of queries, of blocks of keys.
    Queries,
    /// Those of keys, of blocks of queries.
    Keys,
}

impl Tiles {
    fn pass(self) -> &'static str {
        match self {
            Tiles::Queries => "forward",
            Tiles::Keys => "backward",
        }
    }

    fn of(params: &ListParams) -> Self {
        if params.of_keys == 0 { Tiles::Queries } else { Tiles::Keys }
    }
}

/// How much of the scores a [`BlockMask`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks of all tiles that have a list.
    pub blocks: u64,
    /// Those that are computed.
    pub computed: u64,
    /// Those of them in which the mask is asked.
    pub partial: u64,
}

/// As in `8 of 16 blocks (50.0 %), 6 of them in part`.
impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Statistics { blocks, computed, partial }, share) = (self, 100.0 * self.share());
        write!(f, "{computed} of {blocks} blocks ({share:.1} %), {partial} of them in part")
    }
}

impl Statistics {
    /// The share of blocks that are computed, 0 to 1.
    pub fn share(&self) -> f64 {
        self.computed as f64 / self.blocks.max(1) as f64
    }
}

/// Parameters of a kernel that makes lists.
pub type ListParameters<F> = (Value<AttentionParams>, Value<ListParams>, Value<F>, PtrMut<u32>);

impl Plan {
    /// The lists of a kernel with tiles of `block_m` queries and `block_n` keys.
    pub(super) fn new(
        problem: &Problem,
        tiles: Tiles,
        [block_m, block_n]: [u32; 2],
        own: Own,
    ) -> Result<Self> {
        if problem.packed.is_some() {
            return Err(invalid(
                "the problem",
                problem.to_string(),
                "a batch of sequences of one length".to_owned(),
                "packed sequences have tiles of their own, which need no list",
            ));
        }
        let blocks = [problem.queries.div_ceil(block_m), problem.keys.div_ceil(block_n)];
        let [listed, looked_at] = match tiles {
            Tiles::Queries => blocks,
            Tiles::Keys => [blocks[1], blocks[0]],
        };
        let [batch, heads] = own.lists(problem);
        let params = ListParams {
            tiles: listed,
            words: looked_at + 1,
            heads,
            batch,
            block_m,
            block_n,
            of_keys: u32::from(tiles == Tiles::Keys),
        };
        Ok(Plan { params, own, queries: problem.queries, keys: problem.keys, mask: problem.mask })
    }
}

/// As in `512 queries on 600 keys, causal, 64 x 128, forward`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { params, queries, keys, mask, .. } = self;
        let ListParams { block_m, block_n, .. } = params;
        let pass = Tiles::of(params).pass();
        write!(f, "{queries} queries on {keys} keys, {mask}, {block_m} x {block_n}, {pass}")
    }
}

/// Lists to be made of a function's mask.
pub(super) struct Listing<F, V> {
    problem: Problem,
    plan: Plan,
    function: StructArgs<F, V>,
}

impl<F, V> Listing<F, V> {
    /// Those that are planned for this problem.
    ///
    /// # Safety
    /// As for [`Attention::function`](super::Attention::function).
    pub unsafe fn new(problem: Problem, plan: Plan, function: StructArgs<F, V>) -> Self {
        Listing { problem, plan, function }
    }
}

impl<F: Compiled, V> Listing<F, V>
where
    F::Lists: Kernel<Params = ListParameters<F>>,
    StructArgs<F, V>: Arg<Value<F>>,
{
    /// From a cache, which has them made at the first call with this key.
    pub fn make_once<K: Eq + Hash>(
        self,
        stream: &Stream,
        cache: &mut BlockMaskCache<F, K>,
        key: K,
    ) -> Result<Arc<BlockMask<F>>> {
        let plan = self.plan;
        cache.get(stream, key, plan, || self.make(stream))
    }

    /// Queues their making.
    pub fn make(self, stream: &Stream) -> Result<BlockMask<F>> {
        let Listing { problem, plan, function } = self;
        let params = plan.params;
        let lists = lists(&params, &problem)?;
        let mut words = DeviceBuffer::zeroed(stream, lists as usize * params.words as usize)?;
        if lists > 0 {
            let grid = LaunchConfig::new([lists, 1, 1], [THREADS, 1, 1]);
            let arguments = (list_params(&problem), params, function, &mut words);
            // SAFETY: a block for each list, as long as they say; the function is the word of `new`'s caller.
            unsafe { kernel::launch::<F::Lists>(stream, grid, arguments)? }
        }
        Ok(BlockMask { words, plan, function: PhantomData })
    }
}

/// How many lists there are.
fn lists(params: &ListParams, problem: &Problem) -> Result<u32> {
    let lists = [params.heads, params.batch].into_iter().try_fold(params.tiles, u32::checked_mul);
    let words = lists.and_then(|lists| (lists as usize).checked_mul(params.words as usize));
    match (lists, words) {
        (Some(lists), Some(_)) if lists <= i32::MAX as u32 => Ok(lists),
        _ => Err(invalid(
            "the lists",
            format!("those of {problem}"),
            format!("at most {} lists", i32::MAX),
            "let heads or sequences share them",
        )),
    }
}

impl<F> BlockMask<F> {
    /// Counts blocks. This waits for the device.
    ///
    /// # Errors
    /// [`crate::Error::DeviceMismatch`], [`crate::Error::NotCapturable`] on a stream that is being captured,
    /// or the driver's error.
    pub fn statistics(&self, stream: &Stream) -> Result<Statistics> {
        let words = self.words.to_vec(stream)?;
        let lists = words.chunks_exact(self.plan.params.words.max(1) as usize);
        let mut statistics = Statistics { blocks: 0, computed: 0, partial: 0 };
        for list in lists {
            let listed = list[1..].iter().take(list[0] as usize);
            statistics.blocks += list.len() as u64 - 1;
            statistics.computed += u64::from(list[0]);
            statistics.partial += listed.filter(|word| Listed::from_word(**word).is_partial).count() as u64;
        }
        Ok(statistics)
    }

    /// Its memory.
    pub fn bytes(&self) -> usize {
        self.words.len() * size_of::<u32>()
    }

    /// Queries and keys of the tiles of its kernel.
    pub(super) fn tile(&self) -> [u32; 2] {
        [self.plan.params.block_m, self.plan.params.block_n]
    }

    /// The lists, as kernels take them.
    pub(super) fn lists(&self) -> (ListParams, DeviceView<'_, u32>) {
        (self.plan.params, self.words.view())
    }

    /// They are those of this problem, and of a kernel with these tiles.
    pub(super) fn check(
        &self,
        stream: &Stream,
        problem: &Problem,
        tiles: Tiles,
        block: [u32; 2],
    ) -> Result<()> {
        stream.same_device("the blocks", self.words.device())?;
        let ListParams { heads, batch, .. } = self.plan.params;
        let of = (self.plan.queries, self.plan.keys, self.plan.mask);
        let fits = of == (problem.queries, problem.keys, problem.mask)
            && problem.packed.is_none()
            && Tiles::of(&self.plan.params) == tiles
            && self.tile() == block
            && [batch, heads] == self.plan.own.lists(problem);
        if fits {
            return Ok(());
        }
        let ([wanted_m, wanted_n], wanted) = (block, tiles.pass());
        Err(invalid(
            "the blocks",
            format!("those of {}", self.plan),
            format!("those of {problem}, {wanted_m} x {wanted_n}, {wanted}"),
            "make a `BlockMask` for this very problem and pass",
        ))
    }
}
