//! Full devices, readers that leave, folders that are gone, programs that are missing or broken.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::PROGRAM;
use crate::place::{Case, Place, To, faults, listing};

/// Calls that print, each with its exit code when nothing is in its way.
const PRINTING: &[(&str, i32)] = &[
    ("", 0),
    ("--help", 0),
    ("help", 0),
    ("demo|--help", 0),
    ("demo|-k5|-h", 0),
    ("new-kernel|--help", 0),
    ("doctor", 1),
    ("doctor|--json", 1),
    ("archive|--help", 0),
    ("package|--help", 0),
    ("port|--help", 0),
];

#[test]
fn a_reader_who_leaves_ends_the_command_quietly() {
    let lines = PRINTING.iter().map(|(line, _)| line.split('|').filter(|word| !word.is_empty()));
    let cases: Vec<_> = lines.map(|words| Case::new(words, 141, "").to(To::Nobody)).collect();
    Place::new().check(&cases);
}

#[test]
fn a_full_device_is_told_in_a_sentence() {
    let lines = PRINTING.iter().map(|(line, _)| line.split('|').filter(|word| !word.is_empty()));
    let cases: Vec<_> = lines.map(|words| Case::new(words, 1, "No space left").to(To::Full)).collect();
    Place::new().check(&cases);
}

/// Files are written before their list is printed: losing the reader loses no file.
#[test]
fn a_project_is_whole_though_nobody_reads() {
    for (to, code) in [(To::Test, 0), (To::Nobody, 141), (To::Full, 1)] {
        let place = Place::new();
        let output = place.run(&Case::new(["new-kernel", "blur", "--crate", "b/"], code, "").to(to));
        let wrong = faults(&output, code, "");
        assert!(wrong.is_empty(), "{to:?}: {wrong:?}");
        let names: Vec<_> = listing(&place.here()).into_iter().map(|(path, _)| path).collect();
        assert!(names.iter().all(|path| path.starts_with(place.here().join("b"))), "{names:?}");
        assert_eq!(names.iter().filter(|path| path.is_file()).count(), 11, "{names:?}");
    }
}

