//! Streams and their host functions.

use super::{
    abi::{HostFn, StreamCallback},
    api,
    context::per_thread_stream,
    device::PRIORITIES,
    handle::Handle,
    put,
    queue::{Command, Queued, UserData, Work},
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::{c_int, c_uint, c_void};
use std::collections::VecDeque;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`; 0 is the legacy stream too.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

pub(super) struct Stream {
    pub context: Handle,
    pub queue: VecDeque<Queued>,
    /// The capture that records this stream's work. The queue does not get it.
    pub capture: Option<Handle>,
    pub legacy: bool,
    flags: c_uint,
    priority: c_int,
}

impl Stream {
    fn new(context: Handle, flags: c_uint, priority: c_int) -> Stream {
        Stream { context, queue: VecDeque::new(), capture: None, legacy: false, flags, priority }
    }

    pub(super) fn legacy(context: Handle) -> Stream {
        Stream { legacy: true, ..Stream::new(context, 0, PRIORITIES.0) }
    }

    pub(super) fn blocking(context: Handle) -> Stream {
        Stream::new(context, 0, PRIORITIES.0)
    }

    /// Whether the stream is ordered with the legacy stream.
    pub(super) fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }
}

impl Driver {
    /// The stream for a caller's argument, which may be one of CUDA's special values.
    ///
    /// # Errors
    /// `INVALID_HANDLE`, or the sticky code of the stream's context.
    pub(super) fn stream(&mut self, stream: usize, context: Handle) -> Outcome<Handle> {
        match stream {
            0 | LEGACY => Ok(self.contexts.get(context)?.legacy),
            PER_THREAD => per_thread_stream(self, context),
            handle => {
                self.sound(self.streams.get(handle)?.context)?;
                Ok(handle)
            }
        }
    }

    /// Issues a command to a stream: into its queue, or into the graph that it captures.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_IMPLICIT` if legacy work would depend on a capture.
    pub(super) fn issue(&mut self, stream: Handle, command: Command) -> Outcome {
        if let Some(capture) = self.capturing(stream)? {
            return self.capture_command(capture, stream, command);
        }
        self.push(stream, Work::Do(command)).map(|_| ())
    }

    /// The stream for a function that graphs cannot record.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_UNSUPPORTED` if the stream captures. The capture is invalidated.
    pub(super) fn uncaptured(&mut self, stream: Handle) -> Outcome<Handle> {
        match self.capturing(stream)? {
            Some(capture) => {
                self.invalidate(capture);
                Err(code::STREAM_CAPTURE_UNSUPPORTED)
            }
            None => Ok(stream),
        }
    }
}

fn create(driver: &mut Driver, out: *mut Handle, flags: c_uint, priority: c_int) -> Outcome<Handle> {
    let context = driver.enter()?;
    if flags & !NON_BLOCKING != 0 || out.is_null() {
        return Err(code::INVALID_VALUE);
    }
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    Ok(driver.streams.insert(Stream::new(context, flags, priority)))
}

api! {
    fn cuStreamCreate(driver, out: *mut Handle, flags: c_uint) {
        let stream = create(driver, out, flags, PRIORITIES.0)?;
        put(out, stream)
    }

    fn cuStreamCreateWithPriority(driver, out: *mut Handle, flags: c_uint, priority: c_int) {
        let stream = create(driver, out, flags, priority)?;
        put(out, stream)
    }

    fn cuStreamDestroy_v2(driver, stream: usize) {
        let context = driver.streams.get(stream)?.context;
        if driver.streams.get(stream)?.legacy || driver.contexts.get(context)?.per_thread.values().any(|&s| s == stream) {
            return Err(code::INVALID_HANDLE);
        }
        // Handles can be destroyed even after their context has failed: programs clean up after errors.
        let outcome = match driver.streams.get(stream)?.capture {
            Some(capture) => {
                driver.abandon(capture);
                Ok(())
            }
            None => driver.drain(stream),
        };
        driver.streams.remove(stream)?;
        outcome
    }

    fn cuStreamSynchronize(driver, stream: usize) {
        let context = driver.enter()?;
        let stream = driver.stream(stream, context)?;
        let stream = driver.uncaptured(stream)?;
        driver.drain(stream)
    }

    fn cuStreamQuery(driver, stream: usize) {
        let context = driver.enter()?;
        let stream = driver.stream(stream, context)?;
        let stream = driver.uncaptured(stream)?;
        driver.advance(stream);
        driver.sound(driver.streams.get(stream)?.context)?;
        if driver.streams.get(stream)?.queue.is_empty() { Ok(()) } else { Err(code::NOT_READY) }
    }

    fn cuStreamGetFlags(driver, stream: usize, out: *mut c_uint) {
        let context = driver.enter()?;
        let stream = driver.stream(stream, context)?;
        put(out, driver.streams.get(stream)?.flags)
    }

    fn cuStreamGetPriority(driver, stream: usize, out: *mut c_int) {
        let context = driver.enter()?;
        let stream = driver.stream(stream, context)?;
        put(out, driver.streams.get(stream)?.priority)
    }

    fn cuStreamGetCtx(driver, stream: usize, out: *mut Handle) {
        let context = driver.enter()?;
        let stream = driver.stream(stream, context)?;
        put(out, driver.streams.get(stream)?.context)
    }

    fn cuStreamGetId(driver, stream: usize, out: *mut u64) {
        let context = driver.enter()?;
        put(out, driver.stream(stream, context)? as u64)
    }

    fn cuStreamGetDevice(driver, stream: usize, out: *mut c_int) {
        let context = driver.enter()?;
        let stream = driver.stream(stream, context)?;
        let context = driver.streams.get(stream)?.context;
        put(out, driver.contexts.get(context)?.device as c_int)
    }

    fn cuStreamAddCallback(driver, stream: usize, function: Option<StreamCallback>, data: *mut c_void, flags: c_uint) {
        let context = driver.enter()?;
        let function = function.filter(|_| flags == 0).ok_or(code::INVALID_VALUE)?;
        let stream = driver.stream(stream, context)?;
        let stream = driver.uncaptured(stream)?;
        driver.push(stream, Work::Callback(function, UserData(data))).map(|_| ())
    }

    fn cuLaunchHostFunc(driver, stream: usize, function: Option<HostFn>, data: *mut c_void) {
        let context = driver.enter()?;
        let function = function.ok_or(code::INVALID_VALUE)?;
        let stream = driver.stream(stream, context)?;
        driver.issue(stream, Command::Host(function, UserData(data)))
    }
}
