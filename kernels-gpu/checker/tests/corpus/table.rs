//! The checker and compute-sanitizer side by side, by the class of the bug.

use std::fmt::Write;

use crate::list::Kernel;
use crate::not_yet;
use crate::results::{Row, State, TOOLS};

/// Numbers of kernels with a property, by class.
struct Part {
    title: &'static str,
    columns: Vec<&'static str>,
    lines: Vec<(&'static str, Vec<usize>)>,
}

impl Part {
    fn new(title: &'static str, columns: Vec<&'static str>) -> Self {
        Self { title, columns, lines: Vec::new() }
    }

    /// Counts a kernel: a flag for each column.
    fn add(&mut self, class: &'static str, flags: &[bool]) {
        let known = self.lines.iter().position(|(name, _)| *name == class);
        let line = known.unwrap_or_else(|| {
            self.lines.push((class, vec![0; self.columns.len()]));
            self.lines.len() - 1
        });
        self.lines[line].1.iter_mut().zip(flags).for_each(|(number, flag)| *number += usize::from(*flag));
    }

    fn print(&self) -> String {
        let mut text = format!("{:<24}", self.title);
        self.columns.iter().for_each(|column| text += &format!("  {column}"));
        let sum = |column: usize| self.lines.iter().map(|(_, numbers)| numbers[column]).sum();
        let total = ("all", (0..self.columns.len()).map(sum).collect());
        for (class, numbers) in self.lines.iter().chain([&total]) {
            let _ = write!(text, "\n{class:<24}");
            for (number, column) in numbers.iter().zip(&self.columns) {
                let _ = write!(text, "  {number:>wide$}", wide = column.len());
            }
        }
        text + "\n"
    }
}

/// The reports of the tools on a kernel, without the run that has none.
fn reports(row: &Row) -> impl Iterator<Item = Option<&str>> {
    row[1..].iter().map(|finding| finding.report.as_deref())
}

/// The flags of the tools, and whether one of them is set.
fn flags(row: &Row) -> Vec<bool> {
    let mut flags: Vec<bool> = reports(row).map(|report| report.is_some()).collect();
    flags.push(flags.contains(&true));
    flags
}

/// The tables, and lists of the kernels that stand out.
pub fn table(kernels: &[Kernel], rows: &[Row]) -> String {
    let tools = || TOOLS[1..].iter().copied().chain(["any tool"]);
    let bug_columns =
        ["kernels", "ours"].into_iter().chain(tools()).chain(["both", "error or hang without a tool"]);
    let mut bugs = Part::new("bugs found", bug_columns.collect());
    let columns = ["kernels", "ours"].into_iter().chain(tools()).chain(["right on the GPU"]);
    let mut correct = Part::new("false alarms, near", columns.collect());
    let mut lists = Lists::default();
    for (kernel, row) in kernels.iter().zip(rows) {
        let (listed, plain) = (not_yet::holds(kernel.name), &row[0].state);
        let of_tools = flags(row);
        let any = of_tools.ends_with(&[true]);
        if kernel.is_right.is_some() {
            let right = [*plain == State::Ran];
            correct.add(kernel.class, &[&[true, listed], &of_tools[..], &right].concat());
        } else {
            let stops = [!listed && any, matches!(plain, State::Failed(_) | State::Hung | State::Died)];
            bugs.add(kernel.class, &[&[true, !listed], &of_tools[..], &stops].concat());
        }
        lists.add(kernel, row);
    }
    format!("{}\n{}\n{}", bugs.print(), correct.print(), lists.print())
}

/// Kernels with a remark each.
#[derive(Default)]
struct Lists {
    missed_by_ours: Vec<String>,
    false_alarms: Vec<String>,
    not_right: Vec<String>,
    refused: Vec<String>,
    not_run: Vec<String>,
}

impl Lists {
    fn add(&mut self, kernel: &Kernel, row: &Row) {
        let reports: Vec<String> = TOOLS[1..]
            .iter()
            .zip(reports(row))
            .filter_map(|(tool, report)| Some(format!("{tool}: {}", report?)))
            .collect();
        let name = kernel.name;
        let reported = format!("{name}: {}", reports.join("; "));
        let is_correct = kernel.is_right.is_some();
        match (reports.is_empty(), is_correct) {
            (false, true) => self.false_alarms.push(reported),
            (false, false) if not_yet::holds(name) => self.missed_by_ours.push(reported),
            _ => {}
        }
        let plain = &row[0].state;
        match plain {
            State::Refused(_) => self.refused.push(format!("{name}: {plain}")),
            _ if is_correct && *plain != State::Ran => self.not_right.push(format!("{name}: {plain}")),
            _ => {}
        }
        let missing = |(tool, finding): (&&str, &crate::results::Finding)| {
            let is_missing = matches!(finding.state, State::Missing | State::Skipped | State::Died);
            is_missing.then(|| format!("{tool}: {}", finding.state))
        };
        let missing: Vec<String> = TOOLS.iter().zip(row).filter_map(missing).collect();
        if !missing.is_empty() {
            self.not_run.push(format!("{name}: {}", missing.join("; ")));
        }
    }

    fn print(&self) -> String {
        let parts = [
            ("found by a tool and not by ours", &self.missed_by_ours),
            ("false alarms of the tools", &self.false_alarms),
            ("correct kernels without right results on the GPU", &self.not_right),
            ("not compiled or not launched", &self.refused),
            ("no launch, or the process ended in it", &self.not_run),
        ];
        let mut text = String::new();
        for (title, kernels) in parts {
            let _ = writeln!(text, "{title}: {}", kernels.len());
            kernels.iter().for_each(|kernel| text += &format!("  {kernel}\n"));
        }
        text
    }
}
