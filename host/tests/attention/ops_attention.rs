//! The op against the oracle of `reference`: every kernel that can do a case does it. Only Hopper has any.

use crate::attention_case::{Case, Lie, Outcome, PLAIN, device, is_hopper};
use half::{bf16, f16};
use ironwarp::ops::attention::{Config, Mask, Options, attention};
use ironwarp::{DType, Tensor};
use reference::attention::{Band, Rows, Sides, attention as oracle};
use testkit::{bitwise_equal, compare, input, tolerance};

/// Those of the shortest rows that hold the head, which come first.
fn fitting<const HEAD: usize>(config: &Config) -> bool {
    config.name().ends_with(&format!("_{HEAD}"))
}

/// Those whose blocks have few keys, and whose results leave in parts.
fn narrow(config: &Config) -> bool {
    config.name().ends_with("_narrow")
}

const CAUSAL: Case = Case { right: Some(0), ..PLAIN };

/// The head sizes of the kernels, each with them alone.
const SIZES: [Case; 5] = [
    Case { size: 64, kernels: fitting::<64>, ..PLAIN },
    Case { size: 128, kernels: fitting::<128>, ..PLAIN },
    Case { size: 192, kernels: fitting::<192>, ..PLAIN },
    Case { size: 256, kernels: fitting::<256>, ..PLAIN },
    Case { size: 256, kernels: narrow, ..PLAIN },
];

