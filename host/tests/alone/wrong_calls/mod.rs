//! Wrong calls: each gives a typed error with a hint, none panics, and the next valid call works.
//!
//! There is one table for each part of the library. Each new function adds its wrong calls.

mod environment;
mod graphs;
mod methods;
mod ops;
mod runtime;
mod tensors;
mod training;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::Bench;
use crate::common::kernels::fill;
use ironwarp::{DeviceBuffer, Error, LaunchConfig, Result, launch};

/// Elements of the buffer that the calls work on.
const LEN: usize = 10;

/// The least number of calls in the tables.
const AT_LEAST: usize = 370;

pub(crate) struct Calls {
    made: usize,
    pub(crate) bench: Bench,
}

impl Calls {
    /// Makes a wrong call and checks its error.
    pub(crate) fn wrong<T>(
        &mut self,
        what: &str,
        call: impl FnOnce(&Bench) -> Result<T>,
        is_it: impl Fn(&Error) -> bool,
    ) {
        let result = catch_unwind(AssertUnwindSafe(|| call(&self.bench)));
        let Ok(result) = result else { panic!("{what}: panicked") };
        let Err(error) = result else { panic!("{what}: accepted") };
        assert!(is_it(&error), "{what}: another error: {error:?}");
        assert!(error.to_string().contains("\nhint: "), "{what}: no hint: {error}");
        assert!(error.is_recoverable(), "{what}: {error}");
        self.count();
        self.right().unwrap_or_else(|e| panic!("after {what}: {e}"));
    }

    fn count(&mut self) {
        self.made += 1;
    }

    /// A valid call.
    fn right(&self) -> Result<()> {
        let mut y = DeviceBuffer::<f32>::zeroed(&self.bench.stream, LEN)?;
        // SAFETY: LEN elements.
        unsafe {
            launch::<fill>(&self.bench.stream, LaunchConfig::linear(LEN, 32), (LEN as u32, 3.0, &mut y))?
        };
        assert_eq!(y.to_vec(&self.bench.stream)?, [3.0; LEN]);
        Ok(())
    }

    pub(crate) fn ten(bench: &Bench) -> Result<DeviceBuffer<f32>> {
        DeviceBuffer::zeroed(&bench.stream, LEN)
    }
}

#[test]
fn wrong_calls_are_refused_with_help() -> Result<()> {
    testkit::own_process!();
    let mut calls = Calls { made: 0, bench: Bench::open()? };
    for (part, table) in [
        ("runtime", runtime::table as fn(&mut Calls)),
        ("graphs", graphs::table),
        ("tensors", tensors::table),
        ("methods", methods::table),
        ("ops", ops::table),
        ("training", training::table),
        ("environment", environment::table),
    ] {
        let before = calls.made;
        table(&mut calls);
        println!("{part}: {} wrong calls refused", calls.made - before);
    }
    println!("{} wrong calls refused", calls.made);
    assert!(calls.made >= AT_LEAST, "{}", calls.made);
    Ok(())
}
