//! Correct kernels near to mistakes with addresses, unwritten memory and copies.

use super::*;

pub const ROWS: &[Correct] = &[
    right(BOUNDS, "guarded_exit", GUIDE, blocks(2).words(100), |data, _| {
        all(100, |i| data[i] == 63 - i as u32 % 64)
    }),
    right(UNWRITTEN, "own_bytes", RACECHECK, ONE, |data, _| all(64, |i| data[i] == 2 * (63 - i as u32))),
    right(UNWRITTEN, "split_dynamic", GUIDE, ONE.shared(512), |data, _| {
        all(64, |i| data[i] == 64 - i as u32)
    }),
    right(COPIES, "vector_copy", RUST, ONE, |data, _| all(128, |i| data[128 + i] as usize == i)),
    right(COPIES, "padded_structs", RUST, ONE, |data, _| all(64, |i| data[i] as usize == 66 - i)),
    right(COPIES, "padded_struct_moved", RUST, ONE, |data, _| data[..64] == [9; 64]),
    right(COPIES, "aligned_structs", RUST, ONE, |data, _| all(64, |i| data[i] as usize == (i ^ 7) + 3)),
    right(COPIES, "tile_by_one_thread", RUST, ONE, |data, _| all(64, |i| data[i] as usize == 127 - i)),
    right(COPIES, "own_elements_moved", RUST, ONE, |data, _| {
        all(256, |i| data[i] as usize == if i % 4 == 0 { 0 } else { i - 1 })
    }),
    right(COPIES, "cleared_at_once", RUST, ONE, |data, _| data[..64] == [1; 64]),
    right(COPIES, "own_pairs_swapped", RUST, ONE, |data, _| all(128, |i| data[i] as usize == i ^ 1)),
    right(COPIES, "whole_tile_by_value", RUST, ONE, |data, _| data[..64] == [120; 64]),
    right(COPIES, "slices_that_touch", RUST, ONE, |data, _| {
        all(192, |i| data[i] as usize == i / 3 + usize::from(i % 3 == 2))
    }),
    right(COPIES, "slice_behind_a_barrier", RUST, ONE, |data, _| data[..128] == [7; 128]),
    right(ALIGNMENT, "unaligned_by_bytes", RUST, ONE, |data, _| {
        all(64, |i| data[128 + i] as usize == (i + 1) << 24)
    }),
    right(ALIGNMENT, "words_as_other_types", RUST, ONE, |data, _| {
        all(64, |i| data[i] as usize == 2 * (63 - i))
    }),
    right(OTHERS, "dynamic_memory_in_parts", GUIDE, ONE.shared(1024), |data, _| data[..64] == [6; 64]),
    right(STACKS, "own_local_array", GUIDE, ONE, |data, _| all(64, |i| data[i] as usize == i + 1)),
    right(SHARED, "tiled_product", SAMPLES, grid([2, 2, 1], [8, 8, 1]).words(512), is_product),
    right(SHARED, "product_of_two_buffers", SAMPLES, grid([2, 2, 1], [8, 8, 1]).words(512), is_product),
    right(COPIES, "product_in_registers", SAMPLES, grid([1; 3], [8, 8, 1]).words(512), is_product),
    right(COPIES, "matrix_times_vector", SAMPLES, ONE, |_, aux| all(32, |i| aux[i] as usize == 64 * i + 28)),
    right(BOUNDS, "vectors_and_a_tail", SAMPLES, blocks(2).words(255), |data, _| {
        all(255, |i| data[i] as usize == i + 1)
    }),
    right(MEMORIES, "one_helper_for_all_memories", PTX, ONE, |data, _| {
        all(64, |i| data[i] as usize == i + 256 + 2)
    }),
    right(MEMORIES, "one_helper_that_asks", PTX, ONE, |data, _| {
        all(64, |i| data[i] as usize == (i ^ 1) + 256)
    }),
    right(MEMORIES, "vectors_by_way_of_shared", PTX, ONE, |data, _| {
        all(256, |i| data[i] as usize == 4 * (63 - i / 4) + i % 4)
    }),
];

/// Whether the second half of `data` is the product of the matrices that the first half stands for.
fn is_product(data: &[u32], _aux: &[u32]) -> bool {
    all(256, |i| {
        let (row, column) = (i / 16, i % 16);
        let products = (0..16).map(|k| (row * 16 + k) % 5 * ((k * 16 + column) % 3));
        data[256 + i] as usize == products.sum::<usize>()
    })
}
