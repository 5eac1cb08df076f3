//! Stream-K through the op: products whose tiles make no whole waves, by every kernel that can share their
//! steps. The kernels by themselves, with shares of every kind, are in `gemm_sm90.rs`.

use crate::gemm_case::{Case, DENSE, Lie, Outcome, PLAIN, Setup, TRANSPOSED, device};
use half::{bf16, f16};
use ironwarp::graph::Graph;
use ironwarp::ops::gemm::{Activation, Config, Precision, Repack, candidates};
use num::{E4M3, E5M2};
use testkit::{Family, compare};

fn is_shared(config: &Config) -> bool {
    config.stream_k && config.repack == [Repack::No; 2]
}

/// One kernel of each shape will do.
fn small(config: &Config) -> bool {
    is_shared(config) && config.tile[0] * config.tile[1] <= 64 * 64
}

/// B as weights lie, `[n, k]`. A tile of every kernel, unless there is a batch.
const NT: Case = Case { m: 8, n: 16, k: 72, b: TRANSPOSED, kernels: is_shared, ..PLAIN };

/// Multiprocessors, where these kernels run at all; with one there is nothing to share.
fn multiprocessors() -> Outcome<Option<usize>> {
    let device = device()?;
    let (arch, count) = (device.arch(), device.properties().sm_count as usize);
    if (arch.major, arch.minor) != (9, 0) || count < 2 {
        testkit::skip(&format!("{} is no Hopper, or has one multiprocessor", device.name()));
        return Ok(None);
    }
    Ok(Some(count))
}

#[test]
fn fewer_tiles_than_multiprocessors() -> Outcome {
    let Some(_) = multiprocessors()? else { return Ok(()) };
    let case = Case { k: 1000, ..NT };
    for a in [DENSE, TRANSPOSED] {
        for b in [DENSE, TRANSPOSED] {
            assert!(Case { a, b, ..case }.check::<bf16, bf16, bf16>()? > 0);
            assert!(Case { a, b, ..case }.check::<f16, f16, f32>()? > 0);
        }
    }
    let long = Case { k: 2064, ..case };
    assert!(long.check::<E4M3, E4M3, bf16>()? > 0);
    assert!(long.check::<E5M2, E4M3, f32>()? > 0);
    assert!(Case { precision: Precision::Tf32, ..case }.check::<f32, f32, f32>()? > 0);
    Ok(())
}

/// One tile more than a wave, and the same behind a wave of whole ones.
#[test]
fn one_tile_too_many() -> Outcome {
    let Some(count) = multiprocessors()? else { return Ok(()) };
    for batch in [count + 1, 2 * count + 1] {
        let case = Case { batch, k: 136, ..NT };
        assert!(case.check::<bf16, bf16, bf16>()? > 0);
        assert!(
            Case { m: 7, n: 11, c: Lie { gap: 3, skip: 1, ..DENSE }, ..case }.check::<f16, f16, f16>()? > 0
        );
        assert!(Case { k: 272, ..case }.check::<E4M3, E4M3, f32>()? > 0);
        assert!(Case { c: TRANSPOSED, ..case }.check::<bf16, bf16, bf16>()? > 0);
    }
    Ok(())
}

/// Whole waves have no shares, nor tiles of one step.
#[test]
fn nothing_to_share() -> Outcome {
    let Some(count) = multiprocessors()? else { return Ok(()) };
    let alone = |config: &Config| is_shared(config) && config.cluster == [1; 3];
    for case in
        [Case { batch: count, k: 1000, ..NT }, Case { batch: count + 1, k: 64, ..NT }, Case { k: 72, ..NT }]
    {
        assert_eq!(Case { kernels: alone, ..case }.check::<bf16, bf16, bf16>()?, 0, "{case:?}");
    }
    Ok(())
}

