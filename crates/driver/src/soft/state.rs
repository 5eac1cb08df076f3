//! The state of the software driver and its lock.

use super::{
    capture::Capture,
    context::{self, Context},
    device::{self, Device},
    event::Event,
    exec::Exec,
    graph::Graph,
    handle::{Handle, Handles},
    link::Linker,
    memory::Memory,
    module::{Function, Module},
    pool::Pool,
    queue::{self, Pending},
    stream::Stream,
    user_object::UserObject,
};
use crate::{env, load::InitError};
use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// The result of a driver function: a value, or a result code.
pub(super) type Outcome<T = ()> = Result<T, u32>;

/// The variable with the number of software devices.
pub const DEVICES_VARIABLE: &str = "IRONWARP_SOFT_DEVICES";
/// The variable with the memory of each software device.
pub const MEMORY_VARIABLE: &str = "IRONWARP_SOFT_MEMORY";
const MAX_DEVICES: usize = 64;
const MIN_MEMORY: usize = 1 << 20;
/// Memory per device, in bytes, if the system does not report its memory.
const DEFAULT_MEMORY: usize = 4 << 30;

pub(super) struct State {
    pub devices: Vec<Device>,
    pub contexts: Handles<Context>,
    pub streams: Handles<Stream>,
    pub events: Handles<Event>,
    pub modules: Handles<Module>,
    pub functions: Handles<Function>,
    pub graphs: Handles<Graph>,
    pub execs: Handles<Exec>,
    pub captures: Handles<Capture>,
    pub pools: Handles<Pool>,
    pub linkers: Handles<Linker>,
    pub user_objects: Handles<UserObject>,
    /// Those whose destructors are to be called.
    pub ended_objects: Vec<UserObject>,
    /// The graph that each node belongs to.
    pub nodes: BTreeMap<Handle, Handle>,
    pub memory: Memory,
    pub pending: Pending,
    last_fault: Option<String>,
}

static STATE: OnceLock<Mutex<State>> = OnceLock::new();
/// Notified whenever a piece of work is done.
static PROGRESS: Condvar = Condvar::new();

/// The locked state. The lock can be released to run a kernel or to wait.
pub(super) struct Driver {
    guard: Option<MutexGuard<'static, State>>,
}

impl Driver {
    pub(super) fn lock() -> Driver {
        // The table refers to these functions only after `start`.
        let state = STATE.get().expect("the software driver is set up before its functions can be called");
        Driver { guard: Some(state.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Runs `work` with the lock released.
    pub(super) fn unlocked<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.guard = None;
        let result = catch_unwind(AssertUnwindSafe(work));
        *self = Driver::lock();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Waits until a thread has finished a piece of work.
    pub(super) fn wait_for_progress(&mut self) {
        self.guard =
            self.guard.take().map(|guard| PROGRESS.wait(guard).unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn announce_progress() {
        PROGRESS.notify_all();
    }

    /// Keeps the report of a fault and prints it.
    pub(super) fn report(&mut self, report: String) {
        simt::note(format_args!("ironwarp: {report}"));
        self.last_fault = Some(report);
    }
}

impl Deref for Driver {
    type Target = State;
    fn deref(&self) -> &State {
        self.guard.as_ref().expect("the lock is held outside `unlocked` and `wait_for_progress`")
    }
}

impl DerefMut for Driver {
    fn deref_mut(&mut self) -> &mut State {
        self.guard.as_mut().expect("the lock is held outside `unlocked` and `wait_for_progress`")
    }
}

/// Half of the machine's memory.
fn half_of_memory() -> usize {
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()
    });
    total.map_or(DEFAULT_MEMORY, |kib| kib * 1024 / 2)
}

pub(super) fn start() -> Result<(), InitError> {
    device::choose_arch()?;
    // A launch would ignore what it cannot read.
    for (variable, most) in simt::VARIABLES {
        env::number(variable, 0..=most)?;
    }
    let count = env::number(DEVICES_VARIABLE, 1..=MAX_DEVICES)?.unwrap_or(1);
    let memory = match env::bytes(MEMORY_VARIABLE, MIN_MEMORY)? {
        Some(bytes) => bytes,
        None => (half_of_memory() / count).max(MIN_MEMORY),
    };
    let mut pools = Handles::new();
    let devices =
        (0..count).map(|ordinal| Device::new(memory, pools.insert(Pool::of_device(ordinal)))).collect();
    let state = State {
        devices,
        contexts: Handles::new(),
        streams: Handles::new(),
        events: Handles::new(),
        modules: Handles::new(),
        functions: Handles::new(),
        graphs: Handles::new(),
        execs: Handles::new(),
        captures: Handles::new(),
        pools,
        linkers: Handles::new(),
        user_objects: Handles::new(),
        ended_objects: Vec::new(),
        nodes: BTreeMap::new(),
        memory: Memory::new(),
        pending: Pending::new(),
        last_fault: None,
    };
    simt::when_all_spin(queue::start_waiting_work);
    // Called once (see `load::backend`), so the cell is empty.
    let _ = STATE.set(Mutex::new(state));
    Ok(())
}

/// Whether the software driver is in use.
pub(super) fn is_started() -> bool {
    STATE.get().is_some()
}

/// The checker's report of the last launch failure. `None` if there was none since the start or the last
/// [`reset`].
pub fn last_fault() -> Option<String> {
    STATE.get()?;
    Driver::lock().last_fault.clone()
}

/// For tests: destroys the contents of every context, clears sticky errors and forgets the last fault.
/// Contexts stay usable. Does nothing if the software driver is not in use.
pub fn reset() {
    if STATE.get().is_none() {
        return;
    }
    let mut driver = Driver::lock();
    let contexts: Vec<Handle> = driver.contexts.iter().map(|(handle, _)| handle).collect();
    for handle in contexts {
        context::clear(&mut driver, handle);
    }
    driver.last_fault = None;
}
