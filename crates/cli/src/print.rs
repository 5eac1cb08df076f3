//! Printing that does not panic: a reader who leaves ends the command quietly, a device that is full ends it
//! with a sentence.
//!
//! The macros hide std's of the same names: in the modules after this one, and in a program that takes them
//! with `#[macro_use] extern crate ironwarp_cli`.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::process::exit;

/// The exit code of a program that its reader left, as a shell shows it: 128 plus the number of SIGPIPE.
const READER_GONE: i32 = 141;

/// The longest line of an error in characters. What is longer loses its middle.
const LONGEST_LINE: usize = 2_000;
/// The parts of a longer line that are kept.
const KEPT: [usize; 2] = [1_200, 600];

/// Prints text, or ends the program.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::print::text(format_args!($($text)*)) };
}

/// Prints a line, or ends the program.
#[macro_export]
macro_rules! println {
    () => { $crate::print::text(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::line(format_args!($($text)*)) };
}

/// Prints a line to standard error.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::print::note(format_args!($($text)*)) };
}

/// Prints text. Ends the program where nobody can read it.
pub fn text(text: Arguments<'_>) {
    let mut output = stdout().lock();
    end_if_failed(output.write_fmt(text));
}

/// Prints text and the end of its line.
pub fn line(text: Arguments<'_>) {
    let mut output = stdout().lock();
    end_if_failed(output.write_fmt(text).and_then(|()| output.write_all(b"\n")));
}

/// Prints what waits in the buffer.
pub fn flush() {
    end_if_failed(stdout().lock().flush());
}

/// Prints a line to standard error. There is no place left to say that this failed.
pub fn note(text: Arguments<'_>) {
    let mut output = stderr().lock();
    let _ = output.write_fmt(text).and_then(|()| output.write_all(b"\n"));
}

fn end_if_failed(printed: std::io::Result<()>) {
    let Err(error) = printed else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        exit(READER_GONE);
    }
    note(format_args!(
        "error: cannot print to standard output: {error}.\nfix: make room there, or send the output elsewhere"
    ));
    exit(1);
}

/// The text with the middle of overlong lines left out, and with characters escaped that would drive a
/// terminal: an error may quote a name of any length, or a file. Colours stay: those of compilers.
pub fn bounded(text: &str) -> String {
    text.split('\n').map(|line| bounded_line(&harmless(line))).collect::<Vec<_>>().join("\n")
}

fn harmless(line: &str) -> String {
    let mut escaped = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let length = colour(rest).unwrap_or(c.len_utf8());
        let (part, others) = rest.split_at(length);
        if c.is_control() && c != '\t' && part.len() == c.len_utf8() {
            escaped.extend(c.escape_default());
        } else {
            escaped.push_str(part);
        }
        rest = others;
    }
    escaped
}

/// The length of the colour sequence that the text begins with.
fn colour(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\x1b[")?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    rest[end..].starts_with('m').then_some(text.len() - rest.len() + end + 1)
}

fn bounded_line(line: &str) -> String {
    let length = line.chars().count();
    if length <= LONGEST_LINE {
        return line.to_owned();
    }
    let [head, tail] = KEPT;
    let begins: String = line.chars().take(head).collect();
    let ends: String = line.chars().skip(length - tail).collect();
    format!("{begins}[.. {} characters ..]{ends}", length - head - tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_lose_their_middle() {
        let long = format!("no command `{}`.\nfix: it", "é".repeat(100_000));
        let text = bounded(&long);
        assert!(text.starts_with("no command `é") && text.ends_with("é`.\nfix: it"), "{text}");
        assert!(text.contains("[.. 98214 characters ..]"), "{text}");
        assert!(text.chars().count() < LONGEST_LINE);
        assert_eq!(bounded("short\n\nlines\n"), "short\n\nlines\n");
    }

    #[test]
    fn what_would_drive_a_terminal_is_escaped() {
        let text = bounded("\x1b[1;31merror\x1b[0m: \x1b[2J\x1b]0;x\x07 \r\0é\tx\u{9b}\x1b[31");
        let escaped = "\\u{1b}[2J\\u{1b}]0;x\\u{7} \\r\\u{0}é\tx\\u{9b}\\u{1b}[31";
        assert_eq!(text, format!("\x1b[1;31merror\x1b[0m: {escaped}"));
    }
}
