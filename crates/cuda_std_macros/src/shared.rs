//! `#[address_space(..)]` and `shared_array!`.
//!
//! rustc cannot place a `static` in shared memory. So the name becomes a value that dereferences to the
//! memory, of a type of its own; `cuda_std::__shared_variable!` gives that type its address, by PTX on the
//! device and by the executor on the host.

use std::sync::atomic::{AtomicU32, Ordering};

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Error, Expr, ItemStatic, Result, StaticMutability, Token, Type};

/// Prefix of the modules with the types that stand for shared variables.
const HANDLE: &str = "__Shared_";

pub fn expand_static(attr: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let space: Ident = syn::parse2(attr)?;
    match space.to_string().as_str() {
        "shared" => expand_shared(syn::parse2(item)?),
        "global" | "constant" => Ok(item),
        // It would land in global memory, where all threads share it: the opposite of what was asked for.
        "local" => Err(Error::new(
            space.span(),
            "a `static` cannot have a copy for each thread: use a `let` variable",
        )),
        other => Err(Error::new(
            space.span(),
            format!("unknown address space `{other}`: expected shared, global or constant"),
        )),
    }
}

fn expand_shared(variable: ItemStatic) -> Result<TokenStream> {
    let ItemStatic { attrs, vis, mutability, ident, ty, expr, .. } = variable;
    if !matches!(mutability, StaticMutability::Mut(_)) {
        return Err(Error::new(
            ident.span(),
            "a shared variable must be `static mut`: it is uninitialised when a kernel starts, and its threads share it",
        ));
    }
    let handle = handle_of(&ident);
    let name = ident.to_string();
    let symbol = unique_symbol(&name);
    Ok(quote! {
        #(#attrs)*
        #[allow(dead_code, non_upper_case_globals)]
        #vis static #mutability #ident: ::cuda_std::shared::Shared<#handle::Key> = {
            // The initial value is ignored, but its type is checked.
            const _: fn() -> #ty = || #expr;
            // SAFETY: it is a `static mut`, whose every use is unsafe.
            unsafe { ::cuda_std::shared::Shared::new() }
        };
        ::cuda_std::__shared_variable!(#vis #handle, #name, #symbol, #ty);
    })
}

/// The module whose `Key` stands for the shared variable `name`.
fn handle_of(name: &Ident) -> Ident {
    format_ident!("{HANDLE}{name}", span = name.span())
}

struct ArrayInput {
    element: Type,
    length: Expr,
}

impl Parse for ArrayInput {
    fn parse(input: ParseStream) -> Result<Self> {
        let element = input.parse()?;
        input.parse::<Token![;]>()?;
        Ok(Self { element, length: input.parse()? })
    }
}

