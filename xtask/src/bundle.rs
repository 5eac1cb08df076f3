use crate::error::Error;
pub const HELP: &str = "cargo xtask";
pub fn run(_: lexopt::Parser) -> Result<(), Error> {
    Ok(())
}
