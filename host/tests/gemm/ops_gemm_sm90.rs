//! The op on Hopper's tensor cores against the oracle: every kernel that can do a case does it. On other
//! devices there are none.

use crate::gemm_case::{Case, DENSE, Lie, Outcome, PLAIN, Setup, TRANSPOSED, device};
use half::{bf16, f16};
use ironwarp::ops::gemm::{
    Activation, Band, Config, Kernel, Matmul, Matrix, MatrixMut, Precision, Repack, candidates,
};
use ironwarp::{Device, DeviceBuffer};
use num::{E4M3, E5M2};
use testkit::{Family, compare};

fn is_ours(config: &Config) -> bool {
    matches!(config.kernel, Kernel::Sm90(_))
}

/// Without copies: the kernels whose orders are the operands'.
fn as_it_lies(config: &Config) -> bool {
    is_ours(config) && config.repack == [Repack::No; 2]
}

/// One kernel of each shape will do.
fn small(config: &Config) -> bool {
    as_it_lies(config) && config.tile[0] * config.tile[1] <= 64 * 128
}

const HALVES: Case = Case { kernels: as_it_lies, ..PLAIN };

/// B as weights lie, `[n, k]`.
const NT: Case = Case { b: TRANSPOSED, ..HALVES };

fn is_hopper() -> Outcome<bool> {
    let device = Device::open(0)?;
    let is_hopper = device.arch().is_hopper();
    if !is_hopper {
        testkit::skip(&format!("{} is no Hopper", device.name()));
    }
    Ok(is_hopper)
}

/// `ran` kernels took a case, at least one on a Hopper.
#[track_caller]
fn some(ran: usize) -> Outcome {
    assert_eq!(ran > 0, is_hopper()?, "{ran} kernels");
    Ok(())
}

#[test]
fn every_kernel_in_its_order() -> Outcome {
    for a in [DENSE, TRANSPOSED] {
        for b in [DENSE, TRANSPOSED] {
            let case = Case { m: 136, n: 264, k: 72, a, b, ..HALVES };
            some(case.check::<bf16, bf16, bf16>()?)?;
            some(case.check::<f16, f16, f16>()?)?;
        }
    }
    Ok(())
}

#[test]
fn narrow_types_and_tf32() -> Outcome {
    let case = Case { m: 70, n: 136, k: 144, ..NT };
    some(case.check::<E4M3, E4M3, bf16>()?)?;
    some(Case { scales: Some([0.5, 3.0]), ..case }.check::<E4M3, E5M2, f32>()?)?;
    some(case.check::<E5M2, E4M3, bf16>()?)?;
    some(Case { precision: Precision::Tf32, ..case }.check::<f32, f32, f32>()?)?;
    // Where one is not contiguous along k, it is A of the kernel, or of the transpose.
    let case =
        Case { precision: Precision::Tf32, m: 200, n: 136, k: 144, bias: true, residual: true, ..HALVES };
    for (a, b) in [(DENSE, DENSE), (TRANSPOSED, TRANSPOSED)] {
        some(Case { a, b, ..case }.check::<f32, f32, f32>()?)?;
        some(Case { a, b, m: 12, beta: 0.5, ..case }.check::<f32, f32, f32>()?)?;
    }
    Ok(())
}

#[test]
fn sides_that_no_tile_divides() -> Outcome {
    for (m, n, k) in [(1, 8, 8), (7, 65, 64), (63, 127, 16), (129, 1, 136), (65, 257, 24), (255, 40, 200)] {
        // Rows that begin at 16-byte boundaries, whatever their lengths.
        let gap = |length: usize| length.next_multiple_of(8) - length;
        let lie = |length: usize| Lie { gap: gap(length), ..DENSE };
        let case = Case { m, n, k, a: lie(k), b: Lie { transposed: true, ..lie(k) }, c: lie(n), ..HALVES };
        some(Case { kernels: small, ..case }.check::<bf16, bf16, bf16>()?)?;
        some(Case { kernels: small, c: DENSE, beta: 0.5, ..case }.check::<f16, f16, f32>()?)?;
    }
    Ok(())
}

