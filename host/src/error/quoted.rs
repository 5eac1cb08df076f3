//! Text in errors that comes from elsewhere: of any length there, bounded in a message.

use std::borrow::Cow;
use std::fmt::Debug;
use std::path::Path;

/// Characters of a text that a message shows.
const SHOWN: usize = 400;
/// Items of a list that a message shows.
const ITEMS: usize = 16;

/// The text, or its beginning and its length where it is longer than a message should be. Characters that
/// would drive a terminal are escaped.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    let cut = |text: &str| text.char_indices().nth(SHOWN).map_or(text.len(), |(end, _)| end);
    let shown = harmless(&text[..cut(text)]);
    if cut(text) == text.len() && cut(&shown) == shown.len() {
        return shown;
    }
    format!("{}.. ({} bytes in all)", &shown[..cut(&shown)], text.len()).into()
}

/// The path, as [`quoted`] shows a text.
pub(crate) fn shown(path: &Path) -> String {
    quoted(&path.to_string_lossy()).into_owned()
}

fn harmless(text: &str) -> Cow<'_, str> {
    let drives = |c: char| c.is_control() && c != '\n';
    if !text.contains(drives) {
        return text.into();
    }
    let mut escaped = String::new();
    for c in text.chars() {
        if drives(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped.into()
}

/// The items as `Debug` prints them, or the first of them and their number.
pub(crate) fn first_of<T: Debug>(items: &[T]) -> String {
    match items.get(..ITEMS) {
        Some(first) if items.len() > ITEMS => format!("{first:?} and {} more", items.len() - ITEMS),
        _ => format!("{items:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{first_of, quoted};
    use crate::TensorError;
    use crate::error::Error;

    #[test]
    fn short_text_is_shown_and_long_text_is_cut_between_characters() {
        assert_eq!(quoted("blur"), "blur");
        assert_eq!(quoted("a\u{1b}[2J\tb\nc"), "a\\u{1b}[2J\\tb\nc");
        assert_eq!(first_of(&[1, 2]), "[1, 2]");
        let long = quoted(&"é".repeat(1_000_000)).into_owned();
        assert!(long.ends_with("é.. (2000000 bytes in all)") && long.len() < 1_000, "{long}");
    }

    #[test]
    fn no_message_grows_with_what_it_quotes() {
        let long = || "\u{1}".repeat(1_000_000);
        let errors = [
            Error::BadName { what: "kernel", name: long() },
            Error::Environment { name: "X", value: long(), allowed: "0 or 1" },
            Error::InvalidArgument {
                operation: "f",
                argument: "name",
                got: long(),
                wanted: "another".to_owned(),
                hint: "none",
            },
            TensorError::Axes { operation: "permute", axes: vec![0; 1_000_000], rank: 2, wanted: "once" }
                .into(),
            TensorError::TooLarge { operation: "f", shape: vec![1; 1_000_000] }.into(),
            TensorError::File { path: "x".into(), reason: long() }.into(),
            TensorError::NoSuchTensor { path: "x".into(), name: long(), names: vec![long(); 20] }.into(),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.len() < 10_000 && text.contains("hint: "), "{} bytes: {text:.300}", text.len());
        }
    }
}