/// Every epilogue, and every way that results lie: what others summed is there before it.
#[test]
fn epilogues() -> Outcome {
    let Some(_) = multiprocessors()? else { return Ok(()) };
    let case = Case { m: 24, n: 48, k: 1000, alpha: 0.75, kernels: small, ..NT };
    let fused = Case { bias: true, residual: true, ..case };
    for &activation in Activation::ALL {
        assert!(Case { activation, ..fused }.check::<bf16, bf16, bf16>()? > 0);
    }
    let large = Case { beta: -0.5, kernels: is_shared, ..fused };
    assert!(large.check::<bf16, bf16, bf16>()? > 0);
    assert!(Case { adds_f32: true, activation: Activation::Silu, ..large }.check::<f16, f16, f32>()? > 0);
    assert!(Case { c: TRANSPOSED, bias: false, ..large }.check::<f16, f16, f16>()? > 0);
    assert!(
        Case { c: Lie { gap: 5, skip: 1, ..DENSE }, m: 13, n: 29, ..fused }.check::<bf16, bf16, bf16>()? > 0
    );
    let narrow = Case { k: 2064, result_scale: Some(0.5), adds_f32: true, kernels: is_shared, ..fused };
    assert!(narrow.check::<E4M3, E4M3, E4M3>()? > 0);
    let narrow = Case { k: 1000, activation: Activation::SwiGlu, ..narrow };
    assert!(narrow.check::<bf16, bf16, E5M2>()? > 0);
    Ok(())
}

#[test]
fn any_input() -> Outcome {
    let Some(_) = multiprocessors()? else { return Ok(()) };
    for family in Family::ALL {
        let case = Case { family, m: 24, n: 40, k: 1000, kernels: small, ..NT };
        assert!(case.check::<bf16, bf16, f32>()? > 0);
        assert!(case.check::<f16, f16, f16>()? > 0);
    }
    let integers = Case { family: Family::SmallIntegers, k: 2064, ..NT };
    assert!(integers.check::<E4M3, E4M3, f32>()? > 0);
    Ok(())
}

/// The same bits in every run, also when runs follow each other at once.
#[test]
fn repeats_bit_for_bit() -> Outcome {
    let Some(count) = multiprocessors()? else { return Ok(()) };
    let stream = device()?.stream()?;
    for (batch, k) in [(1, 1000), (count + 1, 136)] {
        let case = Case { family: Family::HugeTiny, batch, k, bias: true, kernels: small, ..NT };
        let setup = Setup::<bf16, bf16, f32>::new(&case, &stream)?;
        let offers = candidates(&setup.product(&mut setup.c(&stream)?)?.problem()?, stream.device());
        let config = offers.iter().map(|offer| offer.config).find(small).expect("a kernel that shares");
        let mut first = setup.c(&stream)?;
        setup.product(&mut first)?.run_with(&stream, &config)?;
        let first = first.to_vec(&stream)?;
        let mut results = (0..100).map(|_| setup.c(&stream)).collect::<Result<Vec<_>, _>>()?;
        for c in &mut results {
            setup.product(c)?.run_with(&stream, &config)?;
        }
        for c in &results {
            compare::bitwise_equal(&config.to_string(), &c.to_vec(&stream)?, &first)?;
        }
    }
    Ok(())
}

/// A graph keeps the memory that sums go through, and every replay finds its flags as the first one.
#[test]
fn in_a_graph() -> Outcome {
    let Some(_) = multiprocessors()? else { return Ok(()) };
    let stream = device()?.stream()?;
    let case = Case { k: 1000, kernels: small, ..NT };
    let setup = Setup::<bf16, bf16, bf16>::new(&case, &stream)?;
    let offers = candidates(&setup.product(&mut setup.c(&stream)?)?.problem()?, stream.device());
    let offer = offers.iter().find(|offer| small(&offer.config)).expect("a kernel that shares");
    let config = offer.config;
    assert!(config.to_string().contains(", stream-K") && offer.why.contains("share the steps"), "{offer:?}");
    let mut c = setup.c(&stream)?;
    setup.product(&mut c)?.run_with(&stream, &config)?;
    let mut graph = Graph::capture(&stream, c, |stream, c| {
        (0..3).try_for_each(|_| setup.product(c)?.run_with(stream, &config))
    })?;
    for _ in 0..3 {
        graph.replay(&stream)?;
    }
    setup.compare(&graph.inputs().to_vec(&stream)?, config.kernel)
}
