//! An error for want of memory names the line of the program that asked, and the lines that hold memory:
//! never one of the library's own.

use crate::common::{Bench, expect_error};
use ironwarp::graph::Graph;
use ironwarp::ops::{elementwise, fill, reduce};
use ironwarp::{DType, DeviceBuffer, Error, Result, Tensor};

/// Elements of a tensor that fills the memory that there may be.
const LEN: usize = 5 << 20;
const F32: DType = DType::F32;

/// Makes a call that has no memory. The error names this line.
macro_rules! refused {
    ($calls:ident, $call:expr) => {{
        let line = line!();
        let error = expect_error(stringify!($call), $call, |e| matches!(e, Error::OutOfMemory(_)))?;
        let Error::OutOfMemory(error) = error else { unreachable!("just matched") };
        let site = (error.site.file(), error.site.line());
        assert_eq!(site, (file!(), line), "{}: {error}", stringify!($call));
        let text = error.to_string();
        assert!(text.contains(&format!("{}:{line}", file!())), "{text}");
        assert!(!text.contains("src/"), "{text}");
        $calls += 1;
    }};
}

#[test]
fn errors_name_the_line_that_asked() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    device.trim_pool()?;
    let x = Tensor::rand(&device, &[LEN], F32, 1)?;
    let matrix = x.view_as(&[LEN >> 10, 1 << 10])?;
    device.trim_pool()?;
    device.set_memory_limit(Some(device.memory_stats().reserved as usize));
    let mut calls = 0;

    refused!(calls, DeviceBuffer::<f32>::zeroed(&stream, LEN));
    refused!(calls, Tensor::zeros(&device, &[LEN], F32));
    refused!(calls, Tensor::zeros_padded(&stream, &[3, 5], F32, 16));
    refused!(calls, Tensor::from_slice(&stream, &[3], &[1, 2, 3]));
    refused!(calls, Tensor::ones(&stream, &[3], F32));
    refused!(calls, Tensor::full(&device, &[LEN], 2.0, F32));
    refused!(calls, Tensor::arange(&device, 0, 9, 1, F32));
    refused!(calls, Tensor::rand(&device, &[9], F32, 1));
    refused!(calls, Tensor::randn(&device, &[9], F32, 1));
    refused!(calls, Tensor::eye(&device, 3, F32));
    refused!(calls, x.zeros_like());
    refused!(calls, x.ones_like());
    refused!(calls, x.full_like(7));

    refused!(calls, -&x);
    refused!(calls, &x + &x);
    refused!(calls, 2.0 * &x);
    refused!(calls, &x / 3);
    refused!(calls, x.sub(&x));
    refused!(calls, x.maximum(1));
    refused!(calls, x.lt(0.5));
    refused!(calls, x.isnan());
    refused!(calls, x.exp());
    refused!(calls, x.clamp(0, 1));
    refused!(calls, x.leaky_relu(0.1));
    refused!(calls, x.to(DType::F16));
    refused!(calls, x.copy());
    refused!(calls, matrix.t()?.contiguous());
    refused!(calls, matrix.t()?.reshape(&[-1]));

    refused!(calls, x.sum(&[0]));
    refused!(calls, matrix.mean_keepdim(&[0]));
    refused!(calls, x.amax_all());
    refused!(calls, x.argmax(0));
    refused!(calls, matrix.argmin(0));
    refused!(calls, matrix.max(1));
    refused!(calls, x.all(&[0]));
    refused!(calls, matrix.softmax(-1));
    refused!(calls, matrix.layer_norm(None, None, 1e-5));

    refused!(calls, Tensor::cat(&[&x, &x], 0));
    refused!(calls, Tensor::stack(&[&x, &x], 0));
    refused!(calls, matrix.tril(0));
    refused!(calls, matrix.triu(1));
    refused!(calls, matrix.matmul(&matrix.t()?));
    refused!(calls, x.matmul(&x));

    refused!(calls, elementwise::unary(&stream, elementwise::UnaryOp::Neg, &x));
    refused!(calls, fill::full(&stream, &[LEN], 1.0f32));
    refused!(calls, reduce::sum(&stream, &x, &[0]));
    assert!(calls >= 40, "{calls}");

    let captured = Graph::capture(&stream, (), |stream, ()| {
        refused!(calls, Tensor::zeros(stream, &[LEN], F32));
        refused!(calls, &x + &x);
        Ok(())
    });
    drop(captured?);
    device.set_memory_limit(None);
    drop(&x + &x);
    Ok(())
}
