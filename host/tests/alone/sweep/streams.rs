//! Pooled streams, scopes, and copies that overlap with kernels.

use ironwarp::{DeviceBuffer, LaunchConfig, Result, launch};

use super::plain;
use crate::common::Bench;
use crate::common::kernels::{fill, scale};

pub fn pool_and_scope() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let urgent = device.stream_with_priority(device.priority_levels()? - 1)?;
    urgent.wait_for(&stream)?;
    let config = LaunchConfig::linear(64, 32);
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32; 64])?;
    let mut parts = [DeviceBuffer::<f32>::zeroed(&stream, 64)?, DeviceBuffer::zeroed(&stream, 64)?];
    // Twice, so that the pool has streams the second time.
    for factor in [2.0, 3.0] {
        stream.scope(|scope| {
            for part in &mut parts {
                // SAFETY: all have 64 elements.
                unsafe { launch::<scale>(&scope.fork()?, config, (factor, &x, part))? };
            }
            Ok(())
        })?;
        stream.synchronize()?;
    }
    for part in &parts {
        assert_eq!(part.to_vec(&stream)?, [3.0; 64]);
    }
    let sums = stream.parallel([|stream: &_| {
        let mut y = DeviceBuffer::<f32>::zeroed(stream, 64)?;
        // SAFETY: 64 elements.
        unsafe { launch::<fill>(stream, config, (64u32, 0.5, &mut y))? };
        Ok(y.to_vec(stream)?.iter().sum::<f32>())
    }])?;
    assert_eq!(sums, [32.0]);
    Ok(())
}

pub fn overlap() -> Result<()> {
    let (_device, stream) = plain()?;
    let mut sums = Vec::new();
    stream.overlap(
        2,
        [[1.0f32; 8], [2.0; 8], [3.0; 8]],
        |stream, x: &DeviceBuffer<f32>| {
            let mut y = DeviceBuffer::<f32>::zeroed(stream, x.len())?;
            y.copy_from_device(stream, x)?;
            Ok(y)
        },
        |y| {
            sums.push(y.iter().sum::<f32>());
            Ok(())
        },
    )?;
    assert_eq!(sums, [8.0, 16.0, 24.0]);
    Ok(())
}
