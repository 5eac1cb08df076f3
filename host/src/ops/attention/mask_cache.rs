//! Lists of blocks that are made once and kept.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use crate::error::Result;
use crate::stream::{Event, Stream};

use super::block_mask::{BlockMask, Plan, Statistics};

/// Keeps a [`BlockMask`] for each pattern, so that it is made once:
/// [`Modified::cached_block_mask`](super::Modified::cached_block_mask) and
/// [`ModifiedBackward::cached_block_mask`](super::ModifiedBackward::cached_block_mask) take it from here.
///
/// A mask is found again by the caller's key, the lengths, the mask of the problem, the tiles of the kernel,
/// the pass, what heads and sequences have of their own ([`Own`](super::Own)), and the device. Batch and
/// heads count where they have lists of their own.
///
/// # The key
/// The key stands for everything else that the function's mask depends on. **Equal keys promise equal
/// answers.** The cache does not look at arguments, and does not read device memory. So:
///
/// * Arguments that are plain numbers are a key by themselves:
///   [`Modified::values`](super::Modified::values). That of a function that takes memory does not compile.
/// * For a table in device memory, take what names its contents: the lengths of documents, a number that
///   changes with each upload, or the host's copy of the table. The address is no key: contents change, and
///   memory is given out again.
/// * `()` is for a function that shows the same keys always.
///
/// A key that lies gives results of the wrong mask. It reads no memory that it must not.
///
/// # Memory, streams and graphs
/// It holds up to so many bytes on the device as [`BlockMaskCache::new`] is given. The masks used longest ago
/// go first; a larger mask is made, but not kept. Whoever still has one keeps its memory.
///
/// A mask may be made on one stream and used on another, which then waits for it on the device. Nothing is
/// made on a stream that is being captured: a graph would make it again in each replay. Call once before the
/// capture, as a warm-up does; the captured step then finds it, and its graph keeps the memory.
///
/// ```
/// # use half::bf16;
/// # use ironwarp::{Device, DeviceBuffer};
/// use ironwarp::ops::attention::{Attention, BlockMaskCache, Heads, HeadsMut, Own, ranges};
/// # fn main() -> ironwarp::Result<()> {
/// # let device = Device::open(0)?;
/// # if (device.arch().major, device.arch().minor) != (9, 0) {
/// #     return Ok(());
/// # }
/// # let stream = device.stream()?;
/// let sides = [1, 100, 2, 64];
/// # let x = DeviceBuffer::<bf16>::zeroed(&stream, 100 * 2 * 64)?;
/// # let mut y = DeviceBuffer::<bf16>::zeroed(&stream, 100 * 2 * 64)?;
/// let mut cache = BlockMaskCache::new(1 << 20); // up to 1 MiB of lists
/// for lengths in [[70, 30], [50, 50], [70, 30], [70, 30]] {
///     let table = DeviceBuffer::from_slice(&stream, &ranges::documents(&lengths))?;
///     let [q, k, v] = [&x, &x, &x].map(|x| Heads::new::<bf16>(x, sides));
///     let attention = Attention::new(q, k, v, HeadsMut::new::<bf16>(&mut y, sides)).ranges(&table)?;
///     // The table is made of the lengths alone.
///     let blocks = attention.cached_block_mask(&stream, Own::default(), &mut cache, lengths)?;
///     attention.blocks(&blocks).run(&stream)?;
/// }
/// let statistics = cache.statistics()?;
/// assert_eq!((statistics.hits, statistics.misses), (2, 2));
/// println!("{statistics}");
/// for mask in cache.masks(&stream)? {
///     println!("{:?}: {mask}", mask.key);
/// }
/// # Ok(())
/// # }
/// ```
pub struct BlockMaskCache<F, K> {
    entries: HashMap<Place<K>, Entry<F>>,
    most_bytes: usize,
    /// Calls so far: the time of the last use.
    calls: u64,
    hits: u64,
    misses: u64,
    evicted: u64,
    /// Beginnings and ends of makings whose time is not taken yet.
    makings: Vec<[Event; 2]>,
    build_ms: f64,
}

/// A mask is found by this.
#[derive(PartialEq, Eq, Hash)]
struct Place<K> {
    key: K,
    plan: Plan,
    /// The device's number: as long as a mask lives, so does the device that has it.
    device: u32,
}

struct Entry<F> {
    mask: Arc<BlockMask<F>>,
    used: u64,
    hits: u64,
}

