//! Helpers for the tests of the runtime: a device, and a few kernels in both forms (native for the software
//! driver, PTX text for NVIDIA's), so that no test names a driver.
#![allow(dead_code, reason = "every test program uses its own part")]

pub mod kernels;

use ironwarp::{Device, Error, Module, PtxSource, Result, Stream};

/// A device with the test kernels loaded, and a stream.
pub struct Bench {
    pub device: Device,
    pub stream: Stream,
}

impl Bench {
    pub fn open() -> Result<Bench> {
        Self::on(0)
    }

    pub fn on(ordinal: u32) -> Result<Bench> {
        let device = Device::open(ordinal)?;
        load_kernels(&device)?;
        let stream = device.stream()?;
        Ok(Bench { device, stream })
    }
}

/// Whether buffers come from a cache: not under sanitizers.
pub fn is_cached() -> bool {
    std::env::var("IRONWARP_ALLOCATOR").as_deref() != Ok("passthrough")
}

pub fn load_kernels(device: &Device) -> Result<Module> {
    use cuda_std::kernel::Kernel;
    // SAFETY: the text has those kernels, with the parameters of their types.
    unsafe { Module::load_family(device, kernels::fill::FAMILY, PtxSource::Text(kernels::PTX.to_owned())) }
}

/// The bytes of a value's bits, for comparisons that tell NaNs apart.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The expected error. Any other error becomes the result of the test, so a failing driver fails the test
/// with that error. Success is a panic.
pub fn expect_error<T>(what: &str, result: Result<T>, is_it: impl Fn(&Error) -> bool) -> Result<Error> {
    match result {
        Ok(_) => panic!("{what}: accepted"),
        Err(error) if is_it(&error) => Ok(error),
        Err(error) => Err(error),
    }
}
