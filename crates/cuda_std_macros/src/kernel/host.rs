//! The host form: the function as written, its marker type, and its entry in the executor's registry.

use std::sync::OnceLock;

use proc_macro2::TokenStream;
use quote::quote;
use syn::Pat;
use syn::ext::IdentExt;

use super::Kernel;
use super::params::{Param, Passing};

pub fn expand(kernel: &Kernel) -> TokenStream {
    let Kernel { attrs, vis, name, params, generics, body, .. } = kernel;
    let inputs = params.iter().map(Param::body_argument);
    let manifest = manifest_as_source();
    let form = if says("kernel-types", "false") {
        let entry = entry(kernel);
        registration(&quote!(::cuda_std::kernel::Registration::Linked(#entry)))
    } else {
        marker(kernel)
    };
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #(#attrs)*
        #[allow(unused_parens, unused_mut)]
        #vis unsafe fn #name #generics (#(#inputs),*) #body
        #form
        #manifest
    }
}

/// `pub enum NAME {}` with `impl Kernel`: what the typed launch of the host library goes by. A kernel that is
/// re-exported beside a module of the same name (`mod gemm; pub use gemm::gemm;`) cannot have one, which
/// would clash with the module: packages laid out like that say `kernel-types = false` and launch by name.
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
    let (bounds, entry, name_text) = (bounds(kernel), entry(kernel), name.to_string());
    let registration = if says("link", "\"when-used\"") {
        registration(&quote! {
            ::cuda_std::kernel::Registration::WhenUsed {
                name: #name_text,
                family: ::core::env!("CARGO_CRATE_NAME"),
            }
        })
    } else {
        registration(&quote! {
            ::cuda_std::kernel::Registration::Linked(<#name as ::cuda_std::kernel::Kernel>::ENTRY)
        })
    };
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #[doc = #doc]
        #[allow(non_camel_case_types)]
        #vis enum #name {}

        #[cfg(not(target_arch = "nvptx64"))]
        // Messages on what is no kernel would list kernels, whichever the compiler finds first.
        #[diagnostic::do_not_recommend]
        // SAFETY: the markers are those of the entry point's own parameters.
        unsafe impl ::cuda_std::kernel::Kernel for #name {
            type Params = (#(#markers,)*);
            const NAME: &'static str = #name_text;
            const FAMILY: &'static str = ::core::env!("CARGO_CRATE_NAME");
            const BOUNDS: ::cuda_std::kernel::LaunchBounds = #bounds;
            const ENTRY: &'static ::cuda_std::kernel::KernelEntry = #entry;
        }

        #registration
    }
}

/// A reference to the kernel's `KernelEntry`. Its own names are such as no kernel has, which would hide the
/// kernel from the call.
fn entry(kernel: &Kernel) -> TokenStream {
    let Kernel { name, params, .. } = kernel;
    let params: Vec<Param> = params.iter().map(Param::detached).collect();
    let layouts = params.iter().map(layouts);
    let mut next = 0usize;
    let arguments = params.iter().map(|param| argument(param, &mut next));
    let bounds = bounds(kernel);
    let checked = std::env::var_os(CHECKED).is_some();
    let name_text = name.to_string();
    quote! {
        {
            unsafe fn __ironwarp_invoke(__ironwarp_parameters: *const *const ::core::ffi::c_void) {
                let _ = __ironwarp_parameters;
                // SAFETY: the executor passes one pointer for each of the layouts, to a value of that size;
                // the code that launched the kernel vouches for the values.
                unsafe { #name(#(#arguments),*) }
            }
            const __IRONWARP_PARAMS: &[::cuda_std::kernel::ParamLayout] = &[#(#layouts),*];
            &::cuda_std::kernel::KernelEntry {
                name: #name_text,
                family: ::core::env!("CARGO_CRATE_NAME"),
                file: ::core::file!(),
                line: ::core::line!(),
                params: __IRONWARP_PARAMS,
                bounds: #bounds,
                checked: #checked,
                invoke: __ironwarp_invoke,
            }
        }
    }
}

/// Makes the kernel known to the executor when the program starts. A package that says `link = "when-used"`
/// in its manifest makes only the names known: a program has the code of the kernels that it launches, and a
/// family of many kernels takes long to compile and much room.
fn registration(what: &TokenStream) -> TokenStream {
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = {
            ::cuda_std::__private::inventory::submit! { #what }
        };
    }
}

fn bounds(Kernel { bounds, .. }: &Kernel) -> TokenStream {
    let (max_threads, min_blocks) = (bounds.max_threads(), bounds.min_blocks());
    quote!(::cuda_std::kernel::LaunchBounds { max_threads: #max_threads, min_blocks: #min_blocks })
}

fn layouts(Param { pattern, ty, passing, .. }: &Param) -> TokenStream {
    let types = match passing {
        Passing::Slice(element) | Passing::SliceMut(element) => vec![quote!(*const #element), quote!(usize)],
        Passing::Ptr(target) | Passing::PtrMut(target) | Passing::RefMut(target) => {
            vec![quote!(*const #target)]
        }
        Passing::Map => vec![quote!(::cuda_std::tma::TensorMap)],
        Passing::Value => vec![quote!(#ty)],
    };
    let name = match pattern {
        Pat::Ident(named) => named.ident.unraw().to_string(),
        _ => String::new(),
    };
    quote!(#(::cuda_std::kernel::ParamLayout::of::<#types>().named(#name)),*)
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
/// read it behind cargo's back: without this, a package whose `checked` or `link` has changed would
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

/// `tools/rustc-checked` sets this for the crates that it compiles with the checker's callbacks.
const CHECKED: &str = "IRONWARP_CHECKED";

/// Whether the package's manifest has a line that gives the key this value.
fn says(key: &str, value: &str) -> bool {
    manifest().is_some_and(|text| has_line(text, key, value))
}

fn has_line(text: &str, key: &str, value: &str) -> bool {
    text.lines().any(|line| {
        let line = line.split_once('#').map_or(line, |(line, _)| line);
        line.split_once('=').is_some_and(|(found, given)| (found.trim(), given.trim()) == (key, value))
    })
}

#[cfg(test)]
mod tests {
    use super::has_line;

    #[test]
    fn blanks_and_comments_of_a_manifest_do_not_matter() {
        for text in [
            "checked = true\r\nkernel-types = false\r\n",
            "kernel-types=false",
            "  kernel-types  =\tfalse # `blur` is re-exported beside a module = of its name",
        ] {
            assert!(has_line(text, "kernel-types", "false"), "{text}");
        }
        for text in ["# kernel-types = false", "kernel-types = true # false", "x-kernel-types = false"] {
            assert!(!has_line(text, "kernel-types", "false"), "{text}");
        }
        assert!(has_line("link = \"when-used\" # names alone", "link", "\"when-used\""));
    }
}
