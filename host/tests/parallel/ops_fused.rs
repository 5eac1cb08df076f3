//! Sums with what follows them, against their oracles: by kernels of their own, and made of other calls.

use std::error::Error as StdError;

use half::{bf16, f16};
use ironwarp::graph::Graph;
use ironwarp::parallel::{Communicator, Group};
use ironwarp::tensor::{DType, Element};
use ironwarp::{Device, Error, Stream, Tensor};
use reference::{collective as oracle, reduction, row};
use testkit::tolerance::{self, COLLECTIVE, REDUCE_SUM};
use testkit::{Family, compare, input};

use crate::groups;

type Outcome = Result<(), Box<dyn StdError>>;

const EPS: f64 = 1e-5;

fn tensor<T: Element>(stream: &Stream, shape: &[usize], values: &[T]) -> Result<Tensor, Error> {
    Tensor::from_slice(stream, shape, values)
}

fn doubles<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}

/// Rows of these, by one kernel; then rows that no line divides, and more bytes than travel with their flags.
const ROWS: [[usize; 2]; 6] = [[1, 8], [3, 1000], [40, 24], [1, 5120], [3, 7], [17, 8192]];

fn norms_of<T>(devices: &[Device], family: Family) -> Outcome
where
    T: Element + bytemuck::Pod + testkit::Element + Into<f64>,
{
    let ranks = devices.len() as u64;
    for shape in ROWS {
        // Many devices are slow to simulate.
        if ranks > 3 && shape[0] * shape[1] > 5120 {
            continue;
        }
        let (count, width) = (shape[0] * shape[1], shape[1]);
        let given: Vec<Vec<T>> = (0..ranks).map(|rank| input(family, rank + 1, count)).collect();
        let (residual, weight) = (input::<T>(family, 77, count), input::<T>(Family::Uniform, 78, width));
        let results = Group::open(devices)?.run(|mut rank| {
            let stream = rank.device().stream()?;
            let x = tensor(&stream, &shape, &given[rank.rank() as usize])?;
            let (residual, weight) =
                (tensor(&stream, &shape, &residual)?, tensor(&stream, &[width], &weight)?);
            let normed = rank.all_reduce_norm(&stream, &x, &residual, &weight, EPS)?;
            rank.synchronize(&stream)?;
            let sum = normed.sum.expect("there is a residual");
            Ok((sum.to_vec::<T>(&stream)?, normed.y.to_vec::<T>(&stream)?))
        })?;
        let what =
            |part: &str| format!("{ranks} ranks, {shape:?} {}, {family:?}: {part}", <T as Element>::DTYPE);
        let (sum, y) = &results[0];
        for other in &results[1..] {
            compare::bitwise_equal(&what("sum"), &other.0, sum)?;
            compare::bitwise_equal(&what("norm"), &other.1, y)?;
        }
        let mut all = given.clone();
        all.push(residual);
        let sums = reduction::sums(&oracle::columns(&all));
        // Made of other calls, the sum is rounded before the residual is added.
        let is_one_kernel =
            count * size_of::<T>() <= (48 << 10) && (width * size_of::<T>()).is_multiple_of(8);
        if is_one_kernel {
            let limit = COLLECTIVE.for_terms(all.len());
            compare::rounded(&what("sum"), sum, &sums.value, &sums.magnitude, &shape, limit)?;
        } else {
            let limit = tolerance::find(&format!("rounded sum {}", <T as Element>::DTYPE));
            let limit = limit.for_terms(all.len());
            compare::accumulated(&what("sum"), sum, &sums.value, &sums.magnitude, &shape, limit)?;
        }
        let weight = doubles(&weight);
        let limit = tolerance::find(&format!("rms_norm {}", <T as Element>::DTYPE)).for_terms(width);
        for (sum, y) in sum.chunks(width).zip(y.chunks(width)) {
            let sum = doubles(sum);
            let row = row::Row { x: &sum, weight: Some(&weight), bias: None, eps: EPS };
            let want = row::find("rms_norm")(&row);
            compare::accumulated(&what("norm"), y, &want.value, &want.magnitude, &[width], limit)?;
        }
    }
    Ok(())
}

#[test]
fn norms_of_sums() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    for devices in groups()? {
        norms_of::<bf16>(&devices, Family::Normal)?;
        if devices.len() == 2 {
            norms_of::<f32>(&devices, Family::Normal)?;
            norms_of::<f16>(&devices, Family::Uniform)?;
        }
    }
    Ok(())
}

