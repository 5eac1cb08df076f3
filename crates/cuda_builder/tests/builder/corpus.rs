//! The kernels of `kernels-gpu/compat`, which use the device library as Rust-CUDA's programs do, on
//! `cuda_builder`'s default architecture and on later ones.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;

use cuda_builder::{BuildError, CudaBuilder, DeviceToolchain, NvvmArch};

/// Kernels that reduce a warp in one instruction, which sm_75 lacks.
const SINCE_8_0: [&str; 2] = ["warp_collectives", "warp_reductions"];
/// As many as the tests of the package run.
const KERNELS: usize = 102;

/// The entries of the corpus for an architecture, or nothing where there is no compiler for it.
fn entries(arch: NvvmArch) -> Result<Option<BTreeSet<String>>, Box<dyn Error>> {
    let toolchain = match DeviceToolchain::find() {
        Ok(toolchain) => toolchain,
        Err(error) => {
            testkit::skip(&format!("no device compiler ({error})"));
            return Ok(None);
        }
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels-gpu/compat");
    let output = tempfile::tempdir()?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("device");
    let builder =
        CudaBuilder::new(root).arch(arch).target_dir(target).copy_to(output.path().join("compat.ptx"));
    let built = match builder.toolchain(toolchain).capture_output(true).build_module() {
        Err(BuildError::NoNetwork { .. }) => {
            testkit::skip("no network for the library's dependencies");
            return Ok(None);
        }
        other => other?,
    };
    let ptx = fs::read_to_string(&built.ptx)?;
    let names = ptx.lines().filter_map(|line| line.strip_prefix(".visible .entry ")?.strip_suffix('('));
    Ok(Some(names.map(str::to_owned).collect()))
}

fn assert_complete(archs: &[NvvmArch]) -> Result<(), Box<dyn Error>> {
    for &arch in archs {
        let Some(entries) = entries(arch)? else { return Ok(()) };
        let reduces = SINCE_8_0.iter().filter(|name| entries.contains(**name)).count();
        let lacking = if arch == NvvmArch::Compute75 { SINCE_8_0.len() } else { 0 };
        assert_eq!((entries.len(), reduces), (KERNELS - lacking, SINCE_8_0.len() - lacking), "{arch:?}");
    }
    Ok(())
}

/// The architectures for which the workspace's own kernels are built: the library is compiled already.
#[test]
fn the_corpus_compiles() -> Result<(), Box<dyn Error>> {
    assert_complete(&[NvvmArch::Compute80, NvvmArch::Compute90a])
}

#[test]
#[ignore = "compiles the library for two more architectures, more than a minute"]
fn the_corpus_compiles_for_the_oldest_and_for_blackwell() -> Result<(), Box<dyn Error>> {
    assert_complete(&[NvvmArch::Compute75, NvvmArch::Compute120])
}
