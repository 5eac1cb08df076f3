//! Tests that compile packages and projects with a cargo of their own. They are one program, so that they run
//! beside each other: each keeps a core waiting for much of its time.

mod instrumented;
mod packages;
mod port;
