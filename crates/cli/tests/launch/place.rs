//! A folder for a job, its launcher, and a search for processes that it left behind.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_ironwarp");
/// In the environment of every process of a job, so that it can be found.
const MARK: &str = "LAUNCH_TEST_MARK";
/// A launcher that takes longer hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn mark(&self) -> String {
        format!("{MARK}={}", self.path().display())
    }

    /// `ironwarp launch`, with options and a program. Whoever runs the tests may ignore signals, as a shell's
    /// job in the background does.
    pub fn command(&self, options: &[&str], program: &[&str]) -> Command {
        self.by_parent("--default-signal=HUP,INT,TERM", options, program)
    }

    /// The same by a parent that ignores a signal.
    pub fn ignoring(&self, signal: &str, options: &[&str], program: &[&str]) -> Command {
        self.by_parent(&format!("--ignore-signal={signal}"), options, program)
    }

    /// `env` becomes the launcher, with its number.
    fn by_parent(&self, signals: &str, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new("env");
        command
            .args([signals, PROGRAM, "launch"])
            .args(options)
            .arg("--")
            .args(program)
            .current_dir(self.path());
        command.env(MARK, self.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "IRONWARP_TOKEN", "NO_COLOR"] {
            command.env_remove(name);
        }
        command
    }

    /// The same with this program, as a worker that does a task.
    pub fn worker(&self, options: &[&str], task: &str) -> Command {
        let own = std::env::current_exe().unwrap();
        let mut command =
            self.command(options, &[own.to_str().unwrap(), crate::worker::TEST, "--exact", "--nocapture"]);
        command.env(crate::worker::TASK, task);
        command
    }

    pub fn shell(&self, options: &[&str], script: &str) -> Ended {
        run(&mut self.command(options, &["sh", "-c", script]))
    }

    /// The processes of the job that are alive. Those that have ended and wait for their parent are not.
    pub fn living(&self) -> Vec<i32> {
        let mark = self.mark();
        let is_ours = |number: &i32| {
            let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
        };
        let numbers = fs::read_dir("/proc").unwrap().flatten();
        numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
    }

    /// Waits until so many processes of the job are alive. One that is becoming another program has no
    /// environment for a moment, and is not counted.
    pub fn wait_for_living(&self, count: usize) {
        let begun = Instant::now();
        while self.living().len() != count {
            assert!(begun.elapsed() < PATIENCE, "{count} wanted, alive: {:?}", self.living());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Fails if something lives on. A busy system needs a while to end what was killed; what these jobs leave
    /// behind would sleep for longer.
    pub fn check_empty(&self) {
        self.check_living(0);
    }

    /// Fails if more than so many processes live on.
    pub fn check_living(&self, most: usize) {
        let begun = Instant::now();
        while self.living().len() > most {
            assert!(begun.elapsed() < PATIENCE, "left behind: {:?}", self.living());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // After a failed test.
        self.living().into_iter().for_each(|process| signal(process, "KILL"));
    }
}

pub struct Ended {
    pub status: ExitStatus,
    pub output: String,
    pub errors: String,
    pub took: Duration,
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.output)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.output, self.errors))
    }
}

pub fn run(command: &mut Command) -> Ended {
    end(command.spawn().unwrap())
}

/// Waits for a launcher, but not for ever.
pub fn end(mut launcher: Child) -> Ended {
    let begun = Instant::now();
    let read = |mut pipe: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            pipe.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let output = read(Box::new(launcher.stdout.take().unwrap()));
    let errors = read(Box::new(launcher.stderr.take().unwrap()));
    let status = loop {
        if let Some(status) = launcher.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            let _ = launcher.kill();
            panic!("the launcher hangs: {}{}", output.join().unwrap(), errors.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = begun.elapsed();
    Ended { status, output: output.join().unwrap(), errors: errors.join().unwrap(), took }
}

pub fn signal(process: i32, name: &str) {
    // It may have ended already.
    let _ = Command::new("kill").args(["-s", name, &process.to_string()]).stderr(Stdio::null()).status();
}

/// Waits for a file that a rank writes, as a whole.
pub fn wait_for(path: &Path) -> String {
    let begun = Instant::now();
    loop {
        match fs::read_to_string(path) {
            Ok(text) if !text.is_empty() => return text,
            _ => assert!(begun.elapsed() < PATIENCE, "no {}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
