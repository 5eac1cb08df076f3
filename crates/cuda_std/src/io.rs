//! Printing from threads, and assertions that stop the launch.
//!
//! A kernel prints into a buffer on the device: 1 MB, unless the host asks for more. When it is full, the
//! oldest text is lost. The text reaches standard output when the host synchronises. One call prints in one
//! piece as long as the text is shorter than [`PIECE`].

#[cfg(target_arch = "nvptx64")]
use core::arch::nvptx;
use core::ffi::c_void;
use core::fmt;
#[cfg(target_arch = "nvptx64")]
use core::fmt::Write;
#[cfg(not(target_arch = "nvptx64"))]
use std::ffi::CStr;

#[cfg(not(target_arch = "nvptx64"))]
mod format;

/// Bytes of text that one `print!` puts out in one piece; longer texts are cut into several, between which
/// other threads may print.
pub const PIECE: usize = 512;

/// Text on its way out, with room for the NUL that ends a piece.
#[cfg(target_arch = "nvptx64")]
struct Piece {
    bytes: [u8; PIECE],
    len: usize,
}

#[cfg(target_arch = "nvptx64")]
impl Piece {
    /// Prints what is there and starts anew.
    fn flush(&mut self) {
        self.bytes[self.len] = 0;
        // The format takes one string; its text may hold anything but NUL, per cent signs included.
        let arguments = [self.bytes.as_ptr()];
        // SAFETY: both strings end with NUL, and the argument list holds the one pointer that the format
        // names. The call copies the text before it returns.
        unsafe { nvptx::vprintf(c"%s".as_ptr().cast(), arguments.as_ptr().cast()) };
        self.len = 0;
    }
}

#[cfg(target_arch = "nvptx64")]
impl Write for Piece {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len >= PIECE - 1 {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

/// C's `vprintf`, which the driver provides: prints `format` with the arguments at `valist`, in one piece.
/// They lie there in order, each aligned to its size, as in a `repr(C)` struct: integers of 4 or 8 bytes,
/// `f64`, pointers.
///
/// Returns the number of arguments, or -1 for a null format. On the host the rules are the C standard's,
/// without `%n`.
///
/// # Safety
/// `format` is null or ends with NUL, the arguments that it names are at `valist`, and a text among them ends
/// with NUL. `valist` may be null if it names none.
///
/// # PTX
/// `call vprintf`
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn vprintf(format: *const u8, valist: *const c_void) -> i32 {
    arms! {
        // SAFETY: the caller's promise.
        ptx: { unsafe { nvptx::vprintf(format, valist) } }
        sim: {
            if format.is_null() {
                return -1;
            }
            // SAFETY: the caller's promise.
            let (text, arguments) = unsafe { format::format(format, valist) };
            simt::print(&text);
            arguments
        }
    }
}

/// C's `__assertfail`, which the driver provides: prints the place and the message, and stops the launch with
/// an assertion error. It does not return. Under the checker it is a fault with the same text.
///
/// # Safety
/// `message`, `file` and `function` end with NUL. `char_size` is 1, the bytes of a character.
///
/// # PTX
/// `call __assertfail`
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub unsafe fn __assertfail(
    message: *const u8,
    file: *const u8,
    line: u32,
    function: *const u8,
    char_size: usize,
) {
    arms! {
        ptx: {
            unsafe extern "C" {
                #[link_name = "__assertfail"]
                fn system_call(message: *const u8, file: *const u8, line: u32, function: *const u8, size: usize);
            }
            // SAFETY: the caller's promise.
            unsafe { system_call(message, file, line, function, char_size) }
        }
        sim: {
            let _ = char_size;
            // SAFETY: the caller's promise.
            let [message, file, function] =
                [message, file, function].map(|text| unsafe { CStr::from_ptr(text.cast()) }.to_string_lossy());
            simt::trap(&format!("{file}:{line}: {function}: assertion `{message}` failed"))
        }
    }
}

/// The expansion of `print!` calls this.
#[doc(hidden)]
#[cfg_attr(target_arch = "nvptx64", inline(never))]
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
pub fn print(text: fmt::Arguments<'_>) {
    arms! {
        ptx: {
            let mut piece = Piece { bytes: [0; PIECE], len: 0 };
            // Only a value's own formatting code can fail; what came before the failure is still worth
            // printing.
            let _ = piece.write_fmt(text);
            piece.flush();
        }
        sim: { simt::print(&text.to_string()) }
    }
}

/// Failed assertions call this.
#[doc(hidden)]
#[cold]
#[track_caller]
pub fn assertion_failed(
    claim: &str,
    left: &dyn fmt::Debug,
    right: &dyn fmt::Debug,
    message: fmt::Arguments<'_>,
    // A file name that ends with NUL, and a line.
    (file, line): (&'static str, u32),
) -> ! {
    print(format_args!("assertion failed: ({claim}) {message}\nleft : {left:?}\nright: {right:?}\n"));
    arms! {
        ptx: {
            let function = c"";
            // SAFETY: all three strings end with NUL.
            unsafe {
                nvptx::__assert_fail(
                    c"left and right as printed".as_ptr().cast(),
                    file.as_ptr(),
                    line,
                    function.as_ptr().cast(),
                );
                nvptx::trap()
            }
        }
        sim: { simt::trap(&format!("assertion failed at {}:{line}", file.trim_end_matches('\0'))) }
    }
}

/// Prints from a thread, like `std::print!`. The text is built in a buffer on the thread's stack; nothing is
/// allocated. PTX `call vprintf`.
///
/// On a device a NUL character ends its piece: what follows it there, up to [`PIECE`](crate::io::PIECE)
/// bytes, is lost.
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

/// Stops the launch unless two values are equal, after printing both. The host sees the launch fail with an
/// assertion error. PTX `call __assertfail`.
#[macro_export]
macro_rules! assert_eq {
    ($left:expr, $right:expr $(, $($message:tt)*)?) => {
        $crate::__assert_related!(==, $left, $right, $($($message)*)?)
    };
}

/// Stops the launch unless two values differ, after printing both. The host sees the launch fail with an
/// assertion error. PTX `call __assertfail`.
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
