//! Runs the kernels on the executor, under the checker and several thread schedules.

mod numbers;
mod threads;

use std::ffi::c_void;
use std::fmt::Debug;
use std::sync::atomic::AtomicU32;

use compat as _;
use cuda_std::atomic::{AtomicF32, AtomicF64};
use glam::{Mat3, Quat, Vec3};
use sha2::{Digest, Sha256};
use simt::memory::Tracked;
use simt::{Fault, FaultKind, LaunchConfig, Options};

/// The number of thread schedules for every kernel.
const SEEDS: u64 = 8;

/// The bytes of a kernel argument, as the launch passes it.
#[derive(Clone)]
struct Argument(Vec<u8>);

impl Argument {
    fn of<T: Copy>(value: T) -> Self {
        let bytes = std::ptr::from_ref(&value).cast::<u8>();
        // SAFETY: reads the bytes of a local; the arguments of these tests have no padding.
        Self(unsafe { std::slice::from_raw_parts(bytes, size_of::<T>()) }.to_vec())
    }
}

macro_rules! arguments {
    ($($value:expr),* $(,)?) => { [$(Argument::of($value)),*] };
}

fn launch(name: &str, config: LaunchConfig, seed: u64, arguments: &[Argument]) -> Result<(), Box<Fault>> {
    let entry = simt::registry::find(Some("compat"), name).unwrap();
    let sizes: Vec<usize> = arguments.iter().map(|a| a.0.len()).collect();
    let expected: Vec<usize> = entry.params.iter().map(|p| p.size).collect();
    assert_eq!(sizes, expected, "the test passes what {name} takes");
    let pointers: Vec<*const c_void> = arguments.iter().map(|a| a.0.as_ptr().cast()).collect();
    let options = Options { seed, check: true, ..Options::default() };
    // SAFETY: one pointer for each parameter, of its size, to values that the test keeps alive.
    unsafe { simt::launch(entry, &config, pointers.as_ptr(), &options) }.map(|_| ())
}

fn launch_ok(name: &str, config: LaunchConfig, seed: u64, arguments: &[Argument]) {
    if let Err(fault) = launch(name, config, seed, arguments) {
        panic!("{fault}");
    }
}

/// Elements on both sides of tracked memory. Without them a kernel's own heap may lie beside it, where the
/// checker takes an access for one that missed.
const MARGIN: usize = 4096;

/// The values with a margin on both sides.
fn with_margins<T: Copy>(values: &[T]) -> Vec<T> {
    let margin = vec![values[0]; MARGIN];
    [&margin, values, &margin].concat()
}

/// The `len` outputs of a kernel, which are the same under every schedule. `arguments` gets the address of
/// the outputs, which begin as zeros.
fn outputs<T: Copy + Default + PartialEq + Debug>(
    name: &str,
    config: LaunchConfig,
    len: usize,
    arguments: impl Fn(*mut T) -> Vec<Argument>,
) -> Vec<T> {
    let run = |seed| {
        let mut out = with_margins(&vec![T::default(); len]);
        {
            let out = Tracked::new(&mut out[MARGIN..MARGIN + len], "out");
            launch_ok(name, config, seed, &arguments(out.as_ptr()));
        }
        out[MARGIN..MARGIN + len].to_vec()
    };
    let first = run(0);
    (1..SEEDS / 2).for_each(|seed| assert_eq!(run(seed), first, "{name}"));
    first
}

/// The outputs of a kernel of the form `(x: &[T], .., out: *mut U)`.
fn map<T: Copy, U: Copy + Default + PartialEq + Debug>(
    name: &str,
    config: LaunchConfig,
    x: &[T],
    between: &[Argument],
    len: usize,
) -> Vec<U> {
    let (mut padded, count) = (with_margins(x), x.len());
    let x = Tracked::new(&mut padded[MARGIN..MARGIN + count], "x");
    outputs(name, config, len, |out| {
        let ends = ([Argument::of(x.as_ptr()), Argument::of(count)], [Argument::of(out)]);
        ends.0.into_iter().chain(between.iter().cloned()).chain(ends.1).collect()
    })
}

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 37 + 11) % 101) as f32 / 8.0 - 6.0).collect()
}

