//! The programs of a bundle: what cargo builds for it, by name.

use std::path::Path;

use serde_json::Value;

use super::{CORPUS, EXAMPLES, TESTED};
use crate::error::Error;
use crate::{bench, term, workspace};

/// The kind of a program, which has a folder in the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Test,
    Bench,
    Example,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Test, Self::Bench, Self::Example];

    pub fn folder(self) -> &'static str {
        match self {
            Self::Test => "tests",
            Self::Bench => "benches",
            Self::Example => "examples",
        }
    }

    /// How cargo builds it.
    pub fn command(self) -> &'static [&'static str] {
        match self {
            Self::Test => &["test", "--no-run"],
            Self::Bench => &["bench", "--no-run"],
            Self::Example => &["build", "--release"],
        }
    }
}

/// A program of the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// In the bundle.
    pub name: String,
    pub kind: Kind,
    pub package: String,
    /// In its package.
    own: String,
    /// They tell cargo to build it.
    pub flags: Vec<String>,
}

impl Target {
    /// Is this the program's file? Cargo puts a hash behind names of tests and benchmarks, and an underscore
    /// for each hyphen.
    pub fn is_built_as(&self, program: &Path) -> bool {
        let file = program.file_name().unwrap_or_default().to_string_lossy();
        if self.kind == Kind::Example {
            return file == self.own;
        }
        file.rsplit_once('-').is_some_and(|(stem, _)| stem == self.own.replace('-', "_"))
    }
}

/// The programs whose names contain one of `names`; all of them, if there are none.
///
/// # Errors
/// When cargo does not answer, or no program has a name in its own.
pub fn chosen(names: &[String]) -> Result<Vec<Target>, Error> {
    let packages = workspace::cargo_packages()?;
    of_names(packages.iter().flat_map(of_package).collect(), names)
}

fn of_names(targets: Vec<Target>, names: &[String]) -> Result<Vec<Target>, Error> {
    let has = |target: &Target, name: &String| target.name.contains(name.as_str());
    if let Some(name) = names.iter().find(|name| !targets.iter().any(|target| has(target, name))) {
        let known: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        let nearest = term::nearest(name, known.iter().copied());
        return Err(Error::Unknown { what: "program", name: name.clone(), nearest, known: known.join(", ") });
    }
    let is_chosen = |target: &Target| names.is_empty() || names.iter().any(|name| has(target, name));
    Ok(targets.into_iter().filter(is_chosen).collect())
}

fn of_package(package: &Value) -> Vec<Target> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&package["name"]);
    let manifest = text(&package["manifest_path"]);
    let folder =
        Path::new(&manifest).parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let targets = package["targets"].as_array().into_iter().flatten();
    let of = |target: &Value| {
        let (own, is_tested) = (text(&target["name"]), TESTED.contains(&name.as_str()));
        // Two packages may have a test program of the same name.
        let (kind, shown, flags) = match target["kind"][0].as_str()? {
            "lib" if is_tested => (Kind::Test, format!("{folder}.unit"), vec!["--lib".to_owned()]),
            "test" if is_tested || (name.as_str(), own.as_str()) == (CORPUS.package, CORPUS.program) => {
                (Kind::Test, format!("{folder}.{own}"), vec!["--test".to_owned(), own.clone()])
            }
            "bench" if name == bench::PACKAGE => {
                (Kind::Bench, own.clone(), vec!["--bench".to_owned(), own.clone()])
            }
            "bin" if name == EXAMPLES => (Kind::Example, own.clone(), vec!["--bin".to_owned(), own.clone()]),
            _ => return None,
        };
        Some(Target { name: shown, kind, package: name.clone(), own, flags })
    };
    targets.filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Vec<Target> {
        let target = |kind: &str, name: &str| serde_json::json!({ "kind": [kind], "name": name });
        let package = |name: &str, folder: &str, targets: &[Value]| {
            let manifest = format!("/w/{folder}/Cargo.toml");
            of_package(&serde_json::json!({ "name": name, "manifest_path": manifest, "targets": targets }))
        };
        [
            package("ironwarp", "host", &[target("lib", "ironwarp"), target("test", "gemm")]),
            package("ironwarp-reference", "crates/reference", &[target("test", "gemm")]),
            package(bench::PACKAGE, "benches", &[target("lib", "x"), target("bench", "gemm")]),
            package(EXAMPLES, "examples", &[target("bin", "search"), target("test", "hostile")]),
            package(CORPUS.package, "checker", &[target("test", CORPUS.program), target("test", "seeds")]),
        ]
        .concat()
    }

    #[test]
    fn programs_that_launch_kernels_have_names() {
        let names: Vec<String> = targets().into_iter().map(|target| target.name).collect();
        assert_eq!(names, ["host.unit", "host.gemm", "gemm", "search", "checker.corpus"]);
    }

    #[test]
    fn files_of_programs_are_known() {
        let built = |target: &Target, file: &str| target.is_built_as(Path::new(file));
        let [unit, gemm, .., search, _] = &targets()[..] else { panic!() };
        assert!(built(unit, "/t/ironwarp-1a2b") && built(gemm, "/t/gemm-1a2b") && built(search, "/t/search"));
        assert!(!built(gemm, "/t/gemm_grouped-1a2b") && !built(unit, "/t/gemm-1a2b"));
    }

    #[test]
    fn names_choose_what_contains_them() {
        let chosen = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            of_names(targets(), &names)
        };
        let gemm = chosen(&["gemm"]).unwrap();
        assert_eq!(gemm.iter().map(|target| target.kind).collect::<Vec<_>>(), [Kind::Test, Kind::Bench]);
        assert_eq!(
            (gemm[0].package.as_str(), gemm[0].flags.join(" ")),
            ("ironwarp", "--test gemm".to_owned())
        );
        assert_eq!(chosen(&[]).unwrap(), targets());
        let told = chosen(&["host.gemm", "serch"]).unwrap_err().to_string();
        assert!(told.contains("serch") && told.contains("search"), "{told}");
    }
}
