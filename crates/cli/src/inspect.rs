//! Shows what kernels became: registers, spills, shared memory, instructions, and the PTX itself.

use std::fs;

use cuda_builder::ptx::{self, InstructionCounts};
use cuda_builder::ptxas::Usage;
use serde_json::{Value, json};

use crate::build_kernels::{self, Module, Options};
use crate::error::Error;
use crate::term::{self, Style, style};
use crate::workspace::{Selection, Workspace};

/// The help of `inspect`.
pub const HELP: &str = "
Builds the kernels where needed and shows what each uses on the GPU. With a KERNEL also its instructions; then only
families whose source names it are built. `shared` is static shared memory in bytes, `+dynamic` what a launch adds.

Usage: {program} inspect [KERNEL] [--family NAMES] [--arch ARCHS] [--ptx] [--json]

Options:
  --family NAMES   only these families, separated by commas
  --arch ARCHS     only these architectures, separated by commas
  --ptx            print the PTX of KERNEL and of the functions that it calls
  --json           print everything as JSON

Examples:
  {program} inspect
  {program} inspect saxpy --arch sm_80 --ptx
  {program} inspect --family gemm --json
";

/// One kernel of one module.
struct Row {
    family: String,
    kernel: String,
    arch: String,
    usage: Option<Usage>,
    local_bytes: u64,
    barriers: usize,
    shared_bytes: u64,
    dynamic_shared: bool,
    panic_path: Vec<String>,
    instructions: InstructionCounts,
    ptx: String,
}

/// Builds the kernels where needed and prints what became of them.
///
/// # Errors
/// When a kernel does not compile, or is unknown.
pub fn run(
    workspace: impl FnOnce() -> Result<Workspace, Error>,
    mut args: lexopt::Parser,
) -> Result<(), Error> {
    let (mut kernel, mut selection, mut print_ptx, mut json) = (None, Selection::default(), false, false);
    while let Some(arg) = args.next()? {
        use lexopt::prelude::*;
        match arg {
            Value(name) if kernel.is_none() => kernel = Some(name.string()?),
            Long("arch") => selection.add_archs(&args.value()?.string()?)?,
            Long("family") => selection.add_families(&args.value()?.string()?),
            Long("ptx") => print_ptx = true,
            Long("json") => json = true,
            other => return Err(other.unexpected().into()),
        }
    }
    if print_ptx && kernel.is_none() {
        return Err(Error::Usage("--ptx needs the name of a kernel".to_owned()));
    }
    let workspace = workspace()?;
    let rows = match &kernel {
        None => read_modules(&workspace, selection)?,
        Some(name) => rows_of(name, &workspace, selection)?,
    };
    if json {
        println!("{:#}", Value::Array(rows.iter().map(row_json).collect()));
    } else if print_ptx {
        rows.iter().for_each(|row| println!("// {}.{}\n{}", row.family, row.arch, row.ptx));
    } else {
        print_table(&rows, &workspace);
        if kernel.is_some() {
            rows.iter().for_each(print_instructions);
        }
    }
    Ok(())
}

/// Builds what is selected, and reads every kernel of it.
fn read_modules(workspace: &Workspace, selection: Selection) -> Result<Vec<Row>, Error> {
    let modules = build_kernels::build_modules(workspace, &Options { selection, ..Options::default() })?;
    let mut rows = Vec::new();
    for module in &modules {
        rows.extend(read_rows(module)?);
    }
    Ok(rows)
}

/// The rows of one kernel. The families whose source has its name are built first, and all others only if
/// none of them has the kernel, nor one that is nearly called so: a macro may put a name together.
fn rows_of(name: &str, workspace: &Workspace, selection: Selection) -> Result<Vec<Row>, Error> {
    let is_it = |row: &Row| row.kernel == name;
    if let Some(likely) = selection.naming(name, workspace)? {
        let mut rows = read_modules(workspace, likely)?;
        rows.retain(is_it);
        if !rows.is_empty() {
            return Ok(rows);
        }
    }
    if let Some(known) = selection.kernels_without(name, workspace)? {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        if term::nearest(name, known.iter().copied()).is_some() {
            return Err(unknown(name, &known, workspace));
        }
        eprintln!(
            "{} no source names {name:?}; a macro may put it together, so every family is built, which takes minutes \
             (--family NAMES: only these)",
            style(Style::Warn, "note:")
        );
    }
    let mut rows = read_modules(workspace, selection)?;
    check_known(name, &rows, workspace)?;
    rows.retain(is_it);
    Ok(rows)
}

