//! Adds to the PTX what rustc cannot express: the module's name, launch bounds as directives, the alignment
//! of tensor maps, and the PTX version that the inline assembly needs.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use super::{Annotation, Bounds, Function, Module, PtxError, count, lint, needs};
use crate::arch::Arch;
use crate::toolchain::SHARED_OBJECT;

/// The functions of `cuda_std::rt` that compiled code calls by name.
const RUNTIME: &[&str] = &["memcmp", "bcmp"];

/// The first line of every finished module, which the host reads to know what it holds.
pub fn header(family: &str, arch: Arch) -> String {
    format!("// ironwarp family={family} arch={arch}")
}

/// Turns the compiler's output into the module that is shipped.
///
/// # Errors
/// When the text is no PTX, an annotation names no entry or a parameter that is no tensor map, an undefined
/// function is called, an instruction needs another architecture, or a shared variable is used by the
/// address of its static.
pub fn finish(text: &str, family: &str, arch: Arch) -> Result<String, PtxError> {
    let text = &*shared_object_at_zero(text);
    let module = Module::parse(text)?;
    lint::check_resolved(&module)?;
    lint::check_shared_statics(text)?;
    needs::check(&module, arch)?;
    let mut edits = vec![version_edit(&module)];
    edits.extend(uncalled(&module).into_iter().map(|range| (range, String::new())));
    edits.extend(unused_dynamic_memory(&module).into_iter().map(|range| (range, String::new())));
    for annotation in &module.annotations {
        let entry = module
            .entries()
            .find(|entry| entry.name == annotation.kernel)
            .ok_or_else(|| no_such_kernel(&module, annotation))?;
        edits.push((entry.head.end..entry.head.end, directives(&module, entry, &annotation.bounds)));
        if let Some(index) = annotation.tensor_map {
            edits.push(tensor_map_edit(&module, entry, index)?);
        }
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut finished = header(family, arch);
    finished.push('\n');
    let mut copied = 0;
    for (range, replacement) in edits {
        finished.push_str(&text[copied..range.start]);
        finished.push_str(&replacement);
        copied = range.end;
    }
    finished.push_str(&text[copied..]);
    Ok(finished)
}

/// Puts the compiler's object in shared memory at address 0, if the device library alone uses it.
///
/// The library's shared variables are at an offset from that object, which it computes in `asm!`. With 0
/// there the assembler sees plain addresses of variables.
fn shared_object_at_zero(text: &str) -> Cow<'_, str> {
    if !text.contains(&format!("mov.b64 object, {SHARED_OBJECT};")) {
        return text.into();
    }
    let is_declaration = |line: &&str| line.starts_with(".extern .shared ") && line.contains(SHARED_OBJECT);
    let kept: String = text.split_inclusive('\n').filter(|line| !is_declaration(line)).collect();
    let at_zero = kept.replace(&format!(", {SHARED_OBJECT};"), ", 0;");
    // Another form than a move would need a name.
    if at_zero.contains(SHARED_OBJECT) { text.into() } else { at_zero.into() }
}

/// Functions of the device library's runtime that no other part of the module calls: the library defines them
/// for code that may call them, and the compiler keeps them all.
fn uncalled(module: &Module<'_>) -> Vec<Range<usize>> {
    let is_runtime = |function: &&Function<'_>| RUNTIME.contains(&function.name);
    let (mut left, mut kept): (Vec<_>, Vec<_>) = module.functions.iter().partition(is_runtime);
    while !left.is_empty() && !kept.is_empty() {
        let called: BTreeSet<&str> =
            kept.iter().flat_map(|function| lint::callees(module.body(function))).collect();
        (kept, left) = left.into_iter().partition(|function| called.contains(function.name));
    }
    // The compiler's comment in front goes too.
    let whole = |function: &Function<'_>| {
        let comment = format!("\t// .globl\t{}", function.name);
        let before = module.text[..function.head.start].trim_end_matches('\n');
        let start = before.strip_suffix(&comment).map_or(function.head.start, str::len);
        start..function.body.as_ref().unwrap_or(&function.head).end
    };
    left.into_iter().map(whole).collect()
}

/// The device library's declarations of dynamic shared memory, where no function uses them. ptxas would
/// round the static shared memory of every kernel up to their alignment.
fn unused_dynamic_memory(module: &Module<'_>) -> Vec<Range<usize>> {
    let lines = module.text.split_inclusive('\n').scan(0, |end, line| {
        *end += line.len();
        Some((*end - line.len()..*end, line))
    });
    let is_unused = |line: &str| {
        let name = line
            .strip_prefix(".extern .shared ")
            .and_then(|rest| rest.split_once(" .b8 ")?.1.split_once("[];"));
        name.is_some_and(|(name, _)| {
            !module.functions.iter().any(|function| lint::names(module.body(function), name))
        })
    };
    lines.filter(|(_, line)| is_unused(line)).map(|(range, _)| range).collect()
}

fn no_such_kernel(module: &Module<'_>, annotation: &Annotation) -> PtxError {
    let entries: Vec<&str> = module.entries().map(|entry| entry.name).collect();
    PtxError::NoSuchKernel { kernel: annotation.kernel.clone(), entries: entries.join(", ") }
}

/// `.maxntid` lets the host launch fewer threads; `.reqntid` is a promise that lets ptxas honour
/// `setmaxnreg`.
fn directives(module: &Module<'_>, entry: &Function<'_>, bounds: &Bounds) -> String {
    if bounds.max_threads == 0 {
        return String::new();
    }
    let exact = bounds.exact || module.body(entry).contains("setmaxnreg");
    let mut text = format!(".{} {}, 1, 1\n", if exact { "reqntid" } else { "maxntid" }, bounds.max_threads);
    if bounds.min_blocks > 0 {
        text.push_str(&format!(".minnctapersm {}\n", bounds.min_blocks));
    }
    text
}

