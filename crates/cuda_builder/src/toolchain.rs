//! Finding the device compiler: a rustc that can generate code for `nvptx64-nvidia-cuda` and has the
//! source of its library, since no prebuilt `core` exists for GPUs.
//!
//! Looked at in this order: the environment variable [`DEVICE_RUSTC`], rustup's toolchains, and the
//! `/usr/bin/rustc` of Debian's packages. The host's own toolchain is never touched.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::ToolchainError;

/// Environment variable that names the device compiler, before any search.
pub const DEVICE_RUSTC: &str = "IRONWARP_DEVICE_RUSTC";
/// The first release whose `nvptx64` back end (LLVM 22) compiles the device library.
pub const MIN_RUSTC: Version = Version { major: 1, minor: 96, patch: 0 };
/// Installs the device compiler with rustup.
pub const INSTALL_RUSTUP: &str = "rustup toolchain install 1.96.0 --profile minimal --component rust-src";
/// Installs the device compiler on Debian, as root.
pub const INSTALL_APT: &str = "apt-get install --no-install-recommends rustc-web rust-web-src";

/// The function of `core` that gives an object in shared memory, and the object's symbol in PTX.
pub(crate) const SHARED_OBJECT: &str = "gpu_launch_sized_workgroup_mem";

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const LIBRARY_SOURCE: &str = "lib/rustlib/src/rust/library";

/// A release number of rustc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Always 1 so far.
    pub major: u32,
    /// The release train.
    pub minor: u32,
    /// The point release.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A compiler that can build kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceToolchain {
    /// The compiler.
    pub rustc: PathBuf,
    /// The cargo that drives it: its own where it has one, else the host's.
    pub cargo: PathBuf,
    /// Its release.
    pub version: Version,
    /// Release and commit, as rustc prints them.
    pub description: String,
    /// Whether unstable features are on by themselves.
    pub nightly: bool,
    /// The source of `core` and `alloc`.
    pub library_source: PathBuf,
}

impl DeviceToolchain {
    /// Finds a device compiler.
    ///
    /// # Errors
    /// When none is installed, or the one asked for is too old or lacks its library source. Each error's
    /// text holds the command that mends it.
    pub fn find() -> Result<Self, ToolchainError> {
        if let Some(path) = env::var_os(DEVICE_RUSTC).filter(|path| !path.is_empty()) {
            return Self::from_override(PathBuf::from(path));
        }
        let toolchains = rustup_toolchains();
        // Asking a compiler for its version takes longer than looking for the source.
        let (with_source, without): (Vec<_>, Vec<_>) =
            toolchains.iter().partition(|root| root.join(LIBRARY_SOURCE).is_dir());
        let mut rejected = Vec::new();
        let mut usable = probe_all(&with_source, &mut rejected);
        // A release before a nightly: the same source then gives the same PTX tomorrow.
        usable.sort_by_key(|found| (!found.nightly, found.version));
        if let Some(best) = usable.pop() {
            return Ok(best);
        }
        Self::probe(Path::new(DEBIAN_RUSTC)).map_err(|error| {
            probe_all(&without, &mut rejected);
            rejected.push(error);
            explain(rejected)
        })
    }

    /// Checks one compiler.
    ///
    /// # Errors
    /// When it does not run, is too old, or lacks its library source.
    pub fn probe(rustc: &Path) -> Result<Self, ToolchainError> {
        if !rustc.is_file() {
            let looked_at = format!("{} (not there)", rustc.display());
            return Err(ToolchainError::NotFound { looked_at });
        }
        let broken = |reason| ToolchainError::Broken { rustc: rustc.to_owned(), reason };
        let verbose = ask(rustc, &["-vV"]).map_err(broken)?;
        let (version, nightly) =
            parse_version(&verbose).ok_or_else(|| broken("its answer to -vV names no release".to_owned()))?;
        if version < MIN_RUSTC {
            return Err(ToolchainError::TooOld { rustc: rustc.to_owned(), found: version.to_string() });
        }
        let sysroot = PathBuf::from(ask(rustc, &["--print", "sysroot"]).map_err(broken)?.trim_end());
        let library_source = sysroot.join(LIBRARY_SOURCE);
        if !library_source.join("core/src/lib.rs").is_file() {
            let fix = source_fix(&sysroot);
            return Err(ToolchainError::NoLibrarySource {
                rustc: rustc.to_owned(),
                wanted: library_source,
                fix,
            });
        }
        let cargo = find_cargo(rustc).ok_or_else(|| ToolchainError::NoCargo { rustc: rustc.to_owned() })?;
        let description = verbose.lines().next().unwrap_or_default().trim_start_matches("rustc ").to_owned();
        Ok(Self { rustc: rustc.to_owned(), cargo, version, description, nightly, library_source })
    }

