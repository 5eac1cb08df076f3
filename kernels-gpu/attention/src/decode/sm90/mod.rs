//! Decode attention on a cache in e4m3. Ampere has no conversion of such numbers.

pub mod e4m3;
pub mod instances;
