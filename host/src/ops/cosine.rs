//! Cosine similarity search: for each query the `k` most similar rows of a corpus of f16 or bf16 vectors.
//!
//! ```no_run
//! use half::f16;
//! use ironwarp::ops::cosine::{Vectors, cosine_topk};
//! # fn main() -> ironwarp::Result<()> {
//! # let device = ironwarp::Device::open(0)?;
//! # let stream = device.stream()?;
//! # let (passages, question) = (vec![f16::ONE; 5000 * 512], vec![f16::ONE; 512]);
//! let corpus = ironwarp::DeviceBuffer::from_slice(&stream, &passages)?;
//! let query = ironwarp::DeviceBuffer::from_slice(&stream, &question)?;
//! let best = cosine_topk(&stream, Vectors::new(&corpus, 512)?, Vectors::new(&query, 512)?, 5)?;
//! for hit in &best.to_host(&stream)?[0] {
//!     println!("passage {} scores {}", hit.index, hit.score);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Scores are f32, `dot / (|row| |query|)`, with dot products and norms summed in f32 by the tensor cores.
//! Rows rank by score, ties go to the lower index. A zero vector scores 0 against every finite one; a vector
//! with a NaN or an infinity scores NaN against every vector; NaN ranks last. (bf16 vectors whose sum of
//! squares leaves the range of f32 have no meaningful score.) The same inputs give the same bits in every
//! run.
//!
//! Up to 16 queries read the corpus once, at the speed of memory. More become a matrix product, which first
//! needs the norms of the corpus: another read of it, unless it is a [`Corpus`], which keeps them.

use cuda_std::kernel::{Kernel, Map, Ptr, PtrMut, Value};
use half::{bf16, f16};
use similarity::{MAX_K, key, merge, norms, sm90 as wide, stream as few, tile as many};

use crate::device::{Device, DeviceProperties, RESERVED_SHARED};
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, DeviceView, same_length};
use crate::stream::Stream;
use crate::tma::{MapElement, Swizzle, TensorMap, Tiling};

mod sealed {
    pub trait Sealed {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// An element type of vectors: `f16` or `bf16`. Its kernels are the library's own business.
pub trait Element: MapElement + sealed::Sealed {
    #[doc(hidden)]
    type Norms: Kernel<Params = (Ptr<Self>, Value<u32>, Value<u32>, PtrMut<f32>)>;
    #[doc(hidden)]
    type Few: Kernel<
        Params = (
            Ptr<Self>,
            Value<u32>,
            Value<u32>,
            Ptr<Self>,
            Ptr<f32>,
            Value<u32>,
            Value<u32>,
            Value<u32>,
            PtrMut<u64>,
        ),
    >;
    #[doc(hidden)]
    type Many: Kernel<
        Params = (
            Ptr<Self>,
            Ptr<f32>,
            Value<u32>,
            Value<u32>,
            Ptr<Self>,
            Ptr<f32>,
            Value<u32>,
            Value<u32>,
            Value<u32>,
            Value<u32>,
            PtrMut<u64>,
        ),
    >;
    #[doc(hidden)]
    type Wide: Kernel<Params = WideParams>;
    #[doc(hidden)]
    type WideLong: Kernel<Params = WideParams>;
}

type WideParams = (Map, Map, Ptr<f32>, Value<u32>, Value<u32>, Ptr<f32>, Value<u32>, Value<u32>, PtrMut<u64>);

impl Element for f16 {
    type Norms = similarity::cosine_norms_f16;
    type Few = similarity::cosine_stream_f16;
    type Many = similarity::cosine_tile_f16;
    type Wide = similarity::cosine_wgmma_f16;
    type WideLong = similarity::cosine_wgmma_long_f16;
}

impl Element for bf16 {
    type Norms = similarity::cosine_norms_bf16;
    type Few = similarity::cosine_stream_bf16;
    type Many = similarity::cosine_tile_bf16;
    type Wide = similarity::cosine_wgmma_bf16;
    type WideLong = similarity::cosine_wgmma_long_bf16;
}

const OPERATION: &str = "cosine_topk";

/// Vectors of equal length on the device: `[count, dim]`, row-major.
#[derive(Debug)]
pub struct Vectors<'a, T: Element> {
    data: DeviceView<'a, T>,
    dim: u32,
    count: u32,
}

impl<T: Element> Clone for Vectors<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for Vectors<'_, T> {}

impl<'a, T: Element> Vectors<'a, T> {
    /// Views `data` as vectors of `dim` elements. Fastest where `dim` is a multiple of 8 and `data` begins on
    /// a 16-byte boundary.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when `dim` is 0 or beyond 2^32 - 1, or there are 2^32 - 1 vectors or more;
    /// [`Error::Length`] when the last vector is not whole.
    pub fn new(data: impl Into<DeviceView<'a, T>>, dim: usize) -> Result<Self> {
        let data = data.into();
        let invalid = |argument, got: usize, wanted: &str, hint| Error::InvalidArgument {
            operation: "cosine::Vectors::new",
            argument,
            got: got.to_string(),
            wanted: wanted.to_owned(),
            hint,
        };
        let width = u32::try_from(dim).ok().filter(|&dim| dim > 0).ok_or_else(|| {
            invalid("dim", dim, "1 to 2^32 - 1", "dim is the number of elements of one vector")
        })?;
        let count = data.len() / dim;
        same_length("cosine::Vectors::new", "the data, in whole vectors,", count * dim, data.len())?;
        let count = u32::try_from(count).ok().filter(|&count| count < key::NO_ROW).ok_or_else(|| {
            invalid("the number of vectors", count, "below 2^32 - 1", "search the corpus in parts")
        })?;
        Ok(Vectors { data, dim: width, count })
    }

