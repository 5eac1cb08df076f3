//! The pass over keys and values: each warp copies its own tiles and multiplies them. [`super`] has the
//! picture.

use cuda_std::warp::{FULL_MASK, sync_warp, warp_vote_any};
use cuda_std::{async_copy, grid, misc, shared, thread, vector};
use layout::{UNIT_BYTES, swizzle_units};
use primitives::pipeline::{CopyPipeline, Warp};
use primitives::shared_plan::SharedType;
use primitives::unroll;
use primitives::warp::LANES;

use super::cache::{Cache, Place, has_new};
use super::config::{Cached, Config, Plan, Stage, THREADS, TILE_KEYS, TILE_ROWS, UNIT, place_of};
use super::problem::{Problem, Row, Span};
use super::results::Outputs;
use super::rotary::{Rotary, partner};
use super::schedule::{Cursor, Share};
use crate::lines::Lines;
use crate::problem::Visible;
use crate::score::{Position, ScoreFunction};
use crate::softmax::{Rows, scale_rows};

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub struct Arguments<'a, C: Config> {
    /// The problem.
    pub problem: Problem<'a>,
    /// Q.
    pub queries: *const u16,
    /// K and V.
    pub cache: Cache<C::Cached>,
    /// How queries and new keys are rotated.
    pub rotary: Rotary,
    /// The results, and what is passed on to [`combine`](super::combine).
    pub outputs: Outputs,
    /// The function that scores go through. Unless it is the identity, `params.scale` is 1.
    pub function: &'a C::Function,
    /// The factor of scores on their way to the function.
    pub score_scale: f32,
}

/// A warp's ring of stages.
type Ring<C> = CopyPipeline<<C as Config>::Stages, Warp>;

/// A warp's scores: of two rows, the columns of two steps of 8.
pub type Scores = [f32; 8];

/// The pass of one block.
///
/// # Safety
/// The arguments are as their types say. The launch has blocks of [`THREADS`] threads
/// along x, with `C::SHARED` bytes of dynamic shared memory.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_, C>) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    // Earlier grids may still write the operands or read the result.
    grid::wait_dependencies();
    grid::launch_dependents();
    // SAFETY: the caller's contract; all threads of the block are here.
    unsafe {
        arguments.outputs.begin();
        let (share, start) = arguments.problem.share();
        let Some(start) = start else { return };
        let thread = thread::thread_idx_x();
        let (warp, lane) = (thread / LANES, thread % LANES);
        Pass::<C> { arguments, shared, share, warp, lane }.run(start);
    }
}

/// A thread of the pass.
#[derive(Clone, Copy)]
pub struct Pass<'a, C: Config> {
    /// The arguments of the launch.
    pub arguments: Arguments<'a, C>,
    /// The block's shared memory.
    pub shared: Plan<C>,
    /// The block's part of the work.
    pub share: Share,
    /// Number of the warp.
    pub warp: u32,
    /// Number in the warp.
    pub lane: u32,
}

/// The keys that the thread's two rows see, and those that all rows see.
struct Bounds {
    rows: [Visible; 2],
    all: Visible,
}

