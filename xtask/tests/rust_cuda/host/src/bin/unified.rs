use cust::memory::{UnifiedBox, UnifiedBuffer};
use cust::prelude::*;
use host::{Outcome, PTX};

fn main() -> Outcome {
    let _ctx = cust::quick_init()?;
    let module = Module::from_ptx(PTX, &[])?;
    let stream = Stream::new(StreamFlags::DEFAULT, None)?;
    let mut values = UnifiedBuffer::from_slice(&[1.5f32; 100])?;
    let mut one = UnifiedBox::new(10.0f32)?;
    *one *= 2.0;
    unsafe {
        launch!(module.scale<<<2u32, 64u32, 0, stream>>>(*one, values.as_unified_ptr(), 100usize))?;
    }
    stream.synchronize()?;
    assert_eq!(values.as_slice(), [30.0; 100]);
    Ok(())
}
