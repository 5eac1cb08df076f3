//! Element types and the types that they are reduced in.

use cuda_std::{convert, fastmath};
use half::{bf16, f16};
use primitives::access::{Words, from_words};
use primitives::element::{Element, map};
use primitives::op::{Number, tree};
use primitives::warp::Exchange;

/// An element type that has reductions.
pub trait Reduced: Element {
    /// The type that it is reduced in.
    type Number: Number + Exchange;
    /// The same values, exactly.
    fn numbers<const N: usize>(values: [Self; N]) -> [Self::Number; N];
    /// The largest of a vector of `N` elements; when `reversed` the largest of their [`Number::reversed`].
    #[inline(always)]
    fn largest<const N: usize>(vector: Words, reversed: bool) -> Self::Number {
        let keys =
            Self::numbers(from_words::<Self, N>(vector)).map(|x| if reversed { x.reversed() } else { x });
        tree(keys, Number::larger)
    }
}

macro_rules! reduced {
    ($($ty:ident as $number:ident, |$values:ident| $numbers:expr $(, $larger:path, $unpack:path)?;)*) => { $(
        impl Reduced for $ty {
            type Number = $number;
            #[inline(always)]
            fn numbers<const N: usize>($values: [Self; N]) -> [$number; N] {
                $numbers
            }
            $(
                // Two at a time: registers are left for the loads of further vectors.
                #[inline(always)]
                fn largest<const N: usize>(vector: Words, reversed: bool) -> $number {
                    let signs = if reversed { 0x8000_8000 } else { 0 };
                    let [low, high] = $unpack(tree(vector.map(|pair| pair ^ signs), $larger));
                    low.larger(high)
                }
            )?
        }
    )* };
}

reduced! {
    f64 as f64, |values| values;
    f32 as f32, |values| values;
    // The standard library's `map`: `widen` needs five registers more here.
    f16 as f32, |values| values.map(convert::f16_to_f32), fastmath::max_nan_f16x2, convert::f16x2_to_f32;
    bf16 as f32, |values| bf16::widen(values), fastmath::max_nan_bf16x2, convert::bf16x2_to_f32;
    i64 as i64, |values| values;
    i32 as i64, |values| map(values, i64::from);
    u8 as i64, |values| map(values, i64::from);
}
