//! Projects in odd places and forms. The device compiler is missing, so a project that is understood gets as
//! far as that, and nothing is written.

use std::env;
use std::fs;
use std::path::Path;

use crate::place::{Case, Place};

const LIBRARY: &str = "[lib]\npath = \"lib.rs\"\n";
const KERNELS: &str = "[package.metadata.ironwarp]\narchs = [\"sm_80\"]\n";
/// Part of the message of a build that understands the project.
const UNDERSTOOD: &str = "IRONWARP_DEVICE_RUSTC";

/// The manifest of a package, with more lines.
fn manifest(name: &str, more: &str) -> String {
    format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{LIBRARY}{more}")
}

fn write_package(folder: &Path, manifest: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("lib.rs"), "").unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
}

/// Commands in a folder of the place, each with an exit code and a part of what is said.
fn check_in(place: &Place, folder: &str, cases: &[(&str, i32, &str)]) {
    let cargo = env::var("CARGO").unwrap();
    for (line, code, says) in cases {
        let script = format!(
            "cd '{folder}' && CARGO='{cargo}' CARGO_TARGET_DIR='' && unset CARGO_TARGET_DIR && export CARGO && exec \"$1\" {line}"
        );
        place.check_scripts(&[(&script, *code, says)]);
    }
    assert!(!place.here().join(folder).join("target").exists(), "{folder}: nothing is built");
}

#[test]
fn names_of_folders_do_not_matter() {
    for folder in ["a b", "größe", "💥", "-x", "a$(id)b", "a\"b", "target", ".hidden", "deep/er/and/deeper"]
    {
        let place = Place::new();
        write_package(&place.here().join(folder), &manifest("k", KERNELS));
        let folder = format!("./{folder}");
        let says = [
            ("build", 1, UNDERSTOOD),
            ("inspect", 1, UNDERSTOOD),
            ("build --family nope", 2, "no kernel family"),
        ];
        check_in(&place, &folder, &says);
    }
}

/// Manifests behind the name and library of a package, each with what a build says.
const MANIFESTS: &[(&str, i32, &str)] = &[
    (KERNELS, 1, UNDERSTOOD),
    ("[package.metadata.ironwarp]\r\narchs = [\"sm_80\", \"sm_90a\"]\r\n", 1, UNDERSTOOD),
    ("", 1, "lists architectures"),
    ("[package.metadata.other]\narchs = [\"sm_80\"]\n", 1, "lists architectures"),
    ("[package.metadata.ironwarp]\n", 1, "lists architectures"),
    ("[package.metadata.ironwarp]\narchs = []\n", 1, "lists architectures"),
    ("[package.metadata.ironwarp]\narchs = \"sm_80\"\n", 1, "wanted a list"),
    ("[package.metadata.ironwarp]\narchs = [80]\n", 1, "Cargo.toml"),
    ("[package.metadata.ironwarp]\narchs = [\"\"]\n", 1, "Cargo.toml"),
    ("[package.metadata.ironwarp]\narchs = [\"sm_1\"]\n", 1, "Cargo.toml"),
    ("[package.metadata.ironwarp]\narchs = [\"\\u001b[2J\"]\n", 1, "Cargo.toml"),
    ("[package.metadata]\nironwarp = 7\n", 1, ""),
    ("[workspace]\nmembers = [\"nope\"]\n", 1, "no project that Cargo can read"),
    (
        "[dependencies]\nnope = { path = \"nope\" }\n[package.metadata.ironwarp]\narchs = [\"sm_80\"]\n",
        1,
        UNDERSTOOD,
    ),
    ("\u{feff}", 1, "no project that Cargo can read"),
    ("[package]\n", 1, "no project that Cargo can read"),
    ("x = [", 1, "no project that Cargo can read"),
];

#[test]
fn manifests_are_understood_or_told() {
    for (more, code, says) in MANIFESTS {
        let place = Place::new();
        write_package(&place.here().join("p"), &manifest("k", more));
        check_in(&place, "p", &[("build", *code, says)]);
    }
    let place = Place::new();
    write_package(&place.here().join("p"), &manifest("k", KERNELS).replace('\n', "\r\n"));
    check_in(&place, "p", &[("build", 1, UNDERSTOOD), ("inspect", 1, UNDERSTOOD)]);
}

#[test]
fn workspaces_and_what_lies_in_them() {
    let place = Place::new();
    let here = place.here();
    fs::write(
        here.join("Cargo.toml"),
        "[workspace]\nmembers = [\"m/*\"]\nexclude = [\"alone\"]\nresolver = \"3\"\n",
    )
    .unwrap();
    write_package(&here.join("m/plain"), &manifest("plain", ""));
    check_in(&place, ".", &[("build", 1, "lists architectures")]);
    write_package(&here.join("m/kernels"), &manifest("kernels", KERNELS));
    write_package(&here.join("alone"), &manifest("alone", "[workspace]\n"));
    write_package(&here.join("m/plain/stray"), &manifest("stray", KERNELS));
    fs::create_dir_all(here.join("m/kernels/src/deep")).unwrap();
    std::os::unix::fs::symlink("m/kernels", here.join("link")).unwrap();
    let understood = [("build", 1, UNDERSTOOD), ("build --family kernels", 1, UNDERSTOOD)];
    for folder in [".", "m/plain", "m/kernels", "m/kernels/src/deep", "link"] {
        check_in(&place, folder, &understood);
    }
    check_in(
        &place,
        ".",
        &[("build --family plain", 2, "no kernel family"), ("inspect --family stray", 2, "stray")],
    );
    check_in(&place, "alone", &[("build", 1, "lists architectures")]);
    check_in(&place, "m/plain/stray", &[("build", 1, "no project that Cargo can read")]);
}