fn read_rows(module: &Module) -> Result<Vec<Row>, Error> {
    let text = fs::read_to_string(&module.ptx).map_err(Error::io("read", &module.ptx))?;
    let arch = module.arch;
    let parsed = ptx::Module::parse(&text).map_err(|problem| cuda_builder::BuildError::BadPtx {
        package: module.manifest.package.clone(),
        arch,
        problem,
    })?;
    let row = |(entry, lint): (&ptx::Function<'_>, &ptx::Lint)| {
        let ptx = parsed.entry_text(entry);
        let usage =
            module.report.iter().flat_map(|report| &report.functions).find(|usage| usage.name == entry.name);
        Row {
            family: module.manifest.library.clone(),
            kernel: entry.name.to_owned(),
            arch: arch.to_string(),
            usage: usage.cloned(),
            local_bytes: lint.local_bytes,
            barriers: lint.barriers,
            shared_bytes: lint.shared_bytes,
            dynamic_shared: lint.dynamic_shared,
            panic_path: lint.panic_path.clone(),
            instructions: ptx::instructions(&ptx),
            ptx,
        }
    };
    Ok(parsed.entries().zip(&module.lints).map(row).collect())
}

/// Kernels that an unknown name is answered with. A large workspace has hundreds.
const SUGGESTED: usize = 12;

fn check_known(name: &str, rows: &[Row], workspace: &Workspace) -> Result<(), Error> {
    if rows.iter().any(|row| row.kernel == name) {
        return Ok(());
    }
    let mut known: Vec<&str> = rows.iter().map(|row| row.kernel.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    Err(unknown(name, &known, workspace))
}

/// No kernel has this name; these are known.
fn unknown(name: &str, known: &[&str], workspace: &Workspace) -> Error {
    let nearest = term::nearest(name, known.iter().copied());
    let mut listed = term::most_like(name, known, SUGGESTED).join(", ");
    if let Some(left @ 1..) = known.len().checked_sub(SUGGESTED) {
        listed.push_str(&format!(" and {left} more, which `{} inspect` lists", workspace.program.name));
    }
    Error::Unknown { what: "kernel", name: name.to_owned(), nearest, known: listed }
}

fn print_table(rows: &[Row], workspace: &Workspace) {
    let cells = rows.iter().map(|row| {
        let figure =
            |of: fn(&Usage) -> u32| row.usage.as_ref().map_or("?".to_owned(), |usage| of(usage).to_string());
        let total: usize = row.instructions.values().sum();
        vec![
            row.family.clone(),
            row.kernel.clone(),
            row.arch.clone(),
            figure(|usage| usage.registers),
            figure(Usage::spills),
            figure(|usage| usage.stack),
            format!("{}{}", row.shared_bytes, if row.dynamic_shared { "+dynamic" } else { "" }),
            figure(|usage| usage.barriers),
            total.to_string(),
        ]
    });
    let head =
        ["family", "kernel", "arch", "registers", "spills", "stack", "shared", "barriers", "instructions"];
    print!("{}", term::table(&head, 3, &cells.collect::<Vec<Vec<String>>>()));
    if rows.iter().any(|row| row.usage.is_none()) {
        println!(
            "{} no ptxas, so some figures are unknown; `{} setup` installs it",
            style(Style::Warn, "note:"),
            workspace.program.name
        );
    }
}

fn print_instructions(row: &Row) {
    let mut counts: Vec<_> = row.instructions.iter().collect();
    counts.sort_by_key(|&(class, count)| (std::cmp::Reverse(*count), class));
    let list: Vec<String> = counts.iter().map(|(class, count)| format!("{class} {count}")).collect();
    println!("\n{} {}\n  {}", style(Style::Bold, &row.kernel), row.arch, list.join(", "));
    if !row.panic_path.is_empty() {
        println!("  {} {}", style(Style::Warn, "can panic:"), row.panic_path.join(" -> "));
    }
}

fn row_json(row: &Row) -> Value {
    let usage = row.usage.as_ref().map(|usage| {
        json!({
            "registers": usage.registers, "spill_stores": usage.spill_stores, "spill_loads": usage.spill_loads,
            "stack": usage.stack, "shared": usage.shared, "barriers": usage.barriers,
        })
    });
    json!({
        "family": row.family, "kernel": row.kernel, "arch": row.arch, "ptxas": usage,
        "static_shared": row.shared_bytes, "dynamic_shared": row.dynamic_shared,
        "local_bytes": row.local_bytes, "barrier_instructions": row.barriers, "panic_path": row.panic_path, "instructions": row.instructions,
    })
}
