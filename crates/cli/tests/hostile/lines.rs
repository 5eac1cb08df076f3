//! Wrong lines and wrong places, each refused with a sentence before anything is built or written.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::PROGRAM;
use crate::place::{Case, Place, To, faults, listing};

const COMMANDS: [&str; 10] =
    ["new", "build", "inspect", "test", "bench", "launch", "topology", "doctor", "port", "setup"];
/// The commands that are about a project.
const OF_PROJECTS: [&str; 4] = ["build", "inspect", "test", "bench"];

/// Words of the command line, separated by `|`; the exit code; a part of the message.
const LINES: &[(&str, i32, &str)] = &[
    ("", 2, "no command \"\""),
    ("frobnicate", 2, "`ironwarp --help` lists the commands"),
    ("docter", 2, "did you mean `doctor`?"),
    ("nwe", 2, "did you mean `new`?"),
    ("build-kernels", 2, "no command"),
    ("Build", 2, "no command"),
    ("\x1b[31mred", 2, "no command \"\\u{1b}[31mred\""),
    ("--verbose", 2, "no command"),
    ("help|docter", 2, "did you mean `doctor`?"),
    ("help|new", 0, "Usage: ironwarp new NAME"),
    // new: the name.
    ("new", 2, "`ironwarp new NAME`"),
    ("new|", 2, "no name for a kernel"),
    ("new|..", 2, "no name for a kernel"),
    ("new|/etc/passwd", 2, "no name for a kernel"),
    ("new|a-b", 2, "no name for a kernel"),
    ("new|Blur", 2, "no name for a kernel"),
    ("new|blur\n", 2, "no name for a kernel"),
    ("new|$(id)", 2, "no name for a kernel"),
    ("new|fn", 2, "a word of Rust"),
    ("new|f32", 2, "hide"),
    ("new|core", 2, "has taken it"),
    ("new|memcpy", 2, "compilers call"),
    ("new|deps", 2, "cargo has folders"),
    ("new|hello", 2, "Ironwarp has a package"),
    ("new|libc", 2, "Ironwarp has a package"),
    ("new|--name|blur", 2, "--name"),
    // new: the folder.
    ("new|file", 2, "exists already"),
    ("new|link", 2, "exists already"),
    ("new|blur|", 2, "the path is empty"),
    ("new|blur|.", 2, "exists already"),
    ("new|blur|/", 2, "exists already"),
    ("new|blur|file/blur", 2, "does not exist"),
    ("new|blur|no/such/blur", 2, "does not exist"),
    ("new|blur|a:b", 2, "without colons"),
    ("new|blur|a\nb", 2, "control characters"),
    ("new|blur|/proc/blur", 1, "cannot create"),
    ("new|blur|a|b", 2, "\"b\""),
    // new: where Ironwarp is.
    ("new|blur|--ironwarp", 2, "--ironwarp"),
    ("new|blur|--ironwarp|", 1, "cannot find"),
    ("new|blur|--ironwarp|no/such", 1, "cannot find"),
    ("new|blur|--ironwarp|.", 2, "has no package `ironwarp`"),
    ("new|blur|--ironwarp|file", 2, "has no package `ironwarp`"),
    // The others.
    ("build|kernels", 2, "kernels"),
    ("build|--update-budget", 2, "--update-budget"),
    ("build|--arch|", 2, "fix:"),
    ("build|--arch|sm_", 2, "fix:"),
    ("build|--arch", 2, "--arch"),
    ("inspect|a|b", 2, "\"b\""),
    ("inspect|--ptx", 2, "--ptx needs the name"),
    ("test|--test", 2, "go behind `--`"),
    ("test|blur", 2, "go behind `--`"),
    ("test||--", 2, "go behind `--`"),
    ("bench|--quick", 2, "arguments of `cargo bench` go behind `--`"),
    ("doctor|--jsn", 2, "--jsn"),
    ("port", 2, "wanted: ironwarp port DIR"),
    ("port|no/such", 1, "cannot read no/such"),
    ("port|", 2, "the path is empty"),
    ("port|no\x1b[2J\nx", 1, "cannot read no\\u{1b}[2J\\nx"),
    ("port|link", 1, "cannot read link"),
    ("port|/dev/null", 1, "cannot read /dev/null"),
    ("port|.|..", 2, "\"..\""),
    ("port|.|--write=yes", 2, "--write"),
    ("port|file", 1, "cannot read"),
    ("port|.", 2, "Cargo.toml"),
    ("port|.|--wipe", 2, "--wipe"),
    ("setup|now", 2, "now"),
];

