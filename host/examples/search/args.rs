//! Command line of the search example.

use std::path::PathBuf;
use std::time::Duration;

pub const HELP: &str = "\
Finds the passages of a folder that are most like a question, with the cosine similarity kernel.

Usage: cargo xtask demo [QUERY] [--corpus DIR] [-k COUNT] [--json]

  QUERY          what to look for (default: \"how are kernels launched\")
  --corpus DIR   a folder of text files (default: this repository's Markdown and Rust files)
  -k COUNT       how many passages to print (default: 5)
  --json         print the result as JSON

Examples:
  cargo xtask demo \"how are kernels launched\"
  cargo xtask demo \"race between blocks\" -k 3
  cargo xtask demo \"error handling\" --corpus ~/notes --json
";

const DEFAULT_QUERY: &str = "how are kernels launched";
const DEFAULT_K: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub struct Args {
    pub query: String,
    /// `None`: the repository itself.
    pub corpus: Option<PathBuf>,
    pub k: usize,
    pub json: bool,
    /// How long the kernels took to build before this program started (`cargo xtask demo` measures it).
    pub build: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    Run(Args),
    Help,
}

#[derive(Debug, thiserror::Error)]
pub enum ArgsError {
    #[error("-k {0:?} is not a number of passages: give a whole number from 1 up, for example -k 5")]
    BadK(String),
    #[error("the query is empty: give some words to look for")]
    EmptyQuery,
    #[error("{0}. See --help")]
    Syntax(#[from] lexopt::Error),
}

pub fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Parsed, ArgsError> {
    use lexopt::prelude::*;
    let mut words: Vec<String> = Vec::new();
    let mut parsed = Args { query: String::new(), corpus: None, k: DEFAULT_K, json: false, build: None };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(Parsed::Help),
            Short('k') => parsed.k = count(&parser.value()?.string()?)?,
            Long("corpus") => parsed.corpus = Some(parser.value()?.into()),
            Long("json") => parsed.json = true,
            Long("build-ms") => parsed.build = Some(Duration::from_millis(parser.value()?.parse()?)),
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

fn count(text: &str) -> Result<usize, ArgsError> {
    text.parse().ok().filter(|k| *k > 0).ok_or_else(|| ArgsError::BadK(text.to_owned()))
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
        for bad in ["0", "-1", "x", "1.5"] {
            let error = run(&[&format!("-k={bad}")]).expect_err("not a count");
            assert!(error.to_string().contains(bad), "{error}");
        }
        assert!(run(&["--corpsu", "x"]).expect_err("unknown").to_string().contains("--corpsu"));
        assert!(matches!(run(&[" "]), Err(ArgsError::EmptyQuery)));
    }
}
