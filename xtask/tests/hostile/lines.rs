//! Wrong command lines, each refused with a sentence before anything is built.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::place::{Case, Place, listing};

const COMMANDS: [&str; 13] = [
    "setup",
    "build-kernels",
    "inspect",
    "demo",
    "new-kernel",
    "test",
    "bench",
    "doctor",
    "bundle",
    "tidy",
    "archive",
    "package",
    "port",
];

/// Words of the command line, separated by `|`; the exit code; a part of the message.
const LINES: &[(&str, i32, &str)] = &[
    ("", 2, "no command \"\""),
    (" ", 2, "no command \" \""),
    ("-", 2, "no command"),
    ("--", 2, "no command"),
    ("frobnicate", 2, "lists the commands"),
    ("docter", 2, "did you mean `doctor`?"),
    ("Test", 2, "no command"),
    ("test ", 2, "no command"),
    ("--version", 2, "no command"),
    ("a\nb", 2, "no command \"a\\nb\""),
    ("\x1b[31mred", 2, "no command \"\\u{1b}[31mred\""),
    ("../doctor", 2, "no command"),
    ("💥", 2, "no command"),
    // new-kernel: the name.
    ("new-kernel", 2, "wants a name"),
    ("new-kernel|", 2, "no name for a kernel"),
    ("new-kernel| ", 2, "no name for a kernel"),
    ("new-kernel|.", 2, "no name for a kernel"),
    ("new-kernel|..", 2, "no name for a kernel"),
    ("new-kernel|/", 2, "no name for a kernel"),
    ("new-kernel|/etc/passwd", 2, "no name for a kernel"),
    ("new-kernel|../../blur", 2, "no name for a kernel"),
    ("new-kernel|a/b", 2, "no name for a kernel"),
    ("new-kernel|a.b", 2, "no name for a kernel"),
    ("new-kernel|a-b", 2, "no name for a kernel"),
    ("new-kernel|a__b", 2, "no name for a kernel"),
    ("new-kernel|a_", 2, "no name for a kernel"),
    ("new-kernel|_a", 2, "no name for a kernel"),
    ("new-kernel|1st", 2, "no name for a kernel"),
    ("new-kernel|Blur", 2, "no name for a kernel"),
    ("new-kernel|blür", 2, "no name for a kernel"),
    ("new-kernel|blur\n", 2, "no name for a kernel"),
    ("new-kernel|bl\tur", 2, "no name for a kernel"),
    ("new-kernel|\x1b]0;x\x07", 2, "no name for a kernel"),
    ("new-kernel|a\"; rm -rf ~", 2, "no name for a kernel"),
    ("new-kernel|$(id)", 2, "no name for a kernel"),
    ("new-kernel|a\\b", 2, "no name for a kernel"),
    ("new-kernel|__NAME__", 2, "no name for a kernel"),
    ("new-kernel|fn", 2, "a word of Rust"),
    ("new-kernel|self", 2, "a word of Rust"),
    ("new-kernel|async", 2, "a word of Rust"),
    ("new-kernel|gen", 2, "a word of Rust"),
    ("new-kernel|f32", 2, "hide"),
    ("new-kernel|thread", 2, "hide"),
    ("new-kernel|core", 2, "has taken it"),
    ("new-kernel|std", 2, "has taken it"),
    ("new-kernel|test", 2, "has taken it"),
    ("new-kernel|main", 2, "has taken it"),
    ("new-kernel|cuda_std", 2, "has taken it"),
    ("new-kernel|ironwarp", 2, "has taken it"),
    ("new-kernel|memcpy", 2, "compilers call"),
    ("new-kernel|printf", 2, "compilers call"),
    ("new-kernel|build", 2, "cargo has folders"),
    ("new-kernel|deps", 2, "cargo has folders"),
    ("new-kernel|gemm", 2, "Ironwarp has a package"),
    ("new-kernel|hello", 2, "Ironwarp has a package"),
    ("new-kernel|simt", 2, "Ironwarp has a package"),
    ("new-kernel|xtask", 2, "Ironwarp has a package"),
    ("new-kernel|libc", 2, "Ironwarp has a package"),
    ("new-kernel|serde_json", 2, "Ironwarp has a package"),
    ("new-kernel|libc|--crate|blur", 2, "Ironwarp has a package"),
    ("new-kernel|blur|sharpen", 2, "sharpen"),
    ("new-kernel|--name|blur", 2, "--name"),
    ("new-kernel|-x", 2, "-x"),
    ("new-kernel|--crate|x", 2, "wants a name"),
    ("new-kernel|--|-blur", 2, "no name for a kernel"),
    // new-kernel: the folder.
    ("new-kernel|blur|--crate", 2, "--crate"),
    ("new-kernel|blur|--crate|", 2, "the path is empty"),
    ("new-kernel|blur|--crate=", 2, "the path is empty"),
    ("new-kernel|blur|--crate| ", 2, "the path is empty"),
    ("new-kernel|blur|--crate|.", 2, "exists already"),
    ("new-kernel|blur|--crate|./", 2, "exists already"),
    ("new-kernel|blur|--crate|..", 2, "exists already"),
    ("new-kernel|blur|--crate|../here", 2, "exists already"),
    ("new-kernel|blur|--crate|/", 2, "exists already"),
    ("new-kernel|blur|--crate|//", 2, "exists already"),
    ("new-kernel|blur|--crate|/etc/passwd", 2, "exists already"),
    ("new-kernel|blur|--crate|/dev/null", 2, "exists already"),
    ("new-kernel|blur|--crate|Cargo.toml", 2, "exists already"),
    ("new-kernel|blur|--crate|link", 2, "exists already"),
    ("new-kernel|blur|--crate|file/blur", 2, "does not exist"),
    ("new-kernel|blur|--crate|no/such/blur", 2, "does not exist"),
    ("new-kernel|blur|--crate|no/../blur", 2, "does not exist"),
    ("new-kernel|blur|--crate|no/..", 2, "no folder to write into"),
    ("new-kernel|blur|--crate|a:b", 2, "without colons"),
    ("new-kernel|blur|--crate|a\nb", 2, "control characters"),
    ("new-kernel|blur|--crate|\x1b[2J", 2, "control characters"),
    ("new-kernel|blur|--crate|/proc/blur", 1, "cannot create"),
    ("new-kernel|blur|--crate|x|--crate|..", 2, "exists already"),
    // demo
    ("demo|", 2, "the query is empty"),
    ("demo| |\t", 2, "the query is empty"),
    ("demo|-k", 2, "'-k'"),
    ("demo|x|-k|", 2, "1 to 128"),
    ("demo|x|-k|0", 2, "1 to 128"),
    ("demo|x|-k|-1", 2, "1 to 128"),
    ("demo|x|-k|129", 2, "1 to 128"),
    ("demo|x|-k|1e3", 2, "1 to 128"),
    ("demo|x|-k5.0", 2, "1 to 128"),
    ("demo|x|-k|99999999999999999999999", 2, "1 to 128"),
    ("demo|x|-k|--corpus", 2, "1 to 128"),
    ("demo|--corpus", 2, "--corpus"),
    ("demo|--corpus=", 2, "empty name"),
    ("demo|--corpus|", 2, "empty name"),
    ("demo|--corpus|no/such", 2, "does not exist"),
    ("demo|--corpus|file", 2, "is a file"),
    ("demo|--corpus|link", 2, "does not exist"),
    ("demo|--corpus|/dev/null", 2, "is a file"),
    ("demo|--corpus|/proc", 2, "system's state"),
    ("demo|--corpus|/proc/self", 2, "system's state"),
    ("demo|--corpus|/proc/self/../../sys", 2, "system's state"),
    ("demo|--corpus|/sys/kernel", 2, "system's state"),
    ("demo|--corpus|/dev/", 2, "system's state"),
    ("demo|--build-ms|5", 2, "--build-ms"),
    ("demo|--json=1", 2, "--json"),
    ("demo|-x", 2, "-x"),
    // The others.
    ("bench|nosuchbench", 2, "no benchmark"),
    ("bench|", 2, "no benchmark"),
    ("bench|cosin", 2, "did you mean `cosine`?"),
    ("bench|cosine|*", 2, "no benchmark \"*\""),
    ("bench|../basic", 2, "no benchmark"),
    ("bench|--quick", 2, "go behind `--`"),
    ("bench|-|--", 2, "go behind `--`"),
    ("build-kernels|--family", 2, "--family"),
    ("build-kernels|--family|", 2, "no kernel family \"\""),
    ("build-kernels|--family|gem", 2, "did you mean `gemm`?"),
    ("build-kernels|--family|gemm,", 2, "no kernel family \"\""),
    ("build-kernels|--family|gemm,../basic", 2, "no kernel family"),
    ("build-kernels|--family=a\x1bb", 2, "no kernel family"),
    ("build-kernels|--arch|", 2, "fix:"),
    ("build-kernels|--arch|sm_", 2, "fix:"),
    ("build-kernels|--arch|sm_80,,", 2, "fix:"),
    ("build-kernels|--arch|sm_99999999999", 2, "fix:"),
    ("build-kernels|--arch|compute_80", 2, "fix:"),
    ("build-kernels|--arch|sm_\n", 2, "fix:"),
    ("build-kernels|--update-budget=yes", 2, "--update-budget"),
    ("build-kernels|gemm", 2, "gemm"),
    ("build-kernels|--", 1, "IRONWARP_DEVICE_RUSTC"),
    ("inspect|a|b", 2, "\"b\""),
    ("inspect|--ptx", 2, "--ptx needs the name"),
    ("inspect|--family|nope", 2, "no kernel family"),
    ("inspect|--arch|sm_1", 2, "no GPU architecture"),
    ("inspect|saxpy|--json|--xml", 2, "--xml"),
    ("inspect|sazpy", 2, "did you mean `saxpy`?"),
    ("test|--fast", 2, "--fast"),
    ("test|gemm", 2, "gemm"),
    ("test|--quick=no", 2, "--quick"),
    ("doctor|--jsn", 2, "--jsn"),
    ("doctor|--json|x", 2, "\"x\""),
    ("bundle|--no-line-info|no_such_program", 2, "no_such_program"),
    ("bundle|-n", 2, "-n"),
    ("archive|--", 1, "IRONWARP_DEVICE_RUSTC"),
    ("archive|x", 2, "\"x\""),
    ("archive|", 2, "\"\""),
    ("archive|-n", 2, "-n"),
    ("archive|--arch|sm_80", 2, "--arch"),
    ("archive|--machine-code", 2, "--machine-code"),
    ("archive|--no-machine-code=yes", 2, "--no-machine-code"),
    ("archive|--no-machine-code|x", 2, "\"x\""),
    ("archive|--family", 2, "--family"),
    ("archive|--family|", 2, "no kernel family \"\""),
    ("archive|--family=", 2, "no kernel family \"\""),
    ("archive|--family|gem", 2, "did you mean `gemm`?"),
    ("archive|--family|gemm,,basic", 2, "no kernel family \"\""),
    ("archive|--family|../gemm", 2, "no kernel family"),
    ("archive|--family|\x1b[2J", 2, "no kernel family \"\\u{1b}[2J\""),
    ("archive|--family|gemm|--family|nope", 2, "no kernel family \"nope\""),
    ("archive|--no-machine-code|--family|gemm\n", 2, "no kernel family \"gemm\\n\""),
    ("archive|--family|basic|--no-machine-code", 1, "IRONWARP_DEVICE_RUSTC"),
    ("package|x", 2, "\"x\""),
    ("package|", 2, "\"\""),
    ("package|-", 2, "\"-\""),
    ("package|--|x", 2, "\"x\""),
    ("package|--family|basic", 2, "--family"),
    ("package|--no-verify", 2, "--no-verify"),
    ("package|--no-machine-code=", 2, "--no-machine-code"),
    ("package|--no-machine-code|\x1b", 2, "\\u{1b}"),
    ("archiv", 2, "did you mean `archive`?"),
    ("packages", 2, "did you mean `package`?"),
    ("port|no/such", 1, "cannot read no/such"),
    ("port|", 2, "the path is empty"),
    ("port|no\x1b[2J", 1, "cannot read"),
    ("port|file", 1, "cannot read"),
    ("port|link", 1, "cannot read"),
    ("port|/", 1, "cannot read /Cargo.toml"),
    ("port|a|b", 2, "\"b\""),
    ("tidy|--fix", 2, "--fix"),
    ("setup|--force", 2, "--force"),
    ("setup|now", 2, "now"),
];

