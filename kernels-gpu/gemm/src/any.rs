//! `C = epilogue(A B)` for matrices of any element type, any strides and any alignment, by f32 fused
//! multiply-adds.
//!
//! The kernel for problems that no tensor core takes, and a second opinion for those that one does. A block
//! of 256 threads computes 64 x 64 of `C`, 4 x 4 a thread:
//!
//! ```text
//!               B  [DEPTH][TILE]                for each DEPTH columns of A and rows of B:
//!              +----------------+                 1. every thread reads 8 elements of each, along whichever
//!    A         |                |                    dimension lies contiguous, and widens them to f32
//!  [DEPTH]     |   16 threads   |                 2. barrier, 32 steps of 16 multiply-adds, barrier
//!  [TILE]      | of 4 columns   |               then the sums go to shared memory, where both tiles were, and from there,
//!              +----------------+               element by element, through the epilogue into C
//! ```
//! Tiles in shared memory are f32, `A`'s by columns, so that a thread reads its 4 rows and its 4 columns by
//! one 16-byte load each. Outside of the matrices there are zeros.
//!
//! Each element is one chain of fused multiply-adds over k in ascending order.
//!
//! Limits: sides below 2^31; one block a tile along x, batches along z (a block takes every `gridDim.z`-th).

use crate::element::{Layout, load, store};
use crate::epilogue::{Activation, EpilogueParams, Fast, GroupInputs, Precision};
use core::sync::atomic::Ordering;
use cuda_std::atomic::mid::atomic_fetch_max_u32_device;
use cuda_std::{KernelArgs, fastmath, kernel, shared, shared_array, thread, vector};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Blocks that share a multiprocessor: without a figure ptxas spills to fit eight.
pub(crate) const MIN_BLOCKS: u32 = 4;
/// Rows and columns of `C` of a block.
pub const TILE: u32 = 64;
/// Columns of `A` in shared memory at a time.
pub const DEPTH: u32 = 32;
/// Rows, and columns, of `C` of a thread.
const SQUARE: u32 = 4;
/// Threads beside each other.
const ACROSS: u32 = TILE / SQUARE;
/// Elements of a tile.
const ELEMENTS: u32 = TILE * DEPTH;
/// Bytes of an element in shared memory.
const F32: u32 = size_of::<f32>() as u32;

/// Shape of a product of any strides, and where its operands' elements lie.
#[derive(Debug, Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct StridedGemm {
    /// Rows of A.
    pub m: u32,
    /// Columns of B.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Matrices of each operand.
    pub batch: u32,
    /// A, `[m, k]`.
    pub a: Layout,
    /// B, `[k, n]`.
    pub b: Layout,
    /// C, `[m, n]`, or `[m, n / 2]` with [`Activation::SwiGlu`].
    pub c: Layout,
}

/// Blocks along x for an `m x n` product.
pub const fn tiles(m: u32, n: u32) -> u64 {
    m.div_ceil(TILE) as u64 * n.div_ceil(TILE) as u64
}

/// A 16-byte unit of shared memory.
#[repr(C, align(16))]
struct Unit([f32; SQUARE as usize]);

/// `C = epilogue(A B)`, see [`crate::epilogue`].
///
/// # Safety
/// All that the layouts reach from the pointers is readable, C writable too and apart from all else; the
/// epilogue is as [`EpilogueParams`] says. [`tiles`] blocks along x, at least one along z, of [`THREADS`]
/// threads. With [`Activation::SwiGlu`] `n` is even.
#[kernel(launch_bounds(THREADS, MIN_BLOCKS))]
pub unsafe fn gemm_any(gemm: StridedGemm, epilogue: EpilogueParams, a: *const u8, b: *const u8, c: *mut u8) {
    let StridedGemm { m, batch, .. } = gemm;
    // Blocks that there are have a row; `max` is for the compiler, which sees a division by 0.
    let tiles_down = m.div_ceil(TILE).max(1);
    let (row, column) =
        (thread::block_idx_x() % tiles_down * TILE, thread::block_idx_x() / tiles_down * TILE);
    // SAFETY: the caller's word for the pointers.
    let epilogue = unsafe { Epilogue::new(&gemm, c, &epilogue, GroupInputs::first(&epilogue)) };
    let mut index = thread::block_idx_z();
    while index < batch {
        let part =
            Part { gemm: &gemm, a, b, epilogue, coord: TileCoord { batch: index, row, column }, of_b: index };
        // SAFETY: the caller's contract.
        unsafe { part.compute() };
        index += thread::grid_dim_z();
    }
}

