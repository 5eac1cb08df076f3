//! The score functions of the family that decoding has, on the device and in f64.

use crate::attention_case::Outcome;
use ironwarp::ops::attention::{Decode, DecodePlan, DecodeWithAlibi, DecodeWithSoftCap};
use ironwarp::{DeviceBuffer, Result as Done, Stream};
use testkit::tolerance::{self, Tolerance};

/// One of them, with its numbers.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// A slope for each head of queries.
    Alibi(Vec<f32>),
    SoftCap(f32),
}

/// The same on the device.
pub enum Ready {
    Alibi(DeviceBuffer<f32>),
    SoftCap(f32),
}

/// Slopes of heads, which take them in turn.
const SLOPES: [f32; 3] = [0.25, 0.0, 0.03125];
/// Less than many scores, and small enough that errors of its tangent hide nothing.
const CAP: f32 = 2.0;
/// No score of the tests is larger where caps are.
const MOST: f32 = 8.0;

impl Pattern {
    /// Slopes of so many heads.
    pub fn alibi(heads: usize) -> Self {
        Pattern::Alibi((0..heads).map(|head| SLOPES[head % SLOPES.len()]).collect())
    }

    /// Each of them, for so many heads of queries.
    pub fn each(heads: usize) -> [Self; 2] {
        [Self::alibi(heads), Pattern::SoftCap(CAP)]
    }

    pub fn upload(&self, stream: &Stream) -> Outcome<Ready> {
        Ok(match self {
            Pattern::Alibi(slopes) => Ready::Alibi(DeviceBuffer::from_slice(stream, slopes)?),
            Pattern::SoftCap(cap) => Ready::SoftCap(*cap),
        })
    }

    /// The score of a key of sequences of these lengths, with so many queries each.
    pub fn modify(
        &self,
        lengths: &[usize],
        queries: usize,
        score: f64,
        [sequence, head, query, key]: [usize; 4],
    ) -> f64 {
        match self {
            Pattern::Alibi(slopes) => {
                let diagonal = lengths[sequence] as f64 - queries as f64 + query as f64;
                score - f64::from(slopes[head]) * (key as f64 - diagonal).abs()
            }
            Pattern::SoftCap(cap) => f64::from(*cap) * (score / f64::from(*cap)).tanh(),
        }
    }

    /// The errors that it adds: to log-sum-exps, absolute, and to weights, relative. Those of a tangent are a
    /// part of the new score.
    pub fn errors(&self) -> Tolerance {
        match self {
            Pattern::Alibi(_) => Tolerance::EXACT,
            Pattern::SoftCap(cap) => {
                let Tolerance { absolute, relative } = tolerance::ATTENTION_SOFT_CAP.tolerance();
                let most = f64::from(cap.min(MOST));
                Tolerance { absolute: absolute * most, relative: relative * most }
            }
        }
    }
}

/// A call with one of them.
pub enum Call<'a, 's> {
    Alibi(DecodeWithAlibi<'a, 's>),
    SoftCap(DecodeWithSoftCap<'a>),
}

impl Ready {
    pub fn of<'a, 's>(&'s self, decode: Decode<'a>) -> Done<Call<'a, 's>> {
        Ok(match self {
            Ready::Alibi(slopes) => Call::Alibi(decode.alibi(slopes)?),
            Ready::SoftCap(cap) => Call::SoftCap(decode.soft_cap(*cap)?),
        })
    }

    pub fn run(&self, decode: Decode<'_>, stream: &Stream) -> Done<()> {
        match self.of(decode)? {
            Call::Alibi(call) => call.run(stream),
            Call::SoftCap(call) => call.run(stream),
        }
    }

    pub fn explain(&self, decode: Decode<'_>, stream: &Stream) -> Done<DecodePlan> {
        match self.of(decode)? {
            Call::Alibi(call) => call.explain(stream),
            Call::SoftCap(call) => call.explain(stream),
        }
    }
}
