//! Plans of shared memory: fields that are declared once and give offsets, sizes, alignments and the total.
//!
//! ```
//! use ironwarp_primitives::shared_plan;
//! use ironwarp_primitives::shared_plan::{Mbarrier, SharedPlan};
//!
//! shared_plan! {
//!     /// Two buffers, and a barrier for each.
//!     pub struct Buffers {
//!         /// 32 numbers, where the copy engine writes.
//!         buffer[2]: Numbers,
//!         /// Says that a buffer is full.
//!         full[2]: Mbarrier,
//!         /// What the block adds up.
//!         sum: f32,
//!     }
//! }
//! ironwarp_primitives::shared_bytes! {
//!     /// 32 numbers of f32.
//!     pub struct Numbers(32 * 4, align 128);
//! }
//!
//! const _: () = assert!(Buffers::TOTAL == 2 * 128 + 2 * 8 + 4);
//! let plan = Buffers::new(1024);
//! assert_eq!([plan.buffer(1), plan.full(0), plan.sum()], [1024 + 128, 1024 + 256, 1024 + 272]);
//! ```
//! A field is a [`SharedType`]: a number, an [`Mbarrier`], bytes of [`shared_bytes!`](crate::shared_bytes),
//! or another plan. `name: T` is one, `name[COUNT]: T` is COUNT of them. The accessor of a field gives its
//! address in the shared window, or the nested plan. Offsets are constants: an accessor costs an addition.
//!
//! An index beyond a field's COUNT would be another field's memory. It panics on the host, so in every test
//! on the executor. On the device nothing is checked.

/// The type of a plan's field.
pub trait SharedType {
    /// Bytes from an element to the next one, a multiple of `ALIGN`.
    const BYTES: u32;
    /// Alignment, a power of two.
    const ALIGN: u32;
    /// The result of an accessor: an address in the shared window, or a nested plan.
    type Place: Copy;

    /// The element at this address.
    fn place(address: u32) -> Self::Place;
}

/// A plan that [`shared_plan!`](crate::shared_plan!) makes.
pub trait SharedPlan: SharedType {
    /// The fields, in order of their offsets.
    const FIELDS: &'static [Field];
    /// Bytes up to the end of the last field: the dynamic shared memory of a launch.
    const TOTAL: u32 = end(Self::FIELDS, Self::FIELDS.len());
}

/// One field of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Bytes of all its elements.
    pub bytes: u32,
    /// Its alignment.
    pub align: u32,
}

impl Field {
    /// `count` elements of `T`.
    #[must_use]
    pub const fn new<T: SharedType>(name: &'static str, count: u32) -> Self {
        assert!(T::ALIGN.is_power_of_two(), "an alignment is a power of two");
        assert!(T::BYTES.is_multiple_of(T::ALIGN), "elements lie one behind the other");
        Self { name, bytes: T::BYTES * count, align: T::ALIGN }
    }
}

/// Where the field of this name begins.
///
/// # Panics
/// When there is no such field. Macros call it in constants, so that is a compile error.
#[doc(hidden)]
#[must_use]
pub const fn offset(fields: &[Field], name: &str) -> u32 {
    let mut index = 0;
    while !is_same(fields[index].name, name) {
        index += 1;
    }
    end(fields, index).next_multiple_of(fields[index].align)
}

/// Where the first `count` fields end.
#[doc(hidden)]
#[must_use]
pub const fn end(fields: &[Field], count: usize) -> u32 {
    let (mut at, mut index) = (0u32, 0);
    while index < count {
        at = at.next_multiple_of(fields[index].align) + fields[index].bytes;
        index += 1;
    }
    at
}

/// The largest alignment of the fields.
#[doc(hidden)]
#[must_use]
pub const fn alignment(fields: &[Field]) -> u32 {
    let (mut align, mut index) = (1, 0);
    while index < fields.len() {
        if fields[index].align > align {
            align = fields[index].align;
        }
        index += 1;
    }
    align
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut same = a.len() == b.len();
    let mut index = 0;
    while same && index < a.len() {
        same = a[index] == b[index];
        index += 1;
    }
    same
}

