//! Products of a training step, by an [`Epilogue`] of their own:
//!
//! ```text
//! forward    v = sum + bias[column]      C = activation(v)               v is kept
//! backward   v = sum                     C = v activation'(kept)         columns of C are summed
//! ```
//! The values that are kept are of the kernel's 16-bit type, and go the way of C: in subtiles of 64 columns,
//! by the copy engine, which stores both in turns, or brings what is kept to where C will leave from. Sums of
//! columns are those of f32 results before they are rounded, for each [`SUMMED_ROWS`] rows by one warp, in a
//! fixed order: another launch adds these up.

use cuda_std::tma::TensorMap;
use cuda_std::warp::{FULL_MASK, warp_shuffle_xor};
use cuda_std::wgmma::{BF16, F16, Operand};
use cuda_std::{KernelArgs, kernel, vector};
use primitives::unroll;

use super::column_store::{WIDE_COLUMNS, WIDE_PAIRS, each_wide_pair, subtile_of};
use super::config::{Block, Config, EpiloguePlan, WARPGROUP};
use super::epilogue::{Epilogue, Output, OutputParams, StoreEpilogue, in_result, store_with};
use super::fusion::{Fusion, Pairs, StandardFusion, map_wide};
use super::instances::{Bf16Nn128x128Pp, Bf16Nt128x128Pp, Entry, F16Nn128x128Pp, F16Nt128x128Pp, Kind};
use super::mainloop::{InAccumulators, Maps, run};
use super::operands::{Element16, Operands};
use super::subtile::{Lines, STEP_COLUMNS, Spot};
use super::tile_scheduler::{GemmShape, PersistentScheduler, TileCoord};
use crate::epilogue::{Activation, EpilogueParams, Fast, Visitor};

/// Rows that a sum of a column is of: those of a warp.
pub const SUMMED_ROWS: u32 = 16;
/// Threads of a warp.
const LANES: u32 = 32;
/// Lanes that have elements of the same row.
const ROW_LANES: u32 = 4;

/// The inputs of the training step.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct TrainingParams {
    /// An [`Activation`] of one column.
    pub activation: u32,
    /// The values before the activation, `[m, n]` without gaps, of the kernel's 16-bit type; written, or
    /// read, by their map.
    pub kept: *mut u32,
    /// Sums of columns, `[m / 16 rounded up, n]`, aligned to two; of the gradient.
    pub sums: *mut f32,
}

/// The arguments that a kernel gets by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct TrainingArguments {
    /// The shape of the product; n is a multiple of 8.
    pub shape: GemmShape,
    /// The result, by TMA; of the gradient, what is kept comes by TMA too.
    pub output: OutputParams,
    /// The bias; there is no activation, nor a residual.
    pub epilogue: EpilogueParams,
    /// The values before the activation, and what is done with them.
    pub training: TrainingParams,
}

/// The epilogue, of the gradient or of the activation. `H` is the kernel's 16-bit type.
struct TrainingEpilogue<'a, C: Config, H, const IS_GRADIENT: bool> {
    store: StoreEpilogue<'a, C, StandardFusion<'a, H>>,
    params: &'a TrainingParams,
}

impl<C: Config<EpiloguePlan = EpiloguePlan<C>>, H: Element16, const IS_GRADIENT: bool> Epilogue<C>
    for TrainingEpilogue<'_, C, H, IS_GRADIENT>
{
    #[inline(always)]
    unsafe fn prepare(&mut self, tile: TileCoord) {
        // SAFETY: the caller's contract.
        unsafe { self.store.prepare(tile) }
    }

    #[inline(always)]
    unsafe fn store(&mut self, sums: &C::Stored, tile: TileCoord) {
        // SAFETY: the caller's contract.
        unsafe { if IS_GRADIENT { self.backward(sums, tile) } else { self.forward(sums, tile) } }
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        // SAFETY: the caller's contract.
        unsafe { self.store.finish() }
    }
}

