//! Oracles of optimisers: a step of each, element by element, by the formulas of their papers.

/// The weights and the moments of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The weights.
    pub weights: Vec<f64>,
    /// The moments; a rule that has fewer leaves the others alone.
    pub moments: [Vec<f64>; 2],
}

impl State {
    /// With moments of 0.
    pub fn new(weights: Vec<f64>) -> Self {
        let zeros = vec![0.0; weights.len()];
        State { weights, moments: [zeros.clone(), zeros] }
    }
}

/// An optimiser and its numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// Loshchilov and Hutter 2019.
    AdamW {
        /// Decay rates.
        betas: [f64; 2],
        /// Added to the root.
        eps: f64,
    },
    /// Gradient descent.
    Sgd {
        /// Factor of the buffer.
        momentum: f64,
        /// Looks ahead.
        nesterov: bool,
    },
    /// Chen et al. 2023.
    Lion {
        /// Decay rates.
        betas: [f64; 2],
    },
}

impl Rule {
    /// Step number `t`, from 1 on.
    pub fn step(self, t: i32, rate: f64, decay: f64, state: &mut State, gradients: &[f64]) {
        let State { weights, moments: [first, second] } = state;
        for (i, &g) in gradients.iter().enumerate() {
            let (w, m, v) = (weights[i], &mut first[i], &mut second[i]);
            weights[i] = match self {
                Rule::AdamW { betas: [b1, b2], eps } => {
                    *m = b1 * *m + (1.0 - b1) * g;
                    *v = b2 * *v + (1.0 - b2) * g * g;
                    let (mean, square) = (*m / (1.0 - b1.powi(t)), *v / (1.0 - b2.powi(t)));
                    w - rate * decay * w - rate * mean / (square.sqrt() + eps)
                }
                Rule::Sgd { momentum, nesterov } => {
                    let g = g + decay * w;
                    *m = momentum * *m + g;
                    w - rate * if nesterov { g + momentum * *m } else { *m }
                }
                Rule::Lion { betas: [b1, b2] } => {
                    let update = b1 * *m + (1.0 - b1) * g;
                    *m = b2 * *m + (1.0 - b2) * g;
                    let sign = if update == 0.0 { 0.0 } else { update.signum() };
                    w - rate * decay * w - rate * sign
                }
            };
        }
    }
}

/// The numbers of Adafactor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adafactor {
    /// The power of the step's number that is the newest square's weight.
    pub beta2_decay: f64,
    /// The least root of an average square, and the least root mean square of the weights.
    pub eps: [f64; 2],
    /// The largest root mean square of a step.
    pub threshold: f64,
}

/// The averages of squares that Adafactor keeps of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Averages {
    /// Of the rows and of the columns of each matrix of so many rows and columns.
    Factored {
        /// Rows and columns.
        sides: [usize; 2],
        /// Of the rows of all matrices.
        rows: Vec<f64>,
        /// Of the columns of all matrices.
        columns: Vec<f64>,
    },
    /// Of all elements.
    Whole(Vec<f64>),
}

impl Adafactor {
    /// Step number `t`, from 1 on (Shazeer and Stern 2018, algorithms 4 and 5, with PyTorch's least values).
    /// Returns what was subtracted, weight decay left out.
    pub fn step(
        self,
        t: i32,
        rate: f64,
        decay: f64,
        weights: &mut [f64],
        averages: &mut Averages,
        gradients: &[f64],
    ) -> Vec<f64> {
        let newest = f64::from(t).powf(self.beta2_decay);
        let blend = |old: &mut f64, new: f64| *old = (1.0 - newest) * *old + newest * new;
        let squares: Vec<f64> = gradients.iter().map(|g| g * g).collect();
        let estimate: Vec<f64> = match averages {
            Averages::Whole(kept) => {
                kept.iter_mut().zip(&squares).for_each(|(old, new)| blend(old, *new));
                kept.clone()
            }
            Averages::Factored { sides: [height, width], rows, columns } => {
                let (height, width) = (*height, *width);
                for (k, matrix) in squares.chunks((height * width).max(1)).enumerate() {
                    for i in 0..height {
                        let mean = matrix[i * width..][..width].iter().sum::<f64>() / width as f64;
                        blend(&mut rows[k * height + i], mean);
                    }
                    for j in 0..width {
                        let mean = (0..height).map(|i| matrix[i * width + j]).sum::<f64>() / height as f64;
                        blend(&mut columns[k * width + j], mean);
                    }
                }
                let of = |place: usize| {
                    let (k, i, j) = (place / (height * width), place / width % height, place % width);
                    let rows = &rows[k * height..][..height];
                    let mean = rows.iter().sum::<f64>() / height as f64;
                    rows[i] * columns[k * width + j] / mean.max(self.eps[0])
                };
                (0..squares.len()).map(of).collect()
            }
        };
        let least = self.eps[0] * self.eps[0];
        let mut step: Vec<f64> =
            gradients.iter().zip(&estimate).map(|(g, v)| g / v.max(least).sqrt()).collect();
        let mean_root = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len().max(1) as f64).sqrt();
        let length = mean_root(weights).max(self.eps[1]) * rate.min(1.0 / f64::from(t).sqrt());
        let length = length / (mean_root(&step) / self.threshold).max(1.0);
        for (w, u) in weights.iter_mut().zip(&mut step) {
            *u *= length;
            *w -= rate * decay * *w + *u;
        }
        step
    }
}

