//! `#[externally_visible]`.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, Error, ItemFn, Meta, Result};

pub fn expand(item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    if !function.attrs.iter().any(exports) {
        return Err(Error::new_spanned(
            &function.sig.ident,
            "an #[externally_visible] function must also be #[no_mangle]",
        ));
    }
    Ok(function.into_token_stream())
}

/// `#[no_mangle]` or `#[unsafe(no_mangle)]`.
fn exports(attr: &Attribute) -> bool {
    match &attr.meta {
        Meta::Path(path) => path.is_ident("no_mangle"),
        Meta::List(list) => list.path.is_ident("unsafe") && list.tokens.to_string() == "no_mangle",
        _ => false,
    }
}
