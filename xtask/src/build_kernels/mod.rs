//! Compiles this repository's kernel families to PTX, and holds every kernel to its budget.

use cuda_builder::ptxas::Ptxas;
pub use ironwarp_cli::build_kernels::{Module, Options};

use crate::broken::Broken;
use crate::budget::{Budget, Measured};
use crate::error::{Error, plural};
use crate::term::{Style, style};
use crate::workspace;

pub const HELP: &str = "
Compiles every kernel family to target/ptx/FAMILY.ARCH.ptx, unless nothing changed, and checks what ptxas says
about each kernel against kernels-gpu/budget.toml.

Usage: cargo xtask build-kernels [--family NAMES] [--arch ARCHS] [--update-budget] [--line-info]

Options:
  --family NAMES     only these families, separated by commas
  --arch ARCHS       only these architectures, separated by commas
  --update-budget    write the measured figures into the budget file instead of checking them
  --line-info        put source lines into the PTX, for profilers and compute-sanitizer

Examples:
  cargo xtask build-kernels
  cargo xtask build-kernels --family gemm --arch sm_80,sm_90a
  cargo xtask build-kernels --family basic --update-budget
";

/// The result of the budget check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetOutcome {
    /// Checked, or rewritten, for so many kernels.
    Checked(usize),
    /// No assembler is at hand, so only panics and missing lines were checked.
    NoPtxas,
}

pub fn run(mut args: lexopt::Parser) -> Result<(), Error> {
    let (mut options, mut update) = (Options::default(), false);
    while let Some(arg) = args.next()? {
        use lexopt::prelude::*;
        match arg {
            Long("arch") => options.selection.add_archs(&args.value()?.string()?)?,
            Long("family") => options.selection.add_families(&args.value()?.string()?),
            Long("update-budget") => update = true,
            Long("line-info") => options.line_info = true,
            other => return Err(other.unexpected().into()),
        }
    }
    build_in_budget(&options, update).map(|_| ())
}

/// Compiles what is selected, silently where nothing changed.
///
/// # Errors
/// When a family does not compile.
pub fn build_modules(options: &Options) -> Result<Vec<Module>, Error> {
    ironwarp_cli::build_kernels::build_modules(&workspace::here(), options)
}

/// Builds and prints a summary, without a look at the budget.
///
/// # Errors
/// When a family does not compile.
pub fn build(options: &Options) -> Result<Vec<Module>, Error> {
    ironwarp_cli::build_kernels::build(&workspace::here(), options)
}

/// Builds, checks or updates the budget, and prints a summary.
///
/// # Errors
/// When a family does not compile, or a kernel is over its budget.
pub fn build_in_budget(options: &Options, update: bool) -> Result<BudgetOutcome, Error> {
    let outcome = settle_budget(&build(options)?, options, update)?;
    match outcome {
        BudgetOutcome::Checked(kernels) => {
            println!("{} {}", style(Style::Ok, "budget:"), plural(kernels, "kernel"))
        }
        BudgetOutcome::NoPtxas => {
            println!("{} skipped: no ptxas (`cargo xtask setup` installs it)", style(Style::Warn, "budget:"))
        }
    }
    Ok(outcome)
}

fn settle_budget(modules: &[Module], options: &Options, update: bool) -> Result<BudgetOutcome, Error> {
    let release = Ptxas::find().and_then(|ptxas| ptxas.release().ok());
    let mut budget = Budget::read()?;
    let measured: Vec<Measured> = modules.iter().filter(|module| is_budgeted(module)).map(measured).collect();
    if update {
        let Some(release) = release.clone() else {
            let fix = "cargo xtask setup, with a network".to_owned();
            return Err(Error::Install {
                what: "the figures of a budget",
                reason: "no ptxas to measure with".to_owned(),
                fix,
            });
        };
        budget.set_release(release, options.selection.is_everything())?;
        measured.iter().for_each(|module| budget.update(module));
        budget.write()?;
        println!("{} {}", style(Style::Ok, "written:"), Budget::path().display());
    }
    let findings: Vec<String> =
        measured.iter().flat_map(|module| budget.check(module, release.as_deref())).collect();
    if !findings.is_empty() {
        return Err(Broken::Budget(findings).into());
    }
    let kernels = measured.iter().map(|module| module.lints.len()).sum();
    Ok(if release.is_some() { BudgetOutcome::Checked(kernels) } else { BudgetOutcome::NoPtxas })
}

/// The budget holds what is built by default.
fn is_budgeted(module: &Module) -> bool {
    module.manifest.budgeted && module.manifest.archs.contains(&module.arch)
}

fn measured(module: &Module) -> Measured {
    let (family, lints, report) =
        (module.manifest.library.clone(), module.lints.clone(), module.report.clone());
    Measured { family, arch: module.arch, report, lints }
}
