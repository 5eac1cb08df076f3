//! Command lines and surroundings as a hostile user would have them, for `ironwarp`.

mod lines;
mod place;
mod projects;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ironwarp");
