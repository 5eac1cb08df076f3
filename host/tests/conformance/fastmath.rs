//! Arithmetic in one instruction. Exact operations bit for bit, approximations within the errors that the PTX
//! ISA gives.

use conformance::fastmath::{
    fastmath_approximations, fastmath_approximations_bf16x2, fastmath_arithmetic, fastmath_bf16x2,
    fastmath_f16x2, fastmath_fma_f64,
};
use ironwarp::{LaunchConfig, Result, launch};
use num::Format;
use testkit::Random;

use crate::gpu::{Gpu, assert_same, assert_same_floats, floats};

const BLOCK: u32 = 128;
const N: usize = 2048;

fn config() -> LaunchConfig {
    LaunchConfig::linear(N, BLOCK)
}

/// The smaller of two numbers; -0 is below 0. If one is NaN, `nan_wins` says whether the result is NaN or the
/// number.
fn smaller(a: f32, b: f32, nan_wins: bool) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (false, false) if a == 0.0 && b == 0.0 => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        (false, false) => {
            if a < b {
                a
            } else {
                b
            }
        }
        _ if nan_wins => f32::NAN,
        (true, _) => b,
        (false, true) => a,
    }
}

fn larger(a: f32, b: f32, nan_wins: bool) -> f32 {
    -smaller(-a, -b, nan_wins)
}

#[test]
fn fma_min_max_and_quotient() -> Result<()> {
    let gpu = Gpu::open()?;
    let (a, mut b, c) = (floats(1, N), floats(2, N), floats(3, N));
    // Meet every pair of hard values, zeros of both signs among them.
    b[..32].rotate_left(1);
    b.rotate_right(7);
    let (da, db, dc, mut out) = (gpu.put(&a)?, gpu.put(&b)?, gpu.put(&c)?, gpu.zeros::<f32>(6 * N)?);
    // SAFETY: as many rows as the kernel writes.
    unsafe { launch::<fastmath_arithmetic>(&gpu.stream, config(), (&da, &db, &dc, &mut out))? };
    let got = gpu.get(&out)?;
    let row = |r: usize| &got[r * N..(r + 1) * N];
    let pairs = || a.iter().copied().zip(b.iter().copied());
    assert_same_floats("fma", row(0), pairs().zip(&c).map(|((a, b), &c)| a.mul_add(b, c)));
    assert_same_floats("min", row(1), pairs().map(|(a, b)| smaller(a, b, false)));
    assert_same_floats("max", row(2), pairs().map(|(a, b)| larger(a, b, false)));
    assert_same_floats("min NaN", row(3), pairs().map(|(a, b)| smaller(a, b, true)));
    assert_same_floats("max NaN", row(4), pairs().map(|(a, b)| larger(a, b, true)));
    for (i, (&got, (a, b))) in row(5).iter().zip(pairs()).enumerate() {
        let want = f64::from(a) / f64::from(b);
        let ordinary = |x: f64| (2f64.powi(-120)..=2f64.powi(120)).contains(&x.abs());
        if ordinary(f64::from(a)) && ordinary(f64::from(b)) && ordinary(want) {
            let error = (f64::from(got) - want).abs() / ulp(want);
            assert!(error <= 2.5, "div: element {i}, {a:e} / {b:e}: got {got:e}, {error} ulp off");
        }
    }
    Ok(())
}

/// One unit in the last place of an f32 of this size.
fn ulp(x: f64) -> f64 {
    2f64.powi(x.abs().log2().floor() as i32 - 23)
}

#[test]
fn fma_in_f64() -> Result<()> {
    let gpu = Gpu::open()?;
    let mut random = Random::new(4);
    let mut column = || (0..N).map(|_| random.normal()).collect::<Vec<f64>>();
    let (a, b) = (column(), column());
    // The sum cancels all but the rounding error of the product: zero unless fused.
    let c: Vec<f64> = a.iter().zip(&b).map(|(a, b)| -(a * b)).collect();
    let (da, db, dc, mut out) = (gpu.put(&a)?, gpu.put(&b)?, gpu.put(&c)?, gpu.zeros::<f64>(N)?);
    // SAFETY: an element for each input.
    unsafe { launch::<fastmath_fma_f64>(&gpu.stream, config(), (&da, &db, &dc, &mut out))? };
    let want: Vec<f64> = (0..N).map(|i| a[i].mul_add(b[i], c[i])).collect();
    assert!(want.iter().any(|&x| x != 0.0), "the data is to tell fused from not fused");
    assert_same("fma", &gpu.get(&out)?, want);
    Ok(())
}

/// The error bound of an approximation.
enum Bound {
    /// In units of the last place of the f32 result, half a unit for the rounding of the right result
    /// included.
    Ulp(f64),
    Relative(f64),
    Absolute(f64),
}

