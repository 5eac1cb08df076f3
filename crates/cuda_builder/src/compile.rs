//! One use of the device compiler: a kernel package and an architecture in, assembly out. Cargo compiles what
//! the package depends on; the package itself is compiled here.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use crate::arch::{self, Arch};
use crate::call::{self, Call};
use crate::cores::{self, Work};
use crate::dependencies::{self, Dependencies};
use crate::error::{BuildError, hint};
use crate::manifest::Manifest;
use crate::ptx;
use crate::stamp;
use crate::toolchain::DeviceToolchain;

/// The target that kernels are compiled for.
pub const TARGET: &str = "nvptx64-nvidia-cuda";
/// LLVM copies small blocks into the arms of branches, unless it knows that what is in them is convergent. Of
/// inline assembly it does not know, and a collective that only a part of the warp reaches hangs or worse.
const NO_COPIED_BLOCKS: &str = "-Cllvm-args=-simplifycfg-max-small-block-size=-1";
/// The back end has no calls for conversions between floats and integers of more than 64 bits.
const WIDE_CONVERSIONS: &str = "-Cllvm-args=-expand-fp-convert-bits=64";

/// How to compile.
#[derive(Debug, Clone)]
pub struct Options {
    /// Release or development profile of the package's workspace.
    pub release: bool,
    /// Source lines in the PTX, for profilers and `compute-sanitizer`; costs nothing at run time.
    pub line_info: bool,
    /// Arguments for cargo, such as `--features x`.
    pub cargo_args: Vec<String>,
    /// Switches of LLVM's back end.
    pub llvm_args: Vec<String>,
    /// Further outputs of rustc, each at most once: (`llvm-ir` or `llvm-bc`, where to).
    pub emit: Vec<(&'static str, PathBuf)>,
    /// Keep cargo's output for the error instead of letting it through to stderr.
    pub capture: bool,
}

/// Everything that one compilation depends on besides the sources.
#[derive(Debug)]
pub struct Job {
    pub toolchain: DeviceToolchain,
    pub manifest: Manifest,
    pub arch: Arch,
    /// Build folder of this architecture alone: architectures then build side by side, and none of
    /// them throws the library of another away.
    pub target_dir: PathBuf,
    pub options: Options,
}

/// A compilation as cargo would do it, when all that the package depends on is compiled.
#[derive(Debug)]
pub struct Plan {
    call: Call,
    /// The files that the module is made from.
    pub sources: BTreeSet<PathBuf>,
    /// As in [`Dependencies`].
    pub locked: Option<BTreeSet<String>>,
}

impl Job {
    /// Has cargo compile what the package depends on, and say how the package itself is compiled.
    pub fn plan(&self) -> Result<Plan, BuildError> {
        let assembly = self.assembly();
        fs::create_dir_all(assembly.with_file_name("")).map_err(BuildError::io("create", &assembly))?;
        let dependencies = self.dependencies()?;
        let recorder = call::write_recorder(&self.target_dir)?;
        let record = assembly.with_extension(format!("{}.call", stamp::unique()));
        let ran = self.run(self.cargo_command(&dependencies, &recorder, &record));
        let call = Call::take(&record);
        ran?;
        let call = call.ok_or_else(|| self.no_assembly(record))?;
        let sources = stamp::sources(&self.dep_info(), &self.manifest.path)?;
        Ok(Plan { call, sources, locked: dependencies.locked })
    }

