//! A toolchain whose cargo and compiler are scripts.

use std::path::{Path, PathBuf};

use cuda_builder::{DeviceToolchain, Version};
use testkit::process::write_script;

/// Stands in for cargo: says that the package has one source, and calls the compiler as cargo does.
const CARGO: &str = r#"#!/bin/sh
[ "$1" != metadata ] || exit 1
for arg in "$@"; do
    case $arg in --emit=asm=*) assembly=$arg ;; esac
    [ "$before" != --target-dir ] || target=$arg
    before=$arg
done
mkdir -p "$target/nvptx64-nvidia-cuda/release"
echo "$target/k.ptx: $PWD/src/lib.rs" >"$target/nvptx64-nvidia-cuda/release/k.d"
exec "$RUSTC_WRAPPER" "$RUSTC" --emit=dep-info,link --out-dir "$target" "$assembly"
"#;

/// Before a script of a compiler: knows where the assembly goes, and ends when there is none to write.
const RUSTC: &str = r#"#!/bin/sh
for arg in "$@"; do
    case $arg in --emit=asm=*) assembly=${arg#--emit=asm=} ;; esac
done
[ -n "$assembly" ] || exit 0
"#;

/// Writes the compiler, which leaves its result in `$assembly`, and its cargo into the folder.
pub fn stand_in(folder: &Path, compiles: &str) -> DeviceToolchain {
    let write = |name: &str, script: &str| -> PathBuf {
        let path = folder.join(name);
        write_script(&path, script);
        path
    };
    DeviceToolchain {
        rustc: write("rustc", &format!("{RUSTC}{compiles}")),
        cargo: write("cargo", CARGO),
        version: Version { major: 1, minor: 96, patch: 0 },
        description: "none".to_owned(),
        nightly: false,
        library_source: folder.to_owned(),
    }
}
