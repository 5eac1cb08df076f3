//! Findings from a kernel's code: local memory, panics, barriers.

use std::collections::{BTreeSet, VecDeque};

use super::{Function, Module, PtxError, count, demangle};

/// Functions that the driver provides to every module.
const DEVICE_FUNCTIONS: &[&str] = &["vprintf", "malloc", "free", "__assertfail"];
/// Functions that compilers call by themselves and the device lacks.
const MEMORY_FUNCTIONS: &[&str] = &["memcpy", "memmove", "memset", "memcmp", "bcmp"];

/// Findings about one entry and everything that it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lint {
    /// The entry.
    pub kernel: String,
    /// Bytes of local memory in the PTX. ptxas may still remove some.
    pub local_bytes: u64,
    /// The calls that lead to a panic, from the entry on, demangled; empty when the kernel cannot panic.
    pub panic_path: Vec<String>,
    /// `bar.sync` and relatives.
    pub barriers: usize,
    /// Bytes a block of the shared variables that the code names. ptxas rounds its figure up in a module
    /// where another kernel uses dynamic shared memory; each kernel is loaded alone, so the device does not.
    pub shared_bytes: u64,
    /// Whether it uses shared memory whose size the launch sets.
    pub dynamic_shared: bool,
}

/// A shared variable of a module.
struct SharedVariable<'a> {
    name: &'a str,
    align: u64,
    /// `None` for an array whose size the launch sets.
    bytes: Option<u64>,
}

/// Looks at every entry of a module.
pub fn lint(module: &Module<'_>) -> Vec<Lint> {
    let variables: Vec<_> = module.text.lines().filter_map(shared_variable).collect();
    module.entries().map(|entry| lint_entry(module, entry, &variables)).collect()
}

fn lint_entry(module: &Module<'_>, entry: &Function<'_>, variables: &[SharedVariable<'_>]) -> Lint {
    let functions = reachable(module, entry);
    let bodies = || functions.iter().map(|function| module.body(function));
    let used = || variables.iter().filter(|variable| bodies().any(|body| names(body, variable.name)));
    let with = |end: u64, (align, bytes): (u64, u64)| end.next_multiple_of(align) + bytes;
    Lint {
        shared_bytes: used().filter_map(|it| Some((it.align, it.bytes?))).fold(0, with),
        dynamic_shared: used().any(|variable| variable.bytes.is_none()),
        kernel: entry.name.to_owned(),
        local_bytes: bodies().map(local_bytes).sum(),
        panic_path: panic_path(module, entry),
        barriers: bodies().flat_map(count::opcodes).filter(|opcode| is_barrier(opcode)).count(),
    }
}

fn is_barrier(opcode: &str) -> bool {
    opcode.starts_with("bar.") || opcode.starts_with("barrier.")
}

/// An entry and what it calls, nearest first.
pub(super) fn reachable<'m, 'a>(module: &'m Module<'a>, entry: &'m Function<'a>) -> Vec<&'m Function<'a>> {
    let mut seen = BTreeSet::from([entry.name]);
    let mut found = vec![entry];
    let mut next = 0;
    while next < found.len() {
        for callee in callees(module.body(found[next])) {
            if seen.insert(callee) {
                found.extend(definition(module, callee));
            }
        }
        next += 1;
    }
    found
}

fn definition<'m, 'a>(module: &'m Module<'a>, name: &str) -> Option<&'m Function<'a>> {
    module.functions.iter().find(|function| function.name == name && function.body.is_some())
}

/// Names that a body calls. The name may stand behind a return value, `call.uni (retval0), name, (..)`, on
/// the next line.
pub(super) fn callees(body: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, _) in body.match_indices("call") {
        let starts_a_word = body[..at].ends_with(char::is_whitespace);
        let statement = body[at..].split(';').next().unwrap_or_default();
        let Some((opcode, operands)) = statement.split_once(char::is_whitespace) else { continue };
        if !starts_a_word || !matches!(opcode, "call" | "call.uni") {
            continue;
        }
        let after = operands.trim_start();
        let after =
            if after.starts_with('(') { after.split_once(')').map_or("", |(_, name)| name) } else { after };
        let name = after
            .trim_start_matches([',', ' ', '\t', '\n'])
            .split([',', ' ', '\t', '\n'])
            .next()
            .unwrap_or_default();
        if !name.is_empty() && !name.starts_with('%') {
            names.push(name);
        }
    }
    names
}

fn local_bytes(body: &str) -> u64 {
    body.lines().filter_map(local_size).sum()
}

