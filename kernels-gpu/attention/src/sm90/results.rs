//! How the results of a consumer get to memory.

use cuda_std::{fence, mbarrier, tma, vector};
use primitives::tma::LINE_BYTES;
use primitives::unroll;

use super::config::{BOX_COLUMNS, CONSUMER_ROWS, Config, WARPGROUP};
use super::forward::{Arguments, Barrier, Consumer, Outputs};
use super::fragments::Rounded;
use super::schedule::Work;
use crate::problem::AttentionParams;
use crate::softmax::sink_of;

impl<'a, C: Config> Consumer<'a, C> {
    /// Stores what goes beside the tile.
    #[inline(always)]
    pub const fn beside(self) -> Beside<'a> {
        let Arguments { params, outputs, sinks, .. } = self.arguments;
        Beside { params, outputs, sinks, consumer: self.consumer, thread: self.thread }
    }

    /// Stores the results of the consumer's rows.
    ///
    /// # Safety
    /// The whole warpgroup is here, and has read its queries.
    #[inline(always)]
    pub unsafe fn store(self, work: Work, result: &C::Result) {
        if C::OUTPUT_BOXES < C::VALUE_BOXES {
            // SAFETY: the caller's contract.
            unsafe { self.store_parts(work, result) };
            return;
        }
        let Self { shared, consumer, thread, .. } = self;
        let Work { tile, sequence, .. } = work;
        let to = if C::OWN_OUTPUT { shared.output(consumer) } else { shared.queries(consumer) };
        let row = tile.first_row + consumer * CONSUMER_ROWS;
        let is_foreign = self.arguments.is_packed() && row + CONSUMER_ROWS > sequence.queries;
        // SAFETY: the caller's contract. The thread that stores waits until earlier results have left; the
        // others wait for it at the barrier.
        unsafe {
            if C::OWN_OUTPUT {
                if thread == 0 {
                    tma::wait_group_read::<0>();
                }
                Barrier::Consumer(consumer).sync();
            }
            let mut rounded = Rounded::zero();
            rounded.set::<C::Element, _>(result);
            rounded.write::<C::Result>(to, C::QUERY_BOX, thread);
            fence::proxy_async_shared();
            Barrier::Consumer(consumer).sync();
            if is_foreign {
                self.store_rows(work, to, row, 0);
                Barrier::Consumer(consumer).sync();
            } else if thread == 0 {
                let row = (sequence.first_query + row) as i32;
                let mut column = 0;
                while column < C::VALUE_BOXES {
                    let coords =
                        [(column * BOX_COLUMNS) as i32, row, tile.head as i32, sequence.matrix as i32];
                    tma::store_4d(self.arguments.maps.output, to + column * C::QUERY_BOX, coords);
                    column += 1;
                }
                tma::commit_group();
            }
            if !C::OWN_OUTPUT && thread == 0 {
                tma::wait_group_read::<0>();
                mbarrier::arrive(shared.queries_empty(consumer));
            }
        }
    }

    /// Stores the results of the consumer's rows in parts, as many boxes at a time as there is room for.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    #[inline(always)]
    unsafe fn store_parts(self, work: Work, result: &C::Result) {
        let Self { shared, consumer, thread, .. } = self;
        let Work { tile, sequence, .. } = work;
        let to = shared.output(consumer);
        let row = tile.first_row + consumer * CONSUMER_ROWS;
        let is_foreign = self.arguments.is_packed() && row + CONSUMER_ROWS > sequence.queries;
        let mut rounded = Rounded::zero();
        rounded.set::<C::Element, _>(result);
        unroll!(PART in 0..2, {
            let first = PART as u32 * C::OUTPUT_BOXES;
            // SAFETY: the caller's contract. The thread that stores waits until earlier results have left;
            // the others wait for it at the barrier.
            unsafe {
                if thread == 0 {
                    tma::wait_group_read::<0>();
                }
                Barrier::Consumer(consumer).sync();
                rounded.write_boxes([first, C::OUTPUT_BOXES], to, C::QUERY_BOX, thread);
                fence::proxy_async_shared();
                Barrier::Consumer(consumer).sync();
                if is_foreign {
                    self.store_rows(work, to, row, first);
                    Barrier::Consumer(consumer).sync();
                } else if thread == 0 {
                    let row = (sequence.first_query + row) as i32;
                    let mut column = 0;
                    while column < C::OUTPUT_BOXES {
                        let first_column = ((first + column) * BOX_COLUMNS) as i32;
                        let coords = [first_column, row, tile.head as i32, sequence.matrix as i32];
                        tma::store_4d(self.arguments.maps.output, to + column * C::QUERY_BOX, coords);
                        column += 1;
                    }
                    tma::commit_group();
                }
            }
        });
    }

    /// Stores the rows that belong to the sequence, 16 bytes a thread, from the boxes at `from`, of which the
    /// first has this number.
    ///
    /// # Safety
    /// As for [`store`](Self::store); the boxes that leave together are complete.
    #[inline(always)]
    unsafe fn store_rows(self, work: Work, from: u32, first_row: u32, first: u32) {
        let Arguments { params, outputs, .. } = self.arguments;
        let Work { tile, sequence, .. } = work;
        let mut units = (params.head_size / UNIT_ELEMENTS).max(1);
        let first_unit = first * BOX_COLUMNS / UNIT_ELEMENTS;
        if C::OUTPUT_BOXES < C::VALUE_BOXES {
            if units <= first_unit {
                return;
            }
            units = (units - first_unit).min(C::OUTPUT_BOXES * BOX_COLUMNS / UNIT_ELEMENTS);
        }
        let head = tile.head as usize * params.output_head as usize;
        let mut index = self.thread;
        while index < CONSUMER_ROWS * units {
            let (line, unit) = (index / units, index % units);
            let row = first_row + line;
            if row < sequence.queries {
                const LINE_UNITS: u32 = LINE_BYTES / layout::UNIT_BYTES;
                let place = ((unit % LINE_UNITS) ^ (line % 8)) * layout::UNIT_BYTES;
                let address = from + unit / LINE_UNITS * C::QUERY_BOX + line * LINE_BYTES + place;
                let at = head + (sequence.first_query + row) as usize * params.output_row as usize;
                let to = at * ELEMENT_BYTES + ((first_unit + unit) * layout::UNIT_BYTES) as usize;
                // SAFETY: a row of the sequence; a whole unit of it.
                unsafe {
                    let values: [u32; 4] = vector::load_shared_v4(address);
                    vector::store_v4(outputs.data.add(to).cast::<u32>(), values);
                }
            }
            index += WARPGROUP;
        }
    }
}

