//! NVIDIA's assembler as a judge: registers, spills, stack, shared memory and warnings of every kernel.
//!
//! The driver assembles PTX itself when it loads a module, so `ptxas` is not needed to run anything. It is
//! looked for in [`PTXAS`], the folder that `cargo xtask setup` fills, `CUDA_HOME`, `CUDA_PATH`, `PATH` and
//! `/usr/local/cuda`.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};

use crate::arch::Arch;
use crate::cores::{self, Work};
use crate::error::{BuildError, shown};
use crate::ptx::{self, Module};
use crate::stamp::{self, write_atomically};
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

impl Report {
    /// Adds the report on another piece. Functions that kernels of both call are in both.
    fn add(&mut self, piece: Report) {
        for usage in piece.functions {
            if !self.functions.iter().any(|known| known.name == usage.name) {
                self.functions.push(usage);
            }
        }
        for warning in piece.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
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
    #[error("ptxas refuses {ptx} for {arch}:\n{messages}\nfix: find the line in {ptx}; a PTX version that is too low belongs into the builder's table of features", ptx = shown(.ptx))]
    Rejected {
        /// The module.
        ptx: PathBuf,
        /// The architecture.
        arch: Arch,
        /// The assembler's messages.
        messages: String,
    },
    /// The assembler reports success, and has written something else than machine code.
    #[error("{assembler} has written no machine code for {arch}: {got} bytes that are no ELF file\nfix: name NVIDIA's ptxas in {PTXAS}, or install it again", assembler = shown(.assembler))]
    NoMachineCode {
        /// The assembler.
        assembler: PathBuf,
        /// The architecture.
        arch: Arch,
        /// The length of what it wrote.
        got: usize,
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
        let path = shown(&self.path);
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

    /// Assembles every entry of a module and reports what each uses, in pieces side by side. The answers are
    /// kept in the folder `kept`, which is this module's alone, so that the same piece is assembled once.
    ///
    /// # Errors
    /// When the text is no PTX, or the assembler refuses it or cannot be run.
    pub fn assemble(&self, module: &Module<'_>, arch: Arch, kept: &Path) -> Result<Report, PtxasError> {
        let pieces = ptx::pieces(module);
        let next = AtomicUsize::new(0);
        let work = || {
            let take = || pieces.get(next.fetch_add(1, Ordering::Relaxed));
            std::iter::from_fn(take).map(|piece| self.assemble_piece(piece, arch, kept)).collect::<Vec<_>>()
        };
        let workers = thread::available_parallelism().map_or(1, usize::from).min(pieces.len());
        let answers: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let join =
                |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            workers.into_iter().flat_map(join).collect()
        });
        let (mut report, mut used) = (Report::default(), BTreeSet::new());
        for answer in answers {
            let (path, messages) = answer?;
            report.add(parse(&messages));
            used.insert(path);
        }
        remove_others(kept, &used)?;
        Ok(report)
    }

    /// The messages about a piece, and the file that keeps them.
    fn assemble_piece(&self, piece: &str, arch: Arch, kept: &Path) -> Result<(PathBuf, String), PtxasError> {
        let key = self.key(piece.as_bytes(), arch);
        let path = kept.join(format!("{key:016x}.ptxas"));
        if let Some(messages) = read_kept(&path, key).and_then(|messages| String::from_utf8(messages).ok()) {
            return Ok((path, messages));
        }
        let _core = cores::wait(Work::Assemble);
        // Another build of the module may be at the same piece. The text stays if it is refused.
        let source = path.with_extension(format!("{}.ptx", stamp::unique()));
        write_atomically(&source, piece.as_bytes())?;
        let cubin = source.with_extension("cubin");
        let messages = self.run(&source, arch, &cubin)?;
        // Only the report is wanted.
        for done in [&cubin, &source] {
            fs::remove_file(done).map_err(BuildError::io("remove", done))?;
        }
        keep(&path, key, messages.as_bytes())?;
        Ok((path, messages))
    }