/// The numbers of Muon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Muon {
    /// Decay rate of the average.
    pub momentum: f64,
    /// Looks ahead.
    pub nesterov: bool,
    /// Iterations of Newton-Schulz.
    pub iterations: usize,
    /// Length of a step over the learning rate.
    pub scale: f64,
}

impl Muon {
    /// A step of a matrix of `columns` columns (Jordan et al. 2024). Returns what was subtracted, over
    /// the learning rate and the scale: nearly orthogonal.
    pub fn step(
        self,
        columns: usize,
        rate: f64,
        decay: f64,
        state: &mut State,
        gradients: &[f64],
    ) -> Vec<f64> {
        let State { weights, moments: [average, _] } = state;
        let mut direction = Vec::with_capacity(gradients.len());
        for (m, g) in average.iter_mut().zip(gradients) {
            *m = self.momentum * *m + (1.0 - self.momentum) * g;
            direction.push(if self.nesterov { (1.0 - self.momentum) * g + self.momentum * *m } else { *m });
        }
        let length = norm(std::slice::from_ref(&direction)).max(1e-7);
        let mut x = Matrix { columns, values: direction.iter().map(|d| d / length).collect() };
        for _ in 0..self.iterations {
            // By columns, whichever side is the shorter: both orders are the same polynomial.
            let square = x.transposed().times(&x);
            let fourth = square.times(&square);
            let pairs = square.values.iter().zip(&fourth.values);
            let values = pairs.map(|(s, f)| -4.7750 * s + 2.0315 * f).collect();
            let added = x.times(&Matrix { columns, values });
            x.values.iter_mut().zip(added.values).for_each(|(x, added)| *x = 3.4445 * *x + added);
        }
        for (w, x) in weights.iter_mut().zip(&x.values) {
            *w -= rate * decay * *w + rate * self.scale * x;
        }
        x.values
    }
}

/// Row by row.
struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    fn transposed(&self) -> Matrix {
        let values = (0..self.columns)
            .flat_map(|j| (0..self.rows()).map(move |i| (i, j)))
            .map(|(i, j)| self.values[i * self.columns + j])
            .collect();
        Matrix { columns: self.rows(), values }
    }

    fn times(&self, other: &Matrix) -> Matrix {
        let mut values = vec![0.0; self.rows() * other.columns];
        for i in 0..self.rows() {
            for k in 0..self.columns {
                for j in 0..other.columns {
                    values[i * other.columns + j] +=
                        self.values[i * self.columns + k] * other.values[k * other.columns + j];
                }
            }
        }
        Matrix { columns: other.columns, values }
    }
}

/// The 2-norm of all tensors together.
pub fn norm(tensors: &[Vec<f64>]) -> f64 {
    tensors.iter().flatten().map(|x| x * x).sum::<f64>().sqrt()
}

