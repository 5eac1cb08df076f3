//! Whole programs, written after the checker and without regard to it.

use simt::FaultKind::*;

use super::*;

/// A block of a tile's 256 threads.
const TILE: Shape = grid([1; 3], [16, 16, 1]);

pub const BUGS: &[Bug] = &[
    bug(SHARED, "gemm_without_second_barrier", GUIDE, &[SharedRace], TILE.words(1280)),
    bug(
        SHARED,
        "transpose_with_a_warp_barrier",
        SAMPLES,
        &[SharedRace, UninitialisedShared],
        grid([1; 3], [32, 8, 1]).words(2048),
    ),
    bug(SHARED, "softmax_scratch_reused", SAMPLES, &[SharedRace], threads(128)),
    bug(SHARED, "bitonic_sort_in_step", SAMPLES, &[SharedRace], ONE),
    bug(SHARED, "last_block_told_too_early", SAMPLES, &[SharedRace, UninitialisedShared], blocks(4))
        .by_schedule(),
    bug(SHARED, "top_k_merged_too_early", GUIDE, &[SharedRace, UninitialisedShared], ONE),
    bug(GLOBAL, "jacobi_in_place", SAMPLES, &[GlobalRace, InterBlockRace], blocks(4)),
    bug(GLOBAL, "stencil_steps_by_block", SAMPLES, &[InterBlockRace], together(4).words(512)),
    bug(SCOPES, "block_sums_without_fences", SAMPLES, &[InterBlockRace], blocks(4)),
    bug(SCOPES, "look_back_with_block_scope", LOOK_BACK, &[InterBlockRace], together(4)),
    bug(SCOPES, "lock_opened_relaxed", SCORD, &[InterBlockRace], together(4)),
    bug(SCOPES, "queue_published_before_written", IGUARD, &[InterBlockRace], together(2)),
    bug(SCOPES, "histogram_with_block_scope", SCORD, &[InterBlockRace], blocks(4)),
    bug(SCOPES, "norm_scale_by_read_only_load", PTX, &[ReadOnlyPath], ONE),
    bug(ATOMICS, "count_read_plainly", IGUARD, &[GlobalRace], ONE),
    bug(COPIES, "particles_moved_in_place", RUST, &[GlobalRace], ONE),
    bug(UNWRITTEN, "stencil_halo_not_loaded", INITCHECK, &[UninitialisedShared], ONE),
    bug(UNWRITTEN, "sum_of_parts_never_written", INITCHECK, &[UninitialisedShared], ONE),
    bug(
        BOUNDS,
        "gemm_edge_not_masked",
        MEMCHECK,
        &[OutOfBounds],
        grid([1, 2, 1], [16, 16, 1]).words(320).n(20),
    ),
    bug(BOUNDS, "largest_value_behind_the_bins", CWE, &[OutOfBounds], ONE),
    bug(BOUNDS, "left_of_the_first", CWE, &[OutOfBounds, WildPointer], ONE),
    bug(BOUNDS, "padded_index_without_padding", MEMCHECK, &[OutOfBounds], TILE),
    bug(ALIGNMENT, "rows_of_odd_length", MEMCHECK, &[Misaligned], ONE),
    bug(STACKS, "lists_merged_by_address", GUIDE, &[ForeignLocal], ONE),
    bug(
        BARRIERS,
        "barriers_of_an_uneven_loop",
        SYNCCHECK,
        &[BarrierDivergence, BarrierMismatch, SharedRace],
        ONE.n(100),
    ),
    bug(
        BARRIERS,
        "named_barrier_without_the_producer",
        PTX,
        &[SharedRace, UninitialisedShared, BarrierDivergence, BarrierMismatch, Deadlock],
        threads(96),
    ),
    bug(
        BARRIERS,
        "layer_norm_barrier_in_a_branch",
        SYNCCHECK,
        &[BarrierDivergence, BarrierMismatch, SharedRace],
        ONE,
    ),
    bug(WARPS, "tail_returns_before_the_shuffles", SYNCCHECK, &[WarpMask], ONE.n(50)),
    bug(
        WARPS,
        "vote_of_those_that_keep",
        SYNCCHECK,
        &[WarpDivergence, WarpMask, BarrierDivergence, Deadlock],
        ONE,
    ),
    bug(WARPS, "mask_of_the_first_half", SYNCCHECK, &[WarpMask], ONE),
    bug(CP_ASYNC, "fetch_into_padded_rows", PTX, &[AsyncCopyInvalid, Misaligned], ONE),
    bug(CP_ASYNC, "three_stages_two_open", CUTLASS, &[AsyncCopyPending], ONE.words(384)),
    bug(
        BULK,
        "parity_of_the_step",
        CUTLASS,
        &[AsyncCopyPending, Deadlock],
        threads(96).shared(512).words(384).n(6),
    ),
    bug(MBARRIERS, "stages_freed_by_warps", CUTLASS, &[Deadlock], threads(96).shared(512).words(384).n(6)),
    bug(BULK, "proxy_fence_of_the_storing_thread", PTX, &[ProxyFence], ONE.shared(512)),
    bug(BULK, "chunk_staged_too_early", CUTLASS, &[AsyncCopyPending], ONE.shared(512)),
    bug(WGMMA, "bias_behind_the_fence", PTX, &[WgmmaFence], threads(128).shared(4096)),
    bug(WGMMA, "epilogue_with_one_product_open", CUTLASS, &[WgmmaPending], threads(128).shared(4096)),
    bug(CLUSTERS, "bins_of_an_exited_block", GROUPS, &[ClusterInvalid], cluster(2)),
    bug(
        CLUSTERS,
        "cluster_maximum_read_too_early",
        GROUPS,
        &[SharedRace, UninitialisedShared, ClusterInvalid],
        cluster(2),
    ),
    // Those that are harder to see.
    bug(SHARED, "last_warp_volatile", SAMPLES, &[SharedRace], ONE),
    bug(SHARED, "halves_packed_by_two_threads", CWE, &[SharedRace], ONE),
    bug(COPIES, "count_of_a_copy_in_bytes", CWE, &[SharedRace, OutOfBounds], ONE),
    bug(
        BULK,
        "second_operand_not_awaited",
        CUTLASS,
        &[AsyncCopyPending],
        threads(128).shared(4096).words(1024),
    ),
    bug(
        CLUSTERS,
        "remote_arrival_before_the_init",
        PTX,
        &[MbarrierInvalid, ClusterInvalid, SharedRace],
        cluster(2),
    ),
    bug(SHARED, "arrays_carved_too_close", CWE, &[SharedRace], ONE.shared(512)),
    bug(GLOBAL, "heap_words_of_two_threads", CWE, &[GlobalRace], ONE),
    bug(STACKS, "local_list_read_past_its_end", CWE, &[ForeignLocal], ONE),
    bug(
        WARPS,
        "matches_in_an_uneven_loop",
        SYNCCHECK,
        &[WarpDivergence, WarpMask, BarrierDivergence, Deadlock],
        ONE.n(100),
    ),
    bug(ALIGNMENT, "matrix_rows_off_their_alignment", PTX, &[Misaligned], ONE),
    bug(
        BARRIERS,
        "one_barrier_for_two_buffers",
        PTX,
        &[SharedRace, UninitialisedShared, BarrierDivergence, BarrierMismatch, BarrierInvalid, Deadlock],
        ONE.n(6),
    ),
    bug(WGMMA, "accumulators_scaled_by_one", PTX, &[WgmmaFence], threads(128).shared(4096)),
    // Ten more, at the borders between blocks, warps and engines.
    bug(STACKS, "shared_pointer_for_another_block", GUIDE, &[WildPointer], together(2)),
    bug(STACKS, "local_pointer_for_another_block", GUIDE, &[ForeignLocal], together(2)),
    bug(BOUNDS, "row_length_of_the_matrix", CWE, &[OutOfBounds, WildPointer], ONE),
    bug(BULK, "store_awaited_by_another_thread", PTX, &[AsyncCopyPending], ONE.shared(512)),
    bug(GLOBAL, "grid_barrier_without_the_block", GROUPS, &[InterBlockRace], together(4).words(512)),
    bug(GLOBAL, "grid_barrier_used_twice", GROUPS, &[InterBlockRace], together(4).words(512)),
    bug(
        BULK,
        "bytes_inside_the_edge",
        CUTLASS,
        &[AsyncCopyPending, MbarrierUnbalanced, MbarrierOverflow, Deadlock],
        ONE.shared(4096).words(192).mapped(192),
    ),
    bug(BULK, "tile_cleared_before_the_load", PTX, &[ProxyFence], ONE.shared(512)),
    bug(WGMMA, "fragment_replaced_in_flight", PTX, &[WgmmaPending], threads(128).shared(4096)),
    bug(
        BULK,
        "flag_before_the_store_is_done",
        PTX,
        &[AsyncCopyPending, InterBlockRace],
        together(2).shared(512),
    ),
];

