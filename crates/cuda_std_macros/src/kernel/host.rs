//! The host form: the function as written, its marker type, and its entry in the executor's registry.

use std::sync::OnceLock;

use proc_macro2::TokenStream;
use quote::quote;

use super::Kernel;
use super::params::{Param, Passing};

pub fn expand(kernel: &Kernel) -> TokenStream {
    let Kernel { attrs, vis, name, params, generics, body, .. } = kernel;
    let inputs = params.iter().map(Param::body_argument);
    let marker = if marker_types_wanted() { marker(kernel) } else { TokenStream::new() };
    let manifest = manifest_as_source();
    let registration = registration(kernel);
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #(#attrs)*
        #[allow(unused_parens, unused_mut)]
        #vis unsafe fn #name #generics (#(#inputs),*) #body
        #marker
        #manifest
        #registration
    }
}

/// `pub enum NAME {}` with `impl Kernel`: what the typed launch of the host library goes by.
fn marker(kernel: &Kernel) -> TokenStream {
    let Kernel { vis, name, params, .. } = kernel;
    let doc = format!("Stands for the kernel [`{name}`](fn@{name}) in typed launches.");
    let markers = params.iter().map(Param::detached).map(|Param { ty, passing, .. }| match passing {
        Passing::Slice(element) => quote!(::cuda_std::kernel::Slice<#element>),
        Passing::SliceMut(element) => quote!(::cuda_std::kernel::SliceMut<#element>),
        Passing::Ptr(target) => quote!(::cuda_std::kernel::Ptr<#target>),
        Passing::PtrMut(target) | Passing::RefMut(target) => quote!(::cuda_std::kernel::PtrMut<#target>),
        Passing::Map => quote!(::cuda_std::kernel::Map),
        Passing::Value => quote!(::cuda_std::kernel::Value<#ty>),
    });
    let bounds = bounds(kernel);
    let name_text = name.to_string();
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #[doc = #doc]
        #[allow(non_camel_case_types)]
        #vis enum #name {}

        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the markers are those of the entry point's own parameters.
        unsafe impl ::cuda_std::kernel::Kernel for #name {
            type Params = (#(#markers,)*);
            const NAME: &'static str = #name_text;
            const FAMILY: &'static str = ::core::env!("CARGO_CRATE_NAME");
            const BOUNDS: ::cuda_std::kernel::LaunchBounds = #bounds;
        }
    }
}

/// Its own names are such as no kernel has, which would hide the kernel from the call.
fn registration(kernel: &Kernel) -> TokenStream {
    let Kernel { name, params, .. } = kernel;
    let params: Vec<Param> = params.iter().map(Param::detached).collect();
    let layouts = params.iter().map(layouts);
    let mut next = 0usize;
    let arguments = params.iter().map(|param| argument(param, &mut next));
    let bounds = bounds(kernel);
    let name_text = name.to_string();
    let where_wanted = if in_unit_tests() {
        quote!(#[cfg(not(target_arch = "nvptx64"))])
    } else {
        quote!(#[cfg(not(any(target_arch = "nvptx64", test)))])
    };
    quote! {
        #where_wanted
        const _: () = {
            unsafe fn __ironwarp_invoke(__ironwarp_parameters: *const *const ::core::ffi::c_void) {
                let _ = __ironwarp_parameters;
                // SAFETY: the executor passes one pointer for each of the layouts, to a value of that size;
                // the code that launched the kernel vouches for the values.
                unsafe { #name(#(#arguments),*) }
            }
            const __IRONWARP_PARAMS: &[::cuda_std::kernel::ParamLayout] = &[#(#layouts),*];
            ::cuda_std::__private::inventory::submit! {
                ::cuda_std::kernel::KernelEntry {
                    name: #name_text,
                    family: ::core::env!("CARGO_CRATE_NAME"),
                    file: ::core::file!(),
                    line: ::core::line!(),
                    params: __IRONWARP_PARAMS,
                    bounds: #bounds,
                    invoke: __ironwarp_invoke,
                }
            }
        };
    }
}

fn bounds(Kernel { bounds, .. }: &Kernel) -> TokenStream {
    let (max_threads, min_blocks) = (bounds.max_threads(), bounds.min_blocks());
    quote!(::cuda_std::kernel::LaunchBounds { max_threads: #max_threads, min_blocks: #min_blocks })
}

fn layouts(Param { ty, passing, .. }: &Param) -> TokenStream {
    match passing {
        Passing::Slice(element) | Passing::SliceMut(element) => quote! {
            ::cuda_std::kernel::ParamLayout::of::<*const #element>(), ::cuda_std::kernel::ParamLayout::of::<usize>()
        },
        Passing::Ptr(target) | Passing::PtrMut(target) | Passing::RefMut(target) => {
            quote!(::cuda_std::kernel::ParamLayout::of::<*const #target>())
        }
        Passing::Map => quote!(::cuda_std::kernel::ParamLayout::of::<::cuda_std::tma::TensorMap>()),
        Passing::Value => quote!(::cuda_std::kernel::ParamLayout::of::<#ty>()),
    }
}

/// The expression that reads one argument out of the launch parameters; `next` counts the parameters.
fn argument(param: &Param, next: &mut usize) -> TokenStream {
    let Param { ty, passing, .. } = param;
    let index = *next;
    *next += param.parameters();
    match passing {
        Passing::Slice(element) => {
            quote!(::cuda_std::__private::read_slice::<#element>(__ironwarp_parameters, #index))
        }
        Passing::SliceMut(element) => {
            quote!(::cuda_std::__private::read_slice_mut::<#element>(__ironwarp_parameters, #index))
        }
        Passing::RefMut(target) => {
            quote!(::cuda_std::kernel::MutRef::from_raw(
                ::cuda_std::__private::read_value::<*mut #target>(__ironwarp_parameters, #index)
            ))
        }
        // A copy, since a launch does not promise alignment; it lives as long as the call.
        Passing::Map => {
            quote!(&::cuda_std::__private::read_value::<::cuda_std::tma::TensorMap>(__ironwarp_parameters, #index))
        }
        _ => quote!(::cuda_std::__private::read_value::<#ty>(__ironwarp_parameters, #index)),
    }
}

/// The text of the package's manifest, where there is one.
fn manifest() -> Option<&'static str> {
    static TEXT: OnceLock<Option<String>> = OnceLock::new();
    let read = || {
        let folder = std::env::var_os("CARGO_MANIFEST_DIR")?;
        std::fs::read_to_string(std::path::Path::new(&folder).join("Cargo.toml")).ok()
    };
    TEXT.get_or_init(read).as_deref()
}

/// Makes the manifest one of the files that the crate is compiled from. This macro and `tools/rustc-checked`
/// read it behind cargo's back: without this, a package whose `checked` or `kernel-types` has changed would
/// count as fresh, and the checker would see nothing.
fn manifest_as_source() -> TokenStream {
    if manifest().is_none() {
        return TokenStream::new();
    }
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        const _: &[u8] = ::core::include_bytes!(::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    }
}

/// Whether kernels can be launched in the package's own unit tests: unless its manifest says
/// `kernels-in-unit-tests = false`.
///
/// Where they cannot, nothing calls them, so that the program with the unit tests is built without their
/// code. A family of many kernels takes as long to compile as all other programs together.
fn in_unit_tests() -> bool {
    !manifest().is_some_and(|text| text.lines().any(|line| line.trim() == "kernels-in-unit-tests = false"))
}

/// Whether the package wants marker types: unless its manifest says `kernel-types = false`.
///
/// A kernel that is re-exported beside a module of the same name (`mod gemm; pub use gemm::gemm;`) cannot
/// have a marker type, which would clash with the module. Packages laid out like that turn the types off and
/// launch by name.
fn marker_types_wanted() -> bool {
    !manifest().is_some_and(|text| text.lines().any(|line| line.trim() == "kernel-types = false"))
}
