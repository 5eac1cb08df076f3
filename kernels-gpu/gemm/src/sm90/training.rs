//! Products of a training step, by a [`Fusion`] of their own around the family's:
//!
//! ```text
//! forward    v = sum + bias[column]      C = activation(v)               v is kept
//! backward   v = sum                     C = v activation'(kept)         columns of C are summed
//! ```
//! The values that are kept are of the kernel's 16-bit type; a thread stores and loads them from its
//! registers, two neighbours at a time. Sums of columns are those of f32 results before they are rounded, for
//! each [`SUMMED_ROWS`] rows by one warp, in a fixed order: another launch adds these up.

use cuda_std::tma::TensorMap;
use cuda_std::warp::{FULL_MASK, warp_shuffle_xor};
use cuda_std::wgmma::{BF16, F16, Operand};
use cuda_std::{KernelArgs, kernel, misc, vector};
use primitives::unroll;

use super::config::{Config, EpiloguePlan};
use super::epilogue::{Output, OutputParams, store_with};
use super::fusion::{Columns, FragmentCoord, Fusion, Pairs, StandardFusion, each_pair};
use super::instances::{Bf16Nn128x128Pp, Bf16Nt128x128Pp, Entry, F16Nn128x128Pp, F16Nt128x128Pp, Kind};
use super::mainloop::{InAccumulators, Maps, run};
use super::operands::{Element16, Operands};
use super::tile_scheduler::{GemmShape, PersistentScheduler};
use crate::epilogue::{Activation, EpilogueParams, Fast, Precision, Visitor};

/// Rows that a sum of a column is of: those of a warp.
pub const SUMMED_ROWS: u32 = 16;

/// The inputs of the training step.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct TrainingParams {
    /// An [`Activation`] of one column.
    pub activation: u32,
    /// Whether the product is multiplied by the activation's derivative. Else the activation is applied, and
    /// the values before it are stored.
    pub is_gradient: bool,
    /// The values before the activation, `[m, n]` without gaps, of the kernel's 16-bit type; written, or
    /// read. Aligned to two elements.
    pub kept: *mut u32,
    /// Sums of columns, `[m / 16 rounded up, n]`, aligned to two; null: none.
    pub sums: *mut f32,
}

/// The arguments that a kernel gets by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct TrainingArguments {
    /// The shape of the product; n is even.
    pub shape: GemmShape,
    /// The result.
    pub output: OutputParams,
    /// The bias; there is no activation, nor a residual.
    pub epilogue: EpilogueParams,
    /// The values before the activation, and what is done with them.
    pub training: TrainingParams,
}

/// The fusion. `H` is the kernel's 16-bit type.
struct TrainingFusion<'a, H> {
    standard: StandardFusion<'a, H>,
    params: &'a TrainingParams,
}

impl<H> Clone for TrainingFusion<'_, H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for TrainingFusion<'_, H> {}

impl<H: Element16> TrainingFusion<'_, H> {
    /// The place of a pair's kept values. n is even, so both are there or none.
    #[inline(always)]
    fn place(&self, at: FragmentCoord, pair: usize) -> *mut u32 {
        let row = u64::from(misc::opaque(at.row(pair))) * u64::from(at.sides[1]);
        self.params.kept.wrapping_add(((row + u64::from(at.column(pair))) / 2) as usize)
    }

    /// Adds up the columns of the warp's rows, and stores the sums.
    ///
    /// # Safety
    /// The whole warp is here; the sums have a place for each column of every 16 rows.
    #[inline(always)]
    unsafe fn sum_columns<const N: usize>(&self, at: FragmentCoord, x: &Pairs<N>) {
        let to = self.params.sums;
        each_pair!(PAIR of N {
            if PAIR.is_multiple_of(2) {
                // A row behind the last one counts as zeros.
                let of = |pair: usize| if at.count(pair) > 0 { x[pair] } else { [0.0; 2] };
                let (above, below) = (of(PAIR), of(PAIR + 1));
                let mut sums = [above[0] + below[0], above[1] + below[1]];
                unroll!(BIT in 0..3, {
                    // Four lanes have a row; eight rows are summed.
                    // SAFETY: the whole warp is here.
                    sums = sums.map(|sum| sum + unsafe { warp_shuffle_xor(FULL_MASK, sum, 4 << BIT, 32).0 });
                });
                // The first of the rows has the sum, if there is such a row.
                if at.row(PAIR).is_multiple_of(SUMMED_ROWS) && at.count(PAIR) > 0 {
                    let row = u64::from(at.row(PAIR) / SUMMED_ROWS) * u64::from(at.sides[1]);
                    // SAFETY: the caller's contract.
                    unsafe { vector::store_v2(to.wrapping_add((row + u64::from(at.column(PAIR))) as usize), sums) };
                }
            }
        });
    }
}