#[test]
fn every_kernel_is_registered_once() {
    let mut names: Vec<_> =
        simt::registry::kernels().filter(|k| k.family == "compat").map(|k| k.name).collect();
    names.sort_unstable();
    let expected = [
        "angles_f32",
        "angles_f64",
        "areas",
        "assert_positive",
        "bessel_and_gamma_f64",
        "bitonic_sort",
        "black_scholes",
        "block_floats",
        "block_scan",
        "block_votes",
        "bodies",
        "butterfly_max",
        "by_value",
        "calls_gpu_only",
        "calls_helpers",
        "capability",
        "clocks",
        "compare_and_swap",
        "core_atomics",
        "count_first",
        "count_positive",
        "device_floats",
        "double_all",
        "error_functions_f32",
        "error_functions_f64",
        "extremes",
        "gelu",
        "gemm_naive",
        "gemm_tiled",
        "grid_stride",
        "half_products",
        "halves_and_nans",
        "hand_over",
        "hand_over_by_core",
        "histogram",
        "hyperbolic_f32",
        "hyperbolic_f64",
        "lane_places",
        "last_block_sums",
        "loads_and_stores",
        "logarithms_f32",
        "logarithms_f64",
        "machine",
        "mandelbrot",
        "most_frequent",
        "norms",
        "nv_directions",
        "nv_fast",
        "nv_functions",
        "nv_integers",
        "nv_pointers",
        "orders",
        "place_1d",
        "place_2d",
        "place_3d",
        "place_any",
        "place_axes",
        "place_vectors",
        "powers_f32",
        "powers_f64",
        "print_formats",
        "print_lines",
        "print_long",
        "refuse_zeros",
        "reverse_array",
        "reverse_dynamic",
        "rotate",
        "rounded_f32",
        "rounded_f64",
        "sha256_each",
        "shift_down",
        "shuffle_types",
        "smem_sizes",
        "sort_rows",
        "spaces",
        "spin_lock",
        "squares_on_heap",
        "stencil",
        "sum_blocks",
        "sum_floats",
        "system_floats",
        "texts",
        "there_and_back",
        "transpose_tiles",
        "tree_sum",
        "turns_and_parts_f32",
        "vecadd",
        "warp_collectives",
        "warp_compact",
        "warp_matches",
        "warp_reductions",
        "warp_reverse",
        "warp_scan",
        "warp_sums",
        "warp_votes",
        "wide_random",
        "words_f32",
        "words_f64",
        "words_i32",
        "words_i64",
        "words_u32",
        "words_u64",
    ];
    assert_eq!(names, expected);
}

#[test]
fn vecadd_adds() {
    let (mut a, mut b) = (numbers(1000), numbers(1000));
    b.reverse();
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    for seed in 0..SEEDS {
        let mut c = vec![0.0f32; 1000];
        {
            let (a, b, c) = (Tracked::new(&mut a, "a"), Tracked::new(&mut b, "b"), Tracked::new(&mut c, "c"));
            let arguments = arguments![a.as_ptr(), 1000usize, b.as_ptr(), 1000usize, c.as_ptr()];
            launch_ok("vecadd", LaunchConfig::linear(8, 128), seed, &arguments);
        }
        assert_eq!(c, expected);
    }
}

#[test]
fn an_empty_slice_may_be_null() {
    let none = std::ptr::null_mut::<f32>();
    launch_ok("vecadd", LaunchConfig::linear(1, 32), 0, &arguments![none, 0usize, none, 0usize, none]);
}

#[test]
fn an_output_that_is_too_short_is_found() {
    let (mut a, mut b, mut c) = (numbers(100), numbers(100), vec![0.0f32; 90]);
    let (a, b, c) = (Tracked::new(&mut a, "a"), Tracked::new(&mut b, "b"), Tracked::new(&mut c, "c"));
    let arguments = arguments![a.as_ptr(), 100usize, b.as_ptr(), 100usize, c.as_ptr()];
    let fault = launch("vecadd", LaunchConfig::linear(1, 128), 0, &arguments).unwrap_err();
    assert_eq!(fault.kind, FaultKind::OutOfBounds, "{fault}");
    assert!(fault.to_string().contains("vecadd.rs"), "{fault}");
}

#[test]
fn a_rust_panic_is_a_fault() {
    let (mut a, mut b, mut c) = (numbers(100), numbers(50), vec![0.0f32; 100]);
    let (a, b, c) = (Tracked::new(&mut a, "a"), Tracked::new(&mut b, "b"), Tracked::new(&mut c, "c"));
    let arguments = arguments![a.as_ptr(), 100usize, b.as_ptr(), 50usize, c.as_ptr()];
    let fault = launch("vecadd", LaunchConfig::linear(1, 128), 0, &arguments).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Panic, "{fault}");
}

