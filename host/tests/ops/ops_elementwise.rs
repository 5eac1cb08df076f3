//! Element-wise operations against their oracles: every function and type, every layout, wrong calls. On
//! whichever driver is there.

use super::elementwise_table::{BINARY, Binary, COMPARISONS, Comparison, Rows, UNARY, Unary};
use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::elementwise::{
    BinaryOp, CompareOp, UnaryOp, affine, binary, binary_assign, binary_into, clamp, compare, compare_into,
    contiguous, copy, copy_into, leaky_relu, reshape, select, select_into, unary, unary_assign, unary_into,
};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Stream, Tensor, TensorError};
use reference::elementwise as oracle;
use testkit::tolerance;
use testkit::{Family, Random, Tolerance, compare as compared, input};

/// Numbers of every magnitude and sign, zeros, special values, and what functions have around their seams.
fn hostile<T: testkit::Element>() -> Vec<T> {
    let mut x: Vec<T> = Family::ALL.iter().flat_map(|&family| input::<T>(family, 1, 150)).collect();
    let everywhere = [0.0, 0.5, 1.0, 30.0, 60.0, f64::INFINITY, f64::NAN];
    let seams = UNARY.iter().flat_map(|row| row.inputs).copied();
    x.extend(everywhere.into_iter().chain(seams).flat_map(|v| [v, -v]).map(T::from_f64));
    let mut random = Random::new(5);
    x.extend((0..200).map(|_| T::from_f64(random.uniform(-12.0, 12.0))));
    x
}

/// The rows of the functions that an element type has.
fn unary_rows(dtype: DType) -> impl Iterator<Item = &'static Unary> {
    UNARY.iter().filter(move |row| dtype != DType::F64 || row.op.is_in_f64())
}

fn every_function<T: Element + testkit::Element>(stream: &Stream, rows: Rows) -> Outcome {
    let x = hostile::<T>();
    let device = Tensor::from_slice(stream, &[x.len()], &x)?;
    for &Unary { op, of_float, accuracy, .. } in unary_rows(T::DTYPE) {
        let want: Vec<f64> = x.iter().map(|x| of_float(x.to_f64())).collect();
        let got = unary(stream, op, &device)?.to_vec::<T>(stream)?;
        compared::elementwise(
            &format!("{op:?} of {}", T::DTYPE),
            &got,
            &want,
            &[x.len()],
            rows.of(accuracy),
        )?;
    }
    let (a, b) = (1.25f64, -0.375);
    let want: Vec<f64> = x.iter().map(|x| a.mul_add(x.to_f64(), b)).collect();
    let got = affine(stream, &device, a, b)?.to_vec::<T>(stream)?;
    compared::elementwise(
        &format!("affine of {}", T::DTYPE),
        &got,
        &want,
        &[x.len()],
        rows.arithmetic.tolerance(),
    )?;
    let want: Vec<f64> = x.iter().map(|x| oracle::min(oracle::max(x.to_f64(), -2.0), 3.0)).collect();
    let got = clamp(stream, &device, -2.0, 3.0)?.to_vec::<T>(stream)?;
    compared::elementwise(&format!("clamp of {}", T::DTYPE), &got, &want, &[x.len()], Tolerance::EXACT)?;
    let want: Vec<f64> = x.iter().map(|x| x.to_f64()).map(|x| if x > 0.0 { x } else { 0.25 * x }).collect();
    let got = leaky_relu(stream, &device, 0.25)?.to_vec::<T>(stream)?;
    compared::elementwise(
        &format!("leaky_relu of {}", T::DTYPE),
        &got,
        &want,
        &[x.len()],
        rows.arithmetic.tolerance(),
    )?;

    let y: Vec<T> = x.iter().rev().copied().collect();
    let other = Tensor::from_slice(stream, &[y.len()], &y)?;
    for (op, of) in BINARY.iter().filter_map(|row| Some((row.op, row.of_float?))) {
        let want: Vec<f64> = x.iter().zip(&y).map(|(a, b)| of(a.to_f64(), b.to_f64())).collect();
        let got = binary(stream, op, &device, &other)?.to_vec::<T>(stream)?;
        let what = format!("{op:?} of {}", T::DTYPE);
        compared::elementwise(&what, &got, &want, &[x.len()], rows.arithmetic.tolerance())?;
    }
    compares::<T, f64>(stream, &x, &y, |v| v.to_f64())
}

