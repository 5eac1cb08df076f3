//! Dropout of weights: in `P V` some weights are 0, and the others are scaled up (Srivastava et al.,
//! "Dropout: a simple way to prevent neural networks from overfitting", 2014). Sums and log-sum-exps are of
//! all weights.
//!
//! Whether a weight is kept is a function of the generator's seed and step, the call, and the weight's
//! sequence, head, query and key alone. So no mask is kept, and every kernel has the same one. A block of
//! Philox, by the call, the sequence and the head, is the seed and the number of a stream of the head's own.
//! A block of that stream, by a query and a key, has 16 bits for each of eight weights:
//!
//! ```text
//!   queries q, q + 8 with q % 16 < 8, keys k, k + 1, k + 8, k + 9 with k even and k % 16 < 8
//!   word 0: q, keys k and k + 8 | 1: q + 8, the same | 2: q, keys k + 1 and k + 9 | 3: q + 8, the same
//! ```
//! A lane of the forward pass, whose rows are two queries 8 apart, has all eight. One of the backward pass
//! has keys k and k + 8, or those behind them: two lanes draw a block each, and exchange halves.

use cuda_std::KernelArgs;
use cuda_std::misc;
use cuda_std::warp::{FULL_MASK, warp_shuffle_xor};
use primitives::philox::{self, Keys};
use primitives::unroll;

use crate::score::ScoreFunction;

/// Which weights are dropped, and the factor of the others.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Dropout {
    /// The seed and the step of a generator.
    pub state: *const u64,
    /// Which of a step's uses of the generator this is.
    pub call: u32,
    /// Heads of queries of a sequence.
    pub heads: u32,
    /// A weight whose 16 random bits are below is 0.
    pub threshold: u32,
    /// Factor of the others.
    pub scale: f32,
}

/// Scores stay as they are.
impl ScoreFunction for Dropout {
    const IS_IDENTITY: bool = true;

    #[inline(always)]
    fn dropout(&self) -> Option<&Dropout> {
        Some(self)
    }
}

/// Numbers of 16 bits.
const HALVES: u32 = 1 << 16;
/// The top bits of a word's halves.
const TOPS: u32 = 0x8000_8000;

/// The first of a lane's weights.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// The sequence.
    pub batch: u32,
    /// The head of queries.
    pub head: u32,
    /// The query.
    pub query: u32,
    /// The key.
    pub key: u32,
}

impl Dropout {
    /// Which weights of a lane are kept whose rows are two queries, 8 apart, of `steps` times eight keys: a
    /// word for each row. The low half has bits of keys k and k + 1, the high half of k + 8 and k + 9, a bit
    /// for each word of the blocks. The last one is the top bit of its half: at most 16 steps.
    ///
    /// # Safety
    /// The state is readable.
    #[inline(always)]
    pub unsafe fn of_queries(&self, first: First, steps: usize) -> [u32; 2] {
        // SAFETY: the caller's contract.
        let stream = unsafe { self.stream(first) };
        let mut bits = [0; 2];
        // A loop: the numbers of all blocks at once would need as many registers as the scores.
        let (mut pair, end) = (0, misc::opaque(steps as u32 / 2));
        while pair < end {
            let words = stream.block(first.query, first.key + 16 * pair);
            unroll!(I in 0..2, {
                unroll!(ROW in 0..2, {
                    bits[ROW] = bits[ROW] >> 1 & !TOPS | self.kept_halves(words[2 * I + ROW]);
                });
            });
            pair += 1;
        }
        bits
    }

