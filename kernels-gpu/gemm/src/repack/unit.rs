//! Sixteen bytes that begin anywhere, by loads of whole aligned units.
//!
//! ```text
//!        aligned      aligned
//!      |  . . a b  |  c d e .  |        two loads of 16 bytes, both within what may be read
//!           skip `-- unit --'           words, then bytes, move down by `skip`
//! ```
//! Where a load would leave what may be read, elements come one by one, all of them under way at a time.

use cuda_std::{misc, vector};
use layout::UNIT_BYTES;
use primitives::unroll;

/// Bytes of a word.
const WORD: u32 = size_of::<u32>() as u32;
/// Words of a unit.
pub(super) const WORDS: usize = (UNIT_BYTES / WORD) as usize;
/// Elements of a unit at most, which are of one byte.
pub(super) const MOST: usize = UNIT_BYTES as usize;

/// An element: bits that travel.
pub(super) trait Element: Copy {
    /// Bytes.
    const BYTES: u32 = size_of::<Self>() as u32;
    /// Elements of a unit.
    const UNIT: u32 = UNIT_BYTES / Self::BYTES;
    /// Elements of a word.
    const PER_WORD: u32 = WORD / Self::BYTES;

    /// The element's bits, 0 where there is none.
    ///
    /// # Safety
    /// It can be read if it is there.
    unsafe fn load_if(from: *const Self, is_there: bool) -> u32;

    /// Words of [`Element::UNIT`] lines, each of as many elements as a word has, as that many units: the
    /// first has the lines' first elements.
    fn turn(lines: [u32; MOST]) -> [[u32; WORDS]; WORDS];
}

impl Element for u8 {
    #[inline(always)]
    unsafe fn load_if(from: *const Self, is_there: bool) -> u32 {
        // SAFETY: the caller's contract.
        if is_there { u32::from(unsafe { *from }) } else { 0 }
    }

    #[inline(always)]
    fn turn(lines: [u32; MOST]) -> [[u32; WORDS]; WORDS] {
        let mut units = [[0; WORDS]; WORDS];
        unroll!(I in 0..4, {
            let [a, b, c, d] = [lines[4 * I], lines[4 * I + 1], lines[4 * I + 2], lines[4 * I + 3]];
            let low = [misc::permute_bytes::<0x5140>(a, b), misc::permute_bytes::<0x5140>(c, d)];
            let high = [misc::permute_bytes::<0x7362>(a, b), misc::permute_bytes::<0x7362>(c, d)];
            [units[0][I], units[1][I]] = halves(low);
            [units[2][I], units[3][I]] = halves(high);
        });
        units
    }
}

impl Element for u16 {
    #[inline(always)]
    unsafe fn load_if(from: *const Self, is_there: bool) -> u32 {
        // SAFETY: the caller's contract.
        u32::from(unsafe { vector::load_b16_if(from, is_there) })
    }

    #[inline(always)]
    fn turn(lines: [u32; MOST]) -> [[u32; WORDS]; WORDS] {
        let mut units = [[0; WORDS]; WORDS];
        unroll!(I in 0..4, { [units[0][I], units[1][I]] = halves([lines[2 * I], lines[2 * I + 1]]); });
        units
    }
}

impl Element for u32 {
    #[inline(always)]
    unsafe fn load_if(from: *const Self, is_there: bool) -> u32 {
        // SAFETY: the caller's contract.
        unsafe { vector::load_if(from, is_there) }
    }

    #[inline(always)]
    fn turn(lines: [u32; MOST]) -> [[u32; WORDS]; WORDS] {
        let mut units = [[0; WORDS]; WORDS];
        unroll!(I in 0..4, { units[0][I] = lines[I]; });
        units
    }
}

/// The low halves of two words as one, and the high ones.
#[inline(always)]
fn halves([a, b]: [u32; 2]) -> [u32; 2] {
    [misc::permute_bytes::<0x5410>(a, b), misc::permute_bytes::<0x7632>(a, b)]
}

/// Two aligned units, and how many bytes of them lie before the wanted one.
#[derive(Clone, Copy)]
pub(super) struct Fetched {
    words: [u32; 2 * WORDS],
    skip: u32,
}

impl Fetched {
    /// Zeros.
    pub const NONE: Self = Self { words: [0; 2 * WORDS], skip: 0 };

    #[inline(always)]
    fn new(low: [u32; WORDS], high: [u32; WORDS], skip: u32) -> Self {
        let mut words = [0; 2 * WORDS];
        unroll!(I in 0..4, { (words[I], words[WORDS + I]) = (low[I], high[I]); });
        Self { words, skip }
    }