#[test]
fn gemms_multiply() {
    let (m, n, k) = (37usize, 29, 45);
    let (mut a, mut b, c0) = (numbers(m * k), numbers(k * n), numbers(m * n));
    let (alpha, beta) = (0.5f32, 2.0f32);
    let expected: Vec<f64> = (0..m * n)
        .map(|at| {
            let (row, col) = (at / n, at % n);
            let dot: f64 = (0..k).map(|i| a[row * k + i] as f64 * b[i * n + col] as f64).sum();
            alpha as f64 * dot + beta as f64 * c0[at] as f64
        })
        .collect();
    for (name, seed) in
        [("gemm_naive", 0), ("gemm_naive", 3)].into_iter().chain((0..SEEDS).map(|s| ("gemm_tiled", s)))
    {
        let mut c = c0.clone();
        {
            let (a, b, c) = (Tracked::new(&mut a, "a"), Tracked::new(&mut b, "b"), Tracked::new(&mut c, "c"));
            let arguments =
                arguments![a.as_ptr(), m * k, b.as_ptr(), k * n, c.as_ptr(), m, n, k, alpha, beta];
            let grid = [n.div_ceil(16) as u32, m.div_ceil(16) as u32, 1];
            launch_ok(
                name,
                LaunchConfig { grid, block: [16, 16, 1], ..LaunchConfig::default() },
                seed,
                &arguments,
            );
        }
        // 45 products of at most 49 each. The error of an f32 sum is below this.
        let worst = c.iter().zip(&expected).map(|(&c, e)| (c as f64 - e).abs()).fold(0.0, f64::max);
        assert!(worst < 2e-3, "{name}: off by {worst}");
    }
}

#[test]
fn float_atomics_sum() {
    // Sums of multiples of 1/8 below 2^20 are exact in any order.
    let mut values = numbers(500);
    let sum: f32 = values.iter().sum();
    for seed in 0..SEEDS {
        let (mut single, mut double) = ([AtomicF32::new(1.0)], [AtomicF64::new(-1.0)]);
        {
            let values = Tracked::new(&mut values, "values");
            let (single, double) = (Tracked::new(&mut single, "single"), Tracked::new(&mut double, "double"));
            let arguments = arguments![values.as_ptr(), 500usize, single.as_ptr(), double.as_ptr()];
            launch_ok("sum_floats", LaunchConfig::linear(4, 128), seed, &arguments);
        }
        assert_eq!(single.map(AtomicF32::into_inner), [sum + 1.0]);
        assert_eq!(double.map(AtomicF64::into_inner), [sum as f64 - 1.0]);
    }
}

#[test]
fn block_atomics_sum_each_block() {
    let mut values = numbers(500);
    let expected: Vec<f32> = values.chunks(128).map(|block| block.iter().sum()).collect();
    for seed in 0..SEEDS {
        let mut sums = vec![0.0f32; 4];
        {
            let (values, sums) = (Tracked::new(&mut values, "values"), Tracked::new(&mut sums, "sums"));
            let arguments = arguments![values.as_ptr(), 500usize, sums.as_ptr()];
            launch_ok("sum_blocks", LaunchConfig::linear(4, 128), seed, &arguments);
        }
        assert_eq!(sums, expected);
    }
}

#[test]
fn integer_atomics_count() {
    let mut values: Vec<u32> = (0..300).map(|i| i * i % 97).collect();
    let mut expected = [0u32; 16];
    values.iter().for_each(|v| expected[*v as usize % 16] += 1);
    for seed in 0..SEEDS {
        let mut counts: Vec<AtomicU32> = (0..16).map(|_| AtomicU32::new(0)).collect();
        let mut largest = [0u32];
        let top = values.iter().copied().max();
        {
            let (values, largest) =
                (Tracked::new(&mut values, "values"), Tracked::new(&mut largest, "largest"));
            let counts = Tracked::new(&mut counts, "counts");
            let arguments = arguments![values.as_ptr(), 300usize, counts.as_ptr(), 16usize, largest.as_ptr()];
            launch_ok("histogram", LaunchConfig::linear(3, 128), seed, &arguments);
        }
        let counts: Vec<u32> = counts.into_iter().map(AtomicU32::into_inner).collect();
        assert_eq!(counts, expected);
        assert_eq!(Some(largest[0]), top);
    }
}

