//! Every kernel that is shipped has an op, an oracle, a test, a bench row and a budget line.

use std::collections::BTreeSet;
use std::path::Path;

use cuda_builder::Manifest;

use super::Source;
use super::rules::words;
use crate::budget::Budget;
use crate::error::Error;
use crate::workspace;

const OPS: &str = "host/src/ops/";
/// Collectives are no ops of one device: all of them are the op `collectives`.
const PARALLEL: &str = "host/src/parallel/";
/// Below it, in the folder of any program, the test of the op `NAME` is `ops_NAME.rs`.
const TESTS: &str = "host/tests/";

/// A kernel in the source.
#[derive(Debug, PartialEq, Eq)]
struct Kernel {
    name: String,
    path: String,
    /// Whether it is compiled for Hopper alone.
    is_for_hopper: bool,
    /// The score function that it is compiled with, by [`FUNCTIONS`].
    function: Option<String>,
}

impl Kernel {
    fn new(name: &str, path: &str) -> Self {
        let is_for_hopper = path.contains("/sm90/");
        Kernel { name: name.to_owned(), path: path.to_owned(), is_for_hopper, function: None }
    }
}

/// Checks the shipped families: those with a budget.
pub fn check(sources: &[Source], root: &Path) -> Result<Vec<String>, Error> {
    let budget = Budget::read()?;
    let mut findings = Vec::new();
    for family in workspace::families()?.iter().filter(|family| family.budgeted) {
        let folder = family.folder.strip_prefix(root).unwrap_or(&family.folder).join("src");
        let mut kernels = kernels_in(sources, &folder.to_string_lossy());
        kernels.extend(made_by_macros(&kernels, family, &budget));
        for kernel in kernels {
            findings.extend(accompanied(&kernel, sources));
            findings.extend(budgeted(&kernel, family, &budget));
        }
    }
    Ok(findings)
}

fn budgeted(kernel: &Kernel, family: &Manifest, budget: &Budget) -> Vec<String> {
    let lines = budget.lines.get(&family.library);
    let missing = family
        .archs
        .iter()
        .filter(|arch| !kernel.is_for_hopper || arch.capability >= HOPPER)
        .filter(|arch| !lines.is_some_and(|lines| lines.contains_key(&(kernel.name.clone(), **arch))));
    missing
        .map(|arch| format!("{}: kernel `{}` has no budget line for {arch}", kernel.path, kernel.name))
        .collect()
}

/// Compute capability of the first architecture with TMA and `wgmma`.
const HOPPER: u16 = 90;

/// The folder with the families.
const FAMILIES: &str = "kernels-gpu/";
/// Macro that compiles decode kernels with a score function, which it names first. The host launches them by
/// the function's table.
const FUNCTIONS: &str = "decode_score_kernels! {";
/// Its heading of kernels for Hopper.
const FOR_HOPPER: &str = "e4m3";

/// Whether the code has the path, from a word's beginning on.
fn has_path(code: &str, path: &str) -> bool {
    let is_word = |before: char| before.is_alphanumeric() || before == '_';
    code.match_indices(path).any(|(at, _)| !code[..at].ends_with(is_word))
}

/// The macro that goes through all kernels of the part of a family that the file belongs to, such as `sm90`.
fn list_of(path: &str) -> Option<String> {
    let (family, source) = path.strip_prefix(FAMILIES)?.split_once("/src/")?;
    let (part, _) = source.split_once('/')?;
    Some(format!("{family}::for_each_{part}_kernel"))
}

/// The op is the file under `host/src/ops` that launches the kernel; test and bench go by its name, and the
/// test compares with the oracle.
fn accompanied(kernel: &Kernel, sources: &[Source]) -> Vec<String> {
    let finding = |what: String| format!("{}: kernel `{}` has no {what}", kernel.path, kernel.name);
    let list = list_of(&kernel.path);
    let table = kernel.function.as_ref().map(|function| format!("{function}::DECODE"));
    // A kernel of a table is of no list.
    let by = table.or(list);
    let launches = |source: &Source| {
        mentions(source, &kernel.name) || by.as_ref().is_some_and(|by| has_path(&source.code, by))
    };
    let launching = sources.iter().filter(|source| op_name(&source.path).is_some() && launches(source));
    let ops: BTreeSet<&str> = launching.filter_map(|source| op_name(&source.path)).collect();
    if ops.is_empty() {
        return vec![finding(format!("op in {OPS}"))];
    }
    let named = |folder: &str, op: &str| {
        sources.iter().any(|source| source.path.starts_with(folder) && mentions(source, op))
    };
    let mut findings = Vec::new();
    for op in ops {
        let file = format!("/ops_{op}.rs");
        let test = format!("{TESTS}*{file}");
        let is_test = |source: &&Source| source.path.starts_with(TESTS) && source.path.ends_with(&file);
        match sources.iter().find(is_test) {
            None => findings.push(finding(format!("test {test}"))),
            Some(source) if !mentions(source, "reference") => {
                findings.push(finding(format!("oracle: {test} compares with nothing of crates/reference")));
            }
            Some(_) => {}
        }
        if !named("benches/benches/", op)
            && !sources.iter().any(|source| source.path == format!("benches/benches/{op}.rs"))
        {
            findings.push(finding(format!("bench row that runs `{op}` in benches/benches")));
        }
    }
    findings
}

