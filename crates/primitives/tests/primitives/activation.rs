//! Activations and their derivatives in each precision, against f64.

use super::{Global, run};
use cuda_std::thread;
use ironwarp_primitives::activation::{
    Activation, Double, Fast, Finite, Precision, Reduced, Single, Visitor,
};
use reference::elementwise as oracle;
use simt::LaunchConfig;

/// A function of one value and the same in f64.
struct Row<P: Precision> {
    name: &'static str,
    function: fn(P::Value) -> P::Value,
    oracle: fn(f64) -> f64,
}

/// A derivative's oracle: the central difference of the function's own.
fn slope(f: fn(f64) -> f64, x: f64) -> f64 {
    const STEP: f64 = 1e-5;
    (f(x + STEP) - f(x - STEP)) / (2.0 * STEP)
}

fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

fn functions<P: Precision>() -> Vec<Row<P>> {
    vec![
        Row { name: "relu", function: P::relu, oracle: relu },
        Row { name: "sigmoid", function: P::sigmoid, oracle: oracle::sigmoid },
        Row { name: "tanh", function: P::tanh, oracle: f64::tanh },
        Row { name: "gelu", function: P::gelu, oracle: oracle::gelu },
        Row { name: "gelu_tanh", function: P::gelu_tanh, oracle: oracle::gelu_tanh },
        Row { name: "silu", function: P::silu, oracle: oracle::silu },
    ]
}

fn derivatives<P: Precision>() -> Vec<Row<P>> {
    vec![
        Row { name: "relu_grad", function: P::relu_grad, oracle: |x| f64::from(u8::from(x > 0.0)) },
        Row { name: "sigmoid_grad", function: P::sigmoid_grad, oracle: |x| slope(oracle::sigmoid, x) },
        Row { name: "tanh_grad", function: P::tanh_grad, oracle: |x| slope(f64::tanh, x) },
        Row { name: "gelu_grad", function: P::gelu_grad, oracle: |x| slope(oracle::gelu, x) },
        Row { name: "gelu_tanh_grad", function: P::gelu_tanh_grad, oracle: |x| slope(oracle::gelu_tanh, x) },
        Row { name: "silu_grad", function: P::silu_grad, oracle: |x| slope(oracle::silu, x) },
        Row {
            name: "swiglu_grad",
            function: |x| P::swiglu_grad(x, P::value(3.0))[0] + P::swiglu_grad(x, P::value(3.0))[1],
            oracle: |x| 3.0 * slope(oracle::silu, x) + oracle::silu(x),
        },
    ]
}

/// Arguments of every magnitude and sign, without 0, where ReLU has no derivative.
fn arguments() -> Vec<f64> {
    let small = (-9..=3).map(|power| 10f64.powi(power));
    let dense = (1..2000).map(|i| f64::from(i) * 0.05);
    small.chain(dense).flat_map(|x| [x, -x]).collect()
}

/// Compares each row on the executor; the error allowed is `absolute + relative |want|`.
fn check<P: Precision>(rows: Vec<Row<P>>, absolute: f64, relative: f64)
where
    P::Value: Into<f64> + Sync + Send + 'static,
{
    // An argument is what it is in the precision's type.
    let x: Vec<P::Value> = arguments().into_iter().map(P::value).collect();
    for Row { name, function, oracle } in rows {
        let (mut from, mut to) = (Global::new(x.clone(), "x"), Global::new(x.clone(), "y"));
        let (n, from, to_address) = (x.len(), from.address(), to.address());
        run(1, LaunchConfig::linear(n.div_ceil(64) as u32, 64), || {
            let index = (thread::block_idx_x() * 64 + thread::thread_idx_x()) as usize;
            if index < n {
                // SAFETY: `index < n`, the length of both.
                unsafe {
                    let x = *(from as *const P::Value).add(index);
                    *(to_address as *mut P::Value).add(index) = function(x);
                }
            }
        });
        for (&x, &got) in x.iter().zip(&to.data) {
            let (x, got): (f64, f64) = (x.into(), got.into());
            let want = oracle(x);
            let error = (got - want).abs();
            assert!(error <= absolute + relative * want.abs(), "{name}({x}) is {got}, wanted {want}");
        }
        let nan: f64 = function(P::value(f64::NAN)).into();
        assert!(nan.is_nan() || name == "relu_grad", "{name}(NaN) is {nan}");
    }
}

