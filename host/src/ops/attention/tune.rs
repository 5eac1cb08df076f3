//! Attention as a tuner's call: forward and backward, with and without a score function.

use std::hash::{Hash, Hasher};

use attention::compiled::Compiled;
use attention::sm90::backward::instances::Entry as BackwardEntry;
use attention::sm90::instances::Entry;
use cuda_std::kernel::{StructArgs, Value};

use crate::device::Device;
use crate::error::Result;
use crate::launch::Arg;
use crate::memory::{DeviceBuffer, DeviceViewMut};
use crate::ops::tuning::{Call, Source, Spare, Task};
use crate::stream::Stream;

use super::backward::{Backward, BackwardKernels, Gradients, ModifiedBackward, TABLE as BACKWARD_TABLE};
use super::config::{Candidate, Choice, Config};
use super::function::{ForwardKernels, Modified};
use super::heads::HeadsMut;
use super::op::Attention;
use super::problem::Problem;
use super::quantized::Quantized;
use super::select::{self, Row, TABLE};

/// A problem, and the kernels to choose from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choosing<E: 'static> {
    problem: Problem,
    table: &'static [E],
    /// Tiles that lists of blocks are made for.
    tile: Option<[u32; 2]>,
    is_deterministic: bool,
}

impl<E: Row> Eq for Choosing<E> {}

impl<E> Hash for Choosing<E> {
    /// The problem tells most of them apart.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.problem.hash(state);
    }
}

impl<E: Row> Choosing<E> {
    fn new(problem: Problem, table: &'static [E]) -> Self {
        Choosing { problem, table, tile: None, is_deterministic: false }
    }

    fn place(&self, device: &Device, config: Config) -> Result<usize> {
        select::place_of(self.table, &self.problem, device, config)
    }
}

impl<E: Row> Task for Choosing<E> {
    type Config = Config;
    type Choice = Choice;

    /// As in `attention_bf16_64 .. attention_f16_256: bf16 [2, 512, 16, 128] on [2, 512, 16, 128], causal`.
    fn key(&self) -> String {
        let name = |entry: Option<&E>| entry.map_or("none", |entry| entry.config().name);
        let (first, last) = (name(self.table.first()), name(self.table.last()));
        let mut key = format!("{first} .. {last}: {}", self.problem);
        if let Some([queries, keys]) = self.tile {
            key += &format!(", lists of {queries} x {keys}");
        }
        if self.is_deterministic {
            key += ", in a fixed order";
        }
        key
    }

    fn choice(&self, device: &Device) -> Result<Config> {
        Ok(self.table[select::best(self.table, &self.problem, device)?].config())
    }

    fn candidates(&self, device: &Device) -> Vec<(Config, f64)> {
        let candidates = select::candidates_of(self.table, &self.problem, device).into_iter();
        let fits = |config: &Config| self.tile.is_none_or(|tile| tile == config.block);
        candidates
            .map(|Candidate { config, estimate_us, .. }| (config, estimate_us))
            .filter(|(config, _)| fits(config))
            .collect()
    }

    fn explain(&self, device: &Device, config: Config, source: Source) -> Result<Choice> {
        Ok(select::explain(self.table, &self.problem, device, config, source))
    }
}

/// Rows of heads for results.
pub struct SpareHeads(Spare);

impl SpareHeads {
    fn new(stream: &Stream, like: &HeadsMut<'_>) -> Result<Self> {
        let bytes = like.shape.span().saturating_mul(like.dtype.size());
        Ok(SpareHeads(Spare::new(stream, &like.data, bytes)?))
    }

    /// In place of these.
    pub(super) fn heads(&mut self, like: &HeadsMut<'_>) -> Result<HeadsMut<'_>> {
        let (dtype, shape) = (like.dtype, like.shape);
        Ok(HeadsMut { data: self.0.view_mut()?, dtype, shape })
    }
}

/// Another O, and other log-sum-exps.
pub struct SpareResults {
    out: SpareHeads,
    log_sum_exp: Option<DeviceBuffer<f32>>,
}

impl SpareResults {
    pub(super) fn new(
        stream: &Stream,
        out: &HeadsMut<'_>,
        log_sum_exp: Option<&DeviceViewMut<'_, f32>>,
    ) -> Result<Self> {
        let numbers = |like: &DeviceViewMut<'_, f32>| DeviceBuffer::zeroed(stream, like.len());
        let log_sum_exp = log_sum_exp.map(numbers).transpose()?;
        Ok(SpareResults { out: SpareHeads::new(stream, out)?, log_sum_exp })
    }

    /// In place of this result.
    pub(super) fn views(
        &mut self,
        out: &HeadsMut<'_>,
    ) -> Result<(HeadsMut<'_>, Option<DeviceViewMut<'_, f32>>)> {
        let SpareResults { out: spare, log_sum_exp } = self;
        Ok((spare.heads(out)?, log_sum_exp.as_mut().map(DeviceBuffer::view_mut)))
    }
}

/// Other gradients, also of sinks.
pub struct SpareGradients {
    heads: [SpareHeads; 3],
    sinks: Option<DeviceBuffer<f32>>,
}

impl SpareGradients {
    fn new(stream: &Stream, backward: &Backward<'_>) -> Result<Self> {
        let Gradients { queries, keys, values } = &backward.gradients;
        let heads = |like| SpareHeads::new(stream, like);
        let sinks = backward.sinks.as_ref().map(|sinks| DeviceBuffer::zeroed(stream, sinks.gradients.len()));
        Ok(SpareGradients {
            heads: [heads(queries)?, heads(keys)?, heads(values)?],
            sinks: sinks.transpose()?,
        })
    }

