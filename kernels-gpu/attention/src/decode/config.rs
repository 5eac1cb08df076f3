//! A kernel's configuration: types, sizes, stages, and the plan of its shared memory.

use core::marker::PhantomData;

use cuda_std::{convert, mma};
use num::{bf16, f16};
use primitives::pipeline::{Depth, StageCount};
use primitives::shared_plan::SharedPlan;
use primitives::warp::LANES;
use primitives::{shared_bytes, shared_plan};

use super::forward::{Pass, Scores};
use super::schedule::Cursor;
use crate::score::ScoreFunction;

/// Warps of a block.
pub const WARPS: u32 = 4;
/// Threads of a block.
pub const THREADS: u32 = WARPS * LANES;
/// Rows of queries that a block multiplies: those of a tile of the tensor cores.
pub const TILE_ROWS: u32 = 16;
/// Keys that a warp takes at a time.
pub const TILE_KEYS: u32 = 16;
/// Keys that a block takes at a time.
pub const CHUNK: u32 = WARPS * TILE_KEYS;
/// Elements of a unit of 16 bytes.
pub const UNIT: u32 = layout::UNIT_BYTES / 2;

/// The element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
}

impl ElementType {
    /// As tables of kernels name it.
    #[cfg(not(target_arch = "nvptx64"))]
    #[must_use]
    pub const fn operand(self) -> cuda_std::wgmma::ElementType {
        match self {
            Self::Bf16 => cuda_std::wgmma::ElementType::Bf16,
            Self::F16 => cuda_std::wgmma::ElementType::F16,
        }
    }
}

/// An element type of queries, keys, values and results.
pub trait Element: Copy + 'static {
    /// Which one.
    const TYPE: ElementType;

    /// 16x8 += 16x16 * 16x8, summed in f32.
    ///
    /// # Safety
    /// As for [`mma`].
    unsafe fn multiply(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];
    /// Rounds two numbers into one register.
    fn pack(low: f32, high: f32) -> u32;
    /// Widens the two numbers of a register.
    fn unpack(register: u32) -> [f32; 2];
}

/// A type of the cache's elements: the bits of an [`Element`], or e4m3.
pub trait Cached: Copy + 'static {
    /// Bytes of an element.
    const BYTES: u32 = size_of::<Self>() as u32;
    /// Whether elements are e4m3, with a scale for each head of keys.
    const IS_E4M3: bool;

    /// `S = Q K^T`, times the scale of the keys.
    ///
    /// # Safety
    /// The whole warp calls it; the stage is full.
    unsafe fn scores<C: Config<Cached = Self>>(pass: Pass<'_, C>, stage: u32, scale: f32) -> Scores;

    /// `O += P V`, without the scale of the values.
    ///
    /// # Safety
    /// As for [`scores`](Self::scores).
    unsafe fn add_values<C: Config<Cached = Self>>(
        pass: Pass<'_, C>,
        stage: u32,
        weights: &Scores,
        result: &mut C::Result,
    );

    /// Rotates the new keys of a tile, and puts them and their values into the stage and the cache.
    ///
    /// # Safety
    /// The whole warp calls it; the stage is full, and holds the tile that begins at `first_key`, of a head
    /// with these scales.
    unsafe fn take_in<C: Config<Cached = Self>>(
        pass: Pass<'_, C>,
        stage: u32,
        at: &Cursor,
        first_key: u32,
        scales: [f32; 2],
    );
}

impl Element for bf16 {
    const TYPE: ElementType = ElementType::Bf16;

    #[inline(always)]
    unsafe fn multiply(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's contract.
        unsafe { mma::m16n8k16_f32_bf16(a, b, c) }
    }

    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        convert::bf16x2_from_f32(low, high)
    }

    #[inline(always)]
    fn unpack(register: u32) -> [f32; 2] {
        convert::bf16x2_to_f32(register)
    }
}

impl Element for f16 {
    const TYPE: ElementType = ElementType::F16;

    #[inline(always)]
    unsafe fn multiply(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's contract.
        unsafe { mma::m16n8k16_f32_f16(a, b, c) }
    }

    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        convert::f16x2_from_f32(low, high)
    }

    #[inline(always)]
    fn unpack(register: u32) -> [f32; 2] {
        convert::f16x2_to_f32(register)
    }
}

