//! Rust text without its comments and literals, so that a search finds code alone.

/// Blanks out comments, strings and characters. Line ends stay, so lines keep their numbers.
pub fn without_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    // Blanked bytes are ASCII, and the others form whole characters as before.
    String::from_utf8_lossy(&code).into_owned()
}

/// Where the comment or literal that starts here ends; the same place when none starts.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after = |len: usize| (at + len).min(bytes.len());
    match rest {
        [b'/', b'/', ..] => after(rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => after(block_comment_len(rest)),
        [b'"', ..] => after(string_len(rest)),
        [b'r', b'"' | b'#', ..] if !is_word_before(bytes, at) => after(raw_string_len(rest)),
        [b'\'', ..] => after(char_len(rest)),
        _ => at,
    }
}

fn is_word_before(bytes: &[u8], at: usize) -> bool {
    // `br"..."` is a raw string too.
    let before = at.checked_sub(1).map(|index| bytes[index]);
    before.is_some_and(|byte| byte.is_ascii_alphanumeric() && byte != b'b' || byte == b'_')
}

fn block_comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string_len(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#` and so on; 0 for a raw identifier such as `r#type`.
fn raw_string_len(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'"'];
    close.resize(hashes + 1, b'#');
    let body = &rest[2 + hashes..];
    let end = body.windows(close.len()).position(|window| window == close);
    end.map_or(rest.len(), |end| 2 + hashes + end + close.len())
}

/// `'x'` or `'\n'`; 0 for a lifetime.
fn char_len(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return rest.iter().skip(3).position(|&byte| byte == b'\'').map_or(0, |end| end + 4);
    }
    let first = rest
        .get(1..)
        .and_then(|tail| std::str::from_utf8(&tail[..tail.len().min(4)]).ok().or_else(|| valid_prefix(tail)));
    let width = first.and_then(|text| text.chars().next()).map_or(0, char::len_utf8);
    if width > 0 && rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
}

fn valid_prefix(tail: &[u8]) -> Option<&str> {
    (1..4).rev().find_map(|len| std::str::from_utf8(tail.get(..len)?).ok())
}

#[cfg(test)]
mod tests {
    use super::without_literals;

    #[test]
    fn comments_and_literals_go_and_code_stays() {
        for (text, code) in [
            ("a // asm!\nb", "a b"),
            ("a /* x /* y */ z */ b", "a b"),
            ("f(\"asm!\\\" x\") + 1", "f( ) + 1"),
            ("f(r#\"a \"b\" c\"#);", "f( );"),
            ("let r#type = 'a';", "let r#type = ;"),
            ("'\\n' '\\'' x", "x"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("'é' x", "x"),
            ("br\"x\" y", "b y"),
        ] {
            let blanked = without_literals(text);
            assert_eq!(blanked.split_whitespace().collect::<Vec<_>>().join(" "), code, "{text}");
            let columns = |text: &str| text.lines().map(str::len).collect::<Vec<_>>();
            assert_eq!(columns(&blanked), columns(text), "{text}");
        }
    }

    #[test]
    fn unfinished_literals_end_with_the_file() {
        for text in ["\"abc", "/* abc", "r#\"abc", "'\\", "'"] {
            assert_eq!(without_literals(text).len(), text.len(), "{text}");
        }
    }
}
