//! ptr
