//! A thread that aborts a communicator whose calls do not end.
//!
//! It goes with the last of those that have it: the rank's communicator, graphs with its calls, and whoever
//! wants to tell of the rank's failure before the rank waits for its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, park_timeout};
use std::time::{Duration, Instant};

use super::shared::Shared;
use crate::error::Result;
use crate::parallel::thread;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(10);

/// The thread, until it is dropped.
pub struct Watch {
    pub shared: Arc<Shared>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches a communicator.
    pub fn start(shared: &Arc<Shared>) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (watched, ends) = (shared.clone(), is_over.clone());
        let name = format!("ironwarp-nccl-{}", shared.seat.rank);
        let thread = thread::start(&name, "a thread that watches", move || watch(&watched, &ends))?;
        Ok(Watch { shared: shared.clone(), is_over, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Calls that are under way end, or are aborted by the thread. A drop cannot return an error.
        let _ = self.shared.counts.synchronize();
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic.
            let _ = thread.join();
        }
    }
}

fn watch(shared: &Shared, is_over: &AtomicBool) {
    // The marks of the last look, and since when they are the same.
    let mut last = (shared.marks(), Instant::now());
    while !is_over.load(Ordering::Acquire) {
        park_timeout(PERIOD);
        if shared.look().is_err() {
            return;
        }
        let marks = shared.marks();
        if marks != last.0 {
            last = (marks, Instant::now());
        }
        let (count, sequence) = marks;
        if count % 2 == 1 && last.1.elapsed() > shared.limit {
            shared.fail(shared.late(sequence));
            return;
        }
    }
}