fn compares<T: Element, V: PartialOrd>(stream: &Stream, x: &[T], y: &[T], value: impl Fn(T) -> V) -> Outcome {
    let (a, b) = (Tensor::from_slice(stream, &[x.len()], x)?, Tensor::from_slice(stream, &[y.len()], y)?);
    for &Comparison { op, holds } in COMPARISONS {
        let want: Vec<bool> =
            x.iter().zip(y).map(|(&a, &b)| holds(value(a).partial_cmp(&value(b)))).collect();
        assert_eq!(compare(stream, op, &a, &b)?.to_vec::<bool>(stream)?, want, "{op:?} of {}", T::DTYPE);
    }
    Ok(())
}

#[test]
fn every_function_of_f32() -> Outcome {
    every_function::<f32>(
        &stream()?,
        Rows {
            arithmetic: tolerance::ARITHMETIC_F32,
            function: tolerance::FUNCTION_F32,
            gelu_tanh: tolerance::GELU_TANH_F32,
        },
    )
}

#[test]
fn every_function_of_f64() -> Outcome {
    every_function::<f64>(
        &stream()?,
        Rows {
            arithmetic: tolerance::ARITHMETIC_F64,
            function: tolerance::FUNCTION_F64,
            gelu_tanh: tolerance::FUNCTION_F64,
        },
    )
}

#[test]
fn every_function_of_f16() -> Outcome {
    every_function::<f16>(
        &stream()?,
        Rows {
            arithmetic: tolerance::ARITHMETIC_F16,
            function: tolerance::FUNCTION_F16,
            gelu_tanh: tolerance::FUNCTION_F16,
        },
    )
}

#[test]
fn every_function_of_bf16() -> Outcome {
    every_function::<bf16>(
        &stream()?,
        Rows {
            arithmetic: tolerance::ARITHMETIC_BF16,
            function: tolerance::FUNCTION_BF16,
            gelu_tanh: tolerance::FUNCTION_BF16,
        },
    )
}

/// All that there are of a 16-bit type.
fn every_number<T: Element + testkit::Element>(of: fn(u16) -> T, rows: Rows) -> Outcome {
    let stream = stream()?;
    let x: Vec<T> = (0..=u16::MAX).map(of).collect();
    let device = Tensor::from_slice(&stream, &[x.len()], &x)?;
    for &Unary { op, of_float, accuracy, .. } in unary_rows(T::DTYPE) {
        let want: Vec<f64> = x.iter().map(|x| of_float(x.to_f64())).collect();
        let got = unary(&stream, op, &device)?.to_vec::<T>(&stream)?;
        let what = format!("{op:?} of every {}", T::DTYPE);
        compared::elementwise(&what, &got, &want, &[x.len()], rows.of(accuracy))?;
    }
    Ok(())
}

#[test]
fn every_function_of_every_f16() -> Outcome {
    let (arithmetic, function) = (tolerance::ARITHMETIC_F16, tolerance::FUNCTION_F16);
    every_number(f16::from_bits, Rows { arithmetic, function, gelu_tanh: function })
}

#[test]
fn every_function_of_every_bf16() -> Outcome {
    let (arithmetic, function) = (tolerance::ARITHMETIC_BF16, tolerance::FUNCTION_BF16);
    every_number(bf16::from_bits, Rows { arithmetic, function, gelu_tanh: function })
}

