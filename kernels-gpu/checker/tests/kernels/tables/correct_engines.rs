//! Correct kernels near to mistakes with asynchronous copies, products of warpgroups, and clusters.

use super::*;

pub const ROWS: &[Correct] = &[
    right(CP_ASYNC, "copy_pipeline", CUTLASS, ONE.words(512), |_, aux| {
        all(64, |i| aux[i] as usize == (0..8).map(|step| step * 64 + 63 - i).sum::<usize>())
    }),
    right(CP_ASYNC, "source_rewritten_after_the_wait", PTX, ONE, |data, aux| {
        all(64, |i| (data[i], aux[i] as usize) == (0, i))
    }),
    right(
        BULK,
        "tensor_written_and_fenced",
        CUTLASS,
        together(2).shared(4096).words(512).mapped(256),
        |data, _| data[256..320] == [1; 64],
    ),
    right(BULK, "source_handed_back", PTX, ONE.shared(512), |data, aux| {
        all(64, |i| (data[i] as usize, aux[i] as usize) == (i + 1, i))
    }),
    right(BULK, "reduction_waited_for", PTX, ONE.shared(512), |data, _| {
        all(64, |i| data[i] as usize == i + 2)
    }),
    right(BULK, "bulk_ring", CUTLASS, ONE.shared(4096).words(64 * 11), |_, aux| {
        all(32, |i| aux[i] as usize == (0..11).map(|step| 128 * step + 2 * i + 32).sum::<usize>())
    }),
    right(BULK, "boxes_there_and_back", CUTLASS, ONE.shared(4096).words(640).mapped(640), |data, _| {
        all(640, |i| data[i] as usize == i + 1)
    }),
    right(WGMMA, "product_ring", CUTLASS, threads(160).shared(8192).n(7), |data, _| {
        all(128, |i| data[i] == 16 * 7)
    }),
    right(CLUSTERS, "multicast_ring", CUTLASS, cluster(2).words(2048).mapped(1024).n(1024), |data, _| {
        all(1024, |i| data[1024 + i] as usize == 2 * i)
    }),
    right(CLUSTERS, "cluster_sum", GROUPS, cluster(4), |_, aux| aux[..4] == [(0..256).sum::<u32>(); 4]),
    right(CP_ASYNC, "fetch_in_two_buffers", CUTLASS, ONE.shared(512), |_, aux| {
        all(64, |i| aux[i] as usize == 6 * 64 + 4 * (63 - i))
    }),
    right(CP_ASYNC, "fetch_with_a_tail", CUTLASS, ONE.words(40), |_, aux| {
        all(64, |i| aux[i] as usize == if i < 24 { 0 } else { 63 - i })
    }),
    right(MBARRIERS, "mbarrier_of_the_block", PTX, ONE, |_, aux| {
        all(64, |i| aux[i] as usize == 3 * 64 + 3 * (63 - i))
    }),
    right(BULK, "expected_before_the_arrival", PTX, ONE.shared(512), |_, aux| {
        all(64, |i| aux[i] as usize == 63 - i)
    }),
    right(MBARRIERS, "memory_of_an_mbarrier", PTX, ONE, |data, _| data[..64] == [9; 64]),
    right(BULK, "staged_stores", CUTLASS, ONE.shared(512), |data, _| {
        all(256, |i| data[i] as usize == i / 64 * 1000 + i % 64)
    }),
    right(BULK, "reductions_to_one_place", PTX, blocks(4).shared(512), |data, _| {
        all(64, |i| data[i] as usize == i + 20)
    }),
    right(BULK, "two_boxes_one_phase", CUTLASS, ONE.shared(4096).mapped(256), |_, aux| {
        all(64, |i| aux[i] as usize == 2 * i + 128)
    }),
    right(WGMMA, "two_accumulators", CUTLASS, threads(128).shared(4096), |data, _| data[..128] == [48; 128]),
    right(WGMMA, "accumulators_scaled", CUTLASS, threads(128).shared(4096), |data, _| {
        data[..128] == [24; 128]
    }),
    right(WGMMA, "result_behind_a_barrier", CUTLASS, threads(128).shared(4096), |data, _| {
        all(128, |i| data[i] as usize == 143 - i)
    }),
    right(WGMMA, "fetched_operand", CUTLASS, threads(128).shared(4096).words(512), |data, _| {
        data[256..384] == [1; 128]
    }),
    right(CLUSTERS, "words_around_the_cluster", GROUPS, cluster(4), |data, _| {
        all(256, |i| data[i] as usize == i + 4)
    }),
    right(CLUSTERS, "awaited_async_store", PTX, cluster(2), |data, _| {
        all(128, |i| data[i] as usize == 6 - i / 64)
    }),
    right(CLUSTERS, "awaited_remote_copy", PTX, cluster(2), |data, _| {
        all(128, |i| data[i] as usize == (i + 64) % 128)
    }),
    right(CLUSTERS, "arrivals_from_the_cluster", PTX, cluster(4), |_, aux| aux[0] == 10),
];
