//! The software driver's checker knows the bounds of buffers that share a segment. A process of its own: it
//! loses one device for each fault.

use basic::saxpy::{THREADS, blocks, saxpy};
use ironwarp::{Device, DeviceBuffer, DevicePtr, Error, LaunchConfig, Result, Stream, launch};

const LEN: usize = 100;

fn open(ordinal: u32) -> Result<Stream> {
    Device::open(ordinal)?.stream()
}

/// `y[i] += x[i]` for as many elements as `x` has.
fn add(stream: &Stream, x: &DeviceBuffer<f32>, y: DevicePtr<f32>) -> Result<()> {
    let config = LaunchConfig::new([blocks(x.len()) as u32, 1, 1], [THREADS, 1, 1]);
    // SAFETY: the checker stops a write beside a buffer.
    unsafe { launch::<saxpy>(stream, config, (1.0f32, x, y)) }
}

#[test]
fn the_checker_sees_a_buffers_end_and_its_death() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "3");
    if !Device::open(0)?.is_software() {
        testkit::skip("memory within a segment is checked on the software driver only");
        return Ok(());
    }
    // A correct launch: neighbours are in use, and the kernel stays within its own buffers.
    let stream = open(0)?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32; LEN])?;
    let buffers = [(); 2].map(|()| DeviceBuffer::<f32>::zeroed(&stream, LEN));
    for y in buffers {
        let y = y?;
        add(&stream, &x, y.as_ptr())?;
        assert_eq!(y.to_vec(&stream)?, [1.0; LEN]);
    }

    // One element beyond the end, in memory of the same segment.
    let stream = open(1)?;
    let longer = DeviceBuffer::from_slice(&stream, &[1.0f32; LEN + 1])?;
    let y = DeviceBuffer::<f32>::zeroed(&stream, LEN)?;
    let line = line!() - 1;
    add(&stream, &longer, y.as_ptr())?;
    let report = fault(stream.synchronize());
    assert!(report.contains(&format!("buffer of {}:{line}", file!())), "{report}");

    // A dropped buffer.
    let stream = open(2)?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32; LEN])?;
    let y = DeviceBuffer::<f32>::zeroed(&stream, LEN)?;
    let address = y.as_ptr();
    drop(y);
    add(&stream, &x, address)?;
    let report = fault(stream.synchronize());
    assert!(report.contains("free"), "{report}");
    Ok(())
}

/// The mark of a buffer's bounds is set in the stream's context. The thread that makes the buffer may have
/// none: the cache serves it without a driver call.
#[test]
fn the_first_call_of_a_thread_may_be_an_allocation() -> Result<()> {
    testkit::own_process!();
    let streams = (0..8).map(|_| open(0)).collect::<Result<Vec<_>>>()?;
    let sums = |stream: &Stream, len: usize| -> Result<()> {
        // SAFETY: filled before anything reads it.
        let mut y = unsafe { DeviceBuffer::<f32>::uninit(stream, len)? };
        y.fill_zero(stream)?;
        add(stream, &DeviceBuffer::from_slice(stream, &vec![1.0f32; len])?, y.as_ptr())?;
        add(stream, &DeviceBuffer::from_slice(stream, &vec![2.0f32; len])?, y.as_ptr())?;
        assert_eq!(y.to_vec(stream)?, vec![3.0; len]);
        Ok(())
    };
    // Shorter buffers had the memory before.
    streams.iter().try_for_each(|stream| sums(stream, LEN))?;
    for round in 1..20 {
        std::thread::scope(|threads| -> Result<()> {
            let start = |stream| threads.spawn(move || sums(stream, LEN + round));
            let running: Vec<_> = streams.iter().map(start).collect();
            running.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
    }
    Ok(())
}

fn fault(result: Result<()>) -> String {
    match result {
        Err(Error::Sticky { first }) => first.report.clone().expect("the checker's report"),
        other => panic!("no fault: {other:?}"),
    }
}
