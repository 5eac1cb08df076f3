//! Finding a kernel family's code for a device.
//!
//! A program finds PTX in folders, in files `<family>.<arch>.ptx`, and PTX and machine code in the archive
//! that it may embed. A device runs PTX of its own compute capability and of lower ones; `sm_90a`, with the
//! `a`, runs on exactly that one. The highest architecture that fits is taken. Machine code runs on devices
//! of the same generation; the driver compiles nothing then.

mod rank;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use archive::{Archive, Kind, Member, text};

use crate::arch::Arch;
use crate::device::Device;
use crate::error::{Error, Result, shown};

/// The archive that the build script found; empty if there is none.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.archive"));

/// The folder where programs built in the workspace look for PTX.
const BUILD_DIR: Option<&str> = option_env!("IRONWARP_BUILD_PTX_DIR");

/// Names a folder that is searched before all others.
const PTX_DIR: &str = "IRONWARP_PTX_DIR";

/// Where the code of a kernel family is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PtxSource {
    /// A folder with files `<family>.<arch>.ptx`.
    Directory(PathBuf),
    /// PTX text; it names its own architecture.
    Text(String),
    /// The kernels that this package embeds: those of the shipped families, in a package from a registry.
    Embedded,
}

impl PtxSource {
    fn describe(&self) -> String {
        match self {
            PtxSource::Directory(folder) => shown(folder),
            PtxSource::Text(_) => "the text given".to_owned(),
            PtxSource::Embedded if EMBEDDED.is_empty() => "this program (it embeds no kernels)".to_owned(),
            PtxSource::Embedded => "this program".to_owned(),
        }
    }
}

/// `IRONWARP_PTX_DIR` if it is set, then the workspace's folder, then the archive.
pub(crate) fn default_sources() -> Vec<PtxSource> {
    let named = std::env::var_os(PTX_DIR).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    // The program may run on a machine without that folder.
    let built = BUILD_DIR.map(PathBuf::from).filter(|folder| folder.is_dir());
    let folders = named.into_iter().chain(built).map(PtxSource::Directory);
    folders.chain([PtxSource::Embedded]).collect()
}

/// The code of a family for a device.
pub(crate) enum Code {
    /// PTX of the whole family.
    Text(String),
    /// Members of the embedded archive: PTX for one architecture, and machine code that the device runs.
    Embedded {
        /// The archive that has them.
        archive: &'static Archive<'static>,
        /// The common part of the PTX comes first.
        members: Vec<Member<'static>>,
    },
}

impl Code {
    /// PTX of the kernel alone. Device functions and constants stay.
    ///
    /// # Errors
    /// [`Error::Archive`].
    pub fn ptx_of(&self, kernel: &str) -> Result<String> {
        match self {
            Code::Text(text) => Ok(text::split(text).with_entry(kernel)),
            Code::Embedded { archive, members } => {
                let wanted = |member: &&Member<'_>| member.kind == Kind::Common || member.kernel == kernel;
                text_of(archive, members.iter().filter(wanted))
            }
        }
    }

    /// PTX of the whole family.
    ///
    /// # Errors
    /// [`Error::Archive`].
    pub fn ptx(&self) -> Result<Cow<'_, str>> {
        match self {
            Code::Text(text) => Ok(text.into()),
            Code::Embedded { archive, members } => Ok(text_of(archive, members)?.into()),
        }
    }

    /// Machine code of the kernel for the device, where there is some.
    ///
    /// # Errors
    /// [`Error::Archive`].
    pub fn machine_code_of(&self, kernel: &str) -> Result<Option<Vec<u8>>> {
        let Code::Embedded { archive, members } = self else { return Ok(None) };
        let wanted = |member: &&Member<'_>| (member.kind, member.kernel) == (Kind::Machine, kernel);
        members.iter().find(wanted).map(|member| archive.read(member).map_err(Error::archive)).transpose()
    }
}

