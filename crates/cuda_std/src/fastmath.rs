//! Approximate arithmetic.
