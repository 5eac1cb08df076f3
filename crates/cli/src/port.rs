//! Looks at projects written for Rust-CUDA, and adds to their manifests the lines that they need to build
//! with Ironwarp.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cuda_builder::shown;
use toml::{Table, Value};

use crate::around;
use crate::commands::Program;
use crate::error::Error;
use crate::term::{self, Style, style};

/// The help of `port`.
pub const HELP: &str = "
Looks at a project written for Rust-CUDA: which of its packages depend on what, and what has to change. Its
kernels, hosts and build scripts stay as they are; packages of Rust-CUDA's names come from Ironwarp.

Usage: {program} port DIR [--write]

Options:
  --write    add the lines to DIR/Cargo.toml, the manifest of a package or of a workspace; nothing else is written

Examples:
  {program} port ../my-project
  {program} port ../my-project --write
";

/// Where a package of Rust-CUDA's comes from now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A package of `facades/`.
    Facade,
    /// crates.io, as before.
    Registry,
    /// Nothing stands for it.
    Missing(&'static str),
}

/// Rust-CUDA's packages.
const PACKAGES: &[(&str, Source)] = &[
    ("cuda_std", Source::Facade),
    ("cuda_std_macros", Source::Facade),
    ("cuda_builder", Source::Facade),
    ("cust_core", Source::Facade),
    ("find_cuda_helper", Source::Facade),
    ("cust", Source::Registry),
    ("cust_derive", Source::Registry),
    ("cust_raw", Source::Registry),
    ("gpu_rand", Source::Registry),
    ("rustc_codegen_nvvm", Source::Missing("not needed: rustc itself writes the PTX; remove it")),
    ("nvvm", Source::Missing("not needed: rustc itself writes the PTX; remove it")),
    ("optix", Source::Missing("no part of Ironwarp: compile such kernels with Rust-CUDA")),
    ("optix_device", Source::Missing("no part of Ironwarp: compile such kernels with Rust-CUDA")),
    ("cudnn", Source::Missing("use ironwarp::ops")),
    ("blastoff", Source::Missing("use ironwarp::ops::gemm")),
];

/// Packages that a project gets by others that it depends on.
const ALWAYS_PATCHED: &[&str] = &["cust_core", "find_cuda_helper"];

/// Parts of a source line that current compilers refuse, and the change.
const OLD_LINES: &[(&str, &str)] = &[
    ("register_attr", "remove `feature(register_attr)` and `register_attr(nvvm_internal)`"),
    ("nvvm_internal", "remove `register_attr(nvvm_internal)`"),
    ("rustc_codegen_nvvm", "remove the code generator: rustc writes the PTX"),
];

/// Folders that hold no sources.
const SKIPPED: &[&str] = &["target", "node_modules"];
/// Folders within folders that are looked at.
const DEPTH: usize = 8;

/// One dependency on a package of Rust-CUDA's.
struct Use {
    manifest: PathBuf,
    package: &'static str,
    source: Source,
    /// The repository that it is from, if it is not from crates.io.
    git: Option<String>,
}

/// Where the packages of `facades/` are.
#[derive(Debug, Clone, Copy)]
pub enum Facades<'a> {
    /// Below this folder.
    Folder(&'a Path),
    /// In the repository of this address.
    Git(&'a str),
}

impl Facades<'_> {
    /// The line that names one.
    fn line(self, package: &str) -> String {
        match self {
            Self::Folder(folder) => format!("{package} = {{ path = {:?} }}\n", folder.join(package)),
            Self::Git(address) => format!("{package} = {{ git = {address:?} }}\n"),
        }
    }
}

