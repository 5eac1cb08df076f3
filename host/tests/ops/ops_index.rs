//! Gathers and scatters against their oracles: every size, shape and alignment, repeated indices, wrong
//! calls. On whichever driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::index::{Indices, gather, scatter, scatter_add};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Tensor, TensorError};
use num::E5M2;
use reference::index as oracle;
use testkit::{Family, Random, Tolerance, compare, input, tolerance};

/// Shapes, axes and numbers of indices: units of every size, odd rows, indices on every axis, nothing.
const CASES: [(&[usize], usize, usize); 14] = [
    (&[5], 0, 9),
    (&[7, 1], 0, 4),
    (&[7, 2], 0, 300),
    (&[9, 3], 0, 20),
    (&[6, 4], 0, 7),
    (&[40, 16], 0, 33),
    (&[3, 1000], 0, 5),
    (&[4, 5, 8], 1, 11),
    (&[3, 4, 5], 2, 8),
    (&[1100], 0, 700),
    (&[6, 4], 0, 0),
    (&[0, 4], 0, 0),
    (&[3, 0], 0, 2),
    (&[2, 0, 3], 2, 4),
];

fn random_indices(random: &mut Random, count: usize, bound: usize) -> Vec<usize> {
    (0..count).map(|_| random.integer(0, bound as i64 - 1) as usize).collect()
}

fn dense_shape(shape: &[usize], axis: usize, count: usize) -> Vec<usize> {
    let mut sides = shape.to_vec();
    sides[axis] = count;
    sides
}

fn bits_move<T: Element + PartialEq + std::fmt::Debug>(seed: u64, value: impl Fn(u64) -> T) -> Outcome {
    let stream = stream()?;
    let mut random = Random::new(seed);
    for (shape, axis, count) in CASES {
        let mut data =
            |shape: &[usize]| (0..shape.iter().product()).map(|_| value(random.bits())).collect::<Vec<T>>();
        let dense = dense_shape(shape, axis, count);
        let (x, rows) = (data(shape), data(&dense));
        let chosen = random_indices(&mut random, count, shape[axis]);
        let indices = Indices::from_slice(&stream, &chosen, shape[axis])?;
        let what = format!("{} {shape:?} along {axis}, {count} indices", T::DTYPE);

        let mut table = Tensor::from_slice(&stream, shape, &x)?;
        let got = gather(&stream, &table, axis, &indices)?;
        assert_eq!(got.shape().sides(), dense, "{what}");
        assert_eq!(got.to_vec::<T>(&stream)?, oracle::gather(&x, shape, axis, &chosen), "gather, {what}");

        let rows_device = Tensor::from_slice(&stream, &dense, &rows)?;
        scatter(&stream, table.view_mut()?, axis, &indices, &rows_device)?;
        let want = oracle::scatter(&x, shape, axis, &chosen, &rows);
        assert_eq!(table.to_vec::<T>(&stream)?, want, "scatter, {what}");
    }
    Ok(())
}

#[test]
fn rows_of_every_size_move() -> Outcome {
    bits_move(1, |bits| bits as i64)?;
    bits_move(2, |bits| bits as i32)?;
    bits_move(3, |bits| bf16::from_f32((bits % 1000) as f32))?;
    bits_move(4, |bits| bits as u8)?;
    bits_move(5, |bits| E5M2::from_bits((bits % 100) as u8))?;
    bits_move(6, |bits| bits % 2 == 0)
}