pub fn expand_array(input: TokenStream) -> Result<TokenStream> {
    let ArrayInput { element, length } = syn::parse2(input)?;
    let symbol = unique_symbol("array");
    let handle = format_ident!("{HANDLE}array");
    let name = format!("shared_array![{}; {}]", quote!(#element), quote!(#length));
    // Two arrays of one type are told apart by their lines.
    let name = quote!(concat!(#name, ", line ", line!()));
    Ok(quote! {{
        ::cuda_std::__shared_variable!(#handle, #name, #symbol, [#element; #length]);
        ::cuda_std::shared::Shared::<#handle::Key>::get() as *mut #element
    }})
}

/// A PTX symbol that no other shared variable has: PTX symbols live in one space for the whole module.
fn unique_symbol(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let package = std::env::var("CARGO_CRATE_NAME").unwrap_or_default();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // A raw identifier's `#` is not allowed in a PTX symbol.
    format!("__shared_{package}_{}_{number}", name.trim_start_matches("r#"))
}

/// Rewrites the body of a kernel so that every shared `static mut` declared in it is used as the place it
/// stands for.
///
/// `TOTAL = 0` and `&raw mut TILE` cannot go through a value that dereferences; `(*__Shared_TOTAL::get()) =
/// 0` can.
pub fn use_places(body: &Block) -> TokenStream {
    let mut found = SharedStatics::default();
    found.visit_block(body);
    let tokens = quote!(#body);
    if found.names.is_empty() { tokens } else { replace_uses(tokens, &found.names) }
}

#[derive(Default)]
struct SharedStatics {
    names: Vec<Ident>,
}

impl<'ast> Visit<'ast> for SharedStatics {
    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        if matches!(item.mutability, StaticMutability::Mut(_)) && item.attrs.iter().any(is_shared) {
            self.names.push(item.ident.clone());
        }
        visit::visit_item_static(self, item);
    }
}

/// `#[address_space(shared)]`, under whatever path.
fn is_shared(attr: &Attribute) -> bool {
    attr.path().segments.last().is_some_and(|last| last.ident == "address_space")
        && attr.parse_args::<Ident>().is_ok_and(|space| space == "shared")
}

/// The context before a token. It tells a use of a variable from a declaration, a field or a path.
#[derive(PartialEq)]
enum Before {
    Static,
    StaticMut,
    /// One colon: a field's value or a type follows.
    Colon,
    /// A dot, or two colons.
    Access,
    Other,
}

fn replace_uses(tokens: TokenStream, names: &[Ident]) -> TokenStream {
    let mut before = Before::Other;
    let mut out = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let next = state_after(&token, &before);
        // In front of a colon stands the name of a field, or the begin of a path.
        let is_name = matches!(tokens.peek(), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
        out.extend(match token {
            TokenTree::Ident(name)
                if matches!(before, Before::Other | Before::Colon) && !is_name && names.contains(&name) =>
            {
                place(&name)
            }
            TokenTree::Group(group) => {
                let inner = replace_uses(group.stream(), names);
                let mut copy = proc_macro2::Group::new(group.delimiter(), inner);
                copy.set_span(group.span());
                TokenTree::Group(copy).into()
            }
            other => other.into(),
        });
        before = next;
    }
    out
}

fn state_after(token: &TokenTree, before: &Before) -> Before {
    match token {
        TokenTree::Ident(word) if word == "static" => Before::Static,
        TokenTree::Ident(word) if word == "mut" && *before == Before::Static => Before::StaticMut,
        // A second dot makes a range of it, behind which a value stands.
        TokenTree::Punct(mark) if mark.as_char() == '.' && *before != Before::Access => Before::Access,
        TokenTree::Punct(mark) if mark.as_char() == ':' && *before == Before::Colon => Before::Access,
        TokenTree::Punct(mark) if mark.as_char() == ':' => Before::Colon,
        _ => Before::Other,
    }
}

fn place(name: &Ident) -> TokenStream {
    let handle = handle_of(name);
    let span: Span = name.span();
    quote_spanned!(span=> (*::cuda_std::shared::Shared::<#handle::Key>::get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(body: &str) -> String {
        use_places(&syn::parse_str(body).unwrap()).to_string().replace(' ', "")
    }

    const PLACE: &str = "(*::cuda_std::shared::Shared::<__Shared_A::Key>::get())";

    #[test]
    fn uses_become_places_and_declarations_stay() {
        let text = places(
            "{ #[address_space(shared)] static mut A: u32 = 0; A = 1; f(&raw mut A, x.A); print!(\"{}\", A); }",
        );
        assert!(text.contains("staticmutA:u32=0;"), "{text}");
        assert!(text.contains(&format!("{PLACE}=1;")), "{text}");
        assert!(text.contains(&format!("f(&rawmut{PLACE},x.A);")), "{text}");
        assert!(text.contains(&format!("print!(\"{{}}\",{PLACE})")), "{text}");
    }

    #[test]
    fn ends_of_ranges_are_uses() {
        let text =
            places("{ #[address_space(shared)] static mut A: u32 = 0; f(0..A, ..=A, x.0.A, ..A, A.A..A); }");
        let uses = format!("f(0..{PLACE},..={PLACE},x.0.A,..{PLACE},{PLACE}.A..{PLACE});");
        assert!(text.contains(&uses), "{text}");
    }

    #[test]
    fn names_of_paths_and_fields_stay() {
        let text = places(
            "{ #[address_space(shared)] static mut A: u32 = 0; f(B::A, ::A::C, A::new(), D { A: 1, b: A }); \
             match x { E::A => A, _ => 0 } }",
        );
        let uses = format!("f(B::A,::A::C,A::new(),D{{A:1,b:{PLACE}}});matchx{{E::A=>{PLACE},_=>0}}");
        assert!(text.contains(&uses), "{text}");
    }

    #[test]
    fn other_statics_are_left_alone() {
        for body in
            ["{ static mut A: u32 = 0; A = 1; }", "{ #[address_space(shared)] static A: u32 = 0; f(A); }"]
        {
            assert!(!places(body).contains("Shared"), "{body}");
        }
    }

    #[test]
    fn symbols_differ() {
        assert_ne!(unique_symbol("TILE"), unique_symbol("TILE"));
        assert!(!unique_symbol("r#type").contains('#'));
    }

    #[test]
    fn address_spaces_are_checked() {
        let item: TokenStream = "static mut A: u32 = 0;".parse().unwrap();
        assert_eq!(
            expand_static("global".parse().unwrap(), item.clone()).unwrap().to_string(),
            item.to_string()
        );
        let error = expand_static("sharde".parse().unwrap(), item).unwrap_err().to_string();
        assert!(error.contains("unknown address space `sharde`"), "{error}");
        let item: TokenStream = "static mut A: u32 = 0;".parse().unwrap();
        let error = expand_static("local".parse().unwrap(), item).unwrap_err().to_string();
        assert!(error.contains("use a `let` variable"), "{error}");
        let item: TokenStream = "static A: u32 = 0;".parse().unwrap();
        let error = expand_static("shared".parse().unwrap(), item).unwrap_err().to_string();
        assert!(error.contains("must be `static mut`"), "{error}");
    }
}
