//! The expansion of `#[kernel]` on the host.

use std::any::TypeId;
use std::ffi::c_void;

use cuda_std::kernel::{Kernel, LaunchBounds, ParamLayout, Ptr, PtrMut, Slice, SliceMut, Value};
use cuda_std::{kernel, thread};
use simt::memory::Tracked;

const WARPS: u32 = 2;

/// The family of this program's kernels.
const FAMILY: &str = env!("CARGO_CRATE_NAME");

#[derive(Clone, Copy)]
#[repr(C)]
/// An argument passed by value.
pub struct Scale {
    by: f32,
    shift: f64,
}

/// Takes an argument in every way there is.
///
/// # Safety
/// `y` is as long as `x`, and every pointer is valid. One launch at a time.
#[kernel(launch_bounds(WARPS * 32, 4))]
pub unsafe fn every_way(
    x: &[f32],
    Scale { by, shift }: Scale,
    y: &mut [f64],
    offset: *const u32,
    last: *mut f64,
    extra: &u16,
    count: &mut u32,
) {
    let i = thread::index_1d() as usize;
    if i >= x.len() {
        return;
    }
    // SAFETY: the launch passes valid pointers.
    let offset = unsafe { *offset };
    y[i] = (x[i] * by) as f64 + shift + offset as f64 + *extra as f64;
    if i + 1 == x.len() {
        // SAFETY: one thread alone gets here.
        unsafe { *last = y[i] };
        *count += 1;
    }
}

/// Has the name of what reads the arguments.
///
/// # Safety
/// `out` is valid, and one thread runs.
#[kernel]
pub unsafe fn invoke(out: *mut u32) {
    // SAFETY: the launch passes a valid pointer.
    unsafe { *out += 1 };
}

/// Has the name of what the arguments are read from.
///
/// # Safety
/// `out` is valid, and one thread runs.
#[kernel]
pub unsafe fn parameters(out: *mut u32) {
    // SAFETY: the launch passes a valid pointer.
    unsafe { *out += 1 };
}

/// Takes nothing.
///
/// # Safety
/// None: it takes and does nothing.
#[kernel]
pub unsafe fn nothing() {}

#[test]
fn the_type_says_what_the_function_takes() {
    type Expected = (Slice<f32>, Value<Scale>, SliceMut<f64>, Ptr<u32>, PtrMut<f64>, Ptr<u16>, PtrMut<u32>);
    assert_eq!(TypeId::of::<<every_way as Kernel>::Params>(), TypeId::of::<Expected>());
    assert_eq!(TypeId::of::<<nothing as Kernel>::Params>(), TypeId::of::<()>());
    assert_eq!((every_way::NAME, every_way::FAMILY), ("every_way", "library"));
    assert_eq!(every_way::BOUNDS, LaunchBounds { max_threads: 64, min_blocks: 4 });
    assert_eq!(nothing::BOUNDS, LaunchBounds { max_threads: 0, min_blocks: 0 });
}

#[test]
fn the_registry_says_how_it_is_passed() {
    let entry = simt::registry::find(Some(FAMILY), "every_way").unwrap();
    let pointer = |name| ParamLayout { name, size: 8, align: 8 };
    // The parts of a pattern are named, it itself is not.
    let scale = ParamLayout { name: "", size: 16, align: 8 };
    let rest = ["y", "y", "offset", "last", "extra", "count"].map(pointer);
    assert_eq!(entry.params[..3], [pointer("x"), pointer("x"), scale]);
    assert_eq!(entry.params[3..], rest);
    assert_eq!(entry.bounds, every_way::BOUNDS);
    assert!(entry.file.ends_with("kernel.rs") && entry.line > 0);
    assert!(simt::registry::find(Some(FAMILY), "nothing").unwrap().params.is_empty());
}

#[test]
fn the_entry_reads_its_arguments() {
    let (mut x, mut y, mut last, mut count) = ([1.0f32, 2.0, 3.0], [0.0f64; 3], [0.0f64], [0u32]);
    let (mut offset, mut extra) = ([10u32], [100u16]);
    {
        let (x, y) = (Tracked::new(&mut x, "x"), Tracked::new(&mut y, "y"));
        let (last, count) = (Tracked::new(&mut last, "last"), Tracked::new(&mut count, "count"));
        let (offset, extra) = (Tracked::new(&mut offset, "offset"), Tracked::new(&mut extra, "extra"));
        let pointers = [x.as_ptr() as usize, y.as_ptr() as usize, offset.as_ptr() as usize];
        let more = [last.as_ptr() as usize, extra.as_ptr() as usize, count.as_ptr() as usize];
        let (len, scale) = (3usize, Scale { by: 2.0, shift: 0.5 });
        let at = |value: &usize| std::ptr::from_ref(value).cast::<c_void>();
        let params: [*const c_void; 9] = [
            at(&pointers[0]),
            at(&len),
            std::ptr::from_ref(&scale).cast(),
            at(&pointers[1]),
            at(&len),
            at(&pointers[2]),
            at(&more[0]),
            at(&more[1]),
            at(&more[2]),
        ];
        let entry = simt::registry::find(Some(FAMILY), "every_way").unwrap();
        // SAFETY: nine pointers to values of the parameters' types, which live until the end of the block.
        unsafe {
            simt::launch(
                entry,
                &simt::LaunchConfig::linear(1, 64),
                params.as_ptr(),
                &simt::Options::default(),
            )
        }
        .unwrap_or_else(|fault| panic!("{fault}"));
    }
    assert_eq!((y, last, count), ([112.5, 114.5, 116.5], [116.5], [1]));
}

