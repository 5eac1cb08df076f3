//! Every command as a new user types it, in a folder outside of this repository.

mod user;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use user::{copy, text};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A test of the kernel without the host library, which takes a minute to compile. The checker has to see the
/// write behind the end of `y`.
const KERNEL_TEST: &str = r#"
#[cfg(test)]
mod tests {
    use simt::{LaunchConfig, Options, memory::Tracked};

    #[test]
    fn the_end_of_y_is_known() {
        for (len, fits) in [(64, true), (63, false)] {
            let (x, mut y) = ([1.0f32; 64], vec![0.0f32; len]);
            let tracked = Tracked::new(&mut y, "y");
            let place = tracked.as_ptr() as usize;
            let run = || unsafe { super::blur(2.0, &x, place as *mut f32) };
            let outcome = simt::run(&LaunchConfig::linear(1, 64), &Options::default(), run);
            drop(tracked);
            assert_eq!(outcome.is_ok(), fits, "{len}");
            assert_eq!(y[0], 2.0);
        }
    }
}
"#;

/// A call of the program or of cargo, with a build folder that is kept between runs.
fn call(program: &str, args: &[&str], folder: &Path) -> Command {
    let mut command = user::command(program, args, folder);
    command.env("CARGO_TARGET_DIR", target()).env("CARGO_NET_OFFLINE", "true");
    // Less to do for the compiler.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    command.env("CARGO_INCREMENTAL", "0");
    command.env("CARGO_PROFILE_BENCH_OPT_LEVEL", "0");
    command
}

/// Shared with the projects of `xtask/tests/projects`, which have the same dependencies.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("projects")
}

fn ironwarp(args: &[&str], folder: &Path) -> Output {
    call(env!("CARGO_BIN_EXE_ironwarp"), args, folder).output().unwrap()
}

/// The output of a call that succeeds.
fn good(args: &[&str], folder: &Path) -> String {
    let output = ironwarp(args, folder);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

/// Changes a file, which has to hold the text that is replaced.
fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{}: {text}", path.display());
    fs::write(path, text.replace(from, to)).unwrap();
}

/// Writes a project for one architecture.
fn new_project(around: &Path, name: &str) -> PathBuf {
    let shown = good(&["new", name, "--ironwarp", REPOSITORY], around);
    assert!(shown.contains(&format!("wrote {name}\n")) && shown.contains("cargo test"), "{shown}");
    let project = around.join(name);
    // Dependencies that are here already.
    fs::copy(Path::new(REPOSITORY).join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    edit(&project.join("kernels/Cargo.toml"), "\"sm_80\", \"sm_90a\"", "\"sm_80\"");
    project
}

/// Writes the project, with a test of the kernel.
fn written(around: &Path) -> PathBuf {
    let project = new_project(around, "blur");
    let manifest = project.join("kernels/Cargo.toml");
    let simt = fs::canonicalize(Path::new(REPOSITORY).join("crates/simt")).unwrap();
    // For this machine alone: the device compiler gets no dependencies of tests.
    let dependency =
        format!("[dev-dependencies]\nsimt = {{ package = \"ironwarp-simt\", path = {simt:?} }}\n");
    edit(&manifest, "[dependencies]\n", &format!("{dependency}\n[dependencies]\n"));
    let text = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    let (without_profiles, _) = text.split_once("# Kernels run on the CPU").unwrap();
    fs::write(project.join("Cargo.toml"), without_profiles).unwrap();
    let kernel = project.join("kernels/src/lib.rs");
    let source = fs::read_to_string(&kernel).unwrap();
    fs::write(&kernel, source + KERNEL_TEST).unwrap();
    project
}

/// The kernels for a GPU.
fn builds_and_inspects(project: &Path) {
    if let Err(error) = cuda_builder::DeviceToolchain::find() {
        return testkit::skip(&format!("no device compiler ({error})"));
    }
    let ptx = target().join("ptx/blur_kernels.sm_80.ptx");
    let _ = fs::remove_file(&ptx); // of the run before
    let unlisted = ptx.with_file_name("blur_kernels.sm_75.ptx");
    fs::create_dir_all(target().join("ptx")).unwrap();
    fs::write(&unlisted, "of an earlier build").unwrap();
    let built = good(&["build", "--family", "kernels"], project);
    assert!(built.contains("PTX: 1 module") && built.contains("removed blur_kernels.sm_75.ptx"), "{built}");
    assert!(!unlisted.exists());
    assert!(fs::read_to_string(&ptx).unwrap().contains(".entry blur("));
    // Elsewhere in the project, and with nothing to do.
    let again = good(&["build"], &project.join("kernels/src"));
    assert!(again.contains("0 built, 1 up to date"), "{again}");
    let shown = ironwarp(&["inspect", "blur", "--json"], project);
    assert!(shown.status.success(), "{}", text(&shown));
    let rows: serde_json::Value =
        serde_json::from_slice(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&shown)));
    assert_eq!(rows[0]["family"], "blur_kernels", "{rows}");
    assert!(rows[0]["instructions"].as_object().is_some_and(|counts| !counts.is_empty()), "{rows}");
    let refused = ironwarp(&["build", "--arch", "sm_75"], project);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
}

