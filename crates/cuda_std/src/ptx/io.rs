//! The device's system calls for text.

use core::arch::nvptx;
use core::fmt::{self, Write};

use crate::io::PIECE;

/// Text on its way out, with room for the NUL that ends a piece.
struct Piece {
    bytes: [u8; PIECE],
    len: usize,
}

impl Piece {
    /// Prints what is there and starts anew.
    fn flush(&mut self) {
        self.bytes[self.len] = 0;
        // The format takes one string; its text may hold anything, per cent signs included.
        let arguments = [self.bytes.as_ptr()];
        // SAFETY: both strings end with NUL, and the argument list holds the one pointer that the format names. The
        // call copies the text before it returns.
        unsafe { nvptx::vprintf(c"%s".as_ptr().cast(), arguments.as_ptr().cast()) };
        self.len = 0;
    }
}

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

#[inline(never)]
pub fn print(text: fmt::Arguments<'_>) {
    let mut piece = Piece { bytes: [0; PIECE], len: 0 };
    // Only a value's own formatting code can fail; what came before the failure is still worth printing.
    let _ = piece.write_fmt(text);
    piece.flush();
}

/// Fails the launch; `place` is a file name that ends with NUL, and a line.
pub fn assert_fail(place: (&'static str, u32)) -> ! {
    let function = c"";
    // SAFETY: all three strings end with NUL.
    unsafe {
        nvptx::__assert_fail(
            c"left and right as printed".as_ptr().cast(),
            place.0.as_ptr(),
            place.1,
            function.as_ptr().cast(),
        );
        nvptx::trap()
    }
}
