//! Packs test programs, benchmarks, examples and PTX into one folder for a GPU machine without Rust.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuda_builder::{Arch, CudaBuilder, Manifest, NvvmArch};
use lexopt::ValueExt;
use serde_json::Value;

use crate::archive::{self, Contents};
use crate::broken::Broken;
use crate::build_kernels::{self, Options};
use crate::error::{Error, plural};
use crate::process;
use crate::term::{Style, style};
use crate::workspace;

mod targets;
use targets::{Kind, Target};

pub const HELP: &str = "
Packs everything that a GPU machine without Rust needs into target/bundle: test programs, benchmarks, examples,
PTX, and a script `run` for them.

Usage: cargo xtask bundle [NAME].. [--no-line-info]

Arguments:
  NAME   only programs whose name contains it, as `run` names them: `gemm`, `host.ops`. The archive of machine
         code is made anew for `start` alone, which measures it.

Options:
  --no-line-info   leave the source lines out of the PTX; compute-sanitizer then names no lines

Examples:
  cargo xtask bundle
  cargo xtask bundle gemm                       the tests and benchmarks of products alone
  tar -C target -cz bundle | ssh gpu tar -xz    then, over there:
  bundle/run test                               every test on the NVIDIA driver
  bundle/run bench                              every benchmark
  bundle/run sanitize                           the kernels' tests under compute-sanitizer
  bundle/run agree                              the executor's results and the GPU's, side by side
  bundle/run corpus                             the checker and compute-sanitizer on kernels with known bugs
";

/// Packages whose tests launch kernels. What the others test does not depend on the machine.
const TESTED: &[Package] = &[
    Package { name: "ironwarp", folder: "host" },
    Package { name: "ironwarp-driver", folder: "crates/driver" },
];
/// Kernels with bugs on purpose, and what runs them.
const CORPUS: Corpus = Corpus {
    package: Package { name: "ironwarp-checker", folder: "kernels-gpu/checker" },
    program: "corpus",
};
/// The package of the examples.
pub const EXAMPLES: Package = Package { name: "ironwarp-examples", folder: "examples" };
/// The benchmark that wants the archive of machine code.
const OF_ARCHIVE: &str = "start";
const LIMIT_MIB: u64 = 96;
/// Where programs and PTX lie in the bundle, and the archive that the script unpacks them from.
const PACKED: [&str; 4] = ["tests", "benches", "examples", "ptx"];
const ARCHIVE: &str = "programs.tar.xz";
/// All programs take about a minute; by preset 3, with `mode=normal`, they were not packed after ten.
const XZ: &str = "xz --lzma2=preset=1,dict=256MiB,mode=fast";
const RUN_SCRIPT: &str = include_str!("bundle/run.sh");

/// A package of the workspace, and its folder.
#[derive(Clone, Copy)]
pub struct Package {
    pub name: &'static str,
    folder: &'static str,
}

