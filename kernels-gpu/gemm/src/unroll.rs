//! Loops that must not be loops in the machine code.

/// Repeats a block with the constant `$index` taking each of the values.
///
/// Arrays indexed by it stay in registers: the compiler's own unrolling gives up on bodies of this size, and then an array of
/// accumulators lands in local memory.
macro_rules! unrolled {
    ($index:ident in [$($value:literal)*] $body:block) => {
        $({
            const $index: usize = $value;
            $body
        })*
    };
}
pub(crate) use unrolled;
