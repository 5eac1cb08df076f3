//! The packages' manifests: their allowed dependencies, and that each says what the package is.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::broken::Broken;
use crate::error::Error;

/// The library packages by folder, with all that they may depend on inside the workspace. The host package,
/// the benches and packages of kernels have rules of their own.
const ALLOWED: &[(&str, &[&str])] = &[
    ("crates/simt", &["num", "layout"]),
    ("crates/num", &[]),
    ("crates/layout", &[]),
    ("crates/archive", &[]),
    ("crates/arena", &[]),
    ("crates/rendezvous", &[]),
    ("crates/checkpoint", &[]),
    ("crates/cuda_std", &["simt", "num", "layout", "cuda_std_macros"]),
    ("crates/cuda_std_macros", &[]),
    ("crates/primitives", &["cuda_std", "num", "layout"]),
    ("crates/cuda_builder", &[]),
    ("crates/cli", &["cuda_builder", "driver", "rendezvous"]),
    ("crates/driver", &["simt"]),
    ("crates/reference", &["num"]),
    ("crates/testkit", &["num"]),
    ("crates/fake_nccl", &["num"]),
    ("crates/safe_tests", &[]),
    ("examples", &["ironwarp", "similarity"]),
    ("xtask", &["cuda_builder", "archive", "ironwarp-cli"]),
];
const KERNELS_MAY: &[&str] = &["cuda_std", "primitives", "num", "layout"];
/// Kernels built on those of another package: the main loop of gemm, and attention with a score function.
const KERNELS_ON: [(&str, &str); 3] = [
    ("kernels-gpu/conv", "gemm"),
    ("kernels-gpu/similarity", "gemm"),
    ("kernels-gpu/conformance", "attention"),
];
const HOST_MAY: &[&str] =
    &["driver", "cuda_std", "primitives", "num", "layout", "archive", "arena", "rendezvous", "checkpoint"];

/// Reads every manifest of the workspace and checks its dependencies.
pub fn check(root: &Path) -> Result<Vec<String>, Error> {
    let mut manifests = Vec::new();
    for parent in ["crates", "kernels-gpu"] {
        let folder = root.join(parent);
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))?.flatten() {
            manifests.push(format!("{parent}/{}", entry.file_name().to_string_lossy()));
        }
    }
    manifests.extend(["host", "examples", "benches", "xtask"].map(str::to_owned));
    manifests.retain(|folder| root.join(folder).join("Cargo.toml").is_file());
    manifests.sort();
    let families: Vec<&str> =
        manifests.iter().filter_map(|folder| folder.strip_prefix("kernels-gpu/")).collect();
    let workspace = read(&root.join("Cargo.toml"))?;
    let ours = own_names(&workspace);
    let mut findings = Vec::new();
    for folder in &manifests {
        let manifest = read(&root.join(folder).join("Cargo.toml"))?;
        findings.extend(check_one(folder, &manifest, &ours, &families));
        findings.extend(check_description(folder, &manifest));
    }
    Ok(findings)
}

fn read(path: &Path) -> Result<Table, Error> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    text.parse()
        .map_err(|error: toml::de::Error| Broken::Tidy(vec![format!("{}: {error}", path.display())]).into())
}

/// Names under which the workspace's own packages are depended on.
fn own_names(workspace: &Table) -> Vec<String> {
    let dependencies =
        workspace.get("workspace").and_then(|table| table.get("dependencies")).and_then(Value::as_table);
    let own = dependencies.into_iter().flatten().filter(|(_, value)| value.get("path").is_some());
    own.map(|(name, _)| name.clone()).collect()
}

