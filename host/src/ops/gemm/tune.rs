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
    type Choice = Choice;

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

    fn explain(&self, device: &Device, config: Config, source: Source) -> Result<Choice> {
        select::explain(self, device, config, source)
    }
}

impl Call for Matmul<'_> {
    type Task = Problem;
    /// Another C, and another amax.
    type Spare = (Spare, DeviceBuffer<f32>);

    fn task(&self, stream: &Stream) -> Result<Problem> {
        self.checked(stream)
    }

    fn spare(&self, stream: &Stream) -> Result<Self::Spare> {
        let MatrixMut { data, dtype, shape } = &self.c;
        let bytes = shape.span().saturating_mul(dtype.size());
        Ok((Spare::new(stream, data, bytes)?, DeviceBuffer::zeroed(stream, 1)?))
    }

    fn elsewhere<'s>(&'s mut self, (spare, amax): &'s mut Self::Spare) -> Result<impl Call<Task = Problem>> {
        let MatrixMut { dtype, shape, .. } = self.c;
        let c = MatrixMut { data: spare.view_mut()?, dtype, shape };
        let amax = self.epilogue.amax.is_some().then(|| amax.view_mut());
        Ok(self.with_results(c, amax))
    }

    fn queue(self, stream: &Stream, problem: &Problem, config: Config) -> Result<()> {
        backend::run(stream, self.folded(), problem, &config)
    }
}
