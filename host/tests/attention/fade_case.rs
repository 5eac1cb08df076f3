//! The score function of `conformance::decode_score`, on the device and in f64.

use crate::attention_case::Outcome;
use conformance::decode_score::{Fade, FadeArgs};
use ironwarp::ops::attention::{Decode, ModifiedDecode};
use ironwarp::{DeviceBuffer, DeviceView, Stream};

/// Slopes of heads, which take them in turn.
const SLOPES: [f32; 3] = [0.25, 0.0, 0.03125];

/// The arguments of [`Fade`].
#[derive(Debug, Clone)]
pub struct Arguments {
    pub slopes: Vec<f32>,
    pub biases: Vec<f32>,
    queries: usize,
    /// Keys of each query with a number.
    keys: usize,
    first: u32,
    step: u32,
}

/// The same on the device.
pub struct Fading {
    slopes: DeviceBuffer<f32>,
    biases: DeviceBuffer<f32>,
    queries: u32,
    keys: u32,
    first: u32,
    step: u32,
}

impl Arguments {
    /// For so many sequences, queries, heads and keys, and no others.
    pub fn new([sequences, queries, heads, keys]: [usize; 4], first: u32, step: u32) -> Self {
        let number = |place: usize| ((place * 37 % 101) as f32 - 50.0) / 64.0;
        Arguments {
            slopes: (0..heads).map(|head| SLOPES[head % SLOPES.len()]).collect(),
            biases: (0..sequences * queries * keys).map(number).collect(),
            queries,
            keys,
            first,
            step,
        }
    }

    pub fn upload(&self, stream: &Stream) -> Outcome<Fading> {
        Ok(Fading {
            slopes: DeviceBuffer::from_slice(stream, &self.slopes)?,
            biases: DeviceBuffer::from_slice(stream, &self.biases)?,
            queries: self.queries as u32,
            keys: self.keys as u32,
            first: self.first,
            step: self.step,
        })
    }

    /// The score of a key that a query sees, of sequences of these lengths.
    pub fn modify(
        &self,
        lengths: &[usize],
        score: f64,
        [sequence, head, query, key]: [usize; 4],
    ) -> Option<f64> {
        let sees = key < self.first as usize || (sequence + query + key) % self.step as usize == 0;
        let diagonal = lengths[sequence] as f64 - self.queries as f64 + query as f64;
        let falls = f64::from(self.slopes[head]) * (key as f64 - diagonal).abs();
        let place = (sequence * self.queries + query) * self.keys + key;
        sees.then(|| score - falls + f64::from(self.biases[place]))
    }
}

/// The fields of [`Fade`], as they are passed.
type Values<'a> = (DeviceView<'a, f32>, (DeviceView<'a, f32>, (u32, (u32, (u32, (u32, ()))))));

impl Fading {
    pub fn modified<'a>(&'a self, decode: Decode<'a>) -> ModifiedDecode<'a, Fade, Values<'a>> {
        let Fading { ref slopes, ref biases, queries, keys, first, step } = *self;
        let (slopes, biases) = (slopes.view(), biases.view());
        let function = FadeArgs { slopes, biases, queries, keys, first, step }.pass();
        // SAFETY: there is a slope for each head, and a number for each key of each query.
        unsafe { decode.function(function) }
    }
}
