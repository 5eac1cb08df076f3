//! Kernel arguments: which host values fit which kernel parameters, and how they are handed to the driver.

use std::ffi::c_void;

use bytemuck::Pod;
use cuda_std::kernel::{Map, Ptr, PtrMut, Slice, SliceMut, Value};

use crate::error::Result;
use crate::memory::tensor_map::{TensorMap, TensorMapMut};
use crate::memory::{DeviceBuffer, DevicePtr, DeviceView, DeviceViewMut, Use, Within};
use crate::stream::Stream;

/// The most arguments that a kernel can have.
const MAX_ARGS: usize = 20;

/// Addresses of the values that a launch passes, in the kernel's order.
pub struct Parameters {
    addresses: [*mut c_void; Parameters::CAPACITY],
    count: usize,
}

impl Parameters {
    /// The most parameters that a launch can have.
    pub(super) const CAPACITY: usize = 2 * MAX_ARGS;

    pub(super) fn new() -> Self {
        Parameters { addresses: [std::ptr::null_mut(); Self::CAPACITY], count: 0 }
    }

    pub(super) fn push<T>(&mut self, value: &T) {
        // A tuple has at most MAX_ARGS arguments of at most two parameters each, and a struct counts its
        // fields: there is room.
        self.addresses[self.count] = std::ptr::from_ref(value).cast_mut().cast();
        self.count += 1;
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut *mut c_void {
        self.addresses.as_mut_ptr()
    }
}

/// A host value that can be passed for the kernel parameter `P`.
///
/// | kernel's argument | `P` | host values |
/// |---|---|---|
/// | `T` | `Value<T>` | `T` |
/// | `&[T]` | `Slice<T>` | `&DeviceBuffer<T>`, `DeviceView<T>`, `&DeviceView<T>` |
/// | `&mut [T]` | `SliceMut<T>` | `&mut DeviceBuffer<T>`, `DeviceViewMut<T>`, `&mut DeviceViewMut<T>` |
/// | `*const T` | `Ptr<T>` | as `Slice<T>`; `Option` of those (`None` is null); `DevicePtr<T>` |
/// | `*mut T` | `PtrMut<T>` | as `SliceMut<T>`; `Option` of those (`None` is null); `DevicePtr<T>` |
/// | a struct `S` | `Value<S>` | `S`; where `S` derives `KernelArgs`, also `SArgs { .. }.pass()` |
/// | `&TensorMap` | `Map` | `&TensorMap`, `TensorMap`; to write through it `&mut TensorMapMut` |
///
/// # Safety
/// `list` adds exactly the parameters that the device passes for `P`, in order, and `commit` commits all that
/// was packed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for the kernel parameter `{P}`",
    label = "wrong argument for this parameter",
    note = "`&[T]` and `*const T` take `&DeviceBuffer<T>`, `&mut [T]` and `*mut T` take `&mut DeviceBuffer<T>`, of the same T; values take exactly their type"
)]
pub unsafe trait Arg<P> {
    /// The values that the driver copies, and the uses of buffers that have begun.
    type Packed;

    /// Checks the device, makes `stream` wait for earlier users of the buffer, and returns the values that
    /// the driver copies.
    ///
    /// # Errors
    /// [`crate::Error::DeviceMismatch`], or the driver's error.
    fn pack(self, stream: &Stream) -> Result<Self::Packed>;

    /// Adds the addresses of the parts of `packed`.
    fn list(packed: &Self::Packed, to: &mut Parameters);

    /// The kernel is queued on `stream`: later users of the buffer wait for it. A packed value that is not
    /// committed leaves no trace.
    fn commit(packed: Self::Packed, stream: &Stream);
}

// SAFETY: one parameter of type T, by value.
unsafe impl<T: Copy> Arg<Value<T>> for T {
    type Packed = T;

    fn pack(self, _: &Stream) -> Result<T> {
        Ok(self)
    }

    fn list(packed: &T, to: &mut Parameters) {
        to.push(packed);
    }

    fn commit(_: T, _: &Stream) {}
}

/// A slice as the device gets it, two parameters, and its use.
pub struct PackedSlice<'a> {
    address: u64,
    len: usize,
    usage: Use<'a>,
}

impl<'a> PackedSlice<'a> {
    fn new<T>(address: DevicePtr<T>, len: usize, usage: Use<'a>) -> Self {
        // An empty buffer has no address, but a Rust slice always has a non-null aligned one.
        let address = if address.raw() == 0 { align_of::<T>() as u64 } else { address.raw() };
        PackedSlice { address, len, usage }
    }
}

/// An address and its use. A null pointer and a raw address have no use.
pub struct PackedPtr<'a> {
    address: u64,
    usage: Option<Use<'a>>,
}

impl PackedPtr<'_> {
    /// An address of memory whose uses are not kept in order.
    fn untracked(address: u64) -> Self {
        PackedPtr { address, usage: None }
    }
}

/// `Arg::list` and `Arg::commit` of a packed slice.
macro_rules! slice_parameters {
    ($packed:ty) => {
        fn list(packed: &$packed, to: &mut Parameters) {
            to.push(&packed.address);
            to.push(&packed.len);
        }

        fn commit(packed: $packed, stream: &Stream) {
            packed.usage.commit(stream);
        }
    };
}

/// `Arg::list` and `Arg::commit` of a packed pointer.
macro_rules! pointer_parameter {
    ($packed:ty) => {
        fn list(packed: &$packed, to: &mut Parameters) {
            to.push(&packed.address);
        }

        fn commit(packed: $packed, stream: &Stream) {
            if let Some(usage) = packed.usage {
                usage.commit(stream);
            }
        }
    };
}

