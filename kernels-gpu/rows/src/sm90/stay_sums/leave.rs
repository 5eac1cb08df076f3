//! Sums of columns on their way to memory, when a warp has taken all its rows.

use super::chain::Chain;
use super::{Columns, Kind, Worker};
use crate::function::MAX_SUMS;
use cuda_std::{thread, vector};
use primitives::access::{self, VECTOR_BYTES};
use primitives::element::InF32;
use primitives::unroll;

impl<T: InF32, Q: Kind, F: Chain<T>> Worker<'_, T, Q, F> {
    /// Stores the sums of the lane's columns, two rows from there on.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    pub(super) unsafe fn store<const N: usize, const VECTORS: usize>(
        &self,
        sums: &[Columns<N, VECTORS>; MAX_SUMS],
        to: *mut f32,
    ) {
        unroll!(K in 0..4, {
            if K < VECTORS && self.has(K) {
                let column = self.column::<N>(K);
                unroll!(S in 0..2, {
                    let at = to.wrapping_add(S * self.plan.columns as usize).wrapping_offset(column as isize);
                    // SAFETY: the caller's contract.
                    unsafe {
                        if Q::ANYWHERE {
                            self.store_part(at, column, sums[S][K]);
                        } else {
                            unroll!(I in 0..2, {
                                if 4 * I < N {
                                    let four = [0, 1, 2, 3].map(|i| sums[S][K][4 * I + i]);
                                    access::store(at.wrapping_add(4 * I), four);
                                }
                            });
                        }
                    }
                });
            }
        });
    }

    /// Adds the sums of the block's teams, in order, and stores them, two rows from there on.
    ///
    /// # Safety
    /// As for [`run`]; all threads of the block call it, when they have taken all their rows.
    #[inline(always)]
    pub(super) unsafe fn add_teams<const N: usize, const VECTORS: usize>(
        &self,
        sums: &[Columns<N, VECTORS>; MAX_SUMS],
        to: *mut f32,
    ) {
        let (plan, words) = (self.plan, size_of::<f32>() as u32);
        let of_team = MAX_SUMS as u32 * plan.columns;
        let own = self.rings + self.member.team(plan) * of_team * words;
        // SAFETY: the caller's contract. A place of the rings is written by one thread, between the barriers,
        // and all copies have been waited for.
        unsafe {
            thread::sync_threads();
            unroll!(K in 0..4, {
                if K < VECTORS && self.has(K) {
                    let column = self.column::<N>(K);
                    unroll!(S in 0..2, {
                        let place = (S as u32 * plan.columns).wrapping_add_signed(column);
                        let at = own.wrapping_add(place.wrapping_mul(words));
                        self.keep_sums(at, column, sums[S][K]);
                    });
                }
            });
            thread::sync_threads();
            let mut sum = thread::thread_idx_x();
            while sum < of_team {
                let (mut total, mut team, mut at) = (0.0, 0, self.rings + sum * words);
                while team < plan.tile {
                    total += vector::load_shared::<f32>(at);
                    (team, at) = (team + 1, at + of_team * words);
                }
                *to.wrapping_add(sum as usize) = total;
                sum += plan.consumers;
            }
        }
    }

    /// Writes a vector's sums of columns to shared memory, from there on.
    ///
    /// # Safety
    /// There is room for those of the row's columns.
    #[inline(always)]
    unsafe fn keep_sums<const N: usize>(&self, to: u32, column: i32, sums: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe {
            if Q::ANYWHERE {
                for i in 0..N {
                    if self.is_column(column + i as i32) {
                        vector::store_shared(to.wrapping_add((i * size_of::<f32>()) as u32), sums[i]);
                    }
                }
            } else {
                unroll!(I in 0..2, {
                    if 4 * I < N {
                        let four: [f32; 4] = [0, 1, 2, 3].map(|i| sums[4 * I + i]);
                        vector::store_shared_v4(to + (I * VECTOR_BYTES) as u32, four);
                    }
                });
            }
        }
    }
}