impl Bound {
    fn holds(&self, got: f64, want: f64) -> bool {
        let error = (got - want).abs();
        match self {
            Self::Ulp(units) => error <= units * ulp(want),
            // The bound holds before the result is rounded to f32.
            Self::Relative(bound) => error <= bound * want.abs() + 0.5 * ulp(want),
            Self::Absolute(bound) => error <= bound + 0.5 * ulp(want),
        }
    }
}

/// Uniform exponents from 2^low to 2^high, both signs where `signed`.
fn spread(seed: u64, low: f64, high: f64, signed: bool) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..N)
        .map(|_| {
            let magnitude = random.uniform(low, high).exp2();
            (if signed { magnitude * random.sign() } else { magnitude }) as f32
        })
        .collect()
}

/// Row of the kernel, inputs, function, bound.
type Case = (&'static str, usize, Vec<f32>, fn(f64) -> f64, Bound);

#[test]
fn approximations_keep_their_promise() -> Result<()> {
    let gpu = Gpu::open()?;
    let turn = std::f64::consts::TAU;
    let mut random = Random::new(20);
    let mut uniform =
        |low: f64, high: f64| (0..N).map(|_| random.uniform(low, high) as f32).collect::<Vec<f32>>();
    let cases: Vec<Case> = vec![
        ("ex2", 0, uniform(-126.0, 127.9), f64::exp2, Bound::Ulp(2.5)),
        ("lg2 far from 1", 1, spread(11, 1.0, 127.9, false), f64::log2, Bound::Relative(2f64.powi(-22))),
        ("lg2 near 1", 1, uniform(0.5, 2.0), f64::log2, Bound::Absolute(2f64.powi(-22))),
        ("rcp", 2, spread(12, -125.0, 125.0, true), f64::recip, Bound::Ulp(1.5)),
        (
            "rsqrt",
            3,
            spread(13, -126.0, 127.9, false),
            |x| x.sqrt().recip(),
            Bound::Relative((-22.9f64).exp2()),
        ),
        ("sqrt", 4, spread(14, -126.0, 127.9, false), f64::sqrt, Bound::Relative(2f64.powi(-23))),
        ("sin", 5, uniform(-turn, turn), f64::sin, Bound::Absolute((-20.5f64).exp2())),
        ("cos", 6, uniform(-turn, turn), f64::cos, Bound::Absolute((-20.5f64).exp2())),
        ("sin far", 5, uniform(-50.0 * turn, 50.0 * turn), f64::sin, Bound::Absolute((-14.7f64).exp2())),
        ("cos far", 6, uniform(-50.0 * turn, 50.0 * turn), f64::cos, Bound::Absolute((-14.7f64).exp2())),
        ("tanh", 7, spread(15, -20.0, 6.0, true), f64::tanh, Bound::Relative(2f64.powi(-11))),
    ];
    for (name, row, x, f, bound) in cases {
        let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<f32>(8 * N)?);
        // SAFETY: as many rows as the kernel writes.
        unsafe { launch::<fastmath_approximations>(&gpu.stream, config(), (&device_x, &mut out))? };
        for (&x, &got) in x.iter().zip(&gpu.get(&out)?[row * N..]) {
            let want = f(f64::from(x));
            assert!(bound.holds(f64::from(got), want), "{name}({x:e}): got {got:e}, want {want:e}");
        }
    }
    Ok(())
}

#[test]
fn approximations_of_special_values() -> Result<()> {
    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    let gpu = Gpu::open()?;
    let x = [0.0, -0.0, INF, -INF, NAN, -1.0, 1e-40, -1e-40];
    // Rows as the kernel writes them. Subnormal inputs count as zero, but for tanh, which returns them.
    let want: [[f32; 8]; 8] = [
        [1.0, 1.0, INF, 0.0, NAN, 0.5, 1.0, 1.0],
        [-INF, -INF, INF, NAN, NAN, NAN, -INF, -INF],
        [INF, -INF, 0.0, -0.0, NAN, -1.0, INF, -INF],
        [INF, -INF, 0.0, NAN, NAN, NAN, INF, -INF],
        [0.0, -0.0, INF, NAN, NAN, NAN, 0.0, -0.0],
        [0.0, -0.0, NAN, NAN, NAN, -0.84147098, 0.0, -0.0],
        [1.0, 1.0, NAN, NAN, NAN, 0.54030231, 1.0, 1.0],
        [0.0, -0.0, 1.0, -1.0, NAN, -0.761_594_2, 1e-40, -1e-40],
    ];
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<f32>(want.as_flattened().len())?);
    // SAFETY: as many rows as the kernel writes.
    unsafe {
        launch::<fastmath_approximations>(
            &gpu.stream,
            LaunchConfig::linear(x.len(), 32),
            (&device_x, &mut out),
        )?
    };
    let mut got = gpu.get(&out)?;
    // The result for -1 is an ordinary value, which the other test checks.
    for row in [0, 2, 5, 6, 7] {
        let at = 8 * row + 5;
        assert!((got[at] - want[row][5]).abs() < 1e-3);
        got[at] = want[row][5];
    }
    assert_same_floats(
        "ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh",
        &got,
        want.as_flattened().iter().copied(),
    );
    Ok(())
}

