//! Tensor maps: descriptions of tensors in device memory for TMA copies.
//!
//! ```
//! use ironwarp::tma::{Swizzle, TensorMap, Tiling};
//! # use ironwarp::{Device, DeviceBuffer};
//! # fn main() -> ironwarp::Result<()> {
//! # let device = Device::open(0)?;
//! # let stream = device.stream()?;
//! let (rows, columns) = (300, 128);
//! let a = DeviceBuffer::<f32>::zeroed(&stream, rows * columns)?;
//! // Boxes of 64 rows and 32 columns; the contiguous dimension comes first.
//! let tiling = Tiling::new([columns, rows], [32, 64]).swizzle(Swizzle::B128);
//! # if device.arch().major < 9 { return Ok(()) }
//! let map = TensorMap::new(a.view(), &tiling)?;   // an argument for a kernel's `&TensorMap`
//! # let _ = map;
//! # Ok(())
//! # }
//! ```

use std::fmt;

use bytemuck::Pod;
use cuda_std::tma;
use half::{bf16, f16};
use num::{E4M3, E5M2};

pub use driver::tensor_map::{DataType, Interleave, L2Promotion, OobFill, Swizzle};
use driver::tensor_map::{Description, MAX_RANK, Pixels};

use super::allocation::Use;
use super::view::{DeviceView, DeviceViewMut};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::raw;
use crate::stream::Stream;

const NEW: &str = "TensorMap::new";

/// A Rust type that TMA can copy, with its TMA data type.
pub trait MapElement: Pod {
    /// The data type in the map. [`Tiling::data_type`] replaces it by another of the same size.
    const DATA_TYPE: DataType;
}

macro_rules! map_elements {
    ($($element:ty = $data_type:ident;)*) => { $(
        impl MapElement for $element {
            const DATA_TYPE: DataType = DataType::$data_type;
        }
    )* };
}

map_elements! {
    u8 = U8;
    u16 = U16;
    u32 = U32;
    i32 = I32;
    u64 = U64;
    i64 = I64;
    f16 = F16;
    bf16 = BF16;
    f32 = F32;
    f64 = F64;
    // The copy engine has no 8-bit floats; it moves their bytes.
    E4M3 = U8;
    E5M2 = U8;
}

/// How a tensor of `RANK` dimensions (1 to 5) lies in its memory, and the box of it that one copy moves. The
/// contiguous dimension comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling<const RANK: usize> {
    dims: [usize; RANK],
    box_dims: [u32; RANK],
    strides: [Option<u64>; RANK],
    /// A dimension that [`Tiling::stride`] was given and that has no stride.
    bad_axis: Option<usize>,
    element_strides: [u32; RANK],
    data_type: Option<DataType>,
    interleave: Interleave,
    swizzle: Swizzle,
    l2_promotion: L2Promotion,
    oob_fill: OobFill,
    pixels: Option<Pixels>,
}

impl<const RANK: usize> Tiling<RANK> {
    /// A tensor of `dims` elements without gaps, copied in boxes of `box_dims` elements, with no swizzle.
    /// Elements outside of the tensor read as zero.
    pub const fn new(dims: [usize; RANK], box_dims: [u32; RANK]) -> Self {
        const { assert!(RANK >= 1 && RANK <= MAX_RANK, "tensor maps have 1 to 5 dimensions") };
        Tiling {
            dims,
            box_dims,
            strides: [None; RANK],
            bad_axis: None,
            element_strides: [1; RANK],
            data_type: None,
            interleave: Interleave::None,
            swizzle: Swizzle::None,
            l2_promotion: L2Promotion::None,
            oob_fill: OobFill::Zeros,
            pixels: None,
        }
    }

    /// A tensor of `dims` elements without gaps (channels, one to three spatial dimensions, images) from
    /// which copies take what one tap of a convolution sees (im2col mode): of as many `windows` in a row, so
    /// many `channels`. Windows begin at pixels from `lower` to `upper` behind the last one of each line,
    /// plane, ..., every [`element_strides`](Tiling::element_strides)-th; the innermost dimension comes
    /// first, and only as many corners count as there are spatial dimensions. Loads alone take such a map.
    pub const fn windows(
        dims: [usize; RANK],
        channels: u32,
        windows: u32,
        lower: [i32; 3],
        upper: [i32; 3],
    ) -> Self {
        const { assert!(RANK >= 3 && RANK <= MAX_RANK, "channels, one to three spatial dimensions, images") };
        let mut box_dims = [1; RANK];
        (box_dims[0], box_dims[1]) = (channels, windows);
        Tiling { pixels: Some(Pixels { lower, upper }), ..Self::new(dims, box_dims) }
    }

