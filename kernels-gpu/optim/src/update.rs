//! How a block goes through its chunk.
//!
//! The entry's format picks one of a few bodies, once a block; each is a loop over vectors of `N` elements,
//! with all loads of a turn under way before the first is used. What has no whole, aligned vector goes
//! element by element. The random numbers of an element depend on its place, the tensor's number and the
//! step.

use crate::THREADS;
use crate::step::Step;
use crate::table::{Chunk, Entry, Format};
use cuda_std::{kernel, thread};
use half::{bf16, f16};
use primitives::access;
use primitives::element::{Element, map};
use primitives::grid::begin;
use primitives::philox::{self, HALVES, Keys, WORDS};

/// An optimiser: what it does with one element.
pub trait Rule: Copy {
    /// Moments that it keeps, at most two.
    const MOMENTS: usize;

    /// The new weight and the new moments.
    fn update(
        &self,
        step: &Step,
        decay: f32,
        weight: f32,
        gradient: f32,
        moments: [f32; 2],
    ) -> (f32, [f32; 2]);
}

/// Settings of all tensors of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Model {
    /// Of the random numbers of stochastic rounding.
    pub keys: Keys,
    /// 1 when bf16 parameters without master weights are rounded stochastically, else 0.
    pub is_stochastic: u32,
}

/// Addresses of what an optimiser keeps, of all tensors one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct State<M> {
    /// The moments; those that the rule does not have are not touched.
    pub moments: [*mut M; 2],
    /// The weights of 16-bit parameters in f32; null: the parameters are the weights.
    pub master: *mut f32,
}

/// Numbers of what is rounded: each has random numbers of its own.
pub(crate) const WEIGHT: u64 = 2;

/// An element type that an optimiser reads and writes.
pub trait Stored: Element<Wide = f32> {
    /// Rounds stochastically, where the type is one that is rounded so.
    fn round<const N: usize>(values: [f32; N], random: impl FnOnce() -> [u16; N]) -> [Self; N];
}

macro_rules! rounded_to_nearest {
    ($($ty:ident),*) => { $(
        impl Stored for $ty {
            #[inline(always)]
            fn round<const N: usize>(values: [f32; N], _: impl FnOnce() -> [u16; N]) -> [Self; N] {
                Self::narrow(values)
            }
        }
    )* };
}

rounded_to_nearest!(f32, f16);

impl Stored for bf16 {
    #[inline(always)]
    fn round<const N: usize>(values: [f32; N], random: impl FnOnce() -> [u16; N]) -> [Self; N] {
        let (random, mut rounded) = (random(), [bf16::ZERO; N]);
        for i in 0..N {
            rounded[i] = philox::round_to_bf16(values[i], random[i]);
        }
        rounded
    }
}

/// All that the turns of a block share.
struct Turn<'a, R, M> {
    rule: &'a R,
    model: &'a Model,
    step: Step,
    entry: Entry,
    tensor: u32,
    state: State<M>,
}

/// Updates the calling block's chunk.
///
/// # Safety
/// As for the entry points of [`crate::rules`].
#[inline(always)]
pub unsafe fn update<R: Rule, M: Stored>(
    rule: &R,
    model: &Model,
    tensors: *const Entry,
    chunks: *const Chunk,
    step: *const Step,
    state: State<M>,
) {
    let block = begin(thread::block_idx_x);
    // SAFETY: the caller's promise.
    unsafe {
        let (chunk, mut step) = (*chunks.add(block as usize), *step);
        if step.is_skipped != 0 {
            return;
        }
        let entry = *tensors.add(chunk.tensor as usize);
        step.learning_rate *= entry.rate_factor;
        step.step_size *= entry.rate_factor;
        let turn = Turn { rule, model, step, entry, tensor: chunk.tensor, state };
        if state.master.is_null() {
            turn.of_format::<false>(chunk);
        } else {
            turn.of_format::<true>(chunk);
        }
    }
}

