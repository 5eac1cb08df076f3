//! Gradients of activations, with that of a bias, and gated activations in both directions.
//!
//! ```text
//!   dx = dy f'(x)                                    one tensor
//!   y = f(gate) value                                two, forward
//!   dgate = dy value f'(gate)    dvalue = dy f(gate)   two, backward
//!
//!   a block:  a tile of columns, of 4 each a thread  x  a part of the rows; threads that the tile has no
//!             columns for take other rows. The sums of its columns are added up in shared memory, team after
//!             team, and are a row of `sums`.
//! ```
//! Gate and value are two halves of a row, or neighbours, as SwiGLU in a product's epilogue has them.

use crate::THREADS;
use crate::piece::{Piece, WIDTH};
use crate::rotary::{apart, together};
use cuda_std::{kernel, shared, shared_array, thread};
use half::{bf16, f16};
use primitives::access::{self, Words};
use primitives::activation::Precision;
use primitives::element::{InF32, map, zip};
use primitives::grid::begin;
use primitives::unroll;

/// A function of each element, by PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ActivationFunction {
    /// `x`: a gated one is the product of both.
    Identity,
    /// `max(x, 0)`. Its result has the same slope as its input.
    Relu,
    /// `x normal_cdf(x)`.
    Gelu,
    /// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    GeluTanh,
    /// `x sigmoid(x)`.
    Silu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// The slope of [`ActivationFunction::Sigmoid`] from its result `y`: `y (1 - y)`.
    SigmoidOfResult,
    /// The slope of [`ActivationFunction::Tanh`] from its result `y`: `1 - y^2`.
    TanhOfResult,
}

/// The function of each element. Of results it is not asked.
#[inline(always)]
fn values<P: Precision<Value = f32>, const N: usize>(function: ActivationFunction, x: [f32; N]) -> [f32; N] {
    use ActivationFunction as Of;
    match function {
        Of::Relu => map(x, P::relu),
        Of::Gelu => map(x, P::gelu),
        Of::GeluTanh => map(x, P::gelu_tanh),
        Of::Silu => map(x, P::silu),
        Of::Sigmoid => map(x, P::sigmoid),
        Of::Tanh => map(x, P::tanh),
        Of::Identity | Of::SigmoidOfResult | Of::TanhOfResult => x,
    }
}

/// Its derivative at each element.
#[inline(always)]
fn slopes<P: Precision<Value = f32>, const N: usize>(function: ActivationFunction, x: [f32; N]) -> [f32; N] {
    use ActivationFunction as Of;
    match function {
        Of::Identity => map(x, |_| 1.0),
        Of::Relu => map(x, P::relu_grad),
        Of::Gelu => map(x, P::gelu_grad),
        Of::GeluTanh => map(x, P::gelu_tanh_grad),
        Of::Silu => map(x, P::silu_grad),
        Of::Sigmoid => map(x, P::sigmoid_grad),
        Of::Tanh => map(x, P::tanh_grad),
        Of::SigmoidOfResult => map(x, |y| y * (1.0 - y)),
        Of::TanhOfResult => map(x, |y| (1.0 - y) * (1.0 + y)),
    }
}

/// The rows of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct ActivationJob {
    /// Rows.
    pub rows: u64,
    /// Elements of a row of results of the forward pass.
    pub columns: u64,
    /// Elements from a row to the next: of gates and values, of `dy`, and of what is written.
    pub strides: [u64; 3],
    /// Rows of a part, which a block of each tile takes.
    pub part: u64,
    /// The function.
    pub function: ActivationFunction,
    /// `2^team` threads are side by side in a row.
    pub team: u32,
    /// Which tensors there are.
    pub form: Form,
    /// 1 when all rows begin at multiples of [`WIDTH`] elements, else 0.
    pub is_aligned: u32,
}

/// How a row is made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Form {
    /// One column for a result.
    Plain,
    /// Gates, and behind them as many values.
    Halves,
    /// A gate and its value beside each other.
    Neighbours,
}

impl Form {
    /// Columns of a row for each result.
    pub const fn columns(self) -> u64 {
        match self {
            Form::Plain => 1,
            Form::Halves | Form::Neighbours => 2,
        }
    }
}

/// Rows that a thread takes at most, one after the other, where columns are added up.
const SUMMED_ROWS: u64 = 32;
/// And where not.
const ROWS: u64 = 4;
/// Blocks that a grid has along y. With more rows than fit, threads take more of them.
const MOST_PARTS: u64 = 65_535;

