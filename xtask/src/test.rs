//! Everything that has to hold before a change goes in, in the order of how fast it fails.

use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::build_kernels::{self, BudgetOutcome, Options};
use crate::error::Error;
use crate::package;
use crate::process;
use crate::setup;
use crate::term::{self, Style, style};
use crate::tidy;
use crate::{PROGRAM, workspace};

pub const HELP: &str = "
Runs the checks of the source tree, the formatter, the linter, the kernel build with its budget, and all tests on
the software driver. Installs the device compiler and ptxas where they are missing.

Usage: cargo xtask test [--quick] [--keep-going]

Options:
  --quick        without the linter, the examples in documentation, and the few long tests that an edit
                 seldom breaks: runs that are repeated, faults at every call, misuse that must not compile
  --keep-going   run the steps after a failed one too

Examples:
  cargo xtask test
  cargo xtask test --quick
";

/// The counts over all test programs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    programs: usize,
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Checks that could not run here and said so.
    skipped: usize,
    /// Those of the program that runs: its harness counts them as passed.
    of_program: usize,
}

/// The results of the steps.
#[derive(Debug, Default)]
struct Outcome {
    counts: Counts,
    /// How long each step took, and each program of the tests.
    times: Vec<(String, Duration)>,
}

/// Steps and programs that the summary names.
const SLOWEST: usize = 5;

/// One step with its name.
struct Step {
    name: &'static str,
    run: fn(&mut Outcome, bool) -> Result<(), Error>,
    /// Left out of the quick run.
    thorough: bool,
}

const STEPS: &[Step] = &[
    Step { name: "tidy", run: |_, _| tidy::check(), thorough: false },
    Step { name: "format", run: format, thorough: false },
    Step { name: "kernels", run: kernels, thorough: false },
    Step { name: "lint", run: lint, thorough: true },
    Step { name: "documentation", run: documentation, thorough: true },
    Step { name: TESTS, run: tests, thorough: false },
];

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    let (mut quick, mut keep_going) = (false, false);
    while let Some(arg) = args.next()? {
        use lexopt::prelude::*;
        match arg {
            Long("quick") => quick = true,
            Long("keep-going") => keep_going = true,
            other => return Err(other.unexpected().into()),
        }
    }
    let started = Instant::now();
    let mut outcome = Outcome::default();
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for step in STEPS.iter().filter(|step| !(quick && step.thorough)) {
        println!("{}", style(Style::Bold, &format!("== {} ==", step.name)));
        let begun = Instant::now();
        let result = (step.run)(&mut outcome, quick);
        if step.name != TESTS {
            outcome.times.push((step.name.to_owned(), begun.elapsed()));
        }
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        rows.push(vec![step.name.to_owned(), verdict.to_owned(), term::seconds(begun.elapsed())]);
        if let Err(error) = result {
            eprintln!("{} {error}", style(Style::Fail, "failed:"));
            failed.push(step.name.to_owned());
            if !keep_going {
                break;
            }
        }
    }
    println!("\n{}", term::table(&["step", "result", "time"], 2, &rows));
    println!("{}", slowest(outcome.times));
    println!("{}", summary(outcome.counts, failed.is_empty(), started.elapsed().as_secs_f64()));
    if failed.is_empty() { Ok(()) } else { Err(Error::Steps(failed)) }
}

/// In the words of cargo's own last line, with every test program added up.
fn summary(counts: Counts, ok: bool, seconds: f64) -> String {
    let Counts { programs, passed, failed, ignored, skipped, .. } = counts;
    let verdict = if ok { "ok" } else { "FAILED" };
    format!(
        "test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored; {skipped} skipped; {programs} programs; finished in {seconds:.2}s"
    )
}

/// The slowest steps and programs, in a line.
fn slowest(mut times: Vec<(String, Duration)>) -> String {
    times.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
    let named = times.iter().take(SLOWEST).map(|(name, took)| format!("{name} {}", term::seconds(*took)));
    format!("slowest: {}", named.collect::<Vec<_>>().join(", "))
}