    /// Number of vectors.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Elements of a vector.
    pub fn dim(&self) -> usize {
        self.dim as usize
    }

    /// The map of the kernel for Hopper, with boxes of `rows` vectors.
    fn map(self, rows: u32) -> Result<TensorMap<'a>> {
        let tiling = Tiling::new([self.dim(), self.count(), 1], [wide::BLOCK_K, rows, 1]);
        TensorMap::new(self.data, &tiling.swizzle(Swizzle::B128))
    }
}

/// One result of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Row of the corpus.
    pub index: u32,
    /// Cosine of the angle between that row and the query.
    pub score: f32,
}

/// The result of a search, on the device.
#[derive(Debug)]
pub struct TopK {
    /// f32 `[queries, k]`, best first; minus infinity past the end of the corpus.
    pub scores: DeviceBuffer<f32>,
    /// u32 `[queries, k]`, the rows that have these scores; `u32::MAX` past the end of the corpus.
    pub indices: DeviceBuffer<u32>,
    /// Number of queries.
    pub queries: usize,
    /// Length of each query's list.
    pub k: usize,
    /// How many entries of each list are rows of the corpus: the smaller of `k` and the corpus.
    pub found: usize,
}

impl TopK {
    /// Waits for the result and copies it to the host: for each query its hits, best first, without the
    /// entries past the end.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::NotCapturable`] on a stream that is being captured, or the
    /// driver's error.
    pub fn to_host(&self, stream: &Stream) -> Result<Vec<Vec<Hit>>> {
        let (scores, indices) = (self.scores.to_vec(stream)?, self.indices.to_vec(stream)?);
        let hits = |query: usize| {
            let range = query * self.k..query * self.k + self.found;
            let pairs = indices[range.clone()].iter().zip(&scores[range]);
            pairs.map(|(&index, &score)| Hit { index, score }).collect()
        };
        Ok((0..self.queries).map(hits).collect())
    }
}

/// Queues a search for the `k` rows of `corpus` that are most similar to each of `queries`. Any numbers of
/// rows and queries, 0 too.
///
/// # Errors
/// [`Error::InvalidArgument`] when `k` is 0 or above [`MAX_K`], or the vectors' lengths differ;
/// [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's error.
pub fn cosine_topk<T: Element>(
    stream: &Stream,
    corpus: Vectors<'_, T>,
    queries: Vectors<'_, T>,
    k: usize,
) -> Result<TopK> {
    search(stream, corpus, None, queries, k)
}

