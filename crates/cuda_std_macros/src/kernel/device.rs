//! The device form: an entry point of the PTX module.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::Kernel;
use super::params::{Param, Passing};

/// The entry; where another compiler compiles it, an ordinary function that nobody calls.
pub fn expand(kernel: &Kernel, is_compiled: bool) -> TokenStream {
    let Kernel { attrs, vis, name, params, generics, body, .. } = kernel;
    let entry_params = numbered(params).map(|(index, param)| entry_param(param, index));
    let body_params = params.iter().map(Param::body_argument);
    let arguments = numbered(params).map(|(index, param)| argument(param, name, index));
    let directives = is_compiled.then(|| directives(kernel));
    let entry = is_compiled.then(|| quote!(#[unsafe(no_mangle)]));
    let abi = is_compiled.then(|| quote!(extern "ptx-kernel"));
    // A function of its own for the body: there a `&[T]` is an argument, so LLVM knows what a reference
    // promises.
    quote! {
        #[cfg(target_arch = "nvptx64")]
        #(#attrs)*
        #entry
        #[allow(improper_ctypes_definitions)]
        #vis unsafe #abi fn #name #generics (#(#entry_params),*) {
            #[inline(always)]
            #[allow(unused_parens, unused_mut)]
            unsafe fn body #generics (#(#body_params),*) #body
            // SAFETY: the launch passes, for a slice, a pointer to that many elements in device memory. The
            // code that launches the kernel upholds the kernel's contract.
            unsafe { body(#(#arguments),*) }
        }
        #directives
    }
}

/// The arguments, each with the index of its first parameter.
fn numbered(params: &[Param]) -> impl Iterator<Item = (usize, &Param)> {
    params.iter().scan(0, |next, param| {
        let index = *next;
        *next += param.parameters();
        Some((index, param))
    })
}

/// The name of a parameter, which is none that an author gives to another.
fn parameter(index: usize) -> Ident {
    format_ident!("__ironwarp_{index}")
}

fn entry_param(Param { ty, passing, .. }: &Param, index: usize) -> TokenStream {
    let (name, length) = (parameter(index), parameter(index + 1));
    match passing {
        Passing::Slice(element) => quote!(#name: *const #element, #length: usize),
        Passing::SliceMut(element) => quote!(#name: *mut #element, #length: usize),
        Passing::RefMut(target) => quote!(#name: *mut #target),
        // Words, because the compiler takes no parameter aligned beyond 16 bytes; the builder aligns it.
        Passing::Map => quote!(#name: [u64; ::cuda_std::tma::TensorMap::WORDS]),
        _ => quote!(#name: #ty),
    }
}

/// The expression that the body gets for an argument. The argument's first parameter has this index.
fn argument(Param { passing, .. }: &Param, kernel: &Ident, index: usize) -> TokenStream {
    let (name, length) = (parameter(index), parameter(index + 1));
    match passing {
        Passing::Slice(_) => quote!(::core::slice::from_raw_parts(#name, #length)),
        Passing::SliceMut(_) => quote!(::cuda_std::kernel::MutSlice::from_raw_parts(#name, #length)),
        Passing::RefMut(_) => quote!(::cuda_std::kernel::MutRef::from_raw(#name)),
        // The copy engine reads the parameter where it lies. The compiler's name for it is that of the entry
        // and the index.
        Passing::Map => {
            let symbol = format!("{kernel}_param_{index}");
            quote!({
                let _ = #name;
                &*::cuda_std::__parameter_address!(#symbol)
            })
        }
        _ => quote!(#name),
    }
}

/// Comments for the builder, since rustc has no attributes for these: launch bounds, and which parameters are
/// tensor maps.
fn directives(Kernel { name, bounds, params, .. }: &Kernel) -> TokenStream {
    let bounds = bounds.max_threads.is_some().then(|| {
        let comment = format!("// @ironwarp kernel={name} max_threads={{}} min_blocks={{}}");
        let (max_threads, min_blocks) = (bounds.max_threads(), bounds.min_blocks());
        quote!(::core::arch::global_asm!(#comment, const #max_threads, const #min_blocks);)
    });
    let maps = numbered(params).filter_map(|(index, param)| {
        let comment = format!("// @ironwarp kernel={name} tensor_map={index}");
        matches!(param.passing, Passing::Map).then(|| quote!(::core::arch::global_asm!(#comment);))
    });
    let comments = bounds.into_iter().chain(maps);
    quote!(#(#[cfg(target_arch = "nvptx64")] #comments)*)
}