fn check_one(folder: &str, manifest: &Table, ours: &[String], families: &[&str]) -> Vec<String> {
    let allowed: Vec<&str> = if folder.starts_with("kernels-gpu/") {
        let others = KERNELS_ON.iter().filter(|(of, _)| folder == *of).map(|(_, on)| *on);
        KERNELS_MAY.iter().copied().chain(others).collect()
    } else if folder == "host" {
        HOST_MAY.iter().chain(families).copied().collect()
    } else if folder == "benches" {
        return Vec::new();
    } else {
        match ALLOWED.iter().find(|(name, _)| *name == folder) {
            Some((_, allowed)) => allowed.to_vec(),
            None => {
                return vec![format!(
                    "{folder}/Cargo.toml: no rule says what this package may depend on; add one to ARCHITECTURE.md and to tidy"
                )];
            }
        }
    };
    let used = dependencies(manifest);
    let own = used.iter().filter(|name| ours.contains(name) && !allowed.contains(&name.as_str()));
    let mut findings: Vec<String> = own
        .map(|name| {
            format!("{folder}/Cargo.toml: depends on `{name}`; may depend on: {}", allowed.join(", "))
        })
        .collect();
    if folder == "crates/simt" {
        let cuda = used.iter().filter(|name| name.starts_with("cust") || name.contains("cuda"));
        findings.extend(cuda.map(|name| {
            format!("{folder}/Cargo.toml: depends on `{name}`; the executor knows nothing of CUDA")
        }));
    }
    findings
}

/// A registry takes no package without one.
fn check_description(folder: &str, manifest: &Table) -> Option<String> {
    let text = manifest.get("package").and_then(|package| package.get("description")?.as_str());
    let is_missing = text.is_none_or(|text| text.trim().is_empty());
    is_missing.then(|| format!("{folder}/Cargo.toml: no description; wanted a line under [package]"))
}

/// Names under `[dependencies]` and `[build-dependencies]`, for any target. What tests use is their affair.
fn dependencies(manifest: &Table) -> Vec<String> {
    let targets = manifest
        .get("target")
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
        .filter_map(|(_, value)| value.as_table());
    let tables = std::iter::once(manifest).chain(targets);
    let sections =
        tables.flat_map(|table| ["dependencies", "build-dependencies"].map(|section| table.get(section)));
    let names = sections.flatten().filter_map(Value::as_table).flat_map(|section| section.keys().cloned());
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(folder: &str, manifest: &str) -> Vec<String> {
        let ours =
            ["simt", "num", "layout", "cuda_std", "basic", "gemm", "driver", "ironwarp"].map(str::to_owned);
        check_one(folder, &manifest.parse().unwrap(), &ours, &["basic", "gemm"])
    }

    #[test]
    fn forbidden_edges_are_found() {
        for (folder, manifest) in [
            ("kernels-gpu/basic", "[dependencies]\ngemm.workspace = true"),
            ("kernels-gpu/similarity", "[dependencies]\nbasic.workspace = true"),
            ("kernels-gpu/basic", "[target.'cfg(unix)'.dependencies]\nironwarp.workspace = true"),
            ("crates/reference", "[dependencies]\nlayout.workspace = true"),
            ("crates/simt", "[dependencies]\ncust = \"0.3\""),
            ("crates/driver", "[build-dependencies]\nnum.workspace = true"),
            ("xtask", "[dependencies]\nironwarp.workspace = true"),
            ("crates/novel", ""),
        ] {
            assert_eq!(findings(folder, manifest).len(), 1, "{folder}: {manifest}");
        }
    }

    #[test]
    fn packages_without_a_description_are_found() {
        let finds = |manifest: &str| check_description("host", &manifest.parse().unwrap()).is_some();
        assert!(finds("[package]") && finds("[package]\ndescription = \" \"") && finds(""));
        assert!(!finds("[package]\ndescription = \"a host\""));
    }

    #[test]
    fn allowed_edges_pass() {
        for (folder, manifest) in [
            (
                "kernels-gpu/basic",
                "[dependencies]\ncuda_std.workspace = true\nlibm = \"0.2\"\n[dev-dependencies]\ngemm.workspace = true",
            ),
            (
                "host",
                "[dependencies]\ndriver.workspace = true\nbasic.workspace = true\ngemm.workspace = true",
            ),
            ("benches", "[dependencies]\nironwarp.workspace = true"),
            ("kernels-gpu/similarity", "[dependencies]\ncuda_std.workspace = true\ngemm.workspace = true"),
        ] {
            assert_eq!(findings(folder, manifest), Vec::<String>::new(), "{folder}");
        }
    }
}
