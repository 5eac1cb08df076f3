//! Kernel arguments: which host values fit which kernel parameters, and how they are handed to the driver.

use std::ffi::c_void;

use bytemuck::Pod;
use cuda_std::kernel::{Map, Ptr, PtrMut, Slice, SliceMut, Value};

use crate::error::Result;
use crate::memory::tensor_map::{TensorMap, TensorMapMut};
use crate::memory::{DeviceBuffer, DevicePtr, DeviceView, DeviceViewMut};
use crate::stream::Stream;

/// Arguments of a kernel, at most.
const MAX_ARGS: usize = 16;

/// Addresses of the values that a launch passes, in the kernel's order.
pub struct Parameters {
    addresses: [*mut c_void; Parameters::CAPACITY],
    count: usize,
}

impl Parameters {
    /// Parameters at most.
    pub(super) const CAPACITY: usize = 2 * MAX_ARGS;

    pub(super) fn new() -> Self {
        Parameters { addresses: [std::ptr::null_mut(); Self::CAPACITY], count: 0 }
    }

    pub(super) fn push<T>(&mut self, value: &T) {
        // A tuple has at most MAX_ARGS arguments of at most two parameters each, and a struct counts its fields: there is room.
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
/// `list` adds exactly the parameters that the device passes for `P`, in order.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for the kernel parameter `{P}`",
    label = "wrong argument for this kernel",
    note = "`&[T]` and `*const T` take `&DeviceBuffer<T>`, `&mut [T]` and `*mut T` take `&mut DeviceBuffer<T>`, of the same T; values take exactly their type"
)]
pub unsafe trait Arg<P> {
    /// What the driver copies.
    type Packed;

    /// Checks the device, puts the use in order with earlier ones, and gives what the driver copies.
    ///
    /// # Errors
    /// [`crate::Error::DeviceMismatch`], or the driver's error.
    fn pack(self, stream: &Stream) -> Result<Self::Packed>;

    /// Adds the addresses of the parts of `packed`.
    fn list(packed: &Self::Packed, to: &mut Parameters);
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
}

/// A slice as the device gets it: two parameters.
pub struct PackedSlice {
    address: u64,
    len: usize,
}

impl PackedSlice {
    fn new<T>(address: DevicePtr<T>, len: usize) -> Self {
        // An empty buffer has no address; a Rust slice has a non-null aligned one always.
        let address = if address.raw() == 0 { align_of::<T>() as u64 } else { address.raw() };
        PackedSlice { address, len }
    }

    fn list(&self, to: &mut Parameters) {
        to.push(&self.address);
        to.push(&self.len);
    }
}

/// `Arg<Slice<T>>`, `Arg<Ptr<T>>` and the nullable form for a shared borrow.
macro_rules! shared_arg {
    ($type:ty, |$value:ident| $view:expr) => {
        // SAFETY: an address and a length.
        unsafe impl<T: Pod> Arg<Slice<T>> for $type {
            type Packed = PackedSlice;

            fn pack(self, stream: &Stream) -> Result<PackedSlice> {
                let $value = self;
                let view: DeviceView<'_, T> = $view;
                view.before_read(stream)?;
                Ok(PackedSlice::new(view.as_ptr(), view.len()))
            }

            fn list(packed: &PackedSlice, to: &mut Parameters) {
                packed.list(to);
            }
        }

        // SAFETY: an address.
        unsafe impl<T: Pod> Arg<Ptr<T>> for $type {
            type Packed = u64;

            fn pack(self, stream: &Stream) -> Result<u64> {
                let $value = self;
                let view: DeviceView<'_, T> = $view;
                view.before_read(stream)?;
                Ok(view.as_ptr().raw())
            }

            fn list(packed: &u64, to: &mut Parameters) {
                to.push(packed);
            }
        }
    };
}

/// `Arg<SliceMut<T>>`, `Arg<PtrMut<T>>` and the nullable form for an exclusive borrow.
macro_rules! exclusive_arg {
    ($type:ty, |$value:ident| $view:expr) => {
        // SAFETY: an address and a length.
        unsafe impl<T: Pod> Arg<SliceMut<T>> for $type {
            type Packed = PackedSlice;

            fn pack(self, stream: &Stream) -> Result<PackedSlice> {
                let $value = self;
                let view: DeviceViewMut<'_, T> = $view;
                view.before_write(stream)?;
                Ok(PackedSlice::new(view.as_ptr(), view.len()))
            }

            fn list(packed: &PackedSlice, to: &mut Parameters) {
                packed.list(to);
            }
        }

        // SAFETY: an address.
        unsafe impl<T: Pod> Arg<PtrMut<T>> for $type {
            type Packed = u64;

            fn pack(self, stream: &Stream) -> Result<u64> {
                let $value = self;
                let view: DeviceViewMut<'_, T> = $view;
                view.before_write(stream)?;
                Ok(view.as_ptr().raw())
            }

            fn list(packed: &u64, to: &mut Parameters) {
                to.push(packed);
            }
        }
    };
}

