//! Installs what building kernels needs: a device compiler and, for the budget check, NVIDIA's assembler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuda_builder::ptxas::{PTXAS, Ptxas, install_dir};
use cuda_builder::{DeviceToolchain, INSTALL_APT, INSTALL_RUSTUP, ToolchainError, on_path};

use crate::commands::Program;
use crate::error::Error;
use crate::process;
use crate::term::{Style, style};

/// The help of `setup`.
pub const HELP: &str = "
Installs the device compiler (rustc >= 1.96 with library source: by rustup, else by apt-get as root) and
ptxas (from PyPI, into the user's cache). What is there already stays. `{program} inspect` and the commands that
write PTX install a missing compiler by themselves. `cargo build`, `cargo test` and `cargo bench` do not.

Usage: {program} setup

Examples:
  {program} setup
  IRONWARP_DEVICE_RUSTC=/opt/rust/bin/rustc {program} setup    use this compiler
  IRONWARP_PTXAS=/usr/local/cuda/bin/ptxas {program} setup     use this assembler
";

/// The release of the assembler that the budget is written with: the one of the driver that the figures in
/// `benches/record` were taken with, since a driver assembles with its own release.
const PTXAS_WHEEL: &str = "nvidia-cuda-nvcc==13.0.88";

/// The cure of an assembler that does not run.
pub fn broken_ptxas(program: Program) -> String {
    format!("remove it and run `{} setup`, or set IRONWARP_PTXAS to one that runs", program.name)
}

/// Installs what is missing.
///
/// # Errors
/// When the compiler is missing and cannot be installed.
pub fn run(program: Program, mut args: lexopt::Parser) -> Result<(), Error> {
    if let Some(arg) = args.next()? {
        return Err(arg.unexpected().into());
    }
    let toolchain = ensure_compiler()?;
    println!(
        "{} device compiler: {} ({})",
        style(Style::Ok, "[ok]"),
        toolchain.description,
        toolchain.rustc.display()
    );
    match ensure_ptxas(program) {
        Ok(ptxas) => {
            println!("{} ptxas: {} ({})", style(Style::Ok, "[ok]"), ptxas.version(), ptxas.path.display())
        }
        // Kernels build and run without it; only the budget goes unchecked.
        Err(error) => {
            println!("{} {error}\n  until then the budget check is skipped", style(Style::Warn, "[warn]"))
        }
    }
    Ok(())
}

/// The device compiler, installed first where it is missing.
///
/// Nothing is installed over a compiler that is there and does not answer: what ails it may ail the next.
///
/// # Errors
/// When it is missing and cannot be installed; the text holds the command to type.
pub fn ensure_compiler() -> Result<DeviceToolchain, Error> {
    match DeviceToolchain::find() {
        Ok(toolchain) => Ok(toolchain),
        // Somebody asked for this compiler: installing another would not be what they meant.
        Err(
            error @ (ToolchainError::BadOverride { .. }
            | ToolchainError::Broken { .. }
            | ToolchainError::NoCargo { .. }),
        ) => Err(error.into()),
        Err(error) if std::env::var_os(cuda_builder::DEVICE_RUSTC).is_some_and(|path| !path.is_empty()) => {
            Err(error.into())
        }
        Err(error) => install_compiler(&error),
    }
}

/// The assembler, installed first where it is missing.
///
/// # Errors
/// When it is missing and cannot be installed; the text holds the command to type.
pub fn ensure_ptxas(program: Program) -> Result<Ptxas, Error> {
    let unusable = |reason: String, fix: String| Error::Unusable { what: "ptxas", reason, fix };
    if let Some(ptxas) = Ptxas::find() {
        return match ptxas.release() {
            Ok(_) => Ok(ptxas),
            Err(reason) => Err(unusable(reason, broken_ptxas(program))),
        };
    }
    // Somebody asked for this assembler.
    if let Some(path) = std::env::var_os(PTXAS).filter(|path| !path.is_empty()) {
        let reason = format!("{PTXAS} names {path:?}, which is no file");
        return Err(unusable(reason, "set it to a ptxas, or unset it".to_owned()));
    }
    install_ptxas()
}

/// The assembler, where there is one that runs. Installs nothing.
pub fn usable_ptxas(program: Program) -> Option<Ptxas> {
    let ptxas = Ptxas::find()?;
    match ptxas.release() {
        Ok(_) => Some(ptxas),
        Err(reason) => {
            let fix = broken_ptxas(program);
            eprintln!("{} {reason}\nfix: {fix}", style(Style::Warn, "warning:"));
            None
        }
    }
}

fn install_compiler(missing: &ToolchainError) -> Result<DeviceToolchain, Error> {
    let found = missing.to_string();
    eprintln!("{} {}", style(Style::Warn, "to be installed:"), found.lines().next().unwrap_or_default());
    let mut reasons = Vec::new();
    for way in ways(missing) {
        match way.install() {
            Ok(()) => match DeviceToolchain::find() {
                Ok(toolchain) => return Ok(toolchain),
                Err(error) => {
                    let error = error.to_string();
                    let first = error.lines().next().unwrap_or_default();
                    reasons.push(format!("`{}` left no usable compiler ({first})", way.command));
                }
            },
            Err(reason) => reasons.push(reason),
        }
    }
    let fix = format!("{INSTALL_RUSTUP}   (or on Debian, as root: {INSTALL_APT})");
    Err(Error::Install { what: "the device compiler", reason: reasons.join("; "), fix })
}

/// A way to get a compiler: one command.
struct Way {
    command: String,
    as_root: bool,
}

/// From the smallest download to the largest.
fn ways(missing: &ToolchainError) -> Vec<Way> {
    let mut ways = Vec::new();
    if let ToolchainError::NoLibrarySource { fix, .. } = missing
        && fix.starts_with("rustup ")
    {
        ways.push(Way { command: fix.clone(), as_root: false });
    }
    ways.push(Way { command: INSTALL_RUSTUP.to_owned(), as_root: false });
    ways.push(Way { command: INSTALL_APT.to_owned(), as_root: true });
    ways
}

impl Way {
    fn install(&self) -> Result<(), String> {
        let mut words = self.command.split(' ');
        let program = words.next().unwrap_or_default();
        if on_path(program).is_none() {
            return Err(format!("no {program} here"));
        }
        if self.as_root && !is_root() {
            return Err(format!("not root, so type it yourself: sudo {}", self.command));
        }
        eprintln!("{} {}", style(Style::Dim, "installing the device compiler:"), self.command);
        let mut command = Command::new(program);
        command.args(words);
        if self.as_root {
            // Lists of packages may be absent or out of date; installing says so if they are.
            process::quietly(Command::new(program).arg("update"));
            command.arg("-y").env("DEBIAN_FRONTEND", "noninteractive");
        }
        let (success, text) = process::quietly(&mut command);
        if success { Ok(()) } else { Err(format!("`{}` failed: {}", self.command, reason(&text))) }
    }
}

fn install_ptxas() -> Result<Ptxas, Error> {
    let fix = format!(
        "python3 -m pip download --no-deps {PTXAS_WHEEL}, unpack its bin/ptxas, and set IRONWARP_PTXAS to it; or install a CUDA toolkit"
    );
    let failed = |reason: String| Error::Install { what: "ptxas", reason, fix: fix.clone() };
    let folder = install_dir().ok_or_else(|| failed("no home folder to put it in".to_owned()))?;
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    let unpacked = folder.join(format!("wheel.{}", std::process::id()));
    eprintln!("{} {PTXAS_WHEEL} from PyPI", style(Style::Dim, "installing ptxas:"));
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--no-deps",
        "--target",
    ]);
    let (success, text) = process::quietly(pip.arg(&unpacked).arg(PTXAS_WHEEL));
    let result =
        if success { keep_ptxas(&unpacked, &folder.join("ptxas")) } else { Err(failed(reason(&text))) };
    // The wheel holds mostly other programs. If it cannot be removed, it only takes space.
    let _ = fs::remove_dir_all(&unpacked);
    result
}

