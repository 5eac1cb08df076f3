//! Workspaces of Cargo's around a folder.

use std::fs;
use std::path::{Component, Path, PathBuf};

use toml::{Table, Value};

/// A workspace whose root is above a folder.
pub struct Around {
    /// Its manifest.
    pub manifest: PathBuf,
    /// The patterns of its `members`.
    members: Vec<String>,
}

/// The workspaces around an absolute path, the innermost first, without those that exclude it.
pub fn workspaces(folder: &Path) -> impl Iterator<Item = Around> + '_ {
    folder.ancestors().skip(1).filter_map(move |around| {
        let manifest = around.join("Cargo.toml");
        // Cargo itself does not look at a manifest that is none.
        let table: Table = fs::read_to_string(&manifest).ok()?.parse().ok()?;
        let workspace = table.get("workspace")?;
        let paths = |key: &str| {
            let paths = workspace.get(key).and_then(Value::as_array).into_iter().flatten();
            paths.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let is_excluded = paths("exclude").iter().any(|path| folder.starts_with(around.join(path)));
        (!is_excluded).then(|| Around { manifest, members: paths("members") })
    })
}

impl Around {
    /// The pattern among `members` that may mean this folder: as many names as its path has below the
    /// workspace, of which those without a wildcard are the same.
    pub fn member(&self, folder: &Path) -> Option<&str> {
        let path = folder.strip_prefix(self.manifest.parent()?).ok()?;
        self.members.iter().map(String::as_str).find(|pattern| may_mean(pattern, path))
    }
}

fn may_mean(pattern: &str, path: &Path) -> bool {
    let names = |path| Path::components(path).filter(|name| *name != Component::CurDir).collect::<Vec<_>>();
    let (pattern, path) = (names(Path::new(pattern)), names(path));
    let is_any = |name: &Component<'_>| name.as_os_str().to_string_lossy().contains(['*', '?', '[']);
    let matches = |(name, wanted): (&Component<'_>, &Component<'_>)| is_any(wanted) || name == wanted;
    let is_deep = pattern.iter().any(|name| name.as_os_str() == "**");
    (is_deep || path.len() == pattern.len())
        && path.iter().zip(pattern.iter().take_while(|name| name.as_os_str() != "**")).all(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_members() {
        for (pattern, path, is_meant) in [
            ("crates/*", "crates/blur", true),
            ("./crates/*/", "crates/blur", true),
            ("crates/*", "tools/blur", false),
            ("crates/*", "crates/deep/blur", false),
            ("crates", "crates/blur", false),
            ("*", "blur", true),
            ("b?ur", "blur", true),
            ("tools/**", "tools/deep/blur", true),
            ("tools/**", "crates/blur", false),
            ("**/kernels", "a/b/blur", true),
            ("blur", "blur", true),
            (".", "blur", false),
        ] {
            assert_eq!(may_mean(pattern, Path::new(path)), is_meant, "{pattern} and {path}");
        }
    }
}
