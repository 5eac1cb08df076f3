//! The entries of a kernel package's `Cargo.toml` that the builder reads.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::arch::Arch;
use crate::error::BuildError;

/// A kernel package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The `Cargo.toml`, absolute.
    pub path: PathBuf,
    /// Its folder, absolute.
    pub folder: PathBuf,
    /// The library's root file.
    pub root: PathBuf,
    /// Package name.
    pub package: String,
    /// Library name: the family, and the stem of the PTX file.
    pub library: String,
    /// `archs` under `[package.metadata.ironwarp]`: what the package is built for by default.
    pub archs: Vec<Arch>,
    /// `on-request` there: what else it can be built for, when somebody names the architecture.
    pub on_request: Vec<Arch>,
    /// `budget` under `[package.metadata.ironwarp]`: whether its kernels need lines in the budget. Default
    /// true.
    pub budgeted: bool,
    /// `apart` there: by architecture, how the names of the kernels begin that a compiler of their own
    /// compiles, beside the one for the others.
    pub apart: BTreeMap<Arch, Vec<String>>,
}

impl Manifest {
    /// Reads the package in a folder. A relative path starts at `CARGO_MANIFEST_DIR` in a build script,
    /// else at the working folder.
    ///
    /// # Errors
    /// When there is no package, or its manifest does not say what the builder needs.
    pub fn read(folder: &Path) -> Result<Self, BuildError> {
        let base =
            env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).filter(|_| env::var_os("OUT_DIR").is_some());
        let base = base.or_else(|| env::current_dir().ok()).unwrap_or_default();
        let Ok(path) = base.join(folder).join("Cargo.toml").canonicalize() else {
            return Err(BuildError::CratePathDoesntExist { path: folder.to_owned(), base });
        };
        let text = fs::read_to_string(&path).map_err(BuildError::io("read", &path))?;
        Self::parse(path, &text)
    }

    fn parse(path: PathBuf, text: &str) -> Result<Self, BuildError> {
        let bad = |reason: String| BuildError::Manifest { path: path.clone(), reason };
        let table: Table = text.parse().map_err(|error: toml::de::Error| bad(error.to_string()))?;
        let package = table.get("package").and_then(Value::as_table);
        let package = package.ok_or_else(|| {
            bad("has no [package]; pass the folder of one package, not of a workspace".to_owned())
        })?;
        let name = package
            .get("name")
            .and_then(Value::as_str)
            .ok_or_else(|| bad("[package] has no name".to_owned()))?;
        let lib = |key| table.get("lib").and_then(|lib| lib.get(key)).and_then(Value::as_str);
        let library = lib("name");
        let metadata = package.get("metadata").and_then(|metadata| metadata.get("ironwarp"));
        let list = |key: &str| {
            let list = metadata.and_then(|metadata| metadata.get(key));
            list.map_or(Ok(Vec::new()), |list| parse_archs(key, list)).map_err(bad)
        };
        let (archs, on_request) = (list("archs")?, list("on-request")?);
        let budgeted =
            metadata.and_then(|metadata| metadata.get("budget")).and_then(Value::as_bool).unwrap_or(true);
        let apart = metadata.and_then(|metadata| metadata.get("apart"));
        let apart = apart.map_or(Ok(BTreeMap::new()), parse_apart).map_err(bad)?;
        let (package, library) =
            (name.to_owned(), library.map_or_else(|| name.replace('-', "_"), str::to_owned));
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let root = folder.join(lib("path").unwrap_or("src/lib.rs"));
        Ok(Self { path, folder, root, package, library, archs, on_request, budgeted, apart })
    }
}

fn parse_archs(key: &str, value: &Value) -> Result<Vec<Arch>, String> {
    let list = value
        .as_array()
        .ok_or_else(|| format!("metadata.ironwarp.{key}: wanted a list, such as [\"sm_80\", \"sm_90a\"]"))?;
    let parse =
        |item: &Value| item.as_str().unwrap_or_default().parse::<Arch>().map_err(|error| error.to_string());
    list.iter().map(parse).collect()
}

