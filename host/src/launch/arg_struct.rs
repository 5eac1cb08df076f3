//! Structs as one kernel argument: each field is packed as an argument of its own, then the struct is put
//! together.

use cuda_std::kernel::{ArgStruct, StructArgs, Value};

use super::args::{Arg, Parameters};
use crate::error::Result;
use crate::stream::Stream;

/// Host values, as nested pairs, for the field markers `M`, also nested pairs.
///
/// # Safety
/// `list` adds `COUNT` parameters, one for each marker, in order.
#[diagnostic::on_unimplemented(
    message = "these fields do not fit the kernel's argument struct",
    note = "a pointer field takes what a kernel's pointer argument takes: `&DeviceBuffer<T>` for `*const T`, `&mut DeviceBuffer<T>` for `*mut T`"
)]
pub unsafe trait FieldArgs<M> {
    /// Parameters that `list` adds.
    const COUNT: usize;

    /// The fields as [`Arg::pack`] gives them.
    type Packed;

    /// Packs field by field.
    ///
    /// # Errors
    /// Those of [`Arg::pack`].
    fn pack(self, stream: &Stream) -> Result<Self::Packed>;

    /// Adds the address of each field.
    fn list(packed: &Self::Packed, to: &mut Parameters);

    /// Commits field by field; see [`Arg::commit`].
    fn commit(packed: Self::Packed, stream: &Stream);
}

// SAFETY: no marker, no parameter.
unsafe impl FieldArgs<()> for () {
    const COUNT: usize = 0;
    type Packed = ();

    fn pack(self, _: &Stream) -> Result<()> {
        Ok(())
    }

    fn list((): &(), _: &mut Parameters) {}

    fn commit((): (), _: &Stream) {}
}

// SAFETY: the derive marks fields by `Value`, `Ptr` and `PtrMut` alone, which are one parameter each.
unsafe impl<A: Arg<P>, P, Rest: FieldArgs<M>, M> FieldArgs<(P, M)> for (A, Rest) {
    const COUNT: usize = 1 + Rest::COUNT;
    type Packed = (A::Packed, Rest::Packed);

    fn pack(self, stream: &Stream) -> Result<Self::Packed> {
        Ok((self.0.pack(stream)?, self.1.pack(stream)?))
    }

    fn list(packed: &Self::Packed, to: &mut Parameters) {
        A::list(&packed.0, to);
        Rest::list(&packed.1, to);
    }

    fn commit(packed: Self::Packed, stream: &Stream) {
        A::commit(packed.0, stream);
        Rest::commit(packed.1, stream);
    }
}

// The error of a larger struct names the number, and a constant's error takes no values.
const _: () = assert!(Parameters::CAPACITY == 40);

/// The struct as the device gets it, and its packed fields.
pub struct PackedStruct<S, F> {
    whole: S,
    fields: F,
}

// SAFETY: one parameter of type S, by value.
unsafe impl<S: ArgStruct, V: FieldArgs<S::Fields>> Arg<Value<S>> for StructArgs<S, V> {
    type Packed = PackedStruct<S, V::Packed>;

    fn pack(self, stream: &Stream) -> Result<Self::Packed> {
        const { assert!(V::COUNT <= Parameters::CAPACITY, "a kernel's argument struct has at most 40 fields") };
        let fields = self.into_values().pack(stream)?;
        let mut parameters = Parameters::new();
        V::list(&fields, &mut parameters);
        // SAFETY: one address for each marker, of a value in `fields` that has the type the device sees.
        let whole = unsafe { S::read(parameters.as_mut_ptr().cast_const().cast()) };
        Ok(PackedStruct { whole, fields })
    }

    fn list(packed: &Self::Packed, to: &mut Parameters) {
        to.push(&packed.whole);
    }

    fn commit(packed: Self::Packed, stream: &Stream) {
        V::commit(packed.fields, stream);
    }
}
