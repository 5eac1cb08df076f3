//! NVIDIA's assembler as a judge: registers, spills, stack, shared memory and warnings of every kernel.
//!
//! The driver assembles PTX itself when it loads a module, so `ptxas` is not needed to run anything. It is
//! looked for in [`PTXAS`], the folder that `cargo xtask setup` fills, `CUDA_HOME`, `CUDA_PATH`, `PATH` and
//! `/usr/local/cuda`.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arch::Arch;
use crate::error::BuildError;
use crate::stamp::write_atomically;
use crate::toolchain::on_path;

/// Environment variable that names the assembler, before any search.
pub const PTXAS: &str = "IRONWARP_PTXAS";

/// An assembler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ptxas {
    /// The program.
    pub path: PathBuf,
}

/// The assembler's report on a module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Kernels and functions, in the order of the output.
    pub functions: Vec<Usage>,
    /// Warnings, and remarks on lost performance.
    pub warnings: Vec<String>,
}

/// The resources of one kernel or function on the GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its symbol.
    pub name: String,
    /// Whether the host can launch it. Other functions have no registers of their own.
    pub is_entry: bool,
    /// Registers a thread.
    pub registers: u32,
    /// Bytes of local memory a thread, for arrays that are indexed at run time.
    pub stack: u32,
    /// Bytes a thread stored to local memory for lack of registers.
    pub spill_stores: u32,
    /// Bytes a thread loaded from there.
    pub spill_loads: u32,
    /// Bytes of static shared memory a block.
    pub shared: u32,
    /// Barriers a block.
    pub barriers: u32,
}

impl Usage {
    /// Bytes spilled, stores and loads together.
    pub fn spills(&self) -> u32 {
        self.spill_stores + self.spill_loads
    }
}

/// The reason why a module was not assembled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PtxasError {
    /// The assembler refused the module.
    #[error("ptxas refuses {ptx} for {arch}:\n{messages}\nfix: find the line in {ptx}; a PTX version that is too low belongs into the builder's table of features", ptx = .ptx.display())]
    Rejected {
        /// The module.
        ptx: PathBuf,
        /// The architecture.
        arch: Arch,
        /// The assembler's messages.
        messages: String,
    },
    /// A file or process could not be used.
    #[error(transparent)]
    Io(#[from] BuildError),
}

impl Ptxas {
    /// Finds the assembler.
    ///
    /// The one that setup installs goes before a CUDA toolkit: register counts differ between releases, and
    /// the budget was written with that one.
    pub fn find() -> Option<Self> {
        let named = env::var_os(PTXAS).filter(|path| !path.is_empty()).map(PathBuf::from);
        if named.is_some() {
            return named.filter(|path| path.is_file()).map(|path| Self { path });
        }
        let installed = install_dir().map(|folder| folder.join("ptxas"));
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
        let toolkit = toolkits.map(|folder| folder.join("bin/ptxas"));
        let candidates = installed
            .into_iter()
            .chain(toolkit)
            .chain(on_path("ptxas"))
            .chain([PathBuf::from("/usr/local/cuda/bin/ptxas")]);
        candidates.into_iter().find(|path| path.is_file()).map(|path| Self { path })
    }

    /// Its release, such as `V13.0.88`, or an empty text when it does not run.
    pub fn version(&self) -> String {
        self.release().unwrap_or_default()
    }

    /// Its release.
    ///
    /// # Errors
    /// A sentence, when the program does not answer as NVIDIA's does: an incomplete download, or another
    /// program.
    pub fn release(&self) -> Result<String, String> {
        let path = self.path.display();
        let output = Command::new(&self.path).arg("--version").output();
        let output = output.map_err(|error| format!("{path} cannot be run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let release =
            text.lines().filter(|line| line.contains("release")).find_map(|line| line.rsplit_once(", "));
        match release {
            Some((_, version)) if output.status.success() => Ok(version.to_owned()),
            _ => Err(format!(
                "{path} does not answer --version as NVIDIA's assembler does ({})",
                output.status
            )),
        }
    }

    /// Assembles every entry of a module and reports what each uses. The answer is kept in the file `kept`,
    /// so that the same module is assembled once.
    ///
    /// # Errors
    /// When the assembler refuses the module or cannot be run.
    pub fn assemble(&self, ptx: &Path, arch: Arch, kept: &Path) -> Result<Report, PtxasError> {
        let text = fs::read(ptx).map_err(BuildError::io("read", ptx))?;
        let key = format!("key {:016x}", self.key(&text, arch));
        if let Some((first, messages)) =
            fs::read_to_string(kept).ok().as_deref().and_then(|kept| kept.split_once('\n'))
            && first == key
        {
            return Ok(parse(messages));
        }
        let messages = self.run(ptx, arch, &kept.with_extension(format!("{}.cubin", std::process::id())))?;
        write_atomically(kept, format!("{key}\n{messages}").as_bytes())?;
        Ok(parse(&messages))
    }

    fn key(&self, ptx: &[u8], arch: Arch) -> u64 {
        let modified = fs::metadata(&self.path).and_then(|metadata| metadata.modified()).ok();
        let mut hasher = DefaultHasher::new();
        (&self.path, modified, arch, ptx).hash(&mut hasher);
        hasher.finish()
    }

    fn run(&self, ptx: &Path, arch: Arch, cubin: &Path) -> Result<String, PtxasError> {
        if let Some(folder) = cubin.parent() {
            fs::create_dir_all(folder).map_err(BuildError::io("create", folder))?;
        }
        let mut command = Command::new(&self.path);
        command
            .args(["--verbose", "--warn-on-spills", "--gpu-name", &arch.to_string(), "--output-file"])
            .arg(cubin)
            .arg(ptx);
        let output = command.output().map_err(BuildError::io("run", &self.path));
        // Only the report is wanted. No file is there when the assembler refused the module.
        let _ = fs::remove_file(cubin);
        let output = output?;
        let messages =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            return Ok(messages);
        }
        let mut errors: Vec<&str> =
            messages.lines().filter(|line| line.contains("error") || line.contains("fatal")).collect();
        if errors.is_empty() {
            errors = messages.lines().collect();
        }
        errors.truncate(10);
        Err(PtxasError::Rejected { ptx: ptx.to_owned(), arch, messages: errors.join("\n") })
    }
}

/// Where `cargo xtask setup` puts the assembler: in the user's cache, shared by every checkout.
pub fn install_dir() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Some(cache.or_else(|| Some(env::home_dir()?.join(".cache")))?.join("ironwarp"))
}

