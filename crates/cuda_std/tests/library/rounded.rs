//! Arithmetic and conversions in a given direction, against exact integers and exact products.

use cuda_std::intrinsics as nv;

/// The four results of a function: down, to nearest, up, towards 0.
macro_rules! four {
    ($name:ident($($arg:expr),*)) => { pastey::paste! {
        // SAFETY: nothing is asked.
        unsafe {
            [nv::[<$name _rd>]($($arg),*), nv::[<$name _rn>]($($arg),*), nv::[<$name _ru>]($($arg),*), nv::[<$name _rz>]($($arg),*)]
        }
    } };
}

/// Checks the four results around an exact value, which `side` compares with a float: `Less` if it is below.
macro_rules! assert_around {
    ($name:literal, $results:expr, $side:expr) => {{
        let ([down, nearest, up, zero], side) = ($results, $side);
        use std::cmp::Ordering::{Equal, Greater, Less};
        let about = format!("{}: {down:e} {nearest:e} {up:e} {zero:e}", $name);
        if side(nearest) == Equal {
            assert!(down == nearest && up == nearest && zero == nearest, "{about}");
        } else {
            assert!(side(down) == Greater && side(up) == Less && up == down.next_up(), "{about}");
            assert!(nearest == down || nearest == up, "{about}");
            assert_eq!(zero, if down >= 0.0 { down } else { up }, "{about}");
        }
    }};
}

fn singles() -> impl Iterator<Item = f32> + Clone {
    (1..40u32)
        .map(|i| i.wrapping_mul(2_654_435_769) as f32 / (1 << (i % 20)) as f32)
        .flat_map(|x| [x, -x])
        .chain([1.0, -3.0])
}

#[test]
fn f32_arithmetic_goes_where_it_says() {
    for (x, y) in singles().flat_map(|x| singles().map(move |y| (x, y))) {
        let (a, b) = (f64::from(x), f64::from(y));
        // Sums of these numbers, which lie within 2^32 of each other, and their products are exact in f64.
        let exactly = |value: f64| move |r: f32| value.partial_cmp(&f64::from(r)).unwrap();
        assert_around!("fadd", four!(fadd(x, y)), exactly(a + b));
        assert_around!("fsub", four!(fsub(x, y)), exactly(a - b));
        assert_around!("fmul", four!(fmul(x, y)), exactly(a * b));
        let quotient = |r: f32| (a * b.signum()).partial_cmp(&(f64::from(r) * b.abs())).unwrap();
        assert_around!("fdiv", four!(fdiv(x, y)), quotient);
        assert_around!("frcp", four!(frcp(y)), |r: f32| b
            .signum()
            .partial_cmp(&(f64::from(r) * b.abs()))
            .unwrap());
        assert_around!("fsqrt", four!(fsqrt(x.abs())), |r: f32| a
            .abs()
            .partial_cmp(&f64::from(r).powi(2))
            .unwrap());
        // Exact in 128 bits: the numbers are whole after a factor.
        let whole = |x: f32| (f64::from(x) * (1u64 << 29) as f64) as i128;
        let (product, z) = (whole(x) * whole(y), y);
        let fused = |r: f32| (product + (whole(z) << 29)).cmp(&((f64::from(r) * 2f64.powi(58)) as i128));
        assert_around!("fmaf", four!(fmaf(x, y, z)), fused);
        assert_around!("double2float", four!(double2float(a * b)), exactly(a * b));
    }
}

#[test]
fn f64_arithmetic_goes_where_it_says() {
    let numbers = || (1..30u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12).chain([1, 3, 1 << 52]);
    for (x, y) in numbers().flat_map(|x| numbers().map(move |y| (x as i64, -(y as i64)))) {
        let (a, b, wide_x, wide_y) = (x as f64, y as f64, i128::from(x), i128::from(y));
        let exactly = |value: i128| move |r: f64| value.cmp(&(r as i128));
        // Sums fit; a factor brings bits behind the point.
        let shifted = 2f64.powi(-20);
        let sum = |r: f64| ((wide_x << 20) + wide_y).cmp(&((r * 2f64.powi(20)) as i128));
        assert_around!("dadd", four!(dadd(a, b * shifted)), sum);
        assert_around!("dmul", four!(dmul(a, b)), exactly(wide_x * wide_y));
        assert_around!("fma", four!(fma(a, b, 1.0)), exactly(wide_x * wide_y + 1));
        // 2^52 * q and its error as whole numbers: `q * y` beside `x`.
        let (quotients, roots) = (four!(ddiv(a, b)), four!(dsqrt(a)));
        assert!(quotients[0] <= quotients[1] && quotients[1] <= quotients[2] && quotients[3] == quotients[2]);
        for q in quotients {
            // SAFETY: nothing is asked.
            let rest = unsafe { [nv::fma_rd(q, b, -a), nv::fma_ru(q, b, -a)] };
            // `b` is negative: a quotient that is too low leaves a product that is too high.
            assert!(
                if q == quotients[0] { rest[1] >= 0.0 } else { rest[0] <= 0.0 },
                "{a} / {b}: {quotients:?}"
            );
        }
        assert!(roots[0].mul_add(roots[0], -a) <= 0.0 && roots[2].mul_add(roots[2], -a) >= 0.0, "{roots:?}");
        assert!(
            roots[0] == roots[3] && (roots[2] == roots[0] || roots[2] == roots[0].next_up()),
            "{roots:?}"
        );
        assert_around!("ll2double", four!(ll2double(x << 10 | 5)), exactly(wide_x << 10 | 5));
        assert_around!("ll2float", four!(ll2float(-x)), |r: f32| (-wide_x).cmp(&(r as i128)));
        assert_around!("ull2double", four!(ull2double(y)), exactly(i128::from(y as u64)));
        assert_around!("ull2float", four!(ull2float(y)), |r: f32| i128::from(y as u64).cmp(&(r as i128)));
        let word = (x >> 10) as i32;
        assert_around!("int2float", four!(int2float(word)), |r: f32| i128::from(word).cmp(&(r as i128)));
        assert_around!("uint2float", four!(uint2float(word)), |r: f32| i128::from(word as u32)
            .cmp(&(r as i128)));
    }
    let third = four!(drcp(3.0));
    assert_eq!(third, [1.0 / 3.0, 1.0 / 3.0, (1.0f64 / 3.0).next_up(), 1.0 / 3.0]);
}