impl<'a, C: Config<EpiloguePlan = EpiloguePlan<C>>, H: Element16, const IS_GRADIENT: bool>
    TrainingEpilogue<'a, C, H, IS_GRADIENT>
{
    /// Subtiles of a consumer's tile, and those of its first 64 rows.
    const ALL: u32 = StoreEpilogue::<'a, C, StandardFusion<'a, H>>::TILE_SUBTILES;
    const ACROSS: u32 = StoreEpilogue::<'a, C, StandardFusion<'a, H>>::SUBTILES;

    /// Stores what the activation gets and what it makes of that, in turns.
    ///
    /// # Safety
    /// As for [`Epilogue::store`].
    #[inline(always)]
    unsafe fn forward(&self, sums: &C::Stored, tile: TileCoord) {
        let (store, mut fusion) = (&self.store, self.store.fusion);
        let place = store.place();
        let (lines, spot) = (Lines::new::<C>(place.thread), Spot::new::<C>(place.thread));
        let activation = Activation::from_code(self.params.activation);
        // SAFETY: this fusion has its inputs from the beginning on: there are no groups to enter.
        let factor = unsafe { fusion.factor() };
        let mut index = 0;
        while index < Self::ALL {
            let (group, column) = (index / Self::ACROSS, index % Self::ACROSS * WIDE_COLUMNS);
            let at = in_result::<C>(tile, group, column);
            let mut x = subtile_of::<C>(sums, index);
            // SAFETY: the whole warpgroup is here, with elements of the product; each store waits for the
            // copy of what was in its place.
            unsafe {
                let vector = place.shared.column_vector(column + spot.column);
                fusion.apply_by_column(factor, vector, &mut x, || [[0.0; 2]; WIDE_PAIRS]);
                store.store_wide::<H>(store.maps.source, place, lines, (2 * index, at), &x);
                activation.visit::<Fast>(Apply(&mut x));
                store.store_wide::<H>(store.maps.c, place, lines, (2 * index + 1, at), &x);
            }
            index += 1;
        }
    }

    /// Multiplies by the derivative of the activation, and stores that and sums of its columns.
    ///
    /// # Safety
    /// As for [`Epilogue::store`].
    #[inline(always)]
    unsafe fn backward(&self, sums: &C::Stored, tile: TileCoord) {
        let store = &self.store;
        let place = store.place();
        let lines = Lines::new::<C>(place.thread);
        let activation = Activation::from_code(self.params.activation);
        let mut index = 0;
        while index < Self::ALL {
            let (group, column) = (index / Self::ACROSS, index % Self::ACROSS * WIDE_COLUMNS);
            let at = in_result::<C>(tile, group, column);
            let subtile = StoreEpilogue::<C, StandardFusion<'a, H>>::subtile(place, index);
            let mut x = subtile_of::<C>(sums, index);
            // SAFETY: the whole warpgroup is here, with elements of the product. The values that are kept
            // have been asked for, and a warp's lines of a subtile are its own.
            unsafe {
                store.wait_source(place, index);
                let kept = lines.read_pairs::<H>(subtile);
                activation.visit_derivative::<Fast>(Multiply(&mut x, &kept));
                lines.write_pairs::<H>(&x, subtile);
                store.load_source_behind(place, tile, index);
                store.copy_subtile(store.maps.c, place, subtile, at);
                self.sum_columns(at, place.thread, &x);
            }
            index += 1;
        }
        // SAFETY: all threads have waited for every subtile.
        unsafe { store.even_out(place) }
    }

    /// Adds up the columns of the warp's rows of the subtile at `at`, and stores the sums. Rows behind the
    /// last one are zeros, or NaN where a weight of the column is not finite: the sum is not finite then.
    ///
    /// # Safety
    /// The whole warp is here; the sums have a place for each column of every 16 rows.
    #[inline(always)]
    unsafe fn sum_columns(&self, at: TileCoord, thread: u32, x: &Pairs<WIDE_PAIRS>) {
        let (lane, warp) = (thread % LANES, thread / LANES);
        let mut sums = [[0.0; 2]; WIDE_PAIRS / 2];
        unroll!(PART in 0..8, {
            let ([a, b], [c, d]) = (x[2 * PART], x[2 * PART + 1]);
            sums[PART] = [a + c, b + d];
        });
        // A lane gives half of its columns to the one that keeps them, until eight lanes have eight steps.
        // SAFETY: the whole warp is here.
        unsafe {
            halve::<4>(&mut sums, lane, 4 * ROW_LANES);
            halve::<2>(&mut sums, lane, 2 * ROW_LANES);
            halve::<1>(&mut sums, lane, ROW_LANES);
        }
        let step = lane / (4 * ROW_LANES) * 4 + lane / (2 * ROW_LANES) % 2 * 2 + lane / ROW_LANES % 2;
        let column = at.column + step * STEP_COLUMNS + lane % ROW_LANES * 2;
        let row = at.row + warp * SUMMED_ROWS;
        let [rows, columns] = self.store.sides(at);
        if row < rows && column < columns {
            let place = u64::from(row / SUMMED_ROWS) * u64::from(columns) + u64::from(column);
            // SAFETY: the caller's contract.
            unsafe { vector::store_v2(self.params.sums.wrapping_add(place as usize), sums[0]) }
        }
    }
}

