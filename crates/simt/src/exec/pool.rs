//! The threads that run blocks beside those that launch.
//!
//! They are none of rayon's. A thread of rayon's pool that waits runs other work of that pool, and that may
//! wait for the very launch. Here a thread that launches runs blocks itself, then sleeps until its helpers
//! have done theirs, and a helper runs nothing but blocks. So a launch ends whatever all other threads do.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// The most threads that run blocks of one launch: as many as rayon's pool has by default.
pub(super) fn threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| {
        let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
        asked.filter(|&threads| threads != 0).unwrap_or_else(|| {
            let cores = thread::available_parallelism();
            cores.map_or(1, |cores| cores.get())
        })
    })
}

/// Runs `task` on this thread, and on at most `helpers` others that have the time before it ends here.
///
/// # Panics
/// As `task` does, on whichever thread.
pub(super) fn share(helpers: usize, task: &(dyn Fn() + Sync)) {
    if helpers == 0 {
        return task();
    }
    let number = POOL.ask(helpers, task);
    let here = catch_unwind(AssertUnwindSafe(task));
    let elsewhere = POOL.end(number);
    if let Err(panic) = here.and(elsewhere) {
        resume_unwind(panic);
    }
}

type Panic = Box<dyn Any + Send>;

static POOL: Pool = Pool {
    state: Mutex::new(State { calls: Vec::new(), next: 0, threads: 0 }),
    asked: Condvar::new(),
    done: Condvar::new(),
};

struct Pool {
    state: Mutex<State>,
    /// A call has places.
    asked: Condvar,
    /// A call has no helper any more.
    done: Condvar,
}

struct State {
    /// Calls for help, the oldest first.
    calls: Vec<Call>,
    /// The number of the next call.
    next: u64,
    /// Threads of the pool.
    threads: usize,
}

struct Call {
    number: u64,
    task: Task,
    /// Helpers that may still come.
    places: usize,
    /// Helpers that are at work.
    helping: usize,
    result: Result<(), Panic>,
}

/// A task that its call outlives: [`Pool::end`] comes before the task's end.
#[derive(Clone, Copy)]
struct Task(*const (dyn Fn() + Sync));
// SAFETY: the task is `Sync`, so other threads may call it.
unsafe impl Send for Task {}

impl State {
    fn call(&mut self, number: u64) -> &mut Call {
        self.calls.iter_mut().find(|call| call.number == number).expect("a call is there until it ends")
    }

    fn open_call(&mut self) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.places != 0)
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a task to helpers. Whoever asks keeps it alive until [`Self::end`] returns.
    fn ask(&'static self, helpers: usize, task: &(dyn Fn() + Sync)) -> u64 {
        let task: *const (dyn Fn() + Sync + '_) = task;
        // SAFETY: the types differ in the lifetime of the task alone. Nobody calls it behind `end`, which
        // `share` reaches in any case.
        let task =
            unsafe { std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync)>(task) };
        let mut state = self.state();
        // Where the system gives no thread, those that are there do the work.
        while state.threads < helpers && self.start_thread() {
            state.threads += 1;
        }
        let number = state.next;
        state.next += 1;
        state.calls.push(Call { number, task: Task(task), places: helpers, helping: 0, result: Ok(()) });
        drop(state);
        // Each helper wakes the next: a short launch is over before many come.
        self.asked.notify_one();
        number
    }

    fn start_thread(&'static self) -> bool {
        thread::Builder::new().name("ironwarp-blocks".into()).spawn(|| self.help_for_ever()).is_ok()
    }

    fn help_for_ever(&self) {
        let mut state = self.state();
        loop {
            let Some(call) = state.open_call() else {
                state = self.asked.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            call.places -= 1;
            call.helping += 1;
            let (number, task) = (call.number, call.task);
            if state.open_call().is_some() {
                self.asked.notify_one();
            }
            drop(state);
            // SAFETY: `end` waits for this helper, and the task lives until then.
            let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*task.0)() }));
            state = self.state();
            let call = state.call(number);
            call.helping -= 1;
            if result.is_err() {
                call.result = result;
            }
            if call.helping == 0 {
                self.done.notify_all();
            }
        }
    }

    /// Lets no more helpers come, and waits for those at work.
    fn end(&self, number: u64) -> Result<(), Panic> {
        let mut state = self.state();
        state.call(number).places = 0;
        while state.call(number).helping != 0 {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let at = state.calls.iter().position(|call| call.number == number).expect("found above");
        state.calls.remove(at).result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// These tests want all threads of the pool.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    const HELPERS: usize = 3;

    fn alone() -> MutexGuard<'static, ()> {
        ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn helpers_work_at_the_same_time() {
        let _alone = alone();
        let all = Barrier::new(HELPERS + 1);
        share(HELPERS, &|| {
            all.wait();
        });
    }

    #[test]
    fn helpers_that_are_busy_are_not_waited_for() {
        let _alone = alone();
        let all = Barrier::new(HELPERS + 2);
        let runs = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                share(HELPERS, &|| {
                    all.wait();
                    all.wait();
                });
            });
            all.wait();
            share(HELPERS, &|| {
                runs.fetch_add(1, Ordering::Relaxed);
            });
            all.wait();
        });
        assert_eq!(runs.into_inner(), 1);
    }

    #[test]
    fn panics_come_back_from_any_thread() {
        let _alone = alone();
        let caller = thread::current().id();
        for at_caller in [true, false] {
            let both = Barrier::new(2);
            let run = || {
                share(1, &|| {
                    both.wait();
                    if (thread::current().id() == caller) == at_caller {
                        resume_unwind(Box::new("on purpose"));
                    }
                });
            };
            let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        }
    }
}