shared_arg!(&DeviceBuffer<T>, |buffer| buffer.view());
shared_arg!(DeviceView<'_, T>, |view| view);
shared_arg!(&DeviceView<'_, T>, |view| *view);
exclusive_arg!(&mut DeviceBuffer<T>, |buffer| buffer.view_mut());
exclusive_arg!(DeviceViewMut<'_, T>, |view| view);
exclusive_arg!(&mut DeviceViewMut<'_, T>, |view| view.view_mut());

// SAFETY: an address, null for `None`.
unsafe impl<T, A: Arg<Ptr<T>, Packed = u64>> Arg<Ptr<T>> for Option<A> {
    type Packed = u64;

    fn pack(self, stream: &Stream) -> Result<u64> {
        self.map_or(Ok(0), |some| some.pack(stream))
    }

    fn list(packed: &u64, to: &mut Parameters) {
        to.push(packed);
    }
}

// SAFETY: an address, null for `None`.
unsafe impl<T, A: Arg<PtrMut<T>, Packed = u64>> Arg<PtrMut<T>> for Option<A> {
    type Packed = u64;

    fn pack(self, stream: &Stream) -> Result<u64> {
        self.map_or(Ok(0), |some| some.pack(stream))
    }

    fn list(packed: &u64, to: &mut Parameters) {
        to.push(packed);
    }
}

// SAFETY: an address.
unsafe impl<T> Arg<Ptr<T>> for DevicePtr<T> {
    type Packed = u64;

    fn pack(self, _: &Stream) -> Result<u64> {
        Ok(self.raw())
    }

    fn list(packed: &u64, to: &mut Parameters) {
        to.push(packed);
    }
}

// SAFETY: an address.
unsafe impl<T> Arg<PtrMut<T>> for DevicePtr<T> {
    type Packed = u64;

    fn pack(self, _: &Stream) -> Result<u64> {
        Ok(self.raw())
    }

    fn list(packed: &u64, to: &mut Parameters) {
        to.push(packed);
    }
}

/// `Arg<Map>`: the 128 bytes, by value.
macro_rules! map_arg {
    ($type:ty, $pack:ident) => {
        // SAFETY: one parameter, the map itself.
        unsafe impl Arg<Map> for $type {
            type Packed = cuda_std::tma::TensorMap;

            fn pack(self, stream: &Stream) -> Result<Self::Packed> {
                self.$pack(stream)
            }

            fn list(packed: &Self::Packed, to: &mut Parameters) {
                to.push(packed);
            }
        }
    };
}

map_arg!(&TensorMap<'_>, for_reads);
map_arg!(TensorMap<'_>, for_reads);
map_arg!(&mut TensorMapMut<'_>, for_writes);

/// Launches rely on what the implementations below do, so no other package can add one.
mod sealed {
    pub trait Tuple<P> {}
}

/// A tuple of host values that fits a kernel's parameters `P`, itself a tuple of parameter markers. Nothing else implements it.
#[diagnostic::on_unimplemented(
    message = "these arguments do not fit the kernel's parameters `{P}`",
    label = "wrong arguments for this kernel",
    note = "pass a tuple with one value for each of the kernel's arguments, in order"
)]
pub trait LaunchArgs<P>: sealed::Tuple<P> {
    /// Packs the arguments and hands the parameter list to `launch`.
    ///
    /// # Errors
    /// What packing an argument or `launch` answers.
    fn with(self, stream: &Stream, launch: impl FnOnce(&mut Parameters) -> Result<()>) -> Result<()>;
}

macro_rules! tuple_args {
    ($($arg:ident $param:ident),*) => {
        impl<$($arg, $param),*> sealed::Tuple<($($param,)*)> for ($($arg,)*) where $($arg: Arg<$param>,)* {}

        impl<$($arg, $param),*> LaunchArgs<($($param,)*)> for ($($arg,)*)
        where
            $($arg: Arg<$param>,)*
        {
            #[allow(non_snake_case, unused_variables, unused_mut)]
            fn with(self, stream: &Stream, launch: impl FnOnce(&mut Parameters) -> Result<()>) -> Result<()> {
                let ($($arg,)*) = self;
                $(let $arg = <$arg as Arg<$param>>::pack($arg, stream)?;)*
                let mut parameters = Parameters::new();
                $(<$arg as Arg<$param>>::list(&$arg, &mut parameters);)*
                launch(&mut parameters)
            }
        }
    };
}

/// The implementation for the given pairs, and for every shorter tuple.
macro_rules! tuples_up_to {
    () => { tuple_args!(); };
    ($arg:ident $param:ident $(, $args:ident $params:ident)*) => {
        tuple_args!($arg $param $(, $args $params)*);
        tuples_up_to!($($args $params),*);
    };
}

// As many pairs as MAX_ARGS.
tuples_up_to!(
    A1 P1, A2 P2, A3 P3, A4 P4, A5 P5, A6 P6, A7 P7, A8 P8, A9 P9, A10 P10, A11 P11, A12 P12, A13 P13, A14 P14, A15 P15, A16 P16
);
