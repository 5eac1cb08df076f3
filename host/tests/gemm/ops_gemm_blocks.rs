//! `BlockScaled` against the oracle: integers and factors whose sums are exact, tails everywhere, rows that
//! cannot be copied, operands that were quantised, wrong calls.

use half::bf16;
use ironwarp::ops::gemm::BlockScaled;
use ironwarp::ops::quantize::{quantize_blocks, quantize_tiles};
use ironwarp::{DType, Device, DeviceBuffer, Error, Result, Stream, Tensor, TensorError};
use num::E4M3;
use reference::Accumulated;
use reference::matmul::{Epilogue, Strided, matmul};
use testkit::{Family, Random, Tolerance, compare, input, tolerance};

/// Elements of k, and rows of B, that share a factor.
const BLOCK: usize = 128;

/// A stream of a device that runs the kernel: compute capability 9.0, and no other.
fn open() -> Result<Option<Stream>> {
    let device = Device::open(0)?;
    if device.arch().is_hopper() {
        return Ok(Some(device.stream()?));
    }
    testkit::skip(&format!("{} is no Hopper", device.name()));
    Ok(None)
}

/// `rows x k` small integers, and powers of two for blocks.
struct Operand {
    values: Vec<E4M3>,
    factors: Vec<f32>,
}

impl Operand {
    fn random(random: &mut Random, rows: usize, k: usize, factors: usize) -> Self {
        Self {
            values: (0..rows * k).map(|_| E4M3::from_f32(random.integer(-2, 2) as f32)).collect(),
            factors: (0..factors).map(|_| [0.5, 1.0, 2.0][random.integer(0, 2) as usize]).collect(),
        }
    }

    /// With the factors multiplied in.
    fn whole(&self, k: usize, factor: impl Fn(usize, usize) -> usize) -> Vec<f32> {
        let element = |(at, x): (usize, &E4M3)| x.to_f32() * self.factors[factor(at / k, at % k)];
        self.values.iter().enumerate().map(element).collect()
    }
}

/// The result begins so many elements behind the beginning of a buffer.
fn check(stream: &Stream, [m, n, k]: [usize; 3], skip: usize) -> Result<()> {
    let mut random = Random::new((m * 1000 + n * 10 + k) as u64);
    let blocks = k.div_ceil(BLOCK);
    let a = Operand::random(&mut random, m, k, blocks * m);
    let b = Operand::random(&mut random, n, k, n.div_ceil(BLOCK) * blocks);
    let whole_a = a.whole(k, |row, l| l / BLOCK * m + row);
    let whole_b = b.whole(k, |row, l| row / BLOCK * blocks + l / BLOCK);
    let epilogue = Epilogue::<f32, f32>::NONE;
    let want = matmul(
        [1, m, n, k],
        Strided { data: &whole_a, row: k, column: 1, matrix: 0 },
        Strided { data: &whole_b, row: 1, column: k, matrix: 0 },
        epilogue,
    );

    let (values_a, factors_a) =
        (DeviceBuffer::from_slice(stream, &a.values)?, DeviceBuffer::from_slice(stream, &a.factors)?);
    let (values_b, factors_b) =
        (DeviceBuffer::from_slice(stream, &b.values)?, DeviceBuffer::from_slice(stream, &b.factors)?);
    let product = BlockScaled {
        m,
        n,
        k,
        a: values_a.view(),
        factors_a: factors_a.view(),
        b: values_b.view(),
        factors_b: factors_b.view(),
    };
    for kernel in BlockScaled::kernels() {
        let run = || -> Result<Vec<bf16>> {
            let mut c = DeviceBuffer::from_slice(stream, &vec![bf16::NAN; skip + m * n])?;
            product.run_with(stream, kernel, c.slice_mut(skip..)?)?;
            let mut all = c.to_vec(stream)?;
            assert!(all.drain(..skip).all(|x| x.is_nan()), "what lies before C");
            Ok(all)
        };
        let (got, what) = (run()?, format!("{kernel} {m}x{n}x{k}, {skip} elements in"));
        compare::rounded(&what, &got, &want.value, &want.magnitude, &[m, n], Tolerance::EXACT)
            .unwrap_or_else(|mismatch| panic!("{mismatch}"));
        compare::bitwise_equal(&what, &got, &run()?).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
    Ok(())
}

#[test]
fn exact_sums_of_every_shape() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    // Around a tile of 128 x 128 and a stage of 128; rows that cannot be copied; several tiles a block;
    // nothing.
    let shapes = [
        (128, 128, 128),
        (1, 7, 16),
        (129, 136, 144),
        (64, 257, 272),
        (300, 130, 400),
        // Blocks of k in every remainder of what is under way at a time.
        (257, 128, 640),
        (70, 264, 768),
        (5, 0, 16),
        (3, 4, 0),
    ];
    for (m, n, k) in shapes {
        check(&stream, [m, n, k], 0)?;
    }
    Ok(())
}