#[test]
fn wrong_lines_are_refused() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels-gpu");
    let before = listing(&kernels);
    let cases: Vec<_> =
        LINES.iter().map(|(line, code, says)| Case::new(line.split('|'), *code, says)).collect();
    let place = Place::littered();
    place.check(&cases);
    assert_eq!(listing(&kernels), before, "nothing is written into the workspace");
    assert!(!place.log("built").exists(), "nothing is built for a wrong line");
}

#[test]
fn arguments_that_are_no_text_are_refused() {
    let bad = OsStr::from_bytes(b"a\xff\x1b");
    let joined = OsStr::from_bytes(b"--crate=\xff");
    let mut cases = vec![Case::new([bad], 2, "no command")];
    let lines: [&[&OsStr]; 6] = [
        &[bad],
        &["blur".as_ref(), bad],
        &["blur".as_ref(), "--crate".as_ref(), bad],
        &["blur".as_ref(), joined],
        &["--family".as_ref(), bad],
        &["--arch".as_ref(), bad],
    ];
    for (command, line) in COMMANDS.into_iter().flat_map(|command| lines.map(|line| (command, line))) {
        let takes = |commands: &[&str]| commands.contains(&command);
        // Refused as an option that is none, or as a name or path that is none.
        if !takes(&["demo"]) || line[0] != "blur" || line.len() != 2 {
            cases.push(Case::new(
                std::iter::once(OsStr::new(command)).chain(line.iter().copied()),
                2,
                "error:",
            ));
        }
    }
    Place::littered().check(&cases);
}

