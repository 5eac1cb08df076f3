//! Work that waits in streams, and the order in which it runs.
//!
//! Work is numbered in issue order. Nothing runs until a thread waits for something. Then only the
//! dependencies of that thing run, one piece at a time for each thread that waits:
//!
//! - work of one stream runs in order;
//! - a wait for an event runs after the record that it was issued for;
//! - work of the legacy stream runs after all earlier work of the context's blocking streams, and their work
//!   after earlier legacy work.
//!
//! If these rules leave a choice, the newest stream runs first. Programs that lack a dependency usually issue
//! the producer first, so they go wrong in every run.
//!
//! A kernel may wait for a kernel of another device, or of another stream, that is still in a queue. So when
//! all kernels that run do nothing but spin, whatever could run begins, on a thread for each stream
//! ([`start_waiting_work`]). The checker compares the accesses of kernels that run at the same time. It does
//! not see copies and fills of other streams: a program that lacks that dependency is not told so.

use super::{
    abi::{HostFn, StreamCallback},
    blocks::Mark,
    copy::{Fill, Transfer},
    handle::Handle,
    host_function,
    launch::Launch,
    state::{Driver, Outcome},
};
use crate::code;
use core::ffi::c_void;
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    thread::{self, Thread},
    time::Instant,
};

/// The argument of a host function. The driver never reads through it.
#[derive(Clone, Copy)]
pub(super) struct UserData(pub *mut c_void);

// SAFETY: the driver only passes the pointer to the host function, on whichever thread runs it, as CUDA does.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

/// A command. It can also be a node of a graph.
#[derive(Clone)]
pub(super) enum Command {
    Nothing,
    Copy(Transfer),
    Fill(Fill),
    Kernel(Arc<Launch>),
    Host(HostFn, UserData),
    /// Marks pooled memory as in use and poisons it.
    Obtain(usize),
    /// Marks pooled memory as free.
    Relinquish(usize),
    /// A graph within a graph. Instantiation flattens it.
    Child(Handle),
}

/// An entry of a stream's queue.
#[derive(Clone)]
pub(super) enum Work {
    Do(Command),
    Batch(Arc<[Command]>),
    /// Returns pooled memory for good.
    FreePooled(usize),
    Record(Handle),
    /// Waits for the piece of work with this number.
    WaitFor(u64),
    Callback(StreamCallback, UserData),
    /// Marks a part of an allocation as in use or free.
    Mark(Mark),
}

pub(super) struct Queued {
    pub number: u64,
    pub work: Work,
}

/// All work that is not finished.
pub(super) struct Pending {
    next: u64,
    stream_of: BTreeMap<u64, Handle>,
    /// Streams whose first piece of work runs.
    running: BTreeSet<Handle>,
}

impl Pending {
    pub(super) fn new() -> Pending {
        Pending { next: 1, stream_of: BTreeMap::new(), running: BTreeSet::new() }
    }

    /// Whether the piece of work with this number is waiting or running.
    pub(super) fn contains(&self, number: u64) -> bool {
        self.stream_of.contains_key(&number)
    }
}

impl Driver {
    /// Appends work to a stream that is not capturing.
    pub(super) fn push(&mut self, stream: Handle, work: Work) -> Outcome<u64> {
        let number = self.pending.next;
        self.streams.get_mut(stream)?.queue.push_back(Queued { number, work });
        self.pending.next += 1;
        self.pending.stream_of.insert(number, stream);
        Ok(number)
    }

    /// Runs work until a stream is empty.
    ///
    /// # Errors
    /// The code of a fault, old or new, in the stream's context.
    pub(super) fn drain(&mut self, stream: Handle) -> Outcome {
        let context = self.streams.get(stream)?.context;
        while self.streams.get(stream).is_ok_and(|s| !s.queue.is_empty()) {
            self.advance(stream);
        }
        self.sound(context)
    }

    /// Runs work until all streams of a context are empty.
    ///
    /// # Errors
    /// As [`Driver::drain`].
    pub(super) fn drain_context(&mut self, context: Handle) -> Outcome {
        while let Some(stream) = self.newest_busy(context) {
            self.advance(stream);
        }
        self.sound(context)
    }

