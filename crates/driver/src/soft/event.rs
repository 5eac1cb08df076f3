//! Events: they order streams and measure time.

use super::{
    api,
    handle::Handle,
    put,
    queue::Work,
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::c_uint;
use std::time::Instant;

/// `CU_EVENT_DISABLE_TIMING`, and the mask of all flags: blocking synchronisation, no timing, interprocess.
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
const KNOWN_FLAGS: c_uint = 7;
const MILLISECONDS: f64 = 1e3;

pub(super) struct Event {
    pub context: Handle,
    /// The capture, and its nodes, that the last record refers to.
    pub captured: Option<(Handle, Vec<Handle>)>,
    flags: c_uint,
    /// The number of the last record, in issue order.
    recorded: Option<u64>,
    time: Option<Instant>,
}

impl Event {
    /// The stream has reached record `number` of this event.
    pub(super) fn reached(&mut self, number: u64, time: Instant) {
        if self.recorded == Some(number) {
            self.time = Some(time);
        }
    }

    fn is_timed(&self) -> bool {
        self.flags & DISABLE_TIMING == 0
    }
}

impl Driver {
    fn sound_event(&self, event: Handle) -> Outcome<&Event> {
        self.enter()?;
        let event = self.events.get(event)?;
        self.sound(event.context)?;
        if event.captured.is_some() {
            return Err(code::CAPTURED_EVENT);
        }
        Ok(event)
    }

    /// The event for a call that queries or waits for it. If the event was recorded in a capture, that
    /// capture is invalidated.
    fn awaited_event(&mut self, event: Handle) -> Outcome<&Event> {
        if let Some((capture, _)) = self.events.get(event)?.captured {
            self.invalidate(capture);
        }
        self.sound_event(event)
    }

    fn record(&mut self, event: Handle, stream: usize) -> Outcome {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        if self.events.get(event)?.context != self.streams.get(stream)?.context {
            return Err(code::INVALID_HANDLE);
        }
        if let Some(capture) = self.capturing(stream)? {
            let frontier = self.captures.get(capture)?.frontier(stream);
            self.events.get_mut(event)?.captured = Some((capture, frontier));
            return Ok(());
        }
        let number = self.push(stream, Work::Record(event))?;
        let event = self.events.get_mut(event)?;
        (event.recorded, event.time, event.captured) = (Some(number), None, None);
        Ok(())
    }

    /// Milliseconds from `start` to `end`.
    fn elapsed(&self, start: Handle, end: Handle) -> Outcome<f32> {
        let (start, end) = (self.sound_event(start)?, self.sound_event(end)?);
        if !start.is_timed() || !end.is_timed() {
            return Err(code::INVALID_HANDLE);
        }
        let (Some(first), Some(last)) = (start.recorded, end.recorded) else {
            return Err(code::INVALID_HANDLE);
        };
        if self.pending.contains(first) || self.pending.contains(last) {
            return Err(code::NOT_READY);
        }
        let (Some(from), Some(to)) = (start.time, end.time) else { return Err(code::INVALID_HANDLE) };
        let seconds = match to.checked_duration_since(from) {
            Some(forward) => forward.as_secs_f64(),
            None => -from.duration_since(to).as_secs_f64(),
        };
        Ok((seconds * MILLISECONDS) as f32)
    }
}

api! {
    fn cuEventCreate(driver, out: *mut Handle, flags: c_uint) {
        let context = driver.enter()?;
        let interprocess_and_timed = flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0;
        if flags & !KNOWN_FLAGS != 0 || interprocess_and_timed || out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let event = driver.events.insert(Event { context, captured: None, flags, recorded: None, time: None });
        put(out, event)
    }

    fn cuEventDestroy_v2(driver, event: Handle) { driver.events.remove(event).map(|_| ()) }

    fn cuEventRecord(driver, event: Handle, stream: usize) { driver.record(event, stream) }

    fn cuEventRecordWithFlags(driver, event: Handle, stream: usize, flags: c_uint) {
        if flags != 0 {
            return Err(code::NOT_SUPPORTED); // external events within graphs
        }
        driver.record(event, stream)
    }

    fn cuEventQuery(driver, event: Handle) {
        let Some(number) = driver.awaited_event(event)?.recorded else { return Ok(()) };
        driver.advance_to(number);
        driver.sound_event(event)?;
        if driver.pending.contains(number) { Err(code::NOT_READY) } else { Ok(()) }
    }

    fn cuEventSynchronize(driver, event: Handle) {
        let event = driver.awaited_event(event)?;
        let context = event.context;
        match event.recorded {
            Some(number) => driver.drain_to(number, context),
            None => Ok(()),
        }
    }

    fn cuEventElapsedTime(driver, out: *mut f32, start: Handle, end: Handle) { put(out, driver.elapsed(start, end)?) }

    fn cuEventElapsedTime_v2(driver, out: *mut f32, start: Handle, end: Handle) { put(out, driver.elapsed(start, end)?) }

    fn cuStreamWaitEvent(driver, stream: usize, event: Handle, flags: c_uint) {
        let context = driver.enter()?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        let stream = driver.stream(stream, context)?;
        driver.sound(driver.events.get(event)?.context)?;
        if let Some((capture, nodes)) = driver.events.get(event)?.captured.clone() {
            return driver.join_capture(capture, stream, &nodes);
        }
        let recorded = driver.events.get(event)?.recorded;
        if let Some(capture) = driver.capturing(stream)? {
            driver.invalidate(capture);
            return Err(code::STREAM_CAPTURE_ISOLATION);
        }
        match recorded.filter(|&number| driver.pending.contains(number)) {
            Some(number) => driver.push(stream, Work::WaitFor(number)).map(|_| ()),
            None => Ok(()),
        }
    }
}