/// A kernel. Constants with values follow from the others.
pub trait Config: Copy + 'static {
    /// The element type of queries, results and new keys.
    type Element: Element;
    /// The type of the cache's elements.
    type Cached: Cached;
    /// A thread's results: two of 16 rows, `HEAD` columns.
    type Result: Copy + AsRef<[f32]> + AsMut<[f32]>;
    /// Stages of a warp's ring, all but one of which are under way.
    type Stages: Depth + StageCount;
    /// The function that scores go through.
    type Function: ScoreFunction;
    /// The value of that type.
    const RING: Self::Stages;
    /// Blocks of a multiprocessor, for which there is shared memory on Hopper.
    const RESIDENT: u32;

    /// Stages of a warp's ring.
    const STAGES: u32 = Self::Stages::STAGES;
    /// Largest head size.
    const HEAD: u32 = size_of::<Self::Result>() as u32 / 4 * LANES / TILE_ROWS;
    /// Bytes of a row of queries.
    const ROW_BYTES: u32 = Self::HEAD * 2;
    /// Units of 16 bytes of such a row.
    const UNITS: u32 = Self::HEAD / UNIT;
    /// Bytes of a row of keys, or of values.
    const CACHE_ROW: u32 = Self::HEAD * Self::Cached::BYTES;
    /// Elements of a unit of 16 bytes of such a row.
    const CACHE_UNIT: u32 = layout::UNIT_BYTES / Self::Cached::BYTES;
    /// Units of such a row.
    const CACHE_UNITS: u32 = Self::HEAD / Self::CACHE_UNIT;
    /// Rows beside each other in a line of a tile: two where a row has half of the pattern's eight units.
    const ABREAST: u32 = if Self::CACHE_UNITS < 8 { 8 / Self::CACHE_UNITS } else { 1 };
    /// Bytes of a line of a tile.
    const LINE_BYTES: u32 = Self::ABREAST * Self::CACHE_ROW;
    /// Bytes of a tile of keys, or of values.
    const TILE_BYTES: u32 = TILE_KEYS * Self::CACHE_ROW;
    /// Copies of a thread for a tile.
    const COPIES: u32 = TILE_KEYS * Self::CACHE_UNITS / LANES;
    /// Rows of a tile that a warp copies at a time.
    const ROWS: u32 = LANES / Self::CACHE_UNITS;
    /// Bytes of a warp's results.
    const RESULT_BYTES: u32 = TILE_ROWS * Self::HEAD * 4;
    /// Warps whose results have shared memory of their own, else that of a stage.
    const OWN_RESULTS: u32 = if 2 * Self::TILE_BYTES < Self::RESULT_BYTES { WARPS } else { 0 };
    /// Bytes of shared memory of a block.
    const SHARED: u32 = Plan::<Self>::TOTAL;

    /// Checks that hold for every kernel; named in a `const` block of it.
    const CHECKED: () = {
        assert!(Self::HEAD == 64 || Self::HEAD == 128 || Self::HEAD == 256, "loops are unrolled for these");
        assert!(TILE_ROWS == TILE_KEYS, "tiles of queries and of keys are copied alike");
        assert!(Self::ABREAST * Self::CACHE_UNITS >= 8, "the pattern of units in a tile has eight of a line");
        assert!((Self::SHARED + 1024) * Self::RESIDENT <= 228 * 1024, "shared memory of a multiprocessor");
    };
}

/// A configuration with another score function.
pub struct With<C, F>(PhantomData<(C, F)>);

impl<C, F> Clone for With<C, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C, F> Copy for With<C, F> {}

impl<C: Config, F: ScoreFunction> Config for With<C, F> {
    type Element = C::Element;
    type Cached = C::Cached;
    type Result = C::Result;
    type Stages = C::Stages;
    type Function = F;
    const RING: Self::Stages = C::RING;
    const RESIDENT: u32 = C::RESIDENT;
}

/// Where units of a row of a tile of keys begin in it, and the place of the unit in their pattern.
#[inline(always)]
pub const fn place_of<C: Config>(row: u32, unit: u32) -> (u32, u32) {
    let (line, beside) = (row / C::ABREAST, row % C::ABREAST * C::CACHE_UNITS);
    (line * C::LINE_BYTES, layout::swizzle_units(beside + unit, line))
}

shared_plan! {
    /// The shared memory of a block.
    pub struct Plan<C: Config> {
        /// The warps' rings, one behind the other.
        ring[WARPS * C::STAGES]: Stage<C>,
        /// The warps' results, where no stage can hold them.
        results[C::OWN_RESULTS]: Results<C>,
        /// The rows of queries.
        queries: Tile<C>,
        /// Largest score and sum of each row of each warp: two f32.
        totals[WARPS * TILE_ROWS]: u64,
    }
}

shared_bytes! {
    /// A tile of keys, then one of values; or, between the items, a warp's results, if it can hold them.
    pub struct Stage<C: Config>(2 * C::TILE_BYTES, align 128);
}

shared_bytes! {
    /// 16 rows of f32.
    pub struct Results<C: Config>(C::RESULT_BYTES, align 128);
}

shared_bytes! {
    /// 16 rows of 16-bit elements.
    pub struct Tile<C: Config>(TILE_ROWS * C::ROW_BYTES, align 128);
}
