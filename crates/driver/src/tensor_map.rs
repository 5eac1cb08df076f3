//! The rules of `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`, and the enumerations of their
//! arguments.
//!
//! A tensor map describes a tensor in global memory and the box of it that one TMA copy moves. The driver
//! returns the same code for every broken rule; [`check`] says which rule was broken. Source: CUDA driver
//! API, "Tensor Map Object Management".

pub use simt::tensor_map::{
    DataType, Description, Interleave, L2Promotion, MAX_RANK, MAX_SPATIAL, OobFill, Pixels, Swizzle,
};

/// The unit of addresses, strides and the box's inner row, in bytes.
const UNIT: u64 = 16;
/// The unit of addresses and strides for [`Interleave::B32`].
const INTERLEAVED_UNIT: u64 = 32;
const MAX_DIM: u64 = 1 << 32;
const STRIDE_END: u64 = 1 << 40;
const MAX_BOX_DIM: u32 = 256;
const MAX_ELEMENT_STRIDE: u32 = 8;
/// The least rank of an interleaved tensor: channels, a line of pixels, and slices of channels.
const MIN_INTERLEAVED_RANK: u32 = 3;
/// The least rank of a tensor of windows: channels, a line of pixels, and images.
const MIN_PIXELS_RANK: u32 = 3;
/// Most windows that a copy moves.
const MAX_WINDOWS: u32 = 1024;

/// The rule that a description breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{argument} is {got}, wanted {wanted}\nhint: {hint}")]
pub struct BrokenRule {
    /// The argument at fault.
    pub argument: &'static str,
    /// Its value.
    pub got: String,
    /// The allowed values.
    pub wanted: String,
    /// A hint on how to fix it.
    pub hint: &'static str,
}

/// The required alignment of addresses and strides, in bytes.
fn unit(d: &Description) -> u64 {
    if d.interleave == Interleave::B32 { INTERLEAVED_UNIT } else { UNIT }
}

/// Checks all rules.
///
/// # Errors
/// The first rule that `description` breaks.
pub fn check(description: &Description) -> Result<(), BrokenRule> {
    check_rank(description)?;
    check_tensor(description)?;
    check_box(description)?;
    check_pixels(description)?;
    check_modes(description)
}

fn check_rank(d: &Description) -> Result<(), BrokenRule> {
    if !(1..=MAX_RANK as u32).contains(&d.rank) {
        return Err(BrokenRule {
            argument: "rank",
            got: d.rank.to_string(),
            wanted: format!("1 to {MAX_RANK}"),
            hint: "fold dimensions that lie side by side into one",
        });
    }
    if d.pixels.is_some() && d.rank < MIN_PIXELS_RANK {
        return Err(BrokenRule {
            argument: "rank",
            got: d.rank.to_string(),
            wanted: format!("at least {MIN_PIXELS_RANK} for windows"),
            hint: "windows lie in a tensor of channels, one to three spatial dimensions, and images",
        });
    }
    if d.interleave != Interleave::None && d.rank < MIN_INTERLEAVED_RANK {
        return Err(BrokenRule {
            argument: "rank",
            got: d.rank.to_string(),
            wanted: format!("at least {MIN_INTERLEAVED_RANK} with interleave {:?}", d.interleave),
            hint: "interleaved tensors have slices of channels as a dimension; matrices take Interleave::None",
        });
    }
    Ok(())
}

fn check_tensor(d: &Description) -> Result<(), BrokenRule> {
    let (rank, unit) = (d.rank as usize, unit(d));
    if !d.address.is_multiple_of(unit) {
        return Err(BrokenRule {
            argument: "address",
            got: format!("{:#x}", d.address),
            wanted: format!("a multiple of {unit}"),
            hint: "begin the view at an element whose offset in bytes is such a multiple",
        });
    }
    let dims = d.dims[..rank].iter().enumerate();
    if let Some((axis, dim)) = dims.into_iter().find(|&(_, dim)| !(1..=MAX_DIM).contains(dim)) {
        return Err(BrokenRule {
            argument: "dims",
            got: format!("{dim} in dimension {axis}"),
            wanted: "1 to 2^32 in each dimension".into(),
            hint: "an empty tensor has no map: skip the launch",
        });
    }
    let strides = d.strides[..rank - 1].iter().enumerate();
    let fits = |stride: u64| stride.is_multiple_of(unit) && stride < STRIDE_END;
    if let Some((index, stride)) = strides.into_iter().find(|&(_, &stride)| !fits(stride)) {
        return Err(BrokenRule {
            argument: "strides",
            got: format!("{stride} bytes for dimension {}", index + 1),
            wanted: format!("a multiple of {unit} below 2^40"),
            hint: "pad the rows so that each begins at such a multiple, or copy without TMA",
        });
    }
    Ok(())
}