/// Counts around the sizes of units and turns; the results begin anywhere.
const COUNTS: [usize; 6] = [0, 1, 9, 63, 4099, 70_000];
const SCALE: f32 = 0.37;

/// So many that a thread has several units at once, and then some more, in each of two parts.
const LONG: usize = 1_060_003;

fn scaled_of<T>(devices: &[Device], family: Family) -> Outcome
where
    T: Element + bytemuck::Pod + testkit::Element + Into<f64>,
{
    let largest = if devices.len() > 2 { 4099 } else { COUNTS[COUNTS.len() - 1] };
    for count in COUNTS.into_iter().filter(|&count| count <= largest) {
        [0, 3].into_iter().try_for_each(|start| scaled::<T>(devices, family, count, start))?;
    }
    Ok(())
}

/// Ranks begin at different places.
fn scaled<T>(devices: &[Device], family: Family, count: usize, start: usize) -> Outcome
where
    T: Element + bytemuck::Pod + testkit::Element + Into<f64>,
{
    let ranks = devices.len() as u64;
    let given: Vec<Vec<T>> = (0..ranks).map(|rank| input(family, rank + 1, count)).collect();
    let results = Group::open(devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let x = tensor(&stream, &[count], &given[rank.rank() as usize])?;
        let start = start * rank.rank() as usize;
        let mut all = Tensor::zeros(&stream, &[start + count + 1], DType::F32)?;
        let into = all.view_mut()?.slice(0, start..start + count)?;
        let squares = rank.all_reduce_scaled(&stream, &x, SCALE, into)?;
        rank.synchronize(&stream)?;
        let mut all = all.to_vec::<f32>(&stream)?;
        assert!(all.pop() == Some(0.0) && all[..start].iter().all(|&x| x == 0.0), "beside the result");
        Ok((all.split_off(start), squares.to_vec::<f32>(&stream)?))
    })?;
    let what = |part: &str| {
        format!("{ranks} ranks, {} x {count} from {start} on, {family:?}: {part}", <T as Element>::DTYPE)
    };
    let (sum, squares) = &results[0];
    for other in &results[1..] {
        compare::bitwise_equal(&what("sum"), &other.0, sum)?;
        compare::bitwise_equal(&what("squares"), &other.1, squares)?;
    }
    let exact = reduction::sums(&oracle::columns(&given));
    let scaled = |all: &[f64]| all.iter().map(|x| x * f64::from(SCALE)).collect::<Vec<_>>();
    let limit = COLLECTIVE.for_terms(ranks as usize + 1);
    compare::rounded(&what("sum"), sum, &scaled(&exact.value), &scaled(&exact.magnitude), &[count], limit)?;
    let want = [sum.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>()];
    let limit = REDUCE_SUM.for_terms(count.max(1));
    compare::accumulated(&what("squares"), squares, &want, &want, &[1], limit)?;
    Ok(())
}

#[test]
fn scaled_sums_and_their_squares() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    for devices in groups()? {
        scaled_of::<bf16>(&devices, Family::Normal)?;
        if devices.len() == 2 {
            scaled_of::<f32>(&devices, Family::Normal)?;
            scaled_of::<f16>(&devices, Family::Uniform)?;
        }
    }
    Ok(())
}

#[test]
fn long_scaled_sums() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = crate::devices(2)? else { return Ok(()) };
    scaled::<bf16>(&devices, Family::Normal, LONG, 0)?;
    scaled::<f32>(&devices, Family::Normal, LONG / 2, 0)
}

