//! The measuring code that the programs under `benches/` share.
//!
//! Each program is a criterion benchmark. It also runs alone, without cargo, on a machine that has only the
//! driver:
//!
//! ```text
//! basic [--quick] [--out DIR] [--only TEXT]
//! ```
//! criterion drives warm-up and sampling. A sample is the time between two events on the stream, so it
//! measures the device and not the host. The same program checks the results against the oracle before it
//! prints the table. `--out` writes every sample as CSV. On a GPU, a Python process times the same ops of
//! PyTorch and cuBLASLt between our samples ([`Peers`]).

/// As Ironwarp's commands print: neither a reader who leaves nor a full device makes a program panic.
#[macro_use]
#[path = "../../crates/cli/src/print.rs"]
pub mod print;

mod facts;
mod numbers;
mod options;
mod peer;
mod program;
mod random;
mod rows;
mod session;
mod spread;

pub use facts::Facts;
pub use numbers::numbers;
pub use options::{Options, OptionsError};
pub use peer::{Peer, PeerError, Peers};
pub use program::{Outcome, run};
pub use random::{Drawn, Fused, Types, pick, rows as random_rows, spread};
pub use rows::{OURS, Row, Work};
pub use session::Session;
