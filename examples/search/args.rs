//! Command line of the search example and of `cargo xtask demo`, which reads it before it builds the example.

use std::path::PathBuf;
use std::time::Duration;

pub const HELP: &str = "\
Reads a folder of text, cuts it into passages, and finds those that are most like a question with the cosine
similarity kernel: on the GPU where there is one, else on the software driver.

Usage: cargo xtask demo [QUERY] [--corpus DIR] [-k COUNT] [--json]

Options:
  QUERY          what to look for (default: \"how are kernels launched\")
  --corpus DIR   a folder of text files (default: this repository's Markdown and Rust files); files of up to
                 4 MiB are read, and 32 MiB in all
  -k COUNT       how many passages to print, 1 to 128 (default: 5)
  --json         print the result as JSON

Examples:
  cargo xtask demo \"how are kernels launched\"
  cargo xtask demo \"race between blocks\" -k 3
  cargo xtask demo \"error handling\" --corpus ~/notes --json
";

/// The most passages that the kernel finds at once.
pub const MAX_K: usize = 128;
/// How many milliseconds the kernels took to build before the program started, from `cargo xtask demo`.
pub const BUILD_MS: &str = "SEARCH_BUILD_MS";

const DEFAULT_QUERY: &str = "how are kernels launched";
const DEFAULT_K: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub struct Args {
    pub query: String,
    /// `None`: the repository itself.
    pub corpus: Option<PathBuf>,
    pub k: usize,
    pub json: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    Run(Args),
    Help,
}

#[derive(Debug, thiserror::Error)]
pub enum ArgsError {
    #[error("-k {0:?} is not a number of passages: give a whole number from 1 to {MAX_K}, for example -k 5")]
    BadK(String),
    #[error("the query is empty: give some words to look for")]
    EmptyQuery,
    #[error("{0}. See --help")]
    Syntax(#[from] lexopt::Error),
}

pub fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Parsed, ArgsError> {
    use lexopt::prelude::*;
    let mut words: Vec<String> = Vec::new();
    let mut parsed = Args { query: String::new(), corpus: None, k: DEFAULT_K, json: false };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(Parsed::Help),
            Short('k') => parsed.k = count(&parser.value()?.string()?)?,
            Long("corpus") => parsed.corpus = Some(parser.value()?.into()),
            Long("json") => parsed.json = true,
            Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    parsed.query = if words.is_empty() { DEFAULT_QUERY.to_owned() } else { words.join(" ") };
    if parsed.query.trim().is_empty() {
        return Err(ArgsError::EmptyQuery);
    }
    Ok(Parsed::Run(parsed))
}

/// How long the build before this program took, where there was one.
pub fn build_time() -> Option<Duration> {
    std::env::var(BUILD_MS).ok()?.parse().ok().map(Duration::from_millis)
}

fn count(text: &str) -> Result<usize, ArgsError> {
    text.parse().ok().filter(|k| (1..=MAX_K).contains(k)).ok_or_else(|| ArgsError::BadK(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<Parsed, ArgsError> {
        parse(args.iter().map(std::ffi::OsString::from))
    }

    #[test]
    fn words_join_to_one_query() {
        let Ok(Parsed::Run(args)) = run(&["how", "are", "-k", "3", "kernels"]) else { panic!("valid") };
        assert_eq!((args.query.as_str(), args.k), ("how are kernels", 3));
    }

    #[test]
    fn bad_counts_and_unknown_options_are_refused_with_what_was_given() {
        for bad in ["0", "-1", "x", "1.5", "129", "99999999999999999999999", ""] {
            let error = run(&[&format!("-k={bad}")]).expect_err("not a count");
            assert!(error.to_string().contains(bad), "{error}");
        }
        assert!(run(&["--corpsu", "x"]).expect_err("unknown").to_string().contains("--corpsu"));
        assert!(matches!(run(&[" "]), Err(ArgsError::EmptyQuery)));
        let error = run(&["-k"]).expect_err("no value").to_string();
        assert!(error.contains("'-k'"), "{error}");
    }

    #[test]
    fn options_after_two_dashes_are_words() {
        let Ok(Parsed::Run(args)) = run(&["--", "-k", "x"]) else { panic!("valid") };
        assert_eq!((args.query.as_str(), args.k), ("-k x", DEFAULT_K));
    }
}
