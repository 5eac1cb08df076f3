//! Methods and operators of tensors: PyTorch's values, written by hand, and the functions that take a stream.

use std::error::Error as StdError;

use half::{bf16, f16};
use ironwarp::ops::dropout::Generator;
use ironwarp::ops::elementwise::{BinaryOp, CompareOp, UnaryOp, binary, compare, unary};
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::reduce::{ReduceOp, reduce};
use ironwarp::ops::rotary::{Positions, Rotary};
use ironwarp::ops::row::{Norm, NormKind};
use ironwarp::{DType, Device, Error, Result, Tensor, TensorError};

type Outcome = std::result::Result<(), Box<dyn StdError>>;

fn device() -> Result<Device> {
    Device::open(0)
}

fn f32s(device: &Device, shape: &[usize], values: &[f32]) -> Result<Tensor> {
    Tensor::from_slice(device, shape, values)
}

/// `0, 1, 2, ..` in a shape.
fn counting(device: &Device, shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    Tensor::arange(device, 0, n as i64, 1, DType::F32)?.view_as(shape)
}

/// Type, shape and bits.
fn same(what: &str, got: &Tensor, want: &Tensor) -> Result<()> {
    assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{what}");
    let stream = got.device().current_stream()?;
    assert_eq!(got.to_text(&stream)?, want.to_text(&stream)?, "{what}");
    Ok(())
}

fn has(got: &Tensor, shape: &[usize], want: &[f32]) -> Result<()> {
    assert_eq!(got.shape().sides(), shape);
    assert_eq!(got.tolist::<f32>()?, want);
    Ok(())
}

#[test]
fn every_unary_method_is_its_function() -> Outcome {
    let device = device()?;
    let stream = device.current_stream()?;
    let x = f32s(&device, &[2, 3], &[0.5, -1.5, 2.0, 0.0, 3.25, -0.75])?;
    let methods = Tensor::UNARY_METHODS;
    for &op in UnaryOp::ALL {
        let count = methods.iter().filter(|method| method.0 == op).count();
        assert_eq!(count, usize::from(op.parameters() == 0), "{op:?} has a method");
    }
    for &(op, method, in_place) in methods {
        let want = unary(&stream, op, &x)?;
        same(&format!("{op:?}"), &method(&x)?, &want)?;
        let mut y = x.copy()?;
        in_place(&mut y)?;
        same(&format!("{op:?} in place"), &y, &want)?;
    }
    has(&x.relu()?, &[2, 3], &[0.5, 0.0, 2.0, 0.0, 3.25, 0.0])?;
    has(&x.clamp(-1.0, 1)?, &[2, 3], &[0.5, -1.0, 1.0, 0.0, 1.0, -0.75])?;
    has(&x.leaky_relu(0.5)?, &[2, 3], &[0.5, -0.75, 2.0, 0.0, 3.25, -0.375])?;
    Ok(())
}

#[test]
fn functions_of_floats_make_floats_of_integers() -> Outcome {
    let device = device()?;
    let x = Tensor::from_slice(&device, &[3], &[4i32, 1, 0])?;
    has(&x.sqrt()?, &[3], &[2.0, 1.0, 0.0])?;
    has(&Tensor::from_slice(&device, &[2], &[true, false])?.exp()?, &[2], &[1.0f32.exp(), 1.0])?;
    assert_eq!(x.neg()?.tolist::<i32>()?, [-4, -1, 0]);
    assert_eq!(x.floor()?.tolist::<i32>()?, [4, 1, 0]);
    assert_eq!(x.clamp(1, 2)?.tolist::<i32>()?, [2, 1, 1]);
    has(&x.clamp(0.5, 2.5)?, &[3], &[2.5, 1.0, 0.5])?;
    Ok(())
}

#[test]
fn every_binary_method_is_its_function() -> Outcome {
    let device = device()?;
    let stream = device.current_stream()?;
    let methods = Tensor::BINARY_METHODS;
    for &op in BinaryOp::ALL {
        assert_eq!(methods.iter().filter(|method| method.0 == op).count(), 1, "{op:?} has a method");
    }
    for &(op, method, in_place) in methods {
        let [a, b] = if op.is_bitwise() {
            [&[2usize, 3][..], &[3]].map(|shape| counting(&device, shape)?.to(DType::I64))
        } else {
            [&[2usize, 3][..], &[3]].map(|shape| counting(&device, shape)?.add(1.5))
        };
        let (a, b) = (a?, b?);
        let want = binary(&stream, op, &a, &b)?;
        same(&format!("{op:?}"), &method(&a, &b)?, &want)?;
        let mut y = a.copy()?;
        in_place(&mut y, &b)?;
        same(&format!("{op:?} in place"), &y, &want)?;
    }
    Ok(())
}