impl ActivationJob {
    /// A job of rows some distance apart; `sums` says whether columns are added up.
    pub fn new(rows: u64, columns: u64, function: ActivationFunction, form: Form, sums: bool) -> Self {
        let units = columns.div_ceil(WIDTH as u64).clamp(1, THREADS as u64);
        let team = units.next_power_of_two().trailing_zeros();
        let each = if sums { SUMMED_ROWS } else { ROWS };
        let part = (each * u64::from(THREADS >> team)).max(rows.div_ceil(MOST_PARTS));
        Self { rows, columns, strides: [0; 3], part, function, team, form, is_aligned: 0 }
    }

    /// Blocks that lie side by side in a row.
    pub const fn tiles(&self) -> u64 {
        self.columns.div_ceil((WIDTH as u64) << self.team)
    }

    /// Parts of the rows, each of which has a row of sums.
    pub const fn parts(&self) -> u64 {
        self.rows.div_ceil(self.part)
    }
}

/// Sums of a thread: of gates and of values.
type Sums<const N: usize> = [[f32; N]; 2];

/// The tensors of a launch; null where there is none.
#[derive(Clone, Copy)]
struct Tensors<T> {
    x: *const T,
    dy: *const T,
    to: *mut T,
    sums: *mut f32,
}

/// A thread's place in a row.
#[derive(Clone, Copy)]
struct Columns<const N: usize> {
    /// The first, among those of results.
    first: u64,
    /// Those of a result, and of gates and values in halves.
    piece: Piece<N>,
    /// Those of neighbours: the first, and the second `N`.
    pair: [Piece<N>; 2],
    /// In a half, and of the row.
    all: u64,
    form: Form,
}

impl<const N: usize> Columns<N> {
    #[inline(always)]
    fn new(job: &ActivationJob, first: u64) -> Self {
        let (left, is_aligned) = (job.columns - first, job.is_aligned != 0);
        let pair = [2 * left, (2 * left).saturating_sub(N as u64)].map(|left| Piece::new(left, is_aligned));
        Columns { first, piece: Piece::new(left, is_aligned), pair, all: job.columns, form: job.form }
    }

    /// Gates and values of a row; values are 1 where there are none.
    ///
    /// # Safety
    /// The row is readable, aligned as the job says.
    #[inline(always)]
    unsafe fn load<T: InF32>(self, row: *const T) -> [[f32; N]; 2] {
        let at = self.first as usize;
        // SAFETY: the caller's promise.
        unsafe {
            match self.form {
                Form::Plain => [self.piece.load(row.add(at)), [1.0; N]],
                Form::Halves => {
                    [self.piece.load(row.add(at)), self.piece.load(row.add(self.all as usize + at))]
                }
                Form::Neighbours => {
                    let first = self.pair[0].load(row.add(2 * at));
                    let (gates, values) = apart(first, self.pair[1].load(row.wrapping_add(2 * at + N)));
                    [gates, values]
                }
            }
        }
    }

    /// Stores what belongs to gates and values.
    ///
    /// # Safety
    /// As for [`load`](Self::load), for writing.
    #[inline(always)]
    unsafe fn store<T: InF32>(self, row: *mut T, [gates, values]: [[f32; N]; 2]) {
        let at = self.first as usize;
        // SAFETY: the caller's promise.
        unsafe {
            match self.form {
                Form::Plain => self.piece.store(row.add(at), gates),
                Form::Halves => {
                    self.piece.store(row.add(at), gates);
                    self.piece.store(row.add(self.all as usize + at), values);
                }
                Form::Neighbours => {
                    let (first, second) = together(gates, values);
                    self.pair[0].store(row.add(2 * at), first);
                    self.pair[1].store(row.wrapping_add(2 * at + N), second);
                }
            }
        }
    }
}

/// Rows that a thread has under way, at most.
const MOST_AT_ONCE: usize = 4;

/// Rows that a thread has under way: 64 bytes of gates and values, and half as much again of gradients.
const fn at_once<T>() -> usize {
    8 / size_of::<T>()
}

/// A thread's columns of a row: gates, values, and the gradient by the result.
#[derive(Clone, Copy)]
struct Loaded<const N: usize> {
    gates: [f32; N],
    values: [f32; N],
    dy: [f32; N],
}

