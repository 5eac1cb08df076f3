//! A tensor map borrows the memory that it describes.
use ironwarp::tma::{TensorMap, TensorMapMut, Tiling};
use ironwarp::{DeviceBuffer, Result, Stream};

fn outlives(stream: &Stream) -> Result<TensorMap<'static>> {
    let x = DeviceBuffer::<f32>::zeroed(stream, 64)?;
    TensorMap::new(x.view(), &Tiling::new([64], [64]))
}

fn written_through_two(stream: &Stream) -> Result<()> {
    let mut x = DeviceBuffer::<f32>::zeroed(stream, 64)?;
    let one = TensorMapMut::new(x.view_mut(), &Tiling::new([64], [64]))?;
    let two = TensorMapMut::new(x.view_mut(), &Tiling::new([64], [64]))?;
    drop((one, two));
    Ok(())
}

fn main() {}
