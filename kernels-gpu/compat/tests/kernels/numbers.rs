//! Floats, intrinsics, the system's functions, and ordinary programs.

use cuda_std::{FloatExt, bf16, f16};
use glam::Vec3;
use simt::memory::Tracked;
use simt::{FaultKind, LaunchConfig};
use testkit::tolerance::{INTRINSIC_F32, INTRINSIC_F64, INTRINSIC_FAST, INTRINSIC_SPECIAL_F64, Row};

use super::{Argument, launch, launch_ok, map, outputs};

const ONE_BLOCK: LaunchConfig = LaunchConfig { block: [64, 1, 1], ..LAUNCH };
const LAUNCH: LaunchConfig = LaunchConfig {
    grid: [1; 3],
    block: [1; 3],
    cluster: [1; 3],
    dynamic_shared: 0,
    cooperative: false,
    overlapping: false,
};

fn assert_close(name: &str, got: &[f64], want: &[f64], row: &Row) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let close =
            (got - want).abs() <= row.tolerance().allowed(want.abs()) || (got.is_nan() && want.is_nan());
        assert!(close, "{name}, result {i}: {got:e}, wanted {want:e} ({})", row.name);
    }
}

/// Runs a kernel of numbers in both widths, and compares with the oracle in f64: kernels' names, results for
/// each number, a second argument or none, the oracle.
macro_rules! both {
    ($single:literal $double:literal $count:literal, $x:expr, $between:expr, $oracle:expr;) => {
        let x: Vec<f64> = $x;
        let narrow: Vec<f32> = x.iter().map(|x| *x as f32).collect();
        let between: Option<f64> = $between;
        let arguments = |wide| -> Vec<Argument> {
            between.iter().map(|y| if wide { Argument::of(*y) } else { Argument::of(*y as f32) }).collect()
        };
        let wide = map::<_, [f64; $count]>($double, ONE_BLOCK, &x, &arguments(true), x.len());
        let slim = map::<_, [f32; $count]>($single, ONE_BLOCK, &narrow, &arguments(false), x.len());
        for ((x, wide), slim) in x.iter().zip(wide).zip(slim) {
            let want: [f64; $count] = $oracle(*x);
            assert_close($double, &wide, &want, &INTRINSIC_F64);
            assert_close($single, &slim.map(f64::from), &want, &INTRINSIC_F32);
        }
    };
}

/// Numbers that f32 has, from `a` on.
fn from(a: f64, step: f64) -> Vec<f64> {
    (0..60).map(|i| a + f64::from(i) * step).collect()
}

#[test]
fn float_methods() {
    both! { "rounded_f32" "rounded_f64" 10, from(-7.25, 0.25), Some(1.5), |x: f64| {
        [x.floor(), x.ceil(), x.round(), x.trunc(), x.fract(), x.abs(), x.signum(), x.copysign(1.5), x.div_euclid(1.5), x.rem_euclid(1.5)]
    }; }
    both! { "powers_f32" "powers_f64" 10, from(0.25, 0.125), Some(2.5), |x: f64| {
        [x.mul_add(2.5, x), x.powi(3), x.powf(2.5), x.sqrt(), x.exp(), x.exp2(), x.cbrt(), x.hypot(2.5), x.exp_m1(), x.ln() / 2.5f64.ln()]
    }; }
    both! { "logarithms_f32" "logarithms_f64" 4, from(0.25, 0.125), None, |x: f64| {
        [x.ln(), x.log2(), x.log10(), x.ln_1p()]
    }; }
    both! { "angles_f32" "angles_f64" 9, from(-0.9375, 0.03125), Some(2.0), |x: f64| {
        [x.sin(), x.cos(), x.tan(), x.asin(), x.acos(), x.atan(), x.atan2(2.0), x.sin(), x.cos()]
    }; }
    both! { "hyperbolic_f32" "hyperbolic_f64" 6, from(0.5, 0.0078125), None, |x: f64| {
        // The inverse of a rounded value: rounding counts once for each part of the slope.
        [x.sinh(), x.cosh(), x.tanh(), x.asinh(), x, x.atanh()]
    }; }
}

