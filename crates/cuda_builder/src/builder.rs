//! The builder itself: from a package's folder to a finished module.

use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::arch::Arch;
use crate::compile::{Job, Options, Plan};
use crate::error::BuildError;
use crate::manifest::Manifest;
use crate::stamp::State;
use crate::toolchain::DeviceToolchain;
use crate::{ptx, stamp};

/// How much debug information the PTX carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugInfo {
    /// None.
    None,
    /// Source lines, for profilers and `compute-sanitizer`.
    LineTables,
}

/// Compiles a kernel package to PTX, from a build script or any other program.
///
/// ```no_run
/// # use cuda_builder::{BuildError, CudaBuilder};
/// # fn main() -> Result<(), BuildError> {
/// CudaBuilder::new("kernels").copy_to("target/kernels.ptx").arch(cuda_builder::NvvmArch::Compute80).build()?;
/// # Ok(())
/// # }
/// ```
///
/// In a build script it tells cargo which files to watch. The package needs no attributes: language features
/// of the device target are switched on from outside, and its `crate-type` does not matter.
#[derive(Debug, Clone)]
pub struct CudaBuilder {
    path: PathBuf,
    arch: Arch,
    copy_to: Option<PathBuf>,
    target_dir: Option<PathBuf>,
    toolchain: Option<DeviceToolchain>,
    options: Options,
    emits_ir: bool,
    emits_bitcode: bool,
    /// Where LLVM's text form goes, if not beside the PTX.
    ir: Option<PathBuf>,
    /// Options that the compiler does not have, each with the alternative.
    unsupported: Vec<(&'static str, &'static str)>,
}

/// A finished module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The PTX.
    pub ptx: PathBuf,
    /// Every file that it was made from.
    pub sources: Vec<PathBuf>,
    /// Whether nothing had to be done.
    pub fresh: bool,
}

impl CudaBuilder {
    /// A builder for the package in a folder. In a build script a relative path starts at the folder of the
    /// package that is being built, else at the working folder.
    pub fn new(path_to_crate_root: impl AsRef<Path>) -> Self {
        Self {
            path: path_to_crate_root.as_ref().to_owned(),
            arch: Arch::default(),
            copy_to: None,
            target_dir: None,
            toolchain: None,
            options: Options {
                release: true,
                line_info: false,
                cargo_args: Vec::new(),
                llvm_args: Vec::new(),
                emit: Vec::new(),
                capture: false,
            },
            emits_ir: false,
            emits_bitcode: false,
            ir: None,
            unsupported: Vec::new(),
        }
    }

