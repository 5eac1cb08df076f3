//! Environment variables with values that nobody means.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::place::Case;
use crate::{FOUND, library, search};

/// How a program takes a value that is none.
#[derive(Clone, Copy)]
enum Verdict {
    /// It names the variable and ends.
    Refused,
    /// The software driver does not read it, or takes any text.
    Unread,
}
use Verdict::{Refused, Unread};

/// The variables of the book's chapter for every program.
const VARIABLES: [(&str, Verdict); 15] = [
    ("IRONWARP_DRIVER", Refused),
    ("IRONWARP_LIBCUDA", Unread),
    ("IRONWARP_PTX_DIR", Unread),
    ("IRONWARP_ALLOCATOR", Refused),
    ("IRONWARP_ALLOCATOR_DEBUG", Refused),
    ("IRONWARP_LAUNCH_BLOCKING", Refused),
    ("IRONWARP_FAULT", Refused),
    ("IRONWARP_TUNER_RECORDS", Unread),
    ("IRONWARP_TUNING", Unread),
    ("IRONWARP_SOFT_ARCH", Refused),
    ("IRONWARP_SOFT_DEVICES", Refused),
    ("IRONWARP_SOFT_MEMORY", Refused),
    ("IRONWARP_SEED", Refused),
    ("IRONWARP_CHECK", Refused),
    ("IRONWARP_WORKERS", Refused),
];

/// Values that no variable allows.
const GARBAGE: [&[u8]; 12] = [
    b"x",
    b"-1",
    b"1.5",
    b"0x10",
    b"99999999999999999999999",
    b"/",
    b"/dev/null",
    b"no/such",
    b"\x1b[2J",
    b"1\n0",
    b"\xff",
    "💥".as_bytes(),
];

#[test]
fn a_value_that_is_none_is_refused() {
    let place = library();
    for (variable, verdict) in VARIABLES {
        let (code, says) = match verdict {
            Refused => (1, variable),
            Unread => (0, FOUND),
        };
        let case = |value: &&[u8]| search(code, says).env(variable, OsStr::from_bytes(value));
        place.check(&GARBAGE.iter().map(case).collect::<Vec<_>>());
    }
}

#[test]
fn an_empty_value_is_none() {
    let place = library();
    let cases = VARIABLES.map(|(variable, _)| search(0, FOUND).env("IRONWARP_LIBCUDA", "").env(variable, ""));
    // Without the variable that selects it, a machine may have another driver.
    place.check(&cases[1..]);
}

#[test]
fn an_endless_value_gives_a_short_message() {
    let place = library();
    let long = "x".repeat(100_000);
    for (variable, verdict) in VARIABLES {
        let (code, says) = match verdict {
            Refused => (1, variable),
            Unread => (0, FOUND),
        };
        place.check(&[search(code, says).env(variable, &long)]);
    }
}

/// Values at the borders of what is allowed, and more than one wrong value.
#[test]
fn values_at_the_border() {
    let place = library();
    let one = |code, says, name, value| search(code, says).env(name, value);
    let cases: Vec<Case<'_>> = vec![
        one(1, "a number from 1 to 64", "IRONWARP_SOFT_DEVICES", "0"),
        one(1, "a number from 1 to 64", "IRONWARP_SOFT_DEVICES", "65"),
        one(0, FOUND, "IRONWARP_SOFT_DEVICES", "64"),
        one(0, FOUND, "IRONWARP_SOFT_DEVICES", " 2 "),
        one(1, "a number of bytes from 1048576", "IRONWARP_SOFT_MEMORY", "0"),
        one(1, "a number of bytes from 1048576", "IRONWARP_SOFT_MEMORY", "1048575"),
        one(1, "a number of bytes from 1048576", "IRONWARP_SOFT_MEMORY", "1023K"),
        one(1, "a number of bytes from 1048576", "IRONWARP_SOFT_MEMORY", "4G4G"),
        one(1, "a number of bytes from 1048576", "IRONWARP_SOFT_MEMORY", "99999999999T"),
        one(1, "is out of memory", "IRONWARP_SOFT_MEMORY", "1M"),
        one(1, "is out of memory", "IRONWARP_SOFT_MEMORY", "1MiB").env("IRONWARP_SOFT_DEVICES", "64"),
        one(0, FOUND, "IRONWARP_SOFT_MEMORY", "9999T"),
        one(0, FOUND, "IRONWARP_WORKERS", "0"),
        one(0, FOUND, "IRONWARP_WORKERS", "1"),
        one(0, FOUND, "IRONWARP_WORKERS", "999999999"),
        one(0, FOUND, "IRONWARP_SEED", "18446744073709551615"),
        one(1, "IRONWARP_SEED", "IRONWARP_SEED", "18446744073709551616"),
        one(0, FOUND, "IRONWARP_CHECK", "1").env("IRONWARP_ALLOCATOR_DEBUG", "1"),
        one(0, FOUND, "IRONWARP_ALLOCATOR", "passthrough").env("IRONWARP_LAUNCH_BLOCKING", "1"),
        one(1, "IRONWARP_FAULT", "IRONWARP_FAULT", "x").env("IRONWARP_SOFT_MEMORY", "x"),
        one(1, "IRONWARP_SOFT_", "IRONWARP_SOFT_DEVICES", "x").env("IRONWARP_SOFT_MEMORY", "x"),
        one(1, "IRONWARP_SEED", "IRONWARP_ALLOCATOR", "x").env("IRONWARP_SEED", "x"),
        one(1, "IRONWARP_SOFT_MEMORY", "IRONWARP_SOFT_MEMORY", "x").env("IRONWARP_PTX_DIR", "/no/such"),
        one(0, FOUND, "RAYON_NUM_THREADS", "x"),
        one(0, FOUND, "RAYON_NUM_THREADS", "-1"),
        one(0, FOUND, "RAYON_NUM_THREADS", "0"),
        one(0, FOUND, "SEARCH_BUILD_MS", "-1"),
        one(0, FOUND, "SEARCH_BUILD_MS", "18446744073709551615"),
        one(0, FOUND, "TERM", "").env("NO_COLOR", ""),
        one(0, FOUND, "TMPDIR", "/proc").env("HOME", "/dev/null"),
        search(0, FOUND).without("HOME").without("TMPDIR").without("PATH"),
    ];
    place.check(&cases);
}

/// Where there is no GPU, a driver that was asked for is told to be missing.
#[test]
fn nvidias_driver_without_a_gpu_is_told() {
    let library_of = |path: &str| search(1, "IRONWARP_DRIVER=soft").env("IRONWARP_LIBCUDA", path);
    let nvidia = |path: &str| library_of(path).env("IRONWARP_DRIVER", "nvidia");
    let any = |value: &[u8]| {
        let case = search(1, "environment variable IRONWARP_LIBCUDA").without("IRONWARP_DRIVER");
        case.env("IRONWARP_LIBCUDA", OsStr::from_bytes(value))
    };
    // Whatever there is, a path that is no text names no library.
    library().check(&[any(b"\xff"), any(b"/lib/\xfe.so")]);
    if std::path::Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let paths = ["", "/no/such", "/dev/null", "/", "libc.so.6", "a\nb", "texts/a.txt"];
    library().check(&paths.map(nvidia));
    let falls_back = |path: &str| search(0, FOUND).without("IRONWARP_DRIVER").env("IRONWARP_LIBCUDA", path);
    library().check(&paths.map(falls_back));
}
