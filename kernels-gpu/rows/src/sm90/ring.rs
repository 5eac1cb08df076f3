//! Shared memory of a block: a ring of stages, and what its threads tell each other.

use super::reduce::{MAX_TEAMS, PARTS_BYTES};
use crate::direct::Span;
use crate::function::{Place, Tensors, narrow};
use crate::plan::{CONTROL_BYTES, EXCHANGES, MAX_CLUSTER, MAX_CONSUMERS, MAX_STAGES, Plan};
use cuda_std::{cluster, mbarrier, misc, shared, thread, vector};
use primitives::access::{self, VECTOR_BYTES, Words, from_words};
use primitives::element::InF32;
use primitives::shared_plan::Mbarrier;
use primitives::warp::LANES;
use primitives::{shared_bytes, shared_plan};

/// Most warps that work on rows.
const WARPS: u32 = MAX_CONSUMERS / LANES;

shared_plan! {
    /// Lies before the ring.
    pub struct Control {
        /// Statistics of the block's warps, of a few rows.
        parts[EXCHANGES * WARPS]: Parts,
        /// Those of the blocks that share a row.
        of_blocks[EXCHANGES * MAX_CLUSTER]: Parts,
        /// Says that the warps' have come, to a team.
        exchange[EXCHANGES * MAX_TEAMS]: Mbarrier,
        /// Says that the blocks' have come.
        gathered[EXCHANGES]: Mbarrier,
        /// Says that all blocks of the cluster have read them.
        read[EXCHANGES]: Mbarrier,
        /// Says that a stage is full.
        full[MAX_STAGES]: Mbarrier,
        /// Says that a stage has been left.
        empty[MAX_STAGES]: Mbarrier,
        /// The ring begins at a multiple of 128.
        rest: Rest,
    }
}
shared_bytes! {
    /// Statistics.
    pub struct Parts(PARTS_BYTES, align 16);
}
shared_bytes! {
    /// Nothing.
    pub struct Rest(0, align 128);
}

const _: () = assert!(<Control as primitives::shared_plan::SharedPlan>::TOTAL == CONTROL_BYTES);

/// The shared memory of a block.
#[derive(Clone, Copy)]
pub struct Shared {
    /// Lies before the ring.
    pub control: Control,
    /// Where the ring begins.
    pub ring: u32,
}

impl Shared {
    /// Makes the barriers, and waits until all blocks of the cluster have.
    ///
    /// # Safety
    /// All threads of the block call it first; the launch is the plan's.
    #[inline(always)]
    pub unsafe fn new(plan: &Plan) -> Self {
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let control = Control::new(base);
        // SAFETY: the barriers' own places, which nothing uses yet.
        unsafe {
            let thread = thread::thread_idx_x();
            if thread < plan.stages {
                mbarrier::init(control.full(thread), 1);
                // In a cluster the warp that hands statistics on leaves the rows too.
                mbarrier::init(control.empty(thread), plan.consumers / LANES + u32::from(plan.cluster > 1));
                mbarrier::fence_init();
            }
            if thread < EXCHANGES * MAX_TEAMS {
                mbarrier::init(control.exchange(thread), plan.team.div_ceil(LANES));
                mbarrier::fence_init();
            }
            if thread < EXCHANGES {
                mbarrier::init(control.gathered(thread), 1);
                mbarrier::init(control.read(thread), plan.cluster);
                mbarrier::fence_init();
            }
            if plan.cluster > 1 {
                cluster::sync();
            } else {
                thread::sync_threads();
            }
        }
        Self { control, ring: base + CONTROL_BYTES }
    }
}

/// A place in the ring: producer and consumers have one each.
#[derive(Clone, Copy)]
pub struct Cursor {
    /// The stage.
    pub stage: u32,
    /// Parity of the round.
    pub phase: u32,
}

impl Cursor {
    /// Where both sides begin.
    pub const START: Self = Self { stage: 0, phase: 0 };

    /// One stage on.
    #[inline(always)]
    pub const fn next(self, plan: &Plan) -> Self {
        if self.stage + 1 == plan.stages {
            Self { stage: 0, phase: self.phase ^ 1 }
        } else {
            Self { stage: self.stage + 1, ..self }
        }
    }
}

/// The vectors of a row that are this block's.
#[derive(Clone, Copy)]
pub struct Piece {
    /// The row's vectors and edges.
    pub span: Span,
    /// The first of the block's vectors.
    pub first: u32,
    /// How many there are.
    pub count: u32,
}

