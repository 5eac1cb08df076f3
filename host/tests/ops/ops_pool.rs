//! Pooling and its gradients against the oracle, on whichever driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::bytemuck::Pod;
use ironwarp::ops::pool::Pool2d;
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Tensor, TensorError};
use reference::conv::{Axis, Pool};
use testkit::{Family, compare, input, tolerance};

/// Images, channels, and for both axes: input, window, stride, padding, dilation.
type Case = (usize, usize, [usize; 5], [usize; 5]);

const CASES: &[Case] = &[
    (2, 64, [12, 3, 2, 1, 1], [13, 3, 2, 1, 1]),
    (1, 8, [6, 2, 2, 0, 1], [7, 2, 2, 0, 1]),
    (1, 5, [9, 3, 1, 1, 2], [8, 2, 3, 1, 1]),
    (3, 3, [1, 1, 1, 0, 1], [4, 4, 1, 2, 1]),
    (1, 16, [7, 7, 1, 0, 1], [7, 7, 7, 3, 1]),
    (1, 12, [11, 2, 5, 0, 1], [10, 3, 4, 1, 3]),
    (0, 8, [5, 3, 2, 1, 1], [5, 3, 2, 1, 1]),
];

fn oracle(&(images, channels, height, width): &Case) -> Pool {
    let axis = |[input, filter, stride, padding, dilation]: [usize; 5]| Axis {
        input,
        filter,
        stride,
        padding,
        dilation,
    };
    Pool { images, channels, height: axis(height), width: axis(width) }
}

fn op(&(_, _, height, width): &Case) -> Pool2d {
    let of = |index: usize| [height[index], width[index]];
    Pool2d { size: of(1), stride: of(2), padding: of(3), dilation: of(4) }
}

fn check<T: Element + testkit::Element + Pod + Into<f64> + Sync>(
    families: &[Family],
    row: tolerance::Row,
) -> Outcome {
    let stream = stream()?;
    for (seed, (case, &family)) in
        CASES.iter().flat_map(|case| families.iter().map(move |family| (case, family))).enumerate()
    {
        let (pool, op) = (oracle(case), op(case));
        let [of_x, of_y] = pool.sides();
        let x = input::<T>(family, seed as u64, of_x.iter().product());
        let gradient = input::<T>(Family::Normal, seed as u64 + 99, of_y.iter().product());
        let on_x = Tensor::from_slice(&stream, &of_x, &x)?;
        let on_gradient = Tensor::from_slice(&stream, &of_y, &gradient)?;
        let what = |name: &str| format!("{name} {} {family:?} {case:?}", T::DTYPE);
        let limit = row.for_terms(pool.height.filter * pool.width.filter);

        let (y, places) = op.max(&stream, &on_x)?;
        let (want, want_places) = pool.max(&x);
        compare::elementwise(
            &what("max"),
            &y.to_vec::<T>(&stream)?,
            &want,
            &of_y,
            tolerance::Tolerance::EXACT,
        )?;
        assert_eq!(places.to_vec::<i32>(&stream)?, want_places, "{}", what("places"));
        let [_, height, width, _] = of_x;
        let dx = op.max_gradient(&stream, &on_gradient, &places, [height, width])?.to_vec::<T>(&stream)?;
        let want = pool.max_gradient(&x, &gradient);
        compare::rounded(&what("max's gradient"), &dx, &want.value, &want.magnitude, &of_x, limit)?;
        if op.dilation != [1, 1] {
            continue;
        }
        for counts in [false, true] {
            let y = op.average(&stream, &on_x, counts)?.to_vec::<T>(&stream)?;
            let want = pool.average(&x, counts);
            compare::rounded(&what("mean"), &y, &want.value, &want.magnitude, &of_y, limit)?;
            let dx = op.average_gradient(&stream, &on_gradient, [height, width], counts)?;
            let want = pool.average_gradient(&gradient, counts);
            let dx = dx.to_vec::<T>(&stream)?;
            compare::rounded(&what("mean's gradient"), &dx, &want.value, &want.magnitude, &of_x, limit)?;
        }
    }
    Ok(())
}

#[test]
fn pools_and_gradients_agree() -> Outcome {
    // Small integers have equals, special numbers NaN and infinities.
    check::<f32>(&[Family::Normal, Family::SmallIntegers, Family::Special], tolerance::REDUCE_SUM)?;
    check::<f16>(&[Family::SmallIntegers], tolerance::REDUCE_SUM_F16)?;
    check::<bf16>(&[Family::Normal, Family::Special], tolerance::REDUCE_SUM_BF16)
}

#[test]
fn elements_that_begin_anywhere_and_lie_otherwise() -> Outcome {
    let stream = stream()?;
    let case = &CASES[0];
    let (pool, op) = (oracle(case), op(case));
    let [of_x, _] = pool.sides();
    let x = input::<bf16>(Family::Normal, 1, of_x.iter().product());
    let on_x = Tensor::from_slice(&stream, &of_x, &x)?;
    let want = op.max(&stream, &on_x)?.0.to_vec::<bf16>(&stream)?;
    let mut shifted = vec![bf16::ZERO];
    shifted.extend(&x);
    let shifted = Tensor::from_slice(&stream, &[x.len() + 1], &shifted)?.slice(0, 1..)?.view_as(&of_x)?;
    compare::bitwise_equal("shifted", &op.max(&stream, &shifted)?.0.to_vec::<bf16>(&stream)?, &want)?;
    // PyTorch's shape, in its order and in ours.
    let turned = on_x.permute(&[0, 3, 1, 2])?;
    for x in [turned.clone(), turned.contiguous()?] {
        let y = x.max_pool2d(op)?.permute(&[0, 2, 3, 1])?;
        compare::bitwise_equal("turned", &y.contiguous()?.to_vec::<bf16>(&stream)?, &want)?;
        let mean = x.avg_pool2d(op, true)?;
        assert_eq!(mean.shape().sides()[1], of_x[3]);
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let x = Tensor::zeros(&stream, &[1, 5, 5, 8], DType::BF16)?;
    let plain = Pool2d::new([2, 2]);
    for (wrong, part) in [
        (Pool2d { size: [0, 2], ..plain }, "size"),
        (Pool2d { stride: [1, 0], ..plain }, "stride"),
        (Pool2d { dilation: [0, 1], ..plain }, "dilation"),
        (Pool2d { padding: [2, 0], ..plain }, "half a window"),
        (Pool2d { padding: [usize::MAX, 0], ..plain }, "half a window"),
        (Pool2d::new([7, 2]), "at least 7 positions"),
    ] {
        let error = wrong.max(&stream, &x).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("\nhint: "), "{error}");
    }
    // 2^32 positions, of which all but one are padding.
    let vast = Pool2d { padding: [1 << 15; 2], ..Pool2d::new([1 << 16; 2]) };
    let error = vast.average(&stream, &x, true).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::TooLarge { .. })), "{error}");
    let error = Pool2d { dilation: [2, 2], ..plain }.average(&stream, &x, true).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "dilation", .. }), "{error}");
    let error = plain.max(&stream, &x.view_as(&[5, 5, 8])?).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::Shape { .. })), "{error}");
    let ints = Tensor::zeros(&stream, &[1, 5, 5, 8], DType::I32)?;
    let error = plain.max(&stream, &ints).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { .. })), "{error}");
    let (y, _) = plain.max(&stream, &x)?;
    let error = plain.max_gradient(&stream, &y, &y, [5, 5]).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { what: "places", .. })), "{error}");
    let error = plain.average_gradient(&stream, &x, [5, 5], true).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::Shape { .. })), "{error}");
    Ok(())
}