/// Neither the copy engine nor two elements at a time can store where C does not begin at a multiple of their
/// sizes, whatever its rows are.
#[test]
fn results_that_begin_anywhere() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    for (n, skip) in [(130, 1), (136, 1), (136, 2), (136, 8)] {
        check(&stream, [70, n, 144], skip)?;
        check_groups(&stream, n, skip)?;
    }
    Ok(())
}

#[test]
fn groups_of_rows() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    check_groups(&stream, 264, 0)
}

/// Groups of sizes around a tile's, one that is empty, and rows that belong to none. The result begins so
/// many elements behind the beginning of a buffer.
fn check_groups(stream: &Stream, n: usize, skip: usize) -> Result<()> {
    let offsets = [3i64, 4, 133, 133, 196, 325, 327];
    let (groups, [m, k]) = (offsets.len() - 1, [330usize, 528]);
    let mut random = Random::new(7);
    let (across, down) = (k.div_ceil(BLOCK), n.div_ceil(BLOCK));
    let a = Operand::random(&mut random, m, k, across * m);
    let b = Operand::random(&mut random, groups * n, k, groups * down * across);
    let whole_a = a.whole(k, |row, l| l / BLOCK * m + row);
    let whole_b = b.whole(k, |row, l| (row / n * down + row % n / BLOCK) * across + l / BLOCK);
    let (values_a, factors_a) =
        (DeviceBuffer::from_slice(stream, &a.values)?, DeviceBuffer::from_slice(stream, &a.factors)?);
    let (values_b, factors_b) =
        (DeviceBuffer::from_slice(stream, &b.values)?, DeviceBuffer::from_slice(stream, &b.factors)?);
    let on_device = DeviceBuffer::from_slice(stream, &offsets)?;
    let run = || -> Result<Vec<bf16>> {
        let mut c = DeviceBuffer::from_slice(stream, &vec![bf16::ONE; skip + m * n])?;
        let (a, b) = (values_a.view(), values_b.view());
        let product = BlockScaled { m, n, k, a, factors_a: factors_a.view(), b, factors_b: factors_b.view() };
        product.run_grouped::<i64>(stream, &on_device, c.slice_mut(skip..)?)?;
        let mut all = c.to_vec(stream)?;
        assert!(all.drain(..skip).all(|x| x == bf16::ONE), "what lies before C");
        Ok(all)
    };
    let got = run()?;
    for (group, rows) in offsets.windows(2).enumerate() {
        let (begin, rows) = (rows[0] as usize, (rows[1] - rows[0]) as usize);
        let want = matmul(
            [1, rows, n, k],
            Strided { data: &whole_a[begin * k..], row: k, column: 1, matrix: 0 },
            Strided { data: &whole_b[group * n * k..], row: 1, column: k, matrix: 0 },
            Epilogue::<f32, f32>::NONE,
        );
        let (what, got) = (format!("group {group}"), &got[begin * n..][..rows * n]);
        compare::rounded(&what, got, &want.value, &want.magnitude, &[rows, n], Tolerance::EXACT)
            .unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
    let (first, last) = (offsets[0] as usize * n, offsets[groups] as usize * n);
    assert!(got[..first].iter().chain(&got[last..]).all(|x| *x == bf16::ONE), "rows of no group");
    compare::bitwise_equal("groups", &got, &run()?).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    Ok(())
}

/// Columns of the quantised operands: whole blocks, and a part of one.
const WIDTH: usize = 400;

/// The product of `a: [m, k]` and the transpose of `b: [n, k]`.
fn transposed(a: &[f64], b: &[f64], k: usize) -> Accumulated {
    let [m, n] = [a.len() / k, b.len() / k];
    let (a, b) = (
        Strided { data: a, row: k, column: 1, matrix: 0 },
        Strided { data: b, row: 1, column: k, matrix: 0 },
    );
    matmul([1, m, n, k], a, b, Epilogue::<f32, f32>::NONE)
}

/// Numbers times their factors.
fn whole(
    stream: &Stream,
    numbers: &Tensor,
    factors: &Tensor,
    factor: impl Fn(usize, usize) -> usize,
) -> Result<Vec<f64>> {
    let (numbers, factors) = (numbers.to_vec::<E4M3>(stream)?, factors.to_vec::<f32>(stream)?);
    let element =
        |(at, x): (usize, E4M3)| f64::from(x.to_f32()) * f64::from(factors[factor(at / WIDTH, at % WIDTH)]);
    Ok(numbers.into_iter().enumerate().map(element).collect())
}

/// Rows of bf16 whose magnitudes differ by up to 2^24: one factor for all would leave nothing of the small
/// ones.
fn uneven(seed: u64, rows: usize) -> Vec<bf16> {
    let scale = |row: usize| 2f64.powi((row * 7 % 25) as i32 - 12);
    let values = input::<f32>(Family::Normal, seed, rows * WIDTH).into_iter().enumerate();
    values.map(|(at, x)| bf16::from_f64(f64::from(x) * scale(at / WIDTH))).collect()
}

/// A part of C against the product of the quantised operands, and of those that they were.
fn check_quantised(what: &str, got: &[bf16], [x, w]: [&[f64]; 2], quantised: [&[f64]; 2]) {
    let (sides, want) = ([x.len() / WIDTH, w.len() / WIDTH], transposed(quantised[0], quantised[1], WIDTH));
    // Tensor cores sum a block of k at a time.
    let limit = tolerance::GEMM_TENSOR_FP8.for_terms(BLOCK);
    compare::rounded(what, got, &want.value, &want.magnitude, &sides, limit)
        .unwrap_or_else(|mismatch| panic!("{mismatch}"));
    let (what, want) = (format!("{what}, not quantised"), transposed(x, w, WIDTH));
    let limit = tolerance::GEMM_QUANTIZED.tolerance();
    compare::rounded(&what, got, &want.value, &want.magnitude, &sides, limit)
        .unwrap_or_else(|mismatch| panic!("{mismatch}"));
    // An operand of 4 digits is off by 2.6 % in the mean square, both by 3.7 %, and so are sums.
    for (row, (got, want)) in got.chunks(sides[1]).zip(want.value.chunks(sides[1])).enumerate() {
        let square = |terms: &mut dyn Iterator<Item = f64>| terms.map(|x| x * x).sum::<f64>();
        let error = square(&mut got.iter().zip(want).map(|(got, want)| got.to_f64() - want));
        let ratio = (error / square(&mut want.iter().copied())).sqrt();
        assert!(ratio < 0.05, "{what}: row {row} is off by {ratio}");
    }
}

fn exact(values: &[bf16]) -> Vec<f64> {
    values.iter().map(|&x| x.into()).collect()
}

/// From bf16 to the product, of a matrix and of groups.
#[test]
fn operands_that_were_quantised() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    let (across, [m, n]) = (WIDTH.div_ceil(BLOCK), [150, 264]);
    let offsets = [0i32, 70, 70, 150];
    let groups = offsets.len() - 1;
    let (x, w) = (uneven(1, m), input::<bf16>(Family::Normal, 2, groups * n * WIDTH));
    let a = quantize_tiles(&stream, &Tensor::from_slice(&stream, &[m, WIDTH], &x)?)?;
    let of_groups = Tensor::from_slice(&stream, &[groups, n, WIDTH], &w)?;
    let b = quantize_blocks(&stream, &of_groups)?;
    let of_a = whole(&stream, &a.numbers, &a.factors, |row, column| column / BLOCK * m + row)?;
    let down = n.div_ceil(BLOCK);
    let of_b = whole(&stream, &b.numbers, &b.factors, |row, column| {
        (row / n * down + row % n / BLOCK) * across + column / BLOCK
    })?;
    let (x, w) = (exact(&x), exact(&w));

    let alone = quantize_blocks(&stream, &of_groups.select(0, 0)?)?;
    let mut c = DeviceBuffer::<bf16>::zeroed(&stream, m * n)?;
    BlockScaled::new(&a, &alone)?.run(&stream, &mut c)?;
    let first = ..n * WIDTH;
    check_quantised("a matrix", &c.to_vec(&stream)?, [&x, &w[first]], [&of_a, &of_b[first]]);

    let on_device = DeviceBuffer::from_slice(&stream, &offsets)?;
    BlockScaled::new(&a, &b)?.run_grouped::<i32>(&stream, &on_device, &mut c)?;
    let got = c.to_vec(&stream)?;
    for (group, ends) in offsets.windows(2).enumerate() {
        let rows = ends[0] as usize..ends[1] as usize;
        let (a, b) = (rows.start * WIDTH..rows.end * WIDTH, group * n * WIDTH..(group + 1) * n * WIDTH);
        let what = format!("group {group}");
        let of_group = &got[rows.start * n..rows.end * n];
        check_quantised(&what, of_group, [&x[a.clone()], &w[b.clone()]], [&of_a[a], &of_b[b]]);
    }
    Ok(())
}

