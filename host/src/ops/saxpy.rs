//! `saxpy`.
