//! Events are inserted where a stream has to wait for another, and nowhere else. A process of its own, since
//! it counts calls.

use std::sync::mpsc::{Receiver, Sender, channel};

use crate::common::{Bench, is_cached, kernels};
use conformance::arguments::{AffineArgs, FactorArgs, argument_struct};
use driver::fault::{Rule, Times};
use ironwarp::{Arg, DeviceBuffer, DeviceView, DeviceViewMut, LaunchConfig, Parameters, Result, Stream};

const LEN: usize = 100;

/// Waits between streams that `work` queues.
fn waits(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    calls("cuStreamWaitEvent", work)
}

/// Calls of `function` that `work` makes.
pub fn calls(function: &'static str, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let count =
        || driver::fault::calls().into_iter().find(|(f, _)| *f == function).map_or(0, |(_, calls)| calls);
    // A rule that never fires: NVIDIA's driver is counted only while there is one.
    let rule = Rule { function, nth: u64::MAX, code: driver::code::INVALID_VALUE, times: Times::Once };
    let _counting = driver::fault::scoped(&[rule]).expect("a rule that fits");
    let before = count();
    work()?;
    Ok(count() - before)
}

fn scale(stream: &Stream, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>) -> Result<()> {
    // SAFETY: both have LEN elements.
    unsafe { ironwarp::launch::<kernels::scale>(stream, LaunchConfig::linear(LEN, 32), (2.0, x, y)) }
}

#[test]
fn events_where_they_are_needed() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let buffer = |stream| DeviceBuffer::from_slice(stream, &[1.0f32; LEN]);
    let (mut a, mut b, mut c) = (buffer(&stream)?, buffer(&stream)?, buffer(&stream)?);
    let mut d = buffer(&other)?;
    stream.synchronize()?;
    other.synchronize()?;

    assert_eq!(waits(|| scale(&stream, &a, &mut b))?, 0, "one stream");
    assert_eq!(waits(|| scale(&other, &b, &mut d))?, 1, "written on one, read on the other");
    assert_eq!(waits(|| scale(&other, &b, &mut d))?, 0, "read there again");
    assert_eq!(waits(|| scale(&other, &a, &mut d))?, 0, "nothing new on the first since that wait");
    assert_eq!(waits(|| scale(&stream, &a, &mut c))?, 0, "read by both");
    assert_eq!(waits(|| scale(&other, &c, &mut d))?, 1, "new work on the first");
    assert_eq!(waits(|| scale(&stream, &a, &mut b))?, 1, "written while the other may read it");
    stream.synchronize()?;
    assert_eq!(waits(|| scale(&other, &b, &mut d))?, 0, "the first was waited for");
    other.synchronize()?;
    assert_eq!(waits(|| scale(&stream, &d, &mut a))?, 0, "the other was waited for");
    assert_eq!((a.to_vec(&stream)?, b.to_vec(&stream)?), (vec![8.0; LEN], vec![2.0; LEN]));

    // Explicit waits use the same counts.
    assert_eq!(waits(|| stream.wait_for(&other))?, 0, "nothing queued there");
    scale(&other, &b, &mut d)?;
    assert_eq!(waits(|| stream.wait_for(&other))?, 1);
    assert_eq!(waits(|| stream.wait_for(&other))?, 0, "nothing new");
    assert_eq!(waits(|| stream.wait_for(&stream))?, 0);
    // Once the raw handle is out, there may be unseen work.
    other.raw();
    assert_eq!(waits(|| stream.wait_for(&other))?, 1);
    assert_eq!(waits(|| stream.wait_for(&other))?, 1);
    Ok(())
}

/// An argument whose launch waits, once all arguments are packed, until the test releases it. It must be the
/// last argument.
struct Late<A>(A, Sender<()>, Receiver<()>);

// SAFETY: the parameters are those of `A`.
unsafe impl<P, A: Arg<P>> Arg<P> for Late<A> {
    type Packed = (A::Packed, Sender<()>, Receiver<()>);

    fn pack(self, stream: &Stream) -> Result<Self::Packed> {
        let Late(arg, packed, go) = self;
        Ok((arg.pack(stream)?, packed, go))
    }

    fn list((arg, packed, go): &Self::Packed, to: &mut Parameters) {
        A::list(arg, to);
        packed.send(()).expect("somebody waits");
        go.recv().expect("somebody lets it go");
    }

    fn commit((arg, ..): Self::Packed, stream: &Stream) {
        A::commit(arg, stream);
    }
}

/// `scale` by 2 on `stream`, on a thread of its own; `meanwhile` is done between its packing and its
/// queueing.
fn scale_late(
    stream: &Stream,
    x: DeviceView<'_, f32>,
    y: DeviceViewMut<'_, f32>,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let ((packed, is_packed), (go, may_go)) = (channel(), channel());
    // A panic of this thread drops its channels, so that the other thread does not wait for ever.
    std::thread::scope(move |threads| {
        let config = LaunchConfig::linear(LEN, 32);
        let late = (2.0, x, Late(y, packed, may_go));
        // SAFETY: both have LEN elements.
        let launch =
            threads.spawn(move || unsafe { ironwarp::launch::<kernels::scale>(stream, config, late) });
        is_packed.recv().expect("the launch is packed");
        let done = meanwhile();
        go.send(()).expect("the launch waits");
        launch.join().expect("no panic")?;
        done
    })
}