/// A thread of a consumer, as it stores beside its tile's results.
#[derive(Clone, Copy)]
pub(super) struct Beside<'a> {
    pub params: &'a AttentionParams,
    pub outputs: Outputs,
    pub sinks: *const f32,
    pub consumer: u32,
    /// Number in the warpgroup.
    pub thread: u32,
}

impl Beside<'_> {
    /// Number of the thread's first row in the tile; the other one is 8 below.
    #[inline(always)]
    pub const fn row(self) -> u32 {
        self.consumer * CONSUMER_ROWS + self.thread / 32 * 16 + self.thread % 32 / 4
    }

    /// Stores the log-sum-exps of the thread's rows.
    ///
    /// # Safety
    /// As for [`run`](super::forward::run).
    #[inline(always)]
    pub unsafe fn logarithms(self, work: Work, logarithms: [f32; 2]) {
        let Self { params, outputs, .. } = self;
        if outputs.log_sum_exp.is_null() || !self.thread.is_multiple_of(4) {
            return;
        }
        let Work { tile, sequence, .. } = work;
        let head = sequence.matrix as usize * params.heads as usize + tile.head as usize;
        let first = head * params.lse_rows as usize + sequence.first_query as usize;
        unroll!(ROW in 0..2, {
            let row = tile.first_row + self.row() + 8 * ROW as u32;
            if row < sequence.queries {
                // SAFETY: a row of the sequence.
                unsafe { *outputs.log_sum_exp.add(first + row as usize) = logarithms[ROW] }
            }
        });
    }

    /// Stores zeros, and minus infinities or sinks, for rows of a tile that sees no key.
    ///
    /// # Safety
    /// As for [`run`](super::forward::run); the whole warpgroup is here.
    #[inline(always)]
    pub unsafe fn nothing(self, work: Work) {
        let Self { params, outputs, .. } = self;
        let Work { tile, sequence, .. } = work;
        let units = (params.head_size / UNIT_ELEMENTS).max(1);
        let matrix = sequence.matrix as usize * params.output_matrix as usize;
        let head = matrix + tile.head as usize * params.output_head as usize;
        let first_row = tile.first_row + self.consumer * CONSUMER_ROWS;
        let mut index = self.thread;
        while index < CONSUMER_ROWS * units {
            let row = first_row + index / units;
            if row < sequence.queries {
                let at = head + (sequence.first_query + row) as usize * params.output_row as usize;
                let to = at * ELEMENT_BYTES + (index % units * layout::UNIT_BYTES) as usize;
                // SAFETY: a row of the sequence; a whole unit of it.
                unsafe { vector::store_v4(outputs.data.add(to).cast::<u32>(), [0; 4]) }
            }
            index += WARPGROUP;
        }
        // SAFETY: the caller's contract.
        unsafe {
            let sink = sink_of(self.sinks, tile.head).unwrap_or(f32::NEG_INFINITY);
            self.logarithms(work, [sink; 2]);
        }
    }
}

/// Bytes of an element.
const ELEMENT_BYTES: usize = 2;
/// Elements of a unit of 16 bytes.
const UNIT_ELEMENTS: u32 = layout::UNIT_BYTES / ELEMENT_BYTES as u32;
