//! Runs the kernel once.

use ironwarp::DeviceBuffer;
use __NAME__::{device, run};

fn main() -> ironwarp::Result<()> {
    let stream = device()?.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
    let mut y = DeviceBuffer::from_slice(&stream, &[10.0f32, 20.0, 30.0])?;
    run(&stream, 2.0, &x, &mut y)?;
    println!("{:?}", y.to_vec(&stream)?);
    Ok(())
}
