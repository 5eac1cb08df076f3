//! The arguments of a launch as a tuple, and the compiler's words for one that does not fit.
//!
//! Most traits of this module hold for every [`Arg`] and exist for their messages: one for each kind of
//! parameter, which the message writes as the kernel's source does. `do_not_recommend` lets the compiler
//! report them in place of `Arg`.

use cuda_std::kernel::{Map, Ptr, PtrMut, Slice, SliceMut, Value};

use super::args::{Arg, Parameters};
use crate::error::Result;
use crate::stream::Stream;

/// A tuple of host values that fits a kernel's parameters `P`, itself a tuple of parameter markers. Nothing
/// else implements it.
#[diagnostic::on_unimplemented(
    message = "the kernel's parameters are `{P}`, the arguments `{Self}`",
    label = "wrong arguments for this kernel",
    note = "pass a tuple with one value for each of the kernel's parameters, in order; a tuple of one is `(x,)`"
)]
pub trait LaunchArgs<P>: sealed::Fits<P> {
    /// Packs the arguments, hands the parameter list to `launch`, and commits the uses of buffers when that
    /// has queued the kernel.
    ///
    /// # Errors
    /// The error of packing an argument, or of `launch`.
    fn with(self, stream: &Stream, launch: impl FnOnce(&mut Parameters) -> Result<()>) -> Result<()>;
}

impl<P, Args: sealed::Fits<P>> LaunchArgs<P> for Args {
    fn with(self, stream: &Stream, launch: impl FnOnce(&mut Parameters) -> Result<()>) -> Result<()> {
        self.pack_with(stream, launch)
    }
}

/// Launches rely on what the implementations below do, so no other package can add one.
mod sealed {
    use super::{Arg, Parameters, Result, Stream};

    /// As [`LaunchArgs`](super::LaunchArgs).
    pub trait Fits<P> {
        fn pack_with(self, stream: &Stream, launch: impl FnOnce(&mut Parameters) -> Result<()>)
        -> Result<()>;
    }

    /// An [`Arg`] for the kernel's `N`th parameter, `P`.
    pub trait ArgAt<const N: usize, P>: Arg<P> {}
}
use sealed::{ArgAt, Fits};

/// The kinds of parameters: trait, marker, and the message for a value that does not fit, with what would.
macro_rules! kinds {
    ($($name:ident $marker:ident $message:literal $fits:literal;)*) => { $(
        #[diagnostic::on_unimplemented(
            message = $message,
            label = "wrong argument for this parameter",
            note = $fits
        )]
        pub trait $name<const N: usize, T>: Arg<$marker<T>> {}

        #[diagnostic::do_not_recommend]
        impl<const N: usize, T, A: Arg<$marker<T>>> $name<N, T> for A {}

        impl<const N: usize, T, A: $name<N, T>> ArgAt<N, $marker<T>> for A {}
    )* };
}

kinds! {
    ValueAt Value "kernel parameter {N} (`{T}`) cannot take `{Self}`"
        "a value is passed as exactly its type; a struct that derives `KernelArgs` also by `pass()`, with `&DeviceBuffer<T>` for `*const T` and `&mut DeviceBuffer<T>` for `*mut T`";
    SliceAt Slice "kernel parameter {N} (`&[{T}]`) cannot take `{Self}`"
        "pass a `&DeviceBuffer<{T}>` or a `DeviceView<{T}>`";
    SliceMutAt SliceMut "kernel parameter {N} (`&mut [{T}]`) cannot take `{Self}`"
        "pass a `&mut DeviceBuffer<{T}>` or a `DeviceViewMut<{T}>`";
    PtrAt Ptr "kernel parameter {N} (`*const {T}`) cannot take `{Self}`"
        "pass a `&DeviceBuffer<{T}>`, a `DeviceView<{T}>`, an `Option` of one, or a `DevicePtr<{T}>`";
    PtrMutAt PtrMut "kernel parameter {N} (`*mut {T}`) cannot take `{Self}`"
        "pass a `&mut DeviceBuffer<{T}>`, a `DeviceViewMut<{T}>`, an `Option` of one, or a `DevicePtr<{T}>`";
}

