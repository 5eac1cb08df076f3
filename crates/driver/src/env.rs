//! Environment variables. Each is read once. An error names the variable, its value and the allowed values.

use crate::load::InitError;

/// The value of `variable`. `None` if it is unset or empty.
pub(crate) fn text(variable: &'static str) -> Result<Option<String>, InitError> {
    match std::env::var(variable) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(value)) => Err(InitError::BadVariable {
            variable,
            value: value.to_string_lossy().into_owned(),
            allowed: "text in UTF-8".to_owned(),
        }),
    }
}

/// The number in `variable`, which must lie in `range`.
pub(crate) fn number(
    variable: &'static str,
    range: core::ops::RangeInclusive<usize>,
) -> Result<Option<usize>, InitError> {
    let Some(value) = text(variable)? else { return Ok(None) };
    match value.trim().parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(InitError::BadVariable {
            variable,
            value,
            allowed: format!("a number from {} to {}", range.start(), range.end()),
        }),
    }
}

/// The number of bytes in `variable`: digits with an optional suffix K, M, G or T (powers of 1024). At least
/// `least`.
pub(crate) fn bytes(variable: &'static str, least: usize) -> Result<Option<usize>, InitError> {
    let Some(value) = text(variable)? else { return Ok(None) };
    match parse_bytes(value.trim()) {
        Some(bytes) if bytes >= least => Ok(Some(bytes)),
        _ => Err(InitError::BadVariable {
            variable,
            value,
            allowed: format!("a number of bytes from {least}, as in 4G, 512M or 65536"),
        }),
    }
}

fn parse_bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(parse_bytes("65536"), Some(65536));
        assert_eq!(parse_bytes("4G"), Some(4 << 30));
        assert_eq!(parse_bytes("512MiB"), Some(512 << 20));
        assert_eq!(parse_bytes("7x"), None);
        assert_eq!(parse_bytes("-1"), None);
        assert_eq!(parse_bytes("99999999999T"), None);
    }
}
