//! The result of a kernel under each tool, and the file of all of them.

use std::fmt;

/// Without a tool, and under each of compute-sanitizer.
pub const TOOLS: [&str; 5] = ["none", "memcheck", "racecheck", "initcheck", "synccheck"];

/// How a kernel's launch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It ran; a correct kernel with right results.
    Ran,
    /// A correct kernel with wrong results.
    Wrong,
    /// The driver did not load or launch it, with its words.
    Refused(String),
    /// The launch ended with an error of the driver.
    Failed(String),
    /// It did not come back.
    Hung,
    /// The process ended while it ran.
    Died,
    /// It spins for ever, so it is left out.
    Skipped,
    /// Nothing is known of it: the time was over.
    Missing,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ran => f.write_str("ran"),
            Self::Wrong => f.write_str("wrong"),
            Self::Refused(why) => write!(f, "refused {why}"),
            Self::Failed(why) => write!(f, "failed {why}"),
            Self::Hung => f.write_str("hung"),
            Self::Died => f.write_str("died"),
            Self::Skipped => f.write_str("skipped (it spins for ever)"),
            Self::Missing => f.write_str("missing"),
        }
    }
}

impl State {
    /// Reads what [`Display`](fmt::Display) wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match word {
            "ran" => Self::Ran,
            "wrong" => Self::Wrong,
            "refused" => Self::Refused(rest.to_owned()),
            "failed" => Self::Failed(rest.to_owned()),
            "hung" => Self::Hung,
            "died" => Self::Died,
            "skipped" => Self::Skipped,
            "missing" => Self::Missing,
            _ => return None,
        })
    }
}

/// The result of a kernel under a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub state: State,
    /// The first line of the tool's first report.
    pub report: Option<String>,
}

impl Default for Finding {
    fn default() -> Self {
        Self { state: State::Missing, report: None }
    }
}

/// The results of a kernel, in the order of [`TOOLS`].
pub type Row = [Finding; TOOLS.len()];

/// The file: a line for each kernel, with two columns for each tool.
pub fn write(names: &[&str], rows: &[Row]) -> String {
    let heads: Vec<String> = TOOLS.iter().map(|tool| format!("{tool}\t{tool}: report")).collect();
    let mut text = format!("kernel\t{}\n", heads.join("\t"));
    for (name, row) in names.iter().zip(rows) {
        text += name;
        for finding in row {
            let report = finding.report.as_deref().unwrap_or("");
            text += &format!("\t{}\t{}", one_field(&finding.state.to_string()), one_field(report));
        }
        text += "\n";
    }
    text
}

fn one_field(text: &str) -> String {
    text.replace(['\t', '\n'], " ")
}

/// Reads such a file. Kernels that it does not name are missing.
pub fn read(names: &[&str], text: &str) -> Result<Vec<Row>, String> {
    let mut rows = vec![Row::default(); names.len()];
    for (number, line) in (1..).zip(text.lines()).skip(1) {
        let bad = |what: &str| format!("line {number}: {what}");
        let fields: Vec<&str> = line.split('\t').collect();
        let kernel = names.iter().position(|name| *name == fields[0]).ok_or(bad("no such kernel"))?;
        if fields.len() != 1 + 2 * TOOLS.len() {
            return Err(bad(&format!("{} fields, wanted {}", fields.len(), 1 + 2 * TOOLS.len())));
        }
        for (finding, pair) in rows[kernel].iter_mut().zip(fields[1..].chunks(2)) {
            let state = State::parse(pair[0]).ok_or(bad(&format!("no such state: {}", pair[0])))?;
            *finding = Finding { state, report: Some(pair[1].to_owned()).filter(|text| !text.is_empty()) };
        }
    }
    Ok(rows)
}