impl<R: Rule, M: Stored> Turn<'_, R, M> {
    /// Whether all that is kept of a 16-bit parameter has 16 bits.
    #[inline(always)]
    fn is_short(has_master: bool) -> bool {
        !has_master && (R::MOMENTS == 0 || size_of::<M>() == size_of::<u16>())
    }

    /// # Safety
    /// As [`update`]; there are master weights when `MASTER`.
    #[inline(always)]
    unsafe fn of_format<const MASTER: bool>(&self, chunk: Chunk) {
        // SAFETY: the caller's promise; the format is the entry's.
        unsafe {
            match self.entry.format {
                // Where anything is f32, 4 elements of it are 16 bytes; twice as many would take registers
                // from other blocks.
                Format::Bf16 if Self::is_short(MASTER) => self.chunk::<bf16, bf16, MASTER, 8>(chunk),
                Format::F16 if Self::is_short(MASTER) => self.chunk::<f16, f16, MASTER, 8>(chunk),
                // An f32 parameter is its own master weight.
                Format::F32 => self.chunk::<f32, f32, false, 4>(chunk),
                Format::F32WithBf16 => self.chunk::<f32, bf16, false, 4>(chunk),
                Format::Bf16 => self.chunk::<bf16, bf16, MASTER, 4>(chunk),
                Format::Bf16WithF32 => self.chunk::<bf16, f32, MASTER, 4>(chunk),
                Format::F16 => self.chunk::<f16, f16, MASTER, 4>(chunk),
                Format::F16WithF32 => self.chunk::<f16, f32, MASTER, 4>(chunk),
            }
        }
    }

    /// # Safety
    /// As above; the parameter's elements are `P`s and the gradient's `G`s.
    #[inline(always)]
    unsafe fn chunk<P: Stored, G: Stored, const MASTER: bool, const N: usize>(&self, chunk: Chunk) {
        let ((start, length), thread) = (chunk.range(&self.entry), thread::thread_idx_x());
        let whole = if self.entry.is_aligned != 0 { length - length % N as u32 } else { 0 };
        // SAFETY: elements of the chunk, each taken by one thread; vectors begin at multiples of N.
        unsafe {
            let mut at = thread * N as u32;
            while at < whole {
                self.elements::<P, G, MASTER, N>(start + u64::from(at));
                at += THREADS * N as u32;
            }
            let mut at = whole + thread;
            while at < length {
                self.elements::<P, G, MASTER, 1>(start + u64::from(at));
                at += THREADS;
            }
        }
    }

    /// Updates `N` elements from `at` on.
    ///
    /// # Safety
    /// As above; they are the calling thread's, and aligned to their size up to 16 bytes.
    #[inline(always)]
    unsafe fn elements<P: Stored, G: Stored, const MASTER: bool, const N: usize>(&self, at: u64) {
        let Turn { rule, model, step, entry, state, .. } = self;
        let kept = (entry.state + at) as usize;
        let parameter = (entry.parameter as *mut P).wrapping_add(at as usize);
        let gradient = (entry.gradient as *const G).wrapping_add(at as usize);
        // SAFETY: the caller's promise.
        unsafe {
            let gradients = access::load::<G, N>(gradient);
            let first = if R::MOMENTS > 0 { access::load(state.moments[0].add(kept)) } else { [M::ZERO; N] };
            let second = if R::MOMENTS > 1 { access::load(state.moments[1].add(kept)) } else { [M::ZERO; N] };
            let mut weights: [f32; N] = if MASTER {
                access::load(state.master.add(kept))
            } else {
                P::widen(access::load::<P, N>(parameter))
            };
            let gradients = map(G::widen(gradients), |g| g * step.gradient_factor);
            let mut moments = [M::widen(first), M::widen(second)];
            for i in 0..N {
                let old = [moments[0][i], moments[1][i]];
                let (weight, new) = rule.update(step, entry.weight_decay, weights[i], gradients[i], old);
                weights[i] = weight;
                (moments[0][i], moments[1][i]) = (new[0], new[1]);
            }
            if R::MOMENTS > 0 {
                access::store(state.moments[0].add(kept), M::round(moments[0], || self.random(0, at)));
            }
            if R::MOMENTS > 1 {
                access::store(state.moments[1].add(kept), M::round(moments[1], || self.random(1, at)));
            }
            if MASTER {
                access::store(state.master.add(kept), weights);
            }
            let rounded = if !MASTER && model.is_stochastic != 0 {
                P::round(weights, || self.random(WEIGHT, at))
            } else {
                P::narrow(weights)
            };
            access::store(parameter, rounded);
        }
    }

    #[inline(always)]
    fn random<const N: usize>(&self, which: u64, at: u64) -> [u16; N] {
        random_halves(self.model, &self.step, self.tensor, which, at)
    }
}

/// Random numbers for the rounding of `N` elements of a tensor from `at` on: the same whatever `N` is.
#[inline(always)]
pub(crate) fn random_halves<const N: usize>(
    model: &Model,
    step: &Step,
    tensor: u32,
    which: u64,
    at: u64,
) -> [u16; N] {
    let halves = philox::halves(random_words(model, step, tensor, which, at));
    let (mut random, first) = ([halves[0]; N], (at % HALVES as u64) as usize);
    // By selections: an index that is no constant would put the array in memory.
    for start in (0..HALVES).step_by(N) {
        if start == first {
            for i in 0..N {
                random[i] = halves[(start + i) % HALVES];
            }
        }
    }
    random
}

/// The block of random numbers of the [`HALVES`] elements that `at` is among.
#[inline(always)]
pub(crate) fn random_words(model: &Model, step: &Step, tensor: u32, which: u64, at: u64) -> [u32; WORDS] {
    let counter = (at / HALVES as u64) | (which << 40) | (u64::from(tensor) << 42);
    philox::words_of(&model.keys, counter, step.steps)
}

/// Copies the parameters of a table, of whatever type, to the master weights.
///
/// # Safety
/// The table's tensors are as its entries say; `master` has the weights of all of them. Blocks of [`THREADS`]
/// threads, one for each chunk.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn copy_to_master(tensors: *const Entry, chunks: *const Chunk, master: *mut f32) {
    let block = begin(thread::block_idx_x);
    // SAFETY: the caller's promise; an element has one thread.
    unsafe {
        let chunk = *chunks.add(block as usize);
        let entry = *tensors.add(chunk.tensor as usize);
        let (start, length) = chunk.range(&entry);
        let mut at = thread::thread_idx_x();
        while at < length {
            let place = (start + u64::from(at)) as usize;
            let [weight] = match entry.format {
                Format::F32 | Format::F32WithBf16 => [*(entry.parameter as *const f32).add(place)],
                Format::Bf16 | Format::Bf16WithF32 => {
                    bf16::widen([*(entry.parameter as *const bf16).add(place)])
                }
                Format::F16 | Format::F16WithF32 => f16::widen([*(entry.parameter as *const f16).add(place)]),
            };
            *master.add(entry.state as usize + place) = weight;
            at += THREADS;
        }
    }
}
