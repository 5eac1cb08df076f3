//! Tensor and bulk copies: the bytes that they move, and their destinations.

use std::sync::Mutex;

use crate::common::passes;
use crate::common::tensors::*;
use ironwarp_simt::barrier::sync;
use ironwarp_simt::bulk::{self, commit_group, wait_group, wait_group_read};
use ironwarp_simt::cluster::{block_rank, sync as cluster_sync};
use ironwarp_simt::mbarrier::{arrive, arrive_expect_tx, expect_tx, wait_parity};
use ironwarp_simt::memory::{Tracked, proxy_fence};
use ironwarp_simt::reduction::Reduction;
use ironwarp_simt::tensor_map::{DataType, OobFill, Swizzle};
use ironwarp_simt::{LaunchConfig, tma};

/// The box at `coords` of a tensor of words that are their own indices, element by element.
fn expected(dims: &[u64], box_dims: &[u32], coords: &[i32]) -> Vec<u32> {
    let total: u32 = box_dims.iter().product();
    let element = |mut number: u32| {
        let (mut index, mut stride) = (0, 1);
        for axis in 0..dims.len() {
            let at = i64::from(coords[axis]) + i64::from(number % box_dims[axis]);
            number /= box_dims[axis];
            if at < 0 || at >= dims[axis] as i64 {
                return 0;
            }
            index += at as u64 * stride;
            stride *= dims[axis];
        }
        index as u32
    };
    (0..total).map(element).collect()
}

#[test]
fn boxes_of_one_to_five_dimensions() {
    let cases: [(&[u64], &[u32], &[i32]); 8] = [
        (&[256], &[32], &[64]),
        (&[40], &[64], &[-12]),
        (&[64, 20], &[16, 8], &[32, 5]),
        (&[64, 20], &[16, 8], &[56, -3]),
        (&[16, 6, 5], &[8, 3, 2], &[-4, 4, 4]),
        (&[8, 3, 4, 5], &[4, 2, 3, 2], &[4, 2, -1, 4]),
        (&[8, 3, 2, 3, 2], &[8, 2, 2, 2, 2], &[0, 1, 1, 2, -1]),
        (&[16, 4], &[16, 4], &[100, 0]),
    ];
    for (dims, box_dims, coords) in cases {
        words(dims, box_dims, Swizzle::None, |map, _| {
            let wanted = expected(dims, box_dims, coords);
            let bytes = 4 * wanted.len() as u32;
            passes(config(), || {
                ready(&[1]);
                if rank() == 0 {
                    arrive_expect_tx(bar(0), bytes);
                    fetch(tile(1024), map, bar(0), coords);
                }
                wait_parity(bar(0), 0);
                for index in (rank()..bytes / 4).step_by(THREADS as usize) {
                    assert_eq!(
                        get(tile(1024) + 4 * index),
                        wanted[index as usize],
                        "{dims:?} {coords:?} {index}"
                    );
                }
            });
        });
    }
}

/// Swizzles as the hardware's documentation draws them: in row `r` of the box, the 16-byte piece `c` lies at
/// piece `c ^ (r % 8)` with 128 bytes, `c ^ (r / 2 % 4)` with 64, `c ^ (r / 4 % 2)` with 32.
#[test]
fn swizzled_boxes() {
    type Place = fn(u32, u32) -> u32;
    let cases: [(Swizzle, u32, Place); 3] = [
        (Swizzle::B128, 8, |r, c| c ^ (r % 8)),
        (Swizzle::B64, 4, |r, c| c ^ (r / 2 % 4)),
        (Swizzle::B32, 2, |r, c| c ^ (r / 4 % 2)),
    ];
    for (swizzle, pieces, place) in cases {
        let (dims, box_dims) = ([64, 48], [4 * pieces, 24]);
        words(&dims, &box_dims, swizzle, |map, _| {
            let wanted = expected(&dims, &box_dims, &[8, 30]);
            passes(config(), || {
                ready(&[1]);
                if rank() == 0 {
                    arrive_expect_tx(bar(0), 4 * wanted.len() as u32);
                    fetch(tile(2048), map, bar(0), &[8, 30]);
                }
                wait_parity(bar(0), 0);
                for index in (rank()..wanted.len() as u32).step_by(THREADS as usize) {
                    let (row, column) = (index / box_dims[0], index % box_dims[0]);
                    let piece = place(row, column / 4);
                    let at = tile(2048) + row * 16 * pieces + 16 * piece + 4 * (column % 4);
                    assert_eq!(get(at), wanted[index as usize], "{swizzle:?} row {row} column {column}");
                }
            });
        });
    }
}

