//! The programs of a bundle: what cargo builds for it, by name.

use std::fs;
use std::path::Path;

use super::{CORPUS, EXAMPLES, Package, TESTED};
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
    /// By its own name in the bundle.
    fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

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

/// The programs whose names contain one of `names`; all of them, if there are none. Cargo is not asked: a
/// wrong name is told at once.
///
/// # Errors
/// When a manifest or folder cannot be read, or no program has a name in its own.
pub fn chosen(names: &[String]) -> Result<Vec<Target>, Error> {
    let mut targets = Vec::new();
    for package in TESTED {
        targets.push(test(package, "unit", &package.name.replace('-', "_"), &["--lib"]));
        let tests = tests_in(&workspace::root().join(package.folder).join("tests"))?;
        targets.extend(tests.iter().map(|own| test(package, own, own, &["--test", own])));
    }
    targets.push(test(&CORPUS.package, CORPUS.program, CORPUS.program, &["--test", CORPUS.program]));
    for (kind, package, of, flag) in [
        (Kind::Bench, Package { name: bench::PACKAGE, folder: bench::FOLDER }, "bench", "--bench"),
        (Kind::Example, EXAMPLES, "bin", "--bin"),
    ] {
        let programs = workspace::listed(package.folder, of)?;
        let target = |own: &String| Target { kind, ..test(&package, own, own, &[flag, own]).named(own) };
        targets.extend(programs.iter().map(target));
    }
    of_names(targets, names)
}

fn test(package: &Package, shown: &str, own: &str, flags: &[&str]) -> Target {
    // Two packages may have a test program of the same name.
    let folder = Path::new(package.folder).file_name().unwrap_or_default().to_string_lossy();
    Target {
        name: format!("{folder}.{shown}"),
        kind: Kind::Test,
        package: package.name.to_owned(),
        own: own.to_owned(),
        flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
    }
}

/// The test programs that cargo finds in a folder: files, and folders with a `main.rs`.
fn tests_in(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io("read", folder))?;
    let name = |path: &Path| {
        let is_program = path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file();
        is_program.then(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
    };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| name(&entry.path())).collect();
    names.sort();
    Ok(names)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Result<Vec<Target>, Error> {
        chosen(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn programs_that_launch_kernels_have_names() {
        let names: Vec<String> = of(&[]).unwrap().into_iter().map(|target| target.name).collect();
        for name in
            ["host.unit", "host.gemm", "driver.unit", "driver.software", "checker.corpus", "gemm", "search"]
        {
            assert!(names.iter().any(|own| own == name), "{name} in {names:?}");
        }
        // Folders without a program.
        assert!(!names.iter().any(|own| own == "host.common" || own == "host.ui"), "{names:?}");
    }

    #[test]
    fn files_of_programs_are_known() {
        let built = |target: &Target, file: &str| target.is_built_as(Path::new(file));
        let [unit, gemm, search] =
            ["host.unit", "host.gemm", "search"].map(|name| of(&[name]).unwrap().remove(0));
        let [unit, gemm, search] = [&unit, &gemm, &search];
        assert!(built(unit, "/t/ironwarp-1a2b") && built(gemm, "/t/gemm-1a2b") && built(search, "/t/search"));
        assert!(!built(gemm, "/t/gemm_grouped-1a2b") && !built(unit, "/t/gemm-1a2b"));
    }

    #[test]
    fn names_choose_what_contains_them() {
        let gemm = of(&["gemm"]).unwrap();
        let names: Vec<&str> = gemm.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["host.gemm", "gemm", "gemm_grouped"]);
        assert_eq!([gemm[0].kind, gemm[1].kind], [Kind::Test, Kind::Bench]);
        assert_eq!(
            (gemm[0].package.as_str(), gemm[0].flags.join(" ")),
            ("ironwarp", "--test gemm".to_owned())
        );
        assert_eq!(of(&["driver"]).unwrap()[0].package, "ironwarp-driver");
        let told = of(&["host.gemm", "serch"]).unwrap_err().to_string();
        assert!(told.contains("serch") && told.contains("search"), "{told}");
    }
}
