//! The call of the compiler for a kernel package, as cargo makes it. Cargo compiles what the package depends
//! on, and `recorder.sh` writes the last call down, which is then made without cargo.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::BuildError;
use crate::stamp::write_atomically;

/// The program that cargo calls in the compiler's place.
const RECORDER: &str = include_str!("recorder.sh");

/// The variable that names the recorder's file.
pub const RECORD: &str = "CUDA_BUILDER_CALL";

/// The variable by which `#[kernel]` knows the kernels of this compiler: `only a_ b_` or `but a_ b_`, with
/// how their names begin. The others are checked, and not compiled.
pub const KERNELS: &str = "CUDA_BUILDER_KERNELS";

/// A call of the compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    folder: PathBuf,
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// Writes the recorder into a folder.
pub fn write_recorder(folder: &Path) -> Result<PathBuf, BuildError> {
    let path = folder.join("recorder.sh");
    write_atomically(&path, RECORDER.as_bytes())?;
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&path, executable).map_err(BuildError::io("make executable", &path))?;
    Ok(path)
}

impl Call {
    /// Takes what the recorder has written into a file; `None` if there is nothing whole.
    pub fn take(record: &Path) -> Option<Self> {
        let text = fs::read(record).ok()?;
        // It is read, and nobody asks for it again.
        let _ = fs::remove_file(record);
        Self::parse(&text)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_owned());
        let mut words = text.strip_suffix(b"\0")?.split(|&byte| byte == 0);
        let folder = owned(words.next()?).into();
        let count: usize = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let mut arguments: Vec<OsString> = words.by_ref().take(count).map(owned).collect();
        if count == 0 || arguments.len() < count {
            return None;
        }
        let program = arguments.remove(0);
        let variable = |word: &[u8]| {
            let end = word.iter().position(|&byte| byte == b'=')?;
            Some((owned(&word[..end]), owned(&word[end + 1..])))
        };
        Some(Self { folder, program, arguments, environment: words.filter_map(variable).collect() })
    }

    /// The command that leaves the assembly at a path, and whatever else in a folder of its own.
    pub fn command(&self, assembly: &Path, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder).env_clear();
        // Cargo's tokens for parallel work are gone when cargo is.
        let is_kept = |name: &OsStr| name != "CARGO_MAKEFLAGS" && name != "MAKEFLAGS";
        command.envs(
            self.environment.iter().filter(|(name, _)| is_kept(name)).map(|(name, value)| (name, value)),
        );
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            let starts = |start: &str| argument.as_bytes().starts_with(start.as_bytes());
            if starts("--out-dir") {
                arguments.next();
            } else if starts("--emit=asm=") {
                command.arg(format!("--emit=asm={}", assembly.display()));
            } else if starts("--emit=dep-info") {
                // Nothing is linked in truth, but without it the library would be left out.
                command.arg("--emit=link");
            } else if !starts("--error-format=") && !starts("--json=") {
                command.arg(argument);
            }
        }
        command.arg("--out-dir").arg(folder);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(words: &[&str]) -> Vec<u8> {
        words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect()
    }

    fn arguments(command: &Command) -> Vec<&str> {
        command.get_args().map(|argument| argument.to_str().unwrap()).collect()
    }

    #[test]
    fn a_call_is_what_cargo_said_but_for_its_outputs() {
        let text = recorded(&[
            "/w s",
            "8",
            "rustc",
            "--error-format=json",
            "--json=artifacts",
            "a b.rs",
            "--emit=dep-info,link",
            "--out-dir",
            "/deps",
            "--emit=asm=/old.s",
            "CARGO_MAKEFLAGS=-j",
            "A=b=c\nd",
        ]);
        let call = Call::parse(&text).unwrap();
        let whole = call.command(Path::new("/new.s"), Path::new("/o"));
        assert_eq!(arguments(&whole), ["a b.rs", "--emit=link", "--emit=asm=/new.s", "--out-dir", "/o"]);
        assert_eq!(whole.get_current_dir(), Some(Path::new("/w s")));
        let variables: Vec<_> = whole.get_envs().collect();
        assert_eq!(variables, [(OsStr::new("A"), Some(OsStr::new("b=c\nd")))]);
    }

    #[test]
    fn what_is_cut_short_is_no_call() {
        let text = recorded(&["/w", "2", "rustc", "lib.rs", "A=b"]);
        assert!(Call::parse(&text).is_some());
        for end in 0..text.len() - "A=b\0".len() {
            assert_eq!(Call::parse(&text[..end]), None, "{end}");
        }
    }
}
