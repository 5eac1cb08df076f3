//! Rules that hold for every file by itself.

use super::Source;

const MAX_LINES: usize = 600;
/// How far above an unsafe block its reason may start, beyond the comment itself: a statement may be broken
/// over lines before the block.
const STATEMENT_LINES: usize = 3;

/// Code with no reason to be sound: kernels as users of Rust-CUDA write them, kernels that are wrong on
/// purpose with right ones beside them for the checker to judge, and calls that must not compile.
pub const UNREASONED: &[&str] = &[
    "kernels-gpu/compat/src/",
    "kernels-gpu/checker/src/",
    "host/tests/ui/",
    "crates/cuda_std_macros/tests/ui/",
    "xtask/tests/rust_cuda/",
];

/// PTX stands in the device library alone. Its macros write it into kernels; an expansion is no place of its
/// own.
const PTX_FOLDERS: &[&str] = &["crates/cuda_std/src/", "crates/cuda_std_macros/src/"];
/// Host assembly: trampolines to the driver, and callbacks that need their return address.
const NAKED_FOLDERS: &[&str] = &["crates/driver/src/", "crates/simt/src/"];
/// The last one hands kernels the bad addresses that the host library refuses.
const DRIVER_PLACES: &[&str] =
    &["crates/driver/", "host/src/raw.rs", "host/src/raw/", "kernels-gpu/checker/tests/corpus/gpu.rs"];

/// Everything that the files break, a sentence each.
pub fn check(sources: &[Source]) -> Vec<String> {
    let rules = [assembly, driver_calls, length, safety];
    sources.iter().flat_map(|source| rules.into_iter().flat_map(|rule| rule(source))).collect()
}

fn assembly(source: &Source) -> Vec<String> {
    let naked = is_in(source, NAKED_FOLDERS);
    let ptx = is_in(source, PTX_FOLDERS);
    let forbidden = |word: &str| match word {
        "asm" | "global_asm" => !ptx,
        "naked_asm" => !naked,
        _ => false,
    };
    at_lines(source, |line| words(line).any(|(word, rest)| rest.starts_with('!') && forbidden(word)))
        .map(|line| format!("{}:{line}: assembly; wanted in {} alone", source.path, PTX_FOLDERS[0]))
        .collect()
}

fn driver_calls(source: &Source) -> Vec<String> {
    if is_in(source, DRIVER_PLACES) {
        return Vec::new();
    }
    at_lines(source, |line| {
        words(line).any(|(word, rest)| is_driver_name(word) && rest.trim_start().starts_with('('))
    })
    .map(|line| {
        format!("{}:{line}: calls the driver; wanted in crates/driver and host/src/raw.rs alone", source.path)
    })
    .collect()
}

/// `cuLaunchKernel` is one, `cub` and `custom` are none.
fn is_driver_name(word: &str) -> bool {
    word.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn length(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let too_long = lines >= MAX_LINES;
    too_long
        .then(|| format!("{}: {lines} lines; wanted under {MAX_LINES}", source.path))
        .into_iter()
        .collect()
}

pub fn safety(source: &Source) -> Vec<String> {
    if is_in(source, UNREASONED) {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text.lines().collect();
    at_lines(source, |line| {
        words(line).any(|(word, rest)| word == "unsafe" && rest.trim_start().starts_with('{'))
    })
    .filter(|line| !has_reason(&lines, *line))
    .map(|line| format!("{}:{line}: unsafe block without `// SAFETY:`", source.path))
    .collect()
}

/// Whether the line (from 1) or the comment above its statement says why it is sound.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let mut above = lines[..line].iter().rev();
    if above.next().is_some_and(|own| own.contains("SAFETY:")) {
        return true;
    }
    let mut code_lines = 0;
    for text in above {
        let text = text.trim_start();
        if text.contains("SAFETY:") {
            return true;
        }
        if !text.starts_with("//") && !text.starts_with("#[") {
            code_lines += 1;
        }
        if code_lines > STATEMENT_LINES {
            return false;
        }
    }
    false
}

pub fn is_in(source: &Source, folders: &[&str]) -> bool {
    folders.iter().any(|folder| source.path.starts_with(folder))
}

/// Numbers, from 1, of the lines of code that fit.
fn at_lines<'a>(source: &'a Source, fits: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = usize> + 'a {
    source.code.lines().enumerate().filter(move |(_, line)| fits(line)).map(|(index, _)| index + 1)
}

/// The identifiers of a line, each with what follows it.
pub fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = &rest[rest.find(is_part)?..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        Some((word, after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&[Source::new(path, text)])
    }

    #[test]
    fn assembly_has_its_place() {
        let asm = "fn f() { core::arch::asm!(\"x\") }";
        assert_eq!(findings("kernels-gpu/basic/src/lib.rs", asm).len(), 1);
        assert_eq!(findings("crates/primitives/src/warp.rs", "global_asm!(\"x\");").len(), 1);
        assert_eq!(findings("host/src/raw.rs", "naked_asm!(\"x\");").len(), 1);
        assert_eq!(findings("crates/cuda_std/src/tma.rs", asm), Vec::<String>::new());
        assert_eq!(findings("crates/driver/src/slot.rs", "naked_asm!(\"x\");"), Vec::<String>::new());
        assert_eq!(findings("host/src/lib.rs", "// asm!\nlet s = \"asm!\"; plasm!()"), Vec::<String>::new());
    }

    #[test]
    fn driver_calls_have_their_place() {
        let call = "let code = cuMemAlloc_v2(&mut p, n);";
        assert_eq!(
            findings("host/src/device.rs", call),
            ["host/src/device.rs:1: calls the driver; wanted in crates/driver and host/src/raw.rs alone"]
        );
        assert_eq!(findings("host/src/raw.rs", call), Vec::<String>::new());
        assert_eq!(
            findings("host/src/device.rs", "custom(1); cub(2); let cuInit = \"cuInit(\"; cuda_std(3)"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(findings("host/src/a.rs", &"\n".repeat(MAX_LINES)).len(), 1);
        assert_eq!(findings("host/src/a.rs", &"\n".repeat(MAX_LINES - 1)), Vec::<String>::new());
    }

    #[test]
    fn unsafe_blocks_need_a_reason() {
        for bad in [
            "fn f() {\n    unsafe { g() }\n}",
            "// SAFETY: far away\n\n\n\n\n\nlet x = unsafe { g() };",
            "unsafe\n{ unsafe { g() } }",
        ] {
            assert_eq!(findings("host/src/a.rs", bad).len(), 1, "{bad}");
            assert_eq!(findings("kernels-gpu/compat/src/a.rs", bad), Vec::<String>::new(), "{bad}");
        }
        for good in [
            "// SAFETY: checked above\nunsafe { g() }",
            "unsafe { g() } // SAFETY: checked above",
            "// SAFETY: checked above,\n// twice\nlet x =\n    unsafe { g() };",
            "unsafe fn f() {}\nunsafe impl Send for X {}\nunsafe extern \"C\" { fn g(); }",
            "// an unsafe { block } in words",
        ] {
            assert_eq!(findings("host/src/a.rs", good), Vec::<String>::new(), "{good}");
        }
    }
}
