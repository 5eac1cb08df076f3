//! Decode attention with a score function: of another package, or of the family ([`super::patterns`]).

use attention::decode::compiled::CompiledDecode;
use attention::decode::instances::Append;
use attention::decode::problem::DecodeParams;
use cuda_std::kernel::{Kernel, Ptr, PtrMut, StructArgs, Value};

use crate::error::Result;
use crate::launch::{self as kernel, Arg};
use crate::stream::Stream;

use super::super::check::invalid;
use super::launch::Call;
use super::plan::Kernels;
use super::{Decode, DecodePlan, DecodeProblem};

/// [`Decode`] whose scores go through a function before the softmax. Made by [`Decode::function`]
/// and its neighbours.
#[must_use = "attention is computed by `run`"]
pub struct ModifiedDecode<'a, F, V> {
    pub(super) decode: Decode<'a>,
    pub(super) function: StructArgs<F, V>,
    pub(super) kernels: Kernels,
}

/// The hint of the error where the function's package has no kernel for a problem.
const HINT: &str = "name a kernel of these types and of at least this head size in `decode_score_kernels!`, for a cache in e4m3 behind `e4m3:`; they want compute capability 8.0, those for heads of more than 128 elements the shared memory of 9.0, those behind `e4m3:` 9.0 itself";

impl<'a> Decode<'a> {
    /// With a score function that is compiled into kernels by
    /// [`attention::decode_score_kernels!`](::attention::decode_score_kernels): `LocalArgs { slope: 0.5
    /// }.pass()` for a `struct Local { slope: f32 }`. A cache in e4m3 takes the kernels behind its `e4m3:`.
    ///
    /// The function gets `scale q k`. Its `query` counts from the first of the sequence's queries in this
    /// call, its `key` from the sequence's first key, and its `distance` is that of the key from the
    /// query's diagonal, which ends in the last query and the sequence's last key unless the mask says
    /// otherwise. All keys that the mask shows are read, also those that the function hides: their values
    /// are multiplied by 0, so they have to be finite. Log-sum-exps and [`sinks`](Self::sinks) are in terms
    /// of the function's scores.
    ///
    /// # Safety
    /// For every position of the problem the function reads no memory but what its arguments reach: for each
    /// sequence of the batch, each head, each query of the call, and each key up to the most of a sequence.
    pub unsafe fn function<F: CompiledDecode, V>(
        self,
        function: StructArgs<F, V>,
    ) -> ModifiedDecode<'a, F, V> {
        let kernels = Kernels { tables: [F::DECODE, &[]], pattern: None, hint: HINT };
        ModifiedDecode { decode: self, function, kernels }
    }
}

impl<F, V> ModifiedDecode<'_, F, V>
where
    F: CompiledDecode,
    F::Decode: DecodeKernels<F>,
    StructArgs<F, V>: Arg<Value<F>>,
{
    /// As [`Decode::problem`].
    ///
    /// # Errors
    /// As [`Decode::problem`].
    pub fn problem(&self) -> Result<DecodeProblem> {
        self.decode.problem()
    }

    /// As [`Decode::run`].
    ///
    /// # Errors
    /// As [`Decode::run`]; [`Error::InvalidArgument`](crate::Error::InvalidArgument) too where the function
    /// is not compiled for the types and the head size.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let plan = self.decode.plan(stream, self.kernels)?;
        self.launch(stream, &plan)
    }

    pub(super) fn launch(self, stream: &Stream, plan: &DecodePlan) -> Result<()> {
        let Some(mut call) = Call::new(stream, plan, self.decode)? else { return Ok(()) };
        let scale = call.take_scale();
        // SAFETY: as `Call::new` says; the kernel is the plan's, and the function is the word of whoever
        // named it.
        unsafe {
            <F::Decode as private::Sealed<F>>::launch(plan.index, plan, &mut call, self.function, scale)?;
            call.combine()
        }
    }

    /// As [`Decode::explain`].
    ///
    /// # Errors
    /// As [`ModifiedDecode::run`], but for the driver's.
    pub fn explain(self, stream: &Stream) -> Result<DecodePlan> {
        self.decode.plan(stream, self.kernels)
    }
}

/// Parameters of a kernel with a score function.
type Parameters<F> = (
    Value<DecodeParams>,
    Ptr<u16>,
    Ptr<u16>,
    Ptr<u16>,
    Ptr<i32>,
    Value<Append>,
    Ptr<i32>,
    PtrMut<u16>,
    PtrMut<f32>,
    Ptr<f32>,
    PtrMut<u32>,
    PtrMut<f32>,
    PtrMut<f32>,
    Value<F>,
    Value<f32>,
);

/// The kernels of a score function, as [`CompiledDecode::Decode`] has them.
pub trait DecodeKernels<F: CompiledDecode>: private::Sealed<F> {}

impl<F: CompiledDecode, T: private::Sealed<F>> DecodeKernels<F> for T {}

mod private {
    use super::*;

    pub trait Sealed<F: CompiledDecode> {
        /// Queues the pass by the kernel of this index, with this factor of the function's scores.
        ///
        /// # Safety
        /// As for the kernel, which is the plan's.
        unsafe fn launch<V>(
            index: usize,
            plan: &DecodePlan,
            call: &mut Call<'_>,
            function: StructArgs<F, V>,
            scale: f32,
        ) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>;
    }

    impl<F: CompiledDecode> Sealed<F> for () {
        unsafe fn launch<V>(
            _: usize,
            plan: &DecodePlan,
            _: &mut Call<'_>,
            _: StructArgs<F, V>,
            _: f32,
        ) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>,
        {
            let wanted = "a kernel with the function".to_owned();
            let hint = "make the function's kernels by `decode_score_kernels!`";
            Err(invalid("the kernel", plan.kernel.to_owned(), wanted, hint))
        }
    }

    impl<F: CompiledDecode, K: Kernel<Params = Parameters<F>>, Rest: Sealed<F>> Sealed<F> for (K, Rest) {
        unsafe fn launch<V>(
            index: usize,
            plan: &DecodePlan,
            call: &mut Call<'_>,
            function: StructArgs<F, V>,
            scale: f32,
        ) -> Result<()>
        where
            StructArgs<F, V>: Arg<Value<F>>,
        {
            if let Some(index) = index.checked_sub(1) {
                // SAFETY: the caller's contract.
                return unsafe { Rest::launch(index, plan, call, function, scale) };
            }
            let operands = call.operands();
            let arguments = (
                operands.params,
                operands.queries,
                operands.keys,
                operands.values,
                operands.table,
                operands.append,
                operands.lengths,
                operands.data,
                operands.log_sum_exp,
                operands.sinks,
                &mut operands.parts.ended,
                &mut operands.parts.sums,
                &mut operands.parts.totals,
                function,
                scale,
            );
            // SAFETY: the caller's contract.
            unsafe { kernel::launch::<K>(operands.stream, operands.config, arguments) }
        }
    }
}
