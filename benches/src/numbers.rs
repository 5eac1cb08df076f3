//! Operands of large rows.

use testkit::{Element, Family, input};

/// Different elements of an operand. A prime: no two rows are alike.
const PERIOD: usize = 1_048_573;

/// Normal numbers; they repeat after a while, since drawing gigabytes takes longer than a row's samples.
pub fn numbers<T: Element>(seed: u64, len: usize) -> Vec<T> {
    let different: Vec<T> = input(Family::Normal, seed, len.min(PERIOD));
    different.iter().copied().cycle().take(len).collect()
}
