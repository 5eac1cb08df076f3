//! Boxes of tensors, copied to and from shared memory, against plain index arithmetic.

use bytemuck::Pod;
use conformance::hopper::tma as kernels;
use half::{bf16, f16};
use ironwarp::tma::{MapElement, Swizzle, TensorMap, TensorMapMut, Tiling};
use ironwarp::{DeviceBuffer, LaunchConfig, Result, launch};

use super::hopper;
use crate::gpu::{Gpu, assert_same, words};

/// A tensor of `RANK` dimensions and one box of it, the contiguous dimension first.
#[derive(Clone, Copy, Debug)]
struct Case<const RANK: usize> {
    dims: [usize; RANK],
    /// The stride of rows (dimension 1) in bytes; the other dimensions follow without gaps.
    pitch: usize,
    box_dims: [usize; RANK],
    coords: [i32; RANK],
    swizzle: Swizzle,
}

impl<const RANK: usize> Case<RANK> {
    fn tiling(&self) -> Tiling<RANK> {
        let tiling = Tiling::new(self.dims, self.box_dims.map(|n| n as u32)).swizzle(self.swizzle);
        if RANK > 1 { tiling.stride(1, self.pitch as u64) } else { tiling }
    }

    /// Elements of the tensor's memory.
    fn len<T>(&self) -> usize {
        let rows: usize = self.dims[1..].iter().product();
        if RANK > 1 { rows * self.pitch / size_of::<T>() } else { self.dims[0] }
    }

    fn bytes<T>(&self) -> usize {
        self.box_dims.iter().product::<usize>() * size_of::<T>()
    }

    fn config<T>(&self) -> LaunchConfig {
        LaunchConfig::new([1; 3], [kernels::THREADS, 1, 1]).with_shared(self.bytes::<T>() as u32)
    }

    /// Bytes of the swizzle's span, or of a unit without one.
    fn span(&self) -> usize {
        match self.swizzle {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            _ => 128,
        }
    }

    /// Elements along dimension 0 that a store may write: it writes whole units of 16 bytes.
    fn stored_width<T>(&self) -> usize {
        self.dims[0].next_multiple_of(16 / size_of::<T>())
    }

    /// For each element of the box, in order: its place in shared memory, and that in the tensor's memory, if
    /// it lies in the tensor, whose rows have `width` elements; both in elements.
    fn elements<T>(&self, width: usize) -> Vec<(usize, Option<usize>)> {
        let size = size_of::<T>();
        let span = self.span();
        let row = self.box_dims[0] * size;
        // With a swizzle rows lie a span apart.
        let pitch = if self.swizzle == PLAIN { row } else { span };
        let place = |i: usize| {
            let byte = i / self.box_dims[0] * pitch + i % self.box_dims[0] * size;
            (byte ^ (byte / 128 % (span / 16) * 16)) / size
        };
        let count = self.box_dims.iter().product();
        let one = |i: usize| {
            let (mut rest, mut inside, mut memory, mut apart) = (i, true, 0, 1);
            for axis in 0..RANK {
                let at = self.coords[axis] as i64 + (rest % self.box_dims[axis]) as i64;
                rest /= self.box_dims[axis];
                let dim = if axis == 0 { width } else { self.dims[axis] };
                inside &= (0..dim as i64).contains(&at);
                memory += at * apart;
                apart = if axis == 0 { (self.pitch / size) as i64 } else { apart * self.dims[axis] as i64 };
            }
            (place(i), inside.then_some(memory as usize))
        };
        (0..count).map(one).collect()
    }
}

