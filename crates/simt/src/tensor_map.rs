//! The 128 bytes of a tensor map as the software driver's `cuTensorMapEncodeTiled` and
//! `cuTensorMapEncodeIm2col` write them and [`crate::tma`] reads them. NVIDIA's format is not published; this
//! one is our own. This module only converts bytes. The code that encodes a description must check its rules.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | address of element 0 |
//! | 8..40 | strides of dimensions 1 to 4 in bytes |
//! | 40..60 | size of each dimension, less one |
//! | 60..70 | size of the box in each dimension |
//! | 70..75 | element stride of each dimension |
//! | 75..81 | data type, rank, interleave, swizzle, L2 promotion, out-of-bounds fill |
//! | 81 | 1 for a map of windows, else 0 |
//! | 82..94 | lower, then upper corner of the pixels, 16 bits a number |
//! | 94..120 | zero |
//! | 120..128 | `MAGIC` mixed with a sum over the rest, so that other bytes are detected |

use thiserror::Error;

/// The most dimensions of a tensor.
pub const MAX_RANK: usize = 5;

/// Words of an encoded map.
pub const WORDS: usize = 16;

/// Marks the bytes as a map of this format.
const MAGIC: u64 = 0x4952_4f4e_544d_4150;

/// Type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum DataType {
    U8 = 0,
    U16 = 1,
    U32 = 2,
    I32 = 3,
    U64 = 4,
    I64 = 5,
    F16 = 6,
    F32 = 7,
    F64 = 8,
    BF16 = 9,
    /// `f32`, with subnormal numbers read as zero.
    F32Ftz = 10,
    /// `f32` of which the tensor cores use 19 bits.
    TF32 = 11,
    /// The same, with subnormal numbers read as zero.
    TF32Ftz = 12,
}

impl DataType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::I32,
        Self::U64,
        Self::I64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::BF16,
        Self::F32Ftz,
        Self::TF32,
        Self::TF32Ftz,
    ];

    /// The type of a `CUtensorMapDataType`.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::F32Ftz | Self::TF32 | Self::TF32Ftz => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether it is a floating-point type, which NaN fill needs.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            Self::F16 | Self::F32 | Self::F64 | Self::BF16 | Self::F32Ftz | Self::TF32 | Self::TF32Ftz
        )
    }
}

/// Whether channels lie in slices of 16 or 32 bytes, as in NC/8HWC8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Interleave {
    #[default]
    None = 0,
    B16 = 1,
    B32 = 2,
}

impl Interleave {
    /// The mode of a `CUtensorMapInterleave`.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::None, Self::B16, Self::B32].get(code as usize).copied()
    }
}

/// The permutation of 16-byte pieces in shared memory, which spreads columns over the banks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Swizzle {
    #[default]
    None = 0,
    B32 = 1,
    B64 = 2,
    B128 = 3,
}

impl Swizzle {
    /// The mode of a `CUtensorMapSwizzle`.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::None, Self::B32, Self::B64, Self::B128].get(code as usize).copied()
    }

    /// Longest inner row of a box, in bytes; `None` when there is no such limit.
    pub fn span(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::B32 => Some(32),
            Self::B64 => Some(64),
            Self::B128 => Some(128),
        }
    }

    /// Bytes after which the pattern repeats. The pattern starts from its beginning only at shared addresses
    /// that are multiples of this.
    pub fn period(self) -> usize {
        match self {
            Self::None => 16,
            Self::B32 => 256,
            Self::B64 => 512,
            Self::B128 => 1024,
        }
    }

    /// The swizzled address of the byte at shared address `address` of the plain layout. Bits of the 128-byte
    /// row number (address bits 7 and up) are combined by exclusive or with the number of the 16-byte piece
    /// in the row (bits 4 and up): three bits for 128 bytes, two for 64, one for 32.
    #[inline]
    pub fn apply(self, address: u32) -> u32 {
        let bits = match self {
            Self::None => return address,
            Self::B32 => 1,
            Self::B64 => 2,
            Self::B128 => 3,
        };
        address ^ ((address >> 7 & ((1 << bits) - 1)) << 4)
    }
}