/// Runs the test of the kernel.
const TEST: [&str; 5] = ["test", "--", "--package", "blur_kernels", "--lib"];

/// The tests, under the checker.
fn tests_under_the_checker(project: &Path) {
    let tested = good(&TEST, project);
    assert!(tested.contains("driver: software (IRONWARP_DRIVER=soft)"), "{tested}");
    assert!(tested.contains("checker: on, for every load and store of kernels\n"), "{tested}");
    assert!(tested.contains("test result: ok. 1 passed"), "{tested}");
}

/// The same without the project's own settings: by this program's, and without either.
fn tests_without_settings(project: &Path) {
    fs::remove_dir_all(project.join(".cargo")).unwrap();
    tests_under_the_checker(project);
    let bench = good(&["bench", "--", "-h"], project);
    assert!(bench.contains("compiled for speed") && bench.contains("benchmarks"), "{bench}");
    let unseen = call("cargo", &["test", "--package", "blur_kernels", "--lib"], project).output().unwrap();
    assert!(text(&unseen).contains("1 failed"), "without the script: {}", text(&unseen));
    let failed = call(env!("CARGO_BIN_EXE_ironwarp"), &TEST, project)
        .env("RUSTC_WORKSPACE_WRAPPER", "/usr/bin/env")
        .output()
        .unwrap();
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
    assert!(text(&failed).contains("own rustc-workspace-wrapper /usr/bin/env"), "{}", text(&failed));
}

#[test]
fn a_new_project_builds_and_its_tests_run_under_the_checker() {
    let around = tempfile::tempdir().unwrap();
    let project = written(around.path());
    let found = text(&ironwarp(&["doctor"], &project));
    assert!(found.contains("kernels: blur_kernels (sm_80)"), "{found}");
    // Compilers for the GPU and for this machine, each on a core.
    std::thread::scope(|threads| {
        let device = threads.spawn(|| builds_and_inspects(&project));
        tests_under_the_checker(&project);
        device.join().unwrap();
    });
    tests_without_settings(&project);
    std_is_refused(&project);
}

/// By the compiler of the program, before any PTX is built.
fn std_is_refused(project: &Path) {
    edit(&project.join("kernels/src/lib.rs"), "use cuda_std", "use std::collections::HashMap;\nuse cuda_std");
    let refused = call("cargo", &["build", "--package", "blur_kernels"], project).output().unwrap();
    assert!(!refused.status.success() && text(&refused).contains("`std`"), "{}", text(&refused));
}

