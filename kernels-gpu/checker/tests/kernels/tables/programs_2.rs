//! Whole programs of another author, who had not seen how the checker works.

use super::*;
use FaultKind::*;

/// The kernels of `programs_5` and `programs_6`.
pub const BUGS: &[Bug] = &[
    // Memory.
    bug(BOUNDS, "stencil_below_the_image", SAMPLES, &[OutOfBounds], blocks(4).words(512)),
    bug(BOUNDS, "histogram_of_values_below_its_range", CWE, &[OutOfBounds, WildPointer], ONE),
    bug(BOUNDS, "radix_split_by_inclusive_ranks", MEMCHECK, &[OutOfBounds], threads(32).shared(128)),
    bug(ALIGNMENT, "padded_rows_by_fours", MEMCHECK, &[Misaligned], ONE),
    bug(
        OTHERS,
        "last_four_reach_into_the_neighbour",
        MEMCHECK,
        &[OutOfBounds],
        ONE.words(254).data(Data::BeforeAux),
    ),
    bug(COPIES, "records_move_up_together", RUST, &[GlobalRace], ONE.words(512)),
    bug(COPIES, "bins_cleared_by_their_bytes", CWE, &[OutOfBounds], ONE),
    bug(
        UNWRITTEN,
        "convolution_without_the_last_halo",
        INITCHECK,
        &[UninitialisedShared],
        blocks(4).words(512),
    ),
    bug(UNWRITTEN, "edit_distance_row_from_one", INITCHECK, &[UninitialisedGlobal], ONE),
    // Races.
    bug(SHARED, "bitonic_sort_with_a_barrier_a_size", SAMPLES, &[SharedRace], ONE),
    bug(SHARED, "product_whose_tile_is_overwritten", GUIDE, &[SharedRace], ONE),
    bug(SHARED, "attention_keys_in_the_same_buffer", RACECHECK, &[SharedRace], ONE),
    bug(GLOBAL, "centroids_added_up_plainly", CURD, &[InterBlockRace], blocks(4)),
    bug(
        GLOBAL,
        "transposition_in_place_by_all_tiles",
        SAMPLES,
        &[InterBlockRace],
        grid([2, 2, 1], [64, 1, 1]),
    ),
    bug(GLOBAL, "relaxation_by_read_only_loads", PTX, &[ReadOnlyPath], ONE),
    bug(ATOMICS, "compaction_whose_size_is_read_too_soon", GUIDE, &[SharedRace], ONE),
    bug(ATOMICS, "bounds_under_a_relaxed_lock", LITMUS, &[InterBlockRace], together(4)),
    bug(STACKS, "table_on_one_stack", GUIDE, &[ForeignLocal], ONE),
    bug(ENDS, "merge_of_a_run_that_is_used_up", CWE, &[Panic], ONE),
    bug(ENDS, "lock_that_goes_home_with_a_block", IGUARD, &[Livelock, Deadlock], together(4).hangs()),
    // Synchronisation.
    bug(SCOPES, "last_block_behind_a_block_fence", SCORD, &[InterBlockRace], blocks(4)),
    bug(SCOPES, "look_back_at_a_relaxed_flag", LOOK_BACK, &[InterBlockRace], together(4)),
    bug(SCOPES, "histogram_of_the_grid_in_block_scope", SCORD, &[InterBlockRace], blocks(4)),
    bug(
        BARRIERS,
        "norm_whose_last_threads_return",
        SYNCCHECK,
        &[BarrierDivergence, BarrierMismatch, Deadlock],
        ONE.n(50),
    ),
    bug(
        BARRIERS,
        "search_with_unequal_rounds",
        SYNCCHECK,
        &[BarrierDivergence, BarrierMismatch, Deadlock],
        ONE.n(100),
    ),
    bug(
        BARRIERS,
        "named_barrier_of_a_warp_too_many",
        PTX,
        &[Deadlock, BarrierMismatch, BarrierDivergence],
        threads(96),
    ),
    bug(WARPS, "softmax_of_a_short_row", GUIDE, &[WarpMask, WarpDivergence, Deadlock], ONE),
    bug(WARPS, "tree_of_a_warp_in_step", GKLEE, &[SharedRace], ONE),
    bug(WARPS, "filter_led_by_a_lane_outside", GUIDE, &[WarpMask, WarpDivergence], ONE),
    // Engines.
    bug(CP_ASYNC, "pipeline_that_leaves_its_last_group", GUIDE, &[AsyncCopyPending], ONE.words(1024)),
    bug(CP_ASYNC, "wait_behind_the_barrier", PTX, &[AsyncCopyPending, SharedRace, UninitialisedShared], ONE),
    bug(MBARRIERS, "second_round_of_the_first_phase", PTX, &[AsyncCopyPending], ONE.words(512)),
    bug(MBARRIERS, "arrivals_that_never_come", GUIDE, &[Deadlock, Livelock, MbarrierUnbalanced], ONE.n(50)),
    bug(BULK, "tile_stored_past_the_proxies", PTX, &[ProxyFence], threads(128).mapped(256).shared(512)),
    bug(BULK, "staging_buffer_for_two", CUTLASS, &[AsyncCopyPending], ONE.words(512)),
    bug(BULK, "fetch_behind_the_last_tile", CUTLASS, &[CopyUnfinished], ONE.words(320)),
    bug(WGMMA, "product_in_no_group", PTX, &[WgmmaPending, WgmmaUnfinished], threads(128).words(512)),
    bug(WGMMA, "sums_rescaled_without_a_fence", PTX, &[WgmmaFence], threads(128).words(512)),
    bug(CLUSTERS, "sum_of_blocks_that_may_be_gone", GUIDE, &[ClusterInvalid, UseAfterFree], cluster(4))
        .by_schedule(),
    bug(
        CLUSTERS,
        "edges_behind_a_barrier_of_the_block",
        GUIDE,
        &[InterBlockRace, SharedRace, UninitialisedShared, ClusterInvalid],
        cluster(4).words(512),
    ),
];