/// Bytes of a tensor map and their alignment, which the copy engine asks for and rustc cannot give a
/// parameter.
const TENSOR_MAP: (usize, usize) = (128, 64);

/// Replaces the alignment of a parameter.
fn tensor_map_edit(
    module: &Module<'_>,
    entry: &Function<'_>,
    index: usize,
) -> Result<(Range<usize>, String), PtxError> {
    const ALIGN: &str = ".align ";
    let (bytes, align) = TENSOR_MAP;
    let head = &module.text[entry.head.clone()];
    let declaration = format!(" .b8 {}_param_{index}[{bytes}]", entry.name);
    let found = head.find(&declaration).and_then(|end| {
        let start = head[..end].rfind(ALIGN)? + ALIGN.len();
        head[start..end].bytes().all(|byte| byte.is_ascii_digit()).then_some(start..end)
    });
    let Range { start, end } =
        found.ok_or_else(|| PtxError::NoTensorMap { kernel: entry.name.to_owned(), index })?;
    Ok((entry.head.start + start..entry.head.start + end, align.to_string()))
}

fn version_edit(module: &Module<'_>) -> (Range<usize>, String) {
    let needed = module
        .functions
        .iter()
        .flat_map(|function| count::opcodes(module.body(function)))
        .filter_map(needed_version);
    let (major, minor) = needed.fold(module.version, Ord::max);
    (module.version_at.clone(), format!("{major}.{minor}"))
}

/// An instruction that needs a later PTX version than the one LLVM picks for the architecture.
/// Inline assembly is opaque to LLVM, so its needs are found here.
struct Feature {
    starts_with: &'static str,
    contains: &'static str,
    version: (u32, u32),
}

const fn feature(starts_with: &'static str, contains: &'static str, version: (u32, u32)) -> Feature {
    Feature { starts_with, contains, version }
}

/// "PTX ISA Notes" of each instruction's section in the PTX ISA.
const FEATURES: &[Feature] = &[
    feature("ldmatrix", "", (6, 5)),
    feature("mma", "m16n8k8", (6, 5)),
    feature("tanh.approx", "", (7, 0)),
    feature("ex2.approx", ".f16", (7, 0)),
    feature("", ".L2::cache_hint", (7, 4)),
    feature("", ".L1::no_allocate", (7, 4)),
    feature("", ".L1::evict_", (7, 4)),
    feature("", ".L2::64B", (7, 4)),
    feature("", ".L2::128B", (7, 4)),
    feature("", ".L2::256B", (7, 4)),
    feature("createpolicy", "", (7, 4)),
    feature("applypriority", "", (7, 4)),
    feature("discard", "", (7, 4)),
    feature("bmsk", "", (7, 6)),
    feature("szext", "", (7, 6)),
    feature("", ".shared::c", (7, 8)),
    feature("", ".cluster", (7, 8)),
    feature("stmatrix", "", (7, 8)),
    feature("movmatrix", "", (7, 8)),
    feature("mapa", "", (7, 8)),
    feature("getctarank", "", (7, 8)),
    feature("griddepcontrol", "", (7, 8)),
    feature("cvta.param", "", (7, 7)),
    feature("mbarrier.try_wait", "", (7, 8)),
    feature("mbarrier", ".cluster", (8, 0)),
    feature("cvt", ".f32.bf16", (7, 1)),
    feature("cvt", ".e4m3x2", (8, 1)),
    feature("cvt", ".e5m2x2", (8, 1)),
    feature("tanh.approx.bf16", "", (7, 8)),
    feature("ex2.approx.ftz.bf16", "", (7, 8)),
    feature("add", ".bf16", (7, 8)),
    feature("sub", ".bf16", (7, 8)),
    feature("mul", ".bf16", (7, 8)),
    feature("setmaxnreg", "", (8, 0)),
    feature("elect.sync", "", (8, 0)),
    feature("wgmma", "", (8, 0)),
    feature("cp.async.bulk", "", (8, 0)),
    feature("cp.reduce.async.bulk", "", (8, 0)),
    feature("prefetch.tensormap", "", (8, 0)),
    feature("mbarrier", "expect_tx", (8, 0)),
    feature("fence.mbarrier_init", "", (8, 0)),
    feature("fence.proxy.async", "", (8, 0)),
    feature("st.async", "", (8, 1)),
    feature("red.async", "", (8, 1)),
    feature("multimem", "", (8, 1)),
    feature("atom", ".v2", (8, 1)),
    feature("atom", ".v4", (8, 1)),
    feature("red", ".v2", (8, 1)),
    feature("red", ".v4", (8, 1)),
    feature("ld", ".b128", (8, 3)),
    feature("st", ".b128", (8, 3)),
    feature("tensormap.replace", "", (8, 3)),
    feature("fence.proxy.tensormap", "", (8, 3)),
    feature("mma", ".e4m3", (8, 4)),
    feature("mma", ".e5m2", (8, 4)),
    feature("cp.async.bulk", ".shared::cta.global", (8, 6)),
    feature("cvt", ".e2m1x2", (8, 6)),
    feature("cvt", ".e2m3x2", (8, 6)),
    feature("cvt", ".e3m2x2", (8, 6)),
    feature("cvt", ".ue8m0x2", (8, 6)),
    feature("clusterlaunchcontrol", "", (8, 6)),
    feature("tcgen05", "", (8, 6)),
];

fn needed_version(opcode: &str) -> Option<(u32, u32)> {
    let needs =
        |feature: &&Feature| opcode.starts_with(feature.starts_with) && opcode.contains(feature.contains);
    FEATURES.iter().filter(needs).map(|feature| feature.version).max()
}
