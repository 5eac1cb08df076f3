//! The macros of `cuda_std`: `#[kernel]`, `#[derive(KernelArgs)]`, `#[address_space]`, `shared_array!`,
//! `#[gpu_only]`.
//!
//! Everything here expands to code for both arms, the device's (`target_arch = "nvptx64"`) and the host's,
//! and leaves the choice to `#[cfg]`. Use the macros through `cuda_std`, which holds what the expansions
//! refer to.

mod externally_visible;
mod gpu_only;
mod kernel;
mod kernel_args;
mod shared;

use proc_macro::TokenStream;

/// Makes a function a GPU kernel.
///
/// ```ignore
/// #[kernel(launch_bounds(256, 2))]
/// pub unsafe fn saxpy(a: f32, x: &[f32], y: *mut f32) { .. }
/// ```
///
/// On the device the function becomes an entry point of the PTX module under its own name. A slice argument,
/// `&[T]` or `&mut [T]`, becomes two parameters: a pointer and a `usize` length. An argument `&TensorMap` (of
/// `cuda_std::tma`) is the map's 128 bytes, by value: the kernel gets a reference to its own parameter, which
/// the copy engine reads. On the host the function stays a function, a marker type of the same name
/// implements `cuda_std::kernel::Kernel`, and the kernel is put into the registry of the SIMT executor. A
/// package with `kernel-types = false` under `[package.metadata.ironwarp]` gets no marker types: for packages
/// that re-export a kernel beside a module of the same name.
///
/// Every thread gets the same arguments, so none can have an exclusive reference. In the body an argument
/// `&mut [T]` is a `cuda_std::kernel::MutSlice<T>`, which is used as a slice is; what takes a `&mut [T]`
/// takes `&mut y[..]`. An argument `&mut T` is a `MutRef<T>`, which dereferences to the `T`.
///
/// `launch_bounds(MAX_THREADS[, MIN_BLOCKS])` takes constant expressions: the largest number of threads in a
/// block, and the number of blocks that should fit on a multiprocessor (PTX `.maxntid`, `.minnctapersm`).
///
/// # Compile errors
///
/// The function must be `unsafe`, and must not be generic, `async`, `const`, a method or variadic, nor return
/// a value. An argument passed by value must be `Copy` and aligned to 16 bytes at most.
#[proc_macro_attribute]
pub fn kernel(attr: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(attr.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct one argument of a kernel, which takes it by value.
///
/// ```ignore
/// #[derive(Clone, Copy, KernelArgs)]
/// #[repr(C)]
/// pub struct Epilogue {
///     pub alpha: f32,
///     pub bias: *const f32,
///     pub out: *mut f32,
/// }
///
/// #[kernel]
/// pub unsafe fn gemm(problem: Problem, epilogue: Epilogue) { .. }
///
/// // On the host:
/// let epilogue = EpilogueArgs { alpha: 1.0, bias: Some(&bias), out: &mut out };
/// // SAFETY: the sizes of `problem` are those of the buffers.
/// unsafe { launch::<gemm>(&stream, config, (problem, epilogue.pass()))? };
/// ```
///
/// On the host the derive adds a struct `EpilogueArgs` with the same fields. A field of type `*const T` or
/// `*mut T` takes what a kernel argument of that type takes: buffers, views, `Option` of them, or a
/// `DevicePtr`. A number or an array takes its own type. A field of any other type takes that type, or the
/// host form of a struct that derives `KernelArgs` itself. The compiler checks the types, and the launch
/// notes the use of each buffer.
///
/// On the device a plain access through a pointer of the struct is a generic `ld` or `st`, since the compiler
/// does not know that it points to global memory. Hot loops use the accesses of `cuda_std::vector`.
///
/// # Compile errors
///
/// The struct must be `#[repr(C)]` and `Copy`, with named fields, no generic parameters and no references,
/// aligned to 16 bytes at most.
#[proc_macro_derive(KernelArgs)]
pub fn kernel_args(item: TokenStream) -> TokenStream {
    kernel_args::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Places a `static` in a memory space of the device: `shared`, `global` or `constant`.
///
/// With `shared`, every thread block has its own copy, which is uninitialised when the kernel starts: the
/// initial value is type-checked and then ignored, as in CUDA. Inside a `#[kernel]` function a `static mut`
/// behaves as an ordinary one. Outside of one, its name stands for a value that dereferences to the type:
/// `NAME[i][j] = v`, `*NAME = v` and `NAME.as_mut_ptr()` work, while `&raw mut NAME` must be written `&raw
/// mut *NAME`. The builder refuses a kernel that takes the address of the name itself.
///
/// With `global` the compiler's own placement is right, and the attribute does nothing. `constant` is placed
/// in global memory too, where it reads the same.
#[proc_macro_attribute]
pub fn address_space(attr: TokenStream, item: TokenStream) -> TokenStream {
    shared::expand_static(attr.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// `shared_array![T; LEN]`: an array in shared memory, as a `*mut T` to its first element.
///
/// The array belongs to the place where the macro stands: it yields the same memory whenever it is reached,
/// in a loop too, and every thread of a block gets the same pointer. It is uninitialised when the kernel
/// starts. `T` and `LEN` must not depend on generic parameters.
#[proc_macro]
pub fn shared_array(input: TokenStream) -> TokenStream {
    shared::expand_array(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Keeps a function for the device: on the host its body is replaced by a panic that names the function.
///
/// Meant for functions that hold PTX in `asm!`. Whatever is built from `cuda_std` alone runs on both sides
/// without it.
#[proc_macro_attribute]
pub fn gpu_only(_attr: TokenStream, item: TokenStream) -> TokenStream {
    gpu_only::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Marks a `#[no_mangle]` function as one that must stay in the PTX although no kernel calls it.
///
/// rustc keeps exported functions anyway; the attribute checks that the function is one.
#[proc_macro_attribute]
pub fn externally_visible(_attr: TokenStream, item: TokenStream) -> TokenStream {
    externally_visible::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
