//! Attention elsewhere than on Hopper: on software devices of other compute capabilities.

use crate::attention_case::{Case, Number, Outcome, PLAIN, about, device};
use crate::ops_attention_backward as backward;
use crate::ops_attention_backward_packed as packed;
use crate::ops_attention_multi_head as multi_head;
use crate::ops_attention_packed as packed_forward;
use crate::ops_attention_sinks::gradients_of_sinks_by_mma;
use half::{bf16, f16};
use ironwarp::ops::attention::{Attention, Backward, Forward, Gradients, Heads, HeadsMut};
use ironwarp::ops::tuning::{Tuner, Tuning};
use ironwarp::{DeviceBuffer, Error, Stream, Tensor};
use reference::attention::Sides;
use std::cell::RefCell;
use testkit::{Family, input};

const SIDES: [usize; 4] = [1, 40, 2, 64];

/// The kernel that a small problem gets, or the error.
fn chosen<T: Number>(size: usize) -> Outcome<String> {
    chosen_with_values::<T>(size, size)
}

/// The same with values of this size.
fn chosen_with_values<T: Number>(size: usize, value_size: usize) -> Outcome<String> {
    let stream = device()?.stream()?;
    let [sides, of_values] = [size, value_size].map(|size| [1, 40, 2, size]);
    let x = DeviceBuffer::<T>::zeroed(&stream, sides.iter().product())?;
    let v = DeviceBuffer::<T>::zeroed(&stream, of_values.iter().product())?;
    let mut y = DeviceBuffer::<T>::zeroed(&stream, v.len())?;
    let [q, k] = [0; 2].map(|_| Heads::new::<T>(&x, sides));
    let (v, y) = (Heads::new::<T>(&v, of_values), HeadsMut::new(&mut y, of_values));
    let choice = Attention::new(q, k, v, y).explain(&stream);
    Ok(choice.map_or_else(|error| error.to_string(), |choice| choice.config.name().to_owned()))
}

