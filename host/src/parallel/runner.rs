//! Data-parallel training and inference: the parts that every rank needs beside the collectives.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::call::Reduction;
use super::communicator::Communicator;
use super::overlap::{Marks, Overlap};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::stream::{Event, Stream};
use crate::tensor::{DType, Tensor};

/// The part of `count` items that a rank works on. The parts follow each other, and their lengths differ by
/// at most one item.
///
/// # Panics
/// If there is no such rank.
pub fn shard(count: usize, rank: u32, ranks: u32) -> Range<usize> {
    assert!(rank < ranks, "rank {rank} of {ranks}");
    let (rank, ranks) = (rank as usize, ranks as usize);
    let (each, longer) = (count / ranks, count % ranks);
    let start = rank * each + rank.min(longer);
    start..start + each + usize::from(rank < longer)
}

/// The gradients of a rank in f32, in buckets that are reduced while later gradients are still computed.
///
/// Number gradients in the order in which the backward pass finishes them: those of the last layer first. A
/// bucket is a buffer with several gradients, so that one collective is large enough to fill the link. When
/// the last gradient of a bucket is [ready](GradientBuckets::ready), the sum of the bucket is queued on
/// another stream, beside the next work of the step's stream. Uses of a buffer stay in order across streams,
/// so the optimiser's reads come after the sum without a further wait.
///
/// Every rank reduces buckets in their order, whatever the order in which their gradients become ready. To
/// accumulate over micro-batches, add to the gradients, and call `ready` in the last micro-batch only. The
/// others do not communicate.
///
/// A graph can capture a step, from the first call of `ready` to [`finish`](GradientBuckets::finish). Where
/// the [current stream](Device::current_stream) of the thread is being captured, so are the sums.
pub struct GradientBuckets {
    buckets: Vec<Bucket>,
    /// The bucket of each gradient, and its elements there.
    places: Vec<(usize, Range<usize>)>,
    /// Which gradients are ready in this step.
    is_ready: Vec<bool>,
    /// Sums are queued here.
    stream: Stream,
    /// The step's stream, where the step is captured: the sums' stream was forked from it.
    captured: Option<Stream>,
    reduction: Reduction,
    /// The first bucket that has not been reduced in this step.
    next: usize,
    /// The events of a step that is timed.
    marks: Option<Marks>,
}

struct Bucket {
    /// One f32 behind the other.
    numbers: Tensor,
    /// Its gradients.
    gradients: Range<usize>,
}

/// Settings of [`GradientBuckets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketConfig {
    /// A bucket is full when it has so many bytes. 25 MiB unless set.
    pub bytes: usize,
    /// [`Reduction::Sum`], where gradients are divided by the whole batch already, as they have to be when
    /// shards are uneven; or [`Reduction::Mean`].
    pub reduction: Reduction,
}

impl Default for BucketConfig {
    fn default() -> Self {
        BucketConfig { bytes: 25 << 20, reduction: Reduction::Sum }
    }
}

