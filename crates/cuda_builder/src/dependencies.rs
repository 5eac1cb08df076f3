//! The packages that a kernel package depends on, and the attributes that each lacks.
//!
//! A package for the device has no `std` and uses features of the language that are not stable. Rust-CUDA's
//! compiler needs no attributes for that, so packages written for it have none, and neither have those that
//! they depend on. The builder adds what a package does not say itself: said twice, a feature is an error.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::toolchain::SHARED_OBJECT;

/// Features that the device library and the kernel macro expand to.
const FEATURES: [&str; 3] = ["abi_ptx", "asm_experimental_arch", "stdarch_nvptx"];
/// Library name of the device library, which says everything itself.
const DEVICE_LIBRARY: &str = "cuda_std";

/// A package that the kernel package depends on, directly or not, on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Cargo's name for it, unique in the build.
    pub id: String,
    /// rustc's arguments with the attributes that it lacks.
    pub attributes: Vec<String>,
}

impl Dependency {
    /// Cargo's setting that gives this package its arguments in a profile.
    pub fn setting(&self, profile: &str) -> String {
        let quoted: Vec<String> = self.attributes.iter().map(|argument| format!("\"{argument}\"")).collect();
        format!("profile.{profile}.package.\"{}\".rustflags=[{}]", self.id, quoted.join(","))
    }
}

/// The arguments that give a library's root file the attributes that it does not have itself. With
/// `features`, those that kernels need as well.
pub fn attributes(root: &Path, features: bool) -> Vec<String> {
    let text = fs::read_to_string(root).unwrap_or_default();
    let says = |word: &str| {
        text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| line.contains(word))
    };
    let mut arguments = Vec::new();
    let lacking: Vec<&str> = FEATURES.into_iter().filter(|feature| features && !says(feature)).collect();
    if !lacking.is_empty() {
        arguments.push(format!("-Zcrate-attr=feature({})", lacking.join(",")));
    }
    if !says("no_std") {
        arguments.push("-Zcrate-attr=no_std".to_owned());
    }
    arguments
}

/// The packages that a module is made from, besides the kernel package itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Those that lack attributes.
    pub lacking: Vec<Dependency>,
    /// The names of those of a registry or a git repository, which the lock file pins; `None` if cargo did
    /// not tell.
    pub locked: Option<BTreeSet<String>>,
    /// Whether the compiler's object in shared memory is the device library's alone: no other package names
    /// the feature that gives it.
    pub shared_object_is_free: bool,
}

/// Reads what `cargo metadata` prints about the package whose manifest this is.
///
/// # Errors
/// A sentence when the text is not what cargo prints.
pub fn read(metadata: &str, manifest: &Path) -> Result<Dependencies, String> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|error| error.to_string())?;
    let packages = list(&metadata, "packages");
    let nodes = metadata.get("resolve").map_or(&[][..], |resolve| list(resolve, "nodes"));
    let root = packages
        .iter()
        .find(|package| text(package, "manifest_path").is_some_and(|path| Path::new(path) == manifest))
        .and_then(|package| text(package, "id"))
        .ok_or_else(|| format!("{} is not among its packages", manifest.display()))?;
    let used = reachable(nodes, root);
    // A package that knows the device library may hold kernels.
    let knows_device = |id: &str| {
        reachable(nodes, id)
            .iter()
            .any(|id| package(packages, id).and_then(library).is_some_and(|(name, _)| name == DEVICE_LIBRARY))
    };
    let dependency = |id: &&str| {
        let (name, path) = library(package(packages, id)?)?;
        let is_lacking = name != DEVICE_LIBRARY && **id != *root;
        let attributes = if is_lacking { attributes(&path, knows_device(id)) } else { Vec::new() };
        (!attributes.is_empty()).then(|| Dependency { id: (*id).to_owned(), attributes })
    };
    let locked = used.iter().filter_map(|id| package(packages, id)).filter(|it| text(it, "source").is_some());
    let names_object = |id: &&str| {
        let root = package(packages, id).and_then(library).filter(|(name, _)| *name != DEVICE_LIBRARY);
        root.is_some_and(|(_, path)| fs::read_to_string(path).is_ok_and(|text| text.contains(SHARED_OBJECT)))
    };
    Ok(Dependencies {
        shared_object_is_free: !used.iter().any(names_object),
        lacking: used.iter().filter_map(dependency).collect(),
        locked: Some(locked.filter_map(|it| Some(text(it, "name")?.to_owned())).collect()),
    })
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn package<'v>(packages: &'v [Value], id: &str) -> Option<&'v Value> {
    packages.iter().find(|package| text(package, "id") == Some(id))
}

/// Name and root file of a package's library. Macros run on the host and have none here.
fn library(package: &Value) -> Option<(&str, PathBuf)> {
    let is_library = |target: &&Value| {
        list(target, "kind")
            .iter()
            .any(|kind| matches!(kind.as_str(), Some("lib" | "rlib" | "cdylib" | "dylib")))
    };
    let target = list(package, "targets").iter().find(is_library)?;
    Some((text(target, "name")?, PathBuf::from(text(target, "src_path")?)))
}

/// A package and what it depends on, without what only builds or tests it.
fn reachable<'v>(nodes: &'v [Value], root: &'v str) -> BTreeSet<&'v str> {
    let mut found = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        let node = nodes.iter().find(|node| text(node, "id") == Some(id));
        for dependency in node.map_or(&[][..], |node| list(node, "deps")) {
            let is_normal =
                list(dependency, "dep_kinds").iter().any(|kind| kind.get("kind").is_none_or(Value::is_null));
            if let Some(id) = text(dependency, "pkg").filter(|id| is_normal && !found.contains(id)) {
                found.insert(id);
                open.push(id);
            }
        }
    }
    found
}
