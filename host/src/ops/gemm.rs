//! `gemm`.
