//! Wrong calls of convolutions, and what their errors say.

use ironwarp::ops::conv::{Activation, Algorithm, Conv2d, Fused, Tile};
use ironwarp::{DType, Error, Tensor, TensorError};

use crate::common::{Outcome, stream};

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let tensor = |sides: &[usize], dtype| Tensor::zeros(&stream, sides, dtype);
    let plain = Conv2d::default();
    let wrong = |op: Conv2d, x: &[usize], filters: &[usize], is_it: fn(&Error) -> bool| -> Outcome {
        let (x, filters) = (tensor(x, DType::BF16)?, tensor(filters, DType::BF16)?);
        let error = op.forward(&stream, &x, &filters, Fused::default()).unwrap_err();
        assert!(is_it(&error), "{error}");
        assert!(error.to_string().contains("\nhint: ") && error.is_recoverable(), "{error}");
        Ok(())
    };
    wrong(plain, &[5, 5, 8], &[8, 3, 3, 8], |e| e.to_string().contains("x has shape"))?;
    wrong(plain, &[1, 5, 5, 8], &[8, 3, 8], |e| e.to_string().contains("filters has shape"))?;
    wrong(plain, &[1, 5, 5, 8], &[8, 3, 3, 16], |e| e.to_string().contains("wanted 8 channels"))?;
    wrong(plain, &[1, 5, 5, 8], &[8, 7, 3, 8], |e| e.to_string().contains("windows of 1 to 5"))?;
    wrong(plain, &[1, 5, 5, 8], &[8, 0, 3, 8], |e| e.to_string().contains("windows of 1 to 5"))?;
    for op in [
        Conv2d { stride: [0, 1], ..plain },
        Conv2d { dilation: [1, 0], ..plain },
        Conv2d { groups: 0, ..plain },
        Conv2d { groups: 3, ..plain },
    ] {
        wrong(op, &[1, 5, 5, 8], &[8, 3, 3, 8], |e| matches!(e, Error::InvalidArgument { .. }))?;
    }
    let by_windows = Conv2d { algorithm: Algorithm::Windows(Tile::Wide), ..plain };
    wrong(by_windows, &[1, 5, 5, 8], &[8, 3, 3, 8], |e| {
        e.to_string().contains("`Algorithm::Gather` can do all")
    })?;
    let far = Conv2d { padding: [usize::MAX, 0], ..plain };
    let (x, filters) = (tensor(&[1, 5, 5, 8], DType::BF16)?, tensor(&[8, 3, 3, 8], DType::BF16)?);
    let error = far.forward(&stream, &x, &filters, Fused::default()).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::TooLarge { .. })), "{error}");
    // Beyond 32 bits with channels in whole units, and as a product for each position and group.
    let many = 1 << 29;
    let number = tensor(&[1, 1, 1, 1], DType::BF16)?;
    let (images, each) = (number.broadcast_to(&[1, 1, 1, many])?, number.broadcast_to(&[many, 1, 1, 1])?);
    let error = Conv2d { groups: many, ..plain }.forward(&stream, &images, &each, Fused::default());
    let apart = Conv2d { groups: 4096, stride: [1024; 2], ..plain };
    let (dy, each) = (number.broadcast_to(&[1, 1, 1, 4096])?, number.broadcast_to(&[4096, 1, 1, 1])?);
    for error in [error.unwrap_err(), apart.input_gradient(&stream, &dy, &each, [1024; 2]).unwrap_err()] {
        assert!(matches!(error.tensor_error(), Some(TensorError::TooLarge { .. })), "{error}");
    }
    let other = tensor(&[8, 3, 3, 8], DType::F16)?;
    let error = plain.forward(&stream, &x, &other, Fused::default()).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { what: "filters", .. })), "{error}");
    let ints = tensor(&[1, 5, 5, 8], DType::I32)?;
    let error = plain.forward(&stream, &ints, &ints, Fused::default()).unwrap_err();
    assert!(error.tensor_error().is_some(), "{error}");
    let halved = Fused { activation: Activation::SwiGlu, ..Fused::default() };
    let error = plain.forward(&stream, &x, &filters, halved).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "activation", .. }), "{error}");
    let bias = tensor(&[7], DType::BF16)?;
    let error =
        plain.forward(&stream, &x, &filters, Fused { bias: Some(&bias), ..Fused::default() }).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::Shape { what: "bias", .. })), "{error}");
    for error in [
        plain.input_gradient(&stream, &x, &filters, [5, 5]).unwrap_err(),
        plain.filter_gradient(&stream, &x, &x, [3, 3]).unwrap_err(),
    ] {
        assert!(
            matches!(error.tensor_error(), Some(TensorError::Shape { what: "the gradient", .. })),
            "{error}"
        );
    }
    Ok(())
}