#[test]
fn ends_of_the_range() {
    let (most, least) = (f32::MAX, f32::from_bits(1));
    assert_eq!(four!(fadd(most, most)), [most, f32::INFINITY, f32::INFINITY, most]);
    assert_eq!(four!(fmul(-most, most)), [f32::NEG_INFINITY, f32::NEG_INFINITY, -most, -most]);
    assert_eq!(four!(fmul(least, 0.25)), [0.0, 0.0, least, 0.0]);
    assert_eq!(four!(fmul(-least, 0.25)).map(f32::to_bits), [-least, -0.0, -0.0, -0.0].map(f32::to_bits));
    assert_eq!(four!(fdiv(1.0, 0.0)), [f32::INFINITY; 4]);
    assert_eq!(four!(frcp(-0.0)), [f32::NEG_INFINITY; 4]);
    assert_eq!(four!(fdiv(1.0, f32::INFINITY)), [0.0; 4]);
    assert_eq!(four!(fsub(2.5, 2.5)).map(f32::to_bits), [-0.0, 0.0, 0.0, 0.0f32].map(f32::to_bits));
    assert!(four!(fsqrt(-1.0)).iter().all(|root| root.is_nan()));
    assert_eq!(four!(fsqrt(-0.0)).map(f32::to_bits), [(-0.0f32).to_bits(); 4]);
    let (most, least) = (f64::MAX, f64::from_bits(1));
    assert_eq!(four!(fma(most, 2.0, -most)), [most; 4]);
    assert_eq!(four!(fma(most, most, most)), [most, f64::INFINITY, f64::INFINITY, most]);
    assert_eq!(four!(fma(least, least, 1.0)), [1.0, 1.0, 1f64.next_up(), 1.0]);
    assert_eq!(four!(fma(least, -least, 1.0)), [1f64.next_down(), 1.0, 1.0, 1f64.next_down()]);
    assert_eq!(four!(double2float(1e300)), [f32::MAX, f32::INFINITY, f32::INFINITY, f32::MAX]);
    // SAFETY: nothing is asked.
    assert_eq!(unsafe { [nv::frsqrt_rn(4.0), nv::frsqrt_rn(3.0)] }, [0.5, (1.0 / 3f64.sqrt()) as f32]);
}

#[test]
fn floats_to_integers() {
    for (x, [down, nearest, up, zero]) in [
        (2.5f32, [2, 2, 3, 2]),
        (-2.5, [-3, -2, -2, -2]),
        (3.5, [3, 4, 4, 3]),
        (-0.75, [-1, -1, 0, 0]),
        (7.0, [7; 4]),
    ] {
        let (wide, unsigned) = ([down, nearest, up, zero].map(i64::from), |v: i32| v.max(0));
        assert_eq!(four!(float2int(x)), [down, nearest, up, zero]);
        assert_eq!(four!(double2int(f64::from(x))), [down, nearest, up, zero]);
        assert_eq!(four!(float2ll(x)), wide);
        assert_eq!(four!(double2ll(f64::from(x))), wide);
        assert_eq!(four!(float2uint(x)), [down, nearest, up, zero].map(unsigned));
        assert_eq!(four!(double2uint(f64::from(x))), [down, nearest, up, zero].map(unsigned));
        assert_eq!(four!(float2ull(x)), wide.map(|v| v.max(0)));
        assert_eq!(four!(double2ull(f64::from(x))), wide.map(|v| v.max(0)));
    }
    assert_eq!(four!(float2int(1e20)), [i32::MAX; 4]);
    assert_eq!(four!(float2uint(4e9)), [4_000_000_000u32 as i32; 4]);
    assert_eq!(four!(double2ull(1.5e19)), [15_000_000_000_000_000_000u64 as i64; 4]);
    assert_eq!(four!(double2ll(f64::NAN)), [0; 4]);
}
