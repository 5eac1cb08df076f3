//! Whether a finished module is still what its sources say, without asking cargo: a stamp lists a hash of the
//! module and of every source. Times of files do not count, so that a fresh checkout or another branch and
//! back costs nothing.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use crate::error::BuildError;

/// How assembly is made, as source: when it changes, modules are compiled anew.
const COMPILING: &[&str] = &[
    include_str!("call.rs"),
    include_str!("compile.rs"),
    include_str!("ptx/join.rs"),
    include_str!("recorder.sh"),
];

/// The stages after the compiler, as source: when they change, modules are finished anew.
const FINISHING: &[&str] = &[
    include_str!("ptx/mod.rs"),
    include_str!("ptx/count.rs"),
    include_str!("ptx/finish.rs"),
    include_str!("ptx/lint.rs"),
    include_str!("ptx/needs.rs"),
];

/// Number of what makes assembly, for a way to compile.
pub fn compiling(fingerprint: u64) -> u64 {
    with_sources(fingerprint, COMPILING)
}

/// Number of what makes a module of assembly that has this number.
pub fn finishing(compiling: u64) -> u64 {
    with_sources(compiling, FINISHING)
}

fn with_sources(number: u64, sources: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(number);
    sources.iter().for_each(|source| hasher.write(source.as_bytes()));
    hasher.finish()
}

/// The state of a module according to its stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is up to date with the sources.
    Fresh,
    /// The sources, the flags, the compiler or the module itself have changed, or there is no stamp.
    Stale,
}

/// Compares the stamp at `path` with the module and the sources as they are.
pub fn state(path: &Path, fingerprint: u64, module: &Path) -> State {
    let Ok(text) = fs::read_to_string(path) else { return State::Stale };
    // Without its end it lists too few sources.
    let Some(text) = text.strip_suffix(END) else { return State::Stale };
    let mut lines = text.lines();
    if lines.next() != Some(&*first_line(fingerprint)) {
        return State::Stale;
    }
    let module_line = lines.next();
    let Some(packages) = lines.next().and_then(read_packages) else { return State::Stale };
    let holds = |line: &str| {
        line.split_once(' ')
            .is_some_and(|(was, file)| digest(Path::new(file), packages.as_ref()).as_deref() == Some(was))
    };
    if !lines.all(holds) {
        return State::Stale;
    }
    match fs::read(module) {
        Ok(contents) if module_line == Some(&*hash(&contents)) => State::Fresh,
        _ => State::Stale,
    }
}

/// The files that a stamp lists.
pub fn files(path: &Path) -> BTreeSet<PathBuf> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .skip(3)
        .filter_map(|line| line.split_once(' '))
        .map(|(_, file)| PathBuf::from(file))
        .collect()
}

/// The names of packages in a stamp, if it knows them.
pub fn locked(path: &Path) -> Option<BTreeSet<String>> {
    fs::read_to_string(path).ok()?.lines().nth(2).and_then(read_packages)?
}

/// `packages half cfg-if`; `None` inside when they are not known.
fn read_packages(line: &str) -> Option<Option<BTreeSet<String>>> {
    let names = line.strip_prefix(PACKAGES)?;
    Some((names != UNKNOWN).then(|| names.split_whitespace().map(str::to_owned).collect()))
}

/// A module, and what it was made from.
pub struct Made<'a> {
    /// Its text.
    pub module: &'a [u8],
    /// Every file that the compiler may have read.
    pub files: &'a BTreeSet<PathBuf>,
    /// The names of the packages in it that the lock file pins; `None` if they are not known.
    pub locked: Option<&'a BTreeSet<String>>,
    /// When the build began.
    pub started: SystemTime,
}

/// Writes the stamp of a module. It does not hold if a file has changed since the build began: the compiler
/// may have read it before.
///
/// # Errors
/// When the stamp cannot be written.
pub fn write(path: &Path, fingerprint: u64, made: &Made<'_>) -> Result<(), BuildError> {
    let Made { module, files, locked, started } = made;
    let names =
        locked.map_or(UNKNOWN.to_owned(), |names| names.iter().cloned().collect::<Vec<_>>().join(" "));
    let mut text = format!("{}\n{}\n{PACKAGES}{names}\n", first_line(fingerprint), hash(module));
    for file in *files {
        let Ok(modified) = fs::metadata(file).and_then(|metadata| metadata.modified()) else { continue };
        // Cargo writes the lock file itself, before it compiles.
        let is_later = modified >= *started && !is_lock(file);
        let hash = digest(file, *locked).filter(|_| !is_later);
        let _ = writeln!(text, "{} {}", hash.as_deref().unwrap_or(UNKNOWN), file.display());
    }
    text.push_str(END);
    write_atomically(path, text.as_bytes())
}

