//! Threads of a communicator: they start before anything depends on them.

use std::thread::{Builder, JoinHandle};

use crate::error::{Error, Result};

/// Starts a thread; what it is for.
///
/// # Errors
/// [`Error::InvalidArgument`]: the system has no room for one.
pub fn start(
    name: &str,
    argument: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(|error| Error::InvalidArgument {
        operation: "Communicator",
        argument,
        got: error.to_string(),
        wanted: "room for one".to_owned(),
        hint: "the system's limit on threads is reached (`ulimit -u`)",
    })
}
