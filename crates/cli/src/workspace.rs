//! Where things are: a workspace, its packages with kernels, and the folders that results go to.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cuda_builder::{Arch, Manifest};
use serde_json::Value;

use crate::commands::Program;
use crate::error::Error;
use crate::{process, term};

/// A workspace with kernels, and the program that was called for it.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The program that messages name.
    pub program: Program,
    /// The folder of the workspace.
    pub root: PathBuf,
    /// The folder that results go to.
    pub target: PathBuf,
    /// The packages that may have kernels.
    pub packages: Packages,
}

/// Where packages with kernels are looked for.
#[derive(Debug, Clone)]
pub enum Packages {
    /// In the folders of this one.
    Below(PathBuf),
    /// In these folders.
    These(Vec<PathBuf>),
}

/// Compilers fail in obscure ways where the current folder has been removed.
///
/// # Errors
/// When it has.
pub fn check_current_folder() -> Result<(), Error> {
    current_folder().map(drop)
}

/// The folder that the program was called in.
///
/// # Errors
/// When it has been removed.
pub fn current_folder() -> Result<PathBuf, Error> {
    env::current_dir().map_err(Error::NoCurrentFolder)
}

/// File name of a family's module for an architecture.
pub fn ptx_name(family: &str, arch: Arch) -> String {
    format!("{family}.{arch}.ptx")
}

/// The modules of a family that are in a folder, by architecture.
pub fn modules(folder: &Path, family: &str) -> Vec<(Arch, PathBuf)> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let modules = files.filter_map(|path| {
        let name = path.file_name()?.to_str()?;
        let arch = name.strip_prefix(family)?.strip_prefix('.')?.strip_suffix(".ptx")?;
        Some((arch.parse().ok()?, path))
    });
    let mut modules: Vec<_> = modules.collect();
    modules.sort();
    modules
}

impl Workspace {
    /// The project around the current folder, as Cargo sees it.
    ///
    /// # Errors
    /// When there is none, or Cargo cannot read it.
    pub fn current(program: Program) -> Result<Self, Error> {
        let mut command = process::cargo(&current_folder()?);
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        let output = command.stdin(Stdio::null()).output().map_err(process::cannot_run(&command))?;
        let bad = |reason: String| Error::NoProject { program: program.name, reason };
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let text = text.trim();
            let reason = if text.is_empty() { output.status.to_string() } else { text.to_owned() };
            return Err(bad(reason.trim_start_matches("error: ").to_owned()));
        }
        let answer = serde_json::from_slice(&output.stdout).map_err(|error| bad(error.to_string()))?;
        Self::from_metadata(program, &answer)
            .ok_or_else(|| bad("`cargo metadata` names no packages".to_owned()))
    }

    fn from_metadata(program: Program, answer: &Value) -> Option<Self> {
        let folder = |key: &str| answer.get(key)?.as_str().map(PathBuf::from);
        let packages = answer.get("packages")?.as_array()?.iter().filter_map(|package| {
            Path::new(package.get("manifest_path")?.as_str()?).parent().map(Path::to_owned)
        });
        let packages = Packages::These(packages.collect());
        Some(Self { program, root: folder("workspace_root")?, target: folder("target_directory")?, packages })
    }

    /// Where finished PTX goes.
    pub fn ptx_dir(&self) -> PathBuf {
        self.target.join("ptx")
    }

    /// Build folder of the device compiler.
    pub fn device_dir(&self) -> PathBuf {
        self.target.join("device")
    }

    /// The folder of the assembler's reports on a module. Not beside the module: the folder with the PTX is
    /// watched.
    pub fn report_dir(&self, family: &str, arch: Arch) -> PathBuf {
        self.device_dir().join("reports").join(format!("{family}.{arch}"))
    }

    /// Packages with kernels for the GPU, by name: those that list architectures.
    ///
    /// # Errors
    /// When a manifest cannot be read.
    pub fn families(&self) -> Result<Vec<Manifest>, Error> {
        let mut families = Vec::new();
        for folder in self.packages.folders()? {
            families.push(Manifest::read(&folder)?);
        }
        families.retain(|family| !family.archs.is_empty());
        families.sort_by(|a, b| a.library.cmp(&b.library));
        Ok(families)
    }
}