/// The kernels of `correct`.
pub const CORRECT: &[Correct] = &[
    right(SCOPES, "last_block_behind_fences", GUIDE, blocks(4), |_, aux| aux[1] == 255 * 128 && aux[0] == 4),
    right(WARPS, "filter_without_the_lanes_that_left", GUIDE, blocks(4).words(512).n(250), |data, aux| {
        let mut kept = data[256..340].to_vec();
        kept.sort_unstable();
        aux[0] == 84 && kept.iter().enumerate().all(|(i, value)| *value == 3 * i as u32) && data[340] == 340
    }),
    right(WARPS, "scan_of_a_warp_that_waits", GUIDE, threads(32), |data, _| {
        all(32, |i| data[32 + i] as usize == (31 - i) * (32 - i) / 2)
    }),
    right(BARRIERS, "warps_hand_over_two_buffers", PTX, ONE, |_, aux| {
        all(32, |i| aux[i] as usize == (0..8).map(|tile| 32 * tile + 31 - i).sum())
    }),
    right(BULK, "ring_of_boxes", CUTLASS, ONE.words(1024).mapped(1024).shared(1024), |_, aux| {
        all(32, |i| aux[32 + i] == 256 * 28 + 127 * 8)
    }),
    right(BARRIERS, "sort_until_nothing_is_swapped", SAMPLES, ONE, |data, _| {
        all(64, |i| data[128 + i] as usize == i && data[192 + i] as usize == 127 - i)
    }),
    right(SHARED, "bytes_of_the_same_words", RUST, ONE, |data, _| {
        all(64, |i| {
            let bytes = [0, 1, 2, 3].map(|k| (4 * i + k) as u8);
            let low = [0, 1, 2, 3].map(|k| (4 * (i / 4) + k) as u8);
            data[128 + i] == u32::from_be_bytes(bytes) && data[192 + i] == u32::from_le_bytes(low)
        })
    }),
    right(BARRIERS, "rest_of_the_block_at_a_barrier", PTX, threads(128), |data, _| {
        all(96, |i| data[128 + i] as usize == 95 - i + 3)
    }),
    right(CLUSTERS, "edges_behind_a_barrier_of_the_cluster", GUIDE, cluster(4).words(512), |data, _| {
        all(256, |i| data[256 + i] as usize == i.saturating_sub(1) + i + if i < 255 { i + 1 } else { 0 })
    }),
    right(CP_ASYNC, "three_stages_and_empty_groups", GUIDE, ONE.words(320), |_, aux| {
        all(64, |i| aux[i] as usize == (0..5).map(|tile| 64 * tile + 63 - i).sum())
    }),
    right(ATOMICS, "list_under_a_lock", IGUARD, together(4), |_, aux| aux[..5] == [0, 255, 191, 127, 63]),
    right(SHARED, "regions_of_dynamic_memory", GUIDE, ONE.shared(832), |data, _| {
        all(64, |i| {
            let next = |i: usize| (i + 1) % 64;
            // The bytes lie behind the words: the floats from 64 on, backwards.
            data[64 + i] as usize == next(63 - i) + 2 * next(i) + next(i) + 7
        })
    }),
    right(SCOPES, "look_back_at_whole_words", LOOK_BACK, together(4).words(512), |data, _| {
        all(256, |i| data[256 + i] as usize == i * (i + 1) / 2)
    }),
    right(MBARRIERS, "arrive_now_and_wait_later", GUIDE, ONE, |data, _| {
        all(64, |i| data[128 + i] as usize == (i + 5) % 64 + 5)
    }),
    right(WGMMA, "products_under_way", PTX, threads(128).words(512), |data, _| {
        data.iter().all(|bits| f32::from_bits(*bits) == 160.0)
    }),
    right(BULK, "two_staging_buffers", CUTLASS, ONE.words(512), |data, _| {
        all(256, |i| data[256 + i] as usize == 3 * (i / 64 * 64 + 63 - i % 64))
    }),
    right(GLOBAL, "diffusion_with_grid_barriers", GROUPS, together(4).words(512), |data, _| {
        let step = |x: Vec<u32>| -> Vec<u32> {
            (0..256).map(|i| x[(i + 255) % 256] + x[i] + x[(i + 1) % 256]).collect()
        };
        data[256..] == step(step(step((0..256).collect())))
    }),
    right(ATOMICS, "tiles_from_a_counter", SAMPLES, blocks(4).words(384), |data, aux| {
        aux[0] == 6 + 4 && all(384, |i| data[i] as usize == 2 * i)
    }),
    right(WARPS, "halves_of_a_warp_apart", GUIDE, ONE, |data, _| {
        all(64, |i| {
            let first = i / 32 * 32;
            let (sum, most) = ((first..first + 16).sum::<usize>(), first + 31);
            let (own, other) = if i % 32 < 16 { (sum, most) } else { (most, sum) };
            data[64 + i] as usize == 1000 * own + other
        })
    }),
    right(ATOMICS, "labels_until_nothing_changes", BARRACUDA, ONE, |data, _| {
        all(64, |i| data[64 + i] as usize == i % 8)
    }),
];
