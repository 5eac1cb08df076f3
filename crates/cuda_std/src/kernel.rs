//! The expansion of `#[kernel]`: the kernel as a type, for typed launches, and its entry in the executor's
//! registry.
//!
//! `fn saxpy(n: u32, a: f32, x: &[f32], y: *mut f32)` gives, on the host, a type `saxpy` with `Params =
//! (Value<u32>, Value<f32>, Slice<f32>, PtrMut<f32>)`.

mod exclusive;

pub use exclusive::{MutRef, MutSlice};

/// Largest alignment of an argument passed by value, in bytes: beyond it the device compiler fails.
pub const MAX_ARGUMENT_ALIGN: usize = 16;

/// Checks, while compiling, that a `T` can be passed to a kernel by value.
///
/// # Panics
///
/// In a constant, so as a compile error, when `T` is aligned beyond [`MAX_ARGUMENT_ALIGN`]:
///
/// ```compile_fail,E0080
/// # use cuda_std::kernel;
/// #[derive(Clone, Copy)]
/// #[repr(align(64))]
/// pub struct TensorMap([u8; 128]);
///
/// #[kernel]
/// pub unsafe fn load(map: TensorMap) {}
/// ```
///
/// A type that is not `Copy` fails as well:
///
/// ```compile_fail,E0277
/// # use cuda_std::kernel;
/// pub struct Line {
///     slope: f32,
/// }
///
/// #[kernel]
/// pub unsafe fn take(line: Line) {}
/// ```
///
/// This compiles. A tensor map travels by value although it is behind a reference (see [`tma`](crate::tma)):
///
/// ```
/// # use cuda_std::{kernel, tma::TensorMap};
/// #[kernel]
/// pub unsafe fn load(map: &TensorMap, in_memory: *const TensorMap, rows: [u32; 3]) {}
/// ```
///
/// Another type of that name does not:
///
/// ```compile_fail,E0308
/// # use cuda_std::kernel;
/// pub struct TensorMap([u8; 128]);
///
/// #[kernel]
/// pub unsafe fn load(map: &TensorMap) {}
/// ```
pub const fn assert_passable<T>()
where
    (): Passable<T>,
{
    assert!(
        align_of::<T>() <= MAX_ARGUMENT_ALIGN,
        "a kernel argument cannot be aligned beyond 16 bytes: pass a pointer to it"
    );
}

/// Holds for what a kernel can take by value, every `Copy` type. It exists for its message. (Of a trait of
/// `T` itself the compiler would say that `&T` has it.)
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{T}` cannot be a kernel parameter: a launch copies its bytes, and it is not `Copy`",
    label = "not `Copy`",
    note = "a kernel takes numbers, pointers, `&[T]`, `&mut [T]`, and `#[repr(C)]` structs of numbers and pointers that derive `Clone, Copy, KernelArgs`"
)]
pub trait Passable<T> {}

#[diagnostic::do_not_recommend]
impl<T: Copy> Passable<T> for () {}

/// Refuses, while compiling, an argument whose type is another name of a slice: `#[kernel]` sees the name
/// alone, and would make one parameter of it, where hosts pass a pointer and a length.
///
/// # Panics
///
/// In a constant, so as a compile error, for a slice:
///
/// ```compile_fail,E0080
/// # use cuda_std::kernel;
/// type Floats<'a> = &'a [f32];
///
/// #[kernel]
/// pub unsafe fn sum(values: Floats<'_>) {}
/// ```
pub const fn assert_no_slice(is_slice: bool) {
    assert!(
        !is_slice,
        "a slice argument must be written as `&[T]`: #[kernel] cannot see through its other name"
    );
}

/// Tells, for a type that the macro knows by a name, whether it is a slice: for slices the inherent constant
/// goes before that of [`NoSlice`].
#[doc(hidden)]
pub struct Named<T>(core::marker::PhantomData<T>);

impl<T> Named<&[T]> {
    pub const IS_SLICE: bool = true;
}

impl<T> Named<&mut [T]> {
    pub const IS_SLICE: bool = true;
}

#[doc(hidden)]
pub trait NoSlice {
    const IS_SLICE: bool = false;
}

