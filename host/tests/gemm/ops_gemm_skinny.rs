//! Products of up to 32 rows against the oracle: every width of block, both orders of B, every epilogue.

use crate::gemm_case::{Case, DENSE, Lie, Number, Outcome, PLAIN, TRANSPOSED, device, has_parts};
use gemm::skinny::Width;
use half::{bf16, f16};
use ironwarp::ops::gemm::{
    Activation, Config, Kernel, Matmul, Matrix, MatrixMut, Precision, Repack, candidates,
};
use ironwarp::{DeviceBuffer, Stream};
use num::{E4M3, E5M2};
use testkit::{Family, compare};

const SKINNY: Case = Case {
    kernels: |config| is_skinny(config) && config.split_k == 1 && config.repack == [Repack::No; 2],
    ..PLAIN
};

fn is_skinny(config: &Config) -> bool {
    config.kernel == Kernel::Skinny
}

/// Checks a case that every width of block can do for which the device has the shared memory.
fn check<T: Number, C: Number>(case: &Case) -> Outcome {
    let room = device()?.properties().shared_per_block_optin;
    let m = case.m as u32;
    let widths =
        Width::ALL.into_iter().filter(|width| width.takes(m) && width.shared_bytes(m) <= room).count();
    assert!(widths > 0);
    assert_eq!(case.check::<T, T, C>()?, widths, "{case:?}");
    Ok(())
}

fn check_both(case: &Case) -> Outcome {
    check::<bf16, bf16>(case)?;
    check::<f16, f32>(case)
}

#[test]
fn skinny_every_number_of_rows() -> Outcome {
    for m in (1..=17).chain([24, 25, 32]) {
        for b in [DENSE, TRANSPOSED] {
            check_both(&Case { m, n: 40, k: 136, b, ..SKINNY })?;
        }
    }
    Ok(())
}

#[test]
fn skinny_ends_of_n_and_k() -> Outcome {
    for (n, k) in [(8, 8), (16, 512), (24, 520), (128, 64), (136, 1024), (264, 72)] {
        for b in [DENSE, TRANSPOSED] {
            check_both(&Case { m: 11, n, k, b, ..SKINNY })?;
        }
    }
    // Columns of B side by side: any number of them.
    for n in [1, 7, 17, 63, 130] {
        check_both(&Case { m: 3, n, k: 208, b: TRANSPOSED, ..SKINNY })?;
    }
    Ok(())
}

/// Two elements in a word: every number of rows, ends of n and k, every width of block.
#[test]
fn skinny_8_bit_factors() -> Outcome {
    if (device()?.arch().major, device()?.arch().minor) != (9, 0) {
        testkit::skip("8-bit factors want compute capability 9.0");
        return Ok(());
    }
    for m in 1..=16 {
        let case = Case { m, n: 40, k: 144, b: TRANSPOSED, ..SKINNY };
        check::<E4M3, bf16>(&case)?;
        check::<E5M2, f32>(&case)?;
    }
    for (n, k) in [(1, 16), (17, 512), (130, 1040), (264, 2064)] {
        let case = Case { m: 11, n, k, b: TRANSPOSED, bias: true, scales: Some([0.5, 3.0]), ..SKINNY };
        check::<E4M3, E4M3>(&case)?;
    }
    for family in Family::ALL {
        let case = Case { family, m: 16, n: 64, k: 320, b: Lie { gap: 16, ..TRANSPOSED }, ..SKINNY };
        check::<E4M3, f32>(&case)?;
        check::<E5M2, f32>(&case)?;
    }
    // Rows of B contiguous, pieces that are no whole units, and factors of two types.
    assert_eq!(Case { m: 4, n: 32, k: 32, ..SKINNY }.check::<E4M3, E4M3, bf16>()?, 0);
    let case = Case { m: 4, n: 32, k: 24, b: TRANSPOSED, ..SKINNY };
    assert_eq!(case.check::<E4M3, E4M3, bf16>()?, 0);
    assert_eq!(Case { m: 16, k: 32, a: TRANSPOSED, ..case }.check::<E4M3, E4M3, bf16>()?, 0);
    assert_eq!(Case { k: 32, ..case }.check::<E4M3, E5M2, bf16>()?, 0);
    Ok(())
}

