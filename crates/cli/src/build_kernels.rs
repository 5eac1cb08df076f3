//! Compiles families of kernels to PTX, side by side.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cuda_builder::ptx::{self, Lint};
use cuda_builder::ptxas::{Ptxas, Report};
use cuda_builder::{Arch, BuildError, CudaBuilder, DeviceToolchain, Manifest, Prepared};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::error::{Error, plural};
use crate::setup;
use crate::term::{self, Style, style};
use crate::workspace::{self, Selection, Workspace};

/// The help of `build`.
pub const HELP: &str = "
Compiles the project's packages with kernels to target/ptx/FAMILY.ARCH.ptx, unless nothing changed. These are the
packages of the current workspace with `archs` under [package.metadata.ironwarp]. Where there is a ptxas, it
assembles the PTX as a check. Modules for other architectures are removed when they are older than the kernels.

Usage: {program} build [--family NAMES] [--arch ARCHS] [--line-info]

Options:
  --family NAMES   only these families, separated by commas
  --arch ARCHS     only these architectures, separated by commas; also those of `on-request`
  --line-info      put source lines into the PTX, for profilers and compute-sanitizer; the first time takes minutes

Examples:
  {program} build
  {program} build --family blur_kernels --arch sm_80,sm_90a
";

/// The options of a build.
#[derive(Debug, Default)]
pub struct Options {
    /// The families and architectures.
    pub selection: Selection,
    /// Whether the PTX names source lines.
    pub line_info: bool,
    /// Where the modules go; by default the workspace's folder for them.
    pub output: Option<PathBuf>,
}

impl Options {
    fn output_dir(&self, workspace: &Workspace) -> PathBuf {
        self.output.clone().unwrap_or_else(|| workspace.ptx_dir())
    }
}

/// A finished module with what is known about it.
pub struct Module {
    /// The package.
    pub manifest: Manifest,
    /// The architecture.
    pub arch: Arch,
    /// The file.
    pub ptx: PathBuf,
    /// Whether it was there already.
    pub fresh: bool,
    /// Findings about its kernels.
    pub lints: Vec<Lint>,
    /// Whether it has no kernels.
    pub is_empty: bool,
    /// The assembler's figures.
    pub report: Option<Report>,
}

/// Compiles, and prints a summary.
///
/// # Errors
/// When a family does not compile.
pub fn run(
    workspace: impl FnOnce() -> Result<Workspace, Error>,
    mut args: lexopt::Parser,
) -> Result<(), Error> {
    let mut options = Options::default();
    while let Some(arg) = args.next()? {
        use lexopt::prelude::*;
        match arg {
            Long("arch") => options.selection.add_archs(&args.value()?.string()?)?,
            Long("family") => options.selection.add_families(&args.value()?.string()?),
            Long("line-info") => options.line_info = true,
            other => return Err(other.unexpected().into()),
        }
    }
    build(&workspace()?, &options).map(drop)
}

/// Builds and prints a summary.
///
/// # Errors
/// When a family does not compile.
pub fn build(workspace: &Workspace, options: &Options) -> Result<Vec<Module>, Error> {
    let started = Instant::now();
    let modules = build_modules(workspace, options)?;
    let rebuilt = modules.iter().filter(|module| !module.fresh).count();
    println!(
        "{} {} in {}: {rebuilt} built, {} up to date ({})",
        style(Style::Ok, "PTX:"),
        plural(modules.len(), "module"),
        options.output_dir(workspace).display(),
        modules.len() - rebuilt,
        term::seconds(started.elapsed())
    );
    Ok(modules)
}

