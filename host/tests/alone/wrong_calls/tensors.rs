//! Tensors, their views and files.

use half::f16;
use ironwarp::tensor::safetensors::{TensorFile, save};
use ironwarp::{DType, DeviceBuffer, Error, Result, Tensor, TensorError};

use super::Calls;
use crate::common::Bench;

/// Matches a tensor error that `is_it` accepts.
fn tensor(is_it: impl Fn(&TensorError) -> bool) -> impl Fn(&Error) -> bool {
    move |error| error.tensor_error().is_some_and(&is_it)
}

/// f32 `[2, 3, 4]`.
fn x(bench: &Bench) -> Result<Tensor> {
    Tensor::zeros(&bench.stream, &[2, 3, 4], DType::F32)
}

pub(crate) fn table(calls: &mut Calls) {
    making(calls);
    reading(calls);
    views(calls);
    shapes(calls);
    files(calls);
}

fn making(calls: &mut Calls) {
    let too_large = || tensor(|e| matches!(e, TensorError::TooLarge { .. }));
    let wrong_length = || tensor(|e| matches!(e, TensorError::Elements { .. }));
    for rank in [9, 20] {
        calls.wrong(
            "rank",
            |b| Tensor::zeros(&b.stream, &vec![1; rank], DType::F32),
            tensor(|e| matches!(e, TensorError::Rank { got, .. } if *got == rank)),
        );
    }
    for shape in [[1 << 40, 1 << 40], [usize::MAX, 2], [3, usize::MAX]] {
        calls.wrong("size", |b| Tensor::zeros(&b.stream, &shape, DType::U8), too_large());
    }
    calls.wrong(
        "memory",
        |b| Tensor::zeros(&b.stream, &[1 << 46], DType::U8),
        |e| matches!(e, Error::OutOfMemory { .. }),
    );
    for (shape, len) in [(vec![2, 3], 5), (vec![2, 3], 7), (vec![], 0), (vec![], 2), (vec![0, 4], 1)] {
        calls.wrong("data", |b| Tensor::from_slice(&b.stream, &shape, &vec![0.0f32; len]), wrong_length());
        let buffer = |b: &Bench| DeviceBuffer::<f32>::zeroed(&b.stream, len);
        calls.wrong("buffer", |b| Tensor::from_buffer(buffer(b)?, &shape), |e| e.tensor_error().is_some());
    }
}

fn reading(calls: &mut Calls) {
    let dtype = || tensor(|e| matches!(e, TensorError::DType { got: DType::F32, .. }));
    calls.wrong("to_vec of i32", |b| x(b)?.to_vec::<i32>(&b.stream), dtype());
    calls.wrong("to_vec of f64", |b| x(b)?.to_vec::<f64>(&b.stream), dtype());
    calls.wrong("to_vec of f16", |b| x(b)?.to_vec::<f16>(&b.stream), dtype());
    calls.wrong("as_view", |b| x(b)?.as_view::<f16>().map(drop), dtype());
    calls.wrong("into_buffer", |b| x(b)?.into_buffer::<i32>(), |e| e.tensor_error().is_some());
    calls.wrong(
        "item",
        |b| x(b)?.item_on::<f32>(&b.stream),
        tensor(|e| matches!(e, TensorError::Shape { .. })),
    );
    let scattered = || tensor(|e| matches!(e, TensorError::NotContiguous { .. }));
    calls.wrong("view of columns", |b| x(b)?.transpose(0, 1)?.as_view::<f32>().map(drop), scattered());
    calls.wrong("buffer of a part", |b| x(b)?.slice(0, 1..)?.into_buffer::<f32>(), scattered());
    calls.wrong("shape of columns", |b| x(b)?.transpose(0, 1)?.view_as(&[24]), scattered());
}