/// A corpus with its norms, for many searches.
#[derive(Debug)]
pub struct Corpus<'a, T: Element> {
    vectors: Vectors<'a, T>,
    inverse_norms: DeviceBuffer<f32>,
}

impl<'a, T: Element> Corpus<'a, T> {
    /// Queues the computation of the norms: one read of the corpus.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's error.
    pub fn prepare(stream: &Stream, vectors: Vectors<'a, T>) -> Result<Self> {
        Ok(Corpus { vectors, inverse_norms: inverse_norms(stream, vectors)? })
    }

    /// The corpus's vectors.
    pub fn vectors(&self) -> Vectors<'a, T> {
        self.vectors
    }

    /// As [`cosine_topk`].
    ///
    /// # Errors
    /// As [`cosine_topk`].
    pub fn topk(&self, stream: &Stream, queries: Vectors<'_, T>, k: usize) -> Result<TopK> {
        search(stream, self.vectors, Some(&self.inverse_norms), queries, k)
    }
}

fn search<T: Element>(
    stream: &Stream,
    corpus: Vectors<'_, T>,
    corpus_norms: Option<&DeviceBuffer<f32>>,
    queries: Vectors<'_, T>,
    k: usize,
) -> Result<TopK> {
    let length = u32::try_from(k).ok().filter(|k| (1..=MAX_K).contains(k));
    let Some(length) = length else {
        return Err(invalid(
            "k",
            k,
            format!("1 to {MAX_K}"),
            "keep more results by searching the corpus in parts",
        ));
    };
    if queries.dim != corpus.dim {
        let hint = "corpus and queries must come from the same embedding";
        return Err(invalid("the queries' dim", queries.dim(), format!("the corpus's {}", corpus.dim), hint));
    }
    stream.same_device("the corpus", corpus.data.device())?;
    stream.same_device("the queries", queries.data.device())?;
    let lists = if corpus.count == 0 || queries.count == 0 {
        Lists { keys: DeviceBuffer::zeroed(stream, 0)?, lists: 0 }
    } else {
        match Strategy::choose(stream.device(), corpus, queries, length)? {
            Strategy::Few { per_launch, plan, blocks } => {
                search_few(stream, corpus, queries, length, (per_launch, plan.depth()), blocks)?
            }
            Strategy::Many { plan, slices } => {
                search_many(stream, corpus, corpus_norms, queries, plan, slices)?
            }
            Strategy::Wide { slices } => search_wide(stream, corpus, corpus_norms, queries, length, slices)?,
        }
    };
    merge_lists(stream, &lists, queries.count(), length, k.min(corpus.count()))
}

fn invalid(argument: &'static str, got: usize, wanted: String, hint: &'static str) -> Error {
    Error::InvalidArgument { operation: OPERATION, argument, got: got.to_string(), wanted, hint }
}

/// Which kernel searches, and how it is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// The corpus streams past up to `per_launch` queries at a time.
    Few { per_launch: u32, plan: few::Plan, blocks: u32 },
    /// All queries at once, tile by tile.
    Many { plan: many::Plan, slices: u32 },
    /// The same on Hopper's tensor cores.
    Wide { slices: u32 },
}

/// Launches of the streaming kernel that cost as much as one of the tile kernel with its norms.
const FEW_LAUNCHES: u32 = 2;
/// Tiles whose time a block of the tile kernel loses to empty lists and thresholds that do not reject yet.
const WARM_UP_TILES: u32 = 8;