#[test]
fn every_comparison_is_its_function() -> Outcome {
    let device = device()?;
    let stream = device.current_stream()?;
    let methods = Tensor::COMPARE_METHODS;
    let (a, b) = (counting(&device, &[2, 3])?, f32s(&device, &[3], &[3.0, 1.0, f32::NAN])?);
    for &op in CompareOp::ALL {
        assert_eq!(methods.iter().filter(|method| method.0 == op).count(), 1, "{op:?} has a method");
    }
    for &(op, method) in methods {
        same(&format!("{op:?}"), &method(&a, &b)?, &compare(&stream, op, &a, &b)?)?;
    }
    assert_eq!(a.eq(4)?.tolist::<bool>()?, [false, false, false, false, true, false]);
    assert_eq!(a.to(DType::I32)?.lt(1.5)?.tolist::<bool>()?, [true, true, false, false, false, false]);
    let odd = f32s(&device, &[4], &[1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY])?;
    assert_eq!(odd.isnan()?.tolist::<bool>()?, [false, true, false, false]);
    assert_eq!(odd.isinf()?.tolist::<bool>()?, [false, false, true, true]);
    assert_eq!(odd.isfinite()?.tolist::<bool>()?, [true, false, false, false]);
    assert_eq!(odd.isnan()?.logical_not()?.tolist::<bool>()?, [true, false, true, true]);
    assert_eq!(a.logical_not()?.tolist::<bool>()?, [true, false, false, false, false, false]);
    Ok(())
}

#[test]
fn operators_take_tensors_and_numbers_on_either_side() -> Outcome {
    let device = device()?;
    let a = f32s(&device, &[2, 2], &[1.0, 2.0, 3.0, 4.0])?;
    let b = f32s(&device, &[2], &[10.0, 20.0])?;
    has(&(&a + &b)?, &[2, 2], &[11.0, 22.0, 13.0, 24.0])?;
    has(&(&a - b.clone())?, &[2, 2], &[-9.0, -18.0, -7.0, -16.0])?;
    has(&(a.clone() * &b)?, &[2, 2], &[10.0, 40.0, 30.0, 80.0])?;
    has(&(b.clone() / a.clone())?, &[2, 2], &[10.0, 10.0, 10.0 / 3.0, 5.0])?;
    has(&(&a + 1)?, &[2, 2], &[2.0, 3.0, 4.0, 5.0])?;
    has(&(1.5 + &a)?, &[2, 2], &[2.5, 3.5, 4.5, 5.5])?;
    has(&(&a - 0.5)?, &[2, 2], &[0.5, 1.5, 2.5, 3.5])?;
    has(&(1 - &a)?, &[2, 2], &[0.0, -1.0, -2.0, -3.0])?;
    has(&(2.0 * a.clone())?, &[2, 2], &[2.0, 4.0, 6.0, 8.0])?;
    has(&(&a / 3.0)?, &[2, 2], &[1.0 / 3.0, 2.0 / 3.0, 1.0, 4.0 / 3.0])?;
    has(&(12i64 / &a)?, &[2, 2], &[12.0, 6.0, 4.0, 3.0])?;
    has(&(-&a)?, &[2, 2], &[-1.0, -2.0, -3.0, -4.0])?;
    has(&(&(&(&a * 2.0)? + &b)? / 2.0)?, &[2, 2], &[6.0, 12.0, 8.0, 14.0])?;
    // The sign of zero stays.
    let zeros = (&f32s(&device, &[2], &[0.0, -0.0])? * 3.0)?.tolist::<f32>()?;
    assert_eq!(zeros.map_bits(), [0.0f32.to_bits(), (-0.0f32).to_bits()]);

    let [p, q] = [[true, true, false], [true, false, false]].map(|p| Tensor::from_slice(&device, &[3], &p));
    let (p, q) = (p?, q?);
    assert_eq!((&p & &q)?.tolist::<bool>()?, [true, false, false]);
    assert_eq!((&p | &q)?.tolist::<bool>()?, [true, true, false]);
    assert_eq!((&p ^ &q)?.tolist::<bool>()?, [false, true, false]);
    assert_eq!((!&p)?.tolist::<bool>()?, [false, false, true]);
    assert_eq!((&p + &q)?.tolist::<bool>()?, [true, true, false]);
    assert_eq!((&p * &q)?.tolist::<bool>()?, [true, false, false]);
    assert_eq!((!Tensor::from_slice(&device, &[2], &[0i32, 5])?)?.tolist::<i32>()?, [-1, -6]);
    assert_eq!((!Tensor::from_slice(&device, &[2], &[0u8, 5])?)?.tolist::<u8>()?, [255, 250]);
    Ok(())
}

trait Bits {
    fn map_bits(&self) -> Vec<u32>;
}

impl Bits for Vec<f32> {
    fn map_bits(&self) -> Vec<u32> {
        self.iter().map(|value| value.to_bits()).collect()
    }
}

