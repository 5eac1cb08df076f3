//! Correct kernels near to races.

use super::*;

pub const ROWS: &[Correct] = &[
    // Products of numbers next to 0; `speed` looks at others.
    right(SHARED, "timed_product", GUIDE, grid([2, 2, 1], [16, 16, 1]).words(3 * 1024).n(32), |data, _| {
        all(1024, |i| data[2048 + i] == 0)
    }),
    right(SHARED, "tree_reduction", SAMPLES, blocks(4), |_, aux| {
        all(4, |block| aux[block] == (64 * block as u32..64 * (block as u32 + 1)).sum())
    }),
    right(SHARED, "tiled_transpose", SAMPLES, grid([2, 2, 1], [8, 8, 1]).words(512), |data, _| {
        all(256, |i| data[256 + i % 16 * 16 + i / 16] == i as u32)
    }),
    right(SHARED, "atomic_histogram", SAMPLES, blocks(4), |_, aux| all(16, |bin| aux[bin] == 16)),
    right(SHARED, "stencil_with_halo", SAMPLES, blocks(2), |data, _| {
        all(128, |i| data[128 + i] == ((i + 127) % 128 + (i + 1) % 128) as u32)
    }),
    right(SCOPES, "spin_lock", IGUARD, blocks(2), |_, aux| aux[..2] == [64, 64]),
    right(GLOBAL, "grid_rounds", GROUPS, together(4).words(512), |data, _| {
        // Four rounds. Each adds the element 64 places on, in a ring of 256.
        let binomial = [1, 4, 6, 4, 1];
        all(256, |i| data[i] as usize == (0..5).map(|k| binomial[k] * ((i + 64 * k) % 256)).sum::<usize>())
    }),
    right(SCOPES, "last_block_with_fence", SAMPLES, blocks(8), |_, aux| aux[..2] == [8, 28]),
    right(SCOPES, "fence_by_all", SAMPLES, blocks(4), |_, aux| aux[..2] == [4, 256]),
    right(SCOPES, "chained_blocks", LOOK_BACK, blocks(8), |data, _| all(8, |i| data[i] == 2 * i as u32 + 2)),
    right(GLOBAL, "read_shared_write_own", CURD, blocks(2), |data, _| {
        all(128, |i| data[128 + i] == 120 + i as u32 / 64)
    }),
    right(GLOBAL, "grid_counter", CURD, blocks(16), |_, aux| aux[0] == 1024),
    right(ATOMICS, "core_lock", IGUARD, ONE, |_, aux| aux[..2] == [0, 64]),
    right(ATOMICS, "core_lock_in_shared", IGUARD, blocks(2), |_, aux| aux[..2] == [64, 64]),
    right(ATOMICS, "core_message", LITMUS, ONE, |data, _| data[101] == 7),
    right(ATOMICS, "core_message_between_blocks", LITMUS, together(2), |data, _| data[101] == 7),
    right(ATOMICS, "core_message_with_fences", LITMUS, ONE, |data, _| data[101] == 7),
    right(ATOMICS, "core_counter", CURD, blocks(4), |_, aux| aux[0] == 256),
    right(ATOMICS, "core_counter_behind_a_barrier", CURD, ONE, |data, _| data[..64] == [128; 64]),
    right(ATOMICS, "core_tickets", LITMUS, blocks(8), |_, aux| aux[..3] == [8, 8, 8]),
    right(ATOMICS, "core_last_block", SAMPLES, blocks(8), |_, aux| aux[..2] == [0, 24]),
    right(ATOMICS, "core_sequence", LITMUS, ONE, |data, _| data[0] == 5),
    right(ATOMICS, "core_maximum", CURD, blocks(4), |_, aux| aux[0] == 255),
    right(ATOMICS, "core_work_queue", IGUARD, blocks(2), |data, _| all(256, |i| data[i] as usize == i + 1)),
    right(ATOMICS, "core_histogram", SAMPLES, blocks(4), |_, aux| aux[..8] == [32; 8]),
    right(ATOMICS, "core_double_word", CURD, blocks(4), |_, aux| aux[..2] == [255 * 128, 256]),
    right(ATOMICS, "core_grid_barrier", SCORD, together(4).words(512), |data, _| {
        all(256, |i| data[256 + i] as usize == (i / 64 + 1) % 4)
    }),
    right(ATOMICS, "core_once", RUST, ONE, |data, _| data[0] == 9 && data[32] == 9),
    right(ATOMICS, "core_mailbox", LITMUS, ONE, |data, _| all(5, |i| data[i] as usize == 10 * i)),
    right(ATOMICS, "core_list", IGUARD, ONE, |_, aux| aux[1] == 64),
    right(SHARED, "scan_in_two_buffers", SAMPLES, ONE, |data, _| {
        all(64, |i| data[i] as usize == i * (i + 1) / 2)
    }),
    right(SHARED, "scan_up_and_down", SAMPLES, ONE, |data, _| {
        all(64, |i| data[i] as usize == i * i.saturating_sub(1) / 2)
    }),
    right(SHARED, "bitonic_sort", SAMPLES, ONE, |data, _| all(64, |i| data[i] as usize == 63 - i)),
    right(SHARED, "odd_even_exchange", SAMPLES, ONE, |data, _| all(64, |i| data[i] as usize == i)),
    right(SHARED, "one_barrier_per_step", CUTLASS, ONE, |_, aux| {
        all(64, |i| aux[i] as usize == 6 * 64 + 4 * (63 - i))
    }),
    right(SHARED, "broadcast_with_two_barriers", BARRACUDA, ONE, |_, aux| aux[..64] == [70; 64]),
    right(BARRIERS, "rounds_until_stable", GUIDE, ONE, |data, aux| aux[..64] == [63; 64] && data[0] == 64),
    right(SHARED, "bins_of_warps", SAMPLES, ONE, |_, aux| aux[..8] == [8; 8]),
    right(SHARED, "image_with_halo", SAMPLES, grid([1; 3], [8, 8, 1]), |_, aux| {
        all(64, |i| aux[i] as usize == 4 * ((i / 8 + 1) * 10 + i % 8 + 1))
    }),
    right(BARRIERS, "ring_of_four", CUTLASS, ONE.words(640), |data, _| {
        all(320, |i| data[320 + i] as usize == i / 32 * 32 + 31 - i % 32)
    }),
    right(BARRIERS, "halves_with_barriers", BARRACUDA, threads(128), |data, _| {
        all(128, |i| data[i] as usize == i / 64 * 64 + 63 - i % 64)
    }),
    right(SCOPES, "message_in_shared", LITMUS, ONE, |data, _| data[0] == 5),
    right(SCOPES, "message_by_block_fences", LITMUS, ONE, |data, _| data[0] == 5),
    right(SCOPES, "message_by_device_fences", LITMUS, together(2), |data, _| data[101] == 7),
    right(SCOPES, "scopes_in_a_chain", SCORD, together(2), |data, _| data[101] == 7),
    right(SCOPES, "block_counts_of_their_own", SCORD, blocks(4), |_, aux| aux[..4] == [64; 4]),
    right(SCOPES, "last_block_clears", SAMPLES, blocks(4), |_, aux| aux[..2] == [0, 255 * 128 + 256]),
    right(SCOPES, "decoupled_look_back", LOOK_BACK, blocks(8), |data, _| {
        all(8, |i| data[64 + i] as usize == i * i.saturating_sub(1) / 2)
    }),
    right(GLOBAL, "append_by_blocks", SAMPLES, blocks(2), |data, _| data[128..] == [1; 128]),
    right(SCOPES, "read_only_input", PTX, blocks(2), |data, _| {
        all(128, |i| data[128 + i] as usize == (i + 1) % 128)
    }),
    right(SHARED, "vectors_to_scalars", RACECHECK, ONE.shared(1024), |data, _| {
        all(64, |i| data[i] as usize == 63 - i)
    }),
    right(GLOBAL, "grid_sums", GROUPS, together(2).words(384), |data, _| data[..] == [128; 384]),
    right(SCOPES, "token_ring", LITMUS, together(4), |data, _| data[0] == 4095),
    right(SCOPES, "semaphore", IGUARD, blocks(4), |data, aux| {
        aux[0] == 0 && all(4, |i| data[i] as usize == i + 100)
    }),
];
