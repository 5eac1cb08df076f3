//! How dK and dV of a block get to memory.

use cuda_std::{fence, tma, vector};
use primitives::tma::LINE_BYTES;

use super::arguments::Arguments;
use super::config::{Barrier, CONSUMER_KEYS, Config, KEY_BOX};
use super::main_pass::Consumer;
use super::prepare::Strides;
use super::work::Work;
use crate::sm90::config::{BOX_COLUMNS, WARPGROUP};
use crate::sm90::fragments::{Rounded, scale_rows};

impl<C: Config> Consumer<'_, C> {
    /// Stores dK and dV.
    ///
    /// # Safety
    /// All threads of both consumers are here, and all products are over.
    #[inline(always)]
    pub unsafe fn store(self, gradients: [C::Gradient; 2]) {
        let Arguments { maps, results, params, .. } = self.arguments;
        let [mut d_keys, d_values] = gradients;
        scale_rows(&mut d_keys, [params.scale; 2]);
        // SAFETY: the caller's contract. K and V have been read by both consumers.
        unsafe {
            Barrier::Two(0).sync();
            let lines = self.consumer * CONSUMER_KEYS * LINE_BYTES;
            let (keys, values) = (self.shared.keys() + lines, self.shared.values() + lines);
            let mut rounded = Rounded::zero();
            rounded.set::<C::Element, _>(&d_keys);
            rounded.write::<C::Gradient>(keys, KEY_BOX, self.thread);
            rounded.set::<C::Element, _>(&d_values);
            rounded.write::<C::Gradient>(values, KEY_BOX, self.thread);
            fence::proxy_async_shared();
            Barrier::Consumer(self.consumer).sync();
            let Work { tile, sequence, .. } = Work::told(self.shared.work());
            let own = tile.first_key + self.consumer * CONSUMER_KEYS;
            if self.arguments.is_packed() && own + CONSUMER_KEYS > sequence.keys {
                self.store_rows(keys, results.keys, results.strides.keys);
                self.store_rows(values, results.values, results.strides.values);
            } else if self.thread == 0 {
                let row = sequence.first_key + own;
                let mut column = 0;
                while column < C::BOXES {
                    let coords =
                        [(column * BOX_COLUMNS) as i32, row as i32, tile.head as i32, sequence.matrix as i32];
                    tma::store_4d(maps.key_gradients, keys + column * KEY_BOX, coords);
                    tma::store_4d(maps.value_gradients, values + column * KEY_BOX, coords);
                    column += 1;
                }
                tma::commit_group();
                tma::wait_group::<0>();
            }
        }
    }

    /// Stores the rows that belong to the sequence, 16 bytes a thread, from the boxes at `from`.
    ///
    /// # Safety
    /// As for [`store`](Self::store); the consumer's boxes are complete.
    #[inline(always)]
    unsafe fn store_rows(self, from: u32, to: *mut u16, strides: Strides) {
        // SAFETY: the caller's contract.
        let Work { tile, sequence, .. } = unsafe { Work::told(self.shared.work()) };
        let units = (self.arguments.params.head_size / UNIT_ELEMENTS).max(1);
        let own = tile.first_key + self.consumer * CONSUMER_KEYS;
        let rows = sequence.keys.saturating_sub(own).min(CONSUMER_KEYS);
        let mut index = self.thread;
        while index < rows * units {
            let (line, unit) = (index / units, index % units);
            let place = ((unit % LINE_UNITS) ^ (line % 8)) * layout::UNIT_BYTES;
            let address = from + unit / LINE_UNITS * KEY_BOX + line * LINE_BYTES + place;
            let row = strides.at(sequence.first_key + own + line, tile.head, sequence.matrix);
            // SAFETY: a row of the sequence; a whole unit of it.
            unsafe {
                let values: [u32; 4] = vector::load_shared_v4(address);
                vector::store_v4(to.add(row + (unit * UNIT_ELEMENTS) as usize).cast::<u32>(), values);
            }
            index += WARPGROUP;
        }
    }
}

/// Elements of 16 bytes.
const UNIT_ELEMENTS: u32 = layout::UNIT_BYTES / 2;
/// Units of a line of a box.
const LINE_UNITS: u32 = LINE_BYTES / layout::UNIT_BYTES;
