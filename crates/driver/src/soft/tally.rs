//! Which kernels were launched: how a test knows that it has reached all of them.

use simt::registry::{self, KernelEntry};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Launches so far, by family and name.
static LAUNCHES: Mutex<BTreeMap<(&'static str, &'static str), u64>> = Mutex::new(BTreeMap::new());

/// A kernel that is linked into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launches {
    /// Its family.
    pub family: &'static str,
    /// Its name.
    pub kernel: &'static str,
    /// How often the software driver has run it; replays of graphs count too.
    pub times: u64,
}

/// A launch begins to run.
pub(super) fn count(entry: &KernelEntry) {
    let mut launches = LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner);
    *launches.entry((entry.family, entry.name)).or_default() += 1;
}

/// Every kernel that is linked into the program, and how often the software driver has run it.
pub fn launches() -> Vec<Launches> {
    let launches = LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner);
    let times = |entry: &KernelEntry| launches.get(&(entry.family, entry.name)).copied().unwrap_or(0);
    registry::kernels()
        .map(|entry| Launches { family: entry.family, kernel: entry.name, times: times(entry) })
        .collect()
}