impl Strategy {
    fn choose<T: Element>(
        on: &Device,
        corpus: Vectors<'_, T>,
        vectors: Vectors<'_, T>,
        k: u32,
    ) -> Result<Self> {
        let (device, queries) = (on.properties(), vectors.count);
        let limit = device.shared_per_block_optin;
        let most = queries.min(few::MAX_QUERIES);
        let few =
            (1..=most).rev().find_map(|q| few::Plan::fitting(corpus.dim, q, k, limit).map(|plan| (q, plan)));
        let many = many::Plan::fitting(k, limit);
        match (few, many) {
            (Some((per_launch, plan)), many)
                if many.is_none() || queries.div_ceil(per_launch) <= FEW_LAUNCHES =>
            {
                let resident = resident(device, plan.bytes(), few::BLOCKS_PER_SM);
                let work = corpus.count.div_ceil(few::ROWS_PER_BLOCK);
                Ok(Strategy::Few { per_launch, plan, blocks: work.min(resident * device.sm_count).max(1) })
            }
            _ if is_wide(on, corpus, vectors, k) => {
                let tiles = corpus.count.div_ceil(wide::BLOCK_ROWS);
                let slices = slices(tiles, queries.div_ceil(wide::BLOCK_QUERIES), device.sm_count);
                Ok(Strategy::Wide { slices })
            }
            (_, Some(plan)) => {
                let tiles = corpus.count.div_ceil(many::BLOCK_ROWS);
                let slices = slices(tiles, queries.div_ceil(many::BLOCK_QUERIES), device.sm_count);
                Ok(Strategy::Many { plan, slices })
            }
            _ => {
                let hint = "search with a smaller k, or in parts: this device has little shared memory";
                Err(invalid("k", k as usize, format!("a k that fits {limit} bytes of shared memory"), hint))
            }
        }
    }
}

/// Whether the kernels for Hopper can do the search: their copies want rows that begin at multiples of 16
/// bytes.
fn is_wide<T: Element>(device: &Device, corpus: Vectors<'_, T>, queries: Vectors<'_, T>, k: u32) -> bool {
    let is_hopper = device.arch().is_hopper();
    let is_aligned = |vectors: Vectors<'_, T>| {
        let piece = u64::from(wide::PIECE_BYTES);
        let address = vectors.data.as_ptr().raw();
        address.is_multiple_of(piece)
            && (u64::from(vectors.dim) * size_of::<T>() as u64).is_multiple_of(piece)
    };
    is_hopper
        && k <= wide::LONG_K
        && is_aligned(corpus)
        && is_aligned(queries)
        && has_coordinates(corpus.dim, corpus.count.max(queries.count))
}

/// Whether so many elements and rows, whole tiles of them, can be told apart by the coordinates of copies,
/// which are i32.
fn has_coordinates(dim: u32, rows: u32) -> bool {
    dim <= i32::MAX as u32 && rows <= wide::MAX_ROWS
}

/// Blocks of `bytes` of shared memory that a multiprocessor holds, where registers allow `most`.
fn resident(device: &DeviceProperties, bytes: u32, most: u32) -> u32 {
    (device.shared_per_sm / (bytes + RESERVED_SHARED)).clamp(1, most)
}

/// Into how many slices of `tiles` tiles the corpus is best cut, when each is searched by `query_tiles`
/// blocks.
fn slices(tiles: u32, query_tiles: u32, multiprocessors: u32) -> u32 {
    let multiprocessors = u64::from(multiprocessors.max(1) * many::BLOCKS_PER_SM);
    let most = (2 * multiprocessors / u64::from(query_tiles)).clamp(1, u64::from(tiles));
    let time = |&slices: &u32| {
        let waves = (u64::from(slices) * u64::from(query_tiles)).div_ceil(multiprocessors);
        (waves * u64::from(tiles.div_ceil(slices) + WARM_UP_TILES), slices)
    };
    (1..=most as u32).min_by_key(time).unwrap_or(1)
}

/// Keys u64 `[queries, lists, k]`.
struct Lists {
    keys: DeviceBuffer<u64>,
    lists: u32,
}

impl Lists {
    /// Room for them, whose contents mean nothing yet.
    fn new(stream: &Stream, queries: u32, lists: u32, k: u32) -> Result<Self> {
        let len = (queries as usize * lists as usize).saturating_mul(k as usize);
        // SAFETY: u64 has no invalid values, and the searches write all of it before the merge reads it.
        let keys = unsafe { DeviceBuffer::uninit(stream, len)? };
        Ok(Lists { keys, lists })
    }
}