impl GradientBuckets {
    /// Buckets for gradients of these lengths, all zero.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`](crate::TensorError::TooLarge), [`Error::SizeOverflow`],
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, lengths: &[usize], config: BucketConfig) -> Result<Self> {
        let mut places: Vec<(usize, Range<usize>)> = Vec::with_capacity(lengths.len());
        let mut sizes: Vec<(usize, Range<usize>)> = Vec::new();
        for (index, &length) in lengths.iter().enumerate() {
            // Sums that are no number of elements stay so large that no tensor has them.
            let is_full =
                |(elements, _): &(usize, _)| elements.saturating_mul(size_of::<f32>()) >= config.bytes;
            if sizes.last().is_none_or(is_full) {
                sizes.push((0, index..index));
            }
            let number = sizes.len() - 1;
            let (elements, gradients) = &mut sizes[number];
            let end = elements.saturating_add(length);
            places.push((number, *elements..end));
            *elements = end;
            gradients.end = index + 1;
        }
        let bucket = |(elements, gradients)| {
            Ok(Bucket { numbers: Tensor::zeros(stream, &[elements], DType::F32)?, gradients })
        };
        let buckets = sizes.into_iter().map(bucket).collect::<Result<_>>()?;
        // Above the step's kernels: they leave room as their blocks end.
        let stream = stream.device().pooled_stream_with_priority(1)?;
        let is_ready = vec![false; lengths.len()];
        Ok(GradientBuckets {
            buckets,
            places,
            is_ready,
            stream,
            captured: None,
            reduction: config.reduction,
            next: 0,
            marks: None,
        })
    }

    /// Buckets.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Gradient number `index`.
    ///
    /// # Errors
    /// [`Error::Range`] for a number that is none.
    pub fn gradient(&self, index: usize) -> Result<DeviceView<'_, f32>> {
        let (bucket, range) = self.place(index)?;
        self.buckets[bucket].numbers.as_view::<f32>()?.slice(range)
    }

    /// Gradient number `index` as a tensor of that shape, for an optimiser. It shows the bucket's memory, and
    /// nothing can be written there while it is kept.
    ///
    /// # Errors
    /// [`Error::Range`] for a number that is none, [`TensorError::Shape`](crate::TensorError::Shape) when the
    /// shape has another number of elements.
    pub fn tensor(&self, index: usize, shape: &[usize]) -> Result<Tensor> {
        let (bucket, range) = self.place(index)?;
        self.buckets[bucket].numbers.slice(0, range)?.view_as(shape)
    }

    /// Gradient number `index`, to be written.
    ///
    /// # Errors
    /// [`Error::Range`] for a number that is none, [`TensorError::Shared`](crate::TensorError::Shared) while
    /// a [`tensor`](GradientBuckets::tensor) of its bucket is kept.
    pub fn gradient_mut(&mut self, index: usize) -> Result<DeviceViewMut<'_, f32>> {
        let (bucket, range) = self.place(index)?;
        self.buckets[bucket].numbers.view_mut()?.into_view::<f32>()?.slice_mut(range)
    }

    fn place(&self, index: usize) -> Result<(usize, Range<usize>)> {
        let len = self.places.len();
        let none = || Error::Range { start: index, end: index.saturating_add(1), len };
        self.places.get(index).cloned().ok_or_else(none)
    }

    /// Says that gradient number `index` is complete: all work that writes it has been queued. Queues the
    /// sums of buckets that are now complete. When that fails, the same call may be made again.
    ///
    /// # Errors
    /// [`Error::Range`], [`Error::InvalidArgument`] for a gradient that was ready before in this step,
    /// [`TensorError::Shared`](crate::TensorError::Shared) while a [`tensor`](GradientBuckets::tensor) of its
    /// bucket is kept, or as [`Communicator::all_reduce`].
    #[track_caller]
    pub fn ready(&mut self, rank: &mut Communicator, index: usize) -> Result<()> {
        self.place(index)?;
        self.enter_capture()?;
        // A complete bucket has been summed, unless that failed: then this is another try.
        let is_retry = self.buckets.get(self.next).is_some_and(|bucket| self.is_complete(bucket));
        if std::mem::replace(&mut self.is_ready[index], true) && !is_retry {
            return Err(Error::InvalidArgument {
                operation: "GradientBuckets::ready",
                argument: "index",
                got: format!("{index}, which was ready before"),
                wanted: "each gradient once a step".to_owned(),
                hint: "call `finish` at the end of each step, and `abandon` where one was given up",
            });
        }
        while self.buckets.get(self.next).is_some_and(|bucket| self.is_complete(bucket)) {
            let bucket = &mut self.buckets[self.next];
            let bytes = bucket.numbers.elements() * size_of::<f32>();
            let begin = match self.marks.as_ref().filter(|marks| marks.is_running) {
                None => None,
                Some(_) => {
                    // The stream waits for the gradients, and the event is behind that. The use is the sum's.
                    let _ = bucket.numbers.as_view::<f32>()?.within().begin(&self.stream, true)?;
                    Some(recorded(&self.stream)?)
                }
            };
            rank.all_reduce(&self.stream, self.reduction, bucket.numbers.view_mut()?)?;
            self.next += 1;
            if let (Some(marks), Some(begin)) = (&mut self.marks, begin) {
                marks.buckets.push((bytes, begin, recorded(&self.stream)?));
            }
        }
        Ok(())
    }

    /// Makes the sums part of the capture of the step, where it is being captured: forks their stream, once a
    /// step.
    fn enter_capture(&mut self) -> Result<()> {
        let device = self.stream.device();
        if !device.captures().any() || self.captured.is_some() && self.stream.capture()?.is_some() {
            return Ok(());
        }
        let step = device.current_stream()?;
        if step.capture()?.is_some() {
            self.stream.wait_for(&step)?;
            self.captured = Some(step);
        }
        Ok(())
    }

    /// Whether all gradients of a bucket are ready.
    fn is_complete(&self, bucket: &Bucket) -> bool {
        self.is_ready[bucket.gradients.clone()].iter().all(|&it| it)
    }

    /// Ends the backward pass of a step. All gradients are ready, and summed over the ranks: work that is
    /// queued from now on sees the sums.
    ///
    /// # Errors
    /// [`Error::Length`] when some were not ready, [`Error::InvalidArgument`] when a call of
    /// [`ready`](GradientBuckets::ready) failed and was not made again, or the driver's error.
    pub fn finish(&mut self) -> Result<()> {
        let operation = "GradientBuckets::finish";
        let ready = self.is_ready.iter().filter(|&&it| it).count();
        same_length(operation, "the ready ones", self.places.len(), ready)?;
        if self.next < self.buckets.len() {
            return Err(Error::InvalidArgument {
                operation,
                argument: "the buckets",
                got: format!("{} of {} summed", self.next, self.buckets.len()),
                wanted: "all of them".to_owned(),
                hint: "a call of `ready` has failed: mend what its error says, and make it again",
            });
        }
        self.is_ready.fill(false);
        self.next = 0;
        self.captured.take().map_or(Ok(()), |step| step.wait_for(&self.stream))?;
        self.marks.as_mut().map_or(Ok(()), Marks::end)
    }

    /// Gives up a step of which no bucket has been summed: no gradient is ready then, and what was written
    /// stays. All ranks have to give it up.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when a bucket has been summed: it has the sum, and may be in a collective
    /// that other ranks wait in.
    pub fn abandon(&mut self) -> Result<()> {
        if self.next > 0 {
            return Err(Error::InvalidArgument {
                operation: "GradientBuckets::abandon",
                argument: "the step",
                got: format!("{} of {} buckets summed", self.next, self.buckets.len()),
                wanted: "none".to_owned(),
                hint: "make new buckets, on every rank",
            });
        }
        self.is_ready.fill(false);
        (self.captured, self.marks) = (None, None);
        Ok(())
    }

    /// Times the step that begins now on `stream`, up to [`finish`](GradientBuckets::finish), for
    /// [`GradientBuckets::overlap`]. Sums wait for nothing more than without it; an event costs the device
    /// about a microsecond.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] on a stream that is being captured, or the driver's error.
    pub fn time(&mut self, stream: &Stream) -> Result<()> {
        self.marks = Some(Marks::begin(stream)?);
        Ok(())
    }

    /// When the sums of the step that was timed last ran, beside its computation; waits for them. `None`
    /// when none was timed since the last call.
    ///
    /// # Errors
    /// [`Error::EventNotRecorded`] before [`GradientBuckets::finish`], [`Error::NotCapturable`] where that
    /// was inside a capture, or the driver's error. The times are gone then.
    pub fn overlap(&mut self) -> Result<Option<Overlap>> {
        self.marks.take().map(|marks| marks.read()).transpose()
    }
}