#[test]
fn operands_that_it_cannot_address_are_copied() -> Outcome {
    let copying = |config: &Config| {
        is_ours(config) && config.repack != [Repack::No; 2] && config.tile[0] * config.tile[1] <= 64 * 128
    };
    let odd = Lie { gap: 1, skip: 1, ..DENSE };
    let case = Case { m: 66, n: 35, k: 67, a: odd, b: Lie { transposed: true, ..odd }, c: odd, ..HALVES };
    let case = Case { kernels: copying, ..case };
    some(case.check::<bf16, bf16, bf16>()?)?;
    some(Case { batch: 3, ..case }.check::<f16, f16, f16>()?)?;
    // 8-bit types and tf32 only come along k.
    let case = Case { a: TRANSPOSED, b: DENSE, c: DENSE, m: 64, n: 48, k: 80, ..case };
    some(case.check::<E4M3, E4M3, bf16>()?)?;
    some(Case { precision: Precision::Tf32, ..case }.check::<f32, f32, f32>()?)?;
    Ok(())
}

#[test]
fn epilogues() -> Outcome {
    let case = Case { m: 72, n: 80, k: 40, kernels: small, alpha: 0.75, ..NT };
    for &activation in Activation::ALL {
        for (bias, residual) in [(false, false), (true, false), (false, true), (true, true)] {
            some(Case { activation, bias, residual, ..case }.check::<bf16, bf16, bf16>()?)?;
        }
    }
    some(
        Case { beta: -0.5, bias: true, residual: true, activation: Activation::Silu, ..case }
            .check::<f16, f16, f32>()?,
    )?;
    Ok(())
}

/// Beside a factor of the result and the largest magnitude before it.
#[test]
fn results_of_8_bits() -> Outcome {
    let case = Case { m: 72, n: 80, k: 144, result_scale: Some(0.5), kernels: small, ..NT };
    some(case.check::<E4M3, E4M3, E4M3>()?)?;
    let added = Case { adds_f32: true, bias: true, residual: true, scales: Some([0.5, 0.25]), ..case };
    some(Case { activation: Activation::Silu, ..added }.check::<E4M3, E4M3, E5M2>()?)?;
    let large = Case { kernels: as_it_lies, ..added };
    some(Case { m: 67, n: 53, activation: Activation::Relu, ..large }.check::<E5M2, E4M3, E4M3>()?)?;
    some(Case { activation: Activation::SwiGlu, ..added }.check::<bf16, bf16, E4M3>()?)?;
    some(Case { c: TRANSPOSED, residual: true, adds_f32: true, ..case }.check::<f16, f16, E5M2>()?)?;
    Ok(())
}

/// Odd columns, rows that begin anywhere, and other types beside the product.
#[test]
fn epilogues_at_edges() -> Outcome {
    let case = Case { m: 67, n: 45, k: 40, kernels: small, bias: true, residual: true, ..NT };
    for c in
        [DENSE, Lie { gap: 3, ..DENSE }, Lie { gap: 5, skip: 1, ..DENSE }, Lie { gap: 4, skip: 2, ..DENSE }]
    {
        some(Case { c, beta: 0.5, activation: Activation::Relu, ..case }.check::<bf16, bf16, bf16>()?)?;
        some(Case { c, n: 46, adds_f32: true, ..case }.check::<f16, f16, f16>()?)?;
        some(
            Case { c, n: 44, m: 1, batch: 2, activation: Activation::SwiGlu, ..case }
                .check::<f16, f16, f32>()?,
        )?;
    }
    let by_columns = Case { c: TRANSPOSED, bias: false, beta: 2.0, ..case };
    some(by_columns.check::<bf16, bf16, bf16>()?)?;
    some(Case { m: 72, n: 64, activation: Activation::GeluTanh, ..by_columns }.check::<bf16, bf16, bf16>()?)?;
    Ok(())
}

