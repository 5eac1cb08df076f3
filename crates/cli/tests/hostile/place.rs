//! A folder to call a program from, with stand-ins for others, and the rules for whatever the program
//! answers. The test program around this file says which: `crate::PROGRAM`.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Programs that a command may start, replaced by one that notes that it was called and fails.
const INSTALLERS: [&str; 4] = ["apt-get", "rustup", "python3", "pip"];
/// The longest message, in bytes.
const LONGEST: usize = 6_000;

/// A folder to call from, and stand-ins for other programs.
pub struct Place {
    around: tempfile::TempDir,
}

/// Where standard output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Test,
    /// A pipe whose reader has left.
    Nobody,
    /// A device without room.
    Full,
}

/// A call and what has to come of it.
pub struct Case<'a> {
    args: Vec<OsString>,
    env: Vec<(&'a str, Option<OsString>)>,
    to: To,
    pub code: i32,
    /// Part of what is printed.
    pub says: &'a str,
}

impl<'a> Case<'a> {
    pub fn new(args: impl IntoIterator<Item = impl AsRef<OsStr>>, code: i32, says: &'a str) -> Self {
        let args = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        Self { args, env: Vec::new(), to: To::Test, code, says }
    }

    pub fn to(self, to: To) -> Self {
        Self { to, ..self }
    }

    pub fn env(mut self, name: &'a str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name, Some(value.as_ref().to_owned())));
        self
    }

    pub fn without(mut self, name: &'a str) -> Self {
        self.env.push((name, None));
        self
    }
}

impl Place {
    pub fn new() -> Self {
        let around = tempfile::tempdir().unwrap();
        let place = Self { around };
        fs::create_dir(place.programs()).unwrap();
        fs::create_dir(place.here()).unwrap();
        for name in INSTALLERS.iter().chain(&["cargo"]) {
            let program = place.programs().join(name);
            let log = place.log(if *name == "cargo" { "built" } else { "installed" });
            let script = format!("#!/bin/sh\necho \"$0 $*\" >>'{}'\nexit 1\n", log.display());
            testkit::process::write_script(&program, &script);
        }
        place
    }

    /// One with a file, a link that leads nowhere, and a manifest that is none, in the folder for calls.
    #[allow(dead_code, reason = "not every test program has commands that such things are in the way of")]
    pub fn littered() -> Self {
        let place = Self::new();
        fs::write(place.here().join("Cargo.toml"), "mine").unwrap();
        fs::write(place.here().join("file"), "mine").unwrap();
        std::os::unix::fs::symlink("nowhere", place.here().join("link")).unwrap();
        place
    }

    pub fn programs(&self) -> PathBuf {
        self.around.path().join("programs")
    }

    /// The folder that commands are called from.
    pub fn here(&self) -> PathBuf {
        self.around.path().join("here")
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.around.path().join(name)
    }

    /// The program in the place, with nothing that could build or install.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(self.programs()).chain(std::env::split_paths(&path));
        command
            .current_dir(self.here())
            .stdin(Stdio::null())
            .env("PATH", std::env::join_paths(paths).unwrap())
            .env("CARGO", self.programs().join("cargo"))
            .env("IRONWARP_DEVICE_RUSTC", "/dev/null")
            .env("XDG_CACHE_HOME", self.around.path().join("cache"))
            .env("RUST_BACKTRACE", "1")
            .env_remove("IRONWARP_PTXAS");
        command
    }

    pub fn run(&self, case: &Case<'_>) -> Output {
        let mut command = self.command(crate::PROGRAM);
        command.args(&case.args);
        for (name, value) in &case.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        match case.to {
            To::Test => {}
            To::Nobody => {
                let (reader, writer) = std::io::pipe().unwrap();
                drop(reader);
                command.stdout(writer);
            }
            To::Full => {
                command.stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
            }
        }
        command.output().unwrap()
    }

    /// Runs the case and returns what is wrong with the outcome.
    pub fn judge(&self, case: &Case<'_>) -> Vec<String> {
        let before = listing(&self.here());
        let output = self.run(case);
        let mut wrong = faults(&output, case.code, case.says);
        if listing(&self.here()) != before {
            wrong.push("it changed the folder that it was called from".to_owned());
        }
        if let Ok(log) = fs::read_to_string(self.log("installed")) {
            wrong.push(format!("it installed something: {log}"));
        }
        let shown = format!("{:?} {:?}", case.args, case.env);
        wrong.iter().map(|wrong| format!("{shown:.200}: {wrong}")).collect()
    }

    /// The faults of the outcome of a shell's script that has the program's path as `$1`.
    pub fn judge_script(&self, script: &str, code: i32, says: &str) -> Vec<String> {
        let output = self.command("bash").args(["-c", script, "bash", crate::PROGRAM]).output().unwrap();
        faults(&output, code, says).iter().map(|wrong| format!("{script:.200}: {wrong}")).collect()
    }

    /// Checks scripts, each with its exit code and a part of what is printed.
    pub fn check_scripts(&self, scripts: &[(&str, i32, &str)]) {
        let judge = |(script, code, says): &(&str, i32, &str)| self.judge_script(script, *code, says);
        let wrong: Vec<String> = scripts.iter().flat_map(judge).collect();
        assert!(wrong.is_empty(), "of {} scripts:\n{}", scripts.len(), wrong.join("\n"));
    }

    pub fn check(&self, cases: &[Case<'_>]) {
        let wrong: Vec<String> = cases.iter().flat_map(|case| self.judge(case)).collect();
        assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    }
}

/// The faults of an outcome, by the rules for all of them.
pub fn faults(output: &Output, code: i32, says: &str) -> Vec<String> {
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut wrong = Vec::new();
    if output.status.code() != Some(code) {
        wrong.push(format!("{}; wanted exit code {code}", output.status));
    }
    for sign in ["panicked at", "stack backtrace", "Os { code"] {
        if out.contains(sign) || errors.contains(sign) {
            wrong.push(format!("it printed `{sign}`"));
        }
    }
    if !out.contains(says) && !errors.contains(says) {
        wrong.push(format!("it does not say {says:?}"));
    }
    let messages = errors.lines().filter(|line| line.starts_with("error:")).count();
    if messages != usize::from(matches!(code, 1 | 2)) {
        wrong.push(format!("{messages} messages"));
    }
    if errors.len() > LONGEST {
        wrong.push(format!("{} bytes of message", errors.len()));
    }
    if errors.chars().any(|c| c.is_control() && c != '\n') {
        wrong.push("control characters in the message".to_owned());
    }
    if !wrong.is_empty() {
        wrong.push(format!("it said:\n{:.2000}", errors));
    }
    wrong
}

/// Every file and folder below a folder, with its size.
pub fn listing(folder: &Path) -> BTreeSet<(PathBuf, u64)> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            found.extend(listing(&entry.path()));
        }
        found.insert((entry.path(), metadata.len()));
    }
    found
}