#[test]
fn one_tile_and_a_part_of_one() -> Outcome {
    for case in SIZES {
        Case { queries: 70, keys: 90, heads: 2, kv_heads: 2, ..case }.check::<bf16>()?;
        Case { queries: 128, keys: 128, ..case }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn causal_masks() -> Outcome {
    for case in SIZES {
        let case = Case { right: Some(0), ..case };
        Case { queries: 200, keys: 200, ..case }.check::<bf16>()?;
        // The diagonal ends in the corner, or begins in it.
        Case { queries: 40, keys: 300, ..case }.check::<f16>()?;
        Case { queries: 40, keys: 300, top_left: true, ..case }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn several_blocks_of_keys_and_tiles() -> Outcome {
    for case in SIZES {
        Case { queries: 260, keys: 530, batch: 2, ..case }.check::<bf16>()?;
    }
    Ok(())
}

#[test]
fn heads_share_keys_in_groups() -> Outcome {
    for (heads, kv_heads) in [(4, 2), (3, 1), (6, 6)] {
        Case { queries: 9, keys: 30, batch: 2, heads, kv_heads, ..CAUSAL }.check::<bf16>()?;
    }
    Ok(())
}

#[test]
fn operands_lie_in_any_way() -> Outcome {
    for lie in [Lie::Heads, Lie::OfThree, Lie::Gaps] {
        let case = Case { queries: 20, keys: 33, batch: 2, heads: 2, kv_heads: 2, ..PLAIN };
        Case { lies: [lie; 4], ..case }.check::<bf16>()?;
        Case { lies: [Lie::Rows, lie, Lie::Heads, lie], size: 72, ..case }.check::<f16>()?;
    }
    Ok(())
}

/// Shorter rows than the kernels', filled with zeros.
#[test]
fn head_sizes_between_those_of_the_kernels() -> Outcome {
    for size in [8, 24, 40, 80, 136, 200, 248] {
        Case { queries: 5, keys: 70, heads: 2, kv_heads: 2, size, ..CAUSAL }.check::<bf16>()?;
    }
    Ok(())
}

#[test]
fn windows() -> Outcome {
    let case = Case { queries: 150, keys: 400, kernels: fitting::<64>, ..PLAIN };
    for (left, right) in
        [(Some(20), Some(0)), (Some(0), Some(0)), (Some(150), Some(30)), (None, Some(40)), (Some(7), None)]
    {
        Case { left, right, ..case }.check::<bf16>()?;
        Case { left, right, top_left: true, ..case }.check::<bf16>()?;
    }
    Ok(())
}

/// More queries than keys: with the diagonal in the last corner the first queries see nothing.
#[test]
fn queries_that_see_no_key() -> Outcome {
    for case in SIZES {
        Case { queries: 270, keys: 20, right: Some(0), ..case }.check::<bf16>()?;
    }
    // Behind the last key.
    Case { queries: 270, keys: 20, left: Some(4), top_left: true, ..PLAIN }.check::<f16>()?;
    Case { queries: 7, keys: 0, heads: 2, kv_heads: 1, size: 24, ..PLAIN }.check::<f16>()
}

#[test]
fn scales() -> Outcome {
    for scale in [1e-3, 0.5] {
        Case { queries: 9, keys: 40, scale: Some(scale), log_sum_exp: false, ..PLAIN }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn nothing_to_do() -> Outcome {
    for (batch, queries, heads) in [(0, 5, 2), (2, 0, 2), (2, 5, 0)] {
        Case { batch, queries, heads, kv_heads: heads, keys: 5, ..PLAIN }.check::<bf16>()?;
    }
    Ok(())
}

/// The function and the method on tensors give what the op gives, from views and from what has to be copied.
#[test]
fn tensors() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.current_stream()?;
    let (shape, len) = ([2, 21, 4, 24], 2 * 21 * 4 * 24);
    let tensor =
        |seed| Tensor::from_slice(&stream, &shape, &input::<bf16>(testkit::Family::Normal, seed, len));
    let (q, k, v) = (tensor(1)?, tensor(2)?, tensor(3)?);
    let options = Options { mask: Mask::CAUSAL, scale: Some(0.25) };
    let want = attention(&stream, &q, &k, &v, options)?;
    assert_eq!((want.shape().sides(), want.dtype()), (&shape[..], DType::BF16));
    let want: Vec<bf16> = want.to_vec(&stream)?;
    let strides = [21 * 4 * 24, 4 * 24, 24];
    let host = [q.to_vec::<bf16>(&stream)?, k.to_vec(&stream)?, v.to_vec(&stream)?];
    let [q_rows, k_rows, v_rows] = &host;
    let sides = Sides { batch: 2, queries: 21, keys: 21, heads: 4, kv_heads: 4, size: 24 };
    let rows = [q_rows, k_rows, v_rows].map(|data| Rows { data, strides });
    let exact = oracle(sides, rows, Band { right: Some(0), ..Band::default() }, 0.25);
    let tolerance = tolerance::ATTENTION_BF16.tolerance();
    compare::rounded("tensors", &want, &exact.value, &exact.magnitude, &shape, tolerance)?;
    // Rows that begin between boundaries, and columns that are not contiguous.
    let odd = Tensor::cat(&[&q.narrow(3, 0, 3)?, &q], 3)?.narrow(3, 3, 24)?;
    let turned = k.transpose(1, 3)?.contiguous()?.transpose(1, 3)?;
    let got = attention(&stream, &odd, &turned, &v, options)?;
    bitwise_equal("copied", &got.to_vec::<bf16>(&stream)?, &want)?;
    // A contiguous tensor that begins between boundaries.
    let behind_one = Tensor::cat(&[&Tensor::zeros(&stream, &[1], DType::BF16)?, &q.flatten(0, 3)?], 0)?;
    let behind_one = behind_one.narrow(0, 1, q.elements())?.view_as(&[2, 21, 4, 24])?;
    let got = attention(&stream, &behind_one, &k, &v, options)?;
    bitwise_equal("contiguous", &got.to_vec::<bf16>(&stream)?, &want)?;
    let by_heads = |x: &Tensor| x.transpose(1, 2);
    let got = by_heads(&q)?.scaled_dot_product_attention(&by_heads(&k)?, &by_heads(&v)?, true, 0.25)?;
    bitwise_equal("method", &by_heads(&got)?.to_vec::<bf16>(&stream)?, &want)?;
    let turned = |x: &Tensor| x.transpose(0, 1);
    let one = |x: &Tensor| turned(&x.select(0, 1)?);
    let got = one(&q)?.scaled_dot_product_attention(&one(&k)?, &one(&v)?, true, 0.25)?;
    assert_eq!(got.shape().sides(), [4, 21, 24]);
    bitwise_equal("without a batch", &turned(&got)?.to_vec::<bf16>(&stream)?, &want[len / 2..])?;
    Ok(())
}

/// More tiles than multiprocessors, so that blocks take several: without a counter, and with one, for which
/// there are less than four for each.
#[test]
fn more_tiles_than_multiprocessors() -> Outcome {
    let batch = device()?.properties().sm_count as usize;
    for (right, heads) in [(None, 5), (Some(0), 3)] {
        let case = Case { batch, heads, queries: 10, keys: 140, right, ..PLAIN };
        Case { size: 64, ..case }.check::<bf16>()?;
        // Results of the next tile wait for those that leave.
        Case { size: 256, kernels: narrow, ..case }.check::<f16>()?;
    }
    Ok(())
}