impl<T> NoSlice for Named<T> {}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::*;

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use core::ffi::c_void;
    use core::marker::PhantomData;

    pub use simt::registry::{KernelEntry, LaunchBounds, ParamLayout, Registration};

    /// A kernel as a type. `#[kernel]` implements it.
    ///
    /// # Safety
    ///
    /// The entry point `NAME` of the family `FAMILY` takes the parameters that `Params` says, and no others:
    /// launches pass as many bytes as the markers stand for.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is no kernel",
        label = "not a function with `#[kernel]`",
        note = "`#[kernel]` on a function adds a type of the function's name, by which it is launched"
    )]
    pub unsafe trait Kernel {
        /// A tuple of parameter markers, one for each argument of the function: [`Value`], [`Slice`],
        /// [`SliceMut`], [`Ptr`], [`PtrMut`] or [`Map`].
        type Params;
        /// Name of the entry point.
        const NAME: &'static str;
        /// The crate that holds the kernel; also the stem of the PTX file.
        const FAMILY: &'static str;
        /// The launch bounds that `launch_bounds` declares.
        const BOUNDS: LaunchBounds;
        /// Its native form.
        const ENTRY: &'static KernelEntry;
    }

    /// Makes the kernel's native form known to the executor. Launches by type do so; kernels of most packages
    /// are known from the start.
    pub fn link<K: Kernel>() {
        simt::registry::link(K::ENTRY);
    }

    /// Marks an argument `&[T]`: two parameters, a pointer and a length in elements.
    pub struct Slice<T>(PhantomData<T>);
    /// Marks an argument `&mut [T]`: two parameters, a pointer and a length in elements.
    pub struct SliceMut<T>(PhantomData<T>);
    /// Marks an argument `*const T` or `&T`: a pointer to device memory.
    pub struct Ptr<T>(PhantomData<T>);
    /// Marks an argument `*mut T` or `&mut T`: a pointer to device memory.
    pub struct PtrMut<T>(PhantomData<T>);
    /// Marks an argument `&TensorMap`: the map itself, by value. The kernel gets a reference to its
    /// parameter.
    pub struct Map;
    /// Marks an argument passed by value.
    pub struct Value<T>(PhantomData<T>);

    /// A struct that a kernel takes by value, field by field. `#[derive(KernelArgs)]` implements it.
    ///
    /// # Safety
    ///
    /// `read` reads one value for each marker of `Fields`, in order, of the type that the marker stands for.
    pub unsafe trait ArgStruct: Copy {
        /// The markers of the fields as nested pairs: `(Value<f32>, (Ptr<u8>, ()))`.
        type Fields;

        /// The struct from the values of its fields.
        ///
        /// # Safety
        ///
        /// `fields` points to one pointer for each field, and each of those to a valid value of the field.
        unsafe fn read(fields: *const *const c_void) -> Self;
    }

    /// Host values for the fields of an `S`: nested pairs, one value for each marker of `S::Fields`.
    ///
    /// The struct that `#[derive(KernelArgs)]` adds makes one by `pass`; a launch takes it for the marker
    /// `Value<S>`.
    #[must_use]
    pub struct StructArgs<S, V>(V, PhantomData<S>);

    impl<S, V: Clone> Clone for StructArgs<S, V> {
        fn clone(&self) -> Self {
            Self::new(self.0.clone())
        }
    }

    impl<S, V: Copy> Copy for StructArgs<S, V> {}

    impl<S, V> StructArgs<S, V> {
        /// From nested pairs. Whether they fit is checked where they are launched.
        pub const fn new(values: V) -> Self {
            Self(values, PhantomData)
        }

        /// The nested pairs.
        pub fn into_values(self) -> V {
            self.0
        }
    }
}

/// The functions by which the host form of a kernel reads its arguments.
#[doc(hidden)]
#[cfg(not(target_arch = "nvptx64"))]
pub mod arguments {
    use core::ffi::c_void;

    use super::MutSlice;

    /// Argument `index`, passed by value.
    ///
    /// # Safety
    ///
    /// `parameters` points to more than `index` pointers, and that one to a valid `T`.
    pub unsafe fn read_value<T>(parameters: *const *const c_void, index: usize) -> T {
        // SAFETY: the caller's promise; a launch does not promise alignment.
        unsafe { parameters.add(index).read().cast::<T>().read_unaligned() }
    }

    /// Arguments `index` and `index + 1`, a pointer and a length.
    ///
    /// # Safety
    ///
    /// As for [`read_value`], and the pointer is valid for that many elements of `T` while the kernel runs.
    pub unsafe fn read_slice<'a, T>(parameters: *const *const c_void, index: usize) -> &'a [T] {
        // SAFETY: the caller's promise. No element, no promise about the pointer, which then may be null.
        unsafe {
            match read_value::<usize>(parameters, index + 1) {
                0 => &[],
                len => core::slice::from_raw_parts(read_value(parameters, index), len),
            }
        }
    }

    /// As [`read_slice`], for an argument `&mut [T]`.
    ///
    /// # Safety
    ///
    /// As for [`read_slice`]. That the threads do not write the same element at once is the kernel's own
    /// promise.
    pub unsafe fn read_slice_mut<'a, T>(parameters: *const *const c_void, index: usize) -> MutSlice<'a, T> {
        // SAFETY: the caller's promise.
        unsafe { MutSlice::from_raw_parts(read_value(parameters, index), read_value(parameters, index + 1)) }
    }
}
