//! How many instructions of which kind: the quickest look at what a kernel became.

use std::collections::BTreeMap;

/// Static instruction counts by class, such as `ld.global`, `fma`, `mma`, `bar`.
pub type InstructionCounts = BTreeMap<String, usize>;

/// Classes by the start of the opcode; the first that fits counts. Others are counted by what comes before
/// their first dot.
const CLASSES: &[(&str, &str)] = &[
    ("ld.global", "ld.global"),
    ("ld.shared", "ld.shared"),
    ("ld.param", "ld.param"),
    ("ld.local", "ld.local"),
    ("ld.const", "ld.const"),
    ("ldmatrix", "ldmatrix"),
    ("ld", "ld.generic"),
    ("st.global", "st.global"),
    ("st.shared", "st.shared"),
    ("st.param", "st.param"),
    ("st.local", "st.local"),
    ("stmatrix", "stmatrix"),
    ("st", "st.generic"),
    ("atom", "atom"),
    ("red", "red"),
    ("cp.async", "cp.async"),
    ("wgmma", "wgmma"),
    ("mma", "mma"),
    ("wmma", "mma"),
    ("fma", "fma"),
    ("mad", "mad"),
    ("div", "div"),
    ("rem", "rem"),
    ("sqrt", "sqrt"),
    ("mbarrier", "mbarrier"),
    ("bar", "bar"),
    ("shfl", "shfl"),
    ("vote", "vote"),
    ("match", "match"),
    ("cvta", "cvta"),
    ("cvt", "cvt"),
    ("mov", "mov"),
    ("bra", "bra"),
    ("call", "call"),
    ("fence", "fence"),
    ("membar", "fence"),
];

/// Counts the instructions of a function's body.
pub fn instructions(body: &str) -> InstructionCounts {
    let mut counts = InstructionCounts::new();
    for opcode in opcodes(body) {
        let listed = CLASSES.iter().find(|(start, _)| opcode.starts_with(start));
        let class = listed.map_or_else(|| opcode.split('.').next().unwrap_or(opcode), |(_, class)| class);
        *counts.entry(class.to_owned()).or_default() += 1;
    }
    counts
}

/// The opcodes of a body with their qualifiers, in order.
pub(super) fn opcodes(body: &str) -> impl Iterator<Item = &str> {
    body.lines().flat_map(|line| line.split("//").next().unwrap_or_default().split(';')).filter_map(opcode)
}

fn opcode(statement: &str) -> Option<&str> {
    let mut words = statement.trim_start_matches(['{', '}', ' ', '\t']).split_whitespace();
    let mut word = words.next()?;
    if word.starts_with('@') {
        word = words.next()?; // the predicate
    }
    // Operands on lines of their own, labels and directives start differently.
    let is_opcode = word.starts_with(|c: char| c.is_ascii_lowercase()) && !word.ends_with([',', ':']);
    is_opcode.then_some(word)
}
