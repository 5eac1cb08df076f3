//! Prints what was found, for people or as JSON.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use crate::corpus::{Corpus, Passage};

/// Lines of a passage that are shown.
const SHOWN_LINES: usize = 4;
/// Columns of a line that are shown.
const SHOWN_COLUMNS: usize = 100;

/// One passage that was found.
pub struct Hit<'a> {
    pub score: f32,
    pub passage: &'a Passage,
}

/// Where the time went, in the order in which it happened.
pub struct Times {
    pub stages: Vec<(&'static str, Duration)>,
}

pub struct Report<'a> {
    pub query: &'a str,
    pub corpus: &'a Corpus,
    pub hits: Vec<Hit<'a>>,
    pub device: String,
    /// Set when no GPU was used: why, in one sentence.
    pub software: Option<String>,
    pub times: Times,
}

impl Report<'_> {
    pub fn text(&self, style: &Style) -> String {
        let mut out = String::new();
        let skipped = self.corpus.skipped.describe().map(|s| format!("; skipped: {s}")).unwrap_or_default();
        let _ = writeln!(
            out,
            "{}  ({} passages of {} files{skipped})\n",
            style.bold(&format!("\"{}\"", printable(self.query))),
            self.corpus.passages.len(),
            self.corpus.files,
        );
        for (rank, hit) in self.hits.iter().enumerate() {
            let place = format!("{}:{}", printable(&hit.passage.file.to_string_lossy()), hit.passage.line);
            let _ = writeln!(out, "{:>2}  {:.3}  {}", rank + 1, hit.score, style.bold(&place));
            for line in hit.passage.text.lines().filter(|l| !l.trim().is_empty()).take(SHOWN_LINES) {
                let _ = writeln!(out, "           {}", style.dim(&shorten(line)));
            }
        }
        let _ = writeln!(out, "\nran on {}", self.device);
        if let Some(why) = &self.software {
            let _ = writeln!(out, "{why}");
        }
        let stages: Vec<String> =
            self.times.stages.iter().map(|(name, time)| format!("{name} {}", duration(*time))).collect();
        let _ = writeln!(out, "{}", stages.join(" | "));
        out
    }

    pub fn json(&self) -> serde_json::Value {
        let hits: Vec<serde_json::Value> = self
            .hits
            .iter()
            .map(|hit| {
                serde_json::json!({
                    "score": hit.score,
                    "file": hit.passage.file.to_string_lossy(),
                    "line": hit.passage.line,
                    "text": hit.passage.text,
                })
            })
            .collect();
        let times: serde_json::Map<String, serde_json::Value> = self
            .times
            .stages
            .iter()
            .map(|(name, time)| ((*name).to_owned(), time.as_secs_f64().into()))
            .collect();
        serde_json::json!({
            "query": self.query,
            "files": self.corpus.files,
            "passages": self.corpus.passages.len(),
            "skipped": {
                "binary": self.corpus.skipped.binary,
                "unreadable": self.corpus.skipped.unreadable,
                "too_large": self.corpus.skipped.too_large,
                "too_many": self.corpus.skipped.too_many,
            },
            "device": self.device,
            "software": self.software.is_some(),
            "seconds": times,
            "hits": hits,
        })
    }
}

/// Whether terminal styles are used.
pub struct Style {
    on: bool,
}

impl Style {
    /// On for a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
    pub fn detect() -> Self {
        let asked_not_to = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self { on: std::io::stdout().is_terminal() && !asked_not_to }
    }

    fn bold(&self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(&self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Cuts at a character border.
fn shorten(line: &str) -> String {
    let clean = printable(line.trim_end());
    match clean.char_indices().nth(SHOWN_COLUMNS) {
        Some((at, _)) => format!("{}...", &clean[..at]),
        None => clean,
    }
}

/// Without control characters, which could drive the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c == '\t' { ' ' } else { c }).filter(|c| !c.is_control()).collect()
}

fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 1e-3 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{:.1} µs", seconds * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Skipped;

    #[test]
    fn lines_are_cut_and_stripped_of_control_characters() {
        assert_eq!(shorten("a\tb\x1b[31m"), "a b[31m");
        assert_eq!(shorten(&"é".repeat(200)).chars().count(), SHOWN_COLUMNS + 3);
    }

    #[test]
    fn names_that_are_no_text_are_shown() {
        use std::os::unix::ffi::OsStrExt as _;
        let file = std::path::PathBuf::from(std::ffi::OsStr::from_bytes(b"a\xff\x1b\n.txt"));
        let passage = Passage { file, line: 1, text: "words".to_owned() };
        let corpus = Corpus { passages: vec![passage], files: 1, skipped: Skipped::default() };
        let report = Report {
            query: "words",
            corpus: &corpus,
            hits: vec![Hit { score: 1.0, passage: &corpus.passages[0] }],
            device: "none".to_owned(),
            software: None,
            times: Times { stages: Vec::new() },
        };
        assert!(report.json().to_string().contains("a\u{fffd}"));
        assert!(report.text(&Style { on: false }).contains("a\u{fffd}.txt:1"));
    }

    #[test]
    fn durations_have_a_fitting_unit() {
        assert_eq!(duration(Duration::from_micros(12)), "12.0 µs");
        assert_eq!(duration(Duration::from_micros(2500)), "2.5 ms");
        assert_eq!(duration(Duration::from_millis(1500)), "1.50 s");
    }
}
