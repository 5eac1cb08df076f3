//! Reading the PTX that rustc leaves: functions, what they call, and what kernels promise about themselves.
//!
//! The reader knows just enough of the language for that; `ptxas` is the judge of the rest.

mod count;
mod finish;
mod join;
mod lint;
mod needs;
mod pieces;

use std::ops::Range;

use crate::arch::Arch;

pub use count::{InstructionCounts, instructions};
pub use finish::{finish, header};
pub(crate) use join::join;
pub use lint::{Lint, lint};
pub(crate) use pieces::pieces;

/// The fault of a module, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PtxError {
    /// No `.version` and `.target` at the top.
    #[error(
        "the compiler's output is no PTX: no `{directive}` line.\nfix: check that the device compiler has the nvptx64 back end"
    )]
    NotPtx {
        /// The directive that was looked for.
        directive: &'static str,
    },
    /// A body that does not end.
    #[error(
        "function `{function}` has no end: its braces do not match.\nfix: check the braces of its inline assembly"
    )]
    Unbalanced {
        /// The function.
        function: String,
    },
    /// A `// @ironwarp` comment that does not parse.
    #[error(
        "annotation `{comment}`: {reason}.\nfix: use #[kernel] or #[kernel(launch_bounds(..))] of cuda_std, which write this line"
    )]
    BadAnnotation {
        /// The comment as found.
        comment: String,
        /// The fault.
        reason: String,
    },
    /// A `// @ironwarp` comment about a kernel that is not in the module.
    #[error(
        "launch bounds or tensor maps are given for `{kernel}`, which is no entry of this module; it has: {entries}"
    )]
    NoSuchKernel {
        /// The name in the comment.
        kernel: String,
        /// The entries there are.
        entries: String,
    },
    /// A parameter that should be a tensor map.
    #[error(
        "parameter {index} of `{kernel}` is no tensor map: wanted `.param .align .. .b8 {kernel}_param_{index}[128]`.\nfix: use #[kernel] of cuda_std with an argument `&TensorMap`"
    )]
    NoTensorMap {
        /// The entry.
        kernel: String,
        /// The parameter.
        index: usize,
    },
    /// A shared variable that is used by the address of the `static` that stands for it.
    #[error(
        "the address of `{path}` is not the shared variable: rustc keeps that name in global memory, without a byte, and what is written there destroys other data.\nfix: use `{name}.as_mut_ptr()` (an array) or `&raw mut *{name}`, or declare the variable inside the kernel, where `&raw mut {name}` is the variable"
    )]
    SharedByAddress {
        /// The path of the static.
        path: String,
        /// Its name.
        name: String,
    },
    /// A name that compilers of the same package understand differently.
    #[error(
        "`{name}` is not the same where the kernels of `apart` are compiled and where the others are.\nfix: in Cargo.toml, take names out of `apart` under [package.metadata.ironwarp] until the kernels that share it are compiled together"
    )]
    TwoMeanings {
        /// The function or variable, demangled.
        name: String,
    },
    /// An instruction that only later architectures have.
    #[error(
        "`{function}` uses `{instruction}`, which needs {needed}; it is built for {arch}.\nfix: build for {needed}: `CudaBuilder::arch(NvvmArch::Compute{name})`, or `archs = [\"{needed}\"]` under [package.metadata.ironwarp]",
        name = needed.to_string().trim_start_matches("sm_")
    )]
    NeedsArch {
        /// The opcode.
        instruction: String,
        /// The function with it, demangled.
        function: String,
        /// The first architecture that has it.
        needed: Arch,
        /// The architecture that the module is for.
        arch: Arch,
    },
    /// A function that the device does not have.
    #[error(
        "calls `{function}`, which exists neither in the module nor on the device (called by {callers}).\nfix: {fix}"
    )]
    Unresolved {
        /// The missing function, demangled.
        function: String,
        /// The functions that call it, demangled.
        callers: String,
        /// The usual cause, and its fix.
        fix: &'static str,
    },
}