#[test]
fn types_are_promoted_as_in_pytorch() -> Outcome {
    let device = device()?;
    let of = |dtype| Tensor::ones(&device, &[2], dtype);
    let single = |dtype| Tensor::ones(&device, &[], dtype);
    for (a, b, want) in [
        (of(DType::I32)?, of(DType::F16)?, DType::F16),
        (of(DType::F16)?, of(DType::BF16)?, DType::F32),
        (of(DType::Bool)?, of(DType::U8)?, DType::U8),
        (of(DType::U8)?, of(DType::I64)?, DType::I64),
        (of(DType::F16)?, single(DType::F64)?, DType::F16),
        (single(DType::F32)?, of(DType::I64)?, DType::F32),
    ] {
        let sum = (&a + &b)?;
        assert_eq!((sum.dtype(), sum.to(DType::F32)?.tolist::<f32>()?), (want, vec![2.0, 2.0]));
    }
    assert_eq!((&of(DType::I32)? + 2)?.tolist::<i32>()?, [3, 3]);
    assert_eq!((&of(DType::I32)? + 0.5)?.tolist::<f32>()?, [1.5, 1.5]);
    assert_eq!((&of(DType::Bool)? + 2)?.tolist::<i64>()?, [3, 3]);
    assert_eq!((&of(DType::BF16)? * 2.0)?.tolist::<bf16>()?, [bf16::from_f32(2.0); 2]);
    // A quotient of integers is a float.
    assert_eq!((&of(DType::I64)? / 4)?.tolist::<f32>()?, [0.25, 0.25]);
    assert_eq!(of(DType::I64)?.div(&of(DType::I32)?)?.dtype(), DType::F32);
    // The number goes as f32, not rounded to f16 first: 3 * f32(0.1), rounded.
    let x = Tensor::from_slice(&device, &[1], &[f16::from_f32(3.0)])?;
    assert_eq!((&x * 0.1)?.tolist::<f16>()?, [f16::from_f32(3.0 * 0.1)]);
    assert_eq!((&x / 7)?.tolist::<f16>()?, [f16::from_f32(3.0 / 7.0)]);
    // Integers that no f64 holds.
    let large = (1i64 << 60) + 1;
    let y = Tensor::from_slice(&device, &[2], &[1i64, -1])?;
    assert_eq!((&y * large)?.tolist::<i64>()?, [large, -large]);
    Ok(())
}

#[test]
fn in_place_keeps_the_memory_and_the_type() -> Outcome {
    let device = device()?;
    let mut x = f32s(&device, &[2, 2], &[1.0, 2.0, 3.0, 4.0])?;
    x.add_(&f32s(&device, &[2], &[10.0, 20.0])?)?;
    x.mul_(2)?;
    x.sub_(0.5)?;
    has(&x, &[2, 2], &[21.5, 43.5, 25.5, 47.5])?;
    // A type of the same category is rounded to the tensor's own.
    let mut half = Tensor::ones(&device, &[2], DType::F16)?;
    half.add_(&f32s(&device, &[2], &[0.5, 1.5])?)?;
    assert_eq!(half.tolist::<f16>()?, [1.5, 2.5].map(f16::from_f32));
    x.copy_(&Tensor::from_slice(&device, &[2], &[7i64, 8])?)?;
    has(&x, &[2, 2], &[7.0, 8.0, 7.0, 8.0])?;
    x.fill_(3)?;
    has(&x, &[2, 2], &[3.0; 4])?;
    let before = x.clone();
    assert!(x.add_(1).is_err(), "the memory is shared");
    has(&before, &[2, 2], &[3.0; 4])?;
    Ok(())
}

#[test]
fn every_reduction_is_its_function() -> Outcome {
    type Method = fn(&Tensor, &[i32]) -> Result<Tensor>;
    type All = fn(&Tensor) -> Result<Tensor>;
    let device = device()?;
    let stream = device.current_stream()?;
    let x = (counting(&device, &[2, 3, 4])? - 7.5)?;
    let methods: [(ReduceOp, Method, Method, All); 6] = [
        (ReduceOp::Sum, |x, d| x.sum(d), |x, d| x.sum_keepdim(d), Tensor::sum_all),
        (ReduceOp::Prod, |x, d| x.prod(d), |x, d| x.prod_keepdim(d), Tensor::prod_all),
        (ReduceOp::Mean, |x, d| x.mean(d), |x, d| x.mean_keepdim(d), Tensor::mean_all),
        (ReduceOp::Norm, |x, d| x.norm(d), |x, d| x.norm_keepdim(d), Tensor::norm_all),
        (ReduceOp::Amax, |x, d| x.amax(d), |x, d| x.amax_keepdim(d), Tensor::amax_all),
        (ReduceOp::Amin, |x, d| x.amin(d), |x, d| x.amin_keepdim(d), Tensor::amin_all),
    ];
    for &op in ReduceOp::ALL {
        assert_eq!(methods.iter().filter(|method| method.0 == op).count(), 1, "{op:?} has a method");
    }
    for (op, method, keepdim, all) in methods {
        for (dims, axes, kept) in
            [(&[1][..], &[1usize][..], [2, 1, 4]), (&[-1, 0], &[2, 0], [1, 3, 1]), (&[], &[], [1, 1, 1])]
        {
            let want = reduce(&stream, op, &x, axes)?;
            same(&format!("{op:?} {dims:?}"), &method(&x, dims)?, &want)?;
            same(&format!("{op:?} {dims:?} kept"), &keepdim(&x, dims)?, &want.view_as(&kept)?)?;
        }
        same(&format!("{op:?} of all"), &all(&x)?, &reduce(&stream, op, &x, &[])?)?;
    }
    Ok(())
}