#[test]
fn any_alignment_and_layout() -> Outcome {
    let stream = stream()?;
    let data: Vec<f16> = (0..640).map(|i| f16::from_f32(i as f32)).collect();
    let x = Tensor::from_slice(&stream, &[640], &data)?;
    let chosen = [3, 0, 7, 7];
    let indices = Indices::from_slice(&stream, &chosen, 8)?;
    for start in 0..9 {
        let table = x.slice(0, start..start + 8 * 24)?.view_as(&[8, 24])?;
        let want = oracle::gather(&data[start..], &[8, 24], 0, &chosen);
        assert_eq!(gather(&stream, &table, 0, &indices)?.to_vec::<f16>(&stream)?, want, "from {start} on");
        let mut memory = Tensor::from_slice(&stream, &[640], &data)?;
        let rows = x.slice(0, 400..400 + 4 * 24)?.view_as(&[24, 4])?.transpose(0, 1)?;
        let part = memory.view_mut()?.slice(0, start..start + 8 * 24)?.reshape(&[8, 24])?;
        scatter(&stream, part, 0, &indices, &rows)?;
        let mut want = data.clone();
        let scattered =
            oracle::scatter(&data[start..start + 192], &[8, 24], 0, &chosen, &rows.to_vec::<f16>(&stream)?);
        want[start..start + 192].copy_from_slice(&scattered);
        assert_eq!(memory.to_vec::<f16>(&stream)?, want, "from {start} on");
    }
    let turned = x.slice(0, ..40)?.view_as(&[5, 8])?.transpose(0, 1)?;
    let want = oracle::gather(&turned.to_vec::<f16>(&stream)?, &[8, 5], 0, &chosen);
    assert_eq!(gather(&stream, &turned, 0, &indices)?.to_vec::<f16>(&stream)?, want);
    Ok(())
}

fn sums<T: Element + testkit::Element + Into<f64>>(row: tolerance::Row, family: Family) -> Outcome {
    let stream = stream()?;
    let mut random = Random::new(8);
    for (shape, axis, count) in CASES {
        let dense = dense_shape(shape, axis, count);
        let (x, rows) =
            (input::<T>(family, 1, shape.iter().product()), input::<T>(family, 2, dense.iter().product()));
        let chosen = random_indices(&mut random, count, shape[axis]);
        let indices = Indices::from_slice(&stream, &chosen, shape[axis])?;
        let mut table = Tensor::from_slice(&stream, shape, &x)?;
        scatter_add(
            &stream,
            table.view_mut()?,
            axis,
            &indices,
            &Tensor::from_slice(&stream, &dense, &rows)?,
        )?;
        let want = oracle::scatter_add(&x, shape, axis, &chosen, &rows);
        let what = format!("{} {shape:?} along {axis}, {family:?}", T::DTYPE);
        let limit = row.for_terms(count + 1);
        compare::accumulated(
            &what,
            &table.to_vec::<T>(&stream)?,
            &want.value,
            &want.magnitude,
            &[x.len()],
            limit,
        )?;
    }
    Ok(())
}

#[test]
fn rows_add_up() -> Outcome {
    for family in [Family::Normal, Family::Special, Family::HugeTiny] {
        sums::<f32>(tolerance::SCATTER_ADD, family)?;
    }
    sums::<f64>(tolerance::REDUCE_SUM_F64, Family::Cancelling)?;
    sums::<f16>(tolerance::REDUCE_SUM_F16, Family::Uniform)?;
    sums::<bf16>(tolerance::REDUCE_SUM_BF16, Family::Cancelling)?;
    let stream = stream()?;
    let indices = Indices::from_slice(&stream, &[1, 1, 1], 2)?;
    let mut out = Tensor::from_slice(&stream, &[2], &[5i32, i32::MAX])?;
    scatter_add(&stream, out.view_mut()?, 0, &indices, &Tensor::from_slice(&stream, &[3], &[1i32, 2, 3])?)?;
    assert_eq!(out.to_vec::<i32>(&stream)?, [5, i32::MAX.wrapping_add(6)]);
    let mut out = Tensor::from_slice(&stream, &[2], &[5i64, i64::MIN])?;
    scatter_add(&stream, out.view_mut()?, 0, &indices, &Tensor::from_slice(&stream, &[3], &[-1i64, 2, 3])?)?;
    assert_eq!(out.to_vec::<i64>(&stream)?, [5, i64::MIN + 4]);
    Ok(())
}

