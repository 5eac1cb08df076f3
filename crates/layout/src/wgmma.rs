//! The 64-bit matrix descriptors of `wgmma.mma_async`, and the shared-memory layout that they describe.
//!
//! | bits | field | unit |
//! |---|---|---|
//! | 0..14 | start address in the shared window | 16 bytes |
//! | 16..30 | leading dimension byte offset | 16 bytes |
//! | 32..46 | stride dimension byte offset | 16 bytes |
//! | 49..52 | base offset: row of the swizzle pattern in which the operand begins | 128 bytes |
//! | 62..64 | swizzle: 0 none, 1 of 128 bytes, 2 of 64, 3 of 32 | |
//!
//! An instruction reads `64 x 32 bytes` of A or `N x 32 bytes` of B: M or N rows of k. Let `S` be the
//! swizzle's span (16 bytes without one). The offset from the start address, before the swizzle, is
//!
//! ```text
//!  K-major   (32 bytes of k lie side by side, in pieces of 16)
//!     mn % 8 * S  +  mn / 8 * stride  +  piece of k * (16, without swizzle: leading)
//!  MN-major  (16-bit elements; S bytes of m or n lie side by side, with 8 rows of k below each other)
//!     mn % (S / 2) * 2  +  k % 8 * S  +  mn / (S / 2) * leading  +  k / 8 * stride         with a swizzle
//!     mn % 8 * 2        +  k % 8 * 16 +  mn / 8 * stride         +  k / 8 * leading        without one
//! ```
//! The swizzle then applies to the address: bits 4.. are XORed with bits 7.. (three bits for 128 bytes, two
//! for 64, one for 32), as TMA does when it writes a box of that swizzle. So a K-major tile of `S`-byte rows,
//! written by TMA to a multiple of `8 S`, has `stride = 8 S` and any leading offset. The next 32 bytes of k
//! begin 32 bytes later ([`advance`]).
//!
//! Source: PTX ISA, "Asynchronous warpgroup level matrix instructions", shared memory matrix layout and
//! matrix descriptor.

/// The unit of addresses and offsets in a descriptor.
const UNIT_SHIFT: u32 = 4;
const FIELD_BITS: u32 = 14;
const FIELD: u64 = (1 << FIELD_BITS) - 1;
const LEADING_SHIFT: u32 = 16;
const STRIDE_SHIFT: u32 = 32;
const BASE_SHIFT: u32 = 49;
const SWIZZLE_SHIFT: u32 = 62;

/// Rows of a core matrix. Operands consist of core matrices.
const CORE_ROWS: u32 = 8;
/// Bytes of k that one instruction reads.
pub const K_BYTES: u32 = 32;

/// Swizzle modes of 16-byte pieces. The values are those of the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Swizzle {
    /// No swizzle.
    None = 0,
    /// Permutes the 8 pieces of 128 bytes.
    B128 = 1,
    /// Permutes the 4 pieces of 64 bytes.
    B64 = 2,
    /// Permutes the 2 pieces of 32 bytes.
    B32 = 3,
}

impl Swizzle {
    /// The swizzle's span: pieces are permuted within this many bytes, the length of a tile's row. 16 for
    /// [`None`](Self::None).
    #[inline(always)]
    pub const fn span(self) -> u32 {
        crate::UNIT_BYTES << self.bits()
    }

    /// The swizzle of this span. [`None`](Self::None) for any other length.
    #[inline(always)]
    #[must_use]
    pub const fn of_span(bytes: u32) -> Self {
        match bytes {
            128 => Swizzle::B128,
            64 => Swizzle::B64,
            32 => Swizzle::B32,
            _ => Swizzle::None,
        }
    }

    /// The number of address bits that are XORed.
    #[inline(always)]
    const fn bits(self) -> u32 {
        match self {
            Swizzle::None => 0,
            Swizzle::B32 => 1,
            Swizzle::B64 => 2,
            Swizzle::B128 => 3,
        }
    }

