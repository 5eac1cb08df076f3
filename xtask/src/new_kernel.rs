//! Writes the beginnings of a kernel: in this workspace, or as a project of its own.

use std::path::PathBuf;

use ironwarp_cli::ironwarp::Ironwarp;
use ironwarp_cli::new_project::{self, File};

use crate::error::Error;
use crate::workspace;

pub const HELP: &str = "
Writes a kernel with its test, oracle and benchmark, ready to run: y = a x + y, to be made into something else.

In this workspace it becomes the package kernels-gpu/NAME, which `cargo xtask test` and `build-kernels` find by
themselves. With --crate it becomes a project of its own that depends on this workspace: a package of kernels,
compiled to PTX by a build script, and a program.

Usage: cargo xtask new-kernel NAME [--crate FOLDER]

Options:
  --crate FOLDER   write a project into FOLDER, which must not exist yet (the folder around it must)

Examples:
  cargo xtask new-kernel blur
  cargo xtask new-kernel blur --crate ../blur
";

const MANIFEST: &str = include_str!("../../kernels-gpu/hello/Cargo.toml");

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    use lexopt::ValueExt as _;
    let (mut name, mut project) = (None, None);
    while let Some(arg) = args.next()? {
        match arg {
            lexopt::Arg::Long("crate") => project = Some(PathBuf::from(args.value()?)),
            lexopt::Arg::Value(value) if name.is_none() => name = Some(value.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(name) = name else {
        return Err(Error::Usage("the kernel wants a name: `cargo xtask new-kernel NAME`".to_owned()));
    };
    check_name(&name)?;
    match project {
        Some(folder) => new_project::write_project(&name, &folder, &Ironwarp::local(workspace::root())?),
        None => write_package(&name),
    }
}

/// No package has the name, nor one that was written since this program was compiled.
fn check_name(name: &str) -> Result<(), Error> {
    new_project::check_name(name)?;
    let taken =
        workspace::families()?.iter().any(|family| family.library == name || family.folder.ends_with(name))
            || workspace::root().join("crates").join(name).exists();
    if taken { Err(new_project::taken(name)) } else { Ok(()) }
}

/// No kernel here has the name: commands would mean both.
fn check_kernel(name: &str) -> Result<(), Error> {
    let families = workspace::families()?;
    match families.iter().find(|family| workspace::marked_kernels(family).contains(name)) {
        Some(family) => {
            let of = &family.library;
            Err(Error::Refused(format!("`{of}` has a kernel `{name}` already: choose another name")))
        }
        None => Ok(()),
    }
}

fn write_package(name: &str) -> Result<(), Error> {
    check_kernel(name)?;
    let folder = workspace::root().join("kernels-gpu").join(name);
    new_project::write_package(&folder, &package_files(name))?;
    println!("  cargo test -p {name}                          # under the checker where there is no GPU");
    println!("  cargo xtask build-kernels --family {name}     # PTX for a GPU");
    println!("  cargo xtask inspect {name}                    # registers, spills, instructions");
    println!("  cargo bench -p {name}");
    Ok(())
}

fn package_files(name: &str) -> Vec<File> {
    let manifest = (PathBuf::from("Cargo.toml"), new_project::renamed(MANIFEST, name));
    std::iter::once(manifest).chain(new_project::package_files(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_workspace_are_taken() {
        for name in ["gemm", "simt", "cuda_builder", "xtask", "tempfile"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("blur").is_ok() && check_kernel("blur").is_ok());
        assert!(check_kernel("saxpy").is_err());
    }

    #[test]
    fn nothing_of_the_template_is_left() {
        for (path, text) in package_files("blur") {
            assert!(!text.contains("hello"), "{}", path.display());
        }
    }
}
