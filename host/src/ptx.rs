//! Finding the PTX of a kernel family for a device.
//!
//! Files are named `<family>.<arch>.ptx`. A device runs PTX of its own compute capability and of lower ones;
//! `sm_90a`, with the `a`, runs on exactly that one. The highest architecture that fits is taken.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::arch::Arch;
use crate::device::Device;
use crate::error::{Error, Result};

/// PTX that an optimised build of this package embedded: family, architecture, text.
static EMBEDDED: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/embedded_ptx.rs"));

/// The folder where a development build looks for PTX instead, so that dozens of test programs need not each
/// embed all of it.
const BUILD_DIR: Option<&str> = option_env!("IRONWARP_BUILD_PTX_DIR");

/// Names a folder that is searched before the PTX in the program.
const PTX_DIR: &str = "IRONWARP_PTX_DIR";

/// Where the PTX of a kernel family is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PtxSource {
    /// A folder with files `<family>.<arch>.ptx`.
    Directory(PathBuf),
    /// PTX text; it names its own architecture.
    Text(String),
    /// The PTX that this package embedded when it was built.
    Embedded,
}

impl PtxSource {
    fn describe(&self) -> String {
        match self {
            PtxSource::Directory(folder) => folder.display().to_string(),
            PtxSource::Text(_) => "the text given".to_owned(),
            PtxSource::Embedded => format!("this program ({} PTX files embedded)", EMBEDDED.len()),
        }
    }
}

/// `IRONWARP_PTX_DIR` if it is set, then the embedded PTX, then the build's folder.
pub(crate) fn default_sources() -> Vec<PtxSource> {
    let named = std::env::var_os(PTX_DIR).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    // The program may run on a machine without that folder.
    let built = BUILD_DIR.map(PathBuf::from).filter(|folder| folder.is_dir());
    let named = named.map(PtxSource::Directory).into_iter();
    named.chain([PtxSource::Embedded]).chain(built.map(PtxSource::Directory)).collect()
}

/// PTX without its entries other than `kernel`. Device functions and constants stay.
pub(crate) fn with_one_entry(text: &str, kernel: &str) -> String {
    let mut kept = String::with_capacity(text.len() / 4);
    // Inline assembly has braces of its own, also at the start of lines.
    let (mut skipping, mut depth) = (false, 0_usize);
    for line in text.split_inclusive('\n') {
        if let Some(name) = entry_name(line) {
            (skipping, depth) = (name != kernel, 0);
        }
        if !skipping {
            kept.push_str(line);
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        for bracket in code.bytes().filter(|byte| matches!(byte, b'{' | b'}')) {
            depth = if bracket == b'{' { depth + 1 } else { depth.saturating_sub(1) };
            skipping &= depth > 0;
        }
    }
    kept
}

/// The name of the entry that begins in this line.
fn entry_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(".visible ").unwrap_or(line).strip_prefix(".entry ")?;
    rest.split(|c: char| c == '(' || c.is_whitespace()).find(|name| !name.is_empty())
}

/// The text of the best PTX of `family` for `device`, from the first source that has one.
///
/// # Errors
/// [`Error::KernelNotBuilt`], [`Error::BadName`], [`Error::File`].
pub(crate) fn find(device: &Device, family: &str, sources: &[PtxSource]) -> Result<Cow<'static, str>> {
    if !is_identifier(family) {
        return Err(Error::BadName { what: "family", name: family.to_owned() });
    }
    let arch = device.arch();
    if device.is_software() {
        // The kernels are linked into the program: the software driver needs only their family's name.
        return Ok(format!("// ironwarp family={family} arch={arch}\n").into());
    }
    let mut found = Vec::new();
    for source in sources {
        let best = match source {
            PtxSource::Directory(folder) => {
                best_of(arch, files_of(folder, family)?, &mut found, |path| Ok(read(&path)?.into()))?
            }
            PtxSource::Text(text) => Some(text.clone().into()),
            PtxSource::Embedded => best_of(arch, embedded_of(family), &mut found, |text| Ok(text.into()))?,
        };
        if let Some(text) = best {
            return Ok(text);
        }
    }
    let searched = sources.iter().map(PtxSource::describe).collect();
    Err(Error::KernelNotBuilt { family: family.to_owned(), arch, searched, found })
}

/// The highest candidate that `arch` runs. The others' architectures are noted in `rejected`.
fn best_of<C>(
    arch: Arch,
    candidates: Vec<(String, C)>,
    rejected: &mut Vec<String>,
    read: impl FnOnce(C) -> Result<Cow<'static, str>>,
) -> Result<Option<Cow<'static, str>>> {
    let mut best: Option<(Rank, C)> = None;
    for (name, candidate) in candidates {
        match rank(&name, arch) {
            Some(rank) if best.as_ref().is_none_or(|(highest, _)| rank > *highest) => {
                best = Some((rank, candidate))
            }
            Some(_) => {}
            None => rejected.push(name),
        }
    }
    best.map(|(_, candidate)| read(candidate)).transpose()
}

fn embedded_of(family: &str) -> Vec<(String, &'static str)> {
    EMBEDDED
        .iter()
        .filter(|(name, ..)| *name == family)
        .map(|&(_, arch, text)| (arch.to_owned(), text))
        .collect()
}

