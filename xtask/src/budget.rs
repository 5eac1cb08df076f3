//! The resources that every kernel may use on the GPU: `kernels-gpu/budget.toml`, with a line for each kernel
//! and architecture.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use cuda_builder::Arch;
use cuda_builder::ptx::{Lint, demangle};
use cuda_builder::ptxas::{Report, Usage};
use toml::{Table, Value};

use crate::error::Error;
use crate::workspace;

const HEAD: &str = "\
# What every kernel may use on the GPU, as ptxas counts it: `KERNEL.ARCH`, by family.
#
#   registers  most registers a thread          shared  most bytes of static shared memory a block
#   spills     most bytes spilled (0)           stack   most bytes of local memory a thread (0)
#   panics     true: the code may panic (false)
#   reason     why spills, stack or panics are right here; wanted with any of them
#
# `cargo xtask build-kernels` fails on what is over its line or has none; `--update-budget` rewrites the figures.
";

/// One line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    pub registers: u32,
    pub shared: u32,
    pub spills: u32,
    pub stack: u32,
    pub panics: bool,
    pub reason: String,
}

/// The whole file: family, then kernel, then architecture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    /// Release of the assembler that the figures come from.
    pub ptxas: String,
    pub lines: BTreeMap<String, BTreeMap<(String, Arch), Line>>,
}

/// The measured resources of one module.
pub struct Measured {
    pub family: String,
    pub arch: Arch,
    /// `None` without an assembler.
    pub report: Option<Report>,
    pub lints: Vec<Lint>,
}

impl Budget {
    /// The file in the tree.
    pub fn path() -> PathBuf {
        workspace::root().join("kernels-gpu/budget.toml")
    }

    /// Reads the file in the tree; an absent one is empty.
    pub fn read() -> Result<Self, Error> {
        let path = Self::path();
        if !path.is_file() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        Self::parse(&path, &text)
    }

    /// Writes the file in the tree.
    pub fn write(&self) -> Result<(), Error> {
        let path = Self::path();
        fs::write(&path, self.text()).map_err(Error::io("write", &path))
    }

