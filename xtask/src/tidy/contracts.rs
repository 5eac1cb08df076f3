//! The contracts of unsafe functions: every `unsafe fn` has a `# Safety` section that the note of a call can
//! point to.
//!
//! The methods of an `impl Trait for ..` have their trait's contract. A trait's own methods may have one
//! section together, in the trait's documentation. Functions in `extern` blocks, function pointers, and
//! functions that a macro names (`unsafe fn $name`) are not looked at.

use super::Source;
use super::rules::{UNREASONED, is_in, words};

const FOLDERS: &[&str] = &["crates/", "host/src/", "kernels-gpu/"];
/// The expansion of `#[kernel]`, whose contract is the kernel's.
const ARMS: &[&str] = &["crates/cuda_std_macros/src/"];

/// Every unsafe function without a contract, a sentence each.
pub fn check(sources: &[Source]) -> Vec<String> {
    let reasoned = |source: &&Source| is_in(source, FOLDERS) && !is_in(source, UNREASONED);
    sources.iter().filter(reasoned).flat_map(check_one).collect()
}

fn check_one(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let arms = is_in(source, ARMS);
    let mut blocks: Vec<Block> = Vec::new();
    let mut findings = Vec::new();
    // The code since the last statement or block began, and the line of its first word.
    let (mut head, mut first, mut brackets) = (String::new(), 0, 0_usize);
    for (index, line) in source.code.lines().enumerate() {
        for c in line.chars().chain(['\n']) {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                _ => {}
            }
            if !matches!(c, '{' | '}') && (c != ';' || brackets > 0) {
                if head.is_empty() {
                    first = index;
                }
                // Nothing stands in front of the first word.
                if !(head.is_empty() && c.is_whitespace()) {
                    head.push(c);
                }
                continue;
            }
            if c != '}' {
                let is_bare =
                    !has_contract(&lines, first) && !blocks.last().is_some_and(|block| block.speaks);
                let is_arm = arms && !head.trim_start().starts_with("pub ");
                if let Some(name) = unsafe_fn(&head).filter(|_| is_bare && !is_arm) {
                    let line = 1 + first + head_lines_before_fn(&head);
                    findings.push(format!("{}:{line}: `unsafe fn {name}` without `# Safety`", source.path));
                }
            }
            match c {
                '{' => blocks.push(Block { speaks: speaks_for_methods(&head, &lines, first) }),
                '}' => _ = blocks.pop(),
                _ => {}
            }
            head.clear();
        }
    }
    findings
}

/// A pair of braces around the code at hand.
struct Block {
    /// Whether what opened it says what its unsafe functions ask.
    speaks: bool,
}

/// The name of the unsafe function that this begins, declared or defined.
fn unsafe_fn(head: &str) -> Option<&str> {
    let (_, mut rest) = words(head).find(|&(word, _)| word == "unsafe")?;
    loop {
        let (word, after) = words(rest).next()?;
        match word {
            "extern" => rest = after,
            "fn" => {
                let name = after.trim_start();
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
                return (end > 0).then(|| &name[..end]);
            }
            _ => return None,
        }
    }
}

/// Attributes stand in front of the function on lines of their own.
fn head_lines_before_fn(head: &str) -> usize {
    let start = head.len() - head.trim_start().len();
    let end = head.find("unsafe").unwrap_or(start);
    head[start..end.max(start)].matches('\n').count()
}

fn speaks_for_methods(head: &str, lines: &[&str], first: usize) -> bool {
    let mut kinds = words(head).map(|(word, _)| word);
    match kinds.find(|word| matches!(*word, "impl" | "trait" | "extern" | "fn")) {
        Some("impl") => kinds.any(|word| word == "for"),
        Some("trait") => has_contract(lines, first),
        Some("extern") => !kinds.any(|word| word == "fn"),
        _ => false,
    }
}

/// Whether the comment above the line (from 0) has the section. Attributes belong to the code that starts
/// there.
fn has_contract(lines: &[&str], first: usize) -> bool {
    let is_comment = |line: &str| line.starts_with("//") || line.starts_with("#[");
    let above = lines[..first].iter().rev().map(|line| line.trim_start()).take_while(|line| is_comment(line));
    // A comment may stand between attributes, too.
    let below = lines[first..].iter().map(|line| line.trim_start()).take_while(|line| is_comment(line));
    above.chain(below).any(|line| line.starts_with("/// # Safety"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&[Source::new(path, text)])
    }

    #[test]
    fn functions_without_a_contract_are_found() {
        for (bad, line, name) in [
            ("unsafe fn f() {}", 1, "f"),
            ("mod a {\n    /// Does.\n    pub(crate) unsafe fn f(a: [u8; 4]) {}\n}", 3, "f"),
            ("/// # Safety\nfn a() {}\nunsafe fn f() {}", 3, "f"),
            ("#[inline]\n#[track_caller]\nunsafe extern \"C\" fn f() {}", 3, "f"),
            ("trait A {\n    unsafe fn f(self);\n    fn g();\n}", 2, "f"),
            ("impl A {\n    const unsafe fn f(self) {}\n}", 2, "f"),
            ("macro_rules! a { () => { unsafe fn f() {} } }", 1, "f"),
        ] {
            let wanted = format!("kernels-gpu/basic/src/a.rs:{line}: `unsafe fn {name}` without `# Safety`");
            assert_eq!(findings("kernels-gpu/basic/src/a.rs", bad), [wanted], "{bad}");
            assert_eq!(findings("kernels-gpu/checker/src/a.rs", bad), Vec::<String>::new(), "{bad}");
            assert_eq!(findings("host/tests/a.rs", bad), Vec::<String>::new(), "{bad}");
        }
    }

    #[test]
    fn functions_with_a_contract_pass() {
        for good in [
            "/// Does.\n///\n/// # Safety\n/// `p` is valid.\n#[inline]\npub unsafe fn f(p: *const u8) {}",
            "#[kernel]\n/// # Safety\n/// One block.\npub unsafe fn f() {}",
            "/// # Safety\n/// All: `p` is valid.\ntrait A {\n    unsafe fn f(p: *const u8);\n}",
            "impl A for [u8; 4] {\n    unsafe fn f() {}\n}",
            "unsafe extern \"C\" {\n    unsafe fn f();\n}",
            "macro_rules! a { ($f:ident) => { unsafe fn $f() {} } }",
            "struct A {\n    f: unsafe fn(u8),\n}\nfn g() { unsafe { h() } }\nunsafe impl Send for A {}",
        ] {
            assert_eq!(findings("crates/simt/src/a.rs", good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn arms_are_private() {
        let path = "crates/cuda_std_macros/src/a.rs";
        assert_eq!(findings(path, "unsafe fn f() {}\npub(crate) unsafe fn g() {}"), Vec::<String>::new());
        assert_eq!(findings(path, "pub unsafe fn f() {}").len(), 1);
    }
}
