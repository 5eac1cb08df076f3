use cust::function::FunctionAttribute;
use cust::module::ModuleJitOption;
use cust::prelude::*;
use host::{Outcome, PTX};

fn main() -> Outcome {
    let _ctx = cust::quick_init()?;
    let device = Device::get_device(0)?;
    assert!(device.total_memory()? > 0 && !device.name()?.is_empty());
    let module = Module::from_ptx(PTX, &[ModuleJitOption::GenerateLineInfo(true)])?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let function = module.get_function("scale")?;
    assert!(function.get_attribute(FunctionAttribute::MaxThreadsPerBlock)? >= 64);
    assert!(module.get_function("no_such_kernel").is_err());
    let data = DeviceBuffer::from_slice(&[1.0f32, 2.0])?;
    unsafe {
        stream.launch(
            &function,
            1,
            32,
            0,
            &[
                &4.0f32 as *const f32 as *mut std::ffi::c_void,
                &data.as_device_ptr() as *const _ as *mut std::ffi::c_void,
                &2usize as *const usize as *mut std::ffi::c_void,
            ],
        )?;
    }
    stream.synchronize()?;
    assert_eq!(data.as_host_vec()?, [4.0, 8.0]);
    Ok(())
}