/// Operands of [`BlockScaled::new`] that do not belong together.
#[test]
fn quantised_operands_that_do_not_fit() -> Result<()> {
    let stream = Device::open(0)?.stream()?;
    let zeros = |sides: &[usize]| Tensor::zeros(&stream, sides, DType::F32);
    let mut a = quantize_tiles(&stream, &zeros(&[3, 32])?)?;
    let b = quantize_blocks(&stream, &zeros(&[2, 5, 48])?)?;
    let error = BlockScaled::new(&a, &b).expect_err("48 columns are not 32");
    assert!(matches!(error.tensor_error(), Some(TensorError::Shape { what: "b", .. })), "{error}");
    assert!(error.to_string().contains("[groups, n, 32]"), "{error}");
    a.numbers = a.numbers.unsqueeze(0)?;
    let error = BlockScaled::new(&a, &b).expect_err("three dimensions");
    assert!(matches!(error.tensor_error(), Some(TensorError::Shape { what: "a", .. })), "{error}");
    a.numbers = zeros(&[3, 48])?;
    let error = BlockScaled::new(&a, &b).expect_err("numbers in f32");
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { .. })), "{error}");
    Ok(())
}

/// Without k there are zeros, in groups in their rows alone.
#[test]
fn nothing_to_sum_gives_zeros() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    let (m, n) = (9, 24);
    let (none, no_factors) =
        (DeviceBuffer::<E4M3>::zeroed(&stream, 0)?, DeviceBuffer::<f32>::zeroed(&stream, 0)?);
    let (a, b, factors) = (none.view(), none.view(), no_factors.view());
    let product = BlockScaled { m, n, k: 0, a, factors_a: factors, b, factors_b: factors };
    let mut c = DeviceBuffer::from_slice(&stream, &vec![bf16::ONE; m * n])?;
    let offsets = DeviceBuffer::from_slice(&stream, &[2, 5, 5, 7])?;
    product.run_grouped::<i32>(&stream, &offsets, &mut c)?;
    let want: Vec<bf16> =
        (0..m * n).map(|i| if (2..7).contains(&(i / n)) { bf16::ZERO } else { bf16::ONE }).collect();
    assert_eq!(c.to_vec(&stream)?, want);
    product.run(&stream, &mut c)?;
    assert_eq!(c.to_vec(&stream)?, vec![bf16::ZERO; m * n]);
    Ok(())
}