/// The nearest code, ties to even, by bisection over the format's numbers; infinity beyond the range.
fn round(format: Format, x: f64) -> u16 {
    if x.is_nan() {
        return format.nan_code() as u16;
    }
    let value = |code: u32| f64::from(format.decode(code));
    let sign = if x.is_sign_negative() { format.sign_bit() } else { 0 };
    let x = x.abs();
    // The code after the largest is infinity: for rounding it stands for the next power of two.
    let top = format.max_code();
    let step = value(top) - value(top - 1);
    if x >= value(top) + step / 2.0 {
        return (sign | (top + 1)) as u16;
    }
    let (mut low, mut high) = (0, top);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if value(middle) <= x { low = middle } else { high = middle }
    }
    let (below, above) = (x - value(low), value(high) - x);
    let up = above < below || (above == below && high & 1 == 0);
    (sign | if up { high } else { low }) as u16
}

/// Packed numbers of moderate size, for which f64 arithmetic is exact, and now and then a special value.
fn packed(format: Format, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    let mut code = || match random.integer(0, 40) {
        0 => round(format, 0.0),
        1 => round(format, -0.0),
        2 => round(format, f64::INFINITY),
        3 => format.nan_code() as u16,
        _ => round(format, random.uniform(-6.0, 6.0).exp2() * random.sign()),
    };
    (0..N).map(|_| u32::from(code()) | u32::from(code()) << 16).collect()
}

fn halves(format: Format, register: u32) -> [f64; 2] {
    [register & 0xffff, register >> 16].map(|code| f64::from(format.decode(code)))
}

/// Applies an exact function to both halves and rounds.
fn by_halves(format: Format, inputs: [&[u32]; 3], f: impl Fn(f64, f64, f64) -> f64) -> Vec<u32> {
    (0..N)
        .map(|i| {
            let [a, b, c] = inputs.map(|x| halves(format, x[i]));
            let [low, high] = [0, 1].map(|half| u32::from(round(format, f(a[half], b[half], c[half]))));
            low | high << 16
        })
        .collect()
}

fn check_packed(format: Format, got: &[u32], inputs: [&[u32]; 3]) {
    let min_max = |larger_wins: bool, nan_wins: bool| {
        move |a: f64, b: f64, _: f64| {
            let (a, b) = (a as f32, b as f32);
            f64::from(if larger_wins { larger(a, b, nan_wins) } else { smaller(a, b, nan_wins) })
        }
    };
    let row = |r: usize| &got[r * N..(r + 1) * N];
    assert_same("add", row(0), by_halves(format, inputs, |a, b, _| a + b));
    assert_same("sub", row(1), by_halves(format, inputs, |a, b, _| a - b));
    assert_same("mul", row(2), by_halves(format, inputs, |a, b, _| a * b));
    assert_same("fma", row(3), by_halves(format, inputs, |a, b, c| a * b + c));
    assert_same("min", row(4), by_halves(format, inputs, min_max(false, false)));
    assert_same("max", row(5), by_halves(format, inputs, min_max(true, false)));
    assert_same("max or NaN", row(6), by_halves(format, inputs, min_max(true, true)));
}

/// Checks packed values of an approximation against its bound; leaves out results below the normal range.
fn check_approximation(
    what: &str,
    format: Format,
    (x, got): (&[u32], &[u32]),
    f: impl Fn(f64) -> f64,
    within: impl Fn(f64) -> f64,
) {
    for (&x, &got) in x.iter().zip(got) {
        for (x, got) in halves(format, x).into_iter().zip(halves(format, got)) {
            let want = f(x);
            let fits = |x: f64| x.abs() > 2f64.powi(-14) && x.abs() < 2f64.powi(15);
            if x.is_nan() {
                assert!(got.is_nan(), "{what}({x}): got {got}");
            } else if fits(want) {
                assert!((got - want).abs() <= within(want), "{what}({x}): got {got}, want {want}");
            }
        }
    }
}

