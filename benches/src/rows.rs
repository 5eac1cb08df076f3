//! Rows of results: statistics, the table and the CSV.

use std::fmt::Write;

/// The work of one run of a kernel, for its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// Bytes read and written.
    Bytes(u64),
    /// Floating-point operations.
    Flops(u64),
    /// Calls of a function whose own cost is measured.
    Calls(u64),
}

impl Work {
    /// The amount, and its unit in the CSV.
    fn amount(self) -> (u64, &'static str) {
        match self {
            Work::Bytes(bytes) => (bytes, "B"),
            Work::Flops(flops) => (flops, "flop"),
            Work::Calls(calls) => (calls, "call"),
        }
    }

    /// GB/s or TFLOP/s for a run of that length, or nanoseconds per call.
    pub fn rate(self, milliseconds: f64) -> f64 {
        match self {
            Work::Bytes(bytes) => bytes as f64 / milliseconds / 1e6,
            Work::Flops(flops) => flops as f64 / milliseconds / 1e9,
            Work::Calls(calls) => 1e6 * milliseconds / calls as f64,
        }
    }

    fn rate_unit(self) -> &'static str {
        match self {
            Work::Bytes(_) => "GB/s",
            Work::Flops(_) => "TFLOP/s",
            Work::Calls(_) => "ns",
        }
    }
}

/// The row to which others are compared. It is measured whatever `--only` selects.
pub const COPY: &str = "copy";

/// The program name of our rows.
pub const OURS: &str = "ironwarp";

/// Measurements of one kernel at one shape.
#[derive(Debug, Clone)]
pub struct Row {
    /// [`OURS`], or the peer's name.
    pub program: String,
    /// Kernel.
    pub name: String,
    /// Shape, such as `4096x4096x4096`.
    pub shape: String,
    /// The work of one run.
    pub work: Work,
    /// Runs and milliseconds of each sample.
    pub samples: Vec<(u64, f64)>,
}

