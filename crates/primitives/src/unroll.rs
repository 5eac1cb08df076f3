//! Loops that are copied out, one body for each index.

/// `unroll!(i in 0..4, { body })` is, on a device, the body four times, each with a constant `i: usize`. On
/// the host it is a loop, which compiles in a fraction of the time; so `i` is no constant in the source's
/// eyes.
///
/// An array stays in registers only if every index into it is a constant, and the compiler unrolls only short
/// bodies by itself. The end is a literal: 1, 2, 3, 4, 5, 6, 7, 8, 16 or 32. A body has no `break` or
/// `continue` of a loop around it.
#[macro_export]
macro_rules! unroll {
    ($index:ident in 0..1, $body:block) => { $crate::unroll!(@ $index $body 0) };
    ($index:ident in 0..2, $body:block) => { $crate::unroll!(@ $index $body 0 1) };
    ($index:ident in 0..3, $body:block) => { $crate::unroll!(@ $index $body 0 1 2) };
    ($index:ident in 0..4, $body:block) => { $crate::unroll!(@ $index $body 0 1 2 3) };
    ($index:ident in 0..5, $body:block) => { $crate::unroll!(@ $index $body 0 1 2 3 4) };
    ($index:ident in 0..6, $body:block) => { $crate::unroll!(@ $index $body 0 1 2 3 4 5) };
    ($index:ident in 0..7, $body:block) => { $crate::unroll!(@ $index $body 0 1 2 3 4 5 6) };
    ($index:ident in 0..8, $body:block) => { $crate::unroll!(@ $index $body 0 1 2 3 4 5 6 7) };
    ($index:ident in 0..16, $body:block) => {
        $crate::unroll!(@ $index $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($index:ident in 0..32, $body:block) => {
        $crate::unroll!(@ $index $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
            16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@ $index:ident $body:block $($value:literal)*) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            $({
                #[allow(non_upper_case_globals)]
                const $index: usize = $value;
                $body
            })*
        }
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(non_snake_case)]
        for $index in [$($value),*] $body
    }};
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_index_takes_each_value_once_and_in_order() {
        let mut seen = Vec::new();
        unroll!(i in 0..8, { seen.push(i) });
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
        let mut count = 0;
        unroll!(i in 0..32, { assert_eq!(i, count); count += 1; });
        assert_eq!(count, 32);
    }
}