/// Compiles what is selected and asks the assembler, where there is one, about each module. Removes old
/// modules of these families for architectures that they do not list.
///
/// # Errors
/// When a family does not compile or the assembler refuses it; all failures together.
pub fn build_modules(workspace: &Workspace, options: &Options) -> Result<Vec<Module>, Error> {
    let jobs = options.selection.resolve(workspace)?;
    let toolchain = setup::ensure_compiler()?;
    if options.line_info {
        eprintln!(
            "  with source lines: `core` and every dependency are compiled again, which takes minutes at first"
        );
    }
    remove_old(workspace, &jobs, &toolchain, options)?;
    // Nobody asks for the figures of modules for elsewhere.
    let ptxas = if options.output.is_none() { setup::usable_ptxas(workspace.program) } else { None };
    // Two builds for one architecture would wait for each other's lock on the build folder.
    let mut queues: BTreeMap<Arch, Vec<Manifest>> = BTreeMap::new();
    for (manifest, arch) in jobs {
        queues.entry(arch).or_default().push(manifest);
    }
    let mut queues: Vec<(Arch, Vec<Manifest>)> = queues.into_iter().collect();
    for (_, manifests) in &mut queues {
        // The longest begins first, so that it is not alone at the end.
        manifests.sort_by_key(|manifest| std::cmp::Reverse(size_of_sources(&manifest.folder.join("src"))));
    }
    let results = Mutex::new(Vec::new());
    let progress = Progress::new();
    let keep = |result| results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
    // Cargo is done with one family after the other, and does not wait for what is left to do with each: the
    // builder does that side by side, as far as there are cores.
    thread::scope(|scope| {
        for (arch, manifests) in &queues {
            let (keep, progress, toolchain, ptxas) = (&keep, &progress, &toolchain, ptxas.as_ref());
            scope.spawn(move || {
                for manifest in manifests {
                    let task = progress.start(format!("{} for {arch}", manifest.library));
                    match builder(workspace, manifest, *arch, toolchain, options).prepare() {
                        Ok(prepared) => {
                            scope.spawn(move || {
                                let compiled = compile(manifest, *arch, prepared, task);
                                keep(
                                    compiled.and_then(|module| assemble(workspace, module, ptxas, progress)),
                                );
                            });
                        }
                        Err(error) => {
                            let failed = Err(error.into());
                            task.finish(&failed);
                            keep(failed);
                        }
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (mut modules, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(module) => modules.push(module),
            Err(error) => errors.push(error),
        }
    }
    modules.sort_by(|a, b| (&a.manifest.library, a.arch).cmp(&(&b.manifest.library, b.arch)));
    if errors.is_empty() { Ok(modules) } else { Err(Error::Several(distinct(errors))) }
}

/// Removes modules of the selected families for architectures that these do not list, such as those built on
/// request once, when they are older than the kernels. A GPU would get one with arguments of today's program.
fn remove_old(
    workspace: &Workspace,
    jobs: &[(Manifest, Arch)],
    toolchain: &DeviceToolchain,
    options: &Options,
) -> Result<(), Error> {
    let families: BTreeMap<&str, &Manifest> =
        jobs.iter().map(|(manifest, _)| (&*manifest.library, manifest)).collect();
    for (family, manifest) in families {
        let is_built = |arch: Arch| {
            manifest.archs.contains(&arch)
                || jobs.iter().any(|job| (&*job.0.library, job.1) == (family, arch))
        };
        for (arch, path) in workspace::modules(&options.output_dir(workspace), family) {
            let builder = || builder(workspace, manifest, arch, toolchain, options);
            let is_fresh = |line_info| builder().generate_line_info(line_info).is_fresh();
            if is_built(arch) || is_fresh(false)? || is_fresh(true)? {
                continue;
            }
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
            let name = workspace::ptx_name(family, arch);
            eprintln!("  removed {name}: older than its kernels, which do not list {arch} under `archs`");
        }
    }
    Ok(())
}

/// Drops what the compiler said about the same package for another architecture already.
fn distinct(errors: Vec<Error>) -> Vec<Error> {
    let mut seen = Vec::new();
    let told = |error: &Error| match error {
        Error::Build(BuildError::BuildFailed { package, diagnostics, .. }) => {
            Some((package.clone(), diagnostics.clone()))
        }
        _ => None,
    };
    errors
        .into_iter()
        .filter(|error| {
            told(error).is_none_or(|key| {
                !seen.contains(&key) && {
                    seen.push(key);
                    true
                }
            })
        })
        .collect()
}

/// Bytes of all files in a folder and those below it.
fn size_of_sources(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of_sources(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

fn builder(
    workspace: &Workspace,
    manifest: &Manifest,
    arch: Arch,
    toolchain: &DeviceToolchain,
    options: &Options,
) -> CudaBuilder {
    CudaBuilder::new(&manifest.folder)
        .arch(arch)
        .copy_to(options.output_dir(workspace).join(workspace::ptx_name(&manifest.library, arch)))
        .target_dir(workspace.device_dir())
        .toolchain(toolchain.clone())
        .generate_line_info(options.line_info)
        .capture_output(true)
}

/// Compiles a family, and leaves the assembler's report open.
fn compile(manifest: &Manifest, arch: Arch, prepared: Prepared, task: Task) -> Result<Module, Error> {
    let finished = prepared.finish().map_err(Error::from).and_then(|built| {
        let text = fs::read_to_string(&built.ptx).map_err(Error::io("read", &built.ptx))?;
        let module = parse(&text, manifest, arch)?;
        let (ptx, fresh, lints) = (built.ptx, built.fresh, ptx::lint(&module));
        let is_empty = module.entries().next().is_none();
        Ok(Module { manifest: manifest.clone(), arch, ptx, fresh, lints, is_empty, report: None })
    });
    task.finish(&finished);
    finished
}

fn parse<'a>(text: &'a str, manifest: &Manifest, arch: Arch) -> Result<ptx::Module<'a>, BuildError> {
    let package = manifest.package.clone();
    ptx::Module::parse(text).map_err(|problem| BuildError::BadPtx { package, arch, problem })
}

/// Adds the assembler's report, where there is an assembler.
fn assemble(
    workspace: &Workspace,
    module: Module,
    ptxas: Option<&Ptxas>,
    progress: &Progress,
) -> Result<Module, Error> {
    let Some(ptxas) = ptxas else { return Ok(module) };
    let (family, arch) = (&module.manifest.library, module.arch);
    // A family whose kernels are still to be written is an empty module, which the assembler calls an error.
    let report = if module.is_empty {
        Report::default()
    } else {
        let _task = progress.start(format!("ptxas of {family} for {arch}"));
        let text = fs::read_to_string(&module.ptx).map_err(Error::io("read", &module.ptx))?;
        ptxas.assemble(&parse(&text, &module.manifest, arch)?, arch, &workspace.report_dir(family, arch))?
    };
    Ok(Module { report: Some(report), ..module })
}

/// A line a running build on a terminal; elsewhere a line for each that had something to do.
struct Progress {
    bars: MultiProgress,
}

struct Task {
    bar: ProgressBar,
    started: Instant,
    name: String,
}

impl Progress {
    fn new() -> Self {
        Self { bars: MultiProgress::new() }
    }

    fn start(&self, name: String) -> Task {
        let template = ProgressStyle::with_template("  {spinner} {msg} ({elapsed})");
        let bar = ProgressBar::new_spinner()
            .with_style(template.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let bar = self.bars.add(bar).with_message(name.clone());
        bar.enable_steady_tick(Duration::from_millis(100));
        Task { bar, started: Instant::now(), name }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Task {
    fn finish(self, result: &Result<Module, Error>) {
        let took = term::seconds(self.started.elapsed());
        self.bar.finish_and_clear(); // before the line, which would break it
        match result {
            Ok(module) if module.fresh => {}
            Ok(_) => eprintln!("  built {} ({took})", self.name),
            Err(_) => eprintln!("  {} {} ({took})", style(Style::Fail, "failed"), self.name),
        }
    }
}