/// The size of one L2 cache fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum L2Promotion {
    #[default]
    None = 0,
    B64 = 1,
    B128 = 2,
    B256 = 3,
}

impl L2Promotion {
    /// The mode of a `CUtensorMapL2promotion`.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::None, Self::B64, Self::B128, Self::B256].get(code as usize).copied()
    }
}

/// The value of elements outside the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum OobFill {
    #[default]
    Zeros = 0,
    /// A NaN that multiplies to zero in tensor-core instructions that ask for it.
    Nan = 1,
}

impl OobFill {
    /// The mode of a `CUtensorMapFloatOOBfill`.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::Zeros, Self::Nan].get(code as usize).copied()
    }
}

/// Spatial dimensions of a tensor, at most.
pub const MAX_SPATIAL: usize = MAX_RANK - 2;

/// The pixels where windows may begin (im2col mode), of a tensor of channels, spatial dimensions (the
/// innermost first) and images: from `lower` to `upper` behind the last pixel, in each spatial dimension. A
/// copy moves as many channels as the box has in dimension 0, of as many such pixels in a row as it has in
/// dimension 1, through lines, planes and images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// The first pixel of each line, plane, ...: may be negative.
    pub lower: [i32; MAX_SPATIAL],
    /// Added to the last pixel of each.
    pub upper: [i32; MAX_SPATIAL],
}

/// A tensor in global memory and the box of it that one copy moves. Dimension 0 is the innermost; those from
/// `rank` on have size 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Address of element 0.
    pub address: u64,
    /// Type of an element.
    pub data_type: DataType,
    /// Dimensions, 1 to 5.
    pub rank: u32,
    /// Elements in each dimension, 1 to 2^32.
    pub dims: [u64; MAX_RANK],
    /// Bytes from an element to the next in dimensions 1 to 4; elements of dimension 0 lie side by side.
    pub strides: [u64; MAX_RANK - 1],
    /// Elements of the box in each dimension, 1 to 256, before element strides.
    pub box_dims: [u32; MAX_RANK],
    /// The step between copied elements of the box, 1 to 8.
    pub element_strides: [u32; MAX_RANK],
    /// Slices of channels.
    pub interleave: Interleave,
    /// Layout in shared memory.
    pub swizzle: Swizzle,
    /// L2 fetch size; no effect on results.
    pub l2_promotion: L2Promotion,
    /// Elements outside the tensor.
    pub oob_fill: OobFill,
    /// The pixels of a map of windows; `None`: boxes are boxes.
    pub pixels: Option<Pixels>,
}

impl Description {
    /// The step between copied elements in dimension `axis`. Without interleave the hardware takes all of
    /// dimension 0, whatever the map says.
    pub fn step(&self, axis: usize) -> u32 {
        if axis == 0 && self.interleave == Interleave::None { 1 } else { self.element_strides[axis] }
    }

    /// Elements that a copy moves in dimension `axis`. Of windows, all pixels count in dimension 1.
    pub fn copied(&self, axis: usize) -> u32 {
        if self.pixels.is_some() {
            return self.box_dims[axis];
        }
        self.box_dims[axis].div_ceil(self.step(axis))
    }

    /// Bytes that a copy moves, with the elements outside the tensor: the barrier has to expect these.
    pub fn box_bytes(&self) -> usize {
        self.rows() * self.row_bytes()
    }

    /// Bytes of a row of the box.
    pub fn row_bytes(&self) -> usize {
        self.copied(0) as usize * self.data_type.bytes()
    }

    /// Bytes from a row of the box to the next in shared memory: with a swizzle all of its span. A copy
    /// leaves those between shorter rows as they are.
    pub fn row_pitch(&self) -> usize {
        self.swizzle.span().unwrap_or(self.row_bytes())
    }

    /// Bytes of shared memory that the rows take, each with those to the next.
    pub fn shared_bytes(&self) -> usize {
        self.rows() * self.row_pitch()
    }