    /// Where the finished PTX goes. Without it, [`build`](Self::build) leaves the file in the build folder.
    #[must_use]
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.copy_to = Some(path.as_ref().to_owned());
        self
    }

    /// The architecture to compile for; `sm_75` by default. The driver runs PTX of an older architecture on
    /// newer GPUs, unless its name ends in a letter.
    #[must_use]
    pub fn arch(mut self, arch: impl Into<Arch>) -> Self {
        self.arch = arch.into();
        self
    }

    /// Whether to optimise; true by default.
    #[must_use]
    pub fn release(mut self, release: bool) -> Self {
        self.options.release = release;
        self
    }

    /// Further arguments for cargo, such as `--features x`.
    #[must_use]
    pub fn build_args(mut self, args: &[impl AsRef<str>]) -> Self {
        self.options.cargo_args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Whether to put source lines into the PTX; false by default. They cost nothing at run time, but make
    /// the text longer and bind it to the folder that it was compiled in.
    #[must_use]
    pub fn generate_line_info(mut self, generate: bool) -> Self {
        self.options.line_info = generate;
        self
    }

    /// How much debug information to put into the PTX.
    #[must_use]
    pub fn debug(self, debug: DebugInfo) -> Self {
        self.generate_line_info(debug == DebugInfo::LineTables)
    }

    /// Whether to run the optimiser; the same as [`release`](Self::release), which sets both in Rust-CUDA.
    #[must_use]
    pub fn nvvm_opts(self, optimise: bool) -> Self {
        self.release(optimise)
    }

    /// Whether `a * b + c` may become one instruction with one rounding; false by default, unlike in
    /// Rust-CUDA: a kernel then gives the same bits on the GPU and on the CPU.
    #[must_use]
    pub fn fma_contraction(self, contract: bool) -> Self {
        self.llvm_arg("-nvptx-fma-level", if contract { "1" } else { "0" })
    }

    /// Whether `f32` divisions may use the approximation `div.full`; false by default.
    #[must_use]
    pub fn fast_div(self, fast: bool) -> Self {
        self.llvm_arg("-nvptx-prec-divf32", if fast { "1" } else { "2" })
    }

    /// Whether `f32` square roots may use the approximation `sqrt.approx`; false by default.
    #[must_use]
    pub fn fast_sqrt(self, fast: bool) -> Self {
        self.llvm_arg("-nvptx-prec-sqrtf32", if fast { "0" } else { "1" })
    }

    /// Whether to flush subnormal numbers to zero everywhere. The compiler has no such switch: true fails the
    /// build.
    #[must_use]
    pub fn ftz(self, flush: bool) -> Self {
        self.refuse(
            flush,
            "ftz",
            "use the approximations of cuda_std::fastmath, which flush, where it matters",
        )
    }

    /// Whether the module is for OptiX. The compiler knows nothing of it: true fails the build.
    #[must_use]
    pub fn optix(self, optix: bool) -> Self {
        self.refuse(optix, "optix", "compile such kernels with Rust-CUDA")
    }

    /// Whether to replace `libm` by NVIDIA's libdevice. The compiler cannot: true fails the build.
    #[must_use]
    pub fn override_libm(self, replace: bool) -> Self {
        self.refuse(
            replace,
            "override_libm",
            "call cuda_std::fastmath where speed matters more than the last bits",
        )
    }

    /// Whether to place `static`s in constant memory. The compiler cannot: true fails the build.
    #[must_use]
    pub fn use_constant_memory_space(self, constant: bool) -> Self {
        self.refuse(
            constant,
            "use_constant_memory_space",
            "pass small tables as kernel arguments, which lie there",
        )
    }

    /// Whether to write LLVM's text form of the package beside the PTX, as `.ll`, or where
    /// [`final_module_path`](Self::final_module_path) says.
    #[must_use]
    pub fn emit_llvm_ir(mut self, emit: bool) -> Self {
        self.emits_ir = emit;
        self
    }

    /// Whether to write LLVM's bitcode of the package beside the PTX, as `.bc`.
    #[must_use]
    pub fn emit_llvm_bitcode(mut self, emit: bool) -> Self {
        self.emits_bitcode = emit;
        self
    }

    /// Writes LLVM's text form of the package to this file.
    #[must_use]
    pub fn final_module_path(mut self, path: impl AsRef<Path>) -> Self {
        self.ir = Some(path.as_ref().to_owned());
        self
    }

    /// The build folder; `target/device` of the workspace by default. Each architecture has its own below it.
    #[must_use]
    pub fn target_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.target_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Uses this compiler instead of searching for one.
    #[must_use]
    pub fn toolchain(mut self, toolchain: DeviceToolchain) -> Self {
        self.toolchain = Some(toolchain);
        self
    }

    /// Keeps the compiler's output for the error instead of passing it to stderr.
    #[must_use]
    pub fn capture_output(mut self, capture: bool) -> Self {
        self.options.capture = capture;
        self
    }

    fn llvm_arg(mut self, name: &str, value: &str) -> Self {
        self.options.llvm_args.retain(|arg| !arg.starts_with(name)); // the last call counts
        self.options.llvm_args.push(format!("{name}={value}"));
        self
    }

    fn refuse(mut self, wanted: bool, option: &'static str, instead: &'static str) -> Self {
        self.unsupported.retain(|(known, _)| *known != option);
        if wanted {
            self.unsupported.push((option, instead));
        }
        self
    }

    /// Compiles and returns the path of the PTX. A build script that goes on without a device compiler runs
    /// again at the next build.
    ///
    /// # Errors
    /// See [`BuildError`]; every text names the fix.
    pub fn build(self) -> Result<PathBuf, BuildError> {
        let Some(out) = env::var_os("OUT_DIR") else { return Ok(self.build_module()?.ptx) };
        println!("cargo::rerun-if-env-changed={}", crate::toolchain::DEVICE_RUSTC);
        let built = self.build_module();
        match &built {
            Ok(built) => built.sources.iter().for_each(|file| watch(file)),
            // Cargo cannot know when a compiler appears. A file that is not there has it ask each time.
            Err(BuildError::Toolchain(_)) => watch(&Path::new(&out).join("no-device-compiler")),
            Err(_) => {}
        }
        Ok(built?.ptx)
    }

    /// Compiles, unless the PTX is up to date with the sources.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build_module(self) -> Result<Built, BuildError> {
        self.prepare()?.finish()
    }

    /// Does what only one build at a time can do in a build folder: cargo compiles what the package depends
    /// on, and says how to compile the package. The rest can be done beside other builds.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn prepare(self) -> Result<Prepared, BuildError> {
        let (job, ptx) = self.job()?;
        Prepared::new(job, ptx)
    }

    /// Whether the PTX is there and up to date with the sources. Runs no compiler and no cargo.
    ///
    /// # Errors
    /// When there is no such package or no compiler.
    pub fn is_fresh(self) -> Result<bool, BuildError> {
        let (job, ptx) = self.job()?;
        Ok(is_fresh(&job, &ptx))
    }

    /// The compilation, and where its module goes.
    fn job(mut self) -> Result<(Job, PathBuf), BuildError> {
        if let Some((option, instead)) = self.unsupported.pop() {
            return Err(BuildError::Unsupported { option, instead });
        }
        let manifest = Manifest::read(&self.path)?;
        let toolchain = match self.toolchain {
            Some(toolchain) => toolchain,
            None => DeviceToolchain::find()?,
        };
        let root = self.target_dir.unwrap_or_else(|| default_target_dir(&manifest.folder));
        let target_dir = absolute(&root)?.join(self.arch.to_string());
        let ptx = match &self.copy_to {
            Some(path) => absolute(path)?,
            None => target_dir.join(format!("{}.ptx", manifest.library)),
        };
        let ir = self.ir.or_else(|| self.emits_ir.then(|| ptx.with_extension("ll")));
        let bitcode = self.emits_bitcode.then(|| ptx.with_extension("bc"));
        let outputs = [("llvm-ir", ir), ("llvm-bc", bitcode)].into_iter();
        self.options.emit = outputs.filter_map(|(kind, path)| Some((kind, path?))).collect();
        Ok((Job { toolchain, manifest, arch: self.arch, target_dir, options: self.options }, ptx))
    }
}

