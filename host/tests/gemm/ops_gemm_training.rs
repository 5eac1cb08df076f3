//! Epilogues as training asks for them: values before the activation, derivatives, the gradient of a
//! bias, gradients of weights in f32. Every configuration that can do a case does it.

use crate::gemm_case::{Case, DENSE, Lie, Outcome, PLAIN, TRANSPOSED};
use half::{bf16, f16};
use ironwarp::ops::gemm::{Activation, Band, Config, Kernel, Matmul, Matrix, MatrixMut, Precision, Repack};
use ironwarp::{Device, DeviceBuffer};
use num::E4M3;
use testkit::Family;

/// Without copies, but for those of a kernel of another order.
fn few(config: &Config) -> bool {
    config.repack == [Repack::No; 2] && config.tile[0] * config.tile[1] <= 128 * 128
}

/// B as weights lie in a forward pass, `[n, k]`.
const NT: Case = Case { b: TRANSPOSED, kernels: few, ..PLAIN };

/// At least two kinds of kernels took a case: `gemm_any` alone is no test of the others.
fn several(ran: usize) -> Outcome {
    assert!(ran > 1, "{ran} configurations");
    Ok(())
}

#[test]
fn values_before_the_activation_are_kept() -> Outcome {
    let case = Case { m: 200, n: 264, k: 72, pre: true, bias: true, activation: Activation::GeluTanh, ..NT };
    several(case.check::<bf16, bf16, bf16>()?)?;
    several(Case { residual: true, beta: 0.5, ..case }.check::<f16, f16, f16>()?)?;
    // Values in f32, results that the copy engine does not store, odd sides, and columns that lead.
    several(Case { adds_f32: true, activation: Activation::Silu, ..case }.check::<bf16, bf16, bf16>()?)?;
    several(Case { activation: Activation::Relu, ..case }.check::<bf16, bf16, f32>()?)?;
    several(Case { m: 67, n: 73, activation: Activation::Gelu, ..case }.check::<f16, f16, f16>()?)?;
    let gaps = Lie { gap: 8, skip: 8, ..DENSE };
    several(Case { m: 72, c: gaps, batch: 3, ..case }.check::<bf16, bf16, bf16>()?)?;
    let turned = Case { c: Lie { transposed: true, ..gaps }, bias: false, ..case };
    several(turned.check::<bf16, bf16, bf16>()?)?;
    // SwiGLU's two columns are both kept.
    several(Case { activation: Activation::SwiGlu, ..case }.check::<bf16, bf16, bf16>()?)?;
    several(
        Case { activation: Activation::SwiGlu, residual: true, n: 262, ..case }.check::<f16, f16, f16>()?,
    )?;
    let narrow = Case { k: 144, adds_f32: true, scales: Some([0.5, 3.0]), result_scale: Some(0.5), ..case };
    // Of 8 bits by `gemm_any` alone.
    assert!(narrow.check::<E4M3, E4M3, E4M3>()? > 0);
    several(Case { precision: Precision::Tf32, k: 40, ..case }.check::<f32, f32, f32>()?)?;
    Ok(())
}

#[test]
fn gradients_of_activations() -> Outcome {
    // As a layer's input has them: B as `[k, n]`.
    let case = Case { m: 136, n: 264, k: 72, gradient: true, residual: true, kernels: few, ..PLAIN };
    for &activation in Activation::ALL.iter().filter(|activation| activation.columns() == 1) {
        several(Case { activation, ..case }.check::<bf16, bf16, bf16>()?)?;
    }
    let case = Case { activation: Activation::Gelu, alpha: 0.75, ..case };
    several(Case { beta: -0.5, bias: true, ..case }.check::<f16, f16, f16>()?)?;
    several(Case { adds_f32: true, ..case }.check::<bf16, bf16, bf16>()?)?;
    several(Case { m: 67, n: 73, ..case }.check::<bf16, bf16, f32>()?)?;
    several(Case { m: 40, batch: 3, c: Lie { gap: 8, skip: 8, ..DENSE }, ..case }.check::<f16, f16, f16>()?)?;
    several(Case { c: TRANSPOSED, ..case }.check::<bf16, bf16, bf16>()?)?;
    several(Case { pre: true, ..case }.check::<bf16, bf16, bf16>()?)?;
    several(Case { precision: Precision::Tf32, ..case }.check::<f32, f32, f32>()?)?;
    for family in [Family::Uniform, Family::HugeTiny, Family::SmallIntegers] {
        several(Case { family, activation: Activation::Silu, ..case }.check::<bf16, bf16, f32>()?)?;
    }
    Ok(())
}

#[test]
fn gradients_of_biases() -> Outcome {
    let case = Case { m: 200, n: 264, k: 72, column_sums: true, kernels: few, ..PLAIN };
    several(case.check::<bf16, bf16, bf16>()?)?;
    let fused = Case { gradient: true, residual: true, activation: Activation::GeluTanh, ..case };
    several(fused.check::<f16, f16, f16>()?)?;
    several(Case { m: 67, n: 73, ..fused }.check::<bf16, bf16, bf16>()?)?;
    several(Case { m: 1, n: 40, ..fused }.check::<bf16, bf16, f32>()?)?;
    several(Case { m: 24, batch: 3, ..fused }.check::<bf16, bf16, bf16>()?)?;
    several(
        Case { residual: true, pre: true, activation: Activation::Relu, ..case }.check::<f16, f16, f32>()?,
    )?;
    several(Case { precision: Precision::Tf32, ..fused }.check::<f32, f32, f32>()?)?;
    // Parts of k, whose sums are still to be added when the kernel ends.
    let cut: fn(&Config) -> bool = |config| config.split_k > 1 && config.tile[0] * config.tile[1] <= 64 * 128;
    let long = Case { m: 24, n: 40, k: 4096, kernels: cut, b: TRANSPOSED, ..fused };
    long.check::<bf16, bf16, bf16>()?;
    Ok(())
}

