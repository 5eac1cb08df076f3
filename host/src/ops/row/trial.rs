//! Settings of a trial.

use std::sync::Mutex;

/// Which engine a norm takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The rule.
    Rule,
    /// Rows in shared memory.
    Held,
    /// So many rows a block.
    Kept(u32),
    /// Rows that blocks draw: so many at a time, by this percentage of the blocks, from a counter.
    Drawn(u32, u64, u64),
    /// The same, with barriers of clusters for the order of their exchanges.
    Ordered(u32, u64, u64),
    /// The same with weights in shared memory.
    Shared(u32, u64, u64),
    /// Loads to registers.
    Loaded,
    /// The same, with stores that leave the caches first.
    LoadedStream,
}

static SETTING: Mutex<Setting> = Mutex::new(Setting::Rule);

/// Sets it.
pub fn set(setting: Setting) {
    *SETTING.lock().expect("no panics") = setting;
}

/// The setting.
pub fn get() -> Setting {
    *SETTING.lock().expect("no panics")
}
