//! The tuner without the memory that it needs to measure. A process of its own: a driver allocation for each
//! buffer is chosen before the device is opened, so that allocations can be counted.

use crate::gemm_case::{Case, DENSE, Outcome, PLAIN, Setup, TRANSPOSED};
use driver::code;
use driver::fault::{Rule, Times, scoped};
use ironwarp::Device;
use ironwarp::ops::gemm::{Repack, Tuner, Tuning, candidates};

#[test]
fn what_there_is_no_memory_for_is_not_measured() -> Outcome {
    testkit::own_process!("IRONWARP_ALLOCATOR" = "passthrough");
    let device = Device::open(0)?;
    let stream = device.stream()?;
    // The first two allocations are another C and amax. For dense operands no kernel needs more. Otherwise
    // some kernels then allocate copies of A.
    for (nth, a, records) in [(1, DENSE, 0), (2, DENSE, 0), (3, TRANSPOSED, 1)] {
        let setup = Setup::<f32, f32, f32>::new(&Case { m: 70, n: 36, k: 20, a, ..PLAIN }, &stream)?;
        let mut c = setup.c(&stream)?;
        let problem = setup.product(&mut c)?.problem()?;
        let offers = candidates(&problem, &device);
        let copies = offers.iter().any(|offer| offer.config.repack != [Repack::No; 2]);
        assert_eq!(copies, records > 0, "what the test is about");
        let tuner = Tuner::new(&device, Tuning::Measure);
        let full =
            [Rule { function: "cuMemAllocAsync", nth, code: code::OUT_OF_MEMORY, times: Times::Always }];
        let rules = scoped(&full)?;
        let outcome = tuner.run(&stream, setup.product(&mut c)?);
        drop(rules);
        outcome?;
        assert_eq!(tuner.len(), records, "allocation {nth}");
        let config = tuner.recorded(&problem).map_or(offers[0].config, |(config, _)| config);
        assert_eq!(config.repack, [Repack::No; 2], "{config}");
        setup.compare(&c.to_vec(&stream)?, config.kernel)?;
    }
    Ok(())
}