/// Batches; A that is copied first; and parts of k, of which the last one is shorter.
#[test]
fn skinny_batches_parts_and_copies() -> Outcome {
    for (a, b) in [(DENSE, TRANSPOSED), (TRANSPOSED, DENSE), (Lie { shared: true, ..DENSE }, DENSE)] {
        check_both(&Case { m: 8, n: 40, k: 72, batch: 3, a, b, bias: true, ..SKINNY })?;
    }
    let copied = Case { kernels: |config| is_skinny(config) && config.repack[0] == Repack::Rows, ..PLAIN };
    let case = Case { m: 11, n: 24, k: 72, a: TRANSPOSED, ..copied };
    assert!(case.check::<bf16, bf16, f32>()? > 0);
    assert_eq!(Case { m: 8, ..case }.check::<bf16, bf16, f32>()?, 0, "it is read as it lies");
    if !has_parts()? {
        return Ok(());
    }
    let in_parts = Case { kernels: |config| is_skinny(config) && config.split_k > 1, ..PLAIN };
    for (a, b) in [(DENSE, TRANSPOSED), (TRANSPOSED, DENSE)] {
        let case = Case { m: 8, n: 24, k: 8200, a, b, bias: true, ..in_parts };
        assert!(case.check::<bf16, bf16, bf16>()? > 0, "{case:?}");
        let case = Case { precision: Precision::Tf32, b: DENSE, ..case };
        assert!(case.check::<f32, f32, f32>()? > 0, "{case:?}");
    }
    Ok(())
}

/// A by columns goes to shared memory as it lies.
#[test]
fn skinny_columns_of_a() -> Outcome {
    for (m, n, k) in [(8, 8, 8), (8, 40, 136), (16, 136, 520), (32, 24, 1032)] {
        for b in [DENSE, TRANSPOSED] {
            check_both(&Case { m, n, k, a: TRANSPOSED, b, ..SKINNY })?;
            check_both(&Case { m, n, k, a: Lie { gap: 8, skip: 8, ..TRANSPOSED }, b, bias: true, ..SKINNY })?;
        }
    }
    Ok(())
}

/// tf32 by rows of B: up to 32 rows of A, which lies either way.
#[test]
fn skinny_tf32() -> Outcome {
    let tf32 = Case { precision: Precision::Tf32, ..SKINNY };
    for m in [1, 3, 8, 9, 16, 17, 24, 31, 32] {
        check::<f32, f32>(&Case { m, n: 40, k: 136, ..tf32 })?;
    }
    for m in [4, 8, 12, 16, 20, 28, 32] {
        check::<f32, f32>(&Case { m, n: 36, k: 100, a: TRANSPOSED, ..tf32 })?;
    }
    for (n, k) in [(4, 4), (20, 260), (132, 64), (132, 1028)] {
        for a in [DENSE, TRANSPOSED, Lie { gap: 4, skip: 4, ..TRANSPOSED }] {
            check::<f32, bf16>(&Case { m: 12, n, k, a, bias: true, residual: true, ..tf32 })?;
        }
    }
    for family in Family::ALL {
        for a in [DENSE, TRANSPOSED] {
            check::<f32, f32>(&Case { family, m: 32, n: 64, k: 320, a, ..tf32 })?;
        }
    }
    // More tiles than blocks.
    check::<f32, f32>(&Case { m: 24, n: 2400, k: 68, a: TRANSPOSED, ..tf32 })?;
    for refused in
        [Case { m: 33, ..tf32 }, Case { b: TRANSPOSED, ..tf32 }, Case { m: 6, a: TRANSPOSED, ..tf32 }]
    {
        let case = Case { m: refused.m.max(4), n: 16, k: 16, ..refused };
        assert_eq!(case.check::<f32, f32, f32>()?, 0, "{case:?}");
    }
    Ok(())
}

/// More tiles than blocks: the ring runs on over their borders.
#[test]
fn skinny_blocks_take_several_tiles() -> Outcome {
    for b in [DENSE, TRANSPOSED] {
        check_both(&Case { m: 9, n: 1024, k: 1032, b, ..SKINNY })?;
    }
    Ok(())
}

