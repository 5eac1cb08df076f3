//! The packages that a registry takes, and a consumer of them: an empty project with one dependency, in a
//! folder of its own, with an empty environment.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Variables that a shell without anything of CUDA has, and the toolchain that this test was built with.
const ENVIRONMENT: &[&str] = &["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"];

/// Packages and kernels have the names that collide most easily with Ironwarp's.
const PROGRAM: &str = r#"
use cuda_std::prelude::*;
use ironwarp::ops::optim::{AdamW, AdamWConfig};
use ironwarp::{DType, Device, DeviceBuffer, LaunchConfig, Tensor, launch};

#[kernel]
pub unsafe fn saxpy(a: f32, x: &[f32], y: *mut f32) {
    let i = thread::index_1d() as usize;
    if i < x.len() {
        unsafe { *y.add(i) = a * x[i] - *y.add(i) };
    }
}

fn main() -> ironwarp::Result<()> {
    let stream = Device::open(0)?.stream()?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
    let mut y = DeviceBuffer::from_slice(&stream, &[10.0f32, 20.0, 30.0])?;
    unsafe { launch::<saxpy>(&stream, LaunchConfig::linear(3, 256), (2.0, &x, &mut y))? };
    println!("own {:?}", y.to_vec(&stream)?);
    ironwarp::ops::saxpy::saxpy(&stream, 2.0, &x, &mut y)?;
    println!("shipped {:?}", y.to_vec(&stream)?);
    let x = Tensor::rand(&stream, &[64, 16], DType::F32, 7)?.softmax(1)?;
    let mut w = Tensor::eye(&stream, 16, DType::F32)?.matmul(&x.t()?)?.matmul(&Tensor::ones(&stream, &[64, 4], DType::F32)?)?;
    let sums = x.matmul(&w)?;
    let gradient = w.add(1.0)?;
    AdamW::new(&stream, &[w.view_mut()?], AdamWConfig::default())?
        .step(&stream, &mut [w.view_mut()?], &[&gradient], None)?;
    println!("tensors {}", sums.to_vec::<f32>(&stream)?.len() + w.to_vec::<f32>(&stream)?.len());
    Ok(())
}
"#;

fn run(mut command: Command) -> Result<String, Box<dyn Error>> {
    command.env_clear();
    for name in ENVIRONMENT {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    let Output { status, stdout, stderr } = command.output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if status.success() { Ok(text) } else { Err(format!("{command:?}: {status}\n{text}").into()) }
}

/// The consumer's manifest: packages come from the folder instead of the registry that has none of them yet.
fn manifest(packages: &Path, names: &[&str]) -> String {
    let patches = names.iter().map(|name| {
        let path = packages.join(name);
        format!("{name} = {{ path = {:?} }}\n", path.display().to_string())
    });
    format!(
        "[package]\nname = \"gemm\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nironwarp = \"0.1\"\ncuda_std = {{ package = \"ironwarp-std\", version = \"0.1\" }}\n\n\
         [patch.crates-io]\n{}",
        patches.collect::<String>()
    )
}

#[test]
fn a_consumer_builds_and_runs_from_the_packages_alone() -> Result<(), Box<dyn Error>> {
    let mut package = Command::new(env!("CARGO_BIN_EXE_xtask"));
    package.args(["package", "--no-machine-code"]);
    if let Err(error) = cuda_builder::DeviceToolchain::find() {
        testkit::skip(&format!("no device compiler ({error})"));
        return Ok(());
    }
    let made = run(package)?;
    let packages =
        made.lines().find_map(|line| line.strip_prefix("unpacked: ")).ok_or("no folder is named")?;
    let is_name = |name: &&str| name.starts_with("ironwarp") && !name.contains(' ');
    let names: Vec<&str> = made.lines().filter_map(|line| line.strip_prefix("  ")).filter(is_name).collect();
    let packages = PathBuf::from(packages);
    assert!(packages.join("ironwarp/kernels.archive").is_file(), "the kernels travel inside");
    let template = packages.join("ironwarp-cli/template");
    assert!(template.join("tools/rustc-checked").is_file(), "as does what a project begins with");

    let temporary = tempfile::tempdir()?;
    let project = temporary.path();
    fs::create_dir(project.join("src"))?;
    fs::write(project.join("src/main.rs"), PROGRAM)?;
    fs::write(project.join("Cargo.toml"), manifest(&packages, &names))?;
    // The versions that are downloaded already.
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock"), project.join("Cargo.lock"))?;
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("projects");
    let mut build = Command::new("cargo");
    build.args(crate::BUILD).arg(&target).current_dir(project);
    run(build)?;
    let mut program = Command::new(target.join("debug/gemm"));
    program.current_dir(project);
    let said = run(program)?;
    // Kernels of dependencies have no callbacks, so the checker does not see what they store.
    assert!(
        said.starts_with("own [-8.0, -16.0, -24.0]\nshipped [-6.0, -12.0, -18.0]\ntensors 320\n"),
        "{said}"
    );
    let told = "the checker does not see the plain loads and stores of kernels of `gemm`,";
    assert_eq!(said.matches("the checker does not see").count(), said.matches(told).count(), "{said}");
    assert!(said.contains(told), "{said}");
    Ok(())
}
