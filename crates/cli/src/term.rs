//! Text for people: colours, tables, durations, suggestions.

use std::env;
use std::io::{IsTerminal, stderr, stdout};
use std::sync::OnceLock;
use std::time::Duration;

/// The meaning of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Good news.
    Ok,
    /// Something to look at.
    Warn,
    /// Something that failed.
    Fail,
    /// A head or a name.
    Bold,
    /// Something beside the point.
    Dim,
}

/// Colours the text, where colours are wanted.
pub fn style(style: Style, text: &str) -> String {
    let code = match style {
        Style::Ok => "32",
        Style::Warn => "33",
        Style::Fail => "1;31",
        Style::Bold => "1",
        Style::Dim => "2",
    };
    if colours() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Whether colours are wanted: on terminals that have them, and not with `NO_COLOR` set. Text goes to both
/// outputs, so neither may be a file.
pub fn colours() -> bool {
    static COLOURS: OnceLock<bool> = OnceLock::new();
    *COLOURS.get_or_init(|| {
        env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && env::var_os("TERM").is_none_or(|value| value != "dumb")
            && stdout().is_terminal()
            && stderr().is_terminal()
    })
}

/// `0.31 s`, `2 min 05 s`.
pub fn seconds(duration: Duration) -> String {
    let total = duration.as_secs_f64();
    if total < 60.0 {
        format!("{total:.2} s")
    } else {
        format!("{} min {:02} s", duration.as_secs() / 60, duration.as_secs() % 60)
    }
}

/// A table with a head: first `left` columns flush left, the others flush right.
pub fn table(head: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).enumerate();
        let padded =
            cells.map(
                |(column, (cell, &width))| {
                    if column < left { format!("{cell:width$}") } else { format!("{cell:>width$}") }
                },
            );
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = style(Style::Bold, &line(head.to_vec()));
    for row in rows {
        text.push('\n');
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text.push('\n');
    text
}

/// The known name that a misspelt one most likely stands for.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let candidates = known.map(|candidate| (distance(name, candidate), candidate));
    let (distance, best) = candidates.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + best.len() / 4).then(|| best.to_owned())
}

/// The known names that are most like this one, the likeliest first: those that hold it, then by distance.
pub fn most_like<'a>(name: &str, known: &[&'a str], count: usize) -> Vec<&'a str> {
    let mut ranked = known.to_vec();
    ranked.sort_by_cached_key(|candidate| (!candidate.contains(name), distance(name, candidate)));
    ranked.truncate(count);
    ranked
}

/// Edit distance: letters inserted, removed or replaced, or neighbours exchanged.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i];
        for j in 1..=b.len() {
            let replaced = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let rows = vec![vec!["saxpy".to_owned(), "8".to_owned()], vec!["a".to_owned(), "255".to_owned()]];
        assert_eq!(table(&["kernel", "regs"], 1, &rows), "kernel  regs\nsaxpy      8\na        255\n");
    }

    #[test]
    fn durations() {
        assert_eq!(seconds(Duration::from_millis(312)), "0.31 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 05 s");
    }

    #[test]
    fn names_that_hold_the_word_come_first() {
        let known = ["saxpy", "row_softmax_f32", "reduce", "softmix"];
        assert_eq!(most_like("softmax", &known, 2), ["row_softmax_f32", "softmix"]);
        assert_eq!(most_like("softmax", &known, 9).len(), known.len());
    }

    #[test]
    fn edit_distance() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!((distance("nwe", "new"), distance("sazpy", "saxpy"), distance("abcd", "cdab")), (1, 1, 4));
    }
}
