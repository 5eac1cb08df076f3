//! The arithmetic of a warpgroup product: operands are widened to f32, and their product is added to the
//! accumulators.
//!
//! Inputs have at most 11 significant bits, so a product of two is exact in f32 (unless it over- or
//! underflows). Each element of D is summed in f32 in the order of k, beginning with the accumulator. Tensor
//! cores sum in their own order and width. So results agree bit for bit where every partial sum is exact, and
//! up to rounding elsewhere.

use layout::wgmma::K_BYTES;
use num::{E4M3, E5M2, bf16, f16, tf32_truncate};

use super::Format;

/// Rows of A and D.
pub(super) const M: usize = 64;
/// Bytes of k of a row of A or a column of B.
pub(super) const ROW_BYTES: usize = K_BYTES as usize;
/// Lanes that share a row of a fragment.
const QUAD: usize = 4;
/// Lanes of a warp, which holds 16 rows: each lane has parts of two rows, 8 apart.
const LANES: usize = 32;
const ROWS_PER_WARP: usize = 16;
const HALF: usize = 8;
/// Rows and columns of D that are computed at a time.
const TILE_M: usize = 4;
const TILE_N: usize = 8;

/// The bytes of k of one row of A or one column of B.
pub(super) type Row = [u8; ROW_BYTES];

/// The values of an 8-bit format.
type Table = [f32; 256];

const fn e4m3_values() -> Table {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = E4M3::from_bits(code as u8).to_f32();
        code += 1;
    }
    values
}

const fn e5m2_values() -> Table {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = E5M2::from_bits(code as u8).to_f32();
        code += 1;
    }
    values
}

static E4M3_VALUES: Table = e4m3_values();
static E5M2_VALUES: Table = e5m2_values();

/// Calls `each` with every element of a row.
fn widen(format: Format, row: &Row, mut each: impl FnMut(usize, f32)) {
    let mut words = |f: fn(u16) -> f32| {
        row.chunks_exact(2).enumerate().for_each(|(k, b)| each(k, f(u16::from_le_bytes([b[0], b[1]]))));
    };
    match format {
        Format::F16 => words(|code| f16::from_bits(code).to_f32()),
        Format::Bf16 => words(|code| bf16::from_bits(code).to_f32()),
        Format::Tf32 => {
            let floats = row.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            floats.enumerate().for_each(|(k, x)| each(k, tf32_truncate(x)));
        }
        Format::E4m3 => row.iter().enumerate().for_each(|(k, &b)| each(k, E4M3_VALUES[usize::from(b)])),
        Format::E5m2 => row.iter().enumerate().for_each(|(k, &b)| each(k, E5M2_VALUES[usize::from(b)])),
    }
}

/// One thread's share of a product.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// Its accumulators, `n / 2` of them.
    pub acc: *mut f32,
    /// Its registers of A, where A is not in shared memory.
    pub a: [u32; 4],
}

