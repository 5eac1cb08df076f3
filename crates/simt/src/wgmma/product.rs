//! The arithmetic of a warpgroup product: operands widened to f32, their product added to the accumulators.
//!
//! Inputs have at most 11 significant bits, so a product of two is exact in f32 (unless it over- or underflows). Each
//! element of D is summed in f32 in the order of k, beginning with the accumulator. Tensor cores sum in an order and
//! with a width of their own, so results agree bit for bit where every partial sum is exact, and to rounding elsewhere.

use layout::wgmma::K_BYTES;
use num::{E4M3, E5M2, bf16, f16, tf32_truncate};

use super::Format;

/// Rows of A and D.
pub(super) const M: usize = 64;
/// Bytes of k of a row of A or a column of B.
pub(super) const ROW_BYTES: usize = K_BYTES as usize;
/// Lanes that share a row of a fragment.
const QUAD: usize = 4;
/// Lanes of a warp, which holds 16 rows: lane by lane two of them, 8 apart.
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

/// Rows of A from the registers of all threads, in order: register `r` of a lane holds the bytes `4 t + 16 (r / 2)` on
/// of row `g + 8 (r % 2)` of its warp.
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
    /// B, `[k][n]`.
    b: Vec<f32>,
    /// D, `[m][n]`.
    d: Vec<f32>,
}

impl Scratch {
    /// Adds `a b` to the accumulators, or replaces them when `scale_d` is false. `formats` are those of A and B.
    ///
    /// # Safety
    /// Each thread's `acc` is valid for reads and writes of `b.len() / 2` elements, and nobody else uses it meanwhile.
    pub unsafe fn multiply(
        &mut self,
        formats: [Format; 2],
        a: &[Row; M],
        b: &[Row],
        scale_d: bool,
        threads: &[Share],
    ) {
        let (n, k) = (b.len(), formats[0].k());
        let mut wide_a = [[0.0; ROW_BYTES]; M];
        for (row, wide) in a.iter().zip(&mut wide_a) {
            widen(formats[0], row, |k, x| wide[k] = x);
        }
        self.b.resize(k * n, 0.0);
        for (column, row) in b.iter().enumerate() {
            widen(formats[1], row, |k, x| self.b[k * n + column] = x);
        }
        self.d.resize(M * n, 0.0);
        if scale_d {
            // SAFETY: the caller vouches for the accumulators.
            unsafe { each_accumulator(threads, n, |acc, at| self.d[at] = *acc) };
        } else {
            self.d.fill(0.0);
        }
        for m in (0..M).step_by(TILE_M) {
            for column in (0..n).step_by(TILE_N) {
                self.add_tile(&wide_a[m..m + TILE_M], k, n, m, column);
            }
        }
        // SAFETY: as above.
        unsafe { each_accumulator(threads, n, |acc, at| *acc = self.d[at]) };
    }

    /// One tile of D, all of k: small enough to stay in registers.
    fn add_tile(&mut self, a: &[[f32; ROW_BYTES]], k: usize, n: usize, m: usize, column: usize) {
        let mut tile = [[0.0; TILE_N]; TILE_M];
        for (row, tile) in tile.iter_mut().enumerate() {
            tile.copy_from_slice(&self.d[(m + row) * n + column..][..TILE_N]);
        }
        for (step, b) in self.b.chunks_exact(n).enumerate().take(k) {
            let b = &b[column..column + TILE_N];
            for (tile, a) in tile.iter_mut().zip(a) {
                for (d, &b) in tile.iter_mut().zip(b) {
                    *d += a[step] * b;
                }
            }
        }
        for (row, tile) in tile.iter().enumerate() {
            self.d[(m + row) * n + column..][..TILE_N].copy_from_slice(tile);
        }
    }
}

/// Calls `each` with every accumulator of every thread, and where its element lies in a row-major D of `n` columns:
/// accumulator `4 j + 2 r + c` of a thread is element `(g + 8 r, 8 j + 2 t + c)` of its warp's rows.
///
/// # Safety
/// Each thread's `acc` is valid for reads and writes of `n / 2` elements, and nobody else uses it meanwhile.
unsafe fn each_accumulator(threads: &[Share], n: usize, mut each: impl FnMut(&mut f32, usize)) {
    for (rank, thread) in threads.iter().enumerate() {
        // SAFETY: the caller vouches for the range.
        let acc = unsafe { std::slice::from_raw_parts_mut(thread.acc, n / 2) };
        let (row, first) = (first_row(rank), rank % QUAD * 2);
        for (j, quad) in acc.chunks_exact_mut(4).enumerate() {
            for (index, acc) in quad.iter_mut().enumerate() {
                each(acc, (row + index / 2 * HALF) * n + j * 8 + first + index % 2);
            }
        }
    }
}
