//! All tolerances, each with its reason.

/// The allowed distance from the oracle: `absolute + relative * scale`. See [`crate::compare`] for the scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// In units of the result.
    pub absolute: f64,
    /// As a fraction of the scale.
    pub relative: f64,
}

impl Tolerance {
    /// Only the exact value passes.
    pub const EXACT: Tolerance = Tolerance { absolute: 0.0, relative: 0.0 };

    /// The allowed error for an element of this scale.
    pub fn allowed(&self, scale: f64) -> f64 {
        self.absolute + self.relative * scale
    }
}

/// The growth of the rounding error with the number of summed terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Each element has a fixed number of roundings.
    None,
    /// A tree: one rounding per level, `1 + log2(terms)`.
    Logarithm,
    /// A chain of roundings whose errors are independent in sign: `sqrt(terms)`.
    SquareRoot,
}

impl Growth {
    fn factor(self, terms: usize) -> f64 {
        let terms = terms.max(1) as f64;
        match self {
            Growth::None => 1.0,
            Growth::Logarithm => 1.0 + terms.log2(),
            Growth::SquareRoot => terms.sqrt(),
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The kernel's name, with the result's name if the kernel has several results.
    pub name: &'static str,
    /// For one term.
    pub one_term: Tolerance,
    /// The growth of [`Row::one_term`]'s relative part.
    pub growth: Growth,
    /// The reason for this value.
    pub reason: &'static str,
}

impl Row {
    /// The tolerance of a result that is not a sum.
    pub fn tolerance(&self) -> Tolerance {
        self.for_terms(1)
    }

    /// The tolerance of a result that is a sum of `terms` products.
    pub fn for_terms(&self, terms: usize) -> Tolerance {
        let relative = self.one_term.relative * self.growth.factor(terms);
        Tolerance { absolute: self.one_term.absolute, relative }
    }
}

/// Half a unit in the last place of f32, relative: the error of one correctly rounded operation.
const ROUND_F32: f64 = 1.0 / (1u64 << 24) as f64;
/// The smallest subnormal f32: the error of one rounding near zero.
const STEP_F32: f64 = f32::from_bits(1) as f64;

/// Half a unit in the last place of f64, f16 and bf16, relative.
const ROUND_F64: f64 = ROUND_F32 / (1u64 << 29) as f64;
const ROUND_F16: f64 = 1.0 / (1u64 << 11) as f64;
const ROUND_BF16: f64 = 1.0 / (1u64 << 8) as f64;
/// The relative error of functions of 16-bit floats before the final rounding.
const SHORT: f64 = 1.0 / (1u64 << 16) as f64;
/// The relative error of the f32 function `tanh.approx`.
const TANH: f64 = 1.0 / (1u64 << 11) as f64;
/// Half a unit in the last place of e4m3, relative.
const ROUND_E4M3: f64 = 1.0 / (1u64 << 4) as f64;
/// Where tensor cores cut the terms of a sum of 8-bit products off, relative to the largest.
const SHORT_SUM: f64 = 1.0 / (1u64 << 13) as f64;
/// Half of the smallest e4m3 number (2^-9), of weights that are multiplied by 2^8.
const STEP_WEIGHT: f64 = 1.0 / (1u64 << 18) as f64;
/// The smallest subnormal f16. (bf16 has the exponent range of f32.)
const STEP_F16: f64 = 1.0 / (1u64 << 24) as f64;
/// The smallest subnormal bf16: the error of one rounding near zero.
const STEP_BF16: f64 = STEP_F32 * (1u64 << 16) as f64;

macro_rules! table {
    ($($name:ident = $label:literal, $absolute:expr, $relative:expr, $growth:ident, $reason:literal;)*) => {
        $(
            #[doc = $reason]
            pub const $name: Row = Row {
                name: $label,
                one_term: Tolerance { absolute: $absolute, relative: $relative },
                growth: Growth::$growth,
                reason: $reason,
            };
        )*
        /// Every row, for reports.
        pub const TABLE: &[Row] = &[$($name),*];
    };
}

/// The row with this name, such as `softmax bf16`: for tests that walk a table of functions.
///
/// # Panics
/// If there is none.
pub fn find(name: &str) -> Row {
    let found = TABLE.iter().find(|row| row.name == name);
    *found.unwrap_or_else(|| panic!("no tolerance `{name}` in crates/testkit/src/tolerance.rs"))
}

table! {
    SAXPY = "saxpy", STEP_F32, ROUND_F32, None,
        "One fused multiply-add, correctly rounded: half a unit in the last place of the result, scale |want|.";
    REDUCE_SUM = "reduce_sum", STEP_F32, ROUND_F32, Logarithm,
        "Blocked and pairwise sums: about one rounding a level of a binary tree over n; scale is the sum of |x|.";
    REDUCE_MAX = "reduce_max", 0.0, 0.0, None,
        "A maximum is one of its inputs.";
    TRANSPOSE = "transpose", 0.0, 0.0, None,
        "Elements move, none is computed.";
    REDUCE_SUM_F64 = "reductions f64", f64::from_bits(1), 4.0 * ROUND_F64, SquareRoot,
        "The oracle's own sum is one chain of roundings, independent: 4 standard deviations.";
    REDUCE_SUM_F16 = "reductions f16", STEP_F16, ROUND_F16 + 32.0 * ROUND_F32, None,
        "Summed in f32, with fewer roundings than 2^32 terms would have levels, then rounded once.";
    REDUCE_SUM_BF16 = "reductions bf16", STEP_BF16, ROUND_BF16 + 32.0 * ROUND_F32, None,
        "Summed in f32, with fewer roundings than 2^32 terms would have levels, then rounded once.";
    COLLECTIVE = "collectives", 0.0, ROUND_F32, SquareRoot,
        "Added up in f32 in the order of ranks, one rounding each, and divided by one more; independent. The last rounding, to the type, is counted apart.";
    COLLECTIVE_F64 = "collectives f64", 0.0, 4.0 * ROUND_F64, SquareRoot,
        "As above, and the oracle's own sum is such a chain too.";
    ROUNDED_SUM_F32 = "rounded sum f32", 0.0, 2.0 * ROUND_F32, SquareRoot,
        "The sum of all ranks, then that with a residual: an f32 rounding each; independent.";
    ROUNDED_SUM_F16 = "rounded sum f16", STEP_F16, 2.0 * ROUND_F16 + 8.0 * ROUND_F32, None,
        "The sum of all ranks is rounded, and again with a residual.";
    ROUNDED_SUM_BF16 = "rounded sum bf16", STEP_BF16, 2.0 * ROUND_BF16 + 8.0 * ROUND_F32, None,
        "As in f16: the sum of all ranks is rounded, and again with a residual.";
    SCATTER_ADD = "scatter_add", STEP_F32, 4.0 * ROUND_F32, SquareRoot,
        "One chain of additions whose roundings are independent; 4 standard deviations; scale is the sum of magnitudes.";
    REDUCE_NORM = "norm", 4.0 * STEP_F32, 2.0 * ROUND_F32, Logarithm,
        "A sum of squares, each rounded once more, and a root, which halves what is left.";
    STATISTICS_F64 = "std, var, logsumexp f64", 1e-160, 16.0 * ROUND_F64, SquareRoot,
        "Beside the largest element: the mean is subtracted from it, and the sum of squares is rounded a few times. Squares below the smallest number are lost.";
    STATISTICS_F32 = "std, var, logsumexp f32", 1e-22, 16.0 * ROUND_F32, Logarithm,
        "As in f64; sums are taken in trees.";
    REDUCE_PROD = "product", STEP_F32, 4.0 * ROUND_F32, SquareRoot,
        "One rounding per factor, independent: 4 standard deviations.";
    REDUCE_PROD_F64 = "product f64", f64::from_bits(1), 8.0 * ROUND_F64, SquareRoot,
        "One rounding per factor, in kernel and oracle.";
    REDUCE_PROD_F16 = "product f16", STEP_F16, ROUND_F16 + 32.0 * ROUND_F32, None,
        "Multiplied in f32, then rounded once.";
    REDUCE_PROD_BF16 = "product bf16", STEP_BF16, ROUND_BF16 + 32.0 * ROUND_F32, None,
        "Multiplied in f32, then rounded once.";
    SOFTMAX_F64 = "softmax f64", f64::MIN_POSITIVE, 1024.0 * ROUND_F64, SquareRoot,
        "e^d errs by the rounding of d, up to 708 half units; the oracle's sum is one chain of roundings.";
    SOFTMAX_F32 = "softmax f32", f32::MIN_POSITIVE as f64, 128.0 * ROUND_F32, None,
        "e^d errs by the rounding of d, up to 88 half units; a sum of positive terms adds a few; subnormal results may be 0.";
    SOFTMAX_F16 = "softmax f16", STEP_F16, ROUND_F16 + 4.0 * SHORT, None,
        "Two exponentials and a sum of them, of functions for 16-bit floats, then rounded once.";
    SOFTMAX_BF16 = "softmax bf16", f32::MIN_POSITIVE as f64, ROUND_BF16 + 4.0 * SHORT, None,
        "Two exponentials and a sum of them, of functions for 16-bit floats, then rounded once.";
    LOG_SOFTMAX_F64 = "log_softmax f64", 64.0 * ROUND_F64, 4.0 * ROUND_F64, SquareRoot,
        "x - max and the logarithm have one sign; the sum's relative error is the logarithm's absolute one.";
    LOG_SOFTMAX_F32 = "log_softmax f32", 64.0 * ROUND_F32, 4.0 * ROUND_F32, None,
        "x - max and the logarithm have one sign; the sum's relative error is the logarithm's absolute one.";
    LOG_SOFTMAX_F16 = "log_softmax f16", 4.0 * SHORT, ROUND_F16 + 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats, then rounded once.";
    LOG_SOFTMAX_BF16 = "log_softmax bf16", 4.0 * SHORT, ROUND_BF16 + 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats, then rounded once.";
    RMS_NORM_F64 = "rms_norm f64", f64::MIN_POSITIVE, 16.0 * ROUND_F64, SquareRoot,
        "The oracle's own sum is one chain of roundings, independent; the root halves them.";
    RMS_NORM_F32 = "rms_norm f32", f32::MIN_POSITIVE as f64, 16.0 * ROUND_F32, None,
        "A sum of up to 30 levels, halved by the root; its inverse; three products and a sum.";
    RMS_NORM_F16 = "rms_norm f16", STEP_F16, ROUND_F16 + 16.0 * ROUND_F32, None,
        "As of f32, then rounded once.";
    RMS_NORM_BF16 = "rms_norm bf16", STEP_BF16, ROUND_BF16 + 16.0 * ROUND_F32, None,
        "As of f32, then rounded once.";
    LAYER_NORM_F64 = "layer_norm f64", f64::MIN_POSITIVE, 16.0 * ROUND_F64, SquareRoot,
        "The oracle's own sums are chains of roundings, independent; scale is the sum of magnitudes.";
    LAYER_NORM_F32 = "layer_norm f32", f32::MIN_POSITIVE as f64, 24.0 * ROUND_F32, None,
        "A mean and a sum of squares of up to 30 levels, the latter halved by the root; its inverse; three products.";
    LAYER_NORM_F16 = "layer_norm f16", STEP_F16, ROUND_F16 + 24.0 * ROUND_F32, None,
        "As of f32, then rounded once.";
    LAYER_NORM_BF16 = "layer_norm bf16", STEP_BF16, ROUND_BF16 + 24.0 * ROUND_F32, None,
        "As of f32, then rounded once.";
    NORM_AND_ACTIVATION_BF16 = "norm and activation bf16", STEP_BF16, ROUND_BF16 + 64.0 * ROUND_F32 + SHORT, None,
        "The norm's error of f32 times a slope below 1.2, and that of a function for 16-bit floats, then rounded once.";
    SOFTMAX_BACKWARD_F32 = "softmax_backward f32", STEP_F32, 32.0 * ROUND_F32, None,
        "A sum of products of up to 30 levels, an exponential of a few units, two products.";
    SOFTMAX_BACKWARD_F16 = "softmax_backward f16", STEP_F16, ROUND_F16 + 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats, then rounded once.";
    SOFTMAX_BACKWARD_BF16 = "softmax_backward bf16", STEP_BF16, ROUND_BF16 + 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats, then rounded once.";
    NORM_BACKWARD_F32 = "norm_backward f32", f32::MIN_POSITIVE as f64, 32.0 * ROUND_F32, None,
        "Mean and deviation as of a norm, rounded to f32; two sums of up to 30 levels; six products and sums. Scale: the magnitudes of all terms, with the mean's error in each.";
    NORM_BACKWARD_F16 = "norm_backward f16", STEP_F16, ROUND_F16 + 32.0 * ROUND_F32, None,
        "As of f32, then rounded once.";
    NORM_BACKWARD_BF16 = "norm_backward bf16", STEP_BF16, ROUND_BF16 + 32.0 * ROUND_F32, None,
        "As of f32, then rounded once.";
    NORM_SUMS_F32 = "norm_backward_sums f32", f32::MIN_POSITIVE as f64, 24.0 * ROUND_F32, SquareRoot,
        "Terms as of a norm; a block's rows are one chain of roundings of either sign, whose sums are added up.";
    NORM_SUMS_F16 = "norm_backward_sums f16", STEP_F16, ROUND_F16 + 24.0 * ROUND_F32, SquareRoot,
        "As of f32, then rounded once.";
    NORM_SUMS_BF16 = "norm_backward_sums bf16", STEP_BF16, ROUND_BF16 + 24.0 * ROUND_F32, SquareRoot,
        "As of f32, then rounded once.";
    ACTIVATED_NORM_F32 = "activated_norm_backward f32", 64.0 * STEP_F32, 384.0 * ROUND_F32, None,
        "As norm_backward, of a gradient as activation_gradient. Scale: that one's, with the magnitudes of the argument's terms times the slope of the slope there.";
    ACTIVATED_NORM_F16 = "activated_norm_backward f16", 4.0 * STEP_F16, 2.0 * ROUND_F16 + 4.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; the gradient by the activation's argument is rounded, and the result.";
    ACTIVATED_NORM_BF16 = "activated_norm_backward bf16", STEP_BF16, 2.0 * ROUND_BF16 + 4.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; the gradient by the activation's argument is rounded, and the result.";
    ACTIVATED_SUMS_F32 = "activated_norm_backward_sums f32", 64.0 * STEP_F32, 1024.0 * ROUND_F32, None,
        "Terms as of activated_norm_backward; chains of a few hundred sums, of a team's rows and of parts.";
    ACTIVATED_SUMS_F16 = "activated_norm_backward_sums f16", 4.0 * STEP_F16, 2.0 * ROUND_F16 + 1024.0 * ROUND_F32 + 4.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; terms are rounded, and the sum.";
    ACTIVATED_SUMS_BF16 = "activated_norm_backward_sums bf16", STEP_BF16, 2.0 * ROUND_BF16 + 1024.0 * ROUND_F32 + 4.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; terms are rounded, and the sum.";
    CROSS_ENTROPY_F32 = "cross_entropy f32", 64.0 * ROUND_F32, 8.0 * ROUND_F32, None,
        "The sum's relative error is the logarithm's absolute one; then differences of the numbers in the scale.";
    CROSS_ENTROPY_F16 = "cross_entropy f16", 4.0 * SHORT, 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; losses are f32.";
    CROSS_ENTROPY_BF16 = "cross_entropy bf16", 4.0 * SHORT, 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; losses are f32.";
    CROSS_ENTROPY_GRADIENT_F32 = "cross_entropy_gradient f32", STEP_F32, 128.0 * ROUND_F32, None,
        "The softmax, and three products and sums.";
    CROSS_ENTROPY_GRADIENT_F16 = "cross_entropy_gradient f16", STEP_F16, ROUND_F16 + 4.0 * SHORT, None,
        "The softmax of 16-bit floats in f32, three products and sums, then rounded once.";
    CROSS_ENTROPY_GRADIENT_BF16 = "cross_entropy_gradient bf16", STEP_BF16, ROUND_BF16 + 4.0 * SHORT, None,
        "The softmax of 16-bit floats in f32, three products and sums, then rounded once.";
    CROSS_ENTROPY_CAPPED_F32 = "cross_entropy_capped f32", 64.0 * ROUND_F32, 8.0 * ROUND_F32, None,
        "As cross_entropy; the scale has the errors of capped logits.";
    CROSS_ENTROPY_CAPPED_F16 = "cross_entropy_capped f16", 4.0 * SHORT, 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; losses are f32.";
    CROSS_ENTROPY_CAPPED_BF16 = "cross_entropy_capped bf16", 4.0 * SHORT, 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; losses are f32.";
    CROSS_ENTROPY_CAPPED_GRADIENT_F32 = "cross_entropy_capped_gradient f32", STEP_F32, 128.0 * ROUND_F32, None,
        "As cross_entropy_gradient, times the slope of the cap: 1 less a square.";
    CROSS_ENTROPY_CAPPED_GRADIENT_F16 = "cross_entropy_capped_gradient f16", STEP_F16, 6.0 * SHORT, None,
        "As cross_entropy_gradient, and twice the error of the cap's tanh; the rounding of the result is the comparison's.";
    CROSS_ENTROPY_CAPPED_GRADIENT_BF16 = "cross_entropy_capped_gradient bf16", STEP_BF16, 6.0 * SHORT, None,
        "As cross_entropy_gradient, and twice the error of the cap's tanh; the rounding of the result is the comparison's.";
    CROSS_ENTROPY_PROBABILITIES_F32 = "cross_entropy_probabilities f32", 64.0 * ROUND_F32, 8.0 * ROUND_F32, None,
        "As cross_entropy; two sums by trees and short chains, whose magnitudes are in the scale.";
    CROSS_ENTROPY_PROBABILITIES_F16 = "cross_entropy_probabilities f16", 4.0 * SHORT, 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; losses are f32.";
    CROSS_ENTROPY_PROBABILITIES_BF16 = "cross_entropy_probabilities bf16", 4.0 * SHORT, 2.0 * SHORT, None,
        "As of f32, by the functions for 16-bit floats; losses are f32.";
    CROSS_ENTROPY_PROBABILITIES_GRADIENT_F32 = "cross_entropy_probabilities_gradient f32", STEP_F32, 128.0 * ROUND_F32, None,
        "The softmax, and a few products and sums; with a cap its slope: 1 less a square.";
    CROSS_ENTROPY_PROBABILITIES_GRADIENT_F16 = "cross_entropy_probabilities_gradient f16", STEP_F16, 6.0 * SHORT, None,
        "As cross_entropy_capped_gradient: the softmax of 16-bit floats, twice the error of a cap's tanh.";
    CROSS_ENTROPY_PROBABILITIES_GRADIENT_BF16 = "cross_entropy_probabilities_gradient bf16", STEP_BF16, 6.0 * SHORT, None,
        "As cross_entropy_capped_gradient: the softmax of 16-bit floats, twice the error of a cap's tanh.";
    LINEAR_CROSS_ENTROPY_F32 = "linear_cross_entropy f32", 64.0 * ROUND_F32, 8.0 * ROUND_F32, SquareRoot,
        "Logits as gemm's, then as cross_entropy; the scale has the terms of each logit that counts.";
    LINEAR_CROSS_ENTROPY_F16 = "linear_cross_entropy f16", 4.0 * SHORT, ROUND_F16 + 4.0 * SHORT, None,
        "Each logit is rounded to the type, after a sum in f32; then as cross_entropy.";
    LINEAR_CROSS_ENTROPY_BF16 = "linear_cross_entropy bf16", 4.0 * SHORT, ROUND_BF16 + 4.0 * SHORT, None,
        "Each logit is rounded to the type, after a sum in f32; then as cross_entropy.";
    LINEAR_CROSS_ENTROPY_GRADIENT_F32 = "linear_cross_entropy_gradient f32", 64.0 * STEP_F32, 128.0 * ROUND_F32, None,
        "As cross_entropy_gradient of logits as gemm's; sums of thousands of terms keep to a few units of the magnitudes of all.";
    LINEAR_CROSS_ENTROPY_GRADIENT_F16 = "linear_cross_entropy_gradient f16", 256.0 * STEP_F16, 3.0 * ROUND_F16 + 8.0 * SHORT, None,
        "Three roundings to the type: of each logit, of its gradient, which may be subnormal, and of the result; the scale has the first two in every term.";
    LINEAR_CROSS_ENTROPY_GRADIENT_BF16 = "linear_cross_entropy_gradient bf16", STEP_BF16, 3.0 * ROUND_BF16 + 8.0 * SHORT, None,
        "Three roundings to the type: of each logit, of its gradient and of the result; the scale has the first two in every term.";
    PAIR_LOSS_F32 = "pair_loss f32", 64.0 * STEP_F32, 32.0 * ROUND_F32, None,
        "Functions of f32 (twelve units), twice in binary cross-entropy, and a few products; scale: the magnitudes of the terms.";
    PAIR_LOSS_F16 = "pair_loss f16", STEP_F16, ROUND_F16 + 4.0 * SHORT, None,
        "Computed in f32 by the functions for 16-bit floats, then rounded once.";
    PAIR_LOSS_BF16 = "pair_loss bf16", STEP_BF16, ROUND_BF16 + 4.0 * SHORT, None,
        "Computed in f32 by the functions for 16-bit floats, then rounded once.";
    PAIR_LOSS_TERM_16 = "pair_loss_term 16-bit", 4.0 * SHORT, 2.0 * SHORT, None,
        "By the functions for 16-bit floats in f32, and not rounded to the type: the terms of a sum.";
    PAIR_LOSS_SUM = "pair_loss_sum", 64.0 * STEP_F32, 4.0 * ROUND_F32, Logarithm,
        "A chain of four sums, then trees; the errors of the terms are the test's to add.";
    COSINE_EMBEDDING_F32 = "cosine_embedding f32", 64.0 * STEP_F32, 64.0 * ROUND_F32, None,
        "Three sums of up to 30 levels, two inverse roots and six products; scale: the magnitudes of the terms, with those of the cosine.";
    COSINE_EMBEDDING_F16 = "cosine_embedding f16", STEP_F16, ROUND_F16 + 64.0 * ROUND_F32, None,
        "As of f32, then rounded once.";
    COSINE_EMBEDDING_BF16 = "cosine_embedding bf16", STEP_BF16, ROUND_BF16 + 64.0 * ROUND_F32, None,
        "As of f32, then rounded once.";
    COSINE_EMBEDDING_LOSS = "cosine_embedding_loss", 0.0, 64.0 * ROUND_F32, None,
        "As of the gradients in f32, for any type: losses are f32. Scale: 1, the margin, and the magnitudes of the cosine's terms.";
    ACTIVATION_GRADIENT_F32 = "activation_gradient f32", 64.0 * STEP_F32, 320.0 * ROUND_F32, None,
        "As gelu_tanh, whose exponent of up to 87 has three roundings; two functions and three products. Scale: the magnitudes of the terms.";
    ACTIVATION_GRADIENT_F16 = "activation_gradient f16", 4.0 * STEP_F16, ROUND_F16 + 4.0 * SHORT, None,
        "Two functions for 16-bit floats and three products in f32, then rounded once.";
    ACTIVATION_GRADIENT_BF16 = "activation_gradient bf16", STEP_BF16, ROUND_BF16 + 4.0 * SHORT, None,
        "Two functions for 16-bit floats and three products in f32, then rounded once.";
    ACTIVATION_BIAS_F32 = "activation_bias f32", 64.0 * STEP_F32, 320.0 * ROUND_F32, None,
        "Terms as activation_gradient; chains of 32 sums, then trees, whose errors are below those.";
    ACTIVATION_BIAS_F16 = "activation_bias f16", 4.0 * STEP_F16, ROUND_F16 + 4.0 * SHORT, None,
        "Terms in f32, not rounded before they are added; the sum is rounded once.";
    ACTIVATION_BIAS_BF16 = "activation_bias bf16", STEP_BF16, ROUND_BF16 + 4.0 * SHORT, None,
        "Terms in f32, not rounded before they are added; the sum is rounded once.";
    ARITHMETIC_F64 = "elementwise f64", f64::from_bits(1), ROUND_F64, None,
        "One correctly rounded operation: half a unit in the last place.";
    ARITHMETIC_F32 = "elementwise f32", STEP_F32, ROUND_F32, None,
        "One correctly rounded operation: half a unit in the last place.";
    ARITHMETIC_F16 = "elementwise f16", STEP_F16, ROUND_F16 + 2.0 * ROUND_F32, None,
        "Computed in f32, correctly rounded there, and rounded once more.";
    ARITHMETIC_BF16 = "elementwise bf16", STEP_BF16, ROUND_BF16 + 2.0 * ROUND_F32, None,
        "Computed in f32, correctly rounded there, and rounded once more.";
    FUNCTION_F64 = "functions f64", 1e-300, 4e-13, None,
        "libm is within a unit or two; where e^(-x^2) vanishes, kernel and oracle lose up to 700 units each to the rounding of x^2.";
    FUNCTION_F32 = "functions f32", 64.0 * STEP_F32, 24.0 * ROUND_F32, None,
        "Polynomials and up to four hardware approximations of 2 units (PTX ISA), whose errors add up: twelve units in the last place. A share that rounds to nothing near 2^-150 counts up to 104 times, as x does.";
    FUNCTION_F16 = "functions f16", STEP_F16, ROUND_F16 + SHORT, None,
        "Computed in f32 to a part in 2^16, polynomials and hardware approximations together, then rounded once: 1/32 of half a unit more than the nearest.";
    FUNCTION_BF16 = "functions bf16", STEP_BF16, ROUND_BF16 + SHORT, None,
        "Computed in f32 to a part in 2^16, then rounded once: 1/256 of half a unit more than the nearest.";
    INTRINSIC_F64 = "intrinsics f64", f64::from_bits(1), 6.0 * ROUND_F64, None,
        "libm is within a unit in the last place for most functions and within two for the others, and std, the oracle, within one: three together.";
    INTRINSIC_F32 = "intrinsics f32", STEP_F32, 4.0 * ROUND_F32, None,
        "libm's functions of f32: two units in the last place. The oracle is computed in f64.";
    INTRINSIC_SPECIAL_F64 = "special intrinsics f64", 1e-15, 24.0 * ROUND_F64, None,
        "Where e^(-x^2) is small, function and oracle lose a half unit for each x^2 / 2; the gamma function is within ten units. The oracle sums 800 terms of an integral, to about 1e-15.";
    INTRINSIC_SPECIAL_F32 = "special intrinsics f32", 1e-14, 4.0 * ROUND_F32, None,
        "Computed in f64 or by libm: two units in the last place. Near zeros the oracle's integral, whose terms cancel, is right to 1e-15 of the largest.";
    INTRINSIC_BESSEL_F64 = "Bessel intrinsics f64", 1e-14, 4.0 * ROUND_F64, None,
        "An integral of waves as oracle and, for higher orders, a recurrence in the function: both keep absolute errors of some 50 roundings of 1.";
    INTRINSIC_FAST = "fast intrinsics", 1.0 / (1u64 << 20) as f64, 8.0 * ROUND_F32, None,
        "PTX ISA: sine and cosine are off by 2^-20.5, a logarithm by 2^-22, others by 2 units. The rounding of an exponent counts as often as the exponent, by which the test multiplies.";
    RANDOM_NORMAL = "random_normal", 40.0 * ROUND_F32, 24.0 * ROUND_F32, None,
        "The angle, up to 2 pi, is off by 4 half units before its sine is taken, and the sine by 2; both count as often as the radius, up to 6. Then functions of a few units.";
    GELU_TANH_F32 = "gelu_tanh f32", 64.0 * STEP_F32, 320.0 * ROUND_F32, None,
        "In the tail the result is e^u, and u, up to 87, has three roundings in f32: each counts u times.";
    TRIGONOMETRY = "sin, cos", 2.0 * ROUND_F32, 4.0 * ROUND_F32, None,
        "The rest of a division by pi / 2 keeps an absolute error near its zeros; then a polynomial of two units.";
    GEMM_F32 = "gemm", 4.0 * STEP_F32, 4.0 * ROUND_F32, SquareRoot,
        "One chain of fused multiply-adds over K whose roundings are independent, plus alpha and beta; 4 standard deviations; scale is |alpha| sum |a b| + |beta c|.";
    GEMM_TENSOR = "gemm on tensor cores, 16 bits", 4.0 * STEP_F32, 8.0 * ROUND_F32, SquareRoot,
        "Products of halves are exact in f32; the tensor core adds 16 and the old sum at a time, aligned to the largest and truncated: twice the error of rounding, and one-sided; 4 standard deviations; scale as gemm's.";
    GEMM_TENSOR_TF32 = "gemm on tensor cores, tf32", 4.0 * STEP_F32, 2.0 / (1u64 << 10) as f64, None,
        "The tensor core does not read the low 13 bits of either factor: below 2^-10 of each, always towards zero, so that errors add up; sums as for 16 bits.";
    GEMM_TENSOR_FP8 = "gemm on tensor cores, 8 bits", 4.0 * STEP_F32, 1.0 / (1u64 << 12) as f64, SquareRoot,
        "Of sums of 32 products Hopper keeps about 14 bits (known from measurements, not from the manual) before they are added in f32, and cuts what it does not keep; one such error for each product at most; 4 standard deviations. Wide: lost products are for the cases of integers to see.";
    GEMM_QUANTIZED = "gemm of operands rounded to e4m3 with factors", 0.0, ROUND_E4M3 * (2.0 + ROUND_E4M3) + SHORT, None,
        "Both operands are within 2^-4 of themselves, so each product within (1 + 2^-4)^2 - 1. Those below 2^-6 of their factor are off by 2^-10 of it, 2^-19 of the largest they share it with: what is left over, and more than sums lose. Scale as gemm's.";
    ATTENTION_BF16 = "attention bf16", f32::MIN_POSITIVE as f64, ROUND_BF16 + 2.0 * SHORT, None,
        "Weights are rounded to bf16 before they multiply V; scores of a few tens, exponentials and sums in f32 add less than 2^-16 each. Scale: such errors of all weights, independent. The result's own rounding is the comparator's.";
    ATTENTION_F16 = "attention f16", STEP_F16, ROUND_F16 + 2.0 * SHORT, None,
        "As in bf16, with weights of f16, of which the subnormal ones may be off by one step.";
    ATTENTION_E4M3 = "attention e4m3", 64.0 * STEP_WEIGHT, ROUND_E4M3 + 8.0 * SHORT_SUM, None,
        "Weights are rounded to e4m3 before they multiply V: by 2^-4, or where they are small by half of the smallest step over the factor of 2^8, 64 of which may add up. Scores and results are sums of tensor cores, which cut terms off at 2^-13 of the largest. Scale: such errors of all weights, independent. The result's own rounding is the comparator's.";
    ATTENTION_LSE_E4M3 = "attention e4m3, log-sum-exp", 16.0 * ROUND_F32, 8.0 * SHORT_SUM, None,
        "Scores are sums of up to 8 steps of the tensor core, each cut off at 2^-13 of the largest term.";
    ATTENTION_BACKWARD_BF16 = "attention's gradients, bf16", f32::MIN_POSITIVE as f64, 2.0 * ROUND_BF16 + 4.0 * SHORT, None,
        "Weights and gradients of scores are rounded to bf16 before they multiply; the latter are also differences from a mean that is taken from a result of bf16. Scale: such errors of all of them, independent.";
    ATTENTION_BACKWARD_F16 = "attention's gradients, f16", 4.0 * STEP_F16, 2.0 * ROUND_F16 + 4.0 * SHORT, None,
        "As in bf16, with f16, of which subnormal numbers may be off by a step each.";
    ATTENTION_LAYER_BF16 = "attention of a layer, bf16", f32::MIN_POSITIVE as f64, 3.0 * ROUND_BF16 + 2.0 * SHORT, None,
        "Weights of the softmax, and the rows that the last product takes, are rounded to bf16; elements of Q, K and V are rounded as the oracle's, but for some that lie between two numbers. Scale: the terms of the last product, each with its own.";
    ATTENTION_LAYER_F16 = "attention of a layer, f16", 4.0 * STEP_F16, 3.0 * ROUND_F16 + 2.0 * SHORT, None,
        "As in bf16, with f16, of which subnormal numbers may be off by a step each.";
    ATTENTION_LAYER_BACKWARD_BF16 = "gradients of a layer's attention, bf16", f32::MIN_POSITIVE as f64, 3.0 * ROUND_BF16 + 4.0 * SHORT, None,
        "As of attention's own, whose gradients are rounded once more, turned, rounded, and multiplied. Scale: the terms of the last product, each with its own.";
    ATTENTION_LAYER_BACKWARD_F16 = "gradients of a layer's attention, f16", 16.0 * STEP_F16, 3.0 * ROUND_F16 + 4.0 * SHORT, None,
        "As in bf16, with f16, of which subnormal numbers may be off by a step each.";
    ATTENTION_BIAS_GRADIENT_BF16 = "gradient of attention's bias, bf16", f32::MIN_POSITIVE as f64, ROUND_BF16 + 4.0 * SHORT, None,
        "A mean taken from a result that is rounded to bf16; scores of a few tens, exponentials and sums in f32 add less than 2^-16 each. Scale: such errors of all gradients of scores, independent.";
    ATTENTION_BIAS_GRADIENT_F16 = "gradient of attention's bias, f16", STEP_F16, ROUND_F16 + 4.0 * SHORT, None,
        "As in bf16, with f16, of which the subnormal numbers may be off by one step.";
    ATTENTION_LSE = "attention, log-sum-exp", 16.0 * ROUND_F32, 8.0 * ROUND_F32, SquareRoot,
        "Scores as the tensor core sums them (gemm, 16 bits); a product with the scale, a sum of positive terms and a logarithm by lg2.approx (2^-22) are a few roundings more.";
    ATTENTION_SOFT_CAP = "attention, what a soft cap of 1 adds", TANH, 2.0 * TANH, None,
        "A capped score errs as tanh.approx does, by 2^-11 of the cap, and so does a log-sum-exp: absolute. A weight is divided by the sum of others, which err the other way: relative.";
    GEMM_TIME = "estimated time of a product", 0.25, 0.0, None,
        "Of the logarithm of the time: a model of few figures for a whole device, against one measurement of each shape. It only orders kernels, and the tests check apart which one comes first.";
    GEMM_TIME_F32 = "estimated time of a product in f32", 0.35, 0.0, None,
        "As of the others, by a model with fewer figures: it has two kernels to tell apart, and the test checks which one comes first.";
    COSINE_SCORE = "cosine_topk", 1e-6, 2.0 * ROUND_F32, SquareRoot,
        "Products of halves are exact in f32; K additions in the tensor core's own order, which truncates (twice the error of rounding), over norms correct to a few units; scale is 1.";
    OPTIM_STEP = "optim f32", STEP_F32, 8.0 * ROUND_F32, SquareRoot,
        "About eight roundings of f32 a step, of either sign; scale is the weight and the lengths of its steps, or a moment and its terms.";
    OPTIM_F16 = "optim f16", STEP_F16, ROUND_F16 + 8.0 * ROUND_F32, None,
        "As in f32, then one rounding to nearest; scale is the weight and the length of its step.";
    OPTIM_BF16 = "optim bf16", STEP_BF16, ROUND_BF16 + 8.0 * ROUND_F32, None,
        "As in f32, then one rounding to nearest; scale is the weight and the length of its step.";
    OPTIM_STOCHASTIC = "optim bf16 stochastic", 2.0 * STEP_BF16, 2.0 * ROUND_BF16 + 8.0 * ROUND_F32, None,
        "As in f32, then a rounding to either neighbour: a whole unit in the last place of bf16.";
    OPTIM_SQUARES = "optim average square", STEP_F32, 20.0 * ROUND_F32, None,
        "32 squares add up in f32, with as many roundings of either sign, and two more of the average; then in f64. No term is negative.";
    MUON_DIRECTION = "muon direction", STEP_BF16, 64.0 * ROUND_BF16, None,
        "Each of five iterations rounds three matrices to bf16, and small singular values grow with their errors; scale is the direction's root mean square.";
    GRADIENT_NORM = "gradient norm", STEP_F32, 16.0 * ROUND_F32, None,
        "Squares add up in f32 in chains of 32 at most, with 32 roundings of either sign, then in f64; a root halves that.";
    ROTARY_F32 = "rotary f32", STEP_F32, 8.0 * ROUND_F32, None,
        "Two products and a sum a rotation, up to three rotations in a row; scale is the head's largest element.";
    ROTARY_F16 = "rotary f16", STEP_F16, 4.0 * ROUND_F16, None,
        "As in f32, and up to three roundings to the type in a row, of a pair of elements.";
    ROTARY_BF16 = "rotary bf16", STEP_BF16, 4.0 * ROUND_BF16, None,
        "As in f32, and up to three roundings to the type in a row, of a pair of elements.";
    DROPOUT_F32 = "dropout f32", STEP_F32, 2.0 * ROUND_F32, None,
        "The factor is rounded to f32, and so is its product with the element.";
    DROPOUT_F16 = "dropout f16", STEP_F16, ROUND_F16 + 2.0 * ROUND_F32, None,
        "As in f32, then one rounding to the type.";
    DROPOUT_BF16 = "dropout bf16", STEP_BF16, ROUND_BF16 + 2.0 * ROUND_F32, None,
        "As in f32, then one rounding to the type.";
}

#[cfg(test)]
mod tests {
    use super::{GEMM_F32, TABLE};

    #[test]
    fn every_row_has_a_reason_and_its_own_name() {
        for (index, row) in TABLE.iter().enumerate() {
            assert!(row.reason.len() > 20, "{}", row.name);
            assert!(TABLE[..index].iter().all(|other| other.name != row.name), "{}", row.name);
        }
    }

    #[test]
    fn tolerance_grows_with_the_terms() {
        let one = GEMM_F32.for_terms(1).relative;
        assert!((GEMM_F32.for_terms(4096).relative / one - 64.0).abs() < 1e-9);
        assert!(GEMM_F32.for_terms(0).relative >= one);
    }
}
