//! Shared by all kernel tests: seeded inputs, a comparator and the table of tolerances.
//!
//! ```
//! use ironwarp_testkit::{Family, compare, tolerance};
//!
//! let x: Vec<f32> = ironwarp_testkit::input(Family::Normal, 7, 1000);
//! let want: Vec<f64> = x.iter().map(|&v| f64::from(v) * 2.0).collect();
//! let got: Vec<f32> = x.iter().map(|v| v * 2.0).collect();
//! compare::elementwise("double", &got, &want, &[1000], tolerance::SAXPY.tolerance())?;
//! # Ok::<(), ironwarp_testkit::Mismatch>(())
//! ```
//!
//! The rules, in the order in which they apply to each element:
//! 1. NaN matches only NaN, and infinity matches only the infinity of the same sign, in the same place.
//! 2. `|got - want| <= absolute + relative * scale`. The scale is `|want|` ([`compare::elementwise`]) or the
//!    sum of the magnitudes of the element's terms ([`compare::accumulated`]). The latter is right for dot
//!    products, where terms cancel.
//! 3. A tolerance is never written in a test. It is a row of [`tolerance::TABLE`], with its reason.

use std::cell::Cell;
use std::io::Write;

pub mod compare;
mod element;
mod input;
#[cfg(unix)]
pub mod job;
pub mod process;
pub mod random;
pub mod tolerance;

pub use compare::{Agreement, Mismatch, bitwise_equal};
pub use element::Element;
pub use input::{Family, input, spot_special};
pub use random::Random;
pub use tolerance::Tolerance;

/// Reports that the calling test cannot run here, and why. The test then returns. A test runner counts these
/// lines as skipped and not as passed, so each test prints exactly one. The line bypasses the test harness,
/// which hides the output of passed tests. It begins on a new line, because another test's line may be half
/// written.
pub fn skip(why: &str) {
    thread_local! {
        /// Each test runs in its own thread.
        static SAID: Cell<bool> = const { Cell::new(false) };
    }
    if !SAID.replace(true) {
        // An error means that no reader exists, so it is ignored.
        let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
    }
}
