//! Makes the packages that a registry takes, with the compiled kernels inside.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::archive::{self, Contents};
use crate::error::{Error, plural};
use crate::process;
use crate::term::{Style, style};
use crate::workspace;

pub const HELP: &str = "
Makes the packages of this workspace that are for others, in target/package, and unpacks them beside that, in
target/package/unpacked. The package `ironwarp` holds the compiled kernels: PTX, also of the architectures that
families have on request, and machine code. A program that depends on it needs stable Rust and nothing else.

Usage: cargo xtask package [--no-machine-code]

Options:
  --no-machine-code   for trials: PTX of the usual architectures alone, quickly packed, which saves minutes

Examples:
  cargo xtask package
  for name in $(cargo xtask package | sed -n 's/^  //p'); do cargo publish --package $name; done
";

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    use lexopt::prelude::*;
    let mut contents = Contents::default();
    while let Some(arg) = args.next()? {
        match arg {
            Long("no-machine-code") => contents.no_machine_code = true,
            other => return Err(other.unexpected().into()),
        }
    }
    contents.every_arch = !contents.no_machine_code;
    contents.quick = contents.no_machine_code;
    let names = names()?;
    let kernels = archive::write(&contents)?;
    let folder = workspace::target_dir().join("package");
    if folder.is_dir() {
        fs::remove_dir_all(&folder).map_err(Error::io("remove", &folder))?;
    }
    make(&names, &kernels)?;
    let unpacked = folder.join("unpacked");
    for name in &names {
        unpack(&folder, name, &unpacked)?;
    }
    println!(
        "{} {} in {}, in the order in which a registry takes them:",
        style(Style::Ok, "packages:"),
        plural(names.len(), "package"),
        folder.display()
    );
    for name in &names {
        println!("  {name}");
    }
    println!("unpacked: {}", unpacked.display());
    Ok(())
}

/// The packages of the workspace that each of its packages needs.
type Packages = BTreeMap<String, Vec<String>>;

/// The packages that are for others, each behind all that it needs.
///
/// # Errors
/// When cargo does not answer.
pub fn names() -> Result<Vec<String>, Error> {
    Ok(in_order(&published()?))
}

/// The packages that are for others. What tests need is left out of a package.
fn published() -> Result<Packages, Error> {
    let mut command = workspace::cargo();
    let text = process::output(command.args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let unreadable = |error: serde_json::Error| Error::Failed {
        command: process::shown(&command),
        status: error.to_string(),
    };
    let metadata: Value = serde_json::from_str(&text).map_err(unreadable)?;
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata, "packages");
    if packages.is_empty() {
        let status = "it names no packages".to_owned();
        return Err(Error::Failed { command: process::shown(&command), status });
    }
    let packages = packages.iter().filter(|package| package["publish"].is_null());
    let needs = |package: &Value| {
        let dependencies = list(package, "dependencies").into_iter();
        let own = dependencies.filter(|needed| needed["path"].is_string() && needed["kind"] != "dev");
        own.map(|needed| name(&needed)).collect()
    };
    Ok(packages.map(|package| (name(package), needs(package))).collect())
}

/// The names such that each comes behind all that it needs.
fn in_order(packages: &Packages) -> Vec<String> {
    fn visit(name: &str, packages: &Packages, order: &mut Vec<String>) {
        let Some(needs) = packages.get(name) else { return };
        if order.iter().any(|done| done == name) {
            return;
        }
        needs.iter().for_each(|needed| visit(needed, packages, order));
        order.push(name.to_owned());
    }
    let mut order = Vec::new();
    packages.keys().for_each(|name| visit(name, packages, &mut order));
    order
}

/// A file that is in a package's folder while packages are made.
struct Placed(PathBuf);

impl Placed {
    fn new(from: &Path, folder: &Path) -> Result<Self, Error> {
        // Made first: a copy that fails leaves a part of a file.
        let placed = Self(folder.join(from.file_name().unwrap_or_default()));
        fs::copy(from, &placed.0).map_err(Error::io("write", &placed.0))?;
        Ok(placed)
    }

    /// The files below `root` that `ironwarp new` writes, where the build script of its package looks for
    /// them.
    fn template(root: &Path, package: &Path) -> Result<Self, Error> {
        let list = package.join("template.txt");
        let list = fs::read_to_string(&list).map_err(Error::io("read", &list))?;
        let placed = Self(package.join("template"));
        for path in list.lines() {
            let (from, to) = (root.join(path), placed.0.join(path));
            let folder = to.parent().unwrap_or(&placed.0);
            fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
            fs::copy(&from, &to).map_err(Error::io("copy", &from))?;
        }
        Ok(placed)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        let removed = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            eprintln!("{} cannot remove {}: {error}", style(Style::Warn, "warning:"), self.0.display());
        }
    }
}

fn make(names: &[String], kernels: &Path) -> Result<(), Error> {
    let _kernels = Placed::new(kernels, &workspace::root().join("host"))?;
    let _template = Placed::template(workspace::root(), &workspace::root().join("crates/cli"))?;
    let mut command = workspace::cargo();
    // The archive and the copies are no files of the repository.
    command.args(["package", "--quiet", "--no-verify", "--allow-dirty"]);
    process::run(command.args(names.iter().flat_map(|name| ["--package", name])))
}

/// Unpacks a package to `UNPACKED/NAME`.
fn unpack(folder: &Path, name: &str, unpacked: &Path) -> Result<(), Error> {
    let to = unpacked.join(name);
    fs::create_dir_all(&to).map_err(Error::io("create", &to))?;
    let package = folder.join(format!("{name}-{}.crate", env!("CARGO_PKG_VERSION")));
    let mut command = Command::new("tar");
    // Files in packages are all of one day in 2006, by which cargo would take new ones for those it has
    // compiled.
    process::run(command.args(["--touch", "--strip-components=1", "-xzf"]).arg(package).arg("-C").arg(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_there_while_packages_are_made() {
        let package = tempfile::tempdir().unwrap();
        let list = workspace::root().join("crates/cli/template.txt");
        fs::copy(&list, package.path().join("template.txt")).unwrap();
        let placed = Placed::template(workspace::root(), package.path()).unwrap();
        for path in fs::read_to_string(list).unwrap().lines() {
            assert!(package.path().join("template").join(path).is_file(), "{path}");
        }
        drop(placed);
        assert!(!package.path().join("template").exists());
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        // Read after a part of it is written: an address that no process has.
        assert!(Placed::new(Path::new("/proc/self/mem"), folder.path()).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_package_comes_behind_what_it_needs() {
        let needs = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let packages = Packages::from([
            ("a".to_owned(), needs(&["c", "b"])),
            ("b".to_owned(), needs(&["c"])),
            ("c".to_owned(), needs(&["not ours"])),
        ]);
        assert_eq!(in_order(&packages), ["c", "b", "a"]);
    }

    #[test]
    fn every_package_for_others_is_found_and_those_for_tests_are_not() {
        let packages = published().unwrap();
        assert!(packages["ironwarp"].contains(&"ironwarp-gemm".to_owned()));
        for name in [
            "xtask",
            "ironwarp-testkit",
            "ironwarp-conformance",
            "hello",
            "ironwarp-examples",
            "ironwarp-benches",
        ] {
            assert!(!packages.contains_key(name), "{name}");
        }
        let needed = packages.values().flatten();
        needed.for_each(|name| assert!(packages.contains_key(name), "{name} is needed and not published"));
    }
}