#[test]
fn extremes_and_truth() -> Outcome {
    let device = device()?;
    let x = f32s(&device, &[2, 3], &[1.0, 5.0, 5.0, -1.0, -3.0, -2.0])?;
    has(&x.sum(&[1])?, &[2], &[11.0, -6.0])?;
    assert_eq!(x.mean_all()?.item::<f32>()?, 5.0 / 6.0);
    assert_eq!(x.argmax(-1)?.tolist::<i64>()?, [1, 0]);
    assert_eq!(x.argmin(0)?.tolist::<i64>()?, [1, 1, 1]);
    assert_eq!((x.argmax_all()?.item::<i64>()?, x.argmin_all()?.item::<i64>()?), (1, 4));
    let (values, places) = x.max(1)?;
    has(&values, &[2], &[5.0, -1.0])?;
    assert_eq!(places.tolist::<i64>()?, [1, 0]);
    let (values, places) = x.min(-1)?;
    has(&values, &[2], &[1.0, -3.0])?;
    assert_eq!(places.tolist::<i64>()?, [0, 1]);
    let truth = Tensor::from_slice(&device, &[2, 2], &[1i32, 0, 3, 4])?;
    assert_eq!(truth.all(&[1])?.tolist::<bool>()?, [false, true]);
    assert_eq!(truth.any(&[0])?.tolist::<bool>()?, [true, true]);
    let nothing = Tensor::zeros(&device, &[2, 0], DType::Bool)?;
    assert_eq!(nothing.all(&[1])?.tolist::<bool>()?, [true, true]);
    assert_eq!(nothing.any(&[1])?.tolist::<bool>()?, [false, false]);
    Ok(())
}

#[test]
fn shapes_change_as_in_pytorch() -> Outcome {
    let device = device()?;
    let x = counting(&device, &[2, 3, 4])?;
    assert_eq!(x.reshape(&[4, -1])?.shape().sides(), [4, 6]);
    assert_eq!(x.transpose(0, -1)?.reshape(&[-1])?.tolist::<f32>()?[..3], [0.0, 12.0, 4.0]);
    assert_eq!(x.sum_all()?.reshape(&[1, 1])?.shape().sides(), [1, 1]);
    assert_eq!(x.flatten(1, -1)?.shape().sides(), [2, 12]);
    assert_eq!(x.flatten(0, 1)?.shape().sides(), [6, 4]);
    assert_eq!(x.sum_all()?.flatten(0, -1)?.shape().sides(), [1]);
    assert_eq!(x.permute(&[-1, 0, 1])?.shape().sides(), [4, 2, 3]);
    assert_eq!(x.select(0, -1)?.t()?.shape().sides(), [4, 3]);
    has(&x.select(-1, -1)?.select(0, 0)?, &[3], &[3.0, 7.0, 11.0])?;
    has(&x.narrow(-1, 1, 2)?.select(0, 1)?.select(0, 0)?, &[2], &[13.0, 14.0])?;
    assert_eq!(x.unsqueeze(-1)?.shape().sides(), [2, 3, 4, 1]);
    assert_eq!(x.unsqueeze(-4)?.squeeze(0)?.shape().sides(), [2, 3, 4]);
    assert_eq!((x.size(-1)?, x.size(0)?), (4, 2));
    assert!(x.transpose(0, 1)?.contiguous()?.is_contiguous());

    let parts = x.split(2, 1)?;
    assert_eq!(parts.iter().map(|part| part.shape()[1]).collect::<Vec<_>>(), [2, 1]);
    let parts = x.chunk(3, -1)?;
    assert_eq!(parts.iter().map(|part| part.shape()[2]).collect::<Vec<_>>(), [2, 2]);
    let parts: Vec<&Tensor> = parts.iter().collect();
    same("chunks joined", &Tensor::cat(&parts, -1)?, &x)?;
    let rows = [x.select(0, 0)?, x.select(0, 1)?];
    same("rows stacked", &Tensor::stack(&[&rows[0], &rows[1]], 0)?, &x)?;
    same("stacked last", &Tensor::stack(&[&rows[0], &rows[1]], -1)?, &x.permute(&[1, 2, 0])?)?;
    let mixed = Tensor::cat(&[&Tensor::ones(&device, &[1], DType::I32)?, &rows[0].select(0, 0)?], 0)?;
    has(&mixed, &[5], &[1.0, 0.0, 1.0, 2.0, 3.0])?;

    let square = counting(&device, &[3, 3])?;
    has(&square.tril(0)?, &[3, 3], &[0.0, 0.0, 0.0, 3.0, 4.0, 0.0, 6.0, 7.0, 8.0])?;
    has(&square.triu(1)?, &[3, 3], &[0.0, 1.0, 2.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0])?;
    Ok(())
}

