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
    use super::{Rule, State, clip_factor, norm};

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
    fn norms_by_hand() {
        assert_eq!(norm(&[vec![3.0, 0.0], vec![-4.0]]), 5.0);
        assert_eq!(clip_factor(0.5, 1.0), 1.0);
        assert!((clip_factor(4.0, 1.0) - 0.25).abs() < 1e-6);
    }
}