fn integers<T: Element + PartialEq + TryFrom<i128> + Into<i128>>(
    stream: &Stream,
    bits: u32,
    low: i128,
    high: i128,
) -> Outcome {
    let signed = low < 0;
    let of = |value: i128| {
        let wrapped = if signed { oracle::wrap(value, bits) } else { value & high };
        T::try_from(wrapped).unwrap_or_else(|_| panic!("{wrapped} is no {}", T::DTYPE))
    };
    let mut random = Random::new(7);
    let mut x: Vec<i128> = vec![low, high, low + 1, high - 1, 0, 1, 2, 3, 0, 7];
    x.extend((0..300).map(|_| (i128::from(random.bits()) >> (random.integer(0, 63) as u32)).clamp(0, high)));
    if signed {
        x.extend(
            (0..100)
                .map(|_| -(i128::from(random.bits()) >> (1 + random.integer(0, 62) as u32)).clamp(0, high)),
        );
        x.push(-1);
    }
    let y: Vec<i128> = x.iter().rev().copied().collect();
    let [xs, ys]: [Vec<T>; 2] = [&x, &y].map(|v| v.iter().map(|&v| of(v)).collect());
    let (a, b) = (Tensor::from_slice(stream, &[x.len()], &xs)?, Tensor::from_slice(stream, &[x.len()], &ys)?);
    if signed {
        for (op, f) in UNARY.iter().filter_map(|row| Some((row.op, row.of_integer?))) {
            let want: Vec<T> = x.iter().map(|&x| of(f(x))).collect();
            assert!(unary(stream, op, &a)?.to_vec::<T>(stream)? == want, "{op:?} of {}", T::DTYPE);
        }
        let want: Vec<T> = x.iter().map(|&x| of(x * -3 + 5)).collect();
        assert!(affine(stream, &a, -3.9, 5.9)?.to_vec::<T>(stream)? == want, "affine of {}", T::DTYPE);
        let want: Vec<T> = x.iter().map(|&x| of(x.clamp(-2, 90))).collect();
        assert!(clamp(stream, &a, -2.0, 90.0)?.to_vec::<T>(stream)? == want, "clamp of {}", T::DTYPE);
    }
    for &Binary { op, of_integer: f, .. } in BINARY {
        let want: Vec<T> = x.iter().zip(&y).map(|(&a, &b)| of(f(a, b))).collect();
        assert!(binary(stream, op, &a, &b)?.to_vec::<T>(stream)? == want, "{op:?} of {}", T::DTYPE);
    }
    compares::<T, i128>(stream, &xs, &ys, T::into)
}

#[test]
fn every_function_of_integers() -> Outcome {
    let stream = stream()?;
    integers::<i64>(&stream, 64, i64::MIN.into(), i64::MAX.into())?;
    integers::<i32>(&stream, 32, i32::MIN.into(), i32::MAX.into())?;
    integers::<u8>(&stream, 8, 0, u8::MAX.into())?;
    let [p, q] = [[false, false, true, true], [false, true, false, true]]
        .map(|v| Tensor::from_slice(&stream, &[4], &v));
    let (p, q) = (p?, q?);
    let bools = |op| binary(&stream, op, &p, &q)?.to_vec::<bool>(&stream);
    assert_eq!(bools(BinaryOp::And)?, [false, false, false, true]);
    assert_eq!(bools(BinaryOp::Or)?, [false, true, true, true]);
    assert_eq!(bools(BinaryOp::Xor)?, [false, true, true, false]);
    Ok(())
}

/// A tensor of a shape that broadcasts to `shape`, laid out at random: sides of 1, axes turned, steps, places
/// in front.
fn random_layout<T: Element>(
    stream: &Stream,
    random: &mut Random,
    shape: &[usize],
    value: impl Fn(i64) -> T,
) -> Result<Tensor, Error> {
    let mut sides = shape.to_vec();
    let dropped = if random.integer(0, 3) == 0 { random.integer(0, sides.len() as i64) as usize } else { 0 };
    sides.drain(..dropped);
    sides.iter_mut().for_each(|side| {
        if random.integer(0, 4) == 0 {
            *side = 1
        }
    });
    let rank = sides.len();
    let mut axes: Vec<usize> = (0..rank).collect();
    if random.integer(0, 1) == 0 {
        (1..rank).for_each(|i| axes.swap(i, random.integer(0, i as i64) as usize));
    }
    // Lies in memory as axes say, with steps and places to spare.
    let steps: Vec<usize> = axes.iter().map(|_| if random.integer(0, 4) == 0 { 2 } else { 1 }).collect();
    let front: Vec<usize> = axes.iter().map(|_| if random.integer(0, 4) == 0 { 1 } else { 0 }).collect();
    let memory: Vec<usize> = axes
        .iter()
        .zip(steps.iter().zip(&front))
        .map(|(&axis, (step, front))| sides[axis] * step + front)
        .collect();
    let n = memory.iter().product::<usize>();
    let data: Vec<T> = (0..n).map(|_| value(random.integer(-100, 100))).collect();
    let mut x = Tensor::from_slice(stream, &memory, &data)?;
    for axis in 0..rank {
        x = x.slice_by(axis, front[axis].., steps[axis])?.slice(axis, ..sides[axes[axis]])?;
    }
    let mut back = vec![0; rank];
    axes.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    x.permute(&back)
}

