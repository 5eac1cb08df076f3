use cust::context::{CacheConfig, ContextFlags, CurrentContext};
use cust::memory::{mem_get_info, DeviceBox};
use cust::prelude::*;
use host::Outcome;

fn main() -> Outcome {
    cust::init(CudaFlags::empty())?;
    let device = Device::get_device(0)?;
    let context = Context::new(device)?;
    context.set_flags(ContextFlags::SCHED_AUTO)?;
    CurrentContext::set_cache_config(CacheConfig::PreferL1)?;
    let (free, total) = mem_get_info()?;
    assert!(0 < free && free <= total);
    let one = DeviceBox::new(&5u64)?;
    let mut back = 0u64;
    one.copy_to(&mut back)?;
    assert_eq!(back, 5);
    let mut bytes = DeviceBuffer::<u8>::zeroed(16)?;
    bytes.copy_from(&[7; 16])?;
    assert_eq!(bytes.as_host_vec()?, [7; 16]);
    CurrentContext::synchronize()?;
    Ok(())
}
