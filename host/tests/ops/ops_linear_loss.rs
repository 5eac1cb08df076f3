//! Cross-entropy behind a linear layer, in chunks of rows, against the oracle.

use crate::common::{Outcome, is_hopper, stream, tests};
use half::{bf16, f16};
use ironwarp::ops::row::{CrossEntropy, LinearCrossEntropy, Reduction};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Tensor, TensorError};
use reference::cross_entropy::SoftCrossEntropy as Oracle;
use reference::loss::linear_cross_entropy;
use reference::row::CrossEntropy as Plain;
use testkit::{Family, compare, input, tolerance};

const IGNORED: i64 = -100;
/// Rows, inputs, classes: classes that fill lines and do not, a single one, few and many inputs.
const SHAPES: [[usize; 3]; 5] = [[20, 24, 130], [9, 64, 192], [5, 3, 7], [3, 16, 1], [6, 1, 50]];

/// A loss, the rows of a chunk, and what multiplies the gradients.
fn cases(rows: usize) -> [(LinearCrossEntropy, f64); 4] {
    let loss = CrossEntropy::default();
    let hard = CrossEntropy { smoothing: 0.1, z_loss: 1e-2, reduction: Reduction::Sum, ..loss };
    let capped = CrossEntropy { soft_cap: Some(5.0), smoothing: 0.1, ..loss };
    [
        (LinearCrossEntropy { loss, chunk: None }, 1.0),
        // The last chunk has fewer rows.
        (LinearCrossEntropy { loss, chunk: Some(rows / 3 + 1) }, 3.0),
        (LinearCrossEntropy { loss: hard, chunk: Some(rows / 4 + 1) }, 0.5),
        (LinearCrossEntropy { loss: capped, chunk: Some(rows / 2 + 1) }, 2.0),
    ]
}

fn agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let find = |name: &str| tolerance::find(&format!("linear_cross_entropy{name} {}", <T as Element>::DTYPE));
    for (seed, [rows, inputs, classes]) in SHAPES.into_iter().enumerate() {
        let x: Vec<T> = input(Family::Normal, seed as u64, rows * inputs);
        let weight: Vec<T> = input(Family::Normal, 100 + seed as u64, classes * inputs);
        let targets: Vec<Option<usize>> =
            (0..rows).map(|row| (row % 4 != 2).then_some(row * 31 % classes)).collect();
        let numbers: Vec<i64> =
            targets.iter().map(|target| target.map_or(IGNORED, |class| class as i64)).collect();
        let counted = targets.iter().flatten().count() as f64;
        let given = Tensor::from_slice(&stream, &[rows, inputs], &x)?;
        let by = Tensor::from_slice(&stream, &[classes, inputs], &weight)?;
        let numbers = Tensor::from_slice(&stream, &[rows], &numbers)?;
        let wide = |values: &[T]| values.iter().map(|&v| v.into()).collect::<Vec<f64>>();
        for (number, (of, upstream)) in cases(rows).into_iter().enumerate() {
            let what = format!("{} {rows}x{inputs}x{classes} {number}", <T as Element>::DTYPE);
            let share = if of.loss.reduction == Reduction::Mean { 1.0 / counted } else { 1.0 };
            let plain = Plain { smoothing: of.loss.smoothing, z_loss: of.loss.z_loss };
            let oracle = Oracle { of: plain, cap: of.loss.soft_cap };
            let want =
                linear_cross_entropy(oracle, &wide(&x), &wide(&weight), inputs, &targets, share * upstream);
            let factor = Tensor::from_slice(&stream, &[], &[upstream as f32])?;
            let got = of.loss_and_gradients(&stream, &given, &by, &numbers, Some(&factor))?;
            let of_rows: Vec<f32> = got.loss.of_rows.to_vec(&stream)?;
            let (limit, losses) = (find("").for_terms(inputs), &want.losses);
            compare::accumulated(&what, &of_rows, &losses.value, &losses.magnitude, &[rows], limit)?;
            let sum = |values: &[f64]| [values.iter().sum::<f64>() * share];
            let value: Vec<f32> = got.loss.value.to_vec(&stream)?;
            compare::accumulated(&what, &value, &sum(&losses.value), &sum(&losses.magnitude), &[], limit)?;
            let limit = find("_gradient").for_terms(rows.max(classes));
            for (tensor, want, sides) in
                [(&got.x, &want.x, [rows, inputs]), (&got.weight, &want.weight, [classes, inputs])]
            {
                let values: Vec<T> = tensor.to_vec(&stream)?;
                assert_eq!(tensor.shape().sides(), sides);
                compare::accumulated(&what, &values, &want.value, &want.magnitude, &sides, limit)?;
            }
            let only = of.loss(&stream, &given, &by, &numbers)?;
            compare::bitwise_equal(&what, &only.of_rows.to_vec::<f32>(&stream)?, &of_rows)?;
            compare::bitwise_equal(&what, &only.value.to_vec::<f32>(&stream)?, &value)?;
            if number != 1 {
                continue;
            }
            let again = of.loss_and_gradients(&stream, &given, &by, &numbers, Some(&factor))?;
            let bits = |tensor: &Tensor| tensor.to_vec::<T>(&stream);
            compare::bitwise_equal(&what, &bits(&again.weight)?, &bits(&got.weight)?)?;
            compare::bitwise_equal(&what, &bits(&again.x)?, &bits(&got.x)?)?;
        }
    }
    Ok(())
}

