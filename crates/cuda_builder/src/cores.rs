//! As many compilers and assemblers at a time as the machine has cores, in this process. Each takes a core
//! for itself, and up to a gigabyte of memory.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The kinds of work. Compilers go first: they take longer, and assemblers wait for them in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Compile,
    Assemble,
}

/// Those who work, and those who wait, each with the number of its arrival.
struct Queue {
    working: usize,
    waiting: BTreeSet<(Work, u64)>,
    arrivals: u64,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { working: 0, waiting: BTreeSet::new(), arrivals: 0 });
static MOVED: Condvar = Condvar::new();

/// A core, as long as it lives.
#[derive(Debug)]
pub struct Core(());

/// Waits for a core.
pub fn wait(work: Work) -> Core {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut queue = lock();
    let turn = (work, queue.arrivals);
    queue.arrivals += 1;
    queue.waiting.insert(turn);
    let may_not = |queue: &mut Queue| queue.working >= cores || queue.waiting.first() != Some(&turn);
    let mut queue = MOVED.wait_while(queue, may_not).unwrap_or_else(PoisonError::into_inner);
    queue.waiting.remove(&turn);
    queue.working += 1;
    drop(queue);
    // There may be a core for the next one too.
    MOVED.notify_all();
    Core(())
}

impl Drop for Core {
    fn drop(&mut self) {
        lock().working -= 1;
        MOVED.notify_all();
    }
}

fn lock() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_work_than_there_are_cores() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (working, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..4 * cores {
                let (working, done) = (&working, &done);
                scope.spawn(move || {
                    let _core = wait(if number % 2 == 0 { Work::Assemble } else { Work::Compile });
                    assert!(working.fetch_add(1, Ordering::SeqCst) < cores);
                    thread::yield_now();
                    working.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(done.into_inner(), 4 * cores);
    }
}