#[test]
fn new_tensors() -> Outcome {
    let device = device()?;
    for &dtype in DType::ALL {
        // Of lengths that fill whole words and that do not.
        for n in [0, 1, 3, 8, 16] {
            let ones = Tensor::ones(&device, &[n], dtype)?;
            assert_eq!(ones.to(DType::F32)?.tolist::<f32>()?, vec![1.0; n], "{dtype}");
            same("of the same shape", &ones.zeros_like()?.ones_like()?, &ones)?;
        }
        assert_eq!(Tensor::full(&device, &[], 1, dtype)?.to(DType::I64)?.item::<i64>()?, 1);
    }
    has(&Tensor::full(&device, &[3], -2.5, DType::F32)?, &[3], &[-2.5; 3])?;
    has(&Tensor::arange(&device, 1, 2.5, 0.5, DType::F32)?, &[3], &[1.0, 1.5, 2.0])?;
    assert_eq!(Tensor::arange(&device, 5, 0, -2, DType::I64)?.tolist::<i64>()?, [5, 3, 1]);
    assert_eq!(Tensor::arange(&device, 3, 3, 1, DType::I32)?.elements(), 0);
    has(&Tensor::eye(&device, 2, DType::F32)?, &[2, 2], &[1.0, 0.0, 0.0, 1.0])?;
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2] {
        let x = Tensor::rand(&device, &[1000], dtype, 7)?.to(DType::F32)?.tolist::<f32>()?;
        assert!(x.iter().all(|x| (0.0..1.0).contains(x)), "{dtype}");
        let mean = x.iter().sum::<f32>() / 1000.0;
        assert!((0.4..0.6).contains(&mean), "{dtype}: {mean}");
    }
    let x = Tensor::randn(&device, &[1000], DType::F32, 7)?;
    assert!(x.mean_all()?.item::<f32>()?.abs() < 0.2);
    same("the same seed", &x, &Tensor::randn(&device, &[1000], DType::F32, 7)?)?;
    Ok(())
}

#[test]
fn elements_by_their_numbers() -> Outcome {
    let device = device()?;
    let x = counting(&device, &[3, 4])?;
    let rows = Tensor::from_slice(&device, &[2], &[2i64, 0])?;
    has(&x.index_select(0, &rows)?.select(1, 0)?, &[2], &[8.0, 0.0])?;
    has(&x.index_select(-1, &rows)?.select(0, 1)?, &[2], &[6.0, 4.0])?;
    // torch.gather(x, 1, [[3, 0], [1, 1]]) and the same along dimension 0, of a transposed tensor too.
    let index = Tensor::from_slice(&device, &[2, 2], &[3i32, 0, 1, 1])?;
    has(&x.gather(1, &index)?, &[2, 2], &[3.0, 0.0, 5.0, 5.0])?;
    has(&x.transpose(0, 1)?.gather(0, &index)?, &[2, 2], &[3.0, 4.0, 1.0, 5.0])?;
    let cube = counting(&device, &[2, 2, 2])?;
    let index = Tensor::from_slice(&device, &[1, 2, 2], &[1i64, 0, 0, 1])?;
    has(&cube.gather(0, &index)?, &[1, 2, 2], &[4.0, 1.0, 2.0, 7.0])?;
    has(&cube.gather(-1, &index)?, &[1, 2, 2], &[1.0, 0.0, 2.0, 3.0])?;

    let zeros = Tensor::zeros(&device, &[2, 3], DType::F32)?;
    let index = Tensor::from_slice(&device, &[2, 2], &[2i64, 2, 0, 1])?;
    let source = f32s(&device, &[2, 2], &[1.0, 2.0, 3.0, 4.0])?;
    has(&zeros.scatter(1, &index, &source)?, &[2, 3], &[0.0, 0.0, 2.0, 3.0, 4.0, 0.0])?;
    has(&zeros.scatter_add(1, &index, &source)?, &[2, 3], &[0.0, 0.0, 3.0, 3.0, 4.0, 0.0])?;

    let mask = x.gt(8)?;
    has(&x.masked_fill(&mask, -1)?.select(0, 2)?, &[4], &[8.0, -1.0, -1.0, -1.0])?;
    has(&x.where_(&mask, 0)?.select(0, 2)?, &[4], &[0.0, 9.0, 10.0, 11.0])?;
    has(&x.where_(&mask, &f32s(&device, &[1], &[0.5])?)?.select(0, 0)?, &[4], &[0.5; 4])?;
    Ok(())
}

/// `sum over k` of `a[.., m, k] b[.., k, n]`, of whole numbers that every type holds.
fn product(a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) -> Vec<f32> {
    let at = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
    (0..m * n).map(|place| at(place / n, place % n)).collect()
}

