//! From tensors to a launch of rows: which engine, which plan.

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use primitives::access::VECTOR_BYTES;
use rows::function::{MAX_INPUTS, MAX_OUTPUTS};
use rows::plan::{Drawing, KeptNorm, Plan, Shape};

use crate::device::Device;
use crate::error::Result;
use crate::launch::{Arg, LaunchConfig, launch, resident_clusters};
use crate::memory::Within;
use crate::ops::counter::Counter;
use crate::ops::elementwise::contiguous;
use crate::stream::Stream;
use crate::tensor::{Element, Tensor, TensorMut};

/// Parameters of a kernel of rows of `T` with the function `F`.
pub(super) type Parameters<F, T> = (Value<Plan>, Value<F>, Ptr<T>, Ptr<T>, Ptr<T>, PtrMut<T>, PtrMut<T>);

/// The same of one whose blocks draw rows from a counter.
pub(super) type DrawnParameters<F, T> =
    (Value<Plan>, Value<F>, Ptr<T>, Ptr<T>, PtrMut<u32>, PtrMut<T>, PtrMut<T>);

/// The tensors of a launch. Inputs are as [`as_rows`] gives them; outputs are contiguous, or the first one
/// has rows some distance apart, and there is no first input: it is written over.
pub(super) struct Job<'a> {
    pub stream: &'a Stream,
    pub columns: usize,
    /// Weights that all rows share, of a row's length each.
    pub shared: u32,
    pub inputs: [Option<&'a Tensor>; MAX_INPUTS],
    pub outputs: [Option<TensorMut<'a>>; MAX_OUTPUTS],
}

/// Which rows a kernel whose lanes have rings of their own takes.
#[derive(Clone, Copy)]
pub(super) enum Stay {
    /// Whole vectors, in a block.
    Block,
    /// Whole vectors, in a cluster.
    Cluster,
    /// Rows that begin anywhere.
    Anywhere,
}

/// `x` as rows of `columns` elements beside each other, one row a fixed distance from the next; a copy only
/// where that needs one.
pub(in crate::ops) fn as_rows(stream: &Stream, x: &Tensor, columns: usize) -> Result<Tensor> {
    let sides = [x.elements() / columns.max(1), columns];
    if let Ok(rows) = x.view_as(&sides)
        && (columns == 1 || rows.layout().strides()[1] == 1)
    {
        return Ok(rows);
    }
    contiguous(stream, x)?.view_as(&sides)
}

/// Whether the engines for Hopper run there.
fn is_hopper(device: &Device) -> bool {
    device.arch().is_hopper()
}

impl Job<'_> {
    /// Rows.
    pub fn rows(&self) -> u64 {
        let input = self.inputs[0].map(|x| x.shape()[0]);
        let rows =
            input.or_else(|| self.outputs[0].as_ref().map(|y| y.shape().elements() / self.columns.max(1)));
        rows.unwrap_or(0) as u64
    }

    /// Addresses and strides of all that is there; of the inputs first.
    fn places(&self) -> [Option<(u64, u64)>; MAX_INPUTS + MAX_OUTPUTS] {
        let input = |i: usize| self.inputs[i].map(|x| (x.address(), x.layout().strides()[0] as u64));
        let output = |i: usize| {
            let output: &TensorMut<'_> = self.outputs[i].as_ref()?;
            let strides = output.layout().strides();
            // In place, rows may be apart; else they are one behind the other.
            let is_in_place = i == 0 && self.inputs[0].is_none();
            let stride = if is_in_place { strides[0] } else { self.columns };
            Some((output.address(), stride as u64))
        };
        let written_over = || if self.inputs[0].is_none() { output(0) } else { None };
        [input(0).or_else(written_over), input(1), input(2), output(0), output(1)]
    }

    fn shape(&self, size: usize) -> Shape {
        let strides = self.places().map(|place| place.map_or(0, |(_, stride)| stride));
        let [a, b, c, y, z] = strides;
        Shape {
            rows: self.rows(),
            columns: self.columns as u32,
            size,
            inputs: self.places()[..MAX_INPUTS].iter().flatten().count() as u32,
            shared: self.shared,
            input_strides: [a, b, c],
            output_strides: [y, z],
        }
    }

    /// Whether all tensors of each row lie alike within 16 bytes.
    fn is_alike(&self, size: usize) -> bool {
        let vector = VECTOR_BYTES as u64;
        let phases = self
            .places()
            .map(|place| place.map(|(address, stride)| (address % vector, stride * size as u64 % vector)));
        // A single row has no next one.
        let is_same = |phase: &(u64, u64)| {
            phases[0].is_some_and(|first| phase.0 == first.0 && (phase.1 == first.1 || self.rows() == 1))
        };
        phases.iter().flatten().all(is_same)
    }

    /// The plan of the engine that holds rows, where there is one for these rows on this device.
    fn held(&self, size: usize) -> Option<Plan> {
        let device = self.stream.device();
        if !is_hopper(device) || !self.is_alike(size) {
            return None;
        }
        Plan::held(&self.shape(size))
    }

    /// Whether the engines for Hopper whose first row begins at a vector run there.
    fn is_whole(&self, size: usize) -> bool {
        let begins_at_vector = self.places()[0].is_some_and(|(at, _)| at.is_multiple_of(VECTOR_BYTES as u64));
        is_hopper(self.stream.device()) && self.is_alike(size) && begins_at_vector
    }

    /// The plan of the engine that has rows in registers, likewise, where it is the faster one.
    pub fn kept(&self, size: usize, norm: KeptNorm) -> Option<Plan> {
        if !self.is_whole(size) {
            return None;
        }
        let multiprocessors = self.stream.device().properties().sm_count.max(1);
        Plan::kept(&self.shape(size), norm, multiprocessors)
    }

    /// The same where blocks draw rows, and how they do.
    pub fn drawn(&self, size: usize, norm: KeptNorm) -> Option<(Plan, Drawing)> {
        if !self.is_whole(size) {
            return None;
        }
        let multiprocessors = self.stream.device().properties().sm_count.max(1);
        Plan::drawn(&self.shape(size), norm, multiprocessors)
    }

    /// The plan of the engine with sums of columns, likewise, for a kernel. How many clusters run at once is
    /// the card's, so sums have the same order on one card, not on all of a kind.
    ///
    /// # Errors
    /// As for a launch.
    pub fn sums<K: Kernel>(&self, size: usize) -> Result<Option<Plan>> {
        let device = self.stream.device();
        if !self.is_whole(size) {
            return Ok(None);
        }
        let plan = Plan::sums(&self.shape(size), device.properties().sm_count.max(1));
        plan.map(|plan| {
            // Multiprocessors come in pairs, each room for a cluster of two, so all of them run.
            if plan.cluster <= 2 {
                return Ok(plan);
            }
            let most = resident_clusters::<K>(self.stream, config(&plan, plan.ring_threads()))?;
            Ok(plan.with_clusters(most))
        })
        .transpose()
    }

    /// The plan of the engine with sums of columns whose lanes have rings of their own, likewise, by this
    /// function of a shape and a number of multiprocessors, and which of the engine's kernels it is for. The
    /// first one here is that of clusters, the second that of rows that begin anywhere.
    ///
    /// # Errors
    /// As for a launch.
    pub fn stay_sums<C: Kernel, A: Kernel>(
        &self,
        size: usize,
        plan: impl Fn(&Shape, u32) -> Option<Plan>,
    ) -> Result<Option<(Plan, Stay)>> {
        let device = self.stream.device();
        if !self.is_whole(size) {
            return Ok(None);
        }
        let shape = self.shape(size);
        let Some(plan) = plan(&shape, device.properties().sm_count.max(1)) else {
            return Ok(None);
        };
        let stay = match (shape.is_whole(), plan.cluster) {
            (false, _) => Stay::Anywhere,
            (true, 1) => Stay::Block,
            (true, _) => Stay::Cluster,
        };
        // As in `sums`.
        if plan.cluster <= 2 {
            return Ok(Some((plan, stay)));
        }
        let config = config(&plan, plan.consumers);
        let most = match stay {
            Stay::Anywhere => resident_clusters::<A>(self.stream, config)?,
            _ => resident_clusters::<C>(self.stream, config)?,
        };
        Ok(Some((plan.with_staying(&shape, most), stay)))
    }

    /// Queues the function: by the engine that holds rows where that can, else by the direct engine.
    ///
    /// # Safety
    /// The tensors hold as many rows as the first, of elements `T`; outputs overlap nothing; the function's
    /// own pointers are as it wants them.
    pub unsafe fn run<D, R, F, T>(&self, function: impl Arg<Value<F>>) -> Result<()>
    where
        T: Element,
        D: Kernel<Params = Parameters<F, T>>,
        R: Kernel<Params = Parameters<F, T>>,
    {
        if self.rows() == 0 {
            return Ok(());
        }
        match self.held(size_of::<T>()) {
            // SAFETY: the caller's promise; the plan is one for the kernel.
            Some(plan) => unsafe { self.planned::<R, F, T>(&plan, function) },
            // SAFETY: as above.
            None => unsafe { self.direct::<D, F, T>(function) },
        }
    }

    /// Queues the function by a kernel for Hopper, with a plan of its own.
    ///
    /// # Safety
    /// As for [`run`](Self::run); the plan is one for the kernel.
    pub unsafe fn planned<K, F, T>(&self, plan: &Plan, function: impl Arg<Value<F>>) -> Result<()>
    where
        T: Element,
        K: Kernel<Params = Parameters<F, T>>,
    {
        // SAFETY: the caller's promise.
        unsafe { self.launch::<K, F, T>(plan, config(plan, plan.consumers), function) }
    }

    /// Queues the function by a kernel whose blocks draw rows, with a plan of its own.
    ///
    /// # Safety
    /// As for [`run`](Self::run); the plan is one for the kernel.
    pub unsafe fn by_draws<K, F, T>(&self, plan: &Plan, function: impl Arg<Value<F>>) -> Result<()>
    where
        T: Element,
        K: Kernel<Params = DrawnParameters<F, T>>,
    {
        let mut counter = Counter::new(self.stream)?;
        let [x, residual, _] = self.read()?;
        let [y, sum] = [&self.outputs[0], &self.outputs[1]].map(|output| written(self.stream, output));
        let arguments = (*plan, function, x, residual, &mut counter, y?, sum?);
        // SAFETY: the caller's promise; the counter is 0.
        unsafe { launch::<K>(self.stream, config(plan, plan.consumers), arguments) }
    }

    /// Queues the function by the direct engine.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub unsafe fn direct<D, F, T>(&self, function: impl Arg<Value<F>>) -> Result<()>
    where
        T: Element,
        D: Kernel<Params = Parameters<F, T>>,
    {
        if self.rows() == 0 {
            return Ok(());
        }
        let plan = Plan::direct(&self.shape(size_of::<T>()));
        let config = LaunchConfig::new([plan.blocks, 1, 1], [plan.consumers, 1, 1]).overlapping_previous();
        // SAFETY: the caller's promise.
        unsafe { self.launch::<D, F, T>(&plan, config, function) }
    }

    /// The inputs, for kernels.
    fn read<T>(&self) -> Result<[Option<Within<'_, T>>; MAX_INPUTS]> {
        let [x, second, third] = self.inputs.map(|input| input.map(|x| x.read(self.stream)).transpose());
        Ok([x?, second?, third?])
    }

    /// Queues a function with sums of columns by a plan of [`sums`](Self::sums).
    ///
    /// # Safety
    /// As for [`run`](Self::run); there is a place for the sums of each cluster.
    pub unsafe fn with_sums<K, F, T>(
        &self,
        (plan, threads): (&Plan, u32),
        function: impl Arg<Value<F>>,
        sums: Option<Within<'_, f32>>,
    ) -> Result<()>
    where
        T: Element,
        K: Kernel<Params = (Value<Plan>, Value<F>, Ptr<T>, Ptr<T>, Ptr<T>, PtrMut<T>, PtrMut<f32>)>,
    {
        let ([x, second, third], y) = (self.read()?, written(self.stream, &self.outputs[0])?);
        // SAFETY: the caller's promise; the plan is one for the kernel.
        unsafe {
            launch::<K>(self.stream, config(plan, threads), (*plan, function, x, second, third, y, sums))
        }
    }

    /// # Safety
    /// As for [`run`](Self::run); plan and configuration are right for the kernel.
    unsafe fn launch<K, F, T>(
        &self,
        plan: &Plan,
        config: LaunchConfig,
        function: impl Arg<Value<F>>,
    ) -> Result<()>
    where
        T: Element,
        K: Kernel<Params = Parameters<F, T>>,
    {
        let [x, second, third] = self.read()?;
        let [y, other] = [&self.outputs[0], &self.outputs[1]].map(|output| written(self.stream, output));
        let arguments = (*plan, function, x, second, third, y?, other?);
        // SAFETY: the caller's promise.
        unsafe { launch::<K>(self.stream, config, arguments) }
    }
}