#[test]
fn packed_f16() -> Result<()> {
    let gpu = Gpu::open()?;
    let format = Format::F16;
    let (a, b, c) = (packed(format, 5), packed(format, 6), packed(format, 7));
    let (da, db, dc, mut out) = (gpu.put(&a)?, gpu.put(&b)?, gpu.put(&c)?, gpu.zeros::<u32>(9 * N)?);
    // SAFETY: as many rows as the kernel writes.
    unsafe { launch::<fastmath_f16x2>(&gpu.stream, config(), (&da, &db, &dc, &mut out))? };
    let got = gpu.get(&out)?;
    check_packed(format, &got, [&a, &b, &c]);
    let ex2 = (&a[..], &got[7 * N..8 * N]);
    check_approximation("ex2", format, ex2, f64::exp2, |want| want * (-9.9f64).exp2());
    check_approximation("tanh", format, (&a, &got[8 * N..]), f64::tanh, |_| (-10.987f64).exp2());
    Ok(())
}

#[test]
fn packed_bf16() -> Result<()> {
    let gpu = Gpu::open()?;
    let format = Format::BF16;
    let (a, b, c) = (packed(format, 8), packed(format, 9), packed(format, 10));
    let (da, db, dc, mut out) = (gpu.put(&a)?, gpu.put(&b)?, gpu.put(&c)?, gpu.zeros::<u32>(7 * N)?);
    // SAFETY: as many rows as the kernel writes.
    unsafe { launch::<fastmath_bf16x2>(&gpu.stream, config(), (&da, &db, &dc, &mut out))? };
    check_packed(format, &gpu.get(&out)?, [&a, &b, &c]);
    Ok(())
}

/// One rounding differs from two: products and sums that become ties if computed through f32.
#[test]
fn bf16_fma_rounds_once() -> Result<()> {
    let gpu = Gpu::open()?;
    let code = |x: f64| u32::from(round(Format::BF16, x));
    // a b c: ties, and values so near to a tie that only the last bit of an exact sum decides.
    let cases = [
        (1.0, 1.0 + 2f64.powi(-7), 2f64.powi(-8)),
        (1.0, 1.0 + 2f64.powi(-7), 2f64.powi(-8) + 2f64.powi(-15)),
        (1.5, 1.0 + 2f64.powi(-7), 2f64.powi(-60)),
        (1.5, 1.0 + 2f64.powi(-7), -(2f64.powi(-60))),
        (3.0, 1.0 + 2f64.powi(-6), 2f64.powi(-100)),
        (3.0, -1.0 - 2f64.powi(-6), 2f64.powi(-100)),
    ];
    let column =
        |f: fn(&(f64, f64, f64)) -> f64| cases.iter().map(|case| code(f(case))).collect::<Vec<u32>>();
    let (a, b, c) = (column(|c| c.0), column(|c| c.1), column(|c| c.2));
    let n = cases.len();
    let (da, db, dc, mut out) = (gpu.put(&a)?, gpu.put(&b)?, gpu.put(&c)?, gpu.zeros::<u32>(7 * n)?);
    // SAFETY: as many rows as the kernel writes.
    unsafe {
        launch::<fastmath_bf16x2>(&gpu.stream, LaunchConfig::linear(n, 32), (&da, &db, &dc, &mut out))?
    };
    // The addend is below the last bit of f64 in the last four cases: only its sign decides, and only at a
    // tie.
    let want: Vec<u32> = (0..n)
        .map(|i| {
            let [a, b, c] = [a[i], b[i], c[i]].map(|x| f64::from(Format::BF16.decode(x)));
            let product = a * b;
            let nudge =
                if c.abs() < 2f64.powi(-50) { c.signum() * product.abs() * 2f64.powi(-40) } else { c };
            code(product + nudge)
        })
        .collect();
    assert_same("fma", &gpu.get(&out)?[3 * n..4 * n], want);
    Ok(())
}

#[test]
fn approximations_in_bf16() -> Result<()> {
    let gpu = Gpu::open()?;
    if !gpu.has(9, 0) {
        return Ok(());
    }
    let format = Format::BF16;
    let x = packed(format, 12);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(2 * N)?);
    // SAFETY: as many rows as the kernel writes.
    unsafe { launch::<fastmath_approximations_bf16x2>(&gpu.stream, config(), (&device_x, &mut out))? };
    let got = gpu.get(&out)?;
    check_approximation("ex2", format, (&x, &got[..N]), f64::exp2, |want| want * 2f64.powi(-7));
    // The PTX ISA's 2^-8 is one unit of bf16 between 0.5 and 1. It counts from the nearest bf16, not from the
    // real number: for tanh(-0.74609375) = -0.6328127 an H200 gives -0.62890625, one unit from -0.6328125.
    let tanh = |x: f64| f64::from(format.decode(round(format, x.tanh()).into()));
    check_approximation("tanh", format, (&x, &got[N..]), tanh, |_| 2f64.powi(-8));
    Ok(())
}
