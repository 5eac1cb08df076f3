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
