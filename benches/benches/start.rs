//! The first matrix product of a new process: from an open device to the result, with operands and the
//! kernel's code on the way. Each sample is a process of its own.
//!
//! Programs with an archive (`cargo xtask archive`) load machine code. The row `ptx` is the same program with
//! the PTX of a folder, which the driver compiles; its cache on disk is off.

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use ironwarp::{DType, Device, Tensor};
use ironwarp_benches::{Outcome, Session, Work, println};

/// Set for the processes that are measured: rows x columns x depth.
const SHAPE: &str = "IRONWARP_BENCH_START";
/// Processes a row.
const SAMPLES: usize = 20;
const FEW_SAMPLES: usize = 2;

fn main() -> ExitCode {
    if let Some(shape) = env::var_os(SHAPE) {
        return ironwarp_benches::run(|| first_product(&shape));
    }
    Session::run("start", |session| {
        let side = if session.small() { 128 } else { 4096 };
        bench_first_gemm(session, &format!("{side}x{side}x{side}"))
    })
}

fn bench_first_gemm(session: &mut Session, shape: &str) -> Outcome {
    let name = "first_gemm";
    if !session.wants(&format!("{name}/{shape}")) {
        return Ok(());
    }
    let count = if session.small() { FEW_SAMPLES } else { SAMPLES };
    let own = env::current_exe()?;
    let ptx = env::var_os("IRONWARP_PTX_DIR");
    let (mut machine_code, mut compiled, mut torch) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        machine_code.push((1, sample(Command::new(&own).env(SHAPE, shape).env_remove("IRONWARP_PTX_DIR"))?));
        if let Some(folder) = &ptx {
            let mut program = Command::new(&own);
            program.env(SHAPE, shape).env("IRONWARP_PTX_DIR", folder).env("CUDA_CACHE_DISABLE", "1");
            compiled.push((1, sample(&mut program)?));
        }
        if let (Some(script), false) = (peer(), session.device.is_software()) {
            // A machine without torch has no such row.
            torch.extend(sample(Command::new("python3").arg(script).arg(shape)).map(|ms| (1, ms)));
        }
    }
    session.record(
        name,
        shape,
        Work::Calls(1),
        &[("ironwarp", machine_code), ("ptx", compiled), ("torch", torch)],
    )
}

/// The peer's script, where the programs' folder or the sources have it.
fn peer() -> Option<std::path::PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("baselines");
    let packed = env::current_exe().ok()?.parent()?.join("../baselines");
    [sources, packed].map(|folder| folder.join("start.py")).into_iter().find(|file| file.is_file())
}

/// The milliseconds that the process prints.
fn sample(process: &mut Command) -> Outcome<f64> {
    let output = process.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().and_then(|line| line.trim().parse().ok());
    last.filter(|_| output.status.success()).ok_or_else(|| {
        format!(
            "{process:?} gave no time: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
        .into()
    })
}

fn first_product(shape: &OsStr) -> Outcome {
    let shape = shape.to_string_lossy();
    let sides = shape.split('x').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let &[m, n, k] = sides.as_slice() else { return Err(format!("{shape}: wanted MxNxK").into()) };
    let device = Device::open(0)?;
    let begun = Instant::now();
    let a = Tensor::zeros(&device, &[m, k], DType::BF16)?;
    let b = Tensor::zeros(&device, &[k, n], DType::BF16)?;
    let c = a.matmul(&b)?;
    device.synchronize()?;
    println!("{}", begun.elapsed().as_secs_f64() * 1e3);
    drop(c);
    Ok(())
}
