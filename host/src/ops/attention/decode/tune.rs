//! Decode attention as a tuner's call.

use std::hash::{Hash, Hasher};

use attention::decode::compiled::CompiledDecode;
use cuda_std::kernel::{StructArgs, Value};

use crate::device::Device;
use crate::error::Result;
use crate::launch::Arg;
use crate::ops::tuning::{Call, Source, Task};
use crate::stream::Stream;

use super::super::tune::SpareResults;
use super::plan::{Kernels, PLAIN};
use super::{Decode, DecodeConfig, DecodeKernels, DecodePlan, DecodeProblem, ModifiedDecode, launch};

/// A problem, and the kernels and numbers of blocks to choose from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choosing {
    problem: DecodeProblem,
    kernels: Kernels,
    /// As the call says.
    blocks: Option<u32>,
}

impl Eq for Choosing {}

impl Hash for Choosing {
    /// The problem tells most of them apart.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.problem.hash(state);
    }
}

impl Choosing {
    fn plan(&self, device: &Device, config: DecodeConfig) -> Result<DecodePlan> {
        DecodePlan::with(self.problem, self.kernels, device, config)
    }
}

impl Task for Choosing {
    type Config = DecodeConfig;
    type Choice = DecodePlan;

    /// As in `attention_decode_bf16_64 .. attention_decode_f16_256: bf16 [32, 1, 32, 128] on ..`.
    fn key(&self) -> String {
        let mut names = self.kernels.tables.into_iter().flatten().map(|entry| entry.name);
        let first = names.next().unwrap_or("none");
        let (last, problem) = (names.next_back().unwrap_or(first), self.problem);
        let pattern = self.kernels.pattern.map_or(String::new(), |pattern| format!(", {pattern}"));
        let key = format!("{first} .. {last}: {problem}{pattern}");
        match self.blocks {
            Some(blocks) => format!("{key}, in {blocks} blocks"),
            None => key,
        }
    }

    fn choice(&self, device: &Device) -> Result<DecodeConfig> {
        Ok(DecodePlan::new(self.problem, self.kernels, device, self.blocks)?.config())
    }

    fn candidates(&self, device: &Device) -> Vec<(DecodeConfig, f64)> {
        let plans = DecodePlan::candidates(self.problem, self.kernels, device, self.blocks).into_iter();
        plans.map(|plan| (plan.config(), plan.estimate_us)).collect()
    }

    fn explain(&self, device: &Device, config: DecodeConfig, source: Source) -> Result<DecodePlan> {
        Ok(DecodePlan { source, ..self.plan(device, config)? })
    }
}

impl Call for Decode<'_> {
    type Task = Choosing;
    type Spare = SpareResults;

    fn task(&self, stream: &Stream) -> Result<Choosing> {
        Ok(Choosing { problem: self.checked(stream)?, kernels: PLAIN, blocks: self.blocks })
    }

    fn spare(&self, stream: &Stream) -> Result<SpareResults> {
        SpareResults::new(stream, &self.out, self.log_sum_exp.as_ref())
    }

    /// New keys go to the cache, as they will.
    fn elsewhere<'s>(&'s mut self, spare: &'s mut SpareResults) -> Result<impl Call<Task = Choosing>> {
        let (out, log_sum_exp) = spare.views(&self.out)?;
        Ok(self.with_results(out, log_sum_exp))
    }

    fn queue(self, stream: &Stream, task: &Choosing, config: DecodeConfig) -> Result<()> {
        launch::launch(stream, &task.plan(stream.device(), config)?, self)
    }
}

impl<F, V> Call for ModifiedDecode<'_, F, V>
where
    F: CompiledDecode,
    F::Decode: DecodeKernels<F>,
    StructArgs<F, V>: Arg<Value<F>> + Clone,
{
    type Task = Choosing;
    type Spare = SpareResults;

    fn task(&self, stream: &Stream) -> Result<Choosing> {
        let (problem, blocks) = (self.decode.checked(stream)?, self.decode.blocks);
        Ok(Choosing { problem, kernels: self.kernels, blocks })
    }

    fn spare(&self, stream: &Stream) -> Result<SpareResults> {
        self.decode.spare(stream)
    }

    fn elsewhere<'s>(&'s mut self, spare: &'s mut SpareResults) -> Result<impl Call<Task = Choosing>> {
        let (out, log_sum_exp) = spare.views(&self.decode.out)?;
        let (function, kernels) = (self.function.clone(), self.kernels);
        Ok(ModifiedDecode { decode: self.decode.with_results(out, log_sum_exp), function, kernels })
    }

    fn queue(self, stream: &Stream, task: &Choosing, config: DecodeConfig) -> Result<()> {
        self.launch(stream, &task.plan(stream.device(), config)?)
    }
}
