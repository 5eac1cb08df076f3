//! Correct kernels: no schedule gives a report, and the results are right.

use crate::common::case;
use simt::LaunchConfig;

#[test]
fn reduction_and_scan() {
    case("tree_reduction").blocks(4).passes(|_, aux| {
        (0..4).for_each(|block| assert_eq!(aux[block as usize], (64 * block..64 * (block + 1)).sum::<u32>()));
    });
    case("block_scan").blocks(4).passes(|data, _| {
        (0..256).for_each(|i| assert_eq!(data[i as usize], (i / 64 * 64..=i).sum::<u32>()));
    });
    case("warp_sum").blocks(4).passes(|_, aux| {
        (0..8).for_each(|warp| assert_eq!(aux[warp as usize], (32 * warp..32 * (warp + 1)).sum::<u32>()));
    });
}

#[test]
fn transpose() {
    let config = LaunchConfig { grid: [2, 2, 1], block: [8, 8, 1], ..LaunchConfig::default() };
    case("tiled_transpose").config(config).words(512).passes(|data, _| {
        for (row, column) in (0..16).flat_map(|row| (0..16).map(move |column| (row, column))) {
            assert_eq!(data[256 + column * 16 + row], (row * 16 + column) as u32);
        }
    });
}

#[test]
fn histogram() {
    case("atomic_histogram").blocks(4).passes(|_, aux| assert!(aux[..16].iter().all(|&count| count == 16)));
}

#[test]
fn producers_and_copies() {
    case("producer_consumer").words(512).passes(|data, _| {
        for (round, lane) in (0..8).flat_map(|round| (0..32).map(move |lane| (round, lane))) {
            assert_eq!(data[256 + round * 32 + lane], (round * 32 + (lane + 1) % 32) as u32);
        }
    });
    case("copy_pipeline").words(512).passes(|_, aux| {
        (0..64).for_each(|i| assert_eq!(aux[i], (0..8).map(|step| (step * 64 + 63 - i) as u32).sum::<u32>()));
    });
}

#[test]
fn shared_memory_in_parts() {
    case("own_bytes").passes(|data, _| (0..64).for_each(|i| assert_eq!(data[i], 2 * (63 - i as u32))));
    case("split_dynamic").config(LaunchConfig::linear(1, 64).shared(512)).passes(|data, _| {
        (0..64).for_each(|i| assert_eq!(data[i], 64 - i as u32));
    });
    case("stencil_with_halo").blocks(2).passes(|data, _| {
        (0..128).for_each(|i| assert_eq!(data[128 + i], ((i + 127) % 128 + (i + 1) % 128) as u32));
    });
}

#[test]
fn locks_and_exits() {
    case("spin_lock").blocks(2).passes(|_, aux| assert_eq!(aux[..2], [64, 64]));
    case("guarded_exit").blocks(2).words(100).passes(|data, _| {
        (0..100).for_each(|i| assert_eq!(data[i], 63 - i as u32 % 64));
    });
}

#[test]
fn warps() {
    case("warp_exchange").blocks(4).passes(|data, _| {
        (0..256).for_each(|i| assert_eq!(data[i as usize], (i / 32 * 32..i / 32 * 32 + 32).sum::<u32>()));
    });
    case("ballot_compaction").blocks(2).passes(|data, aux| {
        assert_eq!(aux[..4], [16; 4]);
        for (warp, place) in (0..4).flat_map(|warp| (0..16).map(move |place| (warp, place))) {
            assert_eq!(data[128 + warp * 32 + place], (warp * 32 + 2 * place + 1) as u32);
        }
    });
    case("halves_apart").passes(|data, _| {
        (0..64).for_each(|i| assert_eq!(data[i], if i % 32 < 16 { i as u32 ^ 1 } else { 0x5555_0000 }));
    });
    case("partial_warp").config(LaunchConfig::linear(3, 40)).passes(|data, aux| {
        (0..120).for_each(|i| assert_eq!(data[i], if i % 40 < 32 { u32::MAX } else { 0xff }));
        assert_eq!(aux[..3], [u32::MAX; 3]);
    });
}

#[test]
fn grids() {
    case("grid_rounds").blocks(4).words(512).cooperative().passes(|data, _| {
        // Four rounds. Each adds the element 64 places on, in a ring of 256.
        let binomial = [1, 4, 6, 4, 1];
        for (i, &value) in data[..256].iter().enumerate() {
            let expected: usize = (0..5).map(|k| binomial[k] * ((i + 64 * k) % 256)).sum();
            assert_eq!(value, expected as u32);
        }
    });
    case("last_block_with_fence").blocks(8).passes(|_, aux| assert_eq!(aux[..2], [8, 28]));
    case("fence_by_all").blocks(4).passes(|_, aux| assert_eq!(aux[..2], [4, 256]));
    case("chained_blocks")
        .blocks(8)
        .passes(|data, _| (0..8).for_each(|i| assert_eq!(data[i], 2 * i as u32 + 2)));
    case("read_shared_write_own").blocks(2).passes(|data, _| {
        (0..128).for_each(|i| assert_eq!(data[128 + i], 120 + i as u32 / 64));
    });
    case("grid_counter").blocks(16).passes(|_, aux| assert_eq!(aux[0], 1024));
}

#[test]
fn pipelines() {
    case("bulk_ring").shared().words(64 * 11).passes(|_, aux| {
        (0..32).for_each(|i| {
            assert_eq!(aux[i as usize], (0..11).map(|step| 128 * step + 2 * i + 32).sum::<u32>())
        });
    });
    case("boxes_there_and_back").shared().words(128 * 5).mapped(128 * 5).passes(|data, _| {
        (0..128 * 5).for_each(|i| assert_eq!(data[i], i as u32 + 1));
    });
}

#[test]
fn products() {
    let mut ring = case("product_ring").config(LaunchConfig::linear(1, 160).shared(8192));
    ring.n = Some(7);
    ring.passes(|data, _| (0..128).for_each(|i| assert_eq!(data[i], 16 * 7)));
}

#[test]
fn clusters() {
    let mut doubled = case("multicast_ring").cluster(2).words(2 * 128 * 8).mapped(128 * 8);
    doubled.n = Some(128 * 8);
    doubled.passes(|data, _| (0..128 * 8).for_each(|i| assert_eq!(data[128 * 8 + i], 2 * i as u32)));
    case("cluster_sum").cluster(4).passes(|_, aux| assert_eq!(aux[..4], [(0..256).sum::<u32>(); 4]));
}
