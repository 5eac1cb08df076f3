//! Safe code must not break the library; each closed hole has a test. No line here is unsafe, so whatever
//! goes wrong is the library's fault.
//!
//! | hole, as it was | closed by | test |
//! |---|---|---|
//! | a type that says it is a kernel, with any parameters | `unsafe trait Kernel` | [`kernels_are_not_made_up`] |
//! | a tuple of arguments that packs what it likes | a sealed trait | [`launch_arguments_are_sealed`] |
//! | the library's kernels replaced by any PTX | `unsafe fn`, and a refusal | [`families_are_loaded_by_unsafe_code`] |
//! | a shared variable at any address | `unsafe trait Variable` | [`shared_variables_have_no_other_address`] |
//! | a shared variable read before it is written | `unsafe fn`, uses like a `static mut`'s | [`shared_variables_are_not_read_unwritten`] |
//! | `&mut [T]` of all elements for every thread of a kernel | `MutSlice`, `MutRef` | [`threads_get_no_exclusive_slice`], [`threads_get_no_exclusive_reference`] |
//! | stacks that borrow, abandoned after a fault | they unwind | `holes/executor.rs`, `a_fault_..` |
//! | a shared variable of `usize::MAX` bytes | a refusal | `holes/executor.rs`, `shared_variables_of_any_size_..` |
//! | a launch inside a simulated thread | a refusal | `holes/executor.rs`, `a_simulated_thread_cannot_launch` |
//! | stacks of `usize::MAX` bytes | a refusal | `holes/executor.rs`, `stacks_have_a_limit` |
//! | work of another thread captured into a graph | a stream of the capture's own | `holes/graphs.rs` |
//! | slices of page-locked memory of any alignment | a refusal | [`elements_are_aligned_as_memory_is`] |
//!
//! Four tests need unsafe code to state what they state, so they stand with the code that they test:
//! * `Module::load_family` refuses the library's own families: `host/tests/alone/wrong_calls/runtime.rs`.
//! * A kernel sees what another thread wrote to its `&mut [T]`: `crates/cuda_std/tests/library/kernel.rs`.
//! * Kernels whose names begin at one address are told apart: `host/src/launch/kernel.rs`.
//! * A launch is unsafe, and its arguments have the kernel's types: `host/tests/ui`.
#![forbid(unsafe_code)]

/// Launches pass as many bytes as the markers in `Params` stand for.
///
/// ```compile_fail,E0200
/// struct Mine;
/// impl cuda_std::kernel::Kernel for Mine {
///     type Params = ();
///     const NAME: &'static str = "saxpy";
///     const FAMILY: &'static str = "ironwarp_basic";
///     const BOUNDS: cuda_std::kernel::LaunchBounds =
///         cuda_std::kernel::LaunchBounds { max_threads: 0, min_blocks: 0 };
/// }
/// ```
#[cfg(any(doc, doctest))]
pub mod kernels_are_not_made_up {}

/// Launches rely on what the library's own tuples pack.
///
/// ```compile_fail,E0277
/// # use ironwarp::{LaunchArgs, Parameters, Result, Stream};
/// struct Nothing;
/// impl LaunchArgs<()> for Nothing {
///     fn with(self, _: &Stream, _: impl FnOnce(&mut Parameters) -> Result<()>) -> Result<()> {
///         Ok(())
///     }
/// }
/// ```
#[cfg(any(doc, doctest))]
pub mod launch_arguments_are_sealed {}

/// Typed launches, and ops by them, rely on what is in the PTX.
///
/// ```compile_fail,E0133
/// # use ironwarp::{Device, Module, PtxSource, Result};
/// fn replace(device: &Device, ptx: String) -> Result<()> {
///     Module::load_family(device, "ironwarp_basic", PtxSource::Text(ptx)).map(drop)
/// }
/// ```
#[cfg(any(doc, doctest))]
pub mod families_are_loaded_by_unsafe_code {}

/// A reference to a stand-in for a shared variable is a reference to what is at its address.
///
/// ```compile_fail,E0200
/// struct Anywhere;
/// impl cuda_std::shared::Variable for Anywhere {
///     type Value = u64;
///     fn address() -> *mut u8 {
///         8 as *mut u8
///     }
/// }
/// ```
#[cfg(any(doc, doctest))]
pub mod shared_variables_have_no_other_address {}

/// Shared memory holds any bytes before it is written.
///
/// ```compile_fail,E0133
/// fn read<V: cuda_std::shared::Variable<Value = bool>>() -> bool {
///     *cuda_std::shared::Shared::<V>::new()
/// }
/// ```
#[cfg(any(doc, doctest))]
pub mod shared_variables_are_not_read_unwritten {}

/// The compiler may keep in a register what lies behind an exclusive reference, and all threads have this
/// argument.
///
/// ```compile_fail,E0308
/// # use cuda_std::prelude::*;
/// #[kernel]
/// pub unsafe fn keep(y: &mut [u32]) {
///     let y: &mut [u32] = y;
///     y[0] = 1;
/// }
/// ```
///
/// Nor is the stand-in made for any address:
///
/// ```compile_fail,E0133
/// let mut y = cuda_std::kernel::MutSlice::from_raw_parts(8 as *mut u32, 1);
/// y[0] = 1;
/// ```
#[cfg(any(doc, doctest))]
pub mod threads_get_no_exclusive_slice {}

/// The same for one element.
///
/// ```compile_fail,E0308
/// # use cuda_std::prelude::*;
/// #[kernel]
/// pub unsafe fn keep(y: &mut u32) {
///     let y: &'static mut u32 = y;
///     *y = 1;
/// }
/// ```
#[cfg(any(doc, doctest))]
pub mod threads_get_no_exclusive_reference {}

/// Blocks of memory are aligned to 256 bytes at least, and not to more.
///
/// ```compile_fail,E0080
/// # use ironwarp::{Device, PinnedBuffer, Result, bytemuck};
/// #[repr(C, align(4096))]
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[bytemuck(crate = "ironwarp::bytemuck")]
/// struct Page([u8; 4096]);
///
/// fn two_pages(device: &Device) -> Result<PinnedBuffer<Page>> {
///     PinnedBuffer::zeroed(device, 2)
/// }
/// # fn main() {
/// #     let _ = Device::open(0).and_then(|device| two_pages(&device)?.as_slice().map(drop));
/// # }
/// ```
#[cfg(any(doc, doctest))]
pub mod elements_are_aligned_as_memory_is {}
