//! Settings of a trial.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which engine a norm takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The rule.
    Rule,
    /// Rows in shared memory.
    Held,
    /// So many rows a block.
    Kept(u32),
    /// Rows that blocks draw.
    Drawn,
    /// The same with weights in shared memory.
    Shared,
}

static SETTING: Mutex<Setting> = Mutex::new(Setting::Rule);
static CODE: AtomicUsize = AtomicUsize::new(0);

/// Sets it.
pub fn set(setting: Setting) {
    *SETTING.lock().expect("no panics") = setting;
}

/// The setting.
pub fn get() -> Setting {
    *SETTING.lock().expect("no panics")
}

/// Takes kernels of this number from now on: from `IRONWARP_PTX_DIR_NUMBER` first, unless it is 0.
pub fn set_code(number: usize) {
    CODE.store(number, Ordering::Relaxed);
}

/// The number.
pub fn code() -> usize {
    CODE.load(Ordering::Relaxed)
}