/// Adds the first `N` of the sums to those of the lane `away`, and keeps them; the lane whose number has the
/// bit does so with the next `N`.
///
/// # Safety
/// The whole warp is here.
#[inline(always)]
unsafe fn halve<const N: usize>(sums: &mut Pairs<{ WIDE_PAIRS / 2 }>, lane: u32, away: u32) {
    let is_upper = lane & away != 0;
    unroll!(INDEX in 0..4, { if INDEX < N {
        let (low, high) = (sums[INDEX], sums[(INDEX + N) % (WIDE_PAIRS / 2)]);
        let (kept, given) = if is_upper { (high, low) } else { (low, high) };
        // SAFETY: the whole warp is here.
        let got = given.map(|given| unsafe { warp_shuffle_xor(FULL_MASK, given, away, LANES).0 });
        sums[INDEX] = [kept[0] + got[0], kept[1] + got[1]];
    } });
}

/// Applies a function to each element.
struct Apply<'x>(&'x mut Pairs<WIDE_PAIRS>);

impl Visitor<f32> for Apply<'_> {
    #[inline(always)]
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        map_wide(self.0, function);
    }
}

/// Multiplies each element by a function of another.
struct Multiply<'x>(&'x mut Pairs<WIDE_PAIRS>, &'x Pairs<WIDE_PAIRS>);

impl Visitor<f32> for Multiply<'_> {
    #[inline(always)]
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        each_wide_pair!(PAIR {
            let (x, [a, b]) = (self.0[PAIR], self.1[PAIR]);
            self.0[PAIR] = [x[0] * function(a), x[1] * function(b)];
        });
    }
}

/// A product with the epilogue.
///
/// # Safety
/// As [`run`], with what the arguments describe.
#[inline(always)]
unsafe fn product<C, const IS_GRADIENT: bool>(maps: Maps, arguments: &TrainingArguments, data: *mut u8)
where
    C: Config<EpiloguePlan = EpiloguePlan<C>, Stored = <C as Config>::Tile>,
{
    const { assert!(C::BY_COLUMN && WARPGROUP / LANES * SUMMED_ROWS == 64, "subtiles of 64 rows and columns") };
    let TrainingArguments { shape, output, epilogue, training } = arguments;
    let output = Output::new(data, output);
    let fusion: StandardFusion<'_, <C::Operands as Operands>::Element16> =
        StandardFusion::new(epilogue, output);
    let scheduler = PersistentScheduler::new::<C>(shape);
    // SAFETY: the caller's contract.
    unsafe {
        let store = store_with(maps, *shape, output, fusion);
        let epilogue = |block: Block<C>, thread| TrainingEpilogue::<C, _, IS_GRADIENT> {
            store: store(block, thread),
            params: training,
        };
        run::<C, _, _, _>(maps, *shape, scheduler, InAccumulators, epilogue);
    }
}

/// Kernels: name, configuration, type.
macro_rules! kernels {
    ($(#[kernel] fn $name:ident: $config:ident, $element:ident, $is_gradient:literal;)*) => {
        $(
            #[doc = concat!("A product of a training step in ", stringify!($element), "; see [`TABLE`].")]
            ///
            /// # Safety
            /// As [`run`] for this configuration and its scheduler; the arguments' pointers are null where
            /// that is allowed, else valid for what the arguments say of them.
            #[kernel(launch_bounds(<$config as Config>::THREADS, 1))]
            pub unsafe fn $name(
                a: &TensorMap,
                b: &TensorMap,
                c: &TensorMap,
                kept: &TensorMap,
                arguments: TrainingArguments,
                data: *mut u8,
            ) {
                // SAFETY: the caller's contract.
                unsafe { product::<$config, $is_gradient>(Maps { a, b, c, source: kept }, &arguments, data) }
            }
        )*

        /// Every kernel: of each type forward, with B as `[n, k]`, and backward, with B as `[k, n]`.
        pub const TABLE: &[Entry] =
            &[$(Entry::of::<$config>(stringify!($name), Kind::Dense, <$element as Operand>::TYPE)),*];
    };
}

// Ping-pong: an epilogue runs beside the other consumer's products.
kernels! {
    #[kernel] fn gemm_training_bf16_nt: Bf16Nt128x128Pp, BF16, false;
    #[kernel] fn gemm_training_bf16_nn: Bf16Nn128x128Pp, BF16, true;
    #[kernel] fn gemm_training_f16_nt: F16Nt128x128Pp, F16, false;
    #[kernel] fn gemm_training_f16_nn: F16Nn128x128Pp, F16, true;
}
