//! Tensor maps: a typed error for each rule of the copy engine, and the borrows of a map.

use conformance::hopper::tma as kernels;
use half::{bf16, f16};
use ironwarp::tma::{DataType, Interleave, L2Promotion, OobFill, Swizzle, TensorMap, TensorMapMut, Tiling};
use ironwarp::{Device, DeviceBuffer, Error, LaunchConfig, Result, Stream, launch};

/// A stream of a device with TMA, if there is one.
fn open() -> Result<Option<Stream>> {
    let device = Device::open(0)?;
    if device.arch().major < 9 {
        testkit::skip("the device has no TMA");
        return Ok(None);
    }
    Ok(Some(device.stream()?))
}

/// Elements of the buffer: a matrix of 52 rows of 104, and 8 more.
const ROWS: usize = 52;
const PITCH: usize = 104;
const LEN: usize = ROWS * PITCH + 8;

fn matrix() -> Tiling<2> {
    Tiling::new([100, ROWS], [64, 128]).stride(1, 2 * PITCH as u64).swizzle(Swizzle::B128)
}

fn image() -> Tiling<4> {
    Tiling::new([16, 5, 4, 3], [16, 2, 2, 1]).interleave(Interleave::B32).swizzle(Swizzle::B32)
}

/// A map of `tiling` for the elements from `first` on, both ways.
fn make<const RANK: usize>(stream: &Stream, tiling: Tiling<RANK>, first: usize) -> Result<()> {
    let mut x = DeviceBuffer::<bf16>::zeroed(stream, LEN)?;
    let shared = TensorMap::new(x.slice(first..)?, &tiling).map(drop);
    let exclusive = TensorMapMut::new(x.slice_mut(first..)?, &tiling).map(drop);
    assert_eq!(shared.is_ok(), exclusive.is_ok());
    shared
}

#[test]
fn what_the_rules_allow() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    make(&stream, matrix(), 0)?;
    make(&stream, matrix(), 8)?;
    make(&stream, image(), 0)?;
    make(&stream, Tiling::new([LEN], [256]), 0)?;
    make(&stream, Tiling::new([PITCH, 4, 13], [8, 4, 2]), 0)?;
    make(&stream, Tiling::new([8, 1, 1, 1, 1], [8; 5]).stride(1, 1 << 30), 0)?;
    make(&stream, matrix().oob_fill(OobFill::Nan).l2_promotion(L2Promotion::B256), 0)?;
    make(&stream, matrix().element_strides([1, 8]), 0)?;
    make(&stream, matrix().data_type(DataType::F16), 0)
}

#[test]
fn every_element_type_has_a_map() -> Result<()> {
    fn one<T: ironwarp::tma::MapElement>(stream: &Stream) -> Result<()> {
        let x = DeviceBuffer::<T>::zeroed(stream, 256)?;
        TensorMap::new(x.view(), &Tiling::new([16, 16], [16, 8])).map(drop)
    }
    let Some(stream) = open()? else { return Ok(()) };
    one::<u8>(&stream)?;
    one::<u16>(&stream)?;
    one::<u32>(&stream)?;
    one::<i32>(&stream)?;
    one::<u64>(&stream)?;
    one::<i64>(&stream)?;
    one::<f16>(&stream)?;
    one::<bf16>(&stream)?;
    one::<f32>(&stream)?;
    one::<f64>(&stream)?;
    one::<num::E4M3>(&stream)?;
    one::<num::E5M2>(&stream)
}

#[track_caller]
fn breaks<const RANK: usize>(stream: &Stream, argument: &str, tiling: Tiling<RANK>) {
    breaks_at(stream, argument, tiling, 0);
}

/// A tiling that breaks a rule: the error names the argument and a fix, and the next map works.
#[track_caller]
fn breaks_at<const RANK: usize>(stream: &Stream, argument: &str, tiling: Tiling<RANK>, first: usize) {
    match make(stream, tiling, first) {
        Err(Error::InvalidArgument { operation: "TensorMap::new", argument: got, hint, .. }) => {
            assert_eq!(got, argument);
            assert!(!hint.is_empty());
        }
        other => panic!("{argument}: {other:?}"),
    }
    make(stream, matrix(), 0).unwrap();
}