/// A block's part of a product.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub gemm: &'a StridedGemm,
    pub a: *const u8,
    pub b: *const u8,
    pub epilogue: Epilogue<'a>,
    /// Where it begins, and the matrix of A and C.
    pub coord: TileCoord,
    /// The matrix of B.
    pub of_b: u32,
}

impl Part<'_> {
    /// Computes [`TILE`] rows and columns, and stores them.
    ///
    /// # Safety
    /// The block calls it together; the pointers are as [`StridedGemm`] and [`EpilogueParams`] say.
    #[inline(always)]
    pub(crate) unsafe fn compute(self) {
        let Self { gemm, a, b, epilogue, coord, of_b } = self;
        let StridedGemm { n, k, a: a_layout, b: b_layout, .. } = *gemm;
        let m = epilogue.m;
        const { assert!(2 * ELEMENTS == TILE * TILE, "the sums take the place of both tiles") };
        let a_tile = shared::address_of(shared_array![Unit; (TILE * TILE / SQUARE) as usize]);
        let b_tile = a_tile + ELEMENTS * F32;
        let sums = Sums { address: a_tile, rows: TILE, columns: TILE, pitch: TILE, threads: THREADS };
        // A's rows, B's columns: the lines of a tile.
        let a_lines = Lines { base: a, layout: a_layout, first: coord.row, count: m, depth: k };
        let flipped = Layout { row: b_layout.column, column: b_layout.row, ..b_layout };
        let b_lines = Lines { base: b, layout: flipped, first: coord.column, count: n, depth: k };
        let mut square = [[0.0f32; SQUARE as usize]; SQUARE as usize];
        let mut first = 0;
        while first < k {
            // SAFETY: guarded by the matrices' sides; barriers part the writes of the tiles from the reads.
            unsafe {
                a_lines.widen_into(a_tile, coord.batch, first);
                b_lines.widen_into(b_tile, of_b, first);
                thread::sync_threads();
                multiply(&mut square, a_tile, b_tile);
                thread::sync_threads();
            }
            first += DEPTH;
        }
        // SAFETY: the caller's word for the pointers; barriers part the writes of the sums from the reads,
        // and these from the next tiles.
        unsafe {
            stage(&square, a_tile);
            thread::sync_threads();
            epilogue.store(sums, coord);
            thread::sync_threads();
        }
    }
}

/// The number there, 1 where there is none.
///
/// # Safety
/// `pointer` is null or valid for a read.
#[inline(always)]
pub(crate) unsafe fn scale(pointer: *const f32) -> f32 {
    // SAFETY: not null, so one number, by the caller's word.
    if pointer.is_null() { 1.0 } else { unsafe { *pointer } }
}

/// Rows of `A` or columns of `B`: `count` lines of `depth` elements, `first` the block's first.
#[derive(Clone, Copy)]
struct Lines {
    base: *const u8,
    /// `row` is the distance of lines, `column` that of the elements of a line.
    layout: Layout,
    first: u32,
    count: u32,
    depth: u32,
}

impl Lines {
    /// Writes elements `start..start + DEPTH` of the block's lines to the tile at the shared address `tile`,
    /// `[DEPTH][TILE]`.
    ///
    /// # Safety
    /// * `base` is valid for reads of `count` lines of `depth` elements of matrix `batch`.
    /// * `tile` is the shared address of `DEPTH * TILE` floats that no thread reads. All threads of the block
    ///   call it.
    #[inline(always)]
    unsafe fn widen_into(self, tile: u32, batch: u32, start: u32) {
        let Layout { ty, row, column, batch: matrix } = self.layout;
        let along_lines = column <= row;
        for i in 0..ELEMENTS / THREADS {
            let element = thread::thread_idx_x() + i * THREADS;
            let (line, depth) = if along_lines {
                (element / DEPTH, element % DEPTH)
            } else {
                (element % TILE, element / TILE)
            };
            let inside = self.first + line < self.count && start + depth < self.depth;
            let place = u64::from(batch) * matrix
                + u64::from(self.first + line) * row
                + u64::from(start + depth) * column;
            // SAFETY: inside of the matrix, by the caller's word; the place in the tile is this thread's.
            unsafe {
                let value = if inside { load(self.base, ty, place as usize) } else { 0.0 };
                vector::store_shared(tile + (depth * TILE + line) * F32, value);
            }
        }
    }
}