    /// Compiles the package itself, and returns the assembly. Kernels that the manifest sets apart are
    /// compiled beside the others.
    ///
    /// Without `apart` one compiler has the whole package: LLVM fits functions to all of their callers, so
    /// kernels become others where a compiler does not see all that share a function.
    pub fn compile(&self, plan: &Plan) -> Result<String, BuildError> {
        let texts: Result<Vec<String>, BuildError> = thread::scope(|scope| {
            let work =
                self.kernels().into_iter().map(|kernels| scope.spawn(|| self.compile_some(plan, kernels)));
            let running: Vec<_> = work.collect();
            running.into_iter().map(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let text = ptx::join(&texts?).map_err(|problem| self.bad(problem))?.into_owned();
        self.check_apart(&text)?;
        Ok(text)
    }

    fn bad(&self, problem: ptx::PtxError) -> BuildError {
        BuildError::BadPtx { package: self.manifest.package.clone(), arch: self.arch, problem }
    }

    /// How the names of kernels begin that a compiler of their own gets. Outputs that are not joined, and
    /// source lines, whose files each module numbers, want one compiler.
    fn apart(&self) -> Option<&[String]> {
        let is_whole = self.options.line_info || !self.options.emit.is_empty();
        self.manifest.apart.get(&self.arch).filter(|_| !is_whole).map(Vec::as_slice)
    }

    /// The kernels of each compiler, as [`call::KERNELS`] says them.
    fn kernels(&self) -> Vec<Option<String>> {
        match self.apart() {
            Some(starts) => ["only", "but"].map(|which| Some(format!("{which} {}", starts.join(" ")))).into(),
            None => vec![None],
        }
    }

    /// Refuses a beginning that no kernel has.
    fn check_apart(&self, text: &str) -> Result<(), BuildError> {
        let Some(starts) = self.apart() else { return Ok(()) };
        let module = ptx::Module::parse(text).map_err(|problem| self.bad(problem))?;
        let is_used = |start: &&String| module.entries().any(|entry| entry.name.starts_with(start.as_str()));
        let Some(start) = starts.iter().find(|start| !is_used(start)) else { return Ok(()) };
        let reason = format!(
            "metadata.ironwarp.apart: no kernel for {} has a name that begins with `{start}`",
            self.arch
        );
        Err(BuildError::Manifest { path: self.manifest.path.clone(), reason })
    }

    fn compile_some(&self, plan: &Plan, kernels: Option<String>) -> Result<String, BuildError> {
        // A folder of its own: the compiler's unfinished files have the same names in every build.
        let folder = self.assembly().with_extension(format!("{}.unfinished", stamp::unique()));
        fs::create_dir_all(&folder).map_err(BuildError::io("create", &folder))?;
        let assembly = folder.join("module.s");
        let core = cores::wait(Work::Compile);
        let mut command = plan.call.command(&assembly, &folder);
        // The recorded call has the variables of whoever builds.
        command.env_remove(call::KERNELS).envs(kernels.map(|kernels| (call::KERNELS, kernels)));
        let ran = self.run(command);
        drop(core);
        let text = ran.and_then(|()| match fs::read_to_string(&assembly) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.no_assembly(assembly.clone())),
            text => text.map_err(BuildError::io("read", &assembly)),
        });
        fs::remove_dir_all(&folder).map_err(BuildError::io("remove", &folder))?;
        text
    }

    fn no_assembly(&self, path: PathBuf) -> BuildError {
        BuildError::NoAssembly {
            package: self.manifest.package.clone(),
            arch: self.arch,
            path,
            target_dir: self.target_dir.clone(),
        }
    }

    /// The list of source files that cargo leaves.
    fn dep_info(&self) -> PathBuf {
        self.profile_dir().join(format!("{}.d", self.manifest.library))
    }

    /// Number of everything besides the sources that shapes the result.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.toolchain.rustc.hash(&mut hasher);
        self.toolchain.description.hash(&mut hasher);
        self.cargo_args().hash(&mut hasher);
        self.rustc_args().hash(&mut hasher);
        self.rustflags().hash(&mut hasher);
        hasher.finish()
    }

    /// A file for each way to compile. Modules that go to several places are compiled once.
    pub fn assembly(&self) -> PathBuf {
        self.target_dir.join("asm").join(format!("{}-{:016x}.s", self.manifest.library, self.fingerprint()))
    }

    fn profile_dir(&self) -> PathBuf {
        self.target_dir.join(TARGET).join(if self.options.release { "release" } else { "debug" })
    }

    /// Runs cargo or the compiler.
    fn run(&self, mut command: Command) -> Result<(), BuildError> {
        let program = PathBuf::from(command.get_program());
        let output =
            if self.options.capture { command.stdin(Stdio::null()).output() } else { run_teed(&mut command) };
        let output = output.map_err(BuildError::io("run", program))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let (package, arch) = (self.manifest.package.clone(), self.arch);
        let (offline, hint) = (is_download_failure(&text), hint(&text));
        let diagnostics = if self.options.capture { text } else { String::new() };
        Err(if offline {
            BuildError::NoNetwork { package, arch, diagnostics }
        } else {
            BuildError::BuildFailed { package, arch, diagnostics, hint }
        })
    }

