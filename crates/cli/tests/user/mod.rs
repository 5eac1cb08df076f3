//! A user's shell: programs in a folder, with an environment that has nothing of CUDA and of this test.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Variables that every shell has, and the toolchain that this test was built with.
const ENVIRONMENT: &[&str] = &["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"];

/// A copy of a folder and all that is in it.
pub fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() { copy(&entry.path(), &to)? } else { _ = fs::copy(entry.path(), to)? }
    }
    Ok(())
}

/// The call, on the software driver.
pub fn command(program: impl AsRef<std::ffi::OsStr>, args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).env_clear();
    for name in ENVIRONMENT {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.env("IRONWARP_DRIVER", "soft");
    command
}

/// Everything that it printed.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
