//! The engine for any device and any rows: threads read a row from global memory, once for its statistics
//! and once for its results. The second time short rows come from the L1 cache and long ones from L2.
//!
//! Threads take vectors of 16 bytes where all tensors of the row lie alike within 16 bytes, and elements
//! elsewhere.

use crate::function::{Direct, MAX_INPUTS, MAX_OUTPUTS, PARTS, RowFunction, Statistics, Tensors};
use crate::plan::{CONSUMERS, Plan};
use cuda_std::thread;
use primitives::access::VECTOR_BYTES;
use primitives::element::Float;
use primitives::warp::LANES;
use primitives::{block, grid};

/// Warps of a block.
pub const WARPS: usize = block::slots(CONSUMERS);

/// Where a row's vectors lie.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// Elements before the first vector.
    pub head: u32,
    /// Vectors.
    pub vectors: u32,
    /// Elements beside the vectors.
    pub edges: u32,
}

impl Span {
    /// That of a row of `columns` elements at this address.
    #[inline(always)]
    pub fn of<T>(row: *const T, columns: u32) -> Self {
        let head = ((row as usize).wrapping_neg() % VECTOR_BYTES / size_of::<T>()) as u32;
        let head = if head < columns { head } else { columns };
        let vectors = (columns - head) / elements::<T>();
        Self { head, vectors, edges: columns - vectors * elements::<T>() }
    }

    /// That of a row without vectors.
    #[inline(always)]
    pub const fn of_elements(columns: u32) -> Self {
        Self { head: 0, vectors: 0, edges: columns }
    }

    /// Column of an edge.
    #[inline(always)]
    pub const fn edge<T>(self, index: u32) -> u32 {
        if index < self.head { index } else { index + self.vectors * elements::<T>() }
    }

    /// Column of a vector.
    #[inline(always)]
    pub const fn vector<T>(self, index: u32) -> u32 {
        self.head + index * elements::<T>()
    }
}

/// Elements of a vector.
pub(crate) const fn elements<T>() -> u32 {
    (VECTOR_BYTES / size_of::<T>()) as u32
}

impl<T> Tensors<T> {
    /// Those of the row with this number.
    #[inline(always)]
    pub(crate) fn row(&self, plan: &Plan, row: u64) -> Self {
        let input = |i| self.input_row(plan, i, row);
        let output = |i: usize| self.outputs[i].wrapping_add((row * plan.output_strides[i]) as usize);
        const { assert!(MAX_INPUTS == 3 && MAX_OUTPUTS == 2) };
        Self { inputs: [input(0), input(1), input(2)], outputs: [output(0), output(1)] }
    }

    /// A row of one input.
    #[inline(always)]
    pub(crate) fn input_row(&self, plan: &Plan, which: usize, row: u64) -> *const T {
        self.inputs[which].wrapping_add((row * plan.input_strides[which]) as usize)
    }

    /// A column of a row.
    #[inline(always)]
    pub(crate) fn place(&self, column: u32) -> Direct<T> {
        let at = column as usize;
        let ([a, b, c], [y, z]) = (self.inputs, self.outputs);
        let inputs = [a.wrapping_add(at), b.wrapping_add(at), c.wrapping_add(at)];
        let outputs = [y.wrapping_add(at), z.wrapping_add(at)];
        Direct { tensors: Self { inputs, outputs }, column }
    }

    /// Whether all that is there lies alike within 16 bytes.
    #[inline(always)]
    fn is_alike(&self, plan: &Plan) -> bool {
        let ([a, b, c], [y, z]) = (self.inputs.map(|x| x as usize), self.outputs.map(|y| y as usize));
        let differs = |x: usize, is_there: bool| if is_there { x ^ a } else { 0 };
        let [of_y, of_z] = plan.output_strides;
        let inputs = differs(b, plan.inputs > 1) | differs(c, plan.inputs > 2);
        (inputs | differs(y, of_y > 0) | differs(z, of_z > 0)).is_multiple_of(VECTOR_BYTES)
    }
}

/// Applies the function to the rows of the calling threads. `slots` is for the statistics of each warp.
///
/// # Safety
/// The tensors hold the plan's rows, and no output overlaps another tensor, but that the first may be the
/// first input; the function's own pointers are as it wants them. As many blocks and threads as the plan
/// says. `slots` is shared memory for [`WARPS`] of them.
#[inline(always)]
pub unsafe fn run<T: Float, F: RowFunction<T>, const N: usize>(
    plan: &Plan,
    function: &F,
    tensors: &Tensors<T>,
    slots: *mut [T::Wide; PARTS],
) {
    let (number, thread) = grid::begin(|| {
        let thread = thread::thread_idx_x();
        let tile = u64::from(thread::block_idx_x()) * u64::from(plan.tile);
        let (team, member) = plan.member(thread);
        (tile + u64::from(team), member)
    });
    let exists = number < plan.rows;
    let (columns, team) = (if exists { plan.columns } else { 0 }, plan.team);
    let number = if exists { number } else { 0 };
    let row = tensors.row(plan, number);
    let span = if row.is_alike(plan) && plan.columns as usize >= N {
        Span::of::<T>(row.inputs[0], columns)
    } else {
        Span::of_elements(columns)
    };
    // SAFETY: places of the row, each of one thread; the branches on the team are the same for all threads.
    unsafe {
        let of_row = function.begin(number);
        let mut statistics = F::Statistics::empty();
        let mut vector = thread;
        while vector < span.vectors {
            let place = row.place(span.vector::<T>(vector));
            statistics = RowFunction::take::<N>(function, of_row, statistics, &place);
            vector += team;
        }
        let mut edge = thread;
        while edge < span.edges {
            let place = row.place(span.edge::<T>(edge));
            statistics = RowFunction::take::<1>(function, of_row, statistics, &place);
            edge += team;
        }
        let statistics = reduce(statistics, team, slots);
        let mut of = function.finish(of_row, statistics, number, plan.columns, exists && thread == 0);
        let mut vector = thread;
        while vector < span.vectors {
            RowFunction::map::<N>(function, &mut of, &row.place(span.vector::<T>(vector)));
            vector += team;
        }
        let mut edge = thread;
        while edge < span.edges {
            RowFunction::map::<1>(function, &mut of, &row.place(span.edge::<T>(edge)));
            edge += team;
        }
        function.end(of);
    }
}

/// The statistics of a team, which is some lanes or the whole block.
///
/// # Safety
/// All threads of the block call it; `slots` has one for each warp.
#[inline(always)]
unsafe fn reduce<W: Copy, S: Statistics<W>>(own: S, team: u32, slots: *mut [W; PARTS]) -> S {
    // SAFETY: the caller's contract; a slot is written by one thread before the barrier and read after it.
    unsafe {
        if team <= LANES {
            return own.reduce(team);
        }
        let of_warp = own.reduce(LANES);
        let (warp, lane) = (thread::thread_idx_x() / LANES, thread::thread_idx_x() % LANES);
        if lane == 0 {
            *slots.add(warp as usize) = of_warp.parts();
        }
        thread::sync_threads();
        let slot = *slots.add(lane as usize % WARPS);
        S::from_parts(slot).reduce(WARPS as u32)
    }
}
