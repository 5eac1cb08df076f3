//! Every kernel that the library ships, launched on small shapes that take all of its branches: what is repeated many times, and what is run
//! under sanitizers that make launches a thousand times slower.

mod products;
mod tensors;
mod vectors;

use ironwarp::Stream;
use std::error::Error;

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The families of which every kernel is launched.
pub const FAMILIES: &[&str] = &["basic", "gemm", "similarity", "tensor"];

/// A few launches whose results are looked at together.
pub struct Stop {
    pub name: String,
    /// Makes inputs, launches, and gives the bytes of all results.
    run: Box<Run>,
}

type Run = dyn Fn(&Stream) -> Outcome<Vec<u8>> + Send + Sync;

impl Stop {
    fn new(
        name: impl Into<String>,
        run: impl Fn(&Stream) -> Outcome<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        Stop { name: name.into(), run: Box::new(run) }
    }

    /// The bytes of its results.
    pub fn run(&self, stream: &Stream) -> Outcome<Vec<u8>> {
        (self.run)(stream).map_err(|error| format!("{}: {error}", self.name).into())
    }
}

/// All of them, for the stream's device.
pub fn stops(stream: &Stream) -> Outcome<Vec<Stop>> {
    let mut stops = vectors::stops();
    stops.extend(tensors::stops());
    stops.extend(products::stops(stream)?);
    Ok(stops)
}