/// The same in memory: the two vectors of gates and values, as they lie, and that of the gradient.
#[derive(Clone, Copy, Default)]
struct Raw {
    first: Words,
    second: Words,
    dy: Words,
}

/// The words of a vector.
///
/// # Safety
/// It is readable, and aligned.
#[inline(always)]
unsafe fn words<T: InF32, const N: usize>(from: *const T) -> Words {
    // SAFETY: the caller's promise.
    access::words(unsafe { access::load_wide::<T, N>(from) })
}

/// Its elements.
#[inline(always)]
fn elements<T: InF32, const N: usize>([a, b, c, d]: Words) -> [f32; N] {
    // SAFETY: every bit pattern is a number.
    T::widen(unsafe { access::from_wide::<T, N>([a, b, c, d, 0, 0, 0, 0]) })
}

impl<const N: usize> Columns<N> {
    /// Whether all vectors of each row are there.
    #[inline(always)]
    fn is_whole(self) -> bool {
        let of_pair = self.pair[0].is_vector() && self.pair[1].is_vector();
        self.piece.is_vector() && (of_pair || self.form as u32 != Form::Neighbours as u32)
    }

    /// Loads the vectors of a row. Without values it is the gates' twice.
    ///
    /// # Safety
    /// As the entry points; the row exists, and its vectors are there.
    #[inline(always)]
    unsafe fn load_raw<T: InF32>(self, job: &ActivationJob, tensors: &Tensors<T>, row: u64) -> Raw {
        let (first, second) = match self.form {
            Form::Plain => (self.first, self.first),
            Form::Halves => (self.first, self.all + self.first),
            Form::Neighbours => (2 * self.first, 2 * self.first + N as u64),
        };
        let at = row * job.strides[0];
        // SAFETY: the caller's promise.
        unsafe {
            let first = words::<T, N>(tensors.x.add((at + first) as usize));
            let second = words::<T, N>(tensors.x.add((at + second) as usize));
            let mut dy = Words::default();
            if !tensors.dy.is_null() {
                dy = words::<T, N>(tensors.dy.add((row * job.strides[1] + self.first) as usize));
            }
            Raw { first, second, dy }
        }
    }

    #[inline(always)]
    fn widen<T: InF32>(self, raw: Raw) -> Loaded<N> {
        let (first, second) = (elements::<T, N>(raw.first), elements::<T, N>(raw.second));
        let (gates, values) = match self.form {
            Form::Plain => (first, [1.0; N]),
            Form::Halves => (first, second),
            Form::Neighbours => apart(first, second),
        };
        Loaded { gates, values, dy: elements::<T, N>(raw.dy) }
    }

    /// Loads all of a row, whatever is there of it.
    ///
    /// # Safety
    /// As the entry points; the row exists.
    #[inline(always)]
    unsafe fn load_all<T: InF32>(self, job: &ActivationJob, tensors: &Tensors<T>, row: u64) -> Loaded<N> {
        // SAFETY: the caller's promise.
        unsafe {
            let [gates, values] = self.load(tensors.x.add((row * job.strides[0]) as usize));
            let mut dy = [0.0; N];
            if !tensors.dy.is_null() {
                dy = self.piece.load(tensors.dy.add((row * job.strides[1] + self.first) as usize));
            }
            Loaded { gates, values, dy }
        }
    }

    /// Writes the results of a row, and adds them to the sums of their columns.
    ///
    /// # Safety
    /// As [`load_all`](Self::load_all); the row is the thread's own.
    #[inline(always)]
    unsafe fn finish<T: InF32>(
        self,
        job: &ActivationJob,
        tensors: &Tensors<T>,
        row: u64,
        Loaded { gates, values: values_of, dy }: Loaded<N>,
        sums: &mut Sums<N>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let to = tensors.to.add((row * job.strides[2]) as usize);
            if tensors.dy.is_null() {
                let y = zip(values::<T::Precision, N>(job.function, gates), values_of, |f, v| f * v);
                self.piece.store(to.add(self.first as usize), y);
                return;
            }
            let slopes = slopes::<T::Precision, N>(job.function, gates);
            let of_gates = zip(zip(dy, values_of, |dy, v| dy * v), slopes, |dy, slope| dy * slope);
            let of_values = if job.form as u32 == Form::Plain as u32 {
                [0.0; N]
            } else {
                zip(dy, values::<T::Precision, N>(job.function, gates), |dy, f| dy * f)
            };
            self.store(to, [of_gates, of_values]);
            let (of_gates, of_values) = (self.piece.keep(of_gates), self.piece.keep(of_values));
            sums[0] = zip(sums[0], of_gates, |sum, x| sum + x);
            sums[1] = zip(sums[1], of_values, |sum, x| sum + x);
        }
    }
}