#[test]
fn skinny_strides_and_other_results() -> Outcome {
    let wide = Lie { gap: 8, skip: 8, ..DENSE };
    let tall = Lie { gap: 16, skip: 16, ..TRANSPOSED };
    for c in [DENSE, TRANSPOSED, Lie { gap: 3, skip: 1, ..DENSE }] {
        for b in [wide, tall] {
            let case = Case { m: 6, n: 48, k: 160, a: wide, b, c, beta: -1.0, residual: true, ..SKINNY };
            check_both(&case)?;
            check::<bf16, E4M3>(&case)?;
        }
    }
    Ok(())
}

#[test]
fn skinny_epilogues() -> Outcome {
    for &activation in Activation::ALL {
        for (bias, residual) in [(false, true), (true, false), (true, true)] {
            let case = Case { m: 10, n: 72, k: 64, alpha: 0.75, activation, bias, residual, ..SKINNY };
            check_both(&Case { scales: Some([0.5, 3.0]), ..case })?;
            if activation != Activation::SwiGlu {
                check_both(&Case { beta: 0.5, b: TRANSPOSED, ..case })?;
            }
        }
    }
    Ok(())
}

#[test]
fn skinny_every_family_of_input() -> Outcome {
    for family in Family::ALL {
        for b in [DENSE, TRANSPOSED] {
            let case = Case { family, m: 16, n: 64, k: 320, b, ..SKINNY };
            check::<bf16, f32>(&case)?;
            check::<f16, f16>(&case)?;
        }
    }
    Ok(())
}

/// The kernels refuse, with a reason, operands that they cannot address. Another kernel computes the product.
#[test]
fn skinny_refuses_what_it_cannot_do() -> Outcome {
    let odd = Lie { gap: 1, ..DENSE };
    let cases = [
        Case { m: 33, n: 16, k: 16, ..SKINNY },
        Case { m: 4, n: 16, k: 12, ..SKINNY },
        Case { m: 4, n: 12, k: 16, ..SKINNY },
        Case { m: 4, n: 16, k: 16, a: odd, ..SKINNY },
        Case { m: 4, n: 16, k: 16, b: Lie { skip: 1, ..TRANSPOSED }, ..SKINNY },
        Case { m: 12, n: 16, k: 16, a: TRANSPOSED, ..SKINNY },
        Case { m: 4, n: 16, k: 0, ..SKINNY },
    ];
    for case in cases {
        assert_eq!(case.check::<bf16, bf16, bf16>()?, 0, "{case:?}");
    }
    assert_eq!(Case { m: 4, n: 16, k: 16, ..SKINNY }.check::<f32, f32, f32>()?, 0);
    Ok(())
}

/// Factors on the device.
struct Factors {
    a: DeviceBuffer<bf16>,
    b: DeviceBuffer<bf16>,
    sides: [usize; 3],
}

impl Factors {
    fn product<'x>(&'x self, c: &'x mut DeviceBuffer<f32>, amax: &'x mut DeviceBuffer<f32>) -> Matmul<'x> {
        let [m, n, k] = self.sides;
        let (a, b) = (Matrix::new::<bf16>(&self.a, m, k), Matrix::new::<bf16>(&self.b, n, k).transposed());
        Matmul::new(a, b, MatrixMut::new::<f32>(c, m, n)).amax(amax)
    }

    /// C and the largest magnitude in it.
    fn run(&self, stream: &Stream, config: &Config) -> Outcome<(Vec<f32>, f32)> {
        let mut c = DeviceBuffer::<f32>::zeroed(stream, self.sides[0] * self.sides[1])?;
        let mut amax = DeviceBuffer::<f32>::zeroed(stream, 1)?;
        self.product(&mut c, &mut amax).run_with(stream, config)?;
        Ok((c.to_vec(stream)?, amax.to_vec(stream)?[0]))
    }
}