/// Adds the products of the tiles to this thread's square.
///
/// # Safety
/// `a_tile` and `b_tile` are shared addresses of whole tiles, written before the last barrier.
#[inline(always)]
unsafe fn multiply(sums: &mut [[f32; SQUARE as usize]; SQUARE as usize], a_tile: u32, b_tile: u32) {
    let (down, across) = (thread::thread_idx_x() / ACROSS * SQUARE, thread::thread_idx_x() % ACROSS * SQUARE);
    for depth in 0..DEPTH {
        // SAFETY: inside of the tiles.
        let (a, b): ([f32; 4], [f32; 4]) = unsafe {
            (
                vector::load_shared_v4(a_tile + (depth * TILE + down) * F32),
                vector::load_shared_v4(b_tile + (depth * TILE + across) * F32),
            )
        };
        for i in 0..SQUARE as usize {
            for j in 0..SQUARE as usize {
                sums[i][j] = fastmath::fma(a[i], b[j], sums[i][j]);
            }
        }
    }
}

/// Writes this thread's square to the block's sums, `[TILE][TILE]` from the shared address `to` on.
///
/// # Safety
/// `to` is the shared address of `TILE * TILE` floats that no other thread reads before the next barrier.
#[inline(always)]
unsafe fn stage(sums: &[[f32; SQUARE as usize]; SQUARE as usize], to: u32) {
    let (down, across) = (thread::thread_idx_x() / ACROSS * SQUARE, thread::thread_idx_x() % ACROSS * SQUARE);
    for (i, row) in sums.iter().enumerate() {
        // SAFETY: inside of the sums; the place is this thread's.
        unsafe { vector::store_shared_v4(to + ((down + i as u32) * TILE + across) * F32, *row) };
    }
}

/// A block's sums in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    /// Shared address of the first, a multiple of 8.
    pub address: u32,
    pub rows: u32,
    pub columns: u32,
    /// Floats from a row to the next, an even number.
    pub pitch: u32,
    /// Threads that finish them together.
    pub threads: u32,
}

/// Where a block's tile of the product begins.
#[derive(Clone, Copy)]
pub(crate) struct TileCoord {
    pub batch: u32,
    pub row: u32,
    pub column: u32,
}

/// The epilogue: applied to the sums, element by element.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    pub params: &'a EpilogueParams,
    pub bias: *const u8,
    /// Factor of the sums: alpha, with the scales.
    pub alpha: f32,
    /// Factor of what is stored.
    pub scale: f32,
    /// Behind the last row.
    pub m: u32,
    n: u32,
    pub c: *mut u8,
    pub c_layout: Layout,
}

impl<'a> Epilogue<'a> {
    /// # Safety
    /// The pointers are as [`EpilogueParams`] says.
    #[inline(always)]
    pub(crate) unsafe fn new(
        gemm: &StridedGemm,
        c: *mut u8,
        params: &'a EpilogueParams,
        of: GroupInputs,
    ) -> Self {
        let StridedGemm { m, n, c: c_layout, .. } = *gemm;
        // SAFETY: null, or one number.
        let (alpha, scale) =
            unsafe { (params.alpha * scale(of.scale_a) * scale(of.scale_b), scale(params.scale_c)) };
        Epilogue { params, bias: of.bias, alpha, scale, m, n, c, c_layout }
    }

    /// The function of the sums.
    #[inline(always)]
    pub(crate) fn activation(self) -> Activation {
        Activation::from_code(self.params.activation)
    }

    /// Raises `amax`, if there is one, to the number with these bits.
    ///
    /// # Safety
    /// As for [`gemm_any`].
    #[inline(always)]
    pub(crate) unsafe fn raise(self, largest: u32) {
        if !self.params.amax.is_null() && largest > 0 {
            // SAFETY: not null, so one number, by the caller's word.
            unsafe { atomic_fetch_max_u32_device(self.params.amax, Ordering::Relaxed, largest) };
        }
    }