/// `host/src/ops/gemm.rs` and `host/src/ops/gemm/plan.rs` belong to the op `gemm`.
fn op_name(path: &str) -> Option<&str> {
    if path.starts_with(PARALLEL) {
        return Some("collectives");
    }
    let rest = path.strip_prefix(OPS)?;
    let name = rest.split(['/', '.']).next()?;
    (name != "mod").then_some(name)
}

/// Kernels whose names stand in no function's head, because a macro writes them: `build-kernels` wants a
/// budget line for each kernel that it finds, so the budget knows them.
fn made_by_macros(written: &[Kernel], family: &Manifest, budget: &Budget) -> Vec<Kernel> {
    let lines = budget.lines.get(&family.library).into_iter().flatten();
    let names: BTreeSet<&String> = lines.map(|((name, _), _)| name).collect();
    let made = names.into_iter().filter(|name| written.iter().all(|kernel| kernel.name != **name));
    made.map(|name| Kernel::new(name, &family.path.display().to_string())).collect()
}

/// Functions behind a `#[kernel]` attribute.
fn kernels_in(sources: &[Source], folder: &str) -> Vec<Kernel> {
    let mut kernels = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with(folder)) {
        let mut is_kernel = false;
        // As far as the macro has said.
        let (mut function, mut is_for_hopper) = (None, false);
        for line in source.code.lines() {
            if line.starts_with('}') || line.ends_with(FUNCTIONS) {
                (function, is_for_hopper) = (line.ends_with(FUNCTIONS).then(String::new), false);
            }
            if let (Some(function), Some(heading)) = (&mut function, line.trim().strip_suffix(':')) {
                match heading {
                    FOR_HOPPER => is_for_hopper = true,
                    _ => heading.clone_into(function),
                }
            }
            is_kernel |= line.trim_start().starts_with("#[kernel")
                || line.trim_start().starts_with("#[cuda_std::kernel");
            let mut names = words(line).skip_while(|(word, _)| *word != "fn").skip(1);
            if let Some((name, _)) = names.next().filter(|_| is_kernel) {
                // `fn $name` is a macro's, which names none by itself.
                if !line.contains("fn $") {
                    let kernel = Kernel::new(name, &source.path);
                    let is_for_hopper = is_for_hopper || kernel.is_for_hopper;
                    kernels.push(Kernel { is_for_hopper, function: function.clone(), ..kernel });
                }
                is_kernel = false;
            }
        }
    }
    kernels
}