#[test]
fn arguments_of_any_length_give_a_short_message() {
    let long = "x".repeat(100_000);
    let many = vec!["a"; 20_000].join(",");
    let mut cases = vec![Case::new([&long], 2, "characters ..]")];
    for command in COMMANDS {
        // Any words are a query, and kernels are known once they are built.
        if !["demo", "inspect", "port"].contains(&command) {
            cases.push(Case::new([command, &long], 2, "characters ..]"));
        }
        cases.push(Case::new([command, &format!("--{long}")], 2, "characters ..]"));
    }
    for (command, option) in [
        ("build-kernels", "--family"),
        ("build-kernels", "--arch"),
        ("inspect", "--arch"),
        ("archive", "--family"),
    ] {
        cases.push(Case::new([command, option, &long], 2, "characters ..]"));
        cases.push(Case::new([command, option, &many], 2, "a"));
    }
    cases.push(Case::new(["new-kernel", "blur", "--crate", &long], 1, "characters ..]"));
    cases.push(Case::new(["demo", "x", "--corpus", &long], 2, "characters ..]"));
    cases.push(Case::new(["demo", "x", "-k", &long], 2, "characters ..]"));
    let words: Vec<OsString> = std::iter::once("setup").chain(["x"; 5_000]).map(OsString::from).collect();
    cases.push(Case::new(words, 2, "\"x\""));
    Place::littered().check(&cases);
}

#[test]
fn help_is_printed_wherever_it_is_asked_for() {
    let mut cases = vec![Case::new([""; 0], 0, "Usage:")];
    cases.extend(["-h", "--help", "help"].map(|word| Case::new([word], 0, "Commands:")));
    for command in COMMANDS {
        cases.push(Case::new([command, "--help"], 0, "Usage:"));
        cases.push(Case::new([command, "--nonsense", "-h"], 0, "Usage:"));
    }
    cases.push(Case::new(["demo", "-k", "129", "-h"], 0, "1 to 128"));
    Place::littered().check(&cases);
}
