//! Several elements in one access of up to 16 bytes.

use cuda_std::vector;

pub use cuda_std::vector::{Plain, VECTOR_BYTES, from_words, load_array as load, store_array as store};

const _: () = assert!(VECTOR_BYTES == layout::UNIT_BYTES as usize);

/// Elements that a thread moves at a time when it moves types of these sizes side by side.
///
/// They are 16 bytes of the larger type, but at least 4 of the smaller, so that a warp's access fills whole
/// sectors.
pub const fn width(size: usize, other: usize) -> usize {
    /// Least bytes of an access.
    const LEAST: usize = 4;
    let (large, small) = if size > other { (size, other) } else { (other, size) };
    let wide = VECTOR_BYTES / large;
    if wide * small < LEAST { LEAST / small } else { wide }
}

/// The bits of a value as another type of the same size.
///
/// # Safety
/// `To` has the size of `From`, or a smaller one, and the bits are a value of it.
#[inline(always)]
unsafe fn cast<From: Copy, To: Copy>(from: From) -> To {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::read_unaligned((&raw const from).cast()) }
}

/// Sixteen bytes as words.
pub type Words = [u32; VECTOR_BYTES / size_of::<u32>()];

/// The first sixteen bytes of [`Wide`].
#[inline(always)]
pub fn words([a, b, c, d, ..]: Wide) -> Words {
    [a, b, c, d]
}

/// Loads sixteen bytes.
///
/// # Safety
/// `pointer` is readable for them and aligned to them.
#[inline(always)]
pub unsafe fn load_words<T: Plain>(pointer: *const T) -> Words {
    // SAFETY: the caller's promise.
    unsafe { vector::load_v4(pointer.cast()) }
}

/// Up to 32 bytes as words.
pub type Wide = [u32; WIDE_WORDS];
const WIDE_WORDS: usize = 2 * VECTOR_BYTES / size_of::<u32>();

/// [`load`] of at least 4 bytes, as words.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn load_wide<T: Copy, const N: usize>(pointer: *const T) -> Wide {
    let mut wide = Wide::default();
    // SAFETY: the caller's promise.
    unsafe {
        match N * size_of::<T>() {
            4 => wide[0] = vector::load(pointer.cast()),
            8 => [wide[0], wide[1]] = vector::load_v2(pointer.cast()),
            bytes => {
                [wide[0], wide[1], wide[2], wide[3]] = vector::load_v4(pointer.cast());
                if bytes > VECTOR_BYTES {
                    let second = pointer.byte_add(VECTOR_BYTES);
                    [wide[4], wide[5], wide[6], wide[7]] = vector::load_v4(second.cast());
                }
            }
        }
    }
    wide
}

/// The elements in it.
///
/// # Safety
/// Every bit pattern is a `T`.
#[inline(always)]
pub unsafe fn from_wide<T: Copy, const N: usize>(wide: Wide) -> [T; N] {
    const { assert!(N * size_of::<T>() <= size_of::<Wide>()) };
    // SAFETY: the elements are no larger than that; the caller's promise.
    unsafe { cast(wide) }
}

/// Up to 32 bytes of elements as words.
#[inline(always)]
pub fn to_wide<T: Plain, const N: usize>(values: [T; N]) -> Wide {
    let mut wide = Wide::default();
    // SAFETY: the arm taken has the size of the values, of which every bit pattern is a number.
    unsafe {
        match N * size_of::<T>() {
            4 => wide[0] = cast(values),
            8 => [wide[0], wide[1]] = cast(values),
            16 => [wide[0], wide[1], wide[2], wide[3]] = cast(values),
            _ => {
                const { assert!(N * size_of::<T>() >= 4 && N * size_of::<T>() <= size_of::<Wide>()) };
                wide = cast(values)
            }
        }
    }
    wide
}

/// Words that begin with the value.
#[inline(always)]
pub fn first<T: Plain>(value: T) -> Wide {
    let mut wide = Wide::default();
    // SAFETY: the arm taken has the size of the value, of which every bit pattern is a number.
    unsafe {
        match size_of::<T>() {
            1 => wide[0] = u32::from(cast::<T, u8>(value)),
            2 => wide[0] = u32::from(cast::<T, u16>(value)),
            4 => wide[0] = cast(value),
            _ => [wide[0], wide[1]] = cast(value),
        }
    }
    wide
}

/// Words in which every element is the one that [`first`] put there.
#[inline(always)]
pub fn repeat_first<T: Plain>(wide: Wide) -> Wide {
    let [low, high, ..] = wide;
    match size_of::<T>() {
        1 => [low * 0x0101_0101; WIDE_WORDS],
        2 => [low * 0x0001_0001; WIDE_WORDS],
        4 => [low; WIDE_WORDS],
        _ => [low, high, low, high, low, high, low, high],
    }
}

#[cfg(test)]
mod tests {
    use super::width;

    #[test]
    fn widths_move_sixteen_bytes_of_the_larger() {
        for (sizes, elements) in [
            ((8, 8), 2),
            ((4, 4), 4),
            ((2, 2), 8),
            ((1, 1), 16),
            ((4, 2), 4),
            ((2, 1), 8),
            ((4, 1), 4),
            ((8, 1), 4),
            ((8, 2), 2),
        ] {
            assert_eq!(width(sizes.0, sizes.1), elements, "{sizes:?}");
            assert_eq!(width(sizes.1, sizes.0), elements, "{sizes:?}");
        }
    }
}
