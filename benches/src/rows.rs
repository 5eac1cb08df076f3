//! Rows of results: statistics, the table, the CSV.

use std::fmt::Write;

/// What one run of a kernel does, for its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// Bytes read and written.
    Bytes(u64),
    /// Floating-point operations.
    Flops(u64),
}

impl Work {
    /// As a number, and its unit in the CSV.
    fn amount(self) -> (u64, &'static str) {
        match self {
            Work::Bytes(bytes) => (bytes, "B"),
            Work::Flops(flops) => (flops, "flop"),
        }
    }

    /// GB/s or TFLOP/s for a run of that length.
    pub fn rate(self, milliseconds: f64) -> f64 {
        match self {
            Work::Bytes(bytes) => bytes as f64 / milliseconds / 1e6,
            Work::Flops(flops) => flops as f64 / milliseconds / 1e9,
        }
    }

    fn rate_unit(self) -> &'static str {
        match self {
            Work::Bytes(_) => "GB/s",
            Work::Flops(_) => "TFLOP/s",
        }
    }
}

/// Measurements of one kernel at one shape.
#[derive(Debug, Clone)]
pub struct Row {
    /// Kernel.
    pub name: String,
    /// Shape, such as `4096x4096x4096`.
    pub shape: String,
    /// What one run does.
    pub work: Work,
    /// Runs and milliseconds of each sample.
    pub samples: Vec<(u64, f64)>,
}

impl Row {
    /// Milliseconds of one run, one value a sample, ascending.
    fn times(&self) -> Vec<f64> {
        let mut times: Vec<f64> = self.samples.iter().map(|(runs, ms)| ms / *runs as f64).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// Milliseconds of one run in the `part`-quantile; NaN without samples.
    pub fn quantile(&self, part: f64) -> f64 {
        let times = self.times();
        let place = (times.len().saturating_sub(1) as f64 * part).round() as usize;
        times.get(place).copied().unwrap_or(f64::NAN)
    }

    /// Median rate.
    pub fn rate(&self) -> f64 {
        self.work.rate(self.quantile(0.5))
    }
}

/// The CSV of these rows. `program` tells ours from the peers'.
pub fn csv(program: &str, rows: &[Row]) -> String {
    let mut text = String::from("program,name,shape,sample,runs,milliseconds,work_per_run,unit\n");
    for row in rows {
        let (work, unit) = row.work.amount();
        for (sample, (runs, ms)) in row.samples.iter().enumerate() {
            let _ =
                writeln!(text, "{program},{},{},{sample},{runs},{ms:.6},{work},{unit}", row.name, row.shape);
        }
    }
    text
}

/// The table for people. Rates in bytes are also given as a share of the row `copy`, when there is one.
pub fn table(rows: &[Row]) -> String {
    let copy = rows.iter().find(|row| row.name == "copy").map(Row::rate);
    let mut text = format!(
        "{:<22} {:>22} {:>11} {:>11} {:>11} {:>16} {:>9} {:>8}\n",
        "kernel", "shape", "median ms", "p10", "p90", "rate", "of copy", "samples"
    );
    for row in rows {
        let share = match (row.work, copy) {
            (Work::Bytes(_), Some(copy)) => format!("{:.1} %", 100.0 * row.rate() / copy),
            _ => String::new(),
        };
        let _ = writeln!(
            text,
            "{:<22} {:>22} {:>11.4} {:>11.4} {:>11.4} {:>8.1} {:<7} {:>9} {:>8}",
            row.name,
            row.shape,
            row.quantile(0.5),
            row.quantile(0.1),
            row.quantile(0.9),
            row.rate(),
            row.work.rate_unit(),
            share,
            row.samples.len(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Row, Work, csv, table};

    fn row(name: &str, work: Work, ms: &[f64]) -> Row {
        Row { name: name.into(), shape: "8".into(), work, samples: ms.iter().map(|ms| (2, *ms)).collect() }
    }

    #[test]
    fn medians_and_rates() {
        let row = row("copy", Work::Bytes(4_000_000_000), &[6.0, 2.0, 4.0]);
        assert_eq!((row.quantile(0.0), row.quantile(0.5), row.quantile(1.0)), (1.0, 2.0, 3.0));
        assert_eq!(row.rate(), 2000.0);
        assert_eq!(Work::Flops(2_000_000_000_000).rate(1000.0), 2.0);
    }

    #[test]
    fn shares_are_of_the_copy() {
        let rows = [
            row("copy", Work::Bytes(100), &[2.0]),
            row("x", Work::Bytes(50), &[2.0]),
            row("y", Work::Flops(1), &[2.0]),
        ];
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[2].contains("50.0 %"), "{table}");
        assert!(!lines[3].contains('%'), "{table}");
    }

    #[test]
    fn the_csv_has_every_sample() {
        let text = csv("ironwarp", &[row("x", Work::Flops(7), &[1.0, 2.5])]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1..], ["ironwarp,x,8,0,2,1.000000,7,flop", "ironwarp,x,8,1,2,2.500000,7,flop"]);
    }
}