/// Rows of C at every distance from a boundary of 16 bytes, over several subtiles of large tiles, and ends of
/// rows within one unit.
#[test]
fn rows_that_begin_anywhere() -> Outcome {
    let case = Case { m: 130, n: 259, k: 16, kernels: as_it_lies, ..NT };
    some(case.check::<bf16, bf16, bf16>()?)?;
    let c = Lie { gap: 2, skip: 1, ..DENSE };
    some(Case { c, n: 131, bias: true, activation: Activation::Silu, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { c, n: 133, m: 67, batch: 2, ..case }.check::<bf16, bf16, f32>()?)?;
    for n in [1, 2, 3, 5, 7, 9, 15, 63, 65] {
        some(Case { c, n, m: 9, kernels: small, ..case }.check::<bf16, bf16, bf16>()?)?;
    }
    Ok(())
}

/// Factors, a bias and an activation go through every kernel in whole subtiles.
#[test]
fn epilogues_by_column() -> Outcome {
    let case = Case { m: 136, n: 264, k: 72, kernels: as_it_lies, bias: true, alpha: 0.75, ..PLAIN };
    for (a, b, activation) in [
        (DENSE, TRANSPOSED, Activation::GeluTanh),
        (DENSE, DENSE, Activation::Silu),
        (TRANSPOSED, DENSE, Activation::Relu),
        (TRANSPOSED, TRANSPOSED, Activation::None),
    ] {
        some(Case { a, b, activation, ..case }.check::<bf16, bf16, bf16>()?)?;
    }
    let scaled = Case { scales: Some([0.5, 3.0]), bias: false, k: 144, ..case };
    some(Case { b: TRANSPOSED, activation: Activation::Silu, ..scaled }.check::<E4M3, E4M3, bf16>()?)?;
    Ok(())
}

/// The same for results of 8 bits, with their factor and largest magnitude; of tiles that are the result's in
/// part, over several subtiles of the largest one.
#[test]
fn results_of_8_bits_by_column() -> Outcome {
    let case = Case { m: 136, n: 272, k: 144, kernels: as_it_lies, ..NT };
    some(case.check::<E4M3, E4M3, E4M3>()?)?;
    let biased = Case { bias: true, adds_f32: true, scales: Some([0.5, 0.25]), ..case };
    some(Case { activation: Activation::GeluTanh, ..biased }.check::<E4M3, E4M3, E5M2>()?)?;
    let scaled = Case { result_scale: Some(0.5), activation: Activation::Relu, ..biased };
    some(scaled.check::<E4M3, E4M3, E4M3>()?)?;
    some(Case { m: 256, n: 512, batch: 2, ..scaled }.check::<E5M2, E4M3, E4M3>()?)?;
    Ok(())
}

/// TMA loads the matrix that is added, if it is of C's type and aligned: the residual or else the old C, in
/// padded rows and batches.
#[test]
fn what_is_added_is_fetched() -> Outcome {
    let c = Lie { gap: 8, skip: 8, ..DENSE };
    let case = Case { m: 136, n: 264, k: 72, c, kernels: as_it_lies, ..NT };
    some(Case { beta: -0.5, ..case }.check::<bf16, bf16, bf16>()?)?;
    let case = Case { m: 72, n: 88, batch: 3, kernels: small, ..case };
    some(Case { beta: 0.5, bias: true, activation: Activation::Silu, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { beta: 2.0, residual: true, ..case }.check::<bf16, bf16, bf16>()?)?;
    some(Case { c: Lie { transposed: true, ..c }, beta: 2.0, ..case }.check::<bf16, bf16, bf16>()?)?;
    some(Case { k: 144, residual: true, ..case }.check::<E4M3, E4M3, bf16>()?)?;
    Ok(())
}

/// Every kernel, also the large ones, takes an epilogue.
#[test]
fn every_kernel_takes_an_epilogue() -> Outcome {
    let case = Case { m: 136, n: 264, k: 72, kernels: as_it_lies, bias: true, residual: true, ..PLAIN };
    for (a, b) in [(DENSE, TRANSPOSED), (DENSE, DENSE), (TRANSPOSED, DENSE)] {
        some(Case { a, b, activation: Activation::GeluTanh, ..case }.check::<bf16, bf16, bf16>()?)?;
    }
    Ok(())
}

#[test]
fn batches_and_results_by_columns() -> Outcome {
    let case = Case { m: 40, n: 72, k: 48, batch: 3, kernels: small, ..NT };
    some(case.check::<bf16, bf16, bf16>()?)?;
    some(Case { c: TRANSPOSED, residual: true, beta: 1.0, ..case }.check::<bf16, bf16, bf16>()?)?;
    some(Case { c: TRANSPOSED, batch: 1, ..case }.check::<f16, f16, f16>()?)?;
    Ok(())
}

/// Blocks of a cluster share k out: evenly and not, with shares that are empty and tiles of which some blocks
/// store nothing, with every way that results lie, and every epilogue.
#[test]
fn k_in_shares() -> Outcome {
    let shared = |config: &Config| as_it_lies(config) && config.cluster[2] > 1;
    let case = Case { m: 70, n: 136, k: 1000, kernels: shared, ..NT };
    some(case.check::<bf16, bf16, bf16>()?)?;
    some(Case { k: 72, batch: 3, ..case }.check::<f16, f16, f16>()?)?;
    some(
        Case { m: 129, n: 257, k: 200, c: Lie { gap: 3, skip: 1, ..DENSE }, ..case }
            .check::<bf16, bf16, bf16>()?,
    )?;
    some(Case { c: TRANSPOSED, residual: true, beta: 0.5, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { scales: Some([0.5, 3.0]), beta: 2.0, ..case }.check::<bf16, bf16, f32>()?)?;
    some(Case { result_scale: Some(0.5), bias: true, adds_f32: true, ..case }.check::<f16, f16, E4M3>()?)?;
    let fused = Case { k: 136, alpha: 0.75, bias: true, residual: true, ..case };
    for &activation in Activation::ALL {
        some(Case { activation, ..fused }.check::<bf16, bf16, bf16>()?)?;
    }
    some(Case { n: 138, adds_f32: true, activation: Activation::SwiGlu, ..fused }.check::<f16, f16, f16>()?)?;
    Ok(())
}

/// Tiles narrower than the kernel's, of several widths for each product: every order and every way to store.
/// No tile stores what is beside it: C is compared whole.
#[test]
fn narrower_tiles() -> Outcome {
    let narrow = |config: &Config| {
        as_it_lies(config) && config.kernel.name().contains("128x256") && config.tile[1] < 256
    };
    let case = Case { m: 136, n: 424, k: 72, kernels: narrow, ..PLAIN };
    for (a, b) in [(DENSE, TRANSPOSED), (DENSE, DENSE), (TRANSPOSED, DENSE), (TRANSPOSED, TRANSPOSED)] {
        some(Case { a, b, ..case }.check::<bf16, bf16, bf16>()?)?;
        let bias = Case { a, b, bias: true, n: 200, activation: Activation::GeluTanh, ..case };
        some(bias.check::<f16, f16, f16>()?)?;
    }
    let case = Case { b: TRANSPOSED, ..case };
    let c = Lie { gap: 8, skip: 8, ..DENSE };
    some(Case { c, beta: -0.5, residual: true, ..case }.check::<bf16, bf16, bf16>()?)?;
    some(Case { n: 419, bias: true, activation: Activation::Silu, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { n: 454, scales: Some([0.5, 3.0]), batch: 2, ..case }.check::<bf16, bf16, f32>()?)?;
    let in_8_bits = Case { k: 144, scales: Some([0.5, 3.0]), ..case };
    some(in_8_bits.check::<E4M3, E4M3, bf16>()?)?;
    // A part of a subtile is of 16-bit elements.
    assert_eq!(in_8_bits.check::<E4M3, E4M3, E4M3>()?, 0);
    some(Case { n: 419, bias: true, k: 4096, ..in_8_bits }.check::<E4M3, E4M3, f32>()?)?;
    Ok(())
}

/// Few tiles and long k: parts that are summed afterwards, with every way that operands and results lie, and
/// every epilogue.
#[test]
fn k_in_parts() -> Outcome {
    let cut = |config: &Config| {
        is_ours(config) && config.split_k > 1 && config.tile[0] * config.tile[1] <= 64 * 128
    };
    let case = Case { m: 24, n: 40, k: 4096, kernels: cut, ..NT };
    some(case.check::<bf16, bf16, bf16>()?)?;
    some(Case { m: 33, n: 29, c: Lie { gap: 2, skip: 1, ..DENSE }, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { a: TRANSPOSED, b: DENSE, ..case }.check::<bf16, bf16, f32>()?)?;
    some(Case { c: TRANSPOSED, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { n: 38, c: Lie { gap: 2, ..DENSE }, ..case }.check::<bf16, bf16, bf16>()?)?;
    some(Case { c: TRANSPOSED, beta: 0.5, residual: true, ..case }.check::<bf16, bf16, bf16>()?)?;
    some(
        Case { activation: Activation::SwiGlu, bias: true, alpha: 0.5, ..case }
            .check::<bf16, bf16, bf16>()?,
    )?;
    some(Case { k: 8192, scales: Some([0.5, 3.0]), ..case }.check::<E4M3, E4M3, bf16>()?)?;
    // Of 8 bits, four at a time.
    some(Case { k: 8192, n: 48, alpha: 0.25, ..case }.check::<E4M3, E4M3, E4M3>()?)?;
    some(Case { k: 8192, n: 48, m: 40, c: Lie { gap: 16, ..DENSE }, ..case }.check::<E4M3, E4M3, E5M2>()?)?;
    // A part too few or too many would be lost in what 8-bit sums are allowed, but for integers.
    some(Case { family: Family::SmallIntegers, k: 8192, ..case }.check::<E4M3, E4M3, f32>()?)?;
    some(
        Case { precision: Precision::Tf32, activation: Activation::GeluTanh, ..case }
            .check::<f32, f32, f32>()?,
    )?;
    // Sums in f32 that are added to, as gradients of weights are, and the same in 16 bits.
    some(Case { a: TRANSPOSED, b: DENSE, alpha: 0.5, beta: 1.0, ..case }.check::<bf16, bf16, f32>()?)?;
    some(Case { alpha: 0.5, beta: -0.5, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { c: TRANSPOSED, beta: 1.0, ..case }.check::<bf16, bf16, bf16>()?)?;
    // Parts that are not equal, whose last one is short, and that begin anywhere in rows that are copied.
    some(Case { k: 4104, ..case }.check::<bf16, bf16, bf16>()?)?;
    some(Case { k: 4099, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { k: 4099, a: TRANSPOSED, b: DENSE, ..case }.check::<bf16, bf16, f32>()?)?;
    Ok(())
}

/// Sums of four neighbours a thread through every epilogue, and what lies so that a thread takes one.
#[test]
fn k_in_parts_with_epilogues() -> Outcome {
    let cut = |config: &Config| {
        is_ours(config) && config.split_k > 1 && config.tile[0] * config.tile[1] <= 64 * 128
    };
    let case = Case { m: 24, n: 40, k: 4096, bias: true, residual: true, kernels: cut, ..NT };
    for &activation in Activation::ALL {
        some(Case { activation, alpha: 0.75, ..case }.check::<bf16, bf16, bf16>()?)?;
    }
    // Lines that begin at four elements, not at 16 bytes, and at two.
    for gap in [4, 2] {
        let c = Lie { gap, skip: gap, ..DENSE };
        some(Case { c, beta: 0.5, ..case }.check::<f16, f16, f16>()?)?;
        let by_columns = Case { c: Lie { transposed: true, ..c }, bias: false, ..case };
        some(Case { adds_f32: true, ..by_columns }.check::<bf16, bf16, bf16>()?)?;
    }
    some(Case { batch: 3, c: Lie { gap: 4, ..DENSE }, beta: 1.0, ..case }.check::<bf16, bf16, f32>()?)?;
    let narrow = Case { n: 48, k: 8192, scales: Some([0.5, 0.25]), result_scale: Some(2.0), ..case };
    let narrow = Case { adds_f32: true, ..narrow };
    some(narrow.check::<E4M3, E4M3, E4M3>()?)?;
    some(Case { bias: false, c: TRANSPOSED, m: 32, ..narrow }.check::<E4M3, E4M3, E5M2>()?)?;
    Ok(())
}

/// A bias that begins anywhere gives the same bits.
#[test]
fn k_in_parts_with_a_bias_anywhere() -> Outcome {
    let device = device()?;
    let stream = device.stream()?;
    let (m, n, k) = (8, 32, 2048);
    let a = DeviceBuffer::from_slice(&stream, &testkit::input::<bf16>(Family::Normal, 5, m * k))?;
    let b = DeviceBuffer::from_slice(&stream, &testkit::input::<bf16>(Family::Normal, 6, n * k))?;
    let bias = testkit::input::<bf16>(Family::Normal, 7, n);
    let at = |skip: usize| {
        let padded: Vec<bf16> = std::iter::repeat_n(bf16::NAN, skip).chain(bias.iter().copied()).collect();
        DeviceBuffer::from_slice(&stream, &padded)
    };
    let run = |skip: usize| -> Outcome<Option<Vec<f32>>> {
        let (biases, mut c) = (at(skip)?, DeviceBuffer::<f32>::zeroed(&stream, m * n)?);
        let operands = (Matrix::new::<bf16>(&a, m, k), Matrix::new::<bf16>(&b, n, k).transposed());
        let product = Matmul::new(operands.0, operands.1, MatrixMut::new::<f32>(&mut c, m, n));
        let product = product.bias::<bf16>(biases.slice(skip..)?);
        let offers = candidates(&product.problem()?, &device).into_iter().map(|offer| offer.config);
        let Some(config) = offers.into_iter().find(|config| is_ours(config) && config.split_k > 1) else {
            return Ok(None);
        };
        product.run_with(&stream, &config)?;
        Ok(Some(c.to_vec(&stream)?))
    };
    let aligned = run(0)?;
    some(usize::from(aligned.is_some()))?;
    for skip in 1..4 {
        assert_eq!(run(skip)?, aligned, "{skip}");
    }
    Ok(())
}

/// The same of each product of a batch: sums of every width, by rows and by columns, with gaps between the
/// matrices of C.
#[test]
fn k_in_parts_of_a_batch() -> Outcome {
    let cut = |config: &Config| config.split_k > 1 && config.tile[0] * config.tile[1] <= 64 * 128;
    let case = Case { m: 24, n: 40, k: 16_384, batch: 3, kernels: cut, ..NT };
    some(case.check::<bf16, bf16, bf16>()?)?;
    some(Case { c: TRANSPOSED, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { a: TRANSPOSED, b: DENSE, alpha: 0.5, beta: 1.0, ..case }.check::<bf16, bf16, f32>()?)?;
    some(Case { m: 33, n: 29, c: Lie { gap: 2, skip: 1, ..DENSE }, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { c: TRANSPOSED, beta: 0.5, residual: true, ..case }.check::<bf16, bf16, bf16>()?)?;
    some(Case { activation: Activation::SwiGlu, bias: true, ..case }.check::<bf16, bf16, bf16>()?)?;
    // Parts that are not equal, of rows that are copied.
    some(Case { k: 16_387, ..case }.check::<f16, f16, f16>()?)?;
    some(Case { family: Family::SmallIntegers, k: 32_768, ..case }.check::<E4M3, E4M3, f32>()?)?;
    some(Case { precision: Precision::Tf32, ..case }.check::<f32, f32, f32>()?)?;
    Ok(())
}

/// A last wave of few tiles: the first rows or columns fill whole waves, the rest is a product of its own.
#[test]
fn in_bands() -> Outcome {
    let banded = |config: &Config| config.band != Band::All && config.tile[0] * config.tile[1] <= 64 * 128;
    // One tile of 64 x 128 more than multiprocessors, below each other or beside each other.
    let multiprocessors = device()?.properties().sm_count as usize;
    let case = Case { m: 64 * multiprocessors + 8, n: 120, k: 16_384, kernels: banded, ..NT };
    some(case.check::<bf16, bf16, bf16>()?)?;
    let all = Case { bias: true, residual: true, beta: 0.5, activation: Activation::Relu, ..case };
    some(Case { result_scale: Some(0.5), ..all }.check::<f16, f16, f16>()?)?;
    let (m, n) = (64, 128 * multiprocessors + 8);
    let turned = Lie { transposed: true, gap: 8, skip: 8, ..DENSE };
    some(Case { m: n, n: m, c: turned, bias: false, ..all }.check::<bf16, bf16, bf16>()?)?;
    some(Case { m, n, adds_f32: true, ..all }.check::<bf16, bf16, bf16>()?)?;
    some(Case { a: TRANSPOSED, b: DENSE, ..case }.check::<bf16, bf16, f32>()?)?;
    Ok(())
}

/// Blocks of C, a launch each, have the bits of one launch; with operands as they lie and copied.
#[test]
fn in_blocks() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = Device::open(0)?.stream()?;
    let case = Case { m: 200, n: 300, k: 72, bias: true, residual: true, beta: 0.5, ..NT };
    let cases = [case, Case { n: 301, a: TRANSPOSED, b: DENSE, ..case }, Case { k: 67, ..case }];
    for case in cases.into_iter().chain([Case { batch: 2, m: 150, n: 70, ..case }]) {
        let setup = Setup::<bf16, bf16, bf16>::new(&case, &stream)?;
        let problem = setup.product(&mut setup.c(&stream)?)?.problem()?;
        let run = |config: &Config| -> Outcome<Vec<bf16>> {
            let mut c = setup.c(&stream)?;
            setup.product(&mut c)?.run_with(&stream, config)?;
            Ok(c.to_vec(&stream)?)
        };
        let whole = |config: &Config| {
            let is_small = is_ours(config) && config.tile[0] * config.tile[1] <= 64 * 128;
            is_small && !config.swap && config.band == Band::All && config.split_k == 1
        };
        let offers = candidates(&problem, stream.device());
        let mut ran = 0;
        for mut config in offers.iter().map(|offer| offer.config).filter(whole) {
            let [height, width, _] = config.tile;
            let wanted = run(&config)?;
            config.band = Band::Blocks(2 * height, width);
            compare::bitwise_equal(&config.to_string(), &run(&config)?, &wanted)?;
            // Rows that are no whole tiles, and none.
            for rows in [height / 2, 0] {
                config.band = Band::Blocks(rows, width);
                assert!(run(&config).is_err(), "{config}");
            }
            ran += 1;
        }
        assert!(ran > 0, "{problem}");
    }
    Ok(())
}

/// The same bits in every run: on a GPU blocks finish in another order each time.
#[test]
fn repeats_bit_for_bit() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = Device::open(0)?.stream()?;
    let case = Case { family: Family::HugeTiny, m: 100, n: 132, k: 4096, bias: true, ..NT };
    let setup = Setup::<bf16, bf16, f32>::new(&case, &stream)?;
    let runs = if stream.device().is_software() { 3 } else { 100 };
    let offers = candidates(&setup.product(&mut setup.c(&stream)?)?.problem()?, stream.device());
    let configs = offers.iter().map(|offer| offer.config).filter(as_it_lies);
    let (whole, cut): (Vec<Config>, Vec<Config>) = configs.partition(|config| config.split_k == 1);
    let (whole, shared): (Vec<Config>, Vec<Config>) =
        whole.into_iter().partition(|config| config.cluster[2] == 1);
    assert!(!cut.is_empty() && !shared.is_empty());
    let some = whole.into_iter().take(2).chain(shared.into_iter().take(1)).chain(cut.into_iter().take(1));
    for config in some {
        let run = || -> Outcome<Vec<f32>> {
            let mut c = setup.c(&stream)?;
            setup.product(&mut c)?.run_with(&stream, &config)?;
            Ok(c.to_vec(&stream)?)
        };
        let first = run()?;
        for _ in 1..runs {
            compare::bitwise_equal(&config.to_string(), &run()?, &first)?;
        }
    }
    Ok(())
}

/// Weights that a whole batch takes: one product of more rows, which Hopper's kernels take.
#[test]
fn batches_that_share_b_are_one_product() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let shared = Lie { shared: true, ..TRANSPOSED };
    let case = Case { m: 24, n: 40, k: 64, batch: 5, b: shared, residual: true, ..PLAIN };
    let setup = Setup::<bf16, bf16, bf16>::new(&case, &stream)?;
    let mut c = setup.c(&stream)?;
    let choice = setup.product(&mut c)?.explain(&stream)?;
    assert_eq!((choice.problem.m, choice.problem.batch), (120, 1));
    setup.product(&mut c)?.run(&stream)?;
    setup.compare(&c.to_vec(&stream)?, choice.config.kernel)
}

#[test]
fn any_input() -> Outcome {
    for family in Family::ALL {
        let case = Case { family, m: 64, n: 72, k: 136, kernels: small, ..NT };
        some(case.check::<bf16, bf16, f32>()?)?;
        // Products of huge numbers leave the range of f16.
        some(case.check::<f16, f16, f16>()?)?;
    }
    let integers = Case { family: Family::SmallIntegers, m: 64, n: 72, k: 144, kernels: small, ..NT };
    some(integers.check::<E4M3, E4M3, f32>()?)?;
    some(Case { precision: Precision::Tf32, ..integers }.check::<f32, f32, f32>()?)?;
    Ok(())
}