fn parse_apart(value: &Value) -> Result<BTreeMap<Arch, Vec<String>>, String> {
    let wanted = || {
        "metadata.ironwarp.apart: wanted how names of kernels begin, by architecture, such as { sm_90a = [\"gemm_bf16_\"] }".to_owned()
    };
    let is_start = |start: &str| !start.is_empty() && start.chars().all(|c| c.is_alphanumeric() || c == '_');
    let starts = |value: &Value| {
        let starts: Vec<String> =
            value.as_array()?.iter().filter_map(|it| Some(it.as_str()?.to_owned())).collect();
        let are_right = starts.len() == value.as_array()?.len() && starts.iter().all(|start| is_start(start));
        (are_right && !starts.is_empty()).then_some(starts)
    };
    let by_arch = value.as_table().ok_or_else(wanted)?.iter();
    by_arch
        .map(|(arch, value)| {
            let arch: Arch = arch.parse().map_err(|_| wanted())?;
            Ok((arch, starts(value).ok_or_else(wanted)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Manifest, BuildError> {
        Manifest::parse(PathBuf::from("/k/Cargo.toml"), text)
    }

    #[test]
    fn names_archs_and_defaults() {
        let manifest = parse("[package]\nname = \"my-kernels\"\n").unwrap();
        assert_eq!(
            (manifest.library.as_str(), manifest.archs.len(), manifest.budgeted),
            ("my_kernels", 0, true)
        );
        let text = "[package]\nname = \"a\"\n[lib]\nname = \"b\"\n[package.metadata.ironwarp]\narchs = [\"sm_80\", \"sm_90a\"]\non-request = [\"sm_75\"]\nbudget = false";
        let manifest = parse(text).unwrap();
        assert_eq!(manifest.library, "b");
        assert_eq!(manifest.archs.iter().map(Arch::to_string).collect::<Vec<_>>(), ["sm_80", "sm_90a"]);
        assert_eq!(manifest.on_request.iter().map(Arch::to_string).collect::<Vec<_>>(), ["sm_75"]);
        assert!(!manifest.budgeted && manifest.apart.is_empty());
        let text = "[package]\nname = \"a\"\n[package.metadata.ironwarp.apart]\nsm_90a = [\"a_\", \"b_16\"]";
        let apart = parse(text).unwrap().apart;
        assert_eq!(
            apart,
            BTreeMap::from([("sm_90a".parse().unwrap(), vec!["a_".to_owned(), "b_16".to_owned()])])
        );
    }

    #[test]
    fn kernels_apart_are_named_by_architecture() {
        for apart in [
            "[\"a\"]",
            "{ sm_1 = [\"a\"] }",
            "{ sm_90a = \"a\" }",
            "{ sm_90a = [] }",
            "{ sm_90a = [1] }",
            "{ sm_90a = [\"a b\"] }",
            "{ sm_90a = [\"\"] }",
        ] {
            let text = format!("[package]\nname = \"a\"\n[package.metadata.ironwarp]\napart = {apart}");
            let told = parse(&text).unwrap_err().to_string();
            assert!(told.contains("metadata.ironwarp.apart"), "{apart}: {told}");
        }
    }

    #[test]
    fn manifests_that_cannot_be_used() {
        for (text, part) in [
            ("[workspace]\n", "no [package]"),
            ("[package]\n", "no name"),
            ("[package", "Cargo.toml"),
            ("[package]\nname = \"a\"\n[package.metadata.ironwarp]\narchs = \"sm_80\"", "wanted a list"),
            ("[package]\nname = \"a\"\n[package.metadata.ironwarp]\narchs = [80]", "no GPU architecture"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let error = Manifest::read(Path::new("/no/such/kernels")).unwrap_err();
        assert!(matches!(error, BuildError::CratePathDoesntExist { .. }), "{error}");
    }
}