#[test]
fn rows_add_up_in_order() -> Outcome {
    let stream = stream()?;
    // In f32 the order decides: what is added after the large number is lost.
    let values = [1.0f32, 1e8, 1.0, -1e8, 1.0];
    let indices = Indices::from_slice(&stream, &[300; 5], 1000)?;
    let rows: Vec<f32> = values.iter().flat_map(|&v| [v; 7]).collect();
    let want = values.iter().fold(0f32, |sum, v| sum + v);
    for _ in 0..3 {
        let mut out = Tensor::zeros(&stream, &[1000, 7], DType::F32)?;
        scatter_add(&stream, out.view_mut()?, 0, &indices, &Tensor::from_slice(&stream, &[5, 7], &rows)?)?;
        compare::bitwise_equal("in order", &out.select(0, 300)?.to_vec::<f32>(&stream)?, &[want; 7])?;
    }
    Ok(())
}

/// So many indices that they are counted first: places of none, one and several, in rows with and without
/// units of 16 bytes.
fn many<T: Element + testkit::Element + Into<f64>>(limit: Tolerance, seed: u64) -> Outcome {
    let stream = stream()?;
    let mut random = Random::new(seed);
    for (shape, axis) in [([1, 2000, 8], 1), ([2, 1500, 3], 1), ([3000, 1, 4], 0)] {
        let count = 1500;
        let mut dense = shape;
        dense[axis] = count;
        let (x, rows) = (
            input::<T>(Family::SmallIntegers, 1, shape.iter().product()),
            input::<T>(Family::SmallIntegers, 2, dense.iter().product()),
        );
        let chosen = random_indices(&mut random, count, shape[axis]);
        let named = |times: usize| {
            (0..shape[axis]).filter(|place| chosen.iter().filter(|&at| at == place).count() == times).count()
        };
        assert!(named(0) > 0 && named(1) > 0 && named(2) > 0);
        let indices = Indices::from_slice(&stream, &chosen, shape[axis])?;
        let mut table = Tensor::from_slice(&stream, &shape, &x)?;
        scatter_add(
            &stream,
            table.view_mut()?,
            axis,
            &indices,
            &Tensor::from_slice(&stream, &dense, &rows)?,
        )?;
        let want = oracle::scatter_add(&x, &shape, axis, &chosen, &rows);
        let (what, got) = (format!("{} {shape:?}", T::DTYPE), table.to_vec::<T>(&stream)?);
        compare::accumulated(&what, &got, &want.value, &want.magnitude, &[x.len()], limit)?;
    }
    Ok(())
}

#[test]
fn many_rows_add_up() -> Outcome {
    // Small integers: every sum is exact, but for one rounding to 16 bits.
    many::<f32>(Tolerance::EXACT, 9)?;
    many::<f64>(Tolerance::EXACT, 10)?;
    many::<f16>(tolerance::REDUCE_SUM_F16.tolerance(), 11)?;
    many::<bf16>(tolerance::REDUCE_SUM_BF16.tolerance(), 12)?;
    let stream = stream()?;
    // Places 0 to 1098 once, place 1099 for all that are left.
    let chosen: Vec<usize> = (0..1500).map(|i: usize| i.min(1099)).collect();
    let indices = Indices::from_slice(&stream, &chosen, 1100)?;
    let rows: Vec<i64> = (0..1500).map(|i| i << 40).collect();
    let mut out = Tensor::zeros(&stream, &[1100], DType::I64)?;
    scatter_add(&stream, out.view_mut()?, 0, &indices, &Tensor::from_slice(&stream, &[1500], &rows)?)?;
    let got = out.to_vec::<i64>(&stream)?;
    assert!(got[..1099] == rows[..1099] && got[1099] == rows[1099..].iter().sum::<i64>());
    let rows: Vec<i32> = (0..3000).collect();
    let mut out = Tensor::zeros(&stream, &[1100, 2], DType::I32)?;
    scatter_add(&stream, out.view_mut()?, 0, &indices, &Tensor::from_slice(&stream, &[1500, 2], &rows)?)?;
    let got = out.to_vec::<i32>(&stream)?;
    assert!(got[..2198] == rows[..2198] && got[2199] == (1099..1500).map(|i| 2 * i + 1).sum::<i32>());
    // The order counts here too.
    let values: Vec<f32> = (0..1200).map(|i| [1.0, 1e8, 1.0, -1e8][i % 4]).collect();
    let want = values.iter().fold(0f32, |sum, v| sum + v);
    let indices = Indices::from_slice(&stream, &[2; 1200], 3)?;
    let rows: Vec<f32> = values.iter().flat_map(|&v| [v; 4]).collect();
    let mut out = Tensor::zeros(&stream, &[3, 4], DType::F32)?;
    scatter_add(&stream, out.view_mut()?, 0, &indices, &Tensor::from_slice(&stream, &[1200, 4], &rows)?)?;
    compare::bitwise_equal("in order", &out.select(0, 2)?.to_vec::<f32>(&stream)?, &[want; 4])?;
    Ok(())
}

