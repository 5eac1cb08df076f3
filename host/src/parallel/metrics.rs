//! Metrics of a step, combined over the ranks.

use super::call::Reduction;
use super::communicator::Communicator;
use crate::error::{Error, Result};
use crate::memory::same_length;
use crate::ops::convert::convert_into;
use crate::ops::elementwise::copy_into;
use crate::ops::fill::fill;
use crate::stream::Stream;
use crate::tensor::{DType, Tensor};

/// In front of a row's values: its samples.
const SAMPLES: usize = 1;

/// Scalars that a step computes on each rank (a loss, an accuracy, the norm of gradients), combined for the
/// whole batch: all ranks read the same numbers.
///
/// A step does not wait. [`record`](Metrics::record) copies values on the device, and [`sync`](Metrics::sync)
/// is one collective for all metrics. The host reads the result when it wants, perhaps many steps later.
///
/// ```
/// use ironwarp::parallel::{Group, Metrics, Reduction, shard};
/// use ironwarp::{Device, Tensor};
///
/// # fn main() -> ironwarp::Result<()> {
/// let devices: Vec<Device> = (0..Device::count()?).map(Device::open).collect::<Result<_, _>>()?;
/// let batch = [1.0f32, 2.0, 3.0, 6.0, 8.0];
/// Group::open(&devices)?.run(|mut rank| {
///     let stream = rank.device().stream()?;
///     let mut metrics = Metrics::new(&stream, &[Reduction::Mean, Reduction::Max], 1)?;
///     let mine = &batch[shard(batch.len(), rank.rank(), rank.ranks())];
///     // Of this shard: the mean, and the largest. The ranks' shards are uneven.
///     let mean = Tensor::from_slice(&stream, &[1], &[mine.iter().sum::<f32>() / mine.len() as f32])?;
///     let largest = Tensor::from_slice(&stream, &[1], &[mine.iter().copied().fold(0.0, f32::max)])?;
///     metrics.record(&stream, mine.len(), &[&mean, &largest])?;
///     let step = metrics.sync(&mut rank, &stream)?;
///     // ..
///     let step = step.read(&stream)?;
///     assert_eq!((step.samples, step.values), (5, vec![4.0, 8.0]));
///     rank.synchronize(&stream)
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Metrics {
    reductions: Vec<Reduction>,
    /// A row of f64 for each micro-batch: its samples, then its values.
    rows: Tensor,
    /// Rows that have been recorded since the last collective.
    recorded: usize,
}

/// The metrics of a step of all ranks, on the device.
#[derive(Debug)]
pub struct SyncedMetrics {
    reductions: Vec<Reduction>,
    /// The rows of all ranks, in their order.
    rows: Tensor,
}

/// The metrics of a step, the same on all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricValues {
    /// Samples of all ranks and micro-batches.
    pub samples: u64,
    /// The metrics in their order. Without any samples sums are 0 and all others NaN.
    pub values: Vec<f64>,
}

impl Metrics {
    /// A metric for each reduction. Means are weighed by samples. A step records at most `micro_batches`
    /// micro-batches.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, reductions: &[Reduction], micro_batches: usize) -> Result<Self> {
        let rows = Tensor::zeros(stream, &[micro_batches, SAMPLES + reductions.len()], DType::F64)?;
        Ok(Metrics { reductions: reductions.to_vec(), rows, recorded: 0 })
    }

    /// Queues copies of the metrics of a micro-batch of `samples` samples: tensors of one element each, of
    /// any number type. With 0 samples the values do not count; a rank has none when the last batch is
    /// smaller than the group.
    ///
    /// A graph keeps the number of samples of its capture.
    ///
    /// # Errors
    /// [`Error::Length`] for another number of metrics or elements, [`Error::InvalidArgument`] for more
    /// micro-batches than fit, [`Error::DeviceMismatch`], or the driver's error.
    pub fn record(&mut self, stream: &Stream, samples: usize, values: &[&Tensor]) -> Result<()> {
        const RECORD: &str = "Metrics::record";
        same_length(RECORD, "the values", self.reductions.len(), values.len())?;
        values.iter().try_for_each(|value| same_length(RECORD, "a value", 1, value.elements()))?;
        let room = self.rows.shape()[0];
        if self.recorded == room {
            return Err(Error::InvalidArgument {
                operation: RECORD,
                argument: "the micro-batch",
                got: format!("number {}", self.recorded + 1),
                wanted: format!("{room} in a step"),
                hint: "call `sync` at the end of each step, or make the metrics for more micro-batches",
            });
        }
        let mut row = self.rows.view_mut()?.select(0, self.recorded)?;
        for (place, value) in (SAMPLES..).zip(values) {
            let (value, place) = (value.view_as(&[1])?, row.view_mut().slice(0, place..=place)?);
            match value.dtype() {
                DType::F64 => copy_into(stream, &value, place)?,
                _ => convert_into(stream, &value, place)?,
            }
        }
        fill(stream, row.slice(0, ..SAMPLES)?, samples as f64)?;
        self.recorded += 1;
        Ok(())
    }

    /// Queues the exchange of all metrics that were recorded since the last call: one collective.
    ///
    /// # Errors
    /// As [`Communicator::all_gather`].
    #[track_caller]
    pub fn sync(&mut self, rank: &mut Communicator, stream: &Stream) -> Result<SyncedMetrics> {
        let [room, width] = [self.rows.shape()[0], self.rows.shape()[1]];
        if self.recorded < room {
            // Of no samples.
            fill(stream, self.rows.view_mut()?.slice(0, self.recorded..)?, 0.0_f64)?;
        }
        let mut rows = Tensor::zeros(stream, &[rank.ranks() as usize * room, width], DType::F64)?;
        rank.all_gather(stream, &self.rows, rows.view_mut()?)?;
        self.recorded = 0;
        Ok(SyncedMetrics { reductions: self.reductions.clone(), rows })
    }
}

impl SyncedMetrics {
    /// Waits for the metrics, and combines them: in f64, in the order of ranks and micro-batches, so all
    /// ranks have the same bits. [`Communicator::check`] says whether the collective has failed.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], or the driver's error.
    pub fn read(&self, stream: &Stream) -> Result<MetricValues> {
        let all = self.rows.to_vec::<f64>(stream)?;
        let width = SAMPLES + self.reductions.len();
        let rows: Vec<&[f64]> = all.chunks(width).filter(|row| row[0] > 0.0).collect();
        let samples: f64 = rows.iter().map(|row| row[0]).sum();
        let combine = |(place, reduction): (usize, &Reduction)| {
            let values = rows.iter().map(|row| row[SAMPLES + place]);
            match reduction {
                Reduction::Sum => values.fold(0.0, |sum, value| sum + value),
                Reduction::Mean => {
                    rows.iter().zip(values).map(|(row, value)| row[0] * value).sum::<f64>() / samples
                }
                Reduction::Max => values.reduce(larger).unwrap_or(f64::NAN),
                Reduction::Min => values.reduce(|a, b| -larger(-a, -b)).unwrap_or(f64::NAN),
            }
        };
        let values = self.reductions.iter().enumerate().map(combine).collect();
        Ok(MetricValues { samples: samples as u64, values })
    }
}

/// The larger; NaN if either is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}