impl Packages {
    /// The folders of the packages.
    ///
    /// # Errors
    /// When the folder around them cannot be read.
    pub fn folders(&self) -> Result<Vec<PathBuf>, Error> {
        match self {
            Self::These(folders) => Ok(folders.clone()),
            Self::Below(folder) => {
                let entries = fs::read_dir(folder).map_err(Error::io("read", folder))?.flatten();
                let folders = entries.map(|entry| entry.path());
                Ok(folders.filter(|folder| folder.join("Cargo.toml").is_file()).collect())
            }
        }
    }
}

/// The name of a family's folder: what people call it. Its library's name may have a prefix.
fn folder_name(family: &Manifest) -> &str {
    family.folder.file_name().and_then(|name| name.to_str()).unwrap_or(&family.library)
}

fn is_called(family: &Manifest, name: &str) -> bool {
    family.library == name || folder_name(family) == name
}

/// Whether a source file in this folder or below it has the word. What cannot be read has none.
fn has_word(folder: &Path, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            return has_word(&entry.path(), word);
        }
        let text = fs::read(entry.path()).unwrap_or_default();
        String::from_utf8_lossy(&text).split(|c| !is_word(c)).any(|found| found == word)
    })
}

/// The functions that the sources of a package mark as kernels, by name.
pub fn marked_kernels(package: &Manifest) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    add_kernels(&package.folder.join("src"), &mut names);
    names
}

/// Adds the names of functions that are marked `#[kernel]`, in the source files of this folder and below it.
fn add_kernels(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_kernels(&entry.path(), names);
            continue;
        }
        let text = fs::read(entry.path()).unwrap_or_default();
        let is_word = |c: char| c.is_alphanumeric() || "_#[$".contains(c);
        let text = String::from_utf8_lossy(&text);
        let (mut is_marked, mut is_name) = (false, false);
        for word in text.split(|c| !is_word(c)).filter(|word| !word.is_empty()) {
            // A macro's own `$name` is none.
            if is_name && is_marked && !word.contains('$') {
                names.insert(word.to_owned());
            }
            is_marked = word == "#[kernel" || is_marked && !is_name;
            is_name = word == "fn";
        }
    }
}

/// Which of the families and architectures a command is about.
#[derive(Debug, Default, Clone)]
pub struct Selection {
    /// Names of families, or of their folders; empty for all.
    pub families: Vec<String>,
    /// Architectures; empty for all that a family lists.
    pub archs: Vec<Arch>,
    /// Whether that includes those which a family is built for on request alone. Naming one is a request.
    pub on_request: bool,
}

