//! Counts what was found, by class, and prints it.

use std::io::Write;

/// How often a kernel was as expected.
#[derive(Clone, Copy)]
pub enum Tally {
    Always,
    Sometimes,
    Never,
}

impl Tally {
    pub fn of(times: usize, seeds: usize) -> Self {
        match times {
            0 => Self::Never,
            _ if times == seeds => Self::Always,
            _ => Self::Sometimes,
        }
    }
}

/// Numbers by class, in the order of their first kernels.
#[derive(Default)]
pub struct Report {
    lines: Vec<(&'static str, [usize; 3])>,
}

impl Report {
    pub fn add(&mut self, class: &'static str, tally: Tally) {
        let known = self.lines.iter().position(|(name, _)| *name == class);
        let line = known.unwrap_or_else(|| {
            self.lines.push((class, [0; 3]));
            self.lines.len() - 1
        });
        self.lines[line].1[tally as usize] += 1;
    }

    /// Prints to the standard output itself: the test harness shows that of tests that pass, too.
    pub fn print(&self, title: &str, columns: [&str; 3]) {
        let [always, sometimes, never] = columns;
        let mut text = format!("\n{title:<24} kernels  {always}  {sometimes}  {never}\n");
        let sum = |column: usize| self.lines.iter().map(|(_, numbers)| numbers[column]).sum();
        let total = ("all", [sum(0), sum(1), sum(2)]);
        for (class, numbers) in self.lines.iter().chain([&total]) {
            let [a, b, c] = numbers;
            let (wide_a, wide_b, wide_c) = (always.len(), sometimes.len(), never.len());
            let all = a + b + c;
            text += &format!("{class:<24} {all:>7}  {a:>wide_a$}  {b:>wide_b$}  {c:>wide_c$}\n");
        }
        std::io::stdout().write_all(text.as_bytes()).expect("standard output");
    }
}
