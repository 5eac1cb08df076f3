//! Tests that compile packages and projects with a cargo of their own. They are one program, so that they run
//! beside each other: each keeps a core waiting for much of its time.

mod instrumented;
mod packages;
mod port;

/// A build in a folder that is kept between runs, and shared with the project of `crates/cli/tests`:
/// dependencies take long to compile. Nothing is compiled twice there, so nothing is kept for that.
const BUILD: &[&str] = &[
    "build",
    "--config",
    "profile.dev.debug=0",
    "--config",
    "profile.dev.incremental=false",
    "--target-dir",
];