    fn rows(&self) -> usize {
        (1..MAX_RANK).map(|axis| self.copied(axis) as usize).product()
    }
}

/// The bytes are no tensor map of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("these 128 bytes are no tensor map that this driver has encoded")]
pub struct NotATensorMap;

/// The 128 bytes of a map. Sizes beyond what the fields hold are cut off: the caller has checked them.
pub fn encode(description: &Description) -> [u64; WORDS] {
    let d = description;
    let mut bytes = [0; 8 * WORDS];
    bytes[..8].copy_from_slice(&d.address.to_le_bytes());
    for axis in 0..MAX_RANK - 1 {
        bytes[8 + 8 * axis..][..8].copy_from_slice(&d.strides[axis].to_le_bytes());
    }
    for axis in 0..MAX_RANK {
        let size_less_one = d.dims[axis].wrapping_sub(1) as u32;
        bytes[40 + 4 * axis..][..4].copy_from_slice(&size_less_one.to_le_bytes());
        bytes[60 + 2 * axis..][..2].copy_from_slice(&(d.box_dims[axis] as u16).to_le_bytes());
        bytes[70 + axis] = d.element_strides[axis] as u8;
    }
    let modes = [
        d.data_type as u8,
        d.rank as u8,
        d.interleave as u8,
        d.swizzle as u8,
        d.l2_promotion as u8,
        d.oob_fill as u8,
    ];
    bytes[75..81].copy_from_slice(&modes);
    if let Some(Pixels { lower, upper }) = d.pixels {
        bytes[81] = 1;
        for (index, corner) in lower.into_iter().chain(upper).enumerate() {
            bytes[82 + 2 * index..][..2].copy_from_slice(&(corner as i16).to_le_bytes());
        }
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("chunks of 8"));
    }
    words[WORDS - 1] = seal(&words);
    words
}

/// The description in a map.
///
/// # Errors
/// [`NotATensorMap`] when [`encode`] did not write the bytes.
pub fn decode(words: &[u64; WORDS]) -> Result<Description, NotATensorMap> {
    if words[WORDS - 1] != seal(words) {
        return Err(NotATensorMap);
    }
    let mut bytes = [0; 8 * WORDS];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let size = |axis: usize| {
        let at = 40 + 4 * axis;
        u64::from(u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])) + 1
    };
    let mode = |index: usize| u32::from(bytes[75 + index]);
    let corner = |index: usize| {
        let at = 82 + 2 * index;
        i32::from(i16::from_le_bytes([bytes[at], bytes[at + 1]]))
    };
    let pixels = Pixels {
        lower: std::array::from_fn(corner),
        upper: std::array::from_fn(|index| corner(MAX_SPATIAL + index)),
    };
    Ok(Description {
        address: words[0],
        data_type: DataType::from_code(mode(0)).ok_or(NotATensorMap)?,
        rank: mode(1),
        dims: std::array::from_fn(size),
        strides: std::array::from_fn(|axis| words[1 + axis]),
        box_dims: std::array::from_fn(|axis| {
            u16::from_le_bytes([bytes[60 + 2 * axis], bytes[61 + 2 * axis]]).into()
        }),
        element_strides: std::array::from_fn(|axis| bytes[70 + axis].into()),
        interleave: Interleave::from_code(mode(2)).ok_or(NotATensorMap)?,
        swizzle: Swizzle::from_code(mode(3)).ok_or(NotATensorMap)?,
        l2_promotion: L2Promotion::from_code(mode(4)).ok_or(NotATensorMap)?,
        oob_fill: OobFill::from_code(mode(5)).ok_or(NotATensorMap)?,
        pixels: (bytes[81] == 1).then_some(pixels),
    })
}

