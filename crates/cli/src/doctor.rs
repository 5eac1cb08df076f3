//! Says what this machine has for building and running kernels, and how to get what it lacks.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuda_builder::ptxas::{PTXAS, Ptxas};
use cuda_builder::{DeviceToolchain, on_path};
use serde_json::{Value, json};

use crate::commands::Program;
use crate::error::Error;
use crate::process;
use crate::setup;
use crate::term::{Style, style};
use crate::variables;

/// The help of `doctor`.
pub const HELP: &str = "
Looks at everything that building and running kernels needs. A missing GPU is no failure: the software driver
runs the same kernels. Fails only when kernels cannot be built.

Usage: {program} doctor [--json]

Options:
  --json   print the findings as JSON

Examples:
  {program} doctor
  {program} doctor --json
";

/// Free space below which a build is likely to run out of it.
const WANTED_DISK_GIB: u64 = 5;

/// How bad a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// All is well.
    Ok,
    /// Something works less well than it could.
    Warn,
    /// Kernels cannot be built.
    Fail,
}

/// One line of the answer.
#[derive(Debug)]
pub struct Finding {
    name: &'static str,
    level: Level,
    what: String,
    fix: Option<String>,
}

impl Finding {
    /// A row without a fault.
    pub fn ok(name: &'static str, what: String) -> Self {
        Self { name, level: Level::Ok, what, fix: None }
    }

    /// A row with a fault and its cure.
    pub fn bad(name: &'static str, level: Level, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, level, what: what.into(), fix: Some(fix.into()) }
    }

    fn print(&self) {
        let mark = match self.level {
            Level::Ok => style(Style::Ok, "[ok]  "),
            Level::Warn => style(Style::Warn, "[warn]"),
            Level::Fail => style(Style::Fail, "[fail]"),
        };
        println!("{mark} {}: {}", self.name, self.what);
        if let Some(fix) = &self.fix {
            println!("       {} {fix}", style(Style::Bold, "fix:"));
        }
    }

    fn json(&self) -> Value {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        json!({ "name": self.name, "level": level, "what": self.what, "fix": self.fix })
    }
}

/// Looks at the machine and prints a row for each thing, with those of `more` about the kernels in `root`.
///
/// # Errors
/// When kernels cannot be built.
pub fn run(
    program: Program,
    root: &Path,
    more: impl FnOnce() -> Vec<Finding>,
    mut args: lexopt::Parser,
) -> Result<(), Error> {
    let mut json = false;
    while let Some(arg) = args.next()? {
        match arg {
            lexopt::Arg::Long("json") => json = true,
            other => return Err(other.unexpected().into()),
        }
    }
    let findings = examine(program, root, more());
    if json {
        println!("{:#}", Value::Array(findings.iter().map(Finding::json).collect()));
    } else {
        findings.iter().for_each(Finding::print);
    }
    let failed: Vec<String> = findings
        .iter()
        .filter(|finding| finding.level == Level::Fail)
        .map(|finding| finding.name.to_owned())
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(Error::Steps(failed)) }
}

fn examine(program: Program, root: &Path, more: Vec<Finding>) -> Vec<Finding> {
    let mut findings = vec![host_toolchain(root)];
    findings.extend(device_compiler(program));
    findings.extend([ptxas(program), driver()]);
    findings.extend(more);
    findings.extend([variables::look(), disk(root), network()]);
    findings
}

fn host_toolchain(root: &Path) -> Finding {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let (found, text) = process::quietly(Command::new(rustc).arg("--version").current_dir(root));
    let fix = "install rustup from https://rustup.rs; a rust-toolchain.toml then picks the release";
    let text = text.trim();
    if found && text.starts_with("rustc ") {
        Finding::ok("host toolchain", text.to_owned())
    } else {
        let what = if text.is_empty() { "rustc does not answer --version" } else { text };
        Finding::bad("host toolchain", Level::Fail, what, fix)
    }
}

fn device_compiler(program: Program) -> Vec<Finding> {
    match DeviceToolchain::find() {
        Ok(found) => vec![
            Finding::ok("device compiler", format!("{} ({})", found.description, found.rustc.display())),
            Finding::ok("library source", found.library_source.display().to_string()),
            Finding::ok("device cargo", found.cargo.display().to_string()),
        ],
        Err(error) => {
            let text = error.to_string();
            let setup = setup_command(program);
            let (what, fix) = text.split_once("\nfix: ").unwrap_or((&text, &setup));
            vec![Finding::bad("device compiler", Level::Fail, what, fix)]
        }
    }
}

fn setup_command(program: Program) -> String {
    format!("{} setup", program.name)
}