    /// The mask of the bits of an address's 128-byte row number that take part.
    #[inline(always)]
    const fn rows(self) -> u32 {
        (1 << self.bits()) - 1
    }

    /// The period of the pattern in bytes. Tiles begin at multiples of it.
    #[inline(always)]
    pub const fn period(self) -> u32 {
        CORE_ROWS * self.span()
    }

    /// The swizzled address of the byte at shared address `address` of the plain layout. An involution.
    #[inline(always)]
    pub const fn apply(self, address: u32) -> u32 {
        address ^ (address >> ROW_SHIFT & self.rows()) << UNIT_SHIFT
    }

    const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Swizzle::None,
            1 => Swizzle::B128,
            2 => Swizzle::B64,
            _ => Swizzle::B32,
        }
    }
}

/// Swizzles count rows of 128 bytes.
const ROW_SHIFT: u32 = 7;

/// The dimension that is contiguous in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// K, the dimension of the sum: A row-major, B column-major.
    K,
    /// M or N: A column-major, B row-major. 16-bit elements only.
    MN,
}

/// The descriptor of an operand that begins at shared address `address`. The module documents the two
/// offsets, in bytes.
///
/// All three are multiples of 16 below 2^18. Higher bits are lost. Tiles begin at a multiple of
/// [`Swizzle::period`]; `address` is the tile's start, or a step of [`advance`] behind it.
#[inline(always)]
#[must_use]
pub const fn descriptor(address: u32, leading_bytes: u32, stride_bytes: u32, swizzle: Swizzle) -> u64 {
    field(address)
        | field(leading_bytes) << LEADING_SHIFT
        | field(stride_bytes) << STRIDE_SHIFT
        | (swizzle as u64) << SWIZZLE_SHIFT
}

#[inline(always)]
const fn field(bytes: u32) -> u64 {
    units(bytes) as u64
}

/// A shared address, or an offset, as descriptors have it: in units of 16 bytes. Higher bits than a
/// descriptor has room for are lost.
#[inline(always)]
#[must_use]
pub const fn units(bytes: u32) -> u32 {
    bytes >> UNIT_SHIFT & FIELD as u32
}

/// The descriptor of the operand `bytes` (a multiple of 16) later in shared memory. In a cluster shared
/// addresses have higher bits than a descriptor has room for, so a whole address goes through [`units`].
///
/// In a K-major tile the next instruction's elements of k are `K_BYTES` later, as long as they lie in the
/// swizzle's span.
#[inline(always)]
#[must_use]
pub const fn advance(descriptor: u64, bytes: u32) -> u64 {
    advance_units(descriptor, bytes >> UNIT_SHIFT)
}

/// The descriptor of the operand `units` of 16 bytes later in shared memory.
///
/// Only the lower word changes, so a GPU needs one instruction for it: additions of 64 bits take two, with a
/// carry between them.
#[inline(always)]
#[must_use]
pub const fn advance_units(descriptor: u64, units: u32) -> u64 {
    let low = (descriptor as u32).wrapping_add(units);
    descriptor & !(u32::MAX as u64) | low as u64
}

/// Whether bits above a start address's 18 have been added to a descriptor. Shared addresses in a cluster
/// have such bits, which change the leading offset.
#[inline]
#[must_use]
pub const fn is_overflown(descriptor: u64) -> bool {
    let low = descriptor & ((1 << LEADING_SHIFT) - 1);
    low > FIELD
}

/// The fields of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Address of the first element, before the swizzle.
    pub start: u32,
    /// Leading dimension byte offset.
    pub leading: u32,
    /// Stride dimension byte offset.
    pub stride: u32,
    /// The row of the pattern that holds `start`, if the pattern does not begin at a multiple of its period.
    pub base: u32,
    /// The swizzle.
    pub swizzle: Swizzle,
}

impl Descriptor {
    /// Decodes a descriptor.
    #[must_use]
    pub const fn decode(bits: u64) -> Self {
        Descriptor {
            start: bytes(bits),
            leading: bytes(bits >> LEADING_SHIFT),
            stride: bytes(bits >> STRIDE_SHIFT),
            base: (bits >> BASE_SHIFT) as u32 & 7,
            swizzle: Swizzle::from_bits(bits >> SWIZZLE_SHIFT),
        }
    }

