//! Reading variables, and what can be wrong with them.

use std::ffi::OsString;
use std::time::Duration;

/// A variable of a launcher that is missing, does not parse, or contradicts another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// It does not parse.
    #[error("{variable} is {got:?}; wanted {wanted}. Set it so, or unset it")]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// Its value.
        got: String,
        /// The values that it could have.
        wanted: String,
    },
    /// A launcher's variables are not all there.
    #[error("{present} is set and {missing} is not. {fix}")]
    Missing {
        /// A variable of the launcher that is set.
        present: &'static str,
        /// The one that is not.
        missing: &'static str,
        /// The remedy.
        fix: &'static str,
    },
    /// Two variables do not fit.
    #[error("{} is {} and {} is {}; wanted {wanted}. {fix}", .first.0, .first.1, .second.0, .second.1)]
    Contradiction {
        /// A variable and its value.
        first: (&'static str, String),
        /// Another one.
        second: (&'static str, String),
        /// How they would fit.
        wanted: &'static str,
        /// The remedy.
        fix: &'static str,
    },
}

/// The environment, or what tests take for it. An empty value is none.
pub struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
}

impl<'a> Variables<'a> {
    pub fn new(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { lookup }
    }

    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    pub fn raw(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    pub fn text(&self, variable: &'static str) -> Result<Option<String>, WorldError> {
        let Some(value) = self.raw(variable) else { return Ok(None) };
        let text = value.into_string().map_err(|value| {
            let got = value.to_string_lossy().into_owned();
            WorldError::Malformed { variable, got, wanted: "text in UTF-8".to_owned() }
        })?;
        let text = text.trim();
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// A value that a function reads.
    pub fn parsed<T, E: std::fmt::Display>(
        &self,
        variable: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, WorldError> {
        let Some(got) = self.text(variable)? else { return Ok(None) };
        let parsed = parse(&got);
        parsed.map(Some).map_err(|wanted| WorldError::Malformed { variable, got, wanted: wanted.to_string() })
    }

    /// A number of at most nine digits, so that sums of a few fit.
    pub fn number(&self, variable: &'static str) -> Result<Option<u32>, WorldError> {
        self.parsed(variable, |text| {
            let is_number = text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number).ok_or("a number from 0 to 999999999")
        })
    }

    pub fn seconds(&self, variable: &'static str) -> Result<Option<Duration>, WorldError> {
        self.parsed(variable, |text| {
            let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
            let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            duration.ok_or("seconds, more than 0, as in 60 or 0.5")
        })
    }

    /// The number of a variable, that of `present`'s launcher, that must be there.
    pub fn required(
        &self,
        variable: &'static str,
        present: &'static str,
        fix: &'static str,
    ) -> Result<u32, WorldError> {
        self.number(variable)?.ok_or(WorldError::Missing { present, missing: variable, fix })
    }
}