/// A build of which cargo's part is done.
#[derive(Debug)]
pub struct Prepared {
    job: Job,
    ptx: PathBuf,
    started: SystemTime,
    left: Left,
}

/// The rest of the work.
#[derive(Debug)]
enum Left {
    Nothing,
    Finish,
    Compile(Plan),
}

impl Prepared {
    fn new(job: Job, ptx: PathBuf) -> Result<Self, BuildError> {
        let started = SystemTime::now();
        let left = if is_fresh(&job, &ptx) {
            Left::Nothing
        } else if state(&job, stamp::compiling(job.fingerprint()), &job.assembly()) == State::Fresh {
            Left::Finish
        } else {
            Left::Compile(job.plan()?)
        };
        Ok(Self { job, ptx, started, left })
    }

    /// Whether the PTX is up to date with the sources.
    pub fn is_fresh(&self) -> bool {
        matches!(self.left, Left::Nothing)
    }

    /// Compiles the package itself, and finishes its module.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn finish(self) -> Result<Built, BuildError> {
        let Self { job, ptx, started, left } = self;
        let stamp = |file: &Path| stamp_path(&job.target_dir, file);
        let assembly = job.assembly();
        match &left {
            Left::Nothing => {
                let sources = stamp::files(&stamp(&ptx)).into_iter().collect();
                return Ok(Built { ptx, sources, fresh: true });
            }
            Left::Finish => {}
            Left::Compile(plan) => {
                let text = job.compile(plan)?;
                stamp::write_atomically(&assembly, text.as_bytes())?;
                let made = stamp::Made {
                    module: text.as_bytes(),
                    files: &plan.sources,
                    locked: plan.locked.as_ref(),
                    started,
                };
                stamp::write(&stamp(&assembly), stamp::compiling(job.fingerprint()), &made)?;
            }
        }
        let text = std::fs::read_to_string(&assembly).map_err(BuildError::io("read", &assembly))?;
        let finished = ptx::finish(&text, &job.manifest.library, job.arch).map_err(|problem| {
            BuildError::BadPtx { package: job.manifest.package.clone(), arch: job.arch, problem }
        })?;
        stamp::write_atomically(&ptx, finished.as_bytes())?;
        let (files, locked) = (stamp::files(&stamp(&assembly)), stamp::locked(&stamp(&assembly)));
        let made =
            stamp::Made { module: finished.as_bytes(), files: &files, locked: locked.as_ref(), started };
        stamp::write(&stamp(&ptx), finishing(&job, &ptx), &made)?;
        Ok(Built { ptx, sources: files.into_iter().collect(), fresh: false })
    }
}

/// Whether a module is what its sources say.
fn is_fresh(job: &Job, ptx: &Path) -> bool {
    state(job, finishing(job, ptx), ptx) == State::Fresh
}

fn state(job: &Job, fingerprint: u64, file: &Path) -> State {
    stamp::state(&stamp_path(&job.target_dir, file), fingerprint, file)
}

/// Number of everything besides the sources that shapes a module, and of the place that it goes to.
fn finishing(job: &Job, ptx: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stamp::finishing(stamp::compiling(job.fingerprint())), ptx).hash(&mut hasher);
    hasher.finish()
}

/// One stamp for each place that a module goes to.
fn stamp_path(target_dir: &Path, ptx: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    ptx.hash(&mut hasher);
    target_dir.join("stamps").join(format!("{:016x}", hasher.finish()))
}

/// Has cargo run the build script again when the file changes, or while it is not there.
fn watch(file: &Path) {
    println!("cargo::rerun-if-changed={}", file.display());
}

fn absolute(path: &Path) -> Result<PathBuf, BuildError> {
    std::path::absolute(path).map_err(BuildError::io("resolve", path))
}

/// `target/device` of the workspace. In a build script, the `target` that cargo is using: its `OUT_DIR` is
/// `target/PROFILE/build/PACKAGE/out`, and the library for the device should outlive one package's folder.
fn default_target_dir(package: &Path) -> PathBuf {
    let from_build_script = env::var_os("OUT_DIR").map(PathBuf::from);
    let cargos = from_build_script.as_deref().and_then(|out| out.ancestors().nth(4));
    let workspace =
        || package.ancestors().filter(|folder| folder.join("Cargo.lock").is_file()).last().unwrap_or(package);
    let target = cargos.map_or_else(|| workspace().join("target"), Path::to_owned);
    target.join("device")
}
