//! `ldmatrix` and `stmatrix`.

use conformance::matrix::{
    LANES, LOAD_WORDS, ROWS, SIDE, STORE_WORDS, matrix_load, matrix_multiply, matrix_store,
};
use half::f16;
use ironwarp::{LaunchConfig, Result, launch};
use testkit::Random;

use crate::gpu::{Gpu, assert_same, words};

const WARP: LaunchConfig = LaunchConfig::linear(LANES, LANES as u32);

fn pack(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

/// Register of `lane` for the matrix whose rows are `rows`: elements 2 (l % 4) and the next of row l / 4.
fn register(rows: &[[u16; 8]], lane: usize) -> u32 {
    let (row, first) = (lane / 4, lane % 4 * 2);
    pack(rows[row][first], rows[row][first + 1])
}

fn transposed(rows: &[[u16; 8]]) -> Vec<[u16; 8]> {
    (0..8).map(|column| std::array::from_fn(|row| rows[row][column])).collect()
}

#[test]
fn loads() -> Result<()> {
    let gpu = Gpu::open()?;
    let x: Vec<u16> = words(1, 8 * ROWS).iter().map(|&w| w as u16).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(LOAD_WORDS)?);
    // SAFETY: 32 rows of 8 in, all registers out.
    unsafe { launch::<matrix_load>(&gpu.stream, WARP, (&device_x, &mut out))? };
    let rows: &[[u16; 8]] = bytemuck::cast_slice(&x);
    let plain: Vec<Vec<u32>> =
        rows.chunks(8).map(|matrix| (0..LANES).map(|lane| register(matrix, lane)).collect()).collect();
    let flipped: Vec<Vec<u32>> = rows
        .chunks(8)
        .map(|matrix| (0..LANES).map(|lane| register(&transposed(matrix), lane)).collect())
        .collect();
    let one_two_four = |m: &[Vec<u32>]| [m[..1].concat(), m[..2].concat(), m[..4].concat()].concat();
    assert_same("registers", &gpu.get(&out)?, one_two_four(&plain).into_iter().chain(one_two_four(&flipped)));
    Ok(())
}

#[test]
fn stores() -> Result<()> {
    let gpu = Gpu::open()?;
    if !gpu.has(9, 0) {
        return Ok(());
    }
    let x = words(2, 4 * LANES);
    let device_x = gpu.put(&x)?;
    for count in [1u32, 2, 4] {
        for trans in [0u32, 1] {
            let mut out = gpu.zeros::<u32>(STORE_WORDS)?;
            // SAFETY: four words a lane in, the tile out.
            unsafe { launch::<matrix_store>(&gpu.stream, WARP, (&device_x, count, trans, &mut out))? };
            let mut tile = vec![[u16::MAX; 8]; ROWS];
            for matrix in 0..count as usize {
                let rows = &mut tile[8 * matrix..8 * (matrix + 1)];
                for lane in 0..LANES {
                    let word = x[matrix * LANES + lane];
                    rows[lane / 4][lane % 4 * 2] = word as u16;
                    rows[lane / 4][lane % 4 * 2 + 1] = (word >> 16) as u16;
                }
                if trans == 1 {
                    let flipped = transposed(rows);
                    rows.copy_from_slice(&flipped);
                }
            }
            let want: Vec<u32> =
                tile.iter().flat_map(|row| row.chunks(2).map(|pair| pack(pair[0], pair[1]))).collect();
            assert_same(&format!("x{count}, trans {trans}"), &gpu.get(&out)?, want);
        }
    }
    Ok(())
}

#[test]
fn a_product_through_shared_memory() -> Result<()> {
    let gpu = Gpu::open()?;
    for seed in 0..10 {
        let mut random = Random::new(seed);
        // Small integers: the product is exact.
        let mut tile = || (0..SIDE * SIDE).map(|_| random.integer(-9, 9) as f32).collect::<Vec<f32>>();
        let (a, b) = (tile(), tile());
        let codes = |x: &[f32]| x.iter().map(|&x| f16::from_f32(x).to_bits()).collect::<Vec<u16>>();
        let (da, db, mut out) = (gpu.put(&codes(&a))?, gpu.put(&codes(&b))?, gpu.zeros::<f32>(SIDE * SIDE)?);
        // SAFETY: whole tiles.
        unsafe { launch::<matrix_multiply>(&gpu.stream, WARP, (&da, &db, &mut out))? };
        let dot = |i: usize| (0..SIDE).map(|k| a[i / SIDE * SIDE + k] * b[k * SIDE + i % SIDE]).sum::<f32>();
        assert_same("product", &gpu.get(&out)?, (0..SIDE * SIDE).map(dot));
    }
    Ok(())
}
