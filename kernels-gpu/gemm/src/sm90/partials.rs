//! The sums of pieces of tiles, on their way through memory from the blocks that make them to those that
//! store the tiles; see [`stream_k`](super::stream_k).
//!
//! A block has a slot, and a consumer a part of it, as the threads hold their accumulators: quad after quad,
//! in each 16 bytes of each thread. So no thread computes where an element is, and a warp's accesses lie side
//! by side. A flag says that all of a consumer's part is there.

use core::sync::atomic::Ordering;

use cuda_std::atomic::mid::{atomic_fetch_add_u32_device, atomic_load_32_device, atomic_store_32_device};
use cuda_std::vector;
use primitives::cluster::ClusterCoord;
use primitives::unroll;

use super::barriers::Barrier;
use super::config::{Config, Of, WARPGROUP};
use super::operands::AccumulatorTile;

/// The slots and their flags.
#[derive(Clone, Copy)]
pub struct Partials {
    /// [`slots`] times a block's tile.
    pub sums: *mut f32,
    /// The number of tickets taken, then [`slots`] times a number for each consumer: 0 before the launch, and
    /// 0 again behind it.
    pub flags: *mut u32,
}

/// Slots, one for each block, of so many units of clusters of so many blocks.
#[must_use]
pub const fn slots(units: u32, blocks: u32) -> u32 {
    units * blocks
}

/// Numbers in front of the flags: the tickets'.
const FLAGS: u32 = 1;

/// How many numbers [`Partials::flags`] are.
#[must_use]
pub const fn flag_words(slots: u32, consumers: u32) -> u32 {
    FLAGS + slots * consumers
}

/// Accumulators that a thread moves at a time.
const QUAD: usize = 4;

/// A consumer's part of a tile, as one of its threads sees it.
#[derive(Clone, Copy)]
pub struct Piece<C: Config> {
    at: ClusterCoord<Of<C>>,
    consumer: u32,
    thread: u32,
}

impl<C: Config> Piece<C> {
    /// That of the block at this place of a cluster, of a consumer and its thread.
    #[inline(always)]
    pub fn new(at: ClusterCoord<Of<C>>, consumer: u32, thread: u32) -> Self {
        Self { at, consumer, thread }
    }

    /// Numbers of a consumer's part.
    const WORDS: u32 = C::ACCUMULATORS * WARPGROUP;
    /// Numbers from a quad of a thread to its next one.
    const STEP: usize = QUAD * WARPGROUP as usize;
    /// Quads of a group.
    const QUADS: usize = C::STORED_N as usize / 8;

    /// The consumer's part, among all, of this unit. With ping-pong a tile is one consumer's, whichever.
    #[inline(always)]
    fn of_unit(self, unit: u32) -> u32 {
        let block = unit * C::CLUSTER + self.at.row + self.at.column * C::CLUSTER_M;
        if C::PING_PONG { block } else { block * C::CONSUMERS + self.consumer }
    }
}

/// Repeats a block for each four accumulators of a group.
macro_rules! each_quad {
    ($group:ident, $quad:ident of $config:ident $body:block) => {
        unroll!($group in 0..2, { if $group < $config::Stored::GROUPS {
            unroll!($quad in 0..32, { if $quad < Piece::<$config>::QUADS $body });
        } });
    };
}

impl Partials {
    /// The next ticket of so many: 0, 1, 2 .., in the order in which they are asked for.
    ///
    /// # Safety
    /// The flags are this launch's, in which tickets are taken so many times.
    #[inline(always)]
    pub(super) unsafe fn take_ticket(self, tickets: u32) -> u32 {
        // SAFETY: the counter; behind the last ticket it is this thread's alone.
        unsafe {
            let ticket = atomic_fetch_add_u32_device(self.flags, Ordering::Relaxed, 1);
            if ticket + 1 == tickets {
                atomic_store_32_device(self.flags, Ordering::Relaxed, 0);
            }
            ticket
        }
    }

    /// The flag of a consumer's part.
    #[inline(always)]
    fn flag(self, part: u32) -> *mut u32 {
        self.flags.wrapping_add((FLAGS + part) as usize)
    }

    /// Stores the sums of the unit's piece, and says so.
    ///
    /// # Safety
    /// The whole warpgroup is here, once in a launch. The slots and flags are this launch's.
    #[inline(always)]
    pub(super) unsafe fn hand_over<C: Config>(self, piece: Piece<C>, unit: u32, sums: &C::Stored) {
        const { assert!(Piece::<C>::QUADS <= 32 && C::Stored::GROUPS <= 2, "counted out") };
        let part = piece.of_unit(unit);
        // SAFETY: places of the unit's slot, which no other thread touches before the flag is set. The
        // barrier orders all threads' stores before that.
        unsafe {
            let to = self.sums.add((part * Piece::<C>::WORDS) as usize + QUAD * piece.thread as usize);
            each_quad!(GROUP, INDEX of C {
                let [a, b, c, d] = [QUAD * INDEX, QUAD * INDEX + 1, QUAD * INDEX + 2, QUAD * INDEX + 3];
                let quad = [sums.get(GROUP, a), sums.get(GROUP, b), sums.get(GROUP, c), sums.get(GROUP, d)];
                vector::store_v4(to.add((GROUP * Piece::<C>::QUADS + INDEX) * Piece::<C>::STEP), quad);
            });
            Barrier::Consumer(piece.consumer).sync();
            if piece.thread == 0 {
                atomic_store_32_device(self.flag(part), Ordering::Release, 1);
            }
        }
    }

    /// Waits for the sums of this unit's piece of the same tile, adds them, and resets their flag.
    ///
    /// # Safety
    /// The whole warpgroup is here, and no other one for the same piece. The unit hands it over. The slots
    /// and flags are this launch's.
    #[inline(always)]
    pub(super) unsafe fn add<C: Config>(self, piece: Piece<C>, unit: u32, sums: &mut C::Stored) {
        let part = piece.of_unit(unit);
        // SAFETY: the flag says that the sums are there, and the barrier tells all threads. From then on the
        // flag is this consumer's alone.
        unsafe {
            if piece.thread == 0 {
                let flag = self.flag(part);
                while atomic_load_32_device(flag, Ordering::Acquire) == 0 {}
                atomic_store_32_device(flag, Ordering::Relaxed, 0);
            }
            Barrier::Consumer(piece.consumer).sync();
            let from = self.sums.add((part * Piece::<C>::WORDS) as usize + QUAD * piece.thread as usize);
            each_quad!(GROUP, INDEX of C {
                let at = from.add((GROUP * Piece::<C>::QUADS + INDEX) * Piece::<C>::STEP);
                let quad: [f32; QUAD] = vector::load_l2_v4(at);
                unroll!(I in 0..4, {
                    let index = QUAD * INDEX + I;
                    sums.set(GROUP, index, sums.get(GROUP, index) + quad[I]);
                });
            });
        }
    }
}