/// A project whose program only says where its build script puts the PTX: it does without the host library.
fn without_host(around: &Path) -> PathBuf {
    let project = new_project(around, "late");
    fs::remove_file(project.join("src/lib.rs")).unwrap();
    fs::remove_dir_all(project.join("benches")).unwrap();
    fs::remove_dir_all(project.join("tests")).unwrap();
    fs::write(project.join("src/main.rs"), "fn main() {\n    print!(env!(\"KERNELS_PTX\"));\n}\n").unwrap();
    let manifest = project.join("Cargo.toml");
    edit(&manifest, "[[bench]]\nname = \"late\"\nharness = false\n", "");
    let text = fs::read_to_string(&manifest).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("ironwarp = "));
    fs::write(&manifest, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    project
}

/// The module of that project.
const PTX: &str = "late_kernels.sm_80.ptx";

/// Cargo runs the build script again when a compiler appears, and then no more.
#[test]
fn ptx_comes_with_the_device_compiler() {
    let compiler = match cuda_builder::DeviceToolchain::find() {
        Ok(compiler) => compiler,
        Err(error) => return testkit::skip(&format!("no device compiler ({error})")),
    };
    let around = tempfile::tempdir().unwrap();
    let project = without_host(around.path());
    let programs = around.path().join("bin");
    let run = || {
        let mut cargo = call("cargo", &["run"], &project);
        let output = cargo.env(cuda_builder::DEVICE_RUSTC, programs.join("rustc")).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let folder = PathBuf::from(String::from_utf8(output.stdout.clone()).unwrap());
        (folder.join(PTX).is_file(), text(&output), folder)
    };
    let (is_built, shown, _) = run();
    assert!(!is_built && shown.contains("no PTX for GPUs"), "{shown}");
    std::os::unix::fs::symlink(compiler.rustc.parent().unwrap(), &programs).unwrap();
    let (is_built, shown, _) = run();
    assert!(is_built && !shown.contains("no PTX for GPUs"), "{shown}");
    let (is_built, shown, folder) = run();
    assert!(is_built && !shown.contains("Compiling late"), "{shown}");

    // Of changed kernels the program gets no PTX of before: not for an architecture that is no longer listed,
    // and none at all without a compiler.
    let ptx = || -> Vec<_> { fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect() };
    let source = project.join("kernels/src/lib.rs");
    fs::write(folder.join("late_kernels.sm_90a.ptx"), "of an earlier build").unwrap();
    edit(&source, "a * x[i]", "2.0 * a * x[i]");
    let (_, shown, _) = run();
    assert_eq!(ptx(), [PTX], "{shown}");
    fs::remove_file(&programs).unwrap();
    edit(&source, "2.0 * a", "3.0 * a");
    let (is_built, shown, _) = run();
    assert!(!is_built && shown.contains("no PTX for GPUs"), "{shown}");
}

/// Lines for the manifest name the repository, which needs no checkout.
#[test]
fn a_port_takes_its_packages_from_the_repository() -> Result<(), Box<dyn Error>> {
    let around = tempfile::tempdir()?;
    copy(&Path::new(REPOSITORY).join("xtask/tests/rust_cuda"), around.path())?;
    let shown = good(&["port", "."], around.path());
    let written = good(&["port", ".", "--write"], around.path());
    assert!(shown.contains("crates.io, unchanged") && written.contains("lines added"), "{shown}{written}");
    let manifest: toml::Table = fs::read_to_string(around.path().join("Cargo.toml"))?.parse()?;
    let patch = manifest["patch"]["crates-io"].as_table().ok_or("no patch")?;
    for name in ["cuda_std", "cuda_builder", "cust_core", "find_cuda_helper"] {
        assert_eq!(patch[name]["git"].as_str(), Some(env!("CARGO_PKG_REPOSITORY")), "{name}");
        assert!(Path::new(REPOSITORY).join("facades").join(name).is_dir(), "{name}");
    }
    Ok(())
}