/// # Safety
/// As the entry points. `slots` is shared memory for the sums of all threads.
#[inline(always)]
unsafe fn run<T: InF32, const N: usize>(job: &ActivationJob, tensors: Tensors<T>, slots: *mut Sums<N>) {
    let (first, part, team_row, lane) = begin(|| {
        let (thread, tile, part) = (thread::thread_idx_x(), thread::block_idx_x(), thread::block_idx_y());
        let lane = thread & ((1 << job.team) - 1);
        let first = ((u64::from(tile) << job.team) + u64::from(lane)) * N as u64;
        (first, u64::from(part), thread >> job.team, lane)
    });
    let teams = THREADS >> job.team;
    let mut sums: Sums<N> = [[0.0; N]; 2];
    // SAFETY: the caller's promise; all threads come to the barrier.
    unsafe {
        if first < job.columns {
            let columns = Columns::<N>::new(job, first);
            let (mut row, begin, step) = (u64::from(team_row), part * job.part, u64::from(teams));
            let end = job.part.min(job.rows - begin);
            if columns.is_whole() {
                let mut queue = [Raw::default(); MOST_AT_ONCE];
                unroll!(K in 0..4, {
                    if K < at_once::<T>() && row + K as u64 * step < end {
                        queue[K] = columns.load_raw(job, &tensors, begin + row + K as u64 * step);
                    }
                });
                while row < end {
                    let (now, next) = (queue[0], row + at_once::<T>() as u64 * step);
                    unroll!(K in 0..3, { queue[K] = queue[K + 1]; });
                    if next < end {
                        queue[at_once::<T>() - 1] = columns.load_raw(job, &tensors, begin + next);
                    }
                    columns.finish(job, &tensors, begin + row, columns.widen::<T>(now), &mut sums);
                    row += step;
                }
            }
            while row < end {
                let loaded = columns.load_all(job, &tensors, begin + row);
                columns.finish(job, &tensors, begin + row, loaded, &mut sums);
                row += step;
            }
        }
        if tensors.sums.is_null() {
            return;
        }
        *slots.add(thread::thread_idx_x() as usize) = sums;
        thread::sync_threads();
        if team_row == 0 && first < job.columns {
            let mut team = 1;
            while team < teams {
                let other = *slots.add(((team << job.team) + lane) as usize);
                sums[0] = zip(sums[0], other[0], |a, b| a + b);
                sums[1] = zip(sums[1], other[1], |a, b| a + b);
                team += 1;
            }
            let columns = Columns::<N>::new(&ActivationJob { is_aligned: 0, ..*job }, first);
            columns.store(tensors.sums.add((part * job.columns * job.form.columns()) as usize), sums);
        }
    }
}

/// Blocks of a multiprocessor.
const RESIDENT: u32 = 2;

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("Gradients of activations of ", stringify!($ty), ", and gated activations.")]
        ///
        /// Without `dy` it is the forward pass: `to` is `f(gate) value`. Else `to` has what `x` has, and
        /// `sums`, if that is not null, a row for each part: the sums of its columns before they are rounded.
        ///
        /// # Safety
        /// `x` and, where it is not null, `dy` hold the job's rows, and `to` as many, aligned as the job
        /// says; `to` overlaps nothing, or is `dy` of a plain job with the same strides. `sums` has a row, as
        /// long as those of `x`, for each of [`ActivationJob::parts`]. Blocks of [`THREADS`] threads: tiles
        /// along x, parts along y.
        #[kernel(launch_bounds(THREADS, RESIDENT))]
        pub unsafe fn $name(job: ActivationJob, x: *const $ty, dy: *const $ty, to: *mut $ty, sums: *mut f32) {
            let slots = shared::generic(shared_array![Sums<WIDTH>; THREADS as usize]);
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, WIDTH>(&job, Tensors { x, dy, to, sums }, slots) }
        }
    )* };
}

entries! {
    activation_gradient_f32: f32;
    activation_gradient_f16: f16;
    activation_gradient_bf16: bf16;
}
