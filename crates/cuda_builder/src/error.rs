//! The errors between a kernel package and its PTX, each with its fix.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::toolchain::{INSTALL_APT, INSTALL_RUSTUP, MIN_RUSTC};

/// The reason why no device compiler could be used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ToolchainError {
    /// Nothing on this machine can compile for `nvptx64-nvidia-cuda`.
    #[error(
        "no device compiler: looked at {looked_at}; wanted rustc >= {MIN_RUSTC} with its library source.\n\
         fix: ironwarp setup, or cargo xtask setup in its repository   (or by hand: {INSTALL_RUSTUP}; on Debian: {INSTALL_APT})"
    )]
    NotFound {
        /// Every place that was looked at and what was wrong there.
        looked_at: String,
    },
    /// `IRONWARP_DEVICE_RUSTC` names something that is no rustc.
    #[error("{variable}={path}: {reason}.\nfix: set it to a rustc >= {MIN_RUSTC}, or unset it to search for one", path = shown(.path))]
    BadOverride {
        /// The environment variable that was read.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The compiler is older than the first release whose back end is good enough.
    #[error("device compiler {path} is rustc {found}; wanted >= {MIN_RUSTC}.\nfix: {INSTALL_RUSTUP}", path = shown(.rustc))]
    TooOld {
        /// The compiler found.
        rustc: PathBuf,
        /// Its version.
        found: String,
    },
    /// There is a compiler, but it does not answer.
    #[error("device compiler {path} is there, but {reason}.\nfix: find out why `{path} -vV` fails, or set IRONWARP_DEVICE_RUSTC to a rustc >= {MIN_RUSTC}", path = shown(.rustc))]
    Broken {
        /// The compiler found.
        rustc: PathBuf,
        /// The fault.
        reason: String,
    },
    /// `core` cannot be built for the device without its source.
    #[error("device compiler {path} has no library source at {source_dir}.\nfix: {fix}", path = shown(.rustc), source_dir = shown(.wanted))]
    NoLibrarySource {
        /// The compiler found.
        rustc: PathBuf,
        /// Where the source has to be.
        wanted: PathBuf,
        /// The command that installs it.
        fix: String,
    },
    /// No `cargo` to drive the compiler.
    #[error("no cargo found to drive {path}.\nfix: install one from https://rustup.rs, or put it on PATH", path = shown(.rustc))]
    NoCargo {
        /// The compiler found.
        rustc: PathBuf,
    },
}