/// An output, for kernels.
pub(super) fn written<'t, T>(
    stream: &Stream,
    output: &'t Option<TensorMut<'_>>,
) -> Result<Option<Within<'t, T>>> {
    output.as_ref().map(|output| output.write(stream)).transpose()
}

/// The launch of a plan for Hopper, with so many threads a block.
fn config(plan: &Plan, threads: u32) -> LaunchConfig {
    LaunchConfig::new([plan.blocks, 1, 1], [threads, 1, 1])
        .cluster([plan.cluster, 1, 1])
        .with_shared(plan.shared)
        .overlapping_previous()
}

/// Queues a job's function by the kernels of an element type: `TYPE => direct, held;`.
macro_rules! launched {
    ($job:expr, $function:expr, $dtype:expr, $operation:expr, {
        $($known:ident($ty:ty) => $direct:path $(, $held:path)?;)*
    }) => {
        $crate::ops::dispatch::by_dtype!($dtype, ($operation, "x", None), {
            $($known => $crate::ops::row::launch::launched!(@ $job, $function, $ty, $direct $(, $held)?),)*
        })
    };
    (@ $job:expr, $function:expr, $ty:ty, $direct:path, $held:path) => {
        $job.run::<$direct, $held, _, $ty>($function)
    };
    (@ $job:expr, $function:expr, $ty:ty, $direct:path) => {
        $job.direct::<$direct, _, $ty>($function)
    };
}

pub(super) use launched;

/// The axes by which a tensor with its channels second lies in memory with its channels last.
pub(super) fn lies_last(x: &Tensor) -> Result<Option<Vec<usize>>> {
    if x.is_contiguous() {
        return Ok(None);
    }
    let axes: Vec<usize> = [0].into_iter().chain(2..x.rank()).chain([1]).collect();
    Ok(x.permute(&axes)?.is_contiguous().then_some(axes))
}