/// Reports on a project, and prints or writes the lines that it needs.
///
/// # Errors
/// When the project's manifests cannot be read, or its own not be written.
pub fn run(program: Program, facades: Facades<'_>, mut args: lexopt::Parser) -> Result<(), Error> {
    let (mut folder, mut write) = (None, false);
    while let Some(arg) = args.next()? {
        use lexopt::prelude::*;
        match arg {
            Long("write") => write = true,
            Value(value) if folder.is_none() => folder = Some(PathBuf::from(value.string()?)),
            other => return Err(other.unexpected().into()),
        }
    }
    let folder = folder.ok_or_else(|| Error::Usage(format!("wanted: {} port DIR", program.name)))?;
    if folder.as_os_str().is_empty() {
        return Err(Error::Usage("the path is empty".to_owned()));
    }
    fs::read_dir(&folder).map_err(Error::io("read", &folder))?;
    let manifest = folder.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(Error::io("read", &manifest))?;
    let table = parsed(&text).map_err(|error| Error::Usage(format!("{}: {error}", manifest.display())))?;
    let files = files_of(&folder);
    let uses = dependencies(&files);
    if uses.is_empty() {
        println!("{} depends on no package of Rust-CUDA's: there is nothing to port", folder.display());
        return Ok(());
    }
    report(&folder, &uses, &old_lines(&folder, &files));
    check_root(program, &manifest, &table)?;
    let lines = patch(&uses, facades);
    if text.contains("[patch.") {
        println!("\n{} has patches already; bring these lines in:\n\n{lines}", manifest.display());
    } else if write {
        replace(&manifest, &format!("{}\n\n{lines}", text.trim_end()))?;
        println!(
            "\n{} {}: {} lines added",
            style(Style::Ok, "wrote"),
            manifest.display(),
            lines.lines().count()
        );
    } else {
        println!("\nlines for {} (--write adds them):\n\n{lines}", manifest.display());
    }
    Ok(())
}

/// Cargo takes patches from the root of a workspace alone.
fn check_root(program: Program, manifest: &Path, table: &Table) -> Result<(), Error> {
    if table.contains_key("workspace") {
        return Ok(());
    }
    let whole = fs::canonicalize(manifest).map_err(Error::io("find", manifest))?;
    let folder = whole.parent().unwrap_or(&whole);
    let named = table.get("package").and_then(|package| package.get("workspace")?.as_str());
    let root = match named {
        Some(path) => Some(folder.join(path)),
        None => {
            around::workspaces(folder).next().and_then(|around| around.manifest.parent().map(Path::to_owned))
        }
    };
    let Some(root) = root else { return Ok(()) };
    let root = root.display();
    Err(Error::Usage(format!(
        "{} is of a package in the workspace of {root}, and Cargo takes no patches from there; port the workspace: \
         `{} port {root}`",
        manifest.display(),
        program.name
    )))
}

/// Writes a file beside the old one, with its permissions, and renames it: a full disk leaves the old one
/// whole. A link stays one.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let whole = fs::canonicalize(path).map_err(Error::io("find", path))?;
    let permissions = fs::metadata(&whole).map_err(Error::io("read", path))?.permissions();
    // The user may have a file of any simpler name.
    let new = whole.with_extension(format!("toml.{}.unfinished", std::process::id()));
    let written = fs::write(&new, text)
        .and_then(|()| fs::set_permissions(&new, permissions))
        .and_then(|()| fs::rename(&new, &whole));
    if written.is_err() {
        // The error of the write is the one to report.
        let _ = fs::remove_file(&new);
    }
    written.map_err(Error::io("write", path))
}

/// The manifests and sources of a project.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        // A folder that cannot be read has nothing that cargo could build.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEPTH && may_hold_sources(&name) => {
                    open.push((path, depth + 1));
                }
                // A manifest may be a link to one.
                Ok(_) if (name.ends_with(".rs") || name.ends_with(".toml")) && path.is_file() => {
                    found.push(path);
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn may_hold_sources(folder: &str) -> bool {
    !SKIPPED.contains(&folder) && (!folder.starts_with('.') || folder == ".cargo")
}

fn parsed(text: &str) -> Result<Table, toml::de::Error> {
    text.parse()
}

/// Those of all manifests. A template or a test may have one that Cargo could not read, and never does.
fn dependencies(files: &[PathBuf]) -> Vec<Use> {
    let mut uses = Vec::new();
    for path in files.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let table = fs::read_to_string(path).ok().and_then(|text| parsed(&text).ok());
        match table {
            Some(table) => collect(path, &table, &mut uses),
            None => eprintln!(
                "{} {} is no manifest, and is left out",
                style(Style::Warn, "warning:"),
                shown(path)
            ),
        }
    }
    uses
}

