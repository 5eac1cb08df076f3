//! Tests that need their own process, without their own program.
//!
//! Some tests set an environment variable that is read once, destroy the device, count driver calls, or make
//! them fail. Such a test begins with [`own_process!`](crate::own_process). The macro starts the test program
//! again with this one test, waits for it, and returns its verdict. A separate program for it would take
//! seconds to link, and many megabytes.
//!
//! Only one such process runs at a time. Other tests of the program run beside it.
//!
//! `ended_by` starts a program and sends it a signal. `write_script` writes one that can be run at once.

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Set in a process that runs one test, to the name of that test.
const TEST: &str = "TESTKIT_PROCESS";

/// Runs the rest of the test in its own process, with the given environment variables set.
///
/// The test returns `Result<(), _>`. In the first process the macro returns from the test.
///
/// ```no_run
/// fn two_devices() -> Result<(), std::fmt::Error> {
///     ironwarp_testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
///     // Here the process is new, and runs nothing else.
///     Ok(())
/// }
/// ```
///
/// # Panics
/// If the test fails in its process. The message holds that process's output.
#[macro_export]
macro_rules! own_process {
    ($($name:literal = $value:expr),* $(,)?) => {
        // The closure's type name contains the name of the enclosing function.
        if $crate::process::ran_elsewhere(|| (), &[$(($name, $value)),*]) {
            return Ok(());
        }
    };
}

/// Runs the test around `here` in a new process, unless this is that process. Returns whether it did.
///
/// # Panics
/// If the test fails there.
#[doc(hidden)]
pub fn ran_elsewhere<F: Fn()>(_here: F, variables: &[(&str, &str)]) -> bool {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let test = test_name(std::any::type_name::<F>());
    if env::var_os(TEST).is_some_and(|name| *name == *test) {
        return false;
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let program = env::current_exe().expect("a test program knows where it is");
    let output = Command::new(program)
        .args([test, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"])
        .env(TEST, test)
        .envs(variables.iter().copied())
        .output()
        .expect("this program can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && text.contains("test result: ok. 1 passed");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(passed, "`{test}` failed in a process of its own ({}):\n{text}{log}", output.status);
    print!("{text}");
    if let Some(why) = text.lines().find_map(|line| line.strip_prefix("skipped: ")) {
        crate::skip(why);
    }
    true
}

/// Writes a script that anybody may run.
///
/// Another process writes it. A test beside this one may start a program at any time, and that program holds
/// every file that this process has open until it becomes itself. A file that is open for writing cannot be
/// run: `Text file busy`.
///
/// # Panics
/// If the script cannot be written.
#[cfg(unix)]
pub fn write_script(path: &Path, script: &str) {
    let mut writer = Command::new("sh");
    writer.args(["-c", r#"printf %s "$1" >"$0" && chmod 755 "$0""#]).arg(path).arg(script);
    let output = writer.output().expect("a shell can be started");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} cannot be written: {log}", path.display());
}

/// The outcome of a program that gets `signal` so long after its start. The program begins with that signal's
/// default action, although a shell starts what runs in its background with `SIGINT` ignored, and that is
/// inherited.
///
/// # Panics
/// If the program cannot be started or waited for, or there is no such signal.
#[cfg(unix)]
pub fn ended_by(signal: i32, after: std::time::Duration, command: &mut Command) -> std::process::Output {
    use std::os::unix::process::CommandExt as _;
    use std::process::Stdio;
    let default_action = move || {
        // SAFETY: `signal` may be called between `fork` and `exec`, and the default action needs no handler.
        let before = unsafe { libc::signal(signal, libc::SIG_DFL) };
        if before == libc::SIG_ERR { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure calls nothing but `signal`, and makes an error without allocating.
    unsafe { command.pre_exec(default_action) };
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    std::thread::sleep(after);
    let id = libc::pid_t::try_from(child.id()).expect("the system's own number");
    // SAFETY: the child has not been waited for, so the number is still its own.
    let sent = unsafe { libc::kill(id, signal) };
    assert_eq!(sent, 0, "signal {signal}: {}", std::io::Error::last_os_error());
    child.wait_with_output().expect("a child can be waited for")
}

/// `program::module::test::{{closure}}` is the type of a closure in the test `module::test`.
fn test_name(closure: &str) -> &str {
    let path = closure.split_once("::").map_or(closure, |(_program, path)| path);
    path.strip_suffix("::{{closure}}").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::panic::catch_unwind;

    #[test]
    fn a_process_has_its_variables_and_runs_one_test() -> Result<(), Infallible> {
        const NAME: &str = "TESTKIT_VARIABLE";
        assert!(std::env::var_os(super::TEST).is_some() || std::env::var_os(NAME).is_none());
        let first = std::process::id().to_string();
        own_process!("TESTKIT_VARIABLE" = "yes", "TESTKIT_FIRST" = &first);
        assert_eq!(std::env::var(NAME).as_deref(), Ok("yes"));
        assert_ne!(std::env::var("TESTKIT_FIRST"), Ok(std::process::id().to_string()));
        Ok(())
    }

    #[test]
    fn a_failure_there_is_a_failure_here() {
        fn fails() -> Result<(), Infallible> {
            own_process!();
            Ok(())
        }
        // No test has the name of a function inside a test.
        let panic = catch_unwind(fails).expect_err("no such test ran");
        let text = panic.downcast_ref::<String>().expect("a formatted message");
        assert!(text.contains("fails") && text.contains("0 passed"), "{text}");
    }
}