#[test]
fn wrong_calls_say_what_is_wrong() -> Result<()> {
    let Some(stream) = open()? else { return Ok(()) };
    let values = DeviceBuffer::<E4M3>::zeroed(&stream, 32 * 32)?;
    let factors = DeviceBuffer::<f32>::zeroed(&stream, 32)?;
    let mut c = DeviceBuffer::<bf16>::zeroed(&stream, 32 * 32)?;
    let right = BlockScaled {
        m: 32,
        n: 32,
        k: 32,
        a: values.view(),
        factors_a: factors.view(),
        b: values.view(),
        factors_b: factors.slice(..1)?,
    };
    right.run(&stream, &mut c)?;
    let is_length = |product: BlockScaled<'_>, c: &mut DeviceBuffer<bf16>, names: &str| matches!(product.run(&stream, c), Err(Error::Length { what, .. }) if what == names);
    assert!(is_length(BlockScaled { m: 31, ..right }, &mut c, "A"));
    assert!(is_length(BlockScaled { m: usize::MAX, n: usize::MAX, ..right }, &mut c, "A"));
    assert!(is_length(BlockScaled { n: 31, ..right }, &mut c, "B"));
    assert!(is_length(BlockScaled { factors_a: factors.slice(1..)?, ..right }, &mut c, "factors_a"));
    assert!(is_length(BlockScaled { factors_b: factors.view(), ..right }, &mut c, "factors_b"));
    let mut short = DeviceBuffer::<bf16>::zeroed(&stream, 32)?;
    assert!(is_length(right, &mut short, "C"));
    let odd = BlockScaled { k: 31, ..right }.run(&stream, &mut c);
    assert!(matches!(odd, Err(Error::InvalidArgument { argument: "k", .. })), "{odd:?}");
    let shifted = DeviceBuffer::<E4M3>::zeroed(&stream, 1 + 32 * 32)?;
    for (a, b) in [(shifted.slice(1..)?, right.b), (right.a, shifted.slice(1..)?)] {
        let unaligned = BlockScaled { a, b, ..right }.run(&stream, &mut c);
        assert!(matches!(unaligned, Err(Error::InvalidArgument { .. })), "{unaligned:?}");
    }
    let unknown = right.run_with(&stream, "gemm", &mut c);
    assert!(matches!(unknown, Err(Error::InvalidArgument { argument: "the kernel", .. })), "{unknown:?}");
    let floats = right.run_grouped::<f32>(&stream, &factors, &mut c);
    assert!(matches!(floats, Err(Error::InvalidArgument { argument: "the offsets", .. })), "{floats:?}");
    let three = DeviceBuffer::<i32>::zeroed(&stream, 3)?;
    let two_groups = right.run_grouped::<i32>(&stream, &three, &mut c);
    assert!(matches!(two_groups, Err(Error::Length { what: "B", .. })), "{two_groups:?}");
    Ok(())
}