/// A kernel for one number of dimensions. Kernels differ only in their name, and a name is a type.
type Load<const RANK: usize> =
    fn(&Gpu, LaunchConfig, TensorMap<'_>, [i32; RANK], u32, u32, &mut DeviceBuffer<u32>) -> Result<()>;
type Store<const RANK: usize> =
    fn(&Gpu, LaunchConfig, &DeviceBuffer<u32>, u32, u32, &mut TensorMapMut<'_>, [i32; RANK]) -> Result<()>;

macro_rules! load {
    ($kernel:ident) => {
        |gpu, config, map, coords, bytes, hint, out| {
            // SAFETY: there is room for boxes of that many bytes.
            unsafe { launch::<kernels::$kernel>(&gpu.stream, config, (map, coords, bytes, hint, out)) }
        }
    };
}

macro_rules! store {
    ($kernel:ident) => {
        |gpu, config, x, bytes, add, map, coords| {
            // SAFETY: there is room for boxes of that many bytes.
            unsafe { launch::<kernels::$kernel>(&gpu.stream, config, (x, bytes, add, map, coords)) }
        }
    };
}

/// The elements that lie in the words.
fn elements<T: Pod>(words: &[u32]) -> Vec<T> {
    let bytes: &[u8] = bytemuck::cast_slice(words);
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// Loads the box with every cache policy.
fn loads<T, const RANK: usize>(gpu: &Gpu, case: Case<RANK>, load: Load<RANK>) -> Result<()>
where
    T: Pod + MapElement + PartialEq + std::fmt::Debug,
{
    let x: Vec<T> = elements(&words(1, (case.len::<T>() * size_of::<T>()).div_ceil(4)));
    let buffer = gpu.put(&x[..case.len::<T>()])?;
    let bytes = case.bytes::<T>();
    for hint in 0..4 {
        let map = TensorMap::new(buffer.view(), &case.tiling())?;
        let mut out = gpu.put(&vec![u32::MAX; bytes / 4])?;
        load(gpu, case.config::<T>(), map, case.coords, bytes as u32, hint, &mut out)?;
        let mut want = vec![T::zeroed(); bytes / size_of::<T>()];
        for (place, memory) in case.elements::<T>(case.dims[0]) {
            want[place] = memory.map_or(T::zeroed(), |at| x[at]);
        }
        assert_same(&format!("{case:?}, hint {hint}"), &elements::<T>(&gpu.get(&out)?), want);
    }
    Ok(())
}

/// The results of reductions of two elements, by their number in `REDUCTIONS`; 0 is a store, and so is
/// `STORE_HINT`.
trait Reduced: Pod + MapElement + PartialEq + std::fmt::Debug {
    /// The numbers of the reductions of this type.
    const OPS: &[u32];

    /// An element, exact in sums.
    fn of(word: u32) -> Self;

    fn combine(op: u32, old: Self, new: Self) -> Self;
}

macro_rules! reduced {
    ($($type:ty: $ops:expr, $of:expr, $add:expr, $less:expr;)*) => { $(
        impl Reduced for $type {
            const OPS: &[u32] = &$ops;

            fn of(word: u32) -> Self {
                let of: fn(u32) -> Self = $of;
                of(word)
            }

            fn combine(op: u32, old: Self, new: Self) -> Self {
                let (add, less): (fn(Self, Self) -> Self, fn(Self, Self) -> bool) = ($add, $less);
                match op {
                    0 | kernels::STORE_HINT => new,
                    1 => add(old, new),
                    2 => if less(new, old) { new } else { old },
                    3 => if less(old, new) { new } else { old },
                    _ => bits(op, old, new),
                }
            }
        }
    )* };
}

/// Reductions of bits, and those that count, of words that lie next to each other.
fn bits<T: Pod>(op: u32, old: T, new: T) -> T {
    if matches!(op, 4 | 5) {
        let (old, new): (u32, u32) = (bytemuck::cast(old), bytemuck::cast(new));
        let counted = match op {
            4 => {
                if old >= new {
                    0
                } else {
                    old + 1
                }
            }
            _ => {
                if old == 0 || old > new {
                    new
                } else {
                    old - 1
                }
            }
        };
        return bytemuck::cast(counted);
    }
    let both: Vec<u8> = bytemuck::bytes_of(&old)
        .iter()
        .zip(bytemuck::bytes_of(&new))
        .map(|(old, new)| match op {
            6 => old & new,
            7 => old | new,
            8 => old ^ new,
            _ => unreachable!("there is no reduction {op}"),
        })
        .collect();
    bytemuck::pod_read_unaligned(&both)
}

// Words in two ranges, so that counting reaches its limits; small integers as floats.
reduced! {
    u32: [0, 1, 2, 3, 4, 5, 6, 7, 8, kernels::STORE_HINT], |x| if x % 3 == 0 { x % 4 } else { x }, u32::wrapping_add, |a, b| a < b;
    i32: [0, 1, 2, 3, 6, 7, 8], |x| x as i32, i32::wrapping_add, |a, b| a < b;
    u64: [0, 1, 2, 3, 6, 7, 8], |x| u64::from(x) << 20, u64::wrapping_add, |a, b| a < b;
    i64: [0, 2, 3], |x| i64::from(x as i32) << 20, i64::wrapping_add, |a, b| a < b;
    f16: [0, 1, 2, 3], |x| f16::from_f32((x % 1000) as f32 - 500.0), |a, b| a + b, |a, b| a < b;
    bf16: [0, 1, 2, 3], |x| bf16::from_f32((x % 100) as f32 - 50.0), |a, b| a + b, |a, b| a < b;
    f32: [0, 1, kernels::STORE_HINT], |x| (x % 1000) as f32, |a, b| a + b, |a, b| a < b;
    f64: [1], |x| f64::from(x), |a, b| a + b, |a, b| a < b;
}

/// Stores the box, and combines it with the tensor by every reduction. A box that begins before the tensor is
/// left out: only loads allow it.
fn stores<T: Reduced, const RANK: usize>(gpu: &Gpu, case: Case<RANK>, store: Store<RANK>) -> Result<()> {
    if case.coords.iter().any(|&at| at < 0) {
        return Ok(());
    }
    let numbers = |seed, len| words(seed, len).into_iter().map(T::of).collect::<Vec<T>>();
    let bytes = case.bytes::<T>();
    let (before, x) = (numbers(1, case.len::<T>()), numbers(2, bytes / size_of::<T>()));
    let x_words = gpu.put(bytemuck::cast_slice::<T, u32>(&x))?;
    for &op in T::OPS {
        println!("{} of {case:?}, op {op}", std::any::type_name::<T>());
        let mut buffer = gpu.put(&before)?;
        let mut map = TensorMapMut::new(buffer.view_mut(), &case.tiling())?;
        store(gpu, case.config::<T>(), &x_words, bytes as u32, op, &mut map, case.coords)?;
        let mut want = before.clone();
        for (place, memory) in case.elements::<T>(case.stored_width::<T>()) {
            if let Some(at) = memory {
                want[at] = T::combine(op, before[at], x[place]);
            }
        }
        assert_same(&format!("{case:?}, op {op}"), &gpu.get(&buffer)?, want);
    }
    Ok(())
}

const PLAIN: Swizzle = Swizzle::None;

#[test]
fn one_dimension() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    // Along dimension 0 boxes begin at multiples of 16 bytes.
    for coord in [0, 4, 60, -8, 96, 100, i32::MAX - 3, i32::MIN] {
        let case = Case { dims: [100], pitch: 0, box_dims: [32], coords: [coord], swizzle: PLAIN };
        loads::<u32, 1>(&gpu, case, load!(tma_load_1d))?;
        stores::<f32, 1>(&gpu, case, store!(tma_store_1d))?;
        stores::<u32, 1>(&gpu, case, store!(tma_store_1d))?;
    }
    Ok(())
}

#[test]
fn two_dimensions_with_every_swizzle() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for (swizzle, width) in [(PLAIN, 12), (Swizzle::B32, 8), (Swizzle::B64, 16), (Swizzle::B128, 32)] {
        for coords in [[0, 0], [4, 7], [-8, -2], [72, 40], [32, -100]] {
            let case = Case { dims: [77, 50], pitch: 320, box_dims: [width, 21], coords, swizzle };
            loads::<u32, 2>(&gpu, case, load!(tma_load_2d))?;
            stores::<f32, 2>(&gpu, case, store!(tma_store_2d))?;
            stores::<u32, 2>(&gpu, case, store!(tma_store_2d))?;
        }
    }
    Ok(())
}

#[test]
fn rows_shorter_than_the_span_lie_a_span_apart() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for (swizzle, widths) in
        [(Swizzle::B32, &[8][..]), (Swizzle::B64, &[8, 16, 24]), (Swizzle::B128, &[8, 24, 40, 56])]
    {
        for &width in widths {
            for coords in [[0, 0], [8, 7], [-8, -2], [72, 40]] {
                let case = Case { dims: [77, 50], pitch: 160, box_dims: [width, 21], coords, swizzle };
                let x: Vec<u16> = elements(&words(1, case.len::<u16>() / 2));
                let buffer = gpu.put(&x)?;
                let map = TensorMap::new(buffer.view(), &case.tiling())?;
                let bytes = case.box_dims[1] * case.span();
                let mut out = gpu.put(&vec![0; bytes / 4])?;
                let config = LaunchConfig::new([1; 3], [kernels::THREADS, 1, 1]).with_shared(bytes as u32);
                let arguments = (map, coords, case.bytes::<u16>() as u32, bytes as u32, &mut out);
                // SAFETY: there is room for as many rows of a span.
                unsafe { launch::<kernels::tma_load_narrow>(&gpu.stream, config, arguments)? };
                let mut want = vec![u16::MAX; bytes / size_of::<u16>()];
                for (place, memory) in case.elements::<u16>(case.dims[0]) {
                    want[place] = memory.map_or(0, |at| x[at]);
                }
                assert_same(&format!("{case:?}"), &elements::<u16>(&gpu.get(&out)?), want);
            }
        }
    }
    Ok(())
}

