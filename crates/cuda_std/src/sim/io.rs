//! Text from simulated threads.

use std::fmt;

#[track_caller]
pub fn print(text: fmt::Arguments<'_>) {
    simt::print(&text.to_string())
}

#[track_caller]
pub fn assert_fail((file, line): (&'static str, u32)) -> ! {
    simt::trap(&format!("assertion failed at {}:{line}", file.trim_end_matches('\0')))
}