#[test]
fn special_functions() {
    let x: Vec<f64> = (1..50).map(|i| f64::from(i) / 64.0).collect();
    let narrow: Vec<f32> = x.iter().map(|x| *x as f32).collect();
    let wide = map::<_, [f64; 6]>("error_functions_f64", ONE_BLOCK, &x, &[], x.len());
    let slim = map::<_, [f32; 6]>("error_functions_f32", ONE_BLOCK, &narrow, &[], x.len());
    for ((x, wide), slim) in x.iter().zip(&wide).zip(slim) {
        let [erf, erfc, scaled, inverse, normal, quantile] = *wide;
        let back =
            [1.0 - erf, scaled * (-x * x).exp(), inverse.complementary_error_function(), quantile.norm_cdf()];
        assert_close("error functions", &back, &[erfc, erfc, *x, *x], &INTRINSIC_SPECIAL_F64);
        assert_close(
            "normal",
            &[normal],
            &[1.0 - 0.5 * (x / 2f64.sqrt()).complementary_error_function()],
            &INTRINSIC_SPECIAL_F64,
        );
        assert_close("error functions f32", &slim.map(f64::from), wide, &INTRINSIC_F32);
    }

    let parts = map::<_, [f32; 10]>("turns_and_parts_f32", ONE_BLOCK, &[0.25f32, -0.75, 3.0], &[], 3);
    let root = 0.5f64.sqrt();
    let (first, second) = (parts[0].map(f64::from), parts[1].map(f64::from));
    assert_close(
        "turns",
        &first,
        &[root, root, root, root, 0.25, 0.125, 1.25f64.ln(), 1.0 / 0.25f64.cbrt(), 0.25, 0.5],
        &INTRINSIC_F32,
    );
    let turns = [-root, -root, -root, -root];
    let others = [-0.75, -0.375, 0.25f64.ln(), 1.0 / (-0.75f64).cbrt(), 0.0, -0.75];
    assert_close("turns", &second, &[&turns[..], &others].concat(), &INTRINSIC_F32);
    assert_eq!((parts[2][1], parts[2][8]), (-1.0, 1.0));

    let got = map::<_, [f64; 8]>("bessel_and_gamma_f64", ONE_BLOCK, &[1.0f64, 2.0], &[], 2);
    // DLMF chapters 5 and 10.
    let want = [
        0.765_197_686_557_966_6,
        0.440_050_585_744_933_5,
        0.114_903_484_931_900_5,
        0.088_256_964_215_676_96,
        -0.781_212_821_300_288_7,
        -1.650_682_606_816_254,
        1.0,
        0.0,
    ];
    assert_close("Bessel", &got[0], &want, &INTRINSIC_SPECIAL_F64);
}

#[test]
fn numbers_in_programs() {
    let (mut a, mut b): (Vec<f16>, Vec<bf16>) =
        (0..40).map(|i| (f16::from_f32(i as f32), bf16::from_f32(i as f32 * 0.25))).unzip();
    let products: Vec<f32> = (0..40).map(|i| (i * i) as f32 * 0.25 + 0.5).collect();
    let (a, b) = (Tracked::new(&mut a, "a"), Tracked::new(&mut b, "b"));
    let got = outputs::<f32>("half_products", ONE_BLOCK, 40, |out| {
        vec![
            Argument::of(a.as_ptr()),
            Argument::of(40usize),
            Argument::of(b.as_ptr()),
            Argument::of(40usize),
            Argument::of(out),
        ]
    });
    assert_eq!(got, products);

    let config = LaunchConfig { grid: [3, 2, 1], block: [8, 8, 1], ..LAUNCH };
    let got = outputs::<u32>("mandelbrot", config, 20 * 12, |out| {
        vec![Argument::of(20u32), Argument::of(12u32), Argument::of(50u32), Argument::of(out)]
    });
    // The origin stays, the corner leaves at once.
    let at =
        |re: f32, im: f32| got[((im + 1.0) * 6.0) as usize * 20 + ((re + 2.0) / 3.0 * 20.0).round() as usize];
    assert_eq!((at(-0.05, 0.0), at(-2.0, -1.0)), (50, 1));

    let market = [100.0, 0.05, 0.2, 1.0].map(Argument::of::<f64>);
    let prices = map::<_, f64>("black_scholes", ONE_BLOCK, &[100.0f64, 110.0], &market, 2);
    // The textbook's example, to its four digits behind the point.
    assert!((prices[0] - 10.4506).abs() < 5e-5, "{prices:?}");
    // More by almost the difference of the spots.
    assert!(prices[1] - prices[0] > 6.0 && prices[1] - prices[0] < 10.0, "{prices:?}");
}

