//! Wrong lines, full devices, closed pipes, limits, signals, and folders that are none.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;

use testkit::process::ended_by;

use crate::place::{Case, Place, To};
use crate::{FOUND, PROGRAM, library, search};

/// Words of the command line, separated by `|`; the exit code; a part of the message.
const LINES: &[(&str, i32, &str)] = &[
    ("", 2, "the query is empty"),
    (" |\t", 2, "the query is empty"),
    ("-k", 2, "'-k'"),
    ("x|-k|0", 2, "1 to 128"),
    ("x|-k|129", 2, "1 to 128"),
    ("x|-k|\x1b[2J", 2, "1 to 128"),
    ("x|-k|99999999999999999999999", 2, "1 to 128"),
    ("--corpus", 2, "--corpus"),
    ("--corpus|", 2, "empty name"),
    ("--corpus|no/such", 2, "does not exist"),
    ("--corpus|a\nb\x1b", 2, "does not exist"),
    ("--corpus|texts/a.txt", 2, "is a file"),
    ("--corpus|/proc/self", 2, "system's state"),
    ("--corpus|/dev/fd", 2, "system's state"),
    ("--json=1", 2, "--json"),
    ("--nope", 2, "--nope"),
    ("-x", 2, "-x"),
    ("--help", 0, "Usage:"),
    ("x|--nope|--help", 2, "--nope"),
    ("--corpus|.|-k|128", 0, FOUND),
    ("--corpus|texts|--json", 0, "\"hits\""),
    ("--corpus|texts|--|--json|-k", 0, FOUND),
];

#[test]
fn wrong_lines_are_refused() {
    let case = |(line, code, says): &(&'static str, i32, &'static str)| {
        Case::new(line.split('|'), *code, says).env("IRONWARP_DRIVER", "soft")
    };
    let place = library();
    place.check(&LINES.iter().map(case).collect::<Vec<_>>());
    let long = "x".repeat(100_000);
    place.check(&[
        Case::new(["x", "-k", &long], 2, "characters ..]"),
        Case::new(["x", "--corpus", &long], 2, "characters ..]"),
        Case::new([&format!("--{long}")], 2, "characters ..]"),
    ]);
}

#[test]
fn a_reader_who_leaves_and_a_full_device_end_it() {
    let place = library();
    for line in [&["--help"][..], &["x", "--corpus", "texts"], &["x", "--corpus", "texts", "--json"]] {
        let case = |code, says| Case::new(line, code, says).env("IRONWARP_DRIVER", "soft");
        place.check(&[case(141, "").to(To::Nobody), case(1, "No space left").to(To::Full)]);
    }
    place.check(&[search(1, "").env("IRONWARP_SOFT_MEMORY", "1M").to(To::Full)]);
}

/// Scripts with the program as `$1`; the exit code; a part of what is printed.
const SCRIPTS: &[(&str, i32, &str)] = &[
    ("exec \"$1\" x --corpus texts <&-", 0, FOUND),
    ("exec \"$1\" x --corpus texts >&-", 0, ""),
    ("exec \"$1\" x --corpus texts 2>&-", 0, FOUND),
    ("exec \"$1\" x --corpus texts <&- >&- 2>&-", 0, ""),
    ("exec \"$1\" x --corpus texts 2>/dev/full", 0, FOUND),
    ("IRONWARP_SEED=x \"$1\" x --corpus texts 2>/dev/full; [ $? = 1 ] && echo told", 0, "told"),
    ("IRONWARP_SEED=x \"$1\" x --corpus texts 2>&-; [ $? = 1 ] && echo told", 0, "told"),
    ("\"$1\" x --corpus texts >/dev/full 2>/dev/full; [ $? = 1 ] && echo told", 0, "told"),
    ("\"$1\" --nope 2>/dev/full; [ $? = 2 ] && echo told", 0, "told"),
    ("exec 3> >(true); wait $!; exec \"$1\" x --corpus texts >&3", 141, ""),
    ("trap '' PIPE; exec 3> >(true); wait $!; exec \"$1\" x --corpus texts >&3 2>&3", 141, ""),
    ("ulimit -n 4; exec \"$1\" x --corpus texts", 0, FOUND),
    ("ulimit -s 64; exec \"$1\" x --corpus texts", 0, FOUND),
    ("ulimit -s unlimited; exec \"$1\" x --corpus texts", 0, FOUND),
    ("ulimit -f 0; exec \"$1\" x --corpus texts", 0, FOUND),
    ("ulimit -c 0; exec \"$1\" x --corpus texts", 0, FOUND),
    ("env -i IRONWARP_DRIVER=soft \"$1\" x --corpus texts", 0, FOUND),
    ("mkdir gone && cd gone && rmdir ../gone && exec \"$1\" x", 2, "cannot be read"),
    ("mkdir gone && cd gone && rmdir ../gone && exec \"$1\" x --corpus .", 2, "cannot be read"),
    ("mkdir empty && cd empty && exec \"$1\" x", 1, "holds no text to search"),
];

