//! Copies, barriers, products and registers moved between warpgroups, in one kernel, against a product in
//! f64.

use conformance::hopper::pipeline::{BLOCK, BLOCK_K, SHARED_BYTES, THREADS, pipeline_gemm};
use half::bf16;
use ironwarp::tma::{Swizzle, TensorMap, Tiling};
use ironwarp::{LaunchConfig, Result, launch};
use testkit::Random;

use super::hopper;

#[test]
fn a_product_through_a_ring_of_stages() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    // More and fewer steps than the ring has stages; integers come out exactly.
    for (blocks, steps, exact) in [(1, 1, true), (2, 3, true), (1, 10, true), (3, 7, false)] {
        let k = steps * BLOCK_K;
        let mut random = Random::new(steps as u64);
        let mut operand = |rows: usize| -> Vec<bf16> {
            let mut number = || if exact { random.integer(-8, 8) as f64 } else { random.normal() };
            (0..rows * k).map(|_| bf16::from_f64(number())).collect()
        };
        let (a, b) = (operand(blocks * BLOCK), operand(BLOCK));
        let (device_a, device_b) = (gpu.put(&a)?, gpu.put(&b)?);
        let mut d = gpu.zeros::<f32>(blocks * BLOCK * BLOCK)?;
        let tiling =
            |rows: usize| Tiling::new([k, rows], [BLOCK_K as u32, BLOCK as u32]).swizzle(Swizzle::B128);
        let maps = [
            TensorMap::new(device_a.view(), &tiling(blocks * BLOCK))?,
            TensorMap::new(device_b.view(), &tiling(BLOCK))?,
        ];
        let config = LaunchConfig::new([blocks as u32, 1, 1], [THREADS, 1, 1]).with_shared(SHARED_BYTES);
        // SAFETY: maps with the kernel's boxes and swizzle, all of D.
        unsafe { launch::<pipeline_gemm>(&gpu.stream, config, (&maps[0], &maps[1], steps as u32, &mut d))? };
        for (i, got) in gpu.get(&d)?.into_iter().enumerate() {
            let (row, column) = (i / BLOCK, i % BLOCK);
            let products = a[row * k..][..k].iter().zip(&b[column * k..][..k]);
            let (want, size) = products.fold((0.0, 0.0), |(sum, size): (f64, f64), (a, b)| {
                let product = a.to_f64() * b.to_f64();
                (sum + product, size + product.abs())
            });
            // A sum in f32 whose every step may round or truncate.
            let bound = if exact { 0.0 } else { size * (k + 1) as f64 * 2f64.powi(-23) };
            let error = (f64::from(got) - want).abs();
            assert!(
                error <= bound,
                "{blocks} blocks, {steps} steps: D({row}, {column}) is {got}, want {want}; off by {error:e}, allowed {bound:e}"
            );
        }
    }
    Ok(())
}