/// Numbers of a [`BlockMaskCache`] so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheStatistics {
    /// Calls that found their mask.
    pub hits: u64,
    /// Calls that made one.
    pub misses: u64,
    /// Masks that were given up for others.
    pub evicted: u64,
    /// Masks that are kept now.
    pub masks: usize,
    /// Their memory on the device.
    pub bytes: usize,
    /// Milliseconds that all makings took on the device, by events around them; with work of other streams
    /// beside them.
    pub build_ms: f64,
}

/// As in `hits 2, misses 2; kept 2 masks of 512 bytes, gave up 0; 0.031 ms to make them`.
impl fmt::Display for CacheStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CacheStatistics { hits, misses, evicted, masks, bytes, build_ms } = self;
        write!(f, "hits {hits}, misses {misses}; kept {masks} masks of {bytes} bytes, gave up {evicted}; ")?;
        write!(f, "{build_ms:.3} ms to make them")
    }
}

/// A mask of a [`BlockMaskCache`].
#[derive(Debug, Clone, Copy)]
pub struct CachedMask<'a, K> {
    /// The caller's key.
    pub key: &'a K,
    /// Calls that found it.
    pub hits: u64,
    /// Its memory on the device.
    pub bytes: usize,
    /// How much it shows.
    pub statistics: Statistics,
    plan: Plan,
}

/// As in `100 queries on 100 keys, full, 128 x 128, forward: 1 of 1 blocks (100.0 %), 1 of them in part; 8
/// bytes, hits 1`.
impl<K> fmt::Display for CachedMask<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CachedMask { hits, bytes, statistics, plan, .. } = self;
        write!(f, "{plan}: {statistics}; {bytes} bytes, hits {hits}")
    }
}

impl<F, K: Eq + Hash> BlockMaskCache<F, K> {
    /// An empty one that keeps up to so many bytes on the device. A mask has 4 bytes for each tile and block,
    /// and 4 for each tile.
    pub fn new(most_bytes: usize) -> Self {
        BlockMaskCache {
            entries: HashMap::new(),
            most_bytes,
            calls: 0,
            hits: 0,
            misses: 0,
            evicted: 0,
            makings: Vec::new(),
            build_ms: 0.0,
        }
    }

    /// The mask of this key and plan, which `make` queues on the stream if there is none.
    pub(super) fn get(
        &mut self,
        stream: &Stream,
        key: K,
        plan: Plan,
        make: impl FnOnce() -> Result<BlockMask<F>>,
    ) -> Result<Arc<BlockMask<F>>> {
        let place = Place { key, plan, device: stream.device().ordinal() };
        self.calls += 1;
        if let Some(entry) = self.entries.get_mut(&place) {
            (entry.used, entry.hits) = (self.calls, entry.hits + 1);
            self.hits += 1;
            return Ok(entry.mask.clone());
        }
        stream.must_not_be_captured(
            "the making of a block mask for a cache",
            "the graph would make it again in each replay, and nobody else could use it",
            "make it before the capture: `cached_block_mask` with the same problem and key",
        )?;
        let making = [Event::new(stream.device())?, Event::new(stream.device())?];
        stream.record(&making[0])?;
        let mask = Arc::new(make()?);
        stream.record(&making[1])?;
        self.misses += 1;
        self.take_times(Event::is_reached)?;
        self.makings.push(making);
        // Without queries or keys there is nothing to keep, and nothing that bounds how many are kept.
        if (1..=self.most_bytes).contains(&mask.bytes()) {
            self.make_room(mask.bytes());
            self.entries.insert(place, Entry { mask: mask.clone(), used: self.calls, hits: 0 });
        }
        Ok(mask)
    }

