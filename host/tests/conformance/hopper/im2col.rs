//! Windows of tensors, copied to shared memory, against plain loops. Tensors are larger than 128 KiB: drivers
//! before CUDA 13.2 write maps of smaller ones that the copy engine misreads.

use conformance::hopper::im2col as kernels;
use half::bf16;
use ironwarp::tma::{Swizzle, TensorMap, Tiling};
use ironwarp::{DeviceBuffer, LaunchConfig, Result, launch};

use super::hopper;
use crate::gpu::{Gpu, assert_same};

/// A tensor and what is loaded of it: the innermost dimension first.
#[derive(Clone, Copy, Debug)]
struct Case<const RANK: usize, const OFFSETS: usize> {
    dims: [usize; RANK],
    channels: usize,
    windows: usize,
    lower: [i32; 3],
    upper: [i32; 3],
    steps: [u32; RANK],
    coords: [i32; RANK],
    offsets: [u16; OFFSETS],
    swizzle: Swizzle,
}

impl<const RANK: usize, const OFFSETS: usize> Case<RANK, OFFSETS> {
    fn map<'a>(&self, x: &'a DeviceBuffer<bf16>) -> Result<TensorMap<'a>> {
        let (channels, windows) = (self.channels as u32, self.windows as u32);
        let tiling = Tiling::windows(self.dims, channels, windows, self.lower, self.upper);
        TensorMap::new(x.view(), &tiling.element_strides(self.steps).swizzle(self.swizzle))
    }

    /// The bytes that shared memory holds.
    fn want(&self, x: &[bf16]) -> Vec<bf16> {
        let (mut want, mut begins) = (vec![bf16::ZERO; self.windows * self.channels], self.coords);
        for window in 0..self.windows {
            for channel in 0..self.channels {
                let (mut inside, mut memory, mut apart) = (true, 0, 1);
                for axis in 0..RANK {
                    let at = match axis {
                        0 => begins[0] + channel as i32,
                        axis if axis < RANK - 1 => begins[axis] + i32::from(self.offsets[axis - 1]),
                        axis => begins[axis],
                    };
                    inside &= (0..self.dims[axis] as i32).contains(&at);
                    memory += i64::from(at) * apart;
                    apart *= self.dims[axis] as i64;
                }
                let byte = 2 * (window * self.channels + channel);
                let flip = if self.swizzle == Swizzle::B128 { byte / 128 % 8 * 16 } else { 0 };
                want[(byte ^ flip) / 2] = if inside { x[memory as usize] } else { bf16::ZERO };
            }
            for (axis, begin) in begins.iter_mut().enumerate().skip(1) {
                if axis == RANK - 1 {
                    *begin += 1;
                    break;
                }
                *begin += self.steps[axis] as i32;
                if *begin < self.dims[axis] as i32 + self.upper[axis - 1] {
                    break;
                }
                *begin = self.lower[axis - 1];
            }
        }
        want
    }

    fn check(
        &self,
        gpu: &Gpu,
        load: impl Fn(LaunchConfig, TensorMap<'_>, u32, &mut DeviceBuffer<u32>) -> Result<()>,
    ) -> Result<()> {
        let elements: usize = self.dims.iter().product();
        let x: Vec<bf16> = (0..elements).map(|i| bf16::from_bits((i * 7 % 32_749) as u16 + 1)).collect();
        let buffer = gpu.put(&x)?;
        let bytes = 2 * self.windows * self.channels;
        let config = LaunchConfig::new([1; 3], [kernels::THREADS, 1, 1]).with_shared(bytes as u32);
        let mut out = gpu.put(&vec![u32::MAX; bytes / 4])?;
        load(config, self.map(&buffer)?, bytes as u32, &mut out)?;
        let got: Vec<u32> = out.to_vec(&gpu.stream)?;
        let want: Vec<u32> = self
            .want(&x)
            .chunks_exact(2)
            .map(|pair| u32::from(pair[0].to_bits()) | u32::from(pair[1].to_bits()) << 16)
            .collect();
        assert_same(&format!("{self:?}"), &got, want);
        Ok(())
    }
}

#[test]
fn windows_along_a_line() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    let case = Case {
        dims: [32, 301, 11],
        channels: 16,
        windows: 200,
        lower: [-2, 0, 0],
        upper: [-3, 0, 0],
        steps: [1, 3, 1],
        coords: [8, 100, 3],
        offsets: [4],
        swizzle: Swizzle::None,
    };
    for (coords, offsets) in [([8, 100, 3], [4]), ([0, -2, 0], [0]), ([24, 1, 10], [1])] {
        Case { coords, offsets, ..case }.check(&gpu, |config, map, bytes, out| {
            // SAFETY: there is room for windows of that many bytes.
            unsafe {
                let arguments = (map, coords, offsets, bytes, out);
                launch::<kernels::tma_windows_3d>(&gpu.stream, config, arguments)
            }
        })?;
    }
    Ok(())
}

#[test]
fn windows_of_images() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    let case = Case {
        dims: [64, 21, 19, 4],
        channels: 64,
        windows: 128,
        lower: [-1, -2, 0],
        upper: [-2, -1, 0],
        steps: [1, 1, 2, 1],
        coords: [0, 5, 4, 1],
        offsets: [2, 1],
        swizzle: Swizzle::B128,
    };
    let places =
        [([0, 5, 4, 1], [2, 1]), ([0, -1, -2, 0], [0, 0]), ([0, 18, 16, 3], [3, 3]), ([32, 0, 0, 2], [0, 3])];
    for (coords, offsets) in places {
        for steps in [[1, 1, 1, 1], [1, 1, 2, 1], [1, 3, 2, 1]] {
            // Windows begin at whole steps from the lower corner.
            let aligned = |axis: usize| {
                let lower = case.lower[axis - 1];
                lower + (coords[axis] - lower) / steps[axis] as i32 * steps[axis] as i32
            };
            let coords = [coords[0], aligned(1), aligned(2), coords[3]];
            Case { coords, offsets, steps, ..case }.check(&gpu, |config, map, bytes, out| {
                // SAFETY: there is room for windows of that many bytes.
                unsafe {
                    let arguments = (map, coords, offsets, bytes, out);
                    launch::<kernels::tma_windows_4d>(&gpu.stream, config, arguments)
                }
            })?;
        }
    }
    Ok(())
}

#[test]
fn windows_of_volumes() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    let case = Case {
        dims: [16, 13, 9, 11, 5],
        channels: 8,
        windows: 256,
        lower: [-1, 0, -2],
        upper: [-1, -2, 0],
        steps: [1, 1, 2, 1, 1],
        coords: [8, 3, 2, 7, 1],
        offsets: [2, 1, 3],
        swizzle: Swizzle::None,
    };
    let Case { coords, offsets, .. } = case;
    case.check(&gpu, |config, map, bytes, out| {
        // SAFETY: there is room for windows of that many bytes.
        unsafe {
            let arguments = (map, coords, offsets, bytes, out);
            launch::<kernels::tma_windows_5d>(&gpu.stream, config, arguments)
        }
    })
}
