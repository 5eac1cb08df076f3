//! Number conversions.
