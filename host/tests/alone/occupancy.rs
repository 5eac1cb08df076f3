//! How often the driver is asked how many clusters of a kernel run at once.

use crate::common::Bench;
use crate::norms::{backward, plain};
use crate::stream_events::calls;
use ironwarp::ops::row::{Norm, NormBackward, NormKind};
use ironwarp::{DType, Result, Tensor};

/// Rows that a cluster of more than two blocks shares on Hopper.
const SIDES: [usize; 2] = [2, 65_536];

#[test]
fn clusters_that_fit_are_asked_for_once_a_kernel() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let ones = |shape: &[usize]| Tensor::ones(&device, shape, DType::F32);
    let (x, dy, weight) = (ones(&SIDES)?, ones(&SIDES)?, ones(&SIDES[1..])?);
    let kind = NormKind::Layer;
    let norm = Norm { weight: Some(&weight), ..plain(kind) };
    let moments = norm.run_for_gradient(&stream, &x)?.moments.expect("a pass for a gradient");
    let backward = NormBackward { weight: Some(&weight), ..backward(kind, &x, &dy, &moments) };
    let asked = || calls("cuOccupancyMaxActiveClusters", || backward.run(&stream).map(drop));
    let first = u64::from(device.arch().is_hopper());
    assert_eq!([asked()?, asked()?, asked()?], [first, 0, 0]);
    Ok(())
}