/// One over the norms of the vectors, padded to whole 16-byte copies.
fn inverse_norms<T: Element>(stream: &Stream, vectors: Vectors<'_, T>) -> Result<DeviceBuffer<f32>> {
    let mut out =
        DeviceBuffer::zeroed(stream, vectors.count().next_multiple_of(many::NORMS_AT_ONCE as usize))?;
    if vectors.count > 0 {
        let work = vectors.count.div_ceil(norms::ROWS_PER_BLOCK);
        let device = stream.device().properties();
        let resident = resident(device, norms::SHARED_BYTES, norms::BLOCKS_PER_SM) * device.sm_count;
        let config = LaunchConfig::new([work.min(resident).max(1), 1, 1], [norms::THREADS, 1, 1])
            .with_shared(norms::SHARED_BYTES);
        // SAFETY: `vectors` holds `count * dim` elements and `out` at least `count`; grid and block are what
        // the kernel asks for.
        unsafe { launch::<T::Norms>(stream, config, (vectors.data, vectors.count, vectors.dim, &mut out))? };
    }
    Ok(out)
}

/// The norms of a corpus: those that it brings along, or computed ones.
fn known_or_computed<'n, T: Element>(
    stream: &Stream,
    corpus: Vectors<'_, T>,
    known: Option<&'n DeviceBuffer<f32>>,
    computed: &'n mut Option<DeviceBuffer<f32>>,
) -> Result<&'n DeviceBuffer<f32>> {
    match known {
        Some(norms) => Ok(norms),
        None => Ok(computed.insert(inverse_norms(stream, corpus)?)),
    }
}

fn search_few<T: Element>(
    stream: &Stream,
    corpus: Vectors<'_, T>,
    queries: Vectors<'_, T>,
    k: u32,
    (per_launch, depth): (u32, u32),
    blocks: u32,
) -> Result<Lists> {
    let norms = inverse_norms(stream, queries)?;
    let mut lists = Lists::new(stream, queries.count, blocks, k)?;
    let list_len = blocks as usize * k as usize;
    for first in (0..queries.count()).step_by(per_launch as usize) {
        let last = queries.count().min(first + per_launch as usize);
        let count = (last - first) as u32;
        let part = queries.data.slice(first * queries.dim()..last * queries.dim())?;
        let out = lists.keys.slice_mut(first * list_len..last * list_len)?;
        let config = LaunchConfig::new([blocks, 1, 1], [few::THREADS, 1, 1])
            .with_shared(few::Plan::new(corpus.dim, count, k, depth).bytes());
        let arguments =
            (corpus.data, corpus.count, corpus.dim, part, norms.slice(first..last)?, count, k, depth, out);
        // SAFETY: `part`, its norms and `out` hold what `count` queries need, the plan fits the device, and
        // grid and block are what the kernel asks for.
        unsafe { launch::<T::Few>(stream, config, arguments)? };
    }
    Ok(lists)
}

fn search_many<T: Element>(
    stream: &Stream,
    corpus: Vectors<'_, T>,
    corpus_norms: Option<&DeviceBuffer<f32>>,
    queries: Vectors<'_, T>,
    plan: many::Plan,
    slices: u32,
) -> Result<Lists> {
    let mut computed = None;
    let corpus_norms = known_or_computed(stream, corpus, corpus_norms, &mut computed)?;
    let norms = inverse_norms(stream, queries)?;
    let mut lists = Lists::new(stream, queries.count, slices, plan.k())?;
    let query_tiles = queries.count.div_ceil(many::BLOCK_QUERIES);
    // More blocks than a grid holds become an error of the launch.
    let blocks = slices.saturating_mul(query_tiles);
    let config = LaunchConfig::new([blocks, 1, 1], [many::THREADS, 1, 1]).with_shared(plan.bytes());
    let arguments = (
        corpus.data,
        corpus_norms,
        corpus.count,
        corpus.dim,
        queries.data,
        &norms,
        queries.count,
        slices,
        plan.k(),
        plan.capacity(),
        &mut lists.keys,
    );
    // SAFETY: every buffer holds what the counts say, the norms are padded, the plan is the one that `k` and
    // `capacity` give, and grid and block are what the kernel asks for.
    unsafe { launch::<T::Many>(stream, config, arguments)? };
    Ok(lists)
}