/// Shapes that meet every mode: runs with tails, lines of whole units, lines with odd ends, many axes.
const SHAPES: [&[usize]; 15] = [
    &[],
    &[1],
    &[7],
    &[1027],
    &[3000],
    &[16, 64],
    &[17, 33],
    &[5, 8, 16],
    &[3, 1, 40],
    &[2, 3, 4, 5],
    &[2, 0, 3],
    &[64, 16, 2],
    &[2, 2, 2, 2, 2, 2, 2, 3],
    &[300, 3],
    &[61, 101],
];

fn every_layout<T: Element + PartialEq + std::fmt::Debug>(
    value: impl Fn(i64) -> T + Copy,
    seed: u64,
) -> Outcome {
    let stream = stream()?;
    let mut random = Random::new(seed);
    for shape in SHAPES {
        for _ in 0..6 {
            let [a, b, out] = [(); 3].map(|()| random_layout(&stream, &mut random, shape, value));
            let (a, b, mut out) = (a?, b?, out?);
            let condition = random_layout(&stream, &mut random, shape, |v| v % 2 == 0)?;
            let [at, bt, ct] = [&a, &b, &condition].map(|x| x.broadcast_to(shape));
            let (av, bv, cv) =
                (at?.to_vec::<T>(&stream)?, bt?.to_vec::<T>(&stream)?, ct?.to_vec::<bool>(&stream)?);
            let want: Vec<T> =
                cv.iter().zip(av.iter().zip(&bv)).map(|(&c, (&a, &b))| if c { a } else { b }).collect();
            let what = format!("{shape:?}: {condition:?} ? {a:?} : {b:?}");
            if out.shape().sides() == shape {
                select_into(&stream, &condition, &a, &b, out.view_mut()?)?;
                assert_eq!(out.to_vec::<T>(&stream)?, want, "{what} into {out:?}");
                copy_into(&stream, &a, out.view_mut()?)?;
                assert_eq!(out.to_vec::<T>(&stream)?, av, "{a:?} into {out:?}");
            }
            let all = contiguous(&stream, &a.broadcast_to(shape)?)?;
            assert_eq!((all.is_contiguous(), all.to_vec::<T>(&stream)?), (true, av), "{a:?}");
            let made = select(&stream, &condition, &a, &b)?.broadcast_to(shape)?;
            assert_eq!(made.to_vec::<T>(&stream)?, want, "{what}");
        }
    }
    Ok(())
}

#[test]
fn bits_move_between_all_layouts() -> Outcome {
    every_layout(|v| v * 0x0101_0101_0101, 1)?;
    every_layout(|v| v as i32, 2)?;
    every_layout(|v| f16::from_f64(v as f64), 3)?;
    every_layout(|v| (v + 100) as u8, 4)
}

