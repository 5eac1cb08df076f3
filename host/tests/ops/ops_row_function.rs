//! Functions of rows by the call that packages of their own take, with the family's kernels.

use crate::common::{Outcome, is_hopper, stream};
use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::row::{run_function, run_function_held, softmax, softmax_backward};
use ironwarp::{DType, Tensor};
use rows::kernels::{softmax_backward_bf16, softmax_bf16};
use rows::sm90::kernels::{softmax_backward_held_bf16, softmax_held_bf16};
use rows::softmax::{SoftmaxArgs, SoftmaxBackwardArgs};

/// Rows of bf16 that are not all alike.
fn rows(sides: &[usize], salt: usize) -> Outcome<Tensor> {
    let elements: usize = sides.iter().product();
    let number = |i: usize| bf16::from_f32(((i * 7 + salt) % 23) as f32 / 4.0 - 2.0);
    Ok(Tensor::from_slice(&stream()?, sides, &(0..elements).map(number).collect::<Vec<_>>())?)
}

fn bits(tensor: &Tensor) -> Outcome<Vec<u16>> {
    Ok(tensor.to_vec::<bf16>(&stream()?)?.iter().map(|x| x.to_bits()).collect())
}

#[test]
fn results_are_those_of_the_library() -> Outcome {
    let stream = stream()?;
    for sides in [&[3, 1040][..], &[2, 3, 7], &[5, 8], &[1], &[0, 64], &[2, 40_000]] {
        let x = rows(sides, 1)?;
        let function = || SoftmaxArgs { is_log: 0 }.pass();
        // SAFETY: the function reads its input alone, and writes one output.
        let ([direct], [held]) = unsafe {
            (
                run_function::<softmax_bf16, _>(&stream, function(), &[&x])?,
                run_function_held::<softmax_bf16, softmax_held_bf16, _>(&stream, function(), &[&x])?,
            )
        };
        let wanted = softmax(&stream, &x, sides.len() - 1)?;
        assert_eq!((direct.shape(), direct.dtype()), (x.shape(), x.dtype()));
        // The two engines add up in orders of their own, of which the library takes the second.
        assert_eq!(bits(&held)?, bits(&wanted)?, "{sides:?}");
        for (x, y) in direct.to_vec::<bf16>(&stream)?.iter().zip(wanted.to_vec::<bf16>(&stream)?) {
            assert!((x.to_f32() - y.to_f32()).abs() <= y.to_f32() / 128.0, "{sides:?}: {x} and {y}");
        }
    }
    Ok(())
}

#[test]
fn functions_of_two_inputs_of_any_strides() -> Outcome {
    let stream = stream()?;
    let (y, dy) = (rows(&[3, 1280], 1)?.slice(1, 0..640)?, rows(&[3, 640], 5)?);
    let function = SoftmaxBackwardArgs { is_log: 0 }.pass();
    // SAFETY: the function reads its inputs alone, and writes one output.
    let [dx] = unsafe {
        run_function_held::<softmax_backward_bf16, softmax_backward_held_bf16, _>(
            &stream,
            function,
            &[&y, &dy],
        )?
    };
    assert_eq!(bits(&dx)?, bits(&softmax_backward(&stream, &y, &dy, 1)?)?);
    Ok(())
}

/// The kernel that a call takes for rows of so many columns, by a capture.
fn kernel(columns: usize) -> Outcome<String> {
    let (stream, x) = (stream()?, rows(&[4, columns], 1)?);
    let graph = Graph::capture(&stream, (), |stream, ()| {
        let function = SoftmaxArgs { is_log: 0 }.pass();
        // SAFETY: as above.
        unsafe { run_function_held::<softmax_bf16, softmax_held_bf16, 1>(stream, function, &[&x]) }
    })?;
    Ok(graph.launches()[0].kernel.to_string())
}

#[test]
fn rows_are_held_where_they_can_be() -> Outcome {
    for (columns, is_held) in [(1040, true), (7, false), (1 << 19, false)] {
        let wanted = if is_held && is_hopper()? { "softmax_held_bf16" } else { "softmax_bf16" };
        assert_eq!(kernel(columns)?, wanted, "{columns}");
    }
    Ok(())
}

/// The text of the error for wrong inputs of a function of two.
fn refused(inputs: &[&Tensor]) -> Outcome<String> {
    let function = SoftmaxBackwardArgs { is_log: 0 }.pass();
    // SAFETY: it is refused.
    let result = unsafe { run_function::<softmax_backward_bf16, 1>(&stream()?, function, inputs) };
    Ok(result.map(drop).expect_err("a wrong call").to_string())
}

#[test]
fn inputs_that_do_not_fit_are_errors() -> Outcome {
    let (x, turned) = (rows(&[4, 8], 1)?, rows(&[8, 4], 1)?);
    let floats = Tensor::zeros(&stream()?, &[4, 8], DType::F32)?;
    let number = Tensor::zeros(&stream()?, &[], DType::BF16)?;
    for (inputs, wanted) in [
        (&[][..], "the length of `inputs` is 0"),
        (&[&x], "the length of `inputs` is 1"),
        (&[&x, &x, &x], "wanted 2, as the function says"),
        (
            &[&floats, &floats],
            "the first input has element type f32, wanted bf16, as the kernel `softmax_backward_bf16`",
        ),
        (&[&x, &floats], "an input has element type f32"),
        (&[&x, &turned], "an input has shape [8, 4], wanted [4, 8]"),
        (&[&number, &number], "dimension -1 of a tensor with 0 dimensions"),
    ] {
        let text = refused(inputs)?;
        assert!(text.starts_with("run_function: ") && text.contains(wanted), "`{wanted}` is not in: {text}");
    }
    Ok(())
}
