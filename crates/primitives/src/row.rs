//! Dense rows by vectors of 16 bytes, whatever their alignment and length.
//!
//! ```text
//!   |head|  vector 0  |  vector 1  | .. |tail|
//!        ^ the first 16-byte boundary   ^ less than a vector
//! ```
//! Thread `t` of `threads` takes the vectors `t, t + threads, ..`, four under way at a time, and then
//! elements of head and tail. One thread alone takes a row element by element.

use crate::access::{self, Plain, VECTOR_BYTES, Words};
use crate::element::Element;
use crate::op::Operation;

/// Vectors that a thread has under way.
pub const UNROLL: usize = 4;

/// A thread's part of a row.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Elements of the row, fewer than 2^32.
    pub len: u64,
    /// This thread.
    pub thread: u64,
    /// Threads that share the row.
    pub threads: u64,
}

/// How a reduction takes in elements: [`read`] calls it, in an order that depends on the row's length and
/// alignment alone.
pub trait Reader<T>: Operation<Self::State> {
    /// The state of the reduction over the elements so far. [`Operation::identity`] is that of none.
    type State: Copy;
    /// Takes in an element, which has this index in the row.
    fn element(self, state: Self::State, value: T, index: u32) -> Self::State;
    /// Takes in a vector of `N` elements, the first of which has the index `first`. A thread's indices rise
    /// from vector to vector.
    fn vector<const N: usize>(self, state: Self::State, words: Words, first: u32) -> Self::State;
    /// Takes in four vectors.
    #[inline(always)]
    fn four_vectors<const N: usize>(
        self,
        state: Self::State,
        [a, b, c, d]: [Words; UNROLL],
        first: [u32; UNROLL],
    ) -> Self::State {
        let state = self.vector::<N>(self.vector::<N>(state, a, first[0]), b, first[1]);
        self.vector::<N>(self.vector::<N>(state, c, first[2]), d, first[3])
    }
}

/// The state of the calling thread's part of the row at `elements`. `N` elements have 16 bytes.
///
/// # Safety
/// `elements` is readable for the row.
#[inline(always)]
pub unsafe fn read<T: Plain, R: Reader<T>, const N: usize>(
    reader: R,
    part: Part,
    elements: *const T,
) -> R::State {
    let mut state = reader.identity();
    let Part { len, thread, threads } = part;
    let head = head(part, elements);
    // A vector has two elements at least, so the indices of vectors, and of those some steps beyond the last,
    // fit in 32 bits.
    const { assert!(N >= 2 && N * size_of::<T>() == VECTOR_BYTES) };
    let (vectors, step) = (((len - head) / N as u64) as u32, threads as u32);
    let ahead = step * (UNROLL as u32 - 1);
    let mut vector = thread as u32;
    // SAFETY: vectors and elements of the row only; vectors begin at a boundary.
    unsafe {
        let body = elements.add(head as usize);
        let load = |vector: u32| access::load_words(body.add(vector as usize * N));
        let index = |vector: u32| (head as u32).wrapping_add(vector.wrapping_mul(N as u32));
        const { assert!(UNROLL == 4) };
        while vector + ahead < vectors {
            let four = [0, 1, 2, 3].map(|i| vector + i * step);
            state = reader.four_vectors::<N>(state, four.map(load), four.map(index));
            vector += UNROLL as u32 * step;
        }
        // At most three are left: all are under way before the first is used.
        let [mut next, mut second, third] = [0, 1, 2].map(|i| {
            let vector = vector + i * step;
            if vector < vectors { load(vector) } else { Words::default() }
        });
        while vector < vectors {
            state = reader.vector::<N>(state, next, index(vector));
            (next, second) = (second, third);
            vector += step;
        }
        let edges = len - u64::from(vectors) * N as u64;
        let mut edge = thread;
        while edge < edges {
            let place = if edge < head { edge } else { edge + u64::from(vectors) * N as u64 };
            state = reader.element(state, *elements.add(place as usize), place as u32);
            edge += threads;
        }
    }
    state
}

/// Elements before the first boundary. A thread that is alone takes all of them one by one.
#[inline(always)]
fn head<T>(part: Part, elements: *const T) -> u64 {
    let to_boundary = (elements as usize).wrapping_neg() % VECTOR_BYTES / size_of::<T>();
    if part.threads == 1 { part.len } else { part.len.min(to_boundary as u64) }
}

/// The function that [`map`] applies to elements. A closure on one element and its index is one.
pub trait Mapper<T: Element> {
    /// The results for `N` neighbours, the first of which has the index `first`, in the wide type.
    fn apply<const N: usize>(&self, x: [T::Wide; N], first: u32) -> [T::Wide; N];
}

impl<T: Element, F: Fn(T::Wide, u32) -> T::Wide> Mapper<T> for F {
    #[inline(always)]
    fn apply<const N: usize>(&self, x: [T::Wide; N], first: u32) -> [T::Wide; N] {
        core::array::from_fn(|i| self(x[i], first + i as u32))
    }
}

/// `y = f(x)` for the calling thread's part of a row, computed in the type that the elements widen to.
///
/// Rows that do not lie alike within 16 bytes are taken element by element. `x` and `y` may be the same.
///
/// # Safety
/// `x` is readable and `y` is writable for the row; other threads touch neither but by the same call; they
/// are the same or do not overlap.
#[inline(always)]
pub unsafe fn map<T: Element, const N: usize>(part: Part, x: *const T, y: *mut T, f: impl Mapper<T>) {
    const { assert!(N >= 2 && N * size_of::<T>() == VECTOR_BYTES) };
    let Part { len, thread, threads } = part;
    let alike = (x as usize ^ y as usize).is_multiple_of(VECTOR_BYTES);
    let head = if alike { head(part, x) } else { len };
    let vectors = (len - head) / N as u64;
    // SAFETY: vectors and elements of the row only; vectors of both begin at a boundary.
    unsafe {
        let mut vector = thread;
        while vector < vectors {
            let first = head + vector * N as u64;
            let values = T::widen(access::load::<T, N>(x.add(first as usize)));
            access::store(y.add(first as usize), T::narrow::<N>(f.apply(values, first as u32)));
            vector += threads;
        }
        let edges = len - vectors * N as u64;
        let mut edge = thread;
        while edge < edges {
            let place = if edge < head { edge } else { edge + vectors * N as u64 };
            let [result] = f.apply(T::widen([*x.add(place as usize)]), place as u32);
            // Two at a time is the least that narrows.
            *y.add(place as usize) = T::narrow([result; 2])[0];
            edge += threads;
        }
    }
}

/// `N` neighbours of a vector that all rows share, a weight or a bias, from the index `first`: one access
/// where they begin at a boundary, else element by element.
///
/// # Safety
/// `shared` is readable for them.
#[inline(always)]
pub unsafe fn shared<T: Element, const N: usize>(shared: *const T, first: u32) -> [T::Wide; N] {
    // SAFETY: the caller's promise; the boundary is looked at.
    unsafe {
        let at = shared.add(first as usize);
        let boundary = (at as usize).is_multiple_of(N * size_of::<T>());
        T::widen(if boundary { access::load::<T, N>(at) } else { core::array::from_fn(|i| *at.add(i)) })
    }
}
