//! What every kernel test shares: seeded inputs, a comparator and the table of tolerances.
//!
//! ```
//! use testkit::{Family, compare, tolerance};
//!
//! let x: Vec<f32> = testkit::input(Family::Normal, 7, 1000);
//! let want: Vec<f64> = x.iter().map(|&v| f64::from(v) * 2.0).collect();
//! let got: Vec<f32> = x.iter().map(|v| v * 2.0).collect();
//! compare::elementwise("double", &got, &want, &[1000], tolerance::SAXPY.tolerance())?;
//! # Ok::<(), testkit::Mismatch>(())
//! ```
//!
//! The rules, in the order in which they are applied to each element:
//! 1. NaN matches NaN, infinity matches the infinity of the same sign, in the same place, and nothing else does.
//! 2. `|got - want| <= absolute + relative * scale`, where the scale is `|want|` ([`compare::elementwise`]) or the sum of the
//!    magnitudes that were added up to make it ([`compare::accumulated`]: the right one for dot products, where terms cancel).
//! 3. A tolerance is never written in a test: it is a row of [`tolerance::TABLE`], with its reason.

use std::cell::Cell;
use std::io::Write;

pub mod compare;
mod element;
mod input;
pub mod process;
pub mod random;
pub mod tolerance;

pub use compare::{Agreement, Mismatch, bitwise_equal};
pub use element::Element;
pub use input::{Family, input, spot_special};
pub use random::Random;
pub use tolerance::Tolerance;

/// Says that the calling test cannot run here, and why; the test then returns. Who counts tests counts these lines as skipped, and not as
/// passed: so there is one for each test, past the test harness, which shows nothing of a test that passes, and a line of its own, since
/// another test's may be half written.
pub fn skip(why: &str) {
    thread_local! {
        /// A test has a thread of its own.
        static SAID: Cell<bool> = const { Cell::new(false) };
    }
    if !SAID.replace(true) {
        // With nobody to read it there is nobody to tell.
        let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
    }
}
