//! Reductions along rows or columns of a dense tensor: the same bits in every run and on every device.
//!
//! ```text
//!   rows      [rows, columns] -> [rows, chunks]             a row's chunk: a thread, a warp or a block, by its length
//!   columns   [outer, rows, inner] -> [outer, chunks, inner]   a chunk of rows: a thread for every 16 bytes of a row
//! ```
//! Where that leaves more than one chunk, a second launch reduces the chunks. The order of additions depends
//! on the shape and on where the tensor begins within 16 bytes, and on nothing else. 16-bit floats are added
//! up in f32, integers in i64, and results have these types.

pub mod arg;
pub mod columns;
pub mod fold;
mod number;
pub mod rows;

pub use number::Reduced;