fn files_of(folder: &Path, family: &str) -> Result<Vec<(String, PathBuf)>> {
    let unreadable = |source| Error::File { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let rest = name.strip_prefix(family).and_then(|rest| rest.strip_prefix('.'));
        if let Some(arch) = rest.and_then(|rest| rest.strip_suffix(".ptx")) {
            files.push((arch.to_owned(), path.clone()));
        }
    }
    Ok(files)
}

/// How well PTX fits a device: ordered by compute capability, then by whether it was made for exactly this
/// one.
type Rank = (Arch, bool);

/// The rank of PTX for `name` (`sm_80`, `sm_90a`, `sm_100f`) on `device`; `None` when it does not run there.
fn rank(name: &str, device: Arch) -> Option<Rank> {
    let digits = name.strip_prefix("sm_")?;
    let (digits, suffix) = match digits.strip_suffix(['a', 'f']) {
        Some(number) => (number, digits.chars().last()),
        None => (digits, None),
    };
    let number: u32 = digits.parse().ok()?;
    let built = Arch { major: number / 10, minor: number % 10 };
    let runs = match suffix {
        Some('a') => built == device,
        Some(_) => built.major == device.major && built.minor <= device.minor,
        None => built <= device,
    };
    runs.then_some((built, suffix.is_some()))
}

/// The text of a PTX file.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// The first line of the text if ironwarp wrote it, to name the module in errors.
pub(crate) fn label(text: &str) -> String {
    match text.lines().next().and_then(|line| line.strip_prefix("// ironwarp ")) {
        Some(line) => line.trim().to_owned(),
        None => "PTX text".to_owned(),
    }
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Arch = Arch { major: 9, minor: 0 };
    const B200: Arch = Arch { major: 10, minor: 0 };
    const A10: Arch = Arch { major: 8, minor: 6 };

    fn best(names: &[&str], arch: Arch) -> (Option<String>, Vec<String>) {
        let candidates = names.iter().map(|name| (name.to_string(), name.to_string())).collect();
        let mut rejected = Vec::new();
        let best = best_of(arch, candidates, &mut rejected, |name| Ok(name.into())).unwrap();
        (best.map(Cow::into_owned), rejected)
    }

    #[test]
    fn the_highest_that_runs_wins() {
        assert_eq!(best(&["sm_80", "sm_90a"], H200).0.as_deref(), Some("sm_90a"));
        assert_eq!(best(&["sm_90a", "sm_80"], H200).0.as_deref(), Some("sm_90a"));
        assert_eq!(best(&["sm_90", "sm_90a", "sm_80"], H200).0.as_deref(), Some("sm_90a"));
        assert_eq!(best(&["sm_80", "sm_90"], A10), (Some("sm_80".to_owned()), vec!["sm_90".to_owned()]));
    }

    #[test]
    fn an_a_runs_nowhere_else() {
        assert_eq!(best(&["sm_90a", "sm_80"], B200).0.as_deref(), Some("sm_80"));
        assert_eq!(best(&["sm_90a"], A10), (None, vec!["sm_90a".to_owned()]));
    }

    #[test]
    fn an_f_runs_within_its_generation() {
        let b300 = Arch { major: 10, minor: 3 };
        assert_eq!(best(&["sm_100f"], b300).0.as_deref(), Some("sm_100f"));
        assert_eq!(best(&["sm_100f"], Arch { major: 12, minor: 0 }).0, None);
    }

    #[test]
    fn nonsense_is_passed_over() {
        assert_eq!(best(&["", "sm_", "sm_x", "80", "sm_9999999999999"], H200).0, None);
    }

    #[test]
    fn one_entry_is_kept_whole() {
        let body = |name: &str| {
            format!(
                "\t// .globl {name}\n.visible .entry {name}(\n\t.param .u32 {name}_param_0\n)\n.maxntid 32, 1, 1\n{{\n\t{{ .reg .pred p; }}\n{{\n.reg .pred q; // }}\n}}\n\tret;\n}}\n"
            )
        };
        let shared =
            "// ironwarp family=f arch=sm_80\n.version 7.0\n.global .u32 x;\n.func g()\n{\n\tret;\n}\n";
        let text = format!("{shared}{}{}{}", body("a"), body("ab"), body("b"));
        let one = with_one_entry(&text, "ab");
        assert!(one.starts_with(shared) && one.contains(&body("ab")), "{one}");
        assert_eq!(one.matches(".entry").count(), 1);
        assert_eq!(one.matches("ret;").count(), 2);
        assert_eq!(with_one_entry(&text, "c").matches(".entry").count(), 0);
        // Text for the software driver is only a first line.
        assert_eq!(
            with_one_entry("// ironwarp family=f arch=sm_90a\n", "a"),
            "// ironwarp family=f arch=sm_90a\n"
        );
    }

    #[test]
    fn names() {
        assert!(is_identifier("basic") && is_identifier("_a1"));
        for bad in ["", "1a", "a b", "../x", "a.b", "ä"] {
            assert!(!is_identifier(bad), "{bad}");
        }
    }
}