fn check_box(d: &Description) -> Result<(), BrokenRule> {
    let rank = d.rank as usize;
    let most = |axis: usize| if d.pixels.is_some() && axis == 1 { MAX_WINDOWS } else { MAX_BOX_DIM };
    let mut boxes = d.box_dims[..rank].iter().enumerate();
    if let Some((axis, dim)) = boxes.find(|&(axis, dim)| !(1..=most(axis)).contains(dim)) {
        return Err(BrokenRule {
            argument: "box_dims",
            got: format!("{dim} in dimension {axis}"),
            wanted: format!("1 to {} in dimension {axis}", most(axis)),
            hint: "move larger tiles with several copies",
        });
    }
    let mut steps = d.element_strides[..rank].iter().enumerate();
    if let Some((axis, step)) = steps.find(|&(_, step)| !(1..=MAX_ELEMENT_STRIDE).contains(step)) {
        return Err(BrokenRule {
            argument: "element_strides",
            got: format!("{step} in dimension {axis}"),
            wanted: format!("1 to {MAX_ELEMENT_STRIDE} in each dimension"),
            hint: "1 takes every element; larger steps belong into `strides`",
        });
    }
    let inner = u64::from(d.box_dims[0]) * d.data_type.bytes() as u64;
    if d.interleave == Interleave::None && !inner.is_multiple_of(UNIT) {
        return Err(BrokenRule {
            argument: "box_dims",
            got: format!("{inner} bytes in dimension 0"),
            wanted: format!("a multiple of {UNIT} bytes in dimension 0"),
            hint: "make the box wider; what lies outside the tensor is filled",
        });
    }
    Ok(())
}

/// The corners fit into 16 bits each for one spatial dimension, 8 for two, 5 for three.
fn check_pixels(d: &Description) -> Result<(), BrokenRule> {
    let Some(Pixels { lower, upper }) = d.pixels else { return Ok(()) };
    let spatial = d.rank as usize - 2;
    let end = [1 << 15, 1 << 7, 1 << 4][spatial - 1];
    let corners = [("lower", lower), ("upper", upper)];
    for (argument, corner) in corners {
        if let Some(out) = corner[..spatial].iter().find(|&&at| !(-end..end).contains(&at)) {
            return Err(BrokenRule {
                argument,
                got: out.to_string(),
                wanted: format!("{} to {} with {spatial} spatial dimensions", -end, end - 1),
                hint: "copy windows that reach so far beyond the image without TMA",
            });
        }
    }
    Ok(())
}

