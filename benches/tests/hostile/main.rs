//! A bench program as a hostile user would call it: whatever comes, it ends with one message and the right
//! exit code, and files are written whole or not at all.

#[path = "../../../crates/cli/tests/hostile/place.rs"]
mod place;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use place::{Case, Place, To, listing};
use testkit::process::ended_by;

const PROGRAM: &str = env!("CARGO_BIN_EXE_smallest");

fn bench<'a>(line: &str, code: i32, says: &'a str) -> Case<'a> {
    Case::new(line.split('|'), code, says).env("IRONWARP_DRIVER", "soft")
}

/// A place without anything, whose folder for temporary files is no part of it.
fn quiet() -> Place {
    let place = Place::new();
    fs::write(place.here().join("file"), "mine").unwrap();
    place
}

/// Part of the output of a run that has measured something.
const MEASURED: &str = "saxpy 64: ironwarp";

/// Words of the command line, separated by `|`; the exit code; a part of the message.
const LINES: &[(&str, i32, &str)] = &[
    ("--nope", 2, "unknown argument \"--nope\""),
    ("", 2, "unknown argument \"\""),
    ("saxpy", 2, "unknown argument \"saxpy\""),
    ("--quick=1", 2, "unknown argument"),
    ("--quick|\x1b[2J", 2, "unknown argument \"\\u{1b}[2J\""),
    ("--quick|--out", 2, "`--out` needs a value"),
    ("--quick|--out|", 2, "`--out` has an empty value"),
    ("--quick|--only", 2, "`--only` needs a value"),
    ("--quick|--only|", 2, "`--only` has an empty value"),
    ("--quick|--only|nope", 2, "no row of this program has that in its name"),
    ("--quick|--only|saxpy,nope", 2, "no row of this program has that in its name"),
    ("--quick|--only|\x1b", 2, "\\u{1b}"),
    ("--random", 2, "`--random` needs a value"),
    ("--random|-1", 2, "`--random` needs a number, not \"-1\""),
    ("--random|1e9", 2, "`--random` needs a number"),
    ("--random|3|--seed|99999999999999999999", 2, "`--seed` needs a number"),
    ("--seed|3", 2, "`--seed` is for `--random N`"),
    ("--quick|--random|3", 2, "this program has no products"),
    ("--quick|--shape|8x467x83", 2, "this program has no products"),
    ("--shape", 2, "`--shape` needs a value"),
    ("--shape|8x467", 2, "`--shape` needs [BATCHx]MxNxK, as in 8x467x83"),
    ("--shape|8x467x83,\x1b[2J", 2, "not \"8x467x83,\\u{1b}[2J\""),
    ("--shape|99999999999999999999x1x1", 2, "of two billion elements at most"),
    ("--shape|8x467x83|--type|f64", 2, "`--type` has no word \"f64\""),
    ("--shape|8x467x83|--order|", 2, "`--order` has an empty value"),
    ("--type|f16", 2, "`--type` is for `--shape MxNxK`"),
    ("--random|3|--shape|8x8x8", 2, "take one of them"),
    ("--quick|--out|file", 1, "cannot create \"file\""),
    ("--quick|--out|file/sub", 1, "cannot create"),
    ("--quick|--out|/dev/null", 1, "cannot create \"/dev/null\""),
    ("--quick|--out|/proc/nowhere", 1, "cannot create \"/proc/nowhere\""),
    ("--quick|--out|a\nb/../file", 1, "cannot create"),
    ("--quick", 0, MEASURED),
    ("--quick|--bench|--only|sax", 0, MEASURED),
];

#[test]
fn wrong_lines_are_refused() {
    let place = quiet();
    fs::create_dir(place.here().join("a\nb")).unwrap();
    let cases = LINES.iter().map(|(line, code, says)| bench(line, *code, says));
    place.check(&cases.collect::<Vec<_>>());
    let bad = OsStr::from_bytes(b"\xff\x1b");
    let long = "x".repeat(100_000);
    place.check(&[
        Case::new([bad], 2, "unknown argument"),
        Case::new(["--only".as_ref(), bad], 2, "is no text in UTF-8"),
        Case::new([&long], 2, "characters ..]"),
        Case::new(["--out", &long], 1, "characters ..]").env("IRONWARP_DRIVER", "soft"),
        Case::new(["--quick", "--only", &long], 2, "characters ..]").env("IRONWARP_DRIVER", "soft"),
    ]);
}