    /// The row of the swizzle pattern in which the operand begins. 0 if the operand begins with a tile.
    #[must_use]
    pub const fn first_row(self) -> u32 {
        (self.start >> ROW_SHIFT).wrapping_sub(self.base) & self.swizzle.rows()
    }

    /// Whether an operand of `rows` of m or n has elements that the leading offset places.
    #[inline]
    #[must_use]
    pub const fn needs_leading(self, major: Major, element_bytes: u32, rows: u32) -> bool {
        match (self.swizzle, major) {
            (Swizzle::None, _) => true,
            (_, Major::K) => false,
            (_, Major::MN) => rows * element_bytes > self.swizzle.span(),
        }
    }

    /// Shared address of element `(mn, k)` of the operand. An element has `element_bytes` (1, 2 or 4) bytes.
    #[inline]
    #[must_use]
    pub const fn address(self, major: Major, element_bytes: u32, mn: u32, k: u32) -> u32 {
        let plain = self.start.wrapping_add(match major {
            Major::K => self.k_major(mn, k * element_bytes),
            Major::MN => self.mn_major(element_bytes, mn, k),
        });
        let row = (plain >> ROW_SHIFT).wrapping_sub(self.base) & self.swizzle.rows();
        plain ^ row << UNIT_SHIFT
    }

    #[inline]
    const fn k_major(self, mn: u32, k_bytes: u32) -> u32 {
        let unit = crate::UNIT_BYTES;
        let pitch = match self.swizzle {
            Swizzle::None => self.leading,
            _ => unit,
        };
        mn % CORE_ROWS * self.swizzle.span()
            + mn / CORE_ROWS * self.stride
            + k_bytes / unit * pitch
            + k_bytes % unit
    }

    #[inline]
    const fn mn_major(self, element_bytes: u32, mn: u32, k: u32) -> u32 {
        let side_by_side = self.swizzle.span() / element_bytes;
        let (next_mn, next_k) = match self.swizzle {
            Swizzle::None => (self.stride, self.leading),
            _ => (self.leading, self.stride),
        };
        mn % side_by_side * element_bytes
            + k % CORE_ROWS * self.swizzle.span()
            + mn / side_by_side * next_mn
            + k / CORE_ROWS * next_k
    }
}