/// Rows of A from the registers of all threads, in order: register `r` of a lane holds the bytes `4 t + 16 (r
/// / 2)` on of row `g + 8 (r % 2)` of its warp.
pub(super) fn rows_of_registers(threads: &[Share]) -> [Row; M] {
    let mut rows = [[0; ROW_BYTES]; M];
    for (rank, thread) in threads.iter().enumerate() {
        let (row, t) = (first_row(rank), rank % QUAD);
        for (register, value) in thread.a.iter().enumerate() {
            let at = t * 4 + register / 2 * (ROW_BYTES / 2);
            rows[row + register % 2 * HALF][at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }
    rows
}

/// The first of the two rows of which thread `rank` of a warpgroup holds a part.
fn first_row(rank: usize) -> usize {
    rank / LANES * ROWS_PER_WARP + rank % LANES / QUAD
}

/// Buffers of a product, kept for the next.
#[derive(Default)]
pub(super) struct Scratch {
    /// A in bands of [`TILE_M`] rows, `[band][k][row]`.
    a: Vec<[f32; TILE_M]>,
    /// B in panels of [`TILE_N`] columns, `[panel][k][column]`.
    b: Vec<[f32; TILE_N]>,
}

impl Scratch {
    /// Adds `a b` to the accumulators, or replaces them when `scale_d` is false. `formats` are those of A and
    /// B.
    ///
    /// # Safety
    /// There are 128 threads. Each one's `acc` is valid for reads and writes of `b.len() / 2` elements, and
    /// no other code uses it meanwhile.
    pub unsafe fn multiply(
        &mut self,
        formats: [Format; 2],
        a: &[Row; M],
        b: &[Row],
        scale_d: bool,
        threads: &[Share],
    ) {
        let k = formats[0].k();
        pack(&mut self.a, formats[0], a);
        pack(&mut self.b, formats[1], b);
        for (band, a) in self.a.chunks_exact(k).enumerate() {
            let rows = Rows::of_band(threads, band);
            for (panel, b) in self.b.chunks_exact(k).enumerate() {
                let mut tile = [[0.0; TILE_N]; TILE_M];
                // SAFETY: the caller vouches for the accumulators, of which each panel has four.
                unsafe {
                    if scale_d {
                        rows.load(panel, &mut tile);
                    }
                    add_product(&mut tile, a, b);
                    rows.store(panel, &tile);
                }
            }
        }
    }
}

/// Widens the rows of A or columns of B and lays `WIDTH` of them side by side for each k.
fn pack<const WIDTH: usize>(to: &mut Vec<[f32; WIDTH]>, format: Format, rows: &[Row]) {
    let k = format.k();
    to.resize(rows.len() / WIDTH * k, [0.0; WIDTH]);
    for (rows, to) in rows.chunks_exact(WIDTH).zip(to.chunks_exact_mut(k)) {
        for (place, row) in rows.iter().enumerate() {
            widen(format, row, |k, x| to[k][place] = x);
        }
    }
}

/// `tile += a b`, in the order of k. Small enough for the sums to stay in registers.
fn add_product(tile: &mut [[f32; TILE_N]; TILE_M], a: &[[f32; TILE_M]], b: &[[f32; TILE_N]]) {
    let mut sums = *tile;
    for (a, b) in a.iter().zip(b) {
        for (sums, a) in sums.iter_mut().zip(a) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum += a * b;
            }
        }
    }
    *tile = sums;
}

/// The addresses of the elements of [`TILE_M`] consecutive rows of D: for each row and pair of columns of a
/// panel, the first of two accumulators. Those of the next panel are four elements later.
struct Rows([[*mut f32; QUAD]; TILE_M]);

/// Accumulators that a thread has of a panel: two of each of its rows.
const PER_PANEL: usize = 4;

impl Rows {
    /// Accumulator `4 j + 2 r + c` of a thread is element `(g + 8 r, 8 j + 2 t + c)` of its warp's rows.
    fn of_band(threads: &[Share], band: usize) -> Self {
        let row = |index: usize| band * TILE_M + index;
        Self(std::array::from_fn(|index| {
            let (warp, row) = (row(index) / ROWS_PER_WARP, row(index) % ROWS_PER_WARP);
            let (half, group) = (row / HALF, row % HALF);
            std::array::from_fn(|t| threads[warp * LANES + group * QUAD + t].acc.wrapping_add(2 * half))
        }))
    }

    /// # Safety
    /// The accumulators of panel `panel` are readable, and no other code uses them.
    unsafe fn load(&self, panel: usize, tile: &mut [[f32; TILE_N]; TILE_M]) {
        for (row, tile) in self.0.iter().zip(tile) {
            for (pair, tile) in row.iter().zip(tile.as_chunks_mut::<2>().0) {
                // SAFETY: the caller's word.
                *tile = unsafe { pair.wrapping_add(panel * PER_PANEL).cast::<[f32; 2]>().read() };
            }
        }
    }

    /// # Safety
    /// The accumulators of panel `panel` are writable, and no other code uses them.
    unsafe fn store(&self, panel: usize, tile: &[[f32; TILE_N]; TILE_M]) {
        for (row, tile) in self.0.iter().zip(tile) {
            for (pair, tile) in row.iter().zip(tile.as_chunks::<2>().0) {
                // SAFETY: the caller's word.
                unsafe { pair.wrapping_add(panel * PER_PANEL).cast::<[f32; 2]>().write(*tile) };
            }
        }
    }
}