/// The address of an element of a field with `count` elements.
#[doc(hidden)]
#[inline(always)]
#[must_use]
#[track_caller]
pub fn element<T: SharedType>(first: u32, count: u32, index: u32) -> T::Place {
    if cfg!(not(target_arch = "nvptx64")) {
        assert!(index < count, "element {index} of a field of {count} would be another field's memory");
    }
    T::place(first + index * T::BYTES)
}

/// A barrier of the `mbarrier` instructions ([`cuda_std::mbarrier`]).
pub struct Mbarrier;

impl SharedType for Mbarrier {
    const BYTES: u32 = 8;
    const ALIGN: u32 = 8;
    type Place = u32;

    #[inline(always)]
    fn place(address: u32) -> u32 {
        address
    }
}

macro_rules! numbers {
    ($($type:ty)*) => { $(
        impl SharedType for $type {
            const BYTES: u32 = size_of::<$type>() as u32;
            const ALIGN: u32 = align_of::<$type>() as u32;
            type Place = u32;

            #[inline(always)]
            fn place(address: u32) -> u32 {
                address
            }
        }
    )* };
}
numbers! { f32 u32 u64 }

/// Declares a plan of shared memory; see [`shared_plan`](crate::shared_plan!).
///
/// A plan may have one type parameter, with a bound: `struct Plan<C: Config> { stage[C::STAGES]: Stage<C> }`.
#[macro_export]
macro_rules! shared_plan {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($fields:tt)* }) => {
        $crate::shared_plan! { @ [$(#[$meta])*] $vis $name [] [] [()] $($fields)* }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident<$param:ident: $bound:path> { $($fields:tt)* }) => {
        $crate::shared_plan! { @ [$(#[$meta])*] $vis $name [<$param: $bound>] [<$param>] [$param] $($fields)* }
    };
    (@ [$($meta:tt)*] $vis:vis $name:ident [$($decl:tt)*] [$($args:tt)*] [$of:ty]
        $($(#[$doc:meta])* $field:ident $([$count:expr])?: $type:ty,)*
    ) => {
        $($meta)*
        $vis struct $name $($decl)* {
            base: u32,
            of: ::core::marker::PhantomData<fn() -> $of>,
        }

        impl $($decl)* Clone for $name $($args)* {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl $($decl)* Copy for $name $($args)* {}

        impl $($decl)* $crate::shared_plan::SharedType for $name $($args)* {
            const ALIGN: u32 =
                $crate::shared_plan::alignment(<Self as $crate::shared_plan::SharedPlan>::FIELDS);
            const BYTES: u32 = <Self as $crate::shared_plan::SharedPlan>::TOTAL
                .next_multiple_of(<Self as $crate::shared_plan::SharedType>::ALIGN);
            type Place = Self;

            #[inline(always)]
            fn place(address: u32) -> Self {
                Self::new(address)
            }
        }

        impl $($decl)* $crate::shared_plan::SharedPlan for $name $($args)* {
            const FIELDS: &'static [$crate::shared_plan::Field] = &[$(
                $crate::shared_plan::Field::new::<$type>(
                    stringify!($field),
                    $crate::shared_plan!(@count $($count)?),
                ),
            )*];
        }

        #[allow(dead_code)]
        impl $($decl)* $name $($args)* {
            /// The plan in the shared memory from this address on, which is aligned as the plan wants.
            #[inline(always)]
            #[must_use]
            $vis const fn new(base: u32) -> Self {
                Self { base, of: ::core::marker::PhantomData }
            }

            $($crate::shared_plan! { @accessor [$(#[$doc])*] $vis $field [$($count)?] $type })*
        }
    };
    (@count) => { 1 };
    (@count $count:expr) => { $count };
    (@accessor [$($doc:tt)*] $vis:vis $field:ident [] $type:ty) => {
        $($doc)*
        #[inline(always)]
        #[must_use]
        $vis fn $field(self) -> <$type as $crate::shared_plan::SharedType>::Place {
            let offset = const {
                $crate::shared_plan::offset(
                    <Self as $crate::shared_plan::SharedPlan>::FIELDS,
                    stringify!($field),
                )
            };
            <$type as $crate::shared_plan::SharedType>::place(self.base + offset)
        }
    };
    (@accessor [$($doc:tt)*] $vis:vis $field:ident [$count:expr] $type:ty) => {
        $($doc)*
        #[inline(always)]
        #[must_use]
        #[track_caller]
        $vis fn $field(self, index: u32) -> <$type as $crate::shared_plan::SharedType>::Place {
            let offset = const {
                $crate::shared_plan::offset(
                    <Self as $crate::shared_plan::SharedPlan>::FIELDS,
                    stringify!($field),
                )
            };
            $crate::shared_plan::element::<$type>(self.base + offset, $count, index)
        }
    };
}

/// Declares bytes of shared memory as a type of a plan's fields: `struct NAME(BYTES, align ALIGN);`.
///
/// BYTES are rounded up to a multiple of ALIGN. There may be one type parameter, as for
/// [`shared_plan!`](crate::shared_plan!).
#[macro_export]
macro_rules! shared_bytes {
    ($(#[$meta:meta])* $vis:vis struct $name:ident $(<$param:ident: $bound:path>)? ($bytes:expr, align $align:expr);) => {
        $(#[$meta])*
        $vis struct $name $(<$param: $bound>(::core::marker::PhantomData<fn() -> $param>))?;

        impl $(<$param: $bound>)? $crate::shared_plan::SharedType for $name $(<$param>)? {
            const ALIGN: u32 = $align;
            const BYTES: u32 = ($bytes as u32).next_multiple_of(<Self as $crate::shared_plan::SharedType>::ALIGN);
            type Place = u32;

            #[inline(always)]
            fn place(address: u32) -> u32 {
                address
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::{Field, Mbarrier, SharedPlan, SharedType};

    trait Shape {
        const COUNT: u32;
    }

    struct Three;

    impl Shape for Three {
        const COUNT: u32 = 3;
    }

    crate::shared_bytes! {
        struct Tile<S: Shape>(100 * S::COUNT, align 128);
    }

    crate::shared_plan! {
        struct Inner<S: Shape> {
            tile[S::COUNT]: Tile<S>,
            sum: f32,
        }
    }

    crate::shared_plan! {
        struct Outer<S: Shape> {
            flag: u32,
            inner[2]: Inner<S>,
            none[0]: u64,
            full[S::COUNT]: Mbarrier,
        }
    }

    #[test]
    fn fields_follow_each_other_where_they_are_aligned() {
        const INNER: u32 = 3 * 384 + 128;
        assert_eq!((Inner::<Three>::TOTAL, Inner::<Three>::BYTES), (3 * 384 + 4, INNER));
        assert_eq!((Outer::<Three>::TOTAL, Outer::<Three>::ALIGN), (128 + 2 * INNER + 24, 128));
        let plan = Outer::<Three>::new(4096);
        assert_eq!(plan.flag(), 4096);
        assert_eq!(plan.inner(1).tile(2), 4096 + 128 + INNER + 2 * 384);
        assert_eq!(plan.inner(0).sum(), 4096 + 128 + 3 * 384);
        assert_eq!(plan.full(2), 4096 + 128 + 2 * INNER + 16);
        assert_eq!(Outer::<Three>::FIELDS[0], Field { name: "flag", bytes: 4, align: 4 });
    }

    #[test]
    #[should_panic(expected = "element 3 of a field of 3 would be another field's memory")]
    fn an_index_stays_in_its_field() {
        let _ = Outer::<Three>::new(0).full(3);
    }

    #[test]
    #[should_panic(expected = "element 0 of a field of 0")]
    fn a_field_of_none_has_no_element() {
        let _ = Outer::<Three>::new(0).none(0);
    }
}
