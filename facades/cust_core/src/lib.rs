//! The trait that cust and kernels share, under the name of cust's package. On the host it also brings the
//! functions of the driver, bound when the program runs: NVIDIA's where there is a GPU, else Ironwarp's
//! software driver. cust itself stays what it is.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub use _hidden::*;
pub use cust_derive::DeviceCopyCore as DeviceCopy;
#[cfg(not(target_arch = "nvptx64"))]
use ironwarp_driver as _;

/// The trait apart from the derive macro of its name.
#[doc(hidden)]
pub mod _hidden {
    use core::marker::{PhantomData, PhantomPinned};
    use core::mem::MaybeUninit;
    use core::num::Wrapping;

    /// Values that may be copied to and from device memory byte by byte.
    ///
    /// # Safety
    /// A copy of the bytes is a valid value on the other side. So it owns nothing and holds no pointer into
    /// host memory.
    pub unsafe trait DeviceCopy: Copy {}

    macro_rules! plain {
        ($($ty:ty)*) => {$(
            // SAFETY: numbers without pointers.
            unsafe impl DeviceCopy for $ty {}
        )*};
    }
    plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 bool char PhantomPinned);
    // SAFETY: no bytes.
    unsafe impl DeviceCopy for () {}
    plain!(core::num::NonZeroU8 core::num::NonZeroU16 core::num::NonZeroU32 core::num::NonZeroU64);
    plain!(core::num::NonZeroU128 core::num::NonZeroUsize core::num::NonZeroI8 core::num::NonZeroI16);
    plain!(core::num::NonZeroI32 core::num::NonZeroI64 core::num::NonZeroI128 core::num::NonZeroIsize);

    // SAFETY: no bytes.
    unsafe impl<T: ?Sized> DeviceCopy for PhantomData<T> {}
    // SAFETY: bytes of a `T` that may be copied, or none that anybody reads.
    unsafe impl<T: DeviceCopy> DeviceCopy for Option<T> {}
    // SAFETY: as above.
    unsafe impl<T: DeviceCopy> DeviceCopy for MaybeUninit<T> {}
    // SAFETY: bytes of one of two types that may be copied.
    unsafe impl<T: DeviceCopy, E: DeviceCopy> DeviceCopy for Result<T, E> {}
    // SAFETY: the bytes of a `T`.
    unsafe impl<T: DeviceCopy> DeviceCopy for Wrapping<T> {}
    // SAFETY: bytes of `N` values that may be copied.
    unsafe impl<T: DeviceCopy, const N: usize> DeviceCopy for [T; N] {}

    macro_rules! tuples {
        ($(($($name:ident)*))*) => {$(
            // SAFETY: bytes of values that may be copied.
            unsafe impl<$($name: DeviceCopy),*> DeviceCopy for ($($name,)*) {}
        )*};
    }
    tuples!((A B)(A B C)(A B C D)(A B C D E)(A B C D E F)(A B C D E F G)(A B C D E F G H));

    #[cfg(any(feature = "vek", feature = "mint", feature = "num-complex"))]
    macro_rules! of_numbers {
        ($($($path:ident)::+,)*) => {$(
            // SAFETY: numbers beside each other.
            unsafe impl<T: DeviceCopy> DeviceCopy for $($path)::+<T> {}
        )*};
    }

    #[cfg(feature = "vek")]
    of_numbers! {
        vek::Vec2, vek::Vec3, vek::Vec4, vek::Extent2, vek::Extent3, vek::Mat2, vek::Mat3, vek::Mat4,
        vek::CubicBezier2, vek::CubicBezier3, vek::Quaternion,
    }
    #[cfg(feature = "glam")]
    plain! {
        glam::Vec2 glam::Vec3 glam::Vec3A glam::Vec4 glam::IVec2 glam::IVec3 glam::IVec4 glam::UVec2 glam::UVec3
        glam::UVec4 glam::DVec2 glam::DVec3 glam::DVec4 glam::Mat2 glam::Mat3 glam::Mat4 glam::Quat glam::DQuat
        glam::DMat2 glam::DMat3 glam::DMat4
    }
    #[cfg(feature = "mint")]
    of_numbers! {
        mint::Point2, mint::Point3, mint::Vector2, mint::Vector3, mint::Vector4, mint::Quaternion,
        mint::ColumnMatrix2, mint::ColumnMatrix3, mint::ColumnMatrix4, mint::ColumnMatrix3x4,
        mint::RowMatrix2, mint::RowMatrix3, mint::RowMatrix4, mint::RowMatrix3x4,
    }
    #[cfg(feature = "half")]
    plain!(half::f16 half::bf16);
    #[cfg(feature = "num-complex")]
    of_numbers!(num_complex::Complex,);
}
