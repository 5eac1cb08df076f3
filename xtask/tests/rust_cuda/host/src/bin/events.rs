use cust::event::{Event, EventFlags, EventStatus};
use cust::prelude::*;
use cust::stream::StreamWaitEventFlags;
use host::{Outcome, PTX};

fn main() -> Outcome {
    let _ctx = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let sums = module.get_function("sums")?;
    let (first, second) = (
        Stream::new(StreamFlags::NON_BLOCKING, None)?,
        Stream::new(StreamFlags::NON_BLOCKING, None)?,
    );
    let (start, stop) = (Event::new(EventFlags::DEFAULT)?, Event::new(EventFlags::DEFAULT)?);
    let values = DeviceBuffer::from_slice(&[0.25f32; 256])?;
    let out = DeviceBuffer::from_slice(&[0.0f32; 4])?;
    start.record(&first)?;
    unsafe {
        launch!(sums<<<4u32, 64u32, 0, first>>>(values.as_device_ptr(), values.len(), out.as_device_ptr()))?;
    }
    stop.record(&first)?;
    let done = Event::new(EventFlags::DISABLE_TIMING)?;
    done.record(&first)?;
    second.wait_event(done, StreamWaitEventFlags::DEFAULT)?;
    second.synchronize()?;
    assert_eq!(stop.query()?, EventStatus::Ready);
    assert!(stop.elapsed_time_f32(&start)? >= 0.0);
    assert_eq!(out.as_host_vec()?, [16.0; 4]);
    Ok(())
}