#[test]
fn indices_are_checked_once() -> Outcome {
    let stream = stream()?;
    let wrong = |result: Result<Indices, Error>, index: i64, bound: usize| {
        let error = result.unwrap_err();
        let is_it = matches!(error.tensor_error(), Some(TensorError::Index { index: i, bound: b, .. }) if (*i, *b) == (index, bound));
        assert!(is_it && error.to_string().contains("\nhint: "), "{error:?}");
    };
    wrong(Indices::from_slice(&stream, &[0, 3, 2], 3), 3, 3);
    wrong(Indices::from_slice(&stream, &[usize::MAX], 3), i64::MAX, 3);
    wrong(Indices::from_slice(&stream, &[0], 0), 0, 0);
    let tensor = |values: &[i64]| Tensor::from_slice(&stream, &[values.len()], values);
    wrong(Indices::from_tensor(&stream, &tensor(&[2, -1, 0])?, 3), -1, 3);
    wrong(Indices::from_tensor(&stream, &tensor(&[2, 1, 3])?, 3), 3, 3);
    wrong(Indices::from_tensor(&stream, &tensor(&[i64::MIN])?, 3), i64::MIN, 3);
    let float = Indices::from_tensor(&stream, &Tensor::zeros(&stream, &[2], DType::F32)?, 3).unwrap_err();
    assert!(matches!(float.tensor_error(), Some(TensorError::DType { .. })), "{float:?}");

    let mut source = Tensor::from_slice(&stream, &[2, 2], &[2i32, 0, 1, 2])?;
    let indices = Indices::from_tensor(&stream, &source, 3)?;
    // Later writes to the tensor do not matter.
    source.view_mut()?.copy_from_slice(&stream, &[99i32; 4])?;
    let x = Tensor::from_slice(&stream, &[3], &[10u8, 11, 12])?;
    assert_eq!(gather(&stream, &x, 0, &indices)?.to_vec::<u8>(&stream)?, [12, 10, 11, 12]);
    assert_eq!((indices.len(), indices.bound(), indices.is_empty()), (4, 3, false));
    assert!(Indices::from_tensor(&stream, &tensor(&[])?, 0)?.is_empty());
    Ok(())
}