impl<H: Element16> Fusion for TrainingFusion<'_, H> {
    #[inline(always)]
    unsafe fn prepare(&mut self, columns: Columns, thread: u32) {
        // SAFETY: the caller's contract.
        unsafe { self.standard.prepare(columns, thread) }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    unsafe fn apply<const N: usize>(&mut self, at: FragmentCoord, x: &mut Pairs<N>) {
        let TrainingParams { activation, is_gradient, sums, .. } = *self.params;
        let activation = Activation::from_code(misc::opaque(activation));
        // SAFETY: the caller's contract, and the arguments'.
        unsafe {
            self.standard.apply(at, x);
            if is_gradient {
                let mut kept = [[0.0; 2]; N];
                each_pair!(PAIR of N {
                    if at.count(PAIR) > 0 {
                        kept[PAIR] = H::unpack(vector::load(self.place(at, PAIR).cast_const()));
                    }
                });
                of_derivative(activation, Multiply(x, &kept));
                if !sums.is_null() {
                    self.sum_columns(at, x);
                }
            } else {
                each_pair!(PAIR of N {
                    if at.count(PAIR) > 0 {
                        vector::store(self.place(at, PAIR), H::pack(x[PAIR][0], x[PAIR][1]));
                    }
                });
                activation.visit::<Fast>(Apply(x));
            }
        }
    }
}

/// Hands the derivative of an activation of one column to `visitor`.
#[inline(always)]
fn of_derivative(activation: Activation, visitor: impl Visitor<f32>) {
    match activation {
        Activation::Relu => visitor.visit(Fast::relu_grad),
        Activation::Gelu => visitor.visit(Fast::gelu_grad),
        Activation::GeluTanh => visitor.visit(Fast::gelu_tanh_grad),
        Activation::Silu => visitor.visit(Fast::silu_grad),
        Activation::Sigmoid => visitor.visit(Fast::sigmoid_grad),
        Activation::None | Activation::SwiGlu => {}
    }
}

/// Applies a function to each element.
struct Apply<'x, const N: usize>(&'x mut Pairs<N>);

impl<const N: usize> Visitor<f32> for Apply<'_, N> {
    #[inline(always)]
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        each_pair!(PAIR of N { self.0[PAIR] = self.0[PAIR].map(function); });
    }
}

/// Multiplies each element by a function of another.
struct Multiply<'x, const N: usize>(&'x mut Pairs<N>, &'x Pairs<N>);

impl<const N: usize> Visitor<f32> for Multiply<'_, N> {
    #[inline(always)]
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        each_pair!(PAIR of N {
            let (x, [a, b]) = (self.0[PAIR], self.1[PAIR]);
            self.0[PAIR] = [x[0] * function(a), x[1] * function(b)];
        });
    }
}

/// A product with the fusion.
///
/// # Safety
/// As [`run`], with what the arguments describe.
#[inline(always)]
unsafe fn product<C: Config<EpiloguePlan = EpiloguePlan<C>, Stored = <C as Config>::Tile>>(
    maps: Maps,
    arguments: &TrainingArguments,
    data: *mut u8,
) {
    let TrainingArguments { shape, output, epilogue, training } = arguments;
    let output = Output::new(data, output);
    let standard: StandardFusion<'_, <C::Operands as Operands>::Element16> =
        StandardFusion::new(epilogue, output);
    let fusion = TrainingFusion { standard, params: training };
    let scheduler = PersistentScheduler::new::<C>(shape);
    // SAFETY: the caller's contract.
    unsafe {
        run::<C, _, _, _>(maps, *shape, scheduler, InAccumulators, store_with(maps, *shape, output, fusion));
    }
}

/// Kernels: name, configuration, type.
macro_rules! kernels {
    ($(#[kernel] fn $name:ident: $config:ident, $element:ident;)*) => {
        $(
            #[doc = concat!("A product of a training step in ", stringify!($element), "; see [`TABLE`].")]
            ///
            /// # Safety
            /// As [`run`] for this configuration and its scheduler; the arguments' pointers are null where
            /// that is allowed, else valid for what the arguments say of them.
            #[kernel(launch_bounds(<$config as Config>::THREADS, 1))]
            pub unsafe fn $name(
                a: &TensorMap,
                b: &TensorMap,
                c: &TensorMap,
                arguments: TrainingArguments,
                data: *mut u8,
            ) {
                // SAFETY: the caller's contract.
                unsafe { product::<$config>(Maps { a, b, c, source: c }, &arguments, data) }
            }
        )*

        /// Every kernel: of each type with B as `[n, k]`, and as `[k, n]`.
        pub const TABLE: &[Entry] =
            &[$(Entry::of::<$config>(stringify!($name), Kind::Dense, <$element as Operand>::TYPE)),*];
    };
}

// Ping-pong: an epilogue runs beside the other consumer's products.
kernels! {
    #[kernel] fn gemm_training_bf16_nt: Bf16Nt128x128Pp, BF16;
    #[kernel] fn gemm_training_bf16_nn: Bf16Nn128x128Pp, BF16;
    #[kernel] fn gemm_training_f16_nt: F16Nt128x128Pp, F16;
    #[kernel] fn gemm_training_f16_nn: F16Nn128x128Pp, F16;
}
