//! The invariants of ARCHITECTURE.md as checks. Each check is a function over file contents, and its tests
//! prove that it can fail.

mod code;
mod contracts;
mod dependencies;
mod docs;
mod kernels;
mod layers;
mod prose;
mod rules;

use std::fs;
use std::path::Path;

use crate::broken::Broken;
use crate::error::{Error, plural};
use crate::term::{Style, style};
use crate::workspace;

pub const HELP: &str = "
Checks what neither compiler nor linter can: where assembly and driver calls may stand, how long files are, that
unsafe code says why it is sound and unsafe functions what they ask, which package may depend on which and which
module of the host package on which, that every kernel has an op, an oracle, a test, a bench row and a budget
line, that comments are short and plain, and that the documents' links lead somewhere and the book leaves nothing
out.

Usage: cargo xtask tidy

Examples:
  cargo xtask tidy
";

/// A Rust file of the workspace.
pub struct Source {
    /// Path from the workspace's folder, with `/`.
    pub path: String,
    /// The text as it is.
    pub text: String,
    /// The text with comments and literals blanked out, line by line as long as before.
    pub code: String,
}

impl Source {
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { path: path.into(), code: code::without_literals(&text), text }
    }
}

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    if let Some(arg) = args.next()? {
        return Err(arg.unexpected().into());
    }
    check()
}

/// Runs every check over the workspace.
///
/// # Errors
/// With every finding, when there are any.
pub fn check() -> Result<(), Error> {
    let sources = read_sources()?;
    let mut findings = Vec::new();
    findings.extend(rules::check(&sources));
    findings.extend(contracts::check(&sources));
    findings.extend(prose::check(&sources));
    findings.extend(layers::check(&sources));
    findings.extend(dependencies::check(workspace::root())?);
    findings.extend(kernels::check(&sources, workspace::root())?);
    findings.extend(docs::check(&sources, workspace::root())?);
    if !findings.is_empty() {
        findings.sort();
        return Err(Broken::Tidy(findings).into());
    }
    println!("{} {}", style(Style::Ok, "tidy:"), plural(sources.len(), "file"));
    Ok(())
}

pub fn read_sources() -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    for folder in ["benches", "crates", "examples", "host", "kernels-gpu", "xtask"] {
        collect(&workspace::root().join(folder), &mut sources)?;
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn collect(folder: &Path, sources: &mut Vec<Source>) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))?.flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
            let relative = path.strip_prefix(workspace::root()).unwrap_or(&path);
            sources.push(Source::new(relative.to_string_lossy().replace('\\', "/"), text));
        }
    }
    Ok(())
}
