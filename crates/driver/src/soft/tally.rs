//! Launch counts per kernel. Tests use them to prove that they reach every kernel.

use simt::registry::{self, KernelEntry};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Launches so far, by family and name.
static LAUNCHES: Mutex<BTreeMap<(&'static str, &'static str), u64>> = Mutex::new(BTreeMap::new());

/// A kernel of a package that is linked into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launches {
    /// The kernel's family.
    pub family: &'static str,
    /// The kernel's name.
    pub kernel: &'static str,
    /// The number of runs on the software driver. Graph replays count too.
    pub times: u64,
}

/// Counts a launch that starts to run.
pub(super) fn count(entry: &KernelEntry) {
    let mut launches = LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner);
    *launches.entry((entry.family, entry.name)).or_default() += 1;
}

/// The launch count of every kernel of the program's packages.
pub fn launches() -> Vec<Launches> {
    let launches = LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner);
    let times = |key| launches.get(&key).copied().unwrap_or(0);
    registry::names()
        .map(|(family, kernel)| Launches { family, kernel, times: times((family, kernel)) })
        .collect()
}
