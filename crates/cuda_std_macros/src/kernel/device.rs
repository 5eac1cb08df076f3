//! The device form: an entry point of the PTX module.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::Kernel;
use super::params::{Param, Passing};

pub fn expand(kernel: &Kernel) -> TokenStream {
    let Kernel { attrs, vis, name, params, generics, body, .. } = kernel;
    let entry_params = params.iter().map(entry_param);
    let body_params = params.iter().map(|Param { pattern, ty, .. }| quote!(#pattern: #ty));
    let arguments = params.iter().map(argument);
    let directives = directives(kernel);
    // A function of its own for the body: there the slices are arguments, so LLVM knows what a reference promises.
    quote! {
        #[cfg(target_arch = "nvptx64")]
        #(#attrs)*
        #[unsafe(no_mangle)]
        #[allow(improper_ctypes_definitions)]
        #vis unsafe extern "ptx-kernel" fn #name #generics (#(#entry_params),*) {
            #[inline(always)]
            #[allow(unused_parens)]
            unsafe fn body #generics (#(#body_params),*) #body
            // SAFETY: whoever launches the kernel passes, for a slice, a pointer to that many elements in device
            // memory, and upholds what the kernel's own contract asks.
            unsafe { body(#(#arguments),*) }
        }
        #directives
    }
}

fn entry_param(Param { name, ty, passing, .. }: &Param) -> TokenStream {
    let length = format_ident!("{name}_len");
    match passing {
        Passing::Slice(element) => quote!(#name: *const #element, #length: usize),
        Passing::SliceMut(element) => quote!(#name: *mut #element, #length: usize),
        _ => quote!(#name: #ty),
    }
}

fn argument(Param { name, passing, .. }: &Param) -> TokenStream {
    let length = format_ident!("{name}_len");
    match passing {
        Passing::Slice(_) => quote!(::core::slice::from_raw_parts(#name, #length)),
        Passing::SliceMut(_) => quote!(::core::slice::from_raw_parts_mut(#name, #length)),
        _ => quote!(#name),
    }
}

/// The launch bounds, as a comment for the builder: rustc has no attribute for the PTX directives.
fn directives(Kernel { name, bounds, .. }: &Kernel) -> TokenStream {
    if bounds.max_threads.is_none() {
        return TokenStream::new();
    }
    let comment = format!("// @ironwarp kernel={name} max_threads={{}} min_blocks={{}}");
    let (max_threads, min_blocks) = (bounds.max_threads(), bounds.min_blocks());
    quote! {
        #[cfg(target_arch = "nvptx64")]
        ::core::arch::global_asm!(#comment, const #max_threads, const #min_blocks);
    }
}
