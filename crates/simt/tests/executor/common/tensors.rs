//! Helpers for tests of tensor and bulk copies.

use ironwarp_simt::barrier::sync;
use ironwarp_simt::mbarrier::{fence_init, init};
use ironwarp_simt::memory::{Tracked, load, store};
use ironwarp_simt::shared::{alloc_static, dynamic, from_address, to_address};
use ironwarp_simt::tensor_map::{DataType, Description, Interleave, L2Promotion, OobFill, Swizzle, encode};
use ironwarp_simt::{LaunchConfig, StaticKey, thread, tma};

static BARS: StaticKey = StaticKey::new("BARS");
pub const THREADS: u32 = 64;

/// A map with the alignment that the hardware needs.
#[repr(align(64))]
pub struct Map(pub [u64; 16]);

impl Map {
    pub fn new(description: &Description) -> Self {
        Self(encode(description))
    }

    pub fn at(&self) -> *const [u64; 16] {
        &raw const self.0
    }
}

pub fn config() -> LaunchConfig {
    LaunchConfig::linear(2, THREADS).shared(64 * 1024)
}

pub fn bar(index: u32) -> u32 {
    to_address(alloc_static(&BARS, 64, 8)) + 8 * index
}

pub fn tile(offset: u32) -> u32 {
    to_address(dynamic()) + offset
}

#[track_caller]
pub fn put(address: u32, value: u32) {
    // SAFETY: checking is on.
    unsafe { store(from_address(address).cast(), value) }
}

#[track_caller]
pub fn get(address: u32) -> u32 {
    // SAFETY: checking is on.
    unsafe { load(from_address(address).cast()) }
}

#[track_caller]
pub fn fetch(dst: u32, map: &Map, bar: u32, coords: &[i32]) {
    // SAFETY: checking is on, and the map is one.
    unsafe { tma::load(dst, map.at(), bar, coords, None) }
}

#[track_caller]
pub fn send(map: &Map, src: u32, coords: &[i32]) {
    // SAFETY: checking is on, and the map is one.
    unsafe { tma::store(map.at(), src, coords) }
}

pub fn rank() -> u32 {
    thread::rank()
}

/// Initialises barriers `0..counts.len()`, for all.
#[track_caller]
pub fn ready(counts: &[u32]) {
    if rank() == 0 {
        for (index, count) in (0..).zip(counts) {
            init(bar(index), *count);
        }
        fence_init();
    }
    sync(0, None);
}

/// A tensor of `u32`s, each its own index, and a map of it.
pub fn words(dims: &[u64], box_dims: &[u32], swizzle: Swizzle, test: impl FnOnce(&Map, &[u32])) {
    let len = dims.iter().product::<u64>() as u32;
    let mut host: Vec<u32> = (0..len).collect();
    let copy = host.clone();
    let tensor = Tracked::new(&mut host, "tensor");
    let map = Map::new(&describe(tensor.as_ptr() as u64, DataType::U32, dims, box_dims, swizzle));
    test(&map, &copy);
}

pub fn describe(
    address: u64,
    data_type: DataType,
    dims: &[u64],
    box_dims: &[u32],
    swizzle: Swizzle,
) -> Description {
    let size = |axis: usize| dims.get(axis).copied().unwrap_or(1);
    let mut strides = [0; 4];
    let mut stride = data_type.bytes() as u64;
    for (axis, bytes) in strides.iter_mut().enumerate() {
        stride *= size(axis);
        *bytes = stride;
    }
    Description {
        address,
        data_type,
        rank: dims.len() as u32,
        dims: std::array::from_fn(size),
        strides,
        box_dims: std::array::from_fn(|axis| box_dims.get(axis).copied().unwrap_or(1)),
        element_strides: [1; 5],
        interleave: Interleave::None,
        swizzle,
        l2_promotion: L2Promotion::None,
        oob_fill: OobFill::Zeros,
        pixels: None,
    }
}

/// Stores a swizzled box of 32 x 8 words, each its own index, at `coords` of a tensor of 40 x 12.
pub fn stored(coords: [i32; 2], kernel: impl Fn(&Map) + Sync, check: bool) -> Vec<u32> {
    let mut host = vec![u32::MAX; 40 * 12];
    let tensor = Tracked::new(&mut host, "tensor");
    let map = Map::new(&describe(tensor.as_ptr() as u64, DataType::U32, &[40, 12], &[32, 8], Swizzle::B128));
    let config = LaunchConfig::linear(1, THREADS).shared(4096);
    for seed in 0..super::SEEDS {
        let options = ironwarp_simt::Options::default().seed(seed).check(check);
        ironwarp_simt::run(&config, &options, || kernel(&map))
            .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
    drop(tensor);
    for (index, value) in (0..).zip(&host) {
        let (x, y) = (index % 40 - coords[0], index / 40 - coords[1]);
        let inside = (0..32).contains(&x) && (0..8).contains(&y);
        assert_eq!(*value, if inside { (32 * y + x) as u32 } else { u32::MAX }, "element {index}");
    }
    host
}

pub fn fill_box() {
    for row in 0..8 {
        if rank() < 32 {
            put(tile(0) + 128 * row + ((4 * rank()) ^ (16 * row)), 32 * row + rank());
        }
    }
}
