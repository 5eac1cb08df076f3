//! Special functions at values from tables, and by their own identities.

use std::f64::consts::{PI, SQRT_2};

use cuda_std::FloatExt;

fn close(got: f64, want: f64, relative: f64) {
    assert!((got - want).abs() <= relative * want.abs().max(1e-300), "{got:e} for {want:e}");
}

#[test]
fn half_turns_are_exact() {
    for n in -20..20 {
        let x = n as f64;
        assert_eq!(x.sinpi(), 0.0);
        assert_eq!(x.cospi(), if n % 2 == 0 { 1.0 } else { -1.0 });
        assert_eq!((x + 0.5).cospi(), 0.0);
        assert_eq!((x + 0.5).sinpi(), if n % 2 == 0 { 1.0 } else { -1.0 });
        assert_eq!((x as f32 + 0.5).sincospi(), (if n % 2 == 0 { 1.0 } else { -1.0 }, 0.0));
    }
    for i in -100..100 {
        let x = i as f64 * 0.0371;
        assert!((x.sinpi() - (x * PI).sin()).abs() < 4e-15, "{x}");
        assert!((x.cospi() - (x * PI).cos()).abs() < 4e-15, "{x}");
    }
    assert!(f64::INFINITY.sinpi().is_nan() && f64::NAN.cospi().is_nan());
}

/// Values of DLMF chapter 7, to the digits given.
#[test]
fn error_functions() {
    close(1.0f64.error_function(), 0.842_700_792_949_714_9, 1e-15);
    close(3.0f64.complementary_error_function(), 2.209_049_699_858_544e-5, 1e-14);
    close(10.0f64.scaled_complementary_error_function(), 0.056_140_992_743_822_59, 1e-14);
    close(1e10f64.scaled_complementary_error_function(), 1.0 / (1e10 * PI.sqrt()), 1e-14);
    close((-2.0f64).scaled_complementary_error_function(), 108.940_904_389_977_97, 1e-14);
    // Both sides of the place where the method changes.
    let (below, above) = (4.999_999_999f64, 5.000_000_001f64);
    close(below.scaled_complementary_error_function(), above.scaled_complementary_error_function(), 1e-9);
    for i in 1..400 {
        let y = i as f64 / 200.0;
        close(y.inv_complementary_error_function().complementary_error_function(), y, 4e-15);
    }
    for exponent in [1, 5, 20, 100, 300] {
        let y = 10f64.powi(-exponent);
        // Far out the result's last bit is worth 2 x^2 of them.
        close(y.inv_complementary_error_function().complementary_error_function(), y, 1e-12);
    }
    close(5e-324f64.inv_complementary_error_function().complementary_error_function(), 5e-324, 0.0);
    assert_eq!(0.0f64.inv_complementary_error_function(), f64::INFINITY);
    assert_eq!(2.0f32.inv_complementary_error_function(), f32::NEG_INFINITY);
    assert!(2.1f64.inv_complementary_error_function().is_nan());
    assert!(f64::NAN.inv_complementary_error_function().is_nan());
}

#[test]
fn normal_distribution() {
    assert_eq!(0.0f64.norm_cdf(), 0.5);
    close(1.959_963_984_540_054f64.norm_cdf(), 0.975, 1e-15);
    close(0.975f64.inv_norm_cdf(), 1.959_963_984_540_054, 1e-14);
    close((-SQRT_2 * 3.0).norm_cdf(), 0.5 * 3.0f64.complementary_error_function(), 1e-14);
    assert!(0.5f32.inv_norm_cdf().abs() < 1e-7);
}

#[test]
fn bessel_and_gamma() {
    close(1.0f64.j0(), 0.765_197_686_557_966_6, 1e-15);
    close(1.0f64.j1(), 0.440_050_585_744_933_5, 1e-15);
    close(1.0f64.jn(2), 0.114_903_484_931_900_5, 1e-14);
    close(1.0f64.y0(), 0.088_256_964_215_676_96, 1e-14);
    close(1.0f64.y1(), -0.781_212_821_300_288_7, 1e-14);
    close(1.0f64.yn(2), -1.650_682_606_816_254, 1e-14);
    assert_eq!(1.0f32.j0(), 0.765_197_7);
    close(FloatExt::gamma(5.0f64), 24.0, 1e-15);
    close(FloatExt::gamma(0.5f64), PI.sqrt(), 1e-15);
    close(100.0f64.log_gamma(), 359.134_205_369_575_4, 1e-15);
    assert_eq!(FloatExt::gamma(5.0f32), 24.0);
}

#[test]
fn parts_of_numbers() {
    assert_eq!(12.0f64.frexp(), (0.75, 4));
    assert_eq!((-0.0f32).frexp(), (-0.0, 0));
    assert_eq!(12.0f32.unbiased_exp(), 3);
    assert_eq!(0.75f64.ldexp(4), 12.0);
    assert_eq!(0.75f32.scale_by_n(-1), 0.375);
    close(27.0f64.rcbrt(), 1.0 / 3.0, 1e-15);
    close(1e-10f64.log1p(), 1e-10, 1e-9);
    assert_eq!([-1.0, 0.25, 7.0, f64::NAN].map(f64::saturate), [0.0, 0.25, 1.0, 0.0]);
    assert_eq!([-1.0, 0.25, 7.0, f32::NAN].map(f32::saturate), [0.0, 0.25, 1.0, 0.0]);
}
