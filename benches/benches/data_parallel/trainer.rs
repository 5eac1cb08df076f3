//! A rank that trains on a batch of its own.

use half::bf16;
use ironwarp::ops::convert::convert;
use ironwarp::ops::optim::{AdamW, AdamWConfig, StateConfig};
use ironwarp::parallel::{BucketConfig, Communicator, GradientBuckets, Reduction};
use ironwarp::tensor::DType;
use ironwarp::{Result, Stream, Tensor, TensorMut};

use super::model::{Model, Sink, Size, numbers};

/// Learning rate.
const RATE: f64 = 1e-4;

pub struct Trainer {
    pub rank: Communicator,
    pub model: Model,
    pub buckets: GradientBuckets,
    optimizer: AdamW,
    x: Tensor,
    target: Tensor,
}

impl Trainer {
    /// Ranks have the sequences behind each other.
    pub fn new(rank: Communicator, stream: &Stream, size: Size) -> Result<Self> {
        let first = (rank.rank() as usize * size.sequences) as u64;
        let batch = |seed: u64| {
            let sequences = (0..size.sequences as u64).map(|number| seed + first + number);
            let values: Vec<bf16> = sequences
                .flat_map(|seed| numbers(seed, size.tokens * size.width()).map(bf16::from_f32))
                .collect();
            Tensor::from_slice(stream, &[size.rows(), size.width()], &values)
        };
        let mut model = Model::new(stream, size)?;
        let lengths: Vec<usize> = model.parameters().map(Tensor::elements).collect();
        let config = BucketConfig { reduction: Reduction::Mean, ..BucketConfig::default() };
        let buckets = GradientBuckets::new(stream, &lengths, config)?;
        let state = StateConfig { master: true, stochastic: false, ..StateConfig::default() };
        let config = AdamWConfig { learning_rate: RATE, state, ..AdamWConfig::default() };
        let views = model.parameters_mut().map(Tensor::view_mut).collect::<Result<Vec<_>>>()?;
        let optimizer = AdamW::new(stream, &views, config)?;
        Ok(Trainer { rank, model, buckets, optimizer, x: batch(1000)?, target: batch(2000)? })
    }

    /// The gradients of the mean squared error over all ranks' batches.
    pub fn gradients(&mut self, stream: &Stream) -> Result<()> {
        let mut kept = Vec::new();
        let y = self.model.forward(stream, &self.x, |block| kept.push(block))?;
        let dy = y.sub(&self.target)?.mul(2.0 / y.elements() as f32)?;
        let mut sink = Sink::new(&mut self.rank, &mut self.buckets);
        self.model.backward(stream, kept, dy, &mut sink)?;
        self.buckets.finish()
    }

    /// A step.
    pub fn step(&mut self, stream: &Stream) -> Result<()> {
        self.gradients(stream)?;
        let gradient =
            |(index, parameter): (usize, &Tensor)| self.buckets.tensor(index, parameter.shape().sides());
        let gradients = self.model.parameters().enumerate().map(gradient).collect::<Result<Vec<Tensor>>>()?;
        let gradients: Vec<&Tensor> = gradients.iter().collect();
        let parameters = self.model.parameters_mut().map(Tensor::view_mut);
        let mut parameters: Vec<TensorMut<'_>> = parameters.collect::<Result<_>>()?;
        self.optimizer.step(stream, &mut parameters, &gradients, None)
    }

    /// The mean squared error over the rank's batch.
    pub fn loss(&self, stream: &Stream) -> Result<f64> {
        let error = self.model.forward(stream, &self.x, drop)?.sub(&self.target)?;
        let error = convert(stream, &error, DType::F32)?;
        Ok(f64::from(error.mul(&error)?.mean_all()?.item::<f32>()?))
    }
}
