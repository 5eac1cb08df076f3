//! Products as a tuner's call.

use crate::device::Device;
use crate::error::Result;
use crate::memory::DeviceBuffer;
use crate::ops::tuning::{Call, Source, Spare, Task};
use crate::stream::Stream;

use super::config::{Candidate, Choice, Config};
use super::matmul::Matmul;
use super::matrix::MatrixMut;
use super::problem::Problem;
use super::{backend, select};

impl Task for Problem {
    type Config = Config;

    fn key(&self) -> String {
        self.to_string()
    }

    fn choice(&self, device: &Device) -> Result<Config> {
        select::best(self, device)
    }

    fn candidates(&self, device: &Device) -> Vec<(Config, f64)> {
        let candidates = select::candidates(self, device).into_iter();
        candidates.map(|Candidate { config, estimate_us, .. }| (config, estimate_us)).collect()
    }
}

impl Call for Matmul<'_> {
    type Task = Problem;
    type Choice = Choice;
    /// Another C, and another amax.
    type Spare = (Spare, DeviceBuffer<f32>);

    fn task(&self, stream: &Stream) -> Result<Problem> {
        self.checked(stream)
    }

    fn explain(&self, problem: &Problem, device: &Device, config: Config, source: Source) -> Result<Choice> {
        select::explain(problem, device, config, source)
    }

    fn spare(&self, stream: &Stream) -> Result<Self::Spare> {
        let MatrixMut { data, dtype, shape } = &self.c;
        let bytes = shape.span().saturating_mul(dtype.size());
        Ok((Spare::new(stream, data, bytes)?, DeviceBuffer::zeroed(stream, 1)?))
    }

    fn rehearse(
        &mut self,
        stream: &Stream,
        problem: &Problem,
        config: Config,
        (spare, amax): &mut Self::Spare,
    ) -> Result<()> {
        let MatrixMut { dtype, shape, .. } = self.c;
        let c = MatrixMut { data: spare.view_mut()?, dtype, shape };
        let amax = problem.epilogue.amax.then(|| amax.view_mut());
        backend::run(stream, self.with_results(c, amax).folded(), problem, &config)
    }

    fn queue(self, stream: &Stream, problem: &Problem, config: Config) -> Result<()> {
        backend::run(stream, self.folded(), problem, &config)
    }
}