/// Manifests of Rust-CUDA's users, which `port --write` changes.
#[test]
fn port_keeps_what_there_was() {
    let place = Place::new();
    let here = place.here();
    let old = manifest("old", "[dependencies]\r\ncust = \"0.3\"\r\n");
    let package = |folder: &str| write_package(&here.join(folder), &old);
    let read = |path: &str| fs::read_to_string(here.join(path)).unwrap();
    package("a b");
    fs::write(here.join("a b/Cargo.toml.new"), "mine").unwrap();
    place.check_scripts(&[
        ("exec \"$1\" port 'a b'", 0, "lines for a b/Cargo.toml"),
        ("exec \"$1\" port 'a b' --write", 0, "lines added"),
        ("exec \"$1\" port 'a b' --write", 0, "has patches already"),
    ]);
    assert!(read("a b/Cargo.toml").starts_with(old.trim_end()), "{}", read("a b/Cargo.toml"));
    assert_eq!(read("a b/Cargo.toml.new"), "mine");

    package("linked");
    fs::rename(here.join("linked/Cargo.toml"), here.join("real.toml")).unwrap();
    std::os::unix::fs::symlink("../real.toml", here.join("linked/Cargo.toml")).unwrap();
    place.check_scripts(&[("chmod 640 real.toml; exec \"$1\" port linked --write", 0, "lines added")]);
    assert!(here.join("linked/Cargo.toml").is_symlink() && read("real.toml").contains("[patch."));
    place.check_scripts(&[("stat -c %a real.toml", 0, "640")]);

    package("full");
    let full = "trap '' XFSZ; ulimit -f 0; exec \"$1\" port full --write";
    place.check_scripts(&[(full, 1, "cannot write full/Cargo.toml")]);
    assert_eq!(read("full/Cargo.toml"), old);
    assert_eq!(fs::read_dir(here.join("full")).unwrap().count(), 2, "nothing is left beside");
}

/// Cargo takes no patches from a member of a workspace, and reads no manifest that is none of its packages'.
#[test]
fn port_writes_where_cargo_looks() {
    let place = Place::new();
    let here = place.here();
    let uses = |more: &str| manifest("member", &format!("{more}[dependencies]\ncust = \"0.3\"\n"));
    let root = "[workspace]\nmembers = [\"gpu\"]\nexclude = [\"alone\"]\n";
    fs::create_dir_all(here.join("w/template")).unwrap();
    fs::write(here.join("w/Cargo.toml"), root).unwrap();
    fs::write(here.join("w/template/Cargo.toml"), "name = {{name}}\n\u{1b}[2J").unwrap();
    write_package(&here.join("w/gpu"), &uses(""));
    write_package(&here.join("w/alone"), &uses(""));
    write_package(&here.join("apart"), &uses("").replace("[package]", "[package]\nworkspace = \"../w\""));
    let read = |path: &str| fs::read_to_string(here.join(path)).unwrap();
    place.check_scripts(&[
        ("exec \"$1\" port w/gpu --write", 2, "Cargo takes no patches from there; port the workspace"),
        ("exec \"$1\" port w/gpu", 2, "/w`"),
        ("exec \"$1\" port apart --write", 2, "Cargo takes no patches from there"),
        ("exec \"$1\" port w/alone --write", 0, "wrote w/alone/Cargo.toml"),
        ("exec \"$1\" port w --write", 0, "warning: w/template/Cargo.toml is no manifest, and is left out"),
    ]);
    assert_eq!((read("w/gpu/Cargo.toml"), read("w/Cargo.toml").matches("[patch.").count()), (uses(""), 1));
}

/// Case by case: what is no folder of a project.
#[test]
fn port_tells_what_is_no_project() {
    let place = Place::new();
    let here = place.here();
    fs::create_dir_all(here.join("folder/Cargo.toml")).unwrap();
    fs::create_dir_all(here.join("binary")).unwrap();
    fs::write(here.join("binary/Cargo.toml"), b"\xff\xfe\0").unwrap();
    fs::create_dir_all(here.join("broken")).unwrap();
    fs::write(here.join("broken/Cargo.toml"), "x = [\n\u{1b}[2J").unwrap();
    fs::create_dir_all(here.join("a\nb")).unwrap();
    fs::create_dir_all(here.join("plain")).unwrap();
    write_package(&here.join("plain"), &manifest("plain", ""));
    place.check(&[
        Case::new(["port", "folder"], 1, "cannot read folder/Cargo.toml"),
        Case::new(["port", "binary"], 1, "cannot read binary/Cargo.toml"),
        Case::new(["port", "broken"], 2, "broken/Cargo.toml"),
        Case::new(["port", "a\nb"], 1, "cannot read a\\nb/Cargo.toml"),
        Case::new(["port", "plain"], 0, "nothing to port"),
        Case::new(["port", "plain", "--write"], 0, "nothing to port"),
        Case::new(["port", "/proc/self"], 1, "cannot read"),
        Case::new(["port", "plain"], 141, "").to(crate::place::To::Nobody),
        Case::new(["port", "plain"], 1, "No space left").to(crate::place::To::Full),
    ]);
}