#[test]
fn arithmetic_in_all_layouts() -> Outcome {
    let stream = stream()?;
    let mut random = Random::new(9);
    for shape in SHAPES {
        for _ in 0..6 {
            let [a, b, out] = [(); 3].map(|()| random_layout(&stream, &mut random, shape, |v| v as f32));
            let (a, b, mut out) = (a?, b?, out?);
            let (av, bv) = (
                a.broadcast_to(shape)?.to_vec::<f32>(&stream)?,
                b.broadcast_to(shape)?.to_vec::<f32>(&stream)?,
            );
            let sum: Vec<f32> = av.iter().zip(&bv).map(|(a, b)| a + b).collect();
            let below: Vec<bool> = av.iter().zip(&bv).map(|(a, b)| a < b).collect();
            let got = binary(&stream, BinaryOp::Add, &a, &b)?.broadcast_to(shape)?.to_vec::<f32>(&stream)?;
            assert_eq!(got, sum, "{a:?} + {b:?}");
            let got =
                compare(&stream, CompareOp::Lt, &a, &b)?.broadcast_to(shape)?.to_vec::<bool>(&stream)?;
            assert_eq!(got, below, "{a:?} < {b:?}");
            if out.shape().sides() != shape {
                continue;
            }
            binary_into(&stream, BinaryOp::Add, &a, &b, out.view_mut()?)?;
            assert_eq!(out.to_vec::<f32>(&stream)?, sum, "{a:?} + {b:?} into {out:?}");
            binary_assign(&stream, BinaryOp::Sub, out.view_mut()?, &b)?;
            assert_eq!(out.to_vec::<f32>(&stream)?, av, "{out:?} -= {b:?}");
            unary_assign(&stream, UnaryOp::Neg, out.view_mut()?)?;
            let negative: Vec<f32> = av.iter().map(|v| -v).collect();
            assert_eq!(out.to_vec::<f32>(&stream)?, negative, "-{out:?}");
            let full = a.broadcast_to(shape)?;
            unary_into(&stream, UnaryOp::Abs, &full, out.view_mut()?)?;
            assert_eq!(
                out.to_vec::<f32>(&stream)?,
                av.iter().map(|v| v.abs()).collect::<Vec<_>>(),
                "|{full:?}|"
            );
            let mut flags = Tensor::zeros_padded(&stream, shape, DType::Bool, 16)?;
            compare_into(&stream, CompareOp::Lt, &a, &b, flags.view_mut()?)?;
            assert_eq!(flags.to_vec::<bool>(&stream)?, below, "{a:?} < {b:?} into {flags:?}");
        }
    }
    Ok(())
}

/// Every function of dense elements, which others test, and of the same ones where no vector access reaches
/// them.
fn wherever_they_lie<T: Element + testkit::Element>() -> Outcome {
    let stream = stream()?;
    let x = hostile::<T>();
    let dense = Tensor::from_slice(&stream, &[x.len()], &x)?;
    let moved: Vec<T> = x[..1].iter().chain(&x).copied().collect();
    let shifted = Tensor::from_slice(&stream, &[moved.len()], &moved)?.slice(0, 1..)?;
    let pairs: Vec<T> = x.iter().flat_map(|&x| [x, T::from_f64(1.0)]).collect();
    let every_other = Tensor::from_slice(&stream, &[pairs.len()], &pairs)?.slice_by(0, .., 2)?;
    for op in unary_rows(T::DTYPE).map(|row| row.op) {
        let want = unary(&stream, op, &dense)?.to_vec::<T>(&stream)?;
        for x in [&shifted, &every_other] {
            let got = unary(&stream, op, x)?.to_vec::<T>(&stream)?;
            compared::bitwise_equal(&format!("{op:?} of {x:?}"), &got, &want)?;
        }
    }
    Ok(())
}

#[test]
fn functions_are_the_same_wherever_operands_lie() -> Outcome {
    wherever_they_lie::<f32>()?;
    wherever_they_lie::<f16>()?;
    wherever_they_lie::<bf16>()
}

#[test]
fn nothing_beside_the_output_is_written() -> Outcome {
    let stream = stream()?;
    for n in (0..40).chain([255, 256, 1023, 1024, 1025, 4099]) {
        for start in [0, 1, 3, 8] {
            let mut memory = Tensor::from_slice(&stream, &[n + 16], &vec![7.0f32; n + 16])?;
            let x = Tensor::from_slice(&stream, &[n], &(0..n).map(|i| i as f32).collect::<Vec<_>>())?;
            unary_into(&stream, UnaryOp::Neg, &x, memory.view_mut()?.slice(0, start..start + n)?)?;
            let got = memory.to_vec::<f32>(&stream)?;
            let mut want = vec![7.0f32; n + 16];
            (0..n).for_each(|i| want[start + i] = -(i as f32));
            assert_eq!(got, want, "{n} elements from {start} on");
        }
    }
    Ok(())
}

