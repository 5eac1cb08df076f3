//! `cosine`.
