//! The oracle of rotary position embedding.

/// The columns of a head, at a position whose angles have these cosines and sines, one for each pair; the
/// columns behind the pairs stay. `by_neighbours`: columns `2 i` and `2 i + 1` are a pair, not `i` and
/// `i + pairs`.
pub fn rotary(head: &[f64], cosines: &[f64], sines: &[f64], by_neighbours: bool) -> Vec<f64> {
    let mut turned = head.to_vec();
    for (i, (c, s)) in cosines.iter().zip(sines).enumerate() {
        let (a, b) = if by_neighbours { (2 * i, 2 * i + 1) } else { (i, i + cosines.len()) };
        turned[a] = head[a] * c - head[b] * s;
        turned[b] = head[a] * s + head[b] * c;
    }
    turned
}

/// The angle of pair `i` of `pairs` at a position: `position base^(-i / pairs)`.
pub fn angle(position: usize, i: usize, pairs: usize, base: f64) -> f64 {
    position as f64 * base.powf(-(i as f64) / pairs as f64)
}

#[cfg(test)]
mod tests {
    use super::{angle, rotary};

    #[test]
    fn quarter_turns_by_hand() {
        let (c, s) = ([0.0, 1.0], [1.0, 0.0]);
        assert_eq!(rotary(&[1.0, 2.0, 3.0, 4.0, 9.0], &c, &s, false), [-3.0, 2.0, 1.0, 4.0, 9.0]);
        assert_eq!(rotary(&[1.0, 2.0, 3.0, 4.0, 9.0], &c, &s, true), [-2.0, 1.0, 3.0, 4.0, 9.0]);
        assert_eq!((angle(3, 0, 4, 1e4), angle(0, 2, 4, 1e4)), (3.0, 0.0));
        assert!((angle(5, 2, 4, 1e4) - 0.05).abs() < 1e-15);
    }

    #[test]
    fn scores_depend_on_distances_alone() {
        let of = |x: [f64; 2], position| {
            let angle = angle(position, 0, 1, 1e4);
            rotary(&x, &[angle.cos()], &[angle.sin()], true)
        };
        let score = |m, n| of([1.0, 2.0], m).iter().zip(of([3.0, -1.0], n)).map(|(a, b)| a * b).sum::<f64>();
        assert!((score(3, 7) - score(13, 17)).abs() < 1e-12 && (score(3, 7) - score(3, 8)).abs() > 0.1);
    }
}