    /// All figures will be of one release of the assembler; another than before wants `everything` measured.
    pub fn set_release(&mut self, release: String, everything: bool) -> Result<(), Error> {
        if !everything && !self.lines.is_empty() && release != self.ptxas {
            return Err(Error::Usage(format!(
                "the budget's figures are of ptxas {}, and this one is {release}: use --update-budget without --family and --arch, \
                 so that all are measured anew",
                self.ptxas
            )));
        }
        self.ptxas = release;
        Ok(())
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let bad = |reason: String| Error::BadFile { path: path.to_owned(), reason };
        let table: Table = text.parse().map_err(|error: toml::de::Error| bad(error.to_string()))?;
        let mut budget = Self::default();
        for (family, value) in &table {
            if family == "ptxas" {
                budget.ptxas = value.as_str().ok_or_else(|| bad("`ptxas` is no text".to_owned()))?.to_owned();
                continue;
            }
            let kernels = value.as_table().ok_or_else(|| bad(format!("[{family}] is no table")))?;
            let lines = budget.lines.entry(family.clone()).or_default();
            for (kernel, archs) in kernels {
                let archs = archs
                    .as_table()
                    .ok_or_else(|| bad(format!("{family}.{kernel}: wanted `{kernel}.sm_80 = {{ .. }}`")))?;
                for (arch, line) in archs {
                    let at = format!("{family}.{kernel}.{arch}");
                    let parsed = arch
                        .parse()
                        .map_err(|error: cuda_builder::ParseArchError| bad(format!("{at}: {error}")))?;
                    lines.insert(
                        (kernel.clone(), parsed),
                        parse_line(line).map_err(|reason| bad(format!("{at}: {reason}")))?,
                    );
                }
            }
        }
        Ok(budget)
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}\nptxas = \"{}\"\n", self.ptxas);
        for (family, lines) in self.lines.iter().filter(|(_, lines)| !lines.is_empty()) {
            let _ = writeln!(text, "\n[{family}]");
            for ((kernel, arch), line) in lines {
                let _ = writeln!(text, "{kernel}.{arch} = {{ {} }}", line_text(line));
            }
        }
        text
    }

    /// Puts what was measured into the file. Reasons stay; what is no longer there goes.
    pub fn update(&mut self, measured: &Measured) {
        let lines = self.lines.entry(measured.family.clone()).or_default();
        let old = std::mem::take(lines);
        *lines = old
            .iter()
            .filter(|((_, arch), _)| *arch != measured.arch)
            .map(|(key, line)| (key.clone(), line.clone()))
            .collect();
        for usage in entries(measured) {
            let key = (usage.name.clone(), measured.arch);
            let reason = old.get(&key).map(|line| line.reason.clone()).unwrap_or_default();
            let panics = lint_of(measured, &usage.name).is_some_and(|lint| !lint.panic_path.is_empty());
            let (registers, shared, spills, stack) =
                (usage.registers, usage.shared, usage.spills(), usage.stack);
            lines.insert(key, Line { registers, shared, spills, stack, panics, reason });
        }
    }

    /// Everything in a module that its lines do not allow, one sentence each.
    pub fn check(&self, measured: &Measured, ptxas: Option<&str>) -> Vec<String> {
        let none = BTreeMap::new();
        let lines = self.lines.get(&measured.family).unwrap_or(&none);
        let mut findings = Vec::new();
        let at = |kernel: &str| format!("{}.{kernel}.{}", measured.family, measured.arch);
        for lint in &measured.lints {
            let line = lines.get(&(lint.kernel.clone(), measured.arch));
            match line {
                None => findings.push(format!("{} has no line", at(&lint.kernel))),
                Some(line) => findings.extend(
                    check_line(line, lint, measured, self.ptxas == ptxas.unwrap_or_default())
                        .into_iter()
                        .map(|finding| format!("{} {finding}", at(&lint.kernel))),
                ),
            }
        }
        let gone = lines
            .keys()
            .filter(|(kernel, arch)| *arch == measured.arch && lint_of(measured, kernel).is_none());
        findings.extend(gone.map(|(kernel, _)| format!("{} has a line but is no kernel", at(kernel))));
        let report = measured.report.iter().flat_map(|report| &report.functions);
        let spilling = report.filter(|usage| !usage.is_entry && usage.spills() > 0);
        findings.extend(spilling.map(|usage| {
            format!(
                "{} (a function, not inlined) spills {} bytes",
                at(&demangle(&usage.name)),
                usage.spills()
            )
        }));
        findings.extend(
            measured
                .report
                .iter()
                .flat_map(|report| &report.warnings)
                .map(|warning| format!("{}.{}: {warning}", measured.family, measured.arch)),
        );
        findings
    }
}

fn check_line(line: &Line, lint: &Lint, measured: &Measured, same_ptxas: bool) -> Vec<String> {
    let mut findings = Vec::new();
    if !lint.panic_path.is_empty() && !line.panics {
        findings.push(format!("can panic: {}", lint.panic_path.join(" -> ")));
    }
    if line.reason.trim().is_empty() && (line.spills > 0 || line.stack > 0 || line.panics) {
        findings.push("allows spills, stack or panics without a reason".to_owned());
    }
    let Some(usage) =
        measured.report.iter().flat_map(|report| &report.functions).find(|usage| usage.name == lint.kernel)
    else {
        // Local memory in PTX is no finding: the assembler keeps most of such arrays in registers.
        return findings;
    };
    let mut limit = |what: &str, used: u32, allowed: u32| {
        if used > allowed {
            findings.push(format!("uses {used} {what}, {allowed} allowed"));
        }
    };
    // Releases of the assembler differ by a few registers, never in what is spilled by a sound kernel.
    if same_ptxas {
        limit("registers", usage.registers, line.registers);
    }
    limit("bytes of shared memory", usage.shared, line.shared);
    limit("bytes of spills", usage.spills(), line.spills);
    limit("bytes of stack", usage.stack, line.stack);
    findings
}

