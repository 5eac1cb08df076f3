//! The tuner without the memory that it needs to measure. A process of its own: a driver allocation for each
//! buffer is chosen before the device is opened, so that allocations can be counted.

use crate::gemm_case::{Case, DENSE, Lie, Number, Outcome, PLAIN, Setup, TRANSPOSED};
use driver::code;
use driver::fault::{Rule, Times, scoped};
use half::bf16;
use ironwarp::Device;
use ironwarp::ops::gemm::{Repack, candidates};
use ironwarp::ops::tuning::{Tuner, Tuning};

#[test]
fn what_there_is_no_memory_for_is_not_measured() -> Outcome {
    testkit::own_process!("IRONWARP_ALLOCATOR" = "passthrough");
    let device = Device::open(0)?;
    // The first two allocations are another C and amax. For dense operands in f32 no kernel needs more. Of
    // 16-bit operands with a transposed A some kernels then allocate copies.
    full_at::<f32>(&device, 1, DENSE, 0)?;
    full_at::<f32>(&device, 2, DENSE, 0)?;
    full_at::<bf16>(&device, 3, TRANSPOSED, 1)
}

/// Tunes a product while the `nth` allocation and those after it fail, and counts what the tuner recorded.
fn full_at<T: Number>(device: &Device, nth: u64, a: Lie, records: usize) -> Outcome {
    let stream = device.stream()?;
    let setup = Setup::<T, T, T>::new(&Case { m: 72, n: 40, k: 24, a, ..PLAIN }, &stream)?;
    let mut c = setup.c(&stream)?;
    let problem = setup.product(&mut c)?.problem()?;
    let offers = candidates(&problem, device);
    let copies = offers.iter().any(|offer| offer.config.repack != [Repack::No; 2]);
    assert_eq!(copies, records > 0, "what the test is about");
    let tuner = Tuner::new(device, Tuning::Measure);
    let full = [Rule { function: "cuMemAllocAsync", nth, code: code::OUT_OF_MEMORY, times: Times::Always }];
    let rules = scoped(&full)?;
    let outcome = tuner.run(&stream, setup.product(&mut c)?);
    drop(rules);
    outcome?;
    assert_eq!(tuner.len(), records, "allocation {nth}");
    let config = tuner.explain(&stream, setup.product(&mut setup.c(&stream)?)?)?.config;
    assert_eq!(config.repack, [Repack::No; 2], "{config}");
    setup.compare(&c.to_vec(&stream)?, config.kernel)?;
    // With the memory it is measured after all.
    tuner.run(&stream, setup.product(&mut c)?)?;
    assert_eq!(tuner.len(), 1, "allocation {nth}");
    Ok(())
}
