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

#[cfg(test)]
mod tests {
    use super::{dropout, philox};

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
