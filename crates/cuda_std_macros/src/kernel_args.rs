//! `#[derive(KernelArgs)]`: a struct that a kernel takes by value, and its host form, whose pointer fields
//! take buffers.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, Ident, PointerMutability, Result, Type};

/// Field types that the host form repeats as they are. Any other type may be a struct that derives
/// `KernelArgs` itself.
const NUMBERS: [&str; 15] = [
    "bool", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32",
    "f64",
];

/// One field in both forms.
struct Member<'a> {
    field: &'a Field,
    name: &'a Ident,
    /// The marker in `ArgStruct::Fields`.
    marker: TokenStream,
    /// The type parameter of the host form that stands for what the field takes; `None` if it takes its own
    /// type.
    parameter: Option<Ident>,
}

pub fn expand(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let members = members(&input)?;
    let DeriveInput { vis, ident, .. } = &input;
    let companion = format_ident!("{ident}Args");
    let doc = format!(
        "What a launch passes for a [`{ident}`]: the same fields, in which a pointer takes what a kernel's own pointer \
         argument takes. [`pass`]({companion}::pass) makes it an argument."
    );
    let pass_doc = format!("The argument for a kernel that takes a [`{ident}`] by value.");
    let parameters: Vec<_> = members.iter().filter_map(|member| member.parameter.as_ref()).collect();
    let fields = members.iter().map(|Member { field, name, parameter, .. }| {
        let (vis, ty) = (&field.vis, &field.ty);
        let docs = docs(&field.attrs);
        let ty = parameter.as_ref().map_or_else(|| quote!(#ty), |parameter| quote!(#parameter));
        quote!(#(#docs)* #vis #name: #ty)
    });
    let values = pairs(members.iter().map(|Member { name, .. }| quote!(self.#name)));
    let value_types = pairs(members.iter().map(|Member { field, parameter, .. }| {
        let ty = &field.ty;
        parameter.as_ref().map_or_else(|| quote!(#ty), |parameter| quote!(#parameter))
    }));
    let markers = pairs(members.iter().map(|Member { marker, .. }| marker.clone()));
    let reads = members.iter().enumerate().map(|(index, Member { field, name, .. })| {
        let ty = &field.ty;
        quote!(#name: ::cuda_std::__private::read_value::<#ty>(fields, #index))
    });
    Ok(quote! {
        const _: () = ::cuda_std::kernel::assert_passable::<#ident>();

        #[cfg(not(target_arch = "nvptx64"))]
        #[doc = #doc]
        #[must_use]
        #vis struct #companion<#(#parameters),*> {
            #(#fields,)*
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl<#(#parameters),*> #companion<#(#parameters),*> {
            #[doc = #pass_doc]
            #vis fn pass(self) -> ::cuda_std::kernel::StructArgs<#ident, #value_types> {
                ::cuda_std::kernel::StructArgs::new(#values)
            }
        }

        // SAFETY: `read` takes one value for each marker, of the type that the marker's parameter has on the
        // device.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe impl ::cuda_std::kernel::ArgStruct for #ident {
            type Fields = #markers;

            unsafe fn read(fields: *const *const ::core::ffi::c_void) -> Self {
                let _ = fields;
                // SAFETY: the caller's promise.
                #[allow(unused_unsafe)]
                unsafe { Self { #(#reads),* } }
            }
        }
    })
}

/// The fields, or all that keeps the struct from being an argument.
fn members(input: &DeriveInput) -> Result<Vec<Member<'_>>> {
    let refuse = |message| Err(Error::new_spanned(&input.ident, message));
    let Data::Struct(data) = &input.data else {
        return refuse("only a struct can derive `KernelArgs`");
    };
    let fields = match &data.fields {
        Fields::Named(fields) => &fields.named,
        _ => return refuse("`KernelArgs` needs named fields: the launch sets them by name"),
    };
    if !input.generics.params.is_empty() {
        return refuse("`KernelArgs` needs a struct without generic parameters: a kernel has one signature");
    }
    if !input.attrs.iter().any(is_repr_c) {
        return refuse(
            "`KernelArgs` needs `#[repr(C)]`: host and device compilers must lay the fields out alike",
        );
    }
    let mut members: Vec<Member> = fields.iter().map(member).collect::<Result<_>>()?;
    tell_parameters_apart(&mut members);
    Ok(members)
}

/// `x1` and `x_1` are the same words: the later one's parameter gets a number that no other has.
fn tell_parameters_apart(members: &mut [Member<'_>]) {
    let mut taken: HashSet<Ident> = members.iter().filter_map(|member| member.parameter.clone()).collect();
    let mut seen = HashSet::new();
    for parameter in members.iter_mut().filter_map(|member| member.parameter.as_mut()) {
        if !seen.insert(parameter.clone()) {
            let mut numbered = (2..).map(|number| format_ident!("{parameter}{number}"));
            let free = numbered.find(|name| taken.insert(name.clone()));
            *parameter = free.expect("numbers do not end");
        }
    }
}

fn member(field: &Field) -> Result<Member<'_>> {
    let Some(name) = &field.ident else {
        return Err(Error::new_spanned(field, "`KernelArgs` needs named fields"));
    };
    let parameter = || Some(format_ident!("{}Arg", camel_case(name)));
    let (marker, parameter) = match &field.ty {
        Type::Ptr(pointer) => {
            let target = &pointer.elem;
            let marker = match pointer.mutability {
                PointerMutability::Mut(_) => quote!(::cuda_std::kernel::PtrMut<#target>),
                PointerMutability::Const(_) => quote!(::cuda_std::kernel::Ptr<#target>),
            };
            (marker, parameter())
        }
        Type::Reference(reference) => {
            return Err(Error::new_spanned(
                reference,
                "a kernel argument struct cannot hold a reference: write a raw pointer, and a length beside it for a slice",
            ));
        }
        ty => (quote!(::cuda_std::kernel::Value<#ty>), if is_number(ty) { None } else { parameter() }),
    };
    Ok(Member { field, name, marker, parameter })
}

/// A number, or an array, of which the host passes the value itself.
fn is_number(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => {
            path.path.get_ident().is_some_and(|name| NUMBERS.iter().any(|number| name == number))
        }
        Type::Array(_) => true,
        _ => false,
    }
}

fn is_repr_c(attr: &Attribute) -> bool {
    let mut found = false;
    if attr.path().is_ident("repr") {
        // The compiler checks the rest of `repr`.
        let _ = attr.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("C");
            if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                content.parse::<TokenStream>()?;
            }
            Ok(())
        });
    }
    found
}

fn docs(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("doc"))
}

/// `bias_grad` as `BiasGrad`.
fn camel_case(name: &Ident) -> String {
    let words = name.to_string();
    words
        .trim_start_matches("r#")
        .split('_')
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>())
        })
        .collect()
}

/// `(first, (second, ()))`: a list that a trait can walk, of any length.
fn pairs(parts: impl DoubleEndedIterator<Item = TokenStream>) -> TokenStream {
    parts.rev().fold(quote!(()), |rest, part| quote!((#part, #rest)))
}

#[cfg(test)]
mod tests {
    fn expand(item: &str) -> syn::Result<String> {
        super::expand(item.parse().unwrap()).map(|tokens| tokens.to_string())
    }

    fn refused(item: &str, message: &str) {
        let error = expand(item).unwrap_err().to_string();
        assert!(error.contains(message), "{item} gave {error}");
    }

    #[test]
    fn structs_that_cannot_be_arguments() {
        refused("enum E { A }", "only a struct");
        refused("#[repr(C)] struct S(u32);", "named fields");
        refused("#[repr(C)] struct S<T> { x: T }", "without generic parameters");
        refused("#[repr(C)] struct S<'a> { x: &'a u32 }", "without generic parameters");
        refused("#[repr(C)] struct S { x: &'static u32 }", "cannot hold a reference");
        refused("struct S { x: u32 }", "needs `#[repr(C)]`");
        refused("#[repr(align(16))] struct S { x: u32 }", "needs `#[repr(C)]`");
        assert!(expand("#[repr(C, align(16))] struct S { x: u32 }").is_ok());
    }

    #[test]
    fn numbers_keep_their_type_and_pointers_take_a_parameter() {
        let text = expand(
            "#[repr(C)] pub struct S { n: u32, pub bias_grad: *mut f32, b: *const u8, r: Rng, a: [f32; 2] }",
        );
        let text = text.unwrap();
        assert!(text.contains("pub struct SArgs < BiasGradArg , BArg , RArg >"), "{text}");
        assert!(
            text.contains("n : u32 , pub bias_grad : BiasGradArg , b : BArg , r : RArg , a : [f32 ; 2]"),
            "{text}"
        );
        assert!(text.contains(":: cuda_std :: kernel :: PtrMut < f32 >"), "{text}");
    }

    #[test]
    fn fields_of_the_same_words_have_parameters_of_their_own() {
        let text = expand(
            "#[repr(C)] struct S { x1: *const f32, x_1: *const f32, x__1: *const f32, x1_arg2: *const f32, x_1arg2: *const f32 }",
        );
        let text = text.unwrap();
        assert!(text.contains("struct SArgs < X1Arg , X1Arg2 , X1Arg3 , X1Arg2Arg , X1arg2Arg >"), "{text}");
        assert!(text.contains("x1 : X1Arg , x_1 : X1Arg2 , x__1 : X1Arg3"), "{text}");
    }
}