/// Sources by cargo's dep-info, plus the manifests that govern them.
///
/// # Errors
/// When the dep-info cannot be read.
pub fn sources(dep_info: &Path, manifest: &Path) -> Result<BTreeSet<PathBuf>, BuildError> {
    let text = fs::read_to_string(dep_info).map_err(BuildError::io("read", dep_info))?;
    let mut files: BTreeSet<PathBuf> = parse_dep_info(&text).collect();
    let manifests: BTreeSet<PathBuf> = files.iter().filter_map(|file| nearest_manifest(file)).collect();
    files.extend(manifests);
    for folder in manifest.ancestors().skip(1) {
        let settings = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"].map(|name| folder.join(name));
        files.extend(settings.into_iter().filter(|file| file.is_file()));
    }
    Ok(files)
}

/// Writes so that a reader sees the old file or the new one, and leaves a file alone that is already right: a
/// program that watches its time is then not triggered for nothing.
///
/// # Errors
/// When the file cannot be written.
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<(), BuildError> {
    if fs::read(path).is_ok_and(|old| old == contents) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(BuildError::io("create", folder))?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", unique()));
    let temporary = path.with_file_name(name);
    let written = fs::write(&temporary, contents).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // It may not be there; what matters is the first error.
        let _ = fs::remove_file(&temporary);
        BuildError::io("write", path)(error)
    })
}

/// Part of a name that nobody else uses, in this process or another.
pub fn unique() -> String {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    format!("{}-{}", std::process::id(), NAMES.fetch_add(1, Ordering::Relaxed))
}

fn first_line(fingerprint: u64) -> String {
    format!("fingerprint {fingerprint:016x}")
}

/// The last line of a stamp.
const END: &str = "end\n";

/// Begins the line with the names of the packages that the lock file pins.
const PACKAGES: &str = "packages ";

/// Stands for names that are not known, and for the hash of a file of which it is not known what the compiler
/// read. No file has it.
const UNKNOWN: &str = "?";

/// Number of some contents, as text.
pub fn hash(contents: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(contents);
    format!("{:016x}", hasher.finish())
}

fn is_lock(file: &Path) -> bool {
    file.ends_with("Cargo.lock")
}

/// Hash of what matters of a file: all of it, but of a lock file only what it pins of these packages. None
/// for a file that cannot be read.
fn digest(file: &Path, packages: Option<&BTreeSet<String>>) -> Option<String> {
    let contents = fs::read(file).ok()?;
    match packages {
        Some(names) if is_lock(file) => {
            let pinned = pins(&String::from_utf8_lossy(&contents), names);
            Some(hash(pinned.as_bytes()))
        }
        _ => Some(hash(&contents)),
    }
}

/// The versions, sources and checksums that a lock file pins for these packages.
fn pins(lock: &str, names: &BTreeSet<String>) -> String {
    let value = |entry: &str, key: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        line.unwrap_or_default().to_owned()
    };
    let is_named = |entry: &&str| names.contains(value(entry, "name").trim_matches('"'));
    let entries = lock.split("[[package]]").filter(is_named);
    let pins =
        entries.map(|entry| ["name", "version", "source", "checksum"].map(|key| value(entry, key)).join(" "));
    pins.collect::<Vec<_>>().join("\n")
}

/// `target: file file\ with\ spaces`
fn parse_dep_info(text: &str) -> impl Iterator<Item = PathBuf> + '_ {
    let rules = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    rules.flat_map(|(_, files)| {
        let joined = files.replace("\\ ", "\0");
        joined
            .split(' ')
            .filter(|file| !file.is_empty())
            .map(|file| PathBuf::from(file.replace('\0', " ")))
            .collect::<Vec<_>>()
    })
}

