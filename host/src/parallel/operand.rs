//! The buffers and tensors that collectives take.

use bytemuck::Pod;

use crate::device::Device;
use crate::error::Result;
use crate::memory::{DeviceBuffer, DeviceView, DeviceViewMut, Within};
use crate::raw;
use crate::stream::Stream;
use crate::tensor::{DType, Element, Tensor, TensorError, TensorMut};

/// Elements on a device, in one piece.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    pub(super) within: Within<'a, u8>,
    pub(super) device: &'a Device,
    pub(super) dtype: DType,
    pub(super) count: usize,
}

mod sealed {
    pub trait Sealed {}
}

/// A buffer that a collective reads: `&DeviceBuffer<T>`, `DeviceView<T>`, `&Tensor` (contiguous).
pub trait Input<'a>: sealed::Sealed {
    #[doc(hidden)]
    fn input(self, operation: &'static str) -> Result<Operand<'a>>;
}

/// A buffer that a collective writes: `&mut DeviceBuffer<T>`, `DeviceViewMut<T>`, `TensorMut` (contiguous).
pub trait Output<'a>: sealed::Sealed {
    #[doc(hidden)]
    fn output(self, operation: &'static str) -> Result<Operand<'a>>;
}

impl<'a> Operand<'a> {
    fn of<T: Element + Pod>(view: DeviceView<'a, T>) -> Self {
        Operand { within: view.within().cast(), device: view.device(), dtype: T::DTYPE, count: view.len() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.count * self.dtype.size()
    }

    /// Where it begins.
    pub(super) fn address(&self) -> u64 {
        self.within.address().raw()
    }

    /// Queues a copy to memory of the same device, as long.
    pub(super) fn copy_to(&self, stream: &Stream, to: &Operand<'_>) -> Result<()> {
        let bytes = self.bytes();
        let (reading, writing) = (self.within.begin(stream, false)?, to.within.begin(stream, true)?);
        if bytes == 0 {
            return Ok(());
        }
        let (from, to_address) = (self.address(), to.address());
        // SAFETY: both ranges lie in live allocations, and do not overlap, as the caller has checked.
        stream.call(|stream| unsafe { raw::memcpy_dtod_async(to_address, from, bytes, stream) })?;
        reading.commit(stream);
        writing.commit(stream);
        Ok(())
    }

    /// Whether two operands share bytes.
    pub(super) fn overlaps(&self, other: &Operand<'_>) -> bool {
        let (mine, theirs) = (self.address(), other.address());
        mine < theirs + other.bytes() as u64 && theirs < mine + self.bytes() as u64
    }
}

/// A collective of one rank, or of nothing.
pub(super) fn local(stream: &Stream, input: Option<Operand<'_>>, output: Option<Operand<'_>>) -> Result<()> {
    let (Some(input), Some(output)) = (input, output) else { return Ok(()) };
    input.copy_to(stream, &output)
}

impl<T: Element + Pod> sealed::Sealed for &DeviceBuffer<T> {}
impl<'a, T: Element + Pod> Input<'a> for &'a DeviceBuffer<T> {
    fn input(self, _: &'static str) -> Result<Operand<'a>> {
        Ok(Operand::of(self.view()))
    }
}

impl<T: Element + Pod> sealed::Sealed for DeviceView<'_, T> {}
impl<'a, T: Element + Pod> Input<'a> for DeviceView<'a, T> {
    fn input(self, _: &'static str) -> Result<Operand<'a>> {
        Ok(Operand::of(self))
    }
}

impl sealed::Sealed for &Tensor {}
impl<'a> Input<'a> for &'a Tensor {
    fn input(self, operation: &'static str) -> Result<Operand<'a>> {
        if !self.is_contiguous() {
            return Err(not_contiguous(operation, self.layout()));
        }
        let bytes = self.span_bytes()?;
        Ok(Operand {
            within: bytes.within(),
            device: self.device(),
            dtype: self.dtype(),
            count: self.elements(),
        })
    }
}

impl<T: Element + Pod> sealed::Sealed for &mut DeviceBuffer<T> {}
impl<'a, T: Element + Pod> Output<'a> for &'a mut DeviceBuffer<T> {
    fn output(self, _: &'static str) -> Result<Operand<'a>> {
        Ok(Operand::of(self.view()))
    }
}

impl<T: Element + Pod> sealed::Sealed for DeviceViewMut<'_, T> {}
impl<'a, T: Element + Pod> Output<'a> for DeviceViewMut<'a, T> {
    fn output(self, _: &'static str) -> Result<Operand<'a>> {
        Ok(Operand::of(self.into_view()))
    }
}

impl sealed::Sealed for TensorMut<'_> {}
impl<'a> Output<'a> for TensorMut<'a> {
    fn output(self, operation: &'static str) -> Result<Operand<'a>> {
        if !self.layout().is_contiguous() {
            return Err(not_contiguous(operation, self.layout()));
        }
        let (dtype, count) = (self.dtype(), self.layout().elements());
        let bytes = self.into_span_bytes()?.into_view();
        Ok(Operand { within: bytes.within(), device: bytes.device(), dtype, count })
    }
}

fn not_contiguous(operation: &'static str, layout: &crate::tensor::Layout) -> crate::Error {
    let (shape, strides) = (layout.shape().clone(), layout.strides().to_vec());
    TensorError::NotContiguous { operation, shape, strides }.into()
}