/// Standard error may be full as well: the exit code is all that is left.
#[test]
fn errors_that_cannot_be_told_do_not_panic() {
    let place = Place::new();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (args, code) in [(vec!["frobnicate"], 2), (vec!["--help"], 1), (vec!["new-kernel", ""], 2)] {
        let mut command = place.command(PROGRAM);
        let status = command.args(&args).stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

/// Runs a script that has the program's path as `$1`.
fn by_shell(place: &Place, script: &str, code: i32, says: &str) {
    place.check_scripts(&[(script, code, says)]);
    assert!(!place.log("installed").exists(), "{script}: it installed something");
}

#[test]
fn a_folder_that_is_gone_is_told_before_anything_else() {
    for line in [
        "demo x",
        "demo x --corpus .",
        "inspect",
        "build-kernels",
        "doctor",
        "test",
        "setup",
        "bench",
        "bundle",
        "tidy",
        "archive",
        "archive --no-machine-code",
        "package",
        "port .",
        "new-kernel blur --crate blur",
    ] {
        let place = Place::new();
        let script = format!(
            "mkdir gone && cd gone && rmdir ../gone && unset IRONWARP_DEVICE_RUSTC && exec \"$1\" {line}"
        );
        by_shell(&place, &script, 1, "the current folder cannot be used");
        assert!(!place.log("built").exists(), "{line}");
    }
    by_shell(&Place::new(), "mkdir gone && cd gone && rmdir ../gone && exec \"$1\" --help", 0, "Commands:");
}

#[test]
fn a_full_disk_leaves_no_half_of_a_project() {
    let place = Place::new();
    // Files end after 512 bytes.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$1\" new-kernel blur --crate blur";
    by_shell(&place, script, 1, "cannot write");
    assert!(listing(&place.here()).is_empty());
    by_shell(&place, "exec \"$1\" new-kernel blur --crate blur", 0, "wrote");
    by_shell(&place, "exec \"$1\" new-kernel blur --crate blur", 2, "exists already");
}

#[test]
fn a_folder_without_permission_is_told() {
    let place = Place::new();
    let allow = |mode| fs::set_permissions(place.here(), fs::Permissions::from_mode(mode)).unwrap();
    allow(0o555);
    // Root may write everywhere.
    if fs::write(place.here().join("probe"), "").is_err() {
        place.check(&[Case::new(["new-kernel", "blur", "--crate", "blur"], 1, "cannot create")]);
    }
    allow(0o755);
}

/// A project among the members of a workspace would break both.
#[test]
fn a_project_does_not_go_into_another_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = ["kernels-gpu/blur_project", "crates/../kernels-gpu/blur_project"];
    let place = Place::new();
    fs::create_dir_all(place.here().join("other/deep")).unwrap();
    let manifest = "[workspace]\nmembers = [\"deep/*\"]\nexclude = [\"target\"]\n";
    fs::write(place.here().join("other/Cargo.toml"), manifest).unwrap();
    let mut paths: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    paths.push("other/deep/blur".into());
    let line =
        |path: &Path| ["new-kernel".into(), "blur".into(), "--crate".into(), path.as_os_str().to_owned()];
    let cases: Vec<_> =
        paths.iter().map(|path| Case::new(line(path), 2, "cannot hold a project: it lies in")).collect();
    place.check(&cases);
    assert!(paths.iter().all(|path| !place.here().join(path).exists()));

    fs::create_dir(place.here().join("other/target")).unwrap();
    // Excluded, and a folder that is no member's.
    for folder in ["other/target/blur", "other/blur"] {
        let written = place.run(&Case::new(line(folder.as_ref()), 0, "wrote"));
        assert_eq!(faults(&written, 0, "wrote"), Vec::<String>::new());
    }
}

/// A program that is there and broken is told, not replaced.
#[test]
fn broken_programs_are_told() {
    let rustc = |path: &'static str, says| {
        ["setup", "inspect", "build-kernels", "bundle", "bench", "archive"]
            .map(|command| Case::new([command], 1, says).env("IRONWARP_DEVICE_RUSTC", path))
    };
    let mut cases = Vec::new();
    cases.extend(rustc("/no/such/rustc", "no such file"));
    cases.extend(rustc("/bin/false", "its answer to -vV is exit status: 1"));
    cases.extend(rustc("/bin/true", "names no release"));
    cases.extend(rustc("/etc/passwd", "cannot be run"));
    cases.extend(rustc("/", "no such file"));
    let doctor = |name, value, says| Case::new(["doctor"], 1, says).env(name, value);
    cases.push(doctor("IRONWARP_PTXAS", "/bin/true", "[warn] ptxas: /bin/true does not answer --version"));
    cases.push(doctor("IRONWARP_PTXAS", "/bin/false", "[warn] ptxas: /bin/false does not answer --version"));
    cases.push(doctor("IRONWARP_PTXAS", "/etc/passwd", "[warn] ptxas: /etc/passwd cannot be run"));
    cases.push(doctor("IRONWARP_PTXAS", "/no/such", "which is no file"));
    cases.push(doctor("RUSTC", "/bin/true", "[fail] host toolchain"));
    cases.push(doctor("RUSTC", "/no/such", "[fail] host toolchain"));
    Place::new().check(&cases);
}

