//! The gradient of an embedding: rows of a gradient, added up by the numbers of the rows that they came from.
//!
//! ```text
//!   sort    tokens with their places, by 8 bits a pass, stable            (token << 32 | place), sorted
//!   tiles   a warp: 32 sorted tokens, some columns. A run that lies in the tile is summed and stored,
//!           the parts of runs that cross its ends go to memory as f32
//!   runs    the warp of the tile where such a run begins adds up its parts
//! ```
//! No block waits for another, none has more to add than others however often a token comes, and the order of
//! additions depends on the tokens alone: results repeat bit for bit.

pub mod sort;
pub mod sums;