/// The reason why a kernel package did not become PTX.
///
/// Also known as [`CudaBuilderError`](crate::CudaBuilderError), the name that Rust-CUDA's build scripts use.
/// `Debug` prints the same sentence as `Display`: build scripts return the error from `main`, or unwrap it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No folder with a `Cargo.toml` at the path given to `CudaBuilder::new`.
    #[error("no kernel package at {path}: wanted a folder with a Cargo.toml.\nfix: pass the package's folder to CudaBuilder::new; a relative path starts at {base}", path = shown(.path), base = shown(.base))]
    CratePathDoesntExist {
        /// The path as given.
        path: PathBuf,
        /// The folder that relative paths start from.
        base: PathBuf,
    },
    /// The manifest cannot be used.
    #[error("{path}: {reason}", path = shown(.path))]
    Manifest {
        /// The `Cargo.toml`.
        path: PathBuf,
        /// The fault, and how to fix it.
        reason: String,
    },
    /// No usable compiler.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// The compiler reported errors. They are already on stderr unless output was captured.
    #[error("{package} does not compile for {arch}{}{}", captured(.diagnostics), fix(.hint))]
    BuildFailed {
        /// The kernel package.
        package: String,
        /// The architecture it was compiled for.
        arch: Arch,
        /// cargo's output, where it was captured.
        diagnostics: String,
        /// The change that mends a compiler's error that does not say so itself.
        hint: Option<&'static str>,
    },
    /// Cargo needs to download something and cannot.
    #[error("{package} for {arch}: cargo could not download what the library source or the package depends on.\nfix: connect once and run the same command again (later builds need no network){}", captured(.diagnostics))]
    NoNetwork {
        /// The kernel package.
        package: String,
        /// The architecture it was compiled for.
        arch: Arch,
        /// cargo's output, where it was captured.
        diagnostics: String,
    },
    /// The compiler succeeded and left no assembly.
    #[error("{package} for {arch}: the compiler left no PTX at {path}.\nfix: remove {target_dir} and build again", path = shown(.path), target_dir = shown(.target_dir))]
    NoAssembly {
        /// The kernel package.
        package: String,
        /// The architecture it was compiled for.
        arch: Arch,
        /// Where it was expected.
        path: PathBuf,
        /// The build folder.
        target_dir: PathBuf,
    },
    /// The PTX does not hold what the kernel promises.
    #[error("{package} for {arch}: {problem}")]
    BadPtx {
        /// The kernel package.
        package: String,
        /// The architecture it was compiled for.
        arch: Arch,
        /// The fault, and how to fix it.
        problem: crate::ptx::PtxError,
    },
    /// The compiler has no such option.
    #[error(
        "CudaBuilder::{option}(true): the compiler cannot do that.\nfix: leave it out; instead, {instead}"
    )]
    Unsupported {
        /// The builder's method.
        option: &'static str,
        /// The alternative.
        instead: &'static str,
    },
    /// A file or process could not be used.
    #[error("cannot {action} {path}: {source}", path = shown(.path))]
    Io {
        /// The attempted action, as a verb: `read`, `write`, `run`.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl BuildError {
    /// Adapter for `map_err`: names the action and the file of a failed input or output.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// The path, with characters escaped that would drive a terminal.
pub fn shown(path: &Path) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    path.to_string_lossy().chars().map(escaped).collect()
}

impl fmt::Debug for ToolchainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn captured(diagnostics: &str) -> String {
    if diagnostics.is_empty() { String::new() } else { format!(":\n{}", diagnostics.trim_end()) }
}

fn fix(hint: &Option<&'static str>) -> String {
    hint.map_or_else(String::new, |hint| format!("\nfix: {hint}"))
}

const NO_STD: &str = "the device has `core` and `alloc`, no `std`: use their types, and turn the default features of dependencies off (`default-features = false`)";

/// Errors of the compiler that do not say what to change, each by a part of its text, and the change.
const HINTS: &[(&str, &str)] = &[
    (
        "register_attr",
        "remove `feature(register_attr)` and `register_attr(nvvm_internal)` from the crate's first lines: Rust has them no more, and nothing needs them",
    ),
    (
        "unsupported library call operation",
        "the device has no conversion of a float to 128 bits: check the range and call `to_int_unchecked::<u128>()`, or go through `u64`",
    ),
    (
        "crate `std` required to be available",
        "a dependency needs `std`, which the device does not have: turn its default features off (`default-features = false`)",
    ),
    ("crate `std`", NO_STD),
    ("crate for `std`", NO_STD),
    ("import `std`", NO_STD),
    (
        "`#[panic_handler]` function required",
        "depend on cuda_std, which has the panic handler and the allocator",
    ),
    ("no global memory allocator found", "depend on cuda_std, which has the panic handler and the allocator"),
    (
        "Cannot select: intrinsic",
        "an instruction that the architecture does not have: build for a later one, `.arch(..)`",
    ),
];

/// The change that mends the first error in a compiler's output that has one.
pub(crate) fn hint(output: &str) -> Option<&'static str> {
    HINTS.iter().find(|(sign, _)| output.contains(sign)).map(|&(_, change)| change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_script_prints_the_sentence() {
        let missing = || ToolchainError::NotFound { looked_at: "\"nowhere\"".to_owned() };
        let error: Box<dyn std::error::Error> = BuildError::Toolchain(missing()).into();
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(
            format!("{:?}", missing()).starts_with("no device compiler: looked at \"nowhere\"; wanted rustc")
        );
    }
}
