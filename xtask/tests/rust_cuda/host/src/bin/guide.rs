use cust::prelude::*;
use host::{Outcome, PTX};

fn main() -> Outcome {
    let _ctx = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let (lhs, rhs) = (vec![2.0f32; 1000], vec![0.5f32; 1000]);
    let lhs_gpu = lhs.as_slice().as_dbuf()?;
    let rhs_gpu = rhs.as_slice().as_dbuf()?;
    let mut out = vec![0.0f32; 1000];
    let out_buf = out.as_slice().as_dbuf()?;
    let func = module.get_function("vecadd")?;
    let (_, block_size) = func.suggested_launch_configuration(0, 0.into())?;
    let grid_size = (1000 + block_size - 1) / block_size;
    unsafe {
        launch!(func<<<grid_size, block_size, 0, stream>>>(
            lhs_gpu.as_device_ptr(),
            lhs_gpu.len(),
            rhs_gpu.as_device_ptr(),
            rhs_gpu.len(),
            out_buf.as_device_ptr(),
        ))?;
    }
    stream.synchronize()?;
    out_buf.copy_to(&mut out)?;
    assert_eq!(out, [2.5; 1000]);
    Ok(())
}