tests!(agrees: of_f32 = f32, of_f16 = f16, of_bf16 = bf16);

/// A batch of sequences, whose rows are those of a larger tensor.
#[test]
fn axes_and_strides() -> Outcome {
    let stream = stream()?;
    let all = Tensor::from_slice(&stream, &[2, 3, 6], &input::<f32>(Family::Normal, 1, 36))?;
    let x = all.slice(2, 1..5)?;
    let weight = Tensor::from_slice(&stream, &[4, 5], &input::<f32>(Family::Normal, 2, 20))?.t()?;
    let targets = Tensor::from_slice(&stream, &[2, 3], &[0i32, 1, 2, 3, 4, -100])?;
    let of = LinearCrossEntropy { chunk: Some(4), ..LinearCrossEntropy::default() };
    let got = of.loss_and_gradients(&stream, &x, &weight, &targets, None)?;
    assert_eq!(got.loss.of_rows.shape().sides(), [2, 3]);
    assert_eq!((got.x.shape(), got.weight.shape()), (x.shape(), weight.shape()));
    let dense = |tensor: &Tensor| -> Result<Vec<f32>, Error> { tensor.to_vec(&stream) };
    let flat = Tensor::from_slice(&stream, &[6, 4], &dense(&x)?)?;
    let by = Tensor::from_slice(&stream, &[5, 4], &dense(&weight)?)?;
    let want = of.loss_and_gradients(&stream, &flat, &by, &targets.view_as(&[6])?, None)?;
    let limit = tolerance::find("linear_cross_entropy_gradient f32").tolerance();
    for (got, want) in
        [(&got.x, &want.x), (&got.weight, &want.weight), (&got.loss.of_rows, &want.loss.of_rows)]
    {
        let want: Vec<f64> = dense(want)?.into_iter().map(f64::from).collect();
        let scale = vec![4.0; want.len()];
        compare::accumulated("strided", &dense(got)?, &want, &scale, &[want.len()], limit)?;
    }
    Ok(())
}

#[test]
fn nothing_and_hostile_rows() -> Outcome {
    let stream = stream()?;
    let of = LinearCrossEntropy::default();
    let zeros = |sides: &[usize], dtype| Tensor::zeros(&stream, sides, dtype);
    for dtype in [DType::F32, DType::BF16] {
        let (x, weight) = (zeros(&[0, 4], dtype)?, zeros(&[3, 4], dtype)?);
        let got = of.loss_and_gradients(&stream, &x, &weight, &zeros(&[0], DType::I64)?, None)?;
        assert!(got.loss.value.item_on::<f32>(&stream)?.is_nan(), "the mean of none");
        let of_weight =
            ironwarp::ops::convert::convert(&stream, &got.weight, DType::F64)?.to_vec::<f64>(&stream)?;
        assert!(of_weight.iter().all(|&v| v == 0.0), "{of_weight:?}");
    }
    // Without inputs all classes are as likely.
    let (x, weight) = (zeros(&[2, 0], DType::F32)?, zeros(&[4, 0], DType::F32)?);
    let got = of.loss_and_gradients(&stream, &x, &weight, &zeros(&[2], DType::I64)?, None)?;
    assert!((got.loss.value.item_on::<f32>(&stream)? - 4f32.ln()).abs() < 1e-6);
    // A row with a NaN, one with an infinity, and one whose target is no class, beside one that is well.
    let mut values = vec![0.5f32; 16];
    (values[1], values[4]) = (f32::NAN, f32::INFINITY);
    let x = Tensor::from_slice(&stream, &[4, 4], &values)?;
    let weight = Tensor::from_slice(&stream, &[3, 4], &input::<f32>(Family::Normal, 1, 12))?;
    let targets = Tensor::from_slice(&stream, &[4], &[0i64, 1, 7, 2])?;
    let of = LinearCrossEntropy { chunk: Some(2), ..of };
    let got = of.loss_and_gradients(&stream, &x, &weight, &targets, None)?;
    let (losses, dx): (Vec<f32>, Vec<f32>) = (got.loss.of_rows.to_vec(&stream)?, got.x.to_vec(&stream)?);
    assert!(losses[..3].iter().all(|v| v.is_nan()) && losses[3].is_finite(), "{losses:?}");
    assert!(dx[..12].iter().all(|v| v.is_nan()) && dx[12..].iter().all(|v| v.is_finite()), "{dx:?}");
    assert!(got.weight.to_vec::<f32>(&stream)?.iter().all(|v| v.is_nan()));
    Ok(())
}

