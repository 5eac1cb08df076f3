//! The arguments of a kernel: how each travels from the host to the device.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Error, FnArg, Ident, Pat, PatType, PointerMutability, Result, Signature, Type};

/// One argument.
pub struct Param {
    /// As the kernel's author wrote it.
    pub pattern: Pat,
    pub ty: Type,
    pub passing: Passing,
}

/// How an argument is passed.
pub enum Passing {
    /// `&[T]`: a pointer and a length.
    Slice(Type),
    /// `&mut [T]`: a pointer and a length.
    SliceMut(Type),
    /// `*const T` or `&T`.
    Ptr(Type),
    /// `*mut T`.
    PtrMut(Type),
    /// `&mut T`.
    RefMut(Type),
    /// `&TensorMap`: the 128 bytes of the map themselves. The kernel gets a reference to its parameter.
    Map,
    /// The bytes themselves.
    Value,
}

impl Param {
    /// Parameters of the entry point that the argument becomes.
    pub fn parameters(&self) -> usize {
        if matches!(self.passing, Passing::Slice(_) | Passing::SliceMut(_)) { 2 } else { 1 }
    }

    /// The argument with `'static` for every lifetime: `&Scene<'_>` is `&'static Scene<'static>`.
    pub fn detached(&self) -> Self {
        let passing = match &self.passing {
            Passing::Slice(ty) => Passing::Slice(detached(ty)),
            Passing::SliceMut(ty) => Passing::SliceMut(detached(ty)),
            Passing::Ptr(ty) => Passing::Ptr(detached(ty)),
            Passing::PtrMut(ty) => Passing::PtrMut(detached(ty)),
            Passing::RefMut(ty) => Passing::RefMut(detached(ty)),
            Passing::Map => Passing::Map,
            Passing::Value => Passing::Value,
        };
        Self { pattern: self.pattern.clone(), ty: detached(&self.ty), passing }
    }