#[test]
fn ampere_computes_the_forward_pass() -> Outcome {
    testkit::own_process!("IRONWARP_DRIVER" = "soft", "IRONWARP_SOFT_ARCH" = "8.0");
    for (size, head) in [(48, 64), (128, 128), (256, 256)] {
        assert_eq!(chosen::<bf16>(size)?, format!("attention_mma_bf16_{head}"));
        assert_eq!(chosen::<f16>(size)?, format!("attention_mma_f16_{head}"));
        let case = Case { queries: 70, keys: 150, heads: 4, kv_heads: 2, right: Some(0), size, ..PLAIN };
        case.check::<bf16>()?;
        Case { packed: Some(&[[3, 40], [66, 9], [0, 5], [5, 0], [64, 64]]), ..case }.check::<f16>()?;
    }
    packed_forward::too_short_lengths()?;
    packed_forward::wrong_row_numbers_do_no_harm()?;
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

/// Runs the call that it gets.
type Run<'r> = &'r dyn Fn(&Stream, Backward<'_>) -> ironwarp::Result<()>;

/// Runs the backward pass of a small problem.
fn gradients(run: Run<'_>) -> Outcome<Option<Error>> {
    gradients_with_values(SIDES[3], run)
}

/// The same with values of this size.
fn gradients_with_values(value_size: usize, run: Run<'_>) -> Outcome<Option<Error>> {
    let stream = device()?.stream()?;
    let [batch, rows, heads, _] = SIDES;
    let of_values = [batch, rows, heads, value_size];
    let zeros = |sides: [usize; 4]| DeviceBuffer::<bf16>::zeroed(&stream, sides.iter().product());
    let (x, v) = (zeros(SIDES)?, zeros(of_values)?);
    let logarithms = DeviceBuffer::<f32>::zeroed(&stream, batch * rows * heads)?;
    let (mut d_q, mut d_k, mut d_v) = (zeros(SIDES)?, zeros(SIDES)?, zeros(of_values)?);
    let [keys, values] = [Heads::new::<bf16>(&x, SIDES), Heads::new::<bf16>(&v, of_values)];
    let forward = Forward { queries: keys, keys, values, output: values, log_sum_exp: (&logarithms).into() };
    let gradients = Gradients {
        queries: HeadsMut::new(&mut d_q, SIDES),
        keys: HeadsMut::new(&mut d_k, SIDES),
        values: HeadsMut::new(&mut d_v, of_values),
    };
    Ok(run(&stream, Backward::new(forward, values, gradients)).err())
}

#[test]
fn ampere_computes_gradients() -> Outcome {
    testkit::own_process!("IRONWARP_DRIVER" = "soft", "IRONWARP_SOFT_ARCH" = "8.0");
    let chosen = RefCell::new(String::new());
    for (size, head) in [(48, 64), (128, 128), (256, 256)] {
        for is_deterministic in [false, true] {
            let sides = Sides { batch: 1, queries: 70, keys: 90, heads: 2, kv_heads: 1, size };
            let case = backward::Case { sides, right: Some(0), is_deterministic, ..backward::PLAIN };
            case.check_as::<bf16>(|stream, call| {
                chosen.replace(call.explain(stream)?.config.name().to_owned());
                call.run(stream)
            })?;
            assert_eq!(*chosen.borrow(), format!("attention_mma_backward_bf16_{head}"));
            case.check_as::<f16>(|stream, call| call.run(stream))?;
        }
    }
    let tuner = Tuner::new(&device()?, Tuning::Measure);
    backward::PLAIN.check_as::<bf16>(|stream, call| tuner.run(stream, call))?;
    assert_eq!(tuner.len(), 1);
    gradients_of_sinks_by_mma()?;
    packed::by_mma()?;
    packed::too_short_lengths_by_mma()?;
    packed::wrong_row_numbers_do_no_harm()?;
    packed::sequences_of_several_matrices_are_refused()?;
    // A layer: attention, and products around it.
    multi_head::plain_layers()
}

#[test]
fn score_functions_are_refused_with_the_reason() -> Outcome {
    testkit::own_process!("IRONWARP_DRIVER" = "soft", "IRONWARP_SOFT_ARCH" = "8.0");
    let refused = gradients(&|stream, call| call.soft_cap(2.0)?.run(stream))?;
    let error = refused.expect("no kernel of score functions");
    let text = error.to_string();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    assert!(text.contains("sm_80") && text.contains("9.0") && text.contains("\nhint: "), "{text}");
    Ok(())
}

#[test]
fn values_of_another_size_are_refused_with_the_reason() -> Outcome {
    testkit::own_process!("IRONWARP_DRIVER" = "soft", "IRONWARP_SOFT_ARCH" = "8.0");
    let says = |text: &str| {
        for part in
            ["sm_80", "values of the queries' head size, or a device of compute capability 9.0", "zeros"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    };
    for (size, value_size) in [(192, 128), (64, 72)] {
        let case = Case { queries: 9, keys: 20, size, value_size: Some(value_size), ..PLAIN };
        case.check::<bf16>()?;
        Case { packed: Some(&[[3, 40], [0, 5]]), ..case }.check::<f16>()?;
        says(&chosen_with_values::<bf16>(size, value_size)?);
    }
    let refused = gradients_with_values(128, &|stream, call| call.run(stream))?.expect("no kernel");
    assert_eq!(about(&refused), "the problem");
    says(&refused.to_string());
    // Nor would it be done with values of the queries' size.
    let capped = gradients_with_values(128, &|stream, call| call.soft_cap(2.0)?.run(stream))?;
    let text = capped.expect("no kernel").to_string();
    assert!(text.contains("score function") && !text.contains("zeros"), "{text}");
    Ok(())
}

#[test]
fn turing_has_no_attention() -> Outcome {
    testkit::own_process!("IRONWARP_DRIVER" = "soft", "IRONWARP_SOFT_ARCH" = "7.5");
    for value_size in [64, 128] {
        let text = chosen_with_values::<bf16>(64, value_size)?;
        assert!(text.contains("Ampere") && text.contains("\nhint: "), "{text}");
        let refused = gradients_with_values(value_size, &|stream, call| call.run(stream))?;
        let text = refused.expect("no kernel").to_string();
        assert!(text.contains("8.0") && text.contains("\nhint: "), "{text}");
    }
    Ok(())
}

#[test]
fn blackwell_computes_it_too() -> Outcome {
    testkit::own_process!("IRONWARP_DRIVER" = "soft", "IRONWARP_SOFT_ARCH" = "12.0");
    assert_eq!(chosen::<bf16>(64)?, "attention_mma_bf16_64");
    let error = gradients(&|stream, call| call.run(stream))?;
    assert!(error.is_none(), "{error:?}");
    Ok(())
}
