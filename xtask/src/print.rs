//! Printing that does not panic: a reader who leaves ends the command quietly, a device that is full ends it
//! with a sentence.
//!
//! The macros hide std's of the same names in the modules after this one.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::process::exit;

/// The exit code of a program that its reader left, as a shell shows it: 128 plus the number of SIGPIPE.
const READER_GONE: i32 = 141;

/// The longest line of an error in characters. What is longer loses its middle.
const LONGEST_LINE: usize = 2_000;
/// The parts of a longer line that are kept.
const KEPT: [usize; 2] = [1_200, 600];

macro_rules! print {
    ($($text:tt)*) => { $crate::print::text(format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::print::text(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::line(format_args!($($text)*)) };
}

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

/// The text with the middle of overlong lines left out: an error may quote a name of any length.
pub fn bounded(text: &str) -> String {
    text.split('\n').map(bounded_line).collect::<Vec<_>>().join("\n")
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
}
