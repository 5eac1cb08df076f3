//! Source places: a `Location` known at compile time or a program counter, resolved only when a fault is
//! reported.

use std::fmt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Line of a kernel's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Source file: below the program's workspace without its folders, else whole; empty when unknown.
    pub file: String,
    /// Line, from 1; 0 when unknown.
    pub line: u32,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file.as_str() {
            "" => f.write_str("an unknown place"),
            file => write!(f, "{file}:{}", self.line),
        }
    }
}

impl From<&Location<'_>> for Site {
    fn from(location: &Location<'_>) -> Self {
        Self { file: relative(location.file()), line: location.line() }
    }
}

/// A place: 48 bits of address. The lowest tells the kind: a `Location` has an even address, and a program
/// counter is made odd, which leaves it inside its call instruction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RawSite(u64);

const _: () = assert!(align_of::<Location<'static>>() > 1, "the lowest bit of its address is free");

impl RawSite {
    /// Bits that a raw site needs.
    pub const BITS: u32 = 48;
    const ADDRESS: u64 = (1 << Self::BITS) - 1;
    const IS_PC: u64 = 1;

    pub fn of(location: &'static Location<'static>) -> Self {
        Self(std::ptr::from_ref(location) as u64 & Self::ADDRESS)
    }

    /// Place of the call that returns to `pc`.
    pub fn return_address(pc: usize) -> Self {
        Self((pc as u64).wrapping_sub(2) & Self::ADDRESS | Self::IS_PC)
    }

    /// Whether it came from a load/store callback: all other places come from the caller's `Location`.
    pub fn is_return_address(self) -> bool {
        self.0 & Self::IS_PC != 0
    }

    pub fn bits(self) -> u64 {
        self.0
    }

    pub fn from_bits(bits: u64) -> Self {
        Self(bits & Self::ADDRESS)
    }

    pub fn resolve(self) -> Site {
        if self.0 == 0 {
            return Site::default();
        }
        if self.is_return_address() {
            return resolve_pc(self.0 as usize);
        }
        // SAFETY: without IS_PC the address came from a `&'static Location` in `of`; user-space addresses
        // have at most 48 bits, so nothing was cut off.
        Site::from(unsafe { &*(self.0 as usize as *const Location<'static>) })
    }
}

/// The innermost frame at `pc` that belongs neither to the standard library nor to the device library. LLVM
/// leaves some instructions without a line, such as the parts into which it takes a wide store: they get the
/// line of the instruction before them.
fn resolve_pc(pc: usize) -> Site {
    /// Bytes of machine code that such parts take.
    const REACH: usize = 256;
    (0..REACH).find_map(|back| frame_at(pc - back)).unwrap_or_default()
}

fn frame_at(pc: usize) -> Option<Site> {
    let mut first = None;
    let mut kernel = None;
    backtrace::resolve(pc as *mut _, |symbol| {
        let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) else { return };
        let site = Site { file: relative(&file.to_string_lossy()), line };
        if kernel.is_none() && !is_library(&site.file) {
            kernel = Some(site.clone());
        }
        first.get_or_insert(site);
    });
    kernel.or(first)
}

fn is_library(file: &str) -> bool {
    const LIBRARIES: [&str; 4] =
        ["/rustc/", "/library/core/src/", "crates/cuda_std/src/", "crates/simt/src/"];
    LIBRARIES.iter().any(|library| file.contains(library))
}

/// Path below the workspace: debug information has whole paths, a `Location` has them for packages outside.
fn relative(path: &str) -> String {
    static WORKSPACE: LazyLock<PathBuf> = LazyLock::new(|| {
        let from = std::env::current_dir().ok();
        from.and_then(|from| workspace_around(&from)).unwrap_or_else(own_workspace)
    });
    below(&WORKSPACE, path)
}

fn below(workspace: &Path, path: &str) -> String {
    let inner = Path::new(path).strip_prefix(workspace).ok().and_then(Path::to_str);
    inner.unwrap_or(path).to_string()
}

/// The workspace of the program that runs in `folder`, where cargo has run it.
fn workspace_around(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).map(Path::to_path_buf)
}

/// The workspace that this crate was built in: a program of its tests may run elsewhere.
fn own_workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("/")).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_below_the_programs_workspace() {
        let own = own_workspace();
        assert_eq!(workspace_around(&own.join("crates/simt/src")).as_deref(), Some(&*own));
        let project = Path::new("/home/blur");
        let shown = ["/home/blur/kernels/src/lib.rs", "kernels/src/lib.rs"].map(|path| below(project, path));
        assert_eq!(shown, ["kernels/src/lib.rs"; 2]);
        let library = own.join("kernels-gpu/gemm/src/load.rs");
        let library = library.to_str().expect("text");
        assert_eq!(
            [below(project, library), below(&own, library)],
            [library, "kernels-gpu/gemm/src/load.rs"]
        );
    }
}