#[test]
fn odd_environments_change_no_verdict() {
    let doctor = || Case::new(["doctor"], 1, "[fail] device compiler");
    let cases = [
        doctor().env("NO_COLOR", "").env("TERM", ""),
        doctor().env("CARGO_TARGET_DIR", ""),
        doctor().env("CARGO_TARGET_DIR", "/dev/null"),
        doctor().env("CARGO_TARGET_DIR", "a".repeat(100_000)),
        doctor().env("LD_LIBRARY_PATH", "::/no/such:\x1b"),
        doctor().env("LD_LIBRARY_PATH", "/:".repeat(10_000)),
        doctor().env("CUDA_HOME", "").env("CUDA_PATH", "/dev/null"),
        doctor().env("XDG_CACHE_HOME", "relative"),
        doctor().env("CARGO_HOME", "/dev/null").env("RUSTUP_HOME", "/dev/null"),
        doctor().env("IRONWARP_PTXAS", ""),
        doctor().env("CARGO", "").env("RUSTUP_TOOLCHAIN", "stable"),
        doctor().without("HOME"),
        Case::new(["doctor"], 1, "[fail]").env("PATH", ""),
        Case::new(["doctor"], 1, "[fail]").without("PATH"),
        Case::new(["demo", "x"], 1, "").env("CARGO", "/no/such/cargo"),
        Case::new(["demo", "--", "--corpus"], 1, ""),
        Case::new(["demo", "x", "--corpus", "."], 1, ""),
    ];
    Place::new().check(&cases);
}

/// `package` asks Cargo for the packages before it builds anything.
#[test]
fn a_package_without_cargo_is_told() {
    let place = Place::new();
    let package = |says| Case::new(["package"], 1, says);
    let answers = |name: &str, script: &str| {
        let program = place.log(name);
        testkit::process::write_script(&program, &format!("#!/bin/sh\n{script}\n"));
        program
    };
    place.check(&[
        package("`cargo metadata --no-deps --format-version 1` failed"),
        package("cannot run").env("CARGO", "/no/such/cargo"),
        package("cannot run").env("CARGO", "/etc/passwd"),
        package("cannot run").env("CARGO", ""),
        package("failed").env("CARGO", "/bin/false"),
        package("failed").env("CARGO", "/bin/true"),
        package("failed").env("CARGO", answers("garbage", "echo garbage")),
        package("failed").env("CARGO", answers("half", "printf '{\"packages\": ['")),
        package("names no packages").env("CARGO", answers("list", "echo '[1]'")),
        package("names no packages").env("CARGO", answers("empty", "echo '{\"packages\": []}'")),
    ]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for left in ["host/kernels.archive", "crates/cli/template"] {
        assert!(!root.join(left).exists(), "{left} is left behind");
    }
}

/// Streams that are closed or full, and limits.
const SCRIPTS: &[(&str, i32, &str)] = &[
    ("exec \"$1\" --help <&-", 0, "Commands:"),
    ("exec \"$1\" --help 2>&-", 0, "Commands:"),
    ("exec \"$1\" --help >&-", 0, ""),
    ("exec \"$1\" frobnicate <&- >&-", 2, "no command"),
    ("\"$1\" frobnicate 2>&-; [ $? = 2 ] && echo told", 0, "told"),
    ("exec 3> >(true); wait $!; exec \"$1\" --help >&3", 141, ""),
    ("exec 3> >(true); wait $!; exec \"$1\" doctor --json >&3", 141, ""),
    ("ulimit -n 8; exec \"$1\" package --help", 0, "Usage:"),
    ("ulimit -s 128; exec \"$1\" archive --help", 0, "Usage:"),
    ("env -i \"$1\" --help", 0, "Commands:"),
    ("unset PATH HOME; exec \"$1\" archive x", 2, "\"x\""),
];

#[test]
fn closed_streams_and_limits_are_borne() {
    Place::new().check_scripts(SCRIPTS);
}

/// Without a compiler the installers are called, after a word on why.
#[test]
fn a_missing_compiler_is_named_before_it_is_installed() {
    let place = Place::new();
    let case = Case::new(["setup"], 1, "cannot install the device compiler")
        .env("IRONWARP_DEVICE_RUSTC", "")
        .env("RUSTUP_HOME", "/nowhere");
    if Path::new("/usr/bin/rustc").exists() {
        return; // Debian's compiler is found wherever rustup looks
    }
    let output = place.run(&case);
    let wrong = faults(&output, case.code, case.says);
    assert!(wrong.is_empty(), "{wrong:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let (why, how) = (text.find("no device compiler"), text.find("installing the device compiler"));
    assert!(why.is_some() && why < how, "{text}");
    assert!(place.log("installed").exists());
}
