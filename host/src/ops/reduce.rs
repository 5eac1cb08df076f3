//! `reduce`.
