//! Parts that the files of this program share.

use std::error::Error as StdError;

use ironwarp::ops::row::NormKind;
use ironwarp::{Device, Error, Stream};
use reference::Accumulated;
use reference::row::{Row, find};

use crate::norms::EPS;

/// How a test, or a part of one, ends.
pub type Outcome<T = ()> = Result<T, Box<dyn StdError>>;

/// A stream of the first device.
pub fn stream() -> Result<Stream, Error> {
    Device::open(0)?.stream()
}

/// Whether the device is a Hopper; else the test is skipped: it is about kernels or choices of Hopper's own.
pub fn is_hopper() -> Result<bool, Error> {
    let device = Device::open(0)?;
    let is_one = device.arch().is_hopper();
    if !is_one {
        testkit::skip(&format!("{} is no Hopper", device.name()));
    }
    Ok(is_one)
}

/// The norm of rows that have as many columns as the weight and the bias, in f64.
pub fn norm_oracle(kind: NormKind, rows: &[f64], [weight, bias]: [&[f64]; 2]) -> Accumulated {
    let mut all = Accumulated { value: Vec::new(), magnitude: Vec::new() };
    for x in rows.chunks(weight.len().max(1)) {
        let of_row = find(kind.name())(&Row { x, weight: Some(weight), bias: Some(bias), eps: EPS });
        all.value.extend(of_row.value);
        all.magnitude.extend(of_row.magnitude);
    }
    all
}

/// A test for each type: `tests!(agrees: of_f32 = f32, of_bf16 = bf16)` calls `agrees::<f32>()`, and so on.
macro_rules! tests {
    ($function:ident: $($test:ident = $element:ty),+) => { $(
        #[test]
        fn $test() -> $crate::common::Outcome {
            $function::<$element>()
        }
    )+ };
}
pub(crate) use tests;
