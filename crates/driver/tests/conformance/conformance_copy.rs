//! Copies and fills.

use crate::common::*;
use cust_raw::*;
use std::ffi::c_void;

#[test]
fn bytes_come_back_as_they_went() -> Check {
    let gpu = Gpu::new()?;
    let values: Vec<u32> = (0..10_000_u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let buffer = gpu.buffer(values.len())?;
    buffer.write(&values)?;
    equal("the values", buffer.read()?, values)
}

#[test]
fn copies_within_the_device() -> Check {
    let gpu = Gpu::new()?;
    let (a, b) = (gpu.buffer(100)?, gpu.buffer(100)?);
    a.write(&counting(100, 5))?;
    ok!(cuMemcpyDtoD_v2(b.address, a.address, 400));
    equal("the copy", b.read()?, counting(100, 5))
}

#[test]
fn copies_at_offsets() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(8)?;
    buffer.write(&[0; 8])?;
    let bytes = [1_u8, 2, 3];
    ok!(cuMemcpyHtoD_v2(buffer.address + 5, bytes.as_ptr().cast(), 3));
    equal("the words around", buffer.read()?[..3].to_vec(), vec![0, 0x0302_0100, 0])?;
    let mut back = [0_u8; 2];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), buffer.address + 6, 2));
    equal("two of the bytes", back, [2, 3])
}

#[test]
fn unified_copies_find_out_where_memory_lies() -> Check {
    let gpu = Gpu::new()?;
    let (a, pinned) = (gpu.buffer(16)?, gpu.pinned(16)?);
    pinned.set(|i| 3 * i as u32);
    ok!(cuMemcpy(a.address, pinned.address as u64, 64));
    ok!(cuCtxSynchronize());
    equal("the copy", a.read()?, (0..16).map(|i| 3 * i).collect())
}

#[test]
fn copying_nothing_is_allowed() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(4)?;
    let mut word = 0_u32;
    ok!(cuMemcpyHtoD_v2(buffer.address, (&raw const word).cast(), 0));
    ok!(cuMemcpyDtoH_v2((&raw mut word).cast(), buffer.address, 0));
    Ok(())
}

#[test]
fn copies_beyond_an_allocation_are_refused() -> Check {
    // Larger than any address range that a driver could have mapped in one piece.
    const FAR: usize = 1 << 40;
    let gpu = Gpu::new()?;
    let (a, b) = (gpu.buffer(16)?, gpu.buffer(16)?);
    fails!(cuMemcpyDtoD_v2(a.address, b.address, FAR), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn asynchronous_copies_are_there_after_synchronising() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer) = (gpu.stream()?, gpu.buffer(64)?);
    let (from, to) = (gpu.pinned(64)?, gpu.pinned(64)?);
    from.set(|i| i as u32 + 1);
    to.set(|_| 0);
    ok!(cuMemcpyHtoDAsync_v2(buffer.address, from.address.cast(), 256, stream.0));
    ok!(cuMemcpyDtoHAsync_v2(to.address.cast(), buffer.address, 256, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("the values", to.get(), counting(64, 1))
}

#[test]
fn pageable_memory_can_go_right_after_an_asynchronous_copy() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer) = (gpu.stream()?, gpu.buffer(64)?);
    let mut from = counting(64, 9);
    ok!(cuMemcpyHtoDAsync_v2(buffer.address, from.as_ptr().cast(), 256, stream.0));
    from.fill(0);
    drop(from);
    ok!(cuStreamSynchronize(stream.0));
    equal("the values", buffer.read()?, counting(64, 9))
}