#[test]
fn shapes_change_with_a_copy_only_where_needed() -> Outcome {
    let stream = stream()?;
    let x = Tensor::from_slice(&stream, &[2, 3], &[1i32, 2, 3, 4, 5, 6])?;
    let flat = reshape(&stream, &x, &[6])?;
    assert_eq!(flat.as_view::<i32>()?.as_ptr().raw(), x.as_view::<i32>()?.as_ptr().raw());
    let turned = reshape(&stream, &x.transpose(0, 1)?, &[6])?;
    assert_eq!(turned.to_vec::<i32>(&stream)?, [1, 4, 2, 5, 3, 6]);
    assert!(copy(&stream, &x)?.as_view::<i32>()?.as_ptr().raw() != x.as_view::<i32>()?.as_ptr().raw());
    assert!(reshape(&stream, &x, &[7]).is_err());
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let wrong = |result: Result<(), Error>, is_it: fn(&TensorError) -> bool| {
        let error = result.unwrap_err();
        assert!(error.tensor_error().is_some_and(is_it), "{error:?}");
        assert!(error.to_string().contains("\nhint: ") && error.is_recoverable(), "{error}");
    };
    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    let x = zeros(&[2, 3], DType::F32)?;
    for dtype in [DType::F8E4M3, DType::F8E5M2, DType::U8, DType::Bool] {
        let other = zeros(&[2, 3], dtype)?;
        wrong(unary(&stream, UnaryOp::Neg, &other).map(drop), |e| {
            matches!(e, TensorError::DType { what: "x", .. })
        });
    }
    wrong(unary(&stream, UnaryOp::Exp, &zeros(&[2], DType::I64)?).map(drop), |e| {
        matches!(e, TensorError::DType { .. })
    });
    wrong(unary(&stream, UnaryOp::Sin, &zeros(&[2], DType::F64)?).map(drop), |e| {
        matches!(e, TensorError::DType { .. })
    });
    let error = unary(&stream, UnaryOp::Clamp, &x).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "op", .. }), "{error:?}");
    wrong(unary_into(&stream, UnaryOp::Neg, &x, zeros(&[3, 2], DType::F32)?.view_mut()?), |e| {
        matches!(e, TensorError::Shape { what: "out", .. })
    });
    wrong(unary_into(&stream, UnaryOp::Neg, &x, zeros(&[2, 3], DType::F16)?.view_mut()?), |e| {
        matches!(e, TensorError::DType { what: "out", .. })
    });

    wrong(binary(&stream, BinaryOp::Add, &x, &zeros(&[2, 2], DType::F32)?).map(drop), |e| {
        matches!(e, TensorError::Broadcast { .. })
    });
    wrong(binary(&stream, BinaryOp::Add, &x, &zeros(&[2, 3], DType::F64)?).map(drop), |e| {
        matches!(e, TensorError::DType { what: "b", .. })
    });
    wrong(binary(&stream, BinaryOp::And, &x, &x).map(drop), |e| matches!(e, TensorError::DType { .. }));
    let flags = zeros(&[2, 3], DType::Bool)?;
    wrong(binary(&stream, BinaryOp::Add, &flags, &flags).map(drop), |e| {
        matches!(e, TensorError::DType { .. })
    });
    let small = zeros(&[2, 3], DType::F8E5M2)?;
    wrong(binary(&stream, BinaryOp::Add, &small, &small).map(drop), |e| {
        matches!(e, TensorError::DType { .. })
    });
    wrong(binary_assign(&stream, BinaryOp::Add, zeros(&[3], DType::F32)?.view_mut()?, &x), |e| {
        matches!(e, TensorError::Broadcast { .. })
    });
    wrong(binary_into(&stream, BinaryOp::Add, &x, &x, zeros(&[3], DType::F32)?.view_mut()?), |e| {
        matches!(e, TensorError::Broadcast { .. })
    });
    wrong(compare(&stream, CompareOp::Lt, &small, &small).map(drop), |e| {
        matches!(e, TensorError::DType { .. })
    });
    wrong(compare_into(&stream, CompareOp::Lt, &x, &x, zeros(&[2, 3], DType::U8)?.view_mut()?), |e| {
        matches!(e, TensorError::DType { what: "out", .. })
    });
    wrong(select(&stream, &x, &x, &x).map(drop), |e| {
        matches!(e, TensorError::DType { what: "condition", .. })
    });
    wrong(select(&stream, &flags, &x, &small).map(drop), |e| {
        matches!(e, TensorError::DType { what: "b", .. })
    });
    wrong(copy_into(&stream, &x, zeros(&[2, 4], DType::F32)?.view_mut()?), |e| {
        matches!(e, TensorError::Broadcast { .. })
    });
    wrong(copy_into(&stream, &x, zeros(&[2, 3], DType::I32)?.view_mut()?), |e| {
        matches!(e, TensorError::DType { .. })
    });
    Ok(())
}