/// A module, split into its functions. Ranges are byte offsets into the text.
#[derive(Debug, Clone)]
pub struct Module<'a> {
    /// The whole text.
    pub text: &'a str,
    /// PTX version, major and minor.
    pub version: (u32, u32),
    /// Where the version stands in the text.
    version_at: Range<usize>,
    /// Entries, functions and declarations in the order of the text.
    pub functions: Vec<Function<'a>>,
    /// The annotations of kernels.
    pub annotations: Vec<Annotation>,
}

/// An entry, a function, or the declaration of one.
#[derive(Debug, Clone)]
pub struct Function<'a> {
    /// Its symbol.
    pub name: &'a str,
    /// Whether the host can launch it.
    pub is_entry: bool,
    /// From the directive to before the body.
    pub head: Range<usize>,
    /// The body with its braces; `None` for a declaration.
    pub body: Option<Range<usize>>,
}

/// Properties of a kernel that rustc cannot express, from a comment `// @ironwarp kernel=NAME ..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// The entry.
    pub kernel: String,
    /// Launch bounds, `max_threads=N min_blocks=M [exact=1]`.
    pub bounds: Bounds,
    /// Index of a parameter that is a tensor map, `tensor_map=I`.
    pub tensor_map: Option<usize>,
}

/// The bounds that every launch of a kernel keeps to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Most threads in a block; 0 = not given.
    pub max_threads: u32,
    /// Fewest blocks that a multiprocessor has to hold; 0 = not given.
    pub min_blocks: u32,
    /// Every launch has exactly `max_threads` threads in x.
    pub exact: bool,
}

const ANNOTATION: &str = "// @ironwarp ";

impl<'a> Module<'a> {
    /// Splits a module.
    ///
    /// # Errors
    /// When the text is no PTX, a body has no end, or an annotation does not parse.
    pub fn parse(text: &'a str) -> Result<Self, PtxError> {
        let (version, version_at) = find_version(text)?;
        if !lines(text).any(|(_, line)| line.starts_with(".target ")) {
            return Err(PtxError::NotPtx { directive: ".target" });
        }
        let annotations = lines(text)
            .filter_map(|(_, line)| line.trim_start().strip_prefix(ANNOTATION))
            .map(parse_annotation)
            .collect::<Result<_, _>>()?;
        Ok(Self { text, version, version_at, functions: split_functions(text)?, annotations })
    }

    /// The functions that the host can launch.
    pub fn entries(&self) -> impl Iterator<Item = &Function<'a>> {
        self.functions.iter().filter(|function| function.is_entry)
    }

    /// The text of a function's body, empty for a declaration.
    pub fn body(&self, function: &Function<'_>) -> &'a str {
        function.body.clone().map_or("", |range| &self.text[range])
    }

    /// The text of one entry, as far as it stands alone, with the functions it calls behind it.
    pub fn entry_text(&self, entry: &Function<'_>) -> String {
        let mut text = String::new();
        for function in lint::reachable(self, entry) {
            let end = function.body.as_ref().map_or(function.head.end, |body| body.end);
            text.push_str(&self.text[function.head.start..end]);
            text.push_str("\n\n");
        }
        text
    }
}

/// A symbol as a Rust path; symbols that are none stay as they are.
pub fn demangle(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

/// Lines with the offset of their first byte, without line ends.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    text.split_inclusive('\n').map(move |line| {
        let start = offset;
        offset += line.len();
        (start, line.trim_end())
    })
}

fn find_version(text: &str) -> Result<((u32, u32), Range<usize>), PtxError> {
    const DIRECTIVE: &str = ".version ";
    let missing = PtxError::NotPtx { directive: ".version" };
    let Some((start, line)) = lines(text).find(|(_, line)| line.starts_with(DIRECTIVE)) else {
        return Err(missing);
    };
    let number = line[DIRECTIVE.len()..].trim();
    let parsed =
        number.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let at = start + line.len() - number.len();
    parsed.map(|version| (version, at..at + number.len())).ok_or(missing)
}