#[test]
fn copies_in_a_stream_keep_their_order() -> Check {
    let gpu = Gpu::new()?;
    let (stream, a, b) = (gpu.stream()?, gpu.buffer(32)?, gpu.buffer(32)?);
    ok!(cuMemsetD32Async(a.address, 1, 32, stream.0));
    ok!(cuMemcpyDtoDAsync_v2(b.address, a.address, 128, stream.0));
    ok!(cuMemsetD32Async(a.address, 2, 32, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("both", (a.read()?[31], b.read()?[31]), (2, 1))
}

fn plane(pitch: usize, width: usize, height: usize) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype_enum::CU_MEMORYTYPE_DEVICE,
        dstMemoryType: CUmemorytype_enum::CU_MEMORYTYPE_HOST,
        srcPitch: pitch,
        dstPitch: width,
        WidthInBytes: width,
        Height: height,
        // SAFETY: integers and pointers, for which zero is valid; the enumerations are given above.
        ..unsafe {
            let mut zero = std::mem::MaybeUninit::<CUDA_MEMCPY2D>::zeroed();
            (&raw mut (*zero.as_mut_ptr()).srcMemoryType).write(CUmemorytype_enum::CU_MEMORYTYPE_HOST);
            (&raw mut (*zero.as_mut_ptr()).dstMemoryType).write(CUmemorytype_enum::CU_MEMORYTYPE_HOST);
            zero.assume_init()
        }
    }
}

#[test]
fn two_dimensional_copies_leave_out_what_lies_between_rows() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(6 * 8)?;
    buffer.write(&counting(48, 0))?;
    let mut out = vec![0_u32; 3 * 4];
    let mut copy = plane(8 * 4, 3 * 4, 4);
    (copy.srcDevice, copy.srcXInBytes, copy.srcY) = (buffer.address, 2 * 4, 1);
    copy.dstHost = out.as_mut_ptr().cast();
    ok!(cuMemcpy2D_v2(&copy));
    let wanted = (1..5).flat_map(|row| (2..5).map(move |column| 8 * row + column)).collect();
    equal("the window", out, wanted)
}

#[test]
fn two_dimensional_copies_in_a_stream() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer, out) = (gpu.stream()?, gpu.buffer(16)?, gpu.pinned(8)?);
    buffer.write(&counting(16, 0))?;
    let mut copy = plane(16, 8, 4);
    (copy.srcDevice, copy.dstHost) = (buffer.address, out.address.cast());
    ok!(cuMemcpy2DAsync_v2(&copy, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("the first two columns", out.get(), vec![0, 1, 4, 5, 8, 9, 12, 13])
}

#[test]
fn a_pitch_narrower_than_a_row_is_refused() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(64)?;
    let mut out = [0_u32; 64];
    let mut copy = plane(4, 16, 4);
    (copy.srcDevice, copy.dstHost) = (buffer.address, out.as_mut_ptr().cast::<c_void>());
    fails!(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn fills_of_every_element_size() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(4)?;
    ok!(cuMemsetD8_v2(buffer.address, 0xab, 16));
    equal("bytes", buffer.read()?, vec![0xabab_abab; 4])?;
    ok!(cuMemsetD16_v2(buffer.address, 0x1234, 8));
    equal("halves", buffer.read()?, vec![0x1234_1234; 4])?;
    ok!(cuMemsetD32_v2(buffer.address + 4, 77, 2));
    equal("words", buffer.read()?, vec![0x1234_1234, 77, 77, 0x1234_1234])
}

#[test]
fn fills_in_a_stream_of_every_element_size() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer) = (gpu.stream()?, gpu.buffer(3)?);
    ok!(cuMemsetD8Async(buffer.address, 1, 4, stream.0));
    ok!(cuMemsetD16Async(buffer.address + 4, 2, 2, stream.0));
    ok!(cuMemsetD32Async(buffer.address + 8, 3, 1, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("one of each", buffer.read()?, vec![0x0101_0101, 0x0002_0002, 3])
}

#[test]
fn two_dimensional_fills_leave_the_rest() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(12)?;
    buffer.write(&[0; 12])?;
    ok!(cuMemsetD2D32_v2(buffer.address, 16, 5, 2, 3));
    equal("two of four columns", buffer.read()?, [5, 5, 0, 0].repeat(3))
}

#[test]
fn a_misaligned_fill_is_refused() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(4)?;
    fails!(cuMemsetD32_v2(buffer.address + 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
    fails!(cuMemsetD16_v2(buffer.address + 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}