/// Variables, each with a value, the exit code and a part of the message.
const VARIABLES: &[(&str, &str, i32, &str)] = &[
    ("IRONWARP_DRIVER", "x", 1, "IRONWARP_DRIVER"),
    ("IRONWARP_ALLOCATOR", "\x1b[2J", 1, "\\u{1b}[2J"),
    ("IRONWARP_ALLOCATOR_DEBUG", "yes", 1, "allowed values: 0, 1"),
    ("IRONWARP_LAUNCH_BLOCKING", "2", 1, "allowed values: 0, 1"),
    ("IRONWARP_SOFT_DEVICES", "-1", 1, "a number from 1 to 64"),
    ("IRONWARP_SOFT_MEMORY", "x", 1, "a number of bytes"),
    ("IRONWARP_SEED", "x", 1, "IRONWARP_SEED is \"x\""),
    ("IRONWARP_CHECK", "x", 1, "IRONWARP_CHECK is \"x\""),
    ("IRONWARP_WORKERS", "x", 1, "IRONWARP_WORKERS is \"x\""),
    ("IRONWARP_FAULT", "cuInit:1:100", 1, "CUDA_ERROR_NO_DEVICE"),
    ("IRONWARP_FAULT", "cuMemAlloc_v2:1:2:always", 1, "is out of memory"),
    ("IRONWARP_FAULT", "cuLaunchKernelEx:1:700", 1, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("IRONWARP_FAULT", "cuLaunchKernelEx:5:719", 1, "CUDA_ERROR_LAUNCH_FAILED"),
    ("IRONWARP_FAULT", "cuEventRecord:4:999", 1, "cuEventRecord failed"),
    ("IRONWARP_FAULT", "cuEventSynchronize:3:999", 1, "cuEventSynchronize failed"),
    ("IRONWARP_FAULT", "cuEventElapsedTime:2:999", 1, "cuEventElapsedTime failed"),
    ("TMPDIR", "/proc", 0, MEASURED),
    ("TMPDIR", "/dev/null", 0, MEASURED),
    ("CRITERION_HOME", "/dev/null", 0, MEASURED),
    ("PATH", "", 0, MEASURED),
];

#[test]
fn variables_without_sense_are_told() {
    let case = |(name, value, code, says): &(&'static str, &'static str, i32, &'static str)| {
        bench("--quick", *code, says).env(name, value)
    };
    let mut cases: Vec<_> = VARIABLES.iter().map(case).collect();
    cases.push(bench("--quick", 0, MEASURED).without("HOME").without("TMPDIR").without("PATH"));
    quiet().check(&cases);
}

#[test]
fn a_reader_who_leaves_and_a_full_device_end_it() {
    let quick = |code, says| bench("--quick", code, says);
    quiet().check(&[quick(141, "").to(To::Nobody), quick(1, "No space left").to(To::Full)]);
}

/// Scripts with the program as `$1`; the exit code; a part of what is printed.
const SCRIPTS: &[(&str, i32, &str)] = &[
    ("exec \"$1\" --quick <&- 2>/dev/null", 0, MEASURED),
    ("exec \"$1\" --quick >&- 2>&-", 0, ""),
    ("exec \"$1\" --quick <&- >&- 2>&-", 0, ""),
    ("\"$1\" --quick 2>/dev/full; [ $? = 1 ] && echo ended", 0, "ended"),
    ("\"$1\" --quick >/dev/full 2>/dev/full; [ $? = 1 ] && echo ended", 0, "ended"),
    ("\"$1\" --nope 2>/dev/full; [ $? = 2 ] && echo ended", 0, "ended"),
    ("exec 3> >(true); wait $!; exec \"$1\" --quick >&3", 141, ""),
    ("exec 3> >(true); wait $!; \"$1\" --quick >&3 2>&3; [ $? = 1 ] && echo ended", 0, "ended"),
    ("ulimit -n 5; exec \"$1\" --quick", 0, MEASURED),
    ("ulimit -s 128; exec \"$1\" --quick", 0, MEASURED),
    ("trap '' XFSZ; ulimit -f 0; exec \"$1\" --quick --out out", 1, "cannot write \"out/smallest.csv\""),
    ("env -i IRONWARP_DRIVER=soft \"$1\" --quick", 0, MEASURED),
    ("mkdir gone && cd gone && rmdir ../gone && exec \"$1\" --quick", 0, MEASURED),
    ("mkdir gone && cd gone && rmdir ../gone && exec \"$1\" --quick --out out", 1, "cannot create \"out\""),
    ("mkdir -p out/smallest.csv && exec \"$1\" --quick --out out", 1, "cannot write \"out/smallest.csv\""),
    ("mkdir out && ln -s nowhere/x out/smallest.csv && exec \"$1\" --quick --out out", 0, "samples: out"),
    ("exec \"$1\" --quick --out $'o\\xff\\e'", 0, "samples: "),
];

#[test]
fn closed_and_full_streams_and_limits() {
    for (script, code, says) in SCRIPTS {
        let place = quiet();
        place.check_scripts(&[(&format!("export IRONWARP_DRIVER=soft; {script}"), *code, says)]);
        let halves =
            listing(&place.here()).into_iter().filter(|(path, _)| path.to_string_lossy().contains(".csv."));
        assert_eq!(halves.collect::<Vec<_>>(), [], "{script}");
    }
}

/// An earlier record stays when a later one cannot be written.
#[test]
fn a_failed_write_keeps_the_old_file() {
    let place = quiet();
    let run = |limit: &str, code, says: &str| {
        let script = format!("trap '' XFSZ; {limit}; IRONWARP_DRIVER=soft exec \"$1\" --quick --out out");
        assert_eq!(place.judge_script(&script, code, says), Vec::<String>::new());
        fs::read(place.here().join("out/smallest.csv")).unwrap()
    };
    let old = run(":", 0, "samples: out/smallest.csv");
    assert!(old.starts_with(b"# Ironwarp software device"));
    assert_eq!(run("ulimit -f 0", 1, "cannot write"), old);
}

#[test]
fn signals_end_it() {
    let place = quiet();
    for signal in [2, 15] {
        for wait in [0, 20] {
            let mut command = place.command(PROGRAM);
            // A full run takes a second.
            command.args(["--out", "out"]).env("IRONWARP_DRIVER", "soft");
            let output = ended_by(signal, Duration::from_millis(wait), &mut command);
            assert_eq!(output.status.signal(), Some(signal), "{signal} after {wait} ms");
            assert!(!String::from_utf8_lossy(&output.stderr).contains("error:"));
        }
    }
    let names: Vec<_> = listing(&place.here()).into_iter().map(|(path, _)| path).collect();
    assert!(!names.iter().any(|path| path.ends_with("smallest.csv")), "{names:?}");
}