#[test]
fn wrong_lines_are_refused() {
    let cases: Vec<_> =
        LINES.iter().map(|(line, code, says)| Case::new(line.split('|'), *code, says)).collect();
    let place = Place::littered();
    place.check(&cases);
    assert!(!place.log("built").exists(), "cargo is not called for a wrong line");
}

#[test]
fn arguments_that_are_no_text_or_endless_are_refused() {
    let bad = OsStr::from_bytes(b"a\xff\x1b");
    let long = "x".repeat(100_000);
    let mut cases = vec![Case::new([bad], 2, "no command"), Case::new([&long], 2, "characters ..]")];
    for command in COMMANDS {
        if command != "port" && command != "inspect" {
            cases.push(Case::new([command.as_ref(), bad], 2, "error:"));
            cases.push(Case::new([command, &long], 2, "characters ..]"));
        }
        cases.push(Case::new([command, &format!("--{long}")], 2, "characters ..]"));
    }
    cases.push(Case::new([OsStr::new("port"), bad], 2, "error:"));
    cases.push(Case::new(["new", "blur", &long], 1, "characters ..]"));
    Place::littered().check(&cases);
}

#[test]
fn help_is_printed_wherever_it_is_asked_for() {
    let mut cases = vec![Case::new([""; 0], 0, "Usage: ironwarp")];
    cases.extend(["-h", "--help", "help"].map(|word| Case::new([word], 0, "Commands:")));
    cases.extend(["-V", "--version"].map(|word| Case::new([word], 0, env!("CARGO_PKG_VERSION"))));
    for command in COMMANDS {
        cases.push(Case::new([command, "--nonsense", "-h"], 0, "Examples:"));
    }
    Place::littered().check(&cases);
}

/// Cargo itself says what is wrong with a folder.
#[test]
fn a_folder_without_a_project_is_told() {
    let cargo = env::var_os("CARGO").unwrap();
    let place = Place::new();
    let check = |says| {
        let case = |command| Case::new([command], 1, says).env("CARGO", &cargo);
        place.check(&OF_PROJECTS.map(case));
    };
    check("could not find `Cargo.toml`");
    let manifest = |text: &str| fs::write(place.here().join("Cargo.toml"), text).unwrap();
    manifest("mine");
    check("no project that Cargo can read: ");
    manifest("[package]\nname = \"plain\"\nversion = \"0.1.0\"\n[lib]\npath = \"lib.rs\"\n");
    fs::write(place.here().join("lib.rs"), "").unwrap();
    let lists = |command| Case::new([command], 1, "lists architectures").env("CARGO", &cargo);
    place.check(&["build", "inspect"].map(lists));
    let unlisted = "[warn] kernels: no package of this project lists architectures";
    place.check(&[Case::new(["doctor"], 1, unlisted).env("CARGO", &cargo)]);
    manifest(
        "[package]\nname = \"k\"\nversion = \"0.1.0\"\n[lib]\npath = \"lib.rs\"\n[package.metadata.ironwarp]\narchs = 7\n",
    );
    let wanted = |command| Case::new([command], 1, "wanted a list").env("CARGO", &cargo);
    place.check(&["build", "inspect", "doctor"].map(wanted));
}

/// Where nothing can be written, not even by root.
#[test]
fn a_target_folder_that_cannot_be_is_told() {
    let place = Place::new();
    let manifest = "[package]\nname = \"plain\"\nversion = \"0.1.0\"\n[lib]\npath = \"lib.rs\"\n";
    fs::write(place.here().join("Cargo.toml"), manifest).unwrap();
    fs::write(place.here().join("lib.rs"), "").unwrap();
    for (folder, says) in
        [("/proc/nowhere", "cannot create /proc/nowhere/ironwarp"), ("/dev/null", "cannot create")]
    {
        let case = |command| {
            let case = Case::new([command], 1, says).env("CARGO_TARGET_DIR", folder);
            case.env("CARGO", env::var_os("CARGO").unwrap())
        };
        place.check(&["test", "bench"].map(case));
    }
}

