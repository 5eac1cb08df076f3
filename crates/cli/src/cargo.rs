//! `cargo test` and `cargo bench` of a project, with the script that turns the checker on.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::commands::Program;
use crate::error::Error;
use crate::new_project::CHECKED;
use crate::term::{Style, style};
use crate::workspace::{self, Workspace};
use crate::{doctor, process, settings};

/// The help of `test`.
pub const TEST_HELP: &str = "
Runs `cargo test`, on a GPU or on the software driver. On the software driver the checker sees every load and store of
packages with `checked = true` under [package.metadata.ironwarp]: a script compiles them with its callbacks. Where
Cargo's settings of the project name no such script, this command brings it.

Usage: {program} test [-- ARGUMENTS OF CARGO TEST]

Examples:
  {program} test
  {program} test -- --test blur -- --nocapture
  IRONWARP_DRIVER=soft {program} test       under the checker, on a machine with a GPU
";

/// The help of `bench`.
pub const BENCH_HELP: &str = "
Runs `cargo bench`, on a GPU or on the software driver. Benchmarks are compiled for speed, without the checker's
callbacks.

Usage: {program} bench [-- ARGUMENTS OF CARGO BENCH]

Examples:
  {program} bench
  {program} bench -- --bench blur
";

/// Variables of Cargo's that name the script.
const WRAPPERS: [&str; 2] = ["RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER"];
/// File name of the script.
const SCRIPT: &str = "rustc-checked";
/// The variables that choose the driver and turn the checker off.
const DRIVER: &str = "IRONWARP_DRIVER";
const CHECK: &str = "IRONWARP_CHECK";

/// Tests the project around the current folder.
///
/// # Errors
/// When there is none, or `cargo test` fails.
pub fn test(program: Program, args: lexopt::Parser) -> Result<(), Error> {
    run(program, "test", args)
}

/// Runs the benchmarks of the project around the current folder.
///
/// # Errors
/// When there is none, or `cargo bench` fails.
pub fn bench(program: Program, args: lexopt::Parser) -> Result<(), Error> {
    run(program, "bench", args)
}

fn run(program: Program, subcommand: &str, mut args: lexopt::Parser) -> Result<(), Error> {
    let mut args: Vec<OsString> = args.raw_args()?.collect();
    if let Some(first) = args.first().filter(|first| *first != "--") {
        return Err(Error::Usage(format!("{first:?}: arguments of `cargo {subcommand}` go behind `--`")));
    }
    args.drain(..args.len().min(1));
    let workspace = Workspace::current(program)?;
    let here = workspace::current_folder()?;
    let mut command = process::cargo(&here);
    command.arg(subcommand).args(&args);
    let wrapper = match wrapper(&here) {
        Some(theirs) => theirs,
        None => {
            let ours = write_script(&workspace.target)?;
            command.env(WRAPPERS[0], &ours);
            ours
        }
    };
    let driver = Driver::find();
    let checker = Checker {
        driver: &driver,
        is_off: env::var_os(CHECK).is_some_and(|value| value == "0"),
        is_fast: subcommand == "bench" || is_fast(&args),
        wrapper: &wrapper,
        checked: checked(&workspace)?,
    };
    println!("{} {}", style(Style::Dim, "driver:"), driver.text());
    println!("{} {}", style(Style::Dim, "checker:"), checker.text());
    process::run(&mut command)
}

/// The script that Cargo's own settings name.
fn wrapper(here: &Path) -> Option<PathBuf> {
    let named = WRAPPERS.iter().filter_map(env::var_os).find(|value| !value.is_empty()).map(PathBuf::from);
    let in_file = |(_, file): (PathBuf, toml::Table)| {
        Some(PathBuf::from(settings::get(&file, "build", "rustc-workspace-wrapper")?.as_str()?))
    };
    named.or_else(|| settings::files(here).find_map(in_file))
}

/// Writes the script, unless it is there already: Cargo compiles anew when it changes.
fn write_script(target: &Path) -> Result<PathBuf, Error> {
    let folder = target.join("ironwarp");
    let path = folder.join(SCRIPT);
    if fs::read_to_string(&path).is_ok_and(|text| text == CHECKED) {
        return Ok(path);
    }
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    // Another call may be running the old one: a rename leaves that whole.
    let new = folder.join(format!("{SCRIPT}.{}", std::process::id()));
    fs::write(&new, CHECKED).map_err(Error::io("write", &new))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))
        .map_err(Error::io("make executable", &new))?;
    fs::rename(&new, &path).map_err(Error::io("write", &path))?;
    Ok(path)
}