fn ptxas(program: Program) -> Finding {
    let bad = |what: String, fix: String| Finding::bad("ptxas", Level::Warn, what, fix);
    let consequence = "kernels build, their budgets go unchecked";
    let Some(ptxas) = Ptxas::find() else {
        return match env::var_os(PTXAS).filter(|path| !path.is_empty()) {
            Some(path) => bad(
                format!("{PTXAS} names {path:?}, which is no file; {consequence}"),
                "set it to a ptxas, or unset it to search for one".to_owned(),
            ),
            None => bad(format!("not found; {consequence}"), setup_command(program)),
        };
    };
    match ptxas.release() {
        Ok(release) => Finding::ok("ptxas", format!("{release} ({})", ptxas.path.display())),
        Err(reason) => bad(format!("{reason}; {consequence}"), setup::broken_ptxas(program)),
    }
}

/// Where libcuda is, by the loader's list and the folders that containers put it into.
fn find_libcuda() -> Option<PathBuf> {
    let listed = process::quietly(
        Command::new(on_path("ldconfig").unwrap_or_else(|| "/sbin/ldconfig".into())).arg("-p"),
    )
    .1;
    let from_list = listed
        .lines()
        .filter(|line| line.contains("libcuda.so.1"))
        .find_map(|line| line.split(" => ").nth(1));
    let folders = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"]
        .map(PathBuf::from);
    let candidates = env::split_paths(&folders).chain(usual).map(|folder| folder.join("libcuda.so.1"));
    from_list.map(PathBuf::from).into_iter().chain(candidates).find(|path| path.is_file())
}

/// Whether an NVIDIA driver is there to run kernels on.
pub fn has_nvidia_driver() -> bool {
    find_libcuda().is_some()
}

/// The release of the NVIDIA driver, where it is loaded and has a library.
pub fn nvidia_driver() -> Option<String> {
    find_libcuda().and_then(|_| loaded_module())
}

/// The release of NVIDIA's module in the system's kernel.
fn loaded_module() -> Option<String> {
    kernel_module_version(&fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

fn driver() -> Finding {
    let Some(library) = find_libcuda() else {
        let what = "no NVIDIA driver; kernels run on the software driver";
        return Finding::bad(
            "driver",
            Level::Warn,
            what,
            "install the NVIDIA driver, if this machine has a GPU",
        );
    };
    match loaded_module() {
        Some(version) => Finding::ok("driver", format!("NVIDIA {version} ({})", library.display())),
        None => {
            let what = format!(
                "{} without a loaded kernel module; kernels run on the software driver",
                library.display()
            );
            Finding::bad("driver", Level::Warn, what, "modprobe nvidia, or start the container with its GPUs")
        }
    }
}

/// `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build`
fn kernel_module_version(text: &str) -> Option<String> {
    let looks_right =
        |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.lines().next()?.split_whitespace().find(looks_right).map(str::to_owned)
}

fn disk(root: &Path) -> Finding {
    let (found, text) = process::quietly(Command::new("df").args(["-Pk"]).arg(root));
    let free = text
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(3))
        .and_then(|kib| kib.parse::<u64>().ok());
    match free.filter(|_| found) {
        Some(kib) if kib >> 20 >= WANTED_DISK_GIB => Finding::ok("disk", format!("{} GiB free", kib >> 20)),
        Some(kib) => {
            let what = format!("{} GiB free; a full build takes up to {WANTED_DISK_GIB} GiB", kib >> 20);
            Finding::bad("disk", Level::Warn, what, "make room, or set CARGO_TARGET_DIR to a larger disk")
        }
        None => {
            Finding::bad("disk", Level::Warn, "free space unknown: df does not answer", "look at it yourself")
        }
    }
}

/// Only the downloads of the first build need the network.
fn network() -> Finding {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let cached = home.is_some_and(|home| home.join("registry/cache").is_dir());
    if cached {
        Finding::ok("network", "not needed for what is downloaded already".to_owned())
    } else {
        Finding::bad(
            "network",
            Level::Warn,
            "cargo has downloaded nothing yet",
            "run the first build while connected",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program { name: "ironwarp", version: None };

    #[test]
    fn the_driver_release_is_read() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  (dvs-builder@U22)\nGCC version: 12\n";
        assert_eq!(kernel_module_version(text).as_deref(), Some("580.159.03"));
        assert_eq!(kernel_module_version(""), None);
    }

    #[test]
    fn what_is_not_ok_has_a_fix() {
        for finding in examine(PROGRAM, Path::new("/"), Vec::new()) {
            assert_eq!(finding.level == Level::Ok, finding.fix.is_none(), "{finding:?}");
        }
    }
}