    /// Whether the library has a function that gives an object in shared memory, by its name there. It is
    /// younger than [`MIN_RUSTC`].
    pub(crate) fn has_shared_object(&self) -> bool {
        let source = fs::read_to_string(self.library_source.join("core/src/intrinsics/gpu.rs"));
        source.is_ok_and(|text| text.contains(&format!("fn {SHARED_OBJECT}<T>() -> *mut T;")))
    }

    fn from_override(path: PathBuf) -> Result<Self, ToolchainError> {
        Self::probe(&path).map_err(|error| {
            let reason = match error {
                ToolchainError::NotFound { .. } => "no such file".to_owned(),
                ToolchainError::Broken { reason, .. } => reason,
                other => return other,
            };
            ToolchainError::BadOverride { variable: DEVICE_RUSTC, path, reason }
        })
    }
}

fn probe_all(roots: &[&PathBuf], rejected: &mut Vec<ToolchainError>) -> Vec<DeviceToolchain> {
    let mut usable = Vec::new();
    for root in roots {
        match DeviceToolchain::probe(&root.join("bin/rustc")) {
            Ok(found) => usable.push(found),
            Err(error) => rejected.push(error),
        }
    }
    usable
}

/// The most useful single error: one with a short way to a working compiler beats "not found".
fn explain(mut rejected: Vec<ToolchainError>) -> ToolchainError {
    let almost = |error: &ToolchainError| {
        matches!(error, ToolchainError::NoLibrarySource { .. } | ToolchainError::NoCargo { .. })
    };
    if let Some(index) = rejected.iter().position(almost) {
        return rejected.swap_remove(index);
    }
    let old = rejected.iter().rposition(|error| matches!(error, ToolchainError::TooOld { .. }));
    if let Some(index) = old {
        return rejected.swap_remove(index);
    }
    let broken = rejected.iter().position(|error| matches!(error, ToolchainError::Broken { .. }));
    if let Some(index) = broken {
        return rejected.swap_remove(index);
    }
    ToolchainError::NotFound {
        looked_at: format!(
            "${DEVICE_RUSTC} (not set), rustup's toolchains (none fits), {DEBIAN_RUSTC} (not there)"
        ),
    }
}

/// The answer of a compiler, or why there is none.
fn ask(rustc: &Path, args: &[&str]) -> Result<String, String> {
    // A rustup proxy must not redirect the question to the toolchain of the calling cargo.
    let output = Command::new(rustc).args(args).env_remove("RUSTUP_TOOLCHAIN").output();
    let output = output.map_err(|error| format!("it cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let first = errors.lines().next().unwrap_or("no message");
    Err(format!("its answer to {} is {}: {first}", args.join(" "), output.status))
}

fn parse_version(verbose: &str) -> Option<(Version, bool)> {
    let release = verbose.lines().find_map(|line| line.strip_prefix("release: "))?;
    let (number, channel) = release.split_once('-').unwrap_or((release, ""));
    let mut parts = number.split('.').map(|part| part.parse::<u32>().ok());
    let version = Version { major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
    Some((version, matches!(channel, "nightly" | "dev")))
}

fn rustup_toolchains() -> Vec<PathBuf> {
    let home =
        env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".rustup")));
    let Some(entries) = home.and_then(|home| std::fs::read_dir(home.join("toolchains")).ok()) else {
        return Vec::new();
    };
    let mut roots: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    roots.retain(|root| root.join("bin/rustc").is_file());
    roots.sort();
    roots
}