fn entries(measured: &Measured) -> impl Iterator<Item = &Usage> {
    measured.report.iter().flat_map(|report| &report.functions).filter(|usage| usage.is_entry)
}

fn lint_of<'a>(measured: &'a Measured, kernel: &str) -> Option<&'a Lint> {
    measured.lints.iter().find(|lint| lint.kernel == kernel)
}

fn parse_line(value: &Value) -> Result<Line, String> {
    let table = value.as_table().ok_or("wanted `{ registers = .., shared = .. }`")?;
    let mut line = Line::default();
    for (key, value) in table {
        let number = || {
            value
                .as_integer()
                .and_then(|number| u32::try_from(number).ok())
                .ok_or(format!("`{key}` is no count"))
        };
        match key.as_str() {
            "registers" => line.registers = number()?,
            "shared" => line.shared = number()?,
            "spills" => line.spills = number()?,
            "stack" => line.stack = number()?,
            "panics" => line.panics = value.as_bool().ok_or("`panics` is neither true nor false")?,
            "reason" => line.reason = value.as_str().ok_or("`reason` is no text")?.to_owned(),
            _ => return Err(format!("unknown key `{key}`")),
        }
    }
    Ok(line)
}

fn line_text(line: &Line) -> String {
    let mut parts = vec![format!("registers = {}", line.registers), format!("shared = {}", line.shared)];
    let optional = [("spills", line.spills), ("stack", line.stack)];
    parts.extend(
        optional.into_iter().filter(|(_, value)| *value > 0).map(|(key, value)| format!("{key} = {value}")),
    );
    if line.panics {
        parts.push("panics = true".to_owned());
    }
    if parts.len() > 2 || !line.reason.is_empty() {
        parts.push(format!("reason = {}", Value::String(line.reason.clone())));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SM_80: Arch = Arch::new(80);

    fn measured(registers: u32, spills: u32, panic: bool) -> Measured {
        let usage = Usage {
            name: "saxpy".into(),
            is_entry: true,
            registers,
            spill_stores: spills,
            ..Usage::default()
        };
        let panic_path =
            if panic { vec!["saxpy".to_owned(), "core::panicking::panic".to_owned()] } else { Vec::new() };
        Measured {
            family: "basic".into(),
            arch: SM_80,
            report: Some(Report { functions: vec![usage], warnings: Vec::new() }),
            lints: vec![Lint {
                kernel: "saxpy".into(),
                local_bytes: 0,
                panic_path,
                barriers: 0,
                shared_bytes: 0,
                dynamic_shared: false,
            }],
        }
    }

    fn parse(text: &str) -> Result<Budget, Error> {
        Budget::parse(Path::new("budget.toml"), text)
    }

    fn findings(line: &str, measured: &Measured) -> String {
        let budget = parse(&format!("ptxas = \"V1\"\n[basic]\n{line}")).unwrap();
        budget.check(measured, Some("V1")).join("\n")
    }

    #[test]
    fn some_figures_are_never_of_another_release_than_others() {
        let mut budget =
            parse("ptxas = \"V1\"\n[basic]\nsaxpy.sm_80 = { registers = 32, shared = 0 }").unwrap();
        let refused = budget.set_release("V2".into(), false).unwrap_err().to_string();
        assert!(
            refused.contains("V1") && refused.contains("V2") && refused.contains("--family"),
            "{refused}"
        );
        assert_eq!(budget.ptxas, "V1");
        budget.set_release("V1".into(), false).unwrap();
        budget.set_release("V2".into(), true).unwrap();
        Budget::default().set_release("V1".into(), false).unwrap();
        assert_eq!(budget.ptxas, "V2");
    }

    #[test]
    fn what_fits_passes() {
        assert_eq!(findings("saxpy.sm_80 = { registers = 32, shared = 0 }", &measured(32, 0, false)), "");
    }

    #[test]
    fn what_is_over_is_named() {
        let line = "saxpy.sm_80 = { registers = 32, shared = 0 }";
        assert_eq!(
            findings(line, &measured(33, 0, false)),
            "basic.saxpy.sm_80 uses 33 registers, 32 allowed"
        );
        assert!(findings(line, &measured(32, 8, false)).contains("8 bytes of spills, 0 allowed"));
        assert!(
            findings(line, &measured(32, 0, true)).contains("can panic: saxpy -> core::panicking::panic")
        );
        assert!(findings("", &measured(32, 0, false)).contains("saxpy.sm_80 has no line"));
        let stale =
            "saxpy.sm_80 = { registers = 32, shared = 0 }\nsaxpi.sm_80 = { registers = 1, shared = 0 }";
        assert!(findings(stale, &measured(32, 0, false)).contains("saxpi.sm_80 has a line but is no kernel"));
        let mut warned = measured(32, 0, false);
        warned.report.as_mut().unwrap().warnings.push("(C7510) wgmma is serialized".into());
        assert!(findings(line, &warned).contains("C7510"));
    }

    #[test]
    fn exceptions_need_a_reason() {
        let measured = measured(32, 8, true);
        let without = "saxpy.sm_80 = { registers = 32, shared = 0, spills = 8, panics = true }";
        assert_eq!(
            findings(without, &measured),
            "basic.saxpy.sm_80 allows spills, stack or panics without a reason"
        );
        let with = "saxpy.sm_80 = { registers = 32, shared = 0, spills = 8, panics = true, reason = \"outside of the loop\" }";
        assert_eq!(findings(with, &measured), "");
    }

    #[test]
    fn another_assembler_is_not_held_to_the_registers() {
        let budget = parse("ptxas = \"V1\"\n[basic]\nsaxpy.sm_80 = { registers = 32, shared = 0 }").unwrap();
        assert_eq!(budget.check(&measured(40, 0, false), Some("V2")), Vec::<String>::new());
        assert_eq!(budget.check(&measured(40, 8, false), Some("V2")).len(), 1);
    }

    #[test]
    fn without_an_assembler_panics_are_findings_and_local_memory_is_not() {
        let mut unassembled = measured(0, 0, true);
        unassembled.report = None;
        unassembled.lints[0].local_bytes = 48;
        let budget = parse("ptxas = \"V1\"\n[basic]\nsaxpy.sm_80 = { registers = 32, shared = 0 }").unwrap();
        assert_eq!(budget.check(&unassembled, None).len(), 1);
        unassembled.lints[0].panic_path.clear();
        assert_eq!(budget.check(&unassembled, None), Vec::<String>::new());
    }

    #[test]
    fn an_update_keeps_reasons_and_other_architectures() {
        let text = "ptxas = \"V1\"\n[basic]\ngone.sm_80 = { registers = 1, shared = 0 }\nsaxpy.sm_80 = { registers = 1, shared = 0, reason = \"r\" }\nsaxpy.sm_90a = { registers = 7, shared = 0 }\n";
        let mut budget = parse(text).unwrap();
        budget.update(&measured(32, 8, false));
        let written = budget.text();
        assert!(
            written.contains("saxpy.sm_80 = { registers = 32, shared = 0, spills = 8, reason = \"r\" }\n"),
            "{written}"
        );
        assert!(
            written.contains("saxpy.sm_90a = { registers = 7, shared = 0 }\n") && !written.contains("gone")
        );
        assert_eq!(parse(&written).unwrap(), budget, "what is written is read back");
        assert_eq!(budget.check(&measured(32, 8, false), Some("V1")), Vec::<String>::new());
    }

    #[test]
    fn broken_files_say_where() {
        for (text, part) in [
            ("basic = 1", "[basic] is no table"),
            ("[basic]\nsaxpy = 1", "wanted `saxpy.sm_80"),
            ("[basic]\nsaxpy.gpu = {}", "no GPU architecture"),
            ("[basic]\nsaxpy.sm_80 = { registers = -1 }", "`registers` is no count"),
            ("[basic]\nsaxpy.sm_80 = { regs = 1 }", "unknown key `regs`"),
            ("[basic", "budget.toml"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