/// Goes through all tables of dependencies, those of targets and of a workspace too.
fn collect(path: &Path, table: &Table, uses: &mut Vec<Use>) {
    for (key, value) in table {
        let Some(inner) = value.as_table() else { continue };
        if !matches!(&**key, "dependencies" | "dev-dependencies" | "build-dependencies") {
            collect(path, inner, uses);
            continue;
        }
        for (name, value) in inner {
            let name = value.get("package").and_then(Value::as_str).unwrap_or(name);
            if let Some(&(package, source)) = PACKAGES.iter().find(|(package, _)| *package == name) {
                let git = value.get("git").and_then(Value::as_str).map(str::to_owned);
                uses.push(Use { manifest: path.to_owned(), package, source, git });
            }
        }
    }
}

/// Lines that have to change, each with the change.
fn old_lines(folder: &Path, files: &[PathBuf]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for path in files.iter().filter(|path| !path.ends_with("Cargo.toml")) {
        let Ok(text) = fs::read_to_string(path) else { continue };
        let place = path.strip_prefix(folder).unwrap_or(path).display().to_string();
        if place.starts_with("rust-toolchain") && text.contains("nightly") {
            rows.push(vec![place.clone(), "not needed: stable Rust builds the host; remove it".to_owned()]);
        }
        for (number, line) in text.lines().enumerate() {
            if let Some((_, change)) = OLD_LINES.iter().find(|(sign, _)| line.contains(sign)) {
                rows.push(vec![format!("{place}:{}", number + 1), (*change).to_owned()]);
            }
        }
    }
    rows
}

fn report(folder: &Path, uses: &[Use], old: &[Vec<String>]) {
    let row = |used: &Use| {
        let from = match used.source {
            Source::Facade => "Ironwarp, under the same name",
            Source::Registry => "crates.io, unchanged",
            Source::Missing(instead) => instead,
        };
        let manifest = used.manifest.strip_prefix(folder).unwrap_or(&used.manifest);
        vec![manifest.display().to_string(), used.package.to_owned(), from.to_owned()]
    };
    let rows: Vec<_> = uses.iter().map(row).collect();
    println!("{}", term::table(&["manifest", "package", "comes from"], 3, &rows));
    if !old.is_empty() {
        println!("\n{}", term::table(&["line", "change"], 2, old));
    }
}

/// The lines for the manifest: one table for crates.io, and one for each repository.
fn patch(uses: &[Use], facades: Facades<'_>) -> String {
    let facade = |package: &str| facades.line(package);
    let direct = |git: Option<&str>| {
        let of = uses.iter().filter(move |used| used.git.as_deref() == git && used.source == Source::Facade);
        of.map(|used| used.package).collect::<BTreeSet<_>>()
    };
    let mut packages = direct(None);
    packages.extend(ALWAYS_PATCHED);
    let mut text = String::from("[patch.crates-io]\n");
    text.extend(packages.into_iter().map(facade));
    let repositories: BTreeSet<&str> = uses.iter().filter_map(|used| used.git.as_deref()).collect();
    for git in repositories {
        text.push_str(&format!("\n[patch.{git:?}]\n"));
        text.extend(direct(Some(git)).into_iter().map(facade));
        let released = uses.iter().filter(|used| used.git.as_deref() == Some(git));
        let released: BTreeSet<_> =
            released.filter(|used| used.source == Source::Registry).map(|used| used.package).collect();
        text.extend(released.into_iter().map(|package| format!("{package} = \"*\"\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_have_patches_of_their_own() {
        let manifest = r#"
            [dependencies]
            cust = { git = "https://github.com/Rust-GPU/Rust-CUDA" }
            serde = "1"
            [build-dependencies]
            cuda_builder = "0.3"
            [target.'cfg(unix)'.dependencies]
            std = { package = "cuda_std", git = "https://github.com/Rust-GPU/Rust-CUDA" }
        "#;
        let mut uses = Vec::new();
        collect(Path::new("Cargo.toml"), &manifest.parse().unwrap(), &mut uses);
        assert_eq!(
            patch(&uses, Facades::Folder(Path::new("/f"))),
            "[patch.crates-io]\ncuda_builder = { path = \"/f/cuda_builder\" }\ncust_core = { path = \"/f/cust_core\" }\n\
             find_cuda_helper = { path = \"/f/find_cuda_helper\" }\n\n\
             [patch.\"https://github.com/Rust-GPU/Rust-CUDA\"]\ncuda_std = { path = \"/f/cuda_std\" }\ncust = \"*\"\n"
        );
    }
}
