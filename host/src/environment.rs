//! Environment variables that choose among a few values.

use crate::error::{Error, Result};

/// The value that variable `name` chooses; `None` when it is unset or empty. `allowed` lists the choices for
/// the error.
pub(crate) fn choice<T: Copy>(
    name: &'static str,
    allowed: &'static str,
    choices: &[(&str, T)],
) -> Result<Option<T>> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let value = value.to_string_lossy();
    match choices.iter().find(|(text, _)| *text == value) {
        Some((_, choice)) => Ok(Some(*choice)),
        None => Err(Error::Environment { name, value: value.into_owned(), allowed }),
    }
}

/// A variable that is 0 or 1; unset means 0.
pub(crate) fn switch(name: &'static str) -> Result<bool> {
    choice(name, "0, 1", &[("0", false), ("1", true)]).map(|on| on.unwrap_or(false))
}