/// The last word of a map with these words.
fn seal(words: &[u64; WORDS]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    words[..WORDS - 1].iter().fold(MAGIC, |sum, word| (sum ^ word).wrapping_mul(MULTIPLIER).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest() -> Description {
        Description {
            address: 0x7fff_1234_5678_9ab0,
            data_type: DataType::BF16,
            rank: 5,
            dims: [1 << 32, 3, 1, (1 << 32) - 1, 77],
            strides: [16, (1 << 40) - 16, 48, 1 << 33],
            box_dims: [64, 256, 1, 2, 3],
            element_strides: [1, 2, 8, 1, 3],
            interleave: Interleave::None,
            swizzle: Swizzle::B128,
            l2_promotion: L2Promotion::B256,
            oob_fill: OobFill::Nan,
            pixels: None,
        }
    }

    #[test]
    fn every_field_survives() {
        assert_eq!(decode(&encode(&largest())), Ok(largest()));
        let pixels = Some(Pixels { lower: [-1, 2, -32_768], upper: [32_767, -4, 5] });
        let windows = Description { pixels, ..largest() };
        assert_eq!(decode(&encode(&windows)), Ok(windows));
        for data_type in DataType::ALL {
            for code in 0..3 {
                let map = Description {
                    data_type,
                    interleave: Interleave::from_code(code).unwrap(),
                    swizzle: Swizzle::from_code(code + 1).unwrap(),
                    l2_promotion: L2Promotion::from_code(code).unwrap(),
                    oob_fill: OobFill::from_code(code % 2).unwrap(),
                    ..largest()
                };
                assert_eq!(decode(&encode(&map)), Ok(map));
            }
            assert_eq!(DataType::from_code(data_type as u32), Some(data_type));
        }
    }

    #[test]
    fn other_bytes_are_found_out() {
        assert_eq!(decode(&[0; WORDS]), Err(NotATensorMap));
        assert_eq!(decode(&[u64::MAX; WORDS]), Err(NotATensorMap));
        let map = encode(&largest());
        for bit in 0..64 * WORDS {
            let mut changed = map;
            changed[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(decode(&changed), Err(NotATensorMap), "bit {bit}");
        }
    }

    #[test]
    fn bytes_of_a_box_with_element_strides() {
        // 64 x 128 x 1 x 2 x 1 elements of 2 bytes.
        assert_eq!(largest().box_bytes(), 64 * 128 * 2 * 2);
        let strided = Description { element_strides: [4; 5], ..largest() };
        assert_eq!((strided.copied(0), strided.copied(1)), (64, 64));
        assert_eq!(Description { interleave: Interleave::B16, ..strided }.copied(0), 16);
    }

    /// A swizzle permutes the 16-byte pieces of a period, and the pieces of a column lie in as many different
    /// banks as the span has pieces.
    #[test]
    fn swizzles_permute() {
        for (swizzle, row) in [(Swizzle::B32, 32), (Swizzle::B64, 64), (Swizzle::B128, 128)] {
            let period = swizzle.period() as u32;
            let mut pieces: Vec<_> = (0..period).step_by(16).map(|piece| swizzle.apply(piece)).collect();
            let in_row = |address: u32| address / 128;
            assert!(pieces.iter().zip((0..period).step_by(16)).all(|(&to, from)| in_row(to) == in_row(from)));
            // Rows of the box are `row` bytes: eight of them in a column of 16-byte pieces meet every bank
            // once.
            let mut banks: Vec<_> = (0..8).map(|r| swizzle.apply(r * row) / 16 % 8).collect();
            banks.sort_unstable();
            assert_eq!(banks, [0, 1, 2, 3, 4, 5, 6, 7], "{swizzle:?}");
            pieces.sort_unstable();
            assert!(pieces.iter().copied().eq((0..period).step_by(16)));
            assert_eq!(swizzle.apply(period + 16), swizzle.apply(16) + period);
            assert_eq!(swizzle.apply(16) % 16, 0);
        }
        assert_eq!(Swizzle::B128.apply(128), 128 + 16);
        assert_eq!(Swizzle::B128.apply(7 * 128 + 5 * 16 + 3), 7 * 128 + 2 * 16 + 3);
        assert_eq!(Swizzle::B64.apply(128 + 64), 128 + 64 + 16);
        assert_eq!(Swizzle::B32.apply(128), 128 + 16);
    }
}
