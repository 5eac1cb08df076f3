//! How comments are written: short lines, and no riddles.

use super::Source;

/// The longest line with a comment, in characters.
const MAX_COLUMNS: usize = 110;

/// Everything that the files break, one sentence each.
pub fn check(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(|source| findings(&source.path, &source.text)).collect()
}

fn findings(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut in_code = false;
    for (index, line) in lines.iter().enumerate() {
        let Some(words) = comment(line) else {
            in_code = false;
            continue;
        };
        if words.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let place = format!("{path}:{}", index + 1);
            let columns = line.chars().count();
            if columns > MAX_COLUMNS && !is_exempt(words) {
                findings
                    .push(format!("{place}: a comment of {columns} columns; wanted at most {MAX_COLUMNS}"));
            }
            let begins = index == 0 || comment(lines[index - 1]).is_none_or(str::is_empty);
            if begins && words.split_whitespace().next() == Some("What") && !is_question(&lines[index..]) {
                findings.push(format!("{place}: a comment that begins with `What` and asks nothing"));
            }
        }
    }
    findings
}

/// The words of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let words = line.trim_start().strip_prefix("//")?;
    Some(words.strip_prefix(['/', '!']).unwrap_or(words).trim())
}

/// Tables and addresses cannot be broken.
fn is_exempt(words: &str) -> bool {
    words.starts_with('|') || words.contains("://")
}

/// Whether the first sentence of a comment ends with a question mark.
fn is_question(lines: &[&str]) -> bool {
    let paragraph = lines.iter().map_while(|line| comment(line)).take_while(|words| !words.is_empty());
    let mut ends = paragraph.flat_map(str::split_whitespace).filter(|word| word.ends_with(['.', '?']));
    ends.next().is_some_and(|word| word.ends_with('?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        super::findings("a.rs", text)
    }

    #[test]
    fn wide_comments_are_found() {
        let long = "x ".repeat(MAX_COLUMNS / 2);
        for bad in [format!("// {long}"), format!("    /// {long}"), format!("//! a\n//! {long}")] {
            assert_eq!(findings(&bad).len(), 1, "{bad}");
        }
        let fits = "x".repeat(MAX_COLUMNS - 3);
        for good in [
            format!("// {fits}"),
            format!("let s = \"{long}\"; // {long}"),
            format!("/// | {long} |"),
            format!("// https://x.y/{long}"),
            format!("/// ```text\n/// {long}\n/// ```\n/// a"),
        ] {
            assert_eq!(findings(&good), Vec::<String>::new(), "{good}");
        }
        assert_eq!(findings(&format!("/// ```\n/// a\n/// ```\n/// {long}")).len(), 1);
    }

    #[test]
    fn comments_that_begin_with_what_are_found() {
        for bad in ["/// What it costs.", "fn f() {\n    // What it is", "//! a\n//!\n//! What\n//! it is."] {
            assert_eq!(findings(bad).len(), 1, "{bad}");
        }
        for good in [
            "// What does it cost? Little.",
            "/// What does\n/// it cost?",
            "// Whatever it is",
            "// It is\n// What follows.",
            "/// ```\n/// What it is.\n/// ```",
        ] {
            assert_eq!(findings(good), Vec::<String>::new(), "{good}");
        }
    }
}