fn nearest_manifest(source: &Path) -> Option<PathBuf> {
    source.ancestors().skip(1).map(|folder| folder.join("Cargo.toml")).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A folder with a source, a stamp and a module, and a moment after all that is written.
    struct Build {
        folder: tempfile::TempDir,
        files: BTreeSet<PathBuf>,
    }

    impl Build {
        fn of(sources: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let files = sources.iter().map(|(name, text)| {
                let path = folder.path().join(name);
                write_atomically(&path, text.as_bytes()).unwrap();
                path
            });
            let files = files.collect();
            fs::write(folder.path().join("module"), "ptx").unwrap();
            Self { folder, files }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn stamp(&self, started: SystemTime) {
            self.stamp_with(Some(&BTreeSet::new()), started);
        }

        fn stamp_with(&self, locked: Option<&BTreeSet<String>>, started: SystemTime) {
            let made = Made { module: b"ptx", files: &self.files, locked, started };
            write(&self.path("stamp"), 7, &made).unwrap();
        }

        fn state(&self, fingerprint: u64) -> State {
            state(&self.path("stamp"), fingerprint, &self.path("module"))
        }
    }

    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(60)
    }

    #[test]
    fn every_stage_counts() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ptx");
        // Pieces are for the assembler's report.
        let are_others = ["tests.rs", "pieces.rs"].map(|name| folder.join(name));
        let stages = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for stage in stages.filter(|path| path.is_file() && !are_others.contains(path)) {
            let text = fs::read_to_string(&stage).unwrap();
            let counts = COMPILING.iter().chain(FINISHING).any(|source| *source == text);
            assert!(counts, "{}", stage.display());
        }
    }

    #[test]
    fn a_stamp_holds_until_a_file_changes() {
        let build = Build::of(&[("a b.rs", "1")]);
        let source = build.path("a b.rs");
        assert_eq!(build.state(7), State::Stale, "no stamp yet");
        build.stamp(SystemTime::UNIX_EPOCH);
        assert_eq!(build.state(7), State::Stale, "written since the build began");
        build.stamp(later());
        assert_eq!(build.state(7), State::Fresh);
        assert_eq!(build.state(8), State::Stale, "other flags");
        assert_eq!(files(&build.path("stamp")), BTreeSet::from([source.clone()]));
        fs::remove_file(&source).unwrap();
        assert_eq!(build.state(7), State::Stale, "gone");
        fs::write(&source, "1").unwrap();
        assert_eq!(build.state(7), State::Fresh, "the same text again");
        fs::write(&source, "2").unwrap();
        assert_eq!(build.state(7), State::Stale, "other text of the same size");
    }

    #[test]
    fn a_stamp_does_not_hold_for_a_damaged_module() {
        let build = Build::of(&[("a.rs", "1")]);
        build.stamp(later());
        for contents in ["", "pt", "ptx and more"] {
            fs::write(build.path("module"), contents).unwrap();
            assert_eq!(build.state(7), State::Stale, "{contents:?}");
        }
        fs::remove_file(build.path("module")).unwrap();
        assert_eq!(build.state(7), State::Stale);
    }

    #[test]
    fn a_stamp_that_is_cut_or_spoilt_does_not_hold() {
        let build = Build::of(&[("a.rs", "1"), ("b.rs", "2")]);
        build.stamp(later());
        let whole = fs::read(build.path("stamp")).unwrap();
        let spoil = |contents: &[u8]| {
            fs::write(build.path("stamp"), contents).unwrap();
            assert_ne!(build.state(7), State::Fresh, "{}", String::from_utf8_lossy(contents));
        };
        (0..whole.len()).for_each(|end| spoil(&whole[..end]));
        for contents in [
            &b"garbage"[..],
            b"\xff\0",
            b"end\n",
            b"fingerprint 0000000000000007\nend\n",
            b"fingerprint 0000000000000007\nx\nend\n",
        ] {
            spoil(contents);
        }
        fs::remove_file(build.path("stamp")).unwrap();
        fs::create_dir(build.path("stamp")).unwrap();
        assert_eq!(build.state(7), State::Stale, "a folder in its place");
        fs::remove_dir(build.path("stamp")).unwrap();
        fs::write(build.path("stamp"), whole).unwrap();
        assert_eq!(build.state(7), State::Fresh);
    }

    #[test]
    fn of_a_lock_file_only_packages_of_the_module_count() {
        let lock = |half: &str, clap: &str, needs: &str| {
            format!(
                "[[package]]\nname = \"half\"\nversion = \"{half}\"\ndependencies = [\n \"{needs}\",\n]\n\n[[package]]\nname = \"clap\"\nversion = \"{clap}\"\n"
            )
        };
        let build = Build::of(&[("Cargo.lock", &lock("2.7.1", "4.0.0", "cfg-if"))]);
        let becomes = |half, clap, needs, state: State| {
            fs::write(build.path("Cargo.lock"), lock(half, clap, needs)).unwrap();
            assert_eq!(build.state(7), state, "half {half}, which needs {needs}, and clap {clap}");
        };
        build.stamp_with(Some(&BTreeSet::from(["half".to_owned()])), later());
        becomes("2.7.1", "5.0.0", "cfg-if", State::Fresh);
        becomes("2.7.1", "4.0.0", "zerocopy", State::Fresh);
        becomes("2.8.0", "4.0.0", "cfg-if", State::Stale);
        build.stamp_with(None, later());
        becomes("2.8.0", "4.0.0", "cfg-if", State::Fresh);
        becomes("2.8.0", "5.0.0", "cfg-if", State::Stale);
    }

    #[test]
    fn dep_info_with_spaces() {
        let files: Vec<_> = parse_dep_info("/t/x.ptx: /a/lib.rs /b\\ c/m.rs\n\n# env-dep:X=1\n").collect();
        assert_eq!(files, [PathBuf::from("/a/lib.rs"), PathBuf::from("/b c/m.rs")]);
    }

    #[test]
    fn an_unchanged_file_keeps_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/x.ptx");
        write_atomically(&path, b"a").unwrap();
        let modified = || fs::metadata(&path).unwrap().modified().unwrap();
        let before = modified();
        write_atomically(&path, b"a").unwrap();
        assert_eq!(modified(), before);
        write_atomically(&path, b"b").unwrap();
        assert_ne!(modified(), before);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file stays");
    }
}
