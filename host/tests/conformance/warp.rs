//! Shuffles, votes, matches, reductions.

use conformance::warp::{
    SHUFFLE_ROWS, warp_half_reduce, warp_matches, warp_reductions, warp_reverse_shared, warp_scan,
    warp_shuffle_wide, warp_shuffles, warp_votes,
};
use ironwarp::{LaunchConfig, Result, launch};

use crate::gpu::{Gpu, assert_same, words};

const LANES: usize = 32;
/// Three blocks of two warps.
const N: usize = 6 * LANES;
const BLOCK: u32 = 2 * LANES as u32;

fn config() -> LaunchConfig {
    LaunchConfig::linear(N, BLOCK)
}

/// `f(warp's values, lane)` for all threads.
fn by_lane<T, U>(x: &[T], f: impl Fn(&[T], usize) -> U) -> Vec<U> {
    x.chunks(LANES).flat_map(|warp| (0..LANES).map(|lane| f(warp, lane)).collect::<Vec<U>>()).collect()
}

#[test]
fn shuffles() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = words(1, N);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(SHUFFLE_ROWS * N)?);
    // SAFETY: an element a thread, whole warps.
    unsafe { launch::<warp_shuffles>(&gpu.stream, config(), (&device_x, &mut out))? };
    let want = [
        by_lane(&x, |warp, lane| *warp.get(lane + 3).unwrap_or(&warp[lane])),
        by_lane(&x, |warp, lane| warp[lane.checked_sub(3).unwrap_or(lane)]),
        by_lane(&x, |warp, _| warp[5]),
        by_lane(&x, |warp, lane| warp[lane ^ 6]),
        by_lane(&x, |_, lane| u32::from(lane + 3 < LANES)),
        by_lane(&x, |_, lane| u32::from(lane >= 3)),
        vec![1; 2 * N],
    ];
    assert_same("shuffles", &gpu.get(&out)?, want.concat());
    Ok(())
}

#[test]
fn wide_values_keep_their_halves_together() -> Result<()> {
    let gpu = Gpu::open()?;
    let x: Vec<f64> = words(2, N).iter().map(|&w| f64::from(w) / 7.0).collect();
    let integers: Vec<u64> =
        words(3, 2 * N).chunks(2).map(|w| u64::from(w[0]) << 32 | u64::from(w[1])).collect();
    let (dx, di) = (gpu.put(&x)?, gpu.put(&integers)?);
    let (mut out_x, mut out_i) = (gpu.zeros::<f64>(N)?, gpu.zeros::<u64>(N)?);
    // SAFETY: an element a thread, whole warps.
    unsafe { launch::<warp_shuffle_wide>(&gpu.stream, config(), (&dx, &di, &mut out_x, &mut out_i))? };
    let next_in_section = |lane: usize| if lane % 8 == 7 { lane } else { lane + 1 };
    assert_same("f64", &gpu.get(&out_x)?, by_lane(&x, |warp, lane| warp[next_in_section(lane)]));
    assert_same("u64", &gpu.get(&out_i)?, by_lane(&integers, |warp, lane| warp[next_in_section(lane)]));
    Ok(())
}

/// Warps of random values, of odd ones, of even ones.
fn votable() -> Vec<u32> {
    let mut x = words(4, N);
    x[LANES..2 * LANES].iter_mut().for_each(|x| *x |= 1);
    x[2 * LANES..3 * LANES].iter_mut().for_each(|x| *x &= !1);
    x
}

#[test]
fn votes() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = votable();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(4 * N)?);
    // SAFETY: an element a thread, whole warps.
    unsafe { launch::<warp_votes>(&gpu.stream, config(), (&device_x, &mut out))? };
    let odd = |x: &u32| x & 1 == 1;
    let ballot = |warp: &[u32]| warp.iter().rev().fold(0u32, |bits, x| bits << 1 | u32::from(odd(x)));
    let want = [
        by_lane(&x, |warp, _| u32::from(warp.iter().all(odd))),
        by_lane(&x, |warp, _| u32::from(warp.iter().any(odd))),
        by_lane(&x, |warp, _| ballot(warp)),
        by_lane(&x, |_, lane| lane as u32),
    ];
    assert_same("all, any, ballot, lane", &gpu.get(&out)?, want.concat());
    Ok(())
}

#[test]
fn matches() -> Result<()> {
    let gpu = Gpu::open()?;
    let mut x: Vec<u32> = words(5, N).iter().map(|x| x % 5).collect();
    x[..LANES].fill(0xdead_beef);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(2 * N)?);
    // SAFETY: an element a thread, whole warps.
    unsafe { launch::<warp_matches>(&gpu.stream, config(), (&device_x, &mut out))? };
    let same =
        |warp: &[u32], lane: usize| warp.iter().rev().fold(0u32, |m, &x| m << 1 | u32::from(x == warp[lane]));
    let want = [
        by_lane(&x, same),
        by_lane(&x, |warp, lane| if same(warp, lane) == u32::MAX { u32::MAX } else { 0 }),
    ];
    assert_same("match any, all", &gpu.get(&out)?, want.concat());
    Ok(())
}

#[test]
fn reductions() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = words(6, N);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(6 * N)?);
    // SAFETY: an element a thread, whole warps.
    unsafe { launch::<warp_reductions>(&gpu.stream, config(), (&device_x, &mut out))? };
    let fold = |f: fn(u32, u32) -> u32| by_lane(&x, |warp, _| warp.iter().copied().reduce(f).unwrap());
    let want = [
        fold(u32::wrapping_add),
        fold(u32::min),
        fold(u32::max),
        fold(|a, b| a & b),
        fold(|a, b| a | b),
        fold(|a, b| a ^ b),
    ];
    assert_same("add, min, max, and, or, xor", &gpu.get(&out)?, want.concat());
    Ok(())
}

#[test]
fn scan() -> Result<()> {
    let gpu = Gpu::open()?;
    let x: Vec<u32> = words(7, N).iter().map(|x| x % 1000).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(N)?);
    // SAFETY: an element a thread, whole warps.
    unsafe { launch::<warp_scan>(&gpu.stream, config(), (&device_x, &mut out))? };
    assert_same("prefix sums", &gpu.get(&out)?, by_lane(&x, |warp, lane| warp[..=lane].iter().sum()));
    Ok(())
}

#[test]
fn half_a_warp_reduces_alone() -> Result<()> {
    let gpu = Gpu::open()?;
    let x: Vec<u32> = words(8, N).iter().map(|x| x % 1000).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(N)?);
    // SAFETY: an element a thread, whole warps.
    unsafe { launch::<warp_half_reduce>(&gpu.stream, config(), (&device_x, &mut out))? };
    let want = by_lane(&x, |warp, lane| if lane < 16 { warp[..16].iter().sum() } else { 2 * warp[lane] });
    assert_same("sums of the lower half", &gpu.get(&out)?, want);
    Ok(())
}

#[test]
fn sync_warp_orders_shared_memory() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = words(9, N);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(N)?);
    // SAFETY: one block, an element a thread.
    unsafe {
        launch::<warp_reverse_shared>(&gpu.stream, LaunchConfig::linear(N, N as u32), (&device_x, &mut out))?
    };
    assert_same("reversed", &gpu.get(&out)?, by_lane(&x, |warp, lane| warp[LANES - 1 - lane]));
    Ok(())
}