/// The PTX among the members, one behind the other.
fn text_of<'m>(
    archive: &Archive<'static>,
    members: impl IntoIterator<Item = &'m Member<'static>>,
) -> Result<String> {
    let mut text = Vec::new();
    for bytes in archive.read_all(members.into_iter().filter(|member| member.kind != Kind::Machine)) {
        text.extend(bytes.map_err(Error::archive)?);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The embedded archive, if there is one.
fn embedded() -> Result<Option<&'static Archive<'static>>> {
    static ARCHIVE: OnceLock<Option<Archive<'static>>> = OnceLock::new();
    if let Some(archive) = ARCHIVE.get() {
        return Ok(archive.as_ref());
    }
    let parsed =
        if EMBEDDED.is_empty() { None } else { Some(Archive::parse(EMBEDDED).map_err(Error::archive)?) };
    Ok(ARCHIVE.get_or_init(|| parsed).as_ref())
}

/// The best code of `family` for `device`, from the first source that has some.
///
/// # Errors
/// [`Error::KernelNotBuilt`], [`Error::BadName`], [`Error::File`], [`Error::Archive`].
pub(crate) fn find(device: &Device, family: &str, sources: &[PtxSource]) -> Result<Code> {
    if !is_identifier(family) {
        return Err(Error::BadName { what: "family", name: family.to_owned() });
    }
    let arch = device.arch();
    if device.is_software() {
        // The kernels are linked into the program: the software driver needs only their family's name.
        return Ok(Code::Text(format!("// ironwarp family={family} arch={arch}\n")));
    }
    let mut found = Vec::new();
    for source in sources {
        let best = match source {
            PtxSource::Directory(folder) => rank::best_of(arch, files_of(folder, family)?, &mut found)
                .map(|path| read(&path).map(Code::Text))
                .transpose()?,
            PtxSource::Text(text) => Some(Code::Text(text.clone())),
            PtxSource::Embedded => embedded()?.and_then(|archive| {
                let members = best_members(archive, family, arch, &mut found)?;
                Some(Code::Embedded { archive, members })
            }),
        };
        if let Some(code) = best {
            return Ok(code);
        }
    }
    let searched = sources.iter().map(PtxSource::describe).collect();
    Err(Error::KernelNotBuilt { family: family.to_owned(), arch, searched, found })
}

/// The PTX of the architecture that fits best, and the machine code that does.
fn best_members<'a>(
    archive: &Archive<'a>,
    family: &str,
    device: Arch,
    rejected: &mut Vec<String>,
) -> Option<Vec<Member<'a>>> {
    let members = |machine_code: bool| {
        archive
            .of_family(family)
            .filter(move |member| (member.kind == Kind::Machine) == machine_code)
            .copied()
    };
    let best_of = |members: Vec<Member<'a>>, rejected: &mut Vec<String>| {
        let mut archs: Vec<&str> = members.iter().map(|member| member.arch).collect();
        archs.dedup();
        let best = rank::best_of(device, archs.into_iter().map(|arch| (arch.to_owned(), arch)), rejected)?;
        Some(members.into_iter().filter(|member| member.arch == best).collect::<Vec<_>>())
    };
    let mut best = best_of(members(false).collect(), rejected)?;
    let runs = members(true).filter(|member| rank::runs_machine_code(member.arch, device));
    best.extend(best_of(runs.collect(), rejected).unwrap_or_default());
    Some(best)
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

    #[test]
    fn machine_code_comes_beside_the_best_ptx() {
        let mut writer = archive::Writer::default();
        for (ptx, machine_code) in [("sm_80", ["sm_80", "sm_120"].as_slice()), ("sm_90a", &["sm_90a"])] {
            writer.add_ptx("f", ptx, ".version 8.0\n.entry k()\n{\n}\n");
            for arch in machine_code {
                writer.add_machine_code("f", arch, "k", arch.as_bytes().to_vec());
            }
        }
        let bytes = writer.finish().unwrap();
        let archive = Archive::parse(&bytes).unwrap();
        let best = |major, minor| {
            let mut rejected = Vec::new();
            let members = best_members(&archive, "f", Arch { major, minor }, &mut rejected);
            let arch_of = |members: &[Member<'_>], kind| {
                members.iter().find(|member| member.kind == kind).map(|member| member.arch.to_owned())
            };
            members.map(|members| (arch_of(&members, Kind::Ptx).unwrap(), arch_of(&members, Kind::Machine)))
        };
        let both = |ptx: &str, code: Option<&str>| Some((ptx.to_owned(), code.map(str::to_owned)));
        assert_eq!(best(9, 0), both("sm_90a", Some("sm_90a")));
        assert_eq!(best(8, 9), both("sm_80", Some("sm_80")));
        assert_eq!(best(12, 1), both("sm_80", Some("sm_120")));
        assert_eq!(best(10, 0), both("sm_80", None), "the driver compiles");
        assert_eq!(best(7, 5), None);
        assert_eq!(best_members(&archive, "g", Arch { major: 9, minor: 0 }, &mut Vec::new()), None);
    }

    #[test]
    fn embedded_ptx_is_that_of_a_file() {
        let entry = |name: &str| format!(".visible .entry {name}()\n{{\n\tret;\n}}\n");
        let text = format!(".version 8.0\n.global .u32 x;\n{}{}", entry("a"), entry("b"));
        let mut writer = archive::Writer::default();
        writer.add_ptx("f", "sm_80", &text);
        writer.add_machine_code("f", "sm_80", "a", b"code of a".to_vec());
        let bytes: &'static [u8] = writer.finish().unwrap().leak();
        let archive: &'static Archive<'static> = Box::leak(Box::new(Archive::parse(bytes).unwrap()));
        let a100 = Arch { major: 8, minor: 0 };
        let members = best_members(archive, "f", a100, &mut Vec::new()).unwrap();
        let (embedded, file) = (Code::Embedded { archive, members }, Code::Text(text.clone()));
        assert_eq!((&*embedded.ptx().unwrap(), &*file.ptx().unwrap()), (text.as_str(), text.as_str()));
        for kernel in ["a", "b", "c"] {
            assert_eq!(embedded.ptx_of(kernel).unwrap(), file.ptx_of(kernel).unwrap());
        }
        assert_eq!(embedded.machine_code_of("a").unwrap().as_deref(), Some(&b"code of a"[..]));
        assert_eq!(embedded.machine_code_of("b").unwrap(), None);
        assert_eq!(file.machine_code_of("a").unwrap(), None);
    }

    #[test]
    fn names() {
        assert!(is_identifier("basic") && is_identifier("_a1"));
        for bad in ["", "1a", "a b", "../x", "a.b", "ä"] {
            assert!(!is_identifier(bad), "{bad}");
        }
    }
}