/// An event at the end of what the stream has been given.
fn recorded(stream: &Stream) -> Result<Event> {
    let event = Event::new(stream.device())?;
    stream.record(&event)?;
    Ok(event)
}

/// Items of a device that [`map`] has under way at once: while the host waits for the result of one, or
/// copies the next, the device works on another.
const UNDER_WAY: usize = 2;

/// Runs `work` for each item, on several devices, and returns the results in the order of the items. Each
/// device has two threads, with a stream each, that take the next item when they are done with one: so a
/// device waits for no copies, and a slower device works on fewer items. It has room for two items.
///
/// # Errors
/// That of the first of the items, in their order, that failed; none is begun after an error.
/// [`Error::InvalidArgument`] for no device, or the driver's error.
///
/// # Panics
/// When `work` panics, with its panic; no later item is begun then either.
pub fn map<T: Sync, R: Send>(
    devices: &[Device],
    items: &[T],
    work: impl Fn(&Stream, &T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    if devices.is_empty() && !items.is_empty() {
        return Err(Error::InvalidArgument {
            operation: "map",
            argument: "devices",
            got: "none".to_owned(),
            wanted: "at least one".to_owned(),
            hint: "`Device::open(0)` opens the first device",
        });
    }
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    // The error, and the number of its item: one behind all where there is none.
    let serve = |device: &Device| -> Result<(), (usize, Error)> {
        let stream = device.stream().map_err(|error| (items.len(), error))?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return Ok(()) };
            let _end = EndInPanic { next: &next, end: items.len() };
            let result = stream
                .scope(|_| work(&stream, item))
                .inspect_err(|_| next.store(items.len(), Ordering::Relaxed))
                .map_err(|error| (number, error))?;
            results.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    let ends = std::thread::scope(|scope| {
        let threads: Vec<_> = (devices.iter().flat_map(|device| [device; UNDER_WAY]))
            .map(|device| scope.spawn(|| serve(device)))
            .collect();
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.collect::<Vec<_>>()
    });
    let errors = ends.into_iter().filter_map(std::result::Result::err);
    if let Some((_, error)) = errors.min_by_key(|&(number, _)| number) {
        return Err(error);
    }
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|&(number, _)| number);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Dropped in a panic, it leaves no item to others.
struct EndInPanic<'a> {
    next: &'a AtomicUsize,
    end: usize,
}

impl Drop for EndInPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.next.store(self.end, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shard;

    #[test]
    #[should_panic(expected = "rank 3 of 2")]
    fn a_rank_that_is_none_has_no_shard() {
        shard(5, 3, 2);
    }

    #[test]
    fn shards_are_even_and_whole() {
        for count in [0, 1, 7, 8, 9, 1000] {
            for ranks in 1..=8 {
                let shards: Vec<_> = (0..ranks).map(|rank| shard(count, rank, ranks)).collect();
                assert_eq!(
                    shards.iter().flat_map(Clone::clone).collect::<Vec<_>>(),
                    (0..count).collect::<Vec<_>>()
                );
                let lengths = shards.iter().map(ExactSizeIterator::len);
                assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            }
        }
    }
}
