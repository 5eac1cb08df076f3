//! Checks that the tests of decode attention share.

use crate::attention_case::{Number, Outcome, device};
use ironwarp::{Arch, DType};
use reference::attention::Attended;
use testkit::compare;
use testkit::tolerance::{self, Tolerance};

/// Whether the device has decode kernels for every head size and number of queries; else the test is skipped.
pub fn decodes() -> Outcome<bool> {
    has(|arch| arch.major >= 9, "every head size")
}

/// Whether the device has decode kernels for a cache in e4m3; else the test is skipped.
pub fn decodes_e4m3() -> Outcome<bool> {
    has(Arch::is_hopper, "a cache in e4m3")
}

fn has(is_able: fn(Arch) -> bool, of: &str) -> Outcome<bool> {
    let device = device()?;
    let is_able = is_able(device.arch());
    if !is_able {
        testkit::skip(&format!("{} has no kernel for {of}", device.name()));
    }
    Ok(is_able)
}

/// The result is the oracle's. `shape`: sequences, queries, heads, head size. `more` is what the score
/// function adds to the errors of weights.
pub fn is_output<T: Number>(
    what: &str,
    got: &[T],
    want: &Attended,
    shape: [usize; 4],
    more: Tolerance,
) -> Outcome {
    let row = if T::DTYPE == DType::BF16 { tolerance::ATTENTION_BF16 } else { tolerance::ATTENTION_F16 };
    let Tolerance { absolute, relative } = row.tolerance();
    let limit = Tolerance { absolute, relative: relative + more.relative };
    compare::rounded(what, got, &want.value, &want.magnitude, &shape, limit)?;
    Ok(())
}

/// The log-sum-exps are the oracle's. `shape`: that of the result. `more` is what the score function adds.
pub fn are_log_sum_exps(
    what: &str,
    got: &[f32],
    want: &Attended,
    shape: [usize; 4],
    more: Tolerance,
) -> Outcome {
    let [sequences, queries, heads, size] = shape;
    let Tolerance { absolute, relative } = tolerance::ATTENTION_LSE.for_terms(size);
    let limit = Tolerance { absolute: absolute + more.absolute, relative };
    let (value, magnitude) = (&want.log_sum_exp, &want.log_sum_exp_magnitude);
    let shape = [sequences, heads, queries];
    compare::accumulated(&format!("{what}, lse"), got, value, magnitude, &shape, limit)?;
    Ok(())
}
