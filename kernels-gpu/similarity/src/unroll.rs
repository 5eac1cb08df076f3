//! Loops over registers.

/// `unroll!(i in 0..4, { body })` is the body four times with a constant `i: usize`.
///
/// An array that any index but a constant reaches lives in local memory, and the compiler unrolls only short bodies by itself.
macro_rules! unroll {
    ($index:ident in 0..2, $body:block) => { unroll!(@ $index $body 0 1) };
    ($index:ident in 0..4, $body:block) => { unroll!(@ $index $body 0 1 2 3) };
    ($index:ident in 0..8, $body:block) => { unroll!(@ $index $body 0 1 2 3 4 5 6 7) };
    ($index:ident in 0..32, $body:block) => {
        unroll!(@ $index $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@ $index:ident $body:block $($value:literal)*) => {
        $({
            #[allow(non_upper_case_globals)]
            const $index: usize = $value;
            $body
        })*
    };
}
pub(crate) use unroll;
