//! Packs the shipped kernels into one file: PTX, and machine code of each kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use ::archive::{Writer, text};
use cuda_builder::ptxas::Ptxas;
use cuda_builder::{Arch, NvvmArch};
use indicatif::{ProgressBar, ProgressStyle};

use crate::PROGRAM;
use crate::build_kernels::{self, Module, Options};
use crate::error::{Error, plural};
use crate::setup;
use crate::term::{self, Style, style};
use crate::workspace::{self, Selection};

pub const HELP: &str = "
Packs the kernels that Ironwarp ships into target/archive/kernels.archive: the PTX, which every device can compile,
and machine code for sm_80, sm_90a, sm_100 and sm_120, which loads in milliseconds. Programs that are built afterwards
embed the file: they run on a machine without this folder.

Usage: cargo xtask archive [--family NAMES] [--no-machine-code] [--every-arch]

Options:
  --family NAMES      only these families, separated by commas
  --no-machine-code   PTX alone: without it each kernel is assembled, which takes a minute or two
  --every-arch        also PTX of the architectures that families have on request, such as sm_75

Examples:
  cargo xtask archive
  cargo xtask archive --family basic --no-machine-code
";

/// The kernels to pack.
#[derive(Debug, Default)]
pub struct Contents {
    pub families: Vec<String>,
    pub no_machine_code: bool,
    /// Also what families are built for on request alone.
    pub every_arch: bool,
    /// For an archive that is thrown away: less time for a larger file.
    pub quick: bool,
}

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    use lexopt::prelude::*;
    let mut contents = Contents::default();
    while let Some(arg) = args.next()? {
        match arg {
            Long("family") => contents.families.extend(args.value()?.string()?.split(',').map(str::to_owned)),
            Long("no-machine-code") => contents.no_machine_code = true,
            Long("every-arch") => contents.every_arch = true,
            other => return Err(other.unexpected().into()),
        }
    }
    write(&contents).map(|_| ())
}

/// Builds, packs, prints a summary, and returns the file's path.
///
/// # Errors
/// When a kernel does not compile, or there is no assembler.
pub fn write(contents: &Contents) -> Result<PathBuf, Error> {
    let started = Instant::now();
    let mut families = contents.families.clone();
    if families.is_empty() {
        // Those without a budget are for tests.
        let shipped = workspace::families()?.into_iter().filter(|family| family.budgeted);
        families.extend(shipped.map(|family| family.library));
    }
    let selection = Selection { families, on_request: contents.every_arch, ..Selection::default() };
    let modules = build_kernels::build_modules(&Options { selection, ..Options::default() })?;
    let texts = modules
        .iter()
        .map(|module| fs::read_to_string(&module.ptx).map_err(Error::io("read", &module.ptx)))
        .collect::<Result<Vec<String>, Error>>()?;
    let mut writer = if contents.quick { Writer::quick() } else { Writer::default() };
    for (module, text) in modules.iter().zip(&texts) {
        writer.add_ptx(&module.manifest.library, &module.arch.to_string(), text);
    }
    let kernels = if contents.no_machine_code { Vec::new() } else { assemble(&modules, &texts)? };
    let count = kernels.len();
    for Kernel { family, arch, name, code } in kernels {
        writer.add_machine_code(&family, &arch.to_string(), &name, code);
    }
    let path = workspace::archive_path();
    let bytes = writer.finish().map_err(Error::io("pack", &path))?;
    replace(&path, &bytes)?;
    println!(
        "{} {}: {}, machine code of {}, {:.1} MiB ({})",
        style(Style::Ok, "archive:"),
        path.display(),
        plural(modules.len(), "module"),
        plural(count, "kernel"),
        bytes.len() as f64 / f64::from(1 << 20),
        term::seconds(started.elapsed())
    );
    Ok(path)
}

/// Writes a file whole or not at all.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    // Another call at the same time writes to a file of its own.
    let unfinished = path.with_extension(format!("{}.unfinished", std::process::id()));
    let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path));
    written.map_err(|error| {
        // It may not be there; what matters is the first error.
        let _ = fs::remove_file(&unfinished);
        Error::io("write", path)(error)
    })
}

/// A kernel's machine code.
struct Kernel {
    family: String,
    arch: Arch,
    name: String,
    code: Vec<u8>,
}

/// Assembles every kernel alone, on all cores.
fn assemble(modules: &[Module], texts: &[String]) -> Result<Vec<Kernel>, Error> {
    let ptxas = setup::ensure_ptxas(PROGRAM)?;
    let parts: Vec<_> = texts.iter().map(|text| text::split(text)).collect();
    let jobs: Vec<(&Module, Arch, &str, String)> = modules
        .iter()
        .zip(&parts)
        .flat_map(|(module, parts)| {
            machine_archs(module.arch).into_iter().map(move |arch| (module, arch, parts))
        })
        .flat_map(|(module, arch, parts)| {
            let kernels = parts.entries.iter();
            kernels.map(move |(name, text)| (module, arch, *name, format!("{}{text}", parts.common)))
        })
        .collect();
    let bar = progress(jobs.len());
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((module, arch, name, text)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let kernel = assemble_one(&ptxas, module, *arch, text, name);
                    bar.inc(1);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push(kernel);
                }
            });
        }
    });
    bar.finish_and_clear();
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

fn assemble_one(ptxas: &Ptxas, module: &Module, arch: Arch, text: &str, name: &str) -> Result<Kernel, Error> {
    let code = ptxas.machine_code(text, arch, &workspace::device_dir().join("machine-code"))?;
    Ok(Kernel { family: module.manifest.library.clone(), arch, name: name.to_owned(), code })
}

/// The generations behind Hopper. Machine code for them is made of the PTX for sm_80.
const BLACKWELL: [NvvmArch; 2] = [NvvmArch::Compute100, NvvmArch::Compute120];

/// The architectures that PTX is assembled for.
fn machine_archs(ptx: Arch) -> Vec<Arch> {
    let later = (ptx == Arch::from(NvvmArch::Compute80)).then_some(BLACKWELL);
    std::iter::once(ptx).chain(later.into_iter().flatten().map(Arch::from)).collect()
}

fn progress(kernels: usize) -> ProgressBar {
    let template = ProgressStyle::with_template("  {spinner} ptxas {pos}/{len} kernels ({elapsed})");
    ProgressBar::new(kernels as u64).with_style(template.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
