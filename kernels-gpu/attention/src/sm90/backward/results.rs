//! How dK and dV of a block get to memory.

use cuda_std::tma::TensorMap;
use cuda_std::{fence, tma, vector};
use primitives::tma::LINE_BYTES;

use super::arguments::Arguments;
use super::config::{Barrier, CONSUMER_KEYS, Config};
use super::consumer::Consumer;
use super::work::Work;
use crate::problem::Strides;
use crate::score::ScoreFunction;
use crate::sm90::config::{BOX_COLUMNS, WARPGROUP};
use crate::sm90::fragments::{Fragment, Rounded, scale_rows};

impl<C: Config> Consumer<'_, C> {
    /// Stores dK and dV of the consumer's keys.
    ///
    /// # Safety
    /// All threads of both consumers are here, and all products are over.
    #[inline(always)]
    pub unsafe fn store(self, gradients: [C::Gradient; 2]) {
        // SAFETY: the caller's contract.
        unsafe {
            self.write_results(gradients);
            fence::proxy_async_shared();
            Barrier::Consumer(self.consumer).sync();
            self.send_keys();
            self.send_values();
        }
    }

    /// Writes dK and dV of the consumer's keys to the places of K and V.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    #[inline(always)]
    pub(super) unsafe fn write_results(self, gradients: [C::Gradient; 2]) {
        let [mut d_keys, mut d_values] = gradients;
        self.scale_keys(&mut d_keys);
        self.scale_values(&mut d_values);
        // SAFETY: the caller's contract. K and V have been read by both consumers.
        unsafe {
            Barrier::Two(0).sync();
            self.write_rows(&d_keys, self.keys());
            self.write_rows(&d_values, self.values());
        }
    }

    /// Stores dK of a block's keys, or dV: in a pair consumer 1 has the one, and consumer 0 the other.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    #[inline(always)]
    pub unsafe fn store_in_pair(self, mut gradient: C::Gradient) {
        let is_keys = self.consumer == 1;
        // SAFETY: as above.
        unsafe {
            if is_keys {
                self.scale_keys(&mut gradient);
            } else {
                self.scale_values(&mut gradient);
            }
            self.store_scaled(&gradient, is_keys);
        }
    }

    /// Stores dK of a block's keys where dV is of another size: consumer 1 of a pair has it.
    ///
    /// # Safety
    /// As for [`store`](Self::store); consumer 0 calls [`store_values`](Self::store_values).
    #[inline(always)]
    pub(super) unsafe fn store_keys(self, mut d_keys: C::Gradient) {
        // SAFETY: as above.
        unsafe {
            self.scale_keys(&mut d_keys);
            self.store_scaled(&d_keys, true);
        }
    }

    /// Stores dV of a block's keys where it is of another size than dK.
    ///
    /// # Safety
    /// As for [`store`](Self::store); consumer 1 calls [`store_keys`](Self::store_keys).
    #[inline(always)]
    pub(super) unsafe fn store_values(self, mut d_values: C::ValueGradient) {
        // SAFETY: as above.
        unsafe {
            self.scale_values(&mut d_values);
            self.store_scaled(&d_values, false);
        }
    }

    /// Stores dK, or dV, over K or V, when both consumers have read those.
    ///
    /// # Safety
    /// As for [`store`](Self::store); all threads of both consumers call it, each with what its consumer has.
    #[inline(always)]
    unsafe fn store_scaled<F: Fragment>(self, gradient: &F, is_keys: bool) {
        // SAFETY: as above.
        unsafe {
            Barrier::Two(0).sync();
            self.write_rows(gradient, if is_keys { self.keys() } else { self.values() });
            fence::proxy_async_shared();
            Barrier::Consumer(self.consumer).sync();
            if is_keys {
                self.send_keys();
            } else {
                self.send_values();
            }
        }
    }

    /// dK by the scale of the scores.
    #[inline(always)]
    fn scale_keys(self, d_keys: &mut C::Gradient) {
        scale_rows(d_keys, [self.arguments.params.scale; 2]);
    }

    /// dV by the factor of weights that are kept.
    #[inline(always)]
    fn scale_values<F: Fragment>(self, d_values: &mut F) {
        if let Some(dropout) = self.function.dropout() {
            scale_rows(d_values, [dropout.scale; 2]);
        }
    }

    /// Rounds the consumer's lines, and writes them to the boxes at `boxes`.
    ///
    /// # Safety
    /// The whole warpgroup is here, and nothing else uses its lines.
    #[inline(always)]
    unsafe fn write_rows<F: Fragment>(self, gradient: &F, boxes: u32) {
        let mut rounded = Rounded::zero();
        rounded.set::<C::Element, _>(gradient);
        // SAFETY: the caller's contract.
        unsafe { rounded.write::<F>(boxes + self.first_line(), C::KEY_BOX, self.thread) }
    }

    /// Sends dK from shared memory to memory.
    ///
    /// # Safety
    /// The whole warpgroup is here; it has written its lines, fenced them, and met.
    #[inline(always)]
    unsafe fn send_keys(self) {
        let Arguments { maps, results, .. } = self.arguments;
        // SAFETY: the caller's contract.
        unsafe { self.send::<true>(self.keys(), maps.key_gradients, results.keys, results.strides.keys) }
    }

    /// Sends dV.
    ///
    /// # Safety
    /// As for [`send_keys`](Self::send_keys).
    #[inline(always)]
    unsafe fn send_values(self) {
        let Arguments { maps, results, .. } = self.arguments;
        // SAFETY: the caller's contract.
        let (map, to) = (maps.value_gradients, results.values);
        // SAFETY: the caller's contract.
        unsafe { self.send::<false>(self.values(), map, to, results.strides.values) }
    }

    /// Sends the consumer's lines of the boxes at `boxes`, of keys or of values, through the map, or row by
    /// row at the end of a packed sequence.
    ///
    /// # Safety
    /// As for [`send_keys`](Self::send_keys).
    #[inline(always)]
    unsafe fn send<const OF_KEYS: bool>(
        self,
        boxes: u32,
        map: *const TensorMap,
        to: *mut u16,
        strides: Strides,
    ) {
        let from = boxes + self.first_line();
        // SAFETY: the caller's contract; the work has been told.
        unsafe {
            let Work { tile, sequence, .. } = self.work();
            let own = tile.first_key + self.own_keys();
            if self.arguments.is_packed::<C>() && own + CONSUMER_KEYS > sequence.keys {
                self.store_rows(from, to, strides);
            } else if self.thread == 0 {
                let row = sequence.first_key + own;
                let mut column = 0;
                while column < if OF_KEYS { C::BOXES } else { C::VALUE_BOXES } {
                    let coords =
                        [(column * BOX_COLUMNS) as i32, row as i32, tile.head as i32, sequence.matrix as i32];
                    tma::store_4d(map, from + column * C::KEY_BOX, coords);
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
    /// As for [`send`](Self::send).
    #[inline(always)]
    unsafe fn store_rows(self, from: u32, to: *mut u16, strides: Strides) {
        // SAFETY: the caller's contract.
        let Work { tile, sequence, .. } = unsafe { self.work() };
        let units = (self.arguments.params.head_size / UNIT_ELEMENTS).max(1);
        let own = tile.first_key + self.own_keys();
        let rows = sequence.keys.saturating_sub(own).min(CONSUMER_KEYS);
        let mut index = self.thread;
        while index < rows * units {
            let (line, unit) = (index / units, index % units);
            let place = ((unit % LINE_UNITS) ^ (line % 8)) * layout::UNIT_BYTES;
            let address = from + unit / LINE_UNITS * C::KEY_BOX + line * LINE_BYTES + place;
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