impl<C: Config> Pass<'_, C> {
    /// One item after the other. Copies run ahead of the products, over the ends of items too.
    ///
    /// # Safety
    /// As for [`run`]; all threads of the block call it.
    #[inline(always)]
    unsafe fn run(self, start: Cursor) {
        let problem = self.arguments.problem;
        let (mut ring, mut ahead, mut now) = (Ring::<C>::new(C::RING, Stage::<C>::BYTES), start, start);
        // SAFETY: the caller's contract; a stage is filled when the whole warp has left it.
        unsafe {
            let mut stages = ring.prologue();
            while stages > 0 {
                self.copy_next(&mut ring, &mut ahead);
                stages -= 1;
            }
            while now.left > 0 {
                self.item(&mut ring, &mut ahead, &mut now);
                now.enter_next(problem);
            }
        }
    }

    /// The chunks of one item.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(always)]
    unsafe fn item(self, ring: &mut Ring<C>, ahead: &mut Cursor, now: &mut Cursor) {
        let (params, first) = (self.arguments.problem.params, *now);
        // SAFETY: the caller's contract. Arrays of f32 may be all zero bits.
        unsafe {
            self.load_queries(now);
            // The rows are there, and all threads have read what the item before left in the rings.
            thread::sync_threads();
            let bounds = self.bounds(now);
            let scales = if C::Cached::IS_E4M3 { self.arguments.cache.scales(now.head) } else { [1.0; 2] };
            let mut rows = Rows::new(params.scale);
            let mut result: C::Result = core::mem::zeroed();
            loop {
                let stage = self.ring() + ring.wait();
                self.copy_next(ring, ahead);
                let key = now.key() + self.warp * TILE_KEYS;
                if has_new(params, now, key) {
                    C::Cached::take_in(self, stage, now, key, scales);
                }
                let mut scores = C::Cached::scores(self, stage, scales[0]);
                // In front of the mask, whose minus infinities no function is to change.
                if !C::Function::IS_IDENTITY && key < now.span.end {
                    self.modify(&mut scores, now, key);
                }
                if key < bounds.all.first || key + TILE_KEYS > bounds.all.end {
                    self.mask(&mut scores, &bounds, key);
                }
                let factors = rows.push(&mut scores);
                // Maxima seldom rise.
                if warp_vote_any(FULL_MASK, factors[0] != 1.0 || factors[1] != 1.0) {
                    scale_rows(&mut result, factors);
                }
                C::Cached::add_values(self, stage, &scores, &mut result);
                ring.release();
                now.step();
                if now.is_at_end() || now.left == 0 {
                    break;
                }
            }
            if C::Cached::IS_E4M3 {
                scale_rows(&mut result, [scales[1]; 2]);
            }
            // The stage that was used last is the next to be filled: until then it can hold the results.
            sync_warp(FULL_MASK);
            self.finish(ring.stage_to_load(), &first, now, rows.totals(), &result);
        }
    }

    /// Shared address of the warp's ring.
    #[inline(always)]
    fn ring(self) -> u32 {
        self.shared.ring(self.warp * C::STAGES)
    }

    /// Starts the copies of the next chunk, if there is one, and closes their group.
    ///
    /// # Safety
    /// As for [`run`](Self::run); the warp has left the stage.
    #[inline(always)]
    unsafe fn copy_next(self, ring: &mut Ring<C>, ahead: &mut Cursor) {
        if ahead.left > 0 {
            // SAFETY: the caller's contract.
            unsafe {
                self.copy(self.ring() + ring.stage_to_load(), ahead);
                ahead.step();
                ahead.enter_next(self.arguments.problem);
            }
        }
        ring.commit();
    }

    /// Starts the copies of the warp's keys and values of a chunk. Keys that no query sees, and columns
    /// behind the head's, become zeros.
    ///
    /// # Safety
    /// As for [`copy_next`](Self::copy_next).
    #[inline(always)]
    unsafe fn copy(self, stage: u32, at: &Cursor) {
        let Arguments { problem, cache, .. } = self.arguments;
        let params = problem.params;
        // Else the loop over chunks would keep what follows from it for each line.
        let lane = misc::opaque(self.lane);
        let (row, unit) = (lane / C::CACHE_UNITS, lane % C::CACHE_UNITS);
        let key = at.key() + self.warp * TILE_KEYS;
        let first = unit * C::CACHE_UNIT;
        let line = Line { unit, row, stage, has_column: first < params.head_size, span: at.span };
        let column = [u64::from(first); 2];
        let strides = [params.key_strides.row, params.value_strides.row];
        const { assert!(C::COPIES <= 16, "counted out") };
        // SAFETY: the caller's contract; a key's place is looked for only where it is one of the sequence.
        unsafe {
            if cache.is_whole_tile(params, at, key) {
                let tile = cache.place(params, at, key).on(column);
                let mut place = tile.on(strides.map(|stride| stride * u64::from(row)));
                unroll!(I in 0..16, {
                    if I < C::COPIES as usize {
                        line.copy::<C>(I as u32, key, place);
                        place = place.on(strides.map(|stride| stride * u64::from(C::ROWS)));
                    }
                });
            } else {
                let mut index = 0;
                while index < C::COPIES {
                    let place = cache.source(params, at, key + row + index * C::ROWS).on(column);
                    line.copy::<C>(index, key, place);
                    index += 1;
                }
            }
        }
    }

    /// Copies the rows of queries to shared memory. Those behind the last one repeat it; columns behind the
    /// head's are zeros.
    ///
    /// # Safety
    /// As for [`run`](Self::run); no thread reads the rows that are there any more.
    #[inline(always)]
    unsafe fn load_queries(self, at: &Cursor) {
        let Arguments { problem, queries, rotary, .. } = self.arguments;
        let params = problem.params;
        let mut index = thread::thread_idx_x();
        while index < TILE_ROWS * C::UNITS {
            let (line, unit) = (index / C::UNITS, index % C::UNITS);
            let row = params.row(at.head, self.row(at, line));
            let first = params.query_strides.at(row.query, row.head, at.sequence);
            let place =
                |unit| self.shared.queries() + line * C::ROW_BYTES + swizzle_units(unit, line) * UNIT_BYTES;
            let mut words = [0; 4];
            // SAFETY: a unit of a row of the queries; this thread's place.
            unsafe {
                if unit * UNIT < params.head_size {
                    let load = |unit: u32| {
                        vector::load_v4::<u32>(queries.add(first + (unit * UNIT) as usize).cast())
                    };
                    words = load(unit);
                    // Without keys there is no position, and nothing to multiply.
                    if params.rotated > 0 && at.span.keys > 0 {
                        let position = (at.span.keys + row.query).saturating_sub(params.queries);
                        let other = load(partner(params, unit));
                        words = rotary.turn::<C::Element>(params, position, unit, words, other);
                    }
                }
                if C::Cached::IS_E4M3 {
                    // The order of columns of keys in their registers.
                    let [a, b, c, d] = words;
                    let half = unit % 2 * 8;
                    vector::store_shared_v2(place(unit & !1) + half, [a, c]);
                    vector::store_shared_v2(place(unit | 1) + half, [b, d]);
                } else {
                    vector::store_shared_v4(place(unit), words);
                }
            }
            index += THREADS;
        }
    }

    /// The number of a row of the tile among all rows that share the head of keys. Rows behind the last one
    /// count as the last one.
    #[inline(always)]
    fn row(self, at: &Cursor, line: u32) -> u32 {
        (at.row_tile * TILE_ROWS + line).min(self.arguments.problem.params.rows() - 1)
    }

    /// The bounds for a place in the line.
    #[inline(always)]
    fn bounds(self, at: &Cursor) -> Bounds {
        let params = self.arguments.problem.params;
        let visible = |row: u32| params.visible(at.span.keys, params.row(0, row).query);
        let (top, bottom) = (visible(0), visible(params.rows() - 1));
        Bounds {
            rows: [visible(self.row(at, self.lane / 4)), visible(self.row(at, self.lane / 4 + 8))],
            all: Visible { first: bottom.first, end: top.end },
        }
    }

    /// Where the lane reads rows of queries. Matrices: rows 0.. and 8.., unit 0; then unit 1.
    #[inline(always)]
    pub(super) fn query_lines(self) -> Lines {
        let (line, unit) = (self.lane % 16, self.lane / 16);
        let first = self.shared.queries() + line * C::ROW_BYTES;
        Lines::new(first, swizzle_units(unit, line))
    }

    /// Where it reads keys of a stage. Matrices: keys 0.., unit 0 and unit 1; then keys 8...
    #[inline(always)]
    pub(super) fn key_lines(self, stage: u32) -> Lines {
        lines_of::<C>(stage, self.lane / 16 * 8 + self.lane % 8, self.lane / 8 % 2)
    }

    /// Where it reads values of a stage. Matrices: keys 0.. and 8.., unit 0; then unit 1.
    #[inline(always)]
    pub(super) fn value_lines(self, stage: u32) -> Lines {
        lines_of::<C>(stage + C::TILE_BYTES, self.lane % 16, self.lane / 16)
    }

    /// Applies the score function to the scores of a tile with some key of the span. Rows and keys behind
    /// the last ones have the place of the last ones, so that no function looks beyond what there is.
    #[inline(always)]
    fn modify(self, scores: &mut Scores, at: &Cursor, key: u32) {
        let Arguments { problem: Problem { params, .. }, function, score_scale, .. } = self.arguments;
        // Places are computed here, and not kept beside the results.
        let [lane, keys, batch] = [self.lane, at.span.keys, at.sequence].map(misc::opaque);
        let (key, last_key) = (key + lane % 4 * 2, keys - 1);
        unroll!(HALF in 0..2, {
            let Row { query, head } = params.row(at.head, self.row(at, lane / 4 + 8 * HALF as u32));
            let diagonal = params.band.diagonal(params.queries, keys) + query as i32;
            let distance = (key as i32 - diagonal) as f32;
            let at = |i: u32| {
                let offset = i / 2 * 8 + i % 2;
                let key = (key + offset).min(last_key);
                Position { batch, head, query, key, distance: distance + offset as f32 }
            };
            let place = |i: usize| i / 2 * 4 + 2 * HALF + i % 2;
            let row = [0, 1, 2, 3].map(|i| scores[place(i)] * score_scale);
            let row = function.scores(row, [0, 1, 2, 3].map(at));
            unroll!(I in 0..4, { scores[place(I)] = row[I]; });
        });
    }

    /// Sets the scores of keys that a row does not see to minus infinity.
    #[inline(always)]
    fn mask(self, scores: &mut Scores, bounds: &Bounds, key: u32) {
        let key = key + self.lane % 4 * 2;
        unroll!(I in 0..8, {
            let key = key + (I / 4 * 8 + I % 2) as u32;
            let Visible { first, end } = bounds.rows[I / 2 % 2];
            if key < first || key >= end {
                scores[I] = f32::NEG_INFINITY;
            }
        });
    }
}