fn search_wide<T: Element>(
    stream: &Stream,
    corpus: Vectors<'_, T>,
    corpus_norms: Option<&DeviceBuffer<f32>>,
    queries: Vectors<'_, T>,
    k: u32,
    slices: u32,
) -> Result<Lists> {
    let mut computed = None;
    let corpus_norms = known_or_computed(stream, corpus, corpus_norms, &mut computed)?;
    let norms = inverse_norms(stream, queries)?;
    let mut lists = Lists::new(stream, queries.count, slices, k)?;
    let grid = [queries.count.div_ceil(wide::BLOCK_QUERIES), slices, 1];
    let config = LaunchConfig::new(grid, [wide::THREADS, 1, 1]).with_shared(wide::shared_bytes(k));
    let arguments = (
        queries.map(wide::BLOCK_QUERIES)?,
        corpus.map(wide::BLOCK_ROWS)?,
        corpus_norms,
        corpus.count,
        corpus.dim,
        &norms,
        queries.count,
        k,
        &mut lists.keys,
    );
    // SAFETY: every buffer holds what the counts say, the norms are padded, the maps have the kernel's boxes
    // and swizzle, its lists hold `k`, and grid, block and shared memory are what it asks for.
    unsafe {
        if k <= wide::SHORT_K {
            launch::<T::Wide>(stream, config, arguments)?;
        } else {
            launch::<T::WideLong>(stream, config, arguments)?;
        }
    }
    Ok(lists)
}

fn merge_lists(stream: &Stream, lists: &Lists, queries: usize, k: u32, found: usize) -> Result<TopK> {
    let len = queries.saturating_mul(k as usize);
    // SAFETY: f32 and u32 have no invalid values, and the merge writes all of both.
    let (mut scores, mut indices) =
        unsafe { (DeviceBuffer::uninit(stream, len)?, DeviceBuffer::uninit(stream, len)?) };
    // `queries` came from a u32.
    let config =
        LaunchConfig::new([queries as u32, 1, 1], [merge::THREADS, 1, 1]).with_shared(merge::shared_bytes(k));
    // SAFETY: `keys` is `[queries, lists, k]`, the results are `[queries, k]`; grid and block are what the
    // kernel asks for.
    unsafe {
        launch::<similarity::cosine_merge>(
            stream,
            config,
            (&lists.keys, lists.lists, k, &mut scores, &mut indices),
        )?
    };
    Ok(TopK { scores, indices, queries, k: k as usize, found })
}

#[cfg(test)]
mod tests {
    use super::{WARM_UP_TILES, has_coordinates, slices, wide};

    /// Time of the whole search in tiles, as the slowest multiprocessor sees it.
    fn time(tiles: u32, query_tiles: u32, slices: u32) -> u32 {
        (slices * query_tiles).div_ceil(132) * (tiles.div_ceil(slices) + WARM_UP_TILES)
    }

    #[test]
    fn slices_fill_the_device_and_never_exceed_the_tiles() {
        for query_tiles in [1, 2, 8, 100, 131, 132, 133, 1000, 100_000] {
            for tiles in [1, 2, 131, 132, 133, 15_625] {
                let slices = slices(tiles, query_tiles, 132);
                assert!((1..=tiles).contains(&slices), "{tiles} {query_tiles}: {slices}");
                assert!(time(tiles, query_tiles, slices) <= time(tiles, query_tiles, 1));
            }
        }
        // One tile of queries: a slice for each multiprocessor or two.
        assert!(slices(15_625, 1, 132) >= 132);
    }

    #[test]
    fn coordinates_have_31_bits() {
        assert!(has_coordinates((1 << 31) - 8, wide::MAX_ROWS));
        assert!(!has_coordinates(1 << 31, 1));
        assert!(!has_coordinates(8, wide::MAX_ROWS + 1));
    }
}
