//! A stream, short functions to copy data to the device and back, and random words.

use bytemuck::{Pod, Zeroable};
use ironwarp::{Arch, Device, DeviceBuffer, Result, Stream};
use testkit::Random;

/// The first device and a stream on it.
pub struct Gpu {
    pub device: Device,
    pub stream: Stream,
}

impl Gpu {
    pub fn open() -> Result<Self> {
        let device = Device::open(0)?;
        let stream = device.stream()?;
        Ok(Self { device, stream })
    }

    pub fn put<T: Pod>(&self, data: &[T]) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::from_slice(&self.stream, data)
    }

    pub fn zeros<T: Pod + Zeroable>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::zeroed(&self.stream, len)
    }

    pub fn get<T: Pod>(&self, buffer: &DeviceBuffer<T>) -> Result<Vec<T>> {
        buffer.to_vec(&self.stream)
    }

    /// Whether the device has the features of this compute capability. Kernels that need more are not in the
    /// PTX for older devices.
    pub fn has(&self, major: u32, minor: u32) -> bool {
        let Arch { major: have_major, minor: have_minor, .. } = self.device.arch();
        (u64::from(have_major), u64::from(have_minor)) >= (u64::from(major), u64::from(minor))
    }
}

/// `len` random words.
pub fn words(seed: u64, len: usize) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.bits() as u32).collect()
}

/// `len` random f32 of every kind: all exponents, both signs, now and then a subnormal number, infinity or
/// NaN, and first the critical values.
pub fn floats(seed: u64, len: usize) -> Vec<f32> {
    const HARD: [f32; 20] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -3.5,
        f32::MIN_POSITIVE,
        -1e-40,
        1e-45,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        65504.0,
        65519.996,
        65520.0,
        448.0,
        5.9604645e-8,
    ];
    HARD.into_iter().chain(words(seed, len).into_iter().map(f32::from_bits)).take(len).collect()
}

/// Compares element by element and names the first that differs.
#[track_caller]
pub fn assert_same<T: PartialEq + std::fmt::Debug>(what: &str, got: &[T], want: impl IntoIterator<Item = T>) {
    let want: Vec<T> = want.into_iter().collect();
    assert_eq!(got.len(), want.len(), "{what}: number of elements");
    if let Some(i) = (0..got.len()).find(|&i| got[i] != want[i]) {
        panic!("{what}: element {i} is {:?}, want {:?}", got[i], want[i]);
    }
}

/// As [`assert_same`] for floats, bit by bit, except that any NaN equals any other.
#[track_caller]
pub fn assert_same_floats(what: &str, got: &[f32], want: impl IntoIterator<Item = f32>) {
    let bits = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
    let want: Vec<f32> = want.into_iter().collect();
    assert_eq!(got.len(), want.len(), "{what}: number of elements");
    if let Some(i) = (0..got.len()).find(|&i| bits(got[i]) != bits(want[i])) {
        panic!("{what}: element {i} is {:e}, want {:e}", got[i], want[i]);
    }
}