fn keep_ptxas(unpacked: &Path, destination: &Path) -> Result<Ptxas, Error> {
    let found = find_file(unpacked, "ptxas").ok_or_else(|| Error::Install {
        what: "ptxas",
        reason: format!("{PTXAS_WHEEL} holds no file ptxas"),
        fix: "install a CUDA toolkit, or set IRONWARP_PTXAS".to_owned(),
    })?;
    fs::rename(&found, destination).map_err(Error::io("write", destination))?;
    Ok(Ptxas { path: destination.to_owned() })
}

fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    let here =
        entries.iter().find(|path| path.is_file() && path.file_name().is_some_and(|file| file == name));
    here.cloned()
        .or_else(|| entries.iter().filter(|path| path.is_dir()).find_map(|folder| find_file(folder, name)))
}

/// The line of a failed installer that says why.
fn reason(text: &str) -> String {
    let network =
        ["resolv", "dns error", "network", "connection", "connect to", "offline", "timed out", "unreachable"];
    if text.lines().any(|line| network.iter().any(|sign| line.to_lowercase().contains(sign))) {
        return "no network".to_owned();
    }
    let mut errors =
        text.lines().filter(|line| line.to_lowercase().contains("error") || line.starts_with("E: "));
    errors.next_back().or_else(|| text.lines().next_back()).unwrap_or("no message").trim().to_owned()
}

fn is_root() -> bool {
    process::quietly(Command::new("id").arg("-u")).1.trim() == "0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_source_is_added_before_a_compiler_is_fetched() {
        let fix = "rustup component add rust-src --toolchain nightly".to_owned();
        let error =
            ToolchainError::NoLibrarySource { rustc: "r".into(), wanted: "w".into(), fix: fix.clone() };
        let commands: Vec<String> = ways(&error).into_iter().map(|way| way.command).collect();
        assert_eq!(commands, [fix, INSTALL_RUSTUP.to_owned(), INSTALL_APT.to_owned()]);
        let nothing = ToolchainError::NotFound { looked_at: String::new() };
        assert_eq!(ways(&nothing).len(), 2);
    }

    #[test]
    fn failures_are_told_in_a_line() {
        assert_eq!(reason("Err:1 http://x\n  Temporary failure resolving 'x'"), "no network");
        assert_eq!(
            reason("warning: a\nE: Unable to locate package rustc-web\nbye"),
            "E: Unable to locate package rustc-web"
        );
        assert_eq!(reason(""), "no message");
    }

    #[test]
    fn a_missing_program_is_a_reason() {
        let way = Way { command: "no-such-installer x".to_owned(), as_root: false };
        assert_eq!(way.install(), Err("no no-such-installer here".to_owned()));
    }
}
