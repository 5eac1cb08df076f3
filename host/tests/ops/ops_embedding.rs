//! The gradient of an embedding against its oracle: tokens of every frequency, rows of every width and
//! alignment. On whichever driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::embedding::embedding_backward;
use ironwarp::ops::index::{Indices, gather};
use ironwarp::tensor::Element;
use ironwarp::{DType, Tensor, TensorError};
use reference::index::scatter_add;
use testkit::{Family, Random, compare, input, tolerance};

/// How often tokens come.
#[derive(Debug, Clone, Copy)]
enum Tokens {
    /// All about as often.
    Even,
    /// Half of them the same, every other one half as often as the one before it.
    Skewed,
    /// The last row alone.
    Same,
}

impl Tokens {
    fn draw(self, count: usize, rows: usize, seed: u64) -> Vec<usize> {
        let mut random = Random::new(seed);
        let token = |_| match self {
            Tokens::Even => random.integer(0, rows as i64 - 1) as usize,
            Tokens::Skewed => (random.bits() | 1 << 62).trailing_zeros() as usize * 37 % rows,
            Tokens::Same => rows - 1,
        };
        (0..count).map(token).collect()
    }
}

/// Tokens, rows of the table, and their width: parts of tiles, whole ones and several blocks of the sort;
/// tokens of one, two and three digits; units of 16 bytes, rests of them, and several groups of columns.
const CASES: [(usize, usize, usize); 11] = [
    (1, 1, 1),
    (31, 5, 8),
    (32, 300, 3),
    (33, 2, 264),
    (64, 256, 16),
    (65, 257, 520),
    (200, 70_000, 8),
    (2048, 1000, 4),
    (2049, 65_536, 1),
    (3000, 40, 8),
    (0, 4, 8),
];

fn sums<T: Element + testkit::Element + Into<f64>>(row: tolerance::Row, families: &[Family]) -> Outcome {
    let stream = stream()?;
    for (number, (count, rows, width)) in CASES.into_iter().enumerate() {
        for (tokens, &family) in [Tokens::Even, Tokens::Skewed, Tokens::Same]
            .into_iter()
            .flat_map(|tokens| families.iter().map(move |family| (tokens, family)))
        {
            let chosen = tokens.draw(count, rows, number as u64);
            let gradient = input::<T>(family, number as u64, count * width);
            let indices = Indices::from_slice(&stream, &chosen, rows)?;
            let held = Tensor::from_slice(&stream, &[count, width], &gradient)?;
            let got = embedding_backward(&stream, &held, &indices, rows)?;
            assert_eq!(got.shape().sides(), [rows, width]);
            let want =
                scatter_add(&vec![T::from_f64(0.0); rows * width], &[rows, width], 0, &chosen, &gradient);
            let what = format!("{} {count} tokens, {tokens:?}, {family:?}, {rows}x{width}", T::DTYPE);
            let (got, limit) = (got.to_vec::<T>(&stream)?, row.for_terms(count));
            compare::accumulated(&what, &got, &want.value, &want.magnitude, &[rows, width], limit)?;
        }
    }
    Ok(())
}

#[test]
fn rows_of_each_token_add_up() -> Outcome {
    sums::<f32>(tolerance::SCATTER_ADD, &[Family::Cancelling, Family::Special, Family::HugeTiny])?;
    sums::<f16>(tolerance::REDUCE_SUM_F16, &[Family::Uniform])?;
    sums::<bf16>(tolerance::REDUCE_SUM_BF16, &[Family::Cancelling])
}

#[test]
fn any_alignment_layout_and_run() -> Outcome {
    let stream = stream()?;
    let (count, rows, width) = (700, 30, 16);
    let chosen = Tokens::Skewed.draw(count, rows, 3);
    let indices = Indices::from_slice(&stream, &chosen, rows)?;
    let data = input::<f32>(Family::Cancelling, 4, count * width + 1);
    let memory = Tensor::from_slice(&stream, &[data.len()], &data)?;
    let shown = |start: usize| memory.slice(0, start..start + count * width)?.view_as(&[count, width]);
    for start in [0, 1] {
        let gradient = shown(start)?;
        let want = embedding_backward(&stream, &gradient, &indices, rows)?.to_vec::<f32>(&stream)?;
        // The same bits again, and from elements that lie otherwise.
        let again = embedding_backward(&stream, &gradient, &indices, rows)?.to_vec::<f32>(&stream)?;
        compare::bitwise_equal("again", &again, &want)?;
        let turned: Vec<f32> = gradient.transpose(0, 1)?.to_vec::<f32>(&stream)?;
        let turned = Tensor::from_slice(&stream, &[width, count], &turned)?.transpose(0, 1)?;
        let again = embedding_backward(&stream, &turned, &indices, rows)?.to_vec::<f32>(&stream)?;
        compare::bitwise_equal("by columns", &again, &want)?;
    }
    // A row that was gathered comes back as often as it was taken.
    let table = Tensor::from_slice(&stream, &[rows, 8], &vec![1.0f32; rows * 8])?;
    let taken = gather(&stream, &table, 0, &indices)?;
    let counts = embedding_backward(&stream, &taken, &indices, rows)?.to_vec::<f32>(&stream)?;
    let times = |row: usize| chosen.iter().filter(|&&token| token == row).count() as f32;
    assert!(counts.iter().enumerate().all(|(i, &count)| count == times(i / 8)), "{counts:?}");
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let indices = Indices::from_slice(&stream, &[0, 3], 4)?;
    let wrong = |shape: &[usize], dtype, rows, is_it: fn(&TensorError) -> bool| -> Outcome {
        let gradient = Tensor::zeros(&stream, shape, dtype)?;
        let error = embedding_backward(&stream, &gradient, &indices, rows).unwrap_err();
        assert!(error.tensor_error().is_some_and(is_it), "{error}");
        assert!(error.to_string().contains("\nhint: ") && error.is_recoverable(), "{error}");
        Ok(())
    };
    wrong(&[2], DType::F32, 4, |e| matches!(e, TensorError::Shape { what: "the gradient", .. }))?;
    wrong(&[3, 2], DType::F32, 4, |e| matches!(e, TensorError::Shape { what: "the gradient", .. }))?;
    wrong(&[2, 2], DType::F32, 3, |e| matches!(e, TensorError::Index { index: 3, bound: 3, .. }))?;
    wrong(&[2, 2], DType::I64, 4, |e| matches!(e, TensorError::DType { what: "the gradient", .. }))?;
    wrong(&[2, 2], DType::F32, 1 << 40, |e| matches!(e, TensorError::TooLarge { .. }))
}
