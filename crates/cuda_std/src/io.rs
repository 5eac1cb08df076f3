//! Printing from threads, and assertions that stop the launch.
//!
//! What a kernel prints goes into a buffer on the device (1 MB unless the host asks for more; when it is full the oldest
//! text is lost) and reaches standard output when the host synchronises. One call prints in one piece as long as the
//! text is shorter than [`PIECE`].

use core::fmt;

use crate::arch::io as arch;

/// Bytes of text that one `print!` puts out in one piece; longer texts are cut into several, between which other threads
/// may print.
pub const PIECE: usize = 512;

/// What `print!` expands to.
#[doc(hidden)]
#[inline(always)]
#[track_caller]
pub fn print(text: fmt::Arguments<'_>) {
    arch::print(text)
}

/// What the assertions expand to when they fail.
#[doc(hidden)]
#[cold]
#[track_caller]
pub fn assertion_failed(
    claim: &str,
    left: &dyn fmt::Debug,
    right: &dyn fmt::Debug,
    message: fmt::Arguments<'_>,
    place: (&'static str, u32),
) -> ! {
    arch::print(format_args!("assertion failed: ({claim}) {message}\nleft : {left:?}\nright: {right:?}\n"));
    arch::assert_fail(place)
}

/// Prints from a thread, like `std::print!`. The text is built in a buffer on the thread's stack; nothing is allocated.
/// PTX `call vprintf`.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => {
        $crate::io::print(::core::format_args!($($arg)*))
    };
}

/// [`print!`](crate::print!) with a line break at the end.
#[macro_export]
macro_rules! println {
    () => {
        $crate::print!("\n")
    };
    ($($arg:tt)*) => {
        $crate::io::print(::core::format_args!("{}\n", ::core::format_args!($($arg)*)))
    };
}

/// Stops the launch unless two values are equal, after printing both. The host sees the launch fail with an assertion
/// error. PTX `call __assertfail`.
#[macro_export]
macro_rules! assert_eq {
    ($left:expr, $right:expr $(, $($message:tt)*)?) => {
        $crate::__assert_related!(==, $left, $right, $($($message)*)?)
    };
}

/// Stops the launch unless two values differ, after printing both. The host sees the launch fail with an assertion
/// error. PTX `call __assertfail`.
#[macro_export]
macro_rules! assert_ne {
    ($left:expr, $right:expr $(, $($message:tt)*)?) => {
        $crate::__assert_related!(!=, $left, $right, $($($message)*)?)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __assert_related {
    ($relation:tt, $left:expr, $right:expr, $($message:tt)*) => {
        match (&$left, &$right) {
            (left, right) => {
                if !(*left $relation *right) {
                    $crate::io::assertion_failed(
                        ::core::concat!(
                            ::core::stringify!($left), " ", ::core::stringify!($relation), " ", ::core::stringify!($right)
                        ),
                        left,
                        right,
                        $crate::__message!($($message)*),
                        (::core::concat!(::core::file!(), "\0"), ::core::line!()),
                    )
                }
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __message {
    () => {
        ::core::format_args!("")
    };
    ($($message:tt)*) => {
        ::core::format_args!($($message)*)
    };
}