/// As a formula, at the size of GPT-2's last layer.
#[test]
fn a_bound_of_the_workspace() {
    let of = LinearCrossEntropy::default();
    let bytes = of.workspace(32_768, 768, 50_304, DType::BF16);
    // Four chunks of 8192 rows, the weight's gradient in f32, and copies of a chunk's rows and of the weight.
    assert_eq!(bytes, 8192 * 50_304 * 2 + 50_304 * 768 * 4 + (8192 + 50_304) * 768 * 2);
    assert!(bytes < 1_500_000_000, "{bytes}");
    for (rows, inputs, classes) in [(8192, 4096, 128_256), (131_072, 768, 50_257), (1_000_000, 64, 1000)] {
        for dtype in [DType::BF16, DType::F32] {
            let size = dtype.size();
            let others = if dtype == DType::F32 { 0 } else { classes * inputs * 4 };
            let others = others + (rows + classes) * inputs * size;
            let bytes = of.workspace(rows, inputs, classes, dtype);
            assert!(bytes <= (1 << 30) + others as u64, "{rows}x{inputs}x{classes} of {dtype}: {bytes}");
        }
    }
    // Few rows go at once, and need no sums apart.
    assert_eq!(of.workspace(10, 64, 64, DType::BF16), (10 * 64 + 74 * 64) * 2);
    // All logits at once take less than half of them and the weight's gradient in f32.
    let (rows, inputs, classes) = (8192, 4096, 128_256);
    let at_once = of.workspace(rows, inputs, classes, DType::BF16);
    assert_eq!(at_once, (rows * classes + (rows + classes) * inputs) as u64 * 2);
    let by_halves = LinearCrossEntropy { chunk: Some(rows / 2), ..of };
    assert!(at_once < by_halves.workspace(rows, inputs, classes, DType::BF16));
    // More than can be counted.
    for classes in [1 << 62, usize::MAX] {
        assert_eq!(of.workspace(1, 1, classes, DType::F32), u64::MAX);
        assert_eq!(of.workspace(usize::MAX, usize::MAX, classes, DType::BF16), u64::MAX);
    }
}

/// As the allocator counts.
#[test]
fn the_workspace_is_what_the_pool_has_seen() -> Outcome {
    // Millions of logits are slow to check.
    testkit::own_process!("IRONWARP_CHECK" = "0");
    let stream = stream()?;
    let device = stream.device();
    let (rows, inputs, classes, dtype) = (1024, 64, 4096, DType::BF16);
    let x = Tensor::zeros(&stream, &[rows, inputs], dtype)?;
    let weight = Tensor::zeros(&stream, &[classes, inputs], dtype)?;
    let targets = Tensor::zeros(&stream, &[rows], DType::I64)?;
    let results = ((rows + classes) * inputs * dtype.size()) as u64;
    let peak = |chunk: usize| -> Result<u64, Error> {
        stream.synchronize()?;
        device.reset_memory_peaks();
        let before = device.memory_stats().live;
        let of = LinearCrossEntropy { chunk: Some(chunk), ..LinearCrossEntropy::default() };
        of.loss_and_gradients(&stream, &x, &weight, &targets, None)?;
        stream.synchronize()?;
        let bound = results + of.workspace(rows, inputs, classes, dtype) + SLACK;
        let peak = device.memory_stats().peak_live - before;
        assert!(peak <= bound, "{peak} bytes of {bound} in chunks of {chunk} rows");
        Ok(peak)
    };
    let (all, part) = (peak(rows)?, peak(rows / 16)?);
    assert!(part < all / 2, "{part} bytes in chunks, {all} at once");
    Ok(())
}

