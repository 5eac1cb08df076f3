//! The smallest bench program, for tests of how such programs end.

use std::process::ExitCode;

use ironwarp::DeviceBuffer;
use ironwarp::ops::saxpy::saxpy;
use ironwarp_benches::{Session, Work};

fn main() -> ExitCode {
    Session::run("smallest", |session| {
        let stream = session.stream.clone();
        if !session.wants("saxpy") {
            return Ok(());
        }
        let x = DeviceBuffer::from_slice(&stream, &[1f32; 64])?;
        let mut y = DeviceBuffer::<f32>::zeroed(&stream, x.len())?;
        session.measure("saxpy", "64", Work::Calls(1), |_| saxpy(&stream, 2.0, &x, &mut y))
    })
}