/// Weights' gradients add to what is there, in f32, from factors of 16 bits.
#[test]
fn gradients_of_weights_add_up_in_f32() -> Outcome {
    let case = Case { a: TRANSPOSED, beta: 1.0, m: 136, n: 264, k: 136, kernels: few, ..PLAIN };
    several(case.check::<bf16, bf16, f32>()?)?;
    several(case.check::<f16, f16, f32>()?)?;
    several(
        Case { m: 67, n: 73, alpha: 0.5, c: Lie { gap: 3, skip: 1, ..DENSE }, ..case }
            .check::<bf16, bf16, f32>()?,
    )?;
    Ok(())
}

/// The rest of a product in two bands has its part of everything.
#[test]
fn bands_have_their_parts() -> Outcome {
    let banded: fn(&Config) -> bool =
        |config| config.band != Band::All && config.tile[0] * config.tile[1] <= 64 * 128;
    let multiprocessors = crate::gemm_case::device()?.properties().sm_count as usize;
    let m = 64 * multiprocessors + 8;
    let case = Case { m, n: 120, k: 8192, kernels: banded, bias: true, pre: true, ..NT };
    case.check::<bf16, bf16, bf16>()?;
    Case { gradient: true, residual: true, activation: Activation::Silu, ..case }
        .check::<bf16, bf16, bf16>()?;
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let a = DeviceBuffer::<bf16>::zeroed(&stream, 64)?;
    let (mut c, mut pre) =
        (DeviceBuffer::<bf16>::zeroed(&stream, 64)?, DeviceBuffer::<bf16>::zeroed(&stream, 64)?);
    let mut sums = DeviceBuffer::<f32>::zeroed(&stream, 8)?;
    let matrix = || Matrix::new::<bf16>(&a, 8, 8);
    let refused = |product: Matmul<'_>, words: &[&str]| {
        let error = product.run(&stream).expect_err("it fits").to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "{error}: no `{word}`"));
    };
    macro_rules! product {
        () => {
            Matmul::new(matrix(), matrix(), MatrixMut::new::<bf16>(&mut c, 8, 8))
        };
    }
    let twice = ["the gradient", "one of them"];
    refused(product!().gradient(Activation::Relu, matrix()).activation(Activation::Silu), &twice);
    refused(product!().activation(Activation::Silu).gradient(Activation::Relu, matrix()), &twice);
    refused(product!().gradient(Activation::Relu, matrix()).residual(matrix()), &twice);
    refused(product!().residual(matrix()).gradient(Activation::Relu, matrix()), &twice);
    refused(product!().gradient(Activation::SwiGlu, matrix()), &["SwiGLU's gradient"]);
    refused(
        product!().pre_activation(MatrixMut::new::<bf16>(&mut pre, 4, 16)),
        &["the value before the activation", "[1, 4, 16]", "[1, 8, 8]"],
    );
    refused(
        product!().pre_activation(MatrixMut::new::<bf16>(&mut pre, 8, 8).leading(4)),
        &["the value before the activation", "a place of its own"],
    );
    let bytes = DeviceBuffer::<E4M3>::zeroed(&stream, 64)?;
    refused(product!().gradient(Activation::Relu, Matrix::new::<E4M3>(&bytes, 8, 8)), &["f32, f16 or bf16"]);
    refused(product!().bias_gradient(sums.slice_mut(..7)?), &["the bias's gradient", "8", "7"]);
    let columns = Matmul::new(matrix(), matrix(), MatrixMut::new::<bf16>(&mut c, 8, 8).transposed());
    refused(columns.bias_gradient(&mut sums), &["the bias's gradient", "dense rows"]);
    // Nothing to sum is zero.
    let none = Matrix::new::<bf16>(a.slice(..0)?, 0, 8);
    let empty = Matmul::new(none, matrix(), MatrixMut::new::<bf16>(c.slice_mut(..0)?, 0, 8));
    let mut sums = DeviceBuffer::<f32>::from_slice(&stream, &[1.0; 8])?;
    empty.bias_gradient(&mut sums).run(&stream)?;
    assert_eq!(sums.to_vec(&stream)?, [0.0; 8]);
    Ok(())
}

/// A choice says it all.
#[test]
fn choices_tell_of_it() -> Outcome {
    let stream = Device::open(0)?.stream()?;
    let a = DeviceBuffer::<bf16>::zeroed(&stream, 256)?;
    let (mut c, mut pre) =
        (DeviceBuffer::<bf16>::zeroed(&stream, 256)?, DeviceBuffer::<bf16>::zeroed(&stream, 256)?);
    let mut sums = DeviceBuffer::<f32>::zeroed(&stream, 16)?;
    let matrix = || Matrix::new::<bf16>(&a, 16, 16);
    let choice = Matmul::new(matrix(), matrix(), MatrixMut::new::<bf16>(&mut c, 16, 16))
        .gradient(Activation::Gelu, matrix())
        .pre_activation(MatrixMut::new::<bf16>(&mut pre, 16, 16))
        .bias_gradient(&mut sums)
        .explain(&stream)?;
    let text = choice.to_string();
    for words in ["bf16 kept", "Gelu'(bf16)", "columns summed", "takes no derivative"] {
        assert!(text.contains(words), "{text}: no `{words}`");
    }
    assert!(!matches!(choice.config.kernel, Kernel::Skinny | Kernel::Direct));
    Ok(())
}