    /// The machine code (a cubin) of PTX text. It is kept in the folder `kept`, under a name made of the
    /// text, the architecture and the assembler; with the same ones nothing runs.
    ///
    /// # Errors
    /// When the assembler refuses the text or cannot be run.
    pub fn machine_code(&self, ptx: &str, arch: Arch, kept: &Path) -> Result<Vec<u8>, PtxasError> {
        let key = self.key(ptx.as_bytes(), arch);
        let cubin = kept.join(format!("{key:016x}.cubin"));
        if let Some(code) = read_kept(&cubin, key) {
            return Ok(code);
        }
        // As for a piece.
        let source = cubin.with_extension(format!("{}.ptx", stamp::unique()));
        write_atomically(&source, ptx.as_bytes())?;
        let unfinished = source.with_extension("unfinished");
        self.run(&source, arch, &unfinished)?;
        let code = fs::read(&unfinished).map_err(BuildError::io("read", &unfinished))?;
        for done in [&unfinished, &source] {
            fs::remove_file(done).map_err(BuildError::io("remove", done))?;
        }
        if !code.starts_with(ELF) {
            return Err(PtxasError::NoMachineCode { assembler: self.path.clone(), arch, got: code.len() });
        }
        keep(&cubin, key, &code)?;
        Ok(code)
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
        let output = command.output().map_err(BuildError::io("run", &self.path))?;
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

/// How every ELF file begins.
const ELF: &[u8] = b"\x7fELF";

/// The line before what is kept: what it was made of, and what it is.
fn kept_line(key: u64, contents: &[u8]) -> String {
    format!("key {key:016x} {}\n", stamp::hash(contents))
}

/// The contents that [`keep`] has written for `key`; nothing if the file is not as it was then.
fn read_kept(path: &Path, key: u64) -> Option<Vec<u8>> {
    let mut contents = fs::read(path).ok()?;
    let end = contents.iter().position(|&byte| byte == b'\n')? + 1;
    let rest = contents.split_off(end);
    (contents == kept_line(key, &rest).as_bytes()).then_some(rest)
}

fn keep(path: &Path, key: u64, contents: &[u8]) -> Result<(), BuildError> {
    write_atomically(path, &[kept_line(key, contents).as_bytes(), contents].concat())
}

/// Removes the answers about pieces of earlier modules.
fn remove_others(folder: &Path, used: &BTreeSet<PathBuf>) -> Result<(), BuildError> {
    let entries = fs::read_dir(folder).map_err(BuildError::io("read", folder))?;
    let is_answer = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "ptxas");
    let paths = entries.flatten().map(|entry| entry.path());
    for path in paths.filter(|path| is_answer(path) && !used.contains(path)) {
        match fs::remove_file(&path) {
            // Another build of the same module has done it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.map_err(BuildError::io("remove", &path))?,
        }
    }
    Ok(())
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

    /// A stand-in that writes `code`, and a line to its log at each call.
    fn assembler(folder: &Path, code: &str) -> Ptxas {
        let path = folder.join("ptxas");
        let log = folder.join("log");
        let script = format!(
            "#!/bin/sh\nwhile [ \"$1\" != --output-file ]; do shift; done\nprintf '{code}' >\"$2\"\necho >>'{}'\n",
            log.display()
        );
        testkit::process::write_script(&path, &script);
        Ptxas { path }
    }

    fn calls(folder: &Path) -> usize {
        fs::read_to_string(folder.join("log")).unwrap_or_default().lines().count()
    }

    /// Each kind of damage to what is kept: the file's path and what it was.
    const DAMAGE: [fn(&Path, &[u8]); 7] = [
        |path, whole| fs::write(path, &whole[..whole.len() - 1]).unwrap(),
        |path, whole| fs::write(path, &whole[..20]).unwrap(),
        |path, _| fs::write(path, "").unwrap(),
        |path, _| fs::write(path, b"\x7fELF garbage\n\xff").unwrap(),
        |path, whole| fs::write(path, [whole, b"more"].concat()).unwrap(),
        |path, whole| fs::write(path, whole.to_ascii_uppercase()).unwrap(),
        |path, _| fs::remove_file(path).unwrap(),
    ];

    #[test]
    fn damaged_machine_code_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let ptxas = assembler(folder.path(), "\\177ELF code");
        let kept = folder.path().join("kept");
        let code = || ptxas.machine_code("ptx", "sm_80".parse().unwrap(), &kept).unwrap();
        assert_eq!((code(), code()), (b"\x7fELF code".to_vec(), b"\x7fELF code".to_vec()));
        assert_eq!(calls(folder.path()), 1, "kept");
        let files: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [file] = files.as_slice() else { panic!("{files:?}") };
        let whole = fs::read(file).unwrap();
        for (number, damage) in DAMAGE.iter().enumerate() {
            damage(file, &whole);
            assert_eq!(code(), b"\x7fELF code", "damage {number}");
            assert_eq!(calls(folder.path()), number + 2, "damage {number}");
            assert_eq!(fs::read(file).unwrap(), whole);
        }
    }

