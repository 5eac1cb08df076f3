//! `search`, a program with the host library, as a hostile user would call it: whatever comes, it answers
//! with one message and the right exit code, does not panic, and writes nothing.

mod faults;
#[path = "../../../crates/cli/tests/hostile/place.rs"]
mod place;
mod surroundings;
mod variables;

use std::fs;

use place::{Case, Place};

const PROGRAM: &str = env!("CARGO_BIN_EXE_search");

/// A place with a folder of text.
fn library() -> Place {
    let place = Place::new();
    fs::create_dir(place.here().join("texts")).unwrap();
    for (name, text) in [("a.txt", "kernels are launched on streams"), ("b.txt", "errors name the fix")] {
        fs::write(place.here().join("texts").join(name), text).unwrap();
    }
    place
}

/// A search of that folder on the software driver.
fn search(code: i32, says: &str) -> Case<'_> {
    Case::new(["launched", "--corpus", "texts"], code, says).env("IRONWARP_DRIVER", "soft")
}

/// Part of the output of a search that has found something.
const FOUND: &str = "ran on Ironwarp software device";