#[test]
fn elements_of_one_two_and_eight_bytes() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    let case =
        Case { dims: [200, 9], pitch: 208, box_dims: [64, 5], coords: [160, 6], swizzle: Swizzle::B64 };
    loads::<u8, 2>(&gpu, case, load!(tma_load_2d))?;
    let case = Case { dims: [100, 9], box_dims: [64, 8], coords: [-8, 3], swizzle: Swizzle::B128, ..case };
    loads::<u16, 2>(&gpu, case, load!(tma_load_2d))?;
    let case = Case { dims: [25, 9], box_dims: [4, 8], coords: [22, -1], swizzle: Swizzle::B32, ..case };
    loads::<u64, 2>(&gpu, case, load!(tma_load_2d))
}

#[test]
fn reductions_of_every_type() -> Result<()> {
    fn one<T: Reduced>(gpu: &Gpu) -> Result<()> {
        // 64 bytes of 9 rows, a part of which lies past the end of the tensor.
        let size = size_of::<T>();
        let (dims, box_dims) = ([128 / size, 7], [64 / size, 5]);
        let coords = [(96 / size) as i32, 3];
        stores::<T, 2>(
            gpu,
            Case { dims, pitch: 144, box_dims, coords, swizzle: Swizzle::B64 },
            store!(tma_store_2d),
        )
    }
    let Some(gpu) = hopper()? else { return Ok(()) };
    one::<i32>(&gpu)?;
    one::<u64>(&gpu)?;
    one::<i64>(&gpu)?;
    one::<f16>(&gpu)?;
    one::<bf16>(&gpu)
}