impl Piece {
    /// The part of a row that the block of this rank has; of none, when the row does not exist.
    #[inline(always)]
    pub fn of<T>(plan: &Plan, row: *const T, rank: u32, exists: bool) -> Self {
        let span = Span::of::<T>(row, if exists { plan.columns } else { 0 });
        if plan.cluster == 1 {
            return Self { span, first: 0, count: span.vectors };
        }
        // A power of two.
        let share = (span.vectors + plan.cluster - 1) >> plan.cluster.trailing_zeros();
        let first = (rank * share).min(span.vectors);
        Self { span, first, count: share.min(span.vectors - first) }
    }
}

/// A vector of a row in shared memory.
pub struct Staged<T> {
    /// Where the first input's elements lie.
    pub address: u32,
    /// Bytes from an input to the next.
    pub part: u32,
    /// The row's outputs.
    pub outputs: Tensors<T>,
    /// Column of the first element.
    pub column: u32,
    /// Elements of the row before its first vector.
    pub head: u32,
}

impl<T: InF32, const N: usize> Place<T, N> for Staged<T> {
    #[inline(always)]
    fn column(&self) -> u32 {
        self.column
    }

    #[inline(always)]
    unsafe fn input(&self, which: usize) -> [f32; N] {
        const { assert!(N * size_of::<T>() == VECTOR_BYTES) };
        let address = self.address + which as u32 * self.part;
        // SAFETY: the row is there as long as it has places; every bit pattern is a number.
        unsafe { T::widen(from_words::<T, N>(vector::load_shared_v4(address))) }
    }

    #[inline(always)]
    unsafe fn output(&self, which: usize, values: [f32; N]) {
        // SAFETY: a part of the row, which begins at a boundary.
        unsafe {
            let to = self.outputs.outputs[which].wrapping_add(self.column as usize);
            access::store(to, narrow::<T, N>(values))
        }
    }

    #[inline(always)]
    unsafe fn keep(&self, which: usize, values: [f32; N]) {
        let elements = narrow::<T, N>(values);
        // SAFETY: a part of the row, which begins at a boundary, and its place in shared memory, which no
        // other thread touches.
        unsafe {
            let to = self.outputs.outputs[which].wrapping_add(self.column as usize);
            access::store(to, elements);
            vector::store_shared_v4(self.address, vector::to_words(elements));
        }
    }

    #[inline(always)]
    unsafe fn kept(&self, _: usize) -> [f32; N] {
        // SAFETY: the caller's promise: there is what was kept.
        unsafe { self.input(0) }
    }

    const REPLACES: bool = true;

    #[inline(always)]
    unsafe fn replace(&self, which: usize, values: [f32; N]) {
        let address = self.address + which as u32 * self.part;
        // SAFETY: the caller's promise; no other thread touches the place.
        unsafe { vector::store_shared_v4(address, vector::to_words(narrow::<T, N>(values))) }
    }

    /// The same question for all vectors of a row: whether the shared rows lie as this one does.
    #[inline(always)]
    unsafe fn shared<const K: usize>(&self, rows: [*const T; K]) -> [[f32; N]; K] {
        let bits = rows.iter().fold(0, |bits, row| bits | row.wrapping_add(self.head as usize) as usize);
        let at = rows.map(|row| row.wrapping_add(self.column as usize));
        // SAFETY: the caller's promise; the boundary is looked at.
        unsafe {
            let words = if bits.is_multiple_of(VECTOR_BYTES) {
                at.map(|at| access::load_words(at))
            } else {
                at.map(|at| load_apart(at))
            };
            words.map(|words| T::widen(from_words::<T, N>(words)))
        }
    }
}

/// [`access::load_words`] from any element on. A loop, which is jumped over where vectors begin at
/// boundaries: straight code would be issued there too, to no effect.
///
/// # Safety
/// 16 bytes are readable.
#[inline(always)]
unsafe fn load_apart<T: InF32>(mut from: *const T) -> Words {
    let (mut words, mut left) = (Words::default(), misc::opaque(Words::default().len() as u32));
    while left > 0 {
        let mut word = 0;
        for i in 0..size_of::<u32>() / size_of::<T>() {
            // SAFETY: the caller's promise.
            let [element, ..] = access::first(unsafe { *from.add(i) });
            word |= element << (i * 8 * size_of::<T>());
        }
        from = from.wrapping_add(size_of::<u32>() / size_of::<T>());
        let [_, a, b, c] = words;
        words = [a, b, c, word];
        left -= 1;
    }
    words
}
