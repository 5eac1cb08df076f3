//! Matrix multiply-accumulate on tensor cores.
