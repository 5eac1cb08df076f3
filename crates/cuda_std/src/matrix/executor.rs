//! The executor's moves: each lane moves the row whose address it gave, in one checked 16-byte access; the
//! warp exchanges the elements.
//!
//! The functions that do the work are not generic: those would be compiled with the kernels, slowly and with
//! a callback on each of the executor's own accesses.

const LANES: usize = 32;
/// Rows of a matrix, and elements of a row.
const SIDE: usize = 8;
/// Lanes that share a row of a fragment.
const QUAD: usize = 4;
/// The most matrices that one instruction moves.
const MOST: usize = 4;

/// One row of a matrix: 16 bytes, aligned as the hardware wants them.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct Row([u16; SIDE]);

#[derive(Clone, Copy)]
pub(super) enum Order {
    AsStored,
    Transposed,
}

#[track_caller]
fn pointer(row: u32) -> *mut Row {
    simt::shared::from_address(row).cast()
}

/// The two elements of a matrix that register `m` of `lane` holds, as (row, column) in memory.
fn elements(lane: usize, order: Order) -> [(usize, usize); 2] {
    let (group, first) = (lane / QUAD, lane % QUAD * 2);
    match order {
        Order::AsStored => [(group, first), (group, first + 1)],
        Order::Transposed => [(first, group), (first + 1, group)],
    }
}

/// # Safety
/// As for the function of [`matrix`](super) that is named `op`.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn ldmatrix<const N: usize>(op: &'static str, row: u32, order: Order) -> [u32; N] {
    // SAFETY: the caller's promise.
    let registers = unsafe { load(op, N, row, order) };
    std::array::from_fn(|matrix| registers[matrix])
}

/// # Safety
/// As for the function of [`matrix`](super) that is named `op`.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn stmatrix<const N: usize>(op: &'static str, row: u32, registers: [u32; N], order: Order) {
    let mut all = [0; MOST];
    all[..N].copy_from_slice(&registers);
    // SAFETY: the caller's promise.
    unsafe { store(op, N, row, all, order) }
}

/// # Safety
/// As for the function of [`matrix`](super) that is named `op`, which moves `matrices` matrices.
#[track_caller]
unsafe fn load(op: &'static str, matrices: usize, row: u32, order: Order) -> [u32; MOST] {
    let lane = simt::thread::lane() as usize;
    let mine = if lane < matrices * SIDE {
        // SAFETY: the caller vouches for the address of a lane that counts.
        unsafe { simt::memory::load(pointer(row)) }
    } else {
        Row::default()
    };
    simt::warp::combine(op, mine, |rows: &[Row; LANES]| {
        std::array::from_fn(|lane| {
            let places = elements(lane, order);
            std::array::from_fn(|matrix| {
                let [low, high] = places.map(|(row, column)| rows[matrix * SIDE + row].0[column]);
                u32::from(low) | u32::from(high) << u16::BITS
            })
        })
    })
}

/// # Safety
/// As for the function of [`matrix`](super) that is named `op`, which moves `matrices` matrices.
#[track_caller]
unsafe fn store(op: &'static str, matrices: usize, row: u32, registers: [u32; MOST], order: Order) {
    let mine = simt::warp::combine(op, registers, |all: &[[u32; MOST]; LANES]| {
        let mut rows = [Row::default(); LANES];
        for (lane, registers) in all.iter().enumerate() {
            let [low, high] = elements(lane, order);
            for (matrix, &register) in registers.iter().enumerate() {
                rows[matrix * SIDE + low.0].0[low.1] = register as u16;
                rows[matrix * SIDE + high.0].0[high.1] = (register >> u16::BITS) as u16;
            }
        }
        rows
    });
    if (simt::thread::lane() as usize) < matrices * SIDE {
        // SAFETY: the caller vouches for the address of a lane that counts.
        unsafe { simt::memory::store(pointer(row), mine) }
    }
}