#[test]
fn a_missing_or_broken_cargo_is_told() {
    let place = Place::new();
    place.check(&OF_PROJECTS.map(|command| Case::new([command], 1, "no project that Cargo can read")));
    let missing = |command| Case::new([command], 1, "cannot run").env("CARGO", "/no/such/cargo");
    place.check(&OF_PROJECTS.map(missing));
    let silent =
        |command| Case::new([command], 1, "no project that Cargo can read").env("CARGO", "/bin/true");
    place.check(&OF_PROJECTS.map(silent));
    place
        .check(&[Case::new(["doctor"], 1, "[fail] host toolchain").without("PATH").env("RUSTC", "/no/such")]);
}

#[test]
fn a_reader_who_leaves_and_a_full_device_end_the_program() {
    let lines = [vec![], vec!["--help"], vec!["new", "--help"], vec!["doctor"], vec!["doctor", "--json"]];
    let place = Place::new();
    place.check(&lines.clone().map(|words| Case::new(words, 141, "").to(To::Nobody)));
    place.check(&lines.map(|words| Case::new(words, 1, "No space left").to(To::Full)));
    for (to, code) in [(To::Nobody, 141), (To::Full, 1)] {
        let place = Place::new();
        let output = place.run(&Case::new(["new", "blur"], code, "").to(to));
        assert_eq!(faults(&output, code, ""), Vec::<String>::new(), "{to:?}");
        let files = listing(&place.here()).into_iter().filter(|(path, _)| path.is_file()).count();
        assert_eq!(files, 11, "the project is whole though nobody reads");
    }
}

#[test]
fn a_folder_that_is_gone_or_closed_is_told() {
    let place = Place::new();
    for command in COMMANDS {
        let script = format!("mkdir gone && cd gone && rmdir ../gone && exec \"$1\" {command}");
        let output = place.command("sh").args(["-c", &script, "sh", PROGRAM]).output().unwrap();
        let wrong = faults(&output, 1, "the current folder cannot be used");
        assert_eq!(wrong, Vec::<String>::new(), "{command}");
    }
    let allow = |mode| fs::set_permissions(place.here(), fs::Permissions::from_mode(mode)).unwrap();
    allow(0o555);
    // Root may write everywhere.
    if fs::write(place.here().join("probe"), "").is_err() {
        place.check(&[Case::new(["new", "blur"], 1, "cannot create")]);
    }
    allow(0o755);
}

/// A full disk leaves no half of a project, and the script of the checker can be run.
#[test]
fn a_project_is_whole_or_not_there() {
    let place = Place::new();
    let shell = |script: &str, code, says: &str| {
        let output = place.command("sh").args(["-c", script, "sh", PROGRAM]).output().unwrap();
        assert_eq!(faults(&output, code, says), Vec::<String>::new(), "{script}");
    };
    // Files end after 512 bytes.
    shell("trap '' XFSZ; ulimit -f 1; exec \"$1\" new blur", 1, "cannot write");
    assert!(listing(&place.here()).is_empty());
    shell("exec \"$1\" new blur", 0, "wrote blur");
    shell("exec \"$1\" new blur", 2, "exists already");
    let script = place.here().join("blur/.cargo/rustc-checked");
    let answer = Command::new(script).args(["echo", "called"]).output().unwrap();
    assert_eq!(answer.stdout, b"called\n");
}

/// It gives flags to packages whose manifests ask for the checker, with any blanks and comments.
#[test]
fn the_script_of_the_checker_reads_manifests() {
    let place = Place::new();
    let output = place.command(PROGRAM).args(["new", "blur"]).output().unwrap();
    assert_eq!(faults(&output, 0, "wrote blur"), Vec::<String>::new());
    let (script, folder) =
        (place.here().join("blur/.cargo/rustc-checked"), place.here().join("blur/kernels"));
    for (line, is_checked) in [
        ("checked = true", true),
        ("\tchecked=true# dev builds", true),
        ("checked =  true   # dev builds\r", true),
        ("checked = false # true", false),
        ("# checked = true", false),
        ("unchecked = true", false),
    ] {
        let manifest = format!("[package.metadata.ironwarp]\n{line}\n");
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        let answer = Command::new(&script).arg("echo").env("CARGO_MANIFEST_DIR", &folder).output().unwrap();
        let flags = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert_eq!(flags.contains("tsan"), is_checked, "{line:?}: {flags}");
    }
}