#[test]
fn intrinsics_in_kernels() {
    let x: Vec<f64> = (1..40).map(|i| f64::from(i) * 0.37 + 0.1).collect();
    let got = map::<_, [f64; 16]>("nv_directions", ONE_BLOCK, &x, &[Argument::of(3.0f64)], x.len());
    for (x, r) in x.iter().zip(&got) {
        for [down, nearest, up, zero] in
            [[r[0], r[1], r[2], r[3]], [r[4], r[5], r[6], r[7]], [r[8], r[9], r[10], r[11]]]
        {
            assert!(down <= nearest && nearest <= up && zero == down, "{r:?}");
        }
        assert!((r[0] == x / 3.0 || r[2] == x / 3.0) && r[2] - r[0] <= x * f64::EPSILON, "{r:?}");
        let single = *x as f32;
        assert!(
            r[12].powi(2) <= f64::from(single) && r[13] * f64::from(single) >= 1.0 && r[14] <= *x,
            "{r:?}"
        );
        assert!(r[15] >= (x * 1e12).floor() && r[15] <= x * 1e12 * (1.0 + 2e-7), "{r:?}");
    }

    let x = [0i32, 1, -1, 77, -4096, 0x1234_5678];
    let y = 1000;
    let want = x.map(|v| {
        [
            v.wrapping_abs(),
            v.reverse_bits(),
            (v & 0xffff) | y << 16,
            v.leading_zeros() as i32,
            if v == 0 { 0 } else { v.trailing_zeros() as i32 + 1 },
            v.count_ones() as i32,
            ((i64::from(v) + i64::from(y)) >> 1) as i32,
            ((i64::from(v) + i64::from(y) + 1) >> 1) as i32,
            (v << 8 >> 8).wrapping_mul(y),
            ((i64::from(v) * i64::from(y)) >> 32) as i32,
            ((v as u32 as u64 * y as u64) >> 32) as i32,
            v.abs_diff(y) as i32 + 1,
            v.max(y),
            (v as u32).min(y as u32) as i32,
            v & 0x3fff_ffff,
            (f64::from(v >> 8) * 0.5).round_ties_even() as i32,
        ]
    });
    assert_eq!(map::<_, [i32; 16]>("nv_integers", ONE_BLOCK, &x, &[Argument::of(y)], x.len()), want);

    let mut x = [0.5f64, 2.75, -3.25];
    let (mut whole, x_values) = ([0i32; 3], x);
    let got = {
        let (x, whole) = (Tracked::new(&mut x, "x"), Tracked::new(&mut whole, "whole"));
        outputs::<[f64; 6]>("nv_pointers", ONE_BLOCK, 3, |out| {
            vec![
                Argument::of(x.as_ptr()),
                Argument::of(3usize),
                Argument::of(out),
                Argument::of(whole.as_ptr()),
            ]
        })
    };
    assert_eq!(whole, [1, 4, -4]);
    for (x, got) in x_values.iter().zip(&got) {
        let turn = [(x * std::f64::consts::PI).sin(), (x * std::f64::consts::PI).cos()];
        let nearest = x - 0.75 * (x / 0.75).round();
        assert_eq!([got[0], got[1], got[2], got[5]], [*x, x.fract(), x.trunc(), nearest]);
        assert!((got[3] - turn[0]).abs() < 1e-7 && (got[4] - turn[1]).abs() < 1e-7, "{got:?}");
    }

    let x: Vec<f64> = (1..40).map(|i| f64::from(i) * 0.125).collect();
    for (x, got) in x.iter().zip(map::<_, [f64; 8]>("nv_functions", ONE_BLOCK, &x, &[], x.len())) {
        let want = [
            x.sqrt(),
            1.0 / x.sqrt(),
            x * 0.25,
            *x,
            f64::from((x * x) as f32).recip(),
            (x * 1e9) % 7.0,
            0.5,
            x.next_down(),
        ];
        let row = [
            &INTRINSIC_F64,
            &INTRINSIC_F64,
            &INTRINSIC_SPECIAL_F64,
            &INTRINSIC_SPECIAL_F64,
            &INTRINSIC_F32,
            &INTRINSIC_F64,
            &INTRINSIC_F64,
            &INTRINSIC_F64,
        ];
        (0..8).for_each(|i| assert_close("nv_functions", &got[i..=i], &want[i..=i], row[i]));
    }
    let narrow: Vec<f32> = x.iter().map(|x| *x as f32).collect();
    for (x, got) in x.iter().zip(map::<_, [f32; 8]>("nv_fast", ONE_BLOCK, &narrow, &[], x.len())) {
        let want = [x.exp(), x.ln(), x.log10(), x * x, x / 3.0, x.sin(), x.cos(), (x * 0.25).tan()];
        // An exponent of up to 8, whose rounding counts as often.
        let row = Row {
            one_term: testkit::Tolerance {
                relative: 8.0 * INTRINSIC_FAST.one_term.relative,
                ..INTRINSIC_FAST.one_term
            },
            ..INTRINSIC_FAST
        };
        assert_close("nv_fast", &got.map(f64::from), &want, &row);
    }
}