/// From unit 0 or 1 of this row of a tile of keys on.
#[inline(always)]
fn lines_of<C: Config>(tile: u32, row: u32, unit: u32) -> Lines {
    let (line, unit) = place_of::<C>(row, unit);
    Lines::new(tile + line, unit)
}

/// The part of a tile that a lane copies: a unit of 16 bytes of every `C::ROWS`-th row.
#[derive(Clone, Copy)]
struct Line {
    unit: u32,
    /// The first row, less than `C::ROWS`.
    row: u32,
    stage: u32,
    /// Whether the unit is one of the head.
    has_column: bool,
    span: Span,
}

impl Line {
    /// Starts the copies of its `index`-th row of a tile that begins at `first_key`, from this place: zeros
    /// where nothing is there, or nothing is seen.
    ///
    /// # Safety
    /// The stage is a warp's own, and left; the place is the key's.
    #[inline(always)]
    unsafe fn copy<C: Config>(self, index: u32, first_key: u32, place: Place<C::Cached>) {
        const { assert!(C::ROWS.is_power_of_two() && C::ROWS <= 8 && C::ROWS >= C::ABREAST) };
        let row = index * C::ROWS;
        let key = first_key + self.row + row;
        let is_seen = key >= self.span.first && key < self.span.end;
        let bytes = if place.is_there && self.has_column && is_seen { UNIT_BYTES } else { 0 };
        // The first row sets other bits of the line than the index: this is `place_of` both of them.
        let (line, unit) = place_of::<C>(self.row, self.unit);
        let on = row / C::ABREAST;
        let to = self.stage + line + on * C::LINE_BYTES + (unit ^ (on % 8)) * UNIT_BYTES;
        // SAFETY: units of the key's rows, or nothing; a place of the stage that is this lane's.
        unsafe {
            async_copy::copy_cg_zfill(to, place.rows[0].cast::<u16>(), bytes);
            async_copy::copy_cg_zfill(to + C::TILE_BYTES, place.rows[1].cast::<u16>(), bytes);
        }
    }
}