/// As an identifier, or as a part of one between underscores: `cosine_topk` mentions `cosine`.
fn mentions(source: &Source, name: &str) -> bool {
    let fits = |word: &str| {
        let mut places = word.match_indices(name);
        places.any(|(at, _)| {
            let (before, after) = (&word[..at], &word[at + name.len()..]);
            (before.is_empty() || before.ends_with('_')) && (after.is_empty() || after.starts_with('_'))
        })
    };
    let mut lines = source.code.lines().filter(|line| line.contains(name));
    lines.any(|line| words(line).any(|(word, _)| fits(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Vec<Source> {
        vec![
            Source::new(
                "kernels-gpu/basic/src/saxpy.rs",
                "#[kernel(launch_bounds(256))]\n#[inline]\npub unsafe fn saxpy_f32(n: u32) {}\nfn helper() {}",
            ),
            Source::new("host/src/ops/saxpy.rs", "launch::<basic::saxpy_f32>();"),
            Source::new("host/tests/ops/ops_saxpy.rs", "let want = reference::saxpy();"),
            Source::new("benches/benches/basic.rs", "fn saxpy_row() {}"),
        ]
    }

    fn kernel() -> Kernel {
        Kernel::new("saxpy_f32", "kernels-gpu/basic/src/saxpy.rs")
    }

    #[test]
    fn kernels_are_found_by_their_attribute() {
        assert_eq!(kernels_in(&complete(), "kernels-gpu/basic/src"), [kernel()]);
        assert_eq!(
            kernels_in(
                &[Source::new("kernels-gpu/basic/src/a.rs", "// #[kernel]\npub fn f() {}")],
                "kernels-gpu/basic/src"
            ),
            []
        );
    }

    #[test]
    fn kernels_of_a_macro_are_found_where_it_is_called() {
        let source = "macro_rules! kernels {\n#[kernel]\npub unsafe fn $name() {}\n}\nkernels! {\n#[kernel] fn f: A;\n}";
        let found = kernels_in(&[Source::new("kernels-gpu/basic/src/a.rs", source)], "kernels-gpu/basic/src");
        assert_eq!(found.iter().map(|kernel| &*kernel.name).collect::<Vec<_>>(), ["f"]);
    }

    #[test]
    fn each_missing_companion_is_named() {
        assert_eq!(accompanied(&kernel(), &complete()), Vec::<String>::new());
        for (index, part) in [(1, "no op"), (2, "no test"), (3, "no bench row")] {
            let mut sources = complete();
            sources.remove(index);
            let findings = accompanied(&kernel(), &sources);
            assert!(findings.len() == 1 && findings[0].contains(part), "{part}: {findings:?}");
        }
        let mut sources = complete();
        sources[2] = Source::new("host/tests/ops/ops_saxpy.rs", "assert!(true);");
        assert!(accompanied(&kernel(), &sources)[0].contains("no oracle"));
    }

    #[test]
    fn a_list_launches_the_kernels_of_its_family() {
        let kernel = Kernel::new("saxpy_f32", "kernels-gpu/basic/src/sm90/saxpy.rs");
        let mut sources = complete();
        sources[1] = Source::new("host/src/ops/saxpy.rs", "basic::for_each_sm90_kernel!(launches);");
        assert_eq!(accompanied(&kernel, &sources), Vec::<String>::new());
        for other in ["other::for_each_sm90_kernel!(launches);", "basic::for_each_mma_kernel!(launches);"] {
            sources[1] = Source::new("host/src/ops/saxpy.rs", other);
            assert!(accompanied(&kernel, &sources)[0].contains("no op"));
        }
    }

    #[test]
    fn the_table_of_a_function_launches_its_kernels() {
        let text = "crate::decode_score_kernels! {\n    Pattern:\n    #[kernel] fn a: A;\n    e4m3:\n    #[kernel] fn b: B;\n}\n#[kernel]\nfn c() {}";
        let found = kernels_in(&[Source::new("k/src/a.rs", text)], "k/src");
        let told = |kernel: &Kernel| (kernel.function.is_some(), kernel.is_for_hopper);
        assert_eq!(found.iter().map(told).collect::<Vec<_>>(), [(true, false), (true, true), (false, false)]);
        let mut sources = complete();
        for (code, launched) in [("Pattern::DECODE", true), ("MyPattern::DECODE", false), ("DECODE", false)] {
            sources[1] = Source::new("host/src/ops/saxpy.rs", code);
            assert_eq!(accompanied(&found[0], &sources).is_empty(), launched, "{code}");
        }
    }

    fn family() -> Manifest {
        Manifest {
            path: "k/Cargo.toml".into(),
            folder: "k".into(),
            root: "k/src/lib.rs".into(),
            package: "k".into(),
            library: "basic".into(),
            archs: vec![cuda_builder::Arch::new(80), cuda_builder::Arch::new(90)],
            on_request: Vec::new(),
            budgeted: true,
            apart: Default::default(),
        }
    }

    #[test]
    fn the_budget_names_what_macros_make() {
        let text = "#[kernel]\npub unsafe fn $name() {}\n#[kernel]\npub unsafe fn plain() {}";
        let written = kernels_in(&[Source::new("k/src/a.rs", text)], "k/src");
        assert_eq!(written.iter().map(|kernel| &kernel.name[..]).collect::<Vec<_>>(), ["plain"]);
        let mut budget = Budget::default();
        let lines = budget.lines.entry("basic".into()).or_default();
        for (name, arch) in [("plain", 80), ("made", 80), ("made", 90)] {
            lines.insert((name.into(), cuda_builder::Arch::new(arch)), Default::default());
        }
        let made = made_by_macros(&written, &family(), &budget);
        assert_eq!(made, [Kernel::new("made", "k/Cargo.toml")]);
    }

    #[test]
    fn each_architecture_needs_a_line() {
        let family = family();
        let mut budget = Budget::default();
        assert_eq!(budgeted(&kernel(), &family, &budget).len(), 2);
        let lines = budget.lines.entry("basic".into()).or_default();
        lines.insert(("saxpy_f32".into(), cuda_builder::Arch::new(80)), Default::default());
        assert_eq!(budgeted(&kernel(), &family, &budget).len(), 1);
        // Only sm_90's is due, and missing.
        let hopper = Kernel::new("b", "kernels-gpu/basic/src/sm90/b.rs");
        assert_eq!(budgeted(&hopper, &family, &budget).len(), 1);
    }
}
