//! Oracles of norms of channels, group norm and batch norm, and of their gradients. Elements are `[images,
//! channels, positions]`.

use crate::Accumulated;

/// A norm of channels.
#[derive(Clone, Copy, Debug)]
pub struct ChannelNorm<'a> {
    /// Images, channels, and positions of each.
    pub sides: [usize; 3],
    /// Neighbouring channels that are normalised together.
    pub group: usize,
    /// Whether all images are normalised together.
    pub is_joined: bool,
    /// A factor a channel.
    pub weight: Option<&'a [f64]>,
    /// A term a channel.
    pub bias: Option<&'a [f64]>,
    /// Added to the variance before the root.
    pub eps: f64,
}

/// Means and variances of all groups.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// One of each group.
    pub means: Vec<f64>,
    /// The population's.
    pub variances: Vec<f64>,
    /// The mean of the magnitudes: the scale of a mean's errors.
    pub magnitudes: Vec<f64>,
}

/// Gradients of a norm.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// By the elements.
    pub x: Accumulated,
    /// By the weight.
    pub weight: Accumulated,
    /// By the bias.
    pub bias: Accumulated,
}

impl ChannelNorm<'_> {
    /// The group and the channel of an element.
    fn place(&self, element: usize) -> (usize, usize) {
        let [_, channels, positions] = self.sides;
        let (image, channel) = (element / positions / channels, element / positions % channels);
        let of_image = channel / self.group;
        (if self.is_joined { of_image } else { image * (channels / self.group) + of_image }, channel)
    }

    /// For each group the mean of a function of its elements' numbers.
    fn means(&self, of: impl Fn(usize) -> f64) -> Vec<f64> {
        let [images, channels, positions] = self.sides;
        let groups = channels / self.group * if self.is_joined { 1 } else { images };
        let (mut sums, count) = (vec![0.0; groups], images * channels * positions / groups.max(1));
        for element in 0..images * channels * positions {
            sums[self.place(element).0] += of(element);
        }
        sums.into_iter().map(|sum| sum / count as f64).collect()
    }

    /// Those of the elements themselves.
    pub fn statistics(&self, x: &[f64]) -> Statistics {
        let means = self.means(|i| x[i]);
        let variances = self.means(|i| (x[i] - means[self.place(i).0]).powi(2));
        Statistics { variances, magnitudes: self.means(|i| x[i].abs()), means }
    }

    fn weight(&self, channel: usize) -> f64 {
        self.weight.map_or(1.0, |weight| weight[channel])
    }

    /// The norm of `x` by statistics: its own, or others.
    pub fn norm(&self, x: &[f64], by: &Statistics) -> Accumulated {
        let of = |i: usize| {
            let (group, channel) = self.place(i);
            let factor = self.weight(channel) / (by.variances[group] + self.eps).sqrt();
            let bias = self.bias.map_or(0.0, |bias| bias[channel]);
            let size = (x[i].abs() + by.magnitudes[group]) * factor.abs() + bias.abs();
            ((x[i] - by.means[group]) * factor + bias, size)
        };
        let (value, magnitude) = (0..x.len()).map(of).unzip();
        Accumulated { value, magnitude }
    }

    /// The gradients from that by the result. With `is_fixed` the statistics do not depend on `x`.
    pub fn backward(&self, x: &[f64], dy: &[f64], by: &Statistics, is_fixed: bool) -> Gradients {
        let factor = |i: usize| 1.0 / (by.variances[self.place(i).0] + self.eps).sqrt();
        let z = |i: usize| (x[i] - by.means[self.place(i).0]) * factor(i);
        let g = |i: usize| dy[i] * self.weight(self.place(i).1);
        // An error of the mean moves each z.
        let shift = |i: usize| by.magnitudes[self.place(i).0] * factor(i);
        let size_z = |i: usize| x[i].abs() * factor(i) + shift(i);
        let own = |of: Vec<f64>| if is_fixed { vec![0.0; of.len()] } else { of };
        let (of_g, of_zg) = (own(self.means(g)), own(self.means(|i| z(i) * g(i))));
        let (size_g, size_zg) =
            (own(self.means(|i| g(i).abs())), own(self.means(|i| (size_z(i) * g(i)).abs())));
        let by_x = |i: usize| {
            let group = self.place(i).0;
            let size = g(i).abs() + size_g[group] + size_z(i) * (size_zg[group] + shift(i) * size_g[group]);
            ((g(i) - of_g[group] - z(i) * of_zg[group]) * factor(i), size * factor(i))
        };
        let (value, magnitude) = (0..x.len()).map(by_x).unzip();
        let by_channel = |value: &dyn Fn(usize) -> f64, size: &dyn Fn(usize) -> f64| {
            let zeros = vec![0.0; self.sides[1]];
            let mut sums = Accumulated { value: zeros.clone(), magnitude: zeros };
            for i in 0..x.len() {
                sums.value[self.place(i).1] += value(i);
                sums.magnitude[self.place(i).1] += size(i);
            }
            sums
        };
        let weight = by_channel(&|i| dy[i] * z(i), &|i| dy[i].abs() * size_z(i));
        let bias = by_channel(&|i| dy[i], &|i| dy[i].abs());
        Gradients { x: Accumulated { value, magnitude }, weight, bias }
    }
}

#[cfg(test)]
mod tests {
    use super::ChannelNorm;
    use crate::differences::{near, slopes};

    /// Every gradient beside slopes of the forward pass.
    #[test]
    fn gradients_are_slopes() {
        let number = |i: usize| ((i * 7 + 3) % 11) as f64 / 5.0 - 1.0;
        let sides = [2, 4, 3];
        let (x, dy): (Vec<f64>, Vec<f64>) = (0..24).map(|i| (number(i), number(i + 5))).unzip();
        let (weight, bias) = ([0.5, -1.5, 2.0, 0.75], [0.1, 0.2, -0.3, 0.4]);
        for (group, is_joined) in [(1, false), (2, false), (4, false), (1, true)] {
            for is_fixed in [false, true] {
                let norm = ChannelNorm {
                    sides,
                    group,
                    is_joined,
                    weight: Some(&weight),
                    bias: Some(&bias),
                    eps: 1e-3,
                };
                let by = norm.statistics(&x);
                let sum = |norm: ChannelNorm<'_>, x: &[f64]| {
                    let by = if is_fixed { by.clone() } else { norm.statistics(x) };
                    norm.norm(x, &by).value.iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
                };
                let got = norm.backward(&x, &dy, &by, is_fixed);
                near(&got.x.value, &slopes(&x, |x| sum(norm, x)));
                near(
                    &got.weight.value,
                    &slopes(&weight, |of| sum(ChannelNorm { weight: Some(of), ..norm }, &x)),
                );
                near(&got.bias.value, &slopes(&bias, |of| sum(ChannelNorm { bias: Some(of), ..norm }, &x)));
            }
        }
    }

    #[test]
    fn groups_have_mean_zero_and_variance_one() {
        let x: Vec<f64> = (0..24).map(|i| f64::from(i * i % 17)).collect();
        let norm =
            ChannelNorm { sides: [2, 4, 3], group: 2, is_joined: false, weight: None, bias: None, eps: 0.0 };
        let y = norm.norm(&x, &norm.statistics(&x)).value;
        let of = norm.statistics(&y);
        near(&of.means, &[0.0; 4]);
        near(&of.variances, &[1.0; 4]);
        // Two channels of three positions each, one behind the other.
        near(&norm.statistics(&x).means[..1], &[x[..6].iter().sum::<f64>() / 6.0]);
    }
}
