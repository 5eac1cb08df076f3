//! Launches rely on what a tuple of arguments packs: no other type can stand for one.

use ironwarp::{LaunchArgs, Parameters, Result, Stream};

struct Nothing;

impl LaunchArgs<()> for Nothing {
    fn with(self, _: &Stream, _: impl FnOnce(&mut Parameters) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