/// `Arg<$slice<T>>` and `Arg<$pointer<T>>` for a borrow.
macro_rules! buffer_arg {
    ($slice:ident, $pointer:ident, $type:ty, |$value:ident| $view:expr) => {
        // SAFETY: an address and a length.
        unsafe impl<'a, T: Pod> Arg<$slice<T>> for $type {
            type Packed = PackedSlice<'a>;

            fn pack(self, stream: &Stream) -> Result<PackedSlice<'a>> {
                let $value = self;
                let view = $view;
                let (address, len) = (view.as_ptr(), view.len());
                Ok(PackedSlice::new(address, len, view.begin(stream)?))
            }

            slice_parameters!(PackedSlice<'a>);
        }

        // SAFETY: an address.
        unsafe impl<'a, T: Pod> Arg<$pointer<T>> for $type {
            type Packed = PackedPtr<'a>;

            fn pack(self, stream: &Stream) -> Result<PackedPtr<'a>> {
                let $value = self;
                let view = $view;
                let address = view.as_ptr().raw();
                Ok(PackedPtr { address, usage: Some(view.begin(stream)?) })
            }

            pointer_parameter!(PackedPtr<'a>);
        }
    };
}

buffer_arg!(Slice, Ptr, &'a DeviceBuffer<T>, |buffer| buffer.view());
buffer_arg!(Slice, Ptr, DeviceView<'a, T>, |view| view);
buffer_arg!(Slice, Ptr, &DeviceView<'a, T>, |view| *view);
buffer_arg!(SliceMut, PtrMut, &'a mut DeviceBuffer<T>, |buffer| buffer.view_mut());
buffer_arg!(SliceMut, PtrMut, DeviceViewMut<'a, T>, |view| view);
buffer_arg!(SliceMut, PtrMut, &'a mut DeviceViewMut<'_, T>, |view| view.view_mut());

/// The other values for a pointer: nullable ones, and addresses.
macro_rules! pointer_arg {
    ($pointer:ident, writes: $writes:expr) => {
        // SAFETY: an address, null for `None`.
        unsafe impl<'a, T, A: Arg<$pointer<T>, Packed = PackedPtr<'a>>> Arg<$pointer<T>> for Option<A> {
            type Packed = PackedPtr<'a>;

            fn pack(self, stream: &Stream) -> Result<PackedPtr<'a>> {
                self.map_or(Ok(PackedPtr::untracked(0)), |some| some.pack(stream))
            }

            pointer_parameter!(PackedPtr<'a>);
        }

        // SAFETY: an address.
        unsafe impl<T> Arg<$pointer<T>> for DevicePtr<T> {
            type Packed = PackedPtr<'static>;

            fn pack(self, _: &Stream) -> Result<PackedPtr<'static>> {
                Ok(PackedPtr::untracked(self.raw()))
            }

            pointer_parameter!(PackedPtr<'static>);
        }

        // SAFETY: an address.
        unsafe impl<'a, T> Arg<$pointer<T>> for Within<'a, T> {
            type Packed = PackedPtr<'a>;

            fn pack(self, stream: &Stream) -> Result<PackedPtr<'a>> {
                Ok(PackedPtr { address: self.address().raw(), usage: Some(self.begin(stream, $writes)?) })
            }

            pointer_parameter!(PackedPtr<'a>);
        }
    };
}

pointer_arg!(Ptr, writes: false);
pointer_arg!(PtrMut, writes: true);

/// `Arg<Map>`: the 128 bytes, by value.
macro_rules! map_arg {
    ($type:ty, $pack:ident) => {
        // SAFETY: one parameter, the map itself.
        unsafe impl<'a> Arg<Map> for $type {
            type Packed = (cuda_std::tma::TensorMap, Use<'a>);

            fn pack(self, stream: &Stream) -> Result<Self::Packed> {
                self.$pack(stream)
            }

            fn list((map, _): &Self::Packed, to: &mut Parameters) {
                to.push(map);
            }

            fn commit((_, usage): Self::Packed, stream: &Stream) {
                usage.commit(stream);
            }
        }
    };
}

map_arg!(&TensorMap<'a>, for_reads);
map_arg!(TensorMap<'a>, for_reads);
map_arg!(&'a mut TensorMapMut<'_>, for_writes);

/// A pointer to a table of addresses, and the memory that they name: a launch with it is a use of all of
/// that.
#[derive(Clone)]
pub(crate) struct Table<'a, T> {
    /// Where the table is, which is only read.
    pub table: Within<'a, T>,
    /// Whatever it names, and whether the kernel writes there.
    pub named: Vec<(Within<'a, u8>, bool)>,
}

/// The address of a table, and the uses of it and of what it names.
pub struct PackedTable<'a> {
    address: u64,
    uses: Vec<Use<'a>>,
}

// SAFETY: an address.
unsafe impl<'a, T> Arg<Ptr<T>> for Table<'a, T> {
    type Packed = PackedTable<'a>;

    fn pack(self, stream: &Stream) -> Result<PackedTable<'a>> {
        let address = self.table.address().raw();
        let named = self.named.into_iter().map(|(within, writes)| within.begin(stream, writes));
        let uses = named.chain([self.table.begin(stream, false)]).collect::<Result<_>>()?;
        Ok(PackedTable { address, uses })
    }

    fn list(packed: &PackedTable<'a>, to: &mut Parameters) {
        to.push(&packed.address);
    }

    fn commit(packed: PackedTable<'a>, stream: &Stream) {
        packed.uses.into_iter().for_each(|usage| usage.commit(stream));
    }
}