    /// The argument of the body. Each thread gets the same memory, so `&mut [T]` and `&mut T` are replaced by
    /// types that make no exclusive reference to all of it.
    pub fn body_argument(&self) -> TokenStream {
        let Self { pattern, ty, passing, .. } = self;
        let (replacement, target) = match passing {
            Passing::SliceMut(element) => (quote!(MutSlice), element),
            Passing::RefMut(target) => (quote!(MutRef), target),
            _ => return quote!(#pattern: #ty),
        };
        // `y[i] = v` needs no `mut y` where `y` is a reference, but it does here.
        let pattern = match pattern {
            Pat::Ident(named) if named.by_ref.is_none() => {
                let name = &named.ident;
                quote!(mut #name)
            }
            other => quote!(#other),
        };
        let lifetime = lifetime(ty).map_or_else(|| quote!('_), |lifetime| quote!(#lifetime));
        quote!(#pattern: ::cuda_std::kernel::#replacement<#lifetime, #target>)
    }
}

fn lifetime(ty: &Type) -> Option<&syn::Lifetime> {
    match unwrap(ty) {
        Type::Reference(reference) => reference.lifetime.as_ref(),
        _ => None,
    }
}

/// A type as it is outside of the kernel's signature, where lifetimes have no names.
fn detached(ty: &Type) -> Type {
    struct Static;
    impl VisitMut for Static {
        fn visit_lifetime_mut(&mut self, lifetime: &mut syn::Lifetime) {
            lifetime.ident = Ident::new("static", lifetime.ident.span());
        }
        fn visit_type_reference_mut(&mut self, reference: &mut syn::TypeReference) {
            reference.lifetime.get_or_insert_with(|| syn::parse_quote!('static));
            visit_mut::visit_type_reference_mut(self, reference);
        }
    }
    let mut ty = ty.clone();
    Static.visit_type_mut(&mut ty);
    ty
}

pub fn read(sig: &Signature) -> Result<Vec<Param>> {
    sig.inputs.iter().map(read_one).collect()
}

fn read_one(input: &FnArg) -> Result<Param> {
    match input {
        FnArg::Receiver(receiver) => {
            Err(Error::new_spanned(receiver, "a kernel cannot be a method: take the data as an argument"))
        }
        FnArg::Typed(PatType { pat, ty, .. }) => {
            Ok(Param { pattern: (**pat).clone(), passing: classify(ty)?, ty: (**ty).clone() })
        }
    }
}

fn classify(ty: &Type) -> Result<Passing> {
    refuse_owners(ty)?;
    match ty {
        Type::Paren(inner) => classify(&inner.elem),
        Type::Group(inner) => classify(&inner.elem),
        Type::ImplTrait(_) => {
            Err(Error::new_spanned(ty, "a kernel cannot be generic: name the type of the argument"))
        }
        Type::Reference(reference) => match unwrap(&reference.elem) {
            Type::Slice(slice) => {
                refuse_host_pointers(&slice.elem)?;
                let element = (*slice.elem).clone();
                Ok(if reference.mutability.is_some() {
                    Passing::SliceMut(element)
                } else {
                    Passing::Slice(element)
                })
            }
            target if is_tensor_map(target) && reference.mutability.is_none() => Ok(Passing::Map),
            target => {
                refuse_host_pointers(target)?;
                let target = target.clone();
                Ok(if reference.mutability.is_some() {
                    Passing::RefMut(target)
                } else {
                    Passing::Ptr(target)
                })
            }
        },
        Type::Ptr(pointer) => {
            refuse_unsized(&pointer.elem)?;
            let target = (*pointer.elem).clone();
            Ok(match pointer.mutability {
                PointerMutability::Mut(_) => Passing::PtrMut(target),
                PointerMutability::Const(_) => Passing::Ptr(target),
            })
        }
        _ => Ok(Passing::Value),
    }
}

/// By name; that it is `cuda_std`'s is among the [`checks`].
fn is_tensor_map(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "TensorMap"))
}

fn unwrap(ty: &Type) -> &Type {
    match ty {
        Type::Paren(inner) => unwrap(&inner.elem),
        Type::Group(inner) => unwrap(&inner.elem),
        other => other,
    }
}

/// A reference inside device data would point to memory that the host laid out: it cannot be valid on the
/// device.
fn refuse_host_pointers(target: &Type) -> Result<()> {
    if matches!(unwrap(target), Type::Reference(_)) {
        return Err(Error::new_spanned(
            target,
            "a kernel cannot take a reference to references: the inner ones would point into host memory; pass a flat slice and offsets",
        ));
    }
    refuse_unsized(target)
}

/// Types of `alloc` that own memory, each with the alternative.
const OWNERS: &[(&str, &str)] = &[
    ("Vec", "write `&[T]` or `&mut [T]`, for which a launch passes a `DeviceBuffer<T>`"),
    ("String", "pass its bytes as `&[u8]`"),
    ("Box", "pass what is in it by value, or a pointer to device memory"),
    ("Rc", "pass what is in it by value, or a pointer to device memory"),
    ("Arc", "pass what is in it by value, or a pointer to device memory"),
];

/// Refuses a type that owns host memory, and a reference, pointer or slice of such. By name: the [`checks`]
/// find those by value that have another one.
fn refuse_owners(ty: &Type) -> Result<()> {
    match ty {
        Type::Paren(inner) => refuse_owners(&inner.elem),
        Type::Group(inner) => refuse_owners(&inner.elem),
        Type::Reference(reference) => refuse_owners(&reference.elem),
        Type::Ptr(pointer) => refuse_owners(&pointer.elem),
        Type::Slice(slice) => refuse_owners(&slice.elem),
        Type::Path(path) => {
            let last = path.path.segments.last();
            match OWNERS.iter().find(|(name, _)| last.is_some_and(|last| last.ident == name)) {
                Some((name, instead)) => Err(Error::new_spanned(
                    ty,
                    format!("a kernel cannot take a `{name}`, which owns host memory: {instead}"),
                )),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn refuse_unsized(target: &Type) -> Result<()> {
    let is_str = matches!(target, Type::Path(path) if path.path.is_ident("str"));
    match target {
        Type::TraitObject(_) => Err(Error::new_spanned(
            target,
            "a kernel cannot take a trait object: its table of functions is in host memory",
        )),
        Type::Slice(_) => Err(Error::new_spanned(
            target,
            "a kernel cannot take a raw pointer to a slice: write `&[T]` or `&mut [T]`, or pass pointer and length",
        )),
        _ if is_str => {
            Err(Error::new_spanned(target, "a kernel cannot take a `str`: pass its bytes as `&[u8]`"))
        }
        _ => Ok(()),
    }
}

/// Compile-time checks of what a macro cannot see: sizes, alignments, `Copy`, and which type a name stands
/// for.
pub fn checks(params: &[Param]) -> TokenStream {
    let checks = params.iter().filter_map(|Param { ty, passing, .. }| match passing {
        Passing::Value => {
            let ty = detached(ty);
            Some(quote_spanned!(ty.span()=> const _: () = {
                #[allow(unused_imports)] // a slice has what the trait gives to other types
                use ::cuda_std::kernel::NoSlice as _;
                ::cuda_std::kernel::assert_no_slice(::cuda_std::kernel::Named::<#ty>::IS_SLICE);
                ::cuda_std::kernel::assert_passable::<#ty>();
            };))
        }
        Passing::Map => {
            Some(quote_spanned!(ty.span()=> const _: fn(#ty) -> &::cuda_std::tma::TensorMap = |map| map;))
        }
        _ => None,
    });
    quote!(#(#checks)*)
}