#[test]
fn every_rule_is_an_error_of_its_own() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    let stream = &stream;
    breaks_at(stream, "address", matrix(), 1);
    breaks_at(stream, "address", image(), 8);
    breaks(stream, "rank", Tiling::new([64, 8], [64, 8]).interleave(Interleave::B16));
    breaks(stream, "dims", Tiling::new([0, 8], [64, 8]));
    breaks(stream, "dims", Tiling::new([8, 0], [64, 8]));
    breaks(stream, "dims", Tiling::new([(1 << 32) + 1], [64]));
    breaks(stream, "strides", Tiling::new([100, 8], [64, 8]));
    breaks(stream, "strides", matrix().stride(1, 1 << 40));
    breaks(stream, "strides", image().stride(2, 48));
    breaks(stream, "stride", matrix().stride(0, 2));
    breaks(stream, "stride", matrix().stride(2, 1024));
    breaks(stream, "box_dims", Tiling::new([64, 8], [64, 0]));
    breaks(stream, "box_dims", Tiling::new([64, 8], [64, 257]));
    breaks(stream, "box_dims", Tiling::new([64, 8], [12, 8]));
    breaks(stream, "box_dims", Tiling::new([64, 8], [72, 8]).swizzle(Swizzle::B128));
    breaks(stream, "box_dims", Tiling::new([64, 8], [40, 8]).swizzle(Swizzle::B64));
    breaks(stream, "box_dims", Tiling::new([64, 8], [24, 8]).swizzle(Swizzle::B32));
    breaks(stream, "element_strides", matrix().element_strides([1, 0]));
    breaks(stream, "element_strides", matrix().element_strides([1, 9]));
    breaks(stream, "swizzle", image().swizzle(Swizzle::B128));
    breaks(stream, "data_type", matrix().data_type(DataType::F32));
    breaks(stream, "oob_fill", matrix().data_type(DataType::U16).oob_fill(OobFill::Nan));
    Ok(())
}

/// A launch that gets a map waits for the work of other streams on the tensor, and they wait for it.
#[test]
fn a_map_keeps_the_order_of_its_buffer() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    if stream.device().arch().minor != 0 {
        testkit::skip("the kernels are Hopper's");
        return Ok(());
    }
    let other = stream.device().stream()?;
    const LEN: usize = 256;
    let bytes = (LEN * size_of::<u32>()) as u32;
    let config = LaunchConfig::new([1; 3], [kernels::THREADS, 1, 1]).with_shared(bytes);
    let tiling = Tiling::new([LEN], [LEN as u32]);
    let numbers: Vec<u32> = (0..LEN as u32).collect();
    let from = DeviceBuffer::from_slice(&stream, &numbers)?;
    for _ in 0..10 {
        let mut x = DeviceBuffer::<u32>::zeroed(&stream, LEN)?;
        let mut out = DeviceBuffer::<u32>::zeroed(&other, LEN)?;
        x.copy_from_device(&stream, &from)?;
        let map = TensorMap::new(x.view(), &tiling)?;
        // SAFETY: there is room for boxes of that many bytes.
        unsafe { launch::<kernels::tma_load_1d>(&other, config, (&map, [0], bytes, 0u32, &mut out))? };
        assert_eq!(out.to_vec(&other)?, numbers);
        // The other way: written through a map on one stream, read on another.
        let mut y = DeviceBuffer::<u32>::zeroed(&stream, LEN)?;
        let mut map = TensorMapMut::new(y.view_mut(), &tiling)?;
        // SAFETY: as above.
        unsafe { launch::<kernels::tma_store_1d>(&other, config, (&out, bytes, 0u32, &mut map, [0]))? };
        assert_eq!(y.to_vec(&stream)?, numbers);
    }
    Ok(())
}

#[test]
fn a_tensor_lies_in_its_view() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    let outside = |result: Result<()>, expected: usize| match result {
        Err(Error::Length { expected: wanted, got, .. }) => assert_eq!((wanted, got), (expected, LEN)),
        other => panic!("{other:?}"),
    };
    // The last row ends where its 100 elements end, not where the next would begin.
    make(&stream, Tiling::new([112, ROWS], [64, 8]).stride(1, 2 * PITCH as u64), 0)?;
    outside(
        make(&stream, Tiling::new([113, ROWS], [64, 8]).stride(1, 2 * PITCH as u64), 0),
        51 * PITCH + 113,
    );
    outside(make(&stream, Tiling::new([LEN + 1], [64]), 0), LEN + 1);
    outside(
        make(&stream, matrix().stride(1, (1 << 40) - 16), 0),
        (((1_u64 << 40) - 16) * 51 / 2 + 100) as usize,
    );
    let huge = Tiling::new([1 << 32; 5], [8; 5])
        .stride(1, (1 << 40) - 16)
        .stride(2, (1 << 40) - 16)
        .stride(3, (1 << 40) - 16)
        .stride(4, (1 << 40) - 16);
    assert!(matches!(make(&stream, huge, 0), Err(Error::Length { .. })));
    // Stores write whole units: the last row ends at element 51 * 104 + 110, and is written up to 112.
    let mut x = DeviceBuffer::<bf16>::zeroed(&stream, 51 * PITCH + 112)?;
    let tiling = Tiling::new([110, ROWS], [64, 8]).stride(1, 2 * PITCH as u64);
    TensorMapMut::new(x.view_mut(), &tiling)?;
    TensorMap::new(x.slice(..51 * PITCH + 110)?, &tiling)?;
    match TensorMapMut::new(x.slice_mut(..51 * PITCH + 111)?, &tiling) {
        Err(Error::Length { expected, got, .. }) => {
            assert_eq!((expected, got), (51 * PITCH + 112, 51 * PITCH + 111));
        }
        other => panic!("{other:?}"),
    }
    let empty = DeviceBuffer::<f32>::zeroed(&stream, 0)?;
    let none = TensorMap::new(empty.view(), &Tiling::new([8], [8]));
    assert!(matches!(none, Err(Error::Length { expected: 8, got: 0, .. })));
    Ok(())
}