#[test]
fn closed_and_full_streams_and_limits() {
    for (script, code, says) in SCRIPTS {
        library().check_scripts(&[(&format!("export IRONWARP_DRIVER=soft; {script}"), *code, says)]);
    }
}

/// Under the least of these limits there are no threads, and under the others no stacks for threads of a
/// kernel. At a few limits, near 100 MB for one, the allocator of Rust may come first, which ends the program
/// itself; from 20 MB on some runs end so too.
#[test]
fn little_memory_is_told() {
    let place = library();
    let needs = "ulimit -v 4000000; export IRONWARP_DRIVER=soft; exec \"$1\" x --corpus texts";
    place.check_scripts(&[(needs, 0, FOUND)]);
    // An archive of machine code lies in the program.
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/archive/kernels.archive");
    let archive_kib = fs::metadata(archive).map_or(0, |file| file.len() / 1024);
    for kib in [17_000, 130_000, 200_000].map(|kib| kib + archive_kib) {
        let script = format!(
            "ulimit -v {kib}; export IRONWARP_DRIVER=soft RAYON_NUM_THREADS=8; exec \"$1\" x --corpus texts"
        );
        let wrong = place.judge_script(&script, 1, "error: ");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Folders and files in the way of a corpus.
#[test]
fn odd_texts_are_counted_or_told() {
    let place = Place::new();
    let here = place.here();
    for folder in ["binary", "deep", "links", "späce ünd\ttab", ".hidden", "none"] {
        fs::create_dir(here.join(folder)).unwrap();
    }
    fs::write(here.join("binary/a"), [0, 1, 2]).unwrap();
    fs::write(here.join("binary/b"), [0xff, 0xfe]).unwrap();
    fs::create_dir_all(here.join("deep").join("d/".repeat(40))).unwrap();
    fs::write(here.join("deep/a.txt"), "words\u{1b}[2J and\r\n\rmore").unwrap();
    fs::write(here.join("späce ünd\ttab/a\nb\u{1b}.txt"), "words").unwrap();
    std::os::unix::fs::symlink("..", here.join("links/up")).unwrap();
    std::os::unix::fs::symlink("nowhere", here.join("links/broken")).unwrap();
    fs::write(here.join("links/a.txt"), "words").unwrap();
    fs::write(here.join(".hidden/a.txt"), "words").unwrap();
    let case = |corpus, code, says| {
        Case::new(["words", "--corpus", corpus], code, says).env("IRONWARP_DRIVER", "soft")
    };
    place.check(&[
        case("binary", 1, "skipped: 2 binary"),
        case("none", 1, "holds no text to search"),
        case("links", 0, "1 passages of 1 files"),
        case("links/broken", 2, "does not exist"),
        case("deep", 0, FOUND),
        case("späce ünd\ttab", 0, "ab.txt:1"),
        case(".hidden", 0, FOUND),
    ]);
}

#[test]
fn folders_may_be_deeper_than_the_stack() {
    let place = Place::new();
    let top = place.log("deep");
    fs::create_dir_all(top.join("d/".repeat(1_500))).unwrap();
    fs::write(top.join("a.txt"), "words").unwrap();
    let script = format!("ulimit -s 64; IRONWARP_DRIVER=soft exec \"$1\" words --corpus '{}'", top.display());
    place.check_scripts(&[(&script, 0, FOUND)]);
}

/// A signal ends it at once, whatever it does.
#[test]
fn signals_end_it() {
    let place = library();
    let text = "a few words about kernels and streams\n".repeat(40_000);
    fs::write(place.here().join("texts/long.txt"), text).unwrap();
    for signal in [2, 15, 1] {
        for wait in [0, 3, 50] {
            let mut command = place.command(PROGRAM);
            command.args(["words", "--corpus", "texts"]).env("IRONWARP_DRIVER", "soft");
            let output = ended_by(signal, Duration::from_millis(wait), &mut command);
            assert_eq!(output.status.signal(), Some(signal), "{signal} after {wait} ms");
            assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