    /// Gives up the masks used longest ago until so many bytes more are within the bound, which they are by
    /// themselves.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes() + bytes > self.most_bytes {
            let oldest = self.entries.values().map(|entry| entry.used).min();
            // No two entries were used last by one call.
            self.entries.retain(|_, entry| Some(entry.used) != oldest);
            self.evicted += 1;
        }
    }

    /// Adds the times of makings that are over, by the word of `is_over`.
    fn take_times(&mut self, is_over: impl Fn(&Event) -> Result<bool>) -> Result<()> {
        for [start, end] in std::mem::take(&mut self.makings) {
            if is_over(&end)? {
                self.build_ms += f64::from(Event::elapsed_ms(&start, &end)?);
            } else {
                self.makings.push([start, end]);
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.entries.values().map(|entry| entry.mask.bytes()).sum()
    }

    /// Gives up all masks. What was counted stays.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Its numbers so far. This waits until the masks are made.
    ///
    /// # Errors
    /// The driver's error.
    pub fn statistics(&mut self) -> Result<CacheStatistics> {
        self.take_times(|_| Ok(true))?;
        Ok(CacheStatistics {
            hits: self.hits,
            misses: self.misses,
            evicted: self.evicted,
            masks: self.entries.len(),
            bytes: self.bytes(),
            build_ms: self.build_ms,
        })
    }

    /// The masks of the stream's device, the one used last first, and how much each shows. This copies them
    /// to the host, and waits for the device.
    ///
    /// # Errors
    /// The driver's error.
    pub fn masks<'a>(&'a self, stream: &Stream) -> Result<Vec<CachedMask<'a, K>>> {
        let on_device = |(place, _): &(&Place<K>, &Entry<F>)| place.device == stream.device().ordinal();
        let mut entries: Vec<_> = self.entries.iter().filter(on_device).collect();
        entries.sort_unstable_by_key(|(_, entry)| std::cmp::Reverse(entry.used));
        let cached = |(place, entry): (&'a Place<K>, &Entry<F>)| -> Result<_> {
            let Entry { mask, hits, .. } = entry;
            let (bytes, statistics) = (mask.bytes(), mask.statistics(stream)?);
            Ok(CachedMask { key: &place.key, hits: *hits, bytes, statistics, plan: place.plan })
        };
        entries.into_iter().map(cached).collect()
    }
}

impl<F, K: Eq + Hash> fmt::Debug for BlockMaskCache<F, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlockMaskCache { entries, most_bytes, hits, misses, .. } = self;
        write!(f, "BlockMaskCache of {} masks, {} of {most_bytes} bytes", entries.len(), self.bytes())?;
        write!(f, ", {hits} hits, {misses} misses")
    }
}

/// The arguments of a function, all plain numbers, as [`Modified::values`](super::Modified::values) gives
/// them: equal if their bits are.
///
/// ```
/// # use ironwarp::ops::attention::{Attention, FunctionValues};
/// fn key(attention: Attention<'_>) -> ironwarp::Result<FunctionValues> {
///     Ok(attention.soft_cap(30.0)?.values())
/// }
/// ```
/// Ranges are in device memory, whose contents may change:
/// ```compile_fail,E0599
/// # use ironwarp::DeviceBuffer;
/// # use ironwarp::ops::attention::{Attention, FunctionValues};
/// fn key(attention: Attention<'_>, table: &DeviceBuffer<[u32; 4]>) -> ironwarp::Result<FunctionValues> {
///     Ok(attention.ranges(table)?.values())
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FunctionValues(Vec<u64>);

impl FunctionValues {
    pub(super) fn of(values: &impl PlainValues) -> Self {
        let mut bits = Vec::new();
        values.add_to(&mut bits);
        FunctionValues(bits)
    }
}

/// Arguments that are plain numbers of at most 32 bits: all that a mask of them depends on. Those of 64 bits
/// are not among them, as they may be addresses.
pub trait PlainValues: private::Sealed {
    /// Adds the bits of each.
    #[doc(hidden)]
    fn add_to(&self, bits: &mut Vec<u64>);
}

impl PlainValues for () {
    fn add_to(&self, _: &mut Vec<u64>) {}
}

impl<T: private::Plain, Rest: PlainValues> PlainValues for (T, Rest) {
    fn add_to(&self, bits: &mut Vec<u64>) {
        bits.push(self.0.bits());
        self.1.add_to(bits);
    }
}

mod private {
    pub trait Sealed {}

    impl Sealed for () {}
    impl<T: Plain, Rest: Sealed> Sealed for (T, Rest) {}

    /// A number of at most 32 bits.
    pub trait Plain: Copy {
        fn bits(self) -> u64;
    }

    macro_rules! integers {
        ($($type:ty),*) => { $(
            impl Plain for $type {
                fn bits(self) -> u64 {
                    self as u64
                }
            }
        )* };
    }

    integers!(u8, i8, u16, i16, u32, i32);

    impl Plain for f32 {
        fn bits(self) -> u64 {
            self.to_bits().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FunctionValues;

    #[test]
    fn values_are_equal_by_their_bits() {
        let of = |a: f32, b: i32, c: u8| FunctionValues::of(&(a, (b, (c, ()))));
        assert_eq!(of(1.5, -3, 9), of(1.5, -3, 9));
        assert_ne!(of(1.5, -3, 9), of(1.5, -3, 8));
        assert_ne!(of(1.5, -3, 9), of(1.5, 3, 9));
        // A mask may divide by either zero.
        assert_ne!(of(0.0, 0, 0), of(-0.0, 0, 0));
        assert_eq!(of(f32::NAN, 0, 0), of(f32::NAN, 0, 0));
        assert_ne!(FunctionValues::of(&()), FunctionValues::of(&(0u8, ())));
    }
}