/// `.shared .align 16 .b8 tile[256];`, or `.extern .shared .align 16 .b8 tile[];`.
fn shared_variable(line: &str) -> Option<SharedVariable<'_>> {
    let declaration = line.strip_prefix(".extern ").unwrap_or(line).strip_prefix(".shared .align ")?;
    let (align, rest) = declaration.split_once(" .b8 ")?;
    let (name, size) = rest.split_once('[')?;
    let size = size.split_once(']')?.0;
    let bytes = if size.is_empty() { None } else { Some(size.parse().ok()?) };
    Some(SharedVariable { name: name.trim(), align: align.parse().ok().filter(|&align| align > 0)?, bytes })
}

/// Whether a body has this symbol.
pub(super) fn names(body: &str, symbol: &str) -> bool {
    let continues = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_$".contains(c));
    let begins = |text: &str| !text.ends_with(|c: char| c.is_ascii_alphanumeric() || "_$%".contains(c));
    body.match_indices(symbol).any(|(at, _)| begins(&body[..at]) && !continues(&body[at + symbol.len()..]))
}

/// `.local .align 8 .b8 __local_depot0[32];`
fn local_size(line: &str) -> Option<u64> {
    let declaration = line.trim_start().strip_prefix(".local ")?;
    let (_, size) = declaration.split_once('[')?;
    size.split_once(']')?.0.parse().ok()
}

fn panic_path(module: &Module<'_>, entry: &Function<'_>) -> Vec<String> {
    let mut queue = VecDeque::from([vec![entry.name]]);
    let mut seen = BTreeSet::from([entry.name]);
    while let Some(path) = queue.pop_front() {
        let Some(function) = path.last().and_then(|last| definition(module, last)) else { continue };
        for callee in callees(module.body(function)) {
            if !seen.insert(callee) {
                continue;
            }
            let longer = [path.as_slice(), &[callee]].concat();
            if is_panic(callee) {
                return longer.iter().map(|name| demangle(name)).collect();
            }
            queue.push_back(longer);
        }
    }
    Vec::new()
}

fn is_panic(symbol: &str) -> bool {
    ["9panicking", "panic_fmt", "rust_begin_unwind", "unwrap_failed", "expect_failed", "slice_index_fail"]
        .iter()
        .any(|mark| symbol.contains(mark))
}

/// Every function that is called has to be in the module or on the device: nothing is linked afterwards.
pub(super) fn check_resolved(module: &Module<'_>) -> Result<(), PtxError> {
    for caller in &module.functions {
        for callee in callees(module.body(caller)) {
            if definition(module, callee).is_none() && !DEVICE_FUNCTIONS.contains(&callee) {
                return Err(unresolved(module, callee));
            }
        }
    }
    Ok(())
}

fn unresolved(module: &Module<'_>, callee: &str) -> PtxError {
    let calls = |function: &&Function<'_>| callees(module.body(function)).contains(&callee);
    let callers: Vec<String> =
        module.functions.iter().filter(calls).map(|function| demangle(function.name)).collect();
    let fix = if MEMORY_FUNCTIONS.contains(&callee) {
        "use a kernel crate that depends on cuda_std, which defines the comparisons; copy element by element"
    } else if callee.starts_with("__") {
        "avoid the operation that calls it: compiler-builtins is not linked into PTX"
    } else {
        "mark the function #[inline], or declare it in the module"
    };
    PtxError::Unresolved { function: demangle(callee), callers: callers.join(", "), fix }
}

/// Refuses the address of a `static` that stands for a shared variable. `#[address_space(shared)]` makes it a
/// value without bytes that dereferences to the memory; uses of the value leave no symbol, but its address
/// does: a `.global` without a size, next to the `.shared` of the same crate and name.
pub(super) fn check_shared_statics(text: &str) -> Result<(), PtxError> {
    for line in text.lines().filter_map(|line| line.strip_prefix(".global .align 1 .b8 ")) {
        let Some(symbol) = line.strip_suffix(';').filter(|symbol| !symbol.contains(['[', ' '])) else {
            continue;
        };
        let path = demangle(symbol);
        let (Some(package), Some(name)) = (path.split("::").next(), path.split("::").last()) else {
            continue;
        };
        let shared = format!("__shared_{package}_{name}_");
        let is_its = |rest: &str| rest.split('[').next().is_some_and(|n| n.parse::<u32>().is_ok());
        if text.split(shared.as_str()).skip(1).any(is_its) {
            return Err(PtxError::SharedByAddress { name: name.to_owned(), path });
        }
    }
    Ok(())
}