    /// Runs work until the piece of work with this number is done.
    ///
    /// # Errors
    /// As [`Driver::drain`].
    pub(super) fn drain_to(&mut self, number: u64, context: Handle) -> Outcome {
        while let Some(&stream) = self.pending.stream_of.get(&number) {
            self.advance(stream);
        }
        self.sound(context)
    }

    /// Runs one piece of work: the one with this number, or one that it depends on.
    pub(super) fn advance_to(&mut self, number: u64) {
        if let Some(&stream) = self.pending.stream_of.get(&number) {
            self.advance(stream);
        }
    }

    fn newest_busy(&self, context: Handle) -> Option<Handle> {
        let busy = |(_, s): &(Handle, &super::stream::Stream)| s.context == context && !s.queue.is_empty();
        self.streams.iter().rev().find(busy).map(|(handle, _)| handle)
    }

    /// Runs one piece of work, in `stream` or in a stream that it waits for. If another thread runs that
    /// piece, waits for any to be done instead. So callers loop until their condition holds.
    pub(super) fn advance(&mut self, stream: Handle) {
        let mut stream = stream;
        // Each blocker was issued before the work that it blocks, so this loop ends.
        while let Some(blocker) = self.blocker(stream) {
            stream = blocker;
        }
        if self.pending.running.contains(&stream) {
            self.wait_for_progress();
            return;
        }
        let Ok(s) = self.streams.get(stream) else { return };
        let context = s.context;
        let Some(front) = s.queue.front() else { return };
        let (number, work) = (front.number, front.work.clone());
        self.pending.running.insert(stream);
        // Catches a panic, so that a defect in the executor does not leave other threads waiting for this
        // piece of work.
        let result =
            catch_unwind(AssertUnwindSafe(|| self.perform(stream, number, work))).unwrap_or_else(|_| {
                Err((code::UNKNOWN, "the software driver panicked while it did queued work".to_owned()))
            });
        self.pending.running.remove(&stream);
        self.pending.stream_of.remove(&number);
        if let Ok(s) = self.streams.get_mut(stream) {
            s.queue.pop_front_if(|front| front.number == number);
        }
        if let Err((code, report)) = result {
            self.fail(context, code, report);
        }
        Driver::announce_progress();
    }

    /// The stream that must advance before the front of `stream` can run.
    fn blocker(&self, stream: Handle) -> Option<Handle> {
        let s = self.streams.get(stream).ok()?;
        let front = s.queue.front()?;
        if let Work::WaitFor(number) = front.work
            && let Some(&other) = self.pending.stream_of.get(&number)
        {
            return Some(other);
        }
        let earlier =
            |other: &super::stream::Stream| other.queue.front().is_some_and(|q| q.number < front.number);
        let legacy = self.contexts.get(s.context).ok()?.legacy;
        if stream == legacy {
            let blocks = |(_, other): &(Handle, &super::stream::Stream)| {
                other.context == s.context && other.is_blocking() && earlier(other)
            };
            return self.streams.iter().rev().filter(|(h, _)| *h != legacy).find(blocks).map(|(h, _)| h);
        }
        (s.is_blocking() && earlier(self.streams.get(legacy).ok()?)).then_some(legacy)
    }

    /// Runs a piece of work. Releases the lock during kernels and host functions.
    fn perform(&mut self, stream: Handle, number: u64, work: Work) -> Result<(), (u32, String)> {
        match work {
            Work::Do(command) => self.command(&command),
            Work::Batch(commands) => commands.iter().try_for_each(|command| self.command(command)),
            Work::WaitFor(_) => Ok(()),
            Work::Mark(mark) => {
                self.mark(&mark);
                Ok(())
            }
            Work::Record(event) => {
                if let Ok(event) = self.events.get_mut(event) {
                    event.reached(number, Instant::now());
                }
                Ok(())
            }
            Work::FreePooled(address) => self
                .release(address)
                .map_err(|code| (code, format!("freeing {address:#x} in its stream failed"))),
            Work::Callback(function, data) => {
                // SAFETY: the caller of cuStreamAddCallback guarantees that the function and its data are
                // valid.
                self.unlocked(|| host_function(|| unsafe { function(stream, code::SUCCESS, data.0) }));
                Ok(())
            }
        }
    }

