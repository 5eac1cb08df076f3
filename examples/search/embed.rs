//! Text to vectors: words and their character n-grams, weighted by how rare they are, hashed into `DIM`
//! places (the "hashing trick"; Weinberger et al., "Feature Hashing for Large Scale Multitask Learning",
//! 2009).

use std::collections::HashMap;

use half::f16;
use rayon::prelude::*;

/// Length of an embedding.
pub const DIM: usize = 1024;
/// Lengths of the character n-grams taken from each word (with its boundaries marked).
const NGRAMS: std::ops::RangeInclusive<usize> = 3..=5;
/// Weight of a whole word against one of its n-grams. An exact word should beat a look-alike.
const WORD_WEIGHT: f32 = 3.0;

/// Texts whose features are in memory at once.
const AT_A_TIME: usize = 1024;

type Features = HashMap<u64, f32>;

/// Knows how rare each feature is in a corpus.
pub struct Embedder {
    documents: f32,
    seen_in: HashMap<u64, u32>,
}

impl Embedder {
    /// Counts the features of all passages and embeds them: `texts.len() * DIM` values, row after row.
    pub fn fit(texts: &[&str]) -> (Self, Vec<f16>) {
        let mut seen_in: HashMap<u64, u32> = HashMap::new();
        // Some at a time and twice: the features of a text take a hundred times its size.
        for some in texts.chunks(AT_A_TIME) {
            let features: Vec<Features> = some.par_iter().map(|text| extract(text)).collect();
            for feature in features.iter().flat_map(|f| f.keys()) {
                *seen_in.entry(*feature).or_default() += 1;
            }
        }
        let embedder = Self { documents: texts.len() as f32, seen_in };
        let rows = texts.par_iter().flat_map_iter(|text| embedder.embed(text)).collect();
        (embedder, rows)
    }

    /// Embeds one text: `DIM` values; all zero when the text has no letter or digit.
    pub fn embed(&self, text: &str) -> Vec<f16> {
        self.embed_features(&extract(text))
    }

    /// Inverse document frequency, smoothed: a feature that no passage has weighs most.
    fn rarity(&self, feature: u64) -> f32 {
        let seen = self.seen_in.get(&feature).copied().unwrap_or(0) as f32;
        ((1.0 + self.documents) / (1.0 + seen)).ln()
    }

    fn embed_features(&self, features: &Features) -> Vec<f16> {
        let mut row = vec![0f32; DIM];
        // In a fixed order: float sums depend on it, and so would ties between equal passages.
        let mut sorted: Vec<(u64, f32)> = features.iter().map(|(&f, &count)| (f, count)).collect();
        sorted.sort_unstable_by_key(|(feature, _)| *feature);
        for (feature, count) in sorted {
            let sign = if feature >> 63 == 0 { 1.0 } else { -1.0 };
            row[(feature % DIM as u64) as usize] += sign * (1.0 + count.ln()) * self.rarity(feature);
        }
        // Unit length keeps f16 far from overflow; the kernel normalises again in any case.
        let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt();
        let scale = if norm > 0.0 { norm.recip() } else { 0.0 };
        row.iter().map(|v| f16::from_f32(v * scale)).collect()
    }
}

/// How often each feature occurs in a text. Counts start at 1 (words at `WORD_WEIGHT`).
fn extract(text: &str) -> Features {
    let mut features = Features::new();
    let mut marked = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
        let word = word.to_lowercase();
        *features.entry(hash(0, &word)).or_default() += WORD_WEIGHT;
        marked.clear();
        marked.push('<');
        marked.extend(word.chars());
        marked.push('>');
        for length in NGRAMS {
            for gram in marked.windows(length) {
                let gram: String = gram.iter().collect();
                *features.entry(hash(length as u64, &gram)).or_default() += 1.0;
            }
        }
    }
    features
}

/// FNV-1a with a seed, mixed once more so that the low bits (the place) and the high bit (the sign) are
/// independent.
fn hash(seed: u64, text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let h = text.bytes().fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let h = (h ^ (h >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(a: &[f16], b: &[f16]) -> f32 {
        a.iter().zip(b).map(|(x, y)| x.to_f32() * y.to_f32()).sum()
    }

    #[test]
    fn a_text_is_nearest_to_itself_and_near_to_its_inflections() {
        let texts = [
            "kernels are launched on a stream",
            "the quick brown fox jumps",
            "memory is freed in stream order",
        ];
        let (embedder, rows) = Embedder::fit(&texts);
        let query = embedder.embed("launching a kernel");
        let scores: Vec<f32> = rows.chunks(DIM).map(|row| dot(row, &query)).collect();
        assert!(scores[0] > scores[1] && scores[0] > scores[2], "{scores:?}");
        assert!((dot(&rows[..DIM], &embedder.embed(texts[0])) - 1.0).abs() < 0.01);
    }

    #[test]
    fn embedding_is_repeatable_and_punctuation_alone_is_zero() {
        let (embedder, first) = Embedder::fit(&["a b c", "d e f"]);
        let (_, second) = Embedder::fit(&["a b c", "d e f"]);
        assert_eq!(first, second);
        assert!(embedder.embed("?! ...").iter().all(|v| v.to_f32() == 0.0));
    }
}