impl Row {
    /// Milliseconds per run, one value per sample, ascending.
    fn times(&self) -> Vec<f64> {
        let mut times: Vec<f64> = self.samples.iter().map(|(runs, ms)| ms / *runs as f64).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    /// The `part`-quantile of the milliseconds per run. NaN without samples.
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

/// The CSV of these rows.
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from("program,name,shape,sample,runs,milliseconds,work_per_run,unit\n");
    for Row { program, name, shape, work, samples } in rows {
        debug_assert!(!shape.contains([',', '\n']), "{shape} would be more than a column");
        let (work, unit) = work.amount();
        for (sample, (runs, ms)) in samples.iter().enumerate() {
            let _ = writeln!(text, "{program},{name},{shape},{sample},{runs},{ms:.6},{work},{unit}");
        }
    }
    text
}

/// The speed-up of one of our rows over its best peer, by medians. `None` without peers.
fn against_peers(ours: &Row, rows: &[Row]) -> Option<f64> {
    let peers =
        rows.iter().filter(|row| row.program != OURS && row.name == ours.name && row.shape == ours.shape);
    let best = peers.map(|peer| peer.quantile(0.5)).min_by(f64::total_cmp)?;
    Some(best / ours.quantile(0.5))
}

/// The table for people. Rates in bytes are also given as a share of the row `copy`, if it exists. Our rows
/// are compared with the best of their peers.
pub fn table(rows: &[Row]) -> String {
    head() + &lines(rows)
}

/// The table's first line.
pub fn head() -> String {
    format!(
        "{:<26} {:<10} {:>22} {:>11} {:>11} {:>11} {:>16} {:>9} {:>9} {:>8}\n",
        "kernel", "program", "shape", "median ms", "p10", "p90", "rate", "of copy", "of peers", "samples"
    )
}

/// The table's lines of these rows, which are compared with each other alone.
pub fn lines(rows: &[Row]) -> String {
    let copy = rows.iter().find(|row| row.name == COPY && row.program == OURS).map(Row::rate);
    let mut text = String::new();
    for row in rows {
        let share = match (row.work, copy) {
            (Work::Bytes(_), Some(copy)) => format!("{:.1} %", 100.0 * row.rate() / copy),
            _ => String::new(),
        };
        let ours = Some(row).filter(|row| row.program == OURS);
        let ratio =
            ours.and_then(|row| against_peers(row, rows)).map_or(String::new(), |r| format!("{r:.3}"));
        let _ = writeln!(
            text,
            "{:<26} {:<10} {:>22} {:>11.4} {:>11.4} {:>11.4} {:>8.1} {:<7} {:>9} {:>9} {:>8}",
            row.name,
            row.program,
            row.shape,
            row.quantile(0.5),
            row.quantile(0.1),
            row.quantile(0.9),
            row.rate(),
            row.work.rate_unit(),
            share,
            ratio,
            row.samples.len(),
        );
    }
    text
}

/// For each kernel with peers: the number of rows, the geometric mean of its speed relative to the best peer,
/// and its worst row.
pub fn summary(rows: &[Row]) -> String {
    let mut kernels: Vec<(&str, Vec<(f64, &str)>)> = Vec::new();
    for row in rows.iter().filter(|row| row.program == OURS) {
        let Some(ratio) = against_peers(row, rows) else { continue };
        match kernels.iter_mut().find(|(name, _)| *name == row.name) {
            Some((_, ratios)) => ratios.push((ratio, &row.shape)),
            None => kernels.push((&row.name, vec![(ratio, &row.shape)])),
        }
    }
    let mut text = String::new();
    for (name, ratios) in kernels {
        let mean = (ratios.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        if let Some((worst, shape)) = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
            let count = ratios.len();
            let _ = writeln!(
                text,
                "{name}: {mean:.3} of the best peer (geometric mean of {count}), lowest {worst:.3} at {shape}"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{OURS, Row, Work, csv, head, lines, summary, table};

    fn row(name: &str, work: Work, ms: &[f64]) -> Row {
        let samples = ms.iter().map(|ms| (2, *ms)).collect();
        Row { program: OURS.into(), name: name.into(), shape: "8".into(), work, samples }
    }

    #[test]
    fn medians_and_rates() {
        let row = row("copy", Work::Bytes(4_000_000_000), &[6.0, 2.0, 4.0]);
        assert_eq!((row.quantile(0.0), row.quantile(0.5), row.quantile(1.0)), (1.0, 2.0, 3.0));
        assert_eq!(row.rate(), 2000.0);
        assert_eq!(Work::Flops(2_000_000_000_000).rate(1000.0), 2.0);
        assert_eq!(Work::Calls(4).rate(0.002), 500.0);
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
        let text = csv(&[row("x", Work::Flops(7), &[1.0, 2.5])]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1..], ["ironwarp,x,8,0,2,1.000000,7,flop", "ironwarp,x,8,1,2,2.500000,7,flop"]);
    }

    #[test]
    fn the_best_peer_counts() {
        let of = |program: &str, shape: &str, ms: f64| Row {
            program: program.into(),
            shape: shape.into(),
            ..row("x", Work::Flops(1), &[ms])
        };
        let rows = [
            of(OURS, "8", 2.0),
            of("slow", "8", 9.0),
            of("fast", "8", 1.0),
            of(OURS, "16", 2.0),
            of("slow", "16", 4.0),
            of(OURS, "32", 2.0),
        ];
        let expected = "x: 1.000 of the best peer (geometric mean of 2), lowest 0.500 at 8\n";
        assert_eq!(summary(&rows), expected);
        let table = table(&rows);
        assert_eq!(table, [head(), lines(&rows[..3]), lines(&rows[3..])].concat());
        let ratio = |line: usize| table.lines().nth(line).unwrap().split_whitespace().rev().nth(1).unwrap();
        assert_eq!((ratio(1), ratio(4)), ("0.500", "2.000"), "{table}");
    }
}