/// Whether the arguments ask for code without callbacks.
fn is_fast(args: &[OsString]) -> bool {
    args.iter().take_while(|arg| *arg != "--").any(|arg| {
        let arg = arg.to_string_lossy();
        matches!(&*arg, "--release" | "-r" | "--profile") || arg.starts_with("--profile=")
    })
}

/// Names of the packages that the script compiles with callbacks. The line is the one that it looks for.
fn checked(workspace: &Workspace) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for folder in workspace.packages.folders()? {
        let path = folder.join("Cargo.toml");
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        if text.lines().any(|line| line.starts_with("checked = true")) {
            names.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The driver that kernels are going to run on.
#[derive(Debug, PartialEq, Eq)]
enum Driver {
    Nvidia(String),
    Software(&'static str),
}

impl Driver {
    /// By the variable, else by what this machine has.
    fn find() -> Self {
        Self::choose(env::var_os(DRIVER).as_deref(), doctor::nvidia_driver())
    }

    fn choose(asked: Option<&OsStr>, found: Option<String>) -> Self {
        match (asked.and_then(OsStr::to_str), found) {
            (Some("soft"), _) => Self::Software("IRONWARP_DRIVER=soft"),
            (_, Some(version)) => Self::Nvidia(version),
            (Some("nvidia"), None) => Self::Nvidia("IRONWARP_DRIVER=nvidia".to_owned()),
            (_, None) => Self::Software("no NVIDIA driver found"),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Nvidia(version) => format!("NVIDIA ({version})"),
            Self::Software(why) => format!("software ({why})"),
        }
    }
}

/// The things that decide how much the checker sees.
struct Checker<'a> {
    driver: &'a Driver,
    is_off: bool,
    is_fast: bool,
    wrapper: &'a Path,
    checked: Vec<String>,
}

impl Checker<'_> {
    fn text(&self) -> String {
        const PARTLY: &str = "on, without plain loads and stores";
        if matches!(self.driver, Driver::Nvidia(_)) {
            return "off; IRONWARP_DRIVER=soft runs the kernels under it".to_owned();
        }
        if self.is_off {
            return "off (IRONWARP_CHECK=0)".to_owned();
        }
        if self.is_fast {
            return format!("{PARTLY}: the kernels are compiled for speed");
        }
        if self.checked.is_empty() {
            return format!("{PARTLY}: no package has `checked = true` under [package.metadata.ironwarp]");
        }
        if self.wrapper.file_name() != Some(OsStr::new(SCRIPT)) {
            let wrapper = self.wrapper.display();
            return format!("{PARTLY}, unless the project's own rustc-workspace-wrapper {wrapper} adds them");
        }
        format!("on, for every load and store of {}", self.checked.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_decides_before_the_machine() {
        let found = || Some("580.1".to_owned());
        let choose = |asked: Option<&str>, found| Driver::choose(asked.map(OsStr::new), found).text();
        assert_eq!(choose(Some("soft"), found()), "software (IRONWARP_DRIVER=soft)");
        assert_eq!(choose(None, found()), "NVIDIA (580.1)");
        assert_eq!(choose(None, None), "software (no NVIDIA driver found)");
        assert_eq!(choose(Some("nvidia"), None), "NVIDIA (IRONWARP_DRIVER=nvidia)");
    }

    #[test]
    fn the_checker_is_on_when_nothing_is_in_its_way() {
        let (soft, nvidia) = (Driver::Software(""), Driver::Nvidia(String::new()));
        let on = || Checker {
            driver: &soft,
            is_off: false,
            is_fast: false,
            wrapper: Path::new(".cargo/rustc-checked"),
            checked: vec!["kernels".to_owned()],
        };
        assert_eq!(on().text(), "on, for every load and store of kernels");
        for (checker, part) in [
            (Checker { driver: &nvidia, ..on() }, "off; IRONWARP_DRIVER=soft"),
            (Checker { is_off: true, ..on() }, "off (IRONWARP_CHECK=0)"),
            (Checker { is_fast: true, ..on() }, "compiled for speed"),
            (Checker { wrapper: Path::new("/bin/sccache"), ..on() }, "own rustc-workspace-wrapper"),
            (Checker { checked: Vec::new(), ..on() }, "no package has"),
        ] {
            assert!(checker.text().contains(part), "{part}: {}", checker.text());
        }
    }

    #[test]
    fn profiles_are_seen_before_the_programs_own_arguments() {
        let args = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(is_fast(&args("--test blur --release")) && is_fast(&args("--profile=quick")));
        assert!(!is_fast(&args("--test blur -- --release")));
    }

    #[test]
    fn the_script_is_written_once_and_can_be_run() {
        let target = tempfile::tempdir().unwrap();
        let path = write_script(target.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(write_script(target.path()).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
        assert_eq!(fs::read_dir(target.path().join("ironwarp")).unwrap().count(), 1);
    }
}