#[test]
fn crates_from_the_registry_work() {
    const LEN: usize = 75;
    let mut messages: Vec<u8> = (0..6 * LEN).map(|i| (i * 7) as u8).collect();
    let expected: Vec<[u8; 32]> = messages.chunks(LEN).map(|m| Sha256::digest(m).into()).collect();
    let mut digests = vec![[0u8; 32]; 6];
    {
        let (messages, digests) =
            (Tracked::new(&mut messages, "messages"), Tracked::new(&mut digests, "digests"));
        let arguments = arguments![messages.as_ptr(), 6 * LEN, LEN, digests.as_ptr()];
        launch_ok("sha256_each", LaunchConfig::linear(1, 8), 1, &arguments);
    }
    assert_eq!(digests, expected);

    let (axis, angle) = (Vec3::new(1.0, 2.0, 3.0), 0.7f32);
    let mut scale = [Mat3::from_diagonal(Vec3::new(2.0, 0.5, -1.0))];
    let mut points: Vec<Vec3> = (0..40).map(|i| Vec3::new(i as f32, 1.0, -0.5 * i as f32)).collect();
    let turn = Quat::from_axis_angle(axis.normalize(), angle);
    let expected: Vec<Vec3> = points.iter().map(|&p| scale[0] * (turn * p)).collect();
    {
        let (points, scale) = (Tracked::new(&mut points, "points"), Tracked::new(&mut scale, "scale"));
        let arguments = arguments![points.as_ptr(), 40usize, axis, angle, scale.as_ptr()];
        launch_ok("rotate", LaunchConfig::linear(2, 32), 1, &arguments);
    }
    assert_eq!(points, expected);
}

#[test]
fn float_functions_agree_with_std() {
    let mut x: Vec<f32> = (-40..40).map(|i| i as f32 / 8.0).collect();
    let mut y = vec![0.0f32; x.len()];
    let expected: Vec<f64> = x
        .iter()
        .map(|&x| x as f64)
        .map(|x| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()))
        .collect();
    {
        let len = x.len();
        let (x, y) = (Tracked::new(&mut x, "x"), Tracked::new(&mut y, "y"));
        launch_ok("gelu", LaunchConfig::linear(1, 96), 1, &arguments![x.as_ptr(), len, y.as_ptr()]);
    }
    for (got, want) in y.iter().zip(&expected) {
        assert!((*got as f64 - want).abs() < 1e-6, "{got} for {want}");
    }

    let mut x: Vec<f64> = (-20..20).map(|i| i as f64 * 0.37 + 0.01).collect();
    let mut y = vec![[0.0f64; 8]; x.len()];
    let expected: Vec<[f64; 8]> = x
        .iter()
        .map(|&v| {
            let sqrt = v.abs().sqrt();
            [sqrt, v.floor(), v.round(), v.mul_add(2.0, 1.0), 1.0, v.abs(), v.rem_euclid(3.0), v.atan2(1.0)]
        })
        .collect();
    {
        let len = x.len();
        let (x, y) = (Tracked::new(&mut x, "x"), Tracked::new(&mut y, "y"));
        launch_ok("norms", LaunchConfig::linear(1, 64), 1, &arguments![x.as_ptr(), len, y.as_ptr()]);
    }
    for (got, want) in y.iter().flatten().zip(expected.iter().flatten()) {
        assert!((got - want).abs() <= 4.0 * f64::EPSILON * want.abs().max(1.0), "{got} for {want}");
    }
}

#[test]
fn printing_and_assertions() {
    let mut values = numbers(3);
    let values = Tracked::new(&mut values, "values");
    launch_ok("print_lines", LaunchConfig::linear(1, 4), 0, &arguments![values.as_ptr(), 3usize]);
    launch_ok("print_long", LaunchConfig::linear(1, 2), 0, &arguments![600u32]);

    let mut good = [1u32, 2, 3];
    let good = Tracked::new(&mut good, "good");
    launch_ok("refuse_zeros", LaunchConfig::linear(1, 4), 0, &arguments![good.as_ptr(), 3usize]);
    let mut bad = [1u32, 0, 3];
    let bad = Tracked::new(&mut bad, "bad");
    let fault =
        launch("refuse_zeros", LaunchConfig::linear(1, 4), 0, &arguments![bad.as_ptr(), 3usize]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap, "{fault}");
    assert!(fault.to_string().contains("printing.rs"), "{fault}");
}