#[test]
fn indices_are_written_over_when_all_are_right() -> Outcome {
    let stream = stream()?;
    let x = Tensor::from_slice(&stream, &[3], &[10u8, 11, 12])?;
    let mut indices = Indices::from_slice(&stream, &[2, 0], 3)?;
    let shown = |indices: &Indices| gather(&stream, &x, 0, indices)?.to_vec::<u8>(&stream);
    indices.copy_from_slice(&stream, &[1, 1])?;
    assert_eq!(shown(&indices)?, [11, 11]);
    let tensor = |values: &[i64]| Tensor::from_slice(&stream, &[values.len()], values);
    indices.copy_from_tensor(&stream, &tensor(&[0, 2])?)?;
    let wrong = |result: ironwarp::Result<()>, operation: &str, is_it: fn(&TensorError) -> bool| {
        let error = result.unwrap_err();
        let text = error.to_string();
        assert!(error.tensor_error().is_some_and(is_it) && text.contains("\nhint: "), "{error:?}");
        assert!(text.contains(operation), "{text}");
    };
    let index = |e: &TensorError| matches!(e, TensorError::Index { index: 3, bound: 3, .. });
    wrong(indices.copy_from_slice(&stream, &[0, 3]), "Indices::copy_from_slice", index);
    wrong(indices.copy_from_tensor(&stream, &tensor(&[3, 0])?), "Indices::copy_from_tensor", index);
    let length = |e: &TensorError| matches!(e, TensorError::Elements { .. });
    wrong(indices.copy_from_slice(&stream, &[0]), "Indices::copy_from_slice", length);
    wrong(indices.copy_from_tensor(&stream, &tensor(&[0, 1, 2])?), "Indices::copy_from_tensor", length);
    let float = Tensor::zeros(&stream, &[2], DType::F32)?;
    let dtype = |e: &TensorError| matches!(e, TensorError::DType { .. });
    wrong(indices.copy_from_tensor(&stream, &float), "Indices::copy_from_tensor", dtype);
    let clone = indices.clone();
    let shared = |e: &TensorError| matches!(e, TensorError::Shared { .. });
    wrong(indices.copy_from_slice(&stream, &[1, 1]), "Indices::copy_from_slice", shared);
    wrong(indices.copy_from_tensor(&stream, &tensor(&[1, 1])?), "Indices::copy_from_tensor", shared);
    assert_eq!((shown(&indices)?, shown(&clone)?), (vec![10, 12], vec![10, 12]));
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
    let (x, rows) = (zeros(&[4, 3], DType::F32)?, zeros(&[2, 3], DType::F32)?);
    let indices = Indices::from_slice(&stream, &[0, 3], 4)?;
    wrong(gather(&stream, &x, 2, &indices).map(drop), |e| matches!(e, TensorError::Axis { axis: 2, .. }));
    wrong(gather(&stream, &x, 1, &indices).map(drop), |e| matches!(e, TensorError::Index { bound: 3, .. }));
    let mut out = zeros(&[4, 3], DType::F32)?;
    wrong(scatter(&stream, out.view_mut()?, 2, &indices, &rows), |e| matches!(e, TensorError::Axis { .. }));
    wrong(scatter(&stream, out.view_mut()?, 1, &indices, &rows), |e| matches!(e, TensorError::Index { .. }));
    wrong(scatter(&stream, out.view_mut()?, 0, &indices, &x), |e| {
        matches!(e, TensorError::Shape { what: "x", .. })
    });
    let other = zeros(&[2, 3], DType::I32)?;
    wrong(scatter(&stream, out.view_mut()?, 0, &indices, &other), |e| {
        matches!(e, TensorError::DType { what: "x", .. })
    });
    let mut turned = zeros(&[3, 4], DType::F32)?;
    wrong(scatter(&stream, turned.view_mut()?.permute(&[1, 0])?, 0, &indices, &rows), |e| {
        matches!(e, TensorError::NotContiguous { .. })
    });
    wrong(scatter_add(&stream, out.view_mut()?, 0, &indices, &other), |e| {
        matches!(e, TensorError::DType { .. })
    });
    let (mut bytes, bytes_rows) = (zeros(&[4, 3], DType::U8)?, zeros(&[2, 3], DType::U8)?);
    wrong(scatter_add(&stream, bytes.view_mut()?, 0, &indices, &bytes_rows), |e| {
        matches!(e, TensorError::DType { what: "out", .. })
    });
    Ok(())
}
