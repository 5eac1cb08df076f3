//! The calls that a tuner measures, as it sees them.

use std::fmt::Display;
use std::hash::Hash;

use crate::device::Device;
use crate::error::Result;
use crate::memory::{DeviceBuffer, DeviceViewMut};
use crate::stream::Stream;

use super::tuner::Source;

/// A call that a [`Tuner`](super::Tuner) can measure.
pub trait Tunable: Call {}

impl<C: Call> Tunable for C {}

/// All that configurations depend on, in plain numbers.
pub trait Task: Copy + Eq + Hash + Send + 'static {
    /// One of them. Its text is unique among them.
    type Config: Copy + PartialEq + Display + Send + 'static;
    /// Tells of a choice.
    type Choice;

    /// The key of its record.
    fn key(&self) -> String;

    /// The configuration that it gets without a record.
    fn choice(&self, device: &Device) -> Result<Self::Config>;

    /// The configurations that can do it, the likely fastest first, with estimates of their times.
    fn candidates(&self, device: &Device) -> Vec<(Self::Config, f64)>;

    /// Tells of a configuration.
    fn explain(&self, device: &Device, config: Self::Config, source: Source) -> Result<Self::Choice>;
}

/// A call with its operands.
pub trait Call: Sized {
    /// All that its configurations depend on.
    type Task: Task;
    /// Memory for results, other than the call's.
    type Spare;

    /// Checks the operands on the stream's device.
    fn task(&self, stream: &Stream) -> Result<Self::Task>;

    /// Memory for a measurement.
    fn spare(&self, stream: &Stream) -> Result<Self::Spare>;

    /// The same call with results elsewhere. All that it may change of the call's operands is what the call
    /// itself changes, in the same way.
    fn elsewhere<'s>(&'s mut self, spare: &'s mut Self::Spare) -> Result<impl Call<Task = Self::Task>>;

    /// Queues it.
    fn queue(self, stream: &Stream, task: &Self::Task, config: <Self::Task as Task>::Config) -> Result<()>;
}

/// Memory that begins where another lies within 16 bytes, so that it has the same configurations.
pub struct Spare {
    data: DeviceBuffer<u8>,
    skip: usize,
}

/// Bytes that kernels can tell the beginnings of operands apart by.
const ALIGNMENT: u64 = 16;

impl Spare {
    /// So many bytes, in place of this.
    pub fn new(stream: &Stream, like: &DeviceViewMut<'_, u8>, bytes: usize) -> Result<Self> {
        let skip = (like.as_ptr().raw() % ALIGNMENT) as usize;
        Ok(Spare { data: DeviceBuffer::zeroed(stream, bytes.saturating_add(skip))?, skip })
    }

    pub fn view_mut(&mut self) -> Result<DeviceViewMut<'_, u8>> {
        self.data.slice_mut(self.skip..)
    }
}
