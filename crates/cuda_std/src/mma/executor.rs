//! The executor's products: each lane widens its own fragment to f32, and the last lane to come computes D
//! for all.
//!
//! The functions that the products call are not generic: a generic one would be compiled with the kernels,
//! slowly and with a callback on each of the executor's own accesses.

use half::{bf16, f16};
use num::unpack_x2;

const LANES: usize = 32;
/// Lanes that share a row of A: the `t` of the fragment layouts.
const QUAD: usize = 4;
/// Rows of A and columns of B.
const M: usize = 16;
const N: usize = 8;
/// Elements of k in the largest shape.
const MAX_K: usize = 16;

/// Where the elements of a shape sit in the fragments.
trait Shape {
    /// Elements of k in the whole product.
    const K: usize;
    /// The lane of a quad that holds element `k`, and the slot it has there.
    fn place(k: usize) -> (usize, usize);
}

/// 16-bit elements, two a register: slots are `2t`, `2t + 1`, then the same 8 further on.
struct Packed<const K: usize>;
impl<const K: usize> Shape for Packed<K> {
    const K: usize = K;
    fn place(k: usize) -> (usize, usize) {
        (k % 8 / 2, k / 8 * 2 + k % 2)
    }
}

/// tf32 elements, one a register: slots are `t`, then the same 4 further on.
struct Single<const K: usize>;
impl<const K: usize> Shape for Single<K> {
    const K: usize = K;
    fn place(k: usize) -> (usize, usize) {
        (k % QUAD, k / QUAD)
    }
}

/// One lane's elements of A (rows `g` and `g + 8`) and of B (column `g`), each in the order of k, and its
/// part of C.
#[derive(Clone, Copy)]
struct Fragment<const SLOTS: usize> {
    a: [[f32; SLOTS]; 2],
    b: [f32; SLOTS],
    c: [f32; 4],
}

/// `[D(g, 2t), D(g, 2t+1), D(g+8, 2t), D(g+8, 2t+1)]`, each summed in the order of k, starting with C.
#[track_caller]
fn multiply<S: Shape, const SLOTS: usize>(op: &'static str, mine: Fragment<SLOTS>) -> [f32; 4] {
    simt::warp::combine(op, mine, product::<S, SLOTS>)
}

/// The products of two inputs of at most 11 significant bits are exact in f32; only the sums round.
fn product<S: Shape, const SLOTS: usize>(lanes: &[Fragment<SLOTS>; LANES]) -> [[f32; 4]; LANES] {
    let mut a = [[0.0; MAX_K]; M];
    let mut b = [[0.0; N]; MAX_K];
    for g in 0..N {
        for k in 0..S::K {
            let (t, slot) = S::place(k);
            let owner = &lanes[g * QUAD + t];
            a[g][k] = owner.a[0][slot];
            a[g + N][k] = owner.a[1][slot];
            b[k][g] = owner.b[slot];
        }
    }
    let mut d = [[0.0; N]; M];
    for (row, d) in d.iter_mut().enumerate() {
        for (column, d) in d.iter_mut().enumerate() {
            *d = lanes[row % N * QUAD + column / 2].c[row / N * 2 + column % 2];
        }
        for (&a, b) in a[row].iter().zip(&b).take(S::K) {
            for (d, &b) in d.iter_mut().zip(b) {
                *d += a * b;
            }
        }
    }
    std::array::from_fn(|lane| {
        let (g, column) = (lane / QUAD, lane % QUAD * 2);
        [d[g][column], d[g][column + 1], d[g + N][column], d[g + N][column + 1]]
    })
}

pub(super) fn widen_f16(register: u32) -> [f32; 2] {
    unpack_x2::<f16>(register).map(f16::to_f32)
}

pub(super) fn widen_bf16(register: u32) -> [f32; 2] {
    unpack_x2::<bf16>(register).map(bf16::to_f32)
}

fn widen_tf32(register: u32) -> f32 {
    num::tf32_truncate(f32::from_bits(register))
}

/// m16n8k16 of 16-bit elements.
#[track_caller]
pub(super) fn packed_16(
    op: &'static str,
    widen: fn(u32) -> [f32; 2],
    a: [u32; 4],
    b: [u32; 2],
    c: [f32; 4],
) -> [f32; 4] {
    let join = |first: u32, second: u32| {
        let ([p, q], [r, s]) = (widen(first), widen(second));
        [p, q, r, s]
    };
    let mine = Fragment { a: [join(a[0], a[2]), join(a[1], a[3])], b: join(b[0], b[1]), c };
    multiply::<Packed<16>, 4>(op, mine)
}

/// m16n8k8 of 16-bit elements.
#[track_caller]
pub(super) fn packed_8(
    op: &'static str,
    widen: fn(u32) -> [f32; 2],
    a: [u32; 2],
    b: u32,
    c: [f32; 4],
) -> [f32; 4] {
    multiply::<Packed<8>, 2>(op, Fragment { a: a.map(widen), b: widen(b), c })
}

/// m16n8k8 of tf32 elements.
#[track_caller]
pub(super) fn single_8(op: &'static str, a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
    let [a0, a1, a2, a3] = a.map(widen_tf32);
    let mine = Fragment { a: [[a0, a2], [a1, a3]], b: b.map(widen_tf32), c };
    multiply::<Single<8>, 2>(op, mine)
}

/// m16n8k4 of tf32 elements.
#[track_caller]
pub(super) fn single_4(op: &'static str, a: [u32; 2], b: u32, c: [f32; 4]) -> [f32; 4] {
    let mine = Fragment { a: a.map(|register| [widen_tf32(register)]), b: [widen_tf32(b)], c };
    multiply::<Single<4>, 1>(op, mine)
}

pub(super) fn unpack_c(c: [u32; 2]) -> [f32; 4] {
    let ([p, q], [r, s]) = (widen_f16(c[0]), widen_f16(c[1]));
    [p, q, r, s]
}

pub(super) fn pack_d(d: [f32; 4]) -> [u32; 2] {
    let [p, q, r, s] = d.map(f16::from_f32);
    [num::pack_x2([p, q]), num::pack_x2([r, s])]
}