#[test]
fn fill_and_conversion() {
    let run = |data_type, oob_fill, values: &[f32]| {
        let mut host = values.to_vec();
        let tensor = Tracked::new(&mut host, "tensor");
        let mut description = describe(tensor.as_ptr() as u64, data_type, &[8], &[16], Swizzle::None);
        description.oob_fill = oob_fill;
        let map = Map::new(&description);
        let got: Mutex<Vec<u32>> = Mutex::default();
        passes(LaunchConfig::linear(1, 32).shared(1024), || {
            ready(&[1]);
            if rank() == 0 {
                arrive_expect_tx(bar(0), 64);
                fetch(tile(0), &map, bar(0), &[-4]);
                wait_parity(bar(0), 0);
                *got.lock().unwrap() = (0..16).map(|i| get(tile(4 * i))).collect();
            }
        });
        got.into_inner().unwrap()
    };
    let subnormal = f32::from_bits(3);
    let values = [1.0, -subnormal, 1.0 + f32::EPSILON * 4097.0, -2.5, f32::INFINITY, 0.0, 7.0, 8.0];
    let inside = |got: &[u32]| got[4..12].iter().map(|bits| f32::from_bits(*bits)).collect::<Vec<_>>();
    let plain = run(DataType::F32, OobFill::Nan, &values);
    assert_eq!(inside(&plain), values);
    assert!(plain[..4].iter().chain(&plain[12..]).all(|bits| f32::from_bits(*bits).is_nan()));
    let flushed = run(DataType::F32Ftz, OobFill::Zeros, &values);
    assert_eq!(flushed[5], (-0.0f32).to_bits());
    assert!(flushed[..4].iter().chain(&flushed[12..]).all(|bits| *bits == 0));
    let rounded = inside(&run(DataType::TF32, OobFill::Zeros, &values));
    assert_eq!(rounded[2], 1.0 + 1.0 / 1024.0);
    assert_eq!(rounded[3..], values[3..]);
}

#[test]
fn element_strides_skip() {
    let mut host: Vec<u32> = (0..32 * 8).collect();
    let tensor = Tracked::new(&mut host, "tensor");
    let mut description = describe(tensor.as_ptr() as u64, DataType::U32, &[32, 8], &[4, 5], Swizzle::None);
    description.element_strides = [1, 2, 1, 1, 1];
    let map = Map::new(&description);
    passes(config(), || {
        ready(&[1]);
        if rank() == 0 {
            arrive_expect_tx(bar(0), 3 * 16);
            fetch(tile(0), &map, bar(0), &[8, 3]);
        }
        wait_parity(bar(0), 0);
        if rank() < 12 {
            assert_eq!(get(tile(4 * rank())), 32 * (3 + 2 * (rank() / 4)) % 256 + 8 + rank() % 4);
        }
    });
}

#[test]
fn stores_write_what_the_tensor_has() {
    for coords in [[4, 2], [0, 9], [20, 0], [8, 4]] {
        for check in [true, false] {
            stored(
                coords,
                |map| {
                    fill_box();
                    proxy_fence();
                    sync(0, None);
                    if rank() == 0 {
                        send(map, tile(0), &coords);
                        commit_group();
                        wait_group_read(0);
                    }
                    sync(0, None);
                    // The source is free again.
                    put(tile(4 * rank()), 0);
                },
                check,
            );
        }
    }
}

