//! A kernel fault is sticky. The test has its own process, because the fault destroys the whole context.

use crate::common::*;
use cust_raw::*;

/// Far from any memory that a test allocates.
const NOWHERE: u64 = 0x0000_7abc_dead_0000;

#[test]
fn a_fault_comes_back_from_every_later_call() -> Check {
    testkit::own_process!();
    let gpu = Gpu::new()?;
    let (module, stream) = (gpu.module()?, gpu.stream()?);
    let function = module.function(c"count_up")?;
    // The address was never allocated, so nothing must free it.
    let wild = std::mem::ManuallyDrop::new(Buffer { address: NOWHERE, words: 32 });
    launch(function, stream.0, &wild, 0)?;
    fails!(cuStreamSynchronize(stream.0), CUDA_ERROR_ILLEGAL_ADDRESS);
    let mut address = 0;
    fails!(cuMemAlloc_v2(&mut address, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
    fails!(cuStreamSynchronize(stream.0), CUDA_ERROR_ILLEGAL_ADDRESS);
    fails!(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    let mut count = 0;
    ok!(cuDeviceGetCount(&mut count)); // needs no context
    if matches!(ironwarp_driver::backend(), Ok(ironwarp_driver::Backend::Software)) {
        let report = ironwarp_driver::soft::last_fault().ok_or("there is no report")?;
        holds("the report names the kernel", report.contains("count_up"))?;
    }
    // After a fault the context's objects cannot be destroyed. They go with the process.
    std::mem::forget((module, stream));
    Ok(())
}
