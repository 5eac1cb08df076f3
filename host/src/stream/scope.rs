//! Scopes: a stream made current for a closure, and fork and join, for work that runs beside other work.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};

use super::{Entered, Stream};
use crate::error::Result;

/// A stream that others were forked from. See [`Stream::scope`].
#[derive(Debug)]
pub struct Scope<'a> {
    parent: &'a Stream,
    forked: Mutex<Vec<Stream>>,
}

impl Scope<'_> {
    /// A stream of the pool, of the parent's priority. Its work begins when everything queued on the parent
    /// so far is done. Work queued on the parent after the scope waits for it. It goes back to the pool after
    /// the scope, or when its last clone is dropped.
    ///
    /// # Errors
    /// The driver's error.
    pub fn fork(&self) -> Result<Stream> {
        let stream = self.parent.device().pooled_stream_with_priority(self.parent.priority())?;
        stream.wait_for(self.parent)?;
        self.forked.lock().unwrap_or_else(PoisonError::into_inner).push(stream.clone());
        Ok(stream)
    }

    /// Puts the parent behind all streams. Tries all of them, then returns the first error.
    fn join(&mut self) -> Result<()> {
        let forked = std::mem::take(self.forked.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut result = Ok(());
        for stream in &forked {
            let joined = self.parent.wait_for(stream);
            if joined.is_ok() {
                // A wait for the parent waits for these too.
                self.parent.inner.launches.absorb(&stream.inner.launches);
            } else {
                self.parent.settle_behind(stream);
            }
            result = result.and(joined);
        }
        result
    }
}

impl Drop for Scope<'_> {
    /// After a panic or an error, streams are joined all the same.
    fn drop(&mut self) {
        for stream in std::mem::take(self.forked.get_mut().unwrap_or_else(PoisonError::into_inner)) {
            // If the driver refuses the order, this waits for the stream. If that fails too, nothing runs any
            // more.
            self.parent.settle_behind(&stream);
        }
    }
}

impl Stream {
    /// Runs `work` with this stream as the current one of its device in this thread, so that tensor methods
    /// and operators queue on it; see [`Device::current_stream`](crate::Device::current_stream). Afterwards
    /// the previous one is current again.
    ///
    /// `work` may fork streams. Afterwards this stream waits for all of them. Both hold also when `work`
    /// fails or panics. The host waits for nothing. Buffers keep their own order, inside a scope and outside.
    ///
    /// # Errors
    /// The error of `work`, or else the driver's error.
    pub fn scope<R>(&self, work: impl FnOnce(&Scope<'_>) -> Result<R>) -> Result<R> {
        let mut scope = Scope { parent: self, forked: Mutex::default() };
        let result = {
            let _current = Entered::new(self);
            work(&scope)?
        };
        scope.join()?;
        Ok(result)
    }

    /// Runs each task on a thread and a stream of its own, for example several models at once, and returns
    /// their results in order. The stream is current in the thread. The streams are forked from this one and
    /// joined as in [`Stream::scope`]; the threads are waited for.
    ///
    /// # Errors
    /// The error of the first task that fails, after all have ended, or the driver's.
    ///
    /// # Panics
    /// When a task panics.
    pub fn parallel<T, F>(&self, tasks: impl IntoIterator<Item = F>) -> Result<Vec<T>>
    where
        T: Send,
        F: FnOnce(&Stream) -> Result<T> + Send,
    {
        self.scope(|scope| {
            let tasks: Vec<(Stream, F)> =
                tasks.into_iter().map(|task| Ok((scope.fork()?, task))).collect::<Result<_>>()?;
            std::thread::scope(|threads| {
                let run = |(stream, task): (Stream, F)| {
                    threads.spawn(move || {
                        let _current = Entered::new(&stream);
                        task(&stream)
                    })
                };
                let running: Vec<_> = tasks.into_iter().map(run).collect();
                let ended: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
                ended.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
            })
        })
    }
}