/// As the `kinds`, which have a type.
#[diagnostic::on_unimplemented(
    message = "kernel parameter {N} (`&TensorMap`) cannot take `{Self}`",
    label = "wrong argument for this parameter",
    note = "make an `ironwarp::tma::TensorMap` of the buffer, or a `TensorMapMut` if the kernel writes through it"
)]
pub trait MapAt<const N: usize>: Arg<Map> {}

#[diagnostic::do_not_recommend]
impl<const N: usize, A: Arg<Map>> MapAt<N> for A {}

impl<const N: usize, A: MapAt<N>> ArgAt<N, Map> for A {}

/// Stands for an argument that is missing: no parameter takes it. A message names it.
#[doc(hidden)]
pub struct NoArgument(());

/// An argument beyond the kernel's `N` parameters. There is none: nothing implements it.
#[diagnostic::on_unimplemented(
    message = "the kernel has {N} parameters, none for the further argument `{Self}`",
    label = "one argument too many"
)]
pub trait Beyond<const N: usize> {}

/// A tuple for as many parameters.
macro_rules! fits {
    ($($n:literal $arg:ident $param:ident),*) => {
        impl<$($arg, $param),*> Fits<($($param,)*)> for ($($arg,)*)
        where
            $($arg: ArgAt<$n, $param>,)*
        {
            #[allow(non_snake_case, unused_variables, unused_mut)]
            fn pack_with(
                self,
                stream: &Stream,
                launch: impl FnOnce(&mut Parameters) -> Result<()>,
            ) -> Result<()> {
                let ($($arg,)*) = self;
                $(let $arg = <$arg as Arg<$param>>::pack($arg, stream)?;)*
                let mut parameters = Parameters::new();
                $(<$arg as Arg<$param>>::list(&$arg, &mut parameters);)*
                launch(&mut parameters)?;
                $(<$arg as Arg<$param>>::commit($arg, stream);)*
                Ok(())
            }
        }
    };
}

/// A tuple for one parameter more, and one for a parameter less. Neither ever fits: these implementations
/// exist so that the compiler names the parameter without an argument, or the argument without a parameter.
macro_rules! misfits {
    ($before:literal $last_arg:ident $last_param:ident; $($arg:ident $param:ident),*) => {
        impl<$($arg, $param,)* $last_param> Fits<($($param,)* $last_param,)> for ($($arg,)*)
        where
            ($($arg,)* NoArgument,): Fits<($($param,)* $last_param,)>,
        {
            #[allow(non_snake_case)]
            fn pack_with(
                self,
                stream: &Stream,
                launch: impl FnOnce(&mut Parameters) -> Result<()>,
            ) -> Result<()> {
                let ($($arg,)*) = self;
                ($($arg,)* NoArgument(()),).pack_with(stream, launch)
            }
        }

        impl<$($arg, $param,)* $last_arg> Fits<($($param,)*)> for ($($arg,)* $last_arg,)
        where
            $last_arg: Beyond<$before>,
            ($($arg,)*): Fits<($($param,)*)>,
        {
            #[allow(non_snake_case)]
            fn pack_with(
                self,
                stream: &Stream,
                launch: impl FnOnce(&mut Parameters) -> Result<()>,
            ) -> Result<()> {
                let ($($arg,)* _,) = self;
                ($($arg,)*).pack_with(stream, launch)
            }
        }
    };
}

/// The implementations for every tuple that begins with what is in brackets.
macro_rules! tuples {
    ($before:literal [$($n:literal $arg:ident $param:ident,)*]) => {
        fits!($($n $arg $param),*);
    };
    ($before:literal [$($n:literal $arg:ident $param:ident,)*] $next:literal $next_arg:ident $next_param:ident, $($rest:tt)*) => {
        fits!($($n $arg $param),*);
        misfits!($before $next_arg $next_param; $($arg $param),*);
        tuples!($next [$($n $arg $param,)* $next $next_arg $next_param,] $($rest)*);
    };
}

// As many as MAX_ARGS.
tuples!(
    0 [] 1 A1 P1, 2 A2 P2, 3 A3 P3, 4 A4 P4, 5 A5 P5, 6 A6 P6, 7 A7 P7, 8 A8 P8, 9 A9 P9, 10 A10 P10, 11 A11 P11,
    12 A12 P12, 13 A13 P13, 14 A14 P14, 15 A15 P15, 16 A16 P16, 17 A17 P17, 18 A18 P18, 19 A19 P19, 20 A20 P20,
);
