//! A launch of attention that fails leaves its stream's counter of tiles as it was.

use driver::code;
use driver::fault::{Rule, Times};
use half::bf16;
use ironwarp::ops::attention::{Attention, Heads, HeadsMut, Mask};
use ironwarp::{Device, DeviceBuffer, Result, Stream};

/// Rows, heads, and their size. A head's keys are the same, as its values are: each row of the result is the
/// value.
const SIDES: [usize; 3] = [2, 2, 8];

fn run(stream: &Stream, x: &DeviceBuffer<bf16>, out: &mut DeviceBuffer<bf16>) -> Result<()> {
    // Two tiles for each multiprocessor, so that blocks draw them.
    let [rows, heads, size] = SIDES;
    let sides = [stream.device().properties().sm_count as usize, rows, heads, size];
    let [queries, keys, values] = [(); 3].map(|()| Heads::new::<bf16>(x, sides));
    let result = HeadsMut::new::<bf16>(out, sides);
    Attention::new(queries, keys, values, result).mask(Mask::CAUSAL).run(stream)
}

/// One call of a stream's launch number `launch` fails.
fn fail(device: &Device, launch: usize, function: &'static str, is_told: bool) -> Result<()> {
    let what = format!("{function} of launch {launch}");
    let stream = device.stream()?;
    let [rows, heads, size] = SIDES;
    let row = heads * size;
    let number = |at: usize| bf16::from_f32(((at % row + at / row / rows) % 5) as f32);
    let batch = device.properties().sm_count as usize;
    let numbers: Vec<bf16> = (0..batch * rows * row).map(number).collect();
    let x = DeviceBuffer::from_slice(&stream, &numbers)?;
    for number in 0..3 {
        let mut out = DeviceBuffer::from_slice(&stream, &vec![bf16::NAN; numbers.len()])?;
        let rule = Rule { function, nth: 1, code: code::INVALID_VALUE, times: Times::Once };
        let rules = (number == launch).then(|| driver::fault::scoped(&[rule]).expect("a rule that fits"));
        let ran = run(&stream, &x, &mut out);
        if rules.is_some() && is_told {
            let error = ran.expect_err(&what);
            assert_eq!(error.driver_error().map(|error| error.function), Some(function), "{what}: {error}");
        } else {
            ran?;
            assert_eq!(out.to_vec(&stream)?, numbers, "{what}, launch {number}");
        }
    }
    Ok(())
}

#[test]
fn a_failed_launch_leaves_the_counter_as_it_was() -> Result<()> {
    testkit::own_process!("IRONWARP_CHECK" = "0");
    let device = Device::open(0)?;
    if !device.is_software() {
        testkit::skip("calls are made to fail on the software driver only");
        return Ok(());
    }
    fail(&device, 0, "cuLaunchKernelEx", true)?;
    fail(&device, 1, "cuLaunchKernelEx", true)?;
    fail(&device, 0, "cuMemsetD8Async", true)?;
    // The launch has a counter of its own then.
    fail(&device, 0, "cuMemAllocAsync", false)
}