/// The parts of layers, by hand.
#[test]
fn layers() -> Outcome {
    let device = device()?;
    let stream = device.current_stream()?;
    let table = counting(&device, &[4, 2])?;
    let ids = Tensor::from_slice(&device, &[2, 1, 2], &[3i64, 0, 1, 3])?;
    has(&table.embedding(&ids)?, &[2, 1, 2, 2], &[6.0, 7.0, 0.0, 1.0, 2.0, 3.0, 6.0, 7.0])?;
    has(&table.embedding(&ids.select(0, 0)?.select(0, 0)?.select(0, 0)?)?, &[2], &[6.0, 7.0])?;
    let beyond = table.embedding(&Tensor::from_slice(&device, &[1], &[4i64])?).unwrap_err();
    assert!(matches!(beyond.tensor_error(), Some(TensorError::Index { .. })), "{beyond}");
    assert!(beyond.to_string().contains("embedding"), "{beyond}");

    // A quarter turn for each position of the first pair, none of the second; whole numbers are exact.
    let cosines = f32s(&device, &[3, 2], &[1.0, 1.0, 0.0, 1.0, -1.0, 1.0])?;
    let sines = f32s(&device, &[3, 2], &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0])?;
    let rotary = Rotary::halves(cosines.as_view()?, sines.as_view()?, 4);
    let x = f32s(&device, &[2, 1, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
    let turned = x.rotary(rotary, Positions::From(1))?;
    has(&turned, &[2, 1, 4], &[-3.0, 2.0, 1.0, 4.0, -5.0, 6.0, -7.0, 8.0])?;

    let generator = Generator::new(&stream, 1)?;
    let ones = Tensor::ones(&device, &[1000], DType::F32)?;
    has(&ones.dropout(0.0, &generator, 0)?, &[1000], &[1.0; 1000])?;
    has(&ones.dropout(1.0, &generator, 0)?, &[1000], &[0.0; 1000])?;
    let half = ones.dropout(0.5, &generator, 0)?.tolist::<f32>()?;
    assert!(half.iter().all(|&y| y == 0.0 || y == 2.0));
    // 500 of 1000 are expected, with a deviation of 16.
    assert!((400..600).contains(&half.iter().filter(|&&y| y == 0.0).count()));
    assert_ne!(half, ones.dropout(0.5, &generator, 1)?.tolist::<f32>()?);
    Ok(())
}

#[test]
fn linear_layers() -> Outcome {
    let device = device()?;
    let x = counting(&device, &[2, 2, 3])?;
    let weight = f32s(&device, &[2, 3], &[1.0, 0.0, 2.0, -1.0, 1.0, 0.0])?;
    let bias = f32s(&device, &[2], &[0.5, -1.0])?;
    let want = [4.0, 1.0, 13.0, 1.0, 22.0, 1.0, 31.0, 1.0];
    has(&x.linear(&weight, None)?, &[2, 2, 2], &want)?;
    let want = [4.5, 0.0, 13.5, 0.0, 22.5, 0.0, 31.5, 0.0];
    has(&x.linear(&weight, &bias)?, &[2, 2, 2], &want)?;
    for dtype in [DType::F16, DType::BF16] {
        let [x, weight, bias] = [&x, &weight, &bias].map(|tensor| tensor.to(dtype));
        has(&x?.linear(&weight?, &bias?)?.to(DType::F32)?, &[2, 2, 2], &want)?;
    }
    // Any strides, one row, no row.
    let turned = x.transpose(0, 1)?.contiguous()?.transpose(0, 1)?;
    has(&turned.linear(&weight.t()?.contiguous()?.t()?, &bias)?, &[2, 2, 2], &want)?;
    has(&x.select(0, 0)?.select(0, 1)?.linear(&weight, None)?, &[2], &[13.0, 1.0])?;
    has(&x.slice(1, ..0)?.linear(&weight, &bias)?, &[2, 0, 2], &[])?;
    let is = |error: Error, what: &str| {
        let text = error.to_string();
        assert!(text.contains("linear") && text.contains(what) && text.contains("\nhint: "), "{text}");
    };
    is(x.linear(&weight.t()?, None).unwrap_err(), "weight");
    is(x.linear(&weight, &f32s(&device, &[3], &[0.0; 3])?).unwrap_err(), "bias");
    is(x.linear(&weight.to(DType::BF16)?, None).unwrap_err(), "weight");
    is(x.linear(&weight, &bias.to(DType::BF16)?).unwrap_err(), "bias");
    is(x.to(DType::I64)?.linear(&weight, None).unwrap_err(), "self");
    is(x.sum_all()?.linear(&weight, None).unwrap_err(), "self");

    // The loss of a last layer is that of its logits: 3 above the other one, and 12 below.
    let targets = Tensor::from_slice(&device, &[2], &[0i64, 1])?;
    let rows = f32s(&device, &[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])?;
    let loss = rows.linear_cross_entropy(&weight, &targets)?.item::<f32>()?;
    let want = ((-3f32).exp().ln_1p() + 12.0 + (-12f32).exp().ln_1p()) / 2.0;
    assert!((loss - want).abs() < 1e-5, "{loss} is not {want}");
    Ok(())
}

/// PyTorch's values.
#[test]
fn norms_of_channels_and_losses() -> Outcome {
    let device = device()?;
    let near = |got: Tensor, shape: &[usize], want: &[f32]| {
        assert_eq!(got.shape().sides(), shape);
        let got = got.tolist::<f32>()?;
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?} is not {want:?}");
        Ok::<(), Error>(())
    };
    let x = f32s(&device, &[1, 2, 2], &[1.0, 3.0, 5.0, 11.0])?;
    let (weight, bias) = (f32s(&device, &[2], &[1.0, 2.0])?, f32s(&device, &[2], &[0.0, 1.0])?);
    near(x.group_norm(2, None, None, 0.0)?, &[1, 2, 2], &[-1.0, 1.0, -1.0, 1.0])?;
    near(x.group_norm(2, &weight, &bias, 0.0)?, &[1, 2, 2], &[-1.0, 1.0, -1.0, 3.0])?;
    let (mean, variance) = (f32s(&device, &[2], &[1.0, 5.0])?, f32s(&device, &[2], &[4.0, 9.0])?);
    near(x.batch_norm(&mean, &variance, &weight, &bias, 0.0)?, &[1, 2, 2], &[0.0, 1.0, 1.0, 5.0])?;
    let (a, b) = (f32s(&device, &[4], &[0.0, 1.0, 2.0, 5.0])?, f32s(&device, &[4], &[0.0, 0.5, 4.0, 1.0])?);
    near(a.mse_loss(&b)?, &[], &[20.25 / 4.0])?;
    near(a.l1_loss(&b)?, &[], &[6.5 / 4.0])?;
    near(a.huber_loss(&b, 2.0)?, &[], &[(0.125 + 2.0 + 6.0) / 4.0])?;
    near(a.smooth_l1_loss(&b, 2.0)?, &[], &[(0.125 + 2.0 + 6.0) / 8.0])?;
    let labels = f32s(&device, &[2], &[1.0, 0.0])?;
    let loss = f32s(&device, &[2], &[0.0, 2.0])?.binary_cross_entropy_with_logits(&labels)?;
    near(loss, &[], &[(2.0f32.ln() + 2.0 + (-2.0f32).exp().ln_1p()) / 2.0])?;
    let probabilities = f32s(&device, &[2], &[0.5, 0.5])?;
    let loss = f32s(&device, &[2], &[0.0, 3f32.ln()])?.cross_entropy_of_probabilities(&probabilities)?;
    near(loss, &[], &[(4f32.ln() + (4.0f32 / 3.0).ln()) / 2.0])?;
    let divergence = f32s(&device, &[2], &[-1.0, -2.0])?.kl_div(&probabilities, false)?;
    near(divergence, &[], &[(0.5 * (0.5f32.ln() + 1.0) + 0.5 * (0.5f32.ln() + 2.0)) / 2.0])?;
    let (left, right) =
        (f32s(&device, &[2, 2], &[1.0, 0.0, 1.0, 0.0])?, f32s(&device, &[2, 2], &[0.0, 1.0, 1.0, 0.0])?);
    let signs = Tensor::from_slice(&device, &[2], &[1i64, -1])?;
    near(left.cosine_embedding_loss(&right, &signs)?, &[], &[1.0])?;
    let silu = 2.0 / (1.0 + (-2.0f32).exp());
    near(f32s(&device, &[1, 4], &[2.0, 0.0, 3.0, 7.0])?.swiglu()?, &[1, 2], &[silu * 3.0, 0.0])?;
    // 2 of which 0.97725 lie below in a normal distribution.
    near(f32s(&device, &[1, 4], &[2.0, 0.0, 3.0, 7.0])?.geglu()?, &[1, 2], &[5.863_499, 0.0])?;
    Ok(())
}

