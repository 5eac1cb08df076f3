//! `#[gpu_only]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{ItemFn, Result};

pub fn expand(item: TokenStream) -> Result<TokenStream> {
    let ItemFn { attrs, vis, sig, block, .. } = syn::parse2(item)?;
    let message = format!("`{}` runs on the GPU only: it is marked #[gpu_only]", sig.ident);
    Ok(quote! {
        #[cfg(target_arch = "nvptx64")]
        #(#attrs)* #vis #sig #block

        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(unused_variables)]
        #(#attrs)* #vis #sig {
            ::core::panic!(#message)
        }
    })
}
