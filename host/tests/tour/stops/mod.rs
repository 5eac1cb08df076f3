//! Every kernel that the library ships, launched on small shapes that take all of its branches: what is
//! repeated many times, and what is run under sanitizers that make launches a thousand times slower.

mod attention;
mod attention_functions;
mod collectives;
mod conv;
mod decode;
mod optimizers;
mod products;
mod rows;
mod tensors;
mod vectors;

pub use attention::{forward as attention_forward, stops as attention};
pub use collectives::collectives;
pub use conv::stops as convolutions;
pub use optimizers::stops as optimizers;
pub use products::stops as products;
pub use rows::stops as rows;
pub use tensors::stops as tensors;
pub use vectors::stops as vectors;

use ironwarp::Stream;
use std::error::Error;

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

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
