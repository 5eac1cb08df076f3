//! The command line of a bench program.

use std::path::PathBuf;

/// What the command line asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Few samples and small inputs: does it run, not how fast.
    pub quick: bool,
    /// Folder for the samples.
    pub out: Option<PathBuf>,
    /// Only rows whose name contains one of these, which commas separate.
    pub only: Option<String>,
    /// Instead of its table the program shows every way to do a row, where it knows several.
    pub every: bool,
}

/// An argument that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Not an option.
    #[error("unknown argument `{0}`\nusage: PROGRAM [--quick] [--out DIR] [--only TEXT,..] [--every]")]
    Unknown(String),
    /// An option whose value is missing.
    #[error("`{0}` needs a value\nusage: PROGRAM [--quick] [--out DIR] [--only TEXT,..] [--every]")]
    NoValue(String),
}

impl Options {
    /// Reads the arguments that follow the program's name. `--bench`, which cargo adds, means nothing; `--test`, which
    /// `cargo test --benches` adds, means `--quick`.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, OptionsError> {
        let mut options = Options::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(OptionsError::NoValue(argument.clone()));
            match argument.as_str() {
                "--bench" => {}
                "--quick" | "--test" => options.quick = true,
                "--every" => options.every = true,
                "--out" => options.out = Some(value()?.into()),
                "--only" => options.only = Some(value()?),
                _ => return Err(OptionsError::Unknown(argument)),
            }
        }
        Ok(options)
    }

    /// Whether `--only` lets a row of this name through.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.split(',').any(|part| name.contains(part)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Options, OptionsError};

    fn parse(line: &str) -> Result<Options, OptionsError> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn known_arguments() {
        let options = parse("--bench --quick --out here --only saxpy --every").unwrap();
        let only = Some("saxpy".into());
        assert_eq!(options, Options { quick: true, out: Some("here".into()), only, every: true });
        assert_eq!(parse("").unwrap(), Options::default());
        assert!(parse("--test").unwrap().quick);
    }

    #[test]
    fn rows_are_picked_by_parts_of_their_names() {
        let wants = |line: &str, name: &str| parse(line).unwrap().wants(name);
        assert!(wants("", "gemm"));
        assert!(wants("--only gemm_f16/1x,copy", "gemm_f16/1x8") && wants("--only gemm_f16/1x,copy", "copy"));
        assert!(!wants("--only gemm_f16/1x,copy", "gemm_f16/2x8"));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("--fast"), Err(OptionsError::Unknown("--fast".into())));
        assert_eq!(parse("--quick --out"), Err(OptionsError::NoValue("--out".into())));
    }
}