const fn bytes(field: u64) -> u32 {
    ((field & FIELD) << UNIT_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{Descriptor, K_BYTES, Major, Swizzle, advance, descriptor, is_overflown};
    use crate::banks::wavefronts_16;
    use std::{vec, vec::Vec};

    const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
    const START: u32 = 0x4400;

    /// Strides of a dense tile of `rows` of m or n and `K_BYTES` of k.
    fn dense(major: Major, swizzle: Swizzle, rows: u32, element_bytes: u32) -> Descriptor {
        let core = swizzle.period();
        let k_cores = K_BYTES / element_bytes / 8;
        let (leading, stride) = match (major, swizzle) {
            (Major::K, Swizzle::None) => (rows * 16, core),
            (Major::K, _) => (16, core),
            (Major::MN, Swizzle::None) => (rows * 16, core),
            (Major::MN, _) => (k_cores * core, core),
        };
        Descriptor::decode(descriptor(START, leading, stride, swizzle))
    }

    #[test]
    fn fields_go_where_the_table_says() {
        assert_eq!(descriptor(0x3_fff0, 0, 0, Swizzle::None), 0x3fff);
        assert_eq!(descriptor(0, 16, 0, Swizzle::None), 1 << 16);
        assert_eq!(descriptor(0, 0, 1024, Swizzle::B128), 64 << 32 | 1 << 62);
        assert_eq!(descriptor(0, 0, 0, Swizzle::B64) >> 62, 2);
        assert_eq!(descriptor(0, 0, 0, Swizzle::B32) >> 62, 3);
        for swizzle in SWIZZLES {
            let fields = Descriptor::decode(descriptor(0x1230, 0x2460, 0x3_0010, swizzle));
            let want = Descriptor { start: 0x1230, leading: 0x2460, stride: 0x3_0010, base: 0, swizzle };
            assert_eq!(fields, want);
        }
        assert_eq!(Descriptor::decode(5 << 49).base, 5);
        assert_eq!(
            Descriptor::decode(advance(descriptor(START, 16, 16, Swizzle::None), 96)).start,
            START + 96
        );
    }

    /// Where the leading offset has no use, another one leads to the same elements.
    #[test]
    fn leading_offsets_are_needed_where_they_place_elements() {
        for swizzle in SWIZZLES {
            for (major, element_bytes) in [(Major::K, 1), (Major::K, 2), (Major::K, 4), (Major::MN, 2)] {
                for rows in [8, 16, 24, 32, 40, 64, 72, 128, 256] {
                    let [one, other] = [0x400, 0x800].map(|leading| {
                        let fields = Descriptor::decode(descriptor(START, leading, 0x100, swizzle));
                        let all = (0..rows).flat_map(|mn| (0..K_BYTES / element_bytes).map(move |k| (mn, k)));
                        all.map(|(mn, k)| fields.address(major, element_bytes, mn, k)).collect::<Vec<_>>()
                    });
                    let fields = Descriptor::decode(descriptor(START, 0, 0, swizzle));
                    let needs = fields.needs_leading(major, element_bytes, rows);
                    assert_eq!(needs, one != other, "{swizzle:?} {major:?} {rows}");
                }
            }
        }
    }

    #[test]
    fn higher_bits_of_an_address_are_seen() {
        let at = |address| advance(descriptor(0, 0x3_fff0, 16, Swizzle::B128), address);
        assert!(!is_overflown(at(0x3_fff0)) && is_overflown(at(0x4_0000)) && is_overflown(at(0x8_0400)));
        assert!(!is_overflown(descriptor(0x108_0400, 0x3_fff0, 16, Swizzle::B128)));
    }

    #[test]
    fn every_element_has_a_place_of_its_own() {
        for swizzle in SWIZZLES {
            for (major, element_bytes) in [(Major::K, 1), (Major::K, 2), (Major::K, 4), (Major::MN, 2)] {
                // Dense: 32 bytes per row where a swizzled row holds no more than that, or along m.
                let rows = if major == Major::MN { swizzle.span().max(64) } else { 64 };
                let fields = dense(major, swizzle, rows, element_bytes);
                let mut places = Vec::new();
                for mn in 0..rows {
                    for k in 0..K_BYTES / element_bytes {
                        places.push(fields.address(major, element_bytes, mn, k));
                    }
                }
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len() as u32, rows * K_BYTES / element_bytes, "{swizzle:?} {major:?}");
                let pitch =
                    if major == Major::K && swizzle != Swizzle::None { swizzle.span() } else { K_BYTES };
                let end = START + rows * pitch;
                assert!(places.iter().all(|place| (START..end).contains(place)), "{swizzle:?} {major:?}");
            }
        }
    }

    /// Derived by hand: element (m, k) of a row-major tile whose rows are the swizzle's span, as TMA writes
    /// it.
    #[test]
    fn k_major_reads_what_tma_wrote() {
        for (swizzle, span) in [(Swizzle::B32, 32_u32), (Swizzle::B64, 64), (Swizzle::B128, 128)] {
            let rows = 40;
            let mut memory = vec![None; (rows * span / 2) as usize];
            for row in 0..rows {
                for column in 0..span / 2 {
                    let plain = row * span + column * 2;
                    let (line, piece) = (plain / 128, plain % 128 / 16);
                    let moved = line * 128 + (piece ^ (line % (span / 16))) * 16 + plain % 16;
                    memory[(moved / 2) as usize] = Some((row, column));
                }
            }
            for step in 0..span / K_BYTES {
                let first = descriptor(START & !1023, 16, 8 * span, swizzle);
                let fields = Descriptor::decode(advance(first, step * K_BYTES));
                assert_eq!(fields.first_row(), 0);
                for row in 0..rows {
                    for k in 0..16 {
                        let at = fields.address(Major::K, 2, row, k) - (START & !1023);
                        assert_eq!(memory[(at / 2) as usize], Some((row, step * 16 + k)));
                    }
                }
            }
        }
    }

    /// The same for a tile `k x n` whose rows of n are the span, stacked in boxes along n.
    #[test]
    fn mn_major_reads_what_tma_wrote() {
        for (swizzle, span) in [(Swizzle::B32, 32_u32), (Swizzle::B64, 64), (Swizzle::B128, 128)] {
            let (k_rows, columns) = (32, span); // two boxes of span / 2 columns
            let box_bytes = k_rows * span;
            let mut memory = vec![None; (2 * box_bytes / 2) as usize];
            for k in 0..k_rows {
                for n in 0..columns {
                    let plain = n / (span / 2) * box_bytes + k * span + n % (span / 2) * 2;
                    let (line, piece) = (plain / 128, plain % 128 / 16);
                    let moved = line * 128 + (piece ^ (line % (span / 16))) * 16 + plain % 16;
                    memory[(moved / 2) as usize] = Some((k, n));
                }
            }
            let start = START & !1023;
            for step in 0..2 {
                // 16 rows of k later.
                let first = descriptor(start, box_bytes, 8 * span, swizzle);
                let fields = Descriptor::decode(advance(first, step * 16 * span));
                for k in 0..16 {
                    for n in 0..columns {
                        let at = fields.address(Major::MN, 2, n, k) - start;
                        assert_eq!(memory[(at / 2) as usize], Some((step * 16 + k, n)));
                    }
                }
            }
        }
    }

    #[test]
    fn without_a_swizzle_core_matrices_are_128_bytes_in_one_piece() {
        let fields = Descriptor::decode(descriptor(START, 0x800, 0x100, Swizzle::None));
        for row in 0..8 {
            assert_eq!(fields.address(Major::K, 2, row, 3), START + row * 16 + 6);
            assert_eq!(fields.address(Major::K, 2, 16 + row, 8), START + 0x200 + 0x800 + row * 16);
            assert_eq!(fields.address(Major::MN, 2, 3, row), START + row * 16 + 6);
            assert_eq!(fields.address(Major::MN, 2, 16, 8 + row), START + 0x200 + 0x800 + row * 16);
        }
    }

    #[test]
    fn swizzled_core_matrices_are_free_of_bank_conflicts() {
        for swizzle in [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            for piece in 0..2 {
                let fields = dense(Major::K, swizzle, 64, 2);
                let column: [u32; 8] =
                    core::array::from_fn(|row| fields.address(Major::K, 2, row as u32, piece * 8));
                assert_eq!(wavefronts_16(&column), 1, "{swizzle:?}");
            }
        }
    }

    #[test]
    fn the_base_offset_moves_the_pattern() {
        let swizzle = Swizzle::B128;
        let aligned = Descriptor::decode(descriptor(START & !1023, 16, 1024, swizzle));
        let shifted = Descriptor { start: aligned.start + 3 * 128, base: 3, ..aligned };
        assert_eq!((aligned.first_row(), shifted.first_row()), (0, 0));
        assert_eq!(Descriptor { base: 0, ..shifted }.first_row(), 3);
        for mn in 0..16 {
            for k in 0..16 {
                let want = aligned.address(Major::K, 2, mn, k) + 3 * 128;
                assert_eq!(shifted.address(Major::K, 2, mn, k), want);
            }
        }
    }

    #[test]
    fn apply_is_an_involution() {
        for swizzle in SWIZZLES {
            for address in (0..4096).step_by(2) {
                assert_eq!(swizzle.apply(swizzle.apply(address)), address);
                assert_eq!(swizzle.apply(address) / swizzle.span(), address / swizzle.span());
            }
        }
    }
}