#[test]
fn the_system() {
    let printed = map::<_, i32>("print_formats", LaunchConfig::linear(1, 4), &[0.5f64, -2.0, 1e3], &[], 3);
    assert_eq!(printed, [3; 3]);
    let run = |values: &mut [i32]| {
        let count = values.len();
        let values = Tracked::new(values, "values");
        launch("assert_positive", ONE_BLOCK, 0, &[Argument::of(values.as_ptr()), Argument::of(count)])
    };
    run(&mut [1, 2, 3]).unwrap();
    let fault = run(&mut [1, -2, 3]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Trap);
    let report = fault.to_string();
    for part in ["system.rs:", "assert_positive", "values[i] >= 0"] {
        assert!(report.contains(part), "{report}");
    }

    let spaces = outputs::<[bool; 4]>("spaces", LaunchConfig::linear(1, 1), 2, |out| {
        vec![Argument::of(out.wrapping_add(1)), Argument::of(out)]
    });
    assert_eq!(spaces[0], [true, false, true, false]);
    let there: Vec<u32> = (0..32).map(|i| 7 * i).collect();
    assert_eq!(
        outputs::<u32>("there_and_back", LaunchConfig::linear(1, 32), 32, |out| vec![Argument::of(out)]),
        there
    );
    // The host counts as the latest architecture, and names no features.
    assert_eq!(
        outputs::<[u32; 2]>("capability", LaunchConfig::linear(1, 1), 1, |out| vec![Argument::of(out)]),
        [[1, 0]]
    );

    let mut times = [[0u64; 2]; 32];
    {
        let times = Tracked::new(&mut times, "times");
        launch_ok("clocks", LaunchConfig::linear(1, 32), 0, &[Argument::of(times.as_ptr())]);
    }
    assert!(
        times.iter().all(|[start, end]| start <= end) && times.iter().any(|[start, end]| start < end),
        "{times:?}"
    );
}