    fn command(&mut self, command: &Command) -> Result<(), (u32, String)> {
        match command {
            Command::Nothing | Command::Child(_) => Ok(()),
            Command::Copy(transfer) => self.transfer(transfer),
            Command::Fill(fill) => self.fill(fill),
            Command::Kernel(launch) => self.unlocked(|| launch.run()),
            Command::Obtain(address) => {
                self.set_pooled_free(*address, false);
                Ok(())
            }
            Command::Relinquish(address) => {
                self.set_pooled_free(*address, true);
                Ok(())
            }
            Command::Host(function, data) => {
                let (function, data) = (*function, *data);
                // SAFETY: the caller of cuLaunchHostFunc guarantees that the function and its data are valid.
                self.unlocked(|| host_function(|| unsafe { function(data.0) }));
                Ok(())
            }
        }
    }

    /// Marks a context as failed: keeps the first code, reports it, and drops the remaining work.
    pub(super) fn fail(&mut self, context: Handle, code: u32, report: String) {
        if self.contexts.get(context).is_ok_and(|c| c.fault.is_some()) {
            return;
        }
        if let Ok(context) = self.contexts.get_mut(context) {
            context.fault = Some(code);
        }
        self.report(report);
        for (stream, function, data) in self.discard_work(context) {
            // SAFETY: the caller of cuStreamAddCallback guarantees that the function and its data are valid.
            self.unlocked(|| host_function(|| unsafe { function(stream, code, data.0) }));
        }
    }

    /// Drops all work of a context. Returns its stream callbacks, which must be told about the failure.
    pub(super) fn discard_work(&mut self, context: Handle) -> Vec<(Handle, StreamCallback, UserData)> {
        let state = &mut **self;
        let mut callbacks = Vec::new();
        let streams: Vec<Handle> =
            state.streams.iter().filter(|(_, s)| s.context == context).map(|(h, _)| h).collect();
        for handle in streams {
            let Ok(stream) = state.streams.get_mut(handle) else { continue };
            for queued in stream.queue.drain(..) {
                state.pending.stream_of.remove(&queued.number);
                if let Work::Callback(function, data) = queued.work {
                    callbacks.push((handle, function, data));
                }
            }
        }
        Driver::announce_progress();
        callbacks
    }

    /// Waits until no thread runs a piece of work.
    pub(super) fn wait_until_idle(&mut self) {
        while !self.pending.running.is_empty() {
            self.wait_for_progress();
        }
    }

    /// The streams with a piece of work that could run now.
    fn streams_with_ready_work(&self) -> Vec<Handle> {
        let can_run = |stream: Handle| {
            let busy = self.streams.get(stream).is_ok_and(|s| !s.queue.is_empty());
            busy && !self.pending.running.contains(&stream) && self.blocker(stream).is_none()
        };
        self.streams.iter().map(|(handle, _)| handle).filter(|&handle| can_run(handle)).collect()
    }
}

/// Lets work that waits in queues run although no thread waits for it: a kernel waits for it here, or in
/// another process. Called on the small stack of a kernel's thread, so another thread does it.
pub fn start_waiting_work() {
    static HELPER: OnceLock<Option<Thread>> = OnceLock::new();
    let start = || {
        let helper = thread::Builder::new().name("ironwarp-soft".into());
        helper.spawn(help_for_ever).map(|handle| handle.thread().clone()).ok()
    };
    // Without a thread to do it, the launches that wait count as hung in the end.
    if let Some(helper) = HELPER.get_or_init(start) {
        helper.unpark();
    }
}

/// Gives each stream with work that can run a thread, whenever it is called.
fn help_for_ever() {
    loop {
        thread::park();
        for stream in Driver::lock().streams_with_ready_work() {
            let helper = thread::Builder::new().name("ironwarp-soft-stream".into());
            // As above: without a thread, the kernel that waits for this work counts as hung in the end.
            let _ = helper.spawn(move || Driver::lock().advance_while_ready(stream));
        }
    }
}

impl Driver {
    /// Runs the work of a stream until it is empty, waits for another stream, or another thread runs it.
    fn advance_while_ready(&mut self, stream: Handle) {
        while self.streams_with_ready_work().contains(&stream) {
            self.advance(stream);
        }
    }
}
