//! The building blocks as kernels on the executor, with the checker on, against naive oracles.

mod activation;
mod collectives;
mod rows;

use simt::{LaunchConfig, Options};

/// Memory that the executor knows as global memory with bounds.
struct Global<T> {
    data: Vec<T>,
}

impl<T: Copy> Global<T> {
    fn new(data: Vec<T>, label: &str) -> Self {
        simt::memory::track(data.as_ptr(), size_of_val(data.as_slice()), label);
        Global { data }
    }

    /// The address of the first element, in a form that threads may share.
    fn address(&mut self) -> usize {
        self.data.as_mut_ptr() as usize
    }
}

impl<T> Drop for Global<T> {
    fn drop(&mut self) {
        simt::memory::untrack(self.data.as_ptr());
    }
}

/// Runs `body` once for each thread, under this schedule; fails with the checker's report if it finds a
/// fault.
fn run(seed: u64, config: LaunchConfig, body: impl Fn() + Sync) {
    let options = Options { seed, check: true, ..Options::from_env() };
    if let Err(fault) = simt::run(&config, &options, body) {
        panic!("{fault}");
    }
}
