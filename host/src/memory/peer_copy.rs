//! A copy from one device's memory to another's.

use super::Within;
use crate::error::{Error, Result};
use crate::raw;
use crate::stream::Stream;

/// Queues a copy of `bytes` bytes on `own`, the stream of the memory that is read. It is in order with what
/// is queued on `theirs`, the stream of the memory that is written, before and after this call. The bytes go
/// from device to device where the two can, else through the host's memory.
///
/// # Errors
/// [`Error::NotCapturable`] while either stream is captured, [`Error::DeviceMismatch`], or the driver's
/// error.
pub(crate) fn copy_to_peer(
    (own, from): (&Stream, Within<'_, u8>),
    (theirs, to): (&Stream, Within<'_, u8>),
    bytes: usize,
) -> Result<()> {
    if own.capture()?.is_some() || theirs.capture()?.is_some() {
        return Err(Error::NotCapturable {
            operation: "a copy to another device",
            reason: "a graph holds the work of one device",
            hint: "copy before the capture, and capture a graph for each device",
        });
    }
    let (reading, writing) = (from.begin(own, false)?, to.begin(theirs, true)?);
    if bytes == 0 {
        return Ok(());
    }
    // The memory that is written may still have an earlier owner.
    own.wait_for(theirs)?;
    let [source, target] = [from, to].map(|of| of.address().raw());
    let contexts = [own, theirs].map(|stream| stream.device().context());
    // SAFETY: both ranges lie in live allocations of these contexts, and do not overlap: devices have
    // addresses of their own. The contexts live as long as their streams.
    own.call(|stream| unsafe {
        raw::memcpy_peer_async(target, contexts[1], source, contexts[0], bytes, stream)
    })?;
    reading.commit(own);
    if let Err(error) = theirs.wait_for(own) {
        // Nothing else keeps later owners of the memory behind the copy. This error is the one to tell.
        let _ = own.synchronize();
        return Err(error);
    }
    writing.commit(theirs);
    Ok(())
}
