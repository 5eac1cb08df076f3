//! Dropout: some elements are 0, the others are scaled up (Srivastava et al., "Dropout: a simple way to
//! prevent neural networks from overfitting", 2014).
//!
//! Which ones is a function of the seed, the generator's step, the call and the element's place alone
//! ([`primitives::dropout`]). So no mask is kept: the backward pass asks again.

use crate::THREADS;
use cuda_std::{kernel, thread};
use half::{bf16, f16};
use primitives::access::{self, VECTOR_BYTES};
use primitives::dropout::{Mask, Rate, State};
use primitives::element::{Element, map};
use primitives::grid::begin;
use primitives::philox::{self, HALVES};

/// The elements that are dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Dropout {
    /// Elements.
    pub n: u64,
    /// Which of a step's uses of the generator this is.
    pub call: u32,
    /// An element whose 16 random bits are below is 0.
    pub threshold: u32,
    /// Factor of the others.
    pub scale: f32,
    /// 1 when x and y begin at 16-byte boundaries, else 0.
    pub is_aligned: u32,
}

/// Elements of a thread: as many as a block of random words has halves.
const UNIT: u64 = HALVES as u64;

impl Dropout {
    /// Dropout of `n` elements with a probability, which is rounded to a multiple of 2^-16.
    pub fn new(n: u64, call: u32, probability: f64, is_aligned: bool) -> Self {
        let Rate { threshold, scale } = Rate::new(probability);
        Self { n, call, threshold, scale, is_aligned: is_aligned.into() }
    }

    /// Blocks of [`THREADS`] threads.
    pub const fn blocks(&self) -> u64 {
        self.n.div_ceil(UNIT * THREADS as u64)
    }
}

/// The next stream of random numbers. One thread.
///
/// # Safety
/// `state` is readable and writable. One block.
#[kernel(launch_bounds(32))]
pub unsafe fn advance_generator(state: *mut State) {
    if begin(thread::thread_idx_x) == 0 {
        // SAFETY: the caller's promise.
        unsafe { (*state).step += 1 }
    }
}

/// # Safety
/// As the entry points.
#[inline(always)]
unsafe fn drop_out<T: Element<Wide = f32>>(dropout: &Dropout, state: *const State, x: *const T, y: *mut T) {
    let unit =
        begin(|| u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x()));
    let first = unit * UNIT;
    if first >= dropout.n {
        return;
    }
    // SAFETY: the caller's promise, guarded by n.
    unsafe {
        let Dropout { call, threshold, scale, .. } = *dropout;
        let mask = Mask { state: *state, call, rate: Rate { threshold, scale } };
        let random = philox::halves(mask.words(unit as u32));
        let (x, y) = (x.add(first as usize), y.add(first as usize));
        if dropout.is_aligned != 0 && first + UNIT <= dropout.n {
            let values = T::widen(access::load::<T, HALVES>(x));
            let mut results = map(values, |value| value);
            for i in 0..HALVES {
                results[i] = mask.of(values[i], random[i]);
            }
            access::store(y, T::narrow(results));
            return;
        }
        for i in 0..HALVES {
            if first + (i as u64) < dropout.n {
                let [value] = T::widen([*x.add(i)]);
                [*y.add(i)] = T::narrow([mask.of(value, random[i])]);
            }
        }
    }
}

const _: () = assert!(HALVES * size_of::<f32>() == 2 * VECTOR_BYTES);

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("Dropout of ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// `x` and `y` hold the elements, aligned as the parameters say, and overlap nothing; `state` is
        /// readable. Blocks of [`THREADS`] threads, [`Dropout::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(dropout: Dropout, state: *const State, x: *const $ty, y: *mut $ty) {
            // SAFETY: the caller's contract is the same.
            unsafe { drop_out(&dropout, state, x, y) }
        }
    )* };
}

entries! {
    dropout_f32: f32;
    dropout_f16: f16;
    dropout_bf16: bf16;
}