#[test]
fn reductions_of_runs() -> Result<()> {
    fn one<T: Reduced>(gpu: &Gpu, number: usize, name: &str) -> Result<()> {
        let op = kernels::REDUCTIONS.iter().position(|op| *op == name).expect("a known reduction") as u32 + 1;
        assert!(T::OPS.contains(&op), "{name}");
        let numbers = |seed| {
            let words = words(seed, kernels::BULK_BYTES as usize / size_of::<T>());
            words.into_iter().map(T::of).collect::<Vec<T>>()
        };
        let (before, x) = (numbers(3), numbers(4));
        let device_x = gpu.put(bytemuck::cast_slice::<T, u32>(&x))?;
        let mut out = gpu.put(bytemuck::cast_slice::<T, u32>(&before))?;
        let config = LaunchConfig::new([1; 3], [kernels::THREADS, 1, 1]);
        println!("{name} of {}", std::any::type_name::<T>());
        // SAFETY: both have the bytes.
        unsafe { launch::<kernels::bulk_reduce>(&gpu.stream, config, (number as u32, &device_x, &mut out))? };
        let want = before.iter().zip(&x).map(|(&old, &new)| T::combine(op, old, new));
        assert_same(
            &format!("{name} of {}", std::any::type_name::<T>()),
            &elements::<T>(&gpu.get(&out)?),
            want,
        );
        Ok(())
    }
    let Some(gpu) = hopper()? else { return Ok(()) };
    for (number, (name, element)) in kernels::BULK_REDUCTIONS.into_iter().enumerate() {
        match element {
            "u32" => one::<u32>(&gpu, number, name)?,
            "i32" => one::<i32>(&gpu, number, name)?,
            "u64" => one::<u64>(&gpu, number, name)?,
            "i64" => one::<i64>(&gpu, number, name)?,
            "f16" => one::<f16>(&gpu, number, name)?,
            "bf16" => one::<bf16>(&gpu, number, name)?,
            "f32" => one::<f32>(&gpu, number, name)?,
            "f64" => one::<f64>(&gpu, number, name)?,
            other => panic!("no type {other}"),
        }
    }
    Ok(())
}