#[test]
fn functions_are_as_exact_as_their_precision_says() {
    check(functions::<Double>(), 1e-300, 4e-13);
    check(functions::<Single>(), 1e-43, 2e-5);
    check(functions::<Reduced>(), 1e-40, 1.0 / 65536.0 * 2.0);
    check(functions::<Finite>(), 2f64.powi(-119), 1.0 / 65536.0 * 2.0);
    check(functions::<Fast>(), 1e-6, 1e-6);
}

#[test]
fn gates_of_infinities_are_as_their_precision_says() {
    for Row { name, function, .. } in functions::<Finite>() {
        if ["gelu_tanh", "silu"].contains(&name) {
            assert!(function(f32::NEG_INFINITY).is_nan(), "{name}");
            assert_eq!(function(f32::INFINITY), f32::INFINITY, "{name}");
        }
    }
    for Row { name, function, .. } in functions::<Reduced>() {
        if ["gelu", "gelu_tanh", "silu"].contains(&name) {
            assert_eq!(function(f32::NEG_INFINITY).abs(), 0.0, "{name}");
            assert_eq!(function(f32::INFINITY), f32::INFINITY, "{name}");
        }
    }
}

#[test]
fn derivatives_are_the_slopes_of_the_functions() {
    check(derivatives::<Double>(), 1e-8, 1e-8);
    check(derivatives::<Single>(), 2e-6, 2e-6);
    check(derivatives::<Reduced>(), 1e-4, 1e-4);
    check(derivatives::<Finite>(), 1e-4, 1e-4);
    check(derivatives::<Fast>(), 3e-6, 3e-6);
}

#[test]
fn derivatives_have_their_limits() {
    fn limits<P: Precision>(end: f64)
    where
        P::Value: Into<f64>,
    {
        for Row { name, function, .. } in derivatives::<P>().into_iter().take(6) {
            let at_end = if ["sigmoid_grad", "tanh_grad"].contains(&name) { 0.0 } else { 1.0 };
            let (low, high): (f64, f64) = (function(P::value(-end)).into(), function(P::value(end)).into());
            assert!(low.abs() < 1e-30 && (high - at_end).abs() < 1e-6, "{name}: {low}, {high}");
        }
    }
    limits::<Double>(f64::INFINITY);
    limits::<Single>(f64::INFINITY);
    limits::<Reduced>(f64::INFINITY);
    limits::<Finite>(1e35);
    limits::<Fast>(f64::INFINITY);
    for Row { name, function, .. } in derivatives::<Finite>() {
        let is_gates = ["gelu_grad", "gelu_tanh_grad", "silu_grad"].contains(&name);
        let are_none = [f32::NEG_INFINITY, f32::INFINITY].map(|end| function(end).is_nan());
        assert!(!is_gates || are_none == [true; 2], "{name}: {are_none:?}");
    }
}

/// Notes the value of the function that it is handed at 0.75.
struct Note<'a>(&'a mut f32);

impl Visitor<f32> for Note<'_> {
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        *self.0 = function(0.75);
    }
}

#[test]
fn each_activation_is_the_function_of_its_name() {
    for &activation in Activation::ALL {
        let want = match activation.name() {
            "none" | "swiglu" => 0.75,
            name => {
                let row = functions::<Fast>().into_iter().find(|row| row.name == name);
                (row.unwrap_or_else(|| panic!("{name} is no function of a precision")).function)(0.75)
            }
        };
        let mut visited = 0.0;
        activation.visit::<Fast>(Note(&mut visited));
        assert_eq!([activation.apply::<Fast>(0.75), visited], [want; 2], "{}", activation.name());
    }
}
