//! Correct kernels near to mistakes with barriers and warps.

use super::*;

pub const ROWS: &[Correct] = &[
    right(BARRIERS, "producer_consumer", CUTLASS, ONE.words(512), |data, _| {
        all(256, |i| data[256 + i] as usize == i / 32 * 32 + (i + 1) % 32)
    }),
    right(WARPS, "block_scan", SAMPLES, blocks(4), |data, _| {
        all(256, |i| data[i] == (i as u32 / 64 * 64..=i as u32).sum())
    }),
    right(WARPS, "warp_sum", SAMPLES, blocks(4), |_, aux| {
        all(8, |warp| aux[warp] == (32 * warp as u32..32 * (warp as u32 + 1)).sum())
    }),
    right(WARPS, "warp_exchange", GUIDE, blocks(4), |data, _| {
        all(256, |i| data[i] == (i as u32 / 32 * 32..i as u32 / 32 * 32 + 32).sum())
    }),
    right(WARPS, "ballot_compaction", SAMPLES, blocks(2), |data, aux| {
        aux[..4] == [16; 4] && all(64, |i| data[128 + i / 16 * 32 + i % 16] as usize == 2 * i + 1)
    }),
    right(WARPS, "halves_apart", GUIDE, ONE, |data, _| {
        all(64, |i| data[i] == if i % 32 < 16 { i as u32 ^ 1 } else { 0x5555_0000 })
    }),
    right(WARPS, "partial_warp", GUIDE, grid([3, 1, 1], [40, 1, 1]), |data, aux| {
        let votes = |i| if i % 40 < 32 { u32::MAX } else { 0xff };
        all(120, |i| data[i] == votes(i)) && aux[..3] == [u32::MAX; 3]
    }),
    right(WARPS, "redux_with_gone_lanes", PTX, ONE, |data, _| {
        let sum = |i| if i < 32 { 487 } else { 1479 };
        all(64, |i| data[i] == if i % 32 == 9 { i as u32 } else { sum(i) })
    }),
    right(WARPS, "match_with_gone_lanes", PTX, ONE.words(50), |data, _| {
        let mask = |i| if i < 48 { 0xfu32 << (i % 32 / 4 * 4) } else { 3 << 16 };
        all(50, |i| data[i] == mask(i))
    }),
    right(WARPS, "sum_of_48", GUIDE, threads(48), |_, aux| aux[..2] == [496, 632]),
    right(WARPS, "mask_of_those_that_stay", GUIDE, ONE.words(50), |data, _| {
        all(50, |i| data[i] == if i < 32 { 32 } else { 18 })
    }),
    right(WARPS, "tiles_of_four", GROUPS, ONE, |data, _| all(64, |i| data[i] as usize == i / 4 * 16 + 6)),
    right(WARPS, "tiles_in_shared", GROUPS, ONE, |data, _| all(64, |i| data[i] as usize == i ^ 7)),
    right(WARPS, "tile_in_a_branch", GROUPS, ONE, |data, _| {
        all(64, |i| data[i] as usize == if i % 32 < 16 { i } else { i / 16 * 16 })
    }),
    right(WARPS, "requests_by_key", GROUPS, blocks(2), |_, aux| aux[..4] == [32; 4]),
    right(WARPS, "places_for_a_branch", GROUPS, ONE, |data, aux| aux[0] == 22 && data[128..150] == [1; 22]),
    right(WARPS, "shrinking_mask", GUIDE, ONE, |data, _| all(64, |i| data[i] as usize == i % 32)),
    right(WARPS, "elected_lane_writes", PTX, ONE, |data, _| all(64, |i| data[i] as usize == 5 + i / 32)),
    right(WARPS, "scan_of_a_half", GUIDE, ONE, |data, _| {
        all(64, |i| data[i] as usize == if i % 32 < 16 { 0 } else { i % 16 + 1 })
    }),
    right(WARPS, "transpose_by_shuffles", SAMPLES, ONE, |data, _| {
        all(64, |i| data[i] as usize == i % 4 * 8 + i % 32 / 4)
    }),
    right(WARPS, "lanes_that_run_together", GUIDE, ONE, |data, _| {
        all(64, |i| data[i] == 1 + u32::from((63 - i) % 32 < 8))
    }),
    right(BARRIERS, "warps_that_return", GUIDE, ONE, |data, _| data[32..64] == [32; 32]),
];