fn parse_annotation(comment: &str) -> Result<Annotation, PtxError> {
    let bad = |reason: String| PtxError::BadAnnotation { comment: comment.to_owned(), reason };
    let (mut kernel, mut bounds, mut tensor_map) = (String::new(), Bounds::default(), None);
    for word in comment.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| bad(format!("`{word}` is no key=value")))?;
        let number = || value.parse::<u32>().map_err(|_| bad(format!("`{value}` is no number")));
        match key {
            "kernel" => kernel = value.to_owned(),
            "max_threads" => bounds.max_threads = number()?,
            "min_blocks" => bounds.min_blocks = number()?,
            "exact" => bounds.exact = number()? != 0,
            "tensor_map" => tensor_map = Some(number()? as usize),
            _ => return Err(bad(format!("unknown key `{key}`"))),
        }
    }
    if kernel.is_empty() {
        return Err(bad("no kernel=NAME".to_owned()));
    }
    if bounds.max_threads == 0 && (bounds.min_blocks > 0 || bounds.exact) {
        return Err(bad("min_blocks and exact need max_threads".to_owned()));
    }
    Ok(Annotation { kernel, bounds, tensor_map })
}

fn split_functions(text: &str) -> Result<Vec<Function<'_>>, PtxError> {
    let mut functions = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let line = line_at(text, at);
        if let Some((name, is_entry)) = function_name(line) {
            let function = read_function(text, at, name, is_entry)?;
            at = function.body.as_ref().map_or(function.head.end, |body| body.end);
            functions.push(function);
        } else {
            at += line.len() + 1;
        }
    }
    Ok(functions)
}

/// The line that starts at an offset, without its line end.
fn line_at(text: &str, at: usize) -> &str {
    let rest = &text[at..];
    &rest[..rest.find('\n').unwrap_or(rest.len())]
}

/// Name of the function whose head starts in this line, and whether it is an entry.
fn function_name(line: &str) -> Option<(&str, bool)> {
    let mut rest = line;
    for linkage in [".visible ", ".weak ", ".extern ", ".common "] {
        rest = rest.strip_prefix(linkage).unwrap_or(rest);
    }
    let (is_entry, rest) = match rest.strip_prefix(".entry") {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix(".func")?),
    };
    let mut rest = rest.trim_start();
    if rest.starts_with('(') {
        rest = rest[rest.find(')')? + 1..].trim_start(); // the return value
    }
    let end = rest.find(|c: char| c == '(' || c == ';' || c.is_whitespace()).unwrap_or(rest.len());
    (end > 0).then(|| (&rest[..end], is_entry))
}

fn read_function<'a>(
    text: &'a str,
    start: usize,
    name: &'a str,
    is_entry: bool,
) -> Result<Function<'a>, PtxError> {
    let unbalanced = || PtxError::Unbalanced { function: demangle(name) };
    let mut at = start;
    while at < text.len() {
        let line = line_at(text, at);
        if line.starts_with('{') {
            let end = at + body_len(&text[at..]).ok_or_else(unbalanced)?;
            return Ok(Function { name, is_entry, head: start..at, body: Some(at..end) });
        }
        if line.trim_end().ends_with(';') {
            return Ok(Function { name, is_entry, head: start..at + line.len(), body: None });
        }
        at += line.len() + 1;
    }
    Err(unbalanced())
}

/// Length of the block that starts at the first byte. Inline assembly may hold braces of its own.
fn body_len(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (start, line) in lines(text) {
        let code = line.split("//").next().unwrap_or_default();
        for (column, byte) in code.bytes().enumerate() {
            match byte {
                b'{' => depth += 1,
                b'}' => depth = depth.checked_sub(1)?,
                _ => continue,
            }
            if depth == 0 {
                return Some(start + column + 1);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
