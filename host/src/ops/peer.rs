//! Copies of tensors from one device to another.

use super::elementwise::contiguous;
use crate::error::{Error, Result};
use crate::raw;
use crate::stream::{Event, Stream};
use crate::tensor::Tensor;

/// A copy of `x` on the device of `theirs`, contiguous; `own` is a stream of the device of `x`. The copy is
/// queued on `own`, behind what is queued on both streams, and later work on `theirs` comes behind it. The
/// host does not wait. The bytes go from device to device where the two can reach each other, else through
/// the host's memory.
///
/// If the context of one device dies, that of a device which waits for it may die too: on two H200s NVIDIA's
/// driver ended both.
///
/// # Errors
/// [`Error::NotCapturable`] while either stream is captured, [`Error::InvalidArgument`] for two streams of
/// one device, [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn copy_to_peer(own: &Stream, x: &Tensor, theirs: &Stream) -> Result<Tensor> {
    expect_peers(own, theirs)?;
    let x = contiguous(own, x)?;
    // SAFETY: the copy writes all elements; if it fails, the tensor goes.
    let mut out = unsafe { Tensor::uninit(theirs, x.shape().clone(), x.dtype())? };
    match copy(own, &x, theirs, &mut out) {
        Ok(()) => Ok(out),
        Err(error) => {
            // The copy may be under way, and then its memory must not be given out again.
            if !own.drain() {
                std::mem::forget(out);
            }
            Err(error)
        }
    }
}

/// Two devices, both alive, and no capture.
fn expect_peers(own: &Stream, theirs: &Stream) -> Result<()> {
    let operation = "copy_to_peer";
    if own.device() == theirs.device() {
        return Err(Error::InvalidArgument {
            operation,
            argument: "theirs",
            got: format!("a stream of device {}, as `own`", theirs.device().ordinal()),
            wanted: "a stream of another device".to_owned(),
            hint: "`elementwise::copy` copies within a device",
        });
    }
    own.device().alive()?;
    theirs.device().alive()?;
    if own.capture()?.is_none() && theirs.capture()?.is_none() {
        return Ok(());
    }
    Err(Error::NotCapturable {
        operation: "a copy to another device",
        reason: "a graph holds the work of one device",
        hint: "copy before the capture, and capture a graph for each device",
    })
}

/// Queues the copy of all elements of `x`, contiguous, to `out`, in order with both streams.
fn copy(own: &Stream, x: &Tensor, theirs: &Stream, out: &mut Tensor) -> Result<()> {
    let bytes = x.elements() * x.dtype().size();
    let out = out.view_mut()?;
    let (from, to) = (x.read::<u8>(own)?, out.write::<u8>(theirs)?);
    let (reading, writing) = (from.begin(own, false)?, to.begin(theirs, true)?);
    if bytes == 0 {
        return Ok(());
    }
    // The memory of `out` may still have an earlier owner.
    put_behind(own, theirs)?;
    let [source, target] = [from, to].map(|of| of.address().raw());
    let contexts = [own, theirs].map(|stream| stream.device().context());
    let copied = own.call(|stream| {
        // SAFETY: both ranges lie in live allocations, of these contexts. They do not overlap, since the
        // devices are two. The contexts live as long as their streams.
        Ok(unsafe { raw::memcpy_peer_async(target, contexts[1], source, contexts[0], bytes, stream) })
    });
    // The copy may be under way after an error too.
    reading.commit(own);
    if let Err(error) = copied? {
        // The error may be of either context: each is asked, and remembers its own.
        own.is_idle()?;
        theirs.is_idle()?;
        return Err(Error::Driver(error));
    }
    put_behind(theirs, own)?;
    writing.commit(theirs);
    Ok(())
}

/// Puts later work of `stream` behind what is queued on `other`, of another device. Each device remembers
/// the errors of its own stream.
fn put_behind(stream: &Stream, other: &Stream) -> Result<()> {
    let event = Event::untimed(other.device())?;
    other.record(&event)?;
    stream.wait(&event)
}
