//! Seeded order of blocks and threads.

/// Small generator for schedules (SplitMix64).
pub(crate) struct Rng(u64);

impl Rng {
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        rng.next();
        rng
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Number below `n`, which fits 32 bits.
    pub fn below(&mut self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }
}

/// Order of `len` groups: the natural one for seed 0, else `turn -> (turn * step + start) mod len`.
pub(crate) struct Permutation {
    len: u64,
    step: u64,
    start: u64,
}

impl Permutation {
    pub fn new(len: u64, seed: u64) -> Self {
        if seed == 0 || len < 2 {
            return Self { len, step: 1, start: 0 };
        }
        let mut rng = Rng::new(seed, len);
        let start = rng.next() % len;
        let mut step = rng.next() % len;
        while gcd(step, len) != 1 {
            step = (step + 1) % len;
        }
        Self { len, step, start }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn get(&self, turn: u64) -> u64 {
        ((u128::from(turn) * u128::from(self.step) + u128::from(self.start)) % u128::from(self.len)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_one_turn() {
        for len in [1, 2, 3, 7, 64, 1000] {
            for seed in 0..20 {
                let order = Permutation::new(len, seed);
                let mut groups: Vec<_> = (0..len).map(|turn| order.get(turn)).collect();
                assert!(seed != 0 || groups.is_sorted());
                groups.sort();
                assert_eq!(groups, (0..len).collect::<Vec<_>>());
            }
        }
    }
}
