//! A small all-reduce with what follows it in a transformer: the residual is added, and rows are divided by
//! the root of their mean square.
//!
//! ```text
//!   sum[row]    = residual[row] + input of rank 0 [row] + input of rank 1 [row] + ..       rounded
//!   normed[row] = sum[row] / sqrt(mean of sum[row]^2 + eps) * weight
//! ```
//! Data travel as in [`low_latency`](crate::low_latency). A row has one block, on every rank the same one: so
//! all ranks compute every row, and nothing travels back.

use crate::THREADS;
use crate::low_latency::{Small, gather, send};
use crate::meeting::{Patience, end_epoch, epoch};
use crate::number::{Addend, Format, HALF_BYTES, Operator, combine, from_half, to_half};
use crate::team::{Signals, Team};
use cuda_std::vector::{load_v2, store_v2};
use cuda_std::{grid, kernel, shared, shared_array, thread};
use half::{bf16, f16};
use primitives::block;
use primitives::op::{Number, Sum};
use primitives::unroll;

/// Rows of f32, f16 or bf16.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Rows {
    /// How many.
    pub rows: u32,
    /// Elements of each: whole halves of a unit.
    pub width: u32,
    /// The element type.
    pub format: Format,
    /// Added to the mean square.
    pub eps: f32,
}

/// The buffers of a rank.
#[derive(Clone, Copy)]
struct Buffers {
    input: *const u32,
    residual: *const u32,
    weight: *const u32,
    sums: *mut u32,
    normed: *mut u32,
}

/// Adds up the rows of all ranks and the residual, and norms them; see the module.
///
/// # Safety
/// As for `all_reduce_low_latency`. All buffers have the rows,
/// but for `weight`, which has one, and begin at 8-byte boundaries. The format is one of three; residual and
/// weight are the same on all ranks.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn all_reduce_norm(
    team: Team,
    rows: Rows,
    signals: *mut Signals,
    input: *const u8,
    residual: *const u8,
    weight: *const u8,
    sums: *mut u8,
    normed: *mut u8,
) {
    let buffers = Buffers {
        input: input.cast(),
        residual: residual.cast(),
        weight: weight.cast(),
        sums: sums.cast(),
        normed: normed.cast(),
    };
    let block = thread::block_idx_x();
    grid::wait_dependencies();
    // SAFETY: the caller's promise.
    unsafe {
        let epoch = epoch(&team, signals, block, 0);
        thread::sync_threads();
        end_epoch(&team, signals, block, epoch);
        match rows.format {
            Format::F32 => norm::<f32, 2>(&team, &rows, signals, epoch, buffers),
            Format::F16 => norm::<f16, 4>(&team, &rows, signals, epoch, buffers),
            _ => norm::<bf16, 4>(&team, &rows, signals, epoch, buffers),
        }
    }
}

/// # Safety
/// As for `all_reduce_norm`; elements are `T`s, `N` in a line.
#[inline(always)]
unsafe fn norm<T: Addend<Wide = f32>, const N: usize>(
    team: &Team,
    rows: &Rows,
    signals: *mut Signals,
    epoch: u32,
    at: Buffers,
) {
    const { assert!(N * size_of::<T>() == HALF_BYTES) };
    let slots = shared::generic(shared_array![f32; block::slots(THREADS)]).cast::<f32>();
    let (lines, thread) = (rows.width / N as u32, thread::thread_idx_x());
    let small = Small { count: 0, stride: 0, format: rows.format, operator: Operator::Sum };
    // SAFETY: the caller's promise; a line has one thread, which alone reads what it wrote.
    unsafe {
        let mut row = thread::block_idx_x();
        while row < rows.rows {
            let mut line = thread;
            while line < lines {
                let place = u64::from(row) * u64::from(lines) + u64::from(line);
                send(team, epoch, place, load_v2(at.input.add(2 * place as usize)));
                line += THREADS;
            }
            row += thread::grid_dim_x();
        }
        let mut patience = Patience::NEW;
        let mut row = thread::block_idx_x();
        while row < rows.rows {
            let begin = u64::from(row) * u64::from(lines);
            let (mut squares, mut is_lost, mut line) = (0.0f32, false, thread);
            while line < lines && !is_lost {
                let place = begin + u64::from(line);
                let own = load_v2(at.input.add(2 * place as usize));
                match gather::<T, N>(team, &small, signals, epoch, place, own, &mut patience) {
                    None => is_lost = true,
                    Some(sum) => {
                        let residual = from_half::<T, N>(load_v2(at.residual.add(2 * place as usize)));
                        let sum = T::narrow(combine(Operator::Sum, sum, T::widen(residual)));
                        store_v2(at.sums.add(2 * place as usize), to_half(sum));
                        let sum = T::widen(sum);
                        unroll!(i in 0..4, {
                            if i < N {
                                squares += sum[i] * sum[i];
                            }
                        });
                    }
                }
                line += THREADS;
            }
            // It also keeps the slots of the row before until all have read them.
            if thread::sync_threads_or(is_lost.into()) != 0 {
                return;
            }
            let mean = block::reduce(Sum, squares, slots) / rows.width as f32;
            let root = (mean + rows.eps).root();
            let mut line = thread;
            while line < lines {
                let place = 2 * (begin + u64::from(line)) as usize;
                let mut values = T::widen(from_half::<T, N>(load_v2(at.sums.add(place))));
                let weight = T::widen(from_half::<T, N>(load_v2(at.weight.add(2 * line as usize))));
                unroll!(i in 0..4, {
                    if i < N {
                        values[i] = values[i] / root * weight[i];
                    }
                });
                store_v2(at.normed.add(place), to_half(T::narrow(values)));
                line += THREADS;
            }
            row += thread::grid_dim_x();
        }
    }
}