    /// All calls of the assembler are under way at once.
    #[test]
    fn machine_code_is_made_by_several_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let ptxas = assembler(folder.path(), "'; sleep 0.2; printf '\\177ELF code");
        let kept = folder.path().join("kept");
        let code = || ptxas.machine_code("ptx", "sm_80".parse().unwrap(), &kept).unwrap();
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(code))));
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_report_is_kept_by_piece_and_a_damaged_one_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let ptxas = assembler(folder.path(), "x");
        let kept = folder.path().join("kept");
        let kernel = |name: &str, line: &str| {
            format!(".visible .entry {name}()\n{{\n{}}}\n", line.repeat((2 << 20) / line.len()))
        };
        let module = |line: &str| {
            let kernels: String = (0..8).map(|number| kernel(&format!("k{number}"), "\tret;\n")).collect();
            format!(".version 7.0\n.target sm_80\n{kernels}{}", kernel("last", line))
        };
        let assemble = |text: &str| {
            let module = Module::parse(text).unwrap();
            ptxas.assemble(&module, "sm_80".parse().unwrap(), &kept).unwrap()
        };
        let files = || fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let first = module("\tret;\n");
        assert_eq!((assemble(&first), assemble(&first)), (Report::default(), Report::default()));
        let pieces = calls(folder.path());
        assert!(pieces > 1 && files().len() == pieces, "{:?}", files());
        assemble(&module("\texit;\n"));
        assert_eq!((calls(folder.path()), files().len()), (pieces + 1, pieces), "one changed");
        let path = &files()[0];
        fs::write(path, fs::read_to_string(path).unwrap() + OUTPUT).unwrap();
        assert_eq!((assemble(&module("\texit;\n")), calls(folder.path())), (Report::default(), pieces + 2));
    }

    #[test]
    fn a_function_of_two_pieces_is_reported_once() {
        let mut report = parse(OUTPUT);
        report.add(parse(OUTPUT));
        assert_eq!(report, parse(OUTPUT));
        report.add(parse(&OUTPUT.replace("fill", "other")));
        assert_eq!(report.functions.len(), 4);
    }

    #[test]
    fn what_is_no_machine_code_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        for code in ["", "text"] {
            let ptxas = assembler(folder.path(), code);
            let kept = folder.path().join("kept");
            let told = ptxas.machine_code("ptx", "sm_80".parse().unwrap(), &kept).unwrap_err().to_string();
            assert!(told.contains("no machine code for sm_80"), "{told}");
            assert_eq!(fs::read_dir(&kept).unwrap().count(), 0);
        }
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
