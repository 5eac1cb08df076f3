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
    let device = device::expand(&kernel, is_compiled(&kernel.name.to_string()));
    let host = host::expand(&kernel);
    Ok(quote!(#checks #device #host))
}

/// The variable by which `cuda_builder` says which kernels this compiler compiles (`call::KERNELS` there).
const KERNELS: &str = "CUDA_BUILDER_KERNELS";

/// Whether this compiler compiles the kernel. Elsewhere another one does, so this one checks it only.
fn is_compiled(name: &str) -> bool {
    std::env::var(KERNELS).map_or(true, |kernels| is_among(name, &kernels))
}

/// `only a_ b_` are kernels whose names begin so, `but a_ b_` the others.
fn is_among(name: &str, kernels: &str) -> bool {
    let mut words = kernels.split_whitespace();
    let is_only = words.next() == Some("only");
    words.any(|start| name.starts_with(start)) == is_only
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

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;

    #[test]
    fn every_kernel_is_compiled_by_one_of_two_compilers() {
        for (name, is_apart) in [("a_1", true), ("b_", true), ("c_a_", false), ("b", false)] {
            assert_eq!(super::is_among(name, "only a_ b_"), is_apart, "{name}");
            assert_eq!(super::is_among(name, "but a_ b_"), !is_apart, "{name}");
        }
    }

    /// The messages that `#[kernel(attr)] item` fails to compile with.
    fn errors(attr: &str, item: &str) -> Vec<String> {
        let (attr, item): (TokenStream, TokenStream) = (attr.parse().unwrap(), item.parse().unwrap());
        match super::expand(attr, item) {
            Ok(tokens) => panic!("it compiled: {tokens}"),
            Err(error) => error.into_iter().map(|e| e.to_string()).collect(),
        }
    }

    fn refused(item: &str, message: &str) {
        let errors = errors("", item);
        assert!(errors.len() == 1 && errors[0].contains(message), "{item} gave {errors:?}");
    }

    fn expanded(attr: &str, item: &str) -> String {
        super::expand(attr.parse().unwrap(), item.parse().unwrap()).unwrap().to_string()
    }

    #[test]
    fn signatures_that_cannot_be_entry_points() {
        refused("fn k() {}", "must be an `unsafe fn`");
        refused("async unsafe fn k() {}", "cannot be async");
        refused("const unsafe fn k() {}", "cannot be const");
        refused("unsafe fn k<T>(x: *const T) {}", "cannot be generic");
        refused("unsafe fn k<const N: usize>(x: [f32; N]) {}", "cannot be generic");
        refused("unsafe fn k(x: impl Copy) {}", "cannot be generic");
        refused("unsafe fn k() -> u32 { 0 }", "cannot return a value");
        refused("unsafe fn k(&self) {}", "cannot be a method");
    }

    #[test]
    fn arguments_that_would_point_into_host_memory() {
        refused("unsafe fn k(x: &&u32) {}", "reference to references");
        refused("unsafe fn k(x: &[&u32]) {}", "reference to references");
        refused("unsafe fn k(x: &mut [&mut [u32]]) {}", "reference to references");
        refused("unsafe fn k(x: &str) {}", "as `&[u8]`");
        refused("unsafe fn k(x: &dyn Fn()) {}", "trait object");
        refused("unsafe fn k(x: *const [u32]) {}", "raw pointer to a slice");
    }

    #[test]
    fn arguments_that_own_host_memory() {
        for item in ["x: Vec<f32>", "x: &alloc::vec::Vec<f32>", "x: &mut [Vec<f32>]", "x: *const Vec<f32>"] {
            refused(
                &format!("unsafe fn k({item}) {{}}"),
                "cannot take a `Vec`, which owns host memory: write `&[T]`",
            );
        }
        refused("unsafe fn k(x: String) {}", "pass its bytes as `&[u8]`");
        refused("unsafe fn k(x: Box<u32>) {}", "cannot take a `Box`");
        assert!(expanded("", "unsafe fn k(x: MyVec, y: &Vector) {}").contains("MyVec"));
    }

    #[test]
    fn all_complaints_come_at_once() {
        let errors = errors("", "async fn k<T>() -> u32 { 0 }");
        assert_eq!(errors.len(), 4, "{errors:?}");
    }

    #[test]
    fn launch_bounds_are_checked() {
        let kernel = "unsafe fn k() {}";
        assert!(errors("threads(3)", kernel)[0].contains("unknown option `threads`"));
        assert!(errors("launch_bounds(1, 2, 3)", kernel)[0].contains("MAX_THREADS"));
        let text = expanded("launch_bounds(WARPS * 32, 2)", kernel);
        assert!(text.contains("// @ironwarp kernel=k max_threads={} min_blocks={}"), "{text}");
        assert!(text.contains("max_threads : (WARPS * 32) as u32 , min_blocks : (2) as u32"), "{text}");
        assert!(!expanded("", kernel).contains("@ironwarp"));
    }

    #[test]
    fn slices_are_split_on_the_device_only() {
        let text = expanded("", "pub unsafe fn k(x: &[f32], (a, b): (u32, u32), y: &mut [u8]) {}");
        let entry = "__ironwarp_0 : * const f32 , __ironwarp_1 : usize , __ironwarp_2 : (u32 , u32) , \
             __ironwarp_3 : * mut u8 , __ironwarp_4 : usize";
        assert!(text.contains(entry), "{text}");
        let body = "unsafe fn k (x : & [f32] , (a , b) : (u32 , u32) , mut y : :: cuda_std :: kernel :: MutSlice < '_ , u8 >)";
        assert!(text.contains(body), "{text}");
        assert!(text.contains(
            ":: cuda_std :: kernel :: Slice < f32 > , :: cuda_std :: kernel :: Value < (u32 , u32) >"
        ));
    }

    #[test]
    fn parameters_of_the_entry_hide_no_name_of_the_author() {
        let text = expanded("", "unsafe fn k(x: &[f32], x_len: u32, (a, b): (u32, u32), argument_2: u32) {}");
        let entry = text.split("fn k (").find(|part| part.starts_with("__")).expect("an entry");
        let entry = &entry[..entry.find("unsafe fn body").expect("a body")];
        let names: Vec<_> = entry.split_whitespace().filter(|word| word.starts_with("__ironwarp_")).collect();
        assert_eq!(names, ["__ironwarp_0", "__ironwarp_1", "__ironwarp_2", "__ironwarp_3", "__ironwarp_4"]);
        assert!(!entry.contains("x_len") && !entry.contains("argument_2"), "{entry}");
    }

    #[test]
    fn tensor_maps_travel_by_value() {
        let text = expanded("", "pub unsafe fn k(x: &[f32], a: &TensorMap, b: &cuda_std::tma::TensorMap) {}");
        assert!(text.contains("__ironwarp_2 : [u64 ; :: cuda_std :: tma :: TensorMap :: WORDS]"), "{text}");
        for index in [2, 3] {
            assert!(text.contains(&format!("__parameter_address ! (\"k_param_{index}\")")), "{text}");
            assert!(text.contains(&format!("// @ironwarp kernel=k tensor_map={index}")), "{text}");
        }
        assert!(
            text.contains("Slice < f32 > , :: cuda_std :: kernel :: Map , :: cuda_std :: kernel :: Map ,")
        );
        assert!(
            !expanded("", "unsafe fn k(a: *const TensorMap, b: &mut TensorMap) {}").contains("tensor_map=")
        );
    }
}