/// The factor that brings a norm of gradients down to `max_norm`.
pub fn clip_factor(norm: f64, max_norm: f64) -> f64 {
    (max_norm / (norm + 1e-6)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::{Adafactor, Averages, Matrix, Muon, Rule, State, clip_factor, norm};

    #[test]
    fn steps_by_hand() {
        let mut state = State::new(vec![1.0]);
        Rule::Sgd { momentum: 0.5, nesterov: false }.step(1, 0.1, 0.0, &mut state, &[2.0]);
        assert_eq!((state.weights[0], state.moments[0][0]), (0.8, 2.0));
        Rule::Sgd { momentum: 0.5, nesterov: true }.step(2, 0.1, 0.0, &mut state, &[0.0]);
        assert!((state.weights[0] - 0.75).abs() < 1e-15 && state.moments[0][0] == 1.0);
        // The first step of Adam has the length of the rate, whatever the gradient.
        let mut state = State::new(vec![1.0, 1.0]);
        Rule::AdamW { betas: [0.9, 0.999], eps: 0.0 }.step(1, 0.1, 0.5, &mut state, &[1e-3, -40.0]);
        assert!((state.weights[0] - 0.85).abs() < 1e-12 && (state.weights[1] - 1.05).abs() < 1e-12);
        let mut state = State::new(vec![1.0, 1.0, 1.0]);
        Rule::Lion { betas: [0.9, 0.99] }.step(1, 0.25, 0.0, &mut state, &[3.0, -7.0, 0.0]);
        assert_eq!(state.weights, [0.75, 1.25, 1.0]);
    }

    #[test]
    fn adafactor_by_hand() {
        let adafactor = Adafactor { beta2_decay: -0.5, eps: [0.0, 1e-3], threshold: 1.0 };
        // A gradient of rank one has its squares as the product of the factors: steps of one length.
        let (mut weights, mut averages) = (
            vec![3.0, -3.0, 3.0, 3.0],
            Averages::Factored { sides: [2, 2], rows: vec![0.0; 2], columns: vec![0.0; 2] },
        );
        let step = adafactor.step(1, 0.5, 0.0, &mut weights, &mut averages, &[1.0, -2.0, 3.0, 6.0]);
        let want = Averages::Factored { sides: [2, 2], rows: vec![2.5, 22.5], columns: vec![5.0, 20.0] };
        assert_eq!(averages, want);
        assert!(step.iter().zip([1.5, -1.5, 1.5, 1.5]).all(|(got, want)| (got - want).abs() < 1e-12));
        assert!((weights[0] - 1.5).abs() < 1e-12 && (weights[1] + 1.5).abs() < 1e-12);
        // Step 4 takes the newest square for half of the average, and at most half of the weights' size.
        let (mut weights, mut averages) = (vec![2.0], Averages::Whole(vec![2.0]));
        let step = adafactor.step(4, 1.0, 0.25, &mut weights, &mut averages, &[4.0]);
        assert_eq!(averages, Averages::Whole(vec![9.0]));
        // 4 over 3 is clipped to 1.
        assert!((step[0] - 1.0).abs() < 1e-12 && (weights[0] - 0.5).abs() < 1e-12, "{step:?} {weights:?}");
    }

    #[test]
    fn muon_makes_directions_orthogonal() {
        let muon = Muon { momentum: 0.5, nesterov: false, iterations: 5, scale: 2.0 };
        // Singular values 3 and 4 become 1 within what the polynomial leaves of them.
        let mut state = State::new(vec![0.0; 6]);
        let x = muon.step(3, 0.5, 0.0, &mut state, &[0.0, 6.0, 0.0, 0.0, 0.0, -8.0]);
        assert_eq!(state.moments[0], [0.0, 3.0, 0.0, 0.0, 0.0, -4.0]);
        assert!((0.7..1.3).contains(&x[1]) && (-1.3..-0.7).contains(&x[5]), "{x:?}");
        assert_eq!([x[0], x[2], x[3], x[4]], [0.0; 4]);
        assert!(state.weights.iter().zip(&x).all(|(w, x)| (w + x).abs() < 1e-15));
        // A wide matrix and its transpose take the same step.
        let g: Vec<f64> = (0..12).map(|i| f64::from(i * i % 7) - 2.0).collect();
        let (mut wide, mut tall) = (State::new(vec![1.0; 12]), State::new(vec![1.0; 12]));
        let wide = muon.step(4, 0.1, 0.1, &mut wide, &g);
        let turned = Matrix { columns: 4, values: g }.transposed();
        let tall = Matrix { columns: 3, values: muon.step(3, 0.1, 0.1, &mut tall, &turned.values) };
        assert!(wide.iter().zip(tall.transposed().values).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn norms_by_hand() {
        assert_eq!(norm(&[vec![3.0, 0.0], vec![-4.0]]), 5.0);
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert!((clip_factor(4.0, 1.0) - 0.25).abs() < 1e-6);
    }
}