    /// Cargo of the device compiler, in the package's folder.
    fn cargo(&self) -> Command {
        let mut command = Command::new(&self.toolchain.cargo);
        scrub(&mut command);
        command.current_dir(&self.manifest.folder);
        command.env("RUSTC", &self.toolchain.rustc);
        command.env("RUSTC_BOOTSTRAP", "1");
        command
    }

    /// The packages that the kernel package depends on. Cargo tells; if it cannot, the build itself says why.
    fn dependencies(&self) -> Result<Dependencies, BuildError> {
        let cargo = &self.toolchain.cargo;
        let mut command = self.cargo();
        command.args(["metadata", "--format-version", "1", "--filter-platform", TARGET, "--manifest-path"]);
        command.arg(&self.manifest.path).args(resolution_args(&self.options.cargo_args));
        let output = command.stdin(Stdio::null()).output().map_err(BuildError::io("run", cargo))?;
        if !output.status.success() {
            return Ok(Dependencies::default());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        dependencies::read(&text, &self.manifest.path).map_err(|reason| BuildError::Manifest {
            path: self.manifest.path.clone(),
            reason: format!("`cargo metadata` printed something unknown: {reason}"),
        })
    }

    fn cargo_command(&self, dependencies: &Dependencies, recorder: &Path, record: &Path) -> Command {
        let mut command = self.cargo();
        // Wrappers of the host build must not run here. An empty value means none, and overrides any config
        // file.
        command.env("RUSTC_WRAPPER", recorder).env("RUSTC_WORKSPACE_WRAPPER", "");
        command.env(call::RECORD, record);
        let mut flags = self.rustflags();
        if dependencies.shared_object_is_free && self.toolchain.has_shared_object() {
            flags.extend(["--cfg", "ironwarp_shared_object"].map(str::to_owned));
        }
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        command.args(self.cargo_args()).arg("--target-dir").arg(&self.target_dir);
        for dependency in &dependencies.lacking {
            command.arg("--config").arg(dependency.setting(profile_of(&self.options)));
        }
        command.arg("--").args(self.rustc_args()).arg(format!("--emit=asm={}", self.assembly().display()));
        command
    }

    fn cargo_args(&self) -> Vec<String> {
        let profile = profile_of(&self.options);
        let debug = if self.options.line_info { "\"line-directives-only\"" } else { "false" };
        let mut args: Vec<String> =
            ["rustc", "--lib", "--crate-type", "cdylib", "--target", TARGET, "-Zbuild-std=core,alloc"]
                .map(str::to_owned)
                .into();
        // For the dependencies' flags.
        args.push("-Zprofile-rustflags".to_owned());
        args.extend(["--manifest-path".to_owned(), self.manifest.path.display().to_string()]);
        if self.options.release {
            args.push("--release".to_owned());
        }
        // One module without a linker: everything has to be in the one unit that becomes assembly.
        let settings =
            [("lto", "\"fat\""), ("codegen-units", "1"), ("panic", "\"abort\""), ("incremental", "false")];
        for (key, value) in settings.into_iter().chain([("debug", debug)]) {
            args.extend(["--config".to_owned(), format!("profile.{profile}.{key}={value}")]);
        }
        // A profile of the workspace may slow one package down for the host's sake.
        if self.options.release {
            args.extend(["--config".to_owned(), format!("profile.{profile}.opt-level=3")]);
        }
        if self.options.capture {
            args.push("--quiet".to_owned()); // progress is no diagnostic
        }
        args.extend(self.options.cargo_args.iter().cloned());
        args
    }

    /// Arguments for the kernel package alone.
    fn rustc_args(&self) -> Vec<String> {
        // `true` as linker: the assembly is the result, and there is nothing to link.
        let mut args: Vec<String> =
            ["-Clinker=true", NO_COPIED_BLOCKS, WIDE_CONVERSIONS].map(str::to_owned).into();
        args.extend(dependencies::attributes(&self.manifest.root, true));
        args.extend(self.options.llvm_args.iter().map(|arg| format!("-Cllvm-args={arg}")));
        let outputs = self.options.emit.iter();
        args.extend(outputs.map(|(kind, path)| format!("--emit={kind}={}", path.display())));
        args
    }

    /// Flags for the kernel package and all its dependencies, the library included.
    fn rustflags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("-Ctarget-cpu={}", self.arch),
            // Jump threading may copy a barrier into both arms of a branch, which then wait for each other.
            "-Zmir-enable-passes=-JumpThreading".to_owned(),
            // The builder gives packages features that they may not use.
            "-Aunused_features".to_owned(),
            "--cfg".to_owned(),
            // The whole name after `sm_`, such as 80 or 90a.
            format!("ironwarp_sm=\"{}\"", self.arch.to_string().trim_start_matches("sm_")),
            // Rust-CUDA's names: `cfg(target_feature = "compute_70")` on every architecture from 7.0 on.
            "-Aexplicit_builtin_cfgs_in_flags".to_owned(),
        ];
        for feature in self.arch.compute_features() {
            flags.extend(["--cfg".to_owned(), format!("target_feature=\"{feature}\"")]);
        }
        flags.push(format!("--check-cfg=cfg(target_feature, values({}))", known_features()));
        flags
    }
}