#[test]
fn matmul_of_vectors_matrices_and_batches() -> Outcome {
    let device = device()?;
    let values = |n: usize| -> Vec<f32> { (0..n).map(|i| (i % 5) as f32 - 2.0).collect() };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let of = |shape: &[usize]| f32s(&device, shape, &values(shape.iter().product()))?.to(dtype);
        let check = |got: Tensor, shape: &[usize], want: &[f32]| {
            assert_eq!(got.dtype(), dtype);
            has(&got.to(DType::F32)?, shape, want)
        };
        let (m, k, n) = (3, 4, 2);
        let one = product(&values(m * k), &values(k * n), [m, k, n]);
        check(of(&[m, k])?.matmul(&of(&[k, n])?)?, &[m, n], &one)?;
        check(of(&[k])?.matmul(&of(&[k])?)?, &[], &product(&values(k), &values(k), [1, k, 1]))?;
        check(of(&[m, k])?.matmul(&of(&[k])?)?, &[m], &product(&values(m * k), &values(k), [m, k, 1]))?;
        check(of(&[k])?.matmul(&of(&[k, n])?)?, &[n], &product(&values(k), &values(k * n), [1, k, n]))?;
        // The transposed matrix is not copied, nor are the batches.
        let turned = of(&[k, n])?.t()?.contiguous()?.t()?;
        check(of(&[m, k])?.matmul(&turned)?, &[m, n], &one)?;
        let two = of(&[2, m, k])?.matmul(&of(&[k, n])?)?;
        check(two, &[2, m, n], &product(&values(2 * m * k), &values(k * n), [2 * m, k, n]))?;
        // [2, 1] batches by [3] batches.
        let (a, b) = (of(&[2, 1, m, k])?, of(&[3, k, n])?);
        let got = a.matmul(&b)?;
        assert_eq!(got.shape().sides(), [2, 3, m, n]);
        for (i, j) in [(0, 0), (1, 0), (0, 2), (1, 2)] {
            let want = product(&values(2 * m * k)[i * m * k..], &values(3 * k * n)[j * k * n..], [m, k, n]);
            check(got.select(0, i)?.select(0, j)?, &[m, n], &want)?;
        }
        let want = product(&values(2 * k), &values(3 * k * n)[2 * k * n..], [2, k, n]);
        check(of(&[2, k])?.matmul(&of(&[3, k, n])?)?.select(0, 2)?, &[2, n], &want)?;
        // Nothing to sum is 0, and nothing at all is nothing.
        check(of(&[m, 0])?.matmul(&of(&[0, n])?)?, &[m, n], &[0.0; 6])?;
        check(of(&[0, k])?.matmul(&of(&[k, n])?)?, &[0, n], &[])?;
        check(of(&[0, m, k])?.matmul(&of(&[k, n])?)?, &[0, m, n], &[])?;
    }
    Ok(())
}