    /// The same of a lane whose rows are two keys, 8 apart, and bits are of queries.
    ///
    /// # Safety
    /// The state is readable. The whole warp calls it: the first lane of eight has the first query and key,
    /// four lanes on there is the next key.
    #[inline(always)]
    pub unsafe fn of_keys(&self, first: First, steps: usize) -> [u32; 2] {
        // SAFETY: the caller's contract.
        let stream = unsafe { self.stream(first) };
        let is_odd = !first.key.is_multiple_of(2);
        let mut bits = [0; 2];
        let (mut pair, end) = (0, misc::opaque(steps as u32 / 2));
        while pair < end {
            // The lane of the even key draws the block of the first query, that of the odd one of the next.
            let query = first.query + 16 * pair + u32::from(is_odd);
            let [a, b, c, d] = stream.block(query, first.key & !1);
            let (own, given) = if is_odd { ([c, d], [a, b]) } else { ([a, b], [c, d]) };
            // SAFETY: the whole warp is here.
            let got = given.map(|word| unsafe { warp_shuffle_xor(FULL_MASK, word, 4, 32).0 });
            let words = if is_odd { [got, own] } else { [own, got] };
            unroll!(I in 0..2, {
                unroll!(FAR in 0..2, {
                    let kept = self.kept(words[I][FAR]);
                    bits[0] |= kept[0] << (2 * FAR + I) << (4 * pair);
                    bits[1] |= kept[1] << (2 * FAR + I) << (4 * pair);
                });
            });
            pair += 1;
        }
        bits
    }

    /// Whether the weights of a word's halves are kept, the low one first: 1 or 0.
    #[inline(always)]
    fn kept(&self, word: u32) -> [u32; 2] {
        [word & 0xffff, word >> 16].map(|half| u32::from(half >= self.threshold))
    }

    /// The same as the top bits of the halves. Both halves are compared at once: with its top bit set, one
    /// has no borrow for the other.
    #[inline(always)]
    fn kept_halves(&self, word: u32) -> u32 {
        if self.threshold >= HALVES {
            return 0;
        }
        let least = self.threshold * (HALVES + 1);
        let below_tops = (word | TOPS).wrapping_sub(least & !TOPS);
        (word & !least | !(word ^ least) & below_tops) & TOPS
    }

    /// The stream of a head.
    ///
    /// # Safety
    /// The state is readable.
    #[inline(always)]
    unsafe fn stream(&self, First { batch, head, .. }: First) -> Stream {
        // SAFETY: the caller's contract.
        let (seed, step) = unsafe { (*self.state, *self.state.add(1)) };
        let counter = u64::from(batch * self.heads + head) | u64::from(self.call) << 32;
        let [a, b, c, d] = philox::words_of(&philox::keys(seed), counter, step);
        let long = |low, high| u64::from(low) | u64::from(high) << 32;
        Stream { keys: philox::keys(long(a, b)), number: long(c, d) }
    }
}

/// The random numbers of a head.
#[derive(Clone, Copy)]
struct Stream {
    keys: Keys,
    number: u64,
}

impl Stream {
    #[inline(always)]
    fn block(&self, query: u32, key: u32) -> [u32; philox::WORDS] {
        philox::words_of(&self.keys, u64::from(query) | u64::from(key) << 32, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::Dropout;

    #[test]
    fn halves_are_compared_as_numbers() {
        for threshold in [0u32, 1, 2, 0x3fff, 0x7fff, 0x8000, 0x8001, 0xc000, 0xfffe, 0xffff, 0x1_0000] {
            let dropout = Dropout { state: core::ptr::null(), call: 0, heads: 1, threshold, scale: 1.0 };
            let near = [threshold.wrapping_sub(1), threshold, threshold + 1].map(|x| x & 0xffff);
            let all = [0, 1, 0x7fff, 0x8000, 0xffff].into_iter().chain(near);
            for low in all.clone() {
                for high in all.clone() {
                    let word = low | high << 16;
                    let want = u32::from(low >= threshold) << 15 | u32::from(high >= threshold) << 31;
                    assert_eq!(dropout.kept_halves(word), want, "{word:#x}, {threshold:#x}");
                    assert_eq!(dropout.kept(word), [want >> 15 & 1, want >> 31]);
                }
            }
        }
    }
}