#[test]
fn shared_scalars_and_flags() {
    let mut values: Vec<i32> = (0..600).map(|i| (i * 13 % 7) - 3).collect();
    let expected: Vec<u32> =
        values.chunks(256).map(|block| block.iter().filter(|v| **v > 0).count() as u32).collect();
    for seed in 0..SEEDS {
        let mut counts = vec![0u32; 3];
        {
            let (values, counts) = (Tracked::new(&mut values, "values"), Tracked::new(&mut counts, "counts"));
            let arguments = arguments![values.as_ptr(), 600usize, counts.as_ptr()];
            launch_ok("count_positive", LaunchConfig::linear(3, 256), seed, &arguments);
        }
        assert_eq!(counts, expected);
    }
}

#[test]
fn shared_arrays_reverse() {
    let expected: Vec<i32> = (0..50).rev().collect();
    for seed in 0..SEEDS {
        let mut d: Vec<i32> = (0..50).collect();
        {
            let d = Tracked::new(&mut d, "d");
            launch_ok("reverse_array", LaunchConfig::linear(1, 64), seed, &arguments![d.as_ptr(), 50usize]);
        }
        assert_eq!(d, expected);

        let mut wide: Vec<u64> = (0..96).collect();
        {
            let d = Tracked::new(&mut wide, "d");
            let config = LaunchConfig::linear(1, 96).shared(96 * size_of::<u64>() as u32);
            launch_ok("reverse_dynamic", config, seed, &arguments![d.as_ptr()]);
        }
        assert!(wide.iter().copied().eq((0..96).rev()));
    }
}

#[test]
fn dynamic_shared_memory_that_is_too_small_is_found() {
    let mut wide: Vec<u64> = (0..96).collect();
    let d = Tracked::new(&mut wide, "d");
    let config = LaunchConfig::linear(1, 96).shared(95 * size_of::<u64>() as u32);
    let fault = launch("reverse_dynamic", config, 0, &arguments![d.as_ptr()]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::OutOfBounds, "{fault}");
}

#[test]
fn shuffles_sum_each_warp() {
    let mut values = numbers(150);
    let expected: Vec<f32> = values.chunks(32).map(|warp| warp.iter().sum()).chain([0.0]).collect();
    for seed in 0..SEEDS {
        let mut sums = vec![9.0f32; 6];
        {
            let (values, sums) = (Tracked::new(&mut values, "values"), Tracked::new(&mut sums, "sums"));
            let arguments = arguments![values.as_ptr(), 150usize, sums.as_ptr()];
            launch_ok("warp_sums", LaunchConfig::linear(3, 64), seed, &arguments);
        }
        assert_eq!(sums, expected);
    }
}

#[test]
fn collectives_do_what_the_manual_says() {
    let mut input: Vec<u32> = (0..32).map(|i| i * 29 % 50).collect();
    let v = input.clone();
    let expected: Vec<[u64; 10]> = (0..32usize)
        .map(|lane| {
            let up_in = lane % 16 >= 3;
            let up = v[if up_in { lane - 3 } else { lane }] as u64 | 1 << 40;
            let mask_of = |test: &dyn Fn(u32) -> bool| {
                v.iter().enumerate().fold(0u64, |mask, (lane, &v)| mask | (test(v) as u64) << lane)
            };
            [
                up,
                up_in as u64,
                v[lane ^ 5] as u64,
                v[lane / 8 * 8 + 2] as u64,
                v.iter().sum::<u32>() as u64,
                v.iter().map(|&v| -(v as i32)).min().unwrap() as u64,
                mask_of(&|v| v % 3 == 0),
                2,
                mask_of(&|other| other % 4 == v[lane] % 4),
                v.iter().filter(|v| **v % 2 == 1).count() as u64 * 4,
            ]
        })
        .collect();
    for seed in 0..SEEDS {
        let mut out = vec![[0u64; 10]; 32];
        {
            let (input, out) = (Tracked::new(&mut input, "input"), Tracked::new(&mut out, "out"));
            let arguments = arguments![input.as_ptr(), 32usize, out.as_ptr()];
            launch_ok("warp_collectives", LaunchConfig::linear(1, 32), seed, &arguments);
        }
        assert_eq!(out, expected);
    }
}
