//! Copies the files of `template.txt` to where the library takes them in: from the repository in a checkout,
//! from `template/` in a package from crates.io. A checkout may have an old `template/` too: `cargo xtask
//! package` leaves it there when it is killed.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

const LIST: &str = "template.txt";

fn main() -> Result<(), Box<dyn Error>> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let repository = package.join("../..");
    let is_checkout = repository.join("crates/cli").join(LIST).is_file();
    let source = if is_checkout { repository } else { package.join("template") };
    let copies = PathBuf::from(env::var("OUT_DIR")?).join("template");
    println!("cargo::rerun-if-changed={LIST}");
    for path in fs::read_to_string(package.join(LIST))?.lines() {
        copy(&source.join(path), &copies.join(path))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", from.display());
    fs::create_dir_all(to.parent().ok_or("a file lies in a folder")?)?;
    fs::copy(from, to).map_err(|error| format!("cannot copy {}: {error}", from.display()))?;
    Ok(())
}
