//! `#[kernel]`: what is read from the function, and what is refused.

mod device;
mod host;
mod params;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Expr, ItemFn, Result, ReturnType, Safety, Signature, Token, Visibility};

use params::Param;

/// A kernel as both arms need it.
struct Kernel {
    attrs: Vec<Attribute>,
    vis: Visibility,
    name: Ident,
    params: Vec<Param>,
    /// The lifetimes of the function, if it names any.
    generics: syn::Generics,
    body: TokenStream,
    bounds: Bounds,
}

/// `launch_bounds(max_threads, min_blocks)`; absent means 0, "not given".
#[derive(Default)]
struct Bounds {
    max_threads: Option<Expr>,
    min_blocks: Option<Expr>,
}

impl Bounds {
    fn max_threads(&self) -> TokenStream {
        or_zero(self.max_threads.as_ref())
    }

    fn min_blocks(&self) -> TokenStream {
        or_zero(self.min_blocks.as_ref())
    }
}

fn or_zero(given: Option<&Expr>) -> TokenStream {
    given.map_or_else(|| quote!(0u32), |expr| quote!((#expr) as u32))
}

impl Parse for Bounds {
    fn parse(input: ParseStream) -> Result<Self> {
        if input.is_empty() {
            return Ok(Self::default());
        }
        let option: Ident = input.parse()?;
        if option != "launch_bounds" {
            return Err(Error::new(
                option.span(),
                format!("unknown option `{option}`: expected launch_bounds(MAX_THREADS[, MIN_BLOCKS])"),
            ));
        }
        let arguments;
        syn::parenthesized!(arguments in input);
        let max_threads = Some(arguments.parse()?);
        let min_blocks = match arguments.parse::<Option<Token![,]>>()? {
            Some(_) if !arguments.is_empty() => Some(arguments.parse()?),
            _ => None,
        };
        if !arguments.is_empty() {
            return Err(arguments.error("launch_bounds takes MAX_THREADS and, optionally, MIN_BLOCKS"));
        }
        Ok(Self { max_threads, min_blocks })
    }
}

pub fn expand(attr: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let bounds = syn::parse2(attr)?;
    let function: ItemFn = syn::parse2(item)?;
    check_signature(&function.sig)?;
    let kernel = Kernel {
        params: params::read(&function.sig)?,
        body: crate::shared::use_places(&function.block),
        attrs: function.attrs,
        vis: function.vis,
        name: function.sig.ident,
        generics: function.sig.generics,
        bounds,
    };
    let checks = params::checks(&kernel.params);
    let device = device::expand(&kernel);
    let host = host::expand(&kernel);
    Ok(quote!(#checks #device #host))
}

/// Refuses what cannot be an entry point. All complaints at once: one compile shows them all.
fn check_signature(sig: &Signature) -> Result<()> {
    let mut errors = Vec::new();
    let name = &sig.ident;
    if !matches!(sig.safety, Safety::Unsafe(_)) {
        errors.push(Error::new_spanned(
            name,
            "a kernel must be an `unsafe fn`: its threads share memory unchecked",
        ));
    }
    if let Some(token) = &sig.asyncness {
        errors.push(Error::new_spanned(token, "a kernel cannot be async"));
    }
    if let Some(token) = &sig.constness {
        errors.push(Error::new_spanned(token, "a kernel cannot be const"));
    }
    if let Some(parameter) = sig.generics.params.iter().find(|p| !matches!(p, syn::GenericParam::Lifetime(_)))
    {
        errors.push(Error::new_spanned(
            parameter,
            "a kernel cannot be generic: an entry point has one name and one signature; call a generic function from it",
        ));
    }
    if let ReturnType::Type(_, ty) = &sig.output {
        errors.push(Error::new_spanned(
            ty,
            "a kernel cannot return a value: write results through a pointer argument",
        ));
    }
    if let Some(dots) = &sig.variadic {
        errors.push(Error::new_spanned(dots, "a kernel cannot be variadic"));
    }
    errors
        .into_iter()
        .reduce(|mut all, next| {
            all.combine(next);
            all
        })
        .map_or(Ok(()), Err)
}