fn check_modes(d: &Description) -> Result<(), BrokenRule> {
    let inner = d.box_dims[0] as usize * d.data_type.bytes();
    if d.interleave == Interleave::None
        && let Some(span) = d.swizzle.span()
        && inner > span
    {
        return Err(BrokenRule {
            argument: "box_dims",
            got: format!("{inner} bytes in dimension 0"),
            wanted: format!("at most {span} bytes in dimension 0 with swizzle {:?}", d.swizzle),
            hint: "make the box narrower and move several of them, or take a wider swizzle",
        });
    }
    if d.interleave == Interleave::B32 && d.swizzle != Swizzle::B32 {
        return Err(BrokenRule {
            argument: "swizzle",
            got: format!("{:?}", d.swizzle),
            wanted: "B32 with interleave B32".into(),
            hint: "slices of 32 bytes come with the swizzle of 32 bytes only",
        });
    }
    if d.oob_fill == OobFill::Nan && !d.data_type.is_float() {
        return Err(BrokenRule {
            argument: "oob_fill",
            got: format!("Nan for {:?}", d.data_type),
            wanted: "Zeros, or a floating-point data type".into(),
            hint: "integers have no NaN",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Description {
        Description {
            address: 0x1000,
            data_type: DataType::BF16,
            rank: 2,
            dims: [100, 50, 1, 1, 1],
            strides: [208, 0, 0, 0],
            box_dims: [64, 128, 1, 1, 1],
            element_strides: [1; MAX_RANK],
            interleave: Interleave::None,
            swizzle: Swizzle::B128,
            l2_promotion: L2Promotion::None,
            oob_fill: OobFill::Zeros,
            pixels: None,
        }
    }

    /// Four images of 20 x 30 pixels and 64 channels, windows of 3 x 3 with padding.
    fn windows() -> Description {
        Description {
            rank: 4,
            dims: [64, 30, 20, 4, 1],
            strides: [128, 3840, 76_800, 0],
            box_dims: [64, 128, 1, 1, 1],
            pixels: Some(Pixels { lower: [-1, -1, 0], upper: [-1, -1, 0] }),
            ..matrix()
        }
    }

    fn image() -> Description {
        Description {
            rank: 4,
            dims: [16, 30, 20, 4, 1],
            strides: [32, 960, 19200, 0],
            box_dims: [16, 8, 8, 1, 1],
            interleave: Interleave::B32,
            swizzle: Swizzle::B32,
            ..matrix()
        }
    }

    #[test]
    fn what_the_documentation_allows_passes() {
        let tests = [
            matrix(),
            image(),
            windows(),
            Description { box_dims: [64, 1024, 1, 1, 1], ..windows() },
            Description {
                pixels: Some(Pixels { lower: [-128, 127, 0], upper: [127, -128, 0] }),
                ..windows()
            },
            Description { rank: 1, strides: [0; 4], ..matrix() },
            Description { dims: [1 << 32, 1, 1, 1, 1], strides: [STRIDE_END - 16, 0, 0, 0], ..matrix() },
            Description { box_dims: [8, 256, 1, 1, 1], element_strides: [8; MAX_RANK], ..matrix() },
            Description { oob_fill: OobFill::Nan, ..matrix() },
            Description { interleave: Interleave::B16, swizzle: Swizzle::None, ..image() },
        ];
        for description in tests {
            assert_eq!(check(&description), Ok(()), "{description:?}");
        }
    }

    #[test]
    fn every_rule_is_kept() {
        type Change = fn(&mut Description);
        let of_a_matrix: &[(&str, Change)] = &[
            ("rank", |d| d.rank = 0),
            ("rank", |d| d.rank = 6),
            ("rank", |d| d.interleave = Interleave::B16),
            ("address", |d| d.address += 8),
            ("dims", |d| d.dims[0] = 0),
            ("dims", |d| d.dims[1] = 0),
            ("dims", |d| d.dims[1] = MAX_DIM + 1),
            ("strides", |d| d.strides[0] = 200),
            ("strides", |d| d.strides[0] = STRIDE_END),
            ("box_dims", |d| d.box_dims[1] = 0),
            ("box_dims", |d| d.box_dims[1] = MAX_BOX_DIM + 1),
            ("box_dims", |d| d.box_dims[0] = 12),
            ("box_dims", |d| d.box_dims[0] = 72),
            ("box_dims", |d| d.swizzle = Swizzle::B64),
            ("box_dims", |d| d.swizzle = Swizzle::B32),
            ("element_strides", |d| d.element_strides[1] = 0),
            ("element_strides", |d| d.element_strides[0] = MAX_ELEMENT_STRIDE + 1),
            ("oob_fill", |d| (d.data_type, d.oob_fill) = (DataType::U16, OobFill::Nan)),
        ];
        let of_an_image: &[(&str, Change)] = &[
            ("rank", |d| d.rank = 2),
            ("address", |d| d.address += 16),
            ("strides", |d| d.strides[1] += 16),
            ("swizzle", |d| d.swizzle = Swizzle::None),
            ("swizzle", |d| d.swizzle = Swizzle::B128),
        ];
        let of_windows: &[(&str, Change)] = &[
            ("rank", |d| d.rank = 2),
            ("box_dims", |d| d.box_dims[1] = 1025),
            ("box_dims", |d| d.box_dims[0] = 128),
            ("lower", |d| d.pixels = Some(Pixels { lower: [0, -129, 0], upper: [0; 3] })),
            ("upper", |d| d.pixels = Some(Pixels { lower: [0; 3], upper: [128, 0, 0] })),
            ("upper", |d| {
                (d.rank, d.strides[3]) = (5, 76_800);
                d.pixels = Some(Pixels { lower: [0; 3], upper: [0, 0, 16] });
            }),
        ];
        for (start, changes) in [(matrix(), of_a_matrix), (image(), of_an_image), (windows(), of_windows)] {
            for (argument, change) in changes {
                let mut description = start;
                change(&mut description);
                let broken = check(&description).expect_err(argument);
                assert_eq!(&broken.argument, argument, "{broken}");
            }
        }
    }
}