/// A package's program.
struct Corpus {
    package: Package,
    program: &'static str,
}

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    let (mut line_info, mut names) = (true, Vec::new());
    while let Some(arg) = args.next()? {
        match arg {
            lexopt::Arg::Long("no-line-info") => line_info = false,
            lexopt::Arg::Value(name) => names.push(name.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let chosen = targets::chosen(&names)?;
    // Programs find the PTX beside them. Optimised ones also have the archive.
    if chosen.iter().any(|target| target.kind == Kind::Bench && target.name == OF_ARCHIVE) {
        archive::write(&Contents::default())?;
    }
    let ptx = workspace::device_dir().join("bundle");
    build_kernels::build(&Options { line_info, output: Some(ptx.clone()), ..Options::default() })?;
    let folder = workspace::root().join("target/bundle");
    if folder.is_dir() {
        fs::remove_dir_all(&folder).map_err(Error::io("remove", &folder))?;
    }
    copy_ptx(&ptx, &folder.join("ptx"))?;
    if chosen.iter().any(|target| target.package == CORPUS.package.name) {
        copy_file(&build_corpus(&ptx, line_info)?, &folder.join("ptx"))?;
    }
    for kind in Kind::ALL {
        copy_programs(&chosen, kind, &folder.join(kind.folder()))?;
    }
    copy_baselines(&folder.join("baselines"))?;
    write_script(&folder.join("run"))?;
    let contents = count(&folder);
    pack(&folder);
    report(&folder, &contents)
}

/// Compiles the kernels with bugs on purpose, which the usual build leaves out. Nothing assembles them: the
/// assembler refuses some of the bugs.
fn build_corpus(folder: &Path, line_info: bool) -> Result<PathBuf, Error> {
    let manifest = Manifest::read(&workspace::root().join(CORPUS.package.folder))?;
    let arch = Arch::from(NvvmArch::Compute90a);
    let built = CudaBuilder::new(&manifest.folder)
        .arch(arch)
        .copy_to(folder.join(workspace::ptx_name(&manifest.library, arch)))
        .target_dir(workspace::device_dir())
        .generate_line_info(line_info)
        .capture_output(true)
        .build_module()?;
    Ok(built.ptx)
}

/// Has cargo build, and returns the programs that it names.
///
/// # Errors
/// When it does not build.
pub fn built_programs(args: &[&str]) -> Result<Vec<PathBuf>, Error> {
    let mut command = workspace::cargo();
    command.args(args).args(["--message-format", "json-render-diagnostics"]);
    Ok(process::output(&mut command)?.lines().filter_map(program).collect())
}

fn program(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

/// Builds what was chosen of a kind, all of a package at once, and copies it.
fn copy_programs(chosen: &[Target], kind: Kind, folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let mut packages: BTreeMap<&str, Vec<&Target>> = BTreeMap::new();
    for target in chosen.iter().filter(|target| target.kind == kind) {
        packages.entry(&target.package).or_default().push(target);
    }
    for (package, targets) in packages {
        let flags = targets.iter().flat_map(|target| &target.flags).map(String::as_str);
        let args: Vec<&str> =
            kind.command().iter().copied().chain(["--package", package]).chain(flags).collect();
        let built = built_programs(&args)?;
        for target in targets {
            copy_program(target, &built, folder)?;
        }
    }
    Ok(())
}

fn copy_program(target: &Target, built: &[PathBuf], folder: &Path) -> Result<(), Error> {
    let Some(program) = built.iter().find(|program| target.is_built_as(program)) else {
        let status = format!("it names no program {}", target.name);
        return Err(Error::Failed { command: "cargo".to_owned(), status });
    };
    let copy = folder.join(&target.name);
    fs::copy(program, &copy).map_err(Error::io("copy", program))?;
    // Names of a test's functions stay, for backtraces; the rest is most of the size. Without `strip` all of
    // it stays, and the limit on the bundle's size decides.
    let what = if target.kind == Kind::Test { "--strip-debug" } else { "--strip-all" };
    process::quietly(Command::new("strip").arg(what).arg(&copy));
    Ok(())
}

fn copy_ptx(built: &Path, folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    for family in workspace::families()? {
        for arch in &family.archs {
            let name = workspace::ptx_name(&family.library, *arch);
            fs::copy(built.join(&name), folder.join(&name)).map_err(Error::io("copy", built.join(&name)))?;
        }
    }
    Ok(())
}

/// Scripts that measure the competition, to be run on the same machine.
fn copy_baselines(folder: &Path) -> Result<(), Error> {
    let source = workspace::root().join("benches/baselines");
    let Ok(entries) = fs::read_dir(&source) else { return Ok(()) };
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let mut files = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    files.try_for_each(|path| copy_file(&path, folder))
}

fn copy_file(path: &Path, folder: &Path) -> Result<(), Error> {
    let copy = folder.join(path.file_name().unwrap_or_default());
    fs::copy(path, copy).map(drop).map_err(Error::io("copy", path))
}

fn write_script(path: &Path) -> Result<(), Error> {
    fs::write(path, RUN_SCRIPT).map_err(Error::io("write", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(Error::io("make executable", path))
}

/// Packs programs and PTX into one archive: they hold the same library code dozens of times, and kernels that
/// differ in a constant, which a dictionary as long as all of them makes small. Where tar or xz is missing
/// they stay as they are, and the limit decides.
fn pack(folder: &Path) {
    let archive = folder.join(ARCHIVE);
    let mut tar = Command::new("tar");
    tar.arg("--directory")
        .arg(folder)
        .args(["--use-compress-program", XZ, "--create", "--file"])
        .arg(&archive);
    let (packed, text) = process::quietly(tar.args(PACKED));
    if packed {
        PACKED.iter().for_each(|packed| drop(fs::remove_dir_all(folder.join(packed))));
    } else {
        eprintln!("{} not packed: {}", style(Style::Warn, "warning:"), text.trim());
        // A part of an archive would be unpacked as if it were whole.
        let _ = fs::remove_file(archive);
    }
}

fn count(folder: &Path) -> String {
    let files = |sub: &str| fs::read_dir(folder.join(sub)).map_or(0, Iterator::count);
    let parts =
        [("tests", "test program"), ("benches", "benchmark"), ("examples", "example"), ("ptx", "module")];
    parts.map(|(sub, noun)| plural(files(sub), noun)).join(", ")
}

fn report(folder: &Path, contents: &str) -> Result<(), Error> {
    let mut sizes = BTreeMap::new();
    measure(folder, &mut sizes)?;
    let mib = sizes.values().sum::<u64>().div_ceil(1 << 20);
    println!("{} {}: {contents} ({mib} MiB of {LIMIT_MIB})", style(Style::Ok, "bundle:"), folder.display());
    if mib <= LIMIT_MIB {
        return Ok(());
    }
    let mut largest: Vec<_> = sizes.into_iter().collect();
    largest.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let name = |(path, size): &(PathBuf, u64)| {
        format!("{} ({} MiB)", path.strip_prefix(folder).unwrap_or(path).display(), size >> 20)
    };
    let largest = largest.iter().take(5).map(name).collect::<Vec<_>>().join(", ");
    Err(Broken::BundleTooLarge { mib, limit: LIMIT_MIB, largest }.into())
}

fn measure(folder: &Path, sizes: &mut BTreeMap<PathBuf, u64>) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))?.flatten() {
        let metadata = entry.metadata().map_err(Error::io("read", entry.path()))?;
        if metadata.is_dir() {
            measure(&entry.path(), sizes)?;
        } else {
            sizes.insert(entry.path(), metadata.len());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_script(script: &Path) -> Command {
        let mut command = Command::new("sh");
        command.arg(script);
        command
    }

    #[test]
    fn programs_are_read_from_cargos_messages() {
        let message = |executable: &str| format!(r#"{{"manifest_path":"/w","executable":{executable}}}"#);
        assert_eq!(program(&message("\"/t/ops_saxpy-1\"")), Some("/t/ops_saxpy-1".into()));
        assert_eq!(program(&message("null")), None, "a library is no program");
        assert_eq!(program("not json"), None);
    }

    #[test]
    fn the_script_is_valid_shell_and_fails_on_nonsense() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("run");
        write_script(&script).unwrap();
        let (valid, text) = process::quietly(Command::new("sh").arg("-n").arg(&script));
        assert!(valid, "{text}");
        let (ran, text) = process::quietly(run_script(&script).arg("dance"));
        assert!(!ran && text.contains("run test"), "{text}");
    }

    /// A bundle of nothing, whose script is returned.
    fn empty_bundle(folder: &Path) -> PathBuf {
        PACKED.iter().for_each(|packed| fs::create_dir_all(folder.join(packed)).unwrap());
        let script = folder.join("run");
        write_script(&script).unwrap();
        script
    }

    /// Adds a shell script that behaves like a test program. Another process writes it: one that this process
    /// held open for writing could not be run as long as a child that another test starts has yet to close
    /// it.
    fn add_program(bundle: &Path, name: &str, body: &str) {
        let mut writer = Command::new("sh");
        writer.args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#]);
        let (written, text) = process::quietly(writer.arg(bundle.join("tests").join(name)).arg(body));
        assert!(written, "{text}");
    }

    #[test]
    fn the_script_compares_both_drivers() {
        let folder = tempfile::tempdir().unwrap();
        let script = empty_bundle(folder.path());
        let run = |nvidia: &str| {
            let tour = format!(
                "echo 'bits 0123456789abcdef a + b'; echo 'test one ... bits 0123456789abcdef c'\n\
                 [ $IRONWARP_DRIVER = soft ] && echo 'bits 00000000000000aa d' || {nvidia}"
            );
            add_program(folder.path(), "host.tour", &tour);
            process::quietly(run_script(&script).arg("agree"))
        };
        let (ok, text) = run("echo 'bits 00000000000000bb d'");
        assert!(ok && text.contains("differs in some bit: d\n"), "{text}");
        assert!(text.contains("agree: 2 of 3 results") && text.contains("; 0 were"), "{text}");
        let (ok, text) = run("echo 'bits 00000000000000aa e'");
        assert!(ok && text.contains("agree: 2 of 2 results") && text.contains("; 2 were"), "{text}");
        let (ok, text) = run("exit 1");
        assert!(!ok && text.contains("host.tour on the driver nvidia"), "{text}");
    }

    /// Each tool waits for the two others, and one of them finds something.
    #[test]
    fn the_script_runs_sanitizers_side_by_side() {
        let folder = tempfile::tempdir().unwrap();
        let script = empty_bundle(folder.path());
        add_program(folder.path(), "host.tour", PASSES);
        let all = "[ -e memcheck ] && [ -e synccheck ] && [ -e racecheck ]";
        let meet =
            format!("touch \"$2\"; for i in 1 2 3 4 5 6 7 8 9; do {all} && break; sleep 1; done; {all}");
        let run_it = "while [ \"${1#/}\" = \"$1\" ]; do shift; done; \"$1\"";
        add_program(
            folder.path(),
            "sanitizer",
            &format!("tool=$2; {meet} && {run_it}; [ $tool != synccheck ] || exit 9"),
        );
        let sanitizer = folder.path().join("tests/sanitizer");
        let (ok, text) =
            process::quietly(run_script(&script).arg("sanitize").env("COMPUTE_SANITIZER", sanitizer));
        for (tool, broken) in [("memcheck", 0), ("synccheck", 1), ("racecheck", 0)] {
            let line = format!("{tool}: 1 programs, {broken} of them failed");
            assert!(!ok && text.contains(&line), "{text}");
        }
    }

    /// A program's last line, with what it sees of the environment.
    const PASSES: &str = "echo; echo skipped: no Hopper; echo \"test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; driver $IRONWARP_DRIVER\"";

    /// One program passes, one fails, one hangs.
    #[test]
    fn the_script_counts_and_fails_when_a_program_does() {
        let folder = tempfile::tempdir().unwrap();
        let script = empty_bundle(folder.path());
        let program = |name: &str, body: &str| add_program(folder.path(), name, body);
        let run = |names: &str, limit: &str| {
            process::quietly(run_script(&script).args(["test", names]).env("IRONWARP_LIMIT", limit))
        };
        program("good", PASSES);
        let (ok, text) = run("", "20");
        assert!(ok && text.contains("test result: ok. 3 passed; 0 failed; 1 ignored; 1 skipped"), "{text}");
        program("bad", "echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured'; exit 101");
        let (ok, text) = run("", "20");
        assert!(
            !ok && text.contains("test result: FAILED. 4 passed; 2 failed; 1 ignored; 1 skipped"),
            "{text}"
        );
        program("dies", "echo 'skipped: a'; echo 'skipped: b'; exit 134");
        let (ok, text) = run("dies", "20");
        assert!(
            !ok && text.contains("test result: FAILED. 0 passed; 0 failed; 0 ignored; 2 skipped"),
            "{text}"
        );
        program("picky", &format!("[ \"$1\" = one_test ] && {PASSES}"));
        let (_, text) = process::quietly(run_script(&script).args(["test", "picky", "one_test"]));
        assert!(text.contains("3 passed"), "{text}");
        program("stuck", "sleep 20");
        let (ok, text) = run("stuck", "1");
        assert!(!ok && text.contains("stuck") && text.contains("timed out"), "{text}");
    }

    /// A later bundle that is copied over one that has run replaces its archive alone.
    #[test]
    fn the_script_unpacks_an_archive_once_and_another_anew() {
        let [folder, later] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        for (bundle, name) in [(&folder, "first"), (&later, "second")] {
            empty_bundle(bundle.path());
            add_program(bundle.path(), name, PASSES);
            pack(bundle.path());
        }
        let tests = folder.path().join("tests");
        assert!(!tests.is_dir(), "packed");
        let run = || process::quietly(run_script(&folder.path().join("run")).arg("test"));
        let (ok, text) = run();
        assert!(ok && text.contains("test: 1 programs") && tests.join("first").is_file(), "{text}");
        fs::copy(later.path().join(ARCHIVE), folder.path().join(ARCHIVE)).unwrap();
        let (ok, text) = run();
        assert!(ok && tests.join("second").is_file() && !tests.join("first").exists(), "{text}");
        add_program(folder.path(), "third", PASSES);
        let (ok, text) = run();
        assert!(ok && text.contains("test: 2 programs"), "unpacked again: {text}");
    }

    #[test]
    fn runs_that_begin_together_unpack_one_bundle() {
        let folder = tempfile::tempdir().unwrap();
        empty_bundle(folder.path());
        add_program(folder.path(), "first", PASSES);
        pack(folder.path());
        // Every run finds the bundle packed.
        let slow = "xz() { sleep 1; command xz \"$@\"; }; ";
        let script = folder.path().join("run");
        let text = fs::read_to_string(&script).unwrap();
        fs::write(&script, text.replacen("unpack() {", &format!("{slow}unpack() {{"), 1)).unwrap();
        let runs = [(); 3].map(|()| {
            let script = script.clone();
            std::thread::spawn(move || process::quietly(run_script(&script).arg("test")))
        });
        for run in runs {
            let (ok, text) = run.join().unwrap();
            assert!(ok && text.contains("test: 1 programs"), "{text}");
        }
        let left = fs::read_dir(folder.path()).unwrap().flatten();
        let left: Vec<_> =
            left.filter(|entry| entry.file_name().to_string_lossy().contains("unpacking")).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// The bundle's folder has a space in its name, and the folder for results is named from where the script
    /// is called.
    #[test]
    fn the_script_runs_wherever_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("my bundle");
        let script = empty_bundle(&bundle);
        let sees = "case $IRONWARP_PTX_DIR in /*) ;; *) exit 1 ;; esac";
        add_program(&bundle, "host.conformance", &format!("{sees}; {PASSES}"));
        add_program(&bundle, "host.alone", PASSES);
        let bench = bundle.join("tests/rows");
        add_program(&bundle, "rows", "[ -d \"$2\" ] && echo figures in \"$2\"");
        fs::rename(bench, bundle.join("benches/ops")).unwrap();
        let run = |mode: &str| {
            let mut command = run_script(&script);
            command.arg(mode).current_dir(folder.path()).env("IRONWARP_PTX_DIR", "my bundle/ptx");
            command.env("COMPUTE_SANITIZER", "/usr/bin/env").env("IRONWARP_SANITIZE_TOOLS", "none");
            process::quietly(command.env("IRONWARP_RESULTS", "there"))
        };
        let (ok, text) = run("test");
        assert!(ok && text.contains("test: 2 programs, 0 of them failed"), "{text}");
        assert!(folder.path().join("there/test.host.conformance.log").is_file(), "{text}");
        let (ok, text) = run("bench");
        assert!(ok && text.contains("bench: 1 programs ok") && text.contains("/there"), "{text}");
        let (_, text) = run("sanitize");
        assert!(
            text.contains("none: 1 programs") && text.contains("left out: host.alone: its kernels"),
            "{text}"
        );
        let compares =
            "[ \"$1\" = --compare ] && [ -d \"$2\" ] && [ \"$3\" = /usr/bin/env ] && echo compared";
        add_program(&bundle, "checker.corpus", compares);
        let (ok, text) = run("corpus");
        assert!(ok && text.contains("compared"), "{text}");
        let (_, text) = run("sanitize");
        assert!(text.contains("left out: checker.corpus: its kernels are wrong on purpose"), "{text}");
    }
}
