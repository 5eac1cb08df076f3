//! Gradients of activations, with that of a bias, and gated activations in both directions.
//!
//! ```text
//!   dx = dy f'(x)                                    one tensor
//!   y = f(gate) value                                two, forward
//!   dgate = dy value f'(gate)    dvalue = dy f(gate)   two, backward
//!
//!   a block:  a tile of columns, 16 bytes each a thread  x  a part of the rows; threads that the tile has
//!             no columns for take other rows. The sums of its columns are added up in shared memory, team
//!             after team, and are a row of `sums`.
//! ```
//! Gate and value are two halves of a row, or neighbours, as SwiGLU in a product's epilogue has them. Where
//! rows do not begin at boundaries, a thread has as many columns one by one, each beside its neighbours'.
//!
//! Without sums a thread has one row, and many blocks hide the memory; with sums few threads have many rows,
//! and load the next ones ahead. So these are two kernels.

use crate::THREADS;
use crate::rotary::{apart, together};
use core::marker::PhantomData;
use cuda_std::{kernel, misc, shared, shared_array, thread};
use half::{bf16, f16};
use primitives::access::{self, Plain, VECTOR_BYTES, Words};
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

/// The function of each element, and its derivative there. Of results the first is not asked.
#[inline(always)]
fn both<P: Precision<Value = f32>>(function: ActivationFunction, x: [f32; FEW]) -> [[f32; FEW]; 2] {
    use ActivationFunction as Of;
    match function {
        Of::Identity => [x, map(x, |_| 1.0)],
        Of::Relu => [map(x, P::relu), map(x, P::relu_grad)],
        Of::Gelu => [map(x, P::gelu), map(x, P::gelu_grad)],
        Of::GeluTanh => [map(x, P::gelu_tanh), map(x, P::gelu_tanh_grad)],
        Of::Silu => [map(x, P::silu), map(x, P::silu_grad)],
        Of::Sigmoid => [map(x, P::sigmoid), map(x, P::sigmoid_grad)],
        Of::Tanh => [map(x, P::tanh), map(x, P::tanh_grad)],
        Of::SigmoidOfResult => [x, map(x, |y| y * (1.0 - y))],
        Of::TanhOfResult => [x, map(x, |y| (1.0 - y) * (1.0 + y))],
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
    /// 1 when all rows begin at 16-byte boundaries and are whole vectors long, else 0.
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
/// Blocks that a grid has along y. With more rows than fit, threads take more of them.
const MOST_PARTS: u64 = 65_535;

impl ActivationJob {
    /// A job of rows some distance apart, of elements of `size` bytes; `sums` says whether columns are added
    /// up.
    pub fn new(
        [rows, columns]: [u64; 2],
        size: usize,
        function: ActivationFunction,
        form: Form,
        sums: bool,
    ) -> Self {
        let units = columns.div_ceil((VECTOR_BYTES / size) as u64).clamp(1, THREADS.into());
        let team = units.next_power_of_two().trailing_zeros();
        let each = if sums { SUMMED_ROWS } else { 1 };
        let part = (each * u64::from(THREADS >> team)).max(rows.div_ceil(MOST_PARTS));
        Self { rows, columns, strides: [0; 3], part, function, team, form, is_aligned: 0 }
    }

    /// Blocks that lie side by side in a row, of elements of `size` bytes.
    pub const fn tiles(&self, size: usize) -> u64 {
        self.columns.div_ceil(((VECTOR_BYTES / size) as u64) << self.team)
    }

    /// Parts of the rows, each of which has a row of sums.
    pub const fn parts(&self) -> u64 {
        self.rows.div_ceil(self.part)
    }
}

/// Of a thread's columns of gates and of values.
type Sums<const N: usize> = [[f32; N]; 2];

/// The tensors of a launch; without `dy` it is the forward pass.
#[derive(Clone, Copy)]
struct Tensors<T> {
    x: *const T,
    dy: *const T,
    to: *mut T,
}

/// A thread's part of a row as it lies in memory: gates and values, and the gradient by the result. No branch
/// touches it before its function is known, so several loads are under way at once.
#[derive(Clone, Copy, Default)]
struct Raw {
    x: [Words; 2],
    dy: Words,
}

/// Where a thread's columns begin in a row, and how far they are from each other; in elements.
type Place = (u64, u32);

/// A thread's columns: with `WIDE` the `N` neighbours of a vector, else as many `step` apart.
#[derive(Clone, Copy)]
struct Columns<'a, T, const N: usize, const WIDE: bool> {
    job: &'a ActivationJob,
    tensors: Tensors<T>,
    /// The first, among those of results.
    first: u64,
    step: u32,
}

impl<'a, T: InF32, const N: usize, const WIDE: bool> Columns<'a, T, N, WIDE> {
    #[inline(always)]
    fn new(job: &'a ActivationJob, tensors: Tensors<T>, tile: u32, lane: u32) -> Self {
        let (tile, lane) = (u64::from(tile) << job.team, u64::from(lane));
        let first = if WIDE { (tile + lane) * N as u64 } else { tile * N as u64 + lane };
        Self { job, tensors, first, step: if WIDE { 1 } else { 1 << job.team } }
    }

    /// The distances of the columns from the first, and whether they are there. Not known to be the same for
    /// each row and tensor: kept, they would take the registers of functions.
    #[inline(always)]
    fn apart(&self) -> impl Fn(usize) -> (u32, bool) + use<T, N, WIDE> {
        let (step, left) = (misc::opaque(self.step), self.job.columns - self.first);
        move |i| (i as u32 * step, u64::from(i as u32 * step) < left)
    }

    /// Those of gates (0) and of values (1).
    #[inline(always)]
    fn place(&self, which: u64) -> Place {
        match self.job.form {
            Form::Plain => (self.first, 1),
            Form::Halves => (self.first + which * self.job.columns, 1),
            Form::Neighbours => (2 * self.first + if WIDE { which * N as u64 } else { which }, 2),
        }
    }

    /// Loads the columns of a row; zeros behind the last.
    ///
    /// # Safety
    /// As for the entry points; the row exists.
    #[inline(always)]
    unsafe fn fetch(&self, row: *const T, (first, distance): Place) -> Words {
        // SAFETY: the caller's promise; vectors begin at boundaries.
        unsafe {
            let from = row.add(first as usize);
            if WIDE {
                return access::words(access::load_wide::<T, N>(from));
            }
            let (mut values, apart) = ([T::ZERO; N], self.apart());
            unroll!(I in 0..8, {
                let (at, exists) = apart(I);
                if I < N && exists {
                    let [value] = access::load::<T, 1>(from.add((at * distance) as usize));
                    values[I] = value;
                }
            });
            words(values)
        }
    }

    /// Stores the columns of a row.
    ///
    /// # Safety
    /// As for [`fetch`](Self::fetch), for writing.
    #[inline(always)]
    unsafe fn put<R: Plain>(&self, row: *mut R, (first, distance): Place, values: [R; N]) {
        // SAFETY: the caller's promise; vectors begin at boundaries.
        unsafe {
            let to = row.add(first as usize);
            if WIDE {
                access::store(to, values);
                return;
            }
            let apart = self.apart();
            unroll!(I in 0..8, {
                let (at, exists) = apart(I);
                if I < N && exists {
                    access::store(to.add((at * distance) as usize), [values[I]]);
                }
            });
        }
    }

    /// Stores what belongs to gates and values.
    ///
    /// # Safety
    /// As for [`put`](Self::put).
    #[inline(always)]
    unsafe fn put_both<R: Plain>(&self, row: *mut R, [mut first, mut second]: [[R; N]; 2]) {
        if self.is_paired() {
            (first, second) = together(first, second);
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.put(row, self.place(0), first);
            if self.job.form as u32 != Form::Plain as u32 {
                self.put(row, self.place(1), second);
            }
        }
    }

    /// Whether a vector has gates and values.
    #[inline(always)]
    fn is_paired(&self) -> bool {
        WIDE && self.job.form as u32 == Form::Neighbours as u32
    }

    /// Loads a row.
    ///
    /// # Safety
    /// As for [`fetch`](Self::fetch).
    #[inline(always)]
    unsafe fn load(&self, row: u64) -> Raw {
        let Tensors { x, dy, .. } = self.tensors;
        let mut raw = Raw::default();
        // SAFETY: the caller's promise.
        unsafe {
            let x = x.add((row * self.job.strides[0]) as usize);
            raw.x[0] = self.fetch(x, self.place(0));
            if self.job.form as u32 != Form::Plain as u32 {
                raw.x[1] = self.fetch(x, self.place(1));
            }
            if !dy.is_null() {
                raw.dy = self.fetch(dy.add((row * self.job.strides[1]) as usize), (self.first, 1));
            }
        }
        raw
    }

    /// Writes the results of a row, and adds gradients to the sums of their columns.
    ///
    /// # Safety
    /// As for [`put`](Self::put); the row is the thread's own.
    #[inline(always)]
    unsafe fn finish(&self, row: u64, raw: Raw, sums: &mut Sums<N>) {
        let [gates, values] = raw.x.map(elements::<T, N>);
        let raw = if self.is_paired() {
            let (gates, values) = apart(gates, values);
            Raw { x: [gates, values].map(words), ..raw }
        } else {
            raw
        };
        let is_forward = self.tensors.dy.is_null();
        let mut results = [Words::default(); 2];
        unroll!(K in 0..2, {
            if K < N / FEW {
                let some = Few::<T>::new(&raw, K);
                some.finish(self.job, is_forward, K, &mut results, sums);
            }
        });
        // SAFETY: the caller's promise.
        unsafe {
            let to = self.tensors.to.add((row * self.job.strides[2]) as usize);
            let [first, second] = results.map(elements::<T, N>);
            if is_forward {
                self.put(to, (self.first, 1), first);
            } else {
                self.put_both(to, [first, second]);
            }
        }
    }
}

/// Elements of a thread's vector that are computed at a time. More of 16-bit ones leave long functions too
/// few registers.
const FEW: usize = 4;

/// Those of a row: gates, values, and gradients by results.
struct Few<T> {
    gates: [f32; FEW],
    values: [f32; FEW],
    dy: [f32; FEW],
    of: PhantomData<T>,
}

impl<T: InF32> Few<T> {
    /// Words that they are in.
    const WORDS: usize = FEW * size_of::<T>() / size_of::<u32>();

    /// The `k`-th of a vector, which is a constant.
    #[inline(always)]
    fn new(Raw { x: [gates, values], dy }: &Raw, k: usize) -> Self {
        let some = |words: &Words| {
            let mut some = access::Wide::default();
            for i in 0..Self::WORDS {
                some[i] = words[k * Self::WORDS + i];
            }
            // SAFETY: every bit pattern is a number.
            T::widen(unsafe { access::from_wide::<T, FEW>(some) })
        };
        Self { gates: some(gates), values: some(values), dy: some(dy), of: PhantomData }
    }

    /// Puts what they become in their places of the results, and adds gradients to sums.
    #[inline(always)]
    fn finish<const N: usize>(
        &self,
        job: &ActivationJob,
        is_forward: bool,
        k: usize,
        results: &mut [Words; 2],
        sums: &mut Sums<N>,
    ) {
        let &Self { gates, values, dy, .. } = self;
        let times = |a, b| zip(a, b, |a: f32, b: f32| a * b);
        if job.form as u32 == Form::Plain as u32 {
            let gradients = times(dy, both::<T::Precision>(job.function, gates)[1]);
            Self::put(&mut results[0], k, gradients);
            add(&mut sums[0], k, gradients);
        } else if is_forward {
            Self::put(&mut results[0], k, times(both::<T::Precision>(job.function, gates)[0], values));
        } else {
            let [f, slopes] = both::<T::Precision>(job.function, gates);
            let gradients = [times(times(dy, values), slopes), times(dy, f)];
            unroll!(I in 0..2, {
                Self::put(&mut results[I], k, gradients[I]);
                add(&mut sums[I], k, gradients[I]);
            });
        }
    }

    /// Puts them, rounded, in their place of a vector.
    #[inline(always)]
    fn put(vector: &mut Words, k: usize, values: [f32; FEW]) {
        let words = access::to_wide::<T, FEW>(T::narrow(values));
        for i in 0..Self::WORDS {
            vector[k * Self::WORDS + i] = words[i];
        }
    }
}

/// Adds some to their place of a vector's sums.
#[inline(always)]
fn add<const N: usize>(sums: &mut [f32; N], k: usize, values: [f32; FEW]) {
    for i in 0..FEW {
        sums[k * FEW + i] += values[i];
    }
}

/// The elements of a vector.
#[inline(always)]
fn elements<T: Plain, const N: usize>([a, b, c, d]: Words) -> [T; N] {
    // SAFETY: every bit pattern is a number.
    unsafe { access::from_wide::<T, N>([a, b, c, d, 0, 0, 0, 0]) }
}

/// The vector of elements.
#[inline(always)]
fn words<T: Plain, const N: usize>(elements: [T; N]) -> Words {
    access::words(access::to_wide(elements))
}

/// A thread's place in a launch.
#[derive(Clone, Copy)]
struct Thread {
    tile: u32,
    part: u64,
    /// Its team, of so many.
    team: u32,
    teams: u32,
    /// Its number in the team.
    lane: u32,
}

impl Thread {
    #[inline(always)]
    fn new(job: &ActivationJob) -> Self {
        begin(|| {
            let (thread, tile, part) = (thread::thread_idx_x(), thread::block_idx_x(), thread::block_idx_y());
            let (team, lane) = (thread >> job.team, thread & ((1 << job.team) - 1));
            Self { tile, part: part.into(), team, teams: THREADS >> job.team, lane }
        })
    }

    /// The first row of the thread's, the end of its part, and the distance to its next row.
    #[inline(always)]
    fn rows(&self, job: &ActivationJob) -> [u64; 3] {
        let begin = self.part * job.part;
        [begin + u64::from(self.team), (begin + job.part).min(job.rows), self.teams.into()]
    }
}

/// Without sums.
///
/// # Safety
/// As for the entry points.
#[inline(always)]
unsafe fn each_row<T: InF32, const N: usize, const WIDE: bool>(
    job: &ActivationJob,
    thread: Thread,
    tensors: Tensors<T>,
) {
    let columns = Columns::<T, N, WIDE>::new(job, tensors, thread.tile, thread.lane);
    if columns.first >= job.columns {
        return;
    }
    let [mut row, end, step] = thread.rows(job);
    while row < end {
        // SAFETY: the caller's promise; the sums of one row are its gradients, and nobody asks for them.
        unsafe { columns.finish(row, columns.load(row), &mut [[0.0; N]; 2]) };
        row += step;
    }
}

/// Rows that a thread has under way, where it adds up columns: two vectors of each tensor.
const AHEAD: usize = 2;

/// With sums. `slots` is shared memory for those of all threads.
///
/// # Safety
/// As for the entry points.
#[inline(always)]
unsafe fn with_sums<T: InF32, const N: usize, const WIDE: bool>(
    job: &ActivationJob,
    thread: Thread,
    tensors: Tensors<T>,
    to: *mut f32,
    slots: *mut Sums<N>,
) {
    let columns = Columns::<T, N, WIDE>::new(job, tensors, thread.tile, thread.lane);
    let mut sums: Sums<N> = [[0.0; N]; 2];
    // SAFETY: the caller's promise; all threads come to the barrier. A slot is written by one thread before
    // it and read after it.
    unsafe {
        if columns.first < job.columns {
            let [mut row, end, step] = thread.rows(job);
            let mut queue = [Raw::default(); AHEAD];
            unroll!(K in 0..2, {
                let next = row + K as u64 * step;
                if next < end {
                    queue[K] = columns.load(next);
                }
            });
            while row < end {
                let [now, ahead] = queue;
                let next = row + AHEAD as u64 * step;
                queue = [ahead, if next < end { columns.load(next) } else { ahead }];
                columns.finish(row, now, &mut sums);
                row += step;
            }
        }
        *slots.add(thread::thread_idx_x() as usize) = sums;
        thread::sync_threads();
        if thread.team == 0 && columns.first < job.columns {
            let mut team = 1;
            while team < thread.teams {
                let other = *slots.add(((team << job.team) + thread.lane) as usize);
                sums[0] = zip(sums[0], other[0], |a, b| a + b);
                sums[1] = zip(sums[1], other[1], |a, b| a + b);
                team += 1;
            }
            columns.put_both(to.add((thread.part * job.columns * job.form.columns()) as usize), sums);
        }
    }
}

/// Blocks of a multiprocessor without sums, and with them.
const RESIDENT: [u32; 2] = [4, 2];

/// Entry points for each element type.
macro_rules! entries {
    ($($name:ident, $with_sums:ident: $ty:ident;)*) => { $(
        #[doc = concat!("Gated activations of ", stringify!($ty), ", and gradients of activations.")]
        ///
        /// Without `dy` it is the forward pass of gates and values: `to` is `f(gate) value`. Else `to` has
        /// what `x` has.
        ///
        /// # Safety
        /// `x` and, where it is not null, `dy` hold the job's rows, and `to` as many, aligned as the job
        /// says; `to` overlaps nothing, or is `dy` of a plain job with the same strides. A plain job has
        /// `dy`. Blocks of [`THREADS`] threads: tiles along x, parts along y.
        #[kernel(launch_bounds(THREADS, RESIDENT[0]))]
        pub unsafe fn $name(job: ActivationJob, x: *const $ty, dy: *const $ty, to: *mut $ty) {
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            let (thread, tensors) = (Thread::new(&job), Tensors { x, dy, to });
            // SAFETY: the caller's contract is the same.
            unsafe {
                if job.is_aligned != 0 {
                    each_row::<$ty, N, true>(&job, thread, tensors)
                } else {
                    each_row::<$ty, N, false>(&job, thread, tensors)
                }
            }
        }

        #[doc = concat!("Gradients of activations of ", stringify!($ty), ", and the sums of their columns.")]
        ///
        /// `sums` gets a row for each part: the sums of its columns before they are rounded.
        ///
        /// # Safety
        #[doc = concat!("As for [`", stringify!($name), "`](fn@", stringify!($name), "), with `dy`;")]
        /// `sums` has a row, as long as those of `x`, for each of [`ActivationJob::parts`].
        #[kernel(launch_bounds(THREADS, RESIDENT[1]))]
        pub unsafe fn $with_sums(
            job: ActivationJob,
            x: *const $ty,
            dy: *const $ty,
            to: *mut $ty,
            sums: *mut f32,
        ) {
            const N: usize = VECTOR_BYTES / size_of::<$ty>();
            let slots = shared::generic(shared_array![Sums<N>; THREADS as usize]);
            let (thread, tensors) = (Thread::new(&job), Tensors { x, dy, to });
            // SAFETY: the caller's contract is the same.
            unsafe {
                if job.is_aligned != 0 {
                    with_sums::<$ty, N, true>(&job, thread, tensors, sums, slots)
                } else {
                    with_sums::<$ty, N, false>(&job, thread, tensors, sums, slots)
                }
            }
        }
    )* };
}

entries! {
    activation_f32, activation_with_sums_f32: f32;
    activation_f16, activation_with_sums_f16: f16;
    activation_bf16, activation_with_sums_bf16: bf16;
}