fn profile_of(options: &Options) -> &'static str {
    if options.release { "release" } else { "dev" }
}

/// Every `compute_NN`, as values of a `--check-cfg`.
fn known_features() -> String {
    let with_suffixes = |capability| ["", "a", "f"].map(|suffix| format!("\"compute_{capability}{suffix}\""));
    arch::COMPUTE.map(with_suffixes).as_flattened().join(",")
}

/// Those of the arguments for `cargo rustc` that change which packages are built.
fn resolution_args(args: &[String]) -> Vec<&str> {
    const VALUED: &[&str] = &["--features", "-F"];
    const PLAIN: &[&str] = &["--all-features", "--no-default-features", "--offline", "--locked", "--frozen"];
    let mut kept = Vec::new();
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        if PLAIN.contains(&arg) || arg.split_once('=').is_some_and(|(name, _)| VALUED.contains(&name)) {
            kept.push(arg);
        } else if VALUED.contains(&arg) {
            kept.push(arg);
            kept.extend(rest.next());
        }
    }
    kept
}

/// Removes what a calling cargo left in the environment, so that a build script's kernel build is the
/// same build as one from a shell.
fn scrub(command: &mut Command) {
    const KEPT: &[&str] = &["CARGO_HOME", "CARGO_BUILD_JOBS", "CARGO_TERM_COLOR"];
    const KEPT_FAMILIES: &[&str] = &["CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_"];
    const REMOVED: &[&str] = &[
        "RUSTFLAGS",
        "RUSTDOC",
        "RUSTDOCFLAGS",
        "RUSTUP_TOOLCHAIN",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "NUM_JOBS",
        "OUT_DIR",
        "MAKEFLAGS",
        "RUSTC_LINKER",
    ];
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let cargos = text.starts_with("CARGO")
            && !KEPT.contains(&&*text)
            && !KEPT_FAMILIES.iter().any(|family| text.starts_with(family));
        if cargos || REMOVED.contains(&&*text) || text.starts_with("DEP_") {
            command.env_remove(&name);
        }
    }
}

/// Runs with stderr both passed on and kept: the reader sees warnings at once, and the error can be told
/// apart.
fn run_teed(command: &mut Command) -> std::io::Result<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut kept = Vec::new();
    if let Some(mut pipe) = child.stderr.take() {
        let mut chunk = [0; 4096];
        loop {
            let len = pipe.read(&mut chunk)?;
            if len == 0 {
                break;
            }
            std::io::stderr().write_all(&chunk[..len])?;
            kept.extend_from_slice(&chunk[..len]);
        }
    }
    Ok(Output { status: child.wait()?, stdout: Vec::new(), stderr: kept })
}

fn is_download_failure(stderr: &str) -> bool {
    [
        "Could not resolve host",
        "Couldn't resolve host",
        "failed to download",
        "download of config.json failed",
        "spurious network error",
        "could not connect to server",
        "you're using offline mode",
        "unable to update registry",
        "attempting to make an HTTP request, but --offline was specified",
        "you may need to omit the --offline flag",
    ]
    .iter()
    .any(|sign| stderr.to_lowercase().contains(&sign.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::is_download_failure;

    #[test]
    fn a_missing_network_is_told_from_a_broken_kernel() {
        let offline = "error: no matching package named `cfg-if` found\nAs a reminder, you're using offline mode (--offline) which";
        let refused = "Caused by:\n  failed to download from `https://index.crates.io/config.json`";
        let broken =
            "error[E0425]: cannot find function `download` in this scope\nerror: could not compile `basic`";
        assert!(is_download_failure(offline) && is_download_failure(refused));
        assert!(!is_download_failure(broken));
    }
}