    /// The unit that begins `skip` bytes in.
    #[inline(always)]
    pub fn unit<T: Element>(self) -> [u32; WORDS] {
        let Self { mut words, skip } = self;
        let (by_two, by_one) = (skip & (2 * WORD) != 0, skip & WORD != 0);
        unroll!(I in 0..6, { words[I] = if by_two { words[I + 2] } else { words[I] }; });
        unroll!(I in 0..5, { words[I] = if by_one { words[I + 1] } else { words[I] }; });
        let mut unit = [0; WORDS];
        let bits = skip % WORD * u8::BITS;
        unroll!(I in 0..4, {
            unit[I] = if T::BYTES < WORD {
                ((u64::from(words[I + 1]) << u32::BITS | u64::from(words[I])) >> bits) as u32
            } else {
                words[I]
            };
        });
        unit
    }
}

/// Loads `count` neighbouring elements, at most a unit of them; what follows them may be anything.
///
/// # Safety
/// They can be read, and so can all between the two addresses of `within`.
#[inline(always)]
pub(super) unsafe fn fetch<T: Element>(from: *const T, count: u32, within: [usize; 2]) -> Fetched {
    let skip = from as u32 % UNIT_BYTES;
    let first = from as usize - skip as usize;
    let goes_on = skip + count * T::BYTES > UNIT_BYTES;
    let behind = first + (if goes_on { 2 * UNIT_BYTES } else { UNIT_BYTES }) as usize;
    if first >= within[0] && behind <= within[1] {
        let from = from.cast::<u8>().wrapping_sub(skip as usize).cast::<u32>();
        // SAFETY: both units, or the one, lie between the addresses, at 16-byte boundaries.
        unsafe {
            let low = vector::load_v4(from);
            let high = vector::load_v4(from.wrapping_add(if goes_on { WORDS } else { 0 }));
            Fetched::new(low, high, skip)
        }
    } else {
        // SAFETY: the caller's contract.
        unsafe { gather(from, 1, count) }
    }
}

/// Loads `count` elements, at most a unit of them, `step` elements apart; zeros follow them.
///
/// # Safety
/// They can be read.
#[inline(always)]
pub(super) unsafe fn gather<T: Element>(from: *const T, step: u64, count: u32) -> Fetched {
    let mut words = [0; WORDS];
    let mut at = from;
    // Of a byte each, so many are loaded in two halves: registers are short.
    unroll!(HALF in 0..2, {
        let mut elements = [0; MOST / 2];
        unroll!(I in 0..8, {
            let index = 8 * HALF as u32 + I as u32;
            if index < T::UNIT {
                // SAFETY: the caller's contract.
                elements[I] = unsafe { T::load_if(at, index < count) };
                at = at.wrapping_add(step as usize);
            }
        });
        unroll!(I in 0..8, {
            let index = 8 * HALF as u32 + I as u32;
            if index < T::UNIT {
                let within = index % T::PER_WORD * T::BYTES * u8::BITS;
                words[(index / T::PER_WORD) as usize] |= elements[I] << within;
            }
        });
    });
    Fetched::new(words, [0; WORDS], 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbered bytes as words.
    fn numbered() -> [u32; 2 * WORDS] {
        std::array::from_fn(|word| u32::from_le_bytes(std::array::from_fn(|byte| (4 * word + byte) as u8)))
    }

    #[test]
    fn a_unit_begins_at_every_element() {
        fn check<T: Element>() {
            for skip in (0..UNIT_BYTES).step_by(T::BYTES as usize) {
                let unit = Fetched { words: numbered(), skip }.unit::<T>();
                let bytes: Vec<u8> = unit.into_iter().flat_map(u32::to_le_bytes).collect();
                let wanted: Vec<u8> = (skip..skip + UNIT_BYTES).map(|byte| byte as u8).collect();
                assert_eq!(bytes, wanted, "{} bytes, skip {skip}", T::BYTES);
            }
        }
        check::<u8>();
        check::<u16>();
        check::<u32>();
    }

    #[test]
    fn lines_become_units() {
        fn check<T: Element>() {
            let bytes = T::BYTES as usize;
            // Element `e` of line `l` has the bytes 16 e + l, of which two lines have no two alike.
            let line = |line: usize| {
                let element = |byte: usize| (MOST * (byte / bytes) + line) as u8;
                u32::from_le_bytes(std::array::from_fn(element))
            };
            let units = T::turn(std::array::from_fn(line));
            for (element, unit) in units.into_iter().take(T::PER_WORD as usize).enumerate() {
                let got: Vec<u8> = unit.into_iter().flat_map(u32::to_le_bytes).collect();
                let wanted: Vec<u8> = (0..MOST).map(|byte| (MOST * element + byte / bytes) as u8).collect();
                assert_eq!(got, wanted, "{bytes} bytes, element {element}");
            }
        }
        check::<u8>();
        check::<u16>();
        check::<u32>();
    }
}