/// A heap publishes what it uses in steps of a mebibyte, before and after; numbers of rows are a few KiB.
const SLACK: u64 = 2 << 20;

/// A weight whose rows begin anywhere is copied for the products once, whatever the number of chunks.
#[test]
fn the_weight_is_copied_once() -> Outcome {
    testkit::own_process!();
    if !is_hopper()? {
        return Ok(());
    }
    let stream = stream()?;
    if !stream.device().is_software() {
        testkit::skip("which kernels were launched is known on the software driver only");
        return Ok(());
    }
    let (rows, inputs, classes) = (512, 100, 200);
    let matrix = |rows: usize| {
        Tensor::from_slice(
            &stream,
            &[rows, inputs],
            &input::<bf16>(Family::Normal, rows as u64, rows * inputs),
        )
    };
    let (x, weight) = (matrix(rows)?, matrix(classes)?);
    let targets = Tensor::from_slice(&stream, &[rows], &vec![3i64; rows])?;
    let copies = |chunks: usize| -> Result<u64, Error> {
        let count = || {
            driver::soft::launches()
                .iter()
                .filter(|of| of.kernel.starts_with("gemm_repack"))
                .map(|of| of.times)
                .sum::<u64>()
        };
        let before = count();
        let linear = LinearCrossEntropy { chunk: Some(rows / chunks), ..LinearCrossEntropy::default() };
        linear.loss_and_gradients(&stream, &x, &weight, &targets, None)?;
        stream.synchronize()?;
        Ok(count() - before)
    };
    let (two, four) = (copies(2)?, copies(4)?);
    // Those of the chunk's rows, for the logits and for the weight's gradient.
    assert!(two > 0 && four - two <= 2 * 2, "{two} copies for two chunks, {four} for four");
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    let (x, weight, targets) =
        (zeros(&[2, 3], DType::F32)?, zeros(&[5, 3], DType::F32)?, zeros(&[2], DType::I64)?);
    let plain = LinearCrossEntropy::default();
    let of = |of: LinearCrossEntropy, x: &Tensor, weight: &Tensor, targets: &Tensor| {
        of.loss_and_gradients(&stream, x, weight, targets, None).expect_err("a wrong call")
    };
    let is = |error: Error, kind: fn(&TensorError) -> bool| {
        assert!(error.tensor_error().is_some_and(kind), "{error}");
        assert!(error.to_string().starts_with("linear_cross_entropy: "), "{error}");
    };
    is(of(plain, &x, &zeros(&[5, 4], DType::F32)?, &targets), |e| {
        matches!(e, TensorError::Shape { what: "weight", .. })
    });
    is(of(plain, &x, &zeros(&[3], DType::F32)?, &targets), |e| {
        matches!(e, TensorError::Shape { what: "weight", .. })
    });
    is(of(plain, &x, &zeros(&[5, 3], DType::BF16)?, &targets), |e| {
        matches!(e, TensorError::DType { what: "weight", .. })
    });
    is(of(plain, &zeros(&[2, 3], DType::F64)?, &zeros(&[5, 3], DType::F64)?, &targets), |e| {
        matches!(e, TensorError::DType { what: "x", .. })
    });
    is(of(plain, &x, &weight, &zeros(&[3], DType::I64)?), |e| {
        matches!(e, TensorError::Shape { what: "targets", .. })
    });
    is(of(plain, &x, &weight, &zeros(&[2], DType::F32)?), |e| {
        matches!(e, TensorError::DType { what: "targets", .. })
    });
    is(of(plain, &zeros(&[], DType::F32)?, &weight, &targets), |e| matches!(e, TensorError::Axis { .. }));
    is(of(plain, &x, &zeros(&[0, 3], DType::F32)?, &targets), |e| matches!(e, TensorError::Empty { .. }));
    let smooth = CrossEntropy { smoothing: 2.0, ..CrossEntropy::default() };
    let capped = CrossEntropy { soft_cap: Some(0.0), ..CrossEntropy::default() };
    for (wrong, argument) in [
        (LinearCrossEntropy { chunk: Some(0), ..plain }, "chunk"),
        (LinearCrossEntropy { loss: smooth, ..plain }, "smoothing"),
        (LinearCrossEntropy { loss: capped, ..plain }, "soft_cap"),
    ] {
        let error = of(wrong, &x, &weight, &targets);
        let named = matches!(&error, Error::InvalidArgument { operation: "linear_cross_entropy", argument: got, .. } if *got == argument);
        assert!(named, "{error}");
    }
    Ok(())
}