/// A tensor of 37 columns, in memory of 40: its rows end inside of a unit of 16 bytes, and the rest of that
/// unit is written too.
#[test]
fn stores_write_whole_units() {
    let mut host = vec![u32::MAX; 40 * 8];
    let tensor = Tracked::new(&mut host, "tensor");
    let mut description = describe(tensor.as_ptr() as u64, DataType::U32, &[40, 8], &[32, 8], Swizzle::B128);
    description.dims[0] = 37;
    let map = Map::new(&description);
    passes(LaunchConfig::linear(1, THREADS).shared(4096), || {
        fill_box();
        proxy_fence();
        sync(0, None);
        if rank() == 0 {
            send(&map, tile(0), &[16, 0]);
            commit_group();
            wait_group(0);
        }
    });
    drop(tensor);
    for (index, value) in (0..).zip(&host) {
        let (x, y) = (index % 40, index / 40);
        assert_eq!(*value, if x >= 16 { 32 * y + x - 16 } else { u32::MAX }, "element {index}");
    }
}

#[test]
fn reductions_add() {
    let mut host = vec![1i32; 32 * 8];
    let tensor = Tracked::new(&mut host, "tensor");
    let address = tensor.as_ptr() as u64;
    let map = Map::new(&describe(address, DataType::I32, &[32, 8], &[32, 8], Swizzle::B128));
    let config = LaunchConfig::linear(5, THREADS).shared(4096);
    ironwarp_simt::run(&config, &ironwarp_simt::Options::default().check(true).seed(3), || {
        fill_box();
        proxy_fence();
        sync(0, None);
        if rank() == 0 {
            // SAFETY: checking is on, and the map is one.
            unsafe { tma::reduce(Reduction::Add, map.at(), tile(0), &[0, 0]) };
            commit_group();
            wait_group(0);
        }
    })
    .unwrap();
    drop(tensor);
    assert!((0..).zip(&host).all(|(index, value)| *value == 1 + 5 * index), "{host:?}");
}

#[test]
fn multicast_reaches_every_block_of_the_mask() {
    let config = LaunchConfig { cluster: [4, 1, 1], ..LaunchConfig::linear(8, THREADS) }.shared(8192);
    words(&[32, 32], &[32, 8], Swizzle::None, |map, _| {
        passes(config, || {
            ready(&[1]);
            let takes_part = block_rank() != 2;
            if rank() == 0 && takes_part {
                expect_tx(bar(0), 2 * 1024);
                arrive(bar(0));
            }
            cluster_sync();
            // Blocks 0 and 3 each bring one box to blocks 0, 1 and 3.
            if rank() == 0 && (block_rank() == 0 || block_rank() == 3) {
                let dst = tile(if block_rank() == 0 { 0 } else { 1024 });
                // SAFETY: checking is on, and the map is one.
                unsafe { tma::load(dst, map.at(), bar(0), &[0, 8 * block_rank() as i32], Some(0b1011)) };
            }
            if takes_part {
                wait_parity(bar(0), 0);
                assert_eq!(get(tile(4 * rank())), rank());
                assert_eq!(get(tile(1024 + 4 * rank())), 32 * 24 + rank());
            }
            cluster_sync();
        });
    });
}

#[test]
fn bulk_copies_there_and_back() {
    let mut host: Vec<f32> = (0..512).map(|i| i as f32).collect();
    let buffer = Tracked::new(&mut host, "buffer");
    let at = buffer.as_ptr() as usize;
    let config = LaunchConfig::linear(1, THREADS).shared(4096);
    let word = |index: usize| (at + 4 * index) as *mut f32;
    ironwarp_simt::run(&config, &ironwarp_simt::Options::default().check(true).seed(9), || {
        ready(&[1]);
        if rank() == 0 {
            arrive_expect_tx(bar(0), 512);
            // SAFETY: checking is on.
            unsafe { bulk::load(tile(16), word(4).cast(), 512, bar(0)) };
        }
        wait_parity(bar(0), 0);
        let values = [0, 1].map(|half| f32::from_bits(get(tile(16 + 4 * (rank() + 64 * half)))));
        assert_eq!(values, [rank() as f32 + 4.0, rank() as f32 + 68.0]);
        if rank() == 5 {
            // SAFETY: checking is on.
            unsafe {
                bulk::store(word(256).cast(), tile(16), 256);
                bulk::reduce(Reduction::Add, DataType::F32, word(384).cast(), tile(16), 512);
            }
            commit_group();
            wait_group(0);
        }
    })
    .unwrap();
    drop(buffer);
    assert!((0..64).all(|i| host[256 + i] == i as f32 + 4.0));
    assert!((0..128).all(|i| host[384 + i] == (384 + i) as f32 + i as f32 + 4.0));
}