#[test]
fn ordinary_programs() {
    let values: Vec<u32> = (0..60).map(|i| i * 37 % 41).collect();
    let rows: Vec<u32> = values
        .chunks(6)
        .flat_map(|row| {
            let mut row = row.to_vec();
            row.sort_unstable();
            row
        })
        .collect();
    assert_eq!(
        map::<_, u32>("sort_rows", LaunchConfig::linear(1, 32), &values, &[Argument::of(6usize)], 60),
        rows
    );
    let sums: Vec<u64> = (0..40).map(|n| (0..n).map(|i| i * i).sum()).collect();
    let squares = |out| vec![Argument::of(out)];
    assert_eq!(outputs::<u64>("squares_on_heap", LaunchConfig::linear(1, 40), 40, squares), sums);
    let areas = map::<_, f32>("areas", LaunchConfig::linear(1, 4), &[2.0f32, 1.0, 3.0], &[], 3);
    assert_eq!(areas, [4.0, std::f32::consts::PI, 9.0]);
    let texts = outputs::<[u8; 8]>("texts", LaunchConfig::linear(1, 12), 12, |out| vec![Argument::of(out)]);
    assert_eq!((&texts[3], &texts[11]), (b"3-0d\0\0\0\x02", b"11-15\0\0\x02"));
    let frequent =
        map::<_, [u32; 2]>("most_frequent", LaunchConfig::linear(1, 2), &[3u32, 1, 4, 1, 5, 1, 3], &[], 1);
    assert_eq!(frequent, [[1, 3]]);
    let program = [1 << 8 | 3, 2 << 8 | 10, 1 << 8 | 1, 0, 1 << 8 | 100];
    let machine = map::<u32, i64>("machine", LaunchConfig::linear(1, 4), &program, &[], 4);
    assert_eq!(machine, [31, 41, 51, 61]);
    let random = outputs::<u64>("wide_random", LaunchConfig::linear(2, 32), 64, |out| {
        vec![Argument::of(9u64), Argument::of(out)]
    });
    let mixed = (0..64u64).map(|i| {
        (0..5).fold(9 + i, |x, _| {
            let wide = u128::from(x) * 0x9e37_79b9_7f4a_7c15;
            (wide >> 64) as u64 ^ wide as u64
        })
    });
    assert_eq!(random, mixed.map(|x| x % 1_000_003).collect::<Vec<_>>());

    let (mut values, mut camera) = ([1u32, 2, 3], [[1.0f32, 2.0, 3.0, 10.0]]);
    {
        let values = Tracked::new(&mut values, "values");
        launch_ok(
            "double_all",
            LaunchConfig::linear(1, 4),
            0,
            &[Argument::of(values.as_ptr()), Argument::of(3usize)],
        );
    }
    assert_eq!(values, [2, 4, 6]);
    let camera = Tracked::new(&mut camera, "camera");
    let places = outputs::<f32>("by_value", LaunchConfig::linear(1, 3), 3, |out| {
        vec![Argument::of([4.0f32, 5.0, 6.0, 0.5]), Argument::of(camera.as_ptr()), Argument::of(out)]
    });
    assert_eq!(places, [40.5, 51.0, 61.5]);

    let (mut positions, mut masses) = ([Vec3::ZERO, Vec3::X, -Vec3::X, Vec3::Y], [1.0f32, 2.0, 2.0, 4.0]);
    let (positions, masses) =
        (Tracked::new(&mut positions, "positions"), Tracked::new(&mut masses, "masses"));
    let forces = outputs::<Vec3>("bodies", LaunchConfig::linear(1, 8), 4, |out| {
        vec![
            Argument::of(positions.as_ptr()),
            Argument::of(4usize),
            Argument::of(masses.as_ptr()),
            Argument::of(4usize),
            Argument::of(out),
        ]
    });
    // The pull of both neighbours cancels; that of the third has its mass over the distance's square.
    assert!((forces[0] - Vec3::Y * (4.0 / 1.01f32.powf(1.5))).length() < 1e-6, "{forces:?}");
}

#[test]
fn conversions_and_extremes_are_those_of_the_formats() {
    let x = [0.0, -0.0, 1.0, 1.004, -3.7, 65504.0, 7e4, 1e-40, f32::MAX, f32::INFINITY, f32::NAN];
    let got = map::<_, [u32; 4]>("halves_and_nans", ONE_BLOCK, &x, &[], x.len());
    for (x, [half, pair, larger, smaller]) in x.into_iter().zip(got) {
        if x.is_nan() {
            assert_eq!([half, pair, larger, smaller], [0x7fff, 0x7fff_7fff, 0x7fff_ffff, 0x7fff_ffff]);
            continue;
        }
        assert_eq!(half, u32::from(bf16::from_f32(x).to_bits()), "{x}");
        let [low, high] = [x, -x].map(|x| u32::from(f16::from_f32(x).to_bits()));
        assert_eq!(pair, low | high << 16, "{x}");
        assert_eq!([larger, smaller].map(f32::from_bits), [x.max(1.0), x.min(1.0)], "{x}");
    }
}