    /// Writes the block's part of C, which begins at `coord` of the product.
    ///
    /// # Safety
    /// The block's threads call it together, behind the barrier after which all sums are there; the pointers
    /// are as [`StridedGemm`] and [`EpilogueParams`] say.
    #[inline(always)]
    pub(crate) unsafe fn store(self, sums: Sums, coord: TileCoord) {
        let TileCoord { batch, row, column } = coord;
        let activation = self.activation();
        let columns = activation.columns();
        // The part inside of C. `max` is for the compiler, which sees a division by 0.
        let rows = sums.rows.min(self.m.saturating_sub(row));
        let width = (sums.columns.min(self.n.saturating_sub(column)) / columns).max(1);
        let mut largest = 0;
        let mut element = thread::thread_idx_x();
        while element < rows * width {
            let (down, across) = (element / width, element % width * columns);
            element += sums.threads;
            let place = Place { batch, row: row + down, column: (column + across) / columns };
            // SAFETY: inside of the sums, of which a pair begins at even columns; inside of the matrices.
            unsafe {
                let sum = sums.address + (down * sums.pitch + across) * F32;
                let bits = match activation {
                    Activation::SwiGlu => {
                        self.finish_pair(vector::load_shared_v2(sum), place, column + across)
                    }
                    one => self.finish(one, vector::load_shared(sum), place),
                };
                largest = if bits > largest { bits } else { largest };
            }
        }
        // SAFETY: the caller's word.
        unsafe { self.raise(largest) };
    }

    /// The bias of a column of the product.
    ///
    /// # Safety
    /// `self.bias` is null or has an element for `column`.
    #[inline(always)]
    unsafe fn bias(self, column: u32) -> f32 {
        if self.bias.is_null() {
            0.0
        } else {
            // SAFETY: not null, so it has an element for the column, by the contract.
            unsafe { load(self.bias, self.params.bias_type, column as usize) }
        }
    }

    /// Writes the element of C that a sum becomes; the bits of its magnitude.
    ///
    /// # Safety
    /// It is inside of C, and no other thread touches it.
    #[inline(always)]
    pub(crate) unsafe fn finish(self, activation: Activation, sum: f32, place: Place) -> u32 {
        let (beta, c) = (self.params.beta, self.c_layout);
        let mut v = self.alpha * sum;
        // SAFETY: inside of C and of the bias.
        unsafe {
            if beta != 0.0 {
                v = fastmath::fma(beta, load(self.c, c.ty, place.within(c)), v);
            }
            self.write(activation.apply::<Fast>(v + self.bias(place.column)), place)
        }
    }

    /// Writes the element of C that the sums of `column` and the next become; the bits of its magnitude.
    /// There is no `beta`.
    ///
    /// # Safety
    /// As for [`Epilogue::finish`].
    #[inline(always)]
    pub(crate) unsafe fn finish_pair(self, sums: [f32; 2], place: Place, column: u32) -> u32 {
        // SAFETY: inside of C and of the bias.
        unsafe {
            let gate = self.alpha * sums[0] + self.bias(column);
            self.write(Fast::swiglu(gate, self.alpha * sums[1] + self.bias(column + 1)), place)
        }
    }

    /// Adds the residual, writes the element, and gives the bits of its magnitude.
    ///
    /// # Safety
    /// `place` is inside of C and, if there is one, of the residual. No other thread touches it.
    #[inline(always)]
    unsafe fn write(self, v: f32, place: Place) -> u32 {
        let EpilogueParams { residual, residual_layout, .. } = *self.params;
        let c = self.c_layout;
        // SAFETY: inside of C and of the residual.
        unsafe {
            let rest = if residual.is_null() {
                0.0
            } else {
                load(residual, residual_layout.ty, place.within(residual_layout))
            };
            let v = v + rest;
            store(self.c, c.ty, place.within(c), v * self.scale);
            // Of non-negative numbers the bits are in the same order; NaN comes last.
            v.to_bits() & (u32::MAX >> 1)
        }
    }
}

/// An element of C.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub batch: u32,
    pub row: u32,
    pub column: u32,
}

impl Place {
    /// Where it lies.
    #[inline(always)]
    pub fn within(self, layout: Layout) -> usize {
        let place = u64::from(self.batch) * layout.batch
            + u64::from(self.row) * layout.row
            + u64::from(self.column) * layout.column;
        place as usize
    }
}
