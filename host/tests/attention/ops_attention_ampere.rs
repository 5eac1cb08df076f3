//! Attention elsewhere than on Hopper: on software devices of other compute capabilities.

use crate::attention_case::{Case, Outcome, PLAIN, device};
use half::{bf16, f16};
use ironwarp::ops::attention::{Attention, Backward, Forward, Gradients, Heads, HeadsMut};
use ironwarp::{DeviceBuffer, Error, Tensor};
use testkit::{Family, input};

const SIDES: [usize; 4] = [1, 40, 2, 64];

/// The kernel that a small problem gets, or the error.
fn chosen() -> Outcome<String> {
    let stream = device()?.stream()?;
    let x = DeviceBuffer::<bf16>::zeroed(&stream, SIDES.iter().product())?;
    let mut y = DeviceBuffer::<bf16>::zeroed(&stream, x.len())?;
    let [q, k, v] = [0; 3].map(|_| Heads::new::<bf16>(&x, SIDES));
    let choice = Attention::new(q, k, v, HeadsMut::new(&mut y, SIDES)).explain(&stream);
    Ok(match choice {
        Ok(choice) => choice.config.name().to_owned(),
        Err(error) => error.to_string(),
    })
}

/// A software device of a capability has it; on a GPU the variable says nothing.
fn is_soft(major: u32) -> Outcome<bool> {
    let is_asked_for = device()?.arch().major == major;
    if !is_asked_for {
        testkit::skip("the device is no software device");
    }
    Ok(is_asked_for)
}

#[test]
fn ampere_computes_the_forward_pass() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_ARCH" = "8.0");
    if !is_soft(8)? {
        return Ok(());
    }
    assert_eq!(chosen()?, "attention_mma_bf16_64");
    for size in [48, 128, 256] {
        let case = Case { queries: 70, keys: 150, heads: 4, kv_heads: 2, right: Some(0), size, ..PLAIN };
        case.check::<bf16>()?;
        Case { packed: Some(&[[3, 40], [66, 9], [0, 5], [5, 0], [64, 64]]), ..case }.check::<f16>()?;
    }
    // The method of tensors, of heads before rows.
    let stream = device()?.current_stream()?;
    let shape = [2, 3, 21, 24];
    let tensor = |seed| {
        let len = shape.iter().product();
        Tensor::from_slice(&stream, &shape, &input::<bf16>(Family::Normal, seed, len))
    };
    let (q, k, v) = (tensor(1)?, tensor(2)?, tensor(3)?);
    let got = q.scaled_dot_product_attention(&k, &v, true, None)?;
    // The first query sees the first key alone.
    let first = |x: &Tensor| x.select(2, 0)?.to_vec::<bf16>(&stream);
    assert_eq!(first(&got)?, first(&v)?);
    Ok(())
}

#[test]
fn gradients_are_refused_with_the_reason() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_ARCH" = "8.0");
    if !is_soft(8)? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let x = DeviceBuffer::<bf16>::zeroed(&stream, SIDES.iter().product())?;
    let zeros = || DeviceBuffer::<bf16>::zeroed(&stream, x.len());
    let logarithms = DeviceBuffer::<f32>::zeroed(&stream, x.len() / 64)?;
    let (mut d_q, mut d_k, mut d_v) = (zeros()?, zeros()?, zeros()?);
    let heads = || Heads::new::<bf16>(&x, SIDES);
    let forward = Forward {
        queries: heads(),
        keys: heads(),
        values: heads(),
        output: heads(),
        log_sum_exp: (&logarithms).into(),
    };
    let gradients = Gradients {
        queries: HeadsMut::new(&mut d_q, SIDES),
        keys: HeadsMut::new(&mut d_k, SIDES),
        values: HeadsMut::new(&mut d_v, SIDES),
    };
    let error = Backward::new(forward, heads(), gradients).run(&stream).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    assert!(text.contains("sm_80") && text.contains("9.0") && text.contains("\nhint: "), "{text}");
    Ok(())
}

#[test]
fn turing_has_no_attention() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_ARCH" = "7.5");
    if is_soft(7)? {
        let text = chosen()?;
        assert!(text.contains("Ampere") && text.contains("\nhint: "), "{text}");
    }
    Ok(())
}

#[test]
fn blackwell_computes_it_too() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_ARCH" = "12.0");
    if is_soft(12)? {
        assert_eq!(chosen()?, "attention_mma_bf16_64");
    }
    Ok(())
}
