//! `transpose`.