/// Fused norms give the results of their parts, one behind the other.
#[test]
fn fused_norms_are_their_parts() -> Outcome {
    let device = device()?;
    let x = Tensor::randn(&device, &[3, 40], DType::F32, 1)?;
    let residual = Tensor::randn(&device, &[3, 40], DType::F32, 2)?;
    let weight = Tensor::rand(&device, &[40], DType::F32, 3)?;
    let of = |kind, activation| Norm { kind, weight: Some(&weight), bias: None, eps: 1e-5, activation };
    let near = |what: &str, got: &Tensor, want: &Tensor| -> Result<()> {
        let worst = got.sub(want)?.abs()?.amax_all()?.item::<f32>()?;
        assert!(worst < 1e-6, "{what}: {worst}");
        Ok(())
    };
    let gelu = x.layer_norm(&weight, None, 1e-5)?.gelu()?;
    near("gelu", &x.fused_norm(of(NormKind::Layer, Activation::Gelu))?, &gelu)?;
    let (y, sum) = x.fused_add_norm(&residual, of(NormKind::Rms, Activation::None))?;
    same("sum", &sum, &x.add(&residual)?)?;
    near("norm of the sum", &y, &sum.rms_norm(&weight, 1e-5)?)?;
    let error = x.fused_add_norm(&weight, of(NormKind::Rms, Activation::None)).expect_err("another shape");
    assert!(matches!(error.tensor_error(), Some(TensorError::Shape { what: "residual", .. })), "{error}");
    Ok(())
}

#[test]
fn text_is_laid_out_as_pytorch_does() -> Outcome {
    let device = device()?;
    let x = f32s(&device, &[2, 2], &[1.0, -2.5, 0.0, 4.0])?;
    assert_eq!(format!("{x}"), "[[ 1.0000, -2.5000],\n [ 0.0000,  4.0000]]\nf32 [2, 2]");
    let whole = (&counting(&device, &[20])? * 10.0)?;
    let want = "\
[  0.,  10.,  20.,  30.,  40.,  50.,  60.,  70.,  80.,  90., 100., 110., 120.,
 130., 140., 150., 160., 170., 180., 190.]
f32 [20]";
    assert_eq!(whole.to_string(), want);
    let long = Tensor::arange(&device, 0, 2000, 1, DType::I64)?;
    assert_eq!(long.to_string(), "[   0,    1,    2,  ..., 1997, 1998, 1999]\ni64 [2000]");
    assert_eq!(long.sum_all()?.to_string(), "1999000\ni64 []");
    Ok(())
}

#[test]
fn elements_that_cannot_be_read_print_as_the_error() -> Outcome {
    let device = device()?;
    let stream = device.stream()?;
    let x = Tensor::zeros(&stream, &[2], DType::F32)?;
    // While the current stream is captured nothing can be read.
    let captured = ironwarp::graph::Graph::capture(&stream, (), |_, ()| Ok(x.to_string()));
    match captured {
        Ok(graph) => assert!(graph.outputs().starts_with('<') && graph.outputs().ends_with("f32 [2]")),
        Err(error) => assert!(matches!(error, Error::NotCapturable { .. }), "{error}"),
    }
    Ok(())
}