fn parse(messages: &str) -> Report {
    let mut report = Report::default();
    let mut entries: Vec<&str> = Vec::new();
    for line in messages.lines() {
        if let Some(name) = quoted_after(line, "Compiling entry function ") {
            entries.push(name);
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            let name = name.trim();
            report.functions.push(Usage {
                name: name.to_owned(),
                is_entry: entries.contains(&name),
                ..Usage::default()
            });
        } else if let Some((_, list)) =
            line.split_once("Used ").filter(|(_, list)| list.contains(" registers"))
        {
            if let Some(usage) = report.functions.last_mut() {
                read_quantities(usage, &format!("used {list}"));
            }
        } else if line.contains("bytes stack frame") {
            if let Some(usage) = report.functions.last_mut() {
                read_quantities(usage, line);
            }
        } else if is_warning(line) {
            report.warnings.push(line.trim_start_matches("ptxas ").trim().to_owned());
        }
    }
    report
}

/// `used 40 registers, used 1 barriers, 4096 bytes smem` and `16 bytes spill stores, 16 bytes spill loads`.
fn read_quantities(usage: &mut Usage, list: &str) {
    for item in list.split(',') {
        let item = item.trim().trim_start_matches("used ");
        let Some((number, unit)) = item.split_once(' ') else { continue };
        let Ok(number) = number.parse() else { continue };
        match unit {
            "registers" => usage.registers = number,
            "barriers" => usage.barriers = number,
            "bytes smem" => usage.shared = number,
            "bytes stack frame" => usage.stack = number,
            "bytes spill stores" => usage.spill_stores = number,
            "bytes spill loads" => usage.spill_loads = number,
            _ => {}
        }
    }
}

fn is_warning(line: &str) -> bool {
    // Spills are in the numbers already.
    let spill = line.contains("Registers are spilled");
    !spill && (line.contains("ptxas warning") || line.contains("Potential Performance Loss"))
}

fn quoted_after<'a>(line: &'a str, text: &str) -> Option<&'a str> {
    line.split_once(text)?.1.strip_prefix('\'')?.split_once('\'').map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ptxas 13.0 writes it; the second kernel was made to spill with a register limit.
    const OUTPUT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'fill' for 'sm_80'
ptxas info    : Function properties for fill
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 364 bytes cmem[0]
ptxas info    : Compile time = 9.517 ms
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'gemm'
ptxas warning : Registers are spilled to local memory in function 'gemm', 24 bytes spill stores, 32 bytes spill loads
ptxas info    : Compiling entry function 'gemm' for 'sm_80'
ptxas info    : Function properties for gemm
    48 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 128 registers, used 2 barriers, 48 bytes cumulative stack size, 33792 bytes smem, 400 bytes cmem[0]
ptxas info    : Function properties for helper
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
";

    #[test]
    fn a_report_is_read() {
        let report = parse(OUTPUT);
        let names: Vec<_> =
            report.functions.iter().map(|usage| (usage.name.as_str(), usage.is_entry)).collect();
        assert_eq!(names, [("fill", true), ("gemm", true), ("helper", false)]);
        assert_eq!(report.functions[0].registers, 8);
        let gemm = Usage {
            name: "gemm".to_owned(),
            is_entry: true,
            registers: 128,
            stack: 48,
            spill_stores: 24,
            spill_loads: 32,
            shared: 33792,
            barriers: 2,
        };
        assert_eq!(report.functions[1], gemm);
        assert_eq!(gemm.spills(), 56);
    }

    #[test]
    fn serialised_wgmma_is_a_warning_and_spills_are_not_told_twice() {
        let warnings = parse(OUTPUT).warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("C7510"));
    }

    #[test]
    fn a_program_that_is_no_assembler_has_no_release() {
        for (path, reason) in [("/bin/true", "does not answer"), ("/no/such/ptxas", "cannot be run")] {
            let told = Ptxas { path: path.into() }.release().unwrap_err();
            assert!(told.contains(path) && told.contains(reason), "{told}");
        }
    }

    #[test]
    fn noise_is_no_report() {
        assert_eq!(
            parse("bash: ptxas: command not found\n    Used by nobody, 3 bytes stack frame"),
            Report::default()
        );
    }
}