#[test]
fn a_kernel_may_have_any_name() {
    let mut count = [0u32];
    let out = Tracked::new(&mut count, "count");
    let pointer = out.as_ptr() as usize;
    let params = [std::ptr::from_ref(&pointer).cast::<c_void>()];
    for name in [invoke::NAME, parameters::NAME] {
        let entry = simt::registry::find(Some(FAMILY), name).unwrap();
        let config = simt::LaunchConfig::linear(1, 1);
        // SAFETY: one pointer to a value of the parameter's type.
        let launched = unsafe { simt::launch(entry, &config, params.as_ptr(), &simt::Options::default()) };
        launched.unwrap_or_else(|fault| panic!("{fault}"));
    }
    drop(out);
    assert_eq!(count, [2]);
}

/// `checked` and `kernel-types` are read from it, of which cargo knows only by the list of sources beside
/// this program.
#[test]
fn a_change_of_the_manifest_compiles_kernels_anew() {
    let sources = std::fs::read_to_string(std::env::current_exe().unwrap().with_extension("d")).unwrap();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").replace(' ', "\\ ");
    assert!(sources.contains(&manifest), "{manifest} in {sources}");
}

/// Two threads write the same element in turn; thread 0 leaves what it reads at last in `out[1]`.
///
/// # Safety
/// `out` has two elements, and `count` one.
#[kernel]
pub unsafe fn write_in_turn(out: &mut [u32], count: &mut u32) {
    let first = thread::thread_idx_x() == 0;
    if first {
        out[0] = 1;
        *count = 1;
    }
    thread::sync_threads();
    if !first {
        out[0] = 2;
        *count = 2;
    }
    thread::sync_threads();
    if first {
        out[1] = out[0] * 10 + *count;
    }
}

/// An exclusive reference would let the compiler keep what thread 0 wrote in a register.
#[test]
fn what_another_thread_wrote_is_seen() {
    let (mut out, mut count) = ([0u32; 2], [0u32]);
    let (tracked, tracked_count) = (Tracked::new(&mut out, "out"), Tracked::new(&mut count, "count"));
    let (pointer, len) = (tracked.as_ptr() as usize, 2usize);
    let count_pointer = tracked_count.as_ptr() as usize;
    let at = |value: &usize| std::ptr::from_ref(value).cast::<c_void>();
    let params = [at(&pointer), at(&len), at(&count_pointer)];
    let entry = simt::registry::find(Some(FAMILY), "write_in_turn").unwrap();
    let config = simt::LaunchConfig::linear(1, 2);
    // SAFETY: three pointers to values of the parameters' types.
    let launched = unsafe { simt::launch(entry, &config, params.as_ptr(), &simt::Options::default()) };
    launched.unwrap_or_else(|fault| panic!("{fault}"));
    drop((tracked, tracked_count));
    assert_eq!(out, [2, 22]);
}

/// Data that borrows from other data on the device.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Scene<'a> {
    heights: &'a [f32; 4],
    scale: f32,
}

/// Takes types with lifetimes.
///
/// # Safety
/// Every pointer is valid, and one thread runs.
#[kernel]
pub unsafe fn lifetimes<'a>(scene: &Scene<'_>, copy: Scene<'a>, by: &'a [f32], last: &'a f32, out: *mut f32) {
    // SAFETY: the launch passes a valid pointer.
    unsafe { *out = scene.heights[1] * scene.scale + copy.heights[2] + by[by.len() - 1] + *last };
}

#[test]
fn types_with_lifetimes_are_arguments() {
    let heights = [1.0, 2.0, 3.0, 4.0];
    let scene = Scene { heights: &heights, scale: 10.0 };
    let (by, last, mut out) = ([5.0f32, 600.0], 7000.0f32, 0.0f32);
    let entry = simt::registry::find(Some(FAMILY), "lifetimes").expect("linked");
    let sizes: Vec<_> = entry.params.iter().map(|param| param.size).collect();
    assert_eq!(sizes, [8, 16, 8, 8, 8, 8]);
    let pointers = (&raw const scene, scene, by.as_ptr(), by.len(), &raw const last, &raw mut out);
    let parameters = [
        (&raw const pointers.0).cast::<c_void>(),
        (&raw const pointers.1).cast(),
        (&raw const pointers.2).cast(),
        (&raw const pointers.3).cast(),
        (&raw const pointers.4).cast(),
        (&raw const pointers.5).cast(),
    ];
    // SAFETY: a pointer for each parameter, to a value of its type.
    unsafe { (entry.invoke)(parameters.as_ptr()) };
    assert_eq!(out, 2.0 * 10.0 + 3.0 + 600.0 + 7000.0);
}