    /// In place of these.
    fn views(&mut self, like: &Gradients<'_>) -> Result<(Gradients<'_>, Option<DeviceViewMut<'_, f32>>)> {
        let SpareGradients { heads: [queries, keys, values], sinks } = self;
        let (queries, keys) = (queries.heads(&like.queries)?, keys.heads(&like.keys)?);
        let gradients = Gradients { queries, keys, values: values.heads(&like.values)? };
        Ok((gradients, sinks.as_mut().map(DeviceBuffer::view_mut)))
    }
}

/// The methods of a call whose task is a [`Choosing`].
macro_rules! choosing {
    ($entry:ty, $spare:ty) => {
        type Task = Choosing<$entry>;
        type Spare = $spare;

        fn queue(self, stream: &Stream, task: &Self::Task, config: Config) -> Result<()> {
            self.launch(stream, &task.problem, task.place(stream.device(), config)?)
        }
    };
}

impl Call for Attention<'_> {
    choosing!(Entry, SpareResults);

    fn task(&self, stream: &Stream) -> Result<Choosing<Entry>> {
        Ok(Choosing::new(self.checked(stream)?, TABLE))
    }

    fn spare(&self, stream: &Stream) -> Result<SpareResults> {
        SpareResults::new(stream, &self.out, self.log_sum_exp.as_ref())
    }

    fn elsewhere<'s>(&'s mut self, spare: &'s mut SpareResults) -> Result<impl Call<Task = Self::Task>> {
        let (out, log_sum_exp) = spare.views(&self.out)?;
        Ok(self.with_results(out, log_sum_exp))
    }
}

impl Call for Quantized<'_> {
    choosing!(Entry, SpareResults);

    fn task(&self, stream: &Stream) -> Result<Choosing<Entry>> {
        let problem = self.checked(stream)?;
        Ok(Choosing::new(problem, self.table(&problem)?))
    }

    fn spare(&self, stream: &Stream) -> Result<SpareResults> {
        self.attention.spare(stream)
    }

    fn elsewhere<'s>(&'s mut self, spare: &'s mut SpareResults) -> Result<impl Call<Task = Self::Task>> {
        let (out, log_sum_exp) = spare.views(&self.attention.out)?;
        Ok(self.with_results(out, log_sum_exp))
    }
}

impl<F, V> Call for Modified<'_, F, V>
where
    F: Compiled,
    F::Forward: ForwardKernels<F>,
    StructArgs<F, V>: Arg<Value<F>> + Clone,
{
    choosing!(Entry, SpareResults);

    fn task(&self, stream: &Stream) -> Result<Choosing<Entry>> {
        let tile = self.listed_tile();
        Ok(Choosing { tile, ..Choosing::new(self.attention.checked(stream)?, F::FORWARD) })
    }

    fn spare(&self, stream: &Stream) -> Result<SpareResults> {
        self.attention.spare(stream)
    }

    fn elsewhere<'s>(&'s mut self, spare: &'s mut SpareResults) -> Result<impl Call<Task = Self::Task>> {
        let (out, log_sum_exp) = spare.views(&self.attention.out)?;
        Ok(self.with_results(out, log_sum_exp))
    }
}

impl Call for Backward<'_> {
    choosing!(BackwardEntry, SpareGradients);

    fn task(&self, stream: &Stream) -> Result<Choosing<BackwardEntry>> {
        let is_deterministic = self.is_deterministic;
        Ok(Choosing { is_deterministic, ..Choosing::new(self.checked(stream)?, BACKWARD_TABLE) })
    }

    fn spare(&self, stream: &Stream) -> Result<SpareGradients> {
        SpareGradients::new(stream, self)
    }

    fn elsewhere<'s>(&'s mut self, spare: &'s mut SpareGradients) -> Result<impl Call<Task = Self::Task>> {
        let (gradients, sinks) = spare.views(&self.gradients)?;
        Ok(self.with_results(gradients, sinks))
    }
}

impl<F, V> Call for ModifiedBackward<'_, F, V>
where
    F: Compiled,
    F::Backward: BackwardKernels<F>,
    StructArgs<F, V>: Arg<Value<F>> + Clone,
{
    choosing!(BackwardEntry, SpareGradients);

    fn task(&self, stream: &Stream) -> Result<Choosing<BackwardEntry>> {
        let (tile, is_deterministic) = (self.listed_tile(), self.backward.is_deterministic);
        let problem = self.backward.checked(stream)?;
        Ok(Choosing { tile, is_deterministic, ..Choosing::new(problem, F::BACKWARD) })
    }

    fn spare(&self, stream: &Stream) -> Result<SpareGradients> {
        self.backward.spare(stream)
    }

    fn elsewhere<'s>(&'s mut self, spare: &'s mut SpareGradients) -> Result<impl Call<Task = Self::Task>> {
        let (gradients, sinks) = spare.views(&self.backward.gradients)?;
        Ok(self.with_results(gradients, sinks))
    }
}
