//! dQ of a tile of queries. [`super`] has the picture.

use cuda_std::{grid, shared, thread};
use primitives::unroll;

use super::arguments::Arguments;
use super::config::{Config, OfQueries, Own, Plan, Stage};
use super::ring::go_round;
use super::scores::{of_rows, subtract, weigh};
use crate::mma::tile::{
    Place, Registers, TensorRows, add_product, copy_pair, first_line, hide_keys, place, products, store,
};
use crate::problem::{KeyBlocks, Sequence, Strides, Tile, Tiles};
use crate::softmax::{factor, scale_rows};

/// dQ.
#[derive(Clone, Copy)]
pub struct Result {
    /// First element.
    pub data: *mut u16,
    /// Where its rows begin, at multiples of 16 bytes.
    pub strides: Strides,
}

/// A thread of a block, and the block's tile.
#[derive(Clone, Copy)]
struct Pass<'a, C: Config> {
    arguments: Arguments<'a>,
    shared: Plan<C>,
    tile: Tile,
    sequence: Sequence,
}

/// L and D of the thread's two rows.
#[derive(Clone, Copy)]
struct Numbers {
    logarithms: [f32; 2],
    deltas: [f32; 2],
}

/// The tile of the block.
///
/// # Safety
/// The arguments are as their types say. The launch has blocks of [`OfQueries::<C>::THREADS`](OfQueries)
/// threads along x, as many as there are [`Tiles`] of `C::OWN` queries, with `C::SHARED` bytes of dynamic
/// shared memory.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>, result: Result) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    // Earlier grids may still write the operands or read the result.
    grid::wait_dependencies();
    grid::launch_dependents();
    let tile = Tiles::new(arguments.params, C::OWN).get(thread::block_idx_x());
    // SAFETY: the caller's contract; all threads of the block are here.
    unsafe {
        let sequence = arguments.params.sequence(arguments.packing, tile.batch);
        if tile.first_row < sequence.queries {
            Pass::<C> { arguments, shared, tile, sequence }.run(result);
        }
    }
}

impl<C: Config> Pass<'_, C> {
    /// All blocks of keys, and the result.
    ///
    /// # Safety
    /// As for [`run`]; all threads of the block call it.
    #[inline(always)]
    unsafe fn run(self, result: Result) {
        let Self { tile, sequence, .. } = self;
        let params = self.arguments.params;
        let blocks = KeyBlocks::new(params.band, sequence, tile.first_row, C::OWN, C::OTHER);
        // SAFETY: the caller's contract.
        unsafe {
            let mut sums = C::Sums::zero();
            if blocks.count() > 0 {
                self.blocks(blocks, &mut sums);
            }
            scale_rows(&mut sums, [params.scale; 2]);
            let Result { data, strides } = result;
            let to = TensorRows {
                data,
                strides,
                matrix: sequence.matrix,
                head: tile.head,
                sequence: sequence.first_query,
                tile: tile.first_row,
                end: sequence.queries,
            };
            store::<OfQueries<C>, _>(params, self.shared.own(0), &sums, to);
        }
    }

    /// The blocks of keys that the tile sees.
    ///
    /// # Safety
    /// As for [`run`](Self::run); there is one.
    #[inline(always)]
    unsafe fn blocks(self, blocks: KeyBlocks, sums: &mut C::Sums) {
        // SAFETY: the caller's contract; a stage is filled when the whole block has left it.
        unsafe {
            // They come with the first keys.
            self.copy_queries();
            let numbers = self.numbers();
            let copy = |block, stage| self.copy_keys(block, stage);
            go_round::<C, _>(self.shared.ring(0), blocks.first..blocks.end, copy, |block, stage| {
                let is_partial = blocks.is_partial(block);
                self.add(stage, is_partial.then_some(block * C::OTHER), numbers, sums);
            });
        }
    }

    /// Adds a block of keys. If some query does not see some of them, they are counted from `hidden_from` on.
    ///
    /// # Safety
    /// The whole warp calls it; the stage is full.
    #[inline(always)]
    unsafe fn add(self, stage: u32, hidden_from: Option<u32>, numbers: Numbers, sums: &mut C::Sums) {
        let (shared, keys, values) = (self.shared, stage, stage + C::OTHER_BYTES);
        let Numbers { logarithms, deltas } = numbers;
        let params = self.arguments.params;
        // SAFETY: the caller's contract.
        unsafe {
            let mut weights: C::Scores = products::<OfQueries<C>, _>(shared.own(0), keys);
            if let Some(first_key) = hidden_from {
                let first_row = self.tile.first_row;
                hide_keys::<OfQueries<C>, _>(params, &mut weights, self.sequence, first_row, first_key);
            }
            weigh(&mut weights, factor(params.scale), |_| of_rows(logarithms));
            let mut differences: C::Scores = products::<OfQueries<C>, _>(shared.own(1), values);
            subtract(&mut differences, &weights, |_| of_rows(deltas));
            add_product::<OfQueries<C>, _, _>(sums, &differences, keys);
        }
    }

    /// L and D of the thread's rows; of rows behind the last query they make weights of zero.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(always)]
    unsafe fn numbers(self) -> Numbers {
        let Arguments { params, packing, logarithms, deltas, .. } = self.arguments;
        let tile = self.tile;
        let mut numbers = Numbers { logarithms: [f32::INFINITY; 2], deltas: [0.0; 2] };
        // SAFETY: the caller's contract; rows of the sequence.
        unsafe {
            let first = params.padded_row(packing, tile.batch, tile.head, C::OTHER);
            let (warp, lane) = place();
            unroll!(HALF in 0..2, {
                let row = tile.first_row + first_line::<OfQueries<C>>(warp) + lane / 4 + 8 * HALF as u32;
                if row < self.sequence.queries {
                    numbers.logarithms[HALF] = *logarithms.add(first + row as usize);
                    numbers.deltas[HALF] = *deltas.add(first + row as usize);
                }
            });
        }
        numbers
    }

    /// Starts the copies of the tile's queries and of their gradients: zeros behind the last query.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(always)]
    unsafe fn copy_queries(self) {
        let Self { tile, sequence, .. } = self;
        let rows = sequence.queries - tile.first_row;
        let row = sequence.first_query + tile.first_row;
        let at = Place { row, head: tile.head, matrix: sequence.matrix, rows };
        // SAFETY: the caller's contract.
        unsafe {
            copy_pair::<OfQueries<C>, Own<C>>(
                self.arguments.params,
                self.shared.own(0),
                self.arguments.queries(),
                at,
            )
        }
    }

    /// Starts the copies of a block of keys, and of its values: zeros behind the last key.
    ///
    /// # Safety
    /// As for [`run`](Self::run); nobody reads the stage, and the block has a key.
    #[inline(always)]
    unsafe fn copy_keys(self, block: u32, stage: u32) {
        let Self { tile, sequence, .. } = self;
        let params = self.arguments.params;
        let (first, head) = (block * C::OTHER, tile.head / params.group.max(1));
        let (rows, row) = (sequence.keys - first, sequence.first_key + first);
        let at = Place { row, head, matrix: sequence.matrix, rows };
        // SAFETY: the caller's contract.
        unsafe { copy_pair::<OfQueries<C>, Stage<C>>(params, stage, self.arguments.keys(), at) }
    }
}