/// The same bits in every run, and the largest magnitude of the result.
#[test]
fn skinny_repeats_bit_for_bit() -> Outcome {
    let device = device()?;
    let stream = device.stream()?;
    let sides @ [m, n, k] = [13, 136, 776];
    let a = DeviceBuffer::from_slice(&stream, &testkit::input::<bf16>(Family::Normal, 5, m * k))?;
    let b = DeviceBuffer::from_slice(&stream, &testkit::input::<bf16>(Family::Normal, 6, n * k))?;
    let factors = Factors { a, b, sides };
    let mut empty = (DeviceBuffer::zeroed(&stream, m * n)?, DeviceBuffer::zeroed(&stream, 1)?);
    let problem = factors.product(&mut empty.0, &mut empty.1).problem()?;
    let offers = candidates(&problem, &device).into_iter().map(|offer| offer.config);
    for config in offers.filter(SKINNY.kernels) {
        let (first, largest) = factors.run(&stream, &config)?;
        assert_eq!(largest, first.iter().fold(0.0, |largest: f32, v| largest.max(v.abs())));
        for _ in 0..if device.is_software() { 3 } else { 100 } {
            let (again, _) = factors.run(&stream, &config)?;
            compare::bitwise_equal(&config.to_string(), &again, &first)?;
        }
    }
    Ok(())
}

/// One row of A as every row, and one column as every column: they lie where strides are 0.
#[test]
fn skinny_takes_one_line_of_a_for_all() -> Outcome {
    for m in [1, 8, 16] {
        for precision in [Precision::F32, Precision::Tf32] {
            for by_columns in [false, true] {
                if m % 8 == 0 || !by_columns {
                    match precision {
                        Precision::F32 => one_line_for_all::<bf16>(m, by_columns, precision)?,
                        Precision::Tf32 => one_line_for_all::<f32>(m, by_columns, precision)?,
                    }
                }
            }
        }
    }
    Ok(())
}

/// Bits as those of A written out.
fn one_line_for_all<T: Number>(m: usize, by_columns: bool, precision: Precision) -> Outcome {
    let (device, [n, k]) = (device()?, [48, 136]);
    let stream = device.stream()?;
    // Lines of A as it lies, and their length.
    let [lines, length] = if by_columns { [k, m] } else { [m, k] };
    let (line, b) =
        (testkit::input::<T>(Family::Normal, 7, length), testkit::input::<T>(Family::Normal, 8, k * n));
    let all = DeviceBuffer::from_slice(&stream, &line.repeat(lines))?;
    let [line, b] = [line, b].map(|numbers| DeviceBuffer::from_slice(&stream, &numbers));
    let (line, b) = (line?, b?);
    fn turned<'a>(a: Matrix<'a>, by_columns: bool) -> Matrix<'a> {
        if by_columns { a.transposed() } else { a }
    }
    let one = || turned(Matrix::new::<T>(&line, lines, length).leading(0), by_columns);
    let written_out = turned(Matrix::new::<T>(&all, lines, length), by_columns);
    let mut c = DeviceBuffer::<f32>::zeroed(&stream, m * n)?;
    let mut product = |a: Matrix<'_>, config: Option<&Config>| -> Outcome<Vec<f32>> {
        let product = Matmul::new(a, Matrix::new::<T>(&b, k, n), MatrixMut::new::<f32>(&mut c, m, n));
        let product = product.precision(precision);
        match config {
            Some(config) => product.run_with(&stream, config)?,
            None => product.run(&stream)?,
        }
        Ok(c.to_vec(&stream)?)
    };
    let mut empty = DeviceBuffer::<f32>::zeroed(&stream, m * n)?;
    let to = MatrixMut::new::<f32>(&mut empty, m, n);
    let problem = Matmul::new(one(), Matrix::new::<T>(&b, k, n), to).precision(precision).problem()?;
    let offers = candidates(&problem, &device).into_iter().map(|offer| offer.config);
    let offers: Vec<Config> = offers.filter(SKINNY.kernels).collect();
    assert!(!offers.is_empty(), "{problem}");
    for config in offers {
        let want = product(written_out, Some(&config))?;
        compare::bitwise_equal(&format!("{problem} by {config}"), &product(one(), Some(&config))?, &want)?;
    }
    Ok(())
}
