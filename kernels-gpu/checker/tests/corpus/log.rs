//! Reads what this program and a tool print in turn.

use crate::results::{Finding, State};

/// The lines before and after each kernel, with its index and name, and the last one.
pub const BEGIN: &str = "corpus: begin";
pub const END: &str = "corpus: end";
pub const DONE: &str = "corpus: done";

/// How every line of compute-sanitizer begins.
const MARK: &str = "========= ";

/// Adds what a log says to the findings, which are in the order of the kernels' names.
pub fn read(text: &str, names: &[&str], findings: &mut [Finding]) {
    let mut current = None;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some((index, _)) = marker(line, BEGIN) {
            current = Some(index);
            set(findings, index, State::Died);
        } else if let Some((index, state)) = marker(line, END) {
            set(findings, index, State::parse(state).unwrap_or(State::Died));
        } else if let Some(head) = line.strip_prefix(MARK).filter(|head| is_head(head)) {
            let mut report = vec![head];
            while let Some(more) = lines.peek().and_then(|line| line.strip_prefix(MARK)) {
                if is_head(more) {
                    break;
                }
                report.push(more);
                lines.next();
            }
            if let Some(kernel) = subject(&report, names, current).and_then(|index| findings.get_mut(index)) {
                kernel.report.get_or_insert_with(|| head.trim().to_owned());
            }
        }
    }
}

/// Index and rest of a marker line.
fn marker<'l>(line: &'l str, which: &str) -> Option<(usize, &'l str)> {
    let rest = line.strip_prefix(which)?.trim_start();
    let (index, rest) = rest.split_once(' ')?;
    let state = rest.split_once(' ').map_or("", |(_name, state)| state);
    Some((index.parse().ok()?, state))
}

/// The index of the last kernel that a log begins, and whether the log is one of a run to the end.
pub fn progress(text: &str) -> (Option<usize>, bool) {
    let last = text.lines().filter_map(|line| marker(line, BEGIN)).next_back();
    (last.map(|(index, _)| index), text.lines().any(|line| line == DONE))
}

/// Whether a kernel is at work: one has begun and not ended.
pub fn is_at_work(text: &str) -> bool {
    let markers = [BEGIN, END, DONE];
    let last = text.lines().rfind(|line| markers.iter().any(|marker| line.starts_with(marker)));
    last.is_none_or(|line| line.starts_with(BEGIN))
}

fn set(findings: &mut [Finding], index: usize, state: State) {
    if let Some(finding) = findings.get_mut(index) {
        finding.state = state;
    }
}

/// Whether a tool's line begins a report: the others are indented.
fn is_head(line: &str) -> bool {
    line.starts_with(|c: char| !c.is_whitespace())
}

/// The kernel that a report is about: the one that it names, else the one that ran. `None`: it is not about
/// a kernel, but about a call of the driver, or it is a summary.
fn subject(report: &[&str], names: &[&str], current: Option<usize>) -> Option<usize> {
    let named = report.iter().filter(|line| !line.contains("Host Frame")).find_map(|line| {
        let places = line.match_indices("at ").chain(line.match_indices("Device Frame:"));
        let mut words = places.map(|(start, place)| first_word(&line[start + place.len()..]));
        words.find_map(|word| names.iter().position(|name| *name == word))
    });
    let is_of_a_thread = report.iter().any(|line| line.contains("in block ("));
    named.or(current.filter(|_| is_of_a_thread))
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}