    /// The same with `bytes` from one element to the next along dimension `axis`, 1 or more; without this
    /// call there is no gap between elements of that dimension.
    #[must_use]
    pub const fn stride(mut self, axis: usize, bytes: u64) -> Self {
        if axis >= 1 && axis < RANK {
            self.strides[axis] = Some(bytes);
        } else {
            self.bad_axis = Some(axis);
        }
        self
    }

    /// The same, copying every `steps[i]`-th element of the box along dimension `i`. Without interleave,
    /// dimension 0 is copied whole.
    #[must_use]
    pub const fn element_strides(self, steps: [u32; RANK]) -> Self {
        Tiling { element_strides: steps, ..self }
    }

    /// The same, with elements that the copy engine treats as another type of the same size, such as
    /// [`DataType::TF32`].
    #[must_use]
    pub const fn data_type(self, data_type: DataType) -> Self {
        Tiling { data_type: Some(data_type), ..self }
    }

    /// The same for a tensor in slices of channels.
    #[must_use]
    pub const fn interleave(self, interleave: Interleave) -> Self {
        Tiling { interleave, ..self }
    }

    /// The same with this layout in shared memory.
    #[must_use]
    pub const fn swizzle(self, swizzle: Swizzle) -> Self {
        Tiling { swizzle, ..self }
    }

    /// The same with this much fetched into L2 at a time.
    #[must_use]
    pub const fn l2_promotion(self, l2_promotion: L2Promotion) -> Self {
        Tiling { l2_promotion, ..self }
    }

    /// The same with other values outside of the tensor.
    #[must_use]
    pub const fn oob_fill(self, oob_fill: OobFill) -> Self {
        Tiling { oob_fill, ..self }
    }

    /// The description of such a tensor at `address`, whose memory holds `len` elements; whole units of rows
    /// when stores write them.
    fn describe<T: MapElement>(&self, address: u64, len: usize, unit: u64) -> Result<Description> {
        let size = size_of::<T>();
        let data_type = self.data_type.unwrap_or(T::DATA_TYPE);
        if data_type.bytes() != size {
            return Err(Error::InvalidArgument {
                operation: NEW,
                argument: "data_type",
                got: format!("{data_type:?} of {} bytes", data_type.bytes()),
                wanted: format!("a type of {size} bytes, as {} has", std::any::type_name::<T>()),
                hint: "another type than the element's must have its size",
            });
        }
        if let Some(axis) = self.bad_axis {
            return Err(Error::InvalidArgument {
                operation: NEW,
                argument: "stride",
                got: format!("a stride for dimension {axis}"),
                wanted: format!("a dimension from 1 to {}", RANK - 1),
                hint: "dimension 0 is contiguous; a tensor whose rows have gaps has a stride of dimension 1",
            });
        }
        let mut description = Description {
            address,
            data_type,
            rank: RANK as u32,
            dims: [1; MAX_RANK],
            strides: [0; MAX_RANK - 1],
            box_dims: [1; MAX_RANK],
            element_strides: [1; MAX_RANK],
            interleave: self.interleave,
            swizzle: self.swizzle,
            l2_promotion: self.l2_promotion,
            oob_fill: self.oob_fill,
            pixels: self.pixels,
        };
        description.box_dims[..RANK].copy_from_slice(&self.box_dims);
        description.element_strides[..RANK].copy_from_slice(&self.element_strides);
        let mut dense = size as u64;
        for axis in 0..RANK {
            let dim = self.dims[axis] as u64;
            description.dims[axis] = dim;
            let stride = self.strides[axis].unwrap_or(dense);
            if axis > 0 {
                description.strides[axis - 1] = stride;
            }
            // A stride that overflows is beyond the largest stride. If there is a next dimension, the check
            // refuses it.
            dense = stride.saturating_mul(dim);
        }
        check(&description)?;
        fits(&description, len, unit)?;
        Ok(description)
    }
}

/// The driver's rules.
fn check(description: &Description) -> Result<()> {
    driver::tensor_map::check(description).map_err(|broken| Error::InvalidArgument {
        operation: NEW,
        argument: broken.argument,
        got: broken.got,
        wanted: broken.wanted,
        hint: broken.hint,
    })
}

