//! Elements at other places, as PyTorch puts them: values by hand, and the same elements by their numbers.

use std::error::Error as StdError;

use ironwarp::{DType, Device, Error, Result, Tensor, TensorError};

type Outcome = std::result::Result<(), Box<dyn StdError>>;

fn counting(shape: &[usize]) -> Result<Tensor> {
    let n = shape.iter().product::<usize>() as i64;
    Tensor::arange(&Device::open(0)?, 0, n, 1, DType::I32)?.view_as(shape)
}

fn has(got: Tensor, shape: &[usize], want: &[i32]) -> Result<()> {
    assert_eq!(got.shape().sides(), shape);
    assert_eq!(got.tolist::<i32>()?, want);
    Ok(())
}

#[test]
fn reversed() -> Outcome {
    let x = counting(&[2, 3])?;
    has(x.flip(&[1])?, &[2, 3], &[2, 1, 0, 5, 4, 3])?;
    has(x.flip(&[0, -1])?, &[2, 3], &[5, 4, 3, 2, 1, 0])?;
    has(x.t()?.flip(&[0])?, &[3, 2], &[2, 5, 1, 4, 0, 3])?;
    has(x.flip::<i32>(&[])?, &[2, 3], &[0, 1, 2, 3, 4, 5])?;
    assert!(counting(&[2, 0])?.flip(&[0, 1])?.is_empty());
    let error = x.flip(&[1, 1]).expect_err("twice");
    assert!(matches!(error.tensor_error(), Some(TensorError::Axes { operation: "flip", .. })), "{error}");
    Ok(())
}

#[test]
fn rotated() -> Outcome {
    let x = counting(&[2, 3])?;
    has(x.roll(1, 1)?, &[2, 3], &[2, 0, 1, 5, 3, 4])?;
    has(x.roll(-1, -1)?, &[2, 3], &[1, 2, 0, 4, 5, 3])?;
    for (shift, same) in [(0, 0), (7, 1), (i64::MAX, i64::MAX % 3), (i64::MIN, i64::MIN % 3)] {
        has(x.roll(shift, 1)?, &[2, 3], &x.roll(same, 1)?.tolist::<i32>()?)?;
    }
    has(x.roll(1, 0)?, &[2, 3], &[3, 4, 5, 0, 1, 2])?;
    assert!(counting(&[0])?.roll(5, 0)?.is_empty());
    assert!(matches!(x.roll(1, 2).expect_err("no dimension").tensor_error(), Some(TensorError::Axis { .. })));
    Ok(())
}

#[test]
fn repeated() -> Outcome {
    let x = counting(&[2, 2])?;
    has(x.repeat(&[1, 2])?, &[2, 4], &[0, 1, 0, 1, 2, 3, 2, 3])?;
    has(x.repeat(&[2, 1])?, &[4, 2], &[0, 1, 2, 3, 0, 1, 2, 3])?;
    has(x.repeat(&[2, 2])?, &[4, 4], &[0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3])?;
    has(x.t()?.repeat(&[3, 1, 1])?, &[3, 2, 2], &[0, 2, 1, 3, 0, 2, 1, 3, 0, 2, 1, 3])?;
    has(x.repeat(&[0, 3])?, &[0, 6], &[])?;
    // A copy, also where nothing is repeated: it can be written.
    let mut same = x.repeat(&[1, 1])?;
    same.add_(1)?;
    has(x.clone(), &[2, 2], &[0, 1, 2, 3])?;
    for repeats in [&[1, 1, 1][..], &[3, 1, 1], &[3, 2], &[0, 1]] {
        let mut more = x.repeat(repeats)?;
        assert!(more.is_contiguous());
        more.add_(1)?;
    }
    let mut wide = counting(&[2, 1])?.repeat(&[1, 4])?;
    wide.add_(1)?;
    has(wide, &[2, 4], &[1, 1, 1, 1, 2, 2, 2, 2])?;
    let deepest = counting(&[2])?.repeat(&[2, 1, 1, 1, 1, 1, 3, 2])?;
    has(deepest.flatten(2, -1)?.select(1, 0)?, &[2, 12], &[0, 1].repeat(12).into_iter().collect::<Vec<_>>())?;
    let error = x.repeat(&[2]).expect_err("too few counts");
    assert!(matches!(error, Error::InvalidArgument { operation: "repeat", .. }), "{error}");
    x.repeat(&[usize::MAX, 2]).expect_err("too many elements");
    Ok(())
}

#[test]
fn padded() -> Outcome {
    let x = counting(&[2, 2])?;
    has(x.pad(&[[1, 2]], 9)?, &[2, 5], &[9, 0, 1, 9, 9, 9, 2, 3, 9, 9])?;
    has(x.pad(&[[0, 1], [1, 0]], -1)?, &[3, 3], &[-1, -1, -1, 0, 1, -1, 2, 3, -1])?;
    has(x.t()?.pad(&[[1, 0]], 7)?, &[2, 3], &[7, 0, 2, 7, 1, 3])?;
    has(x.pad(&[], 7)?, &[2, 2], &[0, 1, 2, 3])?;
    has(counting(&[0])?.pad(&[[1, 1]], 4)?, &[2], &[4, 4])?;
    let error = x.pad(&[[0, 0]; 3], 0).expect_err("too many dimensions");
    assert!(matches!(error, Error::InvalidArgument { operation: "pad", argument: "padding", .. }), "{error}");
    x.pad(&[[usize::MAX, 1]], 0).expect_err("too many elements");
    x.pad(&[[1, 1]], i64::MAX).expect_err("a number that i32 does not have");
    let half = x.to(DType::BF16)?.pad(&[[1, 0]], 0.5)?.to(DType::F32)?;
    assert_eq!(half.tolist::<f32>()?, [0.5, 0.0, 1.0, 0.5, 2.0, 3.0]);
    Ok(())
}

#[test]
fn classes_as_rows() -> Outcome {
    let device = Device::open(0)?;
    let x = Tensor::from_slice(&device, &[2, 2], &[2i64, 0, 1, 2])?;
    let rows = x.one_hot(3)?;
    assert_eq!((rows.dtype(), rows.shape().sides()), (DType::I64, &[2, 2, 3][..]));
    assert_eq!(rows.tolist::<i64>()?, [0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(x.to(DType::I32)?.one_hot(4)?.sum(&[-1])?.tolist::<i64>()?, [1; 4]);
    let error = x.one_hot(2).expect_err("a class too few");
    assert!(matches!(error.tensor_error(), Some(TensorError::Index { index: 2, bound: 2, .. })), "{error}");
    x.to(DType::F32)?.one_hot(3).expect_err("no index");
    assert_eq!(Tensor::zeros(&device, &[0], DType::I64)?.one_hot(3)?.shape().sides(), [0, 3]);
    Ok(())
}