/// In a graph they come to the same, in each replay.
#[test]
fn fused_sums_replay() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = crate::devices(2)? else { return Ok(()) };
    Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let [x, weight] = [&[3, 32][..], &[32]].map(|shape| {
            let seed = 1 + u64::from(rank.rank()) * shape.len() as u64;
            tensor(&stream, shape, &input::<bf16>(Family::Normal, seed, shape.iter().product()))
        });
        let (x, weight, mut into) = (x?, weight?, Tensor::zeros(&stream, &[96], DType::F32)?);
        let normed = rank.all_reduce_norm(&stream, &x, &x, &weight, EPS)?.y;
        let squares = rank.all_reduce_scaled(&stream, &x, SCALE, into.view_mut()?)?;
        rank.synchronize(&stream)?;
        let want =
            (normed.to_vec::<bf16>(&stream)?, squares.to_vec::<f32>(&stream)?, into.to_vec::<f32>(&stream)?);
        let into = Tensor::zeros(&stream, &[96], DType::F32)?;
        let mut graph =
            Graph::capture(&stream, (rank, x, weight, into), |stream, (rank, x, weight, into)| {
                let normed = rank.all_reduce_norm(stream, x, x, weight, EPS)?.y;
                Ok((normed, rank.all_reduce_scaled(stream, x, SCALE, into.view_mut()?)?))
            })?;
        for _ in 0..2 {
            graph.replay(&stream)?;
            graph.inputs_mut().0.synchronize(&stream)?;
            let (normed, squares) = graph.outputs();
            let into = &graph.inputs().3;
            let got = (
                normed.to_vec::<bf16>(&stream)?,
                squares.to_vec::<f32>(&stream)?,
                into.to_vec::<f32>(&stream)?,
            );
            assert_eq!(got, want);
        }
        Ok(())
    })?;
    Ok(())
}

#[test]
fn wrong_uses_of_fused_sums() -> Outcome {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = crate::devices(2)? else { return Ok(()) };
    Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let of = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
        let (x, weight) = (of(&[2, 8], DType::F32)?, of(&[8], DType::F32)?);
        let error = rank.all_reduce_norm(&stream, &x, &of(&[2, 9], DType::F32)?, &weight, EPS);
        assert!(error.expect_err("another shape").to_string().contains("residual has shape [2, 9]"));
        let norm = |rank: &mut Communicator, x: &Tensor, weight: &Tensor, eps: f64| {
            rank.all_reduce_norm(&stream, x, x, weight, eps).expect_err("a wrong operand")
        };
        for shape in [&[9][..], &[2, 4]] {
            let error = norm(&mut rank, &x, &of(shape, DType::F32)?, EPS);
            assert!(error.to_string().contains("weight has shape"), "{error}");
        }
        let error = norm(&mut rank, &x, &of(&[8], DType::BF16)?, EPS);
        assert!(error.to_string().contains("weight"), "{error}");
        for eps in [-1.0, f64::NAN] {
            let error = norm(&mut rank, &x, &weight, eps);
            assert!(matches!(error, Error::InvalidArgument { argument: "eps", .. }), "{error}");
        }
        let whole = [of(&[2, 8], DType::I32)?, of(&[8], DType::I32)?];
        let error = norm(&mut rank, &whole[0], &whole[1], EPS);
        assert!(error.to_string().contains("f64, f32, f16 or bf16"), "{error}");
        // One of another device.
        let other = devices[1 - rank.rank() as usize].stream()?;
        let far = |shape: &[usize]| Tensor::zeros(&other, shape, DType::F32);
        let is_far = |error: Error| assert!(matches!(error, Error::DeviceMismatch { .. }), "{error}");
        is_far(norm(&mut rank, &x, &far(&[8])?, EPS));
        is_far(norm(&mut rank, &far(&[2, 8])?, &weight, EPS));
        let residual = rank.all_reduce_norm(&stream, &x, &far(&[2, 8])?, &weight, EPS);
        is_far(residual.expect_err("a residual of another device"));
        let result = rank.all_reduce_scaled(&stream, &x, 1.0, far(&[16])?.view_mut()?);
        is_far(result.expect_err("a result of another device"));
        let integers = of(&[16], DType::I32)?;
        let mut into = of(&[16], DType::F32)?;
        let error = rank.all_reduce_scaled(&stream, &integers, 1.0, into.view_mut()?);
        assert!(error.expect_err("integers").to_string().contains("f32, f16 or bf16"));
        let error = rank.all_reduce_scaled(&stream, &x, 1.0, of(&[16], DType::F16)?.view_mut()?);
        assert!(error.expect_err("halves").to_string().contains("the result"));
        let error = rank.all_reduce_scaled(&stream, &x, 1.0, of(&[15], DType::F32)?.view_mut()?);
        assert!(matches!(error, Err(Error::Length { expected: 16, got: 15, .. })));
        // Nothing was queued: the group goes on.
        rank.all_reduce_norm(&stream, &x, &x, &weight, EPS)?;
        rank.all_reduce_scaled(&stream, &x, 1.0, into.view_mut()?)?;
        rank.synchronize(&stream)
    })?;
    Ok(())
}