fn source_fix(sysroot: &Path) -> String {
    match sysroot
        .file_name()
        .filter(|_| sysroot.parent().is_some_and(|parent| parent.ends_with("toolchains")))
    {
        Some(name) => format!("rustup component add rust-src --toolchain {}", name.to_string_lossy()),
        None => INSTALL_APT.to_owned(),
    }
}

/// Debian's compiler comes without a cargo; the host's drives it just as well.
fn find_cargo(rustc: &Path) -> Option<PathBuf> {
    let own = rustc.with_file_name("cargo");
    let calling = env::var_os("CARGO").map(PathBuf::from);
    let runnable = |path: &PathBuf| path.is_file();
    [Some(own), calling].into_iter().flatten().find(runnable).or_else(|| on_path("cargo"))
}

/// The first file of this name on `PATH`.
pub fn on_path(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let name = name.as_ref();
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_verbose_output() {
        let release =
            "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\nrelease: 1.96.0\nLLVM version: 22.1.8\n";
        assert_eq!(parse_version(release), Some((Version { major: 1, minor: 96, patch: 0 }, false)));
        let nightly = "rustc 1.97.0-nightly\nrelease: 1.97.0-nightly\n";
        assert_eq!(parse_version(nightly), Some((Version { major: 1, minor: 97, patch: 0 }, true)));
        assert_eq!(parse_version("gcc 14"), None);
        assert_eq!(parse_version("release: 1.x.0"), None);
    }

    #[test]
    fn a_program_that_is_no_compiler_is_refused() {
        let found = DeviceToolchain::from_override(PathBuf::from("/bin/true"));
        assert!(matches!(found, Err(ToolchainError::BadOverride { .. })), "{found:?}");
        let absent = DeviceToolchain::from_override(PathBuf::from("/no/such/rustc"));
        assert!(absent.unwrap_err().to_string().contains("no such file"));
    }

    #[test]
    fn a_compiler_that_does_not_answer_is_not_missing() {
        let broken = DeviceToolchain::probe(Path::new("/bin/false")).unwrap_err();
        assert!(matches!(broken, ToolchainError::Broken { .. }), "{broken}");
        let silent = DeviceToolchain::probe(Path::new("/bin/true")).unwrap_err();
        assert!(silent.to_string().contains("names no release"), "{silent}");
        let missing = DeviceToolchain::probe(Path::new("/no/such/rustc")).unwrap_err();
        assert!(matches!(missing, ToolchainError::NotFound { .. }), "{missing}");
        let told = explain(vec![missing, broken]);
        assert!(matches!(told, ToolchainError::Broken { .. }), "{told}");
    }

    #[test]
    fn a_missing_source_beats_a_missing_compiler() {
        let source = ToolchainError::NoLibrarySource {
            rustc: "/r/bin/rustc".into(),
            wanted: "/r/lib".into(),
            fix: source_fix(Path::new("/home/u/.rustup/toolchains/nightly-x")),
        };
        let nothing = ToolchainError::NotFound { looked_at: "x".into() };
        let text = explain(vec![nothing, source]).to_string();
        assert!(text.contains("rustup component add rust-src --toolchain nightly-x"), "{text}");
    }

    #[test]
    fn every_failure_names_its_fix() {
        let errors = [
            explain(vec![]),
            ToolchainError::TooOld { rustc: "/usr/bin/rustc".into(), found: "1.85.0".into() },
            ToolchainError::NoCargo { rustc: "/usr/bin/rustc".into() },
            ToolchainError::NoLibrarySource {
                rustc: "r".into(),
                wanted: "w".into(),
                fix: source_fix(Path::new("/usr")),
            },
        ];
        for error in errors {
            assert!(error.to_string().contains("\nfix: "), "{error}");
        }
    }
}
