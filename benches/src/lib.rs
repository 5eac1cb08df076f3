//! Measuring kernels: what the programs under `benches/` share.
//!
//! Each program is a criterion benchmark that also runs alone, without cargo, on a machine that has only the driver:
//!
//! ```text
//! basic [--quick] [--out DIR] [--only TEXT]
//! ```
//! criterion drives warm-up and sampling; a sample is the time between two events on the stream, so what is measured is the device
//! and not the host. Results are checked against the oracle in the same program, before the table is printed. `--out` writes every
//! sample as CSV. On a GPU the same ops of PyTorch and cuBLASLt are timed between our samples, by a Python process ([`Peers`]).

mod facts;
mod options;
mod peer;
mod rows;
mod session;

pub use facts::Facts;
pub use options::{Options, OptionsError};
pub use peer::{Peer, PeerError, Peers};
pub use rows::{OURS, Row, Work};
pub use session::{Outcome, Session};
