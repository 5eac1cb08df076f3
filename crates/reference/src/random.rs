//! Philox 4x32-10 (Salmon et al. 2011) as its paper writes it, and dropout by it.

/// Ten rounds on a counter of four words with a key of two.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let product = |factor: u64, word: u32| {
            let product = factor * u64::from(word);
            ((product >> 32) as u32, product as u32)
        };
        let (high_0, low_0) = product(0xD251_1F53, counter[0]);
        let (high_1, low_1) = product(0xCD9E_8D57, counter[2]);
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// `x` with the elements 0 whose 16 random bits are below `probability`, a multiple of 2^-16, and the others
/// scaled up. Block `i / 8` of the stream has the bits of element `i`, low halves of words first.
pub fn dropout(x: &[f64], probability: f64, seed: u64, step: u64, call: u32) -> Vec<f64> {
    let key = [seed as u32, (seed >> 32) as u32];
    let element = |(i, &x): (usize, &f64)| {
        let words = philox([(i / 8) as u32, call, step as u32, (step >> 32) as u32], key);
        let half = words[i % 8 / 2] >> (i % 2 * 16) & 0xffff;
        if f64::from(half) / 65536.0 < probability { 0.0 } else { x / (1.0 - probability) }
    };
    x.iter().enumerate().map(element).collect()
}

/// The factor of a weight of attention, of this sequence, head, query and key: 0 if its 16 random bits are
/// below `probability`, a multiple of 2^-16, else one over what is left. A block by the call and the head is
/// key and number of a stream, whose blocks have the bits of two queries, 8 apart, and of two pairs of keys,
/// 8 apart.
pub fn weight_factor(
    probability: f64,
    [seed, step]: [u64; 2],
    call: u32,
    heads: usize,
    [sequence, head, query, key]: [usize; 4],
) -> f64 {
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    let [low, high] = halves(step);
    let of_head = philox([(sequence * heads + head) as u32, call, low, high], halves(seed));
    let (far_query, far_key) = (query / 8 % 2, key / 8 % 2);
    let first = [query - 8 * far_query, key - 8 * far_key - key % 2];
    let counter = [first[0] as u32, first[1] as u32, of_head[2], of_head[3]];
    let words = philox(counter, [of_head[0], of_head[1]]);
    let half = words[key % 2 * 2 + far_query] >> (16 * far_key) & 0xffff;
    if f64::from(half) / 65536.0 < probability { 0.0 } else { 1.0 / (1.0 - probability) }
}

#[cfg(test)]
mod tests {
    use super::{dropout, philox, weight_factor};

    /// Each weight has bits of its own, and as many are dropped as are to be.
    #[test]
    fn weights_are_dropped_at_their_rate() {
        const SIDE: usize = 256;
        let probability = f64::from(0x4ccd) / 65536.0;
        let factor =
            |seed, head, query, key| weight_factor(probability, [seed, 5], 2, 3, [1, head, query, key]);
        let places = || (0..SIDE * SIDE).map(|at| (at / SIDE, at % SIDE));
        let all = (SIDE * SIDE) as f64;
        let deviation = (probability * (1.0 - probability) / all).sqrt();
        let rate = places().filter(|&(query, key)| factor(7, 2, query, key) == 0.0).count() as f64 / all;
        assert!((rate - probability).abs() < 5.0 * deviation, "{rate}");
        // Both of two places are dropped as often as those of independent ones: neighbours, and other heads.
        let both = probability * probability;
        let deviation = (both * (1.0 - both) / all).sqrt();
        for (head, down, right) in [(2, 1, 0), (2, 8, 0), (2, 0, 1), (2, 0, 8), (2, 8, 9), (1, 0, 0)] {
            let pairs = places().filter(|&(query, key)| {
                factor(7, 2, query, key) == 0.0 && factor(7, head, query + down, key + right) == 0.0
            });
            let rate = pairs.count() as f64 / all;
            assert!((rate - both).abs() < 5.0 * deviation, "{rate}: {head}, {down}, {right}");
        }
    }

    #[test]
    fn philox_gives_the_published_words() {
        let pi = philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
        // The same with 0 for the counter and the key: 6627e8d5, e169c58d, bc57ac4c, 9b00dbd8.
        let kept = dropout(&[1.0; 8], f64::from(0xbc57) / 65536.0, 0, 0, 0);
        let scale = 1.0 / (1.0 - f64::from(0xbc57) / 65536.0);
        assert_eq!(kept, [scale, 0.0, scale, scale, 0.0, scale, scale, 0.0]);
    }
}