/// Bytes that a store writes at a time. Where a row ends inside of such a unit, the store overwrites the
/// bytes beside its end (seen on an H200).
const STORE_UNIT: u64 = 16;

/// The rule for the memory: the last row, rounded up to `unit` bytes, lies in the view, so no copy leaves the
/// view.
fn fits(d: &Description, len: usize, unit: u64) -> Result<()> {
    let last = |axis: usize| u128::from(d.dims[axis] - 1) * u128::from(d.strides[axis - 1]);
    let size = d.data_type.bytes() as u128;
    let row = (u128::from(d.dims[0]) * size).next_multiple_of(unit.into());
    let bytes = row + (1..d.rank as usize).map(last).sum::<u128>();
    if bytes <= len as u128 * size {
        return Ok(());
    }
    let expected = usize::try_from(bytes.div_ceil(size)).unwrap_or(usize::MAX);
    Err(Error::Length { operation: NEW, what: "the view", expected, got: len })
}

/// A map for copies from a tensor, which it borrows: an argument for a kernel's `map: &TensorMap`.
#[derive(Clone, Copy)]
pub struct TensorMap<'a> {
    map: tma::TensorMap,
    memory: DeviceView<'a, u8>,
}

/// A map for copies from and to a tensor, which it borrows exclusively: an argument for a kernel's `map:
/// &TensorMap`.
pub struct TensorMapMut<'a> {
    map: tma::TensorMap,
    memory: DeviceViewMut<'a, u8>,
}

fn encode(device: &Device, description: &Description) -> Result<tma::TensorMap> {
    let mut map = tma::TensorMap::from_words([0; tma::TensorMap::WORDS]);
    // SAFETY: a place for a map, aligned by its type; the lists of the description have as many elements as a
    // tensor may have dimensions.
    device.call(|| unsafe {
        match &description.pixels {
            Some(pixels) => raw::tensor_map_encode_im2col(&mut map, description, pixels),
            None => raw::tensor_map_encode_tiled(&mut map, description),
        }
    })?;
    Ok(map)
}

impl<'a> TensorMap<'a> {
    /// The map of the tensor that begins with the view's first element.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the rule of the copy engine that is broken, [`Error::Length`] when the
    /// tensor does not lie in the view, or the driver's error: `CUDA_ERROR_NOT_SUPPORTED` by drivers older
    /// than CUDA 12.
    pub fn new<T: MapElement, const RANK: usize>(
        view: DeviceView<'a, T>,
        tiling: &Tiling<RANK>,
    ) -> Result<Self> {
        let description = tiling.describe::<T>(view.as_ptr().raw(), view.len(), 1)?;
        Ok(TensorMap { map: encode(view.device(), &description)?, memory: view.bytes() })
    }

    /// A map of nothing, for a kernel that reads the view by other ways and does not look at the map.
    pub(crate) fn unused(view: DeviceView<'a, u8>) -> Self {
        TensorMap { map: tma::TensorMap::from_words([0; tma::TensorMap::WORDS]), memory: view }
    }

    /// The 128 bytes, and the read that `stream` begins.
    pub(crate) fn for_reads(&self, stream: &Stream) -> Result<(tma::TensorMap, Use<'a>)> {
        Ok((self.map, self.memory.begin(stream)?))
    }
}

impl<'a> TensorMapMut<'a> {
    /// As [`TensorMap::new`]. Stores write whole units of 16 bytes. Where dimension 0 ends inside of a unit,
    /// they overwrite the elements up to the end of the unit; these must lie in the view.
    ///
    /// # Errors
    /// As [`TensorMap::new`].
    pub fn new<T: MapElement, const RANK: usize>(
        view: DeviceViewMut<'a, T>,
        tiling: &Tiling<RANK>,
    ) -> Result<Self> {
        let description = tiling.describe::<T>(view.as_ptr().raw(), view.len(), STORE_UNIT)?;
        Ok(TensorMapMut { map: encode(view.device(), &description)?, memory: view.bytes() })
    }

    /// The 128 bytes, and the write that `stream` begins.
    pub(crate) fn for_writes(&mut self, stream: &Stream) -> Result<(tma::TensorMap, Use<'_>)> {
        Ok((self.map, self.memory.view_mut().begin(stream)?))
    }
}

impl fmt::Debug for TensorMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMap of {:?}", self.memory)
    }
}

impl fmt::Debug for TensorMapMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMapMut of {:?}", self.memory)
    }
}