#[test]
fn buffers_in_an_argument_struct_are_put_in_order() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32; LEN])?;
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, LEN)?;
    stream.synchronize()?;
    let run = |stream: &Stream, x: &DeviceBuffer<f32>, y: &mut DeviceBuffer<f32>| {
        let factor = FactorArgs { number: 2.0, from: x }.pass();
        let residual = None::<&DeviceBuffer<f64>>;
        let args = AffineArgs { len: LEN as u16, x, factor, offsets: [0.0; 3], residual, y, last: 0 };
        // SAFETY: `x` and `y` have LEN elements.
        unsafe {
            ironwarp::launch::<argument_struct>(stream, LaunchConfig::linear(LEN, 32), (1.0, args.pass()))
        }
    };
    let mut z = DeviceBuffer::<f32>::zeroed(&other, LEN)?;
    assert_eq!(waits(|| run(&stream, &x, &mut y))?, 0, "one stream");
    assert_eq!(waits(|| run(&other, &y, &mut z))?, 1, "written on one, read on the other");
    assert_eq!(waits(|| run(&stream, &x, &mut y))?, 1, "written while the other may read it");
    assert_eq!(y.to_vec(&stream)?, [1.0; LEN]);
    Ok(())
}

#[test]
fn halves_are_written_by_two_threads() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let (one, two, three) = (device.stream()?, device.stream()?, device.stream()?);
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32; LEN])?;
    let mut y = DeviceBuffer::from_slice(&stream, &[0.0f32; 2 * LEN])?;
    let halves = |y: &mut DeviceBuffer<f32>| {
        let (first, mut second) = y.view_mut().split_at_mut(LEN)?;
        scale_late(&one, x.view(), first, || {
            // The second half is written and read while no work on the first is queued.
            let config = LaunchConfig::linear(LEN, 32);
            // SAFETY: both have LEN elements.
            unsafe {
                ironwarp::launch::<kernels::scale>(&two, config, (3.0, &x, second.view_mut()))?;
            }
            assert_eq!(second.to_vec(&three)?, [3.0; LEN]);
            Ok(())
        })
    };
    halves(&mut y)?;
    let mut out = vec![0.0; 2 * LEN];
    assert_eq!(waits(|| y.copy_into(&three, &mut out))?, 1, "behind the first half's thread");
    assert_eq!(out, [[2.0; LEN], [3.0; LEN]].concat());
    // A stream that comes after that reader comes after all writers.
    let mut z = DeviceBuffer::<f32>::zeroed(&stream, LEN)?;
    stream.synchronize()?;
    scale_late(&one, y.slice(..LEN)?, z.view_mut(), || Ok(()))?;
    assert_eq!(z.to_vec(&stream)?, [4.0; LEN]);
    // An exclusive write of the whole buffer is the only use again.
    assert_eq!(waits(|| y.fill_zero(&stream))?, 1, "behind the last reader");
    assert_eq!(waits(|| y.fill_zero(&stream))?, 0);

    halves(&mut y)?;
    if is_cached() {
        let waited = waits(|| y.into_cust().map(drop))?;
        assert_eq!(waited, 1, "the copy for cust is behind the first half's thread");
    }
    Ok(())
}

#[test]
fn a_reader_of_another_thread_is_not_forgotten() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let (one, two) = (device.stream()?, device.stream()?);
    let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32; LEN])?;
    let mut y = DeviceBuffer::from_slice(&one, &[0.0f32; LEN])?;
    let mut z = DeviceBuffer::from_slice(&two, &[0.0f32; LEN])?;
    scale_late(&one, x.view(), y.view_mut(), || scale(&two, &x, &mut z))?;
    assert_eq!(waits(|| x.fill_zero(&stream))?, 2, "behind both readers");
    assert_eq!((y.to_vec(&one)?, z.to_vec(&two)?), (vec![2.0; LEN], vec![2.0; LEN]));
    Ok(())
}

#[test]
fn streams_of_scopes_are_forgotten() -> Result<()> {
    testkit::own_process!();
    let Bench { stream, .. } = Bench::open()?;
    let weights = DeviceBuffer::from_slice(&stream, &[1.0f32; LEN])?;
    let mut halves = DeviceBuffer::from_slice(&stream, &[1.0f32; 2 * LEN])?;
    let mut pass = || {
        let (mut first, mut second) = halves.view_mut().split_at_mut(LEN)?;
        stream.scope(|scope| {
            for half in [&mut first, &mut second] {
                let (x, config) = (&weights, LaunchConfig::linear(LEN, 32));
                // SAFETY: both have LEN elements.
                unsafe { ironwarp::launch::<kernels::scale>(&scope.fork()?, config, (2.0, x, half))? };
            }
            Ok(())
        })?;
        stream.synchronize()
    };
    (0..4).try_for_each(|_| pass())?;
    let created = calls("cuStreamCreateWithPriority", || (0..20).try_for_each(|_| pass()))?;
    assert_eq!(created, 0, "the pool has them again");
    Ok(())
}