pub const CORRECT: &[Correct] = &[
    right(SHARED, "gemm_with_one_barrier", CUTLASS, TILE.words(2304), |data, _| {
        let term = |y: usize, x: usize, k: usize| (y * 64 + k) % 7 * ((1024 + k * 16 + x) % 5);
        all(256, |i| data[2048 + i] as usize == (0..64).map(|k| term(i / 16, i % 16, k)).sum::<usize>())
    }),
    right(WARPS, "transpose_by_warps", SAMPLES, ONE, |data, _| {
        all(256, |i| data[i] as usize == i / 128 * 128 + i % 4 * 32 + i % 128 / 4)
    }),
    right(SHARED, "bitonic_sort_with_both_barriers", SAMPLES, ONE, |data, _| {
        all(63, |i| data[i] < data[i + 1]) && data[63] > 0
    }),
    right(SCOPES, "look_back_in_one_word", LOOK_BACK, together(4), |data, _| {
        all(256, |i| data[i] as usize == i * (i + 1) / 2)
    }),
    right(SCOPES, "last_block_with_fences", SAMPLES, blocks(4), |_, aux| aux[40] == 255 * 128),
    right(SCOPES, "buckets_with_locks", SCORD, together(4), |_, aux| {
        all(4, |b| {
            let list = &aux[16 + 8 * b..][..4];
            aux[8 + b] == 4 && all(4, |block| list.contains(&(64 * block as u32 + 16 * b as u32)))
        })
    }),
    right(ATOMICS, "histogram_by_matches", SAMPLES, blocks(2), |_, aux| {
        all(8, |bin| aux[bin] as usize == (0..256).filter(|i| i / 3 % 8 == bin).count())
    }),
    right(WARPS, "tail_with_a_mask_of_its_own", GUIDE, ONE.n(50), |_, aux| {
        aux[..2] == [(0..32).sum::<u32>(), (32..50).sum()]
    }),
    right(BARRIERS, "producer_with_named_barriers", PTX, ONE.n(6), |_, aux| {
        all(32, |i| aux[i] as usize == (0..6).map(|step| 32 * step + 31 - i).sum::<usize>())
    }),
    right(CP_ASYNC, "three_stages_one_open", CUTLASS, ONE.words(384), |_, aux| {
        all(64, |i| aux[i] as usize == (0..6).map(|step| 64 * step + 63 - i).sum::<usize>())
    }),
    right(BULK, "ring_with_carried_parity", CUTLASS, threads(96).shared(768).words(448).n(7), |_, aux| {
        all(64, |i| aux[i] as usize == (0..7).map(|step| 64 * step + 63 - i).sum::<usize>())
    }),
    right(WGMMA, "products_in_two_buffers", CUTLASS, threads(128).shared(8192).n(5), |data, _| {
        data[..128] == [160; 128]
    }),
    right(CLUSTERS, "cluster_sum_in_two_halves", GROUPS, cluster(4), |data, _| {
        all(256, |i| data[i] == 32640_u32.wrapping_sub((i * i) as u32))
    }),
    right(GLOBAL, "stencil_with_a_counted_barrier", GROUPS, together(4).words(512), |data, _| {
        let mut now: Vec<u32> = (0..256).collect();
        for _ in 0..4 {
            now = (0..256).map(|i| now[(i + 1) % 256] + now[(i + 255) % 256]).collect();
        }
        data[..256] == now
    }),
    right(COPIES, "halves_of_a_struct", RUST, ONE, |data, _| {
        all(128, |i| data[128 + i] as usize == (31 - i / 4) * 2 + i % 4 / 2)
    }),
    right(GLOBAL, "bytes_of_many_threads", RUST, blocks(4), |data, _| {
        all(256, |i| data[i] as usize == if i % 2 == 0 { i % 251 } else { i })
    }),
    right(SHARED, "memory_of_three_phases", GUIDE, ONE.shared(256), |_, aux| aux[..64] == [1056; 64]),
    right(SCOPES, "queue_with_flags_of_slots", IGUARD, together(3), |_, aux| aux[40] == 584),
    right(WARPS, "first_warp_goes_on_alone", SAMPLES, ONE, |_, aux| aux[..32] == [2016; 32]),
    right(WARPS, "compaction_by_ballots", SAMPLES, blocks(4), |_, aux| {
        aux[0] == 32 && all(32, |i| aux[1..33].contains(&(8 * i as u32 + 3)))
    }),
    right(GLOBAL, "heap_for_the_block", GUIDE, ONE, |data, _| all(64, |i| data[64 + i] as usize == 63 - i)),
    right(WARPS, "additions_of_those_together", GUIDE, ONE, |data, aux| {
        let kept: Vec<u32> = (0..64).filter(|i| i % 3 != 1).collect();
        aux[0] as usize == kept.len() && kept.iter().all(|i| data[128..][..kept.len()].contains(i))
    }),
    right(SCOPES, "volatile_flag_between_fences", GUIDE, together(2), |data, _| {
        all(64, |i| data[64 + i] as usize == 64 - i)
    }),
    right(BULK, "flag_when_the_store_is_done", PTX, together(2).shared(512), |_, aux| aux[1] == 7 * 64),
    right(BARRIERS, "barrier_in_the_branches_of_roles", PTX, ONE, |_, aux| aux[32..] == [63; 32]),
    right(UNWRITTEN, "buffers_not_quite_full", RUST, ONE, |_, aux| {
        all(64, |i| aux[i] as usize == 63 - i + 5)
    }),
    right(UNWRITTEN, "tail_stored_along", CUTLASS, ONE.shared(512), |data, _| {
        all(61, |i| data[128 + i] as usize == i + 1)
    }),
];