impl Selection {
    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.families.is_empty() && self.archs.is_empty()
    }

    /// Adds a comma-separated list of architectures.
    ///
    /// # Errors
    /// When one of them is none.
    pub fn add_archs(&mut self, list: &str) -> Result<(), Error> {
        for name in list.split(',') {
            self.archs.push(
                name.parse()
                    .map_err(|error: cuda_builder::ParseArchError| Error::Usage(error.to_string()))?,
            );
        }
        Ok(())
    }

    /// Adds a comma-separated list of families.
    pub fn add_families(&mut self, list: &str) {
        self.families.extend(list.split(',').map(str::to_owned));
    }

    /// The part of the selection whose sources have this word; `None` if that is nothing, or all of it.
    ///
    /// # Errors
    /// As [`Selection::resolve`].
    pub fn naming(&self, word: &str, workspace: &Workspace) -> Result<Option<Self>, Error> {
        let pairs = self.resolve(workspace)?;
        let libraries = |has: &dyn Fn(&Manifest) -> bool| {
            let mut names: Vec<String> = pairs
                .iter()
                .filter(|(manifest, _)| has(manifest))
                .map(|(manifest, _)| manifest.library.clone())
                .collect();
            names.dedup();
            names
        };
        let families = libraries(&|manifest| has_word(&manifest.folder.join("src"), word));
        let is_part = !families.is_empty() && families.len() < libraries(&|_| true).len();
        Ok(is_part.then(|| Self { families, ..self.clone() }))
    }

    /// The kernels that sources and PTX of the selection name, or `None` where a source has this word, marked
    /// as a kernel or not. Builds nothing.
    ///
    /// # Errors
    /// As [`Selection::resolve`].
    pub fn kernels_without(&self, word: &str, workspace: &Workspace) -> Result<Option<Vec<String>>, Error> {
        let mut names = BTreeSet::new();
        for (manifest, arch) in self.resolve(workspace)? {
            if has_word(&manifest.folder.join("src"), word) {
                return Ok(None);
            }
            names.extend(marked_kernels(&manifest));
            let ptx = workspace.ptx_dir().join(ptx_name(&manifest.library, arch));
            let text = fs::read_to_string(ptx).unwrap_or_default();
            let entries = text.split(".entry ").skip(1).filter_map(|rest| rest.split(['(', '\n']).next());
            names.extend(entries.map(|name| name.trim().to_owned()));
        }
        Ok((!names.contains(word)).then(|| names.into_iter().collect()))
    }

    /// The pairs that are meant.
    ///
    /// # Errors
    /// When a name is unknown, or nothing is left.
    pub fn resolve(&self, workspace: &Workspace) -> Result<Vec<(Manifest, Arch)>, Error> {
        let all = workspace.families()?;
        if all.is_empty() {
            return Err(Error::NoKernels { root: workspace.root.clone() });
        }
        for name in &self.families {
            if !all.iter().any(|family| is_called(family, name)) {
                let known: Vec<&str> = all.iter().map(|family| family.library.as_str()).collect();
                let nearest = term::nearest(name, all.iter().map(folder_name).chain(known.iter().copied()));
                return Err(Error::Unknown {
                    what: "kernel family",
                    name: name.clone(),
                    nearest,
                    known: known.join(", "),
                });
            }
        }
        let named = |family: &Manifest| self.families.iter().any(|name| is_called(family, name));
        let wanted = |family: &&Manifest| self.families.is_empty() || named(family);
        let requested = self.on_request || !self.archs.is_empty();
        let archs_of = |family: &Manifest| {
            let more = if requested { &family.on_request[..] } else { &[] };
            [&family.archs, more].concat()
        };
        let pairs = all
            .iter()
            .filter(wanted)
            .flat_map(|family| archs_of(family).into_iter().map(move |arch| (family.clone(), arch)));
        let pairs: Vec<_> =
            pairs.filter(|(_, arch)| self.archs.is_empty() || self.archs.contains(arch)).collect();
        if pairs.is_empty() {
            let mut known: Vec<String> = all
                .iter()
                .flat_map(|family| family.archs.iter().chain(&family.on_request))
                .map(Arch::to_string)
                .collect();
            known.sort();
            known.dedup();
            let name = self.archs.iter().map(Arch::to_string).collect::<Vec<_>>().join(",");
            let known = format!(
                "{} (listed under [package.metadata.ironwarp] in the Cargo.toml of the kernels)",
                known.join(", ")
            );
            return Err(Error::Unknown { what: "family for architecture", name, nearest: None, known });
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace of families with these sources.
    fn workspace(folder: &Path, families: &[(&str, &str)]) -> Workspace {
        for (name, source) in families {
            let package = folder.join(name);
            fs::create_dir_all(package.join("src/deep")).unwrap();
            let manifest = format!(
                "[package]\nname = \"{name}\"\n[package.metadata.ironwarp]\narchs = [\"sm_80\", \"sm_90a\"]\non-request = [\"sm_75\"]\n"
            );
            fs::write(package.join("Cargo.toml"), manifest).unwrap();
            fs::write(package.join("src/deep/kernels.rs"), source).unwrap();
        }
        let program = Program { name: "ironwarp", version: None };
        let packages = Packages::Below(folder.to_owned());
        Workspace { program, root: folder.to_owned(), target: folder.join("target"), packages }
    }

    #[test]
    fn one_kernel_needs_the_families_that_name_it() {
        let folder = tempfile::tempdir().unwrap();
        let families =
            [("a", "unsafe fn blur(x: f32)"), ("b", "fn blur_rows() {}"), ("c", "table! { sharpen }")];
        let workspace = workspace(folder.path(), &families);
        let named = |selection: &Selection, word| {
            selection.naming(word, &workspace).unwrap().map(|part| part.families)
        };
        let all = Selection::default();
        assert_eq!(named(&all, "blur"), Some(vec!["a".to_owned()]));
        assert_eq!(named(&all, "sharpen"), Some(vec!["c".to_owned()]));
        assert_eq!(named(&all, "blu"), None);
        assert_eq!(named(&all, "fn"), Some(vec!["a".to_owned(), "b".to_owned()]));
        let mut only_b = Selection::default();
        only_b.add_families("b");
        assert_eq!((named(&only_b, "blur"), named(&only_b, "blur_rows")), (None, None));
    }

    #[test]
    fn kernels_are_known_before_they_are_built() {
        let folder = tempfile::tempdir().unwrap();
        let source = "use cuda_std::kernel;\nfn other() {}\n#[kernel(launch_bounds(8))]\npub unsafe fn blur(x: f32) {\n\
                      helper() }\nfn helper() {}\n#[kernel] fn $name; table! { #[kernel] fn a as B; }";
        let workspace = workspace(folder.path(), &[("a", source)]);
        fs::create_dir_all(workspace.ptx_dir()).unwrap();
        fs::write(workspace.ptx_dir().join("a.sm_80.ptx"), ".visible .entry made_by_a_macro(\n)").unwrap();
        let known = |word| Selection::default().kernels_without(word, &workspace).unwrap();
        assert_eq!(known("blurr"), Some(["a", "blur", "made_by_a_macro"].map(str::to_owned).to_vec()));
        for named in ["blur", "helper", "made_by_a_macro"] {
            assert_eq!(known(named), None, "{named}");
        }
    }

    #[test]
    fn modules_are_those_of_the_family() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.sm_90a.ptx", "a.sm_80.ptx", "ab.sm_80.ptx", "a.sm_80.ptx.tmp", "a.new.ptx", "a.ptx"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found: Vec<_> =
            modules(folder.path(), "a").into_iter().map(|(arch, path)| (arch.to_string(), path)).collect();
        let wanted = ["sm_80", "sm_90a"];
        assert_eq!(found, wanted.map(|arch| (arch.to_owned(), folder.path().join(format!("a.{arch}.ptx")))));
        assert!(modules(&folder.path().join("none"), "a").is_empty());
    }

    #[test]
    fn what_is_built_on_request_has_to_be_named() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(folder.path(), &[("a", "")]);
        let archs = |selection: &Selection| {
            let pairs = selection.resolve(&workspace).unwrap();
            pairs.iter().map(|(_, arch)| arch.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(archs(&Selection::default()), ["sm_80", "sm_90a"]);
        let everything = Selection { on_request: true, ..Selection::default() };
        assert_eq!(archs(&everything), ["sm_80", "sm_90a", "sm_75"]);
        let mut turing = Selection::default();
        turing.add_archs("sm_75").unwrap();
        assert_eq!(archs(&turing), ["sm_75"]);
        turing.archs.clear();
        turing.add_archs("sm_70").unwrap();
        assert!(turing.resolve(&workspace).is_err());
    }
}