fn kernels(outcome: &mut Outcome, quick: bool) -> Result<(), Error> {
    let ahead = compile_ahead(quick);
    let built = build_kernels(outcome);
    // A failure shows when the tests run.
    ahead.map(|mut compiler| compiler.wait());
    built
}

/// Compiles the test programs beside the kernels: the largest family keeps one core busy for longer than all
/// others.
fn compile_ahead(quick: bool) -> Option<Child> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--quiet", "--no-run"]);
    if quick {
        command.args(PROGRAMS);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

fn build_kernels(outcome: &mut Outcome) -> Result<(), Error> {
    if let Err(error) = setup::ensure_ptxas(PROGRAM) {
        eprintln!("{} {error}", style(Style::Warn, "warning:"));
    }
    let budget = build_kernels::build_in_budget(&Options::default(), false)?;
    outcome.counts.skipped += usize::from(budget == BudgetOutcome::NoPtxas);
    Ok(())
}

fn format(_outcome: &mut Outcome, _quick: bool) -> Result<(), Error> {
    let colour = if term::colours() { "always" } else { "never" };
    process::run(workspace::cargo().args(["fmt", "--all", "--check", "--", "--color", colour]))
}

fn lint(_outcome: &mut Outcome, _quick: bool) -> Result<(), Error> {
    process::run(workspace::cargo().args([
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

/// As docs.rs makes the pages: of the packages that are for others, with all features.
fn documentation(_outcome: &mut Outcome, _quick: bool) -> Result<(), Error> {
    let mut command = workspace::cargo();
    command.args(["doc", "--quiet", "--no-deps", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings");
    process::run(command.args(package::names()?.iter().flat_map(|name| ["--package", name])))
}

/// Long tests that the quick run leaves out, by their full names.
const LONG_TESTS: &[&str] = &[
    // Every kernel again, for the same bits; the first run of each stays.
    "every_run_gives_the_same_bits",
    "ops_repeat::same_bits_under_every_schedule",
    "few_queries",
    "many_queries",
    "many_queries_on_hopper",
    // The kernels of bf16 are the same, and stay.
    "gemm_sm90::f16",
    // The host library, not kernels.
    "fault_sweep::every_call_may_fail",
    "compile_fail::misuse_is_found_by_the_compiler",
    // A project of its own, which builds cust and the drivers.
    "port::a_project_builds_and_runs_with_its_manifest_changed_alone",
    // Another, which builds the executor and the device's `core`.
    "a_new_project_builds_and_its_tests_run_under_the_checker",
    "ptx_comes_with_the_device_compiler",
    // Packages once more, in one codegen unit each.
    "instrumented::every_access_of_a_checked_package_has_its_callback",
    // The packages, and a project that compiles them all.
    "packages::a_consumer_builds_and_runs_from_the_packages_alone",
];

/// All test programs, without the examples in documentation.
const PROGRAMS: [&str; 3] = ["--lib", "--bins", "--tests"];

/// Name of the step whose programs are timed one by one.
const TESTS: &str = "tests";
/// The name of the programs' compilation in the list of times.
const BUILD: &str = "build of the tests";

fn tests(outcome: &mut Outcome, quick: bool) -> Result<(), Error> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    if quick {
        command.args(PROGRAMS).args(["--", "--exact"]);
        command.args(LONG_TESTS.iter().flat_map(|test| ["--skip", test]));
    }
    // The same verdict on every machine; on a GPU the tests run from a bundle.
    command.env("IRONWARP_DRIVER", "soft");
    if term::colours() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let clock = Mutex::new(Clock { running: (BUILD.to_owned(), Instant::now()), times: Vec::new() });
    let result = process::lines(
        &mut command,
        |line| {
            println!("{line}");
            outcome.counts.add(line);
        },
        |line| {
            eprintln!("{line}");
            if let Some(program) = program_that_begins(line) {
                clock.lock().unwrap_or_else(PoisonError::into_inner).next(program);
            }
        },
    );
    let mut clock = clock.into_inner().unwrap_or_else(PoisonError::into_inner);
    clock.next(String::new());
    outcome.times.append(&mut clock.times);
    result
}

/// Times what runs one after the other.
struct Clock {
    running: (String, Instant),
    times: Vec<(String, Duration)>,
}

impl Clock {
    /// Ends what runs, and begins `name`.
    fn next(&mut self, name: String) {
        let now = Instant::now();
        let (ended, begun) = std::mem::replace(&mut self.running, (name, now));
        self.times.push((ended, now - begun));
    }
}

/// The program that cargo starts, by cargo's line about it: `Running tests/ops/main.rs
/// (target/debug/deps/ops-0123456789abcdef)` or `Doc-tests ironwarp`.
fn program_that_begins(line: &str) -> Option<String> {
    if let Some((_, package)) = line.split_once("Doc-tests") {
        return Some(format!("documentation of {}", package.split_whitespace().last()?));
    }
    let (_, path) = line.split_once("Running").filter(|(_, rest)| rest.ends_with(')'))?.1.rsplit_once('(')?;
    let program = path.trim_end_matches(')').rsplit('/').next()?;
    Some(program.rsplit_once('-').map_or(program, |(name, _hash)| name).to_owned())
}

impl Counts {
    fn add(&mut self, line: &str) {
        if line.starts_with("running ") {
            // Of a program that ended without a result.
            self.skipped += std::mem::take(&mut self.of_program);
        }
        self.of_program += usize::from(line.trim_start().starts_with("skipped:"));
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let count = |what: &str| {
            let words: Vec<&str> = result.split([' ', ';']).filter(|word| !word.is_empty()).collect();
            words
                .windows(2)
                .find(|pair| pair[1] == what)
                .and_then(|pair| pair[0].parse::<usize>().ok())
                .unwrap_or(0)
        };
        self.programs += 1;
        let skipped = std::mem::take(&mut self.of_program);
        self.skipped += skipped;
        self.passed += count("passed").saturating_sub(skipped);
        self.failed += count("failed");
        self.ignored += count("ignored");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_long_test_is_there() {
        let sources = tidy::read_sources().unwrap();
        for test in LONG_TESTS {
            let (module, name) = test.rsplit_once("::").unwrap_or(("", test));
            let function = format!("fn {name}()");
            // Some are written by a macro of a list: `f16 => ..`.
            let has_it = |text: &str| text.contains(&function) || text.contains(&format!("{name}:"));
            let found = sources.iter().any(|source| {
                source.path.contains("/tests/") && source.path.contains(module) && has_it(&source.code)
            });
            assert!(found, "`{test}` is left out of the quick run, and no test has that name");
        }
    }

    #[test]
    fn programs_are_read_from_cargos_lines() {
        let of = |line| program_that_begins(line);
        let running = "     Running tests/ops/main.rs (target/debug/deps/ops-0123456789abcdef)";
        assert_eq!(of(running).as_deref(), Some("ops"));
        let coloured = "\u{1b}[1m\u{1b}[92m     Running\u{1b}[0m unittests src/lib.rs (/t/deps/my_lib-0f)";
        assert_eq!(of(coloured).as_deref(), Some("my_lib"));
        assert_eq!(of("   Doc-tests ironwarp").as_deref(), Some("documentation of ironwarp"));
        assert_eq!(of("   Compiling ironwarp v0.1.0 (/w/host)"), None);
    }

    #[test]
    fn the_slowest_come_first() {
        let times = (1..=7).map(|seconds| (format!("p{seconds}"), Duration::from_secs(seconds)));
        let line = slowest(times.collect());
        assert!(line.starts_with("slowest: p7 ") && line.contains(", p3 ") && !line.contains("p2"), "{line}");
    }

    #[test]
    fn results_of_programs_add_up() {
        let mut counts = Counts::default();
        for line in [
            "running 12 tests",
            "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 7 filtered out; finished in 0.01s",
            "running 2 tests",
            "skipped: no Hopper",
            "running 7 tests",
            "skipped: no device compiler",
            "test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ] {
            counts.add(line);
        }
        assert_eq!(
            counts,
            Counts { programs: 2, passed: 15, failed: 1, ignored: 2, skipped: 2, of_program: 0 }
        );
        assert!(
            summary(counts, false, 1.0)
                .starts_with("test result: FAILED. 15 passed; 1 failed; 2 ignored; 2 skipped;")
        );
    }
}