#[test]
fn three_to_five_dimensions() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for coords in [[0, 0, 0], [4, 4, 5], [-4, -2, -3], [12, 0, 6]] {
        let case = Case { dims: [13, 6, 7], pitch: 64, box_dims: [8, 3, 4], coords, swizzle: Swizzle::B32 };
        loads::<u32, 3>(&gpu, case, load!(tma_load_3d))?;
        stores::<f32, 3>(&gpu, case, store!(tma_store_3d))?;
        stores::<u32, 3>(&gpu, case, store!(tma_store_3d))?;
    }
    for coords in [[0, 0, 0, 0], [4, 1, -1, 2], [12, 2, 2, 2]] {
        let case =
            Case { dims: [20, 3, 4, 5], pitch: 80, box_dims: [16, 2, 3, 2], coords, swizzle: Swizzle::B64 };
        loads::<u32, 4>(&gpu, case, load!(tma_load_4d))?;
        stores::<f32, 4>(&gpu, case, store!(tma_store_4d))?;
        stores::<u32, 4>(&gpu, case, store!(tma_store_4d))?;
    }
    for coords in [[0; 5], [8, 1, 1, 1, 1], [-4, 2, -1, 0, 3]] {
        let case =
            Case { dims: [9, 3, 2, 4, 5], pitch: 48, box_dims: [4, 2, 2, 3, 2], coords, swizzle: PLAIN };
        loads::<u32, 5>(&gpu, case, load!(tma_load_5d))?;
        stores::<f32, 5>(&gpu, case, store!(tma_store_5d))?;
        stores::<u32, 5>(&gpu, case, store!(tma_store_5d))?;
    }
    Ok(())
}

#[test]
fn a_load_reaches_all_blocks_of_a_cluster() -> Result<()> {
    const COLUMNS: usize = 32;
    const ROWS: usize = 8;
    let Some(gpu) = hopper()? else { return Ok(()) };
    for blocks in [1, 2, 3, 8] {
        let x = words(blocks as u64, blocks * ROWS * COLUMNS);
        let buffer = gpu.put(&x)?;
        let tiling = Tiling::new([COLUMNS, blocks * ROWS], [COLUMNS as u32, ROWS as u32]);
        let bytes = 4 * ROWS * COLUMNS;
        for hint in [0u32, 1] {
            let map = TensorMap::new(buffer.view(), &tiling)?;
            let mut out = gpu.zeros::<u32>(blocks * x.len())?;
            let config = LaunchConfig::new([blocks as u32, 1, 1], [kernels::THREADS, 1, 1])
                .cluster([blocks as u32, 1, 1])
                .with_shared((blocks * bytes) as u32);
            // SAFETY: boxes of so many rows and bytes, room for all in each block, and in `out` for each
            // block.
            unsafe {
                let arguments = (map, ROWS as u32, bytes as u32, hint, &mut out);
                launch::<kernels::tma_multicast>(&gpu.stream, config, arguments)?
            };
            assert_same(&format!("{blocks} blocks, hint {hint}"), &gpu.get(&out)?, x.repeat(blocks));
        }
    }
    Ok(())
}
