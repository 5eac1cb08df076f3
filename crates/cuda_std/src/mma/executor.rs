//! The executor's products: each lane widens its own fragment to f32, and the last lane to come computes D
//! for all.

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
pub(super) trait Shape {
    /// Elements of k in the whole product.
    const K: usize;
    /// The lane of a quad that holds element `k`, and the slot it has there.
    fn place(k: usize) -> (usize, usize);
}

/// 16-bit elements, two a register: slots are `2t`, `2t + 1`, then the same 8 further on.
pub(super) struct Packed<const K: usize>;
impl<const K: usize> Shape for Packed<K> {
    const K: usize = K;
    fn place(k: usize) -> (usize, usize) {
        (k % 8 / 2, k / 8 * 2 + k % 2)
    }
}

/// tf32 elements, one a register: slots are `t`, then the same 4 further on.
pub(super) struct Single<const K: usize>;
impl<const K: usize> Shape for Single<K> {
    const K: usize = K;
    fn place(k: usize) -> (usize, usize) {
        (k % QUAD, k / QUAD)
    }
}

/// One lane's elements of A (rows `g` and `g + 8`) and of B (column `g`), each in the order of k, and its
/// part of C.
#[derive(Clone, Copy)]
pub(super) struct Fragment<const SLOTS: usize> {
    pub(super) a: [[f32; SLOTS]; 2],
    pub(super) b: [f32; SLOTS],
    pub(super) c: [f32; 4],
}

/// `[D(g, 2t), D(g, 2t+1), D(g+8, 2t), D(g+8, 2t+1)]`, each summed in the order of k, starting with C.
#[track_caller]
pub(super) fn multiply<S: Shape, const SLOTS: usize>(op: &'static str, mine: Fragment<SLOTS>) -> [f32; 4] {
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

pub(super) fn widen_tf32(register: u32) -> f32 {
    num::tf32_truncate(f32::from_bits(register))
}

pub(super) fn k16(widen: fn(u32) -> [f32; 2], a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> Fragment<4> {
    let join = |first: u32, second: u32| {
        let ([p, q], [r, s]) = (widen(first), widen(second));
        [p, q, r, s]
    };
    Fragment { a: [join(a[0], a[2]), join(a[1], a[3])], b: join(b[0], b[1]), c }
}

pub(super) fn k8(widen: fn(u32) -> [f32; 2], a: [u32; 2], b: u32, c: [f32; 4]) -> Fragment<2> {
    Fragment { a: a.map(widen), b: widen(b), c }
}

pub(super) fn unpack_c(c: [u32; 2]) -> [f32; 4] {
    let ([p, q], [r, s]) = (widen_f16(c[0]), widen_f16(c[1]));
    [p, q, r, s]
}

pub(super) fn pack_d(d: [f32; 4]) -> [u32; 2] {
    let [p, q, r, s] = d.map(f16::from_f32);
    [num::pack_x2([p, q]), num::pack_x2([r, s])]
}