fn views(calls: &mut Calls) {
    let axis = || tensor(|e| matches!(e, TensorError::Axis { rank: 3, .. }));
    let axes = || tensor(|e| matches!(e, TensorError::Axes { rank: 3, .. }));
    let slice = || tensor(|e| matches!(e, TensorError::Slice { .. }));
    let place = || tensor(|e| matches!(e, TensorError::Place { len: 2 | 4, .. }));
    for order in [vec![0, 1], vec![0, 1, 1], vec![0, 1, 3], vec![], vec![0, 1, 2, 2]] {
        calls.wrong("permute", |b| x(b)?.permute(&order), axes());
    }
    for (one, two) in [(0, 3), (3, 0), (usize::MAX, 0)] {
        calls.wrong("transpose", |b| x(b)?.transpose(one, two), axis());
    }
    calls.wrong("slice of axis 3", |b| x(b)?.slice(3, ..), axis());
    #[allow(clippy::reversed_empty_ranges)]
    for range in [1..5, 2..1, 4..4, usize::MAX..usize::MAX] {
        calls.wrong("slice", |b| x(b)?.slice(1, range.clone()), slice());
    }
    calls.wrong("slice to the end of numbers", |b| x(b)?.slice(1, ..=usize::MAX), slice());
    calls.wrong("step of 0", |b| x(b)?.slice_by(1, .., 0), slice());
    for index in [4, 5, usize::MAX] {
        calls.wrong("select", |b| x(b)?.select(2, index), place());
    }
    calls.wrong("select of axis 3", |b| x(b)?.select(3, 0), axis());
    calls.wrong("unsqueeze", |b| x(b)?.unsqueeze(4), axis());
    calls.wrong("slice of a view", |b| x(b)?.view_mut()?.slice(1, 1..5).map(drop), slice());
    calls.wrong("select of a view", |b| x(b)?.view_mut()?.select(0, 2).map(drop), place());
    calls.wrong("axes of a view", |b| x(b)?.view_mut()?.permute(&[0, 1]).map(drop), axes());
    calls.wrong(
        "data for a view",
        |b| x(b)?.view_mut()?.copy_from_slice(&b.stream, &[0.0f32; 23]),
        |e| e.tensor_error().is_some() || matches!(e, Error::Length { .. }),
    );
}

fn shapes(calls: &mut Calls) {
    let broadcast = || tensor(|e| matches!(e, TensorError::Broadcast { .. }));
    let shape = || tensor(|e| matches!(e, TensorError::Shape { .. }));
    for to in [vec![2, 3, 5], vec![3, 4], vec![1, 3, 4], vec![2, 2, 3, 5]] {
        calls.wrong("broadcast", |b| x(b)?.broadcast_to(&to), broadcast());
    }
    for to in [vec![5, 5], vec![25], vec![], vec![0]] {
        calls.wrong("view_as", |b| x(b)?.view_as(&to), shape());
    }
    for axis in [0, 1, 2] {
        calls.wrong("squeeze", |b| x(b)?.squeeze(axis), shape());
    }
}

fn files(calls: &mut Calls) {
    let cannot_read = |e: &Error| matches!(e, Error::File { .. });
    calls.wrong("no file", |_| TensorFile::open("/nowhere/at/all").map(drop), cannot_read);
    calls.wrong(
        "a folder",
        |_| TensorFile::open(std::env::temp_dir()).map(drop),
        |e| cannot_read(e) || e.tensor_error().is_some(),
    );
    calls.wrong(
        "no folder",
        |b| save(&b.stream, "/nowhere/at/all", &[("x", &x(b)?)]),
        |e| matches!(e, Error::FileWrite { .. }),
    );
    calls.wrong(
        "a name of the format's own",
        |b| save(&b.stream, "/nowhere/at/all", &[("__metadata__", &x(b)?)]),
        |e| matches!(e, Error::InvalidArgument { .. }),
    );
    let path = std::env::temp_dir().join(format!("ironwarp-wrong-calls-{}.safetensors", std::process::id()));
    for bytes in
        [&b""[..], b"1234567", &[255; 8], &[0; 8], b"\x05\0\0\0\0\0\0\0{]}}}", b"\x02\0\0\0\0\0\0\0[]"]
    {
        std::fs::write(&path, bytes).expect("the temporary folder is writable");
        calls.wrong("damaged file", |_| TensorFile::open(&path).map(drop), |e| e.tensor_error().is_some());
    }
    let good = |b: &Bench| save(&b.stream, &path, &[("x", &x(b)?)]);
    good(&calls.bench).expect("the temporary folder is writable");
    calls.wrong(
        "no such tensor",
        |b| TensorFile::open(&path)?.load(&b.stream, "y"),
        |e| e.tensor_error().is_some(),
    );
    calls.wrong("describe", |_| TensorFile::open(&path)?.describe("X"), |e| e.tensor_error().is_some());
    std::fs::remove_file(&path).expect("written above");
}
