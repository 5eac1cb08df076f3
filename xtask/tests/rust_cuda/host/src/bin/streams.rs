use cust::memory::{AsyncCopyDestination, LockedBuffer};
use cust::prelude::*;
use host::{Outcome, PTX};
use std::sync::mpsc;

fn main() -> Outcome {
    let _ctx = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let scale = module.get_function("scale")?;
    let streams = [
        Stream::new(StreamFlags::NON_BLOCKING, None)?,
        Stream::new(StreamFlags::NON_BLOCKING, Some(0))?,
    ];
    let host = LockedBuffer::new(&3.0f32, 256)?;
    let mut back = [LockedBuffer::new(&0.0f32, 256)?, LockedBuffer::new(&0.0f32, 256)?];
    let mut buffers = [DeviceBuffer::<f32>::zeroed(256)?, DeviceBuffer::<f32>::zeroed(256)?];
    for (i, stream) in streams.iter().enumerate() {
        unsafe {
            buffers[i].async_copy_from(&host, stream)?;
            launch!(scale<<<4, 64, 0, stream>>>((i + 2) as f32, buffers[i].as_device_ptr(), 256usize))?;
            buffers[i].async_copy_to(&mut back[i], stream)?;
        }
    }
    let (sender, receiver) = mpsc::channel();
    streams[1].add_callback(Box::new(move || sender.send("done").unwrap()))?;
    streams[0].synchronize()?;
    streams[1].synchronize()?;
    assert_eq!(receiver.recv()?, "done");
    assert_eq!(back[0].as_slice(), [6.0; 256]);
    assert_eq!(back[1].as_slice(), [9.0; 256]);
    Ok(())
}
