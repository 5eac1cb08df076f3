//! Cosine similarity with top-k.

fn main() {}
