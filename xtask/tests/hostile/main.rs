//! Command lines and surroundings as a hostile user would have them. Whatever comes, the program answers with
//! one message and the right exit code, does not panic, and writes nothing outside the folder it was given.

mod lines;
#[path = "../../../crates/cli/tests/hostile/place.rs"]
mod place;
mod surroundings;

const PROGRAM: &str = env!("CARGO_BIN_EXE_xtask");
