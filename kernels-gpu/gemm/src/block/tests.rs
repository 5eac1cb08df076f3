//! Banks of shared memory, as the block's threads meet in them.

use super::{ColumnsOf, LANES, RowsOf, Tile, VECTOR, interleaved_lane};
use crate::gemm_f32::{Large, Small};
use layout::banks::{wavefronts_4, wavefronts_16};

#[test]
fn fragments_and_copies_are_free_of_conflicts() {
    for quarter in 0..4 {
        let lane = |index: usize| interleaved_lane(quarter * 8 + index as u32);
        let a: [u32; 8] = std::array::from_fn(|index| lane(index).0 * VECTOR * 4);
        let b: [u32; 8] = std::array::from_fn(|index| lane(index).1 * VECTOR * 4);
        assert_eq!((wavefronts_16(&a), wavefronts_16(&b)), (1, 1));
    }
    let of_small = [<RowsOf<Small> as Tile>::PITCH, <ColumnsOf<Small> as Tile>::PITCH];
    for pitch in
        of_small.into_iter().chain([<RowsOf<Large> as Tile>::PITCH, <ColumnsOf<Large> as Tile>::PITCH])
    {
        let copies: [u32; LANES as usize] =
            std::array::from_fn(|lane| (lane as u32 % 8 * pitch + lane as u32 / 8) * 4);
        assert_eq!(wavefronts_4(&copies), 1);
    }
}

/// Each quad of a tile has a place of its own, and neither a warp's copies nor its reads of eight lanes meet
/// in a bank.
fn quads_meet_nowhere<T: Tile>(line_of: impl Fn((u32, u32)) -> u32) {
    let mut places: Vec<u32> =
        (0..T::LINES).flat_map(|line| (0..T::QUADS).map(move |quad| T::quad(line, quad))).collect();
    places.sort_unstable();
    assert!(places.iter().zip(0..).all(|(&place, number)| place == 16 * number));
    for quad in 0..T::QUADS {
        for neighbour in 0..VECTOR {
            for eighth in 0..4 {
                let reads: [u32; 8] = std::array::from_fn(|index| {
                    let lane = line_of(interleaved_lane(eighth * 8 + index as u32));
                    T::quad(lane * VECTOR + neighbour, quad)
                });
                assert_eq!(wavefronts_16(&reads), 1, "quad {quad} of neighbour {neighbour}");
            }
        }
    }
    // As many lines of a tile further on, all places are as many bytes further on.
    let further = 2 * T::THREADS / T::QUADS;
    for line in 0..T::LINES - further {
        let bytes = further * T::DEPTH * 4;
        assert!((0..T::QUADS).all(|quad| T::quad(line + further, quad) == T::quad(line, quad) + bytes));
    }
}

#[test]
fn quads_are_free_of_conflicts() {
    quads_meet_nowhere::<RowsOf<Large>>(|(row, _)| row);
    quads_meet_nowhere::<RowsOf<Small>>(|(row, _)| row);
    quads_meet_nowhere::<ColumnsOf<Large>>(|(_, column)| column);
    quads_meet_nowhere::<ColumnsOf<Small>>(|(_, column)| column);
}
